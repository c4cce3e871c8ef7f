r"""How sure linear predictions are: intervals of E[y | x] from the moments of folds of bags, or from a maximum.

They are about the fit without a penalty, whose bias no number of bags would tell, and as wide as that varies. With
:math:`A = \sum_j k_j (\bar x_j - \mu)(\bar x_j - \mu)^\top`, squared residuals of random bags, :math:`R_j^2/k_j`, have
the same mean V whatever the size, so that

.. math:: \mathrm{Var}\bigl(\hat h(x)\bigr) = V \bigl[ (x - \mu)^\top A^{-1} (x - \mu) + 1/n \bigr]

In other formations bags are left out fold by fold (the jackknife): with :math:`\hat h_{-f}` of F folds,
:math:`\frac{F-1}{F} \sum_f \bigl(\hat h_{-f}(x) - \bar h(x)\bigr)^2`, of F − 1 degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax

from bagwise.intervals import ends_of, interval_of_classes, jackknife_interval
from bagwise.linear.memory import RidgeMemory
from bagwise.linear.moments import Moments, coefficients
from bagwise.utils.typing import Floats

_NONE = np.zeros(1)  # no penalty
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class ScoreErrors:
    """Scores without a penalty, and how they vary.

    coef, centre: (d,) weights, and the row that scores are measured from.  score: at that row.  covariance: (d + 1,
    d + 1) of the weights and that score.  freedom: bags beyond the number of weights.
    """

    coef: Floats
    centre: Floats
    score: float
    covariance: Floats
    freedom: int

    def interval(self, X: Floats, level: float) -> Floats:
        """(2, n) between which scores of rows lie; infinite where bags are no more than weights."""
        apart = X - self.centre
        rows = np.column_stack([apart, np.ones(len(X))])
        error = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", rows, self.covariance, rows), 0.0))
        return ends_of(self.score + apart @ self.coef, error, self.freedom, level)


@dataclass(frozen=True, eq=False)
class ClassErrors:
    """Weights of several classes without a penalty, of all bags and without each of the folds.

    whole: (classes, d + 1) weights and intercepts.  fits: (F, classes, d + 1).
    """

    whole: Floats
    fits: Floats

    def interval(self, X: Floats, level: float) -> Floats:
        """(2, n, classes) between which probabilities of rows lie."""

        def predicted(w: Floats) -> Floats:
            return np.asarray(softmax(X @ w[:, :-1].T + w[:, -1], axis=1))

        return interval_of_classes(np.array([predicted(w) for w in self.fits]), predicted(self.whole), level)


def ridge_interval(memory: RidgeMemory, X: Floats, level: float, formation: str) -> Floats:
    """(2, n) between which linear predictions lie, (2, n, outputs) of several.  formation: of the bags."""
    outputs = len(memory.parts[0].y)
    if outputs == 1:
        return _of_one_output(memory, X, level, formation)
    if formation == "rates":
        raise ValueError(
            "where rates differ, ridge regression tells intervals of two classes only: take logistic regression."
        )
    each = [_of_one_output(_one_output(memory, c), X, level, formation) for c in range(outputs)]
    return np.stack(each, axis=2)


def _one_output(memory: RidgeMemory, c: int) -> RidgeMemory:
    parts = (replace(one, y=one.y[[c]], xy=one.xy[:, [c]], yy=one.yy[[c]]) for one in memory.parts)
    return replace(memory, parts=tuple(parts))


def _of_one_output(memory: RidgeMemory, X: Floats, level: float, formation: str) -> Floats:
    """(2, n) between which linear predictions of one output lie."""
    parts = [part for part in memory.parts if part.bags]
    whole, rows = sum(parts[1:], parts[0]), X - memory.origin
    freedom = round(whole.bags) - X.shape[1] - 1
    if formation == "random" or len(parts) < 2:
        about = whole.about(whole.mean_x, whole.mean_y)
        coef = coefficients(whole, 1.0, whole.variance, _NONE)[0]
        variance = max(float(about.risk(coef)), 0.0) * whole.bags / max(freedom, 1)
        apart = rows - whole.mean_x
        spread = np.einsum("ij,jk,ik->i", apart, np.linalg.pinv(about.xx, hermitian=True), apart)
        error = np.sqrt(variance * (np.maximum(spread, 0.0) + 1 / whole.rows))
        return ends_of(apart @ coef[:, 0] + float(whole.mean_y[0]), error, freedom, level)
    fits = [_prediction(memory, whole - part, rows, formation) for part in parts]
    return jackknife_interval(np.array(fits), _prediction(memory, whole, rows, formation), level, freedom)


def _prediction(memory: RidgeMemory, moments: Moments, rows: Floats, formation: str) -> Floats:
    """(n,) predictions of rows by some bags, without a penalty."""
    if formation != "rates" or memory.own_rows is None:
        coef = coefficients(moments, 1.0, moments.variance, _NONE)[0][:, 0]
        return np.asarray((rows - moments.mean_x) @ coef + float(moments.mean_y[0]))
    about, p = moments.about(moments.mean_x, moments.mean_y), float(moments.mean_y[0])
    noise = memory.noise * moments.bags
    slope = about.xy[:, 0] / max(float(about.yy[0]) - noise, _LEAST)
    coef = np.linalg.pinv(memory.own_rows.covariance, hermitian=True) @ slope * p * (1 - p)
    return np.asarray((rows - moments.mean_x) @ coef + p)
