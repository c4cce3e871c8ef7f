r"""What features add to a score: sums that stay exact from one scale to another.

Contributions c of the features of a row are measured from the score b of a point all rows share: :math:`s = b + \sum_i
c_i`. A prediction may be a function of a score, or the mean of several: with :math:`g(s)` in place of s, contributions
are multiplied by :math:`(g(s) - g(b))/(s - b)`, so that they add up to :math:`g(s) - g(b)` and keep their proportions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from bagwise.utils.typing import Floats, Integers

LOG_ODDS, ONE_FROM_REST, LOGITS = "log odds", "log odds of each class", "logits"
PROBABILITY, LOG_PROBABILITY, VALUE, LOGARITHM = "probability", "log probability", "value", "logarithm"

_CANCELLING = 1e-6  # of the size of contributions, below which their sum tells no factor
_STEP = 1e-5  # by which slopes are told


def _shares(h: Floats) -> Floats:
    return np.asarray(h / h.sum(axis=-1, keepdims=True))


PREDICTIONS: dict[str, Callable[[Floats], Floats]] = {
    LOG_ODDS: special.expit,
    ONE_FROM_REST: lambda s: _shares(special.expit(s)),
    LOGITS: lambda s: special.softmax(s, axis=-1),
    PROBABILITY: lambda s: np.clip(s, 0.0, 1.0),
    LOG_PROBABILITY: np.exp,
    VALUE: lambda s: s,
    LOGARITHM: np.exp,
}
"""Scales of scores, each with the predictions of scores (…,), of several classes (…, classes)."""


@dataclass(frozen=True, eq=False)
class Contributions:
    """Contributions of features to scores.

    values: (n, features) or (n, features, classes).  base: () or (classes,) the score that they are measured from.
    scale: of the scores, one of `PREDICTIONS`.

    >>> found = Contributions(np.array([[2.0, -1.0]]), np.array(0.0), LOG_ODDS).to_predictions()
    >>> found.scale, found.base, found.values.round(3), found.total.round(3)
    ('probability', array(0.5), array([[ 0.462, -0.231]]), array([0.731]))
    """

    values: Floats
    base: Floats
    scale: str

    @property
    def total(self) -> Floats:
        """(n,) or (n, classes) scores."""
        return np.asarray(self.base + self.values.sum(axis=1))

    def stretched(self, factor: Floats | float, shift: Floats | float, scale: str | None = None) -> Contributions:
        """Those to factor·s + shift, which may be on another scale."""
        base = np.asarray(factor * self.base + shift)
        return Contributions(np.asarray(factor * self.values), base, self.scale if scale is None else scale)

    def through(self, function: Callable[[Floats], Floats], scale: str) -> Contributions:
        """Those to `function` of scores, in the same proportions.

        Where contributions cancel, the slope of the function is the factor. A function of several classes at once may
        ask for what no factor gives: that is spread over features by how large their contributions are.
        """
        score = self.total
        base, total = np.asarray(function(self.base[None])[0]), function(score)
        have, wanted = self.values.sum(axis=1), total - base
        slope = (function(score + _STEP) - function(score - _STEP)) / (2 * _STEP)
        told = np.abs(have) > _CANCELLING * np.abs(self.values).sum(axis=1)
        factor = np.where(told, wanted / np.where(told, have, 1.0), slope)
        factor = np.where(factor < 0, slope, factor)
        return Contributions(adding_up_to(wanted, factor[:, None] * self.values), base, scale)

    def to_predictions(self) -> Contributions:
        """Those to predictions: to probabilities, or values."""
        to = VALUE if self.scale in (VALUE, LOGARITHM) else PROBABILITY
        return self.through(PREDICTIONS[self.scale], to)

    def gathered(self, of: Integers, width: int) -> Contributions:
        """Those of features that are made of others, added up.  of: (features,) the number of the other feature."""
        added = np.zeros((len(self.values), width, *self.values.shape[2:]))
        for place, column in enumerate(of):
            added[:, column] += self.values[:, place]
        return Contributions(added, self.base, self.scale)

    def of_one_output(self) -> Contributions:
        """Without the axis of classes, where there is one."""
        return Contributions(self.values[:, :, 0], self.base[0], self.scale)


def mean_of(parts: Sequence[Contributions], weights: Sequence[float] | Floats | None = None) -> Contributions:
    """Contributions to the mean of scores on one scale, weighted or plain."""
    values = np.average([part.values for part in parts], axis=0, weights=weights)
    return Contributions(values, np.average([part.base for part in parts], axis=0, weights=weights), parts[0].scale)


def linear_contributions(model: Any, X: Floats, scale: str) -> Contributions:
    """Those to what a linear model of `coef_` and `intercept_` says, from the mean row that it was fitted to."""
    return linear_terms(X, mean_row_of(model), model.coef_, model.intercept_, scale)


def mean_row_of(model: Any) -> Floats:
    """The mean row that a model was fitted to; folders of earlier versions have none."""
    centre: Floats | None = getattr(model, "feature_means_", None)
    if centre is None:
        raise ValueError("the model was saved before explanations were known, without means of features: fit it again.")
    return centre


def linear_terms(X: Floats, centre: Floats, coef: Floats, intercept: Floats | float, scale: str) -> Contributions:
    r"""Contributions :math:`w_i (x_i - m_i)` to linear scores :math:`w \cdot x + b`, m being the `centre`.

    coef: (features,), or (classes, features) with intercepts (classes,).

    >>> linear_terms(np.array([[3.0, 1.0]]), np.array([1.0, 1.0]), np.array([2.0, 5.0]), 1.0, VALUE).values
    array([[4., 0.]])
    """
    apart = X - centre
    values = apart * coef if coef.ndim == 1 else apart[:, :, None] * coef.T
    return Contributions(np.asarray(values, dtype=float), np.asarray(centre @ coef.T + intercept, dtype=float), scale)


def adding_up_to(wanted: Floats, values: Floats) -> Floats:
    """Values (n, features, …) that add up to `wanted` (n, …): what is missing is spread by how large they are.

    >>> adding_up_to(np.array([4.0, 1.0]), np.array([[2.0, 1.0], [0.0, 0.0]]))
    array([[2.66666667, 1.33333333],
           [0.5       , 0.5       ]])
    """
    missing, size = wanted - values.sum(axis=1), np.abs(values)
    total = size.sum(axis=1)
    some = (total > 0)[:, None]
    share = np.where(some, size / np.where(some, total[:, None], 1.0), 1.0 / max(values.shape[1], 1))
    return np.asarray(values + share * missing[:, None])
