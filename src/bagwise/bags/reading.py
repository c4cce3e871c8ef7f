"""What bags are built from, checked: rows, their bag ids, tables of reports. Errors name the bag, row or parameter."""

from typing import Any

import numpy as np

from bagwise import segment
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import ArrayLike, Booleans, Floats, Integers, NDArray

ROUNDING = 1e-6  # proportions that went through float32 or a sum may leave [0, 1], or their sum 1, by this much


def check_unmasked(values: Any, what: str) -> None:
    """Raise where an array has a mask, below which numbers lie that nobody means."""
    if isinstance(values, np.ma.MaskedArray):
        raise ParameterError(what, "is a masked array: fill it, as with .filled(np.nan), or leave masked rows out.")


def as_numbers(values: Any) -> Floats:
    """A float array; a TypeError or ValueError where the values are no numbers."""
    if getattr(getattr(values, "dtype", None), "kind", "f") in "mMc":
        raise TypeError("dates and complex numbers are no labels")  # NumPy would convert them silently
    return np.asarray(values, dtype=float)


def as_labels(y: ArrayLike) -> Floats:
    """Labels or proportions as a float array (n,) or (n, classes)."""
    check_unmasked(y, "y")
    try:
        labels = as_numbers(y)
    except (TypeError, ValueError) as error:
        raise ParameterError("y", "must be numeric: encode labels as 0 and 1 (or one 0/1 column per class).") from error
    _check_one_spelling(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]  # a table of one column is that column
    if labels.ndim not in (1, 2):
        raise ParameterError("y", f"must have shape (n,) or (n, classes), got {labels.shape}.")
    return labels


def _check_one_spelling(y: Any) -> None:
    """Raise where labels are texts that write one number in two ways, which may have been meant for two labels."""
    if getattr(getattr(y, "dtype", None), "kind", "O" if isinstance(y, list) else "f") not in "OUST":
        return
    spelled: dict[float, str] = {}
    for text in sorted({value for value in np.asarray(y).ravel().tolist() if isinstance(value, str)}):
        if (other := spelled.setdefault(float(text), text)) != text:
            raise ParameterError("y", f"writes one label in two ways, {other!r} and {text!r}: pass numbers.")


def read_rows(y: ArrayLike, ids: Any, noise_variance: ArrayLike | None) -> dict[str, Any]:
    """What `Bags.build` takes, of row-aligned proportions (see `Bags.from_rows`)."""
    y = as_labels(y)
    codes, keys = encode_rows(ids, len(y))
    order, offsets = segment.group(codes, len(keys))
    given: dict[str, Any] = {"keys": keys, "order": order, "offsets": offsets, "n_rows": len(y), "codes": codes}
    given["proportion"] = constant_in_bag(y, "proportions", keys, order, offsets)
    given["noise_variance"] = None
    if noise_variance is not None:
        try:
            noise = np.broadcast_to(np.asarray(noise_variance, dtype=float), len(y))
        except (TypeError, ValueError) as error:
            wanted = f"must be one number or one per row ({len(y)} rows)."
            raise ParameterError("noise_variance", wanted) from error
        given["noise_variance"] = constant_in_bag(noise, "noise variances", keys, order, offsets)
    return given


def encode_rows(ids: Any, n: int | None = None) -> tuple[Integers, NDArray[Any]]:
    """Codes of the rows and keys of the bags; there must be rows, and bags."""
    codes, keys = encode(ids)
    if n is not None and len(codes) != n:
        raise ParameterError("y", f"has {n} rows but bags has {len(codes)}: give each row one value and one bag id.")
    if len(codes) == 0:
        raise ValueError("the table is empty: there must be at least one row.")
    if len(keys) == 0:
        raise ValueError("no row is in a bag: every bag id is −1 or missing.")
    return codes, keys


def sum_labels(y: Floats, codes: Integers, m: int) -> NDArray[np.float64]:
    """(m,) or (m, classes) sums of labels over the rows of each bag, all of which must be finite."""
    inside = codes >= 0
    bad = inside & ~finite(y)
    if bad.any():
        raise ParameterError("y", f"is NaN or infinite in row {int(np.argmax(bad))}: every row in a bag needs a label.")
    return segment.sum_table(np.where(segment.per_bag(inside, y), y, 0.0), codes, m)


def constant_in_bag(y: Floats, what: str, keys: NDArray[Any], order: Integers, offsets: NDArray[np.int64]) -> Floats:
    """The value each bag repeats on its rows (table order); an error names the bag that carries two."""
    rows = y[order]
    good = finite(rows)
    if not good.all():
        j = int(np.searchsorted(offsets, np.argmin(good), side="right")) - 1
        raise ValueError(f"bag {name(keys[j])} has NaN or infinite {what}: remove it or repair its report.")
    first = rows[offsets[:-1]]
    expected = segment.repeat(first, offsets)
    differs = np.abs(rows - expected) > 1e-12 + 1e-9 * np.abs(expected)
    if differs.any():
        place = int(np.argwhere(differs)[0][0])
        j = int(np.searchsorted(offsets, place, side="right")) - 1
        raise ValueError(
            f"bag {name(keys[j])} carries two different {what} ({first[j]} and {rows[place]}): each row must repeat "
            "its bag's value; bagwise.aggregate(y, ids) makes proportions from individual labels."
        )
    return first


def finite(value: Floats) -> Booleans:
    """Which rows hold no NaN and no infinity."""
    good: Booleans = np.isfinite(value)
    return good if value.ndim == 1 else np.asarray(good.all(axis=1))


def check_finite(value: Floats, keys: NDArray[Any], what: str) -> None:
    """Raise and name the row or bag whose value is NaN or infinite."""
    good = finite(value)
    if not good.all():
        j = int(np.argmin(good))
        owner = "row" if what == "label" else "bag"
        raise ValueError(f"{owner} {name(keys[j])} has a NaN or infinite {what}: remove it or repair its report.")


def check_noise(variance: Floats, keys: NDArray[Any]) -> None:
    """Raise and name the bag whose noise variance is none."""
    good = np.isfinite(variance) & (variance >= 0)
    if not good.all():
        j = int(np.argmin(good))
        raise ValueError(f"bag {name(keys[j])} has noise variance {variance[j]}: it must be finite and not negative.")


def check_proportions(proportion: Floats, keys: NDArray[Any]) -> None:
    """Raise and name the bag whose proportion is outside [0, 1], or whose classes' proportions do not sum to 1."""
    outside = (proportion < -ROUNDING) | (proportion > 1 + ROUNDING)
    if outside.any():
        j = int(np.argwhere(outside)[0][0])
        raise ValueError(
            f"bag {name(keys[j])} reports proportion {proportion[j]}, outside [0, 1]: pass proportions, "
            "not counts, or declare the noise on the counts with noise_variance."
        )
    total = proportion.sum(axis=1) if proportion.ndim == 2 else np.ones(1)
    if (np.abs(total - 1) > ROUNDING).any():
        j = int(np.argmax(np.abs(total - 1) > ROUNDING))
        raise ValueError(
            f"bag {name(keys[j])} reports class proportions that sum to {total[j]:.6g}: they must sum to 1."
        )


# -- ids of any kind turned into codes 0 … m−1, fast enough for tens of millions of rows -----------------------------


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
    check_unmasked(values, what)
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

    column = column if isinstance(column, np.ndarray) else pd.Series(column)  # older pandas take nothing else
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
