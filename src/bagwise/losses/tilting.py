r"""What the count of a bag says of the scores of its rows: likelihood, posterior, gradient and curvature, written out.

Labels :math:`y_i \sim \mathrm{Bernoulli}(\sigma(s_i))` are independent, and the bag reports :math:`c = \sum y`, with an
extra variance e where the count was noised or its bag has an effect of its own. The *tilt* t of a bag moves its scores
until they expect the count, :math:`\sum_i \sigma(s_i + t) + e t = c`; at :math:`q_i = \sigma(s_i + t)` the count is in
the middle of its distribution, where the normal density, corrected by its next term (Daniels, 1954), is accurate
however far in the tail of the scores themselves the count lies. With :math:`v = q(1-q)` and :math:`W = \sum v + e`,

.. math:: L = \sum_i \log\frac{1 + e^{s_i + t}}{1 + e^{s_i}} + \tfrac{e t^2}{2} - ct - \tfrac12 \log 2\pi W
              + \tfrac{M_4}{8W^2} - \tfrac{5M_3^2}{24W^3}

where :math:`M_3, M_4` are sums of the third and fourth cumulants of the tilted rows. Small bags, and those whose tilted
count hardly varies, are computed exactly, from the characteristic function of the tilted count. Nothing here knows
classes: see `bagwise.losses.tilting_classes`.

A row of weight w stands for w people with its score and labels of their own: every sum over rows is over people, and
what is said of a row is said of each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.weights import whole_people
from bagwise.utils.sigmoid import sigmoid
from bagwise.utils.typing import Booleans, Floats, Integers

EXACT_UP_TO = 20
"""Rows of the largest bag that is computed exactly without need; the series is as good from here on."""

LEAST_EXTRA = 1e-9  # variance of a count below which there is none
LEAST_VARIANCE = 3.0  # of a tilted count, below which two terms of the series do not suffice
FREQUENCIES = 21  # counts of a variance below 3 are that far apart with probability 0
TINY = 1e-300
STEPS = 100
_FAR = 300.0  # log odds whose probability is still a number
_ROUGH, _LEAST_ROUGHLY = 1e-3, 1.0  # how close tilts are where the series serves from this variance on: within 5 %
_FREQUENCIES_ROUGHLY = 9  # that suffice below it: counts that far from one whose variance is 1 are a millionth


@dataclass(frozen=True, eq=False)
class Tilted:
    r"""Log-likelihood of the counts of bags, and its derivatives by the scores, rows in bag order.

    Attributes
    ----------
    log_likelihood : array of shape (m,)
        L; a density where there is extra variance.
    gradient : array of shape (n,)
        :math:`\partial L/\partial s_i`, by the score of one of the people whom a row stands for.
    posterior : array of shape (n,)
        :math:`P(y_i = 1)` given scores and count; sums to the count where that is exact.
    tilt : array of shape (m,)
        t; infinite where all labels of the bag are known.
    prediction : array of shape (n,)
        h = σ(s).
    spread : array of shape (n,)
        v, the variances of tilted rows.
    variance : array of shape (m,)
        W, never 0: the curvature of L within a bag is about :math:`-\mathrm{diag}(h(1-h) - v) - vv^\top/W`.
    """

    log_likelihood: Floats
    gradient: Floats
    posterior: Floats
    tilt: Floats
    prediction: Floats
    spread: Floats
    variance: Floats

    def settled(self, bags: Bags) -> Floats:
        """(m,) how much of a count its report settles: 1 where it says it, 0 where it says nothing."""
        return np.where(self.variance > LEAST_EXTRA, bags.sum(self.spread) / self.variance, 1.0)


def tilted_counts(
    s: Floats,
    bags: Bags,
    *,
    extra: Floats | None = None,
    exact_up_to: int = EXACT_UP_TO,
    start: Floats | None = None,
    close: float = 1e-11,
    value: bool = True,
    prediction: Floats | None = None,
) -> Tilted:
    """The likelihood of the counts that bags report.

    Parameters
    ----------
    s : array of shape (n,)
        Scores (log odds) in bag order; in single precision, rows are computed in it, which is for rough answers.
    bags : Bags
        Whose counts are k times their proportions.
    extra : array of shape (m,), optional
        Variance of counts beyond that of independent labels; None for the declared noise.
    exact_up_to : int, default 20
        Rows of the largest bag that is computed exactly without need.
    start : array of shape (m,), optional
        About where the tilts are: those of scores close by.
    close : float, default 1e-11
        How close, of all, the tilted sums come to the counts. Where that is not very close, 1e-3 or more, the series
        serves bags of a smaller variance and of few rows, too, whose gradient it knows to a few percent, and tilted
        rows are known to first order of the last step.
    value : bool, default True
        Whether the log-likelihood itself is wanted, which takes as long as all the rest; NaN without.
    prediction : array of shape (n,), optional
        σ(s), where it is known.

    Returns
    -------
    Tilted

    Examples
    --------
    >>> found = tilted_counts(np.array([0.0, 0.0, 1.0]), Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1]))
    >>> np.exp(found.log_likelihood).round(3), found.posterior
    (array([0.5  , 0.731]), array([0.5, 0.5, 1. ]))
    """
    s, roughly = in_precision(s), close >= _ROUGH
    count, size = bags.size * bags.proportion, bags.size
    if extra is None:
        extra = bags.declared_noise
    known = (extra == 0) & ((count <= 0) | (count >= size))
    rows = _Rows.of(bags, s)
    t, q = _solved(s, rows, count, extra, known, start, close)
    by_row = rows.repeat(t)
    if q is None or not roughly:
        q = sigmoid(s + by_row)
    other = sigmoid(-s - by_row) if value else 1 - q
    v = q * other
    own = rows.sum(v)
    variance = np.maximum(own + extra, TINY)
    finite = np.where(known, 0.0, t)
    h = sigmoid(s) if prediction is None else prediction
    base = np.full(len(bags), np.nan)
    if value:
        if known.any() or max(np.abs(s).max(initial=0.0), np.abs(s + by_row).max(initial=0.0)) > _FAR:
            rise = np.logaddexp(0, s + rows.repeat(finite)) - np.logaddexp(0, s)
        else:  # the same, in one logarithm
            rise = np.log(sigmoid(-s) / other)
        base = rows.sum(rise) + finite * (extra * finite / 2 - count)
    least = _LEAST_ROUGHLY if roughly else LEAST_VARIANCE
    exact = ~known & _whole(bags) & (variance < least)
    if not roughly:
        exact |= ~known & _whole(bags) & (size <= exact_up_to)
    frequencies = _FREQUENCIES_ROUGHLY if roughly else max(exact_up_to + 1, FREQUENCIES)
    log_likelihood, gradient, posterior = base, q - h, q.copy()
    if not (exact | known).all():
        density, slope = _series(q, v, own, variance, rows, least)
        log_likelihood, gradient = base + density, gradient + slope
    if known.any():
        all_ones, inside = known & (count > 0), rows.repeat(known)
        if value:
            log_likelihood[known] = rows.sum(-np.logaddexp(0, np.where(rows.repeat(all_ones), -s, s)))[known]
        gradient[inside] = (q - h)[inside]
    if exact.all():
        log_p, posterior = _exact(q, rows, count, extra * finite, extra, frequencies)
        log_likelihood, gradient = base + log_p, posterior - h
    elif exact.any():
        inside, some = rows.repeat(exact), rows.some(exact)
        log_p, given = _exact(q[inside], some, count[exact], (extra * finite)[exact], extra[exact], frequencies)
        log_likelihood[exact] = base[exact] + log_p
        posterior[inside] = given
        gradient[inside] = given - h[inside]
    return Tilted(log_likelihood, gradient, posterior, t, h, v, variance)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Which rows each bag has, and in what precision these are computed: a fraction of what `Bags` knows, and costs.

    size: (m,) people of each bag.  each: rows of each bag, one number where they are equal.  starts: (m,) the first.
    """

    size: Integers
    each: Integers | int
    starts: Integers
    weight: Floats | None
    dtype: Any

    @classmethod
    def of(cls, bags: Bags, s: Floats) -> _Rows:
        each = np.diff(bags.offsets) if bags.equal_size is None else bags.equal_size
        return cls(bags.size, each, bags.offsets[:-1], bags.weight, s.dtype)

    def some(self, chosen: Booleans) -> _Rows:
        size = self.size[chosen]
        weight = None if self.weight is None else self.weight[self.repeat(chosen)]
        if isinstance(self.each, int):
            return _Rows(size, self.each, np.arange(0, len(size) * self.each, self.each), weight, self.dtype)
        each = self.each[chosen]
        return _Rows(size, each, np.cumsum(each) - each, weight, self.dtype)

    def sum(self, values: Any) -> Any:
        return np.add.reduceat(values if self.weight is None else self.weight * values, self.starts)

    def repeat(self, per_bag: Any) -> Any:
        """Each row's copy of its bag's value; of numbers, in the precision of rows."""
        return (per_bag if per_bag.dtype == bool else per_bag.astype(self.dtype, copy=False)).repeat(self.each)


