"""The classes that labels and reports are of: what they are called, and labels as the numbers that are learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from bagwise.bags import Bags, as_bags
from bagwise.data.features import as_frame, is_table
from bagwise.numeric import check_no_dates
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import ArrayLike, Floats, NDArray


def classes_of(proportion: Floats) -> NDArray[np.int64]:
    """The classes that proportions (m,) or (m, classes) are of: 0 and 1, or one per column."""
    return np.arange(2 if proportion.ndim == 1 else proportion.shape[1])


def prediction_columns(classes: NDArray[Any] | None) -> tuple[str, ...]:
    """What columns of predictions are called: one for two classes and for values, else one for each class.

    >>> prediction_columns(np.array(["a", "b", "c"]))
    ('prediction_a', 'prediction_b', 'prediction_c')
    """
    return ("prediction",) if classes is None or len(classes) <= 2 else tuple(f"prediction_{name}" for name in classes)


def read_reports(y: ArrayLike | None, bags: ArrayLike | Bags, n_rows: int) -> tuple[Bags, NDArray[Any]]:
    """Bags as `fit` was given them, and the classes that they report.

    Where y is a table with a column per class, classes are called what its columns are; of two, the bags then report
    the second.

    >>> import pandas as pd
    >>> y = pd.DataFrame({"no": [0.25, 0.25, 1.0], "yes": [0.75, 0.75, 0.0]})
    >>> bags, classes = read_reports(y, ["a", "a", "b"], 3)
    >>> bags.proportion, classes
    (array([0.75, 0.  ]), array(['no', 'yes'], dtype='<U3'))
    """
    names = None if isinstance(bags, Bags) or y is None else _names(y)
    given = as_bags(y, bags, n_rows)
    if names is None:
        return given, classes_of(given.proportion)
    given.check_proportions()
    return given.of_class(1) if len(names) == 2 else given, names


def _names(y: Any) -> NDArray[Any] | None:
    """Names of the classes, those of a table's columns; None where there are none."""
    frame = as_frame(y) if is_table(y) else y
    if not hasattr(frame, "columns") or len(frame.columns) < 2:
        return None
    names = list(frame.columns)
    try:
        ordered = sorted(set(names)) == names
    except TypeError:
        ordered = False
    if not ordered:  # scikit-learn's measures take the order of classes for that of their names
        said = f"has columns {names}: name each class once, and give them in the order of their names, y[sorted(y)]."
        raise ParameterError("y", said)
    return np.array(names)


def labels_of(y: Any) -> NDArray[Any]:
    """One label per row, or proportion."""
    if y is None:
        raise ValueError(
            "fit requires y to be passed, but the target y is None: pass labels, or proportions with bags."
        )
    return np.asarray(column_or_1d(y, warn=True))


def indicators_of(y: Any, n: int) -> tuple[Floats, NDArray[Any]]:
    """Individual labels of any kind as indicators: (n,) for two classes, (n, classes) for more."""
    y = labels_of(y)
    if len(y) != n:
        raise ValueError(f"X has {n} rows but y has {len(y)}.")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(f"y contains NaN or infinity (first in row {int(np.argmin(np.isfinite(y)))}).")
    check_no_dates(y, "y")
    check_classification_targets(y)
    y = y + 0.0 if y.dtype.kind == "f" else y  # −0.0 and 0.0 are one class, called 0.0
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) <= 2:
        return codes.astype(float), classes
    return (codes[:, None] == np.arange(len(classes))).astype(float), classes
