"""Predictions of models, and other values of rows, checked before anything is measured; what reports make of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logit

from bagwise import segment
from bagwise.bags import Bags
from bagwise.losses import posterior
from bagwise.losses.adding_up import adding_up
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import ArrayLike, Floats, NDArray

_SURE = 1e-6  # a probability of 0 or 1 would leave nothing for a report to say

Hypothesis = Callable[[Any], ArrayLike] | ArrayLike
"""A function of the table of rows, or a fitted classifier, that gives one prediction per row; or those predictions."""


def predicted(model: Any, X: Any, bags: Any = None) -> Floats:
    """The predictions h of a model, (n,) for two classes or (n, classes); or the predictions given.

    bags: of the rows, whose offset a model that was fitted with one needs.
    """
    is_model = hasattr(model, "predict_proba") and not isinstance(model, type)
    if is_model:
        _check_classes(getattr(model, "classes_", None))
    elif hasattr(model, "predict"):
        raise TypeError(
            "evaluate needs probabilities: the model has no predict_proba; if labels are real numbers, say "
            "target='value'."
        )
    h = _numbers(model.predict_proba(X, **_offset_for(model, bags)) if is_model else model)
    if h is None or h.ndim not in (1, 2):
        got = type(model).__name__ if h is None or h.ndim == 0 else f"shape {h.shape}"
        raise TypeError(
            f"model must be a fitted classifier with predict_proba, or its predictions (n,) or (n, classes), got {got}."
        )
    _check_finite("the prediction", h)
    if h.size and (h.min() < 0 or h.max() > 1):
        raise ValueError("predictions must lie in [0, 1]: pass probabilities, not scores or classes.")
    if h.ndim == 1 or h.shape[1] == 1:
        return h.reshape(len(h))
    wrong = np.abs(h.sum(axis=1) - 1) > 1e-6
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(f"the predictions of row {i} sum to {h[i].sum():.6g} over classes: they must sum to 1.")
    return h[:, 1] if h.shape[1] == 2 else h


def _offset_for(model: Any, bags: Any) -> dict[str, Any]:
    """What to hand to a model that was fitted with an offset, where bags of the rows have one."""
    known = isinstance(bags, Bags) and bags.offset is not None and getattr(model, "has_offset_", False)
    return {"offset": bags.of_table(bags.offset)} if known else {}


def predicted_values(model: Any, X: Any, bags: Any = None) -> Floats:
    """(n,) the predictions h of a regressor; or the predictions given.  bags: as for `predicted`."""
    is_model = hasattr(model, "predict") and not isinstance(model, type)
    h = _numbers(model.predict(X, **_offset_for(model, bags)) if is_model else model)
    if h is not None and h.ndim == 2 and h.shape[1] == 1:
        h = h[:, 0]
    if h is None or h.ndim != 1:
        got = type(model).__name__ if h is None or h.ndim == 0 else f"shape {h.shape}"
        raise TypeError(f"model must be a fitted regressor, or its predictions (n,), got {got}.")
    _check_finite("the prediction", h)
    return h


def _check_classes(classes: Any) -> None:
    """Proportions of several classes have the order of the model's; of two, they are those of the second."""
    if classes is not None and len(classes) < 2:
        name = repr(classes[0].item() if hasattr(classes[0], "item") else classes[0])
        raise ValueError(f"the model knows one class only, {name}: fit it to labels of two classes or more.")


def fitting_bags(h: Floats, bags: Bags) -> Bags:
    """The bags, of one label where predictions are of two classes; raise unless there is a prediction for each row.

    Predictions have the offset of rows in them: the bags are those without it.
    """
    bags = bags if bags.offset is None else replace(bags, offset=None)
    if h.ndim == 1 and bags.proportion.shape[1:] == (2,):
        bags = bags.of_class(1)
    bags.check_predictions(h[bags.order])
    return bags


def row_values(name: str, values: Any, bags: Bags) -> Floats:
    """(n,) finite numbers, one per row of the table, where bags report one label."""
    check_one_label(bags)
    rows = _numbers(values)
    if rows is None or rows.shape != (bags.n_rows,):
        got = type(values).__name__ if rows is None else f"shape {rows.shape}"
        raise ParameterError(name, f"must hold one number per row, shape ({bags.n_rows},), got {got}.")
    _check_finite(name, rows)
    return rows


def check_one_label(bags: Bags) -> None:
    """Raise unless these are bags that report one label."""
    if not isinstance(bags, Bags):
        raise TypeError(f"bags must be a bagwise.Bags, for example Bags.from_rows(y, ids), got {type(bags).__name__}.")
    if bags.proportion.ndim != 1:
        raise ValueError(
            f"the bags report {bags.proportion.shape[1]} classes but one label is needed: take one class, or use "
            "evaluate."
        )


def as_hypotheses(hypotheses: Sequence[Hypothesis] | NDArray[Any], bags: Bags) -> Sequence[Hypothesis] | NDArray[Any]:
    """Hypotheses for these bags, at least one: a list, or an array (n_rows, H)."""
    check_one_label(bags)
    if bags.weight is not None:
        raise ParameterError("sample_weight", "is not known to tests of hypotheses, which are of random rows.")
    bags.check_proportions()
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


def hypothesis_values(hypothesis: Hypothesis, bags: Bags, X: Any) -> Floats:
    """(n_rows,) predictions in table order, checked."""
    model = hasattr(hypothesis, "predict_proba")
    if model or callable(hypothesis):
        if X is None:
            raise ValueError("hypotheses are functions or models but X is missing: pass the rows they predict.")
        hypothesis = hypothesis.predict_proba(X)[:, 1] if model else hypothesis(X)  # type: ignore[operator,union-attr]
    return row_values("hypothesis", hypothesis, bags)


def given_reports(h: Floats, bags: Bags, effect_variance: float) -> Floats:
    """Predictions h, (n,) or (n, classes), of rows given the reports of their bags; of other rows as they are."""
    if bags.n_rows != len(h):
        raise ValueError(f"the bags were built on {bags.n_rows} rows but X has {len(h)}.")
    bags.check_predictions(h[bags.order])
    if bags.overlap is not None:
        every = np.clip(h, _SURE, 1 - _SURE)
        return adding_up(logit(every) if h.ndim == 1 else np.log(every), bags)
    sure = np.clip(h[bags.order], _SURE, 1 - _SURE)
    scores = np.log(sure) - (np.log1p(-sure) if h.ndim == 1 else 0.0)
    known = h.copy()
    known[bags.order] = posterior(scores, bags, effect_variance=effect_variance)
    return known


def _numbers(values: Any) -> Floats | None:
    """A float array without gradient, or None where there are no numbers."""
    try:
        return np.asarray(segment.to_numpy(values), dtype=float)
    except (TypeError, ValueError):
        return None


def _check_finite(what: str, values: Floats) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"{what} of row {int(np.argwhere(~np.isfinite(values))[0][0])} is NaN or infinite.")
