"""One network trained on blocks of bags, by one process or several, stopped and taken up again as need be.

Bags are read block by block in every pass: data that do not fit into memory, or that several processes share. Blocks
are dealt to *streams*, each of which reads its own, in a new order in every pass, and shuffles the bags of each block.
A batch takes bags from all streams, in step. What is in a batch depends on the seed, the pass and the number of
streams, but not on the number of processes, which divide the streams among them: one process or eight give the same
batches. Every process knows the sizes of all bags and so when everybody is done; it reads the rows of its own streams
alone. Batches are as good as those of shuffled bags if the bags of a block have nothing in common.

The loss of a batch is the mean over its bags, whoever holds them, and E[h] is that of all its bags. A loss that reads
predictions through the sums of bags alone needs one message: the processes tell each other these, one number per bag,
and each then knows the derivatives by its own. Other losses are computed by each process for its own bags; for E[h]
they add up their sums of h (`Processes.add_up`), two numbers, and back-propagation adds up the derivatives in the same
way. The derivatives of the weights are averaged by torch's `DistributedDataParallel`. So the steps do not depend on the
number of processes either, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from bagwise import segment
from bagwise.bags import Bags
from bagwise.data.rows import BagRows, subset
from bagwise.distributed.checkpoints import unpacked
from bagwise.distributed.options import Distributed, check_streams
from bagwise.distributed.processes import Processes
from bagwise.means import Known, Means, Running
from bagwise.neural.batches import cut
from bagwise.neural.devices import lent_noise, seed_noise
from bagwise.neural.training import Training
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Floats, Integers

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
    processes: Processes

    def gather(self, sums: Floats) -> Floats:
        """The sums of all bags, from those of this process's: one message, one number per bag."""
        total = np.zeros(len(self.whole), dtype=sums.dtype)
        total[self.mine] = sums
        return self.processes.total(total)


@dataclass(frozen=True, eq=False)
class _Pass:
    """The order of one pass.

    blocks: of each stream.  bags: of all streams, as they are dealt.  stream: of each.  cuts: see `cut`.
    """

    blocks: list[Integers]
    bags: Integers
    stream: Integers
    cuts: Integers


