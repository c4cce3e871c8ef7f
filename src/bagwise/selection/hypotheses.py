"""What can be chosen among: callables on rows, or columns of predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags

Hypothesis = Callable[[Any], ArrayLike] | ArrayLike
"""A function of the table of rows that returns one prediction per row, or those predictions."""


def predictions(hypothesis: Hypothesis, bags: Bags, X: Any) -> NDArray[np.floating]:
    """(n_rows,) predictions in table order, checked."""
    if callable(hypothesis):
        if X is None:
            raise ValueError("hypotheses are functions but X is missing: pass the rows they predict.")
        hypothesis = hypothesis(X)
    h = np.asarray(hypothesis, dtype=float)
    if h.shape != (bags.n_rows,):
        raise ValueError(f"a hypothesis must give one prediction per row, shape ({bags.n_rows},), got {h.shape}.")
    check_finite_predictions(h)
    return h


def check_finite_predictions(h: NDArray[np.floating]) -> None:
    """Raise where a prediction is NaN or infinite, naming its row (and column)."""
    finite = np.isfinite(h)
    if not finite.all():
        place = tuple(int(i) for i in np.argwhere(~finite)[0])
        where = f"row {place[0]}" if len(place) == 1 else f"row {place[0]} of hypothesis {place[1]}"
        raise ValueError(f"the prediction for {where} is NaN or infinite.")
