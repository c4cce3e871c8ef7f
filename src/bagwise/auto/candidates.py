"""What `BagAutoClassifier` chooses among, and how each candidate reads the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from sklearn.base import clone

from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.boosting import BagBoostingClassifier
from bagwise.data.features import Encoding
from bagwise.linear import BagMeanMapClassifier, BagRidgeClassifier
from bagwise.utils.typing import Floats, Integers

PREFERRED = "boosting"
"""The default candidate that is best on most tables: kept unless another is clearly better."""


def default_candidates() -> dict[str, BagClassifier]:
    """Candidates by name, one of each family first, the cheap ones before the others: ridge, the mean map, boosting,
    where torch is installed a network; then others of these families, with few and many leaves, and with more layers.

    >>> list(default_candidates())[:3]
    ['ridge', 'mean map', 'boosting']
    """
    candidates: dict[str, BagClassifier] = {
        "ridge": BagRidgeClassifier(),
        "mean map": BagMeanMapClassifier(),
        PREFERRED: BagBoostingClassifier(),
    }
    others: dict[str, BagClassifier] = {
        "boosting, 3 leaves": BagBoostingClassifier(num_leaves=3),
        "boosting, 31 leaves": BagBoostingClassifier(num_leaves=31),
    }
    if find_spec("torch") is not None:
        from bagwise.neural import BagNeuralClassifier

        candidates["network, 32"] = BagNeuralClassifier()
        others["network, 128-64"] = BagNeuralClassifier(hidden=(128, 64))
    return candidates | others


@dataclass(frozen=True, eq=False)
class Views:
    """A table of codes (see `features`) as each candidate wants it: trees read codes, other models finite numbers."""

    codes: Floats
    numbers: Floats
    categorical: list[int]

    @classmethod
    def of(cls, codes: Floats, categorical: Sequence[int], encoding: Encoding) -> Views:
        """Both views of one table."""
        return cls(codes, encoding(codes), list(categorical))

    def take(self, rows: Integers) -> Views:
        """Some rows."""
        return Views(self.codes[rows], self.numbers[rows], self.categorical)

    def of_model(self, model: Any) -> Floats:
        """The view that `model` reads."""
        return self.codes if isinstance(model, BagBoostingClassifier) else self.numbers

    def fit(self, candidate: BagClassifier, bags: Bags, random_state: int) -> BagClassifier:
        """A fitted copy of the candidate; its `random_state`, unless given, is set."""
        model = clone(candidate)
        parameters = model.get_params(deep=False)
        if "random_state" in parameters and parameters["random_state"] is None:
            model.set_params(random_state=random_state)
        if isinstance(model, BagBoostingClassifier):
            own = model.categorical_features or ()
            model.set_params(categorical_features=sorted({*self.categorical, *own}))
        return model.fit(self.of_model(model), bags=bags)


def probabilities(model: BagClassifier, X: Floats, classes: bool) -> Floats:
    """(n,) probabilities of class 1, or (n, classes)."""
    h = model.predict_proba(X)
    return h if classes else h[:, 1]
