"""Samples of data sets, which have no official checksum: they are judged by what they hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bagwise.datasets.files import file
from bagwise.utils.typing import Integers


def parquet(name: str, *, required: Sequence[str]) -> pd.DataFrame:
    """The table of a Parquet file in the folder `BAGWISE_DATA`, which must have the required columns."""
    path = file(name)
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{name} in BAGWISE_DATA cannot be read as a Parquet file: replace it.") from error
    missing = [column for column in required if column not in table]
    if missing:
        raise ValueError(f"{name} in BAGWISE_DATA has no column {missing[0]!r}: it must have {', '.join(required)}.")
    return table


def tab_separated(name: str, *, columns: Sequence[str], text: Sequence[str], rows: int) -> pd.DataFrame:
    """The first rows of a file without names in the folder `BAGWISE_DATA`; `text` are the columns not of numbers."""
    places: dict[int, type] = {column: str for column, title in enumerate(columns) if title in text}
    try:
        table = pd.read_csv(file(name), sep="\t", header=None, dtype=places, nrows=rows)
    except ValueError as error:
        raise ValueError(f"{name} in BAGWISE_DATA cannot be read as a tab-separated file: replace it.") from error
    if table.shape[1] != len(columns):
        raise ValueError(f"{name} in BAGWISE_DATA has {table.shape[1]} columns, not {len(columns)}: replace it.")
    return table.set_axis(list(columns), axis=1)


def labels(table: pd.DataFrame, name: str) -> Integers:
    """The column `label`, which must hold 0 and 1 alone."""
    wrong = ~table["label"].isin([0, 1]).to_numpy()
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{name} in BAGWISE_DATA has the label {table['label'].iloc[row]} in row {row}, not 0 or 1.")
    return table["label"].to_numpy().astype(int)


def check_numbers(table: pd.DataFrame, columns: Sequence[str], name: str) -> None:
    """Raise unless these columns hold numbers."""
    others = [column for column in columns if not pd.api.types.is_numeric_dtype(table[column])]
    if others:
        raise ValueError(f"column {others[0]!r} of {name} in BAGWISE_DATA must hold numbers.")
