"""Trees on the gradient of an objective, their leaf values solved at the level of bags; fits side by side.

LightGBM works outside Python's lock, so threads share a table without copies.
"""

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
from bagwise.boosting.dataset import LIKELIHOOD, Table, TreeOptions
from bagwise.boosting.leaves import count_leaves, leaves_of, predicted_leaves
from bagwise.boosting.objectives import CountLikelihood, DebiasedSquare, Objective, worths
from bagwise.boosting.parts import Parts
from bagwise.boosting.tuning import Path, Stage
from bagwise.data.rows import BagRows, in_one_piece
from bagwise.explanation.contributions import LOG_ODDS, LOGARITHM, VALUE, Contributions
from bagwise.folds import Fold
from bagwise.gains import HeldOut
from bagwise.log_odds import Rows, prior_of
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Booleans, Floats, Integers

_ENOUGH_ROWS = 2**22  # to know a mean by, where there are more
_LOST_COUNT = "best_split_info"  # what it says of a split with no rows on one side
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
    trained: (rows, outputs) scores of rows that it was fitted to, None once they have served to centre it.
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
        threads = min(n_jobs, joblib.cpu_count())  # LightGBM starts as many as it is told
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
        threads = min(n_jobs, joblib.cpu_count())
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


class _Growth:
    """Trees while they grow, with the scores of the rows that they are fitted to and of those that are watched.

    scores, watched: (rows, outputs) of the rows in `bags` and of those in `watch`, in bag order.  order: where
        LightGBM holds the former.
    """

    def __init__(
        self,
        table: Table,
        bags: Bags,
        watch: Bags | None,
        prior: Floats,
        options: TreeOptions,
        seed: int,
        begin: Floats | None = None,
    ) -> None:
        self.table, self.options, self.bags, self.watch = table, options, bags, watch
        n_rows, n_columns = table.rows.shape
        parameters = options.for_lightgbm(seed, n_columns)
        # A number of threads is given to LightGBM in every call, since it holds for the whole process: changed by one
        # fit while another is at work, it makes that one write beyond its memory.
        self.order: Integers | slice
        self.blocks: Callable[[], Iterable[Floats]] = table.blocks
        if bags.n_bagged == n_rows:
            part = table.binned
            self.order = slice(None) if np.array_equal(bags.order, np.arange(n_rows)) else bags.order
        else:
            chosen = np.flatnonzero(bags.code >= 0)
            taken, part = [table.take(chosen)], table.binned.subset(chosen, params=parameters)
            self.blocks = lambda: taken
            place = np.full(n_rows, -1)
            place[chosen] = np.arange(len(chosen))
            self.order = place[bags.order]
            if np.array_equal(self.order, np.arange(len(chosen))):
                self.order = slice(None)
        self.watched_rows = None if watch is None else table.take(watch.order)
        self.boosters = [lgb.Booster(parameters, part) for _ in prior]
        # Outputs that take no tree, or no more: no scores lead to a mean that noise has put beyond what they tell.
        self.stuck = set(np.flatnonzero(links.beyond(prior, options.link)).tolist())
        parts = Parts.of(bags)
        self.objectives = [objective_of(options, parts, output, float(p)) for output, p in enumerate(prior)]
        self.constant: Floats | None = None  # log-likelihood of watched bags by the mean label
        self.down = np.ones((2, bags.n_bagged), dtype=np.float32)  # gradient and curvature, as LightGBM reads them
        start = links.score_of(prior, options.link)
        self.scores = np.tile(start, (bags.n_bagged, 1))
        self.watched, self.seen = np.tile(start, (0 if watch is None else watch.n_bagged, 1)), [0] * len(prior)
        if bags.offset is not None:
            self.scores[:, 0] += bags.offset
            self.watched[:, 0] += 0.0 if watch is None or watch.offset is None else watch.offset
        if begin is not None:
            self.scores[:, 0] = begin[bags.order]
            self.watched[:, 0] = begin[:0] if watch is None else begin[watch.order]

    def add_tree(self, output: int) -> bool:
        """Grow a tree on the gradient of each row, then solve for its values. False if none can grow."""
        if output in self.stuck:
            return False
        given = (self.boosters[output], self.objectives[output], self.scores[:, output], self.down, self.blocks)
        try:
            return add_tree(*given, self.options, order=self.order)
        except lgb.basic.LightGBMError as error:
            if self.options.link == links.IDENTITY or _LOST_COUNT not in str(error):
                raise
            self.stuck.add(output)
            return False

    def look(self) -> None:
        """Bring the scores of the rows that are watched up to date."""
        for output, booster in enumerate(self.boosters):
            if new := booster.num_trees() - self.seen[output]:
                how = {"raw_score": True, "start_iteration": self.seen[output], "num_iteration": new}
                self.watched[:, output] += booster.predict(self.watched_rows, num_threads=self.options.n_jobs, **how)
                self.seen[output] += new

    def deviations(self, watch: Bags) -> Floats:
        """Σ(h − E[h])/√k of each watched bag, E[h] coming from the bags that trees are fitted to."""
        size, link = watch.size[:, None], self.options.link
        mean = np.average(links.prediction_of(self.scores, link), axis=0, weights=self.bags.weight)
        return np.asarray((watch.sum(links.prediction_of(self.watched, link)) - size * mean) / np.sqrt(size))

    def sample(self, rows: Integers) -> tuple[Floats, Booleans]:
        """Scores of rows of the table in bags that are fitted to or watched; and which are fitted to."""
        everywhere = np.empty(self.table.rows.shape[0])
        known = np.zeros(len(everywhere), dtype=bool)
        everywhere[self.bags.order], known[self.bags.order] = self.scores[:, 0], True
        if self.watch is not None:
            everywhere[self.watch.order] = self.watched[:, 0]
        return everywhere[rows], known[rows]


