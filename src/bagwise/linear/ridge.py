r"""Ridge regression on bags in closed form.

For a linear :math:`h = w \cdot x + b` the debiased square loss is least squares on bag centroids: rows
:math:`\sqrt{k_j}(\bar x_j - \mu)`, targets :math:`\sqrt{k_j}(\alpha_j - p)`; the intercept :math:`b = p - w \cdot
\mu` takes the mean term to zero. One pass over X makes the bag sums; the rest sees second moments, d × d numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import linalg

from bagwise.bags import Bags
from bagwise.base import BagRegressor
from bagwise.evaluation import BagsNotRandomWarning
from bagwise.gains import tell_gain
from bagwise.linear.memory import RowMoments, Weighing
from bagwise.linear.moments import BagSums, Moments, coefficients
from bagwise.linear.probabilities import EDGE, SigmoidPredictor, Trust, may_be_steeper, of_all_bags, some_bags
from bagwise.linear.ridge_fit import LEAST_VARIANCE, RidgeFit
from bagwise.linear.values import ValuePredictor
from bagwise.log_odds import prior_of
from bagwise.nonnegative import NONNEGATIVE
from bagwise.updatable import UpdatableClassifier
from bagwise.utils.parameters import Constraint, Parameter
from bagwise.utils.typing import Floats

_RATES_ALPHAS = np.logspace(-4, 1, 11)


class BagRidgeClassifier(SigmoidPredictor, RidgeFit, UpdatableClassifier):
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
    feature_means_ : array, shape (features,)
        The mean row, which `explain` measures from.
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
            rows, weight = of_all_bags(X, bags)
            h, mean = self._linear(rows), prior_of(bags)
            if how is not None and not how.apart:  # bags that are gone count, too
                mean = float(np.clip(np.average(h, weights=weight), EDGE, 1 - EDGE))
            self.sigmoid_, gains = trust.sigmoid(without, h, mean, weight=weight, steeper=steeper)
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
            slope = about.xy[:, 0] / max(float(about.yy[0]) - noise, LEAST_VARIANCE)
            target = vectors.T @ (inverse * slope * spread)
            shrunk = target[:, None] / np.maximum(values[:, None] + self.alphas_, LEAST_VARIANCE)
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
        said = (
            f"the label-free risk is {risk:.3g}, above the {constant:.3g} of the mean label, which is impossible for "
        )
        said += "random bags: their formation is likely another one; ask diagnose, or leave "
        warnings.warn(BagsNotRandomWarning(said, Parameter("formation"), " at auto."), stacklevel=7)


@dataclass(kw_only=True, eq=False, repr=False)
class BagRidgeRegressor(ValuePredictor, RidgeFit, BagRegressor):
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

    _constraints: ClassVar[Mapping[str, Constraint]] = {**RidgeFit._constraints, "nonnegative": NONNEGATIVE}

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
