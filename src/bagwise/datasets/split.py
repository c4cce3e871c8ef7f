"""Training and test rows with individual labels, and tables turned into numbers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to learn from and rows to measure on. Labels are individual: bags are made from them, see `aggregate`.

    X, X_test: tables or matrices.  y, y_test: (n,) labels 0 and 1.
    """

    X: Any
    y: NDArray[np.integer]
    X_test: Any
    y_test: NDArray[np.integer]


def file(name: str) -> Path:
    """The file `name` of the folder that `BAGWISE_DATA` points at."""
    folder = os.environ.get("BAGWISE_DATA")
    if not folder:
        raise FileNotFoundError(f"set BAGWISE_DATA to the folder that holds {name}.")
    path = Path(folder) / name
    if not path.is_file():
        raise FileNotFoundError(f"BAGWISE_DATA has no file {name}: put it there, or point BAGWISE_DATA elsewhere.")
    return path


def encode(split: Split, *, max_levels: int | None = None) -> Split:
    """Numbers scaled to [0, 1] by least and greatest training value, categories as one column per training level.

    A number that may be missing gets a column that says so, and 0 in its place. With `max_levels`, the most frequent
    levels of a category get columns and the others none. Both matrices are float32.

    >>> table = pd.DataFrame({"age": [20.0, 60.0], "job": ["cook", "pilot"]})
    >>> other = pd.DataFrame({"age": [40.0, np.nan], "job": ["judge", "cook"]})
    >>> encode(Split(table, np.array([0, 1]), other, np.array([1, 0]))).X_test
    array([[0.5, 0. , 0. ],
           [0. , 1. , 0. ]], dtype=float32)
    """
    train: list[NDArray[np.float32]] = []
    test: list[NDArray[np.float32]] = []
    for name in split.X.columns:
        pair = split.X[name], split.X_test[name]
        columns = _scaled if pd.api.types.is_numeric_dtype(pair[0].dtype) else _levels
        for blocks, block in zip((train, test), columns(*pair, max_levels), strict=True):
            blocks.append(block)
    return Split(np.hstack(train), split.y, np.hstack(test), split.y_test)


def _scaled(train: pd.Series, test: pd.Series, _: int | None) -> list[NDArray[np.float32]]:
    low, high = float(train.min()), float(train.max())
    missing = bool(train.isna().any())
    blocks = []
    for column in (train, test):
        scaled = (column.to_numpy(dtype=float, na_value=np.nan) - low) / ((high - low) or 1.0)
        gaps = np.isnan(scaled)
        columns = [np.where(gaps, 0.0, scaled), *([gaps] if missing else [])]
        blocks.append(np.stack(columns, axis=1).astype(np.float32))
    return blocks


def _levels(train: pd.Series, test: pd.Series, max_levels: int | None) -> list[NDArray[np.float32]]:
    levels = sorted(train.value_counts().index[:max_levels])
    return [np.equal.outer(column.to_numpy(dtype=object), levels).astype(np.float32) for column in (train, test)]
