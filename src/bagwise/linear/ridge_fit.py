"""The fit of both ridge estimators: from rows, from moments alone, and from those of bags that are gone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.data.rows import Reads
from bagwise.formation import Told
from bagwise.intervals import TellsIntervals
from bagwise.linear.intervals import ridge_interval
from bagwise.linear.memory import TOGETHER, RidgeMemory, RowMoments, Weighing
from bagwise.linear.moments import BagSums, Moments, coefficients, label_variance, solve_ridge
from bagwise.numeric import LinearPredictor, check_finite_features
from bagwise.updatable import Updatable
from bagwise.updates import OLD_FOLDER, CannotUpdateError, Forgetting, Step, Update
from bagwise.utils.parameters import NONE, Constraint, check_parameters, number, several, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats

ALPHAS = np.logspace(-5, 3, 33)
SCALINGS = np.array([0.0, 0.5, 1.0])
"""Penalties to choose from, and how far they may adapt to the spread of each feature."""

LEAST_VARIANCE = 1e-12
"""Of labels, so that it can be divided by."""


@dataclass(kw_only=True, eq=False, repr=False)
class RidgeFit(LinearPredictor, TellsIntervals, Updatable):
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
        return max(varied, LEAST_VARIANCE)

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
        self.feature_means_ = origin + sum(parts[1:], parts[0]).mean_x
        self._keep(coef.T, intercept - origin @ coef, classes=classes)

    def _interval(self, X: Floats, level: float, offset: Floats | float) -> Floats:
        if self.memory_ is None:
            why = "it has too many features for them, or was saved redacted"
            raise ValueError(f"this model keeps no moments, which tell intervals: {why}.")
        return ridge_interval(self.memory_, X, level, self.formation_.name)

    @property
    def _penalties(self) -> tuple[Floats, Floats]:
        """The alphas and the scalings to choose from."""
        alphas = ALPHAS if self.alphas is None else np.atleast_1d(np.asarray(self.alphas, dtype=float))
        return alphas, SCALINGS if self.scaling is None else np.array([float(self.scaling)])
