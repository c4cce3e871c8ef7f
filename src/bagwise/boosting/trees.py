"""Trees on the gradient of the debiased loss, their leaf values solved at the level of bags."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from bagwise import means
from bagwise.bags import Bags
from bagwise.boosting.leaves import solve_leaves
from bagwise.boosting.links import IDENTITY, prediction_of, score_of, slope_of
from bagwise.losses import residual

Floats = NDArray[np.floating]

_BARREN = 20  # rounds in a row without a tree: draws of features that cannot be cut, or nothing left to cut


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """How trees are grown and their values solved; names as in LightGBM, and the scale they add up on (`links`)."""

    learning_rate: float
    num_leaves: int
    min_child_samples: int
    colsample_bytree: float
    reg_lambda: float
    max_cat_to_onehot: int
    cat_smooth: float
    n_jobs: int
    extra_trees: bool = False
    link: str = IDENTITY

    def for_lightgbm(self, seed: int, n_features: int) -> dict[str, Any]:
        """Parameters of a tree grower: one tree at a time, no shrinkage, no penalty; those are ours."""
        fewest = min(1.0, 4 / n_features)  # a tree of fewer features could not show how they act together
        return {
            "objective": "none",
            "learning_rate": 1.0,
            "num_leaves": self.num_leaves,
            "min_data_in_leaf": self.min_child_samples,
            "min_sum_hessian_in_leaf": 0.0,
            "min_data_in_bin": 1,
            "feature_pre_filter": False,
            "extra_trees": self.extra_trees,
            "extra_seed": seed,
            "feature_fraction": max(self.colsample_bytree, fewest),
            # One category against the rest: groups of categories, sorted by a gradient this noisy, overfit.
            "max_cat_to_onehot": self.max_cat_to_onehot,
            "cat_l2": self.cat_smooth,
            "cat_smooth": self.cat_smooth,
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": self.n_jobs,
            "verbosity": -1,
        }


@dataclass(eq=False)
class Boosted:
    """A sequence of trees per output, fitted to bags.

    prior: (outputs,) what the predictions start from.  boosters: one per output.  link: the scale of the trees.
    scores: (n, outputs) of all rows of the training table, on that scale.
    deviations: (m, outputs) Σ(h − E[h])/√k of each watched bag after each tree.
    """

    prior: Floats
    boosters: list[lgb.Booster]
    scores: Floats
    link: str
    n_jobs: int
    deviations: list[Floats] = field(default_factory=list)

    def predict(self, X: Floats, n_trees: int) -> Floats:
        """(n, outputs) predictions after `n_trees` trees."""
        if n_trees == 0 or not any(booster.num_trees() for booster in self.boosters):
            return np.tile(self.prior, (len(X), 1))
        trees = [
            booster.predict(X, raw_score=True, num_iteration=n_trees, num_threads=self.n_jobs)
            for booster in self.boosters
        ]
        return prediction_of(score_of(self.prior, self.link) + np.stack(trees, axis=1), self.link)


def boost(
    X: Floats,
    data: lgb.Dataset,
    bags: Bags,
    options: TreeOptions,
    *,
    n_trees: int,
    seed: int,
    watch: Bags | None = None,
    patience: int = 0,
) -> Boosted:
    """Fit at most `n_trees` trees per output to `bags`, some of the bags of the table X.

    With `watch`, other bags of the same table, their deviations are recorded after every tree, E[h] coming from `bags`
    alone; growth stops when they have not come closer to √k(α − p) for `patience` trees.
    """
    prior = np.atleast_1d(means.prior(bags))
    model = Boosted(prior, [], np.tile(score_of(prior, options.link), (len(X), 1)), options.link, options.n_jobs)
    if not _varies(X):
        return model
    rows = np.flatnonzero(bags.code >= 0)
    part = data if len(rows) == len(X) else data.subset(rows)
    model.boosters = [lgb.Booster(options.for_lightgbm(seed, X.shape[1]), part) for _ in prior]
    best, best_gap, barren = 0, np.inf, 0
    target = np.empty(0) if watch is None else targets(watch, prior)
    for tree in range(n_trees):
        grown = [_add_tree(model, c, X, rows, bags, options) for c in range(len(prior))]
        barren = 0 if any(grown) else barren + 1
        if barren == _BARREN:
            break
        if watch is None:
            continue
        model.deviations.append(_deviations(model, bags, watch))
        gap = float(np.square(target - model.deviations[-1]).sum())
        if gap < best_gap:
            best, best_gap = tree, gap
        if tree - best >= patience:
            break
    return model


def _varies(X: Floats) -> bool:
    """Whether any column has two values; being missing is one."""
    gap = np.isnan(X)
    spread = np.nanmax(X, axis=0, initial=-np.inf) > np.nanmin(X, axis=0, initial=np.inf)
    return bool((spread | (gap.any(axis=0) & ~gap.all(axis=0))).any())


def _add_tree(
    model: Boosted, output: int, X: Floats, rows: NDArray[np.integer], bags: Bags, options: TreeOptions
) -> bool:
    """Grow a tree on the gradient −R_j + (E[h] − p) of each row, times the slope of its prediction; then solve for its
    values. False if none can grow."""
    booster, scores, p = model.boosters[output], model.scores[:, output], model.prior[output]
    inside = prediction_of(scores[bags.order], options.link)
    slope = slope_of(inside, options.link)
    mean = inside.mean()
    r = residual(bags.sum(inside), bags.size, bags.outputs[:, output], prior=p, mean=mean)
    gradient, curvature = ((mean - p) - r)[bags.code[rows]], np.ones(len(rows))
    if slope is not None:
        relative = np.empty(len(X))
        relative[bags.order] = slope / slope.mean()
        relative = relative[rows]
        gradient, curvature = gradient * relative, relative**2
    tree = booster.num_trees()
    booster.update(fobj=lambda _, data: (gradient, curvature))
    if booster.num_trees() == tree:
        return False
    leaf = booster.predict(X, pred_leaf=True, start_iteration=tree, num_iteration=1, num_threads=options.n_jobs)
    leaf = leaf.ravel().astype(np.int64)
    value = options.learning_rate * solve_leaves(
        leaf[bags.order], int(leaf.max()) + 1, bags, r, float(mean - p), reg_lambda=options.reg_lambda, slope=slope
    )
    for number, leaf_value in enumerate(value):
        booster.set_leaf_output(tree, number, float(leaf_value))
    scores += value[leaf]
    return True


def targets(bags: Bags, prior: Floats) -> Floats:
    """(m, outputs) √k(α − p): what the deviations of a good model are near to."""
    return np.sqrt(bags.size)[:, None] * (bags.outputs - prior)


def _deviations(model: Boosted, bags: Bags, watch: Bags) -> Floats:
    h = prediction_of(model.scores, model.link)
    size = watch.size[:, None]
    return (watch.sum(h[watch.order]) - size * h[bags.order].mean(axis=0)) / np.sqrt(size)
