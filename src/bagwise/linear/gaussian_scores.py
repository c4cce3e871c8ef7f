r"""The mean log loss of logistic regression on one-hot rows, from their moments and tables by pairs alone.

The log loss of scores s = b + w·x is :math:`E[\log(1 + e^s)] - E[y s]`. The second part needs moments only; the first
the distribution of s, of which a sum over many features tells more than it seems: given the values of the two features
that say most about it, the rest of s is nearly Gaussian. With m the best linear prediction of s by these two, and v
what is left of its variance,

.. math:: E[\log(1 + e^s)] \approx \sum_{a, b} P(a, b)\, E_z[\log(1 + e^{m_{ab} + \sqrt{v} z})].

It is convex in (b, w), since √v is the norm of a linear map of w, and exact where there are two features.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import linalg
from scipy.optimize import minimize

from bagwise.data.aggregates import Aggregates
from bagwise.linear.one_hot import LEAST_SHARE, OneHotMoments, largest_eigenvalue
from bagwise.utils.deadline import check_time
from bagwise.utils.sigmoid import sigmoid
from bagwise.utils.typing import Floats, Integers

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_FEATURES, _PAIRS, _SHARPNESS = 8, 10, 8.0  # looked at; used; how much more those count that say more
_LEAST = 1e-12  # of a variance


@dataclass(frozen=True, eq=False)
class Given:
    """The scores given the values of one feature or two.

    cells: (l,) of these features.  probability: (l,), or (l1, l2) of the cells of the first and of the second.
    projection: (l, D) from weights w to those of the best linear prediction.  covariance: (l, l) of these cells.
    """

    cells: Integers
    probability: Floats
    projection: Floats
    covariance: Floats

    @classmethod
    def of(cls, moments: OneHotMoments, data: Aggregates, features: tuple[int, ...]) -> Given:
        """From the moments of one-hot rows."""
        blocks = [data.block(one) for one in features]
        cells = np.concatenate([np.arange(at.start, at.stop) for at in blocks])
        covariance = moments.covariance / moments.rows
        inner = covariance[np.ix_(cells, cells)]
        noise = largest_eigenvalue(float(moments.left_noise[cells].max()) + moments.doubt, len(cells)) / moments.rows
        if noise > 0:  # eigenvalues that it made small, divided by, would have these features tell noise of others
            inverse = linalg.inv(inner + LEAST_SHARE * noise * np.eye(len(cells)), check_finite=False)
        else:
            inverse = linalg.pinvh(inner, rtol=1e-9)
        projection = inverse @ covariance[cells]
        mean = [moments.mean[at] for at in blocks]
        if len(blocks) == 1:
            return cls(cells, mean[0], projection, inner)
        joint = np.maximum(covariance[blocks[0], blocks[1]] + np.outer(mean[0], mean[1]), 0.0)
        return cls(cells, joint / joint.sum(), projection, inner)

    def explained(self, w: Floats) -> float:
        """The variance of scores that these features tell."""
        told = self.projection @ w
        return float(told @ self.covariance @ told)


def choose_given(moments: OneHotMoments, data: Aggregates, w: Floats) -> list[tuple[Given, float]]:
    """The pairs of features that say most about the scores of weights w, and how much each counts."""
    whole = max(float(w @ moments.covariance @ w) / moments.rows, _LEAST)
    alone = [Given.of(moments, data, (one,)) for one in range(len(data.features))]
    if len(alone) == 1:
        return [(alone[0], 1.0)]
    best = np.argsort([-one.explained(w) for one in alone], kind="stable")[:_FEATURES]
    pairs = [Given.of(moments, data, pair) for pair in combinations(sorted(int(one) for one in best), 2)]
    told = np.array([min(pair.explained(w) / whole, 1.0) for pair in pairs])
    kept = np.argsort(-told, kind="stable")[:_PAIRS]
    worth = (told[kept] / max(told[kept].max(), _LEAST)) ** _SHARPNESS
    return [(pairs[one], float(count)) for one, count in zip(kept, worth / worth.sum(), strict=True)]


def log_loss(
    w: Floats, b: float, moments: OneHotMoments, given: list[tuple[Given, float]]
) -> tuple[float, Floats, float]:
    """The mean log loss of scores b + w·(x − mean), and its gradient by w and b."""
    spread = moments.covariance @ w / moments.rows
    variance, value, by_w, by_b = float(w @ spread), 0.0, np.zeros_like(w), 0.0
    for one, count in given:
        told = one.projection @ w
        inner = one.covariance @ told
        rest = max(variance - float(told @ inner), _LEAST)
        mean = moments.mean[one.cells]
        start = b - float(mean @ told)
        first = one.probability.shape[0]
        centre = start + (told if one.probability.ndim == 1 else told[:first, None] + told[first:])
        s = centre[..., None] + np.sqrt(rest) * _NODES
        h = sigmoid(s)
        value += count * float((one.probability * (np.logaddexp(0, s) @ _WEIGHTS)).sum())
        by_centre = one.probability * (h @ _WEIGHTS)
        by_rest = float((one.probability * ((h * _NODES) @ _WEIGHTS)).sum()) / (2 * np.sqrt(rest))
        all_of = float(by_centre.sum())
        sides = by_centre if by_centre.ndim == 1 else np.concatenate([by_centre.sum(axis=1), by_centre.sum(axis=0)])
        by_w += count * (one.projection.T @ (sides - all_of * mean - 2 * by_rest * inner) + 2 * by_rest * spread)
        by_b += count * all_of
    value -= moments.prior * b + float(moments.xy @ w) / moments.rows
    return value, by_w - moments.xy / moments.rows, by_b - moments.prior


def minimise(
    moments: OneHotMoments, given: list[tuple[Given, float]], alpha: float, w: Floats, b: float
) -> tuple[Floats, float]:
    r"""The w and b of least :math:`n \cdot \text{log loss} + \alpha \sum_j \omega_j w_j^2 / 2`, from a start.

    The :math:`\omega_j` are `OneHotMoments.penalties`.
    """

    def loss(at: Floats) -> tuple[float, Floats]:
        check_time()
        value, by_w, by_b = log_loss(at[1:], float(at[0]), moments, given)
        penalty = alpha / moments.rows * moments.penalties * at[1:]
        return value + float(penalty @ at[1:]) / 2, np.concatenate([[by_b], by_w + penalty])

    options = {"maxiter": 1000, "maxfun": 4000, "maxcor": 30, "ftol": 1e-12, "gtol": 1e-7}
    found = minimize(loss, np.concatenate([[b], w]), jac=True, method="L-BFGS-B", options=options).x
    return found[1:], float(found[0])
