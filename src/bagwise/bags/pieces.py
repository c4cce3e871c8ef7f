"""Consecutive bags as views: a part of a batch, or as many at a time as stay near the processor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bagwise.bags.bags import Bags


def stretch(bags: Bags, start: int, stop: int) -> Bags:
    """Consecutive bags, as views and without the checks of `Bags.take`.

    Examples
    --------
    >>> bags = Bags.from_rows([0.5, 1.0, 0.5], [7, 8, 7])
    >>> stretch(bags, 1, 2).proportion
    array([1.])
    """
    first, last, some = bags.offsets[start], bags.offsets[stop], slice(start, stop)
    return replace(
        bags,
        keys=bags.keys[some],
        order=bags.order[first:last],
        offsets=bags.offsets[start : stop + 1] - first,
        size=bags.size[some],
        proportion=bags.proportion[some],
        noise_variance=None if bags.noise_variance is None else bags.noise_variance[some],
        interval=None if bags.interval is None else bags.interval.take(some),
        overlap=None if bags.overlap is None else bags.overlap.take(some),
        weight=None if bags.weight is None else bags.weight[first:last],
        offset=None if bags.offset is None else bags.offset[first:last],
    )


def pieces(bags: Bags, rows: int) -> Iterator[tuple[slice, slice, Bags]]:
    """The bags in pieces of at most about `rows` rows, one bag or more each: their rows, their numbers, and they.

    Examples
    --------
    >>> bags = Bags.from_rows([0.5, 1.0, 0.5, 0.0], [7, 8, 7, 9])
    >>> [(rows, some) for rows, some, _ in pieces(bags, 3)]
    [(slice(0, 3, None), slice(0, 2, None)), (slice(3, 4, None), slice(2, 3, None))]
    """
    offsets, first = bags.offsets, 0
    while first < len(bags):
        last = max(int(np.searchsorted(offsets, offsets[first] + rows, side="right")) - 1, first + 1)
        yield slice(int(offsets[first]), int(offsets[last])), slice(first, last), stretch(bags, first, last)
        first = last
