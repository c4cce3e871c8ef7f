"""Fully connected networks of one shape trained at once: stacked weights, one batched product for all.

Networks that share a partition and an order of bags, and differ in loss or learning rate, see the same batches, which
are dealt once. A loss sees the bags of all its networks as one long list, in one call. Derivatives are written out, and
intermediate results go to buffers that stay: they are megabytes, and to ask the system for such memory in every step
costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bagwise import segment
from bagwise.bags import Bags
from bagwise.bags.intervals import Intervals
from bagwise.neural.batches import cut, deal
from bagwise.neural.training import Objective, Training
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats, Integers

_FEW = 16  # fewer networks than this on the same batches join others that have as many batches
_AT_ONCE = 48  # more networks than this at once take memory and bring no speed
_CACHE = 2**21  # bytes of rows to gather at once: they are still near the processor when they are multiplied

Blocks = Iterable[tuple[slice, Tensor]]
"""Networks of a stack that follow each other, and the rows (networks, rows, features) that they read."""


@dataclass(frozen=True, eq=False)
class Member:
    """A training that has not begun, the bags it is for, and a key of its batches: equal keys promise equal batches.

    bags: their `order` points into the stack's X.  chosen: numbers of the bags to train on.
    """

    training: Training
    bags: Bags
    chosen: Integers
    batches: Any


def stacks_of(X: Tensor, members: Sequence[Member], rows: int) -> list[tuple[Stack, list[int]]]:
    """Stacks that hold every member once, each with its members' places in the list."""
    by_batches: dict[Any, list[int]] = {}
    for place, member in enumerate(members):
        by_batches.setdefault(member.batches, []).append(place)
    parts: dict[Any, list[int]] = {}
    for key, places in by_batches.items():
        first = members[places[0]]
        together = key if len(places) >= _FEW else ("few", len(cut(first.bags.rows[first.chosen], rows)))
        parts.setdefault(together, []).extend(places)
    cuts = [part[start : start + _AT_ONCE] for part in parts.values() for start in range(0, len(part), _AT_ONCE)]
    return [(Stack(X, [members[place] for place in part], rows), part) for part in cuts]


class Stack:
    """Networks trained in step on rows of X (n, features). `weights.write_back` hands them over to the trainings.

    The trainings' optimizers must be `torch.optim.Adam`, with rates of their own and otherwise alike.
    """

    def __init__(self, X: Tensor, members: Sequence[Member], rows: int) -> None:
        self.X, self.members, self.rows = X, members, rows
        self.weights = Weights([member.training for member in members])
        runs = [list(run) for _, run in groupby(range(len(members)), key=lambda place: members[place].batches)]
        self.leaders = [members[run[0]] for run in runs]
        self.batch_of = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
        self.gathered = Gathered(X, [len(run) for run in runs])
        self.groups = self._loss_groups()
        self._rank = np.argsort(np.concatenate([group.places for group in self.groups]))

    def epoch(self) -> Floats:
        """One pass of every network over its bags: (networks,) the mean loss of a bag."""
        self.weights.steps_of_epoch = 0
        losses, counts = [], []
        orders = [member.bags.take(member.training.rng.permutation(member.chosen)) for member in self.leaders]
        for batches in zip(*(deal(bags, self.rows) for bags in orders), strict=True):
            check_time()
            self.gathered.deal(batches)
            mine = [batches[number] for number in self.batch_of]
            logits = self.weights.logits(self.gathered.blocks(), self.gathered.n_rows).requires_grad_()
            losses.append(torch.cat([group.backward(logits, mine) for group in self.groups]))
            assert logits.grad is not None
            self.weights.step(self.weights.backward(logits.grad, self.gathered.blocks()))
            counts.append([len(bags) for bags in mine])
        return np.average(torch.stack(losses)[:, self._rank].cpu().numpy(), axis=0, weights=np.array(counts))

    def predict(self, X: Tensor, rows: int = 1024) -> Floats:
        """(networks, n) the predictions h of each network."""
        pairs = zip(self.members, self._logits(X, rows), strict=True)
        return np.stack([member.training.objective.predictions(one).cpu().numpy() for member, one in pairs])

    def score_bags(self) -> list[Floats]:
        """The log odds of the rows of each network's bags, in bag order."""
        scores = self._logits(self.X).cpu().numpy()
        return [s[member.bags.order] for s, member in zip(scores, self.members, strict=True)]

    @torch.no_grad()
    def _logits(self, X: Tensor, rows: int = 1024) -> Tensor:
        blocks = ([(slice(None), part.expand(len(self.members), -1, -1))] for part in X.split(rows))
        return torch.cat([self.weights.logits(one, one[0][1].shape[1], reading=True) for one in blocks], dim=1)

    def _loss_groups(self) -> list[_LossGroup]:
        """Members with the same loss and means, on batches of the same sizes, share a call."""
        groups: dict[Any, list[int]] = {}
        for place, member in enumerate(self.members):
            objective, equal = member.training.objective, member.bags.equal_size
            alike = equal is not None and member.bags.weight is None
            sizes = (equal, len(member.chosen)) if alike else member.batches
            # A strategy given as an object may hold anything: its network gets a call of its own.
            means = objective.means_name if objective.means_name is not None else place
            told = tuple(getattr(member.bags, name) is None for name in ("noise_variance", "interval", "offset"))
            what = (objective.loss, objective.effect_variance, objective.values, means, sizes, told)
            groups.setdefault(what, []).append(place)
        objectives = [member.training.objective for member in self.members]
        return [_LossGroup(np.array(places), objectives, self.weights.flat) for places in groups.values()]


