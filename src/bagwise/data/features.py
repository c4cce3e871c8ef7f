"""Tables as models read them.

`FeatureCodes` turns a table into numbers, codes of categories and NaN, which trees read as they are; `Encoding` turns
those into finite numbers for models that know neither categories nor gaps. Both remember the training table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from bagwise.numeric import AS_NUMBERS
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Booleans, Floats, NDArray


@dataclass(frozen=True, eq=False)
class FeatureCodes:
    """The categories of each categorical column, learned from the training table; numbers have none.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [30, 40], "device": ["tablet", "phone"]})
    >>> codes = FeatureCodes.of(table)
    >>> codes.matrix(table)
    array([[30.,  1.],
           [40.,  0.]])
    >>> codes.matrix(pd.DataFrame({"age": [50, None], "device": ["radio", None]}))  # unknown and missing
    array([[50., nan],
           [nan, nan]])
    """

    categories: tuple[NDArray[Any] | None, ...]

    @classmethod
    def of(cls, table: Any) -> FeatureCodes:
        """Learn the categories of a pandas, polars or Arrow table."""
        return cls(tuple(_categories(column) for _, column in as_frame(table).items()))

    @property
    def categorical(self) -> list[int]:
        """Numbers of the categorical columns."""
        return [i for i, values in enumerate(self.categories) if values is not None]

    def matrix(self, table: Any) -> NDArray[np.float64]:
        """(n, columns) numbers and codes."""
        import pandas as pd

        frame = as_frame(table)
        matrix = np.empty(frame.shape)
        for i, values in enumerate(self.categories):
            column = frame.iloc[:, i]
            _check_no_dates(column)
            if values is not None:
                with _telling_lists(column):
                    codes = pd.Index(values).get_indexer(column.astype(object))
                matrix[:, i] = np.where(codes < 0, np.nan, codes)
                continue
            name = f"column {column.name!r} of X"
            try:
                matrix[:, i] = column.to_numpy(dtype=float, na_value=np.nan)
            except (TypeError, ValueError):
                raise ValueError(f"{name} held numbers in training and does not now: convert it first.") from None
            infinite = np.flatnonzero(np.isinf(matrix[:, i]))
            if len(infinite):
                raise ValueError(f"{name} contains infinity (first in row {infinite[0]}): replace such values first.")
        return matrix


class TableFeatures:
    """Features that may be categories or missing: NaN is a missing value, infinity an error.

    categorical_features: numbers of the columns of an array that hold codes of categories.
    """

    features_: FeatureCodes
    categorical_features: Sequence[int] | None

    def check_whole(self) -> None:
        """Raise unless its parts fit each other: of a model that was read from a file."""
        if not isinstance(getattr(self, "features_", None), FeatureCodes):
            raise ValueError("it does not know the columns that it reads")
        super().check_whole()  # type: ignore[misc]

    def _categorical(self) -> list[int]:
        """Numbers of the columns that are categories, because the table says so or the user."""
        n = len(self.features_.categories)
        given = [] if self.categorical_features is None else list(self.categorical_features)
        for column in given:
            if not (isinstance(column, Integral) and 0 <= int(column) < n):
                asked = f"must be numbers of columns from 0 to {n - 1}, got {column!r}."
                raise ParameterError("categorical_features", asked)
        return sorted({*self.features_.categorical, *(int(column) for column in given)})

    def _check_features(self, X: Any, *, fitting: bool) -> Floats:
        if not fitting:
            check_is_fitted(self)
        options: dict[str, Any] = {"ensure_all_finite": "allow-nan", "ensure_min_samples": 2 if fitting else 1}
        if is_table(X):
            validate_data(self, X, skip_check_array=True, reset=fitting)
            if fitting:
                self.features_ = FeatureCodes.of(X)
            codes = self.features_.matrix(X)  # whose columns have been checked
            return np.asarray(check_array(codes, **options))
        if not fitting and self.features_.categorical:
            raise ValueError("the model was fitted on a table with categories: pass a table with the same columns.")
        matrix: Floats = validate_data(self, X, dtype=(np.float64, np.float32), reset=fitting, **options)
        if fitting:
            self.features_ = FeatureCodes((None,) * matrix.shape[1])
        return matrix

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        return tags


_PIECE = 4096  # rows that fit into the processor's cache


@dataclass(frozen=True, eq=False)
class Encoding:
    """Numbers scaled to [0, 1] by least and greatest training value, categories as one column per training level.

    low, span: (d,) least training value and the range.  fill: (d,) the scaled mean, which takes the place of a missing
    number.  missing: (d,) numbers that were missing in training, which get a column for it.  levels: the codes that
    get a column, None for numbers.

    >>> codes = np.array([[20.0, 0.0], [60.0, 1.0], [np.nan, 1.0]])
    >>> Encoding.of(codes, categorical=[1])(codes)
    array([[0. , 0. , 1. , 0. ],
           [1. , 0. , 0. , 1. ],
           [0.5, 1. , 0. , 1. ]], dtype=float32)
    """

    low: Floats
    span: Floats
    fill: Floats
    missing: Booleans
    levels: tuple[Floats | None, ...]

    @classmethod
    def of(cls, X: Floats, *, categorical: Sequence[int] = (), max_levels: int | None = None) -> Encoding:
        """Learn from training rows; with `max_levels`, the most frequent levels of a category get columns."""
        levels = tuple(_frequent(X[:, i], max_levels) if i in set(categorical) else None for i in range(X.shape[1]))
        known = ~np.isnan(X)
        # In double precision whatever X is: rows in shards, of which only these figures are known, become the same.
        low = np.min(X, axis=0, initial=np.inf, where=known).astype(float)
        high = np.max(X, axis=0, initial=-np.inf, where=known).astype(float)
        low = np.where(known.any(axis=0), low, 0.0)
        mean = np.sum(X, axis=0, where=known, dtype=float) / np.maximum(known.sum(axis=0), 1)
        return cls.scaled(low, high, mean, np.asarray(~known.all(axis=0)), levels)

    @classmethod
    def scaled(cls, low: Floats, high: Floats, mean: Floats, gaps: Booleans, levels: tuple[Floats | None, ...]) -> Self:
        """From least, greatest and mean training value of columns, where some are missing, and levels: (d,) each."""
        span = np.where(high > low, high - low, 1.0)
        numbers = np.array([values is None for values in levels], dtype=bool)
        return cls(low, span, (mean - low) / span, gaps & numbers, levels)

    @property
    def width(self) -> int:
        """Columns of what comes out."""
        return int(self._first[-1])

    @cached_property
    def _first(self) -> NDArray[np.int64]:
        """The columns that each column of codes begins at, and how many there are."""
        width = [1 + self.missing[i] if values is None else len(values) for i, values in enumerate(self.levels)]
        return np.concatenate([[0], np.cumsum(width)]).astype(np.int64)

    def used(self, encoded: Booleans) -> Booleans:
        """Which columns of codes are used, of those of what comes out: a column counts if one that is made of it does.

        >>> codes = np.array([[20.0, 0.0], [60.0, 1.0]])
        >>> Encoding.of(codes, categorical=[1]).used(np.array([False, False, True]))
        array([False,  True])
        """
        return np.array([encoded[first:last].any() for first, last in pairwise(self._first)], dtype=bool)

    @property
    def origin(self) -> NDArray[np.int64]:
        """(columns of what comes out,) the numbers of the columns of codes that they are made of."""
        return np.repeat(np.arange(len(self.levels)), np.diff(self._first))

    def names(self, names: Sequence[str]) -> list[str]:
        """Of what comes out, as many as there are columns: those of the columns of codes that they are made of.

        >>> codes = np.array([[20.0, 0.0], [60.0, 1.0]])
        >>> Encoding.of(codes, categorical=[1]).names(["age", "device"])
        ['age', 'device', 'device']
        """
        return [name for name, width in zip(names, np.diff(self._first), strict=True) for _ in range(width)]

    def __call__(self, X: Floats) -> NDArray[np.float32]:
        """(n, columns) finite numbers."""
        first = self._first
        encoded = np.empty((len(X), self.width), dtype=np.float32)
        numbers = [i for i, values in enumerate(self.levels) if values is None]
        for start in range(0, len(X), _PIECE):  # numbers in pieces: a whole copy of X would cost as much again
            rows = slice(start, start + _PIECE)
            scaled = X[rows, numbers] if len(numbers) < X.shape[1] else X[rows]
            gap = np.isnan(scaled)
            scaled = (scaled - self.low[numbers]) / self.span[numbers]
            encoded[rows, first[numbers]] = np.where(gap, self.fill[numbers], scaled) if gap.any() else scaled
            with_column = self.missing[numbers]
            encoded[rows, first[numbers][with_column] + 1] = gap[:, with_column]
        for i, values in enumerate(self.levels):
            if values is not None:
                np.equal(X[:, i, None], values, out=encoded[:, first[i] : first[i + 1]])
        return encoded


def is_table(X: Any) -> bool:
    """Whether X has columns of its own kinds, as pandas, polars and Arrow tables have."""
    return hasattr(X, "to_pandas") or hasattr(X, "select_dtypes")


def as_frame(table: Any) -> Any:
    """The table as a pandas data frame."""
    return table.to_pandas() if hasattr(table, "to_pandas") else table


def _categories(column: Any) -> NDArray[Any] | None:
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column.dtype):  # booleans too
        return None
    _check_no_dates(column)
    present = column.dropna().astype(object)
    with _telling_lists(column):
        return np.array(sorted(present.unique(), key=lambda value: (str(type(value)), value)), dtype=object)


def _check_no_dates(column: Any) -> None:
    """Raise where a column holds dates, which would be taken for numbers."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column.dtype) or pd.api.types.is_timedelta64_dtype(column.dtype):
        raise ValueError(f"column {column.name!r} of X holds dates: {AS_NUMBERS}")


@contextmanager
def _telling_lists(column: Any) -> Iterator[None]:
    """What cannot be looked up is told by its column."""
    try:
        yield
    except TypeError as error:
        said = "holds lists, or others that are no categories: make columns of what is in them, or leave it out."
        raise ValueError(f"column {column.name!r} of X {said}") from error


def _frequent(column: Floats, max_levels: int | None) -> Floats:
    """The levels of a column of codes, in order; the `max_levels` most frequent of them."""
    levels, counts = np.unique(column[~np.isnan(column)], return_counts=True)
    return levels if max_levels is None else np.sort(levels[np.argsort(-counts, kind="stable")[:max_levels]])
