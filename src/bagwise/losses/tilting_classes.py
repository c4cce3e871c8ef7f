r"""The count likelihood of several classes: the same as `bagwise.losses.tilting`, with a tilt for each class.

Rows have class probabilities h, the softmax of their scores; the tilts :math:`t_c` of a bag make
:math:`q_{ic} \propto h_{ic} e^{t_c}` add up to the counts, :math:`\sum_i q_i + Et = c`, where the matrix E is the extra
variance of the counts. With :math:`W = \sum_i (\mathrm{diag}(q_i) - q_i q_i^\top) + E`,

.. math:: L = \sum_i \log \sum_c h_{ic} e^{t_c} + \tfrac12 t^\top E t - c \cdot t - \tfrac12 \log\det 2\pi W

Where counts are not noised they add up to the size of the bag, and the determinant is that of all classes but the most
frequent; a class of count 0 is left out, exactly; and :math:`2\pi W + I` stands for :math:`2\pi W`, which keeps whole
counts that hardly vary from a probability far above 1. A constant makes L exact where all rows of a bag are alike.

Where counts are hidden, rounded or clamped, what each interval says beside all others is put as a count with noise of
its own (`bagwise.bags.expectation_propagation`), for which the tilts are those of the formula.

Two classes, whose counts are not noised intervals, are those of `bagwise.losses.tilting_intervals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from scipy.special import gammaln, log_softmax, xlogy

from bagwise.bags import Bags
from bagwise.bags.expectation_propagation import Ends, Sites, propagate
from bagwise.losses.tilting_intervals import tilted
from bagwise.utils.typing import Booleans, Floats, Integers

_STEPS, _HALVINGS, _LONGEST = 100, 30, 10.0  # of Newton's method
_ROUNDS, _AT_ONCE, _CLOSE = 48, 6, 1e-6  # of tilts and sites in turn; how close counts expected by both come
_TINY, _BEYOND = 1e-12, 1e-6


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
    tilt, precision, shift : array of shape (m, classes) or None
        Tilts, and the sites of intervals, from which those of scores close by are soon found.
    """

    log_likelihood: Floats
    gradient: Floats
    posterior: Floats
    tilt: Floats | None = None
    precision: Floats | None = None
    shift: Floats | None = None

    @classmethod
    def empty(cls, shape: tuple[int, ...], bags: int) -> TiltedClasses:
        """To be filled, of rows and classes of a `shape` and so many bags."""
        of_bags = (np.zeros((bags, shape[1])) for _ in range(3))
        return cls(np.empty(bags), np.empty(shape), np.empty(shape), *of_bags)

    def put(self, some: TiltedClasses, rows: Booleans, chosen: Booleans) -> None:
        """Fill in what was found of some bags."""
        self.log_likelihood[chosen], self.gradient[rows], self.posterior[rows] = (
            some.log_likelihood,
            some.gradient,
            some.posterior,
        )
        for mine, theirs in zip(self._near, some._near, strict=True):
            if mine is not None and theirs is not None:
                mine[chosen] = theirs

    def take(self, chosen: Booleans) -> TiltedClasses:
        """What `start` reads of some bags."""
        near = (None if one is None else one[chosen] for one in self._near)
        return TiltedClasses(self.log_likelihood, self.gradient, self.posterior, *near)

    @property
    def _near(self) -> tuple[Floats | None, ...]:
        return self.tilt, self.precision, self.shift


_Likelihood = Callable[[Floats, Bags, Floats, TiltedClasses | None], TiltedClasses]


