r"""Ridge regression on bags in closed form.

For a linear :math:`h = w \cdot x + b` the debiased square loss is least squares on bag centroids: rows
:math:`\sqrt{k_j}(\bar x_j - \mu)`, targets :math:`\sqrt{k_j}(\alpha_j - p)`; the intercept :math:`b = p - w \cdot
\mu` takes the mean term to zero. One pass over X makes the bag sums; the rest sees second moments, d × d numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from scipy import linalg

from bagwise.bags import Bags
from bagwise.base import BagClassifier, BagRegressor, LinearPredictor, check_finite_features
from bagwise.data.rows import Reads
from bagwise.utils.deadline import check_time
from bagwise.utils.parameters import NONE, Constraint, check_parameters, number, several, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats, Integers

_ALPHAS = np.logspace(-5, 3, 33)
_SCALINGS = np.array([0.0, 0.5, 1.0])


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over bags of size, centroid x̄ and proportion α, weighted by size. They add up over parts of the data.

    bags: number of bags m.  rows: Σ k.
    x: (d,) Σ k x̄.  y: (c,) Σ k α.
    xx: (d, d) Σ k x̄ x̄ᵀ.  xy: (d, c) Σ k x̄ αᵀ.  yy: (c,) Σ k α².

    >>> part = Moments.of(np.array([[1.0], [6.0]]), np.array([1, 2]), np.array([[0.0], [1.0]]))
    >>> float(part.rows), part.x, part.xx
    (3.0, array([7.]), array([[19.]]))
    """

    bags: int
    rows: float
    x: Floats
    y: Floats
    xx: Floats
    xy: Floats
    yy: Floats

    @classmethod
    def of(cls, sums: Floats, size: Integers, proportion: Floats) -> Moments:
        """From bag sums (m, d), sizes (m,) and proportions (m, c)."""
        root = np.sqrt(size)[:, None]
        scaled, target = sums / root, proportion * root
        return cls(
            bags=len(size),
            rows=float(size.sum()),
            x=sums.sum(axis=0),
            y=(size[:, None] * proportion).sum(axis=0),
            xx=scaled.T @ scaled,
            xy=scaled.T @ target,
            yy=(target**2).sum(axis=0),
        )

    def __add__(self, other: Moments) -> Moments:
        return Moments(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def __sub__(self, other: Moments) -> Moments:
        return Moments(*(getattr(self, name) - getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def mean_x(self) -> Floats:
        """Mean of x over rows, μ."""
        return self.x / self.rows

    @property
    def mean_y(self) -> Floats:
        """Mean label over rows, p."""
        return self.y / self.rows

    @property
    def variance(self) -> Floats:
        """(d,) mean over bags of k (x̄ − μ)²: for random bags, the variance of each feature."""
        return np.maximum(np.diag(self.xx) - self.rows * self.mean_x**2, 0) / self.bags

    def about(self, mean_x: Floats, mean_y: Floats) -> Self:
        """The same moments with x and y measured from the given points."""
        shift = np.outer(self.x, mean_x)
        return type(self)(
            bags=self.bags,
            rows=self.rows,
            x=self.x - self.rows * mean_x,
            y=self.y - self.rows * mean_y,
            xx=self.xx - shift - shift.T + self.rows * np.outer(mean_x, mean_x),
            xy=self.xy - np.outer(self.x, mean_y) - np.outer(mean_x, self.y) + self.rows * np.outer(mean_x, mean_y),
            yy=self.yy - 2 * self.y * mean_y + self.rows * mean_y**2,
        )

    def risk(self, coef: Floats) -> Floats:
        r"""Mean over bags of :math:`k_j(\alpha_j - w \cdot \bar x_j)^2`, summed over outputs; coef is (…, d, c)."""
        quadratic: Floats = (coef * (self.xx @ coef - 2 * self.xy)).sum(axis=(-2, -1)) + self.yy.sum()
        return quadratic / self.bags


class RidgeSolution(NamedTuple):
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
    for part in parts if len(parts) > 1 else []:
        train = whole - part
        held_out = part.about(train.mean_x, train.mean_y)
        for row, scaling in zip(risks, scalings, strict=True):
            check_time()
            row += held_out.risk(_coefficients(train, scaling, variance, alphas)) * part.bags / whole.bags
    best = np.unravel_index(np.argmin(risks), risks.shape)
    alpha, scaling = float(alphas[best[1]]), float(scalings[best[0]])
    coef = _coefficients(whole, scaling, variance, np.array([alpha]))[0]
    return RidgeSolution(coef, whole.mean_y - whole.mean_x @ coef, alpha, scaling, risks)


def _coefficients(moments: Moments, scaling: float, whole: Floats, alphas: Floats) -> Floats:
    """(alphas, d, c) the solutions for every α, from one eigendecomposition.  whole: variances in all bags."""
    centred = moments.about(moments.mean_x, moments.mean_y)
    variance, scale = centred.variance, np.zeros(len(whole))
    # A feature that does not vary in these bags, compared with its variance in all of them, gets no weight.
    used = variance > 1e-12 * whole
    if used.any():
        scale[used] = variance[used] ** (-scaling / 2) * variance[used].mean() ** ((scaling - 1) / 2)
    values, vectors = linalg.eigh(centred.xx * np.outer(scale, scale) / moments.bags, check_finite=False)
    cross = vectors.T @ (scale[:, None] * centred.xy / moments.bags)
    eigen = np.maximum(values, 0) + alphas[:, None]
    # Without a penalty, directions the data do not show get no weight.
    small = eigen <= np.finfo(float).eps * eigen.shape[1] * eigen.max(axis=1, keepdims=True, initial=0.0)
    inverse = np.where(small, 0.0, 1 / np.where(small, 1.0, eigen))
    return np.asarray(scale[:, None] * (vectors @ (inverse[:, :, None] * cross)))


def moments_by_fold(
    X: Floats, bags: Bags, n_folds: int, rng: np.random.Generator, names: ArrayLike | None = None
) -> tuple[list[Moments], Floats]:
    """Moments of random folds of bags, with x measured from its mean, and that mean. X is read once."""
    sums, size, target = bags.sum_table(X), bags.size, bags.outputs
    origin = sums.sum(axis=0) / bags.n_bagged
    check_finite_features(origin, X, names)
    # Measured from the mean, sums of squares lose no digits to a large offset.
    deviation = sums - size[:, None] * origin
    rounding = 16 * np.finfo(float).eps * size[:, None] * np.abs(origin)
    deviation[:, (np.abs(deviation) <= rounding).all(axis=0)] = 0.0  # a constant feature
    if n_folds == 1:
        return [Moments.of(deviation, size, target)], origin
    fold = rng.permutation(len(bags)) % n_folds
    return [Moments.of(deviation[fold == f], size[fold == f], target[fold == f]) for f in range(n_folds)], origin


@dataclass(kw_only=True, eq=False, repr=False)
class _RidgeFit(LinearPredictor):
    """The fit of both ridge estimators."""

    reads: ClassVar[Reads] = Reads(moments=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "alphas": several(number(least=0), "one or more finite numbers of at least 0") | NONE,
        "scaling": number(least=0, most=1) | NONE,
        "cv": whole(2),
    }

    alphas: ArrayLike | None = None
    scaling: float | None = None
    cv: int = 5
    random_state: RandomState = None

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        folds, names = self.n_folds(len(bags)), getattr(self, "feature_names_in_", None)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is found below, with the column's name
            parts, origin = moments_by_fold(X, bags, folds, generator(self.random_state), names)
            check_finite_features(sum(parts[1:], parts[0]).xx, X, names)
            noise = float(bags.noise_per_row.mean()) * bags.outputs.shape[1]
            self._solve(parts, origin, noise, classes=bags.proportion.ndim == 2)

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
        return self

    def _solve(self, parts: list[Moments], origin: Floats, noise: float, *, classes: bool) -> None:
        self.alphas_, self.scalings_ = self._penalties
        solution = solve_ridge(parts, self.alphas_, self.scalings_, noise)
        coef, intercept, self.alpha_, self.scaling_, self.risks_ = solution
        self._keep(coef.T, intercept - origin @ coef, classes=classes)

    @property
    def _penalties(self) -> tuple[Floats, Floats]:
        """The alphas and the scalings to choose from."""
        alphas = _ALPHAS if self.alphas is None else np.atleast_1d(np.asarray(self.alphas, dtype=float))
        return alphas, _SCALINGS if self.scaling is None else np.array([float(self.scaling)])


class BagRidgeClassifier(_RidgeFit, BagClassifier):
    r"""Linear classifier from bags, in closed form.

    Minimises the debiased square loss of :math:`h(x) = w \cdot x + b` plus a ridge penalty on w; several classes by the
    square form summed over them. `predict_proba` keeps h in [0, 1].

    Parameters
    ----------
    alphas : float or sequence of float, optional
        Penalties to choose from by cross-validation over bags on the label-free risk; a number fixes it; None takes 33
        values from 1e-5 to 1e3.
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
        Cross-validated risk of each penalty tried.

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


class BagRidgeRegressor(_RidgeFit, BagRegressor):
    """Linear regression of real labels from bags, in closed form. Parameters and attributes as `BagRidgeClassifier`.

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
