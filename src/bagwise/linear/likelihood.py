r"""Maximum of the count likelihood over linear scores, :math:`s = w \cdot z + b` of standardised features z.

The intercept always makes E[h] = p, so that it is w alone that is looked for: a step of w moves scores by that of
features measured from their mean with weights h(1 − h). Newton's method needs three sums over rows, of each of which a
bag contributes its part: the gradient, the curvature of single rows and the curvature of bags.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from bagwise.linear.design import Design
from bagwise.log_odds import shift_to_reports
from bagwise.losses.likelihood import extra_variance
from bagwise.losses.tilting import Tilted
from bagwise.losses.tilting_intervals import tilted
from bagwise.utils.deadline import check_time
from bagwise.utils.sigmoid import sigmoid
from bagwise.utils.typing import Floats, Integers

_STEPS, _HALVINGS = 50, 20
_FARTHEST = 1.5  # that scores move in one step, on average
_MOST_LEVERAGE = 0.9
_LEAST_VARIANCE = 1e-9  # of a count that is not known beforehand


def _bag_sums(z: Floats, weights: Floats, size: Integers, equal: int | None) -> Floats:
    """(bags, c, d) sums of features (n, d) with each of the weights (n, c)."""
    (d, c), m = (z.shape[1], weights.shape[1]), len(size)
    if equal is not None:
        return np.asarray(weights.reshape(m, equal, c).transpose(0, 2, 1) @ z.reshape(m, equal, d))
    bag = np.repeat(np.arange(m), size)  # sparse columns, one for each row
    entries = (weights.ravel(), (c * bag[:, None] + np.arange(c)).ravel(), c * np.arange(len(z) + 1))
    return np.asarray((sparse.csc_array(entries, shape=(c * m, len(z))) @ z).reshape(m, c, d))


@dataclass(frozen=True, eq=False)
class Place:
    """Some w (d,), and the intercept b."""

    w: Floats
    intercept: float


@dataclass(frozen=True, eq=False)
class Point(Place):
    """Scores of some w, and what the likelihood says of them.

    s: (n,) with the intercept and the offset of rows.  extra: (m,) variance of counts.  offset: (n,) None without.
    prior: p, the mean prediction, which is what bags report.
    """

    s: Floats
    extra: Floats
    found: Tilted
    offset: Floats | None
    prior: float

    @property
    def h(self) -> Floats:
        """(n,) predictions."""
        return self.found.prediction

    @property
    def z(self) -> Floats:
        """(n,) scores without the intercept, nor the offset of rows."""
        return self.s - self.intercept if self.offset is None else self.s - self.intercept - self.offset

    @property
    def value(self) -> float:
        """The log-likelihood of all bags."""
        return float(self.found.log_likelihood.sum())


@dataclass(frozen=True, eq=False)
class Quadratic:
    """A log-likelihood of w that is known about a point alone: g·(w − w₀) − (w − w₀)ᵀH(w − w₀)/2.

    w: (d,) w₀.  gradient: (d,) g.  hessian: (d, d) H.
    """

    w: Floats
    gradient: Floats
    hessian: Floats

    def value(self, w: Floats) -> float:
        """At w, over that at w₀."""
        step = w - self.w
        return float(self.gradient @ step - step @ self.hessian @ step / 2)

    def slope(self, w: Floats) -> Floats:
        """(d,) its gradient at w."""
        return np.asarray(self.gradient - self.hessian @ (w - self.w))


@dataclass(frozen=True, eq=False)
class System:
    """Gradient and curvature of the likelihood by w, and by the intercept of features measured from `centre`.

    centre: (d,) mean of the features, weighted by h(1 − h) and by how much of its count a bag settles.
    scores: (m, d + 1) gradient of each bag; the last column is that of E[h] = p, the count less what is expected.
    hessian: (d + 1, d + 1) −∂²L, the last line that of E[h] = p.
    pull: (m, d + 1) a/√W of each bag, whose squares are what bags as such add to the hessian.
    """

    centre: Floats
    scores: Floats
    hessian: Floats
    pull: Floats

    @property
    def gradient(self) -> Floats:
        """(d,) by w, the intercept following."""
        return np.asarray(self.scores[:, :-1].sum(axis=0))

    @property
    def curvature(self) -> Floats:
        """(d, d) by w, as far as it is positive."""
        values, vectors = np.linalg.eigh(self.hessian[:-1, :-1])
        return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)

    def step(self, w: Floats, penalty: Floats, beside: Quadratic | None = None) -> tuple[Floats, float]:
        """Newton's step from w, and the rise it promises; where L is convex, as far as it would be if it were not."""
        gradient, hessian = self.gradient - penalty * w, self.hessian[:-1, :-1] + np.diag(penalty)
        if beside is not None:
            gradient, hessian = gradient + beside.slope(w), hessian + beside.hessian
        values, vectors = np.linalg.eigh(hessian)
        least = 1e-8 * np.abs(values).max(initial=1e-300)
        step = np.asarray(vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), least)))
        return step, float(gradient @ step)

    def free(self, w: Floats) -> tuple[Floats, Floats]:
        """Weights (d,) without a penalty, one step of Newton's from w, and their covariance by the `sandwich`."""
        inverse, covariance = self.sandwich()
        return w + inverse[:-1, :-1] @ self.gradient, covariance[:-1, :-1]

    def sandwich(self, penalty: Floats | float = 0.0) -> tuple[Floats, Floats]:
        r"""What (d + 1, d + 1) turns gradients into steps, and the covariance of the weights and the intercept.

        penalty: (d,) λ, which is what is known of a weight of which bags tell nothing: variance 1/λ.

        Both equations, of the likelihood and of E[h] = p, are sums over bags :math:`\sum_j \psi_j = 0`, so that the
        covariance is :math:`A^{-1} \bigl(\sum_j \psi_j \psi_j^\top\bigr) A^{-\top}` in every formation. A bag pulls the
        weights its way: what is left of its :math:`\psi` is too small by one less its leverage (as in HC3 of least
        squares).
        """
        prior = np.diag(np.append(np.broadcast_to(penalty, len(self.centre)), 0.0))
        inverse = np.linalg.pinv(self.hessian + prior)
        leverage = np.clip(np.einsum("ij,ij->i", self.pull @ inverse, self.pull), 0.0, _MOST_LEVERAGE)
        outward = self.scores / (1 - leverage)[:, None]
        return inverse, inverse @ (outward.T @ outward + prior) @ inverse.T


