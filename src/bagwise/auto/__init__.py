"""Candidates of all families, chosen without labels."""

from bagwise.auto.estimator import BagAutoClassifier, default_candidates
from bagwise.auto.regressor import BagAutoRegressor, default_value_candidates

__all__ = ["BagAutoClassifier", "BagAutoRegressor", "default_candidates", "default_value_candidates"]
