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
from bagwise.gains import prior_of
from bagwise.utils.rng import generator
from bagwise.utils.typing import Floats, Integers

SETS = 8
"""Sets into which bags are grouped by their rates."""
_TREES = 100  # LightGBM's default, as are the other settings
_LEAST = 1e-6  # of densities and curvatures

Objective = Callable[[Floats], tuple[Floats, Floats]]
"""Slope and curvature of the loss of each row with respect to its log odds."""


class _Boosted:
    """Trees on an objective of their own, on log odds, that begin at p.  objective: of bags, p and random numbers."""

    def __init__(self, objective: Callable[..., Objective], *, random_state: int) -> None:
        self.objective, self.random_state = objective, random_state

    def fit(self, X: Any, *, bags: Bags) -> Self:
        """Learn from the rows of bags."""
        self._codes = FeatureCodes.of(X) if is_table(X) else None
        self._prior = prior_of(bags)
        slopes = self.objective(bags, self._prior, generator(self.random_state))
        data = lgb.Dataset(
            self._matrix(X)[bags.order],
            np.zeros(bags.n_bagged),
            categorical_feature=self._codes.categorical if self._codes else "auto",
            init_score=np.full(bags.n_bagged, logit(self._prior)),
        )
        options = {
            "objective": lambda scores, _: slopes(scores),
            "seed": self.random_state,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 0,
            "verbosity": -1,
        }
        self.booster_ = lgb.train(options, data, num_boost_round=_TREES)
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


def _sets(bags: Bags, prior: float, rng: np.random.Generator) -> Objective:
    del rng
    place = np.empty(len(bags), dtype=int)
    place[np.argsort(bags.proportion, kind="stable")] = np.arange(len(bags)) * min(SETS, len(bags)) // len(bags)
    size = np.bincount(place, bags.size)
    rate = np.bincount(place, bags.size * bags.proportion) / size
    share, own = size / size.sum(), bags.repeat(place)

    def slopes(scores: Floats) -> tuple[Floats, Floats]:
        h = expit(scores)
        density, by_h = _densities(h[:, None], rate, prior)  # whose mean, weighed by shares, is 1 for every h
        rows, spread = np.arange(len(h)), h * (1 - h)
        information = (share * by_h**2 / density).sum(axis=1)
        return -spread * by_h[own] / density[rows, own], np.maximum(spread**2 * information, _LEAST)

    return slopes


def _pairs(bags: Bags, prior: float, rng: np.random.Generator) -> Objective:
    def slopes(scores: Floats) -> tuple[Floats, Floats]:
        h = expit(scores)
        partner = _partners(len(bags), rng)
        rates, sizes = (bags.repeat(np.stack([of, of[partner]], axis=1)) for of in (bags.proportion, bags.size))
        density, by_h = _densities(h[:, None], rates, prior)
        weight = sizes * density
        other = weight[:, 1] / weight.sum(axis=1)  # chance that such a row is from the other bag
        apart, spread = by_h[:, 0] / density[:, 0] - by_h[:, 1] / density[:, 1], h * (1 - h)
        return -spread * other * apart, np.maximum(other * (1 - other) * (spread * apart) ** 2, _LEAST)

    return slopes


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
