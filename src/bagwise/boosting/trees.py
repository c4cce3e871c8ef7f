"""Trees on the gradient of the debiased loss, their leaf values solved at the level of bags; fits side by side.

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
from scipy import linalg, sparse

from bagwise import means
from bagwise.bags import Bags
from bagwise.boosting import links
from bagwise.boosting.dataset import Table, TreeOptions
from bagwise.boosting.tuning import Path
from bagwise.data.rows import BagRows, in_one_piece
from bagwise.folds import Fold
from bagwise.losses import residual
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats, Integers

_LEAF_VALUES = re.compile(r"^leaf_value=(.*)$", re.MULTILINE)
_TOGETHER = 2**20  # rows to look at
_ENOUGH_ROWS = 2**22  # to know a mean by, where there are more
_FLAT = 1e-9  # mean slope below which log odds can move no prediction
_SLOPES = 1e-4, 1e2  # over their mean: LightGBM counts rows by their curvature, and errs where it differs too much
_LOST_COUNT = "best_split_info"  # what it says of a split with no rows on one side
_LONGEST = 4.0  # step on log odds
_ONE_THREAD = 200_000  # numbers in a table below which threads wait for each other longer than they work
_BARREN = 20  # rounds in a row without a tree: draws of features that cannot be cut, or nothing left to cut

Result = TypeVar("Result")


@dataclass(eq=False)
class Boosted:
    """A sequence of trees per output, fitted to bags.

    prior: (outputs,) what the predictions start from.  boosters: one per output.  link: the scale of the trees.
    deviations: (m, outputs) Σ(h − E[h])/√k of each watched bag after each tree.
    trained: (rows, outputs) scores of rows that it was fitted to, None once they have served to centre it.
    offset: (outputs,) what is added to its log odds.
    """

    prior: Floats
    boosters: list[lgb.Booster]
    link: str
    deviations: list[Floats] = field(default_factory=list)
    trained: Floats | None = None
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

    def log_odds(self, scores: Floats) -> Floats:
        """Scores as log odds, centred."""
        return (scores if self.link == links.LOGIT else links.log_odds_of(scores, self.prior)) + self.offset

    def centre(self) -> Floats:
        """Shift the log odds so that the mean prediction of the rows it was fitted to is p; the log odds of those."""
        assert self.trained is not None
        self.offset = links.centring(self.log_odds(self.trained), self.prior)
        trained, self.trained = self.log_odds(self.trained), None
        return trained

    def release(self) -> None:
        """Let go of the rows that trees were grown on; predictions stay the same, but no tree can be added."""
        self.boosters = [lgb.Booster(model_str=booster.model_to_string(num_iteration=-1)) for booster in self.boosters]


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

    scores: (rows, outputs) of the table's rows in `bags`, as LightGBM holds them.  watched: of the rows in `watch`, in
        bag order.
    """

    def __init__(
        self, table: Table, bags: Bags, watch: Bags | None, prior: Floats, options: TreeOptions, seed: int
    ) -> None:
        self.bags, self.prior, self.options = bags, prior, options
        n_rows, n_columns = table.rows.shape
        parameters = options.for_lightgbm(seed, n_columns, lean=not in_one_piece(table.rows))
        # A number of threads is given to LightGBM in every call, since it holds for the whole process: changed by one
        # fit while another is at work, it makes that one write beyond its memory.
        self.order: Integers | slice
        self.blocks: Callable[[], Iterable[Floats]] = table.blocks
        if bags.n_bagged == n_rows:
            part, self.bag_of_row = table.binned, bags.code
            self.order = slice(None) if np.array_equal(bags.order, np.arange(n_rows)) else bags.order
        else:
            chosen = np.flatnonzero(bags.code >= 0)
            taken, part = [table.take(chosen)], table.binned.subset(chosen, params=parameters)
            self.blocks = lambda: taken
            self.bag_of_row = bags.code[chosen]
            place = np.empty(n_rows, dtype=np.int64)
            place[chosen] = np.arange(len(chosen))
            self.order = place[bags.order]
        self.watched_rows = None if watch is None else table.take(watch.order)
        self.boosters = [lgb.Booster(parameters, part) for _ in prior]
        # Outputs that take no tree, or no more: no log odds lead to a mean that noise has put beyond 0 or 1.
        beyond = (prior <= links.MARGIN) | (prior >= 1 - links.MARGIN)
        self.stuck = set(np.flatnonzero(beyond).tolist()) if options.link == links.LOGIT else set()
        start = links.score_of(prior, options.link)
        self.scores = np.tile(start, (bags.n_bagged, 1))
        self.watched = np.tile(start, (0 if watch is None else watch.n_bagged, 1))

    def add_tree(self, output: int) -> bool:
        """Grow a tree on the gradient of each row, then solve for its values. False if none can grow.

        The gradient is −R_j + (E[h] − p), times the slope of the row's prediction.
        """
        bags, options, booster = self.bags, self.options, self.boosters[output]
        if output in self.stuck:
            return False
        r, bias, slope = self._residuals(output)
        if slope is not None and slope.mean() < _FLAT:
            return False
        tree = booster.num_trees()
        try:
            step = _grow(booster, *self._gradient(bias - r, slope))
        except lgb.basic.LightGBMError as error:
            if slope is None or _LOST_COUNT not in str(error):
                raise
            self.stuck.add(output)
            return False
        if booster.num_trees() == tree:
            return False
        if (leaf := leaves_of(booster, tree, step)) is None:
            leaf = _predicted_leaves(booster, tree, self.blocks(), options.n_jobs)
        ordered = None if slope is None else slope[self.order]
        leaves = leaf[self.order], int(leaf.max()) + 1
        value = solve_leaves(*leaves, bags, r, bias, reg_lambda=options.reg_lambda, slope=ordered)
        value *= options.learning_rate
        if slope is not None:  # noise alone asks for longer ones, where labels are rare
            value = np.clip(value, -_LONGEST, _LONGEST)
        for number, leaf_value in enumerate(value):
            booster.set_leaf_output(tree, number, float(leaf_value))
        self.scores[:, output] += value[leaf]
        if self.watched_rows is not None:
            self.watched[:, output] += value[_predicted_leaves(booster, tree, [self.watched_rows], options.n_jobs)]
        return True

    def _residuals(self, output: int) -> tuple[Floats, float, Floats | None]:
        """R of the bags, E[h] − p, and the slopes dh/dscore of the predictions, None where all are 1."""
        bags, p = self.bags, self.prior[output]
        h = links.prediction_of(self.scores[:, output], self.options.link)
        mean = h.mean()
        r = residual(bags.sum(h[self.order]), bags.size, bags.outputs[:, output], prior=p, mean=mean)
        return r, float(mean - p), None if self.options.link == links.IDENTITY else h * (1 - h)

    def _gradient(self, pull: Floats, slope: Floats | None) -> tuple[Floats, Floats]:
        """Gradient and curvature of the rows, from −R_j + (E[h] − p) of the bags; LightGBM reads single precision."""
        if slope is None:
            return pull.astype(np.float32)[self.bag_of_row], np.ones(len(self.scores), dtype=np.float32)
        relative = np.clip(slope / slope.mean(), *_SLOPES)
        return (pull[self.bag_of_row] * relative).astype(np.float32), (relative**2).astype(np.float32)

    def deviations(self, watch: Bags) -> Floats:
        """Σ(h − E[h])/√k of each watched bag, E[h] coming from the bags that trees are fitted to."""
        size, link = watch.size[:, None], self.options.link
        mean = links.prediction_of(self.scores, link).mean(axis=0)
        return np.asarray((watch.sum(links.prediction_of(self.watched, link)) - size * mean) / np.sqrt(size))


