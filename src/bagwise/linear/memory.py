r"""What linear models keep of bags that are gone, and how it is put together with new ones.

Ridge keeps second moments, which add up. Logistic regression keeps the likelihood of the old bags as a quadratic about
its maximum, :math:`L(w) \approx g \cdot (w - w_0) - \tfrac{1}{2} (w - w_0)^\top H (w - w_0)`, and how their mean
prediction moves with the intercept. Where bags of different times differ, the old ones may count for less, and may be
taken apart: each with the mean prediction of their own time, so that a rate that moved says nothing about weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logsumexp, softmax

from bagwise.bags import Bags
from bagwise.folds import folds_of
from bagwise.gains import HeldOut, best_stretch, effects_beside_model
from bagwise.linear.design import Design
from bagwise.linear.likelihood import Place, Quadratic, System, maximise, system
from bagwise.linear.moments import Moments, coefficients
from bagwise.linear.probabilities import some_bags
from bagwise.log_odds import prior_of, shift_to
from bagwise.losses.log_likelihood import log_likelihoods
from bagwise.updates import MOST_KEPT, WEIGHTS, Forgetting
from bagwise.utils.typing import Floats

_NEARBY = np.array([0.1, 1 / 3, 1.0, 3.0, 10.0])  # penalties, beside the one that was chosen before
_ROUNDING = 1e-9
_DECADES = 1 / 3  # standard deviation of the logarithm of a penalty about that one, a priori


@dataclass(frozen=True)
class Weighing:
    """How old bags count beside new ones.  weight: of each.  apart: whether the mean prediction is the new bags'."""

    weight: float = 1.0
    apart: bool = False


TOGETHER = Weighing()
_WEIGHINGS = (TOGETHER, *(Weighing(weight, apart=True) for weight in WEIGHTS))


def weighings(forgetting: Forgetting) -> tuple[Weighing, ...]:
    """Those to choose from: all bags alike, which is as plausible as all others together, or the new ones apart."""
    return _WEIGHINGS if forgetting == "auto" else (Weighing(float(forgetting)),)


def expected(ways: Sequence[Weighing], totals: Floats) -> Weighing:
    """The one that held-out new bags expect: together or apart, as is likelier, and the mean of the weights then.

    totals: (ways,) log-likelihoods of new bags by each.

    >>> expected(_WEIGHINGS, np.zeros(6)).apart, expected(_WEIGHINGS, np.array([0, 9, 0, 0, 0, 9.0])).weight
    (False, 0.5)
    """
    chance = softmax(totals + _plausible(ways))
    apart = np.array([one.apart for one in ways])
    kept = chance * apart if chance[apart].sum() > 0.5 + _ROUNDING else chance * ~apart
    weight = float(kept @ [one.weight for one in ways] / kept.sum())
    return Weighing(round(weight, 3), bool(kept[apart].sum() > 0))


def _plausible(ways: Sequence[Weighing]) -> Floats:
    """(ways,) log prior."""
    return np.array([np.log(max(len(ways) - 1, 1)) if one == TOGETHER else 0.0 for one in ways])


