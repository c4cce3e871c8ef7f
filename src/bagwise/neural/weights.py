"""The weights of stacked networks, their derivatives and Adam; and the rows that the networks read.

Derivatives are written out, and intermediate results go to buffers that stay: they are megabytes, and to ask the system
for such memory in every step costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from bagwise.bags import Bags
from bagwise.neural.training import Training

_CACHE = 2**21  # bytes of rows to gather at once: they are still near the processor when they are multiplied


class Rows(Protocol):
    """What each network of a stack reads."""

    @property
    def n_rows(self) -> int:
        """Rows of the longest batch."""

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Networks that follow each other, and their rows (networks, rows, features)."""


class Shared:
    """The same rows for all networks."""

    def __init__(self, rows: Tensor, networks: int) -> None:
        self.rows, self.networks, self.n_rows = rows, networks, len(rows)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """One block of all networks."""
        yield slice(None), self.rows.expand(self.networks, -1, -1)


class Gathered:
    """Rows of X, gathered for a few networks at a time, and once more for the derivatives.

    That is faster than to write the rows of all networks to memory and to read them twice.

    counts: how many networks, one after the other, read each batch.
    """

    def __init__(self, X: Tensor, counts: Sequence[int]) -> None:
        self.X, self.counts = X, counts
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.n_rows, self.place, self.room = 0, torch.empty(0), X[:0]

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
            torch.tensor([group[name] for group in options], dtype=torch.float64).to(self.flat)[:, None]
            for name in ("lr", "weight_decay")
        )
        self.decays, self.options = bool(self.decay.any()), options[0]
        self.mean, self.square = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.steps = self.steps_of_epoch = 0
        self.average = self.flat.clone() if trainings[0].average is not None else None
        self.buffers: dict[Any, Tensor] = {}
        self.rows: Rows = Shared(self.flat[:0], len(trainings))
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

    def logits(self, rows: Rows, *, reading: bool = False) -> Tensor:
        """(networks, rows) what the networks say; `reading`: with the weights to predict with."""
        layers = self._views(self.average) if reading and self.average is not None else self.layers
        self.rows, self.inputs = rows, []
        weight, bias = layers[0]
        x = self._buffer(0, rows.n_rows, weight.shape[2])
        for block, read in rows.blocks():
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

    def backward(self, slope: Tensor) -> Tensor:
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
        for block, read in self.rows.blocks():
            torch.bmm(read.transpose(1, 2), slope[block], out=first[block])
        parts += [slope.sum(1), first]
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
