"""Bags of rows as estimators learn from them: whole bags in blocks, however many rows there are.

`Reads` is what an estimator says it reads, `BagRows` what it may ask of its data. Held in memory (`InMemory`), the rows
are one matrix and seldom more than one block; in shards on disk (`data.shards`) a block is read when it is asked for.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.intervals import Intervals
from bagwise.data.features import Encoding
from bagwise.segment import take
from bagwise.utils.typing import Floats, Integers, NDArray

if TYPE_CHECKING:
    pass

SAMPLE_ROWS, SAMPLE_NUMBERS = 500_000, 2**25
"""Size of the sample that settings are chosen on: so many rows, or so many numbers if that is less."""


@dataclass(frozen=True)
class Reads:
    """What an estimator reads, declared as its class attribute `reads`; by default finite numbers in memory.

    Parameters
    ----------
    codes : bool
        Numbers, NaN where one is missing, and codes of categories in the columns that its parameter
        `categorical_features` names. Without it, a table of codes is encoded as finite numbers first.
    blocks : bool
        Data in several blocks, of which it need not hold all in memory (see `bagwise.data.rows`).
    moments : bool
        Moments of folds of bags instead of rows: it has `fit_moments` and `n_folds`.
    weights, offset : bool
        Rows that stand for several people, and what is added to their log odds (see `Bags`).
    shared : bool
        Rows that are in bags of several groupings once, as `Bags.order` names them; others are given them once for
        each of their bags.
    """

    codes: bool = False
    blocks: bool = False
    moments: bool = False
    weights: bool = False
    offset: bool = False
    shared: bool = False


class BagRows(ABC):
    """Bags of rows in blocks of whole bags; ``len()`` is the number of blocks. Bags are known by their numbers.

    Attributes
    ----------
    size, rows, proportion, noise_variance : array, the last or None
        Of the bags, as in `Bags`.
    starts : array of int, shape (blocks + 1,)
        The bag that each block begins with, and the number of bags.
    n_rows, n_columns : int
        Of all blocks, as they are stored.
    categorical : sequence of int
        Columns that the model reads as categories.
    codes_to_numbers : Encoding or None
        Makes what the model reads of stored rows; None if it reads them as they are.
    names : sequence of str or None
        Names of the columns as they are stored, to speak of them.
    interval : Intervals or None
        Of the bags, as in `Bags`.
    weight, offset : array or None
        Of the rows in bags, as in `Bags`: all of them in memory, however many blocks there are.
    """

    size: Integers
    rows: Integers
    proportion: Floats
    noise_variance: Floats | None
    starts: Integers
    n_rows: int
    n_columns: int
    categorical: Sequence[int]
    codes_to_numbers: Encoding | None
    names: Sequence[str] | None = None
    interval: Intervals | None = None
    weight: Floats | None = None
    offset: Floats | None = None

    @cached_property
    def row_offsets(self) -> NDArray[np.int64]:
        """(m + 1,) the row of the bags that each bag begins with, bag after bag, and their number."""
        return np.concatenate([[0], np.cumsum(self.rows)]).astype(np.int64)

    @property
    @abstractmethod
    def bags(self) -> Bags:
        """All bags, as those of a table of the rows of all blocks, one block after the other."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A checksum of rows and reports: other data have another one."""

    @abstractmethod
    def block(self, number: int) -> Floats:
        """(rows, …) one block as it is stored; its bags come one after the other where there are several blocks."""

    def blocks(self) -> Iterator[Floats]:
        """All blocks, one after the other; a thread reads the next while one is used."""
        with ThreadPoolExecutor(1) as thread:
            coming = thread.submit(self.block, 0)
            for number in range(1, len(self) + 1):
                block = coming.result()
                if number < len(self):
                    coming = thread.submit(self.block, number)
                yield block

    @abstractmethod
    def encoding(self) -> Encoding:
        """How the codes of all rows become finite numbers."""

    @abstractmethod
    def encoded(self, encoding: Encoding) -> BagRows:
        """The same bags for a model that reads numbers."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of all blocks, and the numbers in each as the model reads it."""
        return self.n_rows, self.n_columns if self.codes_to_numbers is None else self.codes_to_numbers.width

    def encode(self, rows: Floats) -> Floats:
        """Stored rows, some of a block or all, as the model reads them."""
        return rows if self.codes_to_numbers is None else self.codes_to_numbers(rows)

    @property
    def sample_rows(self) -> int:
        """How many rows settings are chosen on."""
        return min(SAMPLE_ROWS, SAMPLE_NUMBERS // max(self.shape[1], 1))

    def sample(self, rows: int | None = None) -> InMemory:
        """The first bags as the model reads them: a random sample, since the order of bags is as good as random.

        rows: about how many, but four bags or more; None for as many as settings are chosen on.
        """
        rows = self.sample_rows if rows is None else rows
        n_bags = min(max(int(np.searchsorted(self.row_offsets[1:], rows, side="right")), 4), len(self.rows))
        X, bags = self._first(n_bags)
        return InMemory(X, bags, self.categorical, names=self.names if self.codes_to_numbers is None else None)

    def _first(self, n_bags: int) -> tuple[Floats, Bags]:
        """The first bags and their rows."""
        bags, blocks = subset(self, np.arange(n_bags), coded=True), int(np.searchsorted(self.starts, n_bags))
        return np.concatenate([self.encode(self.block(number)) for number in range(blocks)])[: bags.n_rows], bags


class InMemory(BagRows):
    """A matrix and the bags of its rows.

    Parameters
    ----------
    X : array, shape (n, …)
        Rows, in table order: `bags.order` says which are whose.
    bags : Bags
        The bags of the rows.
    categorical, codes_to_numbers, names : sequence of int, Encoding or None, sequence of str or None
        As in `BagRows`.
    starts : array of int, optional
        As in `BagRows`; one block if not given. In several blocks, rows stand in bag order.

    Examples
    --------
    >>> data = InMemory(np.arange(6.0)[:, None], Bags.from_rows([0.5, 1.0, 0.5, 1.0, 0.0, 0.0], [0, 1, 0, 1, 2, 2]))
    >>> len(data), data.size, data.block(0).shape
    (1, array([2, 2, 2]), (6, 1))
    >>> InMemory(data.X, Bags.from_rows(np.zeros(6), [0, 0, 1, 1, 2, 2]), starts=np.array([0, 1, 3])).block(1).ravel()
    array([2., 3., 4., 5.])
    """

    def __init__(
        self,
        X: Floats,
        bags: Bags,
        categorical: Sequence[int] = (),
        starts: Integers | None = None,
        codes_to_numbers: Encoding | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if len(X) != bags.n_rows:
            raise ValueError(f"the bags were built on {bags.n_rows} rows but X has {len(X)}.")
        self.X, self._bags, self.categorical, self.codes_to_numbers = X, bags, categorical, codes_to_numbers
        self.size, self.proportion, self.noise_variance = bags.size, bags.proportion, bags.noise_variance
        self.rows, self.weight, self.offset = bags.rows, bags.weight, bags.offset
        self.names, self.interval = names, bags.interval
        self.starts = np.array([0, len(bags)]) if starts is None else starts
        self.n_rows, self.n_columns = len(X), int(np.prod(X.shape[1:]))

    @property
    def bags(self) -> Bags:
        """The bags of the rows."""
        return self._bags

    @property
    def fingerprint(self) -> str:
        """A checksum of rows and reports."""
        return checksum(self, self.X, self.bags.order)

    def block(self, number: int) -> Floats:
        """The rows of one block."""
        first, last = row_starts(self)[number : number + 2] if len(self) > 1 else (0, len(self.X))
        return self.X[first:last]

    def _first(self, n_bags: int) -> tuple[Floats, Bags]:
        if n_bags == len(self.bags):
            return self.encode(self.X), self.bags
        chosen = np.arange(n_bags)
        return self.encode(self.X[self.bags.take(chosen).order]), subset(self, chosen, coded=True)

    def select(self, bags: Bags, rows: Integers | None = None) -> InMemory:
        """The same rows, or some of them, with these bags."""
        return InMemory(self.X if rows is None else self.X[rows], bags, self.categorical)

    def encoding(self, max_levels: int | None = None) -> Encoding:
        """That of the rows in bags: rows in no bag say nothing.  max_levels: see `Encoding.of`."""
        inside = self.X if self.bags.n_bagged == len(self.X) else self.X[np.sort(self.bags.order)]
        return Encoding.of(inside, categorical=self.categorical, max_levels=max_levels)

    def encoded(self, encoding: Encoding) -> InMemory:
        """The same bags: rows are encoded now, or, in several blocks, as they are read."""
        if len(self) > 1:
            return InMemory(self.X, self.bags, (), self.starts, encoding)
        return InMemory(encoding(self.X), self.bags, names=None if self.names is None else encoding.names(self.names))


def fit_codes(estimator: Any, codes: BagRows, numbers: BagRows | None = None, **how: Any) -> Encoding | None:
    """Fit an estimator to a table of numbers, codes of categories and NaN, as it reads them.

    Where it reads codes, its `categorical_features` come to name those of the table, too.  numbers: the same table
    encoded; by default as the data themselves say.  how: further arguments of its `fit_rows`.
    Returns how codes became the numbers that it reads; None where it reads codes, or was given numbers.
    """
    if estimator.reads.codes:
        given = estimator.get_params(deep=False)["categorical_features"] or ()
        estimator.set_params(categorical_features=sorted({*codes.categorical, *given}))
        estimator.fit_rows(codes, **how)
        return None
    encoding = None
    if numbers is None:
        encoding = codes.encoding()
        numbers = codes.encoded(encoding)
    estimator.fit_rows(numbers, **how)
    return encoding


def in_one_piece(data: BagRows) -> TypeGuard[InMemory]:
    """Whether all rows are one matrix in memory, so that they may be worked on at once."""
    return isinstance(data, InMemory) and len(data) == 1


def row_starts(data: BagRows) -> NDArray[np.int64]:
    """(blocks + 1,) the row that each block begins with, and the number of rows in bags."""
    return data.row_offsets[data.starts]


def prior(data: BagRows) -> float | Floats:
    """The mean label over all rows in bags, p; one number, or one per class."""
    p = np.average(data.proportion, axis=0, weights=data.size)
    return p if p.ndim else float(p)


def subset(data: BagRows, numbers: Integers, *, coded: bool = False) -> Bags:
    """Some bags alone, as those of a table of their rows, bag after bag.  coded: with the number of each row's bag."""
    noise, interval, weight, offset = (
        None if data.noise_variance is None else data.noise_variance[numbers],
        None if data.interval is None else data.interval.take(numbers),
        *(None if one is None else take(one, data.row_offsets, numbers)[0] for one in (data.weight, data.offset)),
    )
    told: dict[str, Any] = {"coded": coded, "interval": interval, "weight": weight, "offset": offset}
    return bags_in_order(numbers, data.rows[numbers], data.proportion[numbers], noise, **told)


def bags_in_order(
    keys: Integers,
    rows: Integers,
    proportion: Floats,
    noise_variance: Floats | None,
    *,
    coded: bool = True,
    interval: Intervals | None = None,
    weight: Floats | None = None,
    offset: Floats | None = None,
) -> Bags:
    """Bags of a table whose rows stand bag after bag.

    rows: of each bag.  coded: see `subset`.  The others: as in `Bags`.
    """
    offsets = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    n_rows = int(offsets[-1])
    small: Any = np.int32 if n_rows < 2**31 else np.int64
    codes = np.repeat(np.arange(len(rows), dtype=small), rows) if coded else None
    order = np.arange(n_rows, dtype=small)
    return Bags.build(keys, order, offsets, proportion, noise_variance, n_rows, codes, interval, weight, offset)


def checksum(data: BagRows, *rows: bytes | NDArray[Any]) -> str:
    """A checksum of what bags reported, and of `rows`, which tell of theirs."""
    found = hashlib.sha256()
    ends = () if data.interval is None else (data.interval.low, data.interval.high, data.interval.noise)
    for part in (*rows, data.size, data.proportion, data.noise_variance, *ends, data.weight, data.offset):
        found.update(part if isinstance(part, bytes) else b"" if part is None else np.ascontiguousarray(part).tobytes())
    return found.hexdigest()
