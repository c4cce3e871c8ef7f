"""One network trained on blocks of bags, by one process or several, stopped and taken up again as need be.

The loss of a batch is the mean over its bags, whoever holds them, and E[h] is that of all its bags. A loss that reads
predictions through the sums of bags alone needs one message: the processes tell each other these, one number per bag,
and each then knows the derivatives by its own. Other losses are computed by each process for its own bags; for E[h]
they add up their sums of h (`Processes.add_up`), two numbers, and back-propagation adds up the derivatives in the same
way. The derivatives of the weights are averaged by torch's `DistributedDataParallel`. With the batches of
`BlockLoader`, which do not depend on the number of processes, the steps do not either, but for rounding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from bagwise.data.rows import BagRows
from bagwise.means import Known, Means
from bagwise.neural.distributed.checkpoints import Checkpoints, Place, restore
from bagwise.neural.distributed.loader import STREAMS, BlockLoader, check_streams
from bagwise.neural.distributed.processes import Processes
from bagwise.neural.training import Training
from bagwise.utils.parameters import ParameterError


@dataclass(frozen=True)
class Distributed:
    """How a network is trained on blocks of bags.

    Parameters
    ----------
    processes : Processes, optional
        Those that train it; this one alone if not given. See `joined`.
    streams : int, default 8
        Streams that blocks are read in, at least as many as processes.
    checkpoints : Checkpoints, optional
        Where the state of training goes, and where it is taken up again; None writes none.
    tell : callable, optional
        Called with the steps done and those in all.
    """

    processes: Processes = field(default_factory=Processes)
    streams: int = STREAMS
    checkpoints: Checkpoints | None = None
    tell: Callable[[int, int], object] | None = None


def settle(
    data: BagRows, parameters: dict[str, Any], options: Distributed, decide: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What is decided before training begins, as plain data: as it was when the checkpoints began, or as it is now.

    parameters: that the result depends on.  decide: called in the leading process alone.
    """
    processes, checkpoints = options.processes, options.checkpoints
    check_streams(data, options.streams, processes.world)
    task = {"checksum of the rows": data.fingerprint, "streams": options.streams}
    task |= {name: as_text(value) for name, value in parameters.items()}
    processes.agree({**task, "every": None if checkpoints is None else checkpoints.every})
    settings = None
    if checkpoints is not None and processes.leads:
        checkpoints.check_place()
        settings = checkpoints.decided(task)
    if settings is None and processes.leads:
        settings = decide()
        if checkpoints is not None:
            checkpoints.decide(task, settings)
    shared: dict[str, Any] = processes.share(settings)
    return shared


def as_text(value: Any) -> str:
    """A parameter in words that are the same in every process: without the addresses of functions."""
    try:
        return json.dumps(value, default=lambda one: one.tolist())
    except (AttributeError, TypeError):
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


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
    on_cpu = all(weight.device.type == "cpu" for weight in training.module.parameters())
    adds_up = processes.world > 1 and not (on_cpu and objective.reads_sums)
    if adds_up:
        objective.means = shared_means(objective.means, processes)
    found = processes.share_bytes(checkpoints.last() if checkpoints and processes.leads else b"")
    place = restore(training, found, checkpoints.folder if checkpoints else None)
    for epoch, loss in enumerate(place.losses, start=1):
        record(epoch, loss)
    copies = processes.copies(training.module.train())
    steps = epochs * loader.n_batches
    with torch.random.fork_rng(devices=[]):  # dropout and its like draw from torch's global generator
        while place.epoch < epochs:
            if place.batch == 0 and training.average is not None:
                training.average.n_averaged.zero_()
            before, mine, bags = place.loss, np.zeros(1), place.bags
            for batch in loader.epoch(place.epoch, place.batch):
                torch.default_generator.manual_seed(_drawn(seed, place.step, processes.rank))
                mine += float(training.step(batch.x, batch.bags, module=copies, split=batch)) * len(batch.whole)
                bags += len(batch.whole)
                place = replace(place, batch=place.batch + 1, step=place.step + 1)
                if options.tell is not None:
                    options.tell(place.step, steps)
                if checkpoints is not None and (place.step % checkpoints.every == 0 or place.step == steps):
                    loss = before + float(processes.total(mine / processes.world)[0])
                    if processes.leads and np.isfinite(loss):  # what diverged is not gone on from
                        checkpoints.save(training, replace(place, loss=loss, bags=bags))
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


def _drawn(seed: int, step: int, rank: int) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=(step, rank)).generate_state(1, np.uint64)[0] >> np.uint64(1))
