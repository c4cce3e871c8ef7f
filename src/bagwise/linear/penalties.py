"""Penalty, stretch and variance of effects of logistic regression, by the likelihood of bags that are held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp, softmax

from bagwise.folds import folds_of
from bagwise.gains import HeldOut, best_stretch, effects_beside_model
from bagwise.linear.design import Design
from bagwise.linear.likelihood import Point, System, maximise, system
from bagwise.linear.likelihood_classes import maximise_classes
from bagwise.log_odds import prior_of, prior_of_classes
from bagwise.losses.log_likelihood import log_likelihoods, log_likelihoods_by_each
from bagwise.risk import least_of
from bagwise.utils.typing import Floats, Integers

ALPHAS = np.logspace(-1, 5, 13)
SCALINGS = np.array([0.0, 0.5, 1.0])
USUAL_SCALING = 0.5
_USUAL_ALPHA, _USUAL_EFFECTS = 30.0, 0.03  # where the search begins
CHOICE_ROWS, _CHOICE_NUMBERS = 60_000, 2**23  # that penalties are chosen on, where there are more
_FEW_ROWS, _MANY_BAGS, _LEAST_BAGS = 20_000, 256, 16  # fewer of them do, if they are so many bags
_LARGE_BAGS_ROWS = 2**19  # more of them are needed, for so many bags: a large bag says little more than a small one
_NEAR = 2.0  # a factor of penalties, up to which one tells of the other: scores are far from quadratic in the weights
_NEAR_WITH_EFFECTS = 5.0  # a search to the end would take what rates explain for effects
_FEW_ALPHAS = 9  # the most plausible ones, for few bags; where rates differ rows speak, and the lightest are right
_DECADES = 1 / 3  # standard deviation of the logarithm of a penalty, a priori
ENOUGH_FREEDOM = 4  # bags for each weight, for a maximum without a penalty
_ALIKE = 1.1  # a factor of spreads
_ROUNDS, _ROUNDS_WITH_EFFECTS, _ROUNDS_ADAPTED = 4, 3, 2
_SAME_EFFECTS = 0.2  # of a variance
_AS_IT_IS, _SOME_STRETCHES = np.ones(1), np.array([0.6, 1.0, 1.4, 1.8])
_SURE = 1.0  # standard error, for a scaling that is not the usual one, or penalties by the sizes of weights
_MUCH = 4.0  # difference of log-likelihoods of all bags, where few choose: these weights may be learned by heart
_LEAST_SIZE = 0.1  # of the mean square of weights, that each is taken to have at least
_HEAVIER = 3.0  # a factor of the penalty, where the search begins once large weights bear less of it
_ENOUGH_OF_CLASSES = 128  # bags held out, where a fit takes long


@dataclass(frozen=True, eq=False)
class Choice:
    """What held-out bags prefer.

    alpha, scaling: the penalty.  relative: (d,) by what α is multiplied for each weight, None where the scaling tells.
    stretch: of scores.  effect_variance: τ².
    gains: (m,) log-likelihood of held-out bags, less that of p; None where there were too few bags to hold any out.
    parts: what fits said of bags held out.  start: weights to begin with.
    """

    alpha: float = _USUAL_ALPHA
    scaling: float = USUAL_SCALING
    relative: Floats | None = None
    stretch: float = 1.0
    effect_variance: float = 0.0
    gains: Floats | None = None
    parts: Sequence[HeldOut] = ()
    start: Floats | None = None

    def penalty(self, design: Design) -> Floats:
        """(d,) of each standardised weight."""
        return penalty_of(design, self.alpha, self.scaling) if self.relative is None else self.alpha * self.relative


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

    def scores(self, w: Floats) -> HeldOut:
        """What weights (d,) say of the bags held out."""
        return HeldOut.of(
            self.prior, self.train.bags, self.train.scores(w), self.held_out.scores(w), self.held_out.bags
        )

    def told(self, relative: Floats, alpha: float) -> HeldOut:
        """The same of weights with a penalty near its own."""
        return self.scores(self.path(relative, np.array([alpha]))[:, 0])

    def refitted(self, penalty: Floats, effect_variance: float) -> _Held:
        """With another penalty."""
        train = self.train
        at = maximise(train, prior_of(train.bags), penalty, effect_variance=effect_variance, start=self.at.w, close=0.1)
        return _Held(train, self.held_out, at.prior, at, system(train, at))

    def value(self, w: Floats, effect_variance: float, stretches: Floats = _AS_IT_IS) -> Floats:
        """(stretches, weights, m) log-likelihood of the bags held out, for each column of w (d, weights)."""
        scores, trained = self.held_out.scores(w).T, self.train.scores(w).T
        bags, pairs = self.held_out.bags, zip(scores, trained, strict=True)
        each = (HeldOut.of(self.prior, self.train.bags, known, s, bags) for s, known in pairs)
        said = [one for part in each for one in part.stretched(stretches)]
        found = log_likelihoods_by_each(said, bags, effect_variance=effect_variance)
        return found.reshape(len(scores), len(stretches), -1).swapaxes(0, 1)


def penalty_of(design: Design, alpha: float, scaling: float) -> Floats:
    """(d,) the penalty of each standardised weight; their harmonic mean is α."""
    scale = np.where(np.isfinite(design.scale), design.scale, 1.0)
    relative = scale ** (2 * (scaling - 1))
    return np.asarray(alpha * relative * np.mean(1 / relative))


def by_size(w: Floats) -> Floats:
    """(d,) penalties that weights which were found large bear less of; their harmonic mean is 1.

    As if a weight had a normal prior whose variance is its own square: most weights of many are next to nothing.

    >>> by_size(np.array([2.0, 0.0])).round(2)
    array([ 0.52, 11.  ])
    """
    square = w**2
    if not square.any():
        return np.ones_like(w)
    size = square + _LEAST_SIZE * square.mean()
    return np.asarray(size.mean() / size)


def _few(design: Design) -> bool:
    """Whether bags are so few for the weights that these may learn them by heart."""
    return len(design.bags) < ENOUGH_FREEDOM * (len(design.scale) + 1)


def _plausible(alphas: Floats, d: int) -> Floats:
    """(alphas,) log prior of penalties: log odds, whose variance a penalty takes for d/α, vary by about 1."""
    return np.asarray(-0.5 * (np.log10(alphas / d) / _DECADES) ** 2)


def usual_alphas(design: Design) -> Floats:
    """Penalties to choose from; where bags are few, the most plausible ones."""
    if not _few(design):
        return ALPHAS
    return np.sort(ALPHAS[np.argsort(-_plausible(ALPHAS, design.width), kind="stable")[:_FEW_ALPHAS]])


def _some(design: Design, order: Integers, rows: int, many_bags: int = _MANY_BAGS) -> Integers:
    """The first of the bags, in the order given, that have about so many rows, or are many; fewer where rows are wide.

    Sixteen at least. Where bags are large, rows say little: they share the effects of few bags.
    """
    total = np.cumsum(design.bags.rows[order])
    most = min(_LARGE_BAGS_ROWS, _CHOICE_NUMBERS // max(design.width, 1))
    enough, many = (int(np.searchsorted(total, one, side="right")) for one in (min(rows, most), most))
    return order[: max(enough, min(many, many_bags), _LEAST_BAGS)]


def _for_choice(design: Design, order: Integers) -> Integers:
    """Bags to choose a penalty on: all of them where they are not too many, else enough."""
    some = _some(design, order, CHOICE_ROWS)
    return some if len(some) == len(order) else some[: max(len(_some(design, some, _FEW_ROWS)), _MANY_BAGS)]


def _more_and_held_out(design: Design, order: Integers) -> tuple[Integers, Integers]:
    """More of the bags, in the order given, and others to measure a fit to them on, which share no row with them."""
    rows, shared = design.bags.n_bagged // 8, design.bags.shared
    if shared is None:
        more = _some(design, order, rows)
        return more, _some(design, order[len(more) :], _FEW_ROWS)
    finest = order[shared.table[order] == np.argmax(np.bincount(shared.table))]
    held_out = _some(design, finest, _FEW_ROWS)[: max(len(finest) // 2, 1)]
    return _some(design, order[shared.apart_from(held_out)[order]], rows), held_out


def choose(
    design: Design,
    cv: int,
    rng: np.random.Generator,
    alphas: Floats,
    scalings: Floats,
    *,
    effects: bool,
    begin: Choice | None = None,
    adapt: bool = True,
    rates: bool = False,
) -> Choice:
    """Penalty, stretch and, with `effects`, τ², by the likelihood of bags that are held out in turn.

    begin: where the search begins, if something is known.  adapt: whether penalties may go by the sizes of weights,
    if held-out bags clearly prefer that; of few bags only where rates differ, so that single rows tell these sizes
    (`rates`). `parts` say what fits said without that.

    Where bags are many, the penalty is chosen on some; a fit to more of them is measured on others, and stretched only
    if these do not prefer it to p: the fit to all of them is shrunken less than it.
    """
    order = rng.permutation(len(design.bags))
    scalings = scalings if _differ(design.scale) else scalings[len(scalings) // 2 :][:1]
    some = _for_choice(design, order)
    if len(some) == len(order):
        return _choose(design, cv, rng, alphas, scalings, effects=effects, begin=begin, adapt=adapt, rates=rates)
    chosen_on = design.take(np.sort(some))
    found = _choose(chosen_on, cv, rng, alphas, scalings, effects=effects, begin=begin, adapt=adapt, rates=rates)
    train, held_out = (design.take(np.sort(bags)) for bags in _more_and_held_out(design, order))
    p, penalty = prior_of(train.bags), found.penalty(design)
    at = maximise(train, p, penalty, effect_variance=found.effect_variance, start=found.start, close=0.1)
    part = HeldOut.of(at.prior, train.bags, at.z, held_out.scores(at.w), held_out.bags)
    stretch, gains = 1.0, part.gains(np.ones(1), effect_variance=found.effect_variance)[0]
    if gains.mean() < 2 * gains.std() / np.sqrt(len(gains)):
        stretch, gains = best_stretch([part], effect_variance=found.effect_variance)
    parts = [part] if found.relative is None else found.parts
    return replace(found, stretch=stretch, gains=gains, parts=parts, start=at.w)


def _choose(
    design: Design,
    cv: int,
    rng: np.random.Generator,
    alphas: Floats,
    scalings: Floats,
    *,
    effects: bool,
    begin: Choice | None,
    adapt: bool,
    rates: bool,
) -> Choice:
    """The same with all bags."""
    folds = folds_of(len(design.bags), cv, rng, enough=len(design.bags), shared=design.bags.shared)
    if not folds:
        return Choice(effect_variance=0.0)
    if begin is None:  # far too light a penalty takes many steps to its maximum, which tells little of others
        usual = max(_USUAL_ALPHA, float(design.width)) if _few(design) else _USUAL_ALPHA
        begin = Choice(usual, float(scalings[_most_usual(scalings)]))
    inside = min(max(begin.alpha, float(alphas.min())), float(alphas.max()))
    found = replace(begin, alpha=inside, effect_variance=_USUAL_EFFECTS if effects else 0.0)
    pairs = [(design.take(fold.train), design.take(fold.held_out)) for fold in folds]
    starts: list[Floats | None] = [None] * len(folds)  # of few bags: near the fit to all, those held out are known
    best: tuple[float, Choice, list[_Held]] | None = None
    for _ in range(
        _ROUNDS_WITH_EFFECTS if effects else _ROUNDS
    ):  # what is near one penalty tells of others, and τ² of both
        penalty, tau, held = penalty_of(design, found.alpha, found.scaling), found.effect_variance, []
        p = prior_of(design.bags)
        start = maximise(design, p, penalty, effect_variance=tau, start=found.start, close=0.1).w
        for f, (train, held_out) in enumerate(pairs):
            p = prior_of(train.bags)
            at = maximise(train, p, penalty, effect_variance=tau, start=starts[f] if _few(design) else start, close=0.1)
            held.append(_Held(train, held_out, at.prior, at, system(train, at)))
            starts[f] = at.w
        last = replace(found, start=start)
        if not effects:  # with these, rounds differ in τ², too
            value = _likely(design, held, found)
            if best is not None and value < best[0]:  # it seemed better from afar than it is
                _, found, held = best
                break
            best = value, last, held
        found = replace(_best_penalty(design, held, alphas, scalings, tau, effects=effects), start=start)
        if effects:
            relative = penalty_of(design, 1.0, found.scaling)
            parts = [one.told(relative, found.alpha) for one in held]
            found = replace(found, effect_variance=effects_beside_model(parts))
        if _near(found, last, _NEAR_WITH_EFFECTS if effects else _NEAR):
            break
    plain = _told(found, held, [penalty_of(design, 1.0, found.scaling)] * len(held))
    if not adapt or (_few(design) and not rates):
        return plain
    adapted = _adapted(design, plain, held, alphas, effects=effects)
    assert plain.gains is not None
    assert adapted.gains is not None
    more = adapted.gains - plain.gains
    enough = max(float(_SURE * more.std() * np.sqrt(len(more))), _MUCH if _few(design) else 0.0)
    return replace(adapted, parts=plain.parts) if more.sum() > enough else plain


def _adapted(design: Design, found: Choice, held: list[_Held], alphas: Floats, *, effects: bool) -> Choice:
    """With penalties by the sizes of weights, in each fold by those of the fit without it, and the best α for them."""
    relatives, few, tau = [by_size(one.at.w) for one in held], _few(design), found.effect_variance
    stretches = _SOME_STRETCHES if few else _AS_IT_IS
    prior = _plausible(alphas, design.width) if few or effects else 0.0
    alpha = min(_HEAVIER * found.alpha, float(alphas.max()))
    for _ in range(_ROUNDS_ADAPTED):
        held, last = [one.refitted(alpha * own, tau) for one, own in zip(held, relatives, strict=True)], alpha
        sums = _values(held, relatives, alphas, tau, stretches).sum(axis=2) + prior
        alpha = float(np.exp(softmax(logsumexp(sums, axis=0)) @ np.log(alphas)))
        if abs(np.log(alpha / last)) < np.log(_NEAR):
            break
    assert found.start is not None
    found = replace(found, alpha=alpha, relative=by_size(found.start))
    if effects:
        parts = [one.told(own, alpha) for one, own in zip(held, relatives, strict=True)]
        found = replace(found, effect_variance=effects_beside_model(parts))
    return _told(found, held, relatives)


def _told(found: Choice, held: list[_Held], relatives: Sequence[Floats]) -> Choice:
    """With the stretch, and what the fits say of the bags held out."""
    parts = [one.told(own, found.alpha) for one, own in zip(held, relatives, strict=True)]
    stretch, gains = best_stretch(parts, effect_variance=found.effect_variance)
    return replace(found, stretch=stretch, gains=gains, parts=parts)


def _values(
    held: list[_Held], relatives: Sequence[Floats], alphas: Floats, effect_variance: float, stretches: Floats
) -> Floats:
    """(stretches, alphas, m) log-likelihoods of all bags held out."""
    each = zip(held, relatives, strict=True)
    return np.concatenate([one.value(one.path(own, alphas), effect_variance, stretches) for one, own in each], axis=2)


def _differ(scale: Floats) -> bool:
    """Whether features differ in their spread: otherwise a penalty cannot adapt to it."""
    finite = scale[np.isfinite(scale)]
    return len(finite) > 0 and finite.max() > _ALIKE * finite.min()


def _most_usual(scalings: Floats) -> int:
    """Which of the scalings, where nothing speaks for another."""
    return int(np.argmin(np.abs(scalings - USUAL_SCALING)))


def _near(one: Choice, other: Choice, factor: float) -> bool:
    """Whether the fits with one tell what those with the other would: penalties differ by less than a factor."""
    close = abs(np.log(one.alpha / other.alpha)) < np.log(factor)
    return close and one.scaling == other.scaling and _alike(one.effect_variance, other.effect_variance)


def _alike(one: float, other: float) -> bool:
    """Whether variances of effects are the same for what they are used for."""
    return abs(one - other) <= _SAME_EFFECTS * max(one, other)


def _likely(design: Design, held: list[_Held], choice: Choice) -> float:
    """How likely held-out bags are by the fits with a choice, and a priori it."""
    few = _few(design)
    stretches = _SOME_STRETCHES if few else _AS_IT_IS
    values = [one.value(one.at.w[:, None], choice.effect_variance, stretches).sum(axis=(1, 2)) for one in held]
    prior = _plausible(np.array([choice.alpha]), design.width)[0] if few else 0.0
    return float(logsumexp(np.sum(values, axis=0)) + prior)


def _best_penalty(
    design: Design, held: list[_Held], alphas: Floats, scalings: Floats, effect_variance: float, *, effects: bool
) -> Choice:
    """The penalty that held-out bags expect, each weighed by their likelihood; the usual scaling, unless they disagree.

    Disagreement is one of a standard error of the difference over bags, each scaling with its best penalty.
    """
    few, totals, best = _few(design), [], []
    stretches = _SOME_STRETCHES if few else _AS_IT_IS  # a heavy penalty may be made up for
    # Many bags know better, unless a light penalty would leave to effects of bags what differing rates explain.
    prior = _plausible(alphas, design.width) if few or effects else 0.0
    for scaling in scalings:
        relatives = [penalty_of(design, 1.0, float(scaling))] * len(held)
        values = _values(held, relatives, alphas, effect_variance, stretches)
        sums = values.sum(axis=2) + prior
        totals.append(logsumexp(sums, axis=0))
        best.append(-values[np.unravel_index(int(np.argmax(sums)), sums.shape)])
    chosen = least_of(best, preferred=_most_usual(scalings), errors=_SURE)
    alpha = float(np.exp(softmax(totals[chosen]) @ np.log(alphas)))
    return Choice(alpha, float(scalings[chosen]), effect_variance=effect_variance)


def choose_of_classes(
    design: Design, cv: int, rng: np.random.Generator, alphas: Floats, scaling: float
) -> tuple[float, Floats | None]:
    """The penalty of several classes by the likelihood of held-out bags, and their gains over p."""
    some = _some(design, rng.permutation(len(design.bags)), CHOICE_ROWS // 4, _LEAST_BAGS)
    design = design.take(np.sort(some)) if len(some) < len(design.bags) else design
    folds = folds_of(len(design.bags), cv, rng, enough=_ENOUGH_OF_CLASSES, shared=design.bags.shared)
    if not folds:
        return _USUAL_ALPHA, None
    tried = alphas[(alphas >= 1) & (alphas <= 1e4)][::2] if len(alphas) > 4 else alphas
    gains = np.zeros((len(tried), 0))
    for fold in folds:
        train, held_out = design.take(fold.train), design.take(fold.held_out)
        prior, start, lines = prior_of_classes(train.bags), None, []
        for alpha in tried[::-1]:  # from the heaviest on, each beginning where the one before ended
            at = maximise_classes(train, prior, penalty_of(design, alpha, scaling), start=start)
            prior, start = at.prior, at.start
            lines.append(log_likelihoods(held_out.scores(at.w.T) + at.intercept, held_out.bags))
        constant = log_likelihoods(np.tile(np.log(prior), (held_out.bags.n_bagged, 1)), held_out.bags)
        gains = np.concatenate([gains, np.array(lines[::-1]) - constant], axis=1)
    best = int(np.argmax(gains.sum(axis=1)))
    return float(tried[best]), gains[best]
