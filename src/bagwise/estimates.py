"""Numbers estimated from bags, with intervals from the influence of each bag; and E[y·g] for functions g of a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from bagwise.bags import Bags
from bagwise.segment import per_bag
from bagwise.utils.typing import Floats, Integers

_PLAINLY, _ROUNDING = 0.02, 1e-9


@dataclass(frozen=True)
class Estimate:
    """A number estimated from bags, with its standard error and confidence interval.

    For random bags the Brier score, accuracy, log loss, `risk` and `label_linear` are unbiased; the AUC and points of
    curves are ratios of unbiased estimates, whose bias is of the order of their variance. With few or large bags they
    can lie outside the possible range; `evaluate` keeps them and their intervals inside, no farther from the truth.

    Attributes
    ----------
    value, standard_error : float
        The estimate and its standard error.
    low, high : float
        Ends of the confidence interval.
    """

    value: float
    standard_error: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def leaves(self, least: float, most: float) -> bool:
        """Whether the interval is beyond [`least`, `most`], or the value plainly: by over its standard error and 0.02.

        A model that is nearly perfect may come out a little better than that by chance.
        """
        beyond = max(least - self.value, self.value - most)
        outside = self.high < least - _ROUNDING or self.low > most + _ROUNDING
        return outside or beyond > max(self.standard_error, _PLAINLY)

    def within(self, least: float, most: float) -> Estimate:
        """The same, value and interval kept in the range from `least` to `most`."""
        value, low, high = (min(max(one, least), most) for one in (self.value, self.low, self.high))
        return Estimate(value, self.standard_error, low, high)


def estimated(value: float, influence: Floats, level: float) -> Estimate:
    """A value with its interval, from the influence of each bag."""
    return Estimate(*(float(one) for one in intervals(value, influence, level)))


def intervals(value: Any, influence: Floats, level: float) -> tuple[Any, Floats, Floats, Floats]:
    """Values with their standard errors and the ends of their intervals, from the influences of bags (m,) or (m, q).

    Student's t times the standard error of a mean over bags. The influences are products, with heavier tails than the
    normal, which makes their sample variance less certain: 2m/(kurtosis − 1) degrees of freedom, not m − 1
    (Satterthwaite).
    """
    m = len(influence)
    error = np.sqrt((influence**2).sum(axis=0) / (m * (m - 1)))
    second, fourth = (influence**2).mean(axis=0), (influence**4).mean(axis=0)
    varies = second > 0
    kurtosis = np.where(varies, fourth / np.where(varies, second, 1) ** 2, 3.0)
    freedom = np.clip(2 * m / np.maximum(kurtosis - 1, 1e-9), 1, m - 1)
    half = error * special.stdtrit(freedom, (1 + level) / 2)
    return value, error, value - half, value + half


class Identity:
    """E[y·g] for functions g of a row, from predictions and random bags: the identity of `bagwise.evaluation`.

    Every method returns an estimate and the influence of each bag on it, and works on sums per bag.

    h: (n,) or (n, classes) predictions in table order.
    """

    def __init__(self, h: Floats, bags: Bags) -> None:
        if (m := len(bags)) < 3:
            some = "is 1 bag" if m == 1 else f"are {m} bags"
            raise ValueError(f"there {some} only: at least 3 are needed to estimate anything with an interval.")
        self.h, self.bags = h, bags
        self.m, self.n = m, bags.n_bagged
        self.count: Floats = per_bag(bags.size, bags.proportion) * bags.proportion
        self.gap: Floats = self.count - bags.sum_table(h)  # Σ(y − h) of each bag
        self.prior = self.count.sum(axis=0) / self.n

    @cached_property
    def levels(self) -> tuple[Floats, Integers, Integers]:
        """The distinct predictions in order, which of them each row has (bag order), and how many rows each has."""
        return np.unique(self.h[self.bags.order], return_inverse=True, return_counts=True)

    def expectation(self, a: Floats, g: Floats) -> tuple[Any, Floats]:
        """E[a + y·g]; a: (n,), g: (n,) or (n, classes) in table order, the product then summed over classes."""
        known = a + (self.h * g if g.ndim == 1 else (self.h * g).sum(axis=1))
        return self.positives(self.bags.sum_table(known), self.bags.sum_table(g))

    def positives(self, hg: Floats, g: Floats) -> tuple[Any, Floats]:
        """E[y·g] from the bag sums of h·g and of g, (m,) or (m, q); or of h·g summed over classes and of g of each."""
        value, influence = self.mean(hg)
        rest, rest_influence = self.residual(g)
        if g.ndim > hg.ndim:
            rest, rest_influence = rest.sum(), rest_influence.sum(axis=1)
        return value + rest, influence + rest_influence

    def mean(self, sums: Floats) -> tuple[Any, Floats]:
        """The mean over rows, from sums per bag (m,) or (m, q)."""
        mean = sums.sum(axis=0) / self.n
        return mean, (sums - per_bag(self.bags.size, sums) * mean) * self.m / self.n

    def residual(self, g: Floats) -> tuple[Any, Floats]:
        """E[(y − h)·g] from the bag sums of g. The divisor m − 1 makes it unbiased."""
        gap = self.gap if self.gap.ndim == g.ndim else self.gap[:, None]
        size = per_bag(self.bags.size, g)
        bias, bias_influence = self.mean(gap)
        mean_g, g_influence = self.mean(g)
        product = (gap - size * bias) * (g - size * mean_g) / size
        covariance = product.sum(axis=0) / (self.m - 1)
        value = bias * mean_g + (1 - 1 / self.n) * covariance
        return value, mean_g * bias_influence + bias * g_influence + product - product.mean(axis=0)
