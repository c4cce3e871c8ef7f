"""Checks of how rows are grouped in bags."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.checks.common import fitted, learns_little, name, outputs, same, signal, table_for


def check_order_of_rows(estimator: Any) -> None:
    """Rows in another order give the same model."""
    table = table_for(estimator)
    shuffle = np.random.default_rng(1).permutation(len(table.X))
    first = fitted(estimator, table.X, table.proportion, bags=table.ids)
    second = fitted(estimator, table.X[shuffle], table.proportion[shuffle], bags=table.ids[shuffle], on="shuffled rows")
    same(estimator, outputs(second, table.X), outputs(first, table.X), "when rows are shuffled")


def check_order_of_bags(estimator: Any) -> None:
    """Bags that follow each other in another order give the same model."""
    table = table_for(estimator)
    forward, backward = (np.argsort(sign * table.ids, kind="stable") for sign in (1, -1))
    first, second = (
        fitted(estimator, table.X[order], table.proportion[order], bags=table.ids[order], on="sorted bags")
        for order in (forward, backward)
    )
    same(estimator, outputs(second, table.X), outputs(first, table.X), "when bags are listed in another order")


def check_bags_of_unequal_size(estimator: Any) -> None:
    """Bags of 1 to 30 rows are learned from."""
    table = table_for(estimator, sizes=(1, 3, 9, 2, 30))
    model = fitted(estimator, table.X, table.proportion, bags=table.ids, on="bags of unequal size")
    h = outputs(model, table.X)
    h = h[:, -1] if h.ndim == 2 else h
    if not np.isfinite(h).all():
        raise AssertionError(f"{name(estimator)}: predictions are not finite when bags have unequal sizes.")
    if not learns_little(estimator) and not (h.std() > 0 and np.corrcoef(h, signal(table.X))[0, 1] > 0.5):
        raise AssertionError(f"{name(estimator)}: a plain signal is not learned when bags have unequal sizes.")


def check_ids_of_any_kind(estimator: Any) -> None:
    """Ids may be numbers, strings, tuples, a pandas column; or bags a `Bags`."""
    import pandas as pd

    table = table_for(estimator)
    expected = outputs(fitted(estimator, table.X, table.proportion, bags=table.ids), table.X)
    strings = np.array([f"{number:04d}" for number in table.ids])
    kinds = {
        "strings": strings,
        "a pandas column": pd.Series(strings, index=np.arange(len(strings))[::-1]),
        "floats": table.ids.astype(float),
        "tuples": [("bag", int(number)) for number in table.ids],
    }
    for kind, ids in kinds.items():
        model = fitted(estimator, table.X, table.proportion, bags=ids, on=f"ids that are {kind}")
        same(estimator, outputs(model, table.X), expected, f"when ids are {kind}")
    model = fitted(estimator, table.X, bags=Bags.from_rows(table.proportion, table.ids), on="a Bags, without y")
    same(estimator, outputs(model, table.X), expected, "when bags are a Bags")


def check_bags_of_one_row(estimator: Any) -> None:
    """Bags of one row each are ordinary supervision."""
    table = table_for(estimator)
    without = fitted(estimator, table.X, table.y, on="labels")
    with_bags = fitted(estimator, table.X, table.y, bags=np.arange(len(table.y)), on="bags of one row")
    same(estimator, outputs(with_bags, table.X), outputs(without, table.X), "when each row is given as its own bag")


def check_rows_in_no_bag(estimator: Any) -> None:
    """Rows whose id is −1, or None among strings, do not count, whatever they hold."""
    table = table_for(estimator)
    expected = outputs(fitted(estimator, table.X, table.proportion, bags=table.ids), table.X)
    X = np.vstack([10 * table.X[:50], table.X])
    y = np.r_[np.full(50, np.nan), table.proportion]
    strings: list[Any] = [f"{number:04d}" for number in table.ids]
    for missing, ids in (("−1", np.r_[np.full(50, -1), table.ids]), ("None", [None] * 50 + strings)):
        model = fitted(estimator, X, y, bags=ids, on="rows of which some are in no bag")
        same(estimator, outputs(model, table.X), expected, f"when there are rows in no bag (id {missing})")


def check_declared_noise(estimator: Any) -> None:
    """Where noise is declared, reports may be anything finite."""
    table = table_for(estimator)
    noised = Bags.from_rows(3 * table.proportion - 1, table.ids, noise_variance=5.0)
    model = fitted(estimator, table.X, bags=noised, on="bags with declared noise")
    if not np.isfinite(outputs(model, table.X)).all():
        raise AssertionError(f"{name(estimator)}: predictions are not finite after a fit on bags with declared noise.")
