r"""Second moments of bags, and least squares on them: all that ridge regression on bags needs of X."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy import linalg

from bagwise.bags import Bags
from bagwise.numeric import check_finite_features
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import ArrayLike, Floats, Integers

_LEAST_VARIANCE = 1e-12
_ROUNDS = 3
_LITTLE, _LEAST_WORTH = 0.05, 0.2  # of what all bags are worth, and of the best, that is left out


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over bags of size, centroid x̄ and proportion α, weighted by size. They add up over parts of the data.

    bags: number of bags m.  rows: Σ k.
    x: (d,) Σ k x̄.  y: (c,) Σ k α.
    xx: (d, d) Σ k x̄ x̄ᵀ.  xy: (d, c) Σ k x̄ αᵀ.  yy: (c,) Σ k α².
    Where bags count for what they are worth (see `worth`), each is counted by that, also in m and Σ k.

    >>> part = Moments.of(np.array([[1.0], [6.0]]), np.array([1, 2]), np.array([[0.0], [1.0]]))
    >>> float(part.rows), part.x, part.xx
    (3.0, array([7.]), array([[19.]]))
    """

    bags: float
    rows: float
    x: Floats
    y: Floats
    xx: Floats
    xy: Floats
    yy: Floats

    @classmethod
    def of(cls, sums: Floats, size: Integers, proportion: Floats, worth: Floats | None = None) -> Moments:
        """From bag sums (m, d), sizes (m,), proportions (m, c) and what bags count (m,), 1 if not given."""
        count = np.ones(len(size)) if worth is None else worth
        root = np.sqrt(size)[:, None]
        scaled, target, weight = sums / root, proportion * root, count[:, None]
        return cls(
            bags=float(count.sum()),
            rows=float(count @ size),
            x=count @ sums,
            y=(count * size) @ proportion,
            xx=(weight * scaled).T @ scaled,
            xy=(weight * scaled).T @ target,
            yy=(weight * target**2).sum(axis=0),
        )

    def __add__(self, other: Moments) -> Moments:
        return Moments(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def __sub__(self, other: Moments) -> Moments:
        return Moments(*(getattr(self, name) - getattr(other, name) for name in self.__dataclass_fields__))

    def times(self, weight: float) -> Moments:
        """Of the same bags, each counted by a weight."""
        return Moments(*(weight * getattr(self, name) for name in self.__dataclass_fields__))

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
    variance, chosen = whole.variance, len(parts) > 1 and len(scalings) * len(alphas) > 1
    risks = np.full((len(scalings), len(alphas)), -noise if chosen else np.nan)
    for part in parts if chosen else []:
        train = whole - part
        held_out = part.about(train.mean_x, train.mean_y)
        for row, scaling in zip(risks, scalings, strict=True):
            check_time()
            row += held_out.risk(coefficients(train, scaling, variance, alphas)) * part.bags / whole.bags
    best = np.unravel_index(np.argmin(risks), risks.shape)
    alpha, scaling = float(alphas[best[1]]), float(scalings[best[0]])
    coef = coefficients(whole, scaling, variance, np.array([alpha]))[0]
    return RidgeSolution(coef, whole.mean_y - whole.mean_x @ coef, alpha, scaling, risks)


def coefficients(moments: Moments, scaling: float, whole: Floats, alphas: Floats) -> Floats:
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


def worth(noise_per_row: Floats, spread: float) -> Floats:
    r"""What bags count: the variance of labels over that of :math:`\sqrt{k}\,\alpha`, to which noise adds s²/k.

    >>> worth(np.array([0.0, 0.25]), 0.25)
    array([1. , 0.5])
    """
    return np.asarray(1 / (1 + noise_per_row / spread))


def label_variance(prior: Floats) -> float:
    """p(1 − p), the mean over classes, never 0."""
    p = np.clip(prior, 0, 1)
    return max(float((p * (1 - p)).mean()), _LEAST_VARIANCE)


def told_variance(size: Integers, outputs: Floats, noise: Floats, *, labels: bool) -> float:
    """Variance of labels 0 and 1 (`labels`), or of real ones, as bags with less noise show it more clearly.

    size: (m,).  outputs: (m, c) proportions or means.  noise: (m,) s²/k.
    """
    count = 1 / (noise + 1e-3 * noise.mean()) ** 2 if noise.any() else np.ones(len(size))
    for _ in range(_ROUNDS):
        prior = (count * size) @ outputs / (count @ size)
        if labels:
            found = label_variance(prior)
        else:
            square = (size[:, None] * (outputs - prior) ** 2).mean(axis=1) - noise
            found = max(float(count**2 @ square / (count**2).sum()), _LEAST_VARIANCE)
        count = worth(noise, found)
    return found


def telling(bags: Bags) -> Bags:
    """The bags without those that declare so much noise that all of them are worth little beside the others.

    Left out are those of the least worth, each less than a fifth of the best, together a twentieth of all. Where rows
    are looked at one by one, as where trees cut, or batches are dealt, such bags would be in the way.

    >>> noise = np.repeat([0.0, 1e6], 4)
    >>> bags = Bags.from_rows(np.arange(8.0), np.arange(8), noise_variance=noise)
    >>> len(telling(bags))
    4
    """
    if bags.noise_variance is None or not bags.noise_variance.any():
        return bags
    noise = bags.noise_per_row
    count = worth(noise, told_variance(bags.size, bags.outputs, noise, labels=False))
    ordered = np.sort(count)
    upto = np.cumsum(ordered)[np.searchsorted(ordered, count, side="right") - 1]  # of it and all that are worth less
    kept = np.flatnonzero((upto > _LITTLE * count.sum()) | (count > _LEAST_WORTH * ordered[-1]))
    return bags if len(kept) == len(bags) or len(kept) < 2 else bags.take(kept)


@dataclass(frozen=True, eq=False)
class BagSums:
    """Bag sums of features, measured from their mean; X is read once for them.

    deviation: (m, d).  origin: (d,) the mean.  bags: the reports.  fold: (m,) the fold of each bag.  n_folds: how many.
    """

    deviation: Floats
    origin: Floats
    bags: Bags
    fold: Integers
    n_folds: int

    @classmethod
    def of(
        cls,
        X: Floats,
        bags: Bags,
        n_folds: int,
        rng: np.random.Generator,
        names: ArrayLike | None,
        origin: Floats | None = None,
    ) -> BagSums:
        """Of random folds of bags; measured from another origin than the mean, where one is given."""
        sums, size = bags.sum_table(X), bags.size
        mean = sums.sum(axis=0) / bags.n_people
        check_finite_features(mean, X, names)
        origin = mean if origin is None else origin
        # Measured from the mean, sums of squares lose no digits to a large offset.
        deviation = sums - size[:, None] * origin
        rounding = 16 * np.finfo(float).eps * size[:, None] * np.abs(origin)
        deviation[:, (np.abs(deviation) <= rounding).all(axis=0)] = 0.0  # a constant feature
        return cls(deviation, origin, bags, rng.permutation(len(bags)) % n_folds, n_folds)

    def moments(self, count: Floats) -> list[Moments]:
        """One for each fold.  count: (m,) what bags are worth."""
        bags, found = self.bags, []
        for f in range(self.n_folds):
            one = self.fold == f
            found.append(Moments.of(self.deviation[one], bags.size[one], bags.outputs[one], count[one]))
        return found

    def label_variance(self, *, labels: bool) -> float:
        """Variance of labels 0 and 1 (`labels`), or of real ones, as bags with less noise show it more clearly."""
        return told_variance(self.bags.size, self.bags.outputs, self.bags.noise_per_row, labels=labels)

    def counts(self, spread: float, coef: Floats | None = None) -> Floats:
        r"""(m,) what bags are worth: less with noise; given weights (d, c), with effects, too.

        Effects of variance τ² on log odds add :math:`\tau^2 k` times a constant to the mean of R²/k, which shows where
        bags differ in size.
        """
        noise, size = self.bags.noise_per_row, self.bags.size.astype(float)
        if coef is not None and np.ptp(size) > 0:
            prior = (size[:, None] * self.bags.outputs).sum(axis=0) / size.sum()
            centred = self.deviation - size[:, None] * (self.deviation.sum(axis=0) / size.sum())
            residual = size[:, None] * (self.bags.outputs - prior) - centred @ coef
            square = (residual**2).mean(axis=1) / size - noise
            slope = float(np.cov(size, square)[0, 1] / np.var(size, ddof=1))
            noise = noise + max(slope, 0.0) * size
        return worth(noise, spread)
