r"""Maximum of the count likelihood over linear scores, :math:`s = w \cdot z + b` of standardised features z.

The intercept always makes E[h] = p, so that it is w alone that is looked for: a step of w moves scores by that of
features measured from their mean with weights h(1 − h). Newton's method needs three sums over rows, of each of which a
bag contributes its part: the gradient, the curvature of single rows and the curvature of bags.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, softmax

from bagwise.bags import Bags
from bagwise.base import check_finite_features
from bagwise.gains import shift_to
from bagwise.losses.likelihood import extra_variance
from bagwise.losses.tilting import Tilted, tilted
from bagwise.losses.tilting_classes import tilted_classes
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats, Integers

_PIECE = 2**20  # numbers standardised at a time
_KEPT = 2**25  # numbers that are kept standardised, where there are no more
_STEPS, _HALVINGS = 50, 20
_FARTHEST = 1.5  # that scores move in one step, on average
_LEAST_VARIANCE = 1e-9  # of a count that is not known beforehand


class Design:
    """Standardised features of the rows of bags, in bag order; X itself is not copied.

    X: (n, d) rows in table order.  bags: of some or all of them.  mean, scale: (d,), the scale of a constant is inf.
    """

    def __init__(self, X: Floats, bags: Bags, mean: Floats, scale: Floats) -> None:
        self.X, self.bags, self.mean, self.scale = X, bags, mean, scale

    @classmethod
    def of(cls, X: Floats, bags: Bags, names: ArrayLike | None = None) -> Design:
        """With means and standard deviations of the rows in bags."""
        plain = cls(X, bags, np.zeros(X.shape[1]), np.ones(X.shape[1]))
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is found below, with the column's name
            mean = sum(rows.sum(axis=0) for _, _, rows in plain._read()) / bags.n_bagged
            plain.mean = mean
            variance = sum((rows**2).sum(axis=0) for _, _, rows in plain._read()) / bags.n_bagged
            check_finite_features(variance, X, names)
        scale = np.sqrt(variance)
        return cls(X, bags, mean, np.where(scale > 1e-12 * np.abs(mean), scale, np.inf))

    def take(self, index: Integers) -> Design:
        """The rows of some bags."""
        return Design(self.X, self.bags.take(index), self.mean, self.scale)

    def _read(self) -> Iterator[tuple[slice, slice, Floats]]:
        """Pieces of whole bags: their rows, their bags, and the standardised features."""
        offsets, order = self.bags.offsets, self.bags.order
        rows = max(1, _PIECE // max(self.X.shape[1], 1))
        first = 0
        while first < len(self.bags):
            last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + rows, side="right")) - 1)
            place = order[offsets[first] : offsets[last]]
            piece = (self.X[place].astype(float) - self.mean) / self.scale
            yield slice(int(offsets[first]), int(offsets[last])), slice(first, last), piece
            first = last

    @cached_property
    def _kept(self) -> list[tuple[slice, slice, Floats]] | None:
        return list(self._read()) if self.bags.n_bagged * self.X.shape[1] <= _KEPT else None

    def pieces(self) -> Iterator[tuple[slice, slice, Floats]]:
        """As `_read`, from memory where they are not too many."""
        return self._read() if self._kept is None else iter(self._kept)

    def scores(self, w: Floats) -> Floats:
        """(n, …) z·w of w (d, …), without an intercept."""
        found = np.empty((self.bags.n_bagged, *w.shape[1:]))
        for rows, _, z in self.pieces():
            found[rows] = z @ w
        return found


@dataclass(frozen=True, eq=False)
class Point:
    """Scores of some w, and what the likelihood says of them.

    w: (d,).  intercept: b.  s, h: (n,) with the intercept.  extra: (m,) variance of counts.  value: L, summed.
    """

    w: Floats
    intercept: float
    s: Floats
    h: Floats
    extra: Floats
    found: Tilted

    @property
    def value(self) -> float:
        """The log-likelihood of all bags."""
        return float(self.found.log_likelihood.sum())


@dataclass(frozen=True, eq=False)
class System:
    """Gradient and curvature of the likelihood by w, and by the intercept of features measured from `centre`.

    centre: (d,) mean of the features, weighted by h(1 − h).
    scores: (m, d + 1) gradient of each bag; the last column is that of E[h] = p, the count less what is expected.
    hessian: (d + 1, d + 1) −∂²L, the last line that of E[h] = p.
    """

    centre: Floats
    scores: Floats
    hessian: Floats

    @property
    def gradient(self) -> Floats:
        """(d,) by w, the intercept following."""
        return np.asarray(self.scores[:, :-1].sum(axis=0))

    @property
    def curvature(self) -> Floats:
        """(d, d) by w, as far as it is positive."""
        values, vectors = np.linalg.eigh(self.hessian[:-1, :-1])
        return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)

    def step(self, w: Floats, penalty: Floats) -> tuple[Floats, float]:
        """Newton's step from w, and the rise it promises; where L is convex, as far as it would be if it were not."""
        gradient = self.gradient - penalty * w
        values, vectors = np.linalg.eigh(self.hessian[:-1, :-1] + np.diag(penalty))
        least = 1e-8 * np.abs(values).max(initial=1e-300)
        step = np.asarray(vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), least)))
        return step, float(gradient @ step)

    def free(self, w: Floats) -> tuple[Floats, Floats]:
        r"""Weights (d,) without a penalty, one step of Newton's from w, and their covariance by the sandwich.

        Both equations, of the likelihood and of E[h] = p, are sums over bags :math:`\sum_j \psi_j = 0`, so that the
        covariance is :math:`A^{-1} \bigl(\sum_j \psi_j \psi_j^\top\bigr) A^{-\top}` in every formation.
        """
        m, inverse = len(self.scores), np.linalg.pinv(self.hessian)
        covariance = inverse @ (self.scores.T @ self.scores * m / (m - 1)) @ inverse.T
        return w + inverse[:-1, :-1] @ self.gradient, covariance[:-1, :-1]


