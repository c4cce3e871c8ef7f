"""Training and test rows with individual labels, and tables turned into numbers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.features import Encoding, FeatureCodes


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
    """The tables as float32 matrices, by what the training table shows (see `features.Encoding`).

    >>> import pandas as pd
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
