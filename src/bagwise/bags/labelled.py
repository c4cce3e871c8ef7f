"""Rows whose own label is known, taken out of their bags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.bags.intervals import Intervals
from bagwise.bags.reading import ROUNDING, name, read_rows
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import ArrayLike, Floats

if TYPE_CHECKING:
    from bagwise.bags.bags import Bags


def without_labelled(bags: Bags, labels: ArrayLike) -> tuple[dict[str, Any], Intervals | None]:
    """What `Bags.build` takes of bags without the labelled rows, and of these as bags of their own (see `with_labels`).

    labels: (n_rows,) NaN where a label is not known.
    Also the intervals of all these, those that are empty included, where counts of `bags` lie in some.
    """
    y = np.asarray(labels, dtype=float)
    if y.shape != (bags.n_rows,):
        raise ParameterError("labels", f"must hold one label or NaN per row, shape ({bags.n_rows},), got {y.shape}.")
    if bags.weight is not None or bags.offset is not None:
        raise ParameterError("labels", "of rows do not go with weights or an offset: leave one of them out.")
    m, known, classes = len(bags), ~np.isnan(y), max(bags.outputs.shape[1], 2)
    if not np.isin(y[known], np.arange(classes)).all():
        raise ParameterError("labels", f"must be 0 to {classes - 1}, or NaN for rows without a label.")
    told: Floats = np.where(known, y, 0.0)[:, None]
    if bags.proportion.ndim == 2:
        told = (y[:, None] == np.arange(classes)).astype(float)
    inside = known & (bags.code >= 0)
    owner = bags.code[inside]
    taken = np.bincount(owner, minlength=m)
    count = np.column_stack([np.bincount(owner, one, m) for one in told[inside].T])  # (m, outputs) of known labels
    kept = bags.size - taken
    left = (bags.size[:, None] * bags.outputs - count) / np.maximum(kept, 1)[:, None]
    wrong = (kept > 0) & ((left < -ROUNDING) | (left > 1 + ROUNDING)).any(axis=1)
    if bags.noise_variance is None and wrong.any():
        key = name(bags.keys[int(np.argmax(wrong))])
        raise ValueError(f"labels of rows of bag {key} do not fit its report: what is left would be no proportion.")
    ids = np.where(known, m + np.cumsum(known) - 1, bags.code)
    rows = np.where(known[:, None], told, left[np.maximum(bags.code, 0)])
    noise = None
    if bags.noise_variance is not None:
        noise = np.where(known, 0.0, bags.noise_variance[np.maximum(bags.code, 0)])
    given = read_rows(rows if bags.proportion.ndim == 2 else rows[:, 0], ids, noise)
    if bags.interval is None:
        return given, None
    alone = told[known]  # a labelled row is its own interval, without noise
    low, high = (
        np.concatenate([end.reshape(count.shape) - count, alone]) for end in (bags.interval.low, bags.interval.high)
    )
    if bags.proportion.ndim == 1:
        low, high = low[:, 0], high[:, 0]
    return given, Intervals(low, high, np.append(bags.interval.noise, np.zeros(len(alone))))
