"""Training and test rows with individual labels, and tables turned into numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bagwise.data.features import Encoding, FeatureCodes
from bagwise.utils.parameters import NONE, Constraint, check_parameters, whole
from bagwise.utils.typing import Integers


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
