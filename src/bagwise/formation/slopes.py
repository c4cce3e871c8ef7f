"""Two lines through bags: proportions on mean predictions, and mean predictions on proportions."""

from dataclasses import dataclass

import numpy as np

from bagwise.bags import Bags
from bagwise.utils.typing import Floats


@dataclass(frozen=True)
class Slope:
    """A line through bags.

    Attributes
    ----------
    value, error : float
        Its slope and the standard error of that, which respects bags.
    expected : float
        What it is where the assumption that it tests holds.
    """

    value: float
    error: float
    expected: float


def slopes(h: Floats, bags: Bags) -> tuple[Slope, Slope]:
    """The line of proportions on mean predictions of bags, and that of mean predictions on proportions.

    Bags weigh as many rows as they have. The forward slope is 1 where the model is calibrated and bags are random or
    formed by features; the reverse slope is Var(h) / p(1 − p) where it is calibrated and bags are random or differ in
    rates.

    Parameters
    ----------
    h : array of shape (n_bagged,)
        Predictions for rows of bags that the model was not fitted to, in bag order.
    bags : Bags
        Those bags, of labels 0 and 1; declared noise is subtracted from the variance of proportions.

    Returns
    -------
    Slope, Slope

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> h = rng.uniform(size=40_000)
    >>> y = rng.random(40_000) < h
    >>> bags = Bags.from_rows(np.repeat(y.reshape(-1, 10).mean(axis=1), 10), np.arange(40_000) // 10)
    >>> [abs(one.value - one.expected) < 4 * one.error for one in slopes(h, bags)]
    [True, True]
    """
    h = np.asarray(h, dtype=float)
    mean, p = bags.mean(h), float(np.average(bags.proportion, weights=bags.size))
    noise = 0.0 if bags.noise_variance is None else float((bags.noise_variance / bags.size).sum())
    expected = float(bags.average((h - bags.average(h)) ** 2)) / max(p * (1 - p), 1e-300)
    return _slope(mean, bags.proportion, bags.size, 1.0), _slope(bags.proportion, mean, bags.size, expected, noise)


def _slope(x: Floats, y: Floats, weight: Floats, expected: float, noise: float = 0.0) -> Slope:
    """Least squares of y on x, whose sum of squares has so much noise in it."""
    x, y = x - np.average(x, weights=weight), y - np.average(y, weights=weight)
    square = float((weight * x**2).sum()) - noise
    if square <= 1e-12 * float(weight.sum()) or len(x) < 3:
        return Slope(np.nan, np.nan, expected)
    value = float((weight * x * y).sum()) / square
    influence = weight * x * (y - value * x)
    return Slope(value, float(np.sqrt((influence**2).sum() * len(x) / (len(x) - 2))) / square, expected)