def _check(arrays: Sequence[Floats], shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise where arrays, which may come from a file, do not fit each other."""
    if [np.shape(array) for array in arrays] != list(shapes):
        raise ValueError("what is kept of old bags does not fit together")


# -- ridge --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowMoments:
    """Sums over rows of x, measured from the origin, and of its products: what differing rates need."""

    rows: float
    x: Floats
    xx: Floats

    @classmethod
    def of(cls, rows: Floats, bags: Bags) -> RowMoments:
        """Of rows (n, d) of bags, in their order."""
        counted = bags.weighted(rows)
        return cls(float(bags.n_people), counted.sum(axis=0), counted.T @ rows)

    def beside(self, old: RowMoments | None, weight: float) -> RowMoments:
        """These, and old ones."""
        if old is None:
            return self
        return RowMoments(self.rows + weight * old.rows, self.x + weight * old.x, self.xx + weight * old.xx)

    @property
    def mean(self) -> Floats:
        """(d,) of x."""
        return self.x / self.rows

    @property
    def covariance(self) -> Floats:
        """(d, d) of x."""
        return self.xx / self.rows - np.outer(self.mean, self.mean)


@dataclass(frozen=True, eq=False)
class RidgeMemory:
    """Moments of folds of bags, with x measured from the origin.

    noise: the mean over bags of what declared noise adds to every risk.  own_rows: of rows, where rates differ.
    """

    parts: tuple[Moments, ...]
    origin: Floats
    noise: float
    own_rows: RowMoments | None = None

    def __post_init__(self) -> None:
        d, c = len(self.origin), len(self.parts[0].y)
        shapes = {"x": (d,), "y": (c,), "xx": (d, d), "xy": (d, c), "yy": (c,)}
        _check([getattr(part, name) for part in self.parts for name in shapes], [*shapes.values()] * len(self.parts))
        if self.own_rows is not None:
            _check([self.own_rows.x, self.own_rows.xx], [(d,), (d, d)])

    @property
    def small(self) -> bool:
        """Whether it is not too much to be kept."""
        return (len(self.parts) + 1) * len(self.origin) ** 2 <= MOST_KEPT

    @property
    def whole(self) -> Moments:
        """The moments of all bags."""
        return sum(self.parts[1:], self.parts[0])

    def beside(self, new: list[Moments], noise: float, how: Weighing) -> tuple[list[Moments], float]:
        """The moments of old and new bags, fold by fold, and what noise adds to the risk of both."""
        ready = _moved(self.parts, sum(new[1:], new[0]), how)
        found = [one + other for one, other in zip(ready, new, strict=True)]
        old, bags = sum(part.bags for part in ready), sum(part.bags for part in found)
        return found, (self.noise * old + noise * (bags - old)) / bags

    def weigh(self, new: list[Moments], alphas: Floats, scaling: float, spread: float, asked: Forgetting) -> Weighing:
        """How the old bags are to count: as new ones, held out fold by fold, are likeliest with normal residuals.

        spread: the variance of labels.
        """
        ways, both = weighings(asked), sum(new[1:], new[0])
        folds = [part for part in new if part.bags and part.bags < both.bags]
        if len(ways) == 1 or not folds:
            return ways[0]
        variance, totals = (self.whole + both).variance, []
        for how in ways:
            risks = np.zeros(len(alphas))
            for part in folds:
                rest = both - part
                train = sum(_moved([self.whole], rest, how), rest)
                held_out = part.about(train.mean_x, train.mean_y)
                risks += held_out.risk(coefficients(train, scaling, variance, alphas)) * part.bags
            totals.append(-risks.min() / (2 * spread))
        return expected(ways, np.array(totals))


def _moved(parts: Sequence[Moments], new: Moments, how: Weighing) -> list[Moments]:
    """Old moments as they count; taken apart, as if their means had been those of the new ones."""
    if not how.apart:
        return [part.times(how.weight) for part in parts]
    old = sum(parts[1:], parts[0])
    return [part.about(old.mean_x - new.mean_x, old.mean_y - new.mean_y).times(how.weight) for part in parts]


# -- logistic regression ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LogisticMemory:
    r"""The likelihood of old bags about a maximum, in standardised features, of which mean and scale are kept.

    w, gradient, hessian: (d,), (d,), (d, d) as in `Quadratic`, the intercept following E[h] = p.
    meat: (d, d) the sum of squares of what bags add to the gradient, for errors that respect them.
    intercept, centre, spread: the sum of their predictions less their labels is about
    :math:`S\,(b - b_0 + c \cdot (w - w_0))`.  bags: how many.
    """

    mean: Floats
    scale: Floats
    w: Floats
    gradient: Floats
    hessian: Floats
    meat: Floats
    intercept: float
    centre: Floats
    spread: float
    bags: float

    def __post_init__(self) -> None:
        d, lines = len(self.w), (self.mean, self.scale, self.w, self.gradient, self.centre)
        _check([*lines, self.hessian, self.meat], [(d,)] * len(lines) + [(d, d)] * 2)

    @classmethod
    def of(cls, design: Design, at: Place, sums: System, covariance: Floats) -> LogisticMemory | None:
        """At a point, with the derivatives there and the covariance of weights; None where it is too much to keep."""
        if 2 * len(at.w) ** 2 > MOST_KEPT:
            return None
        hessian, own = sums.curvature, sums.hessian[:-1, :-1]
        meat, spread = own @ covariance @ own.T, float(sums.hessian[-1, -1])
        means = (design.mean, design.scale)
        return cls(
            *means, at.w, sums.gradient, hessian, meat, at.intercept, sums.centre, spread, float(len(design.bags))
        )

    def design(self, X: Floats, bags: Bags, names: object = None) -> Design:
        """New rows, standardised as the old ones; what was constant then by its own spread."""
        new = Design.of(X, bags, names)  # type: ignore[arg-type]
        return Design(X, bags, self.mean, np.where(np.isfinite(self.scale), self.scale, new.scale))

    def quadratic(self, weight: float) -> Quadratic:
        """What the old bags say of weights."""
        return Quadratic(self.w, weight * self.gradient, weight * self.hessian)

    def shift(self, scores: Floats, bags: Bags, w: Floats, how: Weighing) -> float:
        """The intercept at w: that of new rows in bags with these scores, or of old ones and these."""
        prior, s = prior_of(bags), scores if bags.offset is None else scores + bags.offset
        own, moved = shift_to(prior, s, weight=bags.weight), self.intercept - float(self.centre @ (w - self.w))
        weight = how.weight * self.spread
        if how.apart or weight <= 0 or own == moved:
            return own

        def over(b: float) -> float:
            return bags.n_people * (float(bags.average(expit(s + b))) - prior) + weight * (b - moved)

        return float(brentq(over, min(own, moved), max(own, moved), xtol=1e-12))

    def beside(self, design: Design, at: Place, sums: System, covariance: Floats, how: Weighing) -> LogisticMemory:
        """Old and new bags; at: of the new ones, with derivatives and the covariance of their weights alone."""
        new = LogisticMemory.of(design, at, sums, covariance)
        assert new is not None
        weight, own = how.weight, 0.0 if how.apart else how.weight * self.spread
        spread = own + new.spread
        return LogisticMemory(
            design.mean,
            design.scale,
            at.w,
            new.gradient + self.quadratic(weight).slope(at.w),
            weight * self.hessian + new.hessian,
            weight**2 * self.meat + new.meat,
            self.shift(design.scores(at.w), design.bags, at.w, how),
            (own * self.centre + new.spread * new.centre) / spread,
            spread,
            weight * self.bags + new.bags,
        )

    def free(self) -> tuple[Floats, Floats]:
        """Weights (d,) without a penalty, and their covariance."""
        inverse = np.linalg.pinv(self.hessian)
        return self.w + inverse @ self.gradient, inverse @ self.meat @ inverse.T


@dataclass(frozen=True, eq=False)
class Refit:
    """What held-out new bags prefer beside what is kept of old ones.

    how: old bags count.  alpha: the penalty.  stretch: of scores.  effect_variance: τ².  start: weights to begin with.
    gains: (m,) log-likelihoods of new bags held out, less those of p; None where there were too few to hold any out.
    """

    how: Weighing
    alpha: float
    stretch: float
    effect_variance: float
    start: Floats
    gains: Floats | None = None


def choose_refit(
    design: Design,
    memory: LogisticMemory,
    before: Refit,
    asked: Forgetting,
    cv: int,
    rng: np.random.Generator,
    *,
    relative: Floats,
    alphas: Floats | None,
    effects: bool,
) -> Refit:
    """How old bags count, penalty, stretch and, with `effects`, τ², by new bags held out in turn.

    before: what was chosen last.  asked: as in `partial_fit`.  relative: (d,) penalties over α.  alphas: those to
    choose from, None for some near the last one. Where new rows are many, some bags serve, and the old ones count for
    as much less.
    """
    ways = weighings(asked)
    chosen = np.sort(some_bags(design.bags, design.width, rng))
    share = float(design.bags.size[chosen].sum() / design.bags.n_people)
    folds = folds_of(len(chosen), cv, rng, enough=len(chosen))
    if not folds:
        return Refit(ways[0], before.alpha, before.stretch, before.effect_variance, before.start)
    some = design.take(chosen)
    tried = before.alpha * _NEARBY if alphas is None else alphas
    totals = np.zeros((len(ways), len(tried))) - 0.5 * (np.log10(tried / before.alpha) / _DECADES) ** 2
    pairs = [(some.take(fold.train), some.take(fold.held_out)) for fold in folds]
    for train, held_out in pairs:
        w, offset = before.start, held_out.bags.offset
        for i, how in enumerate(ways):
            ready = Weighing(how.weight * share, how.apart)
            path = _path(train, memory, ready, before, tried, relative, w)
            w = path[:, int(np.argmin(np.abs(tried - before.alpha)))]
            trained, held = train.scores(path), held_out.scores(path)
            for a in range(len(tried)):
                s = held[:, a] + memory.shift(trained[:, a], train.bags, path[:, a], ready)
                s = s if offset is None else s + offset
                found = log_likelihoods(s, held_out.bags, effect_variance=before.effect_variance)
                totals[i, a] += float(found.sum())
    how = expected(ways, logsumexp(totals, axis=1))
    alpha = float(np.exp(softmax(logsumexp(totals + _plausible(ways)[:, None], axis=0)) @ np.log(tried)))
    ready, parts = Weighing(how.weight * share, how.apart), []
    for train, held_out in pairs:
        w = _path(train, memory, ready, before, np.array([alpha]), relative, before.start)[:, 0]
        told = (prior_of(train.bags), train.bags, train.scores(w), held_out.scores(w), held_out.bags)
        parts.append(HeldOut.of(*told))
    variance = before.effect_variance
    new, old = float(len(design.bags)), how.weight * memory.bags
    if effects:
        variance = (old * variance + new * effects_beside_model(parts)) / (old + new)
    stretch, gains = best_stretch(parts, effect_variance=variance)
    stretch = (old * before.stretch + new * stretch) / (old + new)
    return Refit(how, alpha, stretch, variance, w, gains)


def _path(
    train: Design, memory: LogisticMemory, how: Weighing, before: Refit, alphas: Floats, relative: Floats, start: Floats
) -> Floats:
    """(d, alphas) weights with each penalty: about the maximum with the middle one, as if L were quadratic."""
    old = memory.quadratic(how.weight)
    middle = float(np.median(alphas))
    at = maximise(
        train,
        prior_of(train.bags),
        middle * relative,
        effect_variance=before.effect_variance,
        start=start,
        close=0.1,
        beside=old,
    )
    sums = system(train, at)
    curvature = sums.curvature + old.hessian
    target = sums.gradient + old.slope(at.w) + curvature @ at.w
    return np.stack([np.linalg.solve(curvature + np.diag(a * relative), target) for a in alphas], axis=1)
