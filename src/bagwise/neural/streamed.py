"""Bags that are read block by block in every pass, for data that do not fit into memory.

Blocks come in a new order in every pass and are read a few at a time, while the network trains on the few before; the
bags among them are shuffled. That is as good as shuffling all bags if those of a block have nothing in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagwise.bags import Bags
from bagwise.neural.batches import BagTensors, cut, stretch

Encode = Callable[[NDArray[np.floating]], NDArray[np.floating]]
"""What is stored to what a network reads, row by row."""

_TOGETHER = 4  # blocks whose bags are shuffled together; two at least, so that there are two bags
_NUMBERS = 2**20  # to encode together: much faster than a batch at a time, and still small

Item = TypeVar("Item")


class Blocks(Protocol):
    """Whole bags in pieces: ``len()`` of them."""

    def __len__(self) -> int: ...

    def block(self, number: int) -> NDArray[np.floating]:
        """(rows, columns) of one block, bag after bag."""

    def bags_of(self, numbers: NDArray[np.integer]) -> Bags:
        """The bags of some blocks, as of one table."""


class StreamedBags:
    """Blocks of bags, dealt out in batches of whole bags as `BagTensors` does.

    read: makes rows of the network from rows of a block.  width: numbers in each.
    """

    def __init__(
        self, source: Blocks, read: Callable[[Any], Tensor], *, width: int, device: torch.device | None = None
    ) -> None:
        self.source, self.read, self.width = source, read, width
        self.device = torch.device("cpu") if device is None else device

    def epoch(self, rng: np.random.Generator, rows: int) -> Iterator[tuple[Tensor, Bags]]:
        """One pass over all bags: each batch's rows and bags."""
        order = rng.permutation(len(self.source))
        windows = np.array_split(order, max(1, len(order) // _TOGETHER))
        for stored, bags in _ahead(self._window(numbers) for numbers in windows):
            for some, theirs in BagTensors(stored, bags).epoch(rng, max(rows, _NUMBERS // self.width)):
                x = self.read(some.numpy())
                theirs = theirs.like(x)
                for start, stop in pairwise(cut(np.diff(theirs.offsets), rows).tolist()):
                    batch = stretch(theirs, start, stop)
                    yield x[theirs.offsets[start] : theirs.offsets[stop]], batch

    def _window(self, numbers: NDArray[np.integer]) -> tuple[Tensor, Bags]:
        """The rows of some blocks and their bags."""
        rows = np.concatenate([self.source.block(int(number)) for number in numbers])
        return torch.from_numpy(rows), self.source.bags_of(numbers)


def _ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; a thread makes the next while the last is used."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
