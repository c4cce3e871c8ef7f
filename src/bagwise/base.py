"""What all estimators share: reading (X, y, bags), naming classes, turning h into predictions.

An estimator states three things, how it reads features (`_check_features`), how it fits bags (`_fit_bags`) and what it
predicts (`_predict_mean`); everything a user calls is written here once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise.bags import Bags, as_bags
from bagwise.utils.typing import Floats


class BagEstimator(ABC, BaseEstimator):
    """An estimator that learns from bags."""

    # In a search or a pipeline of scikit-learn, bags reach `fit` without being asked for once more.
    __metadata_request__fit = {"bags": True}  # noqa: RUF012

    @abstractmethod
    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        """Learn from rows in table order and their bags; what is learned goes into attributes ending in _."""

    @abstractmethod
    def _predict_mean(self, X: Floats) -> Floats:
        """The predictions h, (n,) or (n, classes), not clipped."""

    @abstractmethod
    def _check_features(self, X: Any, *, fitting: bool) -> Floats:
        """X as the numbers the model reads, checked; in `fit`, what is to be remembered of X is remembered."""

    def _checked_predict(self, X: Any) -> Floats:
        X = self._check_features(X, fitting=False)
        h = self._predict_mean(X)
        check_finite_features(h, X, getattr(self, "feature_names_in_", None))
        return h


class NumericFeatures:
    """Features that must be finite numbers."""

    def _check_features(self, X: Any, *, fitting: bool) -> Floats:
        if not fitting:
            check_is_fitted(self)
        _check_numbers(X)
        # NaN and infinity are found, and named, in what is computed from X: no pass over X for that.
        options: dict[str, Any] = {"ensure_min_samples": 2} if fitting else {}
        return validate_data(self, X, dtype=(np.float64, np.float32), reset=fitting, ensure_all_finite=False, **options)


class BagClassifier(ClassifierMixin, BagEstimator):
    """A classifier that learns from bags: classes 0 and 1, or one class per column of proportions."""

    classes_: NDArray[Any]

    def fit(self, X: Any, y: ArrayLike | None = None, *, bags: ArrayLike | Bags | None = None) -> Self:
        """Learn from bags.

        X: (n, features).
        y: (n,) each row's bag proportion, or (n, classes); constant in a bag (see `bagwise.aggregate`). Without
            `bags`, individual labels of any kind. Not needed where `bags` is a `Bags`.
        bags: (n,) bag ids, −1 for rows in no bag; a `Bags`; or None, every row its own bag.
        """
        X = self._check_features(X, fitting=True)
        if bags is None:
            indicators, self.classes_ = _encode_classes(y, len(X))
            given = Bags.singletons(indicators)
        else:
            given = as_bags(y, bags, len(X))
            self.classes_ = np.arange(2 if given.proportion.ndim == 1 else given.proportion.shape[1])
        given.check_proportions()
        check_enough(given)
        _check_two_classes(given)
        self._fit_bags(X, given)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """(n, classes) probabilities: h kept in [0, 1], rows summing to 1."""
        h = np.clip(self._checked_predict(X), 0, 1)
        if h.ndim == 1:
            return np.stack([1 - h, h], axis=1)
        total = h.sum(axis=1, keepdims=True)
        return np.where(total > 0, h / np.where(total > 0, total, 1), 1 / h.shape[1])

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) the most probable class of each row."""
        h = self._checked_predict(X)
        return self.classes_[(h > 0.5).astype(int) if h.ndim == 1 else h.argmax(axis=1)]


class BagRegressor(RegressorMixin, BagEstimator):
    """A regressor that learns from bags of real labels."""

    def fit(self, X: Any, y: ArrayLike | None = None, *, bags: ArrayLike | Bags | None = None) -> Self:
        """Learn from bags.

        X: (n, features).
        y: (n,) each row's bag mean, constant in a bag; without `bags`, individual labels. Not needed where `bags` is a
            `Bags`.
        bags: (n,) bag ids, −1 for rows in no bag; a `Bags`; or None, every row its own bag.
        """
        X = self._check_features(X, fitting=True)
        if not isinstance(bags, Bags):
            y = column_or_1d(_required(y), warn=True)
        given = as_bags(y, bags, len(X))
        if given.proportion.ndim != 1:
            raise ValueError("a regressor learns one real label: the bags must report one mean each.")
        check_enough(given)
        self._fit_bags(X, given)
        return self

    def predict(self, X: Any) -> Floats:
        """(n,) the predictions h."""
        return self._checked_predict(X)


def check_enough(bags: Bags) -> None:
    """Raise where there is one bag only."""
    if len(bags) < 2:
        raise ValueError("there is one bag only: at least 2 are needed to learn or measure anything.")


def check_finite_features(values: Floats, X: Floats, names: ArrayLike | None = None) -> None:
    """Raise and name the column where X is NaN or infinite, or so large that `values`, computed from it, overflowed.

    `values` are looked at first: they are finite only if X is, and are smaller.
    """
    if np.isfinite(values).all():
        return
    bad = ~np.isfinite(X)
    column = int(np.argmax(bad.any(axis=0))) if bad.any() else int(np.argmax(np.abs(X).max(axis=0)))
    name = f"column {column}" if names is None else f"column {np.asarray(names)[column]!r}"
    if not bad.any():
        raise ValueError(f"{name} of X holds numbers too large to add up: divide it by a constant first.")
    row = int(np.argmax(bad[:, column]))
    raise ValueError(f"{name} of X contains NaN or infinity (first in row {row}): fill or remove such values first.")


def _check_numbers(X: Any) -> None:
    """Raise and name the column of a pandas or polars table that does not hold numbers."""
    if hasattr(X, "select_dtypes"):
        others = list(X.select_dtypes(exclude=["number", "bool"]).columns)
    elif hasattr(X, "collect_schema"):
        others = [name for name, kind in X.collect_schema().items() if not kind.is_numeric() and str(kind) != "Boolean"]
    else:
        return
    if others:
        raise ValueError(
            f"column {others[0]!r} of X holds no numbers ({len(others)} such columns): encode categories and dates "
            "first, for example with pandas.get_dummies or scikit-learn's OneHotEncoder."
        )


def _required(y: Any) -> Any:
    if y is None:
        raise ValueError(
            "fit requires y to be passed, but the target y is None: pass labels, or proportions with bags."
        )
    return y


def _encode_classes(y: Any, n: int) -> tuple[Floats, NDArray[Any]]:
    """Individual labels of any kind as indicators: (n,) for two classes, (n, classes) for more."""
    y = column_or_1d(_required(y), warn=True)
    if len(y) != n:
        raise ValueError(f"X has {n} rows but y has {len(y)}.")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(f"y contains NaN or infinity (first in row {int(np.argmin(np.isfinite(y)))}).")
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) <= 2:
        return codes.astype(float), classes
    return (codes[:, None] == np.arange(len(classes))).astype(float), classes


def _check_two_classes(bags: Bags) -> None:
    if bags.proportion.ndim == 1 and bags.noise_variance is None and np.ptp(bags.proportion) == 0:
        value = bags.proportion[0]
        if value in (0, 1):
            raise ValueError(
                f"y holds one class only (every bag reports proportion {value:g}): a classifier needs 2 classes."
            )