def point(
    design: Design,
    w: Floats,
    prior: float,
    effect_variance: float,
    *,
    scores: Floats | None = None,
    extra: Floats | None = None,
    near: Point | None = None,
) -> Point:
    """The likelihood at w.

    scores: of w, where known.  extra: as it is held during a step; None for that of w.  near: what was found close by.
    """
    check_time()
    z, bags = design.scores(w) if scores is None else scores, design.bags
    moved = z if bags.offset is None else z + bags.offset
    b, tilt = (None, None) if near is None else (near.intercept, near.found.tilt)
    b = shift_to_reports(prior, moved, bags, effect_variance=effect_variance, start=b, tilt=tilt)
    s = moved + b
    if extra is None:
        extra = extra_variance(s, bags, effect_variance)
    found = tilted(s, bags, extra=extra, start=tilt)
    return Point(w, b, s, extra, found, bags.offset, float(bags.average(found.prediction)))


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
    per = np.where(found.variance > _LEAST_VARIANCE, 1 / np.maximum(found.variance, _LEAST_VARIANCE), 0.0)
    settled = None if bags.interval is None else found.settled(bags)
    scores, pull, buffer = np.empty((len(bags), d + 1)), np.empty((len(bags), d + 1)), np.empty((0, d))
    hessian, spread = np.zeros((d + 1, d + 1)), np.zeros(d + 1)
    for rows, some, z in design.pieces():
        starts, size = bags.offsets[some] - rows.start, bags.rows[some]
        h, v, tilt = at.h[rows], found.spread[rows], np.repeat(found.tilt[some], size)
        weights = np.empty((len(z), 6))
        slope, q = h * (1 - h), sigmoid(at.s[rows] + tilt)
        skew, flat = v * (1 - 2 * q), v * (1 - 6 * v)
        people = None if bags.weight is None else bags.weight[rows]
        each = (skew, flat) if people is None else (people * skew, people * flat)
        w = per[some]
        m3, m4 = (np.add.reduceat(one, starts) * w for one in each)
        half = np.repeat(0.5 * w, size)
        own = slope - v + half * (flat - np.repeat(m3, size) * skew)
        for c, one in enumerate((v, skew, flat, found.gradient[rows], slope, own)):
            weights[:, c] = one
        if people is not None:
            weights *= people[:, None]
            own = weights[:, 5]
        sums = np.empty((len(size), 6, d + 1))
        sums[..., :-1] = _bag_sums(z, weights, size, bags.equal_size)
        sums[..., -1] = np.add.reduceat(weights, starts, axis=0)  # of the intercept
        if len(z) > len(buffer):
            buffer = np.empty((len(z), d))
        hessian[:-1, :-1] += np.multiply(z, own[:, None], out=buffer[: len(z)]).T @ z
        line = sums[:, 5].sum(axis=0)
        hessian[-1] += line
        hessian[:-1, -1] += line[:-1]
        spread += sums[:, 4].sum(axis=0) if settled is None else settled[some] @ sums[:, 4]
        a, b, third, scores[some] = (sums[:, c] for c in range(4))
        hessian += _of_bags(a, b, third, w, m3, m4)
        pull[some] = a * np.sqrt(w)[:, None]
    centre = spread[:-1] / spread[-1]
    shift = np.eye(d + 1)  # of the features to their centre
    shift[-1, :-1] = -centre
    hessian = shift.T @ hessian @ shift
    for of_bags in (scores, pull):
        of_bags[:, :-1] -= of_bags[:, -1:] * centre
    hessian[-1, :-1], hessian[-1, -1] = 0.0, spread[-1]
    count = bags.size * bags.proportion if bags.interval is None else bags.sum(found.posterior)
    scores[:, -1] = count - bags.sum(at.h)
    return System(centre, scores, hessian, pull)


