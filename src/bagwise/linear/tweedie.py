r"""Log-linear regression of real labels that are never negative, on the sums of their bags.

With :math:`h_i = e^{b + w \cdot x_i}`, b such that E[h] = p, and the variance of a label taken for
:math:`\varphi h^q`, the sum of bag j has the variance :math:`V_j = \varphi \sum_{i \in j} h_i^q + s_j^2`. Steps of
Gauss and Newton make :math:`\sum_j R_j^2 / V_j + \lambda |w|^2` small, :math:`V_j` being held in each; φ is what the
squared residuals of bags show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from bagwise.bags import Bags
from bagwise.base import BagRegressor
from bagwise.data.rows import Reads
from bagwise.explanation.contributions import LOGARITHM, Contributions, linear_contributions
from bagwise.folds import folds_of
from bagwise.gains import tell_gain
from bagwise.linear.moments import telling, told_variance, worth
from bagwise.linear.probabilities import some_bags
from bagwise.nonnegative import LARGEST
from bagwise.numeric import NumericFeatures, check_finite_features
from bagwise.risk import HeldOutValues
from bagwise.utils.deadline import check_time
from bagwise.utils.parameters import NONE, Constraint, number, several, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Booleans, Floats

_ALPHAS = (1.0, 0.1, 0.01, 1e-3)
_POWERS = (0.0, 1.0)
_STEPS, _HALVINGS, _CLOSE = 30, 6, 1e-4
_LONGEST = 2.0  # step of a score in units of a standard deviation of a feature
_SMALLEST = 1e-300  # a mean label that is not 0
_FARTHEST = 50.0  # scores apart from their mean, beyond which e^s is told no better


@dataclass(frozen=True, eq=False)
class _Rows:
    """Standardised features Z (n, d) of rows in bag order, and their bags."""

    Z: Floats
    bags: Bags

    @classmethod
    def of(cls, Z: Floats, bags: Bags) -> _Rows:
        order = np.arange(bags.n_bagged)
        told = (bags.keys, order, bags.offsets, bags.proportion, bags.noise_variance, len(order))
        return cls(Z[bags.order], Bags.build(*told, weight=bags.weight, offset=bags.offset))

    def predictions(self, w: Floats, p: float) -> Floats:
        """h, of mean p."""
        return p * self.relative(w)

    def relative(self, w: Floats) -> Floats:
        """h/p."""
        h = _exp(self.scores(w), self.bags)
        return np.asarray(h / self.bags.average(h))

    def scores(self, w: Floats) -> Floats:
        """(n,) of w, with the offset of rows."""
        s = self.Z @ w
        return np.asarray(s if self.bags.offset is None else s + self.bags.offset)


def _exp(s: Floats, bags: Bags) -> Floats:
    """e^s, s measured from its mean; s: (n,) in the order of bags."""
    return np.asarray(np.exp(np.clip(s - bags.average(s), -_FARTHEST, _FARTHEST)))


class _Fit:
    """The fit to some bags.  p: their mean label.  power: q."""

    def __init__(self, rows: _Rows, power: float) -> None:
        self.rows, self.power, bags = rows, power, rows.bags
        noise = bags.noise_per_row
        count = worth(noise, told_variance(bags.size, bags.outputs, noise, labels=False))
        self.p = max(float(np.average(bags.proportion, weights=count * bags.size)), 0.0)
        self.target, self.count = bags.size * bags.proportion, count
        self.noise, self.n_iter = noise * bags.size, 0

    def solve(self, alpha: float, start: Floats) -> Floats:
        """The weights (d,), in `n_iter` steps."""
        bags, Z, w = self.rows.bags, self.rows.Z, start
        if self.p == 0:
            return np.zeros_like(start)
        relative = self.rows.relative(w)
        for self.n_iter in range(1, _STEPS + 1):
            check_time()
            h = self.p * relative
            precision = self._precision(h)
            residual = self.target - bags.sum(h)
            slope = bags.sum(h[:, None] * Z) - bags.sum(h)[:, None] * bags.average(relative[:, None] * Z)
            curvature = slope.T @ (precision[:, None] * slope)
            penalty = alpha * float((precision * bags.size).sum()) * self.p**2
            matrix = curvature + penalty * np.eye(len(w)) + 1e-12 * np.trace(curvature) * np.eye(len(w))
            right = slope.T @ (precision * residual) - penalty * w
            step = linalg.lstsq(matrix, right)[0]
            step *= min(1.0, _LONGEST / max(float(np.abs(step).max(initial=0.0)), 1e-300))
            loss = float(precision @ residual**2) + penalty * float(w @ w)
            for _ in range(_HALVINGS):
                tried = self.rows.relative(w + step)
                rest = self.target - bags.sum(self.p * tried)
                if float(precision @ rest**2) + penalty * float((w + step) @ (w + step)) <= loss:
                    break
                step = step / 2
            else:
                break
            w, relative = w + step, tried
            if np.abs(step).max(initial=0.0) < _CLOSE:
                break
        return w

    def _precision(self, h: Floats) -> Floats:
        """(m,) 1/V, φ being what squared residuals show."""
        bags = self.rows.bags
        shape = bags.sum(h**self.power) if self.power else bags.size.astype(float)
        square = (self.target - bags.sum(h)) ** 2 - self.noise
        weight = self.count**2 / shape**2  # squares vary by their own size
        phi = float(weight @ (square * shape)) / float(weight @ shape**2)
        least = 1e-6 * float(weight @ (self.target**2 * shape)) / float(weight @ shape**2)
        return np.asarray(1 / (max(phi, least, 1e-300) * shape + self.noise))


@dataclass(kw_only=True, eq=False, repr=False)
class BagTweedieRegressor(NumericFeatures, BagRegressor):
    r"""Log-linear regression of real labels that are never negative, such as purchases of which most are 0.

    With :math:`h(x) = e^{b + w \cdot x}` predictions are above 0, effects multiply, and E[h] = p in the training rows.
    An offset of rows (see `Bags.with_offset`), such as the log of their exposure, is added to :math:`b + w \cdot x`.
    A label's variance is taken for :math:`\varphi h^q`, by which bags count for what they are worth, declared noise
    included; those with so much noise that together they are worth no more than a twentieth of the others are left out.
    Power and penalty are those with the least held-out label-free risk, which in bags that are not random is
    the held-out error of bags.

    Parameters
    ----------
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about: said in `formation_`. The mean of a bag's labels given its rows is right in all but
        `rates`, where weights are too large.
    power : float or sequence of float, optional
        q from 0 to 2, or several to choose from: 0 where labels vary alike, 1 as counts, between 1 and 2 as sums of
        gamma numbers (Tweedie). None chooses between 0 and 1.
    alphas : float or sequence of float, optional
        Penalties on weights of standardised features, to choose from; None takes 0.001 to 1.
    cv : int
        Folds of bags.
    random_state : int, Generator or None
        For the folds.

    Attributes
    ----------
    coef_, intercept_ : array of shape (features,), and float
        w and b.
    feature_means_ : array, shape (features,)
        The mean row, which `explain` measures from.
    power_, alpha_ : float
        What was chosen.
    n_iter_ : int
        Steps of the last fit.
    risk_ : float
        The held-out label-free risk, NaN with fewer than 4 bags.
    formation_ : Told
        The formation, and why.
    gain_, gain_error_ : float
        Log-likelihood of a held-out bag, as if its mean were normal, over that of the mean label, and its standard
        error; NaN where none was held out.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(25600, 2))
    >>> y = rng.poisson(np.exp(0.5 * X[:, 0] - 1)) * 10.0
    >>> ids = bw.random_bags(25600, size=16, random_state=0)
    >>> model = BagTweedieRegressor(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> model.coef_.round(1), bool(abs(model.predict(X).mean() - y.mean()) < 1e-9)
    (array([ 0.5, -0. ]), True)
    """

    reads: ClassVar[Reads] = Reads(weights=True, offset=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "power": several(number(least=0, most=2), "one or more numbers from 0 to 2") | NONE,
        "alphas": several(number(least=0, most=1e100), "one or more numbers from 0 to 1e+100") | NONE,
        "cv": whole(2),
    }

    formation: str = "auto"
    power: ArrayLike | None = None
    alphas: ArrayLike | None = None
    cv: int = 5
    random_state: RandomState = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _check_bags(self, bags: Bags) -> None:
        super()._check_bags(bags)
        if float(bags.size @ bags.proportion) < 0:
            raise ValueError(
                "the mean label is below 0: a log-linear model is for labels that are never negative; take ridge or "
                "boosting."
            )

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        names, rng, bags = getattr(self, "feature_names_in_", None), generator(self.random_state), telling(bags)
        with np.errstate(over="ignore", invalid="ignore"):
            inside = (X if bags.n_bagged == len(X) and bags.weight is None else X[bags.order]).astype(float, copy=False)
            mean = bags.average(inside)
            check_finite_features(mean, X, names)
            spread = np.sqrt(bags.average(np.square(inside - mean)))
            check_finite_features(spread, X, names)
        self._tell_formation(X, bags)
        scale = np.where(spread > 1e-12 * np.abs(mean), 1 / np.where(spread > 0, spread, 1), 0.0)
        Z = (X - mean) * scale
        self._choose(Z, bags, rng)
        fit = _Fit(_Rows.of(Z, bags), self.power_)
        w = fit.solve(self.alpha_, np.zeros(Z.shape[1]))
        s = fit.rows.scores(w)
        self.coef_, self.feature_means_, self.n_iter_ = w * scale, mean, fit.n_iter
        level = np.log(max(fit.p, _SMALLEST)) - np.log(bags.average(_exp(s, bags)))
        self.intercept_ = float(level - bags.average(s) - mean @ self.coef_)

    def _choose(self, Z: Floats, bags: Bags, rng: np.random.Generator) -> None:
        """Power and penalty, by some of the bags where rows are many."""
        powers = [float(one) for one in np.atleast_1d(np.asarray(_POWERS if self.power is None else self.power))]
        alphas = sorted(
            {float(one) for one in np.atleast_1d(np.asarray(_ALPHAS if self.alphas is None else self.alphas))}
        )
        self.power_, self.alpha_, self.risk_, gains = powers[0], alphas[0], float("nan"), None
        rows = _Rows.of(Z, bags.take(some_bags(bags, Z.shape[1], rng)))
        some = rows.bags
        spread = told_variance(some.size, some.outputs, some.noise_per_row, labels=False)
        said: dict[tuple[float, float], list[HeldOutValues]] = {}
        for fold in folds_of(len(some), self.cv, rng, shared=bags.shared):
            inside, held = _inside(some, fold.train), some.take(fold.held_out)
            for power in powers:
                fit = _Fit(_Rows.of(rows.Z, some.take(fold.train)), power)
                w: Floats = np.zeros(Z.shape[1])
                for alpha in reversed(alphas):  # each begins at the one with more penalty
                    w = fit.solve(alpha, w)
                    h = _exp(rows.scores(w), some)
                    sums = some.sum(h * (fit.p / some.take(fold.train).average(h[inside])))[fold.held_out]
                    said.setdefault((power, alpha), []).append(HeldOutValues(fit.p, fit.p, sums, held, spread))
        if said:
            risks = {each: _risk(parts) for each, parts in said.items()}
            self.power_, self.alpha_ = best = min(risks, key=lambda each: risks[each])
            self.risk_ = risks[best]
            gains = np.concatenate([part.gains(np.ones(1))[0] for part in said[best]])
        self.gain_, self.gain_error_ = tell_gain(gains, stacklevel=7)

    @property
    def nonnegative_(self) -> bool:
        """That predictions are never negative."""
        return True

    def used_features(self) -> Booleans | None:
        """Whether each feature has a weight other than 0."""
        return np.asarray(self.coef_ != 0)

    def _contributions(self, X: Floats) -> Contributions:
        """To the logarithm of the value."""
        return linear_contributions(self, X, LOGARITHM)

    def _predict_mean(self, X: Floats) -> Floats:
        return self._predict_moved(X, np.zeros(len(X)))

    def _predict_moved(self, X: Floats, offset: Floats) -> Floats:
        s = X @ self.coef_ + self.intercept_ + offset
        check_finite_features(s, X, getattr(self, "feature_names_in_", None))
        return np.asarray(np.exp(np.minimum(s, LARGEST)))


def _risk(parts: Sequence[HeldOutValues]) -> float:
    """The held-out label-free risk, bags counting for what they are worth."""
    weights = np.concatenate([part.worth for part in parts])
    return float(np.average(np.concatenate([part.losses for part in parts]), weights=weights))


def _inside(bags: Bags, chosen: Any) -> Booleans:
    """(n,) whether rows in bag order are of the chosen bags."""
    of = np.zeros(len(bags), dtype=bool)
    of[chosen] = True
    return np.asarray(bags.repeat(of))
