"""Bags of rows as estimators learn from them: whole bags in blocks, however many rows there are.

`BagRows` is what an estimator may ask of its data. Held in memory (`InMemory`), the rows are one matrix and seldom more
than one block; in shards on disk (`data.shards`) a block is read when it is asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.data.features import Encoding
from bagwise.utils.typing import Floats, Integers

SAMPLE_ROWS, SAMPLE_NUMBERS = 500_000, 2**25
"""Size of the sample that settings are chosen on: so many rows, or so many numbers if that is less."""


class BagRows(Protocol):
    """Bags of rows in blocks of whole bags; ``len()`` is the number of blocks. Bags are known by their numbers."""

    @property
    def size(self) -> Integers:
        """(m,) rows of each bag."""

    @property
    def proportion(self) -> Floats:
        """(m,) or (m, classes) what each bag reported."""

    @property
    def noise_variance(self) -> Floats | None:
        """(m,) of each bag's count; None where no noise was declared."""

    @property
    def categorical(self) -> Sequence[int]:
        """Numbers of the columns that hold codes of categories."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of all blocks, and the numbers in each as the model reads it."""

    @property
    def starts(self) -> Integers:
        """(blocks + 1,) the bag that each block begins with, and the number of bags."""

    @property
    def bags(self) -> Bags:
        """All bags, as those of a table of the rows of all blocks, one block after the other."""

    @property
    def fingerprint(self) -> str:
        """A checksum of rows and reports: other data have another one."""

    def __len__(self) -> int: ...

    def block(self, number: int) -> Floats:
        """(rows, …) one block as it is stored; its bags come one after the other where there are several blocks."""

    def encode(self, rows: Floats) -> Floats:
        """Stored rows, some of a block or all, as the model reads them."""

    def sample(self, rows: int | None = None) -> InMemory:
        """Some bags, as the model reads them, of about so many rows but four bags or more: a random sample of the bags.

        None stands for the size of a sample that settings are chosen on.
        """

    def encoding(self) -> Encoding:
        """How the codes of all rows become finite numbers."""

    def encoded(self, encoding: Encoding) -> BagRows:
        """The same bags for a model that reads numbers."""


