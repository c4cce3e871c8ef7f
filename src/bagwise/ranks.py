"""Columns of a table as numbers to compare groups of rows by: ranks, and indicators of categories.

A table has many of them, and its squares and products more. So ranks are kept as whole numbers of half the size, and
indicators as the codes of their column; `rows[:]` are the numbers of all rows, made when they are looked at.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from bagwise import segment
from bagwise.bags import Bags
from bagwise.utils.typing import Floats, Integers, NDArray

_LEVELS = 50  # most frequent categories tested one by one
_CELLS = 3_000_000  # numbers of X that `compared` looks at
_ENOUGH_BAGS = 100  # that it looks at where X is large

# Columns with an order of their own, by the kind of their type or what pandas.api.types.infer_dtype calls objects;
# others are categories.
_ORDERED = frozenset("buifmM") | {"boolean", "integer", "floating", "mixed-integer-float", "decimal"}
_ORDERED |= {"date", "datetime", "datetime64", "time", "timedelta", "timedelta64"}


class Rows(Protocol):
    """Numbers of rows: an array, or what one is made of when it is looked at."""

    def __getitem__(self, rows: Any, /) -> Any:
        """Those of some rows, in double precision; `[:]` of all."""


Scores = Sequence[tuple[Rows, float]]
"""Numbers (n,) to compare groups by, each with the number of rows that do not have its most common value."""

Columns = list[tuple[str, Scores]]
"""Columns of a table by name, as what they are compared by."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """Mean ranks, less a half, by their doubles, which are whole numbers.

    >>> Ranks(np.array([1, 4, 4], dtype=np.int32))[:]
    array([0.5, 2. , 2. ])
    """

    doubles: NDArray[np.int32]

    def __getitem__(self, rows: Any) -> Floats:
        """See `Rows`."""
        return np.asarray(self.doubles[rows] / 2)


@dataclass(frozen=True, eq=False)
class Levels:
    """Values of levels, by the level of each row.

    >>> Levels(np.array([1, 0, 1]), np.array([0.0, 2.5]))[1:]
    array([0. , 2.5])
    """

    codes: Integers
    values: Floats

    def __getitem__(self, rows: Any) -> Floats:
        """See `Rows`."""
        return np.asarray(self.values[self.codes[rows]])


@dataclass(frozen=True, eq=False)
class Product:
    """Deviations of one column from its mean, times those of another, or its own.

    >>> x = np.array([0.0, 1.0, 5.0])
    >>> Product((x, x), (2.0, 2.0))[:]
    array([4., 1., 9.])
    """

    columns: tuple[Rows, Rows]
    means: tuple[float, float]

    def __getitem__(self, rows: Any) -> Floats:
        """See `Rows`."""
        (one, other), (mean, another) = self.columns, self.means
        first = one[rows] - mean
        return np.asarray(first * (first if other is one else other[rows] - another))


def compared(X: Any, bags: Bags, *, cells: int = _CELLS) -> tuple[Bags, Columns]:
    """The columns of X as numbers to compare bags by, in bag order, and the bags; some of both where X is large.

    X: as in `diagnose`, or of more dimensions. What cannot be compared (sparse matrices, cells without order or hash)
    is passed over; whether numbers are missing is compared by itself.  cells: about how many numbers are looked at.
    """
    if sparse.issparse(X):
        return bags, []
    if not hasattr(X, "columns") and not hasattr(X, "to_pandas"):
        X = segment.to_numpy(X)
        if X.ndim == 0:  # no table at all, but what a model reads
            return bags, []
        X = X.reshape(len(X), -1)  # an image is as wide as it has points
    n, columns = columns_of(X)
    if n != bags.n_rows:
        raise ValueError(f"X has {n} rows but there are predictions for {bags.n_rows}: pass the same rows.")
    bag_step = max(1, min(-(-bags.n_bagged * len(columns) // cells), len(bags) // _ENOUGH_BAGS))
    some = bags if bag_step == 1 else bags.take(np.arange(0, len(bags), bag_step))
    column_step, found = max(1, -(-some.n_bagged * len(columns) // cells)), []
    for name, values in columns[::column_step]:
        for part, filled in without_gaps(name, values[some.order]):
            with suppress(ValueError):  # complex numbers
                found.append((part, scores_of(filled, part, some.weight)))
    return some, found


def without_gaps(name: str, values: NDArray[Any]) -> list[tuple[str, NDArray[Any]]]:
    """A column as columns without missing values or infinite numbers: whether one is missing may be grouped, too.

    >>> without_gaps("age", np.array([30.0, np.nan, 40.0]))
    [('age, missing', array([False,  True, False])), ('age', array([30., 35., 40.]))]
    """
    import pandas as pd

    missing = np.asarray(pd.isna(values))
    if missing.all():
        return [(name, missing)]
    if values.dtype.kind == "f":
        whole = np.nan_to_num(values, nan=float(np.nanmedian(values)))
    else:
        whole = np.where(missing, values[~missing][:1], values) if missing.any() else values
    return [(f"{name}, missing", missing), (name, whole)] if missing.any() else [(name, whole)]


def columns_of(X: Any) -> tuple[int, list[tuple[str, NDArray[Any]]]]:
    """The number of rows, and each column with its name."""
    if sparse.issparse(X):
        raise ValueError("X is sparse: pass X.toarray(), or that of the columns to test.")
    if hasattr(X, "to_pandas"):
        X = X.to_pandas()
    if hasattr(X, "columns"):
        repeated = X.columns.duplicated(keep=False)
        names = [f"feature {c!r}" + (f" (column {i})" if repeated[i] else "") for i, c in enumerate(X.columns)]
        return len(X), [(name, X.iloc[:, i].to_numpy()) for i, name in enumerate(names)]
    table = segment.to_numpy(X)
    if table.ndim != 2:
        raise ValueError(f"X must have two dimensions, rows and features, got shape {table.shape}.")
    return len(table), [(f"feature {i}", table[:, i]) for i in range(table.shape[1])]


def scores_of(values: NDArray[Any], name: str, weight: Floats | None = None) -> Scores:
    """Ranks of a column, so that no few large values decide; for categories also the indicators of the frequent ones.

    Empty where cells have no hash.  weight: (n,) for how many people each row stands.
    """
    import pandas as pd

    kind = values.dtype.kind if values.dtype.kind != "O" else pd.api.types.infer_dtype(values, skipna=True)
    if kind in ("c", "complex"):
        raise ValueError(f"{name} of X holds complex numbers: pass their real and imaginary parts as two columns.")
    ordered = kind in _ORDERED
    if ordered and (pd.isna(values).any() or (kind == "f" and np.isinf(values).any())):
        raise ValueError(f"{name} of X contains NaN or infinity: fill or remove such values first.")
    if kind == "f":
        return [_ranks(values, weight)]
    try:
        codes, levels = pd.factorize(values, use_na_sentinel=False)
    except TypeError:
        return []
    # Not the order of appearance, which is that of the bags where rows of a bag stand together.
    order = np.argsort(levels if ordered else np.asarray(levels, dtype=str))
    counts = np.bincount(codes, weight)
    total = len(values) if weight is None else float(weight.sum())
    rank = np.empty(len(levels))
    rank[order] = np.cumsum(counts[order]) - counts[order] / 2
    codes = codes.astype(np.int32)
    scores: list[tuple[Rows, float]] = [(Levels(codes, rank), float(total - counts.max()))]
    if ordered:
        return scores
    frequent = np.argsort(-counts, kind="stable")[:_LEVELS]
    return scores + [
        (Levels(codes, (np.arange(len(levels)) == c).astype(float)), float(min(counts[c], total - counts[c])))
        for c in frequent
    ]


def _ranks(values: Floats, weight: Floats | None) -> tuple[Rows, float]:
    """Mean ranks of numbers, less a half, and how many differ from the most common one."""
    order = np.argsort(values)
    level = values[order]
    level = np.concatenate([[0], np.cumsum(level[1:] != level[:-1])])
    counts = np.bincount(level, None if weight is None else weight[order])
    differ = float((len(values) if weight is None else weight.sum()) - counts.max())
    whole = weight is None and 2 * len(values) <= np.iinfo(np.int32).max
    ranks = np.empty(len(values), dtype=np.int32 if whole else float)
    ranks[order] = (2 * np.cumsum(counts) - counts if whole else np.cumsum(counts) - counts / 2)[level]
    return (Ranks(ranks) if whole else ranks), differ
