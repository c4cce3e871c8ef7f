"""What others do with bags of different rates, a few lines each around LightGBM.

Both take rows of one label to be alike in all bags, so they are right for `rates` alone. With p the rate of all rows,
η(x) = P(y = 1 | x) and γ_j the rate of bag (or set) j, the density of its rows relative to all rows is

    c_j(η) = γ_j η/p + (1 − γ_j)(1 − η)/(1 − p),

from which it follows how likely it is that a row came from this set and not from others: labels that are there. Where
all rates are nearly the same, as in random bags, c_j is nearly 1 whatever η is, and there is nothing to learn from.
"""

from collections.abc import Callable
from typing import Any, Self

import lightgbm as lgb
import numpy as np
from scipy.special import expit, logit

from bagwise.bags import Bags
from bagwise.data.features import FeatureCodes, is_table
from bagwise.log_odds import prior_of
from bagwise.utils.rng import generator
from bagwise.utils.typing import Floats, Integers

SETS = 8
"""Sets into which bags are grouped by their rates."""
_TREES, _PATIENCE, _HELD_OUT = 300, 20, 0.1  # at most; without a gain; rows that say how many
_LEAST = 1e-6  # of densities and curvatures

Objective = Callable[[Floats, Integers, np.random.Generator], tuple[Floats, Floats, Floats]]
"""The loss of rows, its slope and its curvature, given their log odds, the numbers of their bags and random numbers."""


class _Boosted:
    """Trees on an objective of their own, on log odds, that begin at p; as many as rows held out prefer by their bags.

    objective: of bags and p.
    """

    def __init__(self, objective: Callable[[Bags, float], Objective], *, random_state: int) -> None:
        self.objective, self.random_state = objective, random_state

    def fit(self, X: Any, *, bags: Bags) -> Self:
        """Learn from the rows of bags."""
        self._codes = FeatureCodes.of(X) if is_table(X) else None
        self._prior, rng = prior_of(bags), generator(self.random_state)
        objective, own = self.objective(bags, self._prior), bags.repeat(np.arange(len(bags)))
        held, train = np.split(rng.permutation(bags.n_bagged), [round(_HELD_OUT * bags.n_bagged)])

        def slopes(scores: Floats, _: Any) -> tuple[Floats, Floats]:
            return objective(scores, own[train], rng)[1:]

        def loss(scores: Floats, _: Any) -> tuple[str, float, bool]:
            return "loss", float(objective(scores, own[held], generator(self.random_state))[0].mean()), False

        matrix, categorical = self._matrix(X)[bags.order], self._codes.categorical if self._codes else "auto"
        data, others = (
            lgb.Dataset(
                matrix[rows], 0 * rows, categorical_feature=categorical, init_score=0 * rows + logit(self._prior)
            )
            for rows in (train, held)
        )
        options = {
            "objective": slopes,
            "metric": "none",
            "seed": self.random_state,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 0,
            "verbosity": -1,
        }
        stop = lgb.early_stopping(_PATIENCE, verbose=False)
        self.booster_ = lgb.train(options, data, _TREES, valid_sets=[others], feval=loss, callbacks=[stop])
        return self

    def predict_proba(self, X: Any) -> Floats:
        """(n, 2) probabilities of the labels."""
        h = expit(logit(self._prior) + self.booster_.predict(self._matrix(X)))
        return np.stack([1 - h, h], axis=1)

    def _matrix(self, X: Any) -> Floats:
        return self._codes.matrix(X) if self._codes else np.asarray(X)


def set_classification(*, random_state: int) -> _Boosted:
    """U^m classification (Lu et al., 2021): which set a row is from, by a model of its label.  Right for `rates`.

    Bags are grouped into at most eight sets of similar rates, so that a set has many rows.
    """
    return _Boosted(_sets, random_state=random_state)


def forward_correction(*, random_state: int) -> _Boosted:
    """LLPFC (Zhang et al., 2022): bags in random pairs, which of two is a noisy label.  Right for `rates`.

    The transition from labels to noisy ones follows from the two rates; the loss is corrected forward. Bags are paired
    anew for every tree.
    """
    return _Boosted(_pairs, random_state=random_state)


def _sets(bags: Bags, prior: float) -> Objective:
    place = np.empty(len(bags), dtype=int)
    place[np.argsort(bags.proportion, kind="stable")] = np.arange(len(bags)) * min(SETS, len(bags)) // len(bags)
    size = np.bincount(place, bags.size)
    rate, share = np.bincount(place, bags.size * bags.proportion) / size, size / size.sum()

    def objective(scores: Floats, own: Integers, _: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        h, sets = expit(scores), place[own]
        density, by_h = _densities(h[:, None], rate, prior)  # whose mean, weighed by shares, is 1 for every h
        of_own, spread = density[np.arange(len(h)), sets], h * (1 - h)
        information = (share * by_h**2 / density).sum(axis=1)
        return -np.log(of_own), -spread * by_h[sets] / of_own, np.maximum(spread**2 * information, _LEAST)

    return objective


def _pairs(bags: Bags, prior: float) -> Objective:
    def objective(scores: Floats, own: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        h, pair = expit(scores), np.stack([own, _partners(len(bags), rng)[own]], axis=1)
        density, by_h = _densities(h[:, None], bags.proportion[pair], prior)
        chance = bags.size[pair] * density
        chance /= chance.sum(axis=1, keepdims=True)  # that such a row is from this bag, or from the other
        relative, spread = by_h / density, h * (1 - h)
        apart = spread * (relative[:, 0] - relative[:, 1])
        return -np.log(chance[:, 0]), -chance[:, 1] * apart, np.maximum(chance.prod(axis=1) * apart**2, _LEAST)

    return objective


def _densities(h: Floats, rate: Floats, prior: float) -> tuple[Floats, Floats]:
    """c_j(h), and its derivative."""
    by_h = rate / prior - (1 - rate) / (1 - prior)
    return np.maximum((1 - rate) / (1 - prior) + by_h * h, _LEAST), by_h


def _partners(m: int, rng: np.random.Generator) -> Integers:
    """The bag that each of m is paired with; itself for the last of an odd number, which then says nothing."""
    order, partner = rng.permutation(m), np.arange(m)
    first, second = order[: m // 2 * 2].reshape(-1, 2).T
    partner[first], partner[second] = second, first
    return partner