def tilted_classes(
    s: Floats, bags: Bags, *, extra: Floats | None = None, start: TiltedClasses | None = None
) -> TiltedClasses:
    """The likelihood of the class counts that bags report, or between which numbers these lie.

    Parameters
    ----------
    s : array of shape (n, classes)
        Scores in bag order: logarithms of probabilities, up to a constant of each row.
    bags : Bags
        With proportions of shape (m, classes).
    extra : array of shape (m, classes, classes), optional
        Covariance of counts beyond that of independent labels; None for the declared noise.
    start : TiltedClasses, optional
        What was found for scores close by.

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
    >>> hidden = bags.with_intervals([[0, 0, 0]], [[1, 1, 1]])  # one each, of any two classes
    >>> tilted_classes(np.zeros((2, 3)), hidden).posterior.round(3)
    array([[0.333, 0.333, 0.333],
           [0.333, 0.333, 0.333]])
    """
    log_h = log_softmax(np.asarray(s, dtype=float), axis=1)
    if extra is None:
        extra = bags.declared_noise[:, None, None] * np.eye(log_h.shape[1])
    unknown = np.zeros(len(bags), dtype=bool) if bags.interval is None else bags.interval.open
    if log_h.shape[1] == 2 and not (unknown & (bags.declared_noise > 0)).any():
        return _of_two(log_h, bags, extra)
    parts = [(~unknown, _known), (unknown, _between)]
    return _in_parts(log_h, bags, extra, start, parts)


def _in_parts(
    log_h: Floats, bags: Bags, extra: Floats, start: TiltedClasses | None, parts: Sequence[tuple[Booleans, _Likelihood]]
) -> TiltedClasses:
    """Some bags each by a function of their own."""
    found: TiltedClasses | None = None
    for chosen, function in parts:
        if chosen.all():
            return function(log_h, bags, extra, start)
        if chosen.any():
            rows, near = bags.repeat(chosen), None if start is None else start.take(chosen)
            part = function(log_h[rows], bags.take(chosen), extra[chosen], near)
            found = TiltedClasses.empty(log_h.shape, len(bags)) if found is None else found
            found.put(part, rows, chosen)
    assert found is not None
    return found


def _of_two(log_h: Floats, bags: Bags, extra: Floats) -> TiltedClasses:
    """Two classes as labels 0 and 1, whose count c₁ both tell; where they are noised, by (c₁ + k − c₀)/2."""
    noise, count = bags.declared_noise, bags.size[:, None] * bags.proportion
    said = np.where(noise == 0, count[:, 1], (count[:, 1] + bags.size - count[:, 0]) / 2)
    of_one = np.where(
        noise == 0, extra[:, 1, 1], (extra[:, 1, 1] + extra[:, 0, 0] - extra[:, 0, 1] - extra[:, 1, 0]) / 4
    )
    interval = bags.interval
    if interval is not None:
        low, high = (np.where(noise == 0, end[:, 1], said) for end in (interval.low, interval.high))
        interval = replace(interval, low=low, high=high)
    told = replace(bags, proportion=said / bags.size, interval=interval)
    found = tilted(log_h[:, 1] - log_h[:, 0], told, extra=of_one)
    beyond = 2 * np.where(noise == 0, 1.0, noise)  # variance of what noised counts add up to beyond the size
    apart = -0.5 * np.log(2 * np.pi * beyond) - (count.sum(axis=1) - bags.size) ** 2 / (2 * beyond)
    value = found.log_likelihood + np.where(noise == 0, 0.0, apart)
    gradient, posterior = (np.stack(pair, axis=1) for pair in _pairs(found.gradient, found.posterior))
    return TiltedClasses(value, gradient, posterior)


def _pairs(gradient: Floats, posterior: Floats) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    return (-gradient, gradient), (1 - posterior, posterior)


def _known(log_h: Floats, bags: Bags, extra: Floats, start: TiltedClasses | None) -> TiltedClasses:
    """Of counts that are known."""
    count, unit = bags.size[:, None] * bags.proportion, np.eye(log_h.shape[1])
    whole = bags.declared_noise == 0
    left_out = whole[:, None] & ((count <= 0) | (np.arange(len(unit)) == count.argmax(axis=1)[:, None]))
    near = None if start is None else start.tilt
    q, height, t = solve_class_tilts(log_h, bags, count, extra, left_out, near)
    found = _Counted.of(q, height, _spread(q, bags) + extra, left_out, np.broadcast_to(whole[:, None], count.shape))
    alike = count[:, :, None] * (unit - (count / bags.size[:, None])[:, None, :])
    beside = np.linalg.slogdet(np.where(found.kept, alike + unit / (2 * np.pi), unit))[1]
    value = found.value + np.where(whole, _log_multinomial(count, bags.size), -0.5 * len(unit) * np.log(2 * np.pi))
    value += 0.5 * np.where(whole, beside, 0.0)
    nothing = np.zeros_like(t)
    return TiltedClasses(value, found.gradient(log_h, bags), q, t, nothing, nothing)


