"""Tables of counts and label sums by the values of one feature, or of two: all that is known where there are no rows.

The values of a feature that have a cell of their own are its levels; the last cell of a table is for the rest: values
that are missing, too rare to be shown, or were never seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Self

import numpy as np
from scipy import sparse

from bagwise.data.features import as_frame
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import ArrayLike, Floats, Integers, NDArray

_MOST_LEVELS = 20_000  # of all features together: their moments are a square matrix
_EXACT = 1e-9  # of the largest variance: what is counted for exact has this, so that it can be divided by


@dataclass(frozen=True)
class CountedFeature:
    """A feature of tables of counts.

    Attributes
    ----------
    name : str
        Of the column.
    levels : tuple of str
        The values that have a cell of their own, as text.
    edges : tuple of float or None
        Where a number was cut: bin i, whose level is the text of i, has edge i − 1 <= x < edge i. None for categories.
    """

    name: str
    levels: tuple[str, ...]
    edges: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not all(isinstance(one, str) for one in self.levels):
            raise ValueError("a counted feature has a name and levels that are text")
        if self.edges is None:
            return
        if not self.edges or not np.isfinite(self.edges).all() or (np.diff(self.edges) <= 0).any():
            raise ParameterError("edges", f"of {self.name!r} must be finite numbers that increase, got {self.edges}.")
        bins = {str(number) for number in range(len(self.edges) + 1)}
        if others := [one for one in self.levels if one not in bins]:
            said = f"of {self.name!r} make the bins 0 to {len(self.edges)}, but its tables have the value {others[0]!r}"
            raise ParameterError("edges", f"{said}: values of a binned number are numbers of bins.")

    @property
    def rest(self) -> int:
        """The number of the last cell."""
        return len(self.levels)

    def cells(self, values: Any) -> Integers:
        """(n,) the number of the cell of each of some values: numbers where there are edges, otherwise of any type."""
        codes, levels = _distinct(values if self.edges is None else binned(values, self.edges))
        place = {level: number for number, level in enumerate(self.levels)}
        return np.array([*(place.get(one, self.rest) for one in levels), self.rest], dtype=np.int64)[codes]

    def cells_of(self, codes: Floats) -> Integers:
        """The same of codes of levels, NaN for others; of the numbers themselves where there are edges."""
        if self.edges is not None:
            return self.cells(codes)
        known = (codes >= 0) & (codes < self.rest) & (codes == np.floor(codes))
        return np.where(known, np.where(known, codes, 0), self.rest).astype(np.int64)


@dataclass(frozen=True, eq=False)
class CountTable:
    """Counts and label sums by one feature or two.

    Attributes
    ----------
    features : tuple of int
        Numbers of its features, one or two, the smaller first.
    count, sum : array
        By cells of these features, the rest last; NaN where there is no line.
    noise_variance : array or None
        By the same cells, of the noise on each count and each sum; None: as the aggregates say for all tables.
    """

    features: tuple[int, ...]
    count: Floats
    sum: Floats
    noise_variance: Floats | None = None


@dataclass(frozen=True, eq=False)
class Aggregates:
    """Tables of counts and label sums about the same rows, each by one feature or by two.

    Attributes
    ----------
    features : tuple of CountedFeature
        What rows are counted by.
    tables : tuple of CountTable
        By one feature each, and by pairs.
    noise_variance : float or None
        Of the noise on every count and every sum, independent of each other, of tables that tell none of their own;
        None where nobody says: it is then estimated from what tables repeat of each other, as one number for all.
    threshold : float or None
        Below which counts are not shown: cells without a line are hidden. None: they count no rows.
    rows : float or None
        How many rows there are, where that is known.

    Examples
    --------
    >>> found = Aggregates.of({"device": ["a", "a", "b"], "hour": [1, 2, 2]}, [0, 1, 1])
    >>> [one.levels for one in found.features], found.tables[2].count
    ([('a', 'b'), ('1', '2')], array([[ 1.,  1., nan],
           [nan,  1., nan],
           [nan, nan, nan]]))
    """

    features: tuple[CountedFeature, ...]
    tables: tuple[CountTable, ...]
    noise_variance: float | None = 0.0
    threshold: float | None = None
    rows: float | None = None

    def __post_init__(self) -> None:
        names = [one.name for one in self.features]
        if not names or len({*names}) < len(names):
            raise ValueError("aggregates are by one feature at least, each of another name.")
        if (width := self.width) > _MOST_LEVELS:
            way = "count the rare ones as one, or leave features out"
            raise ValueError(f"the features have {width:,} values in all, more than {_MOST_LEVELS:,}: {way}.")
        seen = set()
        for table in self.tables:
            shape = tuple(self.features[one].rest + 1 for one in table.features)
            if not 1 <= len(shape) <= 2 or table.features in seen or list(table.features) != sorted({*table.features}):
                raise ValueError(f"there must be one table for each feature or pair of features, got {table.features}.")
            own = table.noise_variance
            if table.count.shape != shape or table.sum.shape != shape or (own is not None and own.shape != shape):
                raise ValueError(f"the table by {self.named(table)} must have the shape {shape}.")
            if own is not None and not (np.isfinite(own) & (own >= 0))[np.isfinite(table.count)].all():
                raise ValueError(f"the noise of the table by {self.named(table)} must be finite and at least 0.")
            seen.add(table.features)
        telling = [table.noise_variance is not None for table in self.tables]
        if self.noise_variance is None and any(telling) and not all(telling):
            silent = self.named(self.tables[telling.index(False)])
            raise ParameterError("noise_variance", f"must be told for the table by {silent}, too: others tell theirs.")
        if lacking := {*range(len(names))} - {one for table in self.tables for one in table.features}:
            raise ValueError(f"there is no table by {names[min(lacking)]!r}.")

    @classmethod
    def of(
        cls,
        X: Any,
        y: ArrayLike,
        *,
        edges: Mapping[str, Sequence[float]] | None = None,
        max_levels: int | None = None,
    ) -> Self:
        """The exact tables of rows with labels.

        Parameters
        ----------
        X : table or dict
            Columns of categories, and of numbers where there are edges.
        y : array of shape (n,)
            Labels 0 and 1.
        edges : dict of str to sequence of float, optional
            Where numbers are cut, by column.
        max_levels : int, optional
            The most frequent values that get a cell of their own; all if not given.

        Returns
        -------
        Aggregates
        """
        import pandas as pd

        frame, y, edges = as_frame(pd.DataFrame(X) if isinstance(X, Mapping) else X), np.asarray(y), edges or {}
        if len(y) != len(frame) or y.ndim != 1:
            raise ValueError(f"X has {len(frame)} rows but y has the shape {y.shape}.")
        if not np.isin(y, (0, 1)).all():
            raise ValueError(f"y must be 0 or 1, got {y[~np.isin(y, (0, 1))][0]!r}.")
        if absent := [name for name in edges if name not in frame.columns]:
            raise ParameterError("edges", f"names {absent[0]!r}, which is no column of X.")
        features = []
        for name in frame.columns:
            cut = tuple(float(one) for one in edges[name]) if name in edges else None
            codes, levels = _distinct(frame[name] if cut is None else binned(frame[name], cut))
            counts = Counter(dict.fromkeys(levels, 0))
            for level, times in zip(levels, np.bincount(codes[codes >= 0], minlength=len(levels)), strict=True):
                counts[level] += int(times)  # values of several types may have one text
            kept = [level for level, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:max_levels]]
            features.append(CountedFeature(str(name), tuple(sorted(kept)), cut))
        cells = [one.cells(frame[one.name]) for one in features]
        return cls(tuple(features), tuple(_tables(features, cells, y.astype(float))))

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """(d + 1,) the number of each feature's first cell among those of all, and of cells in all."""
        return np.concatenate([[0], np.cumsum([one.rest + 1 for one in self.features])]).astype(np.int64)

    @property
    def width(self) -> int:
        """Cells of all features."""
        return int(self.first[-1])

    def block(self, feature: int) -> slice:
        """The cells of a feature among those of all."""
        return slice(int(self.first[feature]), int(self.first[feature + 1]))

    def named(self, table: CountTable) -> str:
        """The features of a table, in words."""
        return " and ".join(repr(self.features[one].name) for one in table.features)

    @property
    def lines(self) -> int:
        """Cells with a count, in all tables."""
        return sum(int(np.isfinite(table.count).sum()) for table in self.tables)

    @cached_property
    def noise_range(self) -> tuple[float, float] | None:
        """The least and the largest variance of the noise on a line; None where nobody says."""
        found = []
        for table in self.tables:
            if (told := self._noise_of(table)) is None:
                return None
            found.append(told[np.isfinite(table.count)])
        lines = np.concatenate(found)
        return (float(lines.min()), float(lines.max())) if len(lines) else (0.0, 0.0)

    @property
    def noise_level(self) -> float | None:
        """The largest variance of the noise on a line; None where nobody says."""
        return None if self.noise_range is None else self.noise_range[1]

    def noise_shares(self, table: CountTable) -> Floats:
        """By the cells of a table, the variance of their noise in the largest of all.

        It is above 0 where counts are exact, too. Cells without a line have the mean of those with one. All are 1 where
        there is no noise, or nobody says.
        """
        if (own := self._noise_of(table)) is None or not self.noise_level:
            return np.ones(table.count.shape)
        listed = np.isfinite(table.count)
        shares = np.maximum(np.where(listed, own, 0.0) / self.noise_level, _EXACT)
        return np.where(listed, shares, shares[listed].mean() if listed.any() else 1.0)

    def at_noise_level(self, variance: float) -> Self:
        """The same tables where the largest variance of noise is another, and all in proportion to it."""
        tables = tuple(
            one if one.noise_variance is None else replace(one, noise_variance=variance * self.noise_shares(one))
            for one in self.tables
        )
        share = self.noise_variance / self.noise_level if self.noise_variance and self.noise_level else 1.0
        return replace(self, tables=tables, noise_variance=share * variance)

    def _noise_of(self, table: CountTable) -> Floats | None:
        """By the cells of a table, what is said of their noise."""
        if table.noise_variance is not None or self.noise_variance is None:
            return table.noise_variance
        return np.full(table.count.shape, self.noise_variance)

    @property
    def pairs_without_table(self) -> list[tuple[int, int]]:
        """Numbers of features of which no table tells how they go together."""
        known = {table.features for table in self.tables}
        return [pair for pair in combinations(range(len(self.features)), 2) if pair not in known]

    def noised(self, noise: Callable[[Floats], Floats], variance: float, *, threshold: float | None = None) -> Self:
        """Exact tables as they may be published: noise on every cell, those of no rows among them, rare cells hidden.

        Parameters
        ----------
        noise : callable
            Gives numbers with noise for exact ones. Noise that protects somebody is made by `publish_aggregates`.
        variance : float
            Of that noise.
        threshold : float, optional
            What noised counts are hidden below, with their sums.

        Returns
        -------
        Aggregates
        """
        tables = []
        for table in self.tables:
            count, total = (noise(np.nan_to_num(one)) for one in (table.count, table.sum))
            shown = np.full(count.shape, True) if threshold is None else count >= threshold
            count, total = (np.where(shown, one, np.nan) for one in (count, total))
            tables.append(replace(table, count=count, sum=total))
        return replace(self, tables=tuple(tables), noise_variance=float(variance), threshold=threshold)

    def split(self, ratio: float, rng: np.random.Generator) -> tuple[Self, Self]:
        r"""Two versions whose noises are independent, if noise is Gaussian; uncorrelated otherwise.

        With e of the variance s² of the noise, they are z + √r e and z − e/√r, whose noises vary by s²(1 + r) and
        s²(1 + 1/r).

        Parameters
        ----------
        ratio : float
            The number r.
        rng : Generator
            Draws e.

        Returns
        -------
        Aggregates, Aggregates
        """
        level, one, other = self.noise_level or 0.0, [], []
        for table in self.tables:
            scale = np.sqrt(level * self.noise_shares(table))
            count, total = (scale * rng.standard_normal(table.count.shape) for _ in range(2))
            more, less = np.sqrt(ratio), 1 / np.sqrt(ratio)
            one.append(replace(table, count=table.count + more * count, sum=table.sum + more * total))
            other.append(replace(table, count=table.count - less * count, sum=table.sum - less * total))
        return (
            replace(self, tables=tuple(one)).at_noise_level(level * (1 + ratio)),
            replace(self, tables=tuple(other)).at_noise_level(level * (1 + 1 / ratio)),
        )


