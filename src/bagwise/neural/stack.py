"""Fully connected networks of one shape trained at once: stacked weights, one batched product for all.

A stack is either many networks on the same batches (they share a partition and an order of bags, and differ in loss or
learning rate) or many on batches of their own. A loss sees the bags of all its networks as one long list, in one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bagwise.bags import Bags
from bagwise.losses import by_name
from bagwise.means import Mean, Means
from bagwise.neural.batches import cut, stretch
from bagwise.neural.gradients import DebiasedSquare, covers
from bagwise.neural.training import Training

_FEW = 16  # fewer networks than this on the same batches join a stack of others
_AT_ONCE = 48  # more networks than this at once take memory and bring no speed


@dataclass(frozen=True, eq=False)
class Member:
    """A training that has not begun, the bags it is for, and a key of its batches: equal keys promise equal batches.

    bags: their `order` points into the stack's X.  chosen: numbers of the bags to train on.
    """

    training: Training
    bags: Bags
    chosen: NDArray[np.integer]
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
        self.X, self.members, self.rows = X, members, rows
        self.weights = _Weights([member.training for member in members])
        self.leaders = members[:1] if len({member.batches for member in members}) == 1 else members
        self.groups = self._loss_groups()
        self._rank = np.argsort(np.concatenate([group.places for group in self.groups]))

    def epoch(self) -> NDArray[np.floating]:
        """One pass of every network over its bags: (networks,) the mean loss of a bag."""
        self.weights.begin_epoch()
        losses, counts = [], []
        for batches in zip(*(member.deal(self.rows) for member in self.leaders), strict=True):
            logits = self.weights.logits(self._gather(batches)).requires_grad_()
            each = torch.cat([group.losses(logits, batches) for group in self.groups])
            (slope,) = torch.autograd.grad(each.sum(), [logits])
            self.weights.step(self.weights.backward(slope))
            losses.append(each.detach())
            counts.append([len(bags) for bags in batches])
        weight = np.broadcast_to(np.array(counts), (len(losses), len(self.members)))
        return np.average(torch.stack(losses)[:, self._rank].cpu().numpy(), axis=0, weights=weight)

    @torch.no_grad()
    def predict(self, X: Tensor, rows: int = 1024) -> NDArray[np.floating]:
        """(networks, n) the predictions h of each network."""
        networks = len(self.members)
        parts = [self.weights.logits(part.expand(networks, -1, -1), reading=True) for part in X.split(rows)]
        return torch.sigmoid(torch.cat(parts, dim=1)).cpu().numpy()

    def write_back(self) -> None:
        """Put the weights into the trainings' modules."""
        self.weights.write_back()

    def _gather(self, batches: Sequence[Bags]) -> Tensor:
        """(networks, rows, features) the rows of each network's batch; where batches are shared, they are there once.

        Shorter batches are filled up with row 0, which no loss looks at.
        """
        longest = max(bags.n_bagged for bags in batches)
        place = np.zeros((len(batches), longest), dtype=np.int64)
        for line, bags in zip(place, batches, strict=True):
            line[: bags.n_bagged] = bags.order
        x = self.X.index_select(0, torch.from_numpy(place.reshape(-1)).to(self.X.device))
        return x.view(len(batches), longest, -1).expand(len(self.members), -1, -1)

    def _loss_groups(self) -> list[_LossGroup]:
        """Members with the same loss and means, on batches of the same sizes, share a call."""
        groups: dict[Any, list[int]] = {}
        for place, member in enumerate(self.members):
            training, equal = member.training, member.bags.equal_size
            sizes = (equal, len(member.chosen)) if equal is not None else member.batches
            # A strategy given as an object may hold anything: its network gets a call of its own.
            means = training.means_name if training.means_name is not None else place
            groups.setdefault((training.loss, means, sizes), []).append(place)
        trainings = [member.training for member in self.members]
        return [_LossGroup(np.array(places), trainings, len(self.leaders) == 1) for places in groups.values()]


