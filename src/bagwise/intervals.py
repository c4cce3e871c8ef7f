"""How sure predictions are: estimators that tell intervals of E[y | x]."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from scipy import special

from bagwise.base import BagClassifier, BagEstimator
from bagwise.data.sparse import as_dense
from bagwise.utils.parameters import LEVEL, check_parameters
from bagwise.utils.typing import ArrayLike, Floats


class TellsIntervals(BagEstimator):
    """An estimator whose predictions have intervals."""

    @abstractmethod
    def _interval(self, X: Floats, level: float, offset: Floats | float) -> Floats:
        """(2, n) lower and upper ends."""

    def predict_interval(self, X: Any, *, level: float = 0.95, offset: ArrayLike | None = None) -> Floats:
        """Intervals of the probability, or the expected label, of each row: how sure the model is of its mean.

        They tell how far E[y | x] may be from what bags, of which there are so many, let a model say where it is right:
        no label of a single row lies in them. A prediction that is drawn towards p is held, too.

        Parameters
        ----------
        X : array or table, shape (n, features)
            The rows.
        level : float
            How often each is to hold.
        offset : array, shape (n,), optional
            As for predictions.

        Returns
        -------
        array, shape (2, n)
            Lower and upper ends.
        """
        check_parameters({"level": level}, {"level": LEVEL})
        X = as_dense(X, "an interval")
        h = self._checked_predict(X, offset)
        if h.ndim == 2:
            raise ValueError("intervals are known of two classes, and of values, only.")
        moved = self._checked_offset(offset, len(h))
        low, high = self._interval(self._check_features(X, fitting=False), level, 0.0 if moved is None else moved)
        low, high = np.minimum(low, h), np.maximum(high, h)
        return np.clip([low, high], 0.0, 1.0) if isinstance(self, BagClassifier) else np.stack([low, high])


def jackknife_interval(fits: Floats, whole: Floats, level: float, freedom: int = 1) -> Floats:
    """(2, n) about what all bags say, `whole` (n,).  fits: (F, n) without each of the folds.

    freedom: bags beyond the number of weights; without any, nothing is known.

    >>> jackknife_interval(np.array([[1.0], [3.0]]), np.array([2.0]), 0.5).round(6)
    array([[1.],
           [3.]])
    """
    folds = len(fits)
    error = np.sqrt((folds - 1) / folds * ((fits - fits.mean(axis=0)) ** 2).sum(axis=0))
    return ends_of(whole, error, folds - 1 if freedom > 0 else 0, level)


def ends_of(value: Floats, error: Floats, freedom: int, level: float) -> Floats:
    """(2, n) ends of Student's intervals; infinite without degrees of freedom."""
    if freedom <= 0:
        return np.stack([np.full(len(value), -np.inf), np.full(len(value), np.inf)])
    far = float(special.stdtrit(freedom, (1 + level) / 2))
    return np.stack([value - far * error, value + far * error])
