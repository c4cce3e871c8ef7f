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
from scipy.special import expit, logit

from bagwise.bags import Bags
from bagwise.base import check_finite_features
from bagwise.losses.likelihood import extra_variance
from bagwise.losses.tilting import Tilted, tilted
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats, Integers

_PIECE = 2**20  # numbers standardised at a time
_KEPT = 2**25  # numbers that are kept standardised, where there are no more
_STEPS, _HALVINGS = 50, 20


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
    """Gradient and curvature of the likelihood by w.

    gradient: (d,).  rows, bags: (d, d) curvature of single rows and of bags.  by_bag: (m, d) gradients of bags.
    """

    gradient: Floats
    rows: Floats
    bags: Floats

    @property
    def curvature(self) -> Floats:
        """(d, d) what of it is positive; that of rows may be negative where it says little."""
        values, vectors = np.linalg.eigh(self.rows)
        return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T + self.bags)


def intercept_of(s: Floats, prior: float) -> float:
    """The b for which the mean of σ(s + b) is the prior.

    >>> round(intercept_of(np.array([-1.0, 1.0]), 0.5), 6)
    0.0
    """
    low, high = float(logit(prior) - s.max()), float(logit(prior) - s.min())
    b = float(np.clip(logit(prior) - s.mean(), low, high))
    for _ in range(100):
        h = expit(s + b)
        over = float(h.mean()) - prior
        low, high = (low, b) if over > 0 else (b, high)
        slope = float((h * (1 - h)).mean())
        moved = b - over / slope if slope > 0 else np.inf
        moved = moved if low < moved < high else (low + high) / 2
        if abs(moved - b) <= 1e-12 * (1 + abs(b)):
            break
        b = moved
    return b


def point(design: Design, w: Floats, prior: float, effect_variance: float, extra: Floats | None = None) -> Point:
    """The likelihood at w.  extra: as it is held during a step; None for that of these scores."""
    check_time()
    s = design.scores(w)
    b = intercept_of(s, prior)
    s += b
    if extra is None:
        extra = extra_variance(s, design.bags, effect_variance)
    return Point(w, b, s, expit(s), extra, tilted(s, design.bags, extra=extra))


def system(design: Design, at: Point) -> System:
    """The sums of Newton's method at a point."""
    d, m, bags = len(at.w), len(design.bags), design.bags
    spread, variance = at.h * (1 - at.h), at.found.variance
    own = spread - at.found.spread
    centre = sum(spread[rows] @ z for rows, _, z in design.pieces()) / spread.sum()
    gradient, curvature, sums = np.zeros(d), np.zeros((d, d)), np.empty((m, d))
    for rows, some, z in design.pieces():
        z = z - centre
        gradient += at.found.gradient[rows] @ z
        curvature += (z * own[rows, None]).T @ z
        sums[some] = np.add.reduceat(z * at.found.spread[rows, None], bags.offsets[some] - rows.start, axis=0)
    sums /= np.sqrt(variance)[:, None]
    return System(gradient, curvature, sums.T @ sums)


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
        sums = system(design, at)
        gradient = sums.gradient - penalty * at.w
        step = np.linalg.solve(sums.curvature + np.diag(penalty + 1e-10 * (1 + penalty)), gradient)
        rise, share = float(gradient @ step), 1.0
        height = at.value - penalty @ at.w**2 / 2
        for _ in range(_HALVINGS):
            moved = point(design, at.w + share * step, prior, effect_variance, at.extra)
            if moved.value - penalty @ moved.w**2 / 2 >= height + 1e-4 * share * rise:
                break
            share /= 2
        else:
            return at
        at = moved if effect_variance == 0 else point(design, moved.w, prior, effect_variance)
        if share * rise < close:
            break
    return at