class _LossGroup:
    """Networks whose losses are one call."""

    def __init__(self, places: Integers, objectives: Sequence[Objective], like: Tensor) -> None:
        first = objectives[places[0]]
        self.places, self.whole = places, len(places) == len(objectives)
        priors = [float(objectives[place].prior) for place in places]
        prior = torch.tensor(priors, dtype=like.dtype, device=like.device)
        self.objective = Objective(
            first.loss,
            first.means,
            prior,
            networks=len(places),
            effect_variance=first.effect_variance,
            values=first.values,
        )
        self.index = torch.from_numpy(places).to(like.device)

    def backward(self, logits: Tensor, batches: Sequence[Bags]) -> Tensor:
        """(networks,) each network's mean loss of a bag, whose derivatives go to the logits.

        batches: of all networks of the stack.
        """
        mine = [batches[place] for place in self.places]
        one = mine[0]
        values = (logits if self.whole else logits.index_select(0, self.index))[:, : one.n_bagged]
        if self.objective.reads_sums and one.equal_size is not None and one.weight is None and one.offset is None:
            proportion = segment.as_like(np.stack([bags.proportion for bags in mine]), values)
            found = self.objective.backward(values, replace(one, proportion=proportion))
        else:
            found = self.objective.backward(values, _one_list(mine).like(values))
        assert isinstance(found, Tensor)  # as there are several networks
        return found


def _one_list(batches: Sequence[Bags]) -> Bags:
    """The bags of several batches of the same sizes, one batch after the other, without the checks of `Bags`."""
    first, told = batches[0], ("keys", "size", "proportion", "noise_variance", "weight", "offset")
    intervals = [bags.interval for bags in batches if bags.interval is not None]
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(bags, name) for bags in batches])
        for name in told
        if getattr(first, name) is not None
    }
    return replace(
        first,
        **joined,
        offsets=np.concatenate([[0], np.cumsum(np.concatenate([np.diff(bags.offsets) for bags in batches]))]),
        interval=None if first.interval is None else Intervals.joined(intervals),
    )


