"""Numbers estimated from bags with their intervals, and the metrics: accuracy, Brier score, log loss, AUC, curves.

Every metric is an expectation E[a + y·g] of single rows, which `Expectations` estimates from sums over bags; it is
given as its value and the influence of each bag on it, from which intervals come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from bagwise.expectations import Expectations
from bagwise.losses.label_linear import log_probabilities
from bagwise.utils.typing import Floats

_PLAINLY, _ROUNDING = 0.02, 1e-9


@dataclass(frozen=True)
class Estimate:
    """A number estimated from bags, with its standard error and confidence interval.

    Where bags are of the formation that was assumed, its bias is of the order of its variance, and `risk` has none.
    With few or large bags it can lie outside the possible range; `evaluate` keeps it and its interval inside, no
    farther from the truth, or withholds it where it is plainly outside.

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


def estimated(value: float, influence: Floats, level: float, *, positive: bool = False) -> Estimate:
    """A value with its interval, from the influence of each bag; one that stays positive, if asked for.

    Of what is positive, the logarithm has the interval then, error/value wide about log(value); its lower end is that
    of the plain one where that is positive, too, which is further away.
    """
    value, error, low, high = (float(one) for one in intervals(value, influence, level))
    if positive and value > 0:
        factor = float(np.exp(min((high - value) / value, 700.0)))
        low, high = low if low > 0 else value / factor, value * factor
    return Estimate(value, error, low, high)


_FARTHEST = 4.0  # quantile, beyond which the correction for skewness is not right


def intervals(value: Any, influence: Floats, level: float) -> tuple[Any, Floats, Floats, Floats]:
    """Values with their standard errors and the ends of their intervals, from the influences of bags (m,) or (m, q).

    Student's t times the standard error of a mean over bags. The influences are products, with heavier tails than the
    normal, which makes their sample variance less certain: 2m/(kurtosis − 1) degrees of freedom, not m − 1
    (Satterthwaite). Towards the side of their longer tail, as that of bags with most of the rare labels, the interval
    is as much wider as their skewness asks for (Johnson 1978); it is not narrower on the other, since a few bags tell
    little of it.
    """
    m = len(influence)
    error = np.sqrt((influence**2).sum(axis=0) / (m * (m - 1)))
    second, third, fourth = ((influence**power).mean(axis=0) for power in (2, 3, 4))
    varies = second > 0
    spread = np.sqrt(np.where(varies, second, 1))
    kurtosis = np.where(varies, fourth / spread**4, 3.0)
    freedom = np.clip(2 * m / np.maximum(kurtosis - 1, 1e-9), 1, max(m - 2, 1))
    far = special.stdtrit(freedom, (1 + level) / 2)
    aside = error * third / spread**3 * (1 + 2 * np.minimum(far, _FARTHEST) ** 2) / (6 * np.sqrt(m))
    return value, error, value - far * error + np.minimum(aside, 0), value + far * error + np.maximum(aside, 0)


_OfRows = Callable[[Floats], tuple[Floats, Floats]]

METRICS = {"accuracy": "accuracy", "brier": "Brier score", "log_loss": "log loss", "auc": "AUC"}
"""Metrics that are numbers: their names, and what they are called in a sentence."""

FEWEST_OF_A_KIND = 10
"""Positive, and negative, labels that an area under the ROC curve needs."""


def possible(name: str, ndim: int = 1) -> tuple[float, float]:
    """The least and the largest value of a metric; ndim: of the predictions, 2 for several classes."""
    return 0.0, np.inf if name == "log_loss" else 2.0 if name == "brier" and ndim == 2 else 1.0


def metrics(rows: Expectations, *, threshold: float = 0.5) -> dict[str, tuple[float, Floats]]:
    """Each metric by name: its value, and the influence of bags.

    No AUC where too few labels are of one kind; for several classes it is the mean of those of each against the rest.
    """
    called = partial(accuracy, threshold=threshold)
    means: dict[str, _OfRows] = {"brier": brier, "accuracy": called, "log_loss": log_loss}
    found = {name: rows.expectation(*of(rows.h)) for name, of in means.items()}
    if rows.h.ndim == 1:
        area = auc(rows)
    else:
        areas = [auc(rows.of_class(c)) for c in range(rows.h.shape[1])]
        told = [one for one in areas if one is not None]
        several = len(told) == len(areas)
        area = (float(np.mean([v for v, _ in told])), np.mean([i for _, i in told], axis=0)) if several else None
    return found if area is None else {**found, "auc": area}


def brier(h: Floats) -> tuple[Floats, Floats]:
    """a and g of the square loss, summed over classes."""
    return (h**2 if h.ndim == 1 else (h**2).sum(axis=1)), 1 - 2 * h


def accuracy(h: Floats, threshold: float = 0.5) -> tuple[Floats, Floats]:
    """a and g of how often the more probable class, or what exceeds the threshold, is the right one."""
    if h.ndim == 1:
        positive = h > threshold
        return (~positive).astype(float), np.where(positive, 1.0, -1.0)
    return np.zeros(len(h)), (h.argmax(axis=1)[:, None] == np.arange(h.shape[1])).astype(float)


