"""What can be chosen among: callables on rows, or columns of predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags
from bagwise.predictions import check_one_label, row_values
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
    return row_values("hypothesis", hypothesis, bags)


def check_bags(bags: Bags) -> None:
    """Raise unless hypotheses of one 0/1 label can be compared on these bags."""
    if not isinstance(bags, Bags):
        raise TypeError(f"bags must be a bagwise.Bags, for example Bags.from_rows(y, ids), got {type(bags).__name__}.")
    check_one_label(bags)
    bags.check_proportions()