def _grow(booster: lgb.Booster, gradient: Floats, curvature: Floats) -> Floats:
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


def leaves_of(booster: lgb.Booster, tree: int, step: Floats) -> Integers | None:
    """(n,) the leaf of each row, told by how much the tree moved it; None where two leaves moved rows alike.

    It spares a walk of all rows through the tree, which takes as long as to grow it.
    """
    text = booster.model_to_string(start_iteration=tree, num_iteration=1)
    values = np.array(_LEAF_VALUES.findall(text)[0].split(" "), dtype=float)
    rank = np.argsort(values).astype(np.int32)
    ordered = values[rank]
    if len(values) > 1 and np.diff(ordered).min() < 1e-6 * np.abs(ordered).max():
        return None
    between, leaf = (ordered[1:] + ordered[:-1]) / 2, np.empty(len(step), dtype=np.int32)
    for start in range(0, len(step), _TOGETHER):  # so that what is computed on the way stays small
        moved, mine = step[start : start + _TOGETHER], leaf[start : start + _TOGETHER]
        mine[:] = rank[np.searchsorted(between, moved)]
        if not np.abs(values[mine] - moved).max() < 1e-7 * np.abs(ordered).max():
            return None
    return leaf


def _predicted_leaves(booster: lgb.Booster, tree: int, blocks: Iterable[Floats], n_jobs: int) -> Integers:
    how = {"pred_leaf": True, "start_iteration": tree, "num_iteration": 1, "num_threads": n_jobs}
    return np.concatenate([np.ravel(booster.predict(block, **how)).astype(np.int32) for block in blocks])


