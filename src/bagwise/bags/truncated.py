"""Normal numbers of which is known that they lie between two ends."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from bagwise.utils.typing import Floats


def truncated_normal(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of standard normal numbers given that they lie between a and b.

    Examples
    --------
    >>> [one.round(3) for one in truncated_normal(np.array([-1.0, 0.0, 40.0]), np.array([1.0, np.inf, 41.0]))]
    [array([ 0.   ,  0.798, 40.025]), array([0.291, 0.363, 0.001])]
    """
    flip = a < -b  # from the tail in which probabilities have digits
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    log_chance = _log_between(a, b)
    with np.errstate(invalid="ignore", over="ignore"):
        at_a, at_b = (np.exp(-(end**2) / 2 - np.log(2 * np.pi) / 2 - log_chance) for end in (a, b))
        mean = np.clip(at_a - at_b, a, b)
        ends = np.where(np.isfinite(a), a * at_a, 0.0) - np.where(np.isfinite(b), b * at_b, 0.0)
        variance = np.clip(1 + ends - mean**2, 1e-12, np.minimum((b - a) ** 2 / 4, 1.0))
    return np.where(flip, -mean, mean), variance


def log_normal_between(a: Floats, b: Floats) -> Floats:
    """Log-probability that a standard normal number lies between a and b.

    Examples
    --------
    >>> log_normal_between(np.array([-1.0, 4.0]), np.array([1.0, np.inf])).round(3)
    array([ -0.382, -10.36 ])
    """
    flip = a < -b
    return _log_between(np.where(flip, -b, a), np.where(flip, -a, b))


def _log_between(a: Floats, b: Floats) -> Floats:
    """The same where a + b ≥ 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(log_ndtr(-a) + np.log1p(-np.exp(np.minimum(log_ndtr(-b) - log_ndtr(-a), -1e-15))))