def _of_bags(a: Floats, b: Floats, third: Floats, per: Floats, m3: Floats, m4: Floats) -> Floats:
    """(d + 1, d + 1) what bags as such add to the curvature (see `system`).  per: (m,) 1/W.  m3, m4: over W."""
    change = (b - m3[:, None] * a) * per[:, None]
    mixed = a.T @ ((0.5 * per**2)[:, None] * (m3[:, None] * b - third))
    own = a.T @ ((per + 0.5 * per**2 * (m4 - m3**2))[:, None] * a)
    return np.asarray(own - 0.5 * change.T @ change + mixed + mixed.T)


def maximise(
    design: Design,
    prior: float,
    penalty: Floats,
    *,
    effect_variance: float = 0.0,
    start: Floats | None = None,
    close: float = 1e-3,
    beside: Quadratic | None = None,
) -> Point:
    """As `climb`, the place alone."""
    return climb(design, prior, penalty, effect_variance=effect_variance, start=start, close=close, beside=beside)[0]


def climb(
    design: Design,
    prior: float,
    penalty: Floats,
    *,
    effect_variance: float = 0.0,
    start: Floats | None = None,
    close: float = 1e-3,
    beside: Quadratic | None = None,
) -> tuple[Point, Place, System, int]:
    r"""The maximum of the likelihood less :math:`\sum_c \lambda_c w_c^2 / 2`.

    penalty: (d,) λ.  close: how far below it one may stop, in units of log-likelihood.  beside: that of other bags.
    Returns where it is, the place before the last step with the derivatives there, and how many steps there were.
    """

    def height(of: Point) -> float:
        return of.value - float(penalty @ of.w**2) / 2 + (0.0 if beside is None else beside.value(of.w))

    at, n_iter = point(design, np.zeros(len(penalty)) if start is None else start, prior, effect_variance), 0
    for _ in range(_STEPS):
        n_iter += 1
        before, sums = Place(at.w, at.intercept), system(design, at)
        step, rise = sums.step(at.w, penalty, beside)
        scores, along = at.z, design.scores(step)
        share = min(1.0, _FARTHEST / float(design.bags.average(np.abs(along)) + 1e-12))
        for _ in range(_HALVINGS):
            w, s = at.w + share * step, scores + share * along
            moved = point(design, w, prior, effect_variance, scores=s, extra=at.extra, near=at)
            risen = height(moved) - height(at)
            if risen >= 1e-4 * share * rise:
                break
            share /= 2
        else:
            break
        if effect_variance > 0:
            moved = point(design, moved.w, prior, effect_variance, scores=s, near=moved)
        at = moved
        # Where a whole step rises as a quadratic would, what is left is less than the difference.
        if share * rise < close or (share == 1.0 and effect_variance == 0 and abs(risen - rise / 2) < close):
            break
    return at, before, sums, n_iter
