"""The learning rate and the number of epochs, chosen by the label-free risk of held-out bags.

Networks of all learning rates are trained on the training bags of every fold: beside each other where they can be
stacked, and one after the other where not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from bagwise.folds import Fold
from bagwise.means import prior
from bagwise.neural.batches import BagTensors
from bagwise.neural.stack import Member, stacks_of
from bagwise.neural.training import Training
from bagwise.risk import held_out_risk
from bagwise.utils.typing import Floats

Path = Iterator[tuple[float, float]]
"""Networks of one learning rate, trained one epoch at a time: the mean training loss, and the risk of all folds."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the held-out risk it had."""

    learning_rate: float
    n_epochs: int
    risk: float


def choose(
    candidates: Sequence[tuple[float, Path]], *, max_epochs: int, patience: int, record: Callable[..., None]
) -> Choice:
    """The learning rate and the epoch with the least held-out risk.

    A candidate stops when `patience` epochs brought no new least risk, and is dropped when its loss is no longer a
    finite number. `record` gets each epoch's figures.
    """
    best: Choice | None = None
    for rate, path in candidates:
        risks: list[float] = []
        for loss, risk in path:
            risks.append(risk)
            record(learning_rate=rate, epoch=len(risks), loss=loss, risk=risk)
            if not (np.isfinite(loss) and np.isfinite(risk)):
                risks = []
                break
            if len(risks) == max_epochs or len(risks) - 1 - int(np.argmin(risks)) >= patience:
                break
        if risks and (best is None or min(risks) < best.risk):
            best = Choice(rate, int(np.argmin(risks)) + 1, min(risks))
    if best is None:
        tried = ", ".join(f"{rate:g}" for rate, _ in candidates)
        raise ValueError(
            f"training diverged with every learning rate tried ({tried}): give a smaller learning_rate, "
            "or scale the features."
        )
    return best


def candidates_of(
    start: Callable[[float, float | Floats, np.random.Generator], Training],
    rates: Sequence[float],
    data: BagTensors,
    folds: list[Fold],
    rows: int,
    rng: np.random.Generator,
    *,
    stackable: bool,
) -> list[tuple[float, Path]]:
    """Each learning rate with its path; all see the same batches of each fold.

    start: makes a training from a learning rate, a prior and a generator.  stackable: networks that `Stack` can train.
    """
    seeds = [int(rng.integers(2**63)) for _ in folds]
    priors = [prior(data.bags.take(fold.train)) for fold in folds]

    def runs(rate: float) -> list[Training]:
        return [start(rate, p, np.random.default_rng(seed)) for p, seed in zip(priors, seeds, strict=True)]

    def one_by_one(rate: float) -> Path:
        pairs = list(zip(runs(rate), folds, strict=True))
        while True:
            losses = [run.epoch(data, rows, fold.train) for run, fold in pairs]
            risks = [held_out_risk(run.predict(data.X, rows), data.bags, fold) for run, fold in pairs]
            yield float(np.mean(losses)), _over_folds(risks, folds)

    if stackable and len(rates) * len(folds) > 1:
        stacked = _Stacked([runs(rate) for rate in rates], data, folds, rows)
        return [(rate, stacked.path(number)) for number, rate in enumerate(rates)]
    return [(rate, one_by_one(rate)) for rate in rates]


class _Stacked:
    """All learning rates and folds as stacked networks. An epoch is trained when the first path asks for it."""

    def __init__(self, runs: list[list[Training]], data: BagTensors, folds: list[Fold], rows: int) -> None:
        self.data, self.folds = data, folds
        bags = replace(data.bags, order=np.arange(data.bags.n_bagged))  # data.X is in bag order already
        members = [
            Member(training=run, bags=bags, chosen=fold.train, batches=number)
            for mine in runs
            for number, (run, fold) in enumerate(zip(mine, folds, strict=True))
        ]
        self.stacks = stacks_of(data.X, members, rows)
        self.shape = (len(runs), len(folds))
        self.figures: list[list[tuple[float, float]]] = []  # per epoch, per learning rate

    def path(self, number: int) -> Path:
        """That of one learning rate."""
        for epoch in count():
            if epoch == len(self.figures):
                self._train()
            yield self.figures[epoch][number]

    def _train(self) -> None:
        """One more epoch of all networks."""
        losses, risks = np.empty(self.shape), np.empty(self.shape)
        for stack, places in self.stacks:
            losses.flat[places] = stack.epoch()
            for place, h in zip(places, stack.predict(self.data.X), strict=True):
                risks.flat[place] = held_out_risk(h, self.data.bags, self.folds[place % len(self.folds)])
        figures = zip(losses, risks, strict=True)
        self.figures.append([(float(loss.mean()), _over_folds(risk, self.folds)) for loss, risk in figures])


def _over_folds(risks: Sequence[float] | Floats, folds: Sequence[Fold]) -> float:
    """The risk of all held-out bags, from that of each fold."""
    return float(np.average(risks, weights=[len(fold.held_out) for fold in folds]))
