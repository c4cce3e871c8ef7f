r"""Scales on which trees add up: probabilities as they are, or log odds.

Fits of both kinds meet on log odds, where each is shifted so that its mean over the rows it was fitted to is p: trees
that add up as log odds have a step of Gauss and Newton behind each value, under which the mean wanders off.
"""

import numpy as np
from scipy import special

from bagwise.log_odds import shift_to
from bagwise.utils.typing import Floats

IDENTITY, LOGIT = "identity", "logit"

MARGIN = 1e-6  # a prior of 0 or 1, or beyond by noise, has no finite log odds
_CLOSE, _ROUNDS = 1e-9, 100  # of means to what they should be; rounds of bringing them there
_LEAST = 0.05  # of p: trees that add up as probabilities go below 0, and say nothing of how far below p a row is


def score_of(h: Floats, link: str) -> Floats:
    """Scores whose predictions are h.

    >>> score_of(np.array([0.5]), LOGIT)
    array([0.])
    """
    return h if link == IDENTITY else special.logit(np.clip(h, MARGIN, 1 - MARGIN))


def prediction_of(score: Floats, link: str) -> Floats:
    """Predictions h of scores.

    >>> prediction_of(np.array([0.0]), LOGIT)
    array([0.5])
    """
    return score if link == IDENTITY else special.expit(score)


def log_odds_of(h: Floats, prior: Floats) -> Floats:
    """Log odds of predictions (n, outputs) that may lie outside of [0, 1]: kept above p/20, and below 1 − (1 − p)/20.

    >>> log_odds_of(np.array([[0.5], [-0.2]]), np.array([0.2])).round(2)
    array([[ 0. ],
           [-4.6]])
    """
    p = np.clip(prior, MARGIN, 1 - MARGIN)
    return np.asarray(special.logit(np.clip(h, _LEAST * p, 1 - _LEAST * (1 - p))))


def centring(score: Floats, prior: Floats, *, weight: Floats | None = None) -> Floats:
    """(outputs,) what to add to log odds (n, outputs) so that their predictions have the means `prior`.

    weight: (n,) what each row counts.

    >>> centring(np.array([[-1.0], [1.0]]), np.array([0.5]))
    array([0.])
    """
    wanted = np.clip(prior, MARGIN, 1 - MARGIN)
    return np.array([shift_to(float(p), column, weight=weight) for column, p in zip(score.T, wanted, strict=True)])


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
        h = special.expit(score + offset)
        mean = np.average(h / h.sum(axis=1, keepdims=True), axis=0, weights=weight)
        if np.abs(mean - wanted).max() < _CLOSE:
            break
        offset += np.log(wanted / mean)
    return offset
