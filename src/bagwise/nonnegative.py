"""Labels that are never negative, as purchases, costs and minutes are: when they are taken for that, and predictions.

A prediction below 0 is 0 then, and all are multiplied by the factor that leaves their mean as it was, which is p.
"""

from __future__ import annotations

import numpy as np

from bagwise.utils.parameters import one_of
from bagwise.utils.typing import Floats, Integers

NONNEGATIVE = one_of("auto", True, False)
"""What the parameter `nonnegative` of regressors may be; "auto" is told by what bags report."""

LARGEST = 700.0
"""The largest logarithm of a prediction that has a number."""

_BY_NOISE = 5.0  # standard deviations of declared noise that a report may lie below 0


def never_negative(
    asked: bool | str, size: Integers | Floats, mean: Floats, noise_variance: Floats | None = None
) -> bool:
    """Whether labels are taken for never negative: as asked for, or where no bag reports less than 0.

    Parameters
    ----------
    asked : bool or "auto"
        The parameter `nonnegative` of a regressor.
    size, mean : array of shape (m,)
        Of bags, and of their labels as reported.
    noise_variance : array of shape (m,), optional
        Of their sums, as declared: noise may have put them below 0.

    Returns
    -------
    bool

    Examples
    --------
    >>> never_negative("auto", np.array([2, 2]), np.array([1.5, 0.0]))
    True
    >>> never_negative("auto", np.array([2, 2]), np.array([1.5, -0.1]))
    False
    """
    if asked != "auto":
        return bool(asked)
    total, noise = size * mean, 0.0 if noise_variance is None else np.sqrt(noise_variance)
    return bool((total >= -_BY_NOISE * noise).all() and total.sum() > 0)


def factor_of(h: Floats, weight: Floats | None = None) -> float:
    """What to multiply predictions by that were below 0, and are 0, so that their mean stays as it was.

    Parameters
    ----------
    h : array of shape (n,)
        Predictions as they were, of the rows that were fitted to.
    weight : array of shape (n,), optional
        For how many each of these rows stands.

    Returns
    -------
    float
        At most 1; 1, too, where their mean is not above 0.

    Examples
    --------
    >>> h = np.array([-1.0, 2.0, 2.0])
    >>> factor_of(h), float((factor_of(h) * np.maximum(h, 0)).mean()), float(h.mean())
    (0.75, 1.0, 1.0)
    """
    mean, above = (float(np.average(one, weights=weight)) for one in (h, np.maximum(h, 0)))
    return mean / above if mean > 0 else 1.0
