"""What bags are built from, checked. Each error is one sentence that names the bag, the row or the parameter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise import segment
from bagwise.bags.keys import encode, name
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Booleans, Floats, Integers


def as_numbers(values: Any) -> Floats:
    """A float array; a TypeError or ValueError where the values are no numbers."""
    if getattr(getattr(values, "dtype", None), "kind", "f") in "mMc":
        raise TypeError("dates and complex numbers are no labels")  # NumPy would convert them silently
    return np.asarray(values, dtype=float)


def as_labels(y: ArrayLike) -> Floats:
    """Labels or proportions as a float array (n,) or (n, classes)."""
    try:
        labels = as_numbers(y)
    except (TypeError, ValueError) as error:
        raise ParameterError("y", "must be numeric: encode labels as 0 and 1 (or one 0/1 column per class).") from error
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]  # a table of one column is that column
    if labels.ndim not in (1, 2):
        raise ParameterError("y", f"must have shape (n,) or (n, classes), got {labels.shape}.")
    return labels


def encode_rows(ids: Any, n: int | None = None) -> tuple[Integers, NDArray[Any]]:
    """Codes of the rows and keys of the bags; there must be rows, and bags."""
    codes, keys = encode(ids)
    if n is not None and len(codes) != n:
        raise ParameterError("y", f"has {n} rows but bags has {len(codes)}: give each row one value and one bag id.")
    if len(codes) == 0:
        raise ValueError("the table is empty: there must be at least one row.")
    if len(keys) == 0:
        raise ValueError("no row is in a bag: every bag id is −1 or missing.")
    return codes, keys


def sum_labels(y: Floats, codes: Integers, m: int) -> NDArray[np.float64]:
    """(m,) or (m, classes) sums of labels over the rows of each bag, all of which must be finite."""
    inside = codes >= 0
    bad = inside & ~finite(y)
    if bad.any():
        raise ParameterError("y", f"is NaN or infinite in row {int(np.argmax(bad))}: every row in a bag needs a label.")
    return segment.sum_table(np.where(segment.per_bag(inside, y), y, 0.0), codes, m)


def constant_in_bag(y: Floats, what: str, keys: NDArray[Any], order: Integers, offsets: NDArray[np.int64]) -> Floats:
    """The value each bag repeats on its rows (table order); an error names the bag that carries two."""
    rows = y[order]
    good = finite(rows)
    if not good.all():
        j = int(np.searchsorted(offsets, np.argmin(good), side="right")) - 1
        raise ValueError(f"bag {name(keys[j])} has NaN or infinite {what}: remove it or repair its report.")
    first = rows[offsets[:-1]]
    expected = segment.repeat(first, offsets)
    differs = np.abs(rows - expected) > 1e-12 + 1e-9 * np.abs(expected)
    if differs.any():
        place = int(np.argwhere(differs)[0][0])
        j = int(np.searchsorted(offsets, place, side="right")) - 1
        raise ValueError(
            f"bag {name(keys[j])} carries two different {what} ({first[j]} and {rows[place]}): each row must repeat "
            "its bag's value; bagwise.aggregate(y, ids) makes proportions from individual labels."
        )
    return first


def finite(value: Floats) -> Booleans:
    """Which rows hold no NaN and no infinity."""
    good: Booleans = np.isfinite(value)
    return good if value.ndim == 1 else np.asarray(good.all(axis=1))


def check_finite(value: Floats, keys: NDArray[Any], what: str) -> None:
    """Raise and name the row or bag whose value is NaN or infinite."""
    good = finite(value)
    if not good.all():
        j = int(np.argmin(good))
        owner = "row" if what == "label" else "bag"
        raise ValueError(f"{owner} {name(keys[j])} has a NaN or infinite {what}: remove it or repair its report.")


def check_sizes(reported: Floats, rows: Integers, keys: NDArray[Any]) -> None:
    """Raise and name the bag whose reported size is not its number of rows."""
    differs = reported != rows
    if differs.any():
        j = int(np.argmax(differs))
        raise ValueError(
            f"bag {name(keys[j])} reports size {reported[j]:g} but has {rows[j]} rows: rows are missing or repeated; "
            "complete them, or leave the column of sizes out."
        )