def _whole(bags: Bags) -> Booleans:
    """Where the report is a whole number, of whole people: an exact count."""
    whole = np.ones(len(bags), dtype=bool) if bags.noise_variance is None else bags.noise_variance == 0
    return np.asarray(whole & whole_people(bags.weight, bags.offsets))


def in_precision(s: Any) -> Floats:
    """Scores in single precision as they are, others in double."""
    return np.asarray(s, dtype=None if getattr(s, "dtype", None) == np.float32 else float)


def solve_tilts(
    s: Floats, bags: Bags, count: Floats, extra: Floats, known: Booleans, start: Floats | None, close: float
) -> Floats:
    """(m,) the tilts, by Newton's method kept between bounds; infinite where all labels are known."""
    return _solved(s, _Rows.of(bags, s), count, extra, known, start, close)[0]


def _solved(
    s: Floats, rows: _Rows, count: Floats, extra: Floats, known: Booleans, start: Floats | None, close: float
) -> tuple[Floats, Floats | None]:
    """The tilts, and (n,) tilted rows to first order of the last step, None where bags took different numbers of it."""
    size, possible = rows.size, np.clip(count, 0, rows.size)
    with np.errstate(divide="ignore"):
        odds = np.log(possible) - np.log(size - possible)
    # Without extra variance the tilt moves some row's odds to those of the count; with it, it stays closer to 0.
    if start is None:
        low, high = odds - np.maximum.reduceat(s, rows.starts), odds - np.minimum.reduceat(s, rows.starts)
    else:  # wider, and quicker to find
        low, high = odds - s.max(), odds - s.min()
    if extra.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            least, most = (count - size) / extra, count / extra  # e t = c − Σσ(s + t)
        low = np.where(extra > 0, np.maximum(np.minimum(low, 0), least), low)
        high = np.where(extra > 0, np.minimum(np.maximum(high, 0), most), high)
    t = np.where(known, np.where(count > 0, np.inf, -np.inf), np.clip(0.0 if start is None else start, low, high))
    gap = close * np.where(extra > 0, 1 + np.abs(count), np.minimum(count, size - count))
    short = np.sqrt(close)
    active, part, scores = np.arange(len(size)), rows, s
    at: Any = t
    if known.any():
        active, part, scores = np.flatnonzero(~known), rows.some(~known), s[rows.repeat(~known)]
        at, low, high, gap, count, extra = (np.take(one, active) for one in (t, low, high, gap, count, extra))
    for _ in range(STEPS if len(active) else 0):
        q = sigmoid(scores + part.repeat(at))
        v = q * (1 - q)
        over = part.sum(q) + extra * at - count
        slope = part.sum(v) + extra
        above = over > 0
        high, low = np.where(above, at, high), np.where(above, low, at)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = at - over / slope
        inside = (moved >= low) & (moved <= high)
        moved = np.where(inside, moved, (low + high) / 2)
        far = np.abs(over)
        settled = (far <= gap) | (inside & (np.abs(moved - at) <= short))  # a short step squares what is missing
        open_ = ~settled & (high - low > 1e-14 * (1 + np.abs(at)))
        step = np.where(far > 0, moved - at, 0.0)
        at = t[active] = at + step
        left = np.count_nonzero(open_)
        if left == 0:
            return t, q + part.repeat(step) * v if len(active) == len(size) else None
        if left < len(active) / 2:
            scores, active, part = scores[part.repeat(open_)], active[open_], part.some(open_)
            at, low, high, gap, count, extra = (one[open_] for one in (at, low, high, gap, count, extra))
    return t, None


