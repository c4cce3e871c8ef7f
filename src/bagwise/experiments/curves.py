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

    def reach(value: float) -> float:
        i = int(np.searchsorted(curve, min(value, curve[-1])))
        if i == 0:
            return float(np.log(m[0]))
        part = (min(value, curve[-1]) - curve[i - 1]) / (curve[i] - curve[i - 1])
        return float(np.log(m[i - 1]) + part * np.log(m[i] / m[i - 1]))

    censored = not lasts or bool(s[-1] < level)
    result: dict[str, Any] = {"bags": np.nan, "log_bags_se": np.nan, "bags_grid": np.nan, "censored": censored}
    if not censored:
        error = standard_error(level, int(t[np.searchsorted(curve, min(level, curve[-1]))]))
        below = np.flatnonzero(s < level)
        result["bags"] = float(np.exp(reach(level)))
        result["log_bags_se"] = (reach(level + error) - reach(level - error)) / 2
        result["bags_grid"] = float(m[below[-1] + 1 if len(below) else 0])
    return result | {"checkpoints": m.tolist(), "successes": s.tolist(), "trials": t.tolist()}


def slope(size: ArrayLike, bags: ArrayLike) -> dict[str, float]:
    """Least-squares slope of log bags on log k, its error from the scatter around the line.

    Missing where a count is: a slope over the sizes that were within reach would flatter those that were not.

    >>> {name: round(value, 6) for name, value in slope([8, 16, 32], [10, 20, 40]).items()}
    {'slope': 1.0, 'slope_se': 0.0}
    """
    k, m = np.asarray(size, dtype=float), np.asarray(bags, dtype=float)
    if len(m) < 3 or np.isnan(m).any():
        return {"slope": np.nan, "slope_se": np.nan}
    fit = stats.linregress(np.log(k), np.log(m))
    return {"slope": float(fit.slope), "slope_se": float(fit.stderr)}
