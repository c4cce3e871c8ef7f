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

_LEAST = 1e-12  # of probabilities whose log odds are looked at


class TellsIntervals(BagEstimator):
    """An estimator whose predictions have intervals."""

    @abstractmethod
    def _interval(self, X: Floats, level: float, offset: Floats | float) -> Floats:
        """(2, n) lower and upper ends; (2, n, classes) of several."""

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
        array, shape (2, n) or (2, n, classes)
            Lower and upper ends; of several classes, those of each, one by one.
        """
        check_parameters({"level": level}, {"level": LEVEL})
        X = as_dense(X, "an interval")
        h = self._checked_predict(X, offset)
        if isinstance(self, BagClassifier) and h.ndim == 2:
            h = self.predict_proba(X, offset=offset)  # which add up to 1
        moved = self._checked_offset(offset, len(h))
        low, high = self._interval(self._check_features(X, fitting=False), level, 0.0 if moved is None else moved)
        low, high = np.minimum(low, h), np.maximum(high, h)
        return np.clip([low, high], 0.0, 1.0) if isinstance(self, BagClassifier) else np.stack([low, high])


def jackknife_interval(fits: Floats, whole: Floats, level: float, freedom: int = 1) -> Floats:
    """(2, …) about what all bags say, `whole` (…).  fits: (F, …) without each of the folds.

    freedom: bags beyond the number of weights; without any, nothing is known.

    >>> jackknife_interval(np.array([[1.0], [3.0]]), np.array([2.0]), 0.5).round(6)
    array([[1.],
           [3.]])
    """
    folds = len(fits)
    error = np.sqrt((folds - 1) / folds * ((fits - fits.mean(axis=0)) ** 2).sum(axis=0))
    return ends_of(whole, error, folds - 1 if freedom > 0 else 0, level)


def interval_of_classes(fits: Floats, whole: Floats, level: float) -> Floats:
    """(2, n, classes) of probabilities (n, classes): the jackknife on log odds of each class against all others.

    fits: (F, n, classes) without each of the folds.

    >>> interval_of_classes(np.array([[[0.4, 0.6]], [[0.6, 0.4]]]), np.array([[0.5, 0.5]]), 0.5).round(2)
    array([[[0.4, 0.4]],
    <BLANKLINE>
           [[0.6, 0.6]]])
    """
    one, other = (special.logit(np.clip(h, _LEAST, 1 - _LEAST)) for h in (fits, whole))
    return np.asarray(special.expit(jackknife_interval(one, other, level)))


def ends_of(value: Floats, error: Floats, freedom: int, level: float) -> Floats:
    """(2, …) ends of Student's intervals; infinite without degrees of freedom."""
    if freedom <= 0:
        return np.stack([np.full(value.shape, -np.inf), np.full(value.shape, np.inf)])
    far = float(special.stdtrit(freedom, (1 + level) / 2))
    return np.stack([value - far * error, value + far * error])
