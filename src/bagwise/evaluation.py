r"""How good a model is, from bags alone.

Everything rests on one identity. For any function g of a row, any model h and random bags,

.. math:: E[y\,g] = E[h\,g] + (p - E[h])\,E[g] + E\Bigl[R_j \sum_{i \in j}(g_i - E[g])\Bigr]/k

whose first two terms need no label and whose last is a mean over bags of terms with O(1) variance, smaller the
better h is. Accuracy, Brier score, log loss, a calibration bin, a point of the ROC curve and the area under it are
all of the form E[a + y g]. Noise on the counts has mean zero and is independent of g, so nothing here is biased by
it; the intervals widen.

With one row per bag every estimate equals the ordinary one from individual labels.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from bagwise.bags import Bags, as_bags
from bagwise.diagnostics import dispersion_test
from bagwise.losses.label_linear import log_probabilities
from bagwise.segment import per_bag

_SUSPICIOUS = 1e-6  # p-value under which evaluate warns that bags do not look random

Floats = NDArray[Any]


class BagsNotRandomWarning(UserWarning):
    """The bags differ more in the model's predictions than random bags would: label-free estimates may be biased."""


@dataclass(frozen=True)
class Estimate:
    """A number estimated from bags, with its standard error and confidence interval.

    Estimates are unbiased and not clipped: with few or large bags, values outside the possible range can occur.
    """

    value: float
    standard_error: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True, eq=False)
class Curve:
    """Points estimated from bags: x, and y with standard errors and pointwise confidence intervals.

    For calibration x is the mean prediction of a bin and y its rate of positives; for the ROC curve they are the
    rates of false and true positives at each threshold. `at` holds the bins' upper edges or the thresholds.
    """

    at: Floats
    x: Floats
    x_standard_error: Floats
    y: Floats
    y_standard_error: Floats
    y_low: Floats
    y_high: Floats


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Label-free evaluation of a model on bags.

    brier, accuracy, log_loss: of single rows (for several classes, Brier is summed over them).
    auc, calibration, roc: for two classes only, otherwise None.
    n_bags, n_rows: what was used.  level: of the intervals.
    randomness: p-value of the hypothesis that the bags are random as far as the model's predictions tell.
    """

    brier: Estimate
    accuracy: Estimate
    log_loss: Estimate
    auc: Estimate | None
    calibration: Curve | None
    roc: Curve | None
    n_bags: int
    n_rows: int
    level: float
    randomness: float

    def __str__(self) -> str:
        names = ("accuracy", "brier", "log_loss", "auc")
        lines = [f"{name:<10}{estimate}" for name in names if (estimate := getattr(self, name)) is not None]
        return "\n".join([f"from {self.n_bags} bags, {self.level:.0%} intervals", *lines])


def evaluate(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    bags: ArrayLike | Bags | None = None,
    noise_variance: ArrayLike | None = None,
    level: float = 0.95,
    n_bins: int = 10,
) -> Evaluation:
    """Brier score, accuracy, log loss, AUC, calibration and ROC curve of single rows, from bags alone.

    model: a fitted classifier with `predict_proba`, or its predictions: (n,) probabilities of class 1, or (n, classes).
    X: (n, features) held-out rows; None where predictions are given.
    y, bags, noise_variance: as in `fit` and `Bags.from_rows`. The bags must be random (see `bagwise.diagnose`) and
        must not have been used to fit the model; a `BagsNotRandomWarning` is given where they plainly are not.
    level: of the confidence intervals.
    n_bins: bins of the calibration curve and thresholds of the ROC curve, at quantiles of the predictions.

    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> h = rng.uniform(size=64000)
    >>> y = rng.random(64000) < h
    >>> ids = bw.random_bags(64000, size=64, random_state=0)
    >>> result = evaluate(h, None, bw.aggregate(y, ids), bags=ids)
    >>> print(result.accuracy)
    0.7716 [0.7452, 0.7980]
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}.")
    h = predicted(model, X)
    given = as_bags(y, bags, len(h), noise_variance=noise_variance)
    given.check_proportions()
    if len(given) < 2:
        raise ValueError("there is one bag only: at least 2 are needed to estimate anything with an interval.")
    if given.proportion.ndim != h.ndim:
        raise ValueError(
            f"the bags report proportions of shape {given.proportion.shape} but predictions are {h.shape}."
        )
    randomness = dispersion_test(h if h.ndim == 1 else h[:, 0], given)
    if randomness < _SUSPICIOUS:
        warnings.warn(
            f"the bags are not random (p = {randomness:.1g}): their mean predictions vary otherwise than chance "
            "allows, so label-free estimates may be biased; bagwise.diagnose says more.",
            BagsNotRandomWarning,
            stacklevel=2,
        )
    problem = _Problem(h, given, level)
    binary = h.ndim == 1
    bins = _Bins(problem, n_bins) if binary else None
    return Evaluation(
        brier=problem.estimate(*_brier(h)),
        accuracy=problem.estimate(*_accuracy(h)),
        log_loss=problem.estimate(*_log_loss(h)),
        auc=_auc(problem) if binary else None,
        calibration=bins.calibration() if bins else None,
        roc=bins.roc() if bins else None,
        n_bags=len(given),
        n_rows=given.n_bagged,
        level=level,
        randomness=randomness,
    )


