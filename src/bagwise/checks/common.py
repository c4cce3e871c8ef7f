"""What the checks share: a table to learn from, and the three ways to fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags

from bagwise.bags import aggregate, random_bags
from bagwise.utils.typing import Floats, Integers

Check = Callable[[Any], None]
_LONGEST = 500  # characters of an error message: more is not read


@dataclass(frozen=True, eq=False)
class Table:
    """600 rows whose label depends on the first two of four features, and their bags of 10."""

    X: Floats
    y: Floats
    ids: Integers
    proportion: Floats


def table_for(estimator: Any, sizes: tuple[int, ...] | None = None) -> Table:
    """Labels 0 and 1 for a classifier, real ones for a regressor; bags of the given sizes, repeated."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    score = signal(X)
    y = (rng.random(600) < 1 / (1 + np.exp(-score))).astype(float) if is_classifier(estimator) else score + 2
    ids = random_bags(600, 10, random_state=0)
    if sizes is not None:
        ids = rng.permutation(np.repeat(np.arange(600), np.resize(sizes, 600))[:600])
    return Table(X, y, ids, aggregate(y, ids))


def signal(X: Floats) -> Floats:
    """What labels depend on."""
    return 1.5 * X[:, 0] + X[:, 1]


def learns_little(estimator: Any) -> bool:
    """Whether the tags say that small tables teach it nothing."""
    tags = get_tags(estimator)
    return bool((tags.classifier_tags or tags.regressor_tags).poor_score)


def name(estimator: Any) -> str:
    """As messages call it."""
    return type(estimator).__name__


def fitted(estimator: Any, X: Any, y: Any = None, *, bags: Any = None, on: str = "bags") -> Any:
    """A fitted clone; `on` says on what, where that fails."""
    with succeeding(estimator, f"fit on {on}"):
        return clone(estimator).fit(X, y, bags=bags)


@contextmanager
def succeeding(estimator: Any, what: str) -> Iterator[None]:
    """A block in which any error means that the estimator failed."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{name(estimator)}: {what} raises {_told(error)}") from error


def outputs(model: Any, X: Any) -> Floats:
    """Probabilities of a classifier, predictions of a regressor."""
    return np.asarray(model.predict_proba(X) if is_classifier(model) else model.predict(X))


def same(estimator: Any, found: Floats, expected: Floats, when: str, *, exactly: bool = False) -> None:
    """Raise where predictions differ that should not."""
    tolerance = 0.0 if exactly else float(getattr(estimator, "_check_tolerance", 1e-6))
    if found.shape != expected.shape:
        raise AssertionError(f"{name(estimator)}: predictions have another shape {when}.")
    if not np.allclose(found, expected, rtol=tolerance, atol=tolerance):
        gap = np.abs(found - expected).max()
        raise AssertionError(f"{name(estimator)}: predictions change by up to {gap:.2g} {when}.")


def refuses_fit(estimator: Any, what: str, X: Any, y: Any = None, *, bags: Any = None, naming: str = "") -> None:
    """Raise unless `fit` refuses what it is given."""
    refuses(estimator, f"fit on {what}", lambda: clone(estimator).fit(X, y, bags=bags), naming=naming)


def refuses(
    estimator: Any, what: str, action: Callable[[], Any], *, kind: type[Exception] = ValueError, naming: str = ""
) -> None:
    """Raise unless the action ends in an error of that kind, whose message is short and names a bag or a number."""
    try:
        action()
    except kind as error:
        if len(str(error)) > _LONGEST or not re.search(rf"\b{naming}\b", str(error)):
            raise AssertionError(
                f"{name(estimator)}: the error of {what} does not say so: {str(error)[:200]!r}."
            ) from error
    except Exception as error:
        raise AssertionError(f"{name(estimator)}: {what} should raise a {kind.__name__}, not {_told(error)}") from error
    else:
        raise AssertionError(f"{name(estimator)}: {what} should raise a {kind.__name__}, and is accepted.")


def _told(error: Exception) -> str:
    """Kind and first line of an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or ['(no message)'])[0]}"
