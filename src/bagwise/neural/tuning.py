"""The learning rate and the number of epochs, chosen by held-out bags: by their label-free risk, or their likelihood.

Networks of all learning rates are trained on the training bags of every fold: beside each other where they can be
stacked, and one after the other where not.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit, softmax
from torch import nn

from bagwise.bags import Bags
from bagwise.folds import Fold
from bagwise.gains import HeldOut, NoBetterThanConstantWarning
from bagwise.linear import BagLogisticClassifier
from bagwise.log_odds import (
    prior_of,
    prior_of_classes,
    shift_to,
    shift_to_class_reports,
    shift_to_classes,
    shift_to_reports,
)
from bagwise.means import prior
from bagwise.neural.batches import BagTensors
from bagwise.neural.stack import Member, Stack, stacks_of
from bagwise.neural.training import Alone, Training, score
from bagwise.risk import held_out_risk
from bagwise.utils.typing import Floats

_ROWS = 50_000  # of training bags that E[h] is known from well enough
_BAGS_OF_CLASSES = 128  # held out of a fold, where their likelihood takes long
_LEAST = 1e-6  # of p
_OFFSET_ROWS = 200_000
_LINEAR_ROWS, _LINEAR_BAGS, _LINEAR_COLUMNS = 20_000, 64, 200  # that a linear model is fitted to


class Figures(NamedTuple):
    """What an epoch of one learning rate came to: mean training loss, risk of all held-out bags, scores of each fold.

    scores: log odds (n,), or logits (n, classes), of the rows of all bags in bag order.
    """

    loss: float
    risk: float
    scores: Sequence[Floats] = ()


Epochs = Iterable[Sequence[Figures]]
"""Networks of some learning rates, trained in step, one epoch after the other: the figures of each rate."""


class Choice(NamedTuple):
    """What was chosen, the held-out risk it had, and what its networks said of all bags, fold by fold."""

    learning_rate: float
    n_epochs: int
    risk: float
    scores: Sequence[Floats]


@dataclass
class _Run:
    """One learning rate on its way."""

    rate: float
    risks: list[float] = field(default_factory=list)
    scores: Sequence[Floats] = ()
    ended: bool = False

    def add(self, figures: Figures, max_epochs: int, patience: int) -> None:
        self.risks.append(figures.risk)
        if not (np.isfinite(figures.loss) and np.isfinite(figures.risk)):
            self.risks, self.ended = [], True
            return
        since = len(self.risks) - 1 - int(np.argmin(self.risks))
        if since == 0:
            self.scores = figures.scores
        self.ended = len(self.risks) == max_epochs or since >= patience


def choose(
    candidates: Sequence[tuple[Sequence[float], Epochs]],
    *,
    max_epochs: int,
    patience: int,
    record: Callable[..., None],
) -> Choice:
    """The learning rate and the epoch with the least held-out risk.

    A rate stops when `patience` epochs brought no new least risk, and is dropped when its loss is no longer a finite
    number. `record` gets each epoch's figures.

    candidates: learning rates that are trained in step, and their epochs.
    """
    runs: list[_Run] = []
    for rates, epochs in candidates:
        group = [_Run(rate) for rate in rates]
        runs += group
        for number, epoch in enumerate(epochs, start=1):
            for run, figures in zip(group, epoch, strict=True):
                if not run.ended:
                    record(learning_rate=run.rate, epoch=number, loss=figures.loss, risk=figures.risk)
                    run.add(figures, max_epochs, patience)
            if all(run.ended for run in group):
                break
    left = [run for run in runs if run.risks]
    if not left:
        tried = ", ".join(f"{run.rate:g}" for run in runs)
        raise ValueError(
            f"training diverged with every learning rate tried ({tried}): give a smaller learning_rate, "
            "or scale the features."
        )
    best = min(left, key=lambda run: min(run.risks))
    return Choice(best.rate, int(np.argmin(best.risks)) + 1, min(best.risks), best.scores)


def expected_prior(bags: Bags, beyond: Floats | float) -> float | Floats:
    """p of bags, those of hidden counts included; beyond: see `hidden_beyond`."""
    if bags.interval is None:
        p: float | Floats = prior(bags)
        return p
    if bags.proportion.ndim == 2:
        each: Floats = np.maximum(prior_of_classes(bags) + beyond, _LEAST)
        return np.asarray(each / each.sum())
    return float(np.clip(prior_of(bags) + beyond, _LEAST, 1 - _LEAST))


def held_out(scores: Floats, bags: Bags, fold: Fold, beyond: Floats | float = 0.0) -> HeldOut:
    """What a network that was trained on a fold says.

    scores: of all bags, in bag order, which is that of the rows.  beyond: see `hidden_beyond`.
    """
    two = scores.ndim == 1
    train, held = bags.take(fold.train), bags.take(fold.held_out[: None if two else _BAGS_OF_CLASSES])
    p = prior_of(train) if two else prior_of_classes(train)
    if train.interval is not None:
        p = expected_prior(train, beyond)
    step = -(-len(train.order) // _ROWS)
    weight, offset = (None if one is None else one[::step] for one in (train.weight, train.offset))
    trained = scores[train.order[::step]].astype(float)
    return HeldOut(p, trained, scores[held.order].astype(float), held, weight, offset)


def held_out_loss(
    scores: Floats, bags: Bags, fold: Fold, *, effect_variance: float, beyond: Floats | float = 0.0
) -> float:
    """Mean negative log-likelihood of the held-out bags, where E[h] = p in the training bags."""
    if not np.isfinite(scores).all():
        return float("nan")
    part = held_out(scores, bags, fold, beyond)
    return -float(part.log_likelihoods(np.ones(1), effect_variance=effect_variance).mean())


def offset(module: nn.Module, data: BagTensors, *, stretch: float, effect_variance: float, rows: int) -> float | Floats:
    """What to add to stretched scores so that E[h] = p, or that they add up to what is expected of hidden counts."""
    step = -(-len(data.X) // _OFFSET_ROWS)
    if data.bags.interval is not None:
        some = data.bags.take(np.arange(0, len(data.bags), step))
        s = stretch * score(module, data.X[some.order], rows).astype(float)
        if s.ndim == 2:
            return shift_to_class_reports(prior_of_classes(some), s, some)
        s = s if some.offset is None else s + some.offset
        return shift_to_reports(prior_of(some), s, some, effect_variance=effect_variance)
    weight, moved = (None if one is None else one[::step] for one in (data.bags.weight, data.bags.offset))
    s = stretch * score(module, data.X[::step], rows).astype(float)
    if s.ndim == 2:
        return shift_to_classes(prior_of_classes(data.bags), s, weight=weight)
    return shift_to(prior_of(data.bags), s if moved is None else s + moved, weight=weight)


def linear_effect_variance(X: Floats, bags: Bags, formation: str) -> float:
    """τ² of effects of bags as far as a linear model can tell, from some of the bags and features.

    X: (n, …) rows in table order.
    """
    return _linear_model(X, bags, formation)[0].effect_variance_


def hidden_beyond(X: Floats, bags: Bags, formation: str) -> Floats | float:
    """By how much p, as a linear model expects it of hidden counts, exceeds what these say by themselves.

    0 where all counts are known. By themselves, bags of few positives that are hidden are taken to be like the others.

    X: (n, …) rows in table order.
    """
    if bags.interval is None or not bags.interval.open.any():
        return 0.0
    model, rows, some = _linear_model(X, bags, formation)
    if bags.proportion.ndim == 2:
        return np.asarray(some.average(model.predict_proba(rows)) - prior_of_classes(some))
    s = rows @ model.coef_ + (0.0 if some.offset is None else some.offset)
    return float(some.average(expit(s + shift_to_reports(prior_of(some), s, some)))) - prior_of(some)


def _linear_model(X: Floats, bags: Bags, formation: str) -> tuple[BagLogisticClassifier, Floats, Bags]:
    """A linear model of some of the bags and features, the rows it was fitted to, and their bags."""
    step = max(1, min(-(-bags.n_bagged // _LINEAR_ROWS), len(bags) // _LINEAR_BAGS))
    some = bags.take(np.arange(0, len(bags), step))
    flat = X.reshape(len(X), -1)
    rows = flat[some.order][:, :: -(-flat.shape[1] // _LINEAR_COLUMNS)].astype(float)
    data = replace(some, order=np.arange(len(rows)), n_rows=len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoBetterThanConstantWarning)  # the network may find more
        model = BagLogisticClassifier(formation=formation, cv=3, random_state=0).fit(rows, bags=data)
    return model, rows, data


def candidates_of(
    start: Callable[[float, float | Floats, np.random.Generator], Training],
    rates: Sequence[float],
    data: BagTensors,
    folds: list[Fold],
    rows: int,
    rng: np.random.Generator,
    *,
    stackable: bool,
    effect_variance: float | None = None,
    values: bool = False,
    beyond: Floats | float = 0.0,
) -> list[tuple[Sequence[float], Epochs]]:
    """Learning rates with their epochs; all see the same batches of each fold.

    start: makes a training from a learning rate, a prior and a generator.  stackable: networks that `Stack` can train.
    effect_variance: τ² of the likelihood that held-out bags are compared by; None compares by their label-free risk.
    values: whether networks return predictions of real labels, not their log odds.
    beyond: see `hidden_beyond`.
    """
    seeds = [int(rng.integers(2**63)) for _ in folds]
    priors = [expected_prior(data.bags.take(fold.train), beyond) for fold in folds]
    weights = [len(fold.held_out) for fold in folds]
    stacked = stackable and len(rates) * len(folds) > 1

    def risk(scores: Floats, fold: Fold) -> float:
        if effect_variance is not None:
            return held_out_loss(scores, data.bags, fold, effect_variance=effect_variance, beyond=beyond)
        if values:
            return held_out_risk(scores, data.bags, fold)
        moved = scores if data.bags.offset is None else scores + data.bags.offset
        return held_out_risk(expit(moved) if scores.ndim == 1 else softmax(scores, axis=1), data.bags, fold)

    def epochs(*rates: float) -> Iterator[list[Figures]]:
        """Networks are trained when they are asked for."""
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
        losses, risks = np.empty(len(members)), np.empty(len(members))
        scores: list[Floats] = [losses] * len(members)
        while True:
            for group, places in groups:
                losses[places] = group.epoch()
                for place, said in zip(places, group.score_bags(), strict=True):
                    scores[place], risks[place] = said, risk(said, folds[place % len(folds)])
            cuts = [slice(first, first + len(folds)) for first in range(0, len(members), len(folds))]
            yield [
                Figures(float(losses[cut].mean()), float(np.average(risks[cut], weights=weights)), scores[cut])
                for cut in cuts  # the risk of all held-out bags
            ]

    return [(rates, epochs(*rates))] if stacked else [((rate,), epochs(rate)) for rate in rates]