def label_linear(
    h: ArrayLike, g: ArrayLike, bags: Bags, *, a: ArrayLike | float = 0.0, level: float = 0.95
) -> Estimate:
    """E[a + y·g] from bags, for row functions a and g of your own: (n,) values in table order.

    >>> bags = Bags.singletons([0, 1, 1, 0])
    >>> label_linear([0.2, 0.7, 0.9, 0.4], [1.0, 1.0, 0.0, 0.0], bags).value  # E[y g], one row per bag: the plain mean
    0.25
    """
    values = np.asarray(h, dtype=float)
    rows = np.broadcast_to(np.asarray(a, dtype=float), values.shape)
    return _Problem(values, bags, level).estimate(rows, np.asarray(g, dtype=float))


def risk(h: ArrayLike, bags: Bags, *, level: float = 0.95) -> Estimate:
    r"""E[(y − h)²] from bags, for real labels too: the debiased square loss with p and E[h] taken from these bags.

    .. math:: \Bigl(1 - \tfrac1n\Bigr) \tfrac{1}{m-1} \sum_j R_j^2/k_j + (p - \bar h)^2

    The divisor m − 1 makes it exactly unbiased although p and E[h] are estimated; what declared noise adds is
    subtracted.

    h: (n,) predictions in table order.

    >>> risk([0.2, 0.7, 0.9, 0.4], Bags.singletons([0, 1, 1, 0]))
    Estimate(value=0.075..., standard_error=..., low=..., high=...)
    """
    values = np.asarray(h, dtype=float)
    _check_predictions(values)
    size, n, m = bags.size, bags.n_bagged, len(bags)
    gap = size * bags.proportion - bags.sum_table(values)
    bias = gap.sum() / n
    square = (gap - size * bias) ** 2 / size
    variance = square.sum() / (m - 1)
    noise_in_bias = 0.0
    if bags.noise_variance is not None:
        noise = bags.noise_variance
        variance -= ((noise / size).sum() - noise.sum() / n) / (m - 1)
        noise_in_bias = noise.sum() / n**2
    value = (1 - 1 / n) * variance + bias**2 - noise_in_bias
    influence = square - square.mean() + 2 * bias * (gap - size * bias) * m / n
    return _with_interval(value, influence, level)


def predicted(model: Any, X: Any) -> Floats:
    """The predictions h of a model, (n,) for two classes or (n, classes); or the predictions given."""
    if hasattr(model, "predict_proba"):
        h = np.asarray(model.predict_proba(X), dtype=float)
        h = h[:, 1] if h.ndim == 2 and h.shape[1] == 2 else h
    elif hasattr(model, "predict"):
        raise TypeError(
            "evaluate needs probabilities: the model has no predict_proba; for real labels use evaluation.risk."
        )
    else:
        h = np.asarray(model, dtype=float)
        h = h[:, 1] if h.ndim == 2 and h.shape[1] == 2 else h
    _check_predictions(h)
    if len(h) and (h.min() < 0 or h.max() > 1):
        raise ValueError("predictions must lie in [0, 1]: pass probabilities, not scores or classes.")
    return h


def _check_predictions(h: Floats) -> None:
    if not np.isfinite(h).all():
        raise ValueError(f"the prediction of row {int(np.argwhere(~np.isfinite(h))[0][0])} is NaN or infinite.")


