"""Tables with individual labels: Adult, Criteo's sample, scikit-learn's digits."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bagwise.datasets.files import file, held
from bagwise.datasets.samples import check_numbers, labels, parquet, tab_separated
from bagwise.datasets.split import Split, encode

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
_CRITEO, _CRITEO_SAMPLE = "criteo/dac_sample.txt", "criteo/criteo-80k.parquet"
_CRITEO_ROWS, _CRITEO_TEST = 80_000, 16_000
_COUNTS = [f"I{number}" for number in range(1, 14)]
_CATEGORIES = [f"C{number}" for number in range(1, 27)]


def adult(*, encoded: bool = False) -> Split:
    """Census rows, label 1 for an income over 50K: 32,561 to learn from, 16,281 to measure on, as published.

    encoded: the paper's preprocessing (see `encode`), 108 columns; otherwise a table with 8 categorical columns, in
        which "?" is a level of its own.
    """
    train, test = _read_adult("adult/adult.data", skip=0), _read_adult("adult/adult.test", skip=1)
    y, y_test = (table.pop("income").str.startswith(">50K").to_numpy().astype(int) for table in (train, test))
    split = Split(train, y, test, y_test)
    return encode(split) if encoded else split


def criteo(*, encoded: bool = False) -> Split:
    """80,000 rows of Criteo's display-advertising sample, label 1 for a click; the last 16,000 in time are for testing.

    The sample has no lasting address: the folder `BAGWISE_DATA` must hold criteo/dac_sample.txt as Criteo gives it out,
    whose first 80,000 rows are taken, or a table with the same columns as criteo/criteo-80k.parquet.

    encoded: counts as logarithms, the 30 most frequent levels of each category; otherwise a table with 13 counts,
        some missing, and 26 categorical columns, in which a missing category is a level of its own.
    """
    table = _read_criteo()
    y = table.pop("label").to_numpy()
    if encoded:
        counts = table[_COUNTS]
        table[_COUNTS] = np.sign(counts) * np.log1p(counts.abs())
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


def _read_adult(name: str, *, skip: int) -> pd.DataFrame:
    """skip: lines of comment before the first row."""
    return pd.read_csv(file(name), names=_ADULT, skipinitialspace=True, skiprows=skip)


def _read_criteo() -> pd.DataFrame:
    """Labels, counts as decimals, categories."""
    columns = ["label", *_COUNTS, *_CATEGORIES]
    if held(_CRITEO):
        name = _CRITEO
        table = tab_separated(name, columns=columns, text=_CATEGORIES, rows=_CRITEO_ROWS)
        table = table.fillna(dict.fromkeys(_CATEGORIES, ""))
    elif held(_CRITEO_SAMPLE):
        name = _CRITEO_SAMPLE
        table = parquet(name, required=columns)[columns]
    else:
        raise FileNotFoundError(
            f"Criteo's sample has no lasting address: set BAGWISE_DATA to a folder that holds {_CRITEO} as Criteo "
            f"gives it out, or {_CRITEO_SAMPLE}."
        )
    check_numbers(table, _COUNTS, name)
    if len(table) <= _CRITEO_TEST:
        raise ValueError(f"{name} in BAGWISE_DATA has {len(table)} rows: more than {_CRITEO_TEST} are needed to test.")
    table["label"] = labels(table, name)
    return table.astype(dict.fromkeys(_COUNTS, float) | dict.fromkeys(_CATEGORIES, "category"))
