"""Linear models: ridge in closed form, and projected stochastic gradient descent (Algorithm 2)."""

from bagwise.linear.moments import Moments
from bagwise.linear.ridge import BagRidgeClassifier, BagRidgeRegressor
from bagwise.linear.sgd import BagSGDClassifier, BagSGDRegressor, SGDConstants, sgd_constants

__all__ = [
    "BagRidgeClassifier",
    "BagRidgeRegressor",
    "BagSGDClassifier",
    "BagSGDRegressor",
    "Moments",
    "SGDConstants",
    "sgd_constants",
]
