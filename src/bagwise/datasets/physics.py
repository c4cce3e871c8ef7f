"""HIGGS: simulated collisions, of which some made a Higgs boson."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bagwise.datasets.files import file, held
from bagwise.datasets.samples import check_numbers, labels, parquet
from bagwise.datasets.split import Split, check_rows

_OFFICIAL, _SAMPLE = "higgs/HIGGS.csv.gz", "higgs/higgs-84k.parquet"
_ROWS, _TEST, _FEATURES = 11_000_000, 10_000, 28
_STRETCH = 50_000  # rows parsed at a time


def higgs(*, rows: int | None = None) -> Split:
    """Simulated collisions, label 1 where a Higgs boson was made: 28 numbers as published, nothing rescaled.

    The first 10,000 rows of the official file are to measure on, the 10,990,000 others to learn from.

    rows: the first so many training rows; None for all.

    The official file, HIGGS.csv.gz, has 2.8 GB: where it is downloaded, that takes twice as much room on the way, and
    all rows make 1.2 GB in memory. If the folder `BAGWISE_DATA` holds the sample higgs/higgs-84k.parquet instead, its
    74,056 training rows are all there are: those whose place in the official file is known, in that order, which is
    without gaps up to row 19,089; then the others.
    """
    n = check_rows(rows, _ROWS - _TEST)
    if held(_SAMPLE) and not held(_OFFICIAL):
        return _from_sample(rows)
    return _from_official(n)


def _from_official(rows: int) -> Split:
    """Read the test rows and `rows` more from the official file, and no further."""
    n = _TEST + rows
    X, y = np.empty((n, _FEATURES), np.float32), np.empty(n, int)
    with pd.read_csv(file(_OFFICIAL), header=None, dtype=np.float32, nrows=n, chunksize=_STRETCH) as table:
        done = 0
        for chunk in table:
            part = slice(done, done + len(chunk))
            y[part], X[part] = chunk[0], chunk.iloc[:, 1:]
            done = part.stop
    return Split(X[_TEST:], y[_TEST:], X[:_TEST], y[:_TEST])


def _from_sample(rows: int | None) -> Split:
    table = parquet(_SAMPLE, required=["label", "uci_row"])
    check_numbers(table, ["uci_row"], _SAMPLE)
    y, place = labels(table, _SAMPLE), table["uci_row"].to_numpy()
    X = _matrix(table.drop(columns=["label", "uci_row", "source"], errors="ignore"))
    test = np.flatnonzero((place >= 0) & (place < _TEST))
    test = test[np.argsort(place[test])]
    if not np.array_equal(place[test], np.arange(_TEST)):
        raise ValueError(f"{_SAMPLE} in BAGWISE_DATA must hold each of the first {_TEST} official rows once, to test.")
    known, unknown = np.flatnonzero(place >= _TEST), np.flatnonzero(place < 0)
    train = np.concatenate([known[np.argsort(place[known], kind="stable")], unknown])
    if rows is not None and rows > len(train):
        raise FileNotFoundError(
            f"BAGWISE_DATA has no file {_OFFICIAL}, and {_SAMPLE} holds {len(train)} training rows: put the official "
            f"file there, or ask for rows={len(train)} or less."
        )
    train = train[:rows]
    return Split(X[train], y[train], X[test], y[test])


def _matrix(features: pd.DataFrame) -> NDArray[np.float32]:
    numbers = features.select_dtypes("floating")
    if numbers.shape[1] != _FEATURES or features.shape[1] != _FEATURES:
        raise ValueError(
            f"{_SAMPLE} in BAGWISE_DATA has {features.shape[1]} columns of features, {numbers.shape[1]} of them with "
            f"decimals: it must have {_FEATURES}, and besides label and uci_row only source."
        )
    return numbers.to_numpy(np.float32)
