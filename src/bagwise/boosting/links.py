r"""Scales on which trees add up: predictions as they are, log odds of probabilities, logarithms of values above 0.

Fits of both kinds meet on log odds, where each is shifted so that its mean over the rows it was fitted to is p: trees
that add up as log odds have a step of Gauss and Newton behind each value, under which the mean wanders off.
"""

import numpy as np
from scipy import special

from bagwise.log_odds import Rows, shift_to
from bagwise.nonnegative import LARGEST
from bagwise.utils.sigmoid import sigmoid
from bagwise.utils.typing import Booleans, Floats

IDENTITY, LOGIT, LOG = "identity", "logit", "log"


MARGIN = 1e-6  # a prior of 0 or 1, or beyond by noise, has no finite log odds
_CLOSE, _ROUNDS = 1e-9, 100  # of means to what they should be; rounds of bringing them there
_LONGEST = {LOGIT: 4.0, LOG: 1.0}  # step of a tree on log odds; on logarithms, before it is shrunk
_SMALLEST = 1e-300  # value above 0 that can be told
_LEAST = 0.05  # of p: trees that add up as probabilities go below 0, and say nothing of how far below p a row is


def score_of(h: Floats, link: str) -> Floats:
    """Scores whose predictions are h.

    >>> score_of(np.array([0.5]), LOGIT)
    array([0.])
    """
    if link == LOG:
        return np.asarray(np.log(np.maximum(h, _SMALLEST)))
    return h if link == IDENTITY else special.logit(np.clip(h, MARGIN, 1 - MARGIN))


def prediction_of(score: Floats, link: str) -> Floats:
    """Predictions h of scores.

    >>> prediction_of(np.array([0.0]), LOGIT)
    array([0.5])
    """
    if link == LOG:
        return np.asarray(np.exp(np.minimum(score, LARGEST)))
    return score if link == IDENTITY else sigmoid(score)


def beyond(prior: Floats, link: str) -> Booleans:
    """Whether no finite scores have this mean prediction.

    >>> beyond(np.array([-0.1, 0.5, 1.0]), LOGIT), beyond(np.array([0.0, 7.0]), LOG)
    (array([ True, False,  True]), array([ True, False]))
    """
    if link == LOG:
        return np.asarray(prior <= 0)
    return (prior <= MARGIN) | (prior >= 1 - MARGIN) if link == LOGIT else np.zeros(len(prior), dtype=bool)


def slope_of(h: Floats, link: str) -> Floats | None:
    """How fast predictions h move with their scores; None where that is 1.

    >>> slope_of(np.array([0.5]), LOGIT), slope_of(np.array([3.0]), LOG)
    (array([0.25]), array([3.]))
    """
    if link == IDENTITY:
        return None
    return h if link == LOG else h * (1 - h)


def shrunk(value: Floats, rate: float, link: str) -> Floats:
    """Leaf values times the learning rate, and no longer than predictions can bear.

    On log odds, noise alone asks for long ones where labels are rare; on logarithms, a tree is solved by the slopes it
    begins at, which are soon others.

    >>> shrunk(np.array([0.5, 9.0]), 0.1, LOG)
    array([0.05, 0.1 ])
    """
    if link == LOG:
        return rate * np.clip(value, -_LONGEST[LOG], _LONGEST[LOG])
    return np.clip(rate * value, -_LONGEST[LOGIT], _LONGEST[LOGIT]) if link == LOGIT else rate * value


def log_odds_of(h: Floats, prior: Floats) -> Floats:
    """Log odds of predictions (n, outputs) that may lie outside of [0, 1]: kept above p/20, and below 1 − (1 − p)/20.

    >>> log_odds_of(np.array([[0.5], [-0.2]]), np.array([0.2])).round(2)
    array([[ 0. ],
           [-4.6]])
    """
    return np.asarray(special.logit(np.clip(h, *bounds_of(prior))))


def bounds_of(prior: Floats) -> tuple[Floats, Floats]:
    """(outputs,) what predictions are kept above and below before they become log odds."""
    p = np.clip(prior, MARGIN, 1 - MARGIN)
    return _LEAST * p, 1 - _LEAST * (1 - p)


def centring(score: Floats, prior: Floats, *, weight: Floats | None = None, rows: Rows | None = None) -> Floats:
    """(outputs,) what to add to log odds (n, outputs) so that their predictions have the means `prior`.

    weight: (n,) what each row counts.  rows: what means are taken over, where not over these rows alone.

    >>> centring(np.array([[-1.0], [1.0]]), np.array([0.5]))
    array([0.])
    """
    wanted = np.clip(prior, MARGIN, 1 - MARGIN)
    found = [shift_to(float(p), s, weight=weight, rows=rows) for s, p in zip(score.T, wanted, strict=True)]
    return np.array(found)


def centring_of_classes(score: Floats, prior: Floats, *, weight: Floats | None = None) -> Floats:
    """(classes,) what to add to log odds (n, classes) so that their predictions have the means `prior`.

    Predictions add up to 1 in each row; their means are `prior` as far as those do.  weight: as for `centring`.

    >>> score = np.array([[2.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    >>> h = special.expit(score + centring_of_classes(score, np.array([0.5, 0.3, 0.2])))
    >>> (h / h.sum(axis=1, keepdims=True)).mean(axis=0).round(6)
    array([0.5, 0.3, 0.2])
    """
    wanted = np.clip(prior, MARGIN, 1 - MARGIN)
    wanted = wanted / wanted.sum()
    offset = centring(score, wanted, weight=weight)
    for _ in range(_ROUNDS):
        h = sigmoid(score + offset)
        mean = np.average(h / h.sum(axis=1, keepdims=True), axis=0, weights=weight)
        if np.abs(mean - wanted).max() < _CLOSE:
            break
        offset += np.log(wanted / mean)
    return offset