def point(
    design: Design,
    w: Floats,
    prior: float,
    effect_variance: float,
    *,
    extra: Floats | None = None,
    start: float | None = None,
) -> Point:
    """The likelihood at w.  extra: as it is held during a step; None for that of these scores."""
    check_time()
    s = design.scores(w)
    b = shift_to(prior, s, start=start)
    s += b
    if extra is None:
        extra = extra_variance(s, design.bags, effect_variance)
    return Point(w, b, s, expit(s), extra, tilted(s, design.bags, extra=extra))


def system(design: Design, at: Point) -> System:
    r"""The sums of Newton's method at a point.

    With :math:`a, b, c` the sums over a bag of :math:`v z`, :math:`v(1-2q) z`, :math:`v(1-6v) z`, and
    :math:`\beta = b - \tfrac{M_3}{W} a`, the derivative of W, the curvature of a bag is

    .. math:: \sum_i f_i z_i z_i^\top + \frac{a a^\top}{W} - \frac{\beta\beta^\top}{2W^2}
              - \frac{c a^\top + a c^\top}{2W^2} + \frac{M_3 (b a^\top + a b^\top)}{2W^3}
              + \frac{(M_4 - M_3^2/W)\, a a^\top}{2W^3}

    with :math:`f = h(1-h) - v + \tfrac{1}{2W}\bigl(v(1-6v) - \tfrac{M_3}{W} v(1-2q)\bigr)`, up to the next term of
    the series.
    """
    d, bags, found = len(at.w), design.bags, at.found
    spread, q, v = at.h * (1 - at.h), expit(at.s + bags.repeat(found.tilt)), found.spread
    skew, flat = v * (1 - 2 * q), v * (1 - 6 * v)
    per = np.where(found.variance > _LEAST_VARIANCE, 1 / np.maximum(found.variance, _LEAST_VARIANCE), 0.0)
    m3, m4 = bags.sum(skew) * per, bags.sum(flat) * per
    own = spread - v + 0.5 * bags.repeat(per) * (flat - bags.repeat(m3) * skew)
    centre = np.asarray(sum(spread[rows] @ z for rows, _, z in design.pieces()) / spread.sum())
    weights = np.column_stack([v, skew, flat, found.gradient])
    hessian, sums = np.zeros((d + 1, d + 1)), np.empty((4, len(bags), d + 1))
    for rows, some, z in design.pieces():
        z = np.column_stack([z - centre, np.ones(len(z))])
        hessian += (z * own[rows, None]).T @ z
        for total, weight in zip(sums, weights[rows].T, strict=True):
            total[some] = np.add.reduceat(z * weight[:, None], bags.offsets[some] - rows.start, axis=0)
    a, b, c, scores = sums
    change = (b - m3[:, None] * a) * per[:, None]
    mixed = a.T @ ((0.5 * per**2)[:, None] * (m3[:, None] * b - c))
    hessian += a.T @ ((per + 0.5 * per**2 * (m4 - m3**2))[:, None] * a) - 0.5 * change.T @ change + mixed + mixed.T
    hessian[-1, :-1], hessian[-1, -1] = 0.0, spread.sum()
    scores[:, -1] = bags.size * bags.proportion - bags.sum(at.h)
    return System(centre, scores, hessian)


