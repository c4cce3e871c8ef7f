"""The average of the iterates of projected gradient steps, a block of steps at a time."""

from functools import cache

import numpy as np
from scipy import linalg
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from bagwise.utils.typing import Floats

_BLOCK = 64


def average_iterate(
    centroids: Floats,
    targets: Floats,
    mean: Floats,
    mean_target: float,
    *,
    weights: Floats,
    start: Floats,
    step: float,
    radius: float,
) -> tuple[Floats, Floats]:
    r"""One pass of :math:`w \leftarrow \Pi[w - 2\eta(z_j a_j + \mu b_j)]`: weighted sum of the iterates, and the last.

    The residuals are :math:`a_j = z_j \cdot w - t_j` and :math:`b_j = \mu \cdot w - \mu_y`.

    centroids: (m, d) z_j = √k_j c_j.  targets: (m,) t_j = √k_j (α_j − μ_y).  mean, mean_target: μ, μ_y.
    weights: (m,) how often the iterate before each step counts in the sum.
    A block of steps is done at once, in one small linear system; only where w meets the ball, one by one.
    """
    w, total = start, np.zeros_like(start)
    system = _BlockSystem(mean, step)
    with _libraries().limit(limits=1, user_api="blas"):  # the systems are too small to share between threads
        for place in range(0, len(centroids), _BLOCK):
            part = slice(place, place + _BLOCK)
            z, t, weight = centroids[part], targets[part], weights[part]
            a, b, gram = system.solve(z, z @ w - t, float(mean @ w) - mean_target)
            path = w - 2 * step * np.cumsum(z * a[:, None] + mean * b[:, None], axis=0)
            if np.einsum("ij,ij->i", path, path).max() <= radius**2:
                total += weight[0] * w + weight[1:] @ path[:-1]
                w = path[-1]
            else:
                inner = (gram, z @ mean, float(mean @ mean), z @ w, float(mean @ w), float(w @ w))
                scale, beta, gamma, counts = _one_by_one(inner, t, mean_target, weight, step, radius)
                after = counts.sum() - np.cumsum(counts)  # what iterates after each step count
                total += counts.sum() * w + (after * beta) @ z + (after @ gamma) * mean
                w = scale * (w + beta @ z + gamma.sum() * mean)
    return total, w


@cache
def _libraries() -> ThreadpoolController:
    """Those of linear algebra; to look for them takes as long as many passes over a few bags."""
    return ThreadpoolController()


class _BlockSystem:
    r"""The residuals of a block of steps without projection, all at once.

    With G = ZZᵀ, g = Zμ, S the strictly lower triangle of ones and all quantities at the block's start marked 0:

    .. math:: a = a_0 - 2\eta\,(S \circ G)\,a - 2\eta\,g \circ S b, \qquad
              b_{j+1} = (1 - 2\eta\|\mu\|^2)\,b_j - 2\eta\,g_j a_j

    The second solves to :math:`b = b_0 r - 2\eta P(g \circ a)`, with powers :math:`r_j` of :math:`1 - 2\eta\|\mu\|^2`
    and P made of them; put into the first, that leaves a triangular system for a.
    """

    def __init__(self, mean: Floats, step: float):
        self.mean, self.step = mean, step
        self.powers = (1 - 2 * step * float(mean @ mean)) ** np.arange(_BLOCK)
        self.earlier = np.tri(_BLOCK, k=-1)
        self.spread = linalg.toeplitz(np.r_[0.0, self.powers[:-1]], np.zeros(_BLOCK))  # P
        self.twice = self.earlier @ self.spread  # SP

    def solve(self, z: Floats, a0: Floats, b0: float) -> tuple[Floats, Floats, Floats]:
        """a, b and G for the rows z; a0, b0: residuals if w stayed as it is."""
        n, eta = len(z), 2 * self.step
        gram, g = z @ z.T, z @ self.mean
        matrix = eta * (self.earlier[:n, :n] * gram) - eta**2 * (g[:, None] * self.twice[:n, :n] * g)
        start = b0 * self.powers[:n]
        right = a0 - eta * g * (np.cumsum(start) - start)
        a = linalg.blas.dtrsv(matrix.T, right, trans=1, lower=0, diag=1)  # (I + matrix) a = right
        return a, start - eta * (self.spread[:n, :n] @ (g * a)), gram


def _one_by_one(
    inner: tuple[Floats, Floats, float, Floats, float, float],
    targets: Floats,
    mean_target: float,
    weights: Floats,
    step: float,
    radius: float,
) -> tuple[float, Floats, Floats, Floats]:
    r"""The same steps with projection, w = scale·(w₀ + Σ β_l z_l + Σ γ_l μ) known by inner products only.

    inner: G, Zμ, \|μ\|², Zw₀, μ·w₀, \|w₀\|².  Returns scale, β, γ and what each iterate counts, weight times scale.
    """
    gram, along, mean_norm, zw, m_w, norm = inner
    scale, gammas, limit = 1.0, 0.0, radius**2
    beta, gamma, counts = np.zeros(len(targets)), [], []
    columns = (targets, weights, along, zw, gram.diagonal())
    for j, (t, weight, g, dot, square) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        counts.append(weight * scale)
        z_w = scale * (dot + float(gram[j] @ beta) + gammas * g)
        a, b = 2 * step * (z_w - t), 2 * step * (m_w - mean_target)
        norm += a * (a * square - 2 * z_w + 2 * b * g) + b * (b * mean_norm - 2 * m_w)
        m_w -= a * g + b * mean_norm
        beta[j] = -a / scale
        gamma.append(-b / scale)
        gammas += gamma[-1]
        if norm > limit:
            shrink = radius / norm**0.5
            scale, m_w, norm = scale * shrink, m_w * shrink, limit
    return scale, beta, np.array(gamma), np.array(counts)