@dataclass(frozen=True)
class Place:
    """How far training has come: passes done, batches done of the next one and of all, and their losses' sum.

    losses: the mean loss of a bag in each pass that is done.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss: float = 0.0
    bags: int = 0
    losses: tuple[float, ...] = ()


class BlockLoader:
    """Blocks of bags, dealt out in batches of whole bags.

    read: makes rows of the network from rows as the model reads them.
    rows: about how many a batch has, over all processes.  seed: of the order in every pass.
    """

    def __init__(
        self, data: BagRows, read: Callable[[Floats], Tensor], options: Distributed, *, rows: int, seed: int
    ) -> None:
        self.data, self.read, self.rows, self.seed, self.processes = data, read, rows, seed, options.processes
        self._streams = np.array_split(np.arange(len(data)), check_streams(data, options))
        # The first streams may have a block more: deal them out.
        self._mine = np.arange(len(self._streams))[self.processes.rank :: self.processes.world]

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """Pass `number` over all bags, from batch `start` on."""
        order, size = self._pass(number), self.data.rows
        before = slice(order.cuts[start])
        skipped = np.bincount(order.stream[before], weights=size[order.bags[before]], minlength=len(self._streams))
        with ThreadPoolExecutor(1) as thread:
            coming = {one: _Rows(self._pieces(order, one, int(skipped[one]), thread)) for one in self._mine.tolist()}
            for first, last in pairwise(order.cuts[start:].tolist()):
                bags, stream = order.bags[first:last], order.stream[first:last]
                places, parts = [], []
                for one, rows in coming.items():
                    places.append(np.flatnonzero(stream == one))
                    parts += rows.take(int(size[bags[places[-1]]].sum()))
                x, mine = torch.cat(parts) if parts else self._nothing(), np.concatenate(places)
                own, whole = subset(self.data, bags[mine]).like(x), subset(self.data, bags)
                yield Batch(x, own, whole, mine, self.processes)

    def _pass(self, number: int) -> _Pass:
        """Streams in step: a bag's turn comes when its stream has come as far as the others have."""
        size, starts = self.data.rows, self.data.starts
        blocks, bags, turns = [], [], []
        for place, own in enumerate(self._streams):
            rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number, place)))
            blocks.append(rng.permutation(own))
            mine = np.concatenate([rng.permutation(np.arange(*starts[block : block + 2])) for block in blocks[-1]])
            upto = np.cumsum(size[mine])
            bags.append(mine)
            turns.append((upto - size[mine] / 2) / upto[-1])
        stream = np.repeat(np.arange(len(bags)), [len(mine) for mine in bags])
        order = np.argsort(np.concatenate(turns), kind="stable")
        dealt = np.concatenate(bags)[order]
        return _Pass(blocks, dealt, stream[order], cut(size[dealt], self.rows))

    def _pieces(self, order: _Pass, stream: int, skip: int, thread: Executor) -> Iterator[Tensor]:
        """The rows of a stream but the first `skip`, in pieces; the next block is read while one is used."""
        size, starts = self.data.rows, self.data.starts
        mine = order.bags[order.stream == stream]
        blocks = order.blocks[stream]
        counts = np.array([size[starts[block] : starts[block + 1]].sum() for block in blocks])
        first = int(np.searchsorted(np.cumsum(counts), skip, side="right"))
        skip -= int(counts[:first].sum())
        place = int((starts[blocks[:first] + 1] - starts[blocks[:first]]).sum())
        piece = max(1, _NUMBERS // (self.data.shape[1] * len(self._mine)))
        for block, stored in zip(blocks[first:], _ahead(self.data.block, blocks[first:], thread), strict=True):
            n_bags = int(starts[block + 1] - starts[block])
            offsets = np.concatenate([[0], np.cumsum(size[starts[block] : starts[block + 1]])])
            rows, _ = segment.take(np.arange(len(stored)), offsets, mine[place : place + n_bags] - starts[block])
            for start in range(skip, len(rows), piece):
                yield self.read(self.data.encode(stored[rows[start : start + piece]]))
            place, skip = place + n_bags, 0

    def _nothing(self) -> Tensor:
        """No rows, as the network reads them."""
        return self.read(self.data.encode(self.data.block(int(self._streams[int(self._mine[0])][0]))[:0]))


class _Rows:
    """Rows that come in pieces, taken as many at a time as asked for."""

    def __init__(self, pieces: Iterator[Tensor]) -> None:
        self.pieces, self.piece, self.place = pieces, torch.empty(0, device="cpu"), 0

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


def train(
    training: Training,
    loader: BlockLoader,
    options: Distributed,
    *,
    epochs: int,
    seed: int,
    record: Callable[[int, float], object],
) -> None:
    """Train for so many passes, from where the last checkpoint was written if there is one.

    seed: of dropout and its like.  record: called after each pass with its number and the mean loss of a bag; what it
    raises, it must raise in every process.
    """
    processes, checkpoints, objective = options.processes, options.checkpoints, training.objective
    device = next((weight.device for weight in training.module.parameters()), torch.device("cpu"))
    adds_up = processes.world > 1 and not (device.type == "cpu" and objective.written_out)
    if adds_up:
        objective.means = shared_means(objective.means, processes)
    found = processes.share_bytes(checkpoints.last() if checkpoints and processes.leads else b"")
    place = restore(training, found, checkpoints.folder if checkpoints else None)
    for epoch, loss in enumerate(place.losses, start=1):
        record(epoch, loss)
    copies = processes.copies(training.module.train())
    steps = epochs * (len(cut(loader.data.rows, loader.rows)) - 1)
    with lent_noise(device):  # dropout and its like draw from torch's global generators
        while place.epoch < epochs:
            if place.batch == 0 and training.average is not None:
                training.average.n_averaged.zero_()
            before, mine, bags = place.loss, np.zeros(1), place.bags
            for batch in loader.epoch(place.epoch, place.batch):
                drawn = np.random.SeedSequence(seed, spawn_key=(place.step, processes.rank)).generate_state(
                    1, np.uint64
                )
                noise = int(drawn[0] >> np.uint64(1))
                torch.default_generator.manual_seed(noise)
                if device.type != "cpu":
                    seed_noise(device, noise)
                mine += float(training.step(batch.x, batch.bags, module=copies, split=batch)) * len(batch.whole)
                bags += len(batch.whole)
                place = replace(place, batch=place.batch + 1, step=place.step + 1)
                if options.tell is not None:
                    options.tell(place.step, steps)
                if checkpoints is not None and (place.step % checkpoints.every == 0 or place.step == steps):
                    loss = before + float(processes.total(mine / processes.world)[0])
                    if processes.leads and np.isfinite(loss):  # what diverged is not gone on from
                        tensors, numbers = _state(training)
                        facts = vars(replace(place, loss=loss, bags=bags)) | {"numbers": numbers}
                        checkpoints.save(place.step, tensors, facts)
            mean = (before + float(processes.total(mine / processes.world)[0])) / bags
            place = Place(epoch=place.epoch + 1, step=place.step, losses=(*place.losses, mean))
            record(place.epoch, mean)
    if adds_up:
        objective.means = shared_means(objective.means, None)


def shared_means(means: Means | None, processes: Processes | None) -> Means | None:
    """A strategy that counts in the bags of all processes, or of this one alone."""
    if means is None or isinstance(means, Known):
        return means
    if not hasattr(means, "add_up"):
        raise ParameterError(
            "means",
            f"of the kind {type(means).__name__} sees the bags of one process only: give it a field add_up as those of "
            "bagwise.means have, or train in one process.",
        )
    return replace(means, add_up=None if processes is None else processes.add_up)  # type: ignore[type-var]


def restore(training: Training, data: bytes, folder: Path | None = None) -> Place:
    """Bring a training that has not begun to where a checkpoint was written.  folder: where it was found."""
    if not data:
        return Place()
    try:
        tensors, progress = unpacked(data)
        _restore(training, tensors | progress["numbers"])
        return Place(**{name: progress[name] for name in vars(Place())} | {"losses": tuple(progress["losses"])})
    except (SafetensorError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"the checkpoint in {folder} does not fit this training: name another folder, or remove it."
        ) from error


def _state(training: Training) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Everything that changes from step to step: tensors and numbers."""
    found: dict[str, Any] = {f"module.{name}": value for name, value in training.module.state_dict().items()}
    if training.average is not None:
        found |= {f"average.{name}": value for name, value in training.average.state_dict().items()}
    for parameter, entries in training.optimizer.state_dict()["state"].items():
        found |= {f"optimizer.{parameter}.{name}": value for name, value in entries.items()}
    if isinstance(training.objective.means, Running):
        total = torch.as_tensor(training.objective.means.total, device="cpu")
        found["means.total"] = total.item() if total.numel() == 1 else total  # a number goes with NumPy and torch
        found["means.weight"] = float(training.objective.means.weight)
    tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    numbers = {name: value for name, value in found.items() if name not in tensors}
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}, numbers


def _restore(training: Training, found: dict[str, Any]) -> None:
    def part(name: str) -> dict[str, Any]:
        return {key.removeprefix(name): value for key, value in found.items() if key.startswith(name)}

    training.module.load_state_dict(part("module."))
    if training.average is not None:
        training.average.load_state_dict(part("average."))
    entries: dict[int, dict[str, Any]] = {}
    for key, value in part("optimizer.").items():
        number, name = key.split(".", 1)
        entries.setdefault(int(number), {})[name] = value
    training.optimizer.load_state_dict({**training.optimizer.state_dict(), "state": entries})
    if isinstance(training.objective.means, Running):
        total, like = found["means.total"], next(training.module.parameters(), None)
        if isinstance(total, Tensor) and like is not None:
            total = total.to(like.device)
        training.objective.means.total, training.objective.means.weight = total, found["means.weight"]
