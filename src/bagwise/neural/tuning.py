"""The learning rate and the number of epochs, chosen by the label-free risk of held-out bags.

Networks of all learning rates are trained on the training bags of every fold: beside each other where they can be
stacked, and one after the other where not.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import tee
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from bagwise.folds import Fold
from bagwise.means import prior
from bagwise.neural.batches import BagTensors
from bagwise.neural.stack import Member, Stack, stacks_of
from bagwise.neural.training import Alone, Training
from bagwise.risk import held_out_risk
from bagwise.utils.typing import Floats

Path = Iterator[tuple[float, float]]
"""Networks of one learning rate, trained one epoch at a time: the mean training loss, and the risk of all folds."""


class Choice(NamedTuple):
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
    weights = [len(fold.held_out) for fold in folds]
    stacked = stackable and len(rates) * len(folds) > 1

    def figures(*rates: float) -> Iterator[list[tuple[float, float]]]:
        """Loss and risk of each learning rate, epoch by epoch; networks are trained when they are asked for."""
        members = [
            Member(start(rate, p, np.random.default_rng(seed)), data.bags, fold.train, number)
            for rate in rates
            for number, (p, seed, fold) in enumerate(zip(priors, seeds, folds, strict=True))
        ]
        groups: Sequence[tuple[Stack | Alone, list[int]]] = (
            stacks_of(data.X, members, rows)
            if stacked
            else [(Alone(one.training, data, one.chosen, rows), [place]) for place, one in enumerate(members)]
        )
        losses, risks = np.empty((len(rates), len(folds))), np.empty((len(rates), len(folds)))
        while True:
            for group, places in groups:
                losses.flat[places] = group.epoch()
                for place, h in zip(places, group.predict_bags(), strict=True):
                    risks.flat[place] = held_out_risk(h, data.bags, folds[place % len(folds)])
            over_folds = np.average(risks, axis=1, weights=weights)  # the risk of all held-out bags
            yield list(zip(losses.mean(axis=1).tolist(), over_folds.tolist(), strict=True))

    if stacked:  # all paths follow the same networks
        paths = enumerate(tee(figures(*rates), len(rates)))
        return [(rate, map(itemgetter(number), path)) for rate, (number, path) in zip(rates, paths, strict=True)]
    return [(rate, map(itemgetter(0), figures(rate))) for rate in rates]
