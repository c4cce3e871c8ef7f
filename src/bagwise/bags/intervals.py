r"""Reports that say between which counts a bag's count lies: hidden, rounded or clamped ones.

The likelihood of such a report sums over the counts that it allows (`bagwise.losses.intervals`). What reads counts and
their noise alone is told a count and a variance that say as much: with a prior :math:`N(\mu, V)` of the count, that of
the mean label, and mean m and variance v of the count given that it lies in the interval, these are

.. math:: e = \Bigl(\frac1v - \frac1V\Bigr)^{-1}, \qquad c = m + \frac{e}{V} (m - \mu)

so that the report and the prior together have mean m and variance v. An interval that says nothing has e = ∞.

Counts of classes add up to the size k of the bag. Where they are not noised, each lies no lower than k less the most of
all others, and no higher than k less their least ones: ends are tightened to that, so that the only class of
which nothing is shown is known. The counts that say as much are then those of all intervals together, beside a
multinomial prior (`bagwise.bags.expectation_propagation`), with the means of v and V over classes: they add up to k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from bagwise import segment
from bagwise.bags.expectation_propagation import Ends, Sites, propagate
from bagwise.bags.truncated import log_normal_between, truncated_normal
from bagwise.utils.typing import Booleans, Floats, Integers, NDArray

_ROUNDS = 20
_MOST_NOISE = 1e4  # of the variance of a count: an interval that says nothing
_LEAST_CHANCE = 1e-9  # of an interval, below which the count is taken to lie at its end
_LEAST_PRIOR, _LEAST_COUNT = 1e-6, 0.1
_ROUNDING = 1e-6  # of counts that were made of proportions


@dataclass(frozen=True, eq=False)
class Intervals:
    """Between which numbers reported counts lie.

    Attributes
    ----------
    low, high : array of shape (m,) or (m, classes)
        Ends, both possible; equal where a count is known. Where noise was added, of the noised count, maybe infinite.
    noise : array of shape (m,)
        Declared variance of the noise on the counts.
    """

    low: Floats
    high: Floats
    noise: Floats

    @property
    def open(self) -> Booleans:
        """(m,) where a count is not known; of classes, where that of some is not."""
        unknown = self.low < self.high
        return np.asarray(unknown if unknown.ndim == 1 else unknown.any(axis=1))

    @property
    def hidden(self) -> Booleans:
        """(m,) where a count is not known for other reasons than noise."""
        return np.asarray(self.open & (self.noise == 0))

    def narrow(self, size: Integers) -> Booleans:
        """(m,) whether intervals leave little open: a variance of at most a quarter of that of chance.

        Examples
        --------
        >>> one = Intervals(np.array([0.0, 18.0, 20.0]), np.array([9.0, 22.0, 20.0]), np.zeros(3))
        >>> one.narrow(np.full(3, 80))
        array([False,  True,  True])
        """
        k = size.astype(float) if self.low.ndim == 1 else size.astype(float)[:, None]
        low, high = np.clip(self.low, 0, k), np.clip(self.high, 0, k)
        p = (low + high).sum(axis=0) / 2 / k.sum()
        narrow = (self.low == self.high) | (((high - low + 1) ** 2 - 1) / 12 <= k * p * (1 - p) / 4)
        return np.asarray(narrow if narrow.ndim == 1 else narrow.all(axis=1))

    def take(self, index: Any) -> Intervals:
        """Those of some bags."""
        return Intervals(self.low[index], self.high[index], self.noise[index])

    @classmethod
    def joined(cls, parts: Sequence[Intervals]) -> Intervals:
        """Those of some bags, and of others after them."""
        low, high, noise = (np.concatenate([getattr(one, name) for one in parts]) for name in ("low", "high", "noise"))
        return cls(low, high, noise)

    def check(self, size: Integers, keys: NDArray[Any]) -> None:
        """Raise where an interval holds no count that a bag can have, or those of classes none that add up to it."""
        k = segment.per_bag(size, self.low)
        whole = segment.per_bag(self.noise == 0, self.low)
        slack = 0.0 if self.low.ndim == 1 else _ROUNDING
        wrong = np.isnan(self.low) | np.isnan(self.high) | (self.low > self.high)
        wrong |= whole & ((self.low > k) | (self.high < 0) | (np.ceil(self.low - slack) > np.floor(self.high + slack)))
        if wrong.any():
            place = tuple(np.argwhere(wrong)[0])
            j, of_class = place[0], "" if wrong.ndim == 1 else f" of class {place[1]}"
            raise ValueError(
                f"bag {_called(keys[j])} of {size[j]} rows reports a count{of_class} from {self.low[place]:g} to "
                f"{self.high[place]:g}: no count that it can have lies there."
            )
        if wrong.ndim == 1:
            return
        least, most = (end.sum(axis=1) for end in _whole_ends(self.low, self.high, size))
        if (wrong := (self.noise == 0) & ((least > size) | (most < size))).any():
            j = int(np.argmax(wrong))
            end = f"{least[j]:g} or more" if least[j] > size[j] else f"{most[j]:g} or fewer"
            raise ValueError(
                f"bag {_called(keys[j])} of {size[j]} rows reports counts of classes that add up to {end}: they must "
                "be able to add up to its rows; add a class for the rest, or declare the noise."
            )

    def tightened(self, size: Integers) -> Intervals:
        """The same, of classes whose counts add up to the sizes: as far as the ends of all others leave.

        Examples
        --------
        >>> one = Intervals(np.array([[0.0, 4.0, 0.0]]), np.array([[9.0, 4.0, 3.0]]), np.zeros(1))
        >>> tight = one.tightened(np.array([12]))
        >>> tight.low, tight.high
        (array([[5., 4., 0.]]), array([[8., 4., 3.]]))
        """
        if self.low.ndim == 1:
            return self
        low, high = _whole_ends(self.low, self.high, size)
        k, whole = size[:, None], (self.noise == 0)[:, None]
        tight = (
            np.maximum(low, k - high.sum(axis=1, keepdims=True) + high),
            np.minimum(high, k - low.sum(axis=1, keepdims=True) + low),
        )
        low, high = (np.where(whole, one, end) for one, end in zip(tight, (self.low, self.high), strict=True))
        return Intervals(low, high, self.noise)

    def as_counts(self, size: Integers) -> tuple[Floats, Floats]:
        """Counts (m,) or (m, classes) and variances (m,) of their noise that say about as much (see the module).

        Of classes, the variance is the mean of theirs.

        Examples
        --------
        >>> some = Intervals(np.array([0.0, 3.0, 0.0]), np.array([4.0, 3.0, 20.0]), np.zeros(3))
        >>> count, noise = some.as_counts(np.full(3, 20))
        >>> bool(0 < count[0] < 4 and 1 < noise[0] < 5), float(count[1]), float(noise[1]), bool(noise[2] > 1e4)
        (True, 3.0, 0.0, True)
        """
        if self.low.ndim == 1:
            return _as_counts(self.low, self.high, self.noise, size)
        if self.low.shape[1] == 2 and not (self.open & (self.noise > 0)).any():
            count, noise = _as_counts(self.low[:, 1], self.high[:, 1], self.noise, size)
            known = (self.noise > 0)[:, None]
            return np.where(known, self.low, np.stack([size - count, count], axis=1)), noise
        return _classes_as_counts(self, size)


def _called(key: Any) -> str:
    return repr(key.item() if isinstance(key, np.generic) else key)


def _whole_ends(low: Floats, high: Floats, size: Integers) -> tuple[Floats, Floats]:
    """(m, classes) the least and the greatest whole counts from 0 to the size."""
    return np.maximum(np.ceil(low - _ROUNDING), 0), np.minimum(np.floor(high + _ROUNDING), size[:, None])


def _as_counts(low: Floats, high: Floats, own: Floats, size: Integers) -> tuple[Floats, Floats]:
    """(m,) counts and variances of one class, or of labels 0 and 1.  own: declared noise."""
    unknown = low < high
    count, noise, k = np.where(unknown, np.nan, low), np.where(unknown, np.nan, own), size[unknown].astype(float)
    if not unknown.any():
        return count, noise
    low, high, own = low[unknown], high[unknown], own[unknown]
    ends = np.clip(low, 0, k), np.clip(high, 0, k)
    count[unknown], noise[unknown] = (ends[0] + ends[1]) / 2, own + (ends[1] - ends[0]) ** 2 / 12
    p = 0.5
    for _ in range(_ROUNDS):
        spread = size * max(p * (1 - p), _LEAST_PRIOR)
        weight = 1 / (1 + noise / spread)
        before, p = (
            p,
            float(np.clip((weight * count).sum() / (weight * size).sum(), _LEAST_PRIOR, 1 - _LEAST_PRIOR)),
        )
        _, mean, variance = reports_within(low, high, own, k, p)
        prior, by_chance = k * p, k * p * (1 - p)
        share = by_chance / (by_chance + own)  # of what a noised count deviates by, that is the count's
        mean, variance = prior + share * (mean - prior), share**2 * variance + share * own
        told = 1 / np.maximum(variance, 1e-12) - 1 / by_chance
        e = 1 / np.maximum(told, 1 / (_MOST_NOISE * by_chance))
        count[unknown] = np.clip(mean + e * (mean - prior) / by_chance, *ends)
        noise[unknown] = e
        if abs(p - before) < 1e-6 * p:
            break
    return count, noise


def _classes_as_counts(interval: Intervals, size: Integers) -> tuple[Floats, Floats]:
    """The same of classes: counts (m, classes)."""
    noise, middle = (
        np.array(interval.noise),
        sum(np.clip(end, 0, size[:, None]) for end in (interval.low, interval.high)) / 2,
    )
    count = np.where(interval.low == interval.high, interval.low, middle)
    some, classes = np.flatnonzero(interval.open), count.shape[1]
    if not len(some):
        return count, noise
    k, own, unit = size[some].astype(float)[:, None], interval.noise[some], np.eye(classes)
    ends = Ends.of(interval.take(some), size[some])
    sites, at = Sites.none(ends), ends.count
    p = np.full(classes, 1 / classes)
    for _ in range(_ROUNDS):
        before, spread = p, size * (1 - p @ p) / classes
        p = np.maximum((1 / (1 + noise / spread)) @ count, _LEAST_PRIOR * size.sum())
        p = p / p.sum()
        # About the counts expected, where the prior is tilted by t; it is far from normal elsewhere.
        q = np.maximum(at, _LEAST_COUNT)
        q /= q.sum(axis=1, keepdims=True)
        t = np.log(q / p)
        spreads = k[:, :, None] * (q[:, :, None] * unit - q[:, :, None] * q[:, None, :])
        mean = k * q * (1 - t + (q * t).sum(axis=1, keepdims=True))
        sites = propagate(mean, spreads + own[:, None, None] * unit, ends, sites)
        at = np.where(ends.known, ends.count, np.clip(sites.mean, 0, k))
        by_chance = k[:, 0] * (1 - p @ p) / classes
        unknown = sites.variance.mean(axis=1) / by_chance
        e = 1 / np.maximum(1 / np.maximum(unknown, 1e-12) - 1, 1 / _MOST_NOISE)
        count[some], noise[some] = at + e[:, None] * (at - k * p), e * by_chance
        if np.abs(p - before).max() < 1e-6:
            break
    return count, noise


def reports_within(
    low: Floats, high: Floats, noise: Floats, k: Floats, p: float | Floats
) -> tuple[Floats, Floats, Floats]:
    """Chance that binomial counts, with their noise, lie between two ends, and their mean and variance given that.

    Examples
    --------
    >>> [one.round(4) for one in reports_within(np.zeros(1), np.ones(1), np.zeros(1), np.full(1, 2.0), 0.5)]
    [array([0.75]), array([0.6667]), array([0.2222])]
    """
    low, high = np.where(noise == 0, np.maximum(np.ceil(low), 0), low), np.where(noise == 0, np.minimum(high, k), high)
    tail = stats.binom.cdf
    with np.errstate(divide="ignore", invalid="ignore"):
        chance, first, second = (
            tail(np.floor(high) - d, np.maximum(k - d, 0), p) - tail(low - 1 - d, np.maximum(k - d, 0), p)
            for d in range(3)
        )
        mean = k * p * first / chance
        variance = k * (k - 1) * p**2 * second / chance + mean - mean**2
    unlikely = (chance < _LEAST_CHANCE) | ~np.isfinite(variance)
    mean = np.where(unlikely, np.clip(k * p, low, high), mean)
    variance = np.where(unlikely, 0.25, np.maximum(variance, 1e-9))
    if (noised := noise > 0).any():
        sd = np.sqrt(k * p * (1 - p) + noise)
        ends = (low - k * p) / sd, (high - k * p) / sd
        off, within = truncated_normal(*ends)
        chance = np.where(noised, np.exp(log_normal_between(*ends)), chance)
        mean, variance = np.where(noised, k * p + sd * off, mean), np.where(noised, sd**2 * within, variance)
    return chance, mean, variance