class _LossGroup:
    """Networks whose losses are one call; one means strategy serves them all, its state a vector."""

    def __init__(self, places: NDArray[np.integer], trainings: Sequence[Training], shared: bool) -> None:
        first = trainings[places[0]]
        self.places, self.shared = places, shared
        self.whole = len(places) == len(trainings)
        self.written_out = first.loss == "ours" and covers(first.means, first.prior)
        self.function, self.means = by_name(first.loss), first.means
        self.prior = torch.tensor([float(trainings[place].prior) for place in places]).double()
        self.index = torch.from_numpy(places)

    def losses(self, logits: Tensor, batches: Sequence[Bags]) -> Tensor:
        """(networks,) each network's mean loss of a bag."""
        mine = [batches[0]] * len(self.places) if self.shared else [batches[place] for place in self.places]
        one = mine[0]
        values = logits if self.whole else logits.index_select(0, self.index.to(logits.device))
        values = values[:, : one.n_bagged]
        if self.written_out and one.equal_size is not None:
            proportion = torch.from_numpy(np.stack([bags.proportion for bags in mine])).to(values)
            return DebiasedSquare.apply(values, proportion, one.equal_size, self.prior.to(values)[:, None], self.means)
        values = values.reshape(-1)
        if not self.function.takes_logits:
            values = torch.sigmoid(values)
        options: dict[str, Any] = {"logits": True} if self.function.takes_logits else {}
        loss = self.function(
            values,
            _one_list(mine).like(values),
            prior=self.prior.to(values).repeat_interleave(len(one)),
            means=None if self.means is None else _Each(self.means, one.like(values), len(mine)),
            **options,
        )
        return loss.view(len(mine), -1).mean(1)


class _Each:
    """A means strategy applied to every network's rows: strategies treat columns one by one."""

    def __init__(self, strategy: Means, bags: Bags, networks: int) -> None:
        self.strategy, self.bags, self.networks = strategy, bags, networks

    def __call__(self, values: Tensor, bags: Bags) -> Mean:
        """The estimates of all networks, in the order of their bags."""
        estimate = self.strategy(values.view(self.networks, -1).T, self.bags)
        return Mean(self._listed(estimate.value), self._listed(estimate.variance))

    def _listed(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.broadcast_to(len(self.bags), self.networks).T.reshape(-1)


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


class _Weights:
    """The weights of all networks as one matrix (networks, weights), layers as views of it, and Adam on it.

    Derivatives are written out, and intermediate results go to buffers that stay: they are megabytes, and to ask the
    system for such memory in every step costs more than the arithmetic.
    """

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
            torch.tensor([group[name] for group in options], dtype=torch.float64).to(self.flat)[:, None]
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

    def logits(self, x: Tensor, *, reading: bool = False) -> Tensor:
        """(networks, rows) from x (networks, rows, features); `reading`: with the weights to predict with."""
        layers = self._views(self.average) if reading and self.average is not None else self.layers
        self.inputs = [x]
        for number, (weight, bias) in enumerate(layers[:-1]):
            out = self._buffer(number, x.shape[1], weight.shape[2])
            x = torch.baddbmm(bias, x, weight, out=out).relu_()
            self.inputs.append(x)
        weight, bias = layers[-1]
        if len(layers) == 1:
            return torch.baddbmm(bias, x, weight).squeeze(2)
        # One output: a product of entries is several times as fast as a batched product with one column.
        product = torch.mul(x, weight.transpose(1, 2), out=self._buffer("slope", x.shape[1], x.shape[2]))
        return product.sum(2).add_(bias.squeeze(2))

    def backward(self, slope: Tensor) -> Tensor:
        """Derivatives by the weights, (networks, weights), from those by the last logits, (networks, rows)."""
        slope, parts = slope.unsqueeze(2), []
        for number in range(len(self.layers) - 1, -1, -1):
            x, weight = self.inputs[number], self.layers[number][0]
            parts.append(slope.sum(1))
            scratch = None if number == 0 else self._buffer(("slope", number % 2), x.shape[1], x.shape[2])
            if weight.shape[2] == 1 and number > 0:  # one output, as above
                parts.append(torch.mul(x, slope, out=scratch).sum(1))
                slope = torch.mul(slope, weight.transpose(1, 2), out=scratch)
            else:
                parts.append(torch.bmm(x.transpose(1, 2), slope))
                slope = torch.bmm(slope, weight.transpose(1, 2), out=scratch) if number > 0 else slope
            if number > 0:
                slope = torch.ops.aten.threshold_backward.grad_input(slope, x, 0, grad_input=slope)
        return torch.cat([part.reshape(len(self.flat), -1) for part in reversed(parts)], dim=1)

    def begin_epoch(self) -> None:
        """Averages are over the steps of one epoch."""
        self.steps_of_epoch = 0

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
