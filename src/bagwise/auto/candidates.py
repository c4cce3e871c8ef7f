"""What `BagAutoClassifier` chooses among, and how each candidate reads the table."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from sklearn.base import clone

from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.data.reading import fit_codes
from bagwise.data.rows import InMemory
from bagwise.estimators import make
from bagwise.linear import BagMeanMapClassifier
from bagwise.utils.typing import Floats, Integers

PREFERRED = "boosting"
"""The default candidate that is best on most tables: kept unless another is clearly better."""


def default_candidates() -> dict[str, BagClassifier]:
    """Candidates by name, one of each family first, the cheap ones before the others.

    Ridge, the mean map, boosting, where torch is installed a network; then others of these families, with few and many
    leaves, and with more layers.

    >>> list(default_candidates())[:3]
    ['ridge', 'mean map', 'boosting']
    """
    candidates: dict[str, BagClassifier] = {
        "ridge": make("ridge"),
        "mean map": BagMeanMapClassifier(),
        PREFERRED: make("boosting"),
    }
    others: dict[str, BagClassifier] = {
        "boosting, 3 leaves": make("boosting", num_leaves=3),
        "boosting, 31 leaves": make("boosting", num_leaves=31),
    }
    if find_spec("torch") is not None:
        candidates["network, 32"] = make("network")
        others["network, 128-64"] = make("network", hidden=(128, 64))
    return candidates | others


@dataclass(frozen=True, eq=False)
class Readings:
    """A table as each candidate reads it.  codes: numbers, codes of categories and NaN.  numbers: the same encoded."""

    codes: InMemory
    numbers: InMemory

    def of(self, model: BagClassifier) -> Floats:
        """The rows as `model` reads them."""
        return (self.codes if model.reads.codes else self.numbers).X

    def select(self, bags: Bags, rows: Integers | None = None) -> Readings:
        """The same rows, or some of them, with these bags."""
        return Readings(self.codes.select(bags, rows), self.numbers.select(bags, rows))

    def fit(self, candidate: BagClassifier, random_state: int) -> BagClassifier:
        """A fitted copy of the candidate; its `random_state`, unless given, is set."""
        model: BagClassifier = clone(candidate)
        parameters = model.get_params(deep=False)
        if "random_state" in parameters and parameters["random_state"] is None:
            model.set_params(random_state=random_state)
        fit_codes(model, self.codes, self.numbers)
        return model


def probabilities(model: BagClassifier, X: Floats, classes: bool) -> Floats:
    """(n,) probabilities of class 1, or (n, classes)."""
    h = model.predict_proba(X)
    return h if classes else h[:, 1]
