r"""How good a model is, from bags alone, in every formation.

Accuracy, Brier score, log loss, a calibration bin, a point of the ROC curve and the area under it are all of the form
E[a + y·g], which `bagwise.expectations` tells from bags: by residuals where rows came to bags at random, by the slope
of bag means on proportions where rates of bags differ. With one row per bag every estimate equals the ordinary one from
individual labels.

Where bags are grouped by features, or have effects of their own beside that, bags do not tell how good a model is for
single rows. Then there is no number for it, but what is known in every formation (`bagwise.bag_fit`): how well the
model fits bags, what its accuracy would be if it were right, and between which numbers it lies whatever is true. A few
individual labels settle it (`labels`).

Real labels, as the value of a purchase, have measures of their own (`bagwise.evaluation.values`).
"""

from bagwise.evaluation.functions import differences, label_linear, risk
from bagwise.evaluation.measures import BagsNotRandomWarning, evaluate
from bagwise.evaluation.result import ClassEvaluation, Evaluation, GroupRate
from bagwise.evaluation.values import ValueEvaluation
from bagwise.metrics import Curve, Estimate

__all__ = [
    "BagsNotRandomWarning",
    "ClassEvaluation",
    "Curve",
    "Estimate",
    "Evaluation",
    "GroupRate",
    "ValueEvaluation",
    "differences",
    "evaluate",
    "label_linear",
    "risk",
]
