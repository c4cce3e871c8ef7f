r"""Ridge regression on bags in closed form.

For a linear :math:`h = w \cdot x + b` the debiased square loss is least squares on bag centroids: rows
:math:`\sqrt{k_j}(\bar x_j - \mu)`, targets :math:`\sqrt{k_j}(\alpha_j - p)`; the intercept :math:`b = p - w \cdot
\mu` takes the mean term to zero. One pass over X makes the bag sums; the rest sees second moments, d × d numbers.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import linalg

from bagwise.bags import Bags
from bagwise.base import BagClassifier, BagRegressor, LinearPredictor, check_finite_features
from bagwise.data.rows import Reads
from bagwise.formation import Told
from bagwise.gains import tell_gain
from bagwise.linear.memory import TOGETHER, RidgeMemory, RowMoments, Weighing
from bagwise.linear.moments import BagSums, Moments, coefficients, label_variance, solve_ridge
from bagwise.linear.probabilities import EDGE, SigmoidPredictor, Trust, may_be_steeper, some_bags
from bagwise.linear.values import ValuePredictor
from bagwise.nonnegative import NONNEGATIVE
from bagwise.updatable import Updatable, UpdatableClassifier
from bagwise.updates import OLD_FOLDER, CannotUpdateError, Forgetting, Step, Update
from bagwise.utils.parameters import NONE, Constraint, check_parameters, number, several, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats

_ALPHAS = np.logspace(-5, 3, 33)
_SCALINGS = np.array([0.0, 0.5, 1.0])
_RATES_ALPHAS = np.logspace(-4, 1, 11)
_LEAST_VARIANCE = 1e-12


@dataclass(kw_only=True, eq=False, repr=False)
class _RidgeFit(LinearPredictor, Updatable):
    """The fit of both ridge estimators.

    memory_: the moments of all bags so far, None where they are too many to be kept.
    """

    reads: ClassVar[Reads] = Reads(moments=True, weights=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "alphas": several(number(least=0), "one or more finite numbers of at least 0") | NONE,
        "scaling": number(least=0, most=1) | NONE,
        "cv": whole(2),
    }

    formation: str = "auto"
    alphas: ArrayLike | None = None
    scaling: float | None = None
    cv: int = 5
    random_state: RandomState = None

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        self._learn(X, bags, None, 1.0)

    def _update_bags(self, X: Floats, bags: Bags, forgetting: Forgetting) -> Step:
        return self._added(self._learn(X, bags, self.memory_, forgetting))

    @staticmethod
    def _added(how: Weighing) -> Step:
        return Step("moments of bags added to those of the old ones", True, how.weight, how.apart)

    def _spread_of(self, whole: Moments, noise: float) -> float:
        """The variance of labels, as moments tell it."""
        if isinstance(self, BagClassifier):
            return label_variance(whole.mean_y)
        varied = float((whole.yy - whole.rows * whole.mean_y**2).mean()) / whole.bags - noise
        return max(varied, _LEAST_VARIANCE)

    def _learn(self, X: Floats, bags: Bags, old: RidgeMemory | None, forgetting: Forgetting) -> Weighing:
        """Solve for bags, and for the old ones; how these count."""
        names, rng = getattr(self, "feature_names_in_", None), generator(self.random_state)
        folds, origin = (min(int(self.cv), len(bags)), None) if old is None else (len(old.parts), old.origin)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is found below, with the column's name
            sums = BagSums.of(X, bags, folds, rng, names, origin)
            parts = sums.moments(np.ones(len(bags)))
            whole = sum(parts[1:], parts[0])
            check_finite_features(whole.xx, X, names)
        if old is None:
            self._tell_formation(X, bags)
        spread = sums.label_variance(labels=isinstance(self, BagClassifier))
        grouped = self.formation_.name in ("features", "effects")
        count = sums.counts(spread)
        if bags.noise_variance is not None:
            parts = sums.moments(count)
        how = TOGETHER if old is None else old.weigh(parts, self._penalties[0], self.scaling_, spread, forgetting)
        parts = self._solve_beside(old, parts, sums, count, how)
        if grouped and np.ptp(bags.size) > 0:
            count = sums.counts(spread, np.atleast_2d(self.coef_).T)
            parts = self._solve_beside(old, sums.moments(count), sums, count, how)
        if len(parts) == 1 and old is not None:  # nothing was ever held out
            self._measure_moments()
        else:
            self._measure(X, sums, parts, spread, rng, None if old is None else how)
        return how

    def _solve_beside(
        self, old: RidgeMemory | None, parts: list[Moments], sums: BagSums, count: Floats, how: Weighing
    ) -> list[Moments]:
        """Solve for the moments of bags and the old ones, which are kept and returned."""
        noise, own = self._noise(sums.bags, count), None
        if old is not None:
            parts, noise = old.beside(parts, noise, how)
            own = old.own_rows
        self._solve(parts, sums.origin, noise, classes=sums.bags.proportion.ndim == 2)
        self._remember(parts, sums.origin, noise, own)
        return parts

    def _remember(self, parts: list[Moments], origin: Floats, noise: float, own_rows: RowMoments | None) -> None:
        memory = RidgeMemory(tuple(parts), origin, noise, own_rows)
        self.memory_ = memory if memory.small else None

    @staticmethod
    def _noise(bags: Bags, count: Floats) -> float:
        """What declared noise adds to the mean over bags, as they count, of every risk."""
        return float(count @ bags.noise_per_row / count.sum()) * int(bags.outputs.shape[1])

    @abstractmethod
    def _measure(
        self,
        X: Floats,
        sums: BagSums,
        parts: list[Moments],
        spread: float,
        rng: np.random.Generator,
        how: Weighing | None,
    ) -> None:
        """Set the gains of held-out bags, and what else they tell.  how: bags that are gone count; None without any."""

    def _without(self, parts: list[Moments], scaling: float, alphas: Floats) -> list[Floats]:
        """Weights (alphas, d, c) of the fits without each of the folds."""
        whole = sum(parts[1:], parts[0])
        return [coefficients(whole - part, scaling, whole.variance, alphas) for part in parts]

    def n_folds(self, n_bags: int) -> int:
        """Into how many folds `n_bags` bags are to be cut for `fit_moments`; one where there is nothing to choose."""
        check_parameters(self, self._constraints)
        return min(int(self.cv), n_bags) if self._penalties[0].size * self._penalties[1].size > 1 else 1

    def fit_moments(self, parts: list[Moments], origin: Floats, *, noise: float = 0.0) -> Self:
        """Learn from moments of folds of bags, as an engine may compute them, instead of from rows.

        Parameters
        ----------
        parts : list of Moments
            One for each of `n_folds` folds, with x measured from `origin`.
        origin : array, shape (features,)
            About the mean of the features.
        noise : float
            Mean over bags of :math:`s_j^2/k_j`, times the outputs, which declared noise adds to every risk.

        Returns
        -------
        Self
            The estimator itself.
        """
        check_parameters(self, self._constraints)
        self.n_features_in_, outputs = len(origin), len(parts[0].y)
        if isinstance(self, BagClassifier):
            self.classes_ = np.arange(max(outputs, 2))
        self._solve(parts, origin, noise, classes=outputs > 1)
        self._remember(parts, origin, noise, None)
        whole = sum(parts[1:], parts[0])
        self.formation_ = self._told_by_moments(whole, noise)
        self._measure_moments()
        return self

    def update_moments(self, parts: list[Moments], *, noise: float = 0.0, forgetting: Forgetting = 1.0) -> Self:
        """Learn from moments of further bags, in as many folds as were fitted to, beside those of the old ones.

        Parameters
        ----------
        parts, noise
            As for `fit_moments`, with x measured from the same origin, `memory_.origin`.
        forgetting : float or "auto"
            As for `partial_fit`.

        Returns
        -------
        Self
            The estimator itself.
        """
        old = self.memory_
        if old is None:
            raise CannotUpdateError(f"{OLD_FOLDER}.")
        spread = self._spread_of(sum(parts[1:], parts[0]), noise)
        how = old.weigh(parts, self._penalties[0], self.scaling_, spread, forgetting)
        joined, noise = old.beside(parts, noise, how)
        self._solve(joined, old.origin, noise, classes=len(parts[0].y) > 1)
        self._remember(joined, old.origin, noise, old.own_rows)
        self._measure_moments()
        rows, bags = (round(sum(getattr(part, name) for part in parts)) for name in ("rows", "bags"))
        self.update_ = Update(bags, rows, *self._added(how), *[float("nan")] * 4)
        return self

    def _told_by_moments(self, whole: Moments, noise: float) -> Told:
        """As asked for; or whether proportions vary as in random bags, which is all that moments show."""
        if self.formation != "auto":
            return Told(self.formation, "as asked for")
        if isinstance(self, BagClassifier):
            varied = float((whole.yy - whole.rows * whole.mean_y**2).mean()) / whole.bags - noise / len(whole.y)
            ratio = varied / label_variance(whole.mean_y)
            if ratio > 1 + 5 * np.sqrt(2 / whole.bags):
                said = f"proportions vary {ratio:.3g} times as much as in random bags; moments alone tell no more"
                return Told("features", said, ("rates", "effects"))
        return Told("random", "moments alone do not tell: random bags are assumed", ("rates", "features", "effects"))

    def _measure_moments(self) -> None:
        """Set what only rows tell to unknown."""
        self.gain_ = self.gain_error_ = float("nan")

    def _solve(self, parts: list[Moments], origin: Floats, noise: float, *, classes: bool) -> None:
        self.alphas_, self.scalings_ = self._penalties
        solution = solve_ridge([part for part in parts if part.bags], self.alphas_, self.scalings_, noise)
        coef, intercept, self.alpha_, self.scaling_, self.risks_ = solution
        self._keep(coef.T, intercept - origin @ coef, classes=classes)

    @property
    def _penalties(self) -> tuple[Floats, Floats]:
        """The alphas and the scalings to choose from."""
        alphas = _ALPHAS if self.alphas is None else np.atleast_1d(np.asarray(self.alphas, dtype=float))
        return alphas, _SCALINGS if self.scaling is None else np.array([float(self.scaling)])


class BagRidgeClassifier(SigmoidPredictor, _RidgeFit, UpdatableClassifier):
    r"""Linear classifier from bags, in closed form.

    Minimises the debiased square loss of :math:`h(x) = w \cdot x + b` plus a ridge penalty on w; several classes by the
    square form summed over them. Bags count for what they are worth: less with declared noise or, where they are
    unequal, with effects. Where only rates differ (`rates`), :math:`E[y x] = p E[x] + p(1-p)\,b`, b the slope of bag
    means on proportions, and the covariance of rows give least squares on single rows instead.

    A sigmoid through h that held-out bags choose makes probabilities, with mean p; with fewer than 100 bags, or bags
    grouped by features, it is not steeper than h. A model that held-out bags do not prefer to p is shrunken towards p.
    With several classes, or moments in place of rows, there is none (`sigmoid_` is None): h is then kept between 0.001
    and 0.999, and its log loss may be worse than that of p.

    Parameters
    ----------
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about (see `bagwise.formation`); "auto" lets the bags tell.
    alphas : float or sequence of float, optional
        Penalties to choose from by cross-validation over bags, on the label-free risk where bags are random and by the
        likelihood of held-out bags elsewhere; a number fixes it; None takes 33 values from 1e-5 to 1e3.
    scaling : float, optional
        How far the penalty adapts to the spread of each feature: 0 not at all, 1 as if features were standardised; None
        chooses between 0, ½ and 1 with α.
    cv : int
        Number of folds of bags.
    random_state : int, Generator or None
        For the folds.

    Attributes
    ----------
    coef_, intercept_ : array, shape (features,) or (classes, features), and float or array, shape (classes,)
        The weights w and the intercept b.
    alpha_, scaling_, alphas_, scalings_ : float, float, array, array
        The penalty chosen, and those that were tried.
    risks_ : array, shape (scalings, alphas)
        Cross-validated risk of each penalty, right for random bags; NaN where one was tried, or for `rates`.
    sigmoid_ : array, shape (2,), or None
        Slope and offset, by h, of the log odds that `predict_proba` gives.
    memory_ : RidgeMemory or None
        What `partial_fit` adds to, moments of all bags so far; None where they are too much to be kept. `update_` then
        says what the last update came to.
    formation_ : Told
        The formation that was used, and why; moments alone hardly tell.
    gain_, gain_error_ : float
        Log-likelihood of a held-out bag over that of the mean label, and its standard error; NaN from moments.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3200, 2))
    >>> y = (X[:, 0] + rng.normal(size=3200) > 0).astype(int)
    >>> ids = bw.random_bags(3200, size=32, random_state=0)
    >>> model = BagRidgeClassifier(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> model.coef_.round(1)
    array([ 0.2, -0. ])
    """

    def _measure_moments(self) -> None:
        super()._measure_moments()
        self.sigmoid_ = None

    def _measure(
        self,
        X: Floats,
        sums: BagSums,
        parts: list[Moments],
        spread: float,
        rng: np.random.Generator,
        how: Weighing | None,
    ) -> None:
        bags, formation, self.sigmoid_ = sums.bags, self.formation_.name, None
        some = some_bags(bags, X.shape[1], rng)
        trust = Trust(X, bags.take(some), sums.fold[some])
        if formation == "rates" and bags.proportion.ndim == 1:
            without = self._fit_rates(trust, sums, parts, spread, how)
        else:
            if formation != "random":
                self._choose_by_likelihood(trust, sums, parts)
            without = [one[0] for one in self._without(parts, self.scaling_, np.array([self.alpha_]))]
        if bags.proportion.ndim == 2:
            gains = trust.gains(without)
        else:
            steeper = may_be_steeper(formation, round(sum(part.bags for part in parts)))
            h = self._linear(trust.rows)
            mean = None if how is None or how.apart else float(np.clip(h.mean(), EDGE, 1 - EDGE))
            self.sigmoid_, gains = trust.sigmoid(without, h, steeper=steeper, mean=mean)
        labels = bags.weight is not None and bags.equal_size == 1  # alike for all whom a row stands for
        if formation == "random" and not labels and not np.isnan(self.risks_).all():
            _check_risk(float(np.nanmin(self.risks_)), spread * bags.outputs.shape[1], bags.noise_per_row)
        self.gain_, self.gain_error_ = tell_gain(gains, stacklevel=6)

    def _choose_by_likelihood(self, trust: Trust, sums: BagSums, parts: list[Moments]) -> None:
        """Take the penalty under which held-out bags are likeliest, where the risk of random bags says little."""
        alphas = self.alphas_ if self.alphas is not None else self.alphas_[::2]
        if len(parts) < 2 or len(alphas) * len(self.scalings_) < 2:
            return
        tried = [(float(scaling), float(alpha)) for scaling in self.scalings_ for alpha in alphas]
        by_scaling = (self._without(parts, float(scaling), alphas) for scaling in self.scalings_)
        models = [np.concatenate(fold) for fold in zip(*by_scaling, strict=True)]
        self.scaling_, self.alpha_ = tried[trust.likeliest(models)]
        whole = sum(parts[1:], parts[0])
        coef = coefficients(whole, self.scaling_, whole.variance, np.array([self.alpha_]))[0]
        intercept = whole.mean_y - (whole.mean_x + sums.origin) @ coef
        self._keep(coef.T, intercept, classes=len(intercept) > 1)

    def _fit_rates(
        self, trust: Trust, sums: BagSums, parts: list[Moments], spread: float, how: Weighing | None
    ) -> list[Floats]:
        """Least squares on single rows, the penalty under which held-out bags are likeliest; the fits without folds."""
        whole, rows = sum(parts[1:], parts[0]), trust.rows - sums.origin
        own, centre = RowMoments.of(rows, trust.bags), sums.origin
        covariance: Floats = own.xx / own.rows
        if how is not None and self.memory_ is not None:
            own, new = own.beside(self.memory_.own_rows, how.weight), own.mean
            covariance, centre = own.covariance, sums.origin + (new if how.apart else own.mean)
        scale = np.sqrt(np.diag(covariance))
        inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1.0), 0.0)
        values, vectors = linalg.eigh(covariance * np.outer(inverse, inverse))
        self.alphas_ = _RATES_ALPHAS if self.alphas is None else self._penalties[0]
        noise = whole.bags * (
            self._noise(sums.bags, sums.counts(spread)) if self.memory_ is None else self.memory_.noise
        )

        def weights(moments: Moments, noise: float) -> Floats:
            """The fits (alphas, d, 1) with each penalty."""
            about = moments.about(moments.mean_x, moments.mean_y)
            slope = about.xy[:, 0] / max(float(about.yy[0]) - noise, _LEAST_VARIANCE)
            target = vectors.T @ (inverse * slope * spread)
            shrunk = target[:, None] / np.maximum(values[:, None] + self.alphas_, _LEAST_VARIANCE)
            return np.asarray(inverse[:, None] * (vectors @ shrunk)).T[:, :, None]

        without = [weights(whole - part, noise * (1 - part.bags / whole.bags)) for part in parts]
        best = trust.likeliest(without)
        self.alpha_, self.scaling_, self.scalings_ = float(self.alphas_[best]), 1.0, np.ones(1)
        self.risks_ = np.full((1, len(self.alphas_)), np.nan)
        coef = weights(whole, noise)[best]
        self._keep(coef.T, whole.mean_y - centre @ coef, classes=False)
        if self.memory_ is not None:
            self.memory_ = replace(self.memory_, own_rows=own)
        return [w[best] for w in without]


def _check_risk(risk: float, constant: float, noise: Floats) -> None:
    """Warn of a risk that random bags cannot have.  noise: (m,) what declared noise adds to the loss of each bag."""
    error = np.sqrt(2 * np.mean((constant + noise) ** 2) / len(noise))  # of the mean of squares of normal numbers
    if risk > constant + 5 * error:
        warnings.warn(
            f"the label-free risk is {risk:.3g}, above the {constant:.3g} of the mean label, which is impossible for "
            "random bags: their formation is likely another one; see bagwise.diagnose, or leave formation to 'auto'.",
            stacklevel=7,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class BagRidgeRegressor(ValuePredictor, _RidgeFit, BagRegressor):
    """Linear regression of real labels from bags, in closed form. Parameters and attributes as `BagRidgeClassifier`.

    Gains are of normal likelihoods. Where proportions of bags differ for other reasons than their features (`rates`),
    its weights are too large.

    Parameters
    ----------
    nonnegative : bool or "auto"
        Whether labels are never negative; "auto" takes them for that where no bag reports less than 0. A prediction
        below 0 is 0 then, and all are multiplied by `factor_`, so that their mean in the training rows is p. Moments
        alone, as `fit_moments` has them, do not tell of rows: `settle_sign` does.

    Attributes
    ----------
    nonnegative_, factor_ : bool, float
        Whether labels were taken for never negative, and the factor.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3200, 2))
    >>> y = 3 * X[:, 0] - X[:, 1] + 10 + rng.normal(size=3200)
    >>> ids = bw.random_bags(3200, size=32, random_state=0)
    >>> model = BagRidgeRegressor(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> model.coef_.round(0), round(model.intercept_)
    (array([ 3., -1.]), 10)
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {**_RidgeFit._constraints, "nonnegative": NONNEGATIVE}

    nonnegative: bool | str = "auto"

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        self.__dict__.pop("nonnegative_", None)  # of an earlier fit
        super()._fit_bags(X, bags)

    def fit_moments(self, parts: list[Moments], origin: Floats, *, noise: float = 0.0) -> Self:
        """Learn from moments instead of rows; predictions may be negative until `settle_sign` has seen some.

        Parameters
        ----------
        parts, origin, noise
            As for `BagRidgeClassifier`.

        Returns
        -------
        Self
            The estimator itself.
        """
        self.__dict__.pop("nonnegative_", None)
        return super().fit_moments(parts, origin, noise=noise)

    def _more_bags(self, y: Any, bags: Any, n_rows: int) -> Bags:
        given = self._given_bags(y, bags, n_rows)
        self._check_bags(given)
        return given

    def _measure(
        self,
        X: Floats,
        sums: BagSums,
        parts: list[Moments],
        spread: float,
        rng: np.random.Generator,
        how: Weighing | None,
    ) -> None:
        bags, gains = sums.bags, np.zeros(len(sums.bags))
        whole, root = sum(parts[1:], parts[0]), np.sqrt(sums.bags.size)
        for f, (coef,) in enumerate(self._without(parts, self.scaling_, np.array([self.alpha_]))):
            out, train = sums.fold == f, whole - parts[f]
            intercept = train.mean_y - train.mean_x @ coef
            target = root[out] * bags.proportion[out]
            rest = target - sums.deviation[out] @ coef[:, 0] / root[out] - root[out] * intercept[0]
            constant = target - root[out] * train.mean_y[0]
            gains[out] = (constant**2 - rest**2) / (2 * (spread + bags.noise_per_row[out]))
        rows = bags.order if bags.n_bagged < len(X) or bags.weight is not None else slice(None)
        self.settle_sign(X, bags.size, bags.proportion, bags.noise_variance, rows=rows, weight=bags.weight)
        self.gain_, self.gain_error_ = tell_gain(gains, stacklevel=6)
