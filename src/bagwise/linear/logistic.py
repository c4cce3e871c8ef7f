"""Logistic regression from bags, by the likelihood of their counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy import stats
from scipy.special import expit, logsumexp, softmax
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.base import BagClassifier, LinearPredictor, check_finite_features
from bagwise.folds import folds_of
from bagwise.formation import settled
from bagwise.gains import HeldOut, best_stretch, log_likelihoods, tell_gain
from bagwise.linear.likelihood import Design, Point, System, climb, maximise, maximise_classes, system
from bagwise.log_odds import prior_of, prior_of_classes, shift_to
from bagwise.losses.likelihood import check_counts
from bagwise.risk import least_of
from bagwise.utils.parameters import NONE, Constraint, check_parameters, number, several, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats, Integers

_ALPHAS = np.logspace(-1, 5, 13)
_SCALINGS = np.array([0.0, 0.5, 1.0])
_EFFECTS = np.array([0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
_USUAL_ALPHA, _USUAL_SCALING, _USUAL_EFFECTS = 30.0, 0.5, 0.03  # where the search begins
_CHOICE_ROWS, _CHOICE_NUMBERS = 60_000, 2**23  # that penalties are chosen on, where there are more
_FEW_ROWS, _MANY_BAGS = 20_000, 256  # fewer of them do, if they are so many bags
_NEAR = 5.0  # a factor of penalties, up to which one tells of the other
_CLOSE, _NEARLY = 1e-3, 0.5  # to the maximum, in units of log-likelihood; the latter where a step takes long
_FEW_ALPHAS = 6  # the most plausible ones, for few bags
_DECADES = 1 / 3  # standard deviation of the logarithm of a penalty, a priori
_ENOUGH_FREEDOM = 4  # bags for each weight, for a maximum without a penalty
_TINY = 1e-6
_ALIKE = 1.1  # a factor of spreads
_ROUNDS = 2
_AS_IT_IS, _SOME_STRETCHES = np.ones(1), np.array([0.6, 1.2, 1.8])
_SURE = 1.0  # standard error, for a scaling that is not the usual one
_ENOUGH_OF_CLASSES = 128  # bags held out, where a fit takes long


@dataclass(frozen=True, eq=False)
class Choice:
    """What held-out bags prefer.

    alpha, scaling: the penalty.  stretch: of scores.  effect_variance: τ².
    gains: (m,) log-likelihood of held-out bags, less that of p; None where there were too few bags to hold any out.
    parts: what fits said of bags held out.  start: weights to begin with.
    """

    alpha: float = _USUAL_ALPHA
    scaling: float = _USUAL_SCALING
    stretch: float = 1.0
    effect_variance: float = 0.0
    gains: Floats | None = None
    parts: Sequence[HeldOut] = ()
    start: Floats | None = None


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
        return HeldOut(self.prior, self.train.scores(w), self.held_out.scores(w), self.held_out.bags)

    def value(self, w: Floats, effect_variance: float, stretches: Floats = _AS_IT_IS) -> Floats:
        """(stretches, weights, m) log-likelihood of the bags held out, for each column of w (d, weights)."""
        scores, trained = self.held_out.scores(w).T, self.train.scores(w).T
        found = [
            HeldOut(self.prior, known, s, self.held_out.bags).log_likelihoods(
                stretches, effect_variance=effect_variance
            )
            for s, known in zip(scores, trained, strict=True)
        ]
        return np.stack(found, axis=1)


def penalty_of(design: Design, alpha: float, scaling: float) -> Floats:
    """(d,) the penalty of each standardised weight; their harmonic mean is α."""
    scale = np.where(np.isfinite(design.scale), design.scale, 1.0)
    relative = scale ** (2 * (scaling - 1))
    return np.asarray(alpha * relative * np.mean(1 / relative))


def _few(design: Design) -> bool:
    """Whether bags are so few for the weights that these may learn them by heart."""
    return len(design.bags) < _ENOUGH_FREEDOM * (len(design.scale) + 1)


def _plausible(alphas: Floats, d: int) -> Floats:
    """(alphas,) log prior of penalties: log odds, whose variance a penalty takes for d/α, vary by about 1."""
    return np.asarray(-0.5 * (np.log10(alphas / d) / _DECADES) ** 2)


def _some(design: Design, order: Integers, rows: int) -> Integers:
    """The first of the bags, in the order given, that have about so many rows, fewer where rows are wide; 16 at least.

    So many that nearly all of them would be taken are all.
    """
    total = np.cumsum(design.bags.size[order])
    most = min(rows, _CHOICE_NUMBERS // max(design.X.shape[1], 1))
    return order if total[-1] <= most else order[: max(int(np.searchsorted(total, most, side="right")), 16)]


def _for_choice(design: Design, order: Integers) -> Integers:
    """Bags to choose a penalty on: all of them where they are not too many, else enough."""
    some = _some(design, order, _CHOICE_ROWS)
    return some if len(some) == len(order) else some[: max(len(_some(design, some, _FEW_ROWS)), _MANY_BAGS)]


def choose(
    design: Design, cv: int, rng: np.random.Generator, alphas: Floats, scalings: Floats, *, effects: bool
) -> Choice:
    """Penalty, stretch and, with `effects`, τ², by the likelihood of bags that are held out in turn.

    Where bags are many, the penalty is chosen on some; a fit to more of them is measured on others, and stretched only
    if these do not prefer it to p: the fit to all of them is shrunken less than it.
    """
    order = rng.permutation(len(design.bags))
    scalings = scalings if _differ(design.scale) else scalings[len(scalings) // 2 :][:1]
    some = _for_choice(design, order)
    if len(some) == len(order):
        return _choose(design, cv, rng, alphas, scalings, effects=effects)
    found = _choose(design.take(np.sort(some)), cv, rng, alphas, scalings, effects=effects, measured=False)
    more = _some(design, order, design.bags.n_bagged // 8)
    rest = order[len(more) :]
    train, held_out = design.take(np.sort(more)), design.take(np.sort(_some(design, rest, _FEW_ROWS)))
    p, penalty = prior_of(train.bags), penalty_of(design, found.alpha, found.scaling)
    at = maximise(train, p, penalty, effect_variance=found.effect_variance, start=found.start, close=0.1)
    part = HeldOut(p, at.s - at.intercept, held_out.scores(at.w), held_out.bags)
    stretch, gains = 1.0, part.gains(np.ones(1), effect_variance=found.effect_variance)[0]
    if gains.mean() < 2 * gains.std() / np.sqrt(len(gains)):
        stretch, gains = best_stretch([part], effect_variance=found.effect_variance)
    return replace(found, stretch=stretch, gains=gains, parts=[part], start=at.w)


def _choose(
    design: Design,
    cv: int,
    rng: np.random.Generator,
    alphas: Floats,
    scalings: Floats,
    *,
    effects: bool,
    measured: bool = True,
) -> Choice:
    """The same with all bags."""
    folds = folds_of(len(design.bags), cv, rng, enough=len(design.bags))
    if not folds:
        return Choice(effect_variance=0.0)
    found, last = Choice(effect_variance=_USUAL_EFFECTS if effects else 0.0), None
    pairs = [(design.take(fold.train), design.take(fold.held_out)) for fold in folds]
    starts: list[Floats | None] = [None] * len(folds)  # of few bags: near the fit to all, those held out are known
    for _ in range(_ROUNDS + effects):  # what is near one penalty tells of others, and τ² of both
        if last is not None and _near(found, last):
            break
        held, last = [], found
        penalty, tau = penalty_of(design, found.alpha, found.scaling), found.effect_variance
        p = prior_of(design.bags)
        start = maximise(design, p, penalty, effect_variance=tau, start=found.start, close=0.1).w
        for f, (train, held_out) in enumerate(pairs):
            p = prior_of(train.bags)
            at = maximise(train, p, penalty, effect_variance=tau, start=starts[f] if _few(design) else start, close=0.1)
            held.append(_Held(train, held_out, p, at, system(train, at)))
            starts[f] = at.w
        found = replace(_best_penalty(design, held, alphas, scalings, found.effect_variance), start=start)
        if effects:
            relative = penalty_of(design, 1.0, found.scaling)
            weights = [one.path(relative, np.array([found.alpha])) for one in held]
            total = [sum(one.value(w, tau).sum() for one, w in zip(held, weights, strict=True)) for tau in _EFFECTS]
            found = replace(found, effect_variance=float(_EFFECTS[int(np.argmax(total))]))
    if measured:
        relative, alpha = penalty_of(design, 1.0, found.scaling), np.array([found.alpha])
        parts = [one.scores(one.path(relative, alpha)[:, 0]) for one in held]
        stretch, gains = best_stretch(parts, effect_variance=found.effect_variance)
        found = replace(found, stretch=stretch, gains=gains, parts=parts)
    return found


def _differ(scale: Floats) -> bool:
    """Whether features differ in their spread: otherwise a penalty cannot adapt to it."""
    finite = scale[np.isfinite(scale)]
    return len(finite) > 0 and finite.max() > _ALIKE * finite.min()


def _near(one: Choice, other: Choice) -> bool:
    """Whether the fits with one tell what those with the other would."""
    close = abs(np.log(one.alpha / other.alpha)) < np.log(_NEAR)
    return close and one.scaling == other.scaling and one.effect_variance == other.effect_variance


def _best_penalty(
    design: Design, held: list[_Held], alphas: Floats, scalings: Floats, effect_variance: float
) -> Choice:
    """The penalty that held-out bags expect, each weighed by their likelihood; the usual scaling, unless they disagree.

    Disagreement is one of a standard error of the difference over bags, each scaling with its best penalty.
    """
    stretches = _SOME_STRETCHES if _few(design) else _AS_IT_IS  # a heavy penalty may be made up for
    prior, totals, best = _plausible(alphas, design.X.shape[1]), [], []
    for scaling in scalings:
        relative = penalty_of(design, 1.0, float(scaling))
        values = np.concatenate(
            [one.value(one.path(relative, alphas), effect_variance, stretches) for one in held], axis=2
        )
        sums = values.sum(axis=2) + prior
        totals.append(logsumexp(sums, axis=0))
        best.append(-values[np.unravel_index(int(np.argmax(sums)), sums.shape)])
    chosen = least_of(best, preferred=int(np.argmin(np.abs(scalings - _USUAL_SCALING))), errors=_SURE)
    alpha = float(np.exp(softmax(totals[chosen]) @ np.log(alphas)))
    return Choice(alpha, float(scalings[chosen]), effect_variance=effect_variance)


def choose_of_classes(
    design: Design, cv: int, rng: np.random.Generator, alphas: Floats, scaling: float
) -> tuple[float, Floats | None]:
    """The penalty of several classes by the likelihood of held-out bags, and their gains over p."""
    some = _some(design, rng.permutation(len(design.bags)), _CHOICE_ROWS // 4)
    design = design.take(np.sort(some)) if len(some) < len(design.bags) else design
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
        Where bags are few, one about as large as the number of features is the most plausible.
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
        Weights without a penalty (one step of Newton's from `coef_` where rows are many, or bags few) and their
        standard errors, which respect bags (the sandwich); infinite where there are no more bags than weights, None for
        several classes. See `coef_interval`.
    freedom_ : int
        Bags beyond the number of weights.

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
        alphas, scalings = self._penalties
        if _few(design) and len(alphas) > 1:
            alphas = alphas[np.argsort(-_plausible(alphas, design.X.shape[1]), kind="stable")[:_FEW_ALPHAS]]
        # Where rates may be effects, the weaker assumption comes first: held-out bags then tell which it is.
        effects = self.formation_.name in ("features", "effects") or "effects" in self.formation_.others
        chosen = choose(design, self.cv, rng, alphas, scalings, effects=effects)
        self.formation_ = settled(self.formation_, chosen.parts)
        if effects and self.formation_.name == "rates":
            chosen = choose(design, self.cv, rng, alphas, scalings, effects=False)
        prior, penalty = prior_of(design.bags), penalty_of(design, chosen.alpha, chosen.scaling)
        close = _CLOSE if design.bags.n_bagged <= _CHOICE_ROWS else _NEARLY
        at, before, sums = climb(
            design, prior, penalty, effect_variance=chosen.effect_variance, start=chosen.start, close=close
        )
        self.alpha_, self.scaling_, self.stretch_ = chosen.alpha, chosen.scaling, chosen.stretch
        self.effect_variance_ = chosen.effect_variance
        tilt = np.where(np.isfinite(at.found.tilt), at.found.tilt, 0.0)
        self.effects_ = chosen.effect_variance * design.bags.sum(at.h * (1 - at.h)) * tilt
        scores, coef = self.stretch_ * (at.s - at.intercept), self.stretch_ * at.w / design.scale
        self._keep(coef[None], np.array([shift_to(prior, scores)]) - coef @ design.mean, classes=False)
        self.freedom_ = len(design.bags) - design.X.shape[1] - 1
        if close == _CLOSE:
            if self.freedom_ >= _ENOUGH_FREEDOM * (design.X.shape[1] + 1):
                at = maximise(design, prior, _TINY * penalty, effect_variance=chosen.effect_variance, start=at.w)
            before, sums = at, system(design, at)
        free, covariance = sums.free(before.w)
        errors = np.sqrt(np.diag(covariance)) if self.freedom_ > 0 else np.full(len(free), np.inf)
        self.free_coef_: Floats | None = free / design.scale
        self.coef_errors_: Floats | None = errors / design.scale
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
        self.freedom_ = len(design.bags) - design.X.shape[1] - 1
        return gains

    def coef_interval(self, level: float = 0.95) -> Floats:
        """Intervals of the weights that cover those of the model, where that is right, with probability `level`.

        They respect bags, in every formation; several classes have none.

        Parameters
        ----------
        level : float
            Between 0 and 1.

        Returns
        -------
        array, shape (2, features)
            Lower and upper ends, around `free_coef_`.
        """
        check_is_fitted(self)
        check_parameters({"level": level}, {"level": number(above=0, below=1)})
        if self.free_coef_ is None or self.coef_errors_ is None:
            raise ValueError("intervals of weights are known for two classes only.")
        far = float(stats.t.ppf((1 + level) / 2, max(self.freedom_, 1)))
        return np.stack([self.free_coef_ - far * self.coef_errors_, self.free_coef_ + far * self.coef_errors_])

    def _predict_mean(self, X: Floats) -> Floats:
        scores = super()._predict_mean(X)
        check_finite_features(scores, X, getattr(self, "feature_names_in_", None))  # h would hide infinity
        return np.asarray(softmax(scores, axis=1) if scores.ndim == 2 else expit(scores))
