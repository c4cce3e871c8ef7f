"""Bag keys of any kind turned into codes 0 … m−1, fast enough for tens of millions of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Booleans, Integers


def encode(ids: Any) -> tuple[Integers, NDArray[Any]]:
    """Codes of the rows and the keys they stand for; −1, None and NaN mean "in no bag" and get code −1.

    Keys come sorted where they can be compared, so that shuffling the rows does not reorder the bags; otherwise
    in order of first appearance.

    >>> encode(np.array([30, 10, -1, 30]))
    (array([ 1,  0, -1,  1]), array([10, 30]))
    >>> encode(["b", "a", None, "b"])
    (array([ 1,  0, -1,  1]), array(['a', 'b'], dtype=object))
    """
    column = as_column(ids)
    integers = isinstance(column, np.ndarray) and column.dtype.kind in "bui"
    codes, keys = _encode_integers(column) if integers else _encode_any(column)
    kept = keys != -1 if keys.dtype.kind in "ifO" else np.ones(len(keys), dtype=bool)
    return keep(codes, keys, kept)


def keep(codes: Integers, keys: NDArray[Any], kept: Booleans) -> tuple[Integers, NDArray[Any]]:
    """Codes and keys with only the `kept` keys left: rows of the others get code −1.

    >>> keep(np.array([0, 1, -1]), np.array(["a", "b"]), np.array([False, True]))
    (array([-1,  0, -1]), array(['b'], dtype='<U1'))
    """
    if kept.all():
        return codes, keys
    code_of = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # code −1 reads the last entry
    return code_of[codes], keys[kept]


def match(keys: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.intp]:
    """Position in `keys` (unique) of each of `wanted`, −1 where it is not there.

    >>> match(np.array([10, 30]), np.array([30, 7]))
    array([ 1, -1])
    """
    import pandas as pd

    return np.asarray(pd.Index(keys, tupleize_cols=False).get_indexer(pd.Index(wanted, tupleize_cols=False)))


def as_column(values: Any, what: str = "bags") -> Any:
    """A one-dimensional NumPy array (or pandas array, where values are missing) from whatever holds a column."""
    column = values if isinstance(values, np.ndarray) else _as_array(values, what)
    if column.ndim != 1:
        raise ParameterError(what, f"must be one column, got an array of shape {column.shape}.")
    return column


def name(key: Any) -> str:
    """A key as an error message shows it."""
    return repr(key.item() if isinstance(key, np.generic) else key)


def _as_array(values: Any, what: str) -> Any:
    import pandas as pd

    if hasattr(values, "to_arrow"):  # polars
        values = values.to_arrow()
    if type(values).__module__.startswith("pyarrow"):
        if hasattr(values.type, "value_type"):
            values = values.cast(values.type.value_type)  # a dictionary of categories
        values = values.to_pandas(types_mapper=pd.ArrowDtype)
    if isinstance(values, (pd.Series, pd.Index)) and not isinstance(values, pd.MultiIndex):
        values = values.array
    if isinstance(values, pd.api.extensions.ExtensionArray):
        # Whole numbers beside missing values would become floats and lose digits: those stay in pandas.
        simple = isinstance(values, pd.arrays.NumpyExtensionArray) or values.dtype.kind in "biuf"
        return values.to_numpy() if simple and not values.isna().any() else values
    if hasattr(values, "__array__"):
        return np.asarray(values)
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise ParameterError(what, f"must be one column, got {values!r}.")
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed  # as they are: a tuple is one key, and 1, "1" and 1.5 stay different
    for kind, dtype in (((int, np.integer), np.int64), ((float, np.floating), np.float64)):
        if all(isinstance(v, kind) for v in listed):
            try:
                return array.astype(dtype)
            except OverflowError:
                break  # integers beyond 64 bits
    return array


def _encode_integers(column: NDArray[Any]) -> tuple[Integers, NDArray[Any]]:
    if len(column) == 0:
        return column.astype(np.intp), column
    low, high = int(column.min()), int(column.max())
    if high - low > 4 * len(column) + 1024:  # keys far apart: hash instead of counting
        return _encode_any(column)
    wide = column.astype(np.uint64 if column.dtype.kind == "u" else np.int64, copy=False)
    place = (wide - low).astype(np.int64, copy=False)
    present = np.bincount(place) > 0
    keys = np.flatnonzero(present).astype(wide.dtype) + low
    return (np.cumsum(present) - 1)[place], keys.astype(column.dtype)


def _encode_any(column: Any) -> tuple[Integers, NDArray[Any]]:
    import pandas as pd

    try:
        codes, keys = pd.factorize(column, sort=True)
    except TypeError:  # keys that cannot be compared
        try:
            codes, keys = pd.factorize(column)
        except TypeError as error:
            raise ParameterError(
                "bags", f"must be ids that can be hashed ({error}): use numbers, strings or tuples."
            ) from error
    keys = keys if isinstance(keys, np.ndarray) else keys.to_numpy()
    return codes, keys.astype(object) if keys.dtype.kind in "US" else keys
