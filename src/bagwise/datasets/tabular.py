"""Tables with individual labels: Adult, Criteo's sample, scikit-learn's digits."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bagwise.datasets.split import Split, encode, file

_ADULT = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]
_CRITEO_TEST = 16_000


def adult(*, encoded: bool = False) -> Split:
    """Census rows, label 1 for an income over 50K: 32,561 to learn from, 16,281 to measure on, as published.

    encoded: the paper's preprocessing (see `encode`), 108 columns; otherwise a table with 8 categorical columns, in
        which "?" is a level of its own.
    """

    def read(name: str, skip: int) -> pd.DataFrame:
        return pd.read_csv(file(name), names=_ADULT, skipinitialspace=True, skiprows=skip)

    train, test = read("adult/adult.data", 0), read("adult/adult.test", 1)

    def labels(table: pd.DataFrame) -> np.ndarray:
        return table.pop("income").str.startswith(">50K").to_numpy().astype(int)

    y, y_test = labels(train), labels(test)
    split = Split(train, y, test, y_test)
    return encode(split) if encoded else split


def criteo(*, encoded: bool = False) -> Split:
    """80,000 rows of Criteo's display-advertising sample, label 1 for a click; the last 16,000 in time are for testing.

    encoded: counts as logarithms, the 30 most frequent levels of each category; otherwise a table with 13 counts,
        some missing, and 26 categorical columns.
    """
    table = pd.read_parquet(file("criteo/criteo-80k.parquet")).drop(columns="row")
    y = table.pop("label").to_numpy().astype(int)
    counts = [name for name in table if name.startswith("I")]
    table[counts] = table[counts].astype(float)
    table = table.astype({name: "category" for name in table if name.startswith("C")})
    if encoded:
        table[counts] = np.sign(table[counts]) * np.log1p(table[counts].abs())
    last = len(table) - _CRITEO_TEST
    split = Split(table[:last], y[:last], table[last:].reset_index(drop=True), y[last:])
    return encode(split, max_levels=30) if encoded else split


def digits() -> Split:
    """scikit-learn's 1,797 images of 8 × 8 points, label 1 for an odd digit, scaled to [0, 1]; the last 597 to test.

    >>> digits().X.shape
    (1200, 64)
    """
    from sklearn.datasets import load_digits

    X, digit = load_digits(return_X_y=True)
    X, y = (X / 16).astype(np.float32), digit % 2
    return Split(X[:1200], y[:1200], X[1200:], y[1200:])
