"""What can be chosen among: callables on rows, or columns of predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Floats

Hypothesis = Callable[[Any], ArrayLike] | ArrayLike
"""A function of the table of rows, or a fitted classifier, that gives one prediction per row; or those predictions."""


def as_hypotheses(hypotheses: Sequence[Hypothesis] | NDArray[Any], bags: Bags) -> Sequence[Hypothesis] | NDArray[Any]:
    """Hypotheses for these bags, at least one: a list, or an array (n_rows, H)."""
    check_bags(bags)
    given = hypotheses if isinstance(hypotheses, (list, tuple, np.ndarray)) else np.asarray(hypotheses)
    if isinstance(given, np.ndarray) and (given.ndim != 2 or len(given) != bags.n_rows):
        raise ParameterError(
            "hypotheses",
            f"must be a list of functions or models, or an array of shape ({bags.n_rows}, number of hypotheses), "
            f"got shape {given.shape}.",
        )
    if len(given.T if isinstance(given, np.ndarray) else given) == 0:
        raise ParameterError("hypotheses", "must hold at least one to choose from.")
    return given


def predictions(hypothesis: Hypothesis, bags: Bags, X: Any) -> Floats:
    """(n_rows,) predictions in table order, checked."""
    model = hasattr(hypothesis, "predict_proba")
    if model or callable(hypothesis):
        if X is None:
            raise ValueError("hypotheses are functions or models but X is missing: pass the rows they predict.")
        hypothesis = hypothesis.predict_proba(X)[:, 1] if model else hypothesis(X)  # type: ignore[operator,union-attr]
    try:
        h = np.asarray(hypothesis, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a hypothesis must be a function, a model or numbers, got {hypothesis!r}.") from error
    if h.shape != (bags.n_rows,):
        raise ValueError(f"a hypothesis must give one prediction per row, shape ({bags.n_rows},), got {h.shape}.")
    check_finite_predictions(h)
    return h


def check_bags(bags: Bags) -> None:
    """Raise unless hypotheses of one 0/1 label can be compared on these bags."""
    if not isinstance(bags, Bags):
        raise TypeError(f"bags must be a bagwise.Bags, for example Bags.from_rows(y, ids), got {type(bags).__name__}.")
    if bags.proportion.ndim != 1:
        raise ValueError("hypotheses predict one label: the bags must report one proportion each, not one per class.")
    bags.check_proportions()


def check_finite_predictions(h: Floats, first: int = 0) -> None:
    """Raise where a prediction is NaN or infinite, naming its row (and column, counted from `first`)."""
    finite = np.isfinite(h)
    if not finite.all():
        place = tuple(int(i) for i in np.argwhere(~finite)[0])
        where = f"row {place[0]}" if len(place) == 1 else f"row {place[0]} of hypothesis {first + place[1]}"
        raise ValueError(f"the prediction for {where} is NaN or infinite.")
