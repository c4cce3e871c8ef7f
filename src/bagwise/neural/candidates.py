"""Networks of several learning rates, trained beside each other on the training bags of every fold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from bagwise.folds import Fold
from bagwise.means import prior
from bagwise.neural.batches import BagTensors
from bagwise.neural.stack import Member, stacks_of
from bagwise.neural.training import Training
from bagwise.neural.tuning import Candidate, over_folds
from bagwise.risk import held_out_risk


def candidates_of(
    start: Callable[[float, Any, np.random.Generator], Training],
    rates: Sequence[float],
    data: BagTensors,
    folds: list[Fold],
    rows: int,
    rng: np.random.Generator,
    *,
    stackable: bool,
) -> list[Candidate]:
    """A candidate per learning rate; all see the same batches of each fold.

    start: makes a training from a learning rate, a prior and a generator.  stackable: networks that `Stack` can train.
    """
    seeds = [int(rng.integers(2**63)) for _ in folds]
    priors = [prior(data.bags.take(fold.train)) for fold in folds]

    def runs(rate: float) -> list[Training]:
        return [start(rate, p, np.random.default_rng(seed)) for p, seed in zip(priors, seeds, strict=True)]

    if stackable and len(rates) * len(folds) > 1:
        return list(_Together([runs(rate) for rate in rates], rates, data, folds, rows).candidates())
    return [_OneByOne(rate, runs, data, folds, rows) for rate in rates]


@dataclass(frozen=True, eq=False)
class _OneByOne:
    """One learning rate: a network per fold, trained epoch by epoch."""

    learning_rate: float
    runs: Callable[[float], list[Training]]
    data: BagTensors
    folds: list[Fold]
    rows: int

    def epochs(self) -> Iterator[tuple[float, float]]:
        """Mean training loss and held-out risk over the folds, after each epoch."""
        pairs = list(zip(self.runs(self.learning_rate), self.folds, strict=True))
        while True:
            losses = [run.epoch(self.data, self.rows, fold.train) for run, fold in pairs]
            risks = [held_out_risk(run.predict(self.data.X, self.rows), self.data.bags, fold) for run, fold in pairs]
            yield float(np.mean(losses)), over_folds(risks, self.folds)


class _Together:
    """All learning rates and folds as stacked networks. An epoch is trained when the first candidate asks for it."""

    def __init__(
        self, runs: list[list[Training]], rates: Sequence[float], data: BagTensors, folds: list[Fold], rows: int
    ) -> None:
        self.rates, self.data, self.folds = rates, data, folds
        bags = replace(data.bags, order=np.arange(data.bags.n_bagged))  # data.X is in bag order already
        members = [
            Member(training=run, bags=bags, chosen=fold.train, batches=number)
            for mine in runs
            for number, (run, fold) in enumerate(zip(mine, folds, strict=True))
        ]
        self.stacks = stacks_of(data.X, members, rows)
        self.lines: list[list[tuple[float, float]]] = []  # per epoch, per learning rate

    def candidates(self) -> Iterator[_View]:
        """One per learning rate."""
        return (_View(rate, number, self) for number, rate in enumerate(self.rates))

    def train(self) -> None:
        """One more epoch of all networks."""
        shape = (len(self.rates), len(self.folds))
        losses, risks = np.empty(shape), np.empty(shape)
        for stack, places in self.stacks:
            losses.flat[places] = stack.epoch()
            for place, h in zip(places, stack.predict(self.data.X), strict=True):
                risks.flat[place] = held_out_risk(h, self.data.bags, self.folds[place % len(self.folds)])
        lines = zip(losses, risks, strict=True)
        self.lines.append([(float(loss.mean()), over_folds(risk, self.folds)) for loss, risk in lines])


@dataclass(frozen=True, eq=False)
class _View:
    """One learning rate of networks trained together."""

    learning_rate: float
    number: int
    together: _Together

    def epochs(self) -> Iterator[tuple[float, float]]:
        """Mean training loss and held-out risk over the folds, after each epoch."""
        for epoch in count():
            if epoch == len(self.together.lines):
                self.together.train()
            yield self.together.lines[epoch][self.number]