class Gathered:
    """Rows of X, gathered for a few networks at a time, and once more for the derivatives.

    That is faster than to write the rows of all networks to memory and to read them twice.

    counts: how many networks, one after the other, read each batch.
    """

    def __init__(self, X: Tensor, counts: Sequence[int]) -> None:
        self.X, self.counts = X, counts
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.n_rows, self.place, self.room = 0, X[:0], X[:0]

    def deal(self, batches: Sequence[Bags]) -> None:
        """The next batches, one for each count. Shorter ones are filled up with row 0, which no loss looks at."""
        self.n_rows = max(bags.n_bagged for bags in batches)
        place = np.zeros((len(batches), self.n_rows), dtype=np.int64)
        for line, bags in zip(place, batches, strict=True):
            line[: bags.n_bagged] = bags.order
        self.place = torch.from_numpy(place).to(self.X.device)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Networks that read the same batch, or a few that read one each. A block is good until the next is asked."""
        width = self.X.shape[1]
        most = max(1, _CACHE // max(1, self.n_rows * width * self.X.element_size()))
        for first, end in pairwise(self._cuts(most)):
            rows = self.place[first:end].reshape(-1)
            if len(self.room) < len(rows):
                self.room = self.X.new_empty(len(rows), width)
            x = torch.index_select(self.X, 0, rows, out=self.room[: len(rows)]).view(end - first, self.n_rows, width)
            block = slice(int(self.starts[first]), int(self.starts[end]))
            yield block, x.expand(block.stop - block.start, -1, -1)

    def _cuts(self, most: int) -> list[int]:
        """Where blocks begin, and the end: a batch of several networks is a block; of others, up to `most` are."""
        cuts, alone = [], 0
        for number, count in enumerate(self.counts):
            if count > 1 or alone in (0, most):
                cuts.append(number)
                alone = 0
            alone = alone + 1 if count == 1 else 0
        return [*cuts, len(self.counts)]


class Weights:
    """The weights of all networks as one matrix (networks, weights), layers as views of it, and Adam on it."""

    def __init__(self, trainings: Sequence[Training]) -> None:
        self.trainings = trainings
        layers = [_linear_layers(training.module) for training in trainings]
        with torch.no_grad():
            pairs = [[part for layer in net for part in (layer.weight.T, layer.bias)] for net in layers]
            self.flat = torch.stack([torch.cat([part.reshape(-1) for part in parts]) for parts in pairs])
        self.shapes = [(layer.in_features, layer.out_features) for layer in layers[0]]
        self.layers = self._views(self.flat)
        options = [training.optimizer.param_groups[0] for training in trainings]
        self.rate, self.decay = (
            torch.tensor([group[name] for group in options], dtype=self.flat.dtype, device=self.flat.device)[:, None]
            for name in ("lr", "weight_decay")
        )
        self.decays, self.options = bool(self.decay.any()), options[0]
        self.mean, self.square = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.steps = self.steps_of_epoch = 0
        self.average = self.flat.clone() if trainings[0].average is not None else None
        self.buffers: dict[Any, Tensor] = {}
        self.inputs: list[Tensor] = []

    def _views(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weight (networks, in, out) and bias (networks, 1, out) of each layer."""
        views, start = [], 0
        for wide, narrow in self.shapes:
            middle, end = start + wide * narrow, start + wide * narrow + narrow
            views.append((flat[:, start:middle].unflatten(1, (wide, narrow)), flat[:, middle:end].unsqueeze(1)))
            start = end
        return views

    def _buffer(self, name: Any, rows: int, width: int) -> Tensor:
        """(networks, rows, width) to write to."""
        size = len(self.flat) * rows * width
        if name not in self.buffers or len(self.buffers[name]) < size:
            self.buffers[name] = self.flat.new_empty(size)
        return self.buffers[name][:size].view(len(self.flat), rows, width)

    def logits(self, blocks: Blocks, rows: int, *, reading: bool = False) -> Tensor:
        """(networks, rows) what the networks say; `reading`: with the weights to predict with."""
        layers = self._views(self.average) if reading and self.average is not None else self.layers
        self.inputs = []
        weight, bias = layers[0]
        x = self._buffer(0, rows, weight.shape[2])
        for block, read in blocks:
            torch.baddbmm(bias[block], read, weight[block], out=x[block])
        for number, (weight, bias) in enumerate(layers[1:], start=1):
            self.inputs.append(x.relu_())
            if number < len(layers) - 1:
                x = torch.baddbmm(bias, x, weight, out=self._buffer(number, x.shape[1], weight.shape[2]))
                continue
            # One output: a product of entries is several times as fast as a batched product with one column.
            product = torch.mul(x, weight.transpose(1, 2), out=self._buffer("slope", x.shape[1], x.shape[2]))
            return product.sum(2).add_(bias.squeeze(2))
        return x.squeeze(2).clone()

    def backward(self, slope: Tensor, blocks: Blocks) -> Tensor:
        """Derivatives by the weights, (networks, weights), from those by the last logits, (networks, rows)."""
        slope, parts = slope.unsqueeze(2), []
        for number in range(len(self.layers) - 1, 0, -1):
            x, weight = self.inputs[number - 1], self.layers[number][0]
            parts.append(slope.sum(1))
            scratch = self._buffer(("slope", number % 2), x.shape[1], x.shape[2])
            if weight.shape[2] == 1:  # one output, as above
                parts.append(torch.mul(x, slope, out=scratch).sum(1))
                slope = torch.mul(slope, weight.transpose(1, 2), out=scratch)
            else:
                parts.append(torch.bmm(x.transpose(1, 2), slope))
                slope = torch.bmm(slope, weight.transpose(1, 2), out=scratch)
            slope = torch.ops.aten.threshold_backward.grad_input(slope, x, 0, grad_input=slope)
        first = torch.empty_like(self.layers[0][0], memory_format=torch.contiguous_format)
        for block, read in blocks:
            torch.bmm(read.transpose(1, 2), slope[block], out=first[block])
        parts += [slope.sum(1), first]
        return torch.cat([part.reshape(len(self.flat), -1) for part in reversed(parts)], dim=1)

    def step(self, slope: Tensor) -> None:
        """One step of Adam, as `torch.optim.Adam` does it, with a learning rate per network."""
        (fast, slow), eps = self.options["betas"], self.options["eps"]
        self.steps += 1
        self.steps_of_epoch += 1
        if self.decays:
            slope = slope + self.decay * self.flat
        self.mean.lerp_(slope, 1 - fast)
        self.square.mul_(slow).addcmul_(slope, slope, value=1 - slow)
        spread = self.square.sqrt().div_((1 - slow**self.steps) ** 0.5).add_(eps)
        self.flat.sub_(torch.div(self.mean, spread, out=spread).mul_(self.rate / (1 - fast**self.steps)))
        if self.average is not None:
            self.average.lerp_(self.flat, 1 / self.steps_of_epoch)

    @torch.no_grad()
    def write_back(self) -> None:
        """Put the weights into the trainings' modules."""
        for matrix, name in ((self.flat, "module"), (self.average, "reading")):
            if matrix is None:
                continue
            views = self._views(matrix)
            for place, training in enumerate(self.trainings):
                layers = _linear_layers(getattr(training, name))
                for layer, (weight, bias) in zip(layers, views, strict=True):
                    layer.weight.copy_(weight[place].T)
                    layer.bias.copy_(bias[place, 0])


def _linear_layers(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
