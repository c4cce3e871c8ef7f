r"""Probabilities of linear predictions, without labels: how far held-out bags trust h, and a sigmoid through it.

A linear h leaves [0, 1]. Its scores :math:`(h - p)/(p(1-p))` are log odds near p; stretched as held-out bags expect
(`bagwise.gains`) and shifted to E[h] = p they make probabilities. Few bags do not say how far to stretch: then h is
drawn towards p, where they do not trust it, and clipped.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import expit, logit, softmax

from bagwise.bags import Bags
from bagwise.gains import STRETCHES, HeldOut, best_stretch, log_likelihoods
from bagwise.log_odds import prior_of, prior_of_classes, shift_to
from bagwise.utils.typing import Floats, Integers

ENOUGH_BAGS = 100
"""Bags from which on a sigmoid is fitted."""

EDGE = 1e-3
"""How close to 0 and 1 predictions may come that are clipped."""

_ROWS, _NUMBERS = 40_000, 2**23  # that are looked at


def some_bags(bags: Bags, width: int, rng: np.random.Generator) -> Integers:
    """Random bags of not too many rows, which have `width` features; 16 at least, where there are as many."""
    order = rng.permutation(len(bags))
    most = min(_ROWS, _NUMBERS // max(width, 1))
    return np.sort(order[: max(int(np.searchsorted(np.cumsum(bags.size[order]), most, side="right")), 16)])


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

    def parts(self, coef: Sequence[Floats]) -> list[HeldOut]:
        """What the models with weights (d,), one for each fold, say of the bags held out."""
        found = []
        for f, w in enumerate(coef):
            out = self.fold == f
            if out.any() and not out.all():
                s, rows = self.rows @ w / (self.prior * (1 - self.prior)), self.bags.repeat(out)
                found.append(HeldOut(prior_of(self.bags.take(~out)), s[~rows], s[rows], self.bags.take(out)))
        return found

    def sigmoid(self, coef: Sequence[Floats], w: Floats, rows: Floats) -> tuple[float, Floats, Floats]:
        """The stretch, slope and offset by w·x of log odds with E[h] = p in `rows`, and the gains of held-out bags."""
        parts = self.parts(coef)
        stretch, gains = best_stretch(parts) if parts else (1.0, np.zeros(0))
        slope = stretch / (self.prior * (1 - self.prior))
        return stretch, np.array([slope, shift_to(self.prior, slope * (rows @ w))]), gains

    def clipped_gains(self, coef: Sequence[Floats]) -> tuple[float, Floats]:
        """The factor, at most 1, by which h is to be drawn towards p, and the gains of held-out bags with it."""
        factors, parts = STRETCHES[STRETCHES <= 1], self.parts(coef)
        if not parts:
            return 1.0, np.zeros(0)

        def gains(part: HeldOut, factors: Floats) -> Floats:
            constant = log_likelihoods(np.full(len(part.scores), logit(part.prior)), part.bags)
            centred = (part.scores - part.trained.mean()) * self.prior * (1 - self.prior)
            tried = [log_likelihoods(logit(clipped(part.prior + c * centred)), part.bags) for c in factors]
            return np.array(tried) - constant

        total = sum(gains(part, factors).sum(axis=1) for part in parts)
        factor = float(softmax(total) @ factors)
        return factor, np.concatenate([gains(part, np.array([factor]))[0] for part in parts])

    def class_gains(self, coef: Sequence[Floats], intercept: Sequence[Floats]) -> Floats:
        """Gains of held-out bags of several classes, models having weights (d, classes) and intercepts."""
        gains = [np.zeros(0)]
        for f, (w, b) in enumerate(zip(coef, intercept, strict=True)):
            out = self.fold == f
            if out.any() and not out.all():
                held_out = self.bags.take(out)
                h = clipped(self.rows[self.bags.repeat(out)] @ w + b)
                constant = np.tile(np.log(prior_of_classes(self.bags.take(~out))), (len(h), 1))
                gains.append(log_likelihoods(np.log(h), held_out) - log_likelihoods(constant, held_out))
        return np.concatenate(gains)


def sigmoid(h: Floats, line: Floats) -> Floats:
    """Probabilities of linear predictions without intercept; line: slope and offset of their log odds."""
    return np.asarray(expit(line[0] * h + line[1]))
