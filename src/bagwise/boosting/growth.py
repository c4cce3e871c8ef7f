"""Trees while they grow: one tree on the gradient of an objective, its leaf values solved at the level of bags."""

from collections.abc import Callable, Iterable
from functools import partial

import lightgbm as lgb
import numpy as np

from bagwise.bags import Bags
from bagwise.boosting import links
from bagwise.boosting.dataset import LIKELIHOOD, Table, TreeOptions
from bagwise.boosting.leaves import count_leaves, leaves_of, predicted_leaves
from bagwise.boosting.objectives import CountLikelihood, DebiasedSquare, Objective
from bagwise.boosting.parts import Parts
from bagwise.utils.typing import Booleans, Floats, Integers

_LOST_COUNT = "best_split_info"  # what LightGBM says of a split with no rows on one side


class Growth:
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
        self.chosen: Integers | slice = slice(None)  # of the table's rows, which LightGBM holds
        if bags.n_bagged == n_rows:
            part = table.binned
            self.order = slice(None) if np.array_equal(bags.order, np.arange(n_rows)) else bags.order
        else:
            self.chosen = chosen = np.flatnonzero(bags.code >= 0)
            part = table.binned.subset(chosen, params=parameters)
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
        self.effect_variance = options.effect_variance or 0.0
        self.constant: Floats | None = None  # log-likelihood of watched bags by the mean label
        self.down = np.ones((2, bags.n_bagged), dtype=np.float32)  # gradient and curvature, as LightGBM reads them
        start = links.score_of(prior, options.link)
        self.scores = np.tile(start, (bags.n_bagged, 1))
        self.places: Integers | None = None  # of the rows of `sample` among those fitted to, then those watched
        self.grow = partial(grow, held=np.empty(bags.n_bagged))
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
        given = (self.boosters[output], self.objectives[output], self.scores[:, output], self.down, self.table.blocks)
        try:
            return add_tree(*given, self.options, self.grow, chosen=self.chosen, order=self.order)
        except lgb.basic.LightGBMError as error:
            if self.options.link == links.IDENTITY or _LOST_COUNT not in str(error):
                raise
            self.stuck.add(output)
            return False

    def allow(self, effect_variance: float) -> None:
        """Grow further trees for effects of bags of this variance."""
        self.effect_variance = effect_variance
        for objective in self.objectives:
            objective.allow(effect_variance)

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
        """Scores of rows of the table in bags that are fitted to or watched, always the same; which are fitted to."""
        n = self.bags.n_bagged
        if self.places is None:
            place = np.zeros(self.table.rows.shape[0], dtype=np.intp)
            place[self.bags.order] = np.arange(n)
            if self.watch is not None:
                place[self.watch.order] = np.arange(n, n + self.watch.n_bagged)
            self.places = place[rows]
        known = self.places < n
        found = np.empty(len(known))
        found[known] = self.scores[self.places[known], 0]
        found[~known] = self.watched[self.places[~known] - n, 0]
        return found, known


def objective_of(options: TreeOptions, parts: Parts, output: int, prior: float) -> Objective:
    """What trees of these options go down on."""
    if options.objective == LIKELIHOOD:
        return CountLikelihood(parts, prior, options.effect_variance or 0.0)
    return DebiasedSquare(parts, output, prior, options.link)


def grow(booster: lgb.Booster, gradient: Floats, curvature: Floats, *, held: Floats | None = None) -> Floats:
    """Let the booster add a tree: by how much that moved the raw predictions it holds of its own rows.

    held: (rows,) what is written over with the answer; None: a new one.
    """
    step = np.empty(len(gradient)) if held is None else held

    def before(predictions: Floats, data: lgb.Dataset) -> tuple[Floats, Floats]:
        np.copyto(step, predictions)
        return gradient, curvature

    def after(predictions: Floats, data: lgb.Dataset) -> tuple[str, float, bool]:
        np.subtract(predictions, step, out=step)
        return "step", 0.0, False

    booster.update(fobj=before)
    booster.eval_train(feval=after)
    return step


def add_tree(
    booster: lgb.Booster,
    objective: Objective,
    scores: Floats,
    down: Floats,
    blocks: Callable[[], Iterable[Floats]],
    options: TreeOptions,
    grow: Callable[[lgb.Booster, Floats, Floats], Floats],
    *,
    chosen: Integers | slice = slice(None),
    order: Integers | slice = slice(None),
    rounded: Callable[[Floats], Floats] | None = None,
) -> bool:
    """Grow a tree on the gradient of each row, solve for its values, and move the scores. False if none can grow.

    scores: (n,) in bag order.  down: (2, rows) ones, where gradient and curvature are put for LightGBM.
    blocks: rows, of which LightGBM holds those `chosen`.  grow: lets the booster add a tree, and tells how far rows
    moved.  order: where LightGBM holds each row.  rounded: makes of gradients what adds up to the same in any order.
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
        leaf = predicted_leaves(booster, tree, blocks(), options.n_jobs)[chosen]
    leaf, n_leaves = leaf[order], options.num_leaves
    if int(leaf.max()) + 1 < n_leaves:
        n_leaves = count_leaves(booster, tree)
    value = links.shrunk(objective.leaf_values(leaf, n_leaves, options.reg_lambda), options.learning_rate, options.link)
    for number, leaf_value in enumerate(value):
        booster.set_leaf_output(tree, number, float(leaf_value))
    objective.follow(value)
    scores += np.take(value, leaf, out=step, mode="clip")  # what the step was is known
    return True