def solve_leaves(
    leaf: Integers, n_leaves: int, bags: Bags, r: Floats, bias: float, *, reg_lambda: float, slope: Floats | None = None
) -> Floats:
    r"""The leaf values v that minimise the penalised debiased loss.

    A tree adds :math:`v_{l(i)}` to the prediction of row i. With A the bags × leaves matrix of row counts, f the shares
    of rows in leaves and :math:`\tilde A = A - k f^T`, the debiased loss after the tree is quadratic in v:

    .. math:: \tfrac{1}{m} \sum_j (R_j - \tilde A_j v)^2 / k_j + (\bar h - p + f \cdot v)^2 + \tfrac{\lambda}{m} |v|^2

    Where trees add up on another scale than that of predictions, a row counts by the slope of its prediction instead of
    by 1, in A and in f, and λ by the square of the mean slope: a step of Gauss and Newton.
    The cost is that of one pass over the rows, plus leaves² per bag (or fewer where bags are small), plus leaves³.

    leaf: (n,) leaf of each row, in bag order.  r: (m,) R_j with ΣR = 0.  bias: :math:`\bar h - p`.
    reg_lambda: λ.  slope: (n,) how fast each prediction moves with its tree's value, in bag order; None: all 1.
    Returns (n_leaves,).

    >>> bags = Bags.singletons([1.0, 0.0, 0.5])
    >>> solve_leaves(np.array([0, 1, 1]), 2, bags, np.array([0.5, -0.5, 0.0]), 0.0, reg_lambda=0.0).round(3)
    array([ 0.5 , -0.25])
    """
    m, n = len(bags), len(leaf)
    share = np.bincount(leaf, weights=slope, minlength=n_leaves) / n
    gram, right = _products(leaf, n_leaves, bags, r / bags.size, slope)
    unit = 1.0 if slope is None else float(slope.mean()) ** 2
    # ÃᵀK⁻¹Ã = AᵀK⁻¹A − n f fᵀ, since the rows of A add up to n f.
    matrix = (gram - n * np.outer(share, share)) / m + np.outer(share, share)
    matrix[np.diag_indices(n_leaves)] += unit * (reg_lambda / m + 1e-12)  # an empty leaf gets the value 0
    return np.asarray(linalg.solve(matrix, right / m - share * bias, assume_a="pos"))


def _products(leaf: Integers, n_leaves: int, bags: Bags, weight: Floats, slope: Floats | None) -> tuple[Floats, Floats]:
    """AᵀK⁻¹A and Aᵀ weight. Where bags have fewer rows than there are leaves, A is not written out."""
    m = len(bags)
    if m * n_leaves <= 4 * len(leaf):
        cell = bags.repeat(np.arange(0, m * n_leaves, n_leaves))
        cell += leaf
        counts = np.bincount(cell, weights=slope, minlength=m * n_leaves).reshape(m, n_leaves).astype(float, copy=False)
        scaled = counts / np.sqrt(bags.size)[:, None]
        return scaled.T @ scaled, counts.T @ weight
    each, right = bags.repeat(1 / np.sqrt(bags.size)), bags.repeat(weight)
    if slope is not None:
        each, right = each * slope, right * slope
    rows = sparse.csr_array((each, leaf, bags.offsets), shape=(m, n_leaves))  # equal entries of a row add up
    return (rows.T @ rows).toarray(), np.bincount(leaf, weights=right, minlength=n_leaves).astype(float, copy=False)


