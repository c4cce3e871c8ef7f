"""Maximum of the likelihood of counts of several classes over linear scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from bagwise.linear.design import Design
from bagwise.losses.likelihood import extra_variance
from bagwise.losses.tilting_classes import TiltedClasses, tilted_classes
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats

_LEAST_PRIOR, _CLOSE_PRIOR, _ROUNDS = 1e-9, 0.01, 20


@dataclass(frozen=True, eq=False)
class ClassesPoint:
    """Weights (classes, d) and intercepts of several classes, and p as bags and these tell it.

    prior: (classes,) what bags report; where counts are not known, what is expected of them.
    n_iter: steps to there.
    """

    w: Floats
    intercept: Floats
    prior: Floats
    n_iter: int

    @property
    def start(self) -> Floats:
        """(classes, d + 1) where another search may begin."""
        return np.column_stack([self.w, self.intercept])


def maximise_classes(
    design: Design, prior: Floats, penalty: Floats, *, effect_variance: float = 0.0, start: Floats | None = None
) -> ClassesPoint:
    r"""The maximum for several classes, by L-BFGS; E[h] is held to p by its likelihood.

    Counts that are hidden are those expected of them, so that p follows the weights: both are found in turn, until p
    would change the likelihood by less than 0.01.

    prior: (classes,), as far as it is known without scores.  penalty: (d,) as in `maximise`.
    """
    bags, classes, d = design.bags, len(prior), len(penalty)
    n, known = bags.n_people, bags.interval is None or not bags.interval.open.any()
    near: TiltedClasses | None = None

    def tilt(s: Floats) -> TiltedClasses:
        nonlocal near
        near = tilted_classes(s, bags, extra=extra_variance(s, bags, effect_variance), start=near)
        return near

    def loss(parameters: Floats, p: Floats) -> tuple[float, Floats]:
        check_time()
        w = parameters.reshape(classes, d + 1)
        s = design.scores(w[:, :-1].T) + w[:, -1]
        found, h = tilt(s), softmax(s, axis=1)
        off = bags.average(h) - p
        pull = bags.weighted(h * (off / p - (h * (off / p)).sum(axis=1, keepdims=True)) - found.gradient)
        gradient = np.column_stack([sum(pull[rows].T @ z for rows, _, z in design.pieces()), pull.sum(axis=0)])
        gradient[:, :-1] += penalty * w[:, :-1]
        value = n * (off**2 / p).sum() / 2 - found.log_likelihood.sum() + (penalty * w[:, :-1] ** 2).sum() / 2
        return value / n, gradient.ravel() / n

    p, options = np.maximum(prior, _LEAST_PRIOR), {"maxiter": 500, "gtol": 1e-6}
    at = (np.column_stack([np.zeros((classes, d)), np.log(p)]) if start is None else start).ravel()
    n_iter = 0
    for _ in range(_ROUNDS):
        found = minimize(loss, at, args=(p,), jac=True, method="L-BFGS-B", options=options)
        at, n_iter = found.x, n_iter + int(found.nit)
        if known:
            break
        w = at.reshape(classes, d + 1)
        s = design.scores(w[:, :-1].T) + w[:, -1]
        before, p = p, np.maximum(bags.average(tilt(s).posterior), _LEAST_PRIOR)
        if n * ((p - before) ** 2 / p).sum() / 2 < _CLOSE_PRIOR:
            break
    w = at.reshape(classes, d + 1)
    return ClassesPoint(w[:, :-1], w[:, -1], p, n_iter)
