"""Trees on the gradient of the debiased loss, their leaf values solved at the level of bags."""

from __future__ import annotations

import re
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

_LEAF_VALUES = re.compile(r"^leaf_value=(.*)$", re.MULTILINE)
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
    deviations: (m, outputs) Σ(h − E[h])/√k of each watched bag after each tree.
    """

    prior: Floats
    boosters: list[lgb.Booster]
    link: str
    deviations: list[Floats] = field(default_factory=list)

    def predict(self, X: Floats, n_trees: int, n_jobs: int = 1) -> Floats:
        """(n, outputs) predictions after `n_trees` trees, by `n_jobs` threads."""
        if n_trees == 0 or not any(booster.num_trees() for booster in self.boosters):
            return np.tile(self.prior, (len(X), 1))
        trees = [
            booster.predict(X, raw_score=True, num_iteration=n_trees, num_threads=n_jobs) for booster in self.boosters
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
    model = Boosted(prior, [], options.link)
    if not _varies(X):
        return model
    growth = _Growth(X, data, bags, watch, prior, options, seed)
    model.boosters = growth.boosters
    best, best_gap, barren = 0, np.inf, 0
    target = np.empty(0) if watch is None else targets(watch, prior)
    for tree in range(n_trees):
        grown = [growth.add_tree(output) for output in range(len(prior))]
        barren = 0 if any(grown) else barren + 1
        if barren == _BARREN:
            break
        if watch is None:
            continue
        model.deviations.append(growth.deviations(watch))
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


class _Growth:
    """Trees while they grow, with the scores of the rows that they are fitted to and of those that are watched.

    scores: (rows, outputs) of the table's rows in `bags`, as LightGBM holds them.  watched: of the rows in `watch`, in
        bag order.
    """

    def __init__(
        self,
        X: Floats,
        data: lgb.Dataset,
        bags: Bags,
        watch: Bags | None,
        prior: Floats,
        options: TreeOptions,
        seed: int,
    ) -> None:
        self.bags, self.prior, self.options = bags, prior, options
        rows = np.flatnonzero(bags.code >= 0)
        self.bag_of_row = bags.code[rows]
        place = np.empty(len(X), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        self.order = place[bags.order]
        parameters = options.for_lightgbm(seed, X.shape[1])
        # A number of threads is given to LightGBM in every call, since it holds for the whole process: changed by one
        # fit while another is at work, it makes that one write beyond its memory.
        everything = len(rows) == len(X)
        self.X, part = (X, data) if everything else (X[rows], data.subset(rows, params=parameters))
        self.X_watched = X[:0] if watch is None else X[watch.order]
        self.boosters = [lgb.Booster(parameters, part) for _ in prior]
        start = score_of(prior, options.link)
        self.scores, self.watched = np.tile(start, (len(rows), 1)), np.tile(start, (len(self.X_watched), 1))

    def add_tree(self, output: int) -> bool:
        """Grow a tree on the gradient −R_j + (E[h] − p) of each row, times the slope of its prediction; then solve for
        its values. False if none can grow."""
        bags, options, booster, p = self.bags, self.options, self.boosters[output], self.prior[output]
        h = prediction_of(self.scores[:, output], options.link)
        mean, slope = h.mean(), slope_of(h, options.link)
        r = residual(bags.sum(h[self.order]), bags.size, bags.outputs[:, output], prior=p, mean=mean)
        gradient, curvature = ((mean - p) - r)[self.bag_of_row], np.ones(len(h))
        if slope is not None:
            relative = slope / slope.mean()
            gradient, curvature = gradient * relative, relative**2
        tree = booster.num_trees()
        step = _grow(booster, gradient, curvature)
        if booster.num_trees() == tree:
            return False
        leaf = leaves_of(booster, tree, step)
        if leaf is None:
            leaf = _predicted_leaves(booster, tree, self.X, options.n_jobs)
        value = options.learning_rate * solve_leaves(
            leaf[self.order],
            int(leaf.max()) + 1,
            bags,
            r,
            float(mean - p),
            reg_lambda=options.reg_lambda,
            slope=None if slope is None else slope[self.order],
        )
        for number, leaf_value in enumerate(value):
            booster.set_leaf_output(tree, number, float(leaf_value))
        self.scores[:, output] += value[leaf]
        if len(self.watched):
            self.watched[:, output] += value[_predicted_leaves(booster, tree, self.X_watched, options.n_jobs)]
        return True

    def deviations(self, watch: Bags) -> Floats:
        """Σ(h − E[h])/√k of each watched bag, E[h] coming from the bags that trees are fitted to."""
        mean = prediction_of(self.scores, self.options.link).mean(axis=0)
        size = watch.size[:, None]
        return (watch.sum(prediction_of(self.watched, self.options.link)) - size * mean) / np.sqrt(size)


def _grow(booster: lgb.Booster, gradient: Floats, curvature: Floats) -> Floats:
    """Let the booster add a tree: by how much that moved the raw predictions it holds of its own rows."""
    held: list[Floats] = []

    def before(predictions: Floats, data: lgb.Dataset) -> tuple[Floats, Floats]:
        held.append(predictions.copy())
        return gradient, curvature

    def after(predictions: Floats, data: lgb.Dataset) -> tuple[str, float, bool]:
        held.append(predictions - held[0])
        return "step", 0.0, False

    booster.update(fobj=before)
    booster.eval_train(feval=after)
    return held[1]


def leaves_of(booster: lgb.Booster, tree: int, step: Floats) -> NDArray[np.integer] | None:
    """(n,) the leaf of each row, told by how much the tree moved it; None where two leaves moved rows alike.

    It spares a walk of all rows through the tree, which takes as long as to grow it.
    """
    text = booster.model_to_string(start_iteration=tree, num_iteration=1)
    values = np.array(_LEAF_VALUES.findall(text)[0].split(" "), dtype=float)
    rank = np.argsort(values)
    ordered = values[rank]
    if len(values) > 1 and np.diff(ordered).min() < 1e-6 * np.abs(ordered).max():
        return None
    leaf = rank[np.searchsorted((ordered[1:] + ordered[:-1]) / 2, step)]
    return leaf if np.abs(values[leaf] - step).max() < 1e-7 * np.abs(ordered).max() else None


def _predicted_leaves(booster: lgb.Booster, tree: int, X: Floats, n_jobs: int) -> NDArray[np.integer]:
    leaf = booster.predict(X, pred_leaf=True, start_iteration=tree, num_iteration=1, num_threads=n_jobs)
    return leaf.ravel().astype(np.int64)


def targets(bags: Bags, prior: Floats) -> Floats:
    """(m, outputs) √k(α − p): what the deviations of a good model are near to."""
    return np.sqrt(bags.size)[:, None] * (bags.outputs - prior)
