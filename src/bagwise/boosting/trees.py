"""Fits of trees, one sequence per output, and fits side by side.

LightGBM works outside Python's lock, so threads share a table without copies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import joblib
import lightgbm as lgb
import numpy as np

from bagwise.bags import Bags
from bagwise.boosting import links
from bagwise.boosting.dataset import Table, TreeOptions
from bagwise.boosting.growth import Growth
from bagwise.boosting.objectives import worths
from bagwise.boosting.tuning import Path, Stage
from bagwise.data.rows import BagRows, in_one_piece
from bagwise.explanation.contributions import LOG_ODDS, LOGARITHM, VALUE, Contributions
from bagwise.folds import Fold
from bagwise.gains import HeldOut, effects_about, effects_beside_constant
from bagwise.log_odds import Rows, prior_of
from bagwise.losses.log_likelihood import log_likelihoods
from bagwise.utils.deadline import check_time
from bagwise.utils.threads import threads_of
from bagwise.utils.typing import Booleans, Floats, Integers

_ENOUGH_ROWS = 2**20  # to know a mean by, where there are more
_FEW_ROWS = 2**16  # which LightGBM may hold on to until a fit is cut; of more, many fits would take much memory
_ONE_THREAD = 200_000  # numbers in a table below which threads wait for each other longer than they work
EVERY = 10
"""Trees between two looks at bags that are held out."""

_BARREN = 20  # rounds in a row without a tree: draws of features that cannot be cut, or nothing left to cut

_SCALES = {links.LOGIT: LOG_ODDS, links.IDENTITY: VALUE, links.LOG: LOGARITHM}

Result = TypeVar("Result")


@dataclass(eq=False)
class Boosted:
    """A sequence of trees per output, fitted to bags.

    prior: (outputs,) what the predictions start from.  boosters: one per output.  link: the scale of the trees.
    deviations: (m, outputs) Σ(h − E[h])/√k of each watched bag after each tree.
    stages: what it said of watched bags every `EVERY` trees, in their place where labels are 0 and 1.
    trained: (rows, outputs) scores of rows that it was fitted to, None once they have served to centre it, and where
        stages hold a sample.
    weight: (rows,) what these count; None where they are alike.
    offset: (outputs,) what is added to its log odds.
    """

    prior: Floats
    boosters: list[lgb.Booster]
    link: str
    deviations: list[Floats] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    trained: Floats | None = None
    weight: Floats | None = None
    offset: Floats = field(default_factory=lambda: np.zeros(1))

    def scores(self, X: Floats, n_trees: int, n_jobs: int = 1) -> Floats:
        """(n, outputs) sums of the first `n_trees` trees, by `n_jobs` threads, on the scale of the trees."""
        start = links.score_of(self.prior, self.link)
        if n_trees == 0 or not any(booster.num_trees() for booster in self.boosters):
            return np.tile(start, (len(X), 1))
        threads = threads_of(n_jobs)
        trees = [
            booster.predict(X, raw_score=True, num_iteration=n_trees, num_threads=threads) for booster in self.boosters
        ]
        return np.asarray(start + np.stack(trees, axis=1))

    def contributions(self, X: Floats, n_trees: int, n_jobs: int = 1) -> Contributions:
        """What features add to the sums of the first `n_trees` trees: Shapley values, as LightGBM computes them.

        They are measured from the mean of a tree over the rows that it was grown on.
        """
        start = links.score_of(self.prior, self.link)
        values, base = np.zeros((len(X), X.shape[1], len(start))), np.array(start, dtype=float)
        threads = threads_of(n_jobs)
        for output, booster in enumerate(self.boosters):
            if n_trees and booster.num_trees():
                found = booster.predict(X, pred_contrib=True, num_iteration=n_trees, num_threads=threads)
                values[:, :, output], base[output] = found[:, :-1], start[output] + found[0, -1]
        return Contributions(values, base, _SCALES[self.link])

    def log_odds_contributions(self, X: Floats, n_trees: int, n_jobs: int = 1) -> Contributions:
        """The same to its log odds: in proportion where trees add up as probabilities."""
        found = self.contributions(X, n_trees, n_jobs)
        if self.link != links.LOGIT:
            found = found.through(lambda h: links.log_odds_of(h, self.prior), LOG_ODDS)
        return found.stretched(1.0, self.offset)

    def gains(self, n_trees: int) -> Floats:
        """(features,) shares of what splits on each gained, in the first `n_trees` trees; 0 where nothing was."""
        found = np.zeros(self.boosters[0].num_feature() if self.boosters else 0)
        for booster in self.boosters:
            if n_trees and booster.num_trees():
                found += booster.feature_importance("gain", iteration=n_trees)
        return found / found.sum() if found.sum() > 0 else found

    def used(self, n_trees: int) -> Booleans:
        """(features,) whether one of the first `n_trees` trees is split on each."""
        return np.asarray(np.any([split_on(booster, n_trees) for booster in self.boosters], axis=0))

    def log_odds(self, scores: Floats) -> Floats:
        """Scores as log odds, centred."""
        return (scores if self.link == links.LOGIT else links.log_odds_of(scores, self.prior)) + self.offset

    def centre(self, rows: Rows | None = None) -> Floats:
        """Shift the log odds so that the mean prediction of the rows it was fitted to is p; the log odds of those.

        rows: what means are taken over, where other processes hold some.
        """
        assert self.trained is not None
        self.offset = links.centring(self.log_odds(self.trained), self.prior, weight=self.weight, rows=rows)
        trained, self.trained = self.log_odds(self.trained), None
        return trained

    def keep(self, n_trees: int) -> None:
        """Forget later trees, the rows and what was watched."""
        cut = [booster.model_to_string(num_iteration=n_trees) for booster in self.boosters]
        self.boosters = [lgb.Booster(model_str=text) for text in cut]
        self.deviations, self.stages, self.trained, self.weight = [], [], None, None

    def told(self) -> Boosted:
        """What others are told of a fit that is one of many to choose from: what it said of bags."""
        return replace(self, boosters=[], trained=None)

    def release(self) -> None:
        """Let go of the rows that trees were grown on; predictions stay the same, but no tree can be added."""
        self.boosters = [lgb.Booster(model_str=booster.model_to_string(num_iteration=-1)) for booster in self.boosters]


def split_on(booster: lgb.Booster, n_trees: int = -1) -> Booleans:
    """(features,) whether a tree is split on each; LightGBM's own counts leave splits out that gained nothing."""
    used = np.zeros(booster.num_feature(), dtype=bool)
    text = booster.model_to_string(num_iteration=n_trees) if n_trees else ""
    for line in re.findall(r"^split_feature=(.*)$", text, re.MULTILINE):
        used[[int(feature) for feature in line.split()]] = True
    return used


