r"""Leaf values solved exactly at the level of bags.

A tree adds :math:`v_{l(i)}` to the prediction of row i. With A the bags × leaves matrix of row counts, f the leaves'
shares of rows and :math:`\tilde A = A - k f^T`, the debiased loss after the tree is quadratic in v:

.. math:: \tfrac{1}{m} \sum_j (R_j - \tilde A_j v)^2 / k_j + (\bar h - p + f \cdot v)^2 + \tfrac{\lambda}{m} |v|^2

Where trees add up on another scale than that of predictions, a row counts by the slope of its prediction instead of by
1, in A and in f, and λ by the square of the mean slope: a step of Gauss and Newton.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg, sparse

from bagwise.bags import Bags
from bagwise.utils.typing import Floats, Integers


def solve_leaves(
    leaf: Integers,
    n_leaves: int,
    bags: Bags,
    residual: Floats,
    bias: float,
    *,
    reg_lambda: float,
    slope: Floats | None = None,
) -> Floats:
    r"""The leaf values v that minimise the penalised debiased loss.

    The cost is that of one pass over the rows, plus leaves² per bag (or fewer where bags are small), plus leaves³.

    leaf: (n,) leaf of each row, in bag order.  residual: (m,) R_j with ΣR = 0.  bias: :math:`\bar h - p`.
    reg_lambda: λ.  slope: (n,) how fast each prediction moves with its tree's value, in bag order; None: all 1.
    Returns (n_leaves,).

    >>> bags = Bags.singletons([1.0, 0.0, 0.5])
    >>> solve_leaves(np.array([0, 1, 1]), 2, bags, np.array([0.5, -0.5, 0.0]), 0.0, reg_lambda=0.0).round(3)
    array([ 0.5 , -0.25])
    """
    m, n = len(bags), len(leaf)
    share = np.bincount(leaf, weights=slope, minlength=n_leaves) / n
    gram, right = _products(leaf, n_leaves, bags, residual / bags.size, slope)
    unit = 1.0 if slope is None else float(slope.mean()) ** 2
    # ÃᵀK⁻¹Ã = AᵀK⁻¹A − n f fᵀ, since the rows of A add up to n f.
    matrix = (gram - n * np.outer(share, share)) / m + np.outer(share, share)
    matrix[np.diag_indices(n_leaves)] += unit * (reg_lambda / m + 1e-12)  # an empty leaf gets the value 0
    return np.asarray(linalg.solve(matrix, right / m - share * bias, assume_a="pos"))


def _products(
    leaf: Integers, n_leaves: int, bags: Bags, weights: Floats, slope: Floats | None
) -> tuple[Floats, Floats]:
    """AᵀK⁻¹A and Aᵀ weights. Where bags have fewer rows than there are leaves, A is not written out."""
    m = len(bags)
    if m * n_leaves <= 4 * len(leaf):
        cell = bags.repeat(np.arange(0, m * n_leaves, n_leaves))
        cell += leaf
        counts = np.bincount(cell, weights=slope, minlength=m * n_leaves).reshape(m, n_leaves).astype(float, copy=False)
        scaled = counts / np.sqrt(bags.size)[:, None]
        return scaled.T @ scaled, counts.T @ weights
    each, right = bags.repeat(1 / np.sqrt(bags.size)), bags.repeat(weights)
    if slope is not None:
        each, right = each * slope, right * slope
    rows = sparse.csr_array((each, leaf, bags.offsets), shape=(m, n_leaves))  # equal entries of a row add up
    return (rows.T @ rows).toarray(), np.bincount(leaf, weights=right, minlength=n_leaves).astype(float, copy=False)