def _between(
    log_h: Floats, bags: Bags, extra: Floats, start: TiltedClasses | None, rounds: int = _ROUNDS
) -> TiltedClasses:
    """Of counts between ends: tilts for the sites of intervals, and sites for the counts so tilted, in turn."""
    assert bags.interval is not None
    ends, unit = Ends.of(bags.interval, bags.size), np.eye(log_h.shape[1])
    whole = (bags.declared_noise == 0)[:, None]
    left_out, sites, t = whole & ends.known & (ends.count <= 0), Sites.none(ends), None
    if start is not None and start.precision is not None and start.shift is not None:
        sites, t = replace(sites, precision=start.precision, shift=start.shift), start.tilt
    for _ in range(_AT_ONCE):
        e, count = np.where(ends.known, 0.0, 1 / sites.precision), sites.shift / sites.precision
        noised = extra + e[:, :, None] * unit
        q, height, t = solve_class_tilts(log_h, bags, count, noised, left_out, t)
        sums, spread = bags.sum(q), _spread(q, bags)
        at = sums + np.einsum("mcd,md->mc", extra, t)
        sites = propagate(sums - np.einsum("mcd,md->mc", spread, t), spread + extra, ends, sites)
        settled = (np.abs(sites.mean - at) <= _CLOSE * (1 + np.abs(at))).all(axis=1)
        if settled.all():
            break
    found = _Counted.of(q, height, spread + noised, left_out, whole & ends.known)
    value = found.value + sites.chance - 0.5 * np.log(2 * np.pi) * found.counted.sum(axis=1)
    made = TiltedClasses(value, found.gradient(log_h, bags), q, t, sites.precision, sites.shift)
    if not settled.all():
        rows, some = bags.repeat(~settled), bags.take(~settled)
        given = log_h[rows], some, extra[~settled]
        rest = _between(*given, made.take(~settled), rounds - _AT_ONCE) if rounds > _AT_ONCE else _nearest(*given)
        made.put(rest, rows, ~settled)
    # Rows that are all but sure of what cannot be.
    expected = bags.sum(made.posterior)
    off = np.maximum(bags.interval.low - expected, expected - bags.interval.high).max(axis=1)
    if (outside := whole[:, 0] & (off > _BEYOND)).any():
        rows = bags.repeat(outside)
        near = _nearest(log_h[rows], bags.take(outside), extra[outside], expected[outside])
        made.posterior[rows] = near.posterior
    return made


def _nearest(log_h: Floats, bags: Bags, extra: Floats, expected: Floats | None = None) -> TiltedClasses:
    """As if those of the counts that are allowed were reported that are nearest to the counts expected."""
    assert bags.interval is not None
    ends = bags.interval.low, bags.interval.high
    count = np.clip(bags.sum(np.exp(log_h)) if expected is None else expected, *ends)
    missing = np.where(bags.declared_noise == 0, bags.size - count.sum(axis=1), 0.0)[:, None]
    room = np.where(missing > 0, ends[1] - count, count - ends[0])
    count += missing * room / np.maximum(room.sum(axis=1, keepdims=True), _TINY)
    told = replace(
        bags, proportion=count / bags.size[:, None], noise_variance=np.array(bags.declared_noise), interval=None
    )
    return _known(log_h, told, extra, None)


