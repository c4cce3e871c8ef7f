"""Standardised features of the rows of bags, piece by piece: what linear scores are made of."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from bagwise import segment
from bagwise.bags import Bags
from bagwise.data.rows import BagRows
from bagwise.numeric import check_finite_features
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats, Integers

_PIECE = 2**18  # numbers standardised at a time


class Design:
    """Standardised features of the rows of bags, in bag order; X itself is not copied, those of bags taken are.

    X: (n, d) rows in table order; or bags of rows on disk, which are read anew each time, block after block.
    bags: of some or all of them; on disk, of all.
    mean, scale: (d,), the scale of a constant is inf.  standard: whether X is standardised and in bag order.
    """

    def __init__(self, X: Floats | BagRows, bags: Bags, mean: Floats, scale: Floats, *, standard: bool = False) -> None:
        self.X, self.bags, self.mean, self.scale, self.standard = X, bags, mean, scale, standard

    @classmethod
    def of(cls, X: Floats, bags: Bags, names: ArrayLike | None = None) -> Design:
        """With means and standard deviations of the rows in bags."""
        once = bags.overlap is None or bags.overlap.apart
        rows = None if once and bags.n_bagged == len(X) else np.sort(bags.order)
        weight = bags.of_table(bags.weight)
        step = max(1, _PIECE // max(X.shape[1], 1))

        def total(about: Floats | float, power: int) -> Floats:
            found = np.zeros(X.shape[1])
            for start in range(0, bags.n_bagged, step):
                part = slice(start, start + step)
                piece = X[part if rows is None else rows[part]].astype(float, copy=False) - about
                w = None if weight is None else weight[part if rows is None else rows[part]]
                found += _added(piece, w, power)
            return found

        with np.errstate(over="ignore", invalid="ignore"):  # overflow is found below, with the column's name
            mean = total(0.0, 1) / bags.n_people
            variance = total(mean, 2) / bags.n_people
            check_finite_features(variance, X, names)
        return cls(X, bags, mean, _scale(mean, variance))

    @classmethod
    def of_blocks(cls, rows: BagRows, bags: Bags) -> Design:
        """The same of rows on disk, whose numbers were checked when they were gathered; they are read once."""
        width = rows.shape[1]
        raw = cls(rows, bags, np.zeros(width), np.ones(width))
        people, mean, squares = 0.0, np.zeros(width), np.zeros(width)
        for part, _, x in raw.pieces():
            w = None if bags.weight is None else bags.weight[part]
            more = float(len(x) if w is None else w.sum())
            own = _added(x, w, 1) / more
            squares += _added(x - own, w, 2) + (own - mean) ** 2 * (people * more / (people + more))
            people += more
            mean += (own - mean) * (more / people)
        return cls(rows, bags, mean, _scale(mean, squares / people))

    @property
    def width(self) -> int:
        """How many features there are."""
        return len(self.mean)

    def take(self, index: Integers) -> Design:
        """The rows of some bags, a copy in memory."""
        some, offsets = self.bags.take(index), self.bags.offsets
        if self.standard:
            assert isinstance(self.X, np.ndarray)
            X = self.X[segment.take(np.arange(len(self.X)), offsets, index)[0]]
        else:
            X = np.empty((some.n_bagged, self.width))
            if isinstance(self.X, BagRows):
                self._read(X, some, index)
            else:
                for rows, _, z in Design(self.X, some, self.mean, self.scale).pieces():
                    X[rows] = z
        return Design(X, some, self.mean, self.scale, standard=True)

    def _read(self, into: Floats, some: Bags, index: Integers) -> None:
        """Fill in the rows of some bags, which lie in any blocks."""
        assert isinstance(self.X, BagRows)
        block, place = np.searchsorted(self.X.starts, index, side="right") - 1, np.arange(len(into))
        for number in np.unique(block).tolist():
            mine = np.flatnonzero(block == number)
            first, last = self.X.starts[number : number + 2]
            offsets = self.bags.offsets[first : last + 1] - self.bags.offsets[first]
            rows, _ = segment.take(np.arange(offsets[-1]), offsets, index[mine] - first)
            z = self.X.encode(self.X.block(number)[rows]) - self.mean
            into[segment.take(place, some.offsets, mine)[0]] = z / self.scale

    def pieces(self) -> Iterator[tuple[slice, slice, Floats]]:
        """Pieces of whole bags: their rows, their bags, and the standardised features, until the next is asked for."""
        if isinstance(self.X, BagRows):
            yield from self._pieces_of_blocks(self.X)
            return
        order = self.bags.order
        quick = self.X.flags.c_contiguous and not self.standard
        buffer = np.empty((0, self.width), dtype=self.X.dtype)
        for rows, some in self._cut(0, len(self.bags)):
            if self.standard:
                z = self.X[rows]
            elif quick:  # into the same memory again and again: fresh memory costs more than the rows
                place = order[rows]
                if len(place) > len(buffer):
                    buffer = np.empty((len(place), self.X.shape[1]), dtype=self.X.dtype)
                z = np.take(self.X, place, axis=0, out=buffer[: len(place)], mode="clip").astype(float, copy=False)
            else:
                z = self.X[order[rows]].astype(float, copy=False)
            if not self.standard:
                z -= self.mean
                z /= self.scale
            yield rows, some, z

    def _pieces_of_blocks(self, data: BagRows) -> Iterator[tuple[slice, slice, Floats]]:
        offsets, buffer = self.bags.offsets, np.empty((0, self.width))
        for (first, last), block in zip(pairwise(data.starts.tolist()), data.blocks(), strict=True):
            check_time()
            start = int(offsets[first])
            for rows, some in self._cut(first, last):
                x = data.encode(block[rows.start - start : rows.stop - start])
                if len(x) > len(buffer):
                    buffer = np.empty((len(x), self.width))
                z = np.subtract(x, self.mean, out=buffer[: len(x)])
                z /= self.scale
                yield rows, some, z

    def _cut(self, first: int, stop: int) -> Iterator[tuple[slice, slice]]:
        """Rows and numbers of bags, in pieces."""
        offsets, most = self.bags.offsets, max(1, _PIECE // max(self.width, 1))
        while first < stop:
            last = int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1
            last = min(max(first + 1, last), stop)
            yield slice(int(offsets[first]), int(offsets[last])), slice(first, last)
            first = last

    def scores(self, w: Floats) -> Floats:
        """(n, …) z·w of w (d, …), without an intercept."""
        found = np.empty((self.bags.n_bagged, *w.shape[1:]))
        for rows, _, z in self.pieces():
            found[rows] = z @ w
        return found


def _added(piece: Floats, weight: Floats | None, power: int) -> Floats:
    """(d,) the first or second powers of numbers, added up over rows."""
    if weight is not None:
        return np.asarray(weight @ piece if power == 1 else np.einsum("i,ij,ij->j", weight, piece, piece))
    return np.asarray(piece.sum(axis=0) if power == 1 else np.einsum("ij,ij->j", piece, piece))


def _scale(mean: Floats, variance: Floats) -> Floats:
    scale = np.sqrt(variance)
    return np.where(scale > 1e-12 * np.abs(mean), scale, np.inf)
