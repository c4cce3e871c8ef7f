r"""Projected stochastic gradient descent on bags: the paper's Algorithm 2.

One step per bag on :math:`\ell(w, z_j) = k_j\bigl(w \cdot c_j - a_j\bigr)^2 + (w \cdot \mu - \mu_y)^2`, with the
centred centroid :math:`c_j = \bar x_j - \mu` and :math:`a_j = \alpha_j - \mu_y`; bags with :math:`\|c_j\| >
\theta_j \rho_x` are skipped; w is projected on the ball of radius :math:`\rho_w`; the result is the average of the
iterates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bagwise import means
from bagwise.bags import Bags
from bagwise.base import BagClassifier, BagEstimator, BagRegressor
from bagwise.data.rows import Reads
from bagwise.explanation.contributions import PROBABILITY, Contributions, linear_contributions
from bagwise.gains import tell_gain
from bagwise.linear.iterates import average_iterate
from bagwise.linear.moments import BagSums
from bagwise.linear.probabilities import SigmoidPredictor, Trust, may_be_steeper, of_all_bags, some_bags
from bagwise.linear.values import ValuePredictor
from bagwise.log_odds import prior_of
from bagwise.nonnegative import NONNEGATIVE
from bagwise.numeric import LinearPredictor, check_finite_features
from bagwise.theory.sgd import sgd_constants
from bagwise.utils.parameters import FLAG, NONE, Constraint, ParameterError, number, several, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Booleans, Floats

_FOLDS, _FEWEST = 5, 10  # of bags that are held out in turn, and bags from which on they are


@dataclass(kw_only=True, eq=False, repr=False)
class _SGDFit(LinearPredictor, BagEstimator):
    """The fit of both estimators."""

    reads: ClassVar[Reads] = Reads(weights=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "rho_w": number(above=0),
        **dict.fromkeys(("rho_x", "rho_y", "risk_bound"), number(above=0) | NONE),
        **dict.fromkeys(("mu_x", "mu_y"), several(number(), "one or more finite numbers") | NONE),
        "n_passes": whole(1),
        **dict.fromkeys(("as_published", "fit_intercept"), FLAG),
    }

    formation: str = "auto"
    as_published: bool = False
    rho_w: float = 10.0
    rho_x: float | None = None
    rho_y: float | None = None
    risk_bound: float | None = None
    mu_x: ArrayLike | None = None
    mu_y: ArrayLike | None = None
    n_passes: int = 1
    fit_intercept: bool = True
    random_state: RandomState = None

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        self._tell_formation(X, bags)
        self.n_iter_ = self.n_passes
        if self.as_published:
            self.gain_ = self.gain_error_ = float("nan")
            self._fit_published(X, bags)
        else:
            self._fit_standardised(X, bags)

    def _fit_standardised(self, X: Floats, bags: Bags) -> None:
        """From p on, in standardised features, with a step by their mean squared norm; the last half is averaged."""
        rng, d = generator(self.random_state), X.shape[1]
        sums = BagSums.of(X, bags, min(_FOLDS, len(bags)), rng, getattr(self, "feature_names_in_", None))
        root = np.sqrt(bags.size)[:, None]
        scale = np.sqrt((sums.deviation**2 / root**2).mean(axis=0))
        inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1.0), 0.0)
        centroids = sums.deviation / root * inverse
        norm = max(float(np.einsum("ij,ij->", centroids, centroids)) / len(bags), np.finfo(float).tiny)
        self.step_, self.n_skipped_ = 0.25 / norm, 0
        centre: Floats = np.zeros(d)

        def run(chosen: Booleans) -> tuple[Floats, Floats]:
            """Weights (d, outputs) of x itself, and p."""
            prior = bags.size[chosen] @ bags.outputs[chosen] / bags.size[chosen].sum()
            z, found = centroids[chosen], np.zeros((d, len(prior)))
            for c, p in enumerate(prior):
                t, last = (root[:, 0] * (bags.outputs[:, c] - p))[chosen], centre
                for _ in range(self.n_passes):
                    order = rng.permutation(len(t))
                    late = (np.arange(len(t)) >= len(t) // 2).astype(float)
                    total, last = average_iterate(
                        z[order], t[order], centre, 0.0, weights=late, start=last, step=self.step_, radius=np.inf
                    )
                found[:, c] = total / late.sum()
            return inverse[:, None] * found, prior

        coef, prior = run(np.ones(len(bags), dtype=bool))
        self.feature_means_ = sums.origin
        self._keep(coef.T, prior - sums.origin @ coef, classes=bags.proportion.ndim == 2)
        gains = self._trusted(X, sums, rng, lambda f: run(sums.fold != f)[0])
        self.gain_, self.gain_error_ = tell_gain(gains, stacklevel=6)

    def _trusted(
        self, X: Floats, sums: BagSums, rng: np.random.Generator, without: Callable[[int], Floats]
    ) -> Floats | None:
        """Gains of held-out bags, if they can be told.  without: weights (d, outputs) learned without a fold."""
        return None

    def _fit_published(self, X: Floats, bags: Bags) -> None:
        """Algorithm 2, with the constants of its theorem."""
        sums = bags.sum_table(X)
        check_finite_features(sums, X, getattr(self, "feature_names_in_", None))
        root = np.sqrt(bags.size)[:, None]
        mean = _given("mu_x", self.mu_x, sums.sum(axis=0) / bags.n_people)
        prior = _given("mu_y", self.mu_y, np.atleast_1d(means.prior(bags)))
        self.feature_means_ = mean
        centroids = sums / root - root * mean  # √k_j c_j
        targets = root * (bags.outputs - prior)
        # Rows in no bag are not looked at.
        self.rho_x_ = self.rho_x or float(np.sqrt(np.einsum("ij,ij->i", X, X, dtype=float)[bags.order].max()))
        if self.fit_intercept:  # a feature that is always 1
            mean, self.rho_x_ = np.append(mean, 1.0), float(np.hypot(self.rho_x_, 1))
            centroids = np.column_stack([centroids, np.zeros(len(bags))])
        self.rho_x_ = max(self.rho_x_, np.finfo(float).tiny ** 0.25)  # all features 0: no division by it
        largest = max(float(np.abs(bags.proportion).max()), np.finfo(float).tiny)
        self.rho_y_ = self.rho_y or (1.0 if isinstance(self, BagClassifier) else largest)
        self.risk_bound_ = self.risk_bound or self._constant_risk(bags, targets, prior)
        bounds = {"rho_w": self.rho_w, "rho_x": self.rho_x_, "rho_y": self.rho_y_, "risk_bound": self.risk_bound_}
        constants = sgd_constants(bags.size, **bounds)
        self.theta_, self.zeta_, self.step_ = constants.theta, constants.zeta, constants.step
        # The paper's listing calls this threshold γ, its theorem θ.
        kept = np.sqrt(np.einsum("ij,ij->i", centroids, centroids)) / root[:, 0] <= self.theta_ * self.rho_x_
        self.n_skipped_ = int((~kept).sum())
        weights = self._passes(centroids, targets, mean, prior, kept)
        if not self.fit_intercept:
            weights = np.column_stack([weights, np.zeros(len(weights))])
        self._keep(weights[:, :-1], weights[:, -1], classes=bags.proportion.ndim == 2)

    def _passes(self, centroids: Floats, targets: Floats, mean: Floats, prior: Floats, kept: Booleans) -> Floats:
        """(outputs, features) averages over the iterates of the last pass."""
        rng = generator(self.random_state)
        last, total = np.zeros((2, targets.shape[1], len(mean)))
        for _ in range(self.n_passes):
            order = rng.permutation(len(kept))
            # A skipped bag repeats the iterate before it: it adds one to the weight of the next bag that is kept.
            place = np.flatnonzero(kept[order])
            used, repeats = order[place], np.diff(place, prepend=-1).astype(float)
            z, t = centroids[used], targets[used]
            ball = {"step": self.step_, "radius": self.rho_w}
            for c, p in enumerate(prior.tolist()):
                total[c], last[c] = average_iterate(z, t[:, c], mean, p, weights=repeats, start=last[c], **ball)
            total += (len(order) - repeats.sum()) * last
        return total / len(kept)

    def _constant_risk(self, bags: Bags, targets: Floats, prior: Floats) -> float:
        """A bound on the best risk: that of the constant prediction p, or of 0 where p is not in the class."""
        variance = (targets**2).sum(axis=0) / (len(bags) - 1) - bags.noise_per_row.mean()
        constant = self.fit_intercept & (np.abs(prior) <= self.rho_w)
        risk = np.maximum(variance, 0) + np.where(constant, 0.0, prior**2)
        return max(float(risk.max()), np.finfo(float).eps * self.rho_y_**2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # One pass with the theorem's step over a small table does not get far.
        (tags.classifier_tags or tags.regressor_tags).poor_score = True
        return tags


def _given(name: str, value: ArrayLike | None, estimate: Floats) -> Floats:
    """A mean that was given, checked, or else its estimate."""
    if value is None:
        return estimate
    try:
        given = np.atleast_1d(np.asarray(value, dtype=float))
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.shape != estimate.shape or not np.isfinite(given).all():
        raise ParameterError(name, f"must hold {len(estimate)} finite numbers, got {value!r}.")
    return given


class BagSGDClassifier(SigmoidPredictor, _SGDFit, BagClassifier):
    r"""Linear classifier from bags by stochastic gradient descent, one step per bag.

    Steps begin at the mean label, in features that are centred and standardised, with a quarter of the inverse of their
    mean squared norm; the iterates of the last half are averaged, and a sigmoid that held-out bags choose makes
    probabilities, as in `BagRidgeClassifier`, which solves the same problem exactly. Several classes are learned one by
    one. `as_published` gives the paper's Algorithm 2 instead, whose step and truncation are those of the theorem (see
    `sgd_constants`), made for its guarantee and small in practice; the parameters from `rho_w` to `mu_y` and
    `fit_intercept` are its own.

    Parameters
    ----------
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about: said in `formation_`; the method is made for random bags.
    as_published : bool
        The paper's Algorithm 2, as it stands.
    rho_w : float
        Radius of the ball the weights (intercept included) are kept in.
    rho_x : float, optional
        Bound on the length of a row of X; None takes the largest row.
    rho_y : float, optional
        Bound on \|y\|; None takes 1.
    risk_bound : float, optional
        L*, a bound on the risk of the best model; None takes that of the constant prediction, estimated from bags.
    mu_x, mu_y : array, shape (features,), and float or array, shape (classes,), optional
        E[x] and E[y]; None estimates them from the bags.
    n_passes : int
        Passes over the bags; the theorem is about one. The average is over the last pass.
    fit_intercept : bool
        Add a feature that is always 1.
    random_state : int, Generator or None
        For the order of the bags.

    Attributes
    ----------
    coef_, intercept_ : array and float, or arrays
        As in `BagRidgeClassifier`.
    feature_means_ : array, shape (features,)
        The mean row, which `explain` measures from.
    sigmoid_ : array, shape (2,), or None
        As in `BagRidgeClassifier`; None too with fewer than ten bags, and for Algorithm 2.
    formation_ : Told
        The formation, and why.
    gain_, gain_error_ : float
        Log-likelihood of a held-out bag over that of the mean label, and its standard error; NaN where it is unknown.
    step_ : float
        The step.
    n_iter_ : int
        Passes over the bags.
    n_skipped_ : int
        How many bags Algorithm 2 skipped, their centroid being too far out; 0 without it.
    theta_, zeta_, rho_x_, rho_y_, risk_bound_
        The constants used, of Algorithm 2 only.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(64000, 2))
    >>> y = (X[:, 0] + rng.normal(size=64000) > 0).astype(int)
    >>> ids = bw.random_bags(64000, size=32, random_state=0)
    >>> model = BagSGDClassifier(n_passes=5, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> model.coef_.round(1), round(model.intercept_, 1)
    (array([0.4, 0. ]), 0.5)
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **_SGDFit._constraints,
        "mu_y": several(number(least=0, most=1), "one or more numbers between 0 and 1") | NONE,
    }

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        self.sigmoid_ = None
        super()._fit_bags(X, bags)

    def _trusted(
        self, X: Floats, sums: BagSums, rng: np.random.Generator, without: Callable[[int], Floats]
    ) -> Floats | None:
        bags = sums.bags
        if bags.proportion.ndim == 2 or len(bags) < _FEWEST:
            return None
        some = some_bags(bags, X.shape[1], rng)
        models = [without(f) for f in range(int(sums.fold.max()) + 1)]
        trust, steeper = Trust(X, bags.take(some), sums.fold[some]), may_be_steeper(self.formation_.name, len(bags))
        rows, weight = of_all_bags(X, bags)
        self.sigmoid_, gains = trust.sigmoid(models, self._linear(rows), prior_of(bags), weight=weight, steeper=steeper)
        return gains

    def _predict_mean(self, X: Floats) -> Floats:
        return self._linear(X) if self.as_published else super()._predict_mean(X)

    def _contributions(self, X: Floats) -> Contributions:
        """As published, to h as it is, which `predict_proba` clips."""
        return linear_contributions(self, X, PROBABILITY) if self.as_published else super()._contributions(X)


