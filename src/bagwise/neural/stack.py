"""Fully connected networks of one shape trained at once: stacked weights, one batched product for all.

Networks that share a partition and an order of bags, and differ in loss or learning rate, see the same batches, which
are dealt once. A loss sees the bags of all its networks as one long list, in one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bagwise.bags import Bags
from bagwise.neural.batches import cut, stretch
from bagwise.neural.objective import Objective
from bagwise.neural.training import Training
from bagwise.neural.weights import Gathered, Shared, Weights
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats, Integers

_FEW = 16  # fewer networks than this on the same batches join a stack of others
_AT_ONCE = 48  # more networks than this at once take memory and bring no speed


@dataclass(frozen=True, eq=False)
class Member:
    """A training that has not begun, the bags it is for, and a key of its batches: equal keys promise equal batches.

    bags: their `order` points into the stack's X.  chosen: numbers of the bags to train on.
    """

    training: Training
    bags: Bags
    chosen: Integers
    batches: Any

    def deal(self, rows: int) -> Iterator[Bags]:
        """One pass in batches, as `BagTensors.epoch` deals them."""
        index = self.training.rng.permutation(self.chosen)
        whole = self.bags.take(index)
        for start, stop in pairwise(cut(whole.size, rows)):
            yield stretch(whole, start, stop)

    def n_batches(self, rows: int) -> int:
        """Batches in one pass."""
        return len(cut(self.bags.size[self.chosen], rows)) - 1


def stacks_of(X: Tensor, members: Sequence[Member], rows: int) -> list[tuple[Stack, list[int]]]:
    """Stacks that hold every member once, each with its members' places in the list."""
    by_batches: dict[Any, list[int]] = {}
    for place, member in enumerate(members):
        by_batches.setdefault(member.batches, []).append(place)
    parts: list[list[int]] = []
    alone: dict[int, list[int]] = {}
    for places in by_batches.values():
        if len(places) >= _FEW:
            parts.append(places)
        else:
            alone.setdefault(members[places[0]].n_batches(rows), []).extend(places)
    parts.extend(alone.values())
    cuts = [part[start : start + _AT_ONCE] for part in parts for start in range(0, len(part), _AT_ONCE)]
    return [(Stack(X, [members[place] for place in part], rows), part) for part in cuts]


class Stack:
    """Networks trained in step on rows of X (n, features). `write_back` hands the weights over to the trainings.

    The trainings' optimizers must be `torch.optim.Adam`, with rates of their own and otherwise alike.
    """

    def __init__(self, X: Tensor, members: Sequence[Member], rows: int) -> None:
        self.members, self.rows = members, rows
        self.weights = Weights([member.training for member in members])
        runs = [list(run) for _, run in groupby(range(len(members)), key=lambda place: members[place].batches)]
        self.leaders = [members[run[0]] for run in runs]
        self.batch_of = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
        self.gathered = Gathered(X, [len(run) for run in runs])
        self.groups = self._loss_groups()
        self._rank = np.argsort(np.concatenate([group.places for group in self.groups]))

    def epoch(self) -> Floats:
        """One pass of every network over its bags: (networks,) the mean loss of a bag."""
        self.weights.begin_epoch()
        losses, counts = [], []
        for batches in zip(*(member.deal(self.rows) for member in self.leaders), strict=True):
            check_time()
            self.gathered.deal(batches)
            mine = [batches[number] for number in self.batch_of]
            logits = self.weights.logits(self.gathered).requires_grad_()
            losses.append(torch.cat([group.backward(logits, mine) for group in self.groups]))
            assert logits.grad is not None
            self.weights.step(self.weights.backward(logits.grad))
            counts.append([len(bags) for bags in mine])
        return np.average(torch.stack(losses)[:, self._rank].cpu().numpy(), axis=0, weights=np.array(counts))

    @torch.no_grad()
    def predict(self, X: Tensor, rows: int = 1024) -> Floats:
        """(networks, n) the predictions h of each network."""
        networks = len(self.members)
        parts = [self.weights.logits(Shared(part, networks), reading=True) for part in X.split(rows)]
        return torch.sigmoid(torch.cat(parts, dim=1)).cpu().numpy()

    def write_back(self) -> None:
        """Put the weights into the trainings' modules."""
        self.weights.write_back()

    def _loss_groups(self) -> list[_LossGroup]:
        """Members with the same loss and means, on batches of the same sizes, share a call."""
        groups: dict[Any, list[int]] = {}
        for place, member in enumerate(self.members):
            objective, equal = member.training.objective, member.bags.equal_size
            sizes = (equal, len(member.chosen)) if equal is not None else member.batches
            # A strategy given as an object may hold anything: its network gets a call of its own.
            means = objective.means_name if objective.means_name is not None else place
            groups.setdefault((objective.loss, means, sizes), []).append(place)
        objectives = [member.training.objective for member in self.members]
        return [_LossGroup(np.array(places), objectives, self.weights.flat) for places in groups.values()]


class _LossGroup:
    """Networks whose losses are one call."""

    def __init__(self, places: Integers, objectives: Sequence[Objective], like: Tensor) -> None:
        first = objectives[places[0]]
        self.places, self.whole = places, len(places) == len(objectives)
        prior = torch.tensor([float(objectives[place].prior) for place in places], dtype=torch.float64).to(like)
        self.objective = Objective(first.loss, first.means, prior, networks=len(places))
        self.index = torch.from_numpy(places).to(like.device)

    def backward(self, logits: Tensor, batches: Sequence[Bags]) -> Tensor:
        """(networks,) each network's mean loss of a bag, whose derivatives go to the logits.

        batches: of all networks of the stack.
        """
        mine = [batches[place] for place in self.places]
        one = mine[0]
        values = logits if self.whole else logits.index_select(0, self.index)
        values = values[:, : one.n_bagged]
        if self.objective.reads_sums and one.equal_size is not None:
            proportion = torch.from_numpy(np.stack([bags.proportion for bags in mine])).to(values)
            return torch.as_tensor(self.objective.backward(values, replace(one, proportion=proportion)))
        return torch.as_tensor(self.objective.backward(values, _one_list(mine).like(values)))


def _one_list(batches: Sequence[Bags]) -> Bags:
    """The bags of several batches of the same sizes, one batch after the other, without the checks of `Bags`."""
    first, size = batches[0], np.concatenate([bags.size for bags in batches])
    noise = None if first.noise_variance is None else np.concatenate([bags.noise_variance for bags in batches])
    return Bags(
        keys=np.concatenate([bags.keys for bags in batches]),
        order=first.order,
        offsets=np.concatenate([[0], np.cumsum(size)]),
        size=size,
        proportion=np.concatenate([bags.proportion for bags in batches]),
        noise_variance=noise,
        n_rows=first.n_rows,
        equal_size=first.equal_size,
    )
