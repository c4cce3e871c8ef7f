"""Scales on which trees add up: probabilities as they are, or log odds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[Any]

IDENTITY, LOGIT = "identity", "logit"

_MARGIN = 1e-6  # a prior of 0 or 1, or beyond by noise, has no finite log odds


def score_of(h: Floats, link: str) -> Floats:
    """Scores whose predictions are h.

    >>> score_of(np.array([0.5]), LOGIT)
    array([0.])
    """
    return h if link == IDENTITY else special.logit(np.clip(h, _MARGIN, 1 - _MARGIN))


def prediction_of(score: Floats, link: str) -> Floats:
    """Predictions h of scores.

    >>> prediction_of(np.array([0.0]), LOGIT)
    array([0.5])
    """
    return score if link == IDENTITY else special.expit(score)


def slope_of(h: Floats, link: str) -> Floats | None:
    """dh/dscore where predictions are h; None where it is 1 everywhere.

    >>> slope_of(np.array([0.5]), LOGIT)
    array([0.25])
    """
    return None if link == IDENTITY else h * (1 - h)
