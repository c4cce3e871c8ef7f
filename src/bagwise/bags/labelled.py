"""Rows whose own label is known, taken out of their bags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.bags.intervals import Intervals
from bagwise.bags.reading import ROUNDING, name, read_rows
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import ArrayLike, Booleans, Floats

if TYPE_CHECKING:
    from bagwise.bags.bags import Bags


def without_labelled(bags: Bags, labels: ArrayLike) -> tuple[dict[str, Any], dict[str, Any], Intervals | None]:
    """What `Bags.build` takes of bags without the labelled rows, and of these as bags of their own (see `with_labels`).

    labels: (n_rows,) NaN where a label is not known.
    Also weights and offsets of all rows, in the order of the table; and the intervals of all these bags, those that are
    empty included, where counts of `bags` lie in some.
    """
    y = np.asarray(labels, dtype=float)
    if y.shape != (bags.n_rows,):
        raise ParameterError("labels", f"must hold one label or NaN per row, shape ({bags.n_rows},), got {y.shape}.")
    m, known, classes = len(bags), ~np.isnan(y), max(bags.outputs.shape[1], 2)
    if not np.isin(y[known], np.arange(classes)).all():
        raise ParameterError("labels", f"must be 0 to {classes - 1}, or NaN for rows without a label.")
    people, offset = _of_rows(bags, known)
    known &= people > 0
    told: Floats = np.where(known, y, 0.0)[:, None]
    if bags.proportion.ndim == 2:
        told = (y[:, None] == np.arange(classes)).astype(float)
    inside = known & (bags.code >= 0)
    owner = bags.code[inside]
    some = bags.rows > np.bincount(owner, minlength=m)  # who have rows without a label
    counted = people[inside, None] * told[inside]
    count = np.column_stack([np.bincount(owner, one, m) for one in counted.T])  # (m, outputs) of known labels
    kept = np.where(some, bags.size - np.bincount(owner, people[inside], minlength=m), 1)
    left = (bags.size[:, None] * bags.outputs - count) / kept[:, None]
    wrong = some & ((left < -ROUNDING) | (left > 1 + ROUNDING)).any(axis=1)
    if bags.noise_variance is None and wrong.any():
        key = name(bags.keys[int(np.argmax(wrong))])
        raise ValueError(f"labels of rows of bag {key} do not fit its report: what is left would be no proportion.")
    ids = np.where(known, m + np.cumsum(known) - 1, bags.code)
    rows = np.where(known[:, None], told, left[np.maximum(bags.code, 0)])
    noise = None
    if bags.noise_variance is not None:
        noise = np.where(known, 0.0, bags.noise_variance[np.maximum(bags.code, 0)])
    given = read_rows(rows if bags.proportion.ndim == 2 else rows[:, 0], ids, noise)
    of_rows = {"weight": None if bags.weight is None else people, "offset": offset}
    if bags.interval is None:
        return given, of_rows, None
    alone = people[known, None] * told[known]  # a labelled row is its own interval, without noise
    low, high = (
        np.concatenate([end.reshape(count.shape) - count, alone]) for end in (bags.interval.low, bags.interval.high)
    )
    if bags.proportion.ndim == 1:
        low, high = low[:, 0], high[:, 0]
    return given, of_rows, Intervals(low, high, np.append(bags.interval.noise, np.zeros(len(alone))))


def _of_rows(bags: Bags, known: Booleans) -> tuple[Floats, Floats | None]:
    """(n_rows,) for how many people rows stand, for one in no bag; and their offset.  known: whether labels are."""
    people, offset = bags.of_table(bags.weight), bags.of_table(bags.offset)
    inside = bags.code >= 0
    if offset is not None and (alone := np.flatnonzero(known & ~inside)).size:
        what = f"are of row {int(alone[0])}, which is in no bag, so that its offset is not known"
        raise ParameterError("labels", f"{what}: give labels first, then the offset of all rows.")
    return np.ones(bags.n_rows) if people is None else np.where(inside, people, 1.0), offset
