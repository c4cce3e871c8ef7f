r"""What held-out bags tell of a model in every formation, and what follows for single rows whatever is true.

Where bags are grouped by features or have effects of their own, how good a model is for single rows is not told by
bags. These are: how likely it makes their counts, how far its mean prediction is from each proportion, whether the
distances are as large as it allows itself, what its accuracy would be if it were right, and between which numbers its
accuracy lies: with a rows of k called positive and c positive labels, from :math:`|k - a - c|` to
:math:`k - |a - c|` rows are called rightly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.special import logit

from bagwise.bags import Bags
from bagwise.dispersion import Finding, among
from bagwise.log_odds import prior_of, prior_of_classes
from bagwise.losses.log_likelihood import log_likelihoods
from bagwise.metrics import Curve, Estimate, estimated, intervals, within_unit
from bagwise.segment import per_bag
from bagwise.utils.typing import Floats, Integers

__all__ = ["BagFit", "ValueFit", "bag_fit", "count_ends", "value_fit"]

_EDGE = 1e-9  # how close to 0 and 1 probabilities may come whose counts are to have a likelihood
_BINS, _FEWEST = 10, 3  # of a calibration by bags, and bags in each


@dataclass(frozen=True, eq=False)
class BagFit:
    """How a model fits bags that it was not fitted to; right in every formation.

    Attributes
    ----------
    gain : Estimate
        Log-likelihood of a bag's count by the model over that by the mean label, the mean over bags.
    error, constant_error : Estimate, Estimate
        Mean square distance of proportions from the mean prediction of their bags, rows weighing alike and classes
        added up; and from the mean label.
    fit : Finding
        Whether distances are larger than a model that is right would leave: `ratio` is 1 for such a model.
    calibration : Curve or None
        Bags with similar mean predictions put together: their mean prediction and their mean proportion; None where
        there are several classes.
    implied : dict of float
        Accuracy, Brier score, log loss and AUC of single rows if the model is right: no measurement.
    least_accuracy, most_accuracy : Estimate
        Between which the accuracy lies whatever is true of the rows, as far as these bags stand for all.
    """

    gain: Estimate
    error: Estimate
    constant_error: Estimate
    fit: Finding
    calibration: Curve | None
    implied: dict[str, float]
    least_accuracy: Estimate
    most_accuracy: Estimate


def bag_fit(h: Floats, bags: Bags, *, level: float = 0.95, threshold: float = 0.5) -> BagFit:
    """Measure the fit to bags.

    Parameters
    ----------
    h : array of shape (n,) or (n, classes)
        Predictions in table order.
    bags : Bags
        Held-out bags of these rows, at least 3.
    level : float
        Of the confidence intervals.
    threshold : float
        Above which a row is called positive.

    Returns
    -------
    BagFit

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> h = np.repeat(rng.uniform(size=100), 64)
    >>> y = rng.random(6400) < h
    >>> bags = Bags.from_rows(np.repeat(y.reshape(-1, 64).mean(axis=1), 64), np.arange(6400) // 64)
    >>> found = bag_fit(h, bags)
    >>> found.gain.low > 0, found.fit.p_value > 0.01, round(found.fit.ratio, 1)
    (True, True, 1.1)
    """
    rows = np.clip(h[bags.order], _EDGE, 1 - _EDGE)
    size = bags.size.astype(float)
    mean, prior = bags.mean(rows).reshape(len(bags), -1), np.average(bags.outputs, axis=0, weights=size)
    least, most = _right_rows(rows, bags, level, threshold)
    return BagFit(
        gain=_mean(gains(h, bags), level),
        error=_distance(mean, bags, level),
        constant_error=_distance(prior, bags, level),
        fit=_fit(rows, bags),
        calibration=within_unit(_calibration(mean[:, 0], bags, level)) if rows.ndim == 1 else None,
        implied=_implied(rows, bags, threshold),
        least_accuracy=_share(least, size, level),
        most_accuracy=_share(most, size, level),
    )


@dataclass(frozen=True, eq=False)
class ValueFit:
    """How a model of real labels fits bags that it was not fitted to; right in every formation.

    Attributes
    ----------
    error, constant_error : Estimate
        Mean square distance of the mean labels of bags from their mean predictions, rows weighing alike; and from the
        mean label of all rows.
    least_mse : Estimate
        What the mean square error of single rows is at least, whatever is true: `error` less declared noise.
    calibration : Curve
        Bags with similar mean predictions put together: their mean prediction and their mean label.
    """

    error: Estimate
    constant_error: Estimate
    least_mse: Estimate
    calibration: Curve

    @property
    def explained(self) -> float:
        """The share of the variation of mean labels between bags that mean predictions explain; 0 at least."""
        return max(1 - self.error.value / self.constant_error.value, 0.0) if self.constant_error.value > 0 else 0.0


def value_fit(h: Floats, bags: Bags, *, level: float = 0.95) -> ValueFit:
    r"""Measure the fit to bags of real labels.

    A mean of squares is no less than the square of a mean, so that whatever rows make up the bags

    .. math:: \frac{1}{n} \sum_i (y_i - h_i)^2 \ge \frac{1}{n} \sum_j k_j (\alpha_j - \bar h_j)^2

    Parameters
    ----------
    h : array of shape (n,)
        Predictions in table order.
    bags : Bags
        Held-out bags of these rows, at least 3.
    level : float
        Of the confidence intervals.

    Returns
    -------
    ValueFit

    Examples
    --------
    >>> bags = Bags.from_rows([1.0, 1.0, 4.0, 4.0, 7.0, 7.0], [0, 0, 1, 1, 2, 2])
    >>> found = value_fit(np.array([1.0, 1.0, 4.0, 4.0, 7.0, 10.0]), bags)
    >>> found.error.value, found.constant_error.value, found.explained
    (0.75, 6.0, 0.875)
    """
    mean = bags.mean(h[bags.order])[:, None]
    noise = bags.noise_per_row / bags.size
    return ValueFit(
        error=_distance(mean, bags, level),
        constant_error=_distance(np.average(bags.outputs, axis=0, weights=bags.size), bags, level),
        least_mse=_distance(mean, bags, level, noise=noise).within(0.0, np.inf),
        calibration=_calibration(mean[:, 0], bags, level),
    )


def _distance(centre: Floats, bags: Bags, level: float, *, noise: Floats | float = 0.0) -> Estimate:
    """Mean square distance of proportions from `centre`, classes added up, less variances of `noise` on them."""
    weight = bags.size * (len(bags) / bags.n_people)
    square = ((bags.outputs - centre) ** 2).sum(axis=1) - noise
    value = float(weight @ square) / len(bags)
    return estimated(value, weight * (square - value), level, positive=True)


def _mean(values: Floats, level: float) -> Estimate:
    return estimated(float(values.mean()), values - values.mean(), level)


def _share(right: Floats, size: Floats, level: float) -> Estimate:
    """The share of rows, from how many there are in each bag."""
    value = float(right.sum() / size.sum())
    return estimated(value, (right - size * value) * len(size) / size.sum(), level).within(0.0, 1.0)


def gains(h: Floats, bags: Bags) -> Floats:
    """(m,) log-likelihoods of the counts over those by the mean label.  h: in table order."""
    h = np.clip(h[bags.order], _EDGE, 1 - _EDGE)
    if h.ndim == 1:
        constant = np.full(len(h), logit(prior_of(bags)))
        return log_likelihoods(logit(h), bags) - log_likelihoods(constant, bags)
    constant = np.tile(np.log(prior_of_classes(bags)), (len(h), 1))
    return log_likelihoods(np.log(h), bags) - log_likelihoods(constant, bags)


def _fit(h: Floats, bags: Bags) -> Finding:
    """Squares of residuals over their variances, whose sum over bags is compared with a gamma law of its moments."""
    columns = h.reshape(len(h), -1)
    variance = bags.sum(columns * (1 - columns))
    fourth = bags.sum(columns * (1 - columns) * (1 - 6 * columns * (1 - columns)))  # fourth cumulants of labels
    noise = np.zeros(len(bags)) if bags.noise_variance is None else bags.noise_variance
    total = variance + noise[:, None]
    square = (bags.outputs * bags.size[:, None] - bags.sum(columns)) ** 2 / total
    # Var(z²) = 2 + κ₄; that of Laplace noise is 12 s⁴ / 4, of normal noise 0: the larger suits both.
    spread = (2 + (fourth + 3 * noise[:, None] ** 2) / total**2).sum(axis=0)
    m, found = len(bags), []
    for statistic, more in zip(square.sum(axis=0), np.maximum(spread, 1e-12), strict=True):
        p_value = float(stats.gamma.sf(statistic, m * m / more, scale=more / m))
        found.append(Finding("residuals of the model", float(statistic / m), p_value))
    return among(len(found), min(found, key=lambda one: one.p_value))


def _calibration(mean: Floats, bags: Bags, level: float) -> Curve:
    bins = max(1, min(_BINS, len(mean) // _FEWEST))
    order = np.argsort(mean, kind="stable")
    part: Integers = np.empty(len(mean), dtype=np.intp)
    part[order] = np.arange(len(mean)) * bins // len(mean)
    size = bags.size.astype(float)
    inside = (part[:, None] == np.arange(bins)) * size[:, None]
    share = inside.sum(axis=0)

    def points(values: Floats) -> tuple[Floats, Floats]:
        centre = values @ inside / share
        return centre, (values[:, None] - centre) * inside * len(size) / share

    x, y = (intervals(*points(values), level) for values in (mean, bags.outputs[:, 0]))
    last = np.array([mean[part == b].max() for b in range(bins)])
    return Curve(last, *x, *y)


def _implied(h: Floats, bags: Bags, threshold: float) -> dict[str, float]:
    """Metrics of a model that is right, from its predictions alone."""
    if h.ndim == 2:
        entropy = -(h * np.log(h)).sum(axis=1)
        found = {"accuracy": h.max(axis=1), "brier": 1 - (h**2).sum(axis=1), "log_loss": entropy}
        return {name: float(bags.average(values)) for name, values in found.items()}
    p = float(bags.average(h))
    return {
        "accuracy": float(bags.average(np.where(h > threshold, h, 1 - h))),
        "brier": float(bags.average(h * (1 - h))),
        "log_loss": -float(bags.average(h * np.log(h) + (1 - h) * np.log1p(-h))),
        "auc": (float(bags.average(h * _places(h, bags))) - p * p / 2) / (p * (1 - p)),
    }


def _places(h: Floats, bags: Bags) -> Floats:
    """(n,) the share of rows that have less, those with the same at half."""
    if bags.weight is None:
        return np.asarray((stats.rankdata(h) - 0.5) / len(h))
    _, level = np.unique(h, return_inverse=True)
    counts = np.bincount(level, bags.weight)
    return np.asarray(((np.cumsum(counts) - counts / 2) / bags.n_people)[level])


def _right_rows(h: Floats, bags: Bags, level: float, threshold: float) -> tuple[Floats, Floats]:
    """(m,) at least, and at most, how many rows of each bag are called rightly; counts with noise may be off by it."""
    size = bags.size.astype(float)
    called = (h > threshold)[:, None] if h.ndim == 1 else h.argmax(axis=1)[:, None] == np.arange(h.shape[1])
    a = bags.sum(called.astype(float))
    low, high = (end.reshape(len(bags), -1) for end in count_ends(bags, level))
    if h.ndim == 2:
        least = np.maximum(a + low - size[:, None], 0).max(axis=1)
        return least, np.minimum(np.minimum(a, high).sum(axis=1), size)
    a, low, high = a[:, 0], low[:, 0], high[:, 0]
    return np.abs(size - a - np.clip(size - a, low, high)), size - np.abs(a - np.clip(a, low, high))


def count_ends(bags: Bags, level: float = 0.95) -> tuple[Floats, Floats]:
    """Between which numbers the counts of bags lie, as far as reports tell.

    Parameters
    ----------
    bags : Bags
        Of labels 0 and 1, or of classes.
    level : float
        How sure the ends are where noise is declared; counts without noise hold always.

    Returns
    -------
    low, high : array of shape (m,) or (m, classes)

    Examples
    --------
    >>> bags = Bags.from_rows([0.5, 0.5, 1.0, 1.0], [0, 0, 1, 1], noise_variance=[0.0, 0.0, 1.0, 1.0])
    >>> low, high = count_ends(bags)
    >>> low.round(2), high
    (array([1.  , 0.04]), array([1., 2.]))
    """
    c, size = per_bag(bags.size, bags.proportion) * bags.proportion, per_bag(bags.size, bags.proportion)
    noise = np.zeros(len(bags)) if bags.noise_variance is None else np.sqrt(bags.noise_variance)
    off = per_bag(stats.norm.ppf((1 + level) / 2) * noise, c)
    ends = c - off, c + off
    if bags.interval is not None:  # what a count may be, and noise beside it
        off = per_bag(stats.norm.ppf((1 + level) / 2) * np.sqrt(bags.interval.noise), c)
        ends = bags.interval.low - off, bags.interval.high + off
    low, high = (np.clip(one, 0, size) for one in ends)
    return low, high
