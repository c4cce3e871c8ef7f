"""A quick model, to be asked how bags came about: logistic regression on columns that are compared between bags."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtri

from bagwise import segment
from bagwise.bags import Bags
from bagwise.dispersion import have_real_labels
from bagwise.formation.evidence import ENOUGH_BAGS
from bagwise.formation.support import likeliest_factors
from bagwise.gains import HeldOut
from bagwise.linear.design import Design
from bagwise.linear.penalties import choose
from bagwise.losses.likelihood import check_counts
from bagwise.ranks import Columns
from bagwise.utils.typing import Floats

_WIDEST, _ROWS, _LEVELS = 120, 20_000, 5  # columns and rows of a model; categories of a column
_STEPS = 10  # of a column in which bags differ
_ALPHAS, _FOLDS = np.array([3.0, 30.0, 300.0]), 3


@dataclass(frozen=True, eq=False)
class QuickModel:
    """What models that were fitted to other bags each time say of those held out."""

    parts: tuple[HeldOut, ...]

    def predictions(self, *, effects: bool) -> tuple[Floats, Bags]:
        """Predictions for the rows of all bags held out, in the order of these, and the bags.

        effects: whether bags have effects, beside which log odds are stretched to what is likeliest.
        """
        factor = likeliest_factors(self.parts)[int(effects)]
        h = [expit(one.stretched(np.array([factor]))[0]) for one in self.parts]
        bags = [one.bags for one in self.parts]
        noise = None if bags[0].noise_variance is None else np.concatenate([one.noise_variance for one in bags])
        rows, sizes = sum(one.n_bagged for one in bags), np.concatenate([one.rows for one in bags])
        offsets = np.append(0, np.cumsum(sizes))
        proportion = np.concatenate([one.proportion for one in bags])
        weight = None if bags[0].weight is None else np.concatenate([one.weight for one in bags])
        held = Bags.build(np.arange(len(sizes)), np.arange(rows), offsets, proportion, noise, rows, weight=weight)
        return np.concatenate(h), held


def quick_model(
    columns: Columns, differing: Sequence[bool], more: Columns, bags: Bags, rng: np.random.Generator
) -> QuickModel | None:
    """Logistic regression on ranks, categories, squares and products, where labels are 0 and 1 and bags are enough.

    Where bags differ in a column, what a straight line misses of it would look like effects of bags: it has steps, too.
    """
    if bags.proportion.ndim == 2 or len(bags) < ENOUGH_BAGS or have_real_labels(bags):
        return None
    try:
        check_counts(bags)
    except ValueError:  # rounded proportions: a likelihood of counts would be that of others
        return None
    if not (bags.size > 1).any():
        return None
    most = max(int(np.searchsorted(np.cumsum(bags.rows), _ROWS, side="right")), ENOUGH_BAGS)
    some = np.sort(rng.permutation(len(bags))[:most])
    rows, offsets = segment.take(np.arange(bags.n_bagged), bags.offsets, some)
    of_columns = [[np.asarray(x[rows]) for x, _ in scores] for _, scores in columns]
    steps = [x for scores, one in zip(of_columns, differing, strict=True) if one for x in _steps(scores)]
    X = [x for scores in of_columns for x in _numbers(scores)]
    X += [np.asarray(x[rows]) for _, ((x, _),) in more] + steps[:_WIDEST]
    X = [(x - x.mean()) / x.std() for x in X[:: max(1, -(-len(X) // _WIDEST))] if x.min() < x.max()]
    if not X:
        return None
    noise = None if bags.noise_variance is None else bags.noise_variance[some]
    weight, offset = (None if one is None else one[rows] for one in (bags.weight, bags.offset))
    order = np.arange(len(rows))
    ready = Bags.build(
        bags.keys[some], order, offsets, bags.proportion[some], noise, len(rows), weight=weight, offset=offset
    )
    chosen = choose(Design.of(np.stack(X, axis=1), ready), _FOLDS, rng, _ALPHAS, np.ones(1), effects=True, adapt=False)
    return QuickModel(tuple(chosen.parts)) if chosen.parts else None


def _numbers(scores: Sequence[Floats]) -> list[Floats]:
    """A column for a linear model: normal quantiles in the order of its values, or its most frequent categories."""
    if len(scores) > 1:
        return list(scores[1 : 1 + _LEVELS])
    return [ndtri((x - x.min() + 0.5) / (x.max() - x.min() + 1)) for x in scores]


def _steps(scores: Sequence[Floats]) -> list[Floats]:
    """Whether an ordered column is above each of some quantiles."""
    if len(scores) > 1:
        return []
    return [(x > cut).astype(float) for x in scores for cut in np.quantile(x, np.arange(1, _STEPS) / _STEPS)]
