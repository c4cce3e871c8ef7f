"""One network trained on lanes of bags, by one process or several, stopped and taken up again as need be.

The loss of a batch is the mean over its bags, whoever holds them, and E[h] is that of all its bags. The debiased square
loss reads predictions through the sums of bags alone: the processes tell each other these, one number per bag, in one
message, and each then knows the derivatives by its own. Other losses are computed by each process for its own bags; for
E[h] they add up their sums of h (`Ranks.add_up`), two numbers, and back-propagation adds up the derivatives in the same
way. The derivatives of the weights are averaged by torch's `DistributedDataParallel`. With the batches of `Lanes`,
which do not depend on the number of processes, the steps do not either, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch

from bagwise.means import Known, Means
from bagwise.neural.distributed.batches import LANES, Batch, Lanes
from bagwise.neural.distributed.checkpoints import Checkpoints, Place, restore
from bagwise.neural.distributed.processes import Ranks
from bagwise.neural.gradients import covers, of_sums
from bagwise.neural.training import Training, batch_loss


@dataclass(frozen=True)
class Together:
    """How a network is trained on blocks of bags.

    lanes: see `neural.lanes`.  checkpoints: None writes none.  tell: called with the steps done and those in all.
    """

    ranks: Ranks = field(default_factory=Ranks)
    lanes: int = LANES
    checkpoints: Checkpoints | None = None
    tell: Callable[[int, int], object] | None = None


def train(
    training: Training,
    lanes: Lanes,
    together: Together,
    *,
    epochs: int,
    seed: int,
    record: Callable[[int, float], object],
) -> None:
    """Train for so many passes, from where the last checkpoint was written if there is one.

    seed: of dropout and its like.  record: called after each pass with its number and the mean loss of a bag; what it
    raises, it must raise in every process.
    """
    ranks, checkpoints = together.ranks, together.checkpoints
    on_cpu = all(weight.device.type == "cpu" for weight in training.module.parameters())
    by_sums = on_cpu and training.loss == "ours" and covers(training.means, training.prior)
    if ranks.world > 1 and not by_sums:
        training.means = _shared(training.means, ranks)
    found = ranks.share_bytes(checkpoints.last() if checkpoints and ranks.leads else b"")
    place = restore(training, found, checkpoints.folder if checkpoints else None)
    copies = ranks.copies(training.module.train())
    backward = _by_sums if by_sums else _by_bags
    with torch.random.fork_rng(devices=[]):  # dropout and its like draw from torch's global generator
        while place.epoch < epochs:
            if place.batch == 0 and training.average is not None:
                training.average.n_averaged.zero_()
            before, mine, bags = place.loss, np.zeros(1), place.bags
            for batch in lanes.epoch(place.epoch, place.batch):
                torch.default_generator.manual_seed(_drawn(seed, place.step, ranks.rank))
                mine += training.after(partial(backward, training, copies, batch, ranks))
                bags += len(batch.whole)
                place = replace(place, batch=place.batch + 1, step=place.step + 1)
                if together.tell is not None:
                    together.tell(place.step, epochs * lanes.n_batches)
                if checkpoints is not None and place.step % checkpoints.every == 0:
                    loss = before + float(ranks.total(mine.copy())[0])
                    if ranks.leads:
                        checkpoints.save(training, replace(place, loss=loss, bags=bags))
            place = Place(epoch=place.epoch + 1, step=place.step)
            record(place.epoch, (before + float(ranks.total(mine)[0])) / bags)
    if ranks.world > 1 and not by_sums:
        training.means = _shared(training.means, None)


def _by_sums(training: Training, copies: torch.nn.Module, batch: Batch, ranks: Ranks) -> float:
    """Derivatives of the batch's mean debiased square loss into the parameters; this process's share of the losses."""
    logits = copies(batch.x)
    h = torch.sigmoid(logits.detach()).view(-1).numpy()
    sums = np.zeros(len(batch.whole), dtype=h.dtype)
    sums[batch.mine] = batch.bags.sum(h)
    size, proportion = (part.astype(sums.dtype) for part in (batch.whole.size, batch.whole.proportion))
    rows = batch.whole.n_rows
    assert training.means is not None
    loss, slope = of_sums(ranks.total(sums), size, proportion, rows, training.prior, training.means)
    slope = batch.bags.repeat(slope[batch.mine] * ranks.world)  # since the mean over processes is taken
    logits.backward(torch.from_numpy(h * (1 - h) * slope).view(logits.shape))
    return float(loss) * len(batch.whole) / ranks.world


def _by_bags(training: Training, copies: torch.nn.Module, batch: Batch, ranks: Ranks) -> float:
    """The same of any loss."""
    losses = batch_loss(
        copies(batch.x), batch.bags, loss=training.loss, means=training.means, prior=training.prior
    ).sum()
    (losses * (ranks.world / len(batch.whole))).backward()
    return float(losses.detach())


def _shared(means: Means | None, ranks: Ranks | None) -> Means | None:
    """A strategy that counts in the bags of all processes, or of this one alone."""
    if means is None or isinstance(means, Known):
        return means
    if not hasattr(means, "add_up"):
        raise ValueError(
            f"means={type(means).__name__} sees the bags of one process only: give it a field add_up as those of "
            "bagwise.means have, or train in one process."
        )
    return replace(means, add_up=None if ranks is None else ranks.add_up)  # type: ignore[type-var]


def _drawn(seed: int, step: int, rank: int) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=(step, rank)).generate_state(1, np.uint64)[0] >> np.uint64(1))
