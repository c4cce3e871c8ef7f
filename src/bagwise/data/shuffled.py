"""A matrix in memory as blocks of whole bags, whose order is as good as random, made when they are read.

Rows stay where they are: a block is a copy of some of them, and no more than one block is needed at a time.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np

from bagwise.bags import Bags
from bagwise.data.features import Encoding
from bagwise.data.rows import SAMPLE_NUMBERS, BagRows, checksum, row_starts
from bagwise.utils.typing import Floats, Integers

BLOCK_NUMBERS = SAMPLE_NUMBERS // 8
"""Numbers of a block, 32 megabytes."""


class ShuffledBags(BagRows):
    """What matrices in blocks share.

    order: (n_bagged,) rows of the matrix, bag after bag.
    """

    order: Integers

    def _shuffle(self, bags: Bags, n_columns: int, numbers: int) -> None:
        """Take these bags, in a random order, in blocks of about so many numbers."""
        # The first bags are what settings are chosen on; the same for the same bags.
        bags = bags.take(np.random.default_rng(0).permutation(len(bags)))
        self.order, self.codes_to_numbers = bags.order, None
        self._bags = replace(bags, order=np.arange(bags.n_bagged, dtype=bags.order.dtype), n_rows=bags.n_bagged)
        self.size, self.rows, self.proportion = bags.size, bags.rows, bags.proportion
        self.noise_variance, self.interval = bags.noise_variance, bags.interval
        self.weight, self.offset = bags.weight, bags.offset
        self.n_rows, self.n_columns = bags.n_bagged, n_columns
        block = bags.offsets[:-1] // max(1, numbers // n_columns)
        self.starts = np.append(np.flatnonzero(np.diff(block, prepend=-1)), len(bags))

    @abstractmethod
    def _rows(self, first: int, last: int) -> Floats:
        """Some rows, counted in the order of bags."""

    @property
    def bags(self) -> Bags:
        """The bags, one after the other."""
        return self._bags

    def block(self, number: int) -> Floats:
        """The rows of one block, as an array."""
        first, last = row_starts(self)[number : number + 2]
        return self._rows(int(first), int(last))

    def encoded(self, encoding: Encoding) -> Self:
        """The same bags for a model that reads numbers: blocks are encoded as they are read."""
        made = copy.copy(self)
        made.codes_to_numbers = encoding
        return made


class MatrixRows(ShuffledBags):
    """Rows of an array in blocks of whole bags.

    Parameters
    ----------
    X : array, shape (n, features)
        Rows, in table order.
    bags : Bags
        The bags of the rows.
    categorical, names
        As in `BagRows`.
    numbers : int
        About how many numbers a block has.

    Examples
    --------
    >>> bags = Bags.from_rows([0.5, 1.0, 0.5, 1.0, 0.0, 0.0], [0, 1, 0, 1, 2, 2])
    >>> data = MatrixRows(np.arange(6.0)[:, None], bags, numbers=2)
    >>> len(data), data.shape, [data.block(number).ravel().tolist() for number in range(3)]
    (3, (6, 1), [[4.0, 5.0], [0.0, 2.0], [1.0, 3.0]])
    """

    def __init__(
        self, X: Floats, bags: Bags, categorical: Any = (), names: Any = None, *, numbers: int = BLOCK_NUMBERS
    ) -> None:
        self._shuffle(bags, X.shape[1], numbers)
        self.X, self.categorical, self.names = X, categorical, names

    @property
    def fingerprint(self) -> str:
        """A checksum of rows and reports."""
        return checksum(self, self.X, self.order)

    def _rows(self, first: int, last: int) -> Floats:
        return np.asarray(self.X[self.order[first:last]])

    def encoding(self) -> Encoding:
        """That of the rows in bags."""
        return Encoding.of(self.X[np.sort(self.order)], categorical=self.categorical, max_levels=None)
