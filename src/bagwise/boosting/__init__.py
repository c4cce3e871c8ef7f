"""Trees on bag gradients, with leaf values solved exactly at the level of bags."""

from bagwise.boosting.classifier import BagBoostingClassifier
from bagwise.boosting.regressor import BagBoostingRegressor

__all__ = ["BagBoostingClassifier", "BagBoostingRegressor"]