def targets(bags: Bags, prior: Floats) -> Floats:
    """(m, outputs) √k(α − p): what the deviations of a good model are near to."""
    return np.asarray(np.sqrt(bags.size)[:, None] * (bags.outputs - prior))


@dataclass(frozen=True, eq=False)
class Job:
    """One fit of at most `n_trees` trees per output.

    fold: bags to fit to and bags to watch; None: fit to all.  patience: growth stops when the deviations of those that
    are watched have not come closer to √k(α − p) for so many trees.
    """

    table: Table
    options: TreeOptions
    n_trees: int
    seed: int
    fold: Fold | None = None
    patience: int = 0

    def fit(self, n_jobs: int) -> Boosted:
        """The fit, by `n_jobs` threads; what is watched is recorded after every tree."""
        table, fold, options = self.table, self.fold, replace(self.options, n_jobs=n_jobs)
        bags = table.bags if fold is None else table.bags.take(fold.train)
        watch = None if fold is None else table.bags.take(fold.held_out)
        prior = np.atleast_1d(means.prior(bags))
        model = Boosted(prior, [], options.link)
        if not varies(table.blocks()):
            model.trained = links.score_of(prior, options.link)[None]  # as every row has it
            return model
        growth = _Growth(table, bags, watch, prior, options, self.seed)
        model.boosters = growth.boosters
        best, best_gap, barren = 0, np.inf, 0
        for tree in range(self.n_trees):
            check_time()
            grown = [growth.add_tree(output) for output in range(len(prior))]
            barren = 0 if any(grown) else barren + 1
            if barren == _BARREN:
                break
            if watch is None:
                continue
            model.deviations.append(growth.deviations(watch))
            gap = float(np.square(targets(watch, prior) - model.deviations[-1]).sum())
            if gap < best_gap:
                best, best_gap = tree, gap
            if tree - best >= self.patience:
                break
        every = -(-len(growth.scores) // _ENOUGH_ROWS)
        model.trained = growth.scores if every == 1 else growth.scores[::every].copy()
        if not in_one_piece(table.rows):
            model.release()
        return model

    def path(self, n_jobs: int) -> Path:
        """What the fit says, tree by tree, about bags it did not see; p and E[h] come from those it saw."""
        assert self.fold is not None
        fit, watch = self.fit(n_jobs), self.table.bags.take(self.fold.held_out)
        target = targets(watch, fit.prior)
        empty = np.empty((*target.shape, 0))
        return Path(np.stack(fit.deviations, axis=2) if fit.deviations else empty, target, watch.noise_per_row)


def side_by_side(
    calls: Sequence[Callable[[int], Result]], rows: BagRows, n_jobs: int, tell: Callable[[dict[str, Any]], object]
) -> list[Result]:
    """The results of calls that take a number of threads; together they use `n_jobs`, 0 or −1 for all.

    tell: called each time one more is finished, in the order of `calls`: "fit" says how many are, "fits" of how many.
    """
    threads = n_jobs if n_jobs > 0 else 1 if np.prod(rows.shape) < _ONE_THREAD else joblib.cpu_count()
    at_once = min(threads, len(calls)) if in_one_piece(rows) else 1
    run = joblib.Parallel(n_jobs=at_once, prefer="threads", return_as="generator")
    # Each in a copy of this thread's context, where the limit of time is known: made now, as joblib's own threads ask.
    tasks = [joblib.delayed(copy_context().run)(call, threads // at_once) for call in calls]
    results = []
    for result in run(tasks):
        results.append(result)
        tell({"fit": len(results), "fits": len(calls)})
    return results
