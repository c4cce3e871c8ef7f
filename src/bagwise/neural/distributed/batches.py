"""Bags that are read block by block in every pass: data that do not fit into memory, or that several processes share.

Blocks are dealt to *lanes*, each of which reads its own, in a new order in every pass, and shuffles the bags of each
block. A batch takes bags from all lanes, in step. What is in a batch depends on the seed, the pass and the number of
lanes, but not on the number of processes, which divide the lanes among them: one process or eight give the same
batches. Every process knows the sizes of all bags and so when everybody is done; it reads the rows of its own lanes
alone.

Batches are as good as those of shuffled bags if the bags of a block have nothing in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bagwise import segment
from bagwise.bags import Bags
from bagwise.data.rows import BagRows, subset
from bagwise.neural.batches import cut
from bagwise.utils.typing import Floats, Integers

Encode = Callable[[Floats], Floats]
"""What is stored to what a network reads, row by row."""

LANES = 8
_NUMBERS = 2**20  # that a process encodes together: much faster than a batch at a time, and still small


@dataclass(frozen=True, eq=False)
class Batch:
    """What a process sees of a batch.

    x, bags: its own rows and bags, maybe none.  whole: the bags of all processes.  mine: where its own are among them.
    """

    x: Tensor
    bags: Bags
    whole: Bags
    mine: Integers


@dataclass(frozen=True, eq=False)
class _Pass:
    """The order of one pass.

    blocks: of each lane.  bags: of all lanes, as they are dealt.  lane: of each.  cuts: batch b holds bags cuts[b] to
    cuts[b + 1].
    """

    blocks: list[Integers]
    bags: Integers
    lane: Integers
    cuts: Integers


class Lanes:
    """Blocks of bags, dealt out in batches of whole bags.

    read: makes rows of the network from rows of a block.  width: numbers in each.
    rows: about how many a batch has, over all processes.  seed: of the order in every pass.
    lanes: how many, unless there are fewer blocks.  rank, world: number of this process and of all.
    """

    def __init__(
        self,
        source: BagRows,
        read: Callable[[Any], Tensor],
        *,
        width: int,
        rows: int,
        seed: int,
        lanes: int = LANES,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.source, self.read, self.width, self.rows, self.seed = source, read, width, rows, seed
        self._lanes = np.array_split(np.arange(len(source)), check_lanes(source, lanes, world))
        self._mine = np.arange(len(self._lanes))[rank::world]  # the first lanes may have a block more: deal them out

    @cached_property
    def n_batches(self) -> int:
        """Batches in a pass."""
        return len(cut(self.source.size, self.rows)) - 1

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """Pass `number` over all bags, from batch `start` on."""
        order = self._pass(number)
        size = self.source.size
        before = order.bags[: order.cuts[start]]
        skipped = np.bincount(order.lane[: order.cuts[start]], weights=size[before], minlength=len(self._lanes))
        with ThreadPoolExecutor(1) as thread:
            streams = {
                lane: _Stream(self._rows(order, lane, int(skipped[lane]), thread)) for lane in self._mine.tolist()
            }
            for first, last in pairwise(order.cuts[start:].tolist()):
                bags, lane = order.bags[first:last], order.lane[first:last]
                places, parts = [], []
                for one, stream in streams.items():
                    places.append(np.flatnonzero(lane == one))
                    parts += stream.take(int(size[bags[places[-1]]].sum()))
                x, mine = torch.cat(parts) if parts else self._nothing(), np.concatenate(places)
                yield Batch(x, subset(self.source, bags[mine]).like(x), subset(self.source, bags), mine)

    def _pass(self, number: int) -> _Pass:
        """Lanes in step: a bag's turn comes when its lane has come as far as the others have."""
        size, ends = self.source.size, self.source.starts
        blocks, bags, turns = [], [], []
        for place, own in enumerate(self._lanes):
            rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number, place)))
            blocks.append(rng.permutation(own))
            mine = np.concatenate([rng.permutation(np.arange(ends[block], ends[block + 1])) for block in blocks[-1]])
            upto = np.cumsum(size[mine])
            bags.append(mine)
            turns.append((upto - size[mine] / 2) / upto[-1])
        lane = np.repeat(np.arange(len(bags)), [len(mine) for mine in bags])
        order = np.argsort(np.concatenate(turns), kind="stable")
        dealt = np.concatenate(bags)[order]
        return _Pass(blocks, dealt, lane[order], cut(size[dealt], self.rows))

    def _rows(self, order: _Pass, lane: int, skip: int, thread: Executor) -> Iterator[Tensor]:
        """The rows of a lane but the first `skip`, in pieces; the next block is read while one is used."""
        size, ends = self.source.size, self.source.starts
        mine = order.bags[order.lane == lane]
        blocks = order.blocks[lane]
        counts = np.array([size[ends[block] : ends[block + 1]].sum() for block in blocks])
        first = int(np.searchsorted(np.cumsum(counts), skip, side="right"))
        skip -= int(counts[:first].sum())
        place = int((ends[blocks[:first] + 1] - ends[blocks[:first]]).sum())
        piece = max(1, _NUMBERS // (self.width * len(self._mine)))
        for block, stored in zip(blocks[first:], _ahead(self.source.block, blocks[first:], thread), strict=True):
            n_bags = int(ends[block + 1] - ends[block])
            offsets = np.concatenate([[0], np.cumsum(size[ends[block] : ends[block + 1]])])
            rows, _ = segment.take(np.arange(len(stored)), offsets, mine[place : place + n_bags] - ends[block])
            for start in range(skip, len(rows), piece):
                yield self.read(stored[rows[start : start + piece]])
            place, skip = place + n_bags, 0

    def _nothing(self) -> Tensor:
        """No rows, as the network reads them."""
        return self.read(self.source.block(int(self._lanes[int(self._mine[0])][0]))[:0])


def check_lanes(source: BagRows, lanes: int, world: int) -> int:
    """How many lanes there are: as many as asked for, unless there are fewer blocks. Raise if too few for all."""
    found = min(lanes, len(source))
    if world <= found:
        return found
    many = f"there are {world} processes for {found} {'lanes' if found > 1 else 'lane'} of bags"
    if found < len(source):
        raise ValueError(f"{many}: ask for more lanes, or start {found} at most.")
    if found < len(source.size):
        raise ValueError(
            f"{many}, one for each block: gather the bags in smaller blocks (group_rows), or start {found} at most."
        )
    raise ValueError(f"{many}, one for each bag: start {found} at most.")


class _Stream:
    """Rows that come in pieces, taken as many at a time as asked for."""

    def __init__(self, pieces: Iterator[Tensor]) -> None:
        self.pieces, self.piece, self.place = pieces, torch.empty(0), 0

    def take(self, rows: int) -> list[Tensor]:
        """The next rows, in parts."""
        parts = []
        while rows:
            if self.place == len(self.piece):
                self.piece, self.place = next(self.pieces), 0
            parts.append(self.piece[self.place : self.place + rows])
            self.place += len(parts[-1])
            rows -= len(parts[-1])
        return parts


def _ahead(read: Callable[[int], Floats], numbers: Sequence[int] | Integers, thread: Executor) -> Iterator[Floats]:
    """What `read` gives for each number; the thread reads the next while one is used."""
    coming = None
    for number, after in zip(numbers, [*numbers[1:], None], strict=True):
        block = read(int(number)) if coming is None else coming.result()
        coming = None if after is None else thread.submit(read, int(after))
        yield block
