r"""Candidates measured on bags they were not fitted to.

The bags are cut into folds. A candidate is fitted to the other folds and scored on the one held out by the clipped
empirical risk of the paper, p and E[h] coming from the bags it was fitted to. One fold holds enough bags where bags
are many; where they are few, more folds are held out in turn and their bags taken together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from bagwise.auto.candidates import Readings, probabilities
from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.folds import Fold
from bagwise.risk import held_out_losses, least_of, training_prior
from bagwise.utils.typing import Floats


@dataclass(frozen=True, eq=False)
class Validation:
    """Bags, and which of them are held out in turn.  regret: β of the clipping threshold.  level: of the intervals."""

    bags: Bags
    folds: Sequence[Fold]
    regret: float
    level: float


@dataclass(frozen=True, eq=False)
class Trial:
    """What a candidate said about held-out bags, and what that scored.

    sums: of h over each held-out bag, (m, outputs) per fold, of the first folds where time was short.
    means: E[h] of the bags fitted to, (outputs,) per fold.
    losses: label-free clipped loss of each held-out bag.  risk: their mean.  low, high: its interval.
    Sums and means are linear in h: those of a weighted mean of models are the weighted means of theirs.
    """

    sums: list[Floats]
    means: list[Floats]
    losses: Floats
    risk: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Part:
    """A candidate without one fold: the model, its sums over each bag held out, its mean over the bags fitted to."""

    model: BagClassifier
    sums: Floats
    mean: Floats


def parts_of(candidate: BagClassifier, table: Readings, validation: Validation, seeds: Sequence[int]) -> Iterator[Part]:
    """Fit the candidate without each fold in turn."""
    for fold, seed in zip(validation.folds, seeds, strict=True):
        train, held_out = validation.bags.take(fold.train), validation.bags.take(fold.held_out)
        model = table.select(train).fit(candidate, seed)
        h = probabilities(model, table.of(model), train.proportion.ndim == 2)
        h = h.reshape(len(h), -1)
        yield Part(model, held_out.sum(h[held_out.order]), h[train.order].mean(axis=0))


def score(sums: list[Floats], means: list[Floats], validation: Validation) -> Trial:
    """The risk of predictions with these sums and means: mean clipped loss of the held-out bags, classes added up."""
    folds = zip(validation.folds, sums, means, strict=False)  # time may have been short for the last
    losses = np.concatenate(
        [held_out_losses(total, mean, validation.bags, fold, regret=validation.regret) for fold, total, mean in folds]
    )
    risk, m = float(losses.mean()), len(losses)
    half_width = losses.std(ddof=1) / np.sqrt(m) * stats.t.ppf((1 + validation.level) / 2, m - 1)
    return Trial(sums, means, losses, risk, risk - float(half_width), risk + float(half_width))


def choose(trials: Mapping[str, Trial], preferred: str | None = None) -> str:
    """The name of the preferred trial, by default the first, unless another's risk is clearly lower.

    Clearly: by two standard errors of the difference.
    """
    names = list(trials)
    first = 0 if preferred is None or preferred not in trials else names.index(preferred)
    return names[least_of([trial.losses for trial in trials.values()], preferred=first, errors=2)]


def weighted(trials: Sequence[Trial], weights: Floats, validation: Validation) -> Trial:
    """The trial of a weighted mean of models."""

    def mix(columns: Sequence[list[Floats]]) -> list[Floats]:
        return [np.tensordot(weights, np.stack(each), axes=1) for each in zip(*columns, strict=True)]

    return score(mix([trial.sums for trial in trials]), mix([trial.means for trial in trials]), validation)


def stack_weights(trials: Sequence[Trial], validation: Validation) -> Floats:
    r"""Weights ≥ 0 that sum to 1 and make the held-out residuals of the weighted mean of h small.

    Least squares of :math:`\sqrt{k_j}(\alpha_j - p)` on :math:`\Sigma(h - E[h])/\sqrt{k_j}` of the candidates. Weights
    under 5% are dropped: a model that changes so little is not worth its time.
    """
    bags, targets, columns = validation.bags, [], []
    for f, fold in enumerate(validation.folds):
        root = np.sqrt(bags.size[fold.held_out, None])
        targets.append((root * (bags.outputs[fold.held_out] - training_prior(bags, fold))).ravel())
        columns.append([((trial.sums[f] / root) - root * trial.means[f]).ravel() for trial in trials])
    matrix = np.concatenate([np.stack(each, axis=1) for each in columns])
    flat = np.linalg.norm(matrix, axis=0) < 1e-9 * np.sqrt(len(matrix))  # a constant's deviations are rounding
    weights, _ = optimize.nnls(np.where(flat, 0, matrix), np.concatenate(targets))
    if weights.sum() == 0:
        weights[int(np.argmin([trial.risk for trial in trials]))] = 1
    weights = np.where(weights < 0.05 * weights.sum(), 0, weights)
    shares: Floats = weights / weights.sum()
    return shares
