r"""What hidden, rounded or clamped counts are on average, for means over rows.

A count that is known to lie between two ends, with its noise, has a mean m and a variance v, given a prior. Where bags
are random that is binomial, with the mean label p; where their rates differ, beta-binomial. Its parameters are those
that m and v bear out (with the variances of declared noise on the right),

.. math:: p = \frac{\sum_j m_j}{\sum_j k_j}, \qquad \sum_j (m_j - k_j p)^2 + v_j = \sum_j k_j p(1-p) + k_j(k_j-1)\tau^2

and counts of classes that are not noised are moved to add up to the bag, each as far as it is uncertain.

The m vary less than counts do, by the share :math:`f = \sum_j v_j/k_j \big/ \sum_j ((m_j - k_j p)^2 + v_j)/k_j`.
Stretched about the mean, and with noise as declared here, they covary with whatever is linear in counts as counts do,
and vary as much:

.. math:: \tilde a_j = k_j p + \frac{m_j - k_j p}{1 - f}, \qquad \text{noise } \frac{v_j}{1 - f}

besides noise that is declared. What each bag adds to an error grows by the same factor, as that of the mean label does.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from bagwise.bags.intervals import Intervals, reports_within
from bagwise.utils.typing import Floats, Integers

_ROUNDS, _CLOSE = 60, 1e-6
_NODES = 24  # of a beta distribution, each as likely as the others
_LEAST = 1e-6  # of p, and of τ² beside p(1 − p)
_MOST_HIDDEN = 0.999


def stretched_counts(
    interval: Intervals, size: Integers, strata: Integers, *, rates_differ: bool
) -> tuple[Floats, Floats]:
    """Counts and the variances of their noise, both of the shape of the ends, for sums over bags (see the module).

    strata: (m,) the number of each bag's stratum, about whose mean its counts deviate.

    Examples
    --------
    >>> count = np.random.default_rng(0).binomial(20, 0.3, 2_000).astype(float)
    >>> low, high = np.where(count < 6, 0, count), np.where(count < 6, 5, count)
    >>> told, size = Intervals(low, high, np.zeros(2_000)), np.full(2_000, 20)
    >>> made, noise = stretched_counts(told, size, np.zeros(2_000, int), rates_differ=False)
    >>> [round(float(one), 1) for one in (count.mean(), made.mean(), count.var(), made.var() - noise.mean())]
    [6.0, 6.0, 4.3, 4.2]
    """
    mean, variance = expected_counts(interval, size, rates_differ=rates_differ)
    k = size.astype(float) if mean.ndim == 1 else size.astype(float)[:, None]
    inside = np.equal.outer(np.arange(int(strata.max()) + 1), strata).astype(float)
    middle = k * ((inside @ mean) / (inside @ k))[strata]
    hidden, shown = (variance / k).sum(axis=0), ((mean - middle) ** 2 / k).sum(axis=0)
    kept = 1 - np.minimum(hidden / np.maximum(hidden + shown, _LEAST), _MOST_HIDDEN)
    noise = interval.noise if mean.ndim == 1 else interval.noise[:, None]
    return middle + (mean - middle) / kept, variance / kept + noise


def expected_counts(interval: Intervals, size: Integers, *, rates_differ: bool) -> tuple[Floats, Floats]:
    """Means and variances of counts, noise included, given their intervals; of the shape of the ends."""
    k = size.astype(float)
    if interval.low.ndim == 1:
        return _expected(interval, k, rates_differ=rates_differ)
    of_classes = [
        _expected(Intervals(low, high, interval.noise), k, rates_differ=rates_differ)
        for low, high in zip(interval.low.T, interval.high.T, strict=True)
    ]
    mean, variance = (np.column_stack(parts) for parts in zip(*of_classes, strict=True))
    total = variance.sum(axis=1, keepdims=True)
    adds_up = (interval.noise == 0)[:, None] & (total > 0)
    share = np.divide(variance, total, out=np.zeros_like(mean), where=adds_up)
    mean += share * (k[:, None] - mean.sum(axis=1, keepdims=True))
    return mean, variance * (1 - share)


def _expected(interval: Intervals, k: Floats, *, rates_differ: bool) -> tuple[Floats, Floats]:
    """Those of labels 0 and 1, or of one class."""
    unknown = interval.open
    ends = np.clip(interval.low, 0, k), np.clip(interval.high, 0, k)
    mean, variance = np.where(unknown, (ends[0] + ends[1]) / 2, interval.low), np.zeros(len(k))
    told = np.column_stack([interval.low, interval.high, interval.noise, k])[unknown]
    cells, of_bag = np.unique(told, axis=0, return_inverse=True)
    p, spread = 0.5, 0.0
    for _ in range(_ROUNDS if unknown.any() else 0):
        before = p, spread
        p = float(np.clip(mean.sum() / k.sum(), _LEAST, 1 - _LEAST))
        if rates_differ:
            beyond = ((mean - k * p) ** 2 + variance - interval.noise - k * p * (1 - p)).sum()
            spread = float(np.clip(beyond / max((k * (k - 1)).sum(), 1.0), 0, (1 - _LEAST) * p * (1 - p)))
        found = _mixed(cells, p, spread)
        mean[unknown], variance[unknown] = (one[of_bag] for one in found)
        if abs(p - before[0]) < _CLOSE * p and abs(spread - before[1]) <= _CLOSE * p:
            break
    return mean, variance


def _mixed(cells: Floats, p: float, spread: float) -> tuple[Floats, Floats]:
    """Means and variances of counts of rates with mean p and variance spread; a cell is low, high, noise and size."""
    low, high, noise, k = cells.T
    if spread <= _LEAST * p * (1 - p):
        return reports_within(low, high, noise, k, p)[1:]
    both = p * (1 - p) / spread - 1
    rates = np.clip(stats.beta.ppf((np.arange(_NODES) + 0.5) / _NODES, p * both, (1 - p) * both), _LEAST, 1 - _LEAST)
    low, high, noise, k = cells.T[:, :, None]
    chance, mean, variance = reports_within(low, high, noise, k, rates)
    weight = np.maximum(chance, np.finfo(float).tiny)
    weight /= weight.sum(axis=1, keepdims=True)
    middle = (weight * mean).sum(axis=1)
    return middle, (weight * (variance + (mean - middle[:, None]) ** 2)).sum(axis=1)