def maximise(
    design: Design,
    prior: float,
    penalty: Floats,
    *,
    effect_variance: float = 0.0,
    start: Floats | None = None,
    close: float = 1e-3,
) -> Point:
    r"""The maximum of the likelihood less :math:`\sum_c \lambda_c w_c^2 / 2`.

    penalty: (d,) λ.  close: in units of log-likelihood.
    """
    at = point(design, np.zeros(len(penalty)) if start is None else start, prior, effect_variance)
    for _ in range(_STEPS):
        step, rise = system(design, at).step(at.w, penalty)
        share = min(1.0, _FARTHEST / float(np.abs(design.scores(step)).mean() + 1e-12))
        height = at.value - penalty @ at.w**2 / 2
        for _ in range(_HALVINGS):
            moved = point(design, at.w + share * step, prior, effect_variance, extra=at.extra, start=at.intercept)
            if moved.value - penalty @ moved.w**2 / 2 >= height + 1e-4 * share * rise:
                break
            share /= 2
        else:
            return at
        at = moved if effect_variance == 0 else point(design, moved.w, prior, effect_variance, start=moved.intercept)
        if share * rise < close:
            break
    return at


def maximise_classes(
    design: Design, prior: Floats, penalty: Floats, *, effect_variance: float = 0.0, start: Floats | None = None
) -> tuple[Floats, Floats]:
    r"""Weights (classes, d) and intercepts of several classes, by L-BFGS; E[h] is held to p by its likelihood.

    prior: (classes,).  penalty: (d,) as in `maximise`.
    """
    bags, classes, d = design.bags, len(prior), len(penalty)
    n, p = bags.n_bagged, np.maximum(prior, 1e-9)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        check_time()
        w = parameters.reshape(classes, d + 1)
        s = design.scores(w[:, :-1].T) + w[:, -1]
        found = tilted_classes(s, bags, extra=extra_variance(s, bags, effect_variance))
        h = softmax(s, axis=1)
        off = h.mean(axis=0) - prior
        pull = h * (off / p - (h * (off / p)).sum(axis=1, keepdims=True)) - found.gradient
        gradient = np.column_stack([sum(pull[rows].T @ z for rows, _, z in design.pieces()), pull.sum(axis=0)])
        gradient[:, :-1] += penalty * w[:, :-1]
        value = n * (off**2 / p).sum() / 2 - found.log_likelihood.sum() + (penalty * w[:, :-1] ** 2).sum() / 2
        return value / n, gradient.ravel() / n

    begin = np.column_stack([np.zeros((classes, d)), np.log(p)]) if start is None else start
    found = minimize(loss, begin.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500, "gtol": 1e-6})
    w = found.x.reshape(classes, d + 1)
    return w[:, :-1], w[:, -1]