@dataclass(frozen=True, eq=False)
class _Counted:
    """Rows tilted to counts, with the determinant of their likelihood.

    q: (n, classes).  value: (m,) L without −½ log 2π for each class that is counted.  w: (m, classes, classes) its
    matrix.  flow: the one by which tilts follow counts.  kept: (m, …) classes in both.  counted: (m, classes) the same.
    """

    q: Floats
    value: Floats
    w: Floats
    flow: Floats
    kept: Booleans
    counted: Booleans

    @classmethod
    def of(cls, q: Floats, height: Floats, spread: Floats, left_out: Booleans, whole: Booleans) -> _Counted:
        """height: (m,) L without its determinant.  spread: (m, classes, classes) variance of the tilted counts.

        left_out, whole: (m, classes) which classes have no tilt, and which counts have no noise of any kind.
        """
        unit, kept = np.eye(q.shape[1]), ~(left_out[:, :, None] | left_out[:, None, :])
        # Whole counts that hardly vary have a probability, not a density that grows without bound.
        w = np.where(kept, spread + (whole[:, None, :] * unit) / (2 * np.pi), unit)
        flow = np.where(kept, spread + _TINY * unit, unit)
        return cls(q, height - 0.5 * np.linalg.slogdet(w)[1], w, flow, kept, ~left_out)

    def gradient(self, log_h: Floats, bags: Bags) -> Floats:
        """(n, classes) by the scores."""
        by_row = bags.repeat(np.where(self.kept, np.linalg.inv(self.w), 0.0))
        slope = np.diagonal(by_row, axis1=1, axis2=2) - 2 * np.einsum("ncd,nd->nc", by_row, self.q)
        flow = np.where(self.kept, np.linalg.inv(self.flow), 0.0)
        slope -= bags.repeat(np.einsum("mcd,md->mc", flow, bags.sum(_through(self.q, slope))))
        return np.asarray(self.q - np.exp(log_h) - 0.5 * _through(self.q, slope))


def _through(q: Floats, values: Floats) -> Floats:
    """(diag(q) − q qᵀ) values, row by row."""
    return np.asarray(q * (values - np.einsum("nc,nc->n", q, values)[:, None]))


def _spread(q: Floats, bags: Bags) -> Floats:
    """(m, classes, classes) sums over bags of diag(q) − q qᵀ."""
    classes, people = q.shape[1], bags.weighted(q)
    if bags.equal_size is not None:
        shape = (len(bags), bags.equal_size, classes)
        found = -(people.reshape(shape).transpose(0, 2, 1) @ q.reshape(shape))
    else:
        found = np.empty((len(bags), classes, classes))
        for c in range(classes):
            for d in range(c + 1):
                found[:, c, d] = found[:, d, c] = -np.add.reduceat(people[:, c] * q[:, d], bags.offsets[:-1])
    diagonal = np.arange(classes)
    found[:, diagonal, diagonal] += bags.sum(q)
    return np.asarray(found)


def _log_multinomial(count: Floats, size: Integers) -> Floats:
    """(m,) log probability of the counts where every row of a bag has their proportions."""
    spread = np.maximum(count, 0)
    ways = gammaln(size + 1) - gammaln(spread + 1).sum(axis=1)
    return np.asarray(ways + xlogy(spread, spread / size[:, None]).sum(axis=1))


def solve_class_tilts(
    log_h: Floats, bags: Bags, count: Floats, extra: Floats, left_out: Booleans, start: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """(n, classes) q and (m,) the height of L without its determinant, at the tilts found by Newton's method, and they.

    The height is convex in the tilts; a step that does not lower that of its bag is halved. Tilts of classes that are
    left out are −∞ where the count is 0, and 0 otherwise.
    """
    hidden = np.where(left_out & (count <= 0), -np.inf, 0.0)
    kept, unit = ~(left_out[:, :, None] | left_out[:, None, :]), np.eye(count.shape[1])

    ones = np.ones(count.shape[1])

    def at(t: Floats) -> tuple[Floats, Floats]:
        moved = log_h + bags.repeat(t + hidden)
        top = reduce(np.maximum, moved.T)
        weights = np.exp(moved - top[:, None])
        sums = weights @ ones
        height = bags.sum(np.log(sums) + top) + (t * (np.einsum("mcd,md->mc", extra, t) / 2 - count)).sum(axis=1)
        return weights / sums[:, None], height

    t = np.zeros_like(count) if start is None else start
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
    return q, height, t