@dataclass(kw_only=True, eq=False, repr=False)
class BagSGDRegressor(ValuePredictor, _SGDFit, BagRegressor):
    r"""Linear regression of real labels from bags by gradient steps. Parameters and attributes as `BagSGDClassifier`.

    Parameters
    ----------
    rho_y : float, optional
        Bound on the individual \|y\|; None takes the largest \|bag mean\|, which may be too small: give it if known.
    nonnegative : bool or "auto"
        As for `BagRidgeRegressor`.

    Attributes
    ----------
    nonnegative_, factor_ : bool, float
        As of `BagRidgeRegressor`.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(64000, 2))
    >>> y = X[:, 0] - X[:, 1] + 1
    >>> ids = bw.random_bags(64000, size=32, random_state=0)
    >>> model = BagSGDRegressor(n_passes=20, rho_y=3, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> model.coef_.round(1), round(model.intercept_, 1)
    (array([ 1., -1.]), 1.0)
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {**_SGDFit._constraints, "nonnegative": NONNEGATIVE}

    nonnegative: bool | str = "auto"

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        super()._fit_bags(X, bags)
        self.__dict__.pop("nonnegative_", None)  # of an earlier fit
        rows = bags.order if bags.n_bagged < len(X) or bags.weight is not None else slice(None)
        self.settle_sign(X, bags.size, bags.proportion, bags.noise_variance, rows=rows, weight=bags.weight)
