r"""Ridge regression on bags in closed form.

For a linear :math:`h = w \cdot x + b` the debiased square loss is least squares on bag centroids: rows
:math:`\sqrt{k_j}(\bar x_j - \mu)`, targets :math:`\sqrt{k_j}(\alpha_j - p)`; the intercept :math:`b = p - w \cdot
\mu` takes the mean term to zero. One pass over X makes the bag sums; the rest sees d × d numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from bagwise.bags import Bags
from bagwise.base import BagClassifier, BagRegressor, check_finite_features
from bagwise.linear.moments import Moments
from bagwise.linear.predictor import LinearPredictor
from bagwise.utils.deadline import check_time
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Floats

_ALPHAS = np.logspace(-5, 3, 33)
_SCALINGS = np.array([0.0, 0.5, 1.0])


@dataclass(frozen=True, eq=False)
class RidgeSolution:
    """coef: (d, c).  intercept: (c,).  alpha, scaling: the penalty.  risks: (scalings, alphas) what each scored."""

    coef: Floats
    intercept: Floats
    alpha: float
    scaling: float
    risks: Floats


def solve_ridge(parts: list[Moments], alphas: Floats, scalings: Floats, noise: float = 0.0) -> RidgeSolution:
    r"""Minimise :math:`\sum_j R_j^2/(m k_j) + \alpha \sum_l s_l^2 w_l^2` with the penalty of least held-out risk.

    parts: moments of the folds of bags; one part alone is solved with the first penalty.
    scalings: powers g in :math:`s_l^2 = v_l^g \bar v^{1-g}`, v_l being the variance of feature l that random bags show.
    noise: mean over bags of s_j²/k_j, which declared noise adds to every risk.
    The prior and the feature means of a fold's risk come from the other folds: with the overall means, the held-out
    bags' deviations would sum to zero with those of the training bags and give the held-out part away.
    """
    whole = sum(parts[1:], parts[0])
    variance = whole.variance
    risks = np.full((len(scalings), len(alphas)), np.nan if len(parts) == 1 else -noise)
    if len(parts) > 1:
        for part in parts:
            train = whole - part
            held_out = part.about(train.mean_x, train.mean_y)
            for row, scaling in zip(risks, scalings, strict=True):
                check_time()
                row += held_out.risk(_Path(train, scaling, variance).coef(alphas)) * part.bags / whole.bags
    best = np.unravel_index(np.argmin(risks), risks.shape)
    alpha, scaling = float(alphas[best[1]]), float(scalings[best[0]])
    coef = _Path(whole, scaling, variance).coef(np.array([alpha]))[0]
    return RidgeSolution(coef, whole.mean_y - whole.mean_x @ coef, alpha, scaling, risks)


class _Path:
    """Solutions for every α from one eigendecomposition."""

    def __init__(self, moments: Moments, scaling: float, whole: Floats):
        centred = moments.centred()
        variance = centred.variance
        # A feature that does not vary in these bags, compared with its variance in all of them, gets no weight.
        used = variance > 1e-12 * whole
        self.scale = np.zeros(len(variance))
        if used.any():
            self.scale[used] = variance[used] ** (-scaling / 2) * variance[used].mean() ** ((scaling - 1) / 2)
        gram = centred.xx * np.outer(self.scale, self.scale) / moments.bags
        self.values, self.vectors = linalg.eigh(gram, check_finite=False)
        self.cross = self.vectors.T @ (self.scale[:, None] * centred.xy / moments.bags)

    def coef(self, alphas: Floats) -> Floats:
        """(alphas, d, c) coefficients for each penalty."""
        eigen = np.maximum(self.values, 0) + alphas[:, None]
        # Without a penalty, directions the data do not show get no weight.
        small = eigen <= np.finfo(float).eps * eigen.shape[1] * eigen.max(axis=1, keepdims=True, initial=0.0)
        inverse = np.where(small, 0.0, 1 / np.where(small, 1.0, eigen))
        return self.scale[:, None] * (self.vectors @ (inverse[:, :, None] * self.cross))


def moments_by_fold(
    X: Floats, bags: Bags, n_folds: int, rng: np.random.Generator, names: ArrayLike | None = None
) -> tuple[list[Moments], Floats]:
    """Moments of random folds of bags, with x measured from its mean, and that mean. X is read once."""
    sums = bags.sum_table(X)
    size = bags.size
    origin = sums.sum(axis=0) / bags.n_bagged
    check_finite_features(origin, X, names)
    # Measured from the mean, sums of squares lose no digits to a large offset.
    deviation = sums - size[:, None] * origin
    rounding = 16 * np.finfo(float).eps * size[:, None] * np.abs(origin)
    deviation[:, (np.abs(deviation) <= rounding).all(axis=0)] = 0.0  # a constant feature
    target = bags.outputs
    if n_folds == 1:
        return [Moments.of(deviation, size, target)], origin
    fold = rng.permutation(len(bags)) % n_folds
    return [Moments.of(deviation[fold == f], size[fold == f], target[fold == f]) for f in range(n_folds)], origin


class _RidgeFit(LinearPredictor):
    """The fit of both ridge estimators."""

    def __init__(
        self,
        *,
        alphas: ArrayLike | None = None,
        scaling: float | None = None,
        cv: int = 5,
        random_state: RandomState = None,
    ) -> None:
        self.alphas = alphas
        self.scaling = scaling
        self.cv = cv
        self.random_state = random_state

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        folds, names = self._folds(len(bags)), getattr(self, "feature_names_in_", None)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is found below, with the column's name
            parts, origin = moments_by_fold(X, bags, folds, generator(self.random_state), names)
            check_finite_features(sum(parts[1:], parts[0]).xx, X, names)
            noise = float(bags.noise_per_row.mean()) * bags.outputs.shape[1]
            self._fit_moments(parts, origin, noise, classes=bags.proportion.ndim == 2)

    def _folds(self, bags: int) -> int:
        """Into how many folds so many bags are cut."""
        if not (isinstance(self.cv, (int, np.integer)) and self.cv >= 2):
            raise ValueError(f"cv must be a whole number of at least 2 folds, got {self.cv!r}.")
        tried = len(_check_alphas(self.alphas)) * len(_check_scaling(self.scaling))
        return min(int(self.cv), bags) if tried > 1 else 1

    def _fit_moments(self, parts: list[Moments], origin: Floats, noise: float, *, classes: bool) -> None:
        """Learn from moments of folds with x measured from `origin`.  noise: see `solve_ridge`."""
        alphas, scalings = _check_alphas(self.alphas), _check_scaling(self.scaling)
        solution = solve_ridge(parts, alphas, scalings, noise)
        self._keep(solution.coef.T, solution.intercept - origin @ solution.coef, classes=classes)
        self.alpha_, self.scaling_ = solution.alpha, solution.scaling
        self.alphas_, self.scalings_, self.risks_ = alphas, scalings, solution.risks


class BagRidgeClassifier(_RidgeFit, BagClassifier):
    r"""Linear classifier from bags, in closed form.

    Minimises the debiased square loss of :math:`h(x) = w \cdot x + b` plus a ridge penalty on w; several classes by the
    square form summed over them. `predict_proba` keeps h in [0, 1].

    alphas: penalties to choose from by cross-validation over bags on the label-free risk; a number fixes it; None
        takes 33 values from 1e-5 to 1e3.
    scaling: how far the penalty adapts to the spread of each feature: 0 not at all, 1 as if features were standardised;
        None chooses between 0, ½ and 1 with α.
    cv: number of folds of bags.
    random_state: for the folds.

    coef_: (features,), or (classes, features).  intercept_: number, or (classes,).
    alpha_, scaling_: the penalty chosen.  risks_: (scalings, alphas) cross-validated risk of each penalty tried.

    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3200, 2))
    >>> y = (X[:, 0] + rng.normal(size=3200) > 0).astype(int)
    >>> ids = bw.random_bags(3200, size=32, random_state=0)
    >>> model = BagRidgeClassifier(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> model.coef_.round(1)
    array([ 0.2, -0. ])
    """


class BagRidgeRegressor(_RidgeFit, BagRegressor):
    """Linear regression of real labels from bags, in closed form. Parameters and attributes as `BagRidgeClassifier`.

    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3200, 2))
    >>> y = 3 * X[:, 0] - X[:, 1] + 10 + rng.normal(size=3200)
    >>> ids = bw.random_bags(3200, size=32, random_state=0)
    >>> model = BagRidgeRegressor(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> model.coef_.round(0), round(model.intercept_)
    (array([ 3., -1.]), 10)
    """


def _check_alphas(alphas: ArrayLike | None) -> Floats:
    if alphas is None:
        return _ALPHAS
    try:
        values = np.atleast_1d(np.asarray(alphas, dtype=float))
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if values.ndim != 1 or len(values) == 0 or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"alphas must be one or more finite numbers of at least 0, got {alphas!r}.")
    return values


def _check_scaling(scaling: float | None) -> Floats:
    if scaling is None:
        return _SCALINGS
    if not (isinstance(scaling, Real) and 0 <= scaling <= 1):
        raise ValueError(f"scaling must be a number between 0 and 1, or None, got {scaling!r}.")
    return np.array([float(scaling)])