# -- the identity -------------------------------------------------------------------------------------------------


class _Problem:
    """Predictions and bags, ready for the identity: everything below works on sums per bag."""

    def __init__(self, h: Floats, bags: Bags, level: float):
        self.h, self.bags, self.level = h, bags, level
        self.m, self.n = len(bags), bags.n_bagged
        self.count = per_bag(bags.size, bags.proportion) * bags.proportion
        self.gap = self.count - bags.sum_table(h)  # Σ(y − h) of each bag
        self.prior = self.count.sum(axis=0) / self.n

    @cached_property
    def levels(self) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
        """The distinct predictions in order, which of them each row has (bag order), and how many rows each has."""
        return np.unique(self.h[self.bags.order], return_inverse=True, return_counts=True)

    def estimate(self, a: Floats, g: Floats) -> Estimate:
        """E[a + y·g]; a: (n,), g: (n,) or (n, classes), the product then summed over classes."""
        known = a + (self.h * g if g.ndim == 1 else (self.h * g).sum(axis=1))
        value, influence = self.mean(self.bags.sum_table(known))
        rest, rest_influence = self.residual(self.bags.sum_table(g))
        if g.ndim == 2:
            rest, rest_influence = rest.sum(), rest_influence.sum(axis=1)
        return _with_interval(value + rest, influence + rest_influence, self.level)

    def positives(self, hg: Floats, g: Floats) -> tuple[Any, Floats]:
        """E[y·g] and its influence per bag, from the bag sums of h·g and of g, (m,) or (m, q)."""
        value, influence = self.mean(hg)
        rest, rest_influence = self.residual(g)
        return value + rest, influence + rest_influence

    def mean(self, sums: Floats) -> tuple[Any, Floats]:
        """The mean over rows and its influence per bag, from sums per bag (m,) or (m, q)."""
        mean = sums.sum(axis=0) / self.n
        return mean, (sums - per_bag(self.bags.size, sums) * mean) * self.m / self.n

    def residual(self, g: Floats) -> tuple[Any, Floats]:
        """E[(y − h)·g] and its influence per bag, from the bag sums of g. The divisor m − 1 makes it unbiased."""
        gap = self.gap if self.gap.ndim == g.ndim else self.gap[:, None]
        size = per_bag(self.bags.size, g)
        bias, bias_influence = self.mean(gap)
        mean_g, g_influence = self.mean(g)
        product = (gap - size * bias) * (g - size * mean_g) / size
        covariance = product.sum(axis=0) / (self.m - 1)
        value = bias * mean_g + (1 - 1 / self.n) * covariance
        return value, mean_g * bias_influence + bias * g_influence + product - product.mean(axis=0)


def _with_interval(value: float, influence: Floats, level: float) -> Estimate:
    error = float(_standard_error(influence))
    half = float(_half_width(influence, level))
    return Estimate(float(value), error, float(value - half), float(value + half))


def _standard_error(influence: Floats) -> Floats:
    m = len(influence)
    return np.sqrt((influence**2).sum(axis=0) / (m * (m - 1)))


def _half_width(influence: Floats, level: float) -> Floats:
    """Student's t times the standard error. The influences are products, with heavier tails than the normal, which
    makes their sample variance less certain: 2m/(kurtosis − 1) degrees of freedom, not m − 1 (Satterthwaite)."""
    m = len(influence)
    second, fourth = (influence**2).mean(axis=0), (influence**4).mean(axis=0)
    varies = second > 0
    kurtosis = np.where(varies, fourth / np.where(varies, second, 1) ** 2, 3.0)
    freedom = np.clip(2 * m / np.maximum(kurtosis - 1, 1e-9), 1, m - 1)
    return _standard_error(influence) * stats.t.ppf((1 + level) / 2, freedom)


# -- metrics as a and g -------------------------------------------------------------------------------------------


def _brier(h: Floats) -> tuple[Floats, Floats]:
    return (h**2 if h.ndim == 1 else (h**2).sum(axis=1)), 1 - 2 * h


def _accuracy(h: Floats) -> tuple[Floats, Floats]:
    if h.ndim == 1:
        positive = h > 0.5
        return (~positive).astype(float), np.where(positive, 1.0, -1.0)
    return np.zeros(len(h)), (h.argmax(axis=1)[:, None] == np.arange(h.shape[1])).astype(float)


