"""Checks that what cannot be learned from is refused with a clear sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags

from bagwise.bags import Bags
from bagwise.checks.common import fitted, name, refuses, refuses_fit, table_for


def check_infinite_features(estimator: Any) -> None:
    """Infinite features are refused by `fit` and `predict`; so is NaN, unless the tag allow_nan is set."""
    table = table_for(estimator)
    model = fitted(estimator, table.X, table.proportion, bags=table.ids)
    for value in (np.nan, -np.inf):
        X = table.X.copy()
        X[7, 1] = value
        if np.isnan(value) and get_tags(estimator).input_tags.allow_nan:
            fitted(
                estimator, X, table.proportion, bags=table.ids, on="features with NaN, which the tags allow"
            ).predict(X)
            continue
        refuses_fit(estimator, f"a feature that is {value}", X, table.proportion, bags=table.ids)
        refuses(estimator, f"predict on a feature that is {value}", lambda X=X: model.predict(X))  # type: ignore[misc]


def check_two_proportions_in_a_bag(estimator: Any) -> None:
    """A bag whose rows carry two proportions is refused, by name."""
    table = table_for(estimator)
    proportion = table.proportion.copy()
    proportion[np.flatnonzero(table.ids == 13)[1]] += 0.1
    refuses_fit(estimator, "two proportions in bag 13", table.X, proportion, bags=table.ids, naming="13")


def check_missing_proportion(estimator: Any) -> None:
    """A bag that reports NaN is refused, by name."""
    table = table_for(estimator)
    proportion = np.where(table.ids == 13, np.nan, table.proportion)
    refuses_fit(estimator, "a bag 13 that reports NaN", table.X, proportion, bags=table.ids, naming="13")


def check_one_bag_only(estimator: Any) -> None:
    """One bag is not enough, and none is not either."""
    table = table_for(estimator)
    half, n = np.full(len(table.X), 0.5), len(table.X)
    refuses_fit(estimator, "one bag", table.X, half, bags=np.zeros(n, dtype=int))
    refuses_fit(estimator, "rows that are all in no bag", table.X, half, bags=np.full(n, -1))


def check_lengths(estimator: Any) -> None:
    """X, y and bags of different lengths are refused, with the numbers."""
    table = table_for(estimator)
    X, y, ids = table.X, table.proportion, table.ids
    refuses_fit(estimator, "600 rows with 599 proportions", X, y[:-1], bags=ids, naming="599")
    refuses_fit(estimator, "600 rows with 599 bag ids", X, y, bags=ids[:-1], naming="599")
    refuses_fit(estimator, "a Bags of another table", X, bags=Bags.from_rows([0.0, 1.0], [0, 1]), naming="600")


def check_empty_table(estimator: Any) -> None:
    """A table without rows is refused."""
    table = table_for(estimator)
    refuses_fit(estimator, "an empty table", table.X[:0], table.proportion[:0], bags=table.ids[:0])


def check_not_fitted(estimator: Any) -> None:
    """Predicting before `fit` is a NotFittedError."""
    X = table_for(estimator).X
    refuses(estimator, "predict before fit", lambda: clone(estimator).predict(X), kind=NotFittedError)


def check_proportions_outside_0_1(estimator: Any) -> None:
    """Counts in the place of proportions, without declared noise, are refused."""
    table = table_for(estimator)
    refuses_fit(estimator, "proportions outside [0, 1]", table.X, 10 * table.proportion, bags=table.ids)


def check_one_class_only(estimator: Any) -> None:
    """Bags that report one class only are refused."""
    table = table_for(estimator)
    for value in (0.0, 1.0):
        reports = np.full(len(table.X), value)
        refuses_fit(estimator, f"bags that all report {value:g}", table.X, reports, bags=table.ids)


def check_one_real_label(estimator: Any) -> None:
    """Real labels may be any numbers, but one per row."""
    table = table_for(estimator)
    model = fitted(estimator, table.X, 100 * table.proportion - 50, bags=table.ids, on="large and negative means")
    if not np.isfinite(model.predict(table.X)).all():
        raise AssertionError(f"{name(estimator)}: predictions of large labels are not finite.")
    two = np.stack([table.proportion, table.proportion], axis=1)
    refuses_fit(estimator, "a y of two columns", table.X, two, bags=table.ids)
