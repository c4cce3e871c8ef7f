"""Sums over the rows of each bag, for NumPy and torch: the only index arithmetic of the library.

Two orders of rows occur. *Table order* is the order the user's rows came in, bags scattered through it.
*Bag order* lists the rows of bag 0, then those of bag 1, and so on; ``offsets`` (m + 1 numbers) says where each
bag starts, and ``order`` says which table row stands at each place.
"""

from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from scipy import sparse

from bagwise.utils.typing import Array, Integers, NDArray

_CHUNK = 2**23  # numbers converted to double precision at a time


def group(codes: Integers, n_groups: int) -> tuple[Integers, NDArray[np.int64]]:
    """Rows of each group in bag order, by counting: O(rows), stable. Rows with code −1 belong to no group.

    >>> group(np.array([1, 0, -1, 1]), 2)
    (array([1, 0, 3], dtype=int32), array([0, 1, 3]))
    """
    n = len(codes)
    column = codes.astype(_index_type(n))
    column[column < 0] = n_groups
    # One entry per row: turning rows into columns is a counting sort, done by SciPy in C.
    entries = (np.ones(n, dtype=np.int8), column, np.arange(n + 1, dtype=column.dtype))
    columns = sparse.csr_array(entries, shape=(n, n_groups + 1)).tocsc()
    offsets = columns.indptr[: n_groups + 1].astype(np.int64)
    return columns.indices[: offsets[-1]], offsets


def take(order: Any, offsets: NDArray[np.int64], index: Integers | slice) -> tuple[Any, NDArray[np.int64]]:
    """`order`, or other values of rows, and `offsets` of the chosen bags alone, in O(rows chosen).

    >>> take(np.array([5, 3, 4, 0]), np.array([0, 1, 3, 4]), np.array([2, 1]))
    (array([0, 3, 4]), array([0, 1, 3]))
    """
    start = offsets[:-1][index]
    size = offsets[1:][index] - start
    chosen = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    place = np.repeat(start - chosen[:-1], size) + np.arange(chosen[-1])
    return order[place], chosen


def codes_of(order: Integers, offsets: NDArray[np.int64], n_rows: int) -> Integers:
    """The bag of each table row, −1 where it has none: the inverse of `group`.

    >>> codes_of(np.array([1, 0, 3]), np.array([0, 1, 3]), 4)
    array([ 1,  0, -1,  1], dtype=int32)
    """
    codes = np.full(n_rows, -1, dtype=np.int32)
    codes[order] = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    if np.count_nonzero(codes >= 0) < len(order):
        raise ValueError("a row is in more than one bag, since a bag was taken twice: it has no single code.")
    return codes


def sum_sorted(values: Array, offsets: NDArray[np.int64], *, equal_size: int | None = None) -> Array:
    """Sum of `values` (n, …) per bag, rows in bag order; NumPy or torch, differentiable.

    With `equal_size` given, all bags have that many rows and a reshape does the work.

    >>> sum_sorted(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 3]))
    array([1., 6.])
    """
    m = len(offsets) - 1
    if values.shape[0] != offsets[-1]:
        raise ValueError(
            f"the bags hold {offsets[-1]} rows but {values.shape[0]} values were given: "
            "pass one value per row of the bags, in bag order (values[bags.order])."
        )
    if equal_size is not None:
        return values.reshape((m, equal_size, *values.shape[1:])).sum(1)
    if is_torch_array(values):
        import torch

        if not values.is_floating_point():
            values = values.to(torch.int64)  # as the other paths do: sums of flags and small integers must not overflow
        owner = torch.from_numpy(np.repeat(np.arange(m), np.diff(offsets))).to(values.device)
        return values.new_zeros((m, *values.shape[1:])).index_add(0, owner, values)
    return np.add.reduceat(values, offsets[:-1], axis=0)


def sum_table(
    values: Any, codes: Integers, n_groups: int, *, weight: NDArray[np.floating[Any]] | None = None
) -> NDArray[np.float64]:
    """Sum of `values` (n,) or (n, d) per group, rows in table order, without moving a row: a sparse indicator product.

    The indicator is stored by columns, so `values` is read once from front to back. Sums are in double precision;
    other types, and views whose rows lie apart, are converted a chunk of rows at a time.
    With `weight` (n,), rows count as often as it says.

    >>> sum_table(np.array([1.0, 2.0, 4.0, 8.0]), np.array([1, 0, 1, -1]), 2)
    array([2., 5.])
    """
    values = np.asarray(values)
    n = len(values)
    row = codes.astype(_index_type(n), copy=False)
    outside = row < 0
    if outside.any():
        row = np.where(outside, row.dtype.type(n_groups), row)
    ready = values.dtype == np.float64 and values.flags.c_contiguous
    width = max(1, values.size // max(n, 1))
    # A chunk has at least as many rows as there are groups, so that adding up its sums costs no more than reading it.
    chunk = max(n, 1) if ready else max(n_groups, _CHUNK // width, 1)
    total: Any = None
    for start in range(0, max(n, 1), chunk):
        part = np.ascontiguousarray(values[start : start + chunk], dtype=np.float64)
        where = row[start : start + chunk]
        pointers = np.arange(len(part) + 1, dtype=row.dtype)
        counts = np.ones(len(part)) if weight is None else weight[start : start + chunk]
        indicator = sparse.csc_array((counts, where, pointers), shape=(n_groups + 1, len(part)))
        sums = indicator @ part
        total = sums if total is None else total + sums
    return np.asarray(total[:n_groups])


def repeat(per_bag: Array, offsets: NDArray[np.int64], *, equal_size: int | None = None) -> Array:
    """Each row's copy of its bag's value, in bag order; with `equal_size` given, all bags have that many rows.

    >>> repeat(np.array([7.0, 8.0]), np.array([0, 1, 3]))
    array([7., 8., 8.])
    """
    if is_torch_array(per_bag):
        import torch

        return per_bag.repeat_interleave(torch.from_numpy(np.diff(offsets)).to(per_bag.device), dim=0)
    return np.repeat(per_bag, np.diff(offsets) if equal_size is None else equal_size, axis=0)


def as_like(values: Array | None, like: Array) -> Array | None:
    """`values` in the library, device and float type of `like`; plain numbers and None pass as they are.

    >>> as_like(np.array([2.0]), np.array([1.0])), as_like(0.5, np.array([1.0]))
    (array([2.]), 0.5)
    """
    if not is_torch_array(like):
        return to_numpy(values) if is_torch_array(values) else values
    import torch

    if not isinstance(values, (np.ndarray, torch.Tensor)):
        return values
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    if isinstance(values, torch.Tensor):
        return values.to(dtype=dtype, device=like.device)
    return torch.tensor(values, dtype=dtype, device=like.device)


def to_numpy(values: Array) -> NDArray[Any]:
    """A NumPy array of the same values, without their gradient."""
    return values.detach().cpu().numpy() if is_torch_array(values) else np.asarray(values)


def _index_type(n: int) -> np.dtype[Any]:
    """Half the memory where the table is short enough."""
    return np.dtype(np.int32 if n < np.iinfo(np.int32).max else np.int64)


def per_bag(size: Array, like: Array) -> Array:
    """Values (m,), such as sizes, shaped to meet an array (m, …)."""
    return size.reshape((-1,) + (1,) * (like.ndim - 1))
