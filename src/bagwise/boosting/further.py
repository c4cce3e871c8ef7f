"""Further trees on bags that came later, beginning at what the model says of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bagwise.bags import Bags
from bagwise.boosting import links
from bagwise.boosting.ensemble import Ensemble
from bagwise.boosting.trees import Boosted
from bagwise.explanation.contributions import Contributions, mean_of
from bagwise.folds import Fold
from bagwise.gains import HeldOut
from bagwise.log_odds import prior_of, shift_to
from bagwise.updatable import preferred
from bagwise.utils.typing import Floats


@dataclass(frozen=True, eq=False)
class Further:
    """What an update adds to log odds: the mean of trees of fits without a fold; their sum is stretched, and moved."""

    fits: list[Boosted]
    stretch: float
    offset: float

    def log_odds(self, X: Floats, before: Floats, n_jobs: int) -> Floats:
        """(n, 1) log odds of rows, from those before the update."""
        trees = [_trees(fit, X, n_jobs) for fit in self.fits]
        return np.asarray(self.stretch * (before + (np.mean(trees, axis=0) if trees else 0.0)) + self.offset)

    def contributions(self, X: Floats, before: Contributions, n_jobs: int) -> Contributions:
        """What features add to those log odds, from what they add before the update."""
        if not self.fits:
            return before.stretched(self.stretch, self.offset)
        parts = []
        for fit in self.fits:
            found = fit.contributions(X, max(booster.num_trees() for booster in fit.boosters), n_jobs)
            parts.append(found.stretched(1.0, -links.score_of(fit.prior, fit.link)))
        trees = mean_of(parts)
        both = Contributions(before.values + trees.values, before.base + trees.base, before.scale)
        return both.stretched(self.stretch, self.offset)


def _trees(fit: Boosted, X: Floats, n_jobs: int) -> Floats:
    """(n, 1) sums of trees alone."""
    return fit.scores(X, max(booster.num_trees() for booster in fit.boosters), n_jobs) - links.score_of(
        fit.prior, fit.link
    )


@dataclass(frozen=True, eq=False)
class Found:
    """What held-out new bags prefer.

    update: None where that is the model as it was.  gains: (m,) of new bags over their mean label, held out.
    """

    update: Further | None
    gains: Floats
    effect_variance: float


def choose_further(
    old: Floats, bags: Bags, folds: Sequence[Fold], tried: Ensemble | None, effect_variance: float
) -> Found:
    """The model as it was, its log odds stretched and moved, or further trees, if held-out bags clearly prefer one.

    old: (n,) log odds of the rows of new bags, in table order.  tried: the best of further trees, None without any.
    effect_variance: τ² of effects beside the model as it was.
    """
    variance = effect_variance if tried is None else tried.effect_variance
    parts = []
    for fold in folds:
        train, held_out = bags.take(fold.train), bags.take(fold.held_out)
        parts.append(HeldOut.of(prior_of(train), train, old[train.order], old[held_out.order], held_out))
    found = preferred(parts, [] if tried is None else tried.parts, effect_variance=variance)
    if found.which == 0:
        return Found(None, found.gains, effect_variance)
    stretch = found.stretch
    if found.which == 1 or tried is None:
        offset = shift_to(prior_of(bags), stretch * old[bags.order], weight=bags.weight)
        return Found(Further([], stretch, offset), found.gains, effect_variance)
    fits = []
    for kind in tried.kinds.values():
        for fit, stage in zip(kind.fits, kind.stages, strict=True):
            fit.keep(stage.n_trees)
            fits.append(fit)
    weight = next(iter(tried.kinds.values())).stages[0].weight
    offset = shift_to(prior_of(bags), stretch * tried.sample, weight=weight)
    return Found(Further(fits, stretch, offset), found.gains, variance)
