r"""Counts of classes that lie between ends: what each interval says beside all others, by expectation propagation.

Counts z of a bag are about normal, with mean :math:`\mu` and covariance S, and each lies between two ends, of which one
sum over all classes would be of too many counts. In place of an interval stands a *site*: a count c with a variance e,
chosen such that beside the sites of all others it leaves the mean and the variance of its class as the interval itself
does (Minka, 2001). The logarithm of the chance of all intervals is then

.. math:: \log N(c;\, \mu,\, S + \mathrm{diag}(e)) + \sum_c \bigl[\log P(\text{low}_c \le z_c \le \text{high}_c)
          - \log N(c_c;\, m_c,\, V_c + e_c)\bigr]

with m and V the mean and variance of a class without its own site; to first order it does not depend on the sites, so
that its derivatives are those of a bag that reports c with noise of variance e.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.bags.truncated import log_normal_between, truncated_normal
from bagwise.utils.typing import Booleans, Floats, Integers

if TYPE_CHECKING:
    from bagwise.bags.intervals import Intervals

_KNOWN, _NOTHING = 1e8, 1e-12  # precisions: of a count that is known, and of one of which nothing is
_SWEEPS, _CLOSE = 3, 1e-9  # as many serve where the mean and the covariance follow the sites
_WHOLE = 0.05  # variance of a count, about which it is no number but a whole count
_LEAST = 1e-10  # variance of a count that may still be another
_LEAST_SHARE, _LEAST_LEFT = 1e-9, 1e-8  # of a variance that an interval leaves; of a precision without its site


@dataclass(frozen=True, eq=False)
class Ends:
    """Between which numbers counts of classes lie.

    Attributes
    ----------
    low, high : array of shape (m, classes)
        The last ones allowed; infinite where an end says nothing beside those of other classes.
    half : array of shape (m, classes)
        How far beyond them a number is that stands for whole counts; 0 where counts are noised.
    known : array of shape (m, classes)
        Where a count is known.
    count : array of shape (m, classes)
        The known ones; else the middle of what is allowed.
    """

    low: Floats
    high: Floats
    half: Floats
    known: Booleans
    count: Floats

    @classmethod
    def of(cls, interval: Intervals, size: Integers) -> Ends:
        """Those of intervals, which are tightened; where counts are not noised they add up to the sizes.

        Parameters
        ----------
        interval : Intervals
            Of classes.
        size : array of shape (m,)
            k.

        Returns
        -------
        Ends

        Examples
        --------
        >>> from bagwise.bags.intervals import Intervals
        >>> some = Intervals(np.array([[0.0, 2.0, 4.0]]), np.array([[4.0, 2.0, 8.0]]), np.zeros(1))
        >>> ends = Ends.of(some, np.array([10]))
        >>> ends.low, ends.high  # the last class says no more than the first
        (array([[-inf,   2., -inf]]), array([[ 4.,  2., inf]]))
        """
        low, high, k = interval.low, interval.high, size[:, None]
        whole, known = (interval.noise == 0)[:, None], low == high
        least, most = whole & (low <= 0) & ~known, whole & (high >= k) & ~known
        # What the ends of all others say need not be said twice, as long as these are still there.
        no_low, no_high = np.zeros_like(known), np.zeros_like(known)
        from_low, from_high = (
            k - end.sum(axis=1, keepdims=True) + end for end in (np.where(whole, low, 0), np.where(whole, high, k))
        )
        lines = np.arange(len(low))
        for c in np.argsort(-high, axis=1, kind="stable").T:  # the largest first
            there = whole[:, 0] & ~known[lines, c]
            lows, highs = (gone.sum(axis=1) - gone[lines, c] == 0 for gone in (no_low, no_high))
            no_high[lines, c] = there & lows & ~most[lines, c] & (high[lines, c] >= from_low[lines, c])
            no_low[lines, c] = there & highs & ~least[lines, c] & (low[lines, c] <= from_high[lines, c])
        middle = (np.clip(low, 0, k) + np.clip(high, 0, k)) / 2
        count = np.where(known, low, middle)
        low, high = np.where(least | no_low, -np.inf, low), np.where(most | no_high, np.inf, high)
        return cls(low, high, np.where(whole, 0.5, np.zeros_like(low)), known, count)

    def between(self, chosen: Any, c: Any, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """The ends in standard deviations from a mean; counts that hardly vary are whole ones, not half beyond."""
        sd = np.sqrt(variance)
        beyond = self.half[chosen, c] * variance / (variance + _WHOLE)
        return (self.low[chosen, c] - beyond - mean) / sd, (self.high[chosen, c] + beyond - mean) / sd


@dataclass(frozen=True, eq=False)
class Sites:
    """What intervals say: precisions 1/e and precisions times counts c/e, of bags and classes.

    Attributes
    ----------
    precision, shift : array of shape (m, classes)
        1/e and c/e; almost 0 where an interval says nothing.
    chance : array of shape (m,)
        The sum over classes of the formula of the module.
    mean, variance : array of shape (m, classes)
        Of the counts, given all intervals.
    """

    precision: Floats
    shift: Floats
    chance: Floats
    mean: Floats
    variance: Floats

    @classmethod
    def none(cls, ends: Ends) -> Sites:
        """Before anything is said but of what is known."""
        precision = np.where(ends.known, _KNOWN, _NOTHING)
        return cls(precision, precision * ends.count, np.zeros(len(precision)), ends.count, np.zeros_like(precision))


def propagate(mean: Floats, covariance: Floats, ends: Ends, start: Sites) -> Sites:
    """The sites of all intervals, by a few sweeps over the classes, beginning with others.

    Parameters
    ----------
    mean, covariance : array of shape (m, classes) and (m, classes, classes)
        Of the counts without what intervals say; the covariance may be singular.
    ends : Ends
        Of the intervals.
    start : Sites
        To begin with.

    Returns
    -------
    Sites

    Examples
    --------
    >>> from bagwise.bags.intervals import Intervals
    >>> ends = Ends.of(Intervals(np.zeros((1, 2)), np.array([[4.0, 20.0]]), np.ones(1)), np.array([20]))
    >>> found = propagate(np.array([[4.0, 16.0]]), 9 * np.eye(2)[None], ends, Sites.none(ends))
    >>> found.mean.round(2)
    array([[ 2.28, 15.46]])
    """
    precision, shift = start.precision.copy(), start.shift.copy()
    inside = ~ends.known & (np.isfinite(ends.low) | np.isfinite(ends.high))
    for _ in range(_SWEEPS):
        at, spread = _beside_sites(mean, covariance, precision, shift)
        before = at.copy()
        for c in range(mean.shape[1]):
            chosen = np.flatnonzero(inside[:, c] & (spread[:, c, c] > _LEAST))
            if not len(chosen):
                continue
            own = spread[chosen, c, c]
            m, v = _without(at[chosen, c], own, precision[chosen, c], shift[chosen, c])
            off, left = truncated_normal(*ends.between(chosen, c, m, v))
            left = np.maximum(left, _LEAST_SHARE)
            new = np.maximum((1 / left - 1) / v, _NOTHING)
            new_shift = (m + np.sqrt(v) * off) / (left * v) - m / v
            more, further = new - precision[chosen, c], new_shift - shift[chosen, c]
            precision[chosen, c], shift[chosen, c] = new, new_shift
            line, scale = spread[chosen, :, c], 1 / (1 + more * own)
            at[chosen] += line * ((further - more * at[chosen, c]) * scale)[:, None]
            spread[chosen] -= (more * scale)[:, None, None] * line[:, :, None] * line[:, None, :]
        if (np.abs(at - before) <= _CLOSE * (1 + np.abs(before))).all():
            break
    chance = _chance(at, spread, ends, inside, precision, shift)
    return Sites(precision, shift, chance, at, np.diagonal(spread, axis1=1, axis2=2))


def _beside_sites(mean: Floats, covariance: Floats, precision: Floats, shift: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of counts with all sites."""
    root = np.sqrt(precision)
    scaled = covariance * root[:, None, :]
    inner = np.eye(mean.shape[1]) + root[:, :, None] * scaled
    pull = np.linalg.solve(inner, scaled.transpose(0, 2, 1))  # (m, classes, classes)
    spread = covariance - scaled @ pull
    at = mean + np.einsum("mcd,md->mc", spread, shift - precision * mean)
    return at, spread


def _without(at: Floats, own: Floats, precision: Floats, shift: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of a class without its own site."""
    left = np.maximum(1 - precision * own, _LEAST_LEFT)
    return (at - shift * own) / left, own / left


def _chance(at: Floats, spread: Floats, ends: Ends, inside: Booleans, precision: Floats, shift: Floats) -> Floats:
    """(m,) Σ log P(low ≤ z ≤ high) − log N(c; m, V + e) of what is not known."""
    own = np.diagonal(spread, axis1=1, axis2=2)
    there = inside & (own > _LEAST)
    m, v = _without(at, np.maximum(own, _LEAST), precision, shift)
    chance = log_normal_between(*ends.between(slice(None), slice(None), m, v))
    e = 1 / precision
    normal = -0.5 * np.log(2 * np.pi * (v + e)) - (shift * e - m) ** 2 / (2 * (v + e))
    return np.asarray((np.where(there, chance, 0.0) - np.where(ends.known, 0.0, normal)).sum(axis=1))
