"""Success curves: where they pass a level, and how that place moves with the size of bags."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import isotonic_regression

Checkpoint = tuple[int, float, int]
"""Bags, part of the trials that succeeded, and trials."""


def clearly_passed(curve: list[Checkpoint], level: float) -> bool:
    """Whether success exceeded the level by 1.5 standard errors at the last two checkpoints."""
    margin = [success - level - 1.5 * standard_error(level, trials) for _, success, trials in curve[-2:]]
    return len(margin) == 2 and min(margin) > 0


def standard_error(level: float, trials: int) -> float:
    """Of a success rate that is `level`."""
    return float(np.sqrt(level * (1 - level) / trials))


def log_bags_error(level: float, trials: int) -> float:
    """Standard error of the logarithm of the bags at which a success curve Φ(c√m) passes `level`, above one half.

    That is the curve of a choice between two. Larger classes have steeper ones, so that the error is rather too large
    for them; it does not depend on the local slope of a curve, which is much too uncertain to divide by.
    """
    z = stats.norm.ppf(level)
    return float(standard_error(level, trials) / (stats.norm.pdf(z) * z / 2))


def bags_needed(
    bags: ArrayLike, success: ArrayLike, trials: ArrayLike, *, level: float, lasts: bool = True
) -> dict[str, Any]:
    """Where a success curve, made monotone, reaches `level`: log-linear between checkpoints.

    A curve that ends below the level is censored, and so is one known not to stay there (`lasts`).

    >>> needed = bags_needed([10, 20, 40], [0.8, 0.9, 1.0], [100, 100, 100], level=0.95)
    >>> round(needed["bags"], 2), needed["bags_grid"], needed["censored"]
    (28.28, 40.0, False)
    """
    m, s, t = np.asarray(bags), np.asarray(success, dtype=float), np.asarray(trials)
    curve = isotonic_regression(s, weights=t).x
    censored = not lasts or bool(s[-1] < level)
    result: dict[str, Any] = {"bags": np.nan, "log_bags_se": np.nan, "bags_grid": np.nan, "censored": censored}
    if not censored:
        i = min(int(np.searchsorted(curve, level)), len(m) - 1)  # rounding might leave the end below the level
        reach = np.log(m[0]) if i == 0 else np.interp(level, curve[i - 1 : i + 1], np.log(m[i - 1 : i + 1]))
        below = np.flatnonzero(s < level)
        result["bags"], result["log_bags_se"] = float(np.exp(reach)), log_bags_error(level, int(t[i]))
        result["bags_grid"] = float(m[below[-1] + 1 if len(below) else 0])
    return result | {"checkpoints": m.tolist(), "successes": s.tolist(), "trials": t.tolist()}


def slope(size: ArrayLike, bags: ArrayLike, log_bags_se: ArrayLike) -> dict[str, float]:
    """Slope of log bags on log k by least squares, weighted by the errors of log bags, with the error these give it.

    The scatter around the line is not used: it says next to nothing where the line has few points.
    Missing where a count is: a slope over the sizes that were within reach would flatter those that were not.

    >>> {name: round(value, 3) for name, value in slope([8, 16, 32], [10, 20, 40], [0.1, 0.1, 0.1]).items()}
    {'slope': 1.0, 'slope_se': 0.102}
    """
    x, y, weight = np.log(size), np.log(bags), np.asarray(log_bags_se, dtype=float) ** -2
    if len(y) < 2 or np.isnan(y).any():
        return {"slope": np.nan, "slope_se": np.nan}
    x = x - np.average(x, weights=weight)
    information = float(weight @ x**2)
    return {"slope": float((weight * x) @ y) / information, "slope_se": information**-0.5}
