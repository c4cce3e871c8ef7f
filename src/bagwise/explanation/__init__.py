"""Why scores are what they are: contributions of features, what bags lose without a column, partial dependence.

`model.explain(X)` returns an `Explanation`: contributions that add up to scores exactly. `permutation_importance` asks
held-out bags, without one label, which columns a model needs; `partial_dependence` how predictions move with one.
"""

from bagwise.explanation.dependence import Dependence, partial_dependence
from bagwise.explanation.displays import BagContributionDisplay, BagDependenceDisplay, BagImportanceDisplay
from bagwise.explanation.importance import Importance, Importances, permutation_importance
from bagwise.explanation.result import Explanation

__all__ = [
    "BagContributionDisplay",
    "BagDependenceDisplay",
    "BagImportanceDisplay",
    "Dependence",
    "Explanation",
    "Importance",
    "Importances",
    "partial_dependence",
    "permutation_importance",
]
