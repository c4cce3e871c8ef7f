r"""The count likelihood of several classes: the same as `bagwise.losses.tilting`, with a tilt for each class.

Rows have class probabilities h, the softmax of their scores; the tilts :math:`t_c` of a bag make
:math:`q_{ic} \propto h_{ic} e^{t_c}` add up to the counts, :math:`\sum_i q_i + Et = c`, where the matrix E is the extra
variance of the counts. With :math:`W = \sum_i (\mathrm{diag}(q_i) - q_i q_i^\top) + E`,

.. math:: L = \sum_i \log \sum_c h_{ic} e^{t_c} + \tfrac12 t^\top E t - c \cdot t - \tfrac12 \log\det 2\pi W

Where counts are not noised they add up to the size of the bag, and the determinant is that of all classes but the most
frequent; a class of count 0 is left out, exactly; and :math:`2\pi W + I` stands for :math:`2\pi W`, which keeps whole
counts that hardly vary from a probability far above 1. A constant makes L exact where all rows of a bag are alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, log_softmax, xlogy

from bagwise.bags import Bags
from bagwise.utils.typing import Booleans, Floats, Integers

_STEPS, _HALVINGS, _LONGEST = 100, 30, 10.0  # of Newton's method
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class TiltedClasses:
    r"""Log-likelihood of the counts of bags and its gradient, rows in bag order.

    Attributes
    ----------
    log_likelihood : array of shape (m,)
        L; a density where there is extra variance.
    gradient : array of shape (n, classes)
        :math:`\partial L/\partial s_{ic}`.
    posterior : array of shape (n, classes)
        Probabilities of the classes given scores and counts; they sum to the counts where those are exact.
    inverse : array of shape (m, classes, classes)
        :math:`W^{-1}`, 0 for classes that are left out: the curvature of L within a bag is about :math:`-(H_i - Q_i)`
        in the blocks of rows and :math:`-Q_i W^{-1} Q_l` between all, :math:`H = \mathrm{diag}(h) - hh^\top`,
        :math:`Q = \mathrm{diag}(q) - qq^\top`.
    """

    log_likelihood: Floats
    gradient: Floats
    posterior: Floats
    inverse: Floats


def tilted_classes(s: Floats, bags: Bags, *, extra: Floats | None = None) -> TiltedClasses:
    """The likelihood of the class counts that bags report.

    Parameters
    ----------
    s : array of shape (n, classes)
        Scores in bag order: logarithms of probabilities, up to a constant of each row.
    bags : Bags
        With proportions of shape (m, classes).
    extra : array of shape (m, classes, classes), optional
        Covariance of counts beyond that of independent labels; None for the declared noise.

    Returns
    -------
    TiltedClasses

    Examples
    --------
    >>> bags = Bags.from_rows([[0.5, 0.5, 0.0]] * 2, [0, 0])
    >>> found = tilted_classes(np.log([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]), bags)
    >>> np.exp(found.log_likelihood).round(3), found.posterior
    (array([0.25]), array([[0.5, 0.5, 0. ],
           [0.5, 0.5, 0. ]]))
    """
    log_h = log_softmax(np.asarray(s, dtype=float), axis=1)
    count, classes = bags.size[:, None] * bags.proportion, bags.proportion.shape[1]
    noise = np.zeros(len(bags)) if bags.noise_variance is None else bags.noise_variance
    if extra is None:
        extra = noise[:, None, None] * np.eye(classes)
    whole = noise == 0
    left_out = whole[:, None] & ((count <= 0) | (np.arange(classes) == count.argmax(axis=1)[:, None]))
    q, height = _solve(log_h, bags, count, extra, left_out)
    kept = ~(left_out[:, :, None] | left_out[:, None, :])
    unit = np.eye(classes)
    # Whole counts that hardly vary have a probability, not a density that grows without bound.
    w = np.where(kept, _spread(q, bags) + extra + whole[:, None, None] * unit / (2 * np.pi), unit)
    inverse = np.where(kept, np.linalg.inv(w), 0.0)
    alike = count[:, :, None] * (unit - (count / bags.size[:, None])[:, None, :])
    value = height + np.where(whole, _log_multinomial(count, bags.size), -0.5 * classes * np.log(2 * np.pi))
    value += 0.5 * np.where(whole, np.linalg.slogdet(np.where(kept, alike + unit / (2 * np.pi), unit))[1], 0.0)
    value -= 0.5 * np.linalg.slogdet(w)[1]
    by_row = bags.repeat(inverse)
    slope = np.diagonal(by_row, axis1=1, axis2=2) - 2 * np.einsum("ncd,nd->nc", by_row, q)
    flow = np.where(kept, np.linalg.inv(np.where(kept, _spread(q, bags) + extra + _TINY * unit, unit)), 0.0)
    slope -= bags.repeat(np.einsum("mcd,md->mc", flow, bags.sum(_through(q, slope))))
    return TiltedClasses(value, q - np.exp(log_h) - 0.5 * _through(q, slope), q, inverse)


def _through(q: Floats, values: Floats) -> Floats:
    """(diag(q) − q qᵀ) values, row by row."""
    return np.asarray(q * (values - (q * values).sum(axis=1, keepdims=True)))


def _spread(q: Floats, bags: Bags) -> Floats:
    """(m, classes, classes) sums over bags of diag(q) − q qᵀ."""
    found = -bags.sum(q[:, :, None] * q[:, None, :])
    diagonal = np.arange(q.shape[1])
    found[:, diagonal, diagonal] += bags.sum(q)
    return np.asarray(found)


def _log_multinomial(count: Floats, size: Integers) -> Floats:
    """(m,) log probability of the counts where every row of a bag has their proportions."""
    spread = np.maximum(count, 0)
    ways = gammaln(size + 1) - gammaln(spread + 1).sum(axis=1)
    return np.asarray(ways + xlogy(spread, spread / size[:, None]).sum(axis=1))


def _solve(log_h: Floats, bags: Bags, count: Floats, extra: Floats, left_out: Booleans) -> tuple[Floats, Floats]:
    """(n, classes) q and (m,) the height of L without its determinant, at the tilts found by Newton's method.

    The height is convex in the tilts; a step that does not lower that of its bag is halved. Tilts of classes that are
    left out are −∞ where the count is 0, and 0 otherwise.
    """
    hidden = np.where(left_out & (count <= 0), -np.inf, 0.0)
    kept, unit = ~(left_out[:, :, None] | left_out[:, None, :]), np.eye(count.shape[1])

    def at(t: Floats) -> tuple[Floats, Floats]:
        moved = log_h + bags.repeat(t + hidden)
        top = moved.max(axis=1)
        weights = np.exp(moved - top[:, None])
        sums = weights.sum(axis=1)
        height = bags.sum(np.log(sums) + top) + (t * (np.einsum("mcd,md->mc", extra, t) / 2 - count)).sum(axis=1)
        return weights / sums[:, None], height

    t = np.zeros_like(count)
    q, height = at(t)
    for _ in range(_STEPS):
        gap = np.where(left_out, 0.0, count - bags.sum(q) - np.einsum("mcd,md->mc", extra, t))
        if (np.abs(gap) <= 1e-9 * (1 + np.abs(count))).all():
            break
        w = np.where(kept, _spread(q, bags) + extra + _TINY * unit, unit)
        step = np.linalg.solve(w, gap[:, :, None])[:, :, 0]
        step *= np.minimum(1.0, _LONGEST / np.maximum(np.abs(step).max(axis=1), _TINY))[:, None]
        share = np.ones(len(t))
        for _ in range(_HALVINGS):
            moved, found = at(t + share[:, None] * step)
            worse = found > height + 1e-12 * (1 + np.abs(height))
            if not worse.any():
                break
            share[worse] /= 2
        t, q, height = t + share[:, None] * step, moved, found
    return q, height