@dataclass(frozen=True, eq=False)
class InMemory:
    """A matrix and the bags of its rows.

    X: (n, …) rows, in table order: `bags.order` says which are whose.  categorical: see `BagRows`.
    starts: where blocks begin (see `BagRows`), None for one block; in several, rows stand in bag order.
    codes_to_numbers: how the model reads rows of several blocks; None for as they are.

    >>> data = InMemory(np.arange(6.0)[:, None], Bags.from_rows([0.5, 1.0, 0.5, 1.0, 0.0, 0.0], [0, 1, 0, 1, 2, 2]))
    >>> len(data), data.size, data.block(0).shape
    (1, array([2, 2, 2]), (6, 1))
    >>> InMemory(data.X, Bags.from_rows(np.zeros(6), [0, 0, 1, 1, 2, 2]), starts=np.array([0, 1, 3])).block(1).ravel()
    array([2., 3., 4., 5.])
    """

    X: Floats
    bags: Bags
    categorical: Sequence[int] = ()
    starts: Integers = None  # type: ignore[assignment]  # until it is filled in
    codes_to_numbers: Encoding | None = None

    def __post_init__(self) -> None:
        if len(self.X) != self.bags.n_rows:
            raise ValueError(f"the bags were built on {self.bags.n_rows} rows but X has {len(self.X)}.")
        if self.starts is None:
            object.__setattr__(self, "starts", np.array([0, len(self.bags)]))

    @property
    def size(self) -> Integers:
        """(m,) rows of each bag."""
        return np.asarray(self.bags.size)

    @property
    def proportion(self) -> Floats:
        """(m,) or (m, classes) what each bag reported."""
        return np.asarray(self.bags.proportion)

    @property
    def noise_variance(self) -> Floats | None:
        """(m,) of each bag's count; None where no noise was declared."""
        return self.bags.noise_variance

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, those in no bag included, and the numbers in each as the model reads it."""
        encoding = self.codes_to_numbers
        return len(self.X), int(np.prod(self.X.shape[1:])) if encoding is None else encoding.width

    @property
    def fingerprint(self) -> str:
        """A checksum of rows and reports."""
        return checksum(self, self.X, self.bags.order)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def block(self, number: int) -> Floats:
        """The rows of one block."""
        first, last = row_starts(self)[number : number + 2] if len(self) > 1 else (0, len(self.X))
        return self.X[first:last]

    def encode(self, rows: Floats) -> Floats:
        """Rows as the model reads them."""
        return rows if self.codes_to_numbers is None else self.codes_to_numbers(rows)

    def sample(self, rows: int | None = None) -> InMemory:
        """The first bags; where these are all, the rows are not copied."""
        chosen = np.arange(_first_bags(self, rows))
        if len(chosen) == len(self.bags):
            return InMemory(self.encode(self.X), self.bags, self.categorical)
        taken = self.X[self.bags.take(chosen).order]
        return InMemory(self.encode(taken), subset(self, chosen, coded=True), self.categorical)

    def select(self, bags: Bags, rows: Integers | None = None) -> InMemory:
        """The same rows, or some of them, with these bags."""
        return InMemory(self.X if rows is None else self.X[rows], bags, self.categorical)

    def encoding(self, max_levels: int | None = None) -> Encoding:
        """That of the rows in bags: rows in no bag say nothing.  max_levels: see `Encoding.of`."""
        inside = self.X if self.bags.n_bagged == len(self.X) else self.X[np.sort(self.bags.order)]
        return Encoding.of(inside, categorical=self.categorical, max_levels=max_levels)

    def encoded(self, encoding: Encoding) -> InMemory:
        """The same bags for a model that reads numbers: encoded now, or, in several blocks, as they are read."""
        if len(self) > 1:
            return replace(self, categorical=(), codes_to_numbers=encoding)
        return InMemory(encoding(self.X), self.bags)


def in_one_piece(data: BagRows) -> TypeGuard[InMemory]:
    """Whether all rows are one matrix in memory, so that they may be worked on at once."""
    return isinstance(data, InMemory) and len(data) == 1


def row_starts(data: BagRows) -> NDArray[np.int64]:
    """(blocks + 1,) the row that each block begins with, and the number of rows in bags."""
    return np.concatenate([[0], np.cumsum(data.size)]).astype(np.int64)[data.starts]


def prior(data: BagRows) -> float | Floats:
    """The mean label over all rows in bags, p; one number, or one per class."""
    p = np.average(data.proportion, axis=0, weights=data.size)
    return p if p.ndim else float(p)


def subset(data: BagRows, numbers: Integers, *, coded: bool = False) -> Bags:
    """Some bags alone, as those of a table of their rows, bag after bag.  coded: with the number of each row's bag."""
    noise = None if data.noise_variance is None else data.noise_variance[numbers]
    return bags_in_order(data.size[numbers], data.proportion[numbers], noise, keys=numbers, coded=coded)


def bags_in_order(
    size: Integers,
    proportion: Floats,
    noise_variance: Floats | None,
    *,
    keys: Integers | None = None,
    coded: bool = True,
) -> Bags:
    """Bags of a table whose rows stand bag after bag.  keys: by default their numbers.  coded: see `subset`."""
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    n_rows = int(offsets[-1])
    small: Any = np.int32 if n_rows < 2**31 else np.int64
    codes = np.repeat(np.arange(len(size), dtype=small), size) if coded else None
    order = np.arange(n_rows, dtype=small)
    return Bags._build(
        np.arange(len(size)) if keys is None else keys, order, offsets, proportion, noise_variance, n_rows, codes
    )


def checksum(data: BagRows, *rows: bytes | NDArray[Any]) -> str:
    """A checksum of what bags reported, and of `rows`, which tell of theirs."""
    found = hashlib.sha256()
    for part in (*rows, data.size, data.proportion, data.noise_variance):
        found.update(part if isinstance(part, bytes) else b"" if part is None else np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def _first_bags(data: BagRows, rows: int | None) -> int:
    """How many bags a sample of about so many rows holds."""
    rows = min(SAMPLE_ROWS, SAMPLE_NUMBERS // max(data.shape[1], 1)) if rows is None else rows
    return min(max(int(np.searchsorted(np.cumsum(data.size), rows, side="right")), 4), len(data.size))


def read_sample(data: BagRows, rows: int | None) -> InMemory:
    """A sample of data in several blocks: the first bags, whose order is as good as random."""
    n_bags = _first_bags(data, rows)
    n_blocks = int(np.searchsorted(data.starts, n_bags))
    X = np.concatenate([data.encode(data.block(number)) for number in range(n_blocks)])
    bags = subset(data, np.arange(n_bags), coded=True)
    return InMemory(X[: bags.n_rows], bags, data.categorical)
