"""Linear models: ridge in closed form, the count likelihood, projected SGD (Algorithm 2), and the mean map.

`AggregatedLogisticClassifier` and `AggregatedRidgeClassifier` learn from tables of counts instead of rows.
"""

from bagwise.linear.aggregated import AggregatedLogisticClassifier, AggregatedRidgeClassifier, NoiseDiffersWarning
from bagwise.linear.logistic import BagLogisticClassifier
from bagwise.linear.mean_map import BagMeanMapClassifier
from bagwise.linear.ridge import BagRidgeClassifier, BagRidgeRegressor
from bagwise.linear.sgd import BagSGDClassifier, BagSGDRegressor
from bagwise.linear.tweedie import BagTweedieRegressor

__all__ = [
    "AggregatedLogisticClassifier",
    "AggregatedRidgeClassifier",
    "BagLogisticClassifier",
    "BagMeanMapClassifier",
    "BagRidgeClassifier",
    "BagRidgeRegressor",
    "BagSGDClassifier",
    "BagSGDRegressor",
    "BagTweedieRegressor",
    "NoiseDiffersWarning",
]
