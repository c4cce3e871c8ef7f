"""Trees on bag gradients, with leaf values solved exactly at the level of bags."""

from bagwise.boosting.estimators import BagBoostingClassifier, BagBoostingRegressor
from bagwise.boosting.leaves import solve_leaves

__all__ = ["BagBoostingClassifier", "BagBoostingRegressor", "solve_leaves"]
