r"""Probabilities of linear predictions, without labels: how far held-out bags trust h, and a sigmoid through it.

A linear h leaves [0, 1]. Its scores :math:`(h - p)/(p(1-p))` are log odds near p; stretched as held-out bags expect
(`bagwise.gains`) and shifted to E[h] = p they make probabilities. Few bags, and bags that are grouped by features, do
not say how far to stretch, only how far to shrink.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import expit

from bagwise.bags import Bags
from bagwise.base import LinearPredictor, check_finite_features
from bagwise.gains import STRETCHES, HeldOut, best_stretch, log_likelihoods
from bagwise.log_odds import prior_of, prior_of_classes, shift_to
from bagwise.utils.typing import Booleans, Floats, Integers

ENOUGH_BAGS = 100
"""Bags from which on a sigmoid may be steeper than h."""

EDGE = 1e-3
"""How close to 0 and 1 predictions may come that are clipped, for want of a sigmoid."""

_ROWS, _NUMBERS = 40_000, 2**23  # that are looked at


def some_bags(bags: Bags, width: int, rng: np.random.Generator) -> Integers:
    """Random bags of not too many rows, which have `width` features; 16 at least, where there are as many."""
    order = rng.permutation(len(bags))
    most = min(_ROWS, _NUMBERS // max(width, 1))
    return np.sort(order[: max(int(np.searchsorted(np.cumsum(bags.size[order]), most, side="right")), 16)])


def may_be_steeper(formation: str, n_bags: int) -> bool:
    """Whether bags tell that a sigmoid is to be steeper than h."""
    return formation == "rates" or (formation != "features" and n_bags >= ENOUGH_BAGS)


def clipped(h: Floats) -> Floats:
    """h inside (0, 1); classes add up to 1."""
    kept = np.clip(h, EDGE, 1 - EDGE)
    return kept if h.ndim == 1 else kept / kept.sum(axis=1, keepdims=True)


class Trust:
    """How far held-out bags trust linear models, each fitted without one of the folds.

    X: (n, d) rows in table order.  bags: some of theirs.  fold: (m,) the fold that each of these bags is in.
    """

    def __init__(self, X: Floats, bags: Bags, fold: Integers) -> None:
        self.rows, self.bags, self.fold = X[bags.order].astype(float, copy=False), bags, fold
        self.prior = prior_of(bags) if bags.proportion.ndim == 1 else 0.0

    def parts(self, models: Sequence[Floats]) -> list[HeldOut]:
        """What models of two classes with weights (d, 1), one for each fold, say of the bags held out."""
        found = []
        for out, w in self._folds(models):
            s, rows = self.rows @ w[:, 0] / (self.prior * (1 - self.prior)), self.bags.repeat(out)
            found.append(HeldOut(prior_of(self.bags.take(~out)), s[~rows], s[rows], self.bags.take(out)))
        return found

    def gains(self, models: Sequence[Floats]) -> Floats:
        """The gains of held-out bags by models with weights (d, 1) or (d, classes), one for each fold, as they are."""
        if self.bags.proportion.ndim == 2:
            by_fold = [log_likelihoods(s, bags) - _constant(prior, bags) for s, prior, bags in self._classes(models)]
        else:
            by_fold = [one.gains(np.ones(1))[0] for one in self.parts(models)]
        return np.concatenate([np.zeros(0), *by_fold])

    def likeliest(self, models: Sequence[Floats]) -> int:
        """Which of several penalties held-out bags prefer.  models: weights (penalties, d, c), one for each fold."""
        return int(np.argmax([self._log_likelihood([w[a] for w in models]) for a in range(len(models[0]))]))

    def _log_likelihood(self, models: Sequence[Floats]) -> float:
        """That of all held-out bags."""
        if self.bags.proportion.ndim == 2:
            return sum(float(log_likelihoods(s, bags).sum()) for s, _, bags in self._classes(models))
        return sum(float(one.log_likelihoods(np.ones(1)).sum()) for one in self.parts(models))

    def sigmoid(self, models: Sequence[Floats], h: Floats, *, steeper: bool) -> tuple[Floats, Floats]:
        """Slope and offset by h of log odds whose probabilities have mean p, and the gains of held-out bags.

        models: weights (d, 1), one for each fold.  h: predictions of the model of all bags for the rows.  steeper: see
        `may_be_steeper`.
        """
        parts, stretches = self.parts(models), STRETCHES if steeper else STRETCHES[STRETCHES <= 1]
        stretch, gains = best_stretch(parts, stretches=stretches) if parts else (1.0, np.zeros(0))
        slope = stretch / (self.prior * (1 - self.prior))
        return np.array([slope, shift_to(self.prior, slope * h)]), gains

    def _classes(self, models: Sequence[Floats]) -> Iterator[tuple[Floats, Floats, Bags]]:
        """What models of classes say of the bags held out: logarithms of probabilities, p without them, the bags."""
        for out, w in self._folds(models):
            h, rows = self.rows @ w, self.bags.repeat(out)
            prior = prior_of_classes(self.bags.take(~out))
            yield np.log(clipped(h[rows] - h[~rows].mean(axis=0) + prior)), prior, self.bags.take(out)

    def _folds(self, models: Sequence[Floats]) -> Iterator[tuple[Booleans, Floats]]:
        """Which bags each fold holds out, and the model without them; but for folds with no bag or all of them."""
        for f, w in enumerate(models):
            out = self.fold == f
            if out.any() and not out.all():
                yield out, w


def _constant(prior: Floats, bags: Bags) -> Floats:
    """The log-likelihood of each bag by p alone."""
    return log_likelihoods(np.tile(np.log(prior), (bags.n_bagged, 1)), bags)


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