def log_loss(h: Floats) -> tuple[Floats, Floats]:
    """a and g of the log loss."""
    log1, log0 = log_probabilities(h)
    return (-log0, log0 - log1) if h.ndim == 1 else (np.zeros(len(h)), -log1)


def auc(rows: Expectations) -> tuple[float, Floats] | None:
    r"""With F the distribution function of h (ties at half), :math:`AUC = (E[y F(h)] - p^2/2) / (p(1 - p))`.

    None where fewer than ten labels are positive, or negative.
    """
    p, bags = float(rows.prior), rows.bags
    if min(p, 1 - p) * rows.n < FEWEST_OF_A_KIND:
        return None
    h, (_, level, counts) = rows.h[bags.order], rows.levels
    F = ((np.cumsum(counts) - counts / 2) / rows.n)[level]
    value, influence = rows.positives(bags.sum(h * F), bags.sum(F))
    # F is estimated from the same rows: row i raises F above it by 1/n, which adds P(y = 1, h > h_i) to its influence.
    # y is replaced by h plus its bag's mean gap, which for one row per bag is y itself.
    mass = np.bincount(level, weights=bags.weighted(h + bags.repeat(rows.gap / bags.size)), minlength=len(counts))
    above = (np.cumsum(mass[::-1])[::-1] - mass / 2) / rows.n
    influence = influence + rows.mean(bags.sum(above[level]))[1]
    spread = p * (1 - p)
    area = (value - p**2 / 2) / spread
    p_influence = rows.prior_influence
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
        Mean prediction and rate of positives, or mean label, of each bin; for the ROC curve, rates of false and true
        positives.
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


def curves(expectations: Expectations, n_bins: int, level: float) -> dict[str, Curve]:
    """The curves of two classes by name; no ROC curve where too few labels are of one kind."""
    edges, rows, h = _bins(expectations, n_bins)
    points = {"calibration": (edges, *_calibration(expectations, rows, h))}
    if min(expectations.prior, 1 - expectations.prior) * expectations.n >= FEWEST_OF_A_KIND:
        points["roc"] = (np.concatenate([edges[::-1], [-np.inf]]), *_roc(expectations, rows, h))
    return {name: Curve(at, *intervals(*x, level), *intervals(*y, level)) for name, (at, x, y) in points.items()}


def calibration(expectations: Expectations, n_bins: int, level: float) -> Curve:
    """Mean prediction and mean label in bins of the predictions, for labels of any kind."""
    edges, rows, h = _bins(expectations, n_bins)
    x, y = _calibration(expectations, rows, h)
    return Curve(edges, *intervals(*x, level), *intervals(*y, level))


def _bins(expectations: Expectations, n_bins: int) -> tuple[Floats, Floats, Floats]:
    """Upper edges of bins at quantiles of the predictions; (m, bins) rows of each bag in each, and sums of h."""
    bags, m, n = expectations.bags, expectations.m, expectations.n
    levels, level_of_row, counts = expectations.levels
    # The least prediction that at least a share q of the rows does not exceed, for q = 1/n_bins, …, 1.
    quantiles = np.searchsorted(np.cumsum(counts), n * np.arange(1, n_bins + 1) / n_bins - 1e-9)
    last = np.unique(np.minimum(quantiles, len(levels) - 1))
    cell = bags.repeat(np.arange(m)) * len(last) + np.searchsorted(last, level_of_row)
    # Sums per bag and bin are all that the curves need: of rows, and of their predictions.
    rows, h = (
        np.bincount(cell, weights, minlength=m * len(last)).astype(float, copy=False).reshape(m, -1)
        for weights in (bags.weight, bags.weighted(expectations.h[bags.order]))
    )
    return levels[last], rows, h


_Points = tuple[tuple[Any, Floats], tuple[Any, Floats]]


def _calibration(expectations: Expectations, rows: Floats, h: Floats) -> _Points:
    """Mean prediction and rate of positives in each bin: E[h·1_b]/P(b) and E[y·1_b]/P(b)."""
    share, share_influence = expectations.mean(rows)

    def rate(value: Any, influence: Floats) -> tuple[Any, Floats]:
        return value / share, (influence - value / share * share_influence) / share

    return rate(*expectations.mean(h)), rate(*expectations.positives(h, rows))


def _roc(expectations: Expectations, rows: Floats, h: Floats) -> _Points:
    """Rates of false and true positives of the rule h > threshold, at the bins' edges, from strict to lax."""
    # Sums over all bins above each edge, from the last edge to the one below the first bin.
    rows, h = (np.pad(np.cumsum(sums[:, ::-1], axis=1), ((0, 0), (1, 0))) for sums in (rows, h))
    p = float(expectations.prior)
    share, share_influence = expectations.mean(rows)
    positives, influence = expectations.positives(h, rows)
    p_influence = expectations.prior_influence[:, None]
    true_rate = positives / p
    false_rate = (share - positives) / (1 - p)
    false_influence = (share_influence - influence + false_rate * p_influence) / (1 - p)
    true_influence = (influence - true_rate * p_influence) / p
    return (false_rate, false_influence), (true_rate, true_influence)
