"""Published data sets with individual labels, as rows to learn from and rows to measure on.

Tables: Adult, Criteo's sample, HIGGS, scikit-learn's digits. Images, in their official formats: MNIST and CIFAR-10.
"""

import gzip
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bagwise.data.features import Encoding, FeatureCodes
from bagwise.datasets.files import file, held, mirror
from bagwise.utils.parameters import NONE, Constraint, check_parameters, whole
from bagwise.utils.typing import Integers, NDArray

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
_MNIST_ROWS = 60_000
_BATCHES, _BATCH = 5, 10_000  # files of CIFAR-10's training images, and images in each
_MACHINES = (0, 1, 8, 9)  # airplane, automobile, ship, truck; the others are animals
_RECORD = np.dtype([("category", np.uint8), ("image", np.uint8, (3, 32, 32))])


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to learn from and rows to measure on. Labels are individual: bags are made from them, see `aggregate`.

    Attributes
    ----------
    X, X_test : table or array
        Features.
    y, y_test : (n,) array
        Labels 0 and 1.
    """

    X: Any
    y: Integers
    X_test: Any
    y_test: Integers


def check_rows(rows: int | None, most: int) -> int:
    """How many training rows are wanted: `rows`, or all of them where it is None.

    >>> check_rows(None, 60_000), check_rows(100, 60_000)
    (60000, 100)
    """
    words = f"a whole number from 1 to {most}, the number of training rows"
    some = Constraint(words, lambda value: whole(1).holds(value) and value <= most)
    check_parameters({"rows": rows}, {"rows": some | NONE})
    return most if rows is None else int(rows)


def encode(split: Split, *, max_levels: int | None = None) -> Split:
    """The tables as float32 matrices: numbers scaled to [0, 1], a column per level of a category.

    Parameters
    ----------
    split : Split
        Of tables. Ranges and levels are those of the training rows.
    max_levels : int, optional
        Levels of a category that get a column, the most frequent ones; all if not given.

    Returns
    -------
    Split
        Of matrices.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> table = pd.DataFrame({"age": [20.0, 60.0], "job": ["cook", "pilot"]})
    >>> other = pd.DataFrame({"age": [40.0, np.nan], "job": ["judge", "cook"]})
    >>> encode(Split(table, np.array([0, 1]), other, np.array([1, 0]))).X_test
    array([[0.5, 0. , 0. ],
           [0.5, 1. , 0. ]], dtype=float32)
    """
    codes = FeatureCodes.of(split.X)
    X = codes.matrix(split.X)
    encoding = Encoding.of(X, categorical=codes.categorical, max_levels=max_levels)
    return Split(encoding(X), split.y, encoding(codes.matrix(split.X_test)), split.y_test)


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


# -- images --------------------------------------------------------------------------------------------------------


def mnist(*, rows: int | None = None, scaled: bool = True) -> Split:
    """Handwritten digits, label 1 for an odd one: 60,000 to learn from, 10,000 to measure on.

    The images have the shape (n, 1, 28, 28).

    Parameters
    ----------
    rows : int, optional
        The first so many training images; all if not given.
    scaled : bool
        To [0, 1]; otherwise the numbers 0 to 255 as published (the paper mentions no scaling).

    Returns
    -------
    Split
    """
    check_rows(rows, _MNIST_ROWS)
    return Split(*_read_mnist("train", rows, scaled), *_read_mnist("t10k", None, scaled))


def cifar10(*, rows: int | None = None, scaled: bool = True) -> Split:
    """Photographs, label 1 for a machine and 0 for an animal: 50,000 to learn from, 10,000 to measure on.

    The images have the shape (n, 3, 32, 32). They come in five files of 10,000, of which only those are needed that
    hold the first `rows` images.

    Parameters
    ----------
    rows, scaled
        As for `mnist`.

    Returns
    -------
    Split
    """
    n = check_rows(rows, _BATCHES * _BATCH)
    names = [f"cifar10/data_batch_{number}.bin" for number in range(1, math.ceil(n / _BATCH) + 1)]
    there = next((number for number, name in enumerate(names) if not held(name)), 0)
    if mirror() is not None and there > 0:  # before anything is read
        raise FileNotFoundError(
            f"BAGWISE_DATA has no file {names[there]}: put it there, or ask for the first images with "
            f"rows={there * _BATCH} or less."
        )
    X_test, y_test = _read_batches(["cifar10/test_batch.bin"], _BATCH, scaled)
    return Split(*_read_batches(names, n, scaled), X_test, y_test)


def _read_mnist(part: str, rows: int | None, scaled: bool) -> tuple[NDArray[np.float32], Integers]:
    images, digits = (_idx(f"{part}-{name}-ubyte.gz", rows) for name in ("images-idx3", "labels-idx1"))
    return _numbers(images[:, None], scaled), (digits % 2).astype(int)


def _idx(name: str, rows: int | None) -> NDArray[np.uint8]:
    """The first `rows` items of a file in the IDX format: a header that ends with the shape, then the bytes."""
    with gzip.open(file(f"mnist/{name}")) as stream:
        axes = stream.read(4)[3]
        length, *shape = np.frombuffer(stream.read(4 * axes), ">i4").tolist()
        n = length if rows is None else rows
        return np.frombuffer(stream.read(n * math.prod(shape)), np.uint8).reshape(n, *shape)


def _read_batches(names: list[str], n: int, scaled: bool) -> tuple[NDArray[np.float32], Integers]:
    """The first n images in files of CIFAR-10's binary version, and their labels."""
    X, y = np.empty((n, *_RECORD["image"].shape), np.float32), np.empty(n, int)
    for number, name in enumerate(names):
        part = slice(number * _BATCH, (number + 1) * _BATCH)
        records = np.fromfile(file(name), _RECORD, count=len(y[part]))
        _numbers(records["image"], scaled, out=X[part])
        y[part] = np.isin(records["category"], _MACHINES)
    return X, y


def _numbers(pixels: NDArray[np.uint8], scaled: bool, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    return np.divide(pixels, np.float32(255 if scaled else 1), out=out, dtype=np.float32)