def objective_of(options: TreeOptions, parts: Parts, output: int, prior: float) -> Objective:
    """What trees of these options go down on."""
    if options.objective == LIKELIHOOD:
        return CountLikelihood(parts, prior, options.effect_variance)
    return DebiasedSquare(parts, output, prior, options.link)


def grow(booster: lgb.Booster, gradient: Floats, curvature: Floats) -> Floats:
    """Let the booster add a tree: by how much that moved the raw predictions it holds of its own rows."""
    held: list[Floats] = []

    def before(predictions: Floats, data: lgb.Dataset) -> tuple[Floats, Floats]:
        held.append(predictions.copy())
        return gradient, curvature

    def after(predictions: Floats, data: lgb.Dataset) -> tuple[str, float, bool]:
        np.subtract(predictions, held[0], out=held[0])
        return "step", 0.0, False

    booster.update(fobj=before)
    booster.eval_train(feval=after)
    return held[0]


def add_tree(
    booster: lgb.Booster,
    objective: Objective,
    scores: Floats,
    down: Floats,
    blocks: Callable[[], Iterable[Floats]],
    options: TreeOptions,
    grow: Callable[[lgb.Booster, Floats, Floats], Floats] = grow,
    *,
    order: Integers | slice = slice(None),
    rounded: Callable[[Floats], Floats] | None = None,
) -> bool:
    """Grow a tree on the gradient of each row, solve for its values, and move the scores. False if none can grow.

    scores: (n,) in bag order.  down: (2, rows) ones, where gradient and curvature are put for LightGBM.
    blocks: the rows of LightGBM's data.  grow: lets the booster add a tree, and tells how far rows moved.
    order: where LightGBM holds each row.  rounded: makes of gradients what adds up to the same in any order.
    """
    if (found := objective.gradient(scores)) is None:
        return False
    for line, values in zip(down, found, strict=True):
        if values is not None:
            line[order] = values if rounded is None else rounded(values)
    tree = booster.num_trees()
    step = grow(booster, *down)
    if booster.num_trees() == tree:
        return False
    if (leaf := leaves_of(booster, tree, step, options.num_leaves)) is None:
        leaf = predicted_leaves(booster, tree, blocks(), options.n_jobs)
    leaf, n_leaves = leaf[order], options.num_leaves
    if int(leaf.max()) + 1 < n_leaves:
        n_leaves = count_leaves(booster, tree)
    value = links.shrunk(objective.leaf_values(leaf, n_leaves, options.reg_lambda), options.learning_rate, options.link)
    for number, leaf_value in enumerate(value):
        booster.set_leaf_output(tree, number, float(leaf_value))
    scores += value[leaf]
    return True


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

    def fit(self, n_jobs: int) -> Boosted:
        """The fit, by `n_jobs` threads; what is watched is recorded on the way."""
        table, fold, options = self.table, self.fold, replace(self.options, n_jobs=n_jobs)
        bags = table.bags if fold is None else table.bags.take(fold.train)
        watch = None if fold is None else table.bags.take(fold.held_out)
        prior = np.atleast_1d(prior_of(bags)) if options.counts else worths(bags)[0]
        worth = None if watch is None or options.counts else worths(watch)[1]
        model = Boosted(prior, [], options.link)
        if not varies(table.blocks()):
            model.trained = links.score_of(prior, options.link)[None]  # as every row has it
            return model
        growth = _Growth(table, bags, watch, prior, options, self.seed, self.begin)
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
        every = -(-len(growth.scores) // _ENOUGH_ROWS)
        model.trained = growth.scores if every == 1 else growth.scores[::every].copy()
        model.weight = None if bags.weight is None else bags.weight[::every]
        if not in_one_piece(table.rows):
            model.release()
        return model

    def _stage(self, model: Boosted, growth: _Growth, n_trees: int) -> Stage:
        """What the fit says of bags, now that it has so many trees."""
        assert self.rows is not None
        assert growth.watch is not None
        scores, known = growth.sample(self.rows)
        watched, bags = growth.watched[:, 0], self.table.bags
        of_rows = [None if one is None else one[self.rows] for one in map(bags.of_table, (bags.weight, bags.offset))]
        if of_rows[1] is not None and growth.watch.offset is not None:
            scores, watched = scores - of_rows[1], watched - growth.watch.offset
        kept, said = (model.log_odds(one[:, None])[:, 0] for one in (scores, watched))
        weight, offset = (None if one is None else one[known] for one in of_rows)
        held = HeldOut(float(model.prior[0]), kept[known], said, growth.watch, weight, offset)
        effects = self.options.effect_variance
        if growth.constant is None:
            growth.constant = held.constant(effect_variance=effects)
        gains = held.log_likelihoods(np.ones(1), effect_variance=effects)[0] - growth.constant
        return Stage(n_trees, kept.astype(np.float32), known, said.astype(np.float32), gains, *of_rows)

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