def _series(q: Floats, v: Floats, own: Floats, variance: Floats, rows: _Rows, least: float) -> tuple[Floats, Floats]:
    """(m,) the logarithm of the density at the middle, and (n,) its derivative by the scores, tilts following.

    Cumulants of a row are v times a polynomial in v, times r = 1 − 2q where they are odd: r, 1 − 6v and r (1 − 12v).

    own: (m,) Σv.  least: variance below which there is no correction.
    """
    r = 1 - 2 * q
    vr, vv = v * r, v * v
    m3 = rows.sum(vr)
    m4, m5 = own - 6 * rows.sum(vv), m3 - 12 * rows.sum(np.multiply(vv, r, out=vv))
    variance = np.maximum(variance, LEAST_EXTRA)  # below, there are known counts alone
    corrected = variance >= least
    over = np.where(corrected, 1 / variance, 0.0)
    by_m4 = over * over / 8
    by_m3 = m3 * over**3 * (-5 / 12)
    value = -0.5 * np.log(2 * np.pi * variance) + by_m4 * m4 + by_m3 * m3 / 2
    by_variance = -0.5 / variance - (2 * by_m4 * m4 + 1.5 * by_m3 * m3) * over
    by_tilt = (by_variance * m3 + by_m3 * m4 + by_m4 * m5) / variance
    odd, odd_v, even, even_v = (
        rows.repeat(one) for one in (by_variance + by_m4, 12 * by_m4, by_m3 - by_tilt, 6 * by_m3)
    )
    slope = np.multiply(odd_v, v, out=odd_v)
    np.subtract(odd, slope, out=slope)
    slope *= r
    slope += even
    slope -= np.multiply(even_v, v, out=even_v)
    slope *= v
    return value, slope


