"""The rows that fits read: in memory, or block by block from wherever they are.

LightGBM reads rows to replace each number by the number of its bin; what it keeps is one byte per number. After that
rows are read again only where two leaves of a tree moved them alike, to tell which is which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import lightgbm as lgb
import numpy as np

from bagwise.utils.typing import Floats, Integers


class Blocks(Protocol):
    """A table in pieces: ``len()`` of them."""

    def __len__(self) -> int: ...

    @property
    def rows(self) -> Integers:
        """Number of rows of each block."""

    def block(self, number: int) -> Floats:
        """(rows, columns) of one block."""


class Rows(Protocol):
    """The rows of a table.  alone: so many that fits to them come one after the other, and keep nothing of them."""

    alone: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    def blocks(self) -> Iterator[Floats]:
        """All rows, in order."""

    def take(self, numbers: Integers) -> Rows:
        """The chosen rows, in memory."""

    def dataset(self, categorical: Sequence[int], parameters: dict[str, Any]) -> lgb.Dataset:
        """The rows as LightGBM holds them."""


class InMemory:
    """A matrix.

    >>> [block.shape for block in InMemory(np.zeros((3, 2))).blocks()]
    [(3, 2)]
    """

    alone = False

    def __init__(self, X: Floats) -> None:
        self.X = X

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.X.shape[0], self.X.shape[1]

    def blocks(self) -> Iterator[Floats]:
        """One block."""
        yield self.X

    def take(self, numbers: Integers) -> InMemory:
        """The chosen rows."""
        return InMemory(self.X[numbers])

    def dataset(self, categorical: Sequence[int], parameters: dict[str, Any]) -> lgb.Dataset:
        """The rows as LightGBM holds them."""
        return _dataset(self.X, len(self.X), categorical, parameters)


class Streamed:
    """Blocks that are read when they are needed, one at a time.

    LightGBM finds the same bins as for the same rows in memory: it draws the same rows to find them.
    """

    alone = True

    def __init__(self, source: Blocks) -> None:
        self.source = source
        self.starts = np.concatenate([[0], np.cumsum(source.rows)]).astype(np.int64)
        self._read: tuple[int, Floats] = (0, source.block(0))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.starts[-1]), self._read[1].shape[1]

    def block(self, number: int) -> Floats:
        """One block; asked for again, it is not read again."""
        if self._read[0] != number:
            self._read = (number, self.source.block(number))
        return self._read[1]

    def blocks(self) -> Iterator[Floats]:
        """Block after block."""
        return (self.source.block(number) for number in range(len(self.source)))

    def take(self, numbers: Integers) -> InMemory:
        """The chosen rows; a block is read once."""
        owner = np.searchsorted(self.starts, numbers, side="right") - 1
        taken = np.empty((len(numbers), self.shape[1]), dtype=self._read[1].dtype)
        for number in np.unique(owner):
            mine = owner == number
            taken[mine] = self.block(int(number))[numbers[mine] - self.starts[number]]
        return InMemory(taken)

    def dataset(self, categorical: Sequence[int], parameters: dict[str, Any]) -> lgb.Dataset:
        """The rows as LightGBM holds them."""
        parts = [_Part(self, number) for number in range(len(self.source))]
        seed = {"data_random_seed": _data_seed(parameters["seed"])}
        return _dataset(parts, self.shape[0], categorical, parameters | seed)


class _Part(lgb.Sequence):
    """A block as LightGBM asks for it: single rows, in double precision, to find bins; then all of it."""

    def __init__(self, rows: Streamed, number: int) -> None:
        self.rows, self.number = rows, number
        self.batch_size = len(self)

    def __len__(self) -> int:
        return int(self.rows.starts[self.number + 1] - self.rows.starts[self.number])

    def __getitem__(self, place: Any) -> Floats:
        found = self.rows.block(self.number)[place]
        return found if isinstance(place, slice) else found.astype(np.float64)


def _data_seed(seed: int) -> int:
    """What LightGBM draws from `seed` to choose rows by; reading rows in parts, it would forget to."""
    return (214013 * seed + 2531011) % 2**32 // 2**16 % 2**15 % (2**15 - 1)


def _dataset(X: Any, n_rows: int, categorical: Sequence[int], parameters: dict[str, Any]) -> lgb.Dataset:
    label = np.zeros(n_rows, dtype=np.float32)  # never looked at: the gradients are ours
    return lgb.Dataset(X, label=label, categorical_feature=list(categorical), params=parameters).construct()