def _log_loss(h: Floats) -> tuple[Floats, Floats]:
    log1, log0 = log_probabilities(h)
    return (-log0, log0 - log1) if h.ndim == 1 else (np.zeros(len(h)), -log1)


def _auc(problem: _Problem) -> Estimate | None:
    r"""With F the distribution function of h (ties at half), :math:`AUC = (E[y F(h)] - p^2/2) / (p(1 - p))`."""
    p, bags = float(problem.prior), problem.bags
    if not 0 < p < 1:
        return None
    h, (_, level, rows) = problem.h[bags.order], problem.levels
    F = ((np.cumsum(rows) - rows / 2) / problem.n)[level]
    value, influence = problem.positives(bags.sum(h * F), bags.sum(F))
    # F is estimated from the same rows: row i raises F above it by 1/n, which adds P(y = 1, h > h_i) to its influence.
    # y is replaced by h plus its bag's mean gap, which for one row per bag is y itself.
    mass = np.bincount(level, weights=h + bags.repeat(problem.gap / bags.size), minlength=len(rows))
    above = (np.cumsum(mass[::-1])[::-1] - mass / 2) / problem.n
    influence = influence + problem.mean(bags.sum(above[level]))[1]
    spread = p * (1 - p)
    auc = (value - p**2 / 2) / spread
    p_influence = problem.mean(problem.count)[1]
    influence = (influence - (p + auc * (1 - 2 * p)) * p_influence) / spread
    return _with_interval(float(auc), influence, problem.level)


# -- curves -------------------------------------------------------------------------------------------------------


class _Bins:
    """Rows grouped by their prediction; sums per bag and bin are all that the curves need."""

    def __init__(self, problem: _Problem, n_bins: int):
        self.problem = problem
        levels, level, rows = problem.levels
        # The least prediction that at least a share q of the rows does not exceed, for q = 1/n_bins, …, 1.
        quantiles = np.searchsorted(np.cumsum(rows), problem.n * np.arange(1, n_bins + 1) / n_bins - 1e-9)
        last = np.unique(np.minimum(quantiles, len(levels) - 1))
        self.edges = levels[last]
        cell = problem.bags.repeat(np.arange(problem.m)) * len(last) + np.searchsorted(last, level)
        shape = (problem.m, len(last))
        h = problem.h[problem.bags.order]
        self.rows = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape).astype(float)
        self.h = np.bincount(cell, weights=h, minlength=shape[0] * shape[1]).reshape(shape)

    def calibration(self) -> Curve:
        """Rate of positives in each bin: E[y·1_b]/P(b)."""
        share, share_influence = self.problem.mean(self.rows)
        positives, influence = self.problem.positives(self.h, self.rows)
        predicted, predicted_influence = self.problem.mean(self.h)
        rate, x = positives / share, predicted / share
        x_error = _standard_error((predicted_influence - x * share_influence) / share)
        return self._curve(self.edges, x, x_error, rate, (influence - rate * share_influence) / share)

    def roc(self) -> Curve | None:
        """Rates of true and false positives of the rule h > threshold, at the bins' edges, from strict to lax."""
        p = float(self.problem.prior)
        if not 0 < p < 1:
            return None

        def above(sums: Floats) -> Floats:
            """Sums over all bins above each edge, from the last edge to the one below the first bin."""
            return np.concatenate([np.zeros((len(sums), 1)), np.cumsum(sums[:, ::-1], axis=1)], axis=1)

        rows, h = above(self.rows), above(self.h)
        share, share_influence = self.problem.mean(rows)
        positives, influence = self.problem.positives(h, rows)
        p_influence = self.problem.mean(self.problem.count)[1][:, None]
        true_rate = positives / p
        false_rate = (share - positives) / (1 - p)
        false_influence = (share_influence - influence + false_rate * p_influence) / (1 - p)
        thresholds = np.concatenate([self.edges[::-1], [-np.inf]])
        return self._curve(
            thresholds,
            false_rate,
            _standard_error(false_influence),
            true_rate,
            (influence - true_rate * p_influence) / p,
        )

    def _curve(self, at: Floats, x: Floats, x_error: Floats, y: Floats, influence: Floats) -> Curve:
        half = _half_width(influence, self.problem.level)
        return Curve(at, x, x_error, y, _standard_error(influence), y - half, y + half)