def varies(blocks: Iterable[Floats]) -> bool:
    """Whether any column of a table in blocks has two values; being missing is one."""
    first: Floats | None = None
    for block in blocks:
        seen = block if first is None else np.concatenate([first, block])
        gap = np.isnan(seen)
        spread = np.nanmax(seen, axis=0, initial=-np.inf) > np.nanmin(seen, axis=0, initial=np.inf)
        if (spread | (gap.any(axis=0) & ~gap.all(axis=0))).any():
            return True
        first = seen[:1]
    return False


def targets(bags: Bags, prior: Floats) -> Floats:
    """(m, outputs) √k(α − p): what the deviations of a good model are near to."""
    return np.asarray(np.sqrt(bags.size)[:, None] * (bags.outputs - prior))


@dataclass(frozen=True, eq=False)
class Job:
    """One fit of at most `n_trees` trees per output.

    fold: bags to fit to and bags to watch; None: fit to all.  patience: growth stops when bags that are watched have
    liked no fit better for so many trees.  rows: of the table, whose scores are kept; None where labels are not 0 and
    1: then the deviations of watched bags are.  begin: (n,) scores of the table's rows that trees begin at; None: p.
    """

    table: Table
    options: TreeOptions
    n_trees: int
    seed: int
    fold: Fold | None = None
    patience: int = 0
    rows: Integers | None = None
    begin: Floats | None = None

    def quick(self) -> Job:
        """About the same in half the time: half as many trees, twice as long."""
        options = replace(self.options, learning_rate=min(2 * self.options.learning_rate, 1.0))
        return replace(self, options=options, n_trees=-(-self.n_trees // 2), patience=-(-self.patience // 2))

    def fit(self, n_jobs: int) -> Boosted:
        """The fit, by `n_jobs` threads; what is watched is recorded on the way."""
        table, fold, options = self.table, self.fold, replace(self.options, n_jobs=threads_of(n_jobs))
        bags = table.bags if fold is None else table.bags.take(fold.train)
        watch = None if fold is None else table.bags.take(fold.held_out)
        prior = np.atleast_1d(prior_of(bags)) if options.counts else worths(bags)[0]
        worth = None if watch is None or options.counts else worths(watch)[1]
        model = Boosted(prior, [], options.link)
        if not varies(table.blocks()):
            model.trained = links.score_of(prior, options.link)[None]  # as every row has it
            return model
        growth = Growth(table, bags, watch, prior, options, self.seed, self.begin)
        model.boosters = growth.boosters
        best, best_gap, barren = 0, np.inf, 0
        for tree in range(1, self.n_trees + 1):
            check_time()
            grown = [growth.add_tree(output) for output in range(len(prior))]
            barren = 0 if any(grown) else barren + 1
            if barren == _BARREN:
                break
            if watch is None or (self.rows is not None and tree % EVERY and tree < self.n_trees):
                continue
            growth.look()
            if self.rows is None:
                model.deviations.append(growth.deviations(watch))
                gap = float(worth @ np.square(targets(watch, prior) - model.deviations[-1]).sum(axis=1))
            else:
                model.stages.append(self._stage(model, growth, tree))
                gap = -float(model.stages[-1].gains.sum())
            if gap < best_gap:
                best, best_gap = tree, gap
            if tree - best >= self.patience:
                break
        if self.rows is None:  # otherwise their sample centres it
            every = -(-len(growth.scores) // _ENOUGH_ROWS)
            model.trained = growth.scores if every == 1 else growth.scores[::every].copy()
            model.weight = None if bags.weight is None else bags.weight[::every]
        if len(growth.scores) > _FEW_ROWS or not in_one_piece(table.rows):
            model.release()
        return model

    def _stage(self, model: Boosted, growth: Growth, n_trees: int) -> Stage:
        """What the fit says of bags, now that it has so many trees."""
        assert self.rows is not None
        assert growth.watch is not None
        scores, known = growth.sample(self.rows)
        watched, bags = growth.watched[:, 0], self.table.bags
        of_rows = [None if one is None else one[self.rows] for one in map(bags.of_table, (bags.weight, bags.offset))]
        if of_rows[1] is not None and growth.watch.offset is not None:
            scores, watched = scores - of_rows[1], watched - growth.watch.offset
        kept, own = (model.log_odds(one[:, None])[:, 0] for one in (scores, watched))
        weight, offset = (None if one is None else one[known] for one in of_rows)
        held = HeldOut(float(model.prior[0]), kept[known], own, growth.watch, weight, offset)
        follow = self.options.effect_variance is None
        if growth.constant is None:
            effects = effects_beside_constant([held]) if follow else growth.effect_variance
            growth.constant = held.constant(effect_variance=effects)
        (said,) = held.stretched(np.ones(1))
        rounds = n_trees // EVERY
        if follow and (growth.watch.interval is None or rounds.bit_count() == 1):  # hidden counts take long
            growth.allow(effects_about(said, growth.watch))
        gains = log_likelihoods(said, growth.watch, effect_variance=growth.effect_variance) - growth.constant
        return Stage(n_trees, kept.astype(np.float32), known, own.astype(np.float32), gains, *of_rows)

    def path(self, n_jobs: int) -> Path:
        """What the fit says, tree by tree, about bags it did not see; p and E[h] come from those it saw."""
        assert self.fold is not None
        fit, watch = self.fit(n_jobs), self.table.bags.take(self.fold.held_out)
        target = targets(watch, fit.prior)
        empty = np.empty((*target.shape, 0))
        deviations = np.stack(fit.deviations, axis=2) if fit.deviations else empty
        return Path(deviations, target, watch.noise_per_row, worths(watch)[1])


def side_by_side(
    calls: Sequence[Callable[[int], Result]], rows: BagRows, n_jobs: int, tell: Callable[[dict[str, Any]], object]
) -> list[Result]:
    """The results of calls that take a number of threads; together they use `n_jobs`, 0 or −1 for all.

    tell: called each time one more is finished, in the order of `calls`: "fit" says how many are, "fits" of how many.
    """
    n_jobs = threads_of(n_jobs)
    threads = n_jobs if n_jobs > 0 else 1 if np.prod(rows.shape) < _ONE_THREAD else joblib.cpu_count()
    at_once = max(min(threads, len(calls)), 1) if in_one_piece(rows) else 1
    run = joblib.Parallel(n_jobs=at_once, prefer="threads", return_as="generator")
    # Each in a copy of this thread's context, where the limit of time is known: made now, as joblib's own threads ask.
    tasks = [joblib.delayed(copy_context().run)(call, threads // at_once) for call in calls]
    results = []
    for result in run(tasks):
        results.append(result)
        tell({"fit": len(results), "fits": len(calls)})
    return results