def _exact(
    q: Floats, rows: _Rows, count: Floats, shift: Floats, extra: Floats, frequencies: int
) -> tuple[Floats, Floats]:
    """(m,) log probability of the tilted count, and (n,) of each row's label 1 given it, by Fourier's formula."""
    n = min(int(rows.size.max()) + 1, frequencies) | 1  # odd, so that none is π
    target = np.rint(count) - shift
    p, ones = np.ones(len(count)), np.ones_like(q)  # of frequency 0
    for f in range(1, n // 2 + 1):
        omega = 2 * np.pi * f / n
        real, imaginary = 1 + q * (math.cos(omega) - 1), q * math.sin(omega)  # of z = 1 + q (exp(iω) − 1)
        weight = 2 * np.exp(-1j * omega * target - extra * omega**2 / 2)
        z = real + 1j * imaginary
        term = weight * np.multiply.reduceat(z if rows.weight is None else z**rows.weight, rows.starts)
        p += term.real
        term *= np.exp(1j * omega)  # over z, row by row
        by_real, by_imaginary = rows.repeat(term.real), rows.repeat(term.imag)
        ones += (by_real * real + by_imaginary * imaginary) / (real**2 + imaginary**2)
    p = np.maximum(p, TINY)
    return np.log(p / n), q * ones / rows.repeat(p)
