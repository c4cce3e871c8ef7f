"""Features that must be finite numbers, and linear predictions from them."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import ArrayLike, Booleans, Floats


class NumericFeatures:
    """Features that must be finite numbers."""

    def _check_features(self, X: Any, *, fitting: bool) -> Floats:
        if not fitting:
            check_is_fitted(self)
        _check_numbers(X)
        # NaN and infinity are found, and named, in what is computed from X: no pass over X for that.
        options = {"dtype": (np.float64, np.float32), "ensure_all_finite": False}
        return np.asarray(validate_data(self, X, reset=fitting, ensure_min_samples=2 if fitting else 1, **options))


class LinearPredictor(NumericFeatures):
    """h = w·x + b. coef_: (features,), or (classes, features).  intercept_: a number, or (classes,).

    feature_means_: (features,) the mean row that was fitted to, which explanations begin at.
    """

    coef_: Floats
    intercept_: Floats | float
    feature_means_: Floats

    def _keep(self, coef: Floats, intercept: Floats, *, classes: bool) -> None:
        """coef: (outputs, features).  intercept: (outputs,).  Without classes there is one output."""
        self.coef_ = coef if classes else coef[0]
        self.intercept_ = intercept if classes else float(intercept[0])

    def _predict_mean(self, X: Floats) -> Floats:
        return X @ self.coef_.T + self.intercept_

    def used_features(self) -> Booleans | None:
        """Whether each feature has a weight other than 0."""
        return np.asarray(np.atleast_2d(self.coef_ != 0).any(axis=0))


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


AS_NUMBERS = "turn them into numbers first, for example hours or days."


def check_no_dates(values: Any, what: str) -> None:
    """Raise where an array holds dates or times, which NumPy would take for numbers in silence."""
    kind = getattr(getattr(values, "dtype", None), "kind", "f")
    dates = (date, timedelta, np.datetime64, np.timedelta64)
    if kind in "mM" or (kind == "O" and any(isinstance(value, dates) for value in np.asarray(values).flat)):
        raise ParameterError(what, f"holds dates or times: {AS_NUMBERS}")


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
