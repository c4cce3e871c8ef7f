r"""Probabilities of linear predictions, without labels: how far held-out bags trust h, and a sigmoid through it.

A linear h leaves [0, 1]. Its scores :math:`(h - p)/(p(1-p))` are log odds near p; stretched as held-out bags expect
(`bagwise.gains`) and shifted to E[h] = p they make probabilities. Few bags, and bags that are grouped by features, do
not say how far to stretch, only how far to shrink.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from bagwise.bags import Bags
from bagwise.explanation.contributions import LOG_ODDS, PROBABILITY, Contributions, linear_contributions
from bagwise.gains import STRETCHES, HeldOut, best_stretch
from bagwise.log_odds import prior_of, prior_of_classes, shift_to
from bagwise.losses.log_likelihood import log_likelihoods, log_likelihoods_by_each
from bagwise.numeric import LinearPredictor, check_finite_features
from bagwise.utils.typing import Booleans, Floats, Integers

ENOUGH_BAGS = 100
"""Bags from which on a sigmoid may be steeper than h."""

EDGE = 1e-3
"""How close to 0 and 1 predictions may come that are clipped, for want of a sigmoid."""

_ROWS, _NUMBERS = 40_000, 2**23  # that are looked at
_MEAN_ROWS = 2**17  # of all bags, to know a mean by


def some_bags(bags: Bags, width: int, rng: np.random.Generator) -> Integers:
    """Random bags of not too many rows, which have `width` features; 16 at least, where there are as many."""
    order = rng.permutation(len(bags))
    most = min(_ROWS, _NUMBERS // max(width, 1))
    return np.sort(order[: max(int(np.searchsorted(np.cumsum(bags.rows[order]), most, side="right")), 16)])


def of_all_bags(X: Floats, bags: Bags) -> tuple[Floats, Floats | None]:
    """Rows to know a mean by, and what these count: as large a share of every bag.

    >>> of_all_bags(np.eye(2), Bags.from_rows(np.array([1.0, 0.0]), np.array([0, 1])))[0].shape
    (2, 2)
    """
    some = slice(None, None, -(-bags.n_bagged // _MEAN_ROWS))
    return X[bags.order[some]], None if bags.weight is None else bags.weight[some]


def may_be_steeper(formation: str, n_bags: int) -> bool:
    """Whether bags tell that a sigmoid is to be steeper than h."""
    return formation == "rates" or (formation != "features" and n_bags >= ENOUGH_BAGS)


def clipped(h: Floats) -> Floats:
    """h inside (0, 1); classes add up to 1."""
    kept = np.clip(h, EDGE, 1 - EDGE)
    return kept if h.ndim == 1 else kept / kept.sum(axis=1, keepdims=True)


class _Fold(NamedTuple):
    """Which rows are held out, and the bags that are not and are."""

    rows: Booleans
    train: Bags
    held_out: Bags


class Trust:
    """How far held-out bags trust linear models, each fitted without one of the folds.

    X: (n, d) rows in table order.  bags: some of theirs.  fold: (m,) the fold that each of these bags is in.
    """

    def __init__(self, X: Floats, bags: Bags, fold: Integers) -> None:
        self.rows, self.bags, self.fold = X[bags.order].astype(float, copy=False), bags, fold
        self.prior = prior_of(bags) if bags.proportion.ndim == 1 else 0.0

    def parts(self, models: Sequence[Floats]) -> list[HeldOut]:
        """What models of two classes with weights (d, 1), one for each fold, say of the bags held out."""
        return [self._part(fold, w) for fold, w in self._folds(models)]

    def gains(self, models: Sequence[Floats]) -> Floats:
        """The gains of held-out bags by models with weights (d, 1) or (d, classes), one for each fold, as they are."""
        found: list[Floats] = [np.zeros(0)]
        for fold, w in self._folds(models):
            if self.bags.proportion.ndim == 1:
                found.append(self._part(fold, w).gains(np.ones(1))[0])
            else:
                s, constant = self._said(fold, w), np.log(prior_of_classes(fold.train))
                found.append(log_likelihoods(s, fold.held_out))
                found[-1] -= log_likelihoods(np.tile(constant, (len(s), 1)), fold.held_out)
        return np.concatenate(found)

    def likeliest(self, models: Sequence[Floats]) -> int:
        """Which of several penalties held-out bags prefer.  models: weights (penalties, d, c), one for each fold."""
        total = np.zeros(len(models[0]))
        for fold, each in self._folds(models):
            total += log_likelihoods_by_each([self._said(fold, w) for w in each], fold.held_out).sum(axis=1)
        return int(np.argmax(total))

    def sigmoid(
        self, models: Sequence[Floats], h: Floats, mean: float, *, weight: Floats | None = None, steeper: bool
    ) -> tuple[Floats, Floats]:
        """Slope and offset by h of log odds whose probabilities have a given mean, and the gains of held-out bags.

        models: weights (d, 1), one for each fold.  h: predictions of the model of all bags for rows of all bags, of
        which each counts `weight`.  steeper: see `may_be_steeper`.
        """
        parts, stretches = self.parts(models), STRETCHES if steeper else STRETCHES[STRETCHES <= 1]
        stretch, gains = best_stretch(parts, stretches=stretches) if parts else (1.0, np.zeros(0))
        slope = stretch / (self.prior * (1 - self.prior))
        return np.array([slope, shift_to(mean, slope * h, weight=weight)]), gains

    def _part(self, fold: _Fold, w: Floats) -> HeldOut:
        """What one model of two classes says."""
        s = self.rows @ w[:, 0] / (self.prior * (1 - self.prior))
        return HeldOut.of(prior_of(fold.train), fold.train, s[~fold.rows], s[fold.rows], fold.held_out)

    def _said(self, fold: _Fold, w: Floats) -> Floats:
        """Log odds, or logarithms of class probabilities, of the rows held out, with E[h] = p in the others."""
        if self.bags.proportion.ndim == 1:
            return self._part(fold, w).stretched(np.ones(1))[0]
        h = self.rows @ w
        return np.log(clipped(h[fold.rows] - fold.train.average(h[~fold.rows]) + prior_of_classes(fold.train)))

    def _folds(self, models: Sequence[Floats]) -> Iterator[tuple[_Fold, Floats]]:
        """The folds, and the model without each; but for those with no bag or all of them."""
        for f, w in enumerate(models):
            out = self.fold == f
            if out.any() and not out.all():
                yield _Fold(self.bags.repeat(out), self.bags.take(~out), self.bags.take(out)), w


class SigmoidPredictor(LinearPredictor):
    """Linear predictions that become probabilities by a sigmoid, or are clipped where there is none."""

    sigmoid_: Floats | None

    def _linear(self, X: Floats) -> Floats:
        return super()._predict_mean(X)

    def _predict_mean(self, X: Floats) -> Floats:
        h = self._linear(X)
        check_finite_features(h, X, getattr(self, "feature_names_in_", None))  # clipped, infinity would be hidden
        if self.sigmoid_ is None:
            return clipped(h)
        slope, offset = self.sigmoid_
        return np.asarray(expit(slope * h + offset))

    def _contributions(self, X: Floats) -> Contributions:
        """To log odds; without a sigmoid, to probabilities, in proportion where these are clipped."""
        found = linear_contributions(self, X, PROBABILITY)
        if self.sigmoid_ is None:
            return found.through(clipped, PROBABILITY)
        slope, offset = self.sigmoid_
        return found.stretched(slope, offset, LOG_ODDS)
