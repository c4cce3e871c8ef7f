"""What the checks share: an estimator with a table to learn from, and the ways to fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags

from bagwise.bags import aggregate, random_bags
from bagwise.utils.typing import Floats

_LONGEST = 500  # characters of an error message: more is not read


class Case:
    """An estimator, and 600 rows whose label depends on the first two of four features, in bags of 10.

    Labels are 0 and 1 for a classifier, real ones for a regressor.  sizes: of the bags in place of 10, repeated.
    """

    def __init__(self, estimator: Any, sizes: tuple[int, ...] | None = None) -> None:
        rng = np.random.default_rng(0)
        self.estimator = estimator
        self.X = rng.normal(size=(600, 4))
        self.signal = 1.5 * self.X[:, 0] + self.X[:, 1]
        certain = 1 / (1 + np.exp(-self.signal))
        self.y = (rng.random(600) < certain).astype(float) if is_classifier(estimator) else self.signal + 2
        self.ids = random_bags(600, 10, random_state=0)
        if sizes is not None:
            self.ids = rng.permutation(np.repeat(np.arange(600), np.resize(sizes, 600))[:600])
        self.proportion = aggregate(self.y, self.ids)

    @cached_property
    def model(self) -> Any:
        """Fitted to the table."""
        return self.fitted(self.X, self.proportion, self.ids)

    @property
    def learns_little(self) -> bool:
        """Whether the tags say that small tables teach it nothing."""
        tags = get_tags(self.estimator)
        return bool((tags.classifier_tags or tags.regressor_tags).poor_score)

    def fitted(self, X: Any, y: Any = None, bags: Any = None, *, on: str = "bags") -> Any:
        """A fitted clone; `on` says on what, where that fails."""
        with self.succeeding(f"fit on {on}"):
            return clone(self.estimator).fit(X, y, bags=bags)

    def outputs(self, model: Any) -> Floats:
        """Probabilities of a classifier, predictions of a regressor."""
        return np.asarray(model.predict_proba(self.X) if is_classifier(model) else model.predict(self.X))

    def require(self, holds: Any, sentence: str) -> None:
        """Raise the sentence after the estimator's name, unless something holds."""
        if not holds:
            raise AssertionError(f"{type(self.estimator).__name__}: {sentence}")

    def same(self, model: Any, expected: Any, when: str, *, exactly: bool = False) -> None:
        """Raise where predictions of two models differ that should not."""
        tolerance = 0.0 if exactly else float(getattr(self.estimator, "_check_tolerance", 1e-6))
        found, wanted = self.outputs(model), self.outputs(expected)
        self.require(found.shape == wanted.shape, f"predictions have another shape {when}.")
        gap = np.abs(found - wanted).max()
        close = np.allclose(found, wanted, rtol=tolerance, atol=tolerance)
        self.require(close, f"predictions change by up to {gap:.2g} {when}.")

    @contextmanager
    def succeeding(self, what: str) -> Iterator[None]:
        """A block in which any error means that the estimator failed."""
        try:
            yield
        except Exception as error:
            self.require(False, f"{what} raises {_told(error)}")

    def refuses_fit(self, what: str, X: Any, y: Any = None, bags: Any = None, *, naming: str = "") -> None:
        """Raise unless `fit` refuses what it is given."""
        self.refuses(f"fit on {what}", lambda: clone(self.estimator).fit(X, y, bags=bags), naming=naming)

    def refuses(
        self, what: str, action: Callable[[], Any], *, kind: type[Exception] = ValueError, naming: str = ""
    ) -> None:
        """Raise unless the action ends in an error of that kind, whose message is short and names a bag or a number."""
        try:
            action()
        except kind as error:
            said = len(str(error)) <= _LONGEST and re.search(rf"\b{naming}\b", str(error))
            self.require(said, f"the error of {what} does not say so: {str(error)[:200]!r}.")
        except Exception as error:
            self.require(False, f"{what} should raise a {kind.__name__}, not {_told(error)}")
        else:
            self.require(False, f"{what} should raise a {kind.__name__}, and is accepted.")


def _told(error: Exception) -> str:
    """Kind and first line of an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or ['(no message)'])[0]}"