def _distinct(values: Any) -> tuple[Integers, list[str]]:
    """(n,) which value each is, −1 for what is missing, and the values as text."""
    import pandas as pd

    codes, levels = pd.factorize(values if hasattr(values, "dtype") else np.array(list(values), dtype=object))
    return codes, [as_text(one) for one in levels.tolist()]


def as_text(value: Any) -> str:
    """A value as text that does not depend on the type in which a table holds it.

    >>> as_text(1.0), as_text(2.5), as_text("a"), as_text(True)
    ('1', '2.5', 'a', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def binned(values: Any, edges: Sequence[float]) -> Floats:
    """(n,) the bins of numbers, NaN for what is missing.

    >>> binned([1.0, 5.0, None], (5.0, 10.0))
    array([ 0.,  1., nan])
    """
    try:
        numbers = np.array([np.nan if one is None else one for one in values], dtype=float)
    except (TypeError, ValueError):
        raise ValueError("what has edges must be numbers: convert it, or count it as categories.") from None
    return np.where(np.isnan(numbers), np.nan, np.searchsorted(edges, numbers, side="right"))


def _tables(features: Sequence[CountedFeature], codes: Sequence[Integers], y: Floats) -> list[CountTable]:
    """All tables of rows whose cells are known; cells of no rows have no line."""
    n, width = len(y), [one.rest + 1 for one in features]
    first = np.concatenate([[0], np.cumsum(width)])
    places = np.stack([code + start for code, start in zip(codes, first[:-1], strict=True)], axis=1)
    pointers = np.arange(0, n * len(features) + 1, len(features))
    rows = sparse.csr_matrix((np.ones(places.size), places.ravel(), pointers), shape=(n, int(first[-1])))
    count, total = (rows.T @ rows).toarray(), (rows.T @ rows.multiply(y[:, None]).tocsr()).toarray()
    at, found = [slice(first[one], first[one + 1]) for one in range(len(features))], []
    for one in range(len(features)):
        shown, summed = count[at[one], at[one]].diagonal(), total[at[one], at[one]].diagonal()
        found.append(CountTable((one,), *_shown(shown, summed)))
    for one, other in combinations(range(len(features)), 2):
        found.append(CountTable((one, other), *_shown(count[at[one], at[other]], total[at[one], at[other]])))
    return found


def _shown(count: Floats, total: Floats) -> tuple[Floats, Floats]:
    return np.where(count > 0, count, np.nan), np.where(count > 0, total, np.nan)
