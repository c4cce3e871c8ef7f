"""Which rows bags have in common, where they are of several groupings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.utils.typing import Booleans, Integers, NDArray


@dataclass(frozen=True, eq=False)
class Overlap:
    """What bags of several groupings have in common.

    Attributes
    ----------
    table : array of shape (m,)
        The number of the grouping of each bag.
    row : array of shape (n_rows,)
        Which row each row of the table is: rows that stand for the same have the same number.
    apart : bool
        Whether rows stand once for each of their bags.
    """

    table: Integers
    row: Integers
    apart: bool = False

    def take(self, index: Any) -> Overlap:
        """That of some bags."""
        return Overlap(self.table[index], self.row, self.apart)


@dataclass(frozen=True, eq=False)
class Shared:
    """The rows of bags, by which it is told which of them share some.

    table: (m,).  row: (n,) the rows of bag after bag, as numbers from 0.  offsets: (m + 1,).
    """

    table: Integers
    row: Integers
    offsets: NDArray[np.int64]

    def components(self) -> Integers:
        """(m,) a number for each bag, the same for bags that share rows, directly or through others."""
        m, n = len(self.table), int(self.row.max(initial=-1)) + 1
        links = sparse.csr_array((np.ones(len(self.row), dtype=np.int8), self.row, self.offsets), shape=(m, n))
        graph = sparse.block_array([[None, links], [links.T, None]], format="csr")
        return np.asarray(sparse.csgraph.connected_components(graph, directed=False)[1][:m])

    def apart_from(self, chosen: Integers) -> Booleans:
        """(m,) whether each bag has no row in common with the chosen ones."""
        n = int(self.row.max(initial=-1)) + 1
        touched, bag = np.zeros(n, dtype=bool), np.zeros(len(self.table), dtype=bool)
        bag[chosen] = True
        touched[self.row[np.repeat(bag, np.diff(self.offsets))]] = True
        return np.asarray(np.add.reduceat(touched[self.row], self.offsets[:-1]) == 0)
