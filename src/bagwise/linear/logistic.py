"""Logistic regression from bags, by the likelihood of their counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bagwise.bags import Bags
from bagwise.folds import folds_of
from bagwise.linear.likelihood import Design, Point, System, intercept_of, maximise, system
from bagwise.losses.likelihood import extra_variance
from bagwise.losses.tilting import tilted
from bagwise.risk import clearly_above
from bagwise.utils.typing import Floats

_ALPHAS = np.logspace(-1, 5, 13)
_SCALINGS = np.array([0.0, 0.5, 1.0])
_STRETCHES = np.array([1.0, 1.3, 1.7, 2.2])
_EFFECTS = np.array([0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
_USUAL_ALPHA, _USUAL_SCALING, _USUAL_EFFECTS = 30.0, 0.5, 0.03  # where the search begins
_CHOICE_ROWS, _CHOICE_NUMBERS = 60_000, 2**23  # that penalties are chosen on
_ROUNDS = 3
_CLEARLY = 1.0  # standard errors of a difference
_SMALLEST_PRIOR = 1e-9


class NoBetterThanConstantWarning(UserWarning):
    """Held-out bags do not clearly prefer the model to the mean label: it may say nothing about single rows."""


@dataclass(frozen=True, eq=False)
class Choice:
    """What held-out bags prefer.

    alpha, scaling: the penalty.  stretch: of scores.  effect_variance: τ².
    gains: (m,) log-likelihood of held-out bags, less that of p; None where there were too few bags to hold any out.
    """

    alpha: float = _USUAL_ALPHA
    scaling: float = _USUAL_SCALING
    stretch: float = 1.0
    effect_variance: float = 0.0
    gains: Floats | None = None


@dataclass(frozen=True, eq=False)
class _Held:
    """A fold: the fit to its training bags, around which those with other penalties are known; p of these."""

    train: Design
    held_out: Design
    prior: float
    at: Point
    sums: System

    def path(self, relative: Floats, alphas: Floats) -> Floats:
        """(d, alphas) weights for other penalties, as if the likelihood were quadratic."""
        root, curvature = 1 / np.sqrt(relative), self.sums.curvature
        values, vectors = np.linalg.eigh(curvature * np.outer(root, root))
        target = vectors.T @ (root * (self.sums.gradient + curvature @ self.at.w))
        return np.asarray(root[:, None] * (vectors @ (target[:, None] / (np.maximum(values, 0)[:, None] + alphas))))

    def value(self, w: Floats, effect_variance: float) -> Floats:
        """(weights, m) log-likelihood of the bags held out, for each column of w (d, weights)."""
        bags, found = self.held_out.bags, []
        for s, trained in zip(self.held_out.scores(w).T, self.train.scores(w).T, strict=True):
            s = s + intercept_of(trained, self.prior)
            found.append(tilted(s, bags, extra=extra_variance(s, bags, effect_variance)).log_likelihood)
        return np.array(found)


def penalty_of(design: Design, alpha: float, scaling: float) -> Floats:
    """(d,) the penalty of each standardised weight; their harmonic mean is α."""
    scale = np.where(np.isfinite(design.scale), design.scale, 1.0)
    relative = scale ** (2 * (scaling - 1))
    return np.asarray(alpha * relative * np.mean(1 / relative))


def prior_of(bags: Bags) -> float:
    """p, kept away from 0 and 1, where no score is finite."""
    p = float((bags.size * bags.proportion).sum() / bags.n_bagged)
    return float(np.clip(p, _SMALLEST_PRIOR, 1 - _SMALLEST_PRIOR))


def choose(
    design: Design, cv: int, rng: np.random.Generator, alphas: Floats, scalings: Floats, *, effects: bool
) -> Choice:
    """Penalty, stretch and, with `effects`, τ², by the likelihood of bags that are held out in turn."""
    m = len(design.bags)
    rows = min(_CHOICE_ROWS, _CHOICE_NUMBERS // max(design.X.shape[1], 1))
    order = rng.permutation(m)
    some = np.sort(order[: max(int(np.searchsorted(np.cumsum(design.bags.size[order]), rows, side="right")), 16)])
    design = design if len(some) >= m else design.take(some)
    folds = folds_of(len(design.bags), cv, rng, enough=m)
    if not folds:
        return Choice(effect_variance=0.0)
    starts: list[Floats | None] = [None] * len(folds)
    found = Choice(effect_variance=_USUAL_EFFECTS if effects else 0.0)
    for _ in range(_ROUNDS):  # what is near one penalty tells of others, and τ² of both
        held = []
        for place, fold in enumerate(folds):
            train, held_out = design.take(fold.train), design.take(fold.held_out)
            p, penalty = prior_of(train.bags), penalty_of(design, found.alpha, found.scaling)
            at = maximise(train, p, penalty, effect_variance=found.effect_variance, start=starts[place], close=0.1)
            starts[place] = at.w
            held.append(_Held(train, held_out, p, at, system(train, at)))
        found = _best_penalty(design, held, alphas, scalings, found.effect_variance)
        if effects:
            relative = penalty_of(design, 1.0, found.scaling)
            weights = [found.stretch * one.path(relative, np.array([found.alpha])) for one in held]
            total = [sum(one.value(w, tau)[0].sum() for one, w in zip(held, weights, strict=True)) for tau in _EFFECTS]
            found = replace(found, effect_variance=float(_EFFECTS[int(np.argmax(total))]))
    return found


def _best_penalty(
    design: Design, held: list[_Held], alphas: Floats, scalings: Floats, effect_variance: float
) -> Choice:
    """The heaviest penalty that held-out bags do not clearly reject, and the stretch that goes with it."""
    constant = np.concatenate([one.value(np.zeros((design.X.shape[1], 1)), effect_variance)[0] for one in held])
    gains: dict[tuple[float, float], Floats] = {}
    for scaling in scalings:
        paths = [one.path(penalty_of(design, 1.0, float(scaling)), alphas) for one in held]
        values = np.concatenate([one.value(w, effect_variance) for one, w in zip(held, paths, strict=True)], axis=1)
        gains |= {(float(alpha), float(scaling)): line - constant for alpha, line in zip(alphas, values, strict=True)}
    best = gains[max(gains, key=lambda key: float(gains[key].sum()))]
    near = [key for key, gain in gains.items() if not clearly_above(best, gain, errors=_CLEARLY)]
    alpha, scaling = max(near, key=lambda key: (key[0], float(gains[key].sum())))
    paths = [one.path(penalty_of(design, 1.0, scaling), np.array([alpha])) * _STRETCHES for one in held]
    values = np.concatenate([one.value(w, effect_variance) for one, w in zip(held, paths, strict=True)], axis=1)
    stretch = int(np.argmax(values.sum(axis=1)))
    return Choice(alpha, scaling, float(_STRETCHES[stretch]), effect_variance, values[stretch] - constant)
