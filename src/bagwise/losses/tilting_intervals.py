r"""The likelihood of reports that say between which counts a bag's count lies, and of those that say the count.

Where a count is hidden, rounded or clamped, its likelihood is the sum of those of the counts that the report allows.
One tilt t (see `bagwise.losses.tilting`) serves all of them: with :math:`f_t` the distribution of the tilted count,

.. math:: L = \sum_i \log\frac{1 + e^{s_i + t}}{1 + e^{s_i}} + \tfrac{e t^2}{2}
              + \log \sum_{c = \text{low}}^{\text{high}} e^{-tc} f_t(c)

:math:`f_t` is exact, by Fourier's formula, where counts vary little, and by the series of Edgeworth around its mean,
that of the counts allowed, where they vary much. Where too many are allowed, or noise was added to the count, the sum
is an integral, by Gauss's formula.

Whatever is reported, :math:`\partial L/\partial s_i = P(y_i = 1 \mid \text{report}) - h_i`. With :math:`\pi` the
probabilities of the counts allowed, so much is lost of the curvature as the count varies (Louis, 1982): W becomes
:math:`W / (1 - \mathrm{Var}_\pi(c)/W)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.pieces import pieces
from bagwise.bags.truncated import truncated_normal
from bagwise.losses.tilting import EXACT_UP_TO, TINY, Tilted, in_precision, solve_tilts, tilted_counts
from bagwise.utils.sigmoid import sigmoid
from bagwise.utils.typing import Booleans, Floats, Integers

_PIECE = 2**16  # rows at a time: what is computed of them stays near the processor
_SMALL = 6.0  # variance of a count, below which the series does not suffice
_FAR_APART = 19.0  # standard deviations between counts, of which one has probability 0
_REACH, _BESIDE = 8.0, 6.0  # standard deviations from the likeliest count, and counts beside these, that matter
_NODES = 64  # of Gauss's formula, where more counts are allowed
_GAUSS = np.polynomial.legendre.leggauss(_NODES)
_INSIDE = 0.02  # from 0 and k, which counts between whole ones keep
_LEAST_LEFT = 1e-6  # of the curvature
_NEAR, _ROUNDS = 0.5, 3  # standard deviations of the tilted mean from that of the counts allowed
_BY_ROW = ("gradient", "posterior", "prediction", "spread")  # of `Tilted`
_LEAST_DENSITY = 0.05  # of the normal one, which the series keeps


def tilted(
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
    """The likelihood of what bags report: counts, or between which numbers these lie.

    Parameters
    ----------
    s, exact_up_to, start, close, value, prediction
        As for `bagwise.losses.tilting.tilted_counts`.
    bags : Bags
        With `interval` where counts are not known.
    extra : array of shape (m,), optional
        Variance of counts beyond that of independent labels; None for the declared noise.

    Returns
    -------
    Tilted
        Tilts and spreads of an interval are those of about the mean of the counts that it allows.

    Examples
    --------
    >>> bags = Bags.from_rows(np.zeros(3), [0, 0, 0]).with_intervals([1], [2])
    >>> np.exp(tilted(np.zeros(3), bags).log_likelihood).round(3)
    array([0.75])
    """
    s, extra = in_precision(s), bags.declared_noise if extra is None else extra
    given: dict[str, Any] = {"exact_up_to": exact_up_to, "close": close, "value": value}
    if len(s) <= 2 * _PIECE:
        return _tilted(s, bags, extra, start, prediction, **given)
    found: dict[str, Floats] = {}
    for rows, some, part in pieces(bags, _PIECE):
        begin, h = None if start is None else start[some], None if prediction is None else prediction[rows]
        _put(found, _tilted(s[rows], part, extra[some], begin, h, **given), rows, some, len(s), len(bags))
    return Tilted(**found)


def _tilted(
    s: Floats, bags: Bags, extra: Floats, start: Floats | None, prediction: Floats | None, **given: Any
) -> Tilted:
    """The same of few rows."""
    if bags.interval is None or not (unknown := bags.interval.open).any():
        return _tilted_counts(s, bags, extra, start, prediction=prediction, **given)
    s = np.asarray(s, dtype=float)
    size = bags.size
    mean, sd, low, high, _ = _range(s, bags, extra)
    nearest = np.clip(np.clip(mean, low, high), 0, size)  # of rows alike it would vary so much
    small = (sd**2 < _SMALL) | (nearest * (1 - nearest / size) + extra < _SMALL)

    def counts(s: Floats, some: Bags, extra: Floats, start: Floats | None) -> Tilted:
        return _tilted_counts(s, some, extra, start, **given)

    parts = [(~unknown, counts), (unknown & small, _by_fourier), (unknown & ~small, _by_series)]
    return _in_parts(s, bags, extra, start, parts)


def _tilted_counts(s: Floats, bags: Bags, extra: Floats, start: Floats | None, **given: Any) -> Tilted:
    """Of counts that are known."""
    if bags.interval is not None:
        bags = replace(bags, noise_variance=bags.declared_noise, interval=None)
    return tilted_counts(s, bags, extra=extra, start=start, **given)


def _in_parts(
    s: Floats,
    bags: Bags,
    extra: Floats,
    start: Floats | None,
    parts: Sequence[tuple[Booleans, Callable[[Floats, Bags, Floats, Floats | None], Tilted]]],
) -> Tilted:
    """Some bags each by a function of their own."""
    found: dict[str, Floats] = {}
    for chosen, function in parts:
        if chosen.all():
            return function(s, bags, extra, start)
        if not chosen.any():
            continue
        rows = bags.repeat(chosen)
        some = function(s[rows], bags.take(chosen), extra[chosen], None if start is None else start[chosen])
        _put(found, some, rows, chosen, len(s), len(bags))
    return Tilted(**found)


def _put(found: dict[str, Floats], some: Tilted, rows: Any, chosen: Any, n: int, m: int) -> None:
    """What is said of some bags into arrays of all n rows and m bags."""
    for field in fields(Tilted):
        by_row = field.name in _BY_ROW
        if field.name not in found:
            found[field.name] = np.empty(n if by_row else m, dtype=getattr(some, field.name).dtype)
        found[field.name][rows if by_row else chosen] = getattr(some, field.name)


def _range(s: Floats, bags: Bags, extra: Floats) -> tuple[Floats, Floats, Floats, Floats, Booleans]:
    """Mean and standard deviation of counts, between which numbers they matter, and whether they are whole ones."""
    assert bags.interval is not None
    h, one = sigmoid(s), bags.interval
    mean, sd = bags.sum(h), np.sqrt(bags.sum(h * (1 - h)) + extra)
    whole = one.noise == 0
    low = np.where(whole, np.maximum(np.ceil(one.low), 0), one.low)
    high = np.where(whole, np.minimum(np.floor(one.high), bags.size), one.high)
    likeliest = np.clip(mean, low, high)
    steep = np.abs(likeliest - mean) / np.maximum(sd, 1e-9) ** 2  # by which the density falls, about, in the tail
    reach = np.minimum(_REACH * sd, 2 * _REACH / np.maximum(steep, 1e-9)) + _BESIDE
    return mean, sd, np.maximum(low, np.floor(likeliest - reach)), np.minimum(high, np.ceil(likeliest + reach)), whole


def _tilts(s: Floats, bags: Bags, extra: Floats, middle: Floats, start: Floats | None) -> tuple[Floats, Floats, Floats]:
    """Counts in the middle of the distribution, the tilts that lead there, and tilted predictions."""
    middle = np.where(extra == 0, np.clip(middle, _INSIDE, bags.size - _INSIDE), middle)
    t = solve_tilts(s, bags, middle, extra, np.zeros(len(bags), dtype=bool), start, 1e-9)
    return middle, t, sigmoid(s + bags.repeat(t))


def _base(s: Floats, bags: Bags, extra: Floats, t: Floats, middle: Floats) -> Floats:
    """(m,) the logarithm of what the tilted density at the middle is to be multiplied with."""
    rise = np.logaddexp(0, s + bags.repeat(t)) - np.logaddexp(0, s)
    return np.asarray(bags.sum(rise) + t * (extra * t / 2 - middle))


def _found(
    log_likelihood: Floats, gradient: Floats, t: Floats, h: Floats, v: Floats, variance: Floats, varies: Floats
) -> Tilted:
    """What an interval says.  varies: (m,) variance of the counts allowed."""
    left = np.maximum(1 - varies / variance, _LEAST_LEFT)
    return Tilted(log_likelihood, gradient, np.clip(h + gradient, 0.0, 1.0), t, h, v, variance / left)


# -- counts that vary little --------------------------------------------------------------------------------------


def _by_fourier(s: Floats, bags: Bags, extra: Floats, start: Floats | None) -> Tilted:
    """From the characteristic function of the tilted count: exact."""
    mean, _, low, high, whole = _range(s, bags, extra)
    nodes, log_weight = _nodes(low, high, whole, bags.size)
    middle, t, q = _tilts(s, bags, extra, np.clip(mean, low, high), start)
    v = q * (1 - q)
    variance = np.maximum(bags.sum(v) + extra, TINY)
    back = log_weight - t[:, None] * (nodes - middle[:, None])
    most = back.max(axis=1, keepdims=True)
    weight = np.exp(back - most)
    number = min(int(bags.size.max()) + 1, int(_FAR_APART * np.sqrt(variance.max())) + 2 * int(_BESIDE)) | 1
    starts, at = bags.offsets[:-1], nodes - (extra * t)[:, None]
    chance, ones = np.zeros_like(nodes), np.zeros(len(q))
    wave, step = np.ones(nodes.shape, dtype=complex), np.exp(-2j * np.pi / number * at)
    for f in range(number // 2 + 1):
        omega = 2 * np.pi * f / number
        turn = np.exp(1j * omega)
        z = 1 + q * (turn - 1)
        product = (
            (1 if f == 0 else 2)
            * np.exp(-extra * omega**2 / 2)
            * np.multiply.reduceat(z if bags.weight is None else z**bags.weight, starts)
        )
        chance += (wave * product[:, None]).real
        ones += (bags.repeat((weight * wave).sum(axis=1) * product) * (turn / z)).real
        wave *= step
    share = weight * np.maximum(chance, 0.0)
    total = np.maximum(share.sum(axis=1), TINY)
    share /= total[:, None]
    count = (share * nodes).sum(axis=1)
    varies = (share * (nodes - count[:, None]) ** 2).sum(axis=1)
    log_likelihood = _base(s, bags, extra, t, middle) + most[:, 0] + np.log(total / number)
    h = sigmoid(s)
    return _found(log_likelihood, q * ones / bags.repeat(total) - h, t, h, v, variance, varies)


# -- counts that vary much ----------------------------------------------------------------------------------------


def _by_series(s: Floats, bags: Bags, extra: Floats, start: Floats | None) -> Tilted:
    """By the series of Edgeworth around the tilted mean."""
    mean, sd, low, high, whole = _range(s, bags, extra)
    nodes, log_weight = _nodes(low, high, whole, bags.size)
    count = np.clip(mean + sd * truncated_normal((low - 0.5 - mean) / sd, (high + 0.5 - mean) / sd)[0], low, high)
    for _ in range(_ROUNDS):
        middle, t, q = _tilts(s, bags, extra, count, start)
        v = q * (1 - q)
        rows = (v, v * (1 - 2 * q), v * (1 - 6 * v), v * (1 - 2 * q) * (1 - 12 * v))  # by which cumulants move with s
        variance, m3, m4 = (bags.sum(one) for one in rows[:3])
        cumulants = [middle, variance + extra, m3, m4]
        log_sum, share = _allowed(cumulants, t, middle, nodes, log_weight)
        count = (share * nodes).sum(axis=1)
        if (np.abs(count - middle) <= _NEAR * sd).all():
            break
    h = sigmoid(s)
    gradient = q - h
    for place, row in enumerate(rows):
        step = 1e-4 * (np.sqrt(cumulants[1]) if place == 0 else cumulants[1])
        up, down = (
            _allowed([c + sign * step * (i == place) for i, c in enumerate(cumulants)], t, middle, nodes, log_weight)[0]
            for sign in (1, -1)
        )
        gradient += bags.repeat((up - down) / (2 * step)) * row
    varies = (share * (nodes - count[:, None]) ** 2).sum(axis=1)
    log_likelihood = _base(s, bags, extra, t, middle) + log_sum
    return _found(log_likelihood, gradient, t, h, v, cumulants[1], varies)


def _nodes(low: Floats, high: Floats, whole: Booleans, size: Integers) -> tuple[Floats, Floats]:
    """(m, nodes) the counts allowed, where they are few, else points of Gauss's formula; and logs of their weights."""
    points, weights = _GAUSS
    least = np.where(whole, np.maximum(low - 0.5, _INSIDE), low)
    most = np.where(whole, np.minimum(high + 0.5, size - _INSIDE), high)
    half = (most - least)[:, None] / 2
    nodes, log_weight = (most + least)[:, None] / 2 + half * points, np.log(np.maximum(half, 1e-300) * weights)
    few = whole & (high - low < _NODES)
    each = low[few, None] + np.arange(_NODES)
    nodes[few], log_weight[few] = each, np.where(each <= high[few, None], 0.0, -np.inf)
    used = int((high - low).max()) + 1 if few.all() else _NODES
    return nodes[:, :used], log_weight[:, :used]


def _allowed(
    cumulants: list[Floats], tilt: Floats, middle: Floats, nodes: Floats, log_weight: Floats
) -> tuple[Floats, Floats]:
    """(m,) the logarithm of what the counts allowed have of the tilted distribution, tilted back; their shares."""
    mean, variance, m3, m4 = (one[:, None] for one in cumulants)
    x = (nodes - mean) / np.sqrt(variance)
    skew, flat = m3 / variance**1.5, m4 / variance**2
    x2 = x * x
    series = 1 + skew / 6 * x * (x2 - 3) + flat / 24 * (x2 * x2 - 6 * x2 + 3)
    series += skew**2 / 72 * (x2 * (x2 * (x2 - 15) + 45) - 15)
    log_density = -x2 / 2 - 0.5 * np.log(2 * np.pi * variance) + np.log(np.maximum(series, _LEAST_DENSITY))
    terms = log_weight - tilt[:, None] * (nodes - middle[:, None]) + log_density
    most = terms.max(axis=1, keepdims=True)
    share = np.exp(terms - most)
    total = share.sum(axis=1, keepdims=True)
    return (most + np.log(total))[:, 0], share / total
