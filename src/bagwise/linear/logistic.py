"""Logistic regression from bags, by the likelihood of their counts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy import stats
from scipy.special import expit, softmax
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.data.rows import BagRows, InMemory, Reads
from bagwise.explanation.contributions import LOG_ODDS, LOGITS, Contributions, linear_contributions
from bagwise.folds import folds_of
from bagwise.formation import settled
from bagwise.gains import tell_gain
from bagwise.intervals import TellsIntervals
from bagwise.linear.design import Design
from bagwise.linear.intervals import ClassErrors, ScoreErrors
from bagwise.linear.likelihood import Point, climb, maximise, system
from bagwise.linear.likelihood_classes import ClassesPoint, maximise_classes
from bagwise.linear.memory import TOGETHER, LogisticMemory, Refit, choose_refit
from bagwise.linear.penalties import (
    ALPHAS,
    CHOICE_ROWS,
    ENOUGH_FREEDOM,
    SCALINGS,
    USUAL_SCALING,
    choose,
    choose_of_classes,
    penalty_of,
    usual_alphas,
)
from bagwise.log_odds import prior_of, prior_of_classes, shift_to
from bagwise.losses.likelihood import check_counts
from bagwise.numeric import LinearPredictor, check_finite_features
from bagwise.updatable import UpdatableClassifier
from bagwise.updates import MOST_KEPT, Forgetting, Step
from bagwise.utils.parameters import NONE, Constraint, check_parameters, number, several, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats

_CLOSE, _NEARLY = 1e-3, 0.5  # to the maximum, in units of log-likelihood; the latter where a step takes long
_TINY = 1e-6
_CLASSES_ROWS = CHOICE_ROWS // 4  # to which several classes are fitted without each fold, for intervals


@dataclass(kw_only=True, eq=False, repr=False)
class BagLogisticClassifier(LinearPredictor, TellsIntervals, UpdatableClassifier):
    r"""Logistic regression from bags: the likelihood of their counts, right in every formation.

    Maximises :math:`\sum_j \log P(\sum_{i \in j} B_i = k_j \alpha_j)`, :math:`B_i \sim \mathrm{Bernoulli}(h_i)`,
    :math:`h = \sigma(w \cdot x + b)`, less a ridge penalty on w, subject to E[h] = p (see `bagwise.losses.tilting`).
    Declared noise, and effects of bags, make a bag count for less. Bags of one row make it logistic regression. Rows on
    disk (`fit_rows` of shards) are read block by block, with the same result.

    Parameters
    ----------
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about (see `bagwise.formation`); "auto" lets the bags tell. It decides whether bags may have
        effects of their own.
    alphas : float or sequence of float, optional
        Penalties to choose from by the likelihood of held-out bags; a number fixes it; None takes 13 from 0.1 to 1e5.
        Where bags are few, one about as large as the number of features is the most plausible. Of several, and where
        no scaling is given, weights :math:`w_j` that a first fit finds large may bear less, in proportion to
        :math:`1 / (w_j^2 + 0.1 \overline{w^2})`, if held-out bags clearly prefer that.
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
    feature_means_ : array, shape (features,)
        The mean row, which `explain` measures from.
    formation_ : Told
        The formation that was used, and why.
    alpha_, scaling_, stretch_ : float
        The penalty chosen, and the factor by which log odds are stretched to make up for it.
    penalties_ : array, shape (features,)
        That of each weight, in standardised features; their harmonic mean is `alpha_`.
    n_iter_ : int
        Steps of Newton's (of L-BFGS, for several classes) to the maximum, after those by which the penalty was chosen.
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
    score_errors_ : ScoreErrors, ClassErrors or None
        How scores vary, for `predict_interval`; None after updates, where that is too much to be kept, and for several
        classes where rows are many or bags few.
    freedom_ : int
        Bags beyond the number of weights.
    memory_ : LogisticMemory or None
        What `partial_fit` goes on from, the likelihood of all bags so far as a quadratic about its maximum; None for
        several classes, or where it is too much to be kept. `update_` then says what the last update came to.

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

    reads: ClassVar[Reads] = Reads(blocks=True, shared=True, weights=True, offset=True)
    updates_offset: ClassVar[bool] = True
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

    def _fit_data(self, data: BagRows) -> None:
        """Rows on disk are read a block at a time, once or twice for each step; a sample tells the formation.

        Memory holds about a dozen numbers for each row, whatever the columns, four for each bag and column, and the
        rows of some of the bags, on which the penalty is chosen.
        """
        if isinstance(data, InMemory):
            super()._fit_data(data)
            return
        bags, some = data.bags, data.sample()
        if bags.noise_variance is None:
            check_counts(bags)
        self._tell_formation(some.X, some.bags)
        self._fit_design(Design.of_blocks(data, bags))

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        if bags.noise_variance is None:
            check_counts(bags)
        design = Design.of(X, bags, getattr(self, "feature_names_in_", None))
        self._tell_formation(X, bags)
        self._fit_design(design)

    def _fit_design(self, design: Design) -> None:
        """With the formation that is told."""
        self.feature_means_ = design.mean
        rng = generator(self.random_state)
        several_classes = design.bags.proportion.ndim == 2
        gains = self._fit_classes(design, rng) if several_classes else self._fit_two(design, rng)
        self.gain_, self.gain_error_ = tell_gain(gains, stacklevel=6)

    def _penalties(self, usual: Floats) -> tuple[Floats, Floats]:
        """The alphas and the scalings to choose from."""
        alphas = usual if self.alphas is None else np.atleast_1d(np.asarray(self.alphas, dtype=float))
        return alphas, SCALINGS if self.scaling is None else np.array([float(self.scaling)])

    def _fit_two(self, design: Design, rng: np.random.Generator) -> Floats | None:
        alphas, scalings = self._penalties(usual_alphas(design))
        # Where rates may be effects, the weaker assumption comes first: held-out bags then tell which it is.
        effects = self.formation_.name in ("features", "effects") or "effects" in self.formation_.others
        adapt = len(alphas) > 1 and self.scaling is None
        rates = self.formation_.name == "rates" and not effects
        chosen = choose(design, self.cv, rng, alphas, scalings, effects=effects, adapt=adapt, rates=rates)
        self.formation_ = settled(self.formation_, chosen.parts)
        if effects and self.formation_.name == "rates":
            begin = replace(chosen, relative=None)
            chosen = choose(design, self.cv, rng, alphas, scalings, effects=False, begin=begin, adapt=adapt, rates=True)
        prior, penalty = prior_of(design.bags), chosen.penalty(design)
        close = _CLOSE if design.bags.n_bagged <= CHOICE_ROWS else _NEARLY
        at, before, sums, self.n_iter_ = climb(
            design, prior, penalty, effect_variance=chosen.effect_variance, start=chosen.start, close=close
        )
        self.alpha_, self.scaling_, self.stretch_ = chosen.alpha, chosen.scaling, chosen.stretch
        self.penalties_, self.effect_variance_ = penalty, chosen.effect_variance
        self.effects_ = self._effects(at, design.bags)
        scores, coef = self.stretch_ * at.z, self.stretch_ * at.w / design.scale
        scores = scores if design.bags.offset is None else scores + design.bags.offset
        shift = shift_to(at.prior, scores, weight=design.bags.weight)
        self._keep(coef[None], np.array([shift]) - coef @ design.mean, classes=False)
        self.freedom_ = len(design.bags) - design.width - 1
        if close == _CLOSE:
            if self.freedom_ >= ENOUGH_FREEDOM * (design.width + 1):
                at = maximise(design, prior, _TINY * penalty, effect_variance=chosen.effect_variance, start=at.w)
            before, sums = at, system(design, at)
        inverse, both = sums.sandwich()  # of weights, and of the score of the row that they are measured from
        if (overlap := design.bags.overlap) is not None:  # sums over several tables vary at most so much, if they agree
            both = both * len(np.unique(overlap.table))
        free, covariance = before.w + inverse[:-1, :-1] @ sums.gradient, both[:-1, :-1]
        self.score_errors_: ScoreErrors | ClassErrors | None = self._score_errors(
            design, at.prior, free, sums.centre, both
        )
        known = (self.freedom_ > 0) & np.isfinite(design.scale)  # nothing is known of the weight of a constant
        self.free_coef_: Floats | None = free / design.scale
        self.coef_errors_: Floats | None = np.where(known, np.sqrt(np.diag(covariance)) / design.scale, np.inf)
        self.memory_ = LogisticMemory.of(design, before, sums, covariance)
        return chosen.gains

    def _score_errors(
        self, design: Design, prior: float, free: Floats, centre: Floats, covariance: Floats
    ) -> ScoreErrors | None:
        """How scores of weights without a penalty vary; None where that is too much to keep."""
        if covariance.size > MOST_KEPT:
            return None
        s, per = design.scores(free), np.append(1 / design.scale, 1.0)
        s = s if design.bags.offset is None else s + design.bags.offset
        score = shift_to(prior, s, weight=design.bags.weight) + float(centre @ free)
        at = design.mean + np.where(np.isfinite(design.scale), design.scale, 0.0) * centre
        return ScoreErrors(free / design.scale, at, score, per[:, None] * covariance * per, self.freedom_)

    def _interval(self, X: Floats, level: float, offset: Floats | float) -> Floats:
        if self.score_errors_ is None:
            of_classes = ", or its rows are too many or its bags too few for several classes" * (self.coef_.ndim == 2)
            raise ValueError(
                f"this model was updated, or has too many features{of_classes}, so that nothing tells its intervals."
            )
        if isinstance(self.score_errors_, ClassErrors):
            return self.score_errors_.interval(X, level)
        return np.asarray(expit(self.score_errors_.interval(X, level) + offset))

    def refuses_updates(self) -> str | None:
        """Why there are no updates of several classes."""
        if len(getattr(self, "classes_", ())) <= 2:
            return None
        way = "fit it to the reports of both months together, or take ridge"
        return f"logistic regression of several classes cannot be updated: {way}"

    def _update_bags(self, X: Floats, bags: Bags, forgetting: Forgetting) -> Step:
        if bags.noise_variance is None:
            check_counts(bags)
        old: LogisticMemory = self.memory_
        design = old.design(X, bags, getattr(self, "feature_names_in_", None))
        last = Refit(TOGETHER, self.alpha_, self.stretch_, self.effect_variance_, old.w)
        chosen = choose_refit(
            design,
            old,
            last,
            forgetting,
            self.cv,
            generator(self.random_state),
            relative=self._relative(design),
            alphas=None if self.alphas is None else self._penalties(ALPHAS)[0],
            effects=self.formation_.name in ("features", "effects"),
        )
        how, prior, penalty = chosen.how, prior_of(bags), chosen.alpha * self._relative(design)
        at, before, sums, self.n_iter_ = climb(
            design,
            prior,
            penalty,
            effect_variance=chosen.effect_variance,
            start=chosen.start,
            close=_CLOSE if bags.n_bagged <= CHOICE_ROWS else _NEARLY,
            beside=old.quadratic(how.weight),
        )
        self.alpha_, self.stretch_, self.effect_variance_ = chosen.alpha, chosen.stretch, chosen.effect_variance
        self.penalties_, self.effects_ = penalty, self._effects(at, bags)
        scores, coef = at.z, self.stretch_ * at.w / design.scale
        beyond = old.shift(scores, bags, at.w, how) - at.intercept  # of old and new rows, over that of new ones
        stretched = self.stretch_ * scores if bags.offset is None else self.stretch_ * scores + bags.offset
        intercept = shift_to(prior, stretched, weight=bags.weight) + beyond
        self._keep(coef[None], np.array([intercept]) - coef @ design.mean, classes=False)
        self.memory_ = old.beside(design, before, sums, sums.free(before.w)[1], how)
        free, covariance = self.memory_.free()
        self.freedom_ = round(self.memory_.bags) - X.shape[1] - 1
        known = (self.freedom_ > 0) & np.isfinite(design.scale)
        self.free_coef_ = free / design.scale
        self.coef_errors_ = np.where(known, np.sqrt(np.diag(covariance)) / design.scale, np.inf)
        self.score_errors_ = None
        self.gain_, self.gain_error_ = tell_gain(chosen.gains, stacklevel=5)
        return Step("likelihood of new bags beside that of the old ones", True, how.weight, how.apart)

    def _relative(self, design: Design) -> Floats:
        """(d,) penalties of standardised weights over alpha."""
        if (penalties := getattr(self, "penalties_", None)) is None:  # a folder of before
            return penalty_of(design, 1.0, self.scaling_)
        return np.asarray(penalties / self.alpha_)

    def _effects(self, at: Point, bags: Bags) -> Floats:
        """(m,) estimates of the effects of bags."""
        tilt = np.where(np.isfinite(at.found.tilt), at.found.tilt, 0.0)
        return np.asarray(self.effect_variance_ * bags.sum(at.h * (1 - at.h)) * tilt)

    def _fit_classes(self, design: Design, rng: np.random.Generator) -> Floats | None:
        self.scaling_ = USUAL_SCALING if self.scaling is None else float(self.scaling)
        self.alpha_, gains = choose_of_classes(design, self.cv, rng, self._penalties(ALPHAS)[0], self.scaling_)
        self.penalties_ = penalty = penalty_of(design, self.alpha_, self.scaling_)
        at = maximise_classes(design, prior_of_classes(design.bags), penalty)
        coef, self.n_iter_ = at.w / design.scale, at.n_iter
        self._keep(coef, at.intercept - coef @ design.mean, classes=True)
        self.stretch_, self.effect_variance_, self.effects_ = 1.0, 0.0, np.zeros(len(design.bags))
        self.free_coef_ = self.coef_errors_ = self.memory_ = None
        self.freedom_ = len(design.bags) - design.width - 1
        self.score_errors_ = self._class_errors(design, at, rng)
        return gains

    def _class_errors(self, design: Design, at: ClassesPoint, rng: np.random.Generator) -> ClassErrors | None:
        """Weights without a penalty, and those without each of the folds; None where that takes long or is unsure."""
        bags, penalty = design.bags, _TINY * self.penalties_
        folds = folds_of(len(bags), self.cv, rng, enough=len(bags), shared=bags.shared)
        enough = folds and self.freedom_ >= ENOUGH_FREEDOM * (design.width + 1)
        if not enough or bags.n_bagged > _CLASSES_ROWS or (1 + len(folds)) * at.start.size > MOST_KEPT:
            return None
        free = maximise_classes(design, prior_of_classes(bags), penalty, start=at.start)
        found = [free]
        for fold in folds:
            train = design.take(fold.train)
            found.append(maximise_classes(train, prior_of_classes(train.bags), penalty, start=free.start))
        coef = [one.w / design.scale for one in found]
        each = [np.column_stack([w, one.intercept - w @ design.mean]) for w, one in zip(coef, found, strict=True)]
        return ClassErrors(each[0], np.array(each[1:]))

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

    def _decision(self, X: Floats) -> Floats:
        return super()._predict_mean(X)

    def _contributions(self, X: Floats) -> Contributions:
        return linear_contributions(self, X, LOG_ODDS if self.coef_.ndim == 1 else LOGITS)

    def _predict_mean(self, X: Floats) -> Floats:
        scores = super()._predict_mean(X)
        check_finite_features(scores, X, getattr(self, "feature_names_in_", None))  # h would hide infinity
        return np.asarray(softmax(scores, axis=1) if scores.ndim == 2 else expit(scores))
