"""Numbers estimated from bags with their intervals, and the metrics: accuracy, Brier score, log loss, AUC, curves.

Every metric is an expectation E[a + y·g] of single rows, which `Identity` estimates from sums over bags; it is given as
its value and the influence of each bag on it, from which intervals come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from bagwise.bags import Bags
from bagwise.losses.label_linear import log_probabilities
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


METRICS = {"accuracy": "accuracy", "brier": "Brier score", "log_loss": "log loss", "auc": "AUC"}
"""Metrics that are numbers: their names, and what they are called in a sentence."""


def possible(name: str, ndim: int = 1) -> tuple[float, float]:
    """The least and the largest value of a metric; ndim: of the predictions, 2 for several classes."""
    return 0.0, np.inf if name == "log_loss" else 2.0 if name == "brier" and ndim == 2 else 1.0


def metrics(identity: Identity) -> dict[str, tuple[float, Floats]]:
    """Each metric by name; no AUC where there are several classes, or labels of one kind only."""
    means = {"brier": brier, "accuracy": accuracy, "log_loss": log_loss}
    found = {name: identity.expectation(*of(identity.h)) for name, of in means.items()}
    area = auc(identity) if identity.h.ndim == 1 else None
    return found if area is None else {**found, "auc": area}


def brier(h: Floats) -> tuple[Floats, Floats]:
    """a and g of the square loss, summed over classes."""
    return (h**2 if h.ndim == 1 else (h**2).sum(axis=1)), 1 - 2 * h


def accuracy(h: Floats) -> tuple[Floats, Floats]:
    """a and g of how often the more probable class is the right one."""
    if h.ndim == 1:
        positive = h > 0.5
        return (~positive).astype(float), np.where(positive, 1.0, -1.0)
    return np.zeros(len(h)), (h.argmax(axis=1)[:, None] == np.arange(h.shape[1])).astype(float)


def log_loss(h: Floats) -> tuple[Floats, Floats]:
    """a and g of the log loss."""
    log1, log0 = log_probabilities(h)
    return (-log0, log0 - log1) if h.ndim == 1 else (np.zeros(len(h)), -log1)


def auc(identity: Identity) -> tuple[float, Floats] | None:
    r"""With F the distribution function of h (ties at half), :math:`AUC = (E[y F(h)] - p^2/2) / (p(1 - p))`."""
    p, bags = float(identity.prior), identity.bags
    if not 0 < p < 1:
        return None
    h, (_, level, rows) = identity.h[bags.order], identity.levels
    F = ((np.cumsum(rows) - rows / 2) / identity.n)[level]
    value, influence = identity.positives(bags.sum(h * F), bags.sum(F))
    # F is estimated from the same rows: row i raises F above it by 1/n, which adds P(y = 1, h > h_i) to its influence.
    # y is replaced by h plus its bag's mean gap, which for one row per bag is y itself.
    mass = np.bincount(level, weights=h + bags.repeat(identity.gap / bags.size), minlength=len(rows))
    above = (np.cumsum(mass[::-1])[::-1] - mass / 2) / identity.n
    influence = influence + identity.mean(bags.sum(above[level]))[1]
    spread = p * (1 - p)
    area = (value - p**2 / 2) / spread
    p_influence = identity.mean(identity.count)[1]
    return float(area), (influence - (p + area * (1 - 2 * p)) * p_influence) / spread


# -- curves -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Curve:
    """Points estimated from bags, with pointwise confidence intervals.

    Attributes
    ----------
    at : array of shape (q,)
        Upper edges of the bins of a calibration curve, thresholds of a ROC curve.
    x, y : array of shape (q,)
        Mean prediction and rate of positives of each bin; for the ROC curve, rates of false and true positives.
    x_standard_error, y_standard_error, x_low, x_high, y_low, y_high : array of shape (q,)
        Their standard errors, and the ends of their confidence intervals.
    """

    at: Floats
    x: Floats
    x_standard_error: Floats
    x_low: Floats
    x_high: Floats
    y: Floats
    y_standard_error: Floats
    y_low: Floats
    y_high: Floats


def within_unit(curve: Curve) -> Curve:
    """The same, points and intervals kept in [0, 1]."""
    names = ("x", "x_low", "x_high", "y", "y_low", "y_high")
    return replace(curve, **{name: np.clip(getattr(curve, name), 0.0, 1.0) for name in names})


def curves(identity: Identity, n_bins: int, level: float) -> dict[str, Curve]:
    """The curves by name; none where there are several classes, no ROC curve where labels are of one kind only."""
    if identity.h.ndim == 2:
        return {}
    levels, level_of_row, counts = identity.levels
    # The least prediction that at least a share q of the rows does not exceed, for q = 1/n_bins, …, 1.
    quantiles = np.searchsorted(np.cumsum(counts), identity.n * np.arange(1, n_bins + 1) / n_bins - 1e-9)
    last = np.unique(np.minimum(quantiles, len(levels) - 1))
    cell = identity.bags.repeat(np.arange(identity.m)) * len(last) + np.searchsorted(last, level_of_row)
    # Sums per bag and bin are all that the curves need: of rows, and of their predictions.
    rows, h = (
        np.bincount(cell, weights, minlength=identity.m * len(last)).astype(float, copy=False).reshape(identity.m, -1)
        for weights in (None, identity.h[identity.bags.order])
    )
    points = {"calibration": (levels[last], *_calibration(identity, rows, h))}
    if 0 < identity.prior < 1:
        points["roc"] = (np.concatenate([levels[last][::-1], [-np.inf]]), *_roc(identity, rows, h))
    return {name: Curve(at, *intervals(*x, level), *intervals(*y, level)) for name, (at, x, y) in points.items()}


_Points = tuple[tuple[Any, Floats], tuple[Any, Floats]]


def _calibration(identity: Identity, rows: Floats, h: Floats) -> _Points:
    """Mean prediction and rate of positives in each bin: E[h·1_b]/P(b) and E[y·1_b]/P(b)."""
    share, share_influence = identity.mean(rows)

    def rate(value: Any, influence: Floats) -> tuple[Any, Floats]:
        return value / share, (influence - value / share * share_influence) / share

    return rate(*identity.mean(h)), rate(*identity.positives(h, rows))


def _roc(identity: Identity, rows: Floats, h: Floats) -> _Points:
    """Rates of false and true positives of the rule h > threshold, at the bins' edges, from strict to lax."""
    # Sums over all bins above each edge, from the last edge to the one below the first bin.
    rows, h = (np.pad(np.cumsum(sums[:, ::-1], axis=1), ((0, 0), (1, 0))) for sums in (rows, h))
    p = float(identity.prior)
    share, share_influence = identity.mean(rows)
    positives, influence = identity.positives(h, rows)
    p_influence = identity.mean(identity.count)[1][:, None]
    true_rate = positives / p
    false_rate = (share - positives) / (1 - p)
    false_influence = (share_influence - influence + false_rate * p_influence) / (1 - p)
    true_influence = (influence - true_rate * p_influence) / p
    return (false_rate, false_influence), (true_rate, true_influence)
