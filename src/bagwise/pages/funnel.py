"""Where the proportions of random bags should lie, given their sizes, the noise on them and what is predicted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bagwise.utils.typing import Booleans

LEVELS = {"95%": 0.95, "99.8%": 0.998}
"""Limits drawn: one bag in 20, and one in 500, of random bags lies outside."""
_SMALL = 3.0  # variance of a count below which the normal law is a rough guide
_NEARLY_ALL = 0.95
_ALARM = 1e-3  # random bags are called too many outside at most this often


@dataclass(frozen=True, eq=False)
class Funnel:
    r"""Proportions of bags beside what is predicted for them.

    The count of a bag of k random rows has variance :math:`k v + s^2`, where v is the mean of h(1 − h) over rows if
    predictions h are right on average wherever they are equal, and s² the variance of declared noise. With the prior
    as the only prediction, v = p(1 − p).

    size, predicted, reported: (m,) per bag.  noise: (m,) variance of noise on counts.  variance: v.
    """

    size: NDArray[Any]
    predicted: NDArray[Any]
    reported: NDArray[Any]
    noise: NDArray[Any]
    variance: float

    @cached_property
    def usual_size(self) -> int | None:
        """The size of nearly all bags, if noise is the same, too: one pair of limits then suits them."""
        sizes, bags = np.unique(self.size, return_counts=True)
        same = bags.max() >= _NEARLY_ALL * len(self.size) and bool((self.noise == self.noise[0]).all())
        return int(sizes[bags.argmax()]) if same else None

    @property
    def gap(self) -> NDArray[Any]:
        """(m,) reported less predicted."""
        return self.reported - self.predicted

    @cached_property
    def deviation(self) -> NDArray[Any]:
        """(m,) standard deviation of the gap of random bags."""
        return np.sqrt(self.variance / self.size + self.noise / self.size**2)

    def limits(self, size: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """How far from 0 the gap of a bag of these sizes goes, by level; where noise differs, for the median noise."""
        deviation = np.sqrt(self.variance / size + np.median(self.noise) / size**2)
        return {name: deviation * _quantile(level) for name, level in LEVELS.items()}

    def outside(self, name: str) -> int:
        """Bags outside of their limits."""
        return int((np.abs(self.gap) > self.deviation * _quantile(LEVELS[name])).sum())

    @property
    def is_outside(self) -> Booleans:
        """(m,) whether a bag is outside of the wider limits."""
        return np.abs(self.gap) > self.deviation * _quantile(LEVELS["99.8%"])

    @property
    def explained(self) -> float:
        """Share of the variation of reported proportions that the predicted ones explain, bags weighed by size."""
        centre = self.reported @ self.size / self.size.sum()
        whole = float(((self.reported - centre) ** 2) @ self.size)
        return 1 - float(self.gap**2 @ self.size) / whole if whole > 0 else 0.0

    @property
    def is_rough(self) -> bool:
        """Whether many bags are so small, or positives so rare, that the limits are no more than a guide."""
        return bool(np.median(self.size) * self.variance + np.median(self.noise) < _SMALL)

    @property
    def too_many_outside(self) -> bool:
        """Whether more bags lie outside of the wider limits than chance allows."""
        found = stats.binomtest(self.outside("99.8%"), len(self.size), 1 - LEVELS["99.8%"], alternative="greater")
        return not self.is_rough and bool(found.pvalue < _ALARM)

    def __str__(self) -> str:
        m = len(self.size)
        parts = [
            f"{self.outside(n):,} of {m:,} bags ({self.outside(n) / m:.1%}) outside the {n} limits" for n in LEVELS
        ]
        return f"{parts[0]}, where 5% are expected; {parts[1]}, where 0.2% are"


def expected_histogram(funnel: Funnel) -> tuple[NDArray[Any], NDArray[Any]]:
    """Edges of bins for the reported proportions, and the bags that each would hold if bags were random.

    Counts without noise are binomial; with noise, normal.
    """
    size, noise = funnel.size, funnel.noise
    half = 0.5 / float(size.max())  # edges between the proportions that occur, not on them
    low, high = float(funnel.reported.min()) - half, float(funnel.reported.max()) + half
    edges = np.linspace(low, high, 31)
    if funnel.usual_size is not None and noise[0] == 0:  # bins of equally many counts, or they fill unevenly
        k = funnel.usual_size
        first, last = np.floor(low * k) - 0.5, np.ceil(high * k) + 0.5
        width = int(np.ceil((last - first) / 30))
        edges = (first + np.arange(int(np.ceil((last - first) / width)) + 1) * width) / k
    p = float(np.clip(funnel.predicted[0], 0, 1))
    lines, bags = np.unique(np.stack([size, noise], axis=1), axis=0, return_counts=True)
    rows, spread = lines[:, 0], np.sqrt(funnel.variance / lines[:, 0] + lines[:, 1] / lines[:, 0] ** 2)
    counts = stats.binom.cdf(np.floor(edges[:, None] * rows + 1e-9), rows, p)
    normal = stats.norm.cdf(edges[:, None], p, np.maximum(spread, 1e-12))
    below = np.where(lines[:, 1] == 0, counts, normal) @ bags
    return edges, np.diff(below)


def _quantile(level: float) -> float:
    return float(stats.norm.ppf((1 + level) / 2))
