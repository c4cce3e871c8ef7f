"""Rows put in bags: at random, with labels replaced by their bags' means; and what `fit` accepts as bags."""

import numpy as np

from bagwise.bags.bags import Bags
from bagwise.bags.reading import as_labels, encode_rows, sum_labels
from bagwise.segment import per_bag
from bagwise.utils.parameters import ParameterError, check_parameters, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats, NDArray


def random_bags(n: int, size: int, random_state: RandomState = None) -> NDArray[np.int64]:
    """Bag ids of a random partition: shuffle, then consecutive bags of one size.

    Parameters
    ----------
    n, size : int
        Rows, and rows of a bag.
    random_state : int, Generator, RandomState or None
        Seed of the shuffle.

    Returns
    -------
    ndarray of shape (n,)
        The ``n % size`` rows that remain join no bag: their id is −1. Every fit ignores their labels.

    Examples
    --------
    >>> random_bags(7, 3, random_state=0)
    array([ 1, -1,  0,  0,  0,  1,  1])
    """
    check_parameters({"n": n, "size": size}, {"n": whole(1), "size": whole(1)})
    if size > n:
        raise ParameterError("size", f"must be at most the number of rows ({n}), got {size}.")
    m = n // size
    ids = np.full(n, -1, dtype=np.int64)
    ids[generator(random_state).permutation(n)[: m * size]] = np.repeat(np.arange(m), size)
    return ids


def aggregate(y: ArrayLike, ids: ArrayLike) -> Floats:
    """Replace each row's label by its bag's mean label.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, classes)
        Individual labels as numbers, or indicators of classes.
    ids : array-like of shape (n,)
        The bag of each row.

    Returns
    -------
    ndarray of the shape of y
        Rows in no bag get NaN.

    Examples
    --------
    >>> aggregate([0, 1, 1, 1], [5, 5, 9, -1])
    array([0.5, 0.5, 1. , nan])
    """
    y = as_labels(y)
    codes, keys = encode_rows(ids, len(y))
    total = sum_labels(y, codes, len(keys))
    size = np.bincount(codes[codes >= 0], minlength=len(keys))
    mean = total / per_bag(size, total)
    outside = np.full((1, *y.shape[1:]), np.nan)
    return np.concatenate([mean, outside])[codes]


def as_bags(
    y: ArrayLike | None,
    bags: ArrayLike | Bags | None,
    n_rows: int,
    *,
    noise_variance: ArrayLike | None = None,
    whole_labels: bool = False,
) -> Bags:
    """What `fit` and `evaluate` accept as bags, as `Bags`.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, classes), or None
        As in `Bags.from_rows`; None where bags is a `Bags`.
    noise_variance : float or array-like of shape (n,), optional
        As in `Bags.from_rows`; not with a `Bags`, which has its own.
    bags : Bags, array-like of shape (n,), or None
        The bag of each row; None where every row is its own.
    n_rows : int
        Rows that there must be.
    whole_labels : bool
        Whether labels of single rows must be whole numbers unless noised: others are proportions of bags that were not
        passed.

    Returns
    -------
    Bags
    """
    if isinstance(bags, Bags):
        if bags.n_rows != n_rows:
            raise ValueError(f"the bags were built on {bags.n_rows} rows but X has {n_rows}.")
        if noise_variance is not None:
            raise ParameterError("noise_variance", "belongs to the Bags given: declare it where they are built.")
        return bags
    if y is None:
        raise ParameterError("y", "is missing: pass row-aligned proportions, or a bagwise.Bags as bags.")
    y = as_labels(y)
    if len(y) != n_rows:
        raise ValueError(f"X has {n_rows} rows but y has {len(y)}.")
    if bags is None and noise_variance is None:
        if whole_labels and (np.isfinite(y) & (y != np.rint(y))).any():
            said = "is missing: y holds proportions, which are those of bags, not of single rows."
            raise ParameterError("bags", said)
        return Bags.singletons(y)
    return Bags.from_rows(y, np.arange(n_rows) if bags is None else bags, noise_variance=noise_variance)
