"""Sparse matrices of SciPy: small ones become arrays, large ones are read a block of whole bags at a time.

No estimator computes with sparse rows: features are standardised or cut into bins, which makes numbers of zeros. A
block holds as many numbers as fit easily into memory, so that a matrix with many zeros may be far larger than that.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.data.features import Encoding
from bagwise.data.rows import SAMPLE_NUMBERS, checksum
from bagwise.data.shuffled import BLOCK_NUMBERS, ShuffledBags
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Floats


def is_large(X: Any) -> bool:
    """Whether X is sparse and would be too large as an array."""
    return bool(sparse.issparse(X)) and X.shape[0] * X.shape[1] > SAMPLE_NUMBERS


def as_dense(X: Any, what: str) -> Any:
    """X, as an array where it is a small sparse matrix; a large one is an error.  what: wants an array."""
    if is_large(X):
        gigabytes = X.shape[0] * X.shape[1] * 8 / 2**30
        way = "take logistic regression, boosting or a network for large sparse X, or pass X.toarray()"
        raise ParameterError("X", f"is sparse and has {gigabytes:.2g} GB as an array, which {what} needs: {way}.")
    return X.toarray(order="C") if sparse.issparse(X) else X


def as_rows(X: Any, *, gaps: bool = False) -> Any:
    """A sparse matrix of any format by rows, whose numbers are finite.  gaps: or missing."""
    rows = sparse.csr_array(X)
    if rows.dtype.kind != "f":
        rows = rows.astype(np.float64)
    bad = np.isinf(rows.data) if gaps else ~np.isfinite(rows.data)
    if bad.any():
        place = int(np.argmax(bad))
        row = int(np.searchsorted(rows.indptr, place, side="right")) - 1
        what = "infinity" if gaps else "NaN or infinity"
        raise ValueError(
            f"column {rows.indices[place]} of X contains {what} (first in row {row}): fill or remove such values first."
        )
    return rows


def in_pieces(X: Any, told: Callable[[Floats, slice], Floats]) -> Floats:
    """What is told of each piece of rows, as an array, one after the other."""
    step = max(1, BLOCK_NUMBERS // X.shape[1])
    starts = [*range(0, X.shape[0], step), X.shape[0]]
    return np.concatenate([told(X[first:last].toarray(), slice(first, last)) for first, last in pairwise(starts)])


class SparseRows(ShuffledBags):
    """Rows of a sparse matrix in blocks of whole bags, whose order is as good as random.

    Parameters
    ----------
    X : sparse array, shape (n, features)
        Rows, in table order, as `as_rows` gives them.
    bags : Bags
        The bags of the rows.
    numbers : int
        About how many numbers a block has.

    Examples
    --------
    >>> X = sparse.csr_array(np.eye(6))
    >>> data = SparseRows(X, Bags.from_rows([0.5, 1.0, 0.5, 1.0, 0.0, 0.0], [0, 1, 0, 1, 2, 2]), numbers=12)
    >>> len(data), data.shape, data.block(0).sum(axis=0)
    (3, (6, 6), array([0., 0., 0., 0., 1., 1.]))
    """

    def __init__(self, X: Any, bags: Bags, *, numbers: int = BLOCK_NUMBERS) -> None:
        self._shuffle(bags, X.shape[1], numbers)
        self.X, self.categorical = X[self.order], ()

    @property
    def fingerprint(self) -> str:
        """A checksum of rows and reports."""
        return checksum(self, self.X.data, self.X.indices, self.X.indptr)

    def _rows(self, first: int, last: int) -> Floats:
        return np.asarray(self.X[first:last].toarray())

    def encoding(self) -> Encoding:
        """Numbers between their least and their greatest value."""
        low, high = (np.ravel(one.toarray()).astype(float) for one in (self.X.min(axis=0), self.X.max(axis=0)))
        mean = np.ravel(self.X.mean(axis=0)).astype(float)
        return Encoding.scaled(low, high, mean, np.zeros(len(low), dtype=bool), (None,) * len(low))
