"""Training and test rows with individual labels, and tables turned into numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise.data.features import Encoding, FeatureCodes
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Integers


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to learn from and rows to measure on. Labels are individual: bags are made from them, see `aggregate`.

    X, X_test: tables or matrices.  y, y_test: (n,) labels 0 and 1.
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
    if rows is None:
        return most
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)):
        raise ParameterError("rows", f"must be a whole number, or None for all training rows, got {rows!r}.")
    if not 1 <= rows <= most:
        raise ParameterError("rows", f"must lie between 1 and {most}, the number of training rows, got {rows}.")
    return int(rows)


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
