"""Tables with individual labels: Adult, Criteo's sample, HIGGS, scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bagwise.datasets.files import file, held
from bagwise.datasets.split import Split, check_rows, encode
from bagwise.utils.typing import Integers

_ADULT = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
]  # fmt: skip
_CRITEO, _CRITEO_SAMPLE = "criteo/dac_sample.txt", "criteo/criteo-80k.parquet"
_CRITEO_ROWS, _CRITEO_TEST = 80_000, 16_000
_COUNTS = [f"I{number}" for number in range(1, 14)]
_CATEGORIES = [f"C{number}" for number in range(1, 27)]
_HIGGS, _HIGGS_SAMPLE = "higgs/HIGGS.csv.gz", "higgs/higgs-84k.parquet"
_HIGGS_ROWS, _HIGGS_TEST, _HIGGS_FEATURES = 11_000_000, 10_000, 28
_CHUNK_ROWS = 50_000  # parsed at a time


def adult(*, encoded: bool = False) -> Split:
    """Census rows, label 1 for an income over 50K: 32,561 to learn from, 16,281 to measure on, as published.

    Parameters
    ----------
    encoded : bool
        The paper's preprocessing (see `encode`), 108 columns; otherwise a table with 8 categorical columns, in which
        "?" is a level of its own.

    Returns
    -------
    Split
    """
    train, test = (
        pd.read_csv(file(name), names=_ADULT, skipinitialspace=True, skiprows=comments)
        for name, comments in (("adult/adult.data", 0), ("adult/adult.test", 1))
    )
    y, y_test = (table.pop("income").str.startswith(">50K").to_numpy().astype(int) for table in (train, test))
    split = Split(train, y, test, y_test)
    return encode(split) if encoded else split


def criteo(*, encoded: bool = False) -> Split:
    """80,000 rows of Criteo's display-advertising sample, label 1 for a click; the last 16,000 in time are for testing.

    The sample has no lasting address: the folder `BAGWISE_DATA` must hold criteo/dac_sample.txt as Criteo gives it out,
    whose first 80,000 rows are taken, or a table with the same columns as criteo/criteo-80k.parquet.

    Parameters
    ----------
    encoded : bool
        Counts as logarithms, the 30 most frequent levels of each category; otherwise a table with 13 counts, some
        missing, and 26 categorical columns, in which a missing category is a level of its own.

    Returns
    -------
    Split
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

    Returns
    -------
    Split

    Examples
    --------
    >>> digits().X.shape
    (1200, 64)
    """
    from sklearn.datasets import load_digits

    X, digit = load_digits(return_X_y=True)
    X, y = (X / 16).astype(np.float32), digit % 2
    return Split(X[:1200], y[:1200], X[1200:], y[1200:])


def higgs(*, rows: int | None = None) -> Split:
    """Simulated collisions, label 1 where a Higgs boson was made: 28 numbers as published, nothing rescaled.

    The first 10,000 rows of the official file are to measure on, the 10,990,000 others to learn from. That file,
    HIGGS.csv.gz, has 2.8 GB: where it is downloaded, that takes twice as much room on the way, and all rows make 1.2 GB
    in memory. If the folder `BAGWISE_DATA` holds the sample higgs/higgs-84k.parquet instead, its 74,056 training rows
    are all there are: those whose place in the official file is known, in that order, which is without gaps up to row
    19,089; then the others.

    Parameters
    ----------
    rows : int, optional
        The first so many training rows; all if not given.

    Returns
    -------
    Split
    """
    n = check_rows(rows, _HIGGS_ROWS - _HIGGS_TEST)
    return _read_higgs_sample(rows) if held(_HIGGS_SAMPLE) and not held(_HIGGS) else _read_higgs(n)


def _read_criteo() -> pd.DataFrame:
    """Labels, counts as decimals, categories."""
    columns = ["label", *_COUNTS, *_CATEGORIES]
    if held(_CRITEO):
        name = _CRITEO
        text: dict[int, type] = {place: str for place, column in enumerate(columns) if column in _CATEGORIES}
        try:
            table = pd.read_csv(file(name), sep="\t", header=None, dtype=text, nrows=_CRITEO_ROWS)
        except ValueError as error:
            raise ValueError(f"{name} in BAGWISE_DATA cannot be read as a tab-separated file: replace it.") from error
        if table.shape[1] != len(columns):
            raise ValueError(f"{name} in BAGWISE_DATA has {table.shape[1]} columns, not {len(columns)}: replace it.")
        table = table.set_axis(columns, axis=1).fillna(dict.fromkeys(_CATEGORIES, ""))
    elif held(_CRITEO_SAMPLE):
        name = _CRITEO_SAMPLE
        table = _parquet(name, required=columns)[columns]
    else:
        raise FileNotFoundError(
            f"Criteo's sample has no lasting address: set BAGWISE_DATA to a folder that holds {_CRITEO} as Criteo "
            f"gives it out, or {_CRITEO_SAMPLE}."
        )
    _check_numbers(table, _COUNTS, name)
    if len(table) <= _CRITEO_TEST:
        raise ValueError(f"{name} in BAGWISE_DATA has {len(table)} rows: more than {_CRITEO_TEST} are needed to test.")
    table["label"] = _labels(table, name)
    return table.astype(dict.fromkeys(_COUNTS, float) | dict.fromkeys(_CATEGORIES, "category"))


def _read_higgs(rows: int) -> Split:
    """Read the test rows and `rows` more from the official file, and no further."""
    n = _HIGGS_TEST + rows
    X, y = np.empty((n, _HIGGS_FEATURES), np.float32), np.empty(n, int)
    with pd.read_csv(file(_HIGGS), header=None, dtype=np.float32, nrows=n, chunksize=_CHUNK_ROWS) as table:
        for chunk in table:
            y[chunk.index], X[chunk.index] = chunk[0], chunk.iloc[:, 1:]
    return Split(X[_HIGGS_TEST:], y[_HIGGS_TEST:], X[:_HIGGS_TEST], y[:_HIGGS_TEST])


def _read_higgs_sample(rows: int | None) -> Split:
    table = _parquet(_HIGGS_SAMPLE, required=["label", "uci_row"])
    _check_numbers(table, ["uci_row"], _HIGGS_SAMPLE)
    y, place = _labels(table, _HIGGS_SAMPLE), table["uci_row"].to_numpy()
    features = table.drop(columns=["label", "uci_row", "source"], errors="ignore")
    numbers = features.select_dtypes("floating")
    if numbers.shape[1] != _HIGGS_FEATURES or features.shape[1] != _HIGGS_FEATURES:
        raise ValueError(
            f"{_HIGGS_SAMPLE} in BAGWISE_DATA has {features.shape[1]} columns of features, {numbers.shape[1]} of them "
            f"with decimals: it must have {_HIGGS_FEATURES}, and besides label and uci_row only source."
        )
    X = np.asarray(numbers, dtype=np.float32)
    test = np.flatnonzero((place >= 0) & (place < _HIGGS_TEST))
    test = test[np.argsort(place[test])]
    if not np.array_equal(place[test], np.arange(_HIGGS_TEST)):
        raise ValueError(
            f"{_HIGGS_SAMPLE} in BAGWISE_DATA must hold each of the first {_HIGGS_TEST} official rows once, to test."
        )
    known, unknown = np.flatnonzero(place >= _HIGGS_TEST), np.flatnonzero(place < 0)
    train = np.concatenate([known[np.argsort(place[known], kind="stable")], unknown])
    if rows is not None and rows > len(train):
        raise FileNotFoundError(
            f"BAGWISE_DATA has no file {_HIGGS}, and {_HIGGS_SAMPLE} holds {len(train)} training rows: put the "
            f"official file there, or ask for rows={len(train)} or less."
        )
    return Split(X[train[:rows]], y[train[:rows]], X[test], y[test])


# -- files without an official checksum, which are judged by what they hold ---------------------------------------


def _parquet(name: str, *, required: Sequence[str]) -> pd.DataFrame:
    """The table of a Parquet file in the folder `BAGWISE_DATA`, which must have the required columns."""
    path = file(name)
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{name} in BAGWISE_DATA cannot be read as a Parquet file: replace it.") from error
    if missing := [column for column in required if column not in table]:
        raise ValueError(f"{name} in BAGWISE_DATA has no column {missing[0]!r}: it must have {', '.join(required)}.")
    return table


def _labels(table: pd.DataFrame, name: str) -> Integers:
    """The column `label`, which must hold 0 and 1 alone."""
    y = table["label"]
    if len(wrong := np.flatnonzero(~y.isin([0, 1]))):
        raise ValueError(f"{name} in BAGWISE_DATA has the label {y.iloc[wrong[0]]} in row {wrong[0]}, not 0 or 1.")
    return np.asarray(y, dtype=int)


def _check_numbers(table: pd.DataFrame, columns: Sequence[str], name: str) -> None:
    """Raise unless these columns hold numbers."""
    if others := [column for column in columns if not pd.api.types.is_numeric_dtype(table[column])]:
        raise ValueError(f"column {others[0]!r} of {name} in BAGWISE_DATA must hold numbers.")
