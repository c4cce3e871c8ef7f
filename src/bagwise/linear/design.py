"""Standardised features of the rows of bags, piece by piece: what linear scores are made of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from bagwise import segment
from bagwise.bags import Bags
from bagwise.numeric import check_finite_features
from bagwise.utils.typing import Floats, Integers

_PIECE = 2**18  # numbers standardised at a time


class Design:
    """Standardised features of the rows of bags, in bag order; X itself is not copied, those of bags taken are.

    X: (n, d) rows in table order.  bags: of some or all of them.  mean, scale: (d,), the scale of a constant is inf.
    standard: whether X is standardised and in bag order.
    """

    def __init__(self, X: Floats, bags: Bags, mean: Floats, scale: Floats, *, standard: bool = False) -> None:
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
                if weight is not None:
                    w = weight[part if rows is None else rows[part]]
                    found += w @ piece if power == 1 else np.einsum("i,ij,ij->j", w, piece, piece)
                    continue
                found += piece.sum(axis=0) if power == 1 else np.einsum("ij,ij->j", piece, piece)
            return found

        with np.errstate(over="ignore", invalid="ignore"):  # overflow is found below, with the column's name
            mean = total(0.0, 1) / bags.n_people
            variance = total(mean, 2) / bags.n_people
            check_finite_features(variance, X, names)
        scale = np.sqrt(variance)
        return cls(X, bags, mean, np.where(scale > 1e-12 * np.abs(mean), scale, np.inf))

    def take(self, index: Integers) -> Design:
        """The rows of some bags, a copy."""
        some, offsets = self.bags.take(index), self.bags.offsets
        if self.standard:
            X = self.X[segment.take(np.arange(len(self.X)), offsets, index)[0]]
        else:
            X = np.empty((some.n_bagged, self.X.shape[1]))
            for rows, _, z in Design(self.X, some, self.mean, self.scale).pieces():
                X[rows] = z
        return Design(X, some, self.mean, self.scale, standard=True)

    def pieces(self) -> Iterator[tuple[slice, slice, Floats]]:
        """Pieces of whole bags: their rows, their bags, and the standardised features, until the next is asked for."""
        offsets, order, width = self.bags.offsets, self.bags.order, max(self.X.shape[1], 1)
        quick = self.X.flags.c_contiguous and not self.standard
        buffer, first = np.empty((0, width), dtype=self.X.dtype), 0
        while first < len(self.bags):
            last = int(np.searchsorted(offsets, offsets[first] + max(1, _PIECE // width), side="right")) - 1
            rows = slice(int(offsets[first]), int(offsets[last := max(first + 1, last)]))
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
            yield rows, slice(first, last), z
            first = last

    def scores(self, w: Floats) -> Floats:
        """(n, …) z·w of w (d, …), without an intercept."""
        found = np.empty((self.bags.n_bagged, *w.shape[1:]))
        for rows, _, z in self.pieces():
            found[rows] = z @ w
        return found
