"""Linear models: ridge in closed form, projected stochastic gradient descent (Algorithm 2), and the mean map."""

from bagwise.linear.mean_map import BagMeanMapClassifier
from bagwise.linear.ridge import BagRidgeClassifier, BagRidgeRegressor
from bagwise.linear.sgd import BagSGDClassifier, BagSGDRegressor

__all__ = ["BagMeanMapClassifier", "BagRidgeClassifier", "BagRidgeRegressor", "BagSGDClassifier", "BagSGDRegressor"]
