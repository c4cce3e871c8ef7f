"""Logistic regression from bags, by the likelihood of their counts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import expit, logsumexp, softmax

from bagwise.bags import Bags
from bagwise.base import BagClassifier, LinearPredictor, check_finite_features
from bagwise.folds import folds_of
from bagwise.gains import log_likelihoods, prior_of, prior_of_classes, shift_to, tell_gain
from bagwise.linear.likelihood import Design, Point, System, maximise, maximise_classes, system
from bagwise.losses.likelihood import check_counts
from bagwise.utils.parameters import NONE, Constraint, number, several, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats

_ALPHAS = np.logspace(-1, 5, 13)
_SCALINGS = np.array([0.0, 0.5, 1.0])
_STRETCHES = np.array([0.8, 1.0, 1.25, 1.5, 1.8, 2.2])
_EFFECTS = np.array([0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
_USUAL_ALPHA, _USUAL_SCALING, _USUAL_EFFECTS = 30.0, 0.5, 0.03  # where the search begins
_CHOICE_ROWS, _CHOICE_NUMBERS = 60_000, 2**23  # that penalties are chosen on
_ROUNDS = 2
_ENOUGH_OF_CLASSES = 128  # bags held out, where a fit takes long


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
        bags, found, start = self.held_out.bags, [], None
        for s, trained in zip(self.held_out.scores(w).T, self.train.scores(w).T, strict=True):
            start = shift_to(self.prior, trained, start=start)
            found.append(log_likelihoods(s + start, bags, effect_variance=effect_variance))
        return np.array(found)


def penalty_of(design: Design, alpha: float, scaling: float) -> Floats:
    """(d,) the penalty of each standardised weight; their harmonic mean is α."""
    scale = np.where(np.isfinite(design.scale), design.scale, 1.0)
    relative = scale ** (2 * (scaling - 1))
    return np.asarray(alpha * relative * np.mean(1 / relative))


def _sample(design: Design, rng: np.random.Generator, rows: int) -> Design:
    """Random bags of about so many rows, fewer where rows are wide; sixteen bags at least."""
    order = rng.permutation(len(design.bags))
    total = np.cumsum(design.bags.size[order])
    some = max(int(np.searchsorted(total, min(rows, _CHOICE_NUMBERS // max(design.X.shape[1], 1)), side="right")), 16)
    return design if some >= len(order) else design.take(np.sort(order[:some]))


def choose(
    design: Design, cv: int, rng: np.random.Generator, alphas: Floats, scalings: Floats, *, effects: bool
) -> Choice:
    """Penalty, stretch and, with `effects`, τ², by the likelihood of bags that are held out in turn."""
    design = _sample(design, rng, _CHOICE_ROWS)
    folds = folds_of(len(design.bags), cv, rng, enough=len(design.bags))
    if not folds:
        return Choice(effect_variance=0.0)
    starts: list[Floats | None] = [None] * len(folds)
    found = Choice(effect_variance=_USUAL_EFFECTS if effects else 0.0)
    for _ in range(_ROUNDS + effects):  # what is near one penalty tells of others, and τ² of both
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
    """The penalty that held-out bags expect, each weighed by their likelihood, and the stretch that goes with it."""
    constant = np.concatenate([one.value(np.zeros((design.X.shape[1], 1)), effect_variance)[0] for one in held])

    def gains(scaling: float, alphas: Floats, stretches: Floats) -> Floats:
        """(penalties or stretches, m) the one or the other being several."""
        paths = [one.path(penalty_of(design, 1.0, scaling), alphas) * stretches for one in held]
        values = [one.value(w, effect_variance) for one, w in zip(held, paths, strict=True)]
        return np.asarray(np.concatenate(values, axis=1) - constant)

    totals = np.array([gains(float(scaling), alphas, np.ones(1)).sum(axis=1) for scaling in scalings])
    best = int(np.argmax(logsumexp(totals, axis=1)))
    scaling, alpha = float(scalings[best]), float(np.exp(softmax(totals[best]) @ np.log(alphas)))
    stretch = float(softmax(gains(scaling, np.array([alpha]), _STRETCHES).sum(axis=1)) @ _STRETCHES)
    return Choice(alpha, scaling, stretch, effect_variance, gains(scaling, np.array([alpha]), np.array([stretch]))[0])


def choose_of_classes(
    design: Design, cv: int, rng: np.random.Generator, alphas: Floats, scaling: float
) -> tuple[float, Floats | None]:
    """The penalty of several classes by the likelihood of held-out bags, and their gains over p."""
    design = _sample(design, rng, _CHOICE_ROWS // 4)
    folds = folds_of(len(design.bags), cv, rng, enough=_ENOUGH_OF_CLASSES)
    if not folds:
        return _USUAL_ALPHA, None
    tried = alphas[(alphas >= 1) & (alphas <= 1e4)][::2] if len(alphas) > 4 else alphas
    gains = np.zeros((len(tried), 0))
    for fold in folds:
        train, held_out = design.take(fold.train), design.take(fold.held_out)
        prior, start, lines = prior_of_classes(train.bags), None, []
        constant = log_likelihoods(np.tile(np.log(prior), (held_out.bags.n_bagged, 1)), held_out.bags)
        for alpha in tried[::-1]:  # from the heaviest on, each beginning where the one before ended
            w, intercept = maximise_classes(train, prior, penalty_of(design, alpha, scaling), start=start)
            start = np.column_stack([w, intercept])
            lines.append(log_likelihoods(held_out.scores(w.T) + intercept, held_out.bags) - constant)
        gains = np.concatenate([gains, np.array(lines[::-1])], axis=1)
    best = int(np.argmax(gains.sum(axis=1)))
    return float(tried[best]), gains[best]


@dataclass(kw_only=True, eq=False, repr=False)
class BagLogisticClassifier(LinearPredictor, BagClassifier):
    r"""Logistic regression from bags: the likelihood of their counts, right in every formation.

    Maximises :math:`\sum_j \log P(\sum_{i \in j} B_i = k_j \alpha_j)`, :math:`B_i \sim \mathrm{Bernoulli}(h_i)`,
    :math:`h = \sigma(w \cdot x + b)`, less a ridge penalty on w, subject to E[h] = p (see `bagwise.losses.tilting`).
    Declared noise, and effects of bags, make a bag count for less. Bags of one row make it logistic regression.

    Parameters
    ----------
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about (see `bagwise.formation`); "auto" lets the bags tell. It decides whether bags may have
        effects of their own.
    alphas : float or sequence of float, optional
        Penalties to choose from by the likelihood of held-out bags; a number fixes it; None takes 13 from 0.1 to 1e5.
    scaling : float, optional
        As in `BagRidgeClassifier`.
    cv : int
        Number of folds of bags.
    random_state : int, Generator or None
        For the folds.

    Attributes
    ----------
    coef_ : array, shape (features,) or (classes, features)
        The weights w.
    intercept_ : float or array, shape (classes,)
        The intercept b.
    formation_ : Told
        The formation that was used, and why.
    alpha_, scaling_, stretch_ : float
        The penalty chosen, and the factor by which log odds are stretched to make up for it.
    effect_variance_ : float
        τ² of the bags' effects; 0 where none were looked for or found.
    effects_ : array, shape (bags,)
        Estimates of the effects :math:`u_j` on log odds.
    gain_, gain_error_ : float
        Log-likelihood of a held-out bag over that of the mean label, and its standard error; NaN where there were too
        few bags to hold any out.
    free_coef_, coef_errors_ : array, shape (features,)
        Weights without a penalty, one step of Newton's from `coef_`, and their standard errors, which respect bags (the
        sandwich); None for several classes.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(6400, 2))
    >>> y = (rng.random(6400) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    >>> ids = bw.random_bags(6400, size=16, random_state=0)
    >>> model = BagLogisticClassifier(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> model.coef_.round(), model.formation_.name
    (array([2., 0.]), 'random')
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "alphas": several(number(above=0), "one or more finite numbers above 0") | NONE,
        "scaling": number(least=0, most=1) | NONE,
        "cv": whole(2),
    }

    formation: str = "auto"
    alphas: ArrayLike | None = None
    scaling: float | None = None
    cv: int = 5
    random_state: RandomState = None

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        if bags.noise_variance is None:
            check_counts(bags)
        design = Design.of(X, bags, getattr(self, "feature_names_in_", None))
        self._tell_formation(X, bags)
        rng = generator(self.random_state)
        gains = self._fit_classes(design, rng) if bags.proportion.ndim == 2 else self._fit_two(design, rng)
        self.gain_, self.gain_error_ = tell_gain(gains, stacklevel=5)

    @property
    def _penalties(self) -> tuple[Floats, Floats]:
        """The alphas and the scalings to choose from."""
        alphas = _ALPHAS if self.alphas is None else np.atleast_1d(np.asarray(self.alphas, dtype=float))
        return alphas, _SCALINGS if self.scaling is None else np.array([float(self.scaling)])

    def _fit_two(self, design: Design, rng: np.random.Generator) -> Floats | None:
        chosen = choose(design, self.cv, rng, *self._penalties, effects=self.formation_.name in ("features", "effects"))
        prior, penalty = prior_of(design.bags), penalty_of(design, chosen.alpha, chosen.scaling)
        at = maximise(design, prior, penalty, effect_variance=chosen.effect_variance)
        self.alpha_, self.scaling_, self.stretch_ = chosen.alpha, chosen.scaling, chosen.stretch
        self.effect_variance_ = chosen.effect_variance
        tilt = np.where(np.isfinite(at.found.tilt), at.found.tilt, 0.0)
        self.effects_ = chosen.effect_variance * design.bags.sum(at.h * (1 - at.h)) * tilt
        scores, coef = self.stretch_ * design.scores(at.w), self.stretch_ * at.w / design.scale
        self._keep(coef[None], np.array([shift_to(prior, scores)]) - coef @ design.mean, classes=False)
        free, covariance = system(design, at).free(at.w)
        self.free_coef_: Floats | None = free / design.scale
        self.coef_errors_: Floats | None = np.sqrt(np.diag(covariance)) / design.scale
        return chosen.gains

    def _fit_classes(self, design: Design, rng: np.random.Generator) -> Floats | None:
        self.scaling_ = _USUAL_SCALING if self.scaling is None else float(self.scaling)
        self.alpha_, gains = choose_of_classes(design, self.cv, rng, self._penalties[0], self.scaling_)
        penalty = penalty_of(design, self.alpha_, self.scaling_)
        coef, intercept = maximise_classes(design, prior_of_classes(design.bags), penalty)
        coef = coef / design.scale
        self._keep(coef, intercept - coef @ design.mean, classes=True)
        self.stretch_, self.effect_variance_, self.effects_ = 1.0, 0.0, np.zeros(len(design.bags))
        self.free_coef_ = self.coef_errors_ = None
        return gains

    def _predict_mean(self, X: Floats) -> Floats:
        scores = super()._predict_mean(X)
        check_finite_features(scores, X, getattr(self, "feature_names_in_", None))  # h would hide infinity
        return np.asarray(softmax(scores, axis=1) if scores.ndim == 2 else expit(scores))
