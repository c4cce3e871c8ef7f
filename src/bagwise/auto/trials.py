r"""Candidates measured on bags they were not fitted to.

The bags are cut into folds. A candidate is fitted to the other folds and scored on the one held out by the clipped
empirical risk of the paper, p and E[h] coming from the bags it was fitted to. One fold holds enough bags where bags
are many; where they are few, more folds are held out in turn and their risks averaged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from bagwise._folds import Fold
from bagwise.auto.candidates import Views, probabilities
from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.losses import debiased_square_of_sums
from bagwise.means import prior
from bagwise.selection import clipped_erm

Floats = NDArray[np.floating]

_FEW_CLIPPED = 0.02  # of the bags; random ones have far fewer beyond the threshold


@dataclass(frozen=True, eq=False)
class Trial:
    """What a candidate scored on the folds.

    risk: label-free clipped risk.  low, high: its interval.
    deviations: (held-out bags · classes,) Σ(h − E[h])/√k, what a stack is made of.
    """

    risk: float
    low: float
    high: float
    deviations: Floats


def measure(
    candidate: BagClassifier,
    views: Views,
    bags: Bags,
    folds: list[Fold],
    *,
    regret: float,
    level: float,
    seeds: list[int],
) -> Trial:
    """Fit the candidate without each fold in turn, and score it there."""
    scores, deviations = [], []
    for fold, seed in zip(folds, seeds, strict=True):
        train, held_out = bags.take(fold.train), bags.take(fold.held_out)
        model = views.fit(candidate, train, seed)
        h = probabilities(model, views.of_model(model), bags.proportion.ndim == 2)
        h = h.reshape(len(h), -1)
        mean = h[train.order].mean(axis=0)
        scores.append(_score(h, held_out, prior=np.atleast_1d(prior(train)), mean=mean, regret=regret))
        size = held_out.size[:, None]
        deviations.append((held_out.sum(h[held_out.order]) - size * mean) / np.sqrt(size))
    risk, variance = (np.array(column) for column in zip(*scores, strict=True))
    number = np.array([len(fold.held_out) for fold in folds])
    weight = number / number.sum()
    half_width = np.sqrt(weight**2 @ variance) * stats.t.ppf((1 + level) / 2, number.sum() - 1)
    mean_risk = float(weight @ risk)
    return Trial(mean_risk, mean_risk - half_width, mean_risk + half_width, np.concatenate(deviations).ravel())


def _score(h: Floats, bags: Bags, *, prior: Floats, mean: Floats, regret: float) -> tuple[float, float]:
    """Clipped risk and its variance. Over several classes risks add up, and so, at most, do their errors.

    Random bags are hardly ever clipped. Bags grouped by features may be, and a model that explains nothing would gain
    by it: where many are clipped, none is.
    """
    risk, error = 0.0, 0.0
    for c in range(h.shape[1]):
        one = replace(bags, proportion=bags.outputs[:, c])
        p = float(np.clip(prior[c], 0, 1))  # declared noise may take it outside
        result = clipped_erm(h[:, [c]], one, prior=p, means=mean[[c]], regret=regret, estimated=True)
        mean_loss, standard_error = float(result.risks[0]), float(result.standard_errors[0])
        if result.n_clipped[0] > _FEW_CLIPPED * len(bags):
            sums = bags.sum(h[bags.order, c])
            loss = debiased_square_of_sums(sums, bags.size, one.proportion, prior=p, mean=mean[c]) - bags.noise_per_row
            mean_loss, standard_error = float(loss.mean()), float(loss.std(ddof=1) / np.sqrt(len(loss)))
        risk, error = risk + mean_loss, error + standard_error
    return risk, error**2


def stack_weights(trials: list[Trial], bags: Bags, folds: list[Fold]) -> Floats:
    r"""Weights ≥ 0 that sum to 1 and make the held-out residuals of the weighted mean of h small.

    Least squares of :math:`\sqrt{k_j}(\alpha_j - p)` on the deviations of the candidates. Weights under 5% are
    dropped: a model that changes so little is not worth its time.
    """
    targets = []
    for fold in folds:
        held_out = bags.take(fold.held_out)
        targets.append(np.sqrt(held_out.size[:, None]) * (held_out.outputs - prior(bags.take(fold.train))))
    matrix = np.stack([trial.deviations for trial in trials], axis=1)
    weights, _ = optimize.nnls(matrix, np.concatenate(targets).ravel())
    if weights.sum() == 0:
        weights[int(np.argmin([trial.risk for trial in trials]))] = 1
    weights = np.where(weights < 0.05 * weights.sum(), 0, weights)
    return weights / weights.sum()
