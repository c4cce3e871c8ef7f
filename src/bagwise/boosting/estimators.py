"""Boosted trees from bags, as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from bagwise._folds import folds_of
from bagwise._rng import RandomState, generator
from bagwise.bags import Bags
from bagwise.base import BagClassifier, BagRegressor
from bagwise.boosting.trees import Boosted, TreeOptions, boost
from bagwise.features import TableFeatures

Floats = NDArray[np.floating]

_ONE_THREAD = 200_000  # numbers in X below which threads wait for each other longer than they work


def choose_length(losses: Floats) -> int:
    """Number of trees: past the least risk, until the bags clearly agree that it got worse.

    losses: (m, trees) loss of each held-out bag after each tree.
    With few bags the place of the least risk is a matter of chance, and averaging several fits allows for more trees
    than one fit's risk shows; so growth stops where the mean rise over bags exceeds two of its standard errors.

    >>> falls_then_rises = np.array([[3.0, 2.0, 2.1, 2.5], [3.0, 2.0, 1.9, 2.6]])
    >>> choose_length(falls_then_rises)
    3
    """
    if losses.shape[1] == 0:
        return 0
    best = int(np.argmin(losses.mean(axis=0)))
    worse = np.flatnonzero(_clearly_above(losses[:, best:], losses[:, [best]], errors=2))
    return best + int(worse[0]) if len(worse) else losses.shape[1]


def choose_path(paths: list[Floats]) -> int:
    """The first path, unless another's least risk is lower by more than a standard error of the difference over bags.

    >>> choose_path([np.array([[0.2], [0.3], [0.25]]), np.array([[0.1], [0.2], [0.15]])])
    1
    """
    if paths[0].shape[1] == 0:
        return 0
    least = [path[:, [int(np.argmin(path.mean(axis=0)))]] for path in paths]
    better = [i for i, losses in enumerate(least) if i and _clearly_above(least[0], losses, errors=1).all()]
    return min(better, key=lambda i: least[i].mean(), default=0)


def _clearly_above(losses: Floats, others: Floats, *, errors: float) -> NDArray[np.bool_]:
    """Where the mean over bags (rows) of the difference exceeds so many of its standard errors."""
    difference = losses - others
    return difference.mean(axis=0) > errors * difference.std(axis=0, ddof=1) / np.sqrt(len(difference))


def _even(paths: list[Floats]) -> list[Floats]:
    """Paths over trees made equally long: one that stopped early keeps its last values."""
    longest = max(path.shape[1] for path in paths)
    if longest == 0:
        return paths
    return [np.pad(path, ((0, 0), (0, longest - path.shape[1])), mode="edge") for path in paths]


class _BoostingFit(TableFeatures):
    """The fit and the prediction of both estimators."""

    def __init__(
        self,
        *,
        n_estimators: int = 160,
        learning_rate: float = 0.1,
        num_leaves: int = 8,
        min_child_samples: int = 20,
        colsample_bytree: float = 0.4,
        reg_lambda: float | Sequence[float] = (10.0, 100.0),
        max_cat_to_onehot: int = 64,
        n_fits: int = 4,
        cv: int = 5,
        early_stopping_rounds: int = 100,
        categorical_features: Sequence[int] | None = None,
        n_jobs: int = 0,
        random_state: RandomState = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_child_samples = min_child_samples
        self.colsample_bytree = colsample_bytree
        self.reg_lambda = reg_lambda
        self.max_cat_to_onehot = max_cat_to_onehot
        self.n_fits = n_fits
        self.cv = cv
        self.early_stopping_rounds = early_stopping_rounds
        self.categorical_features = categorical_features
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        penalties = self._check_parameters()
        n_jobs = 1 if self.n_jobs == 0 and X.size < _ONE_THREAD else self.n_jobs
        options = self._options(penalties[0], n_jobs)
        if bags.n_bagged < len(X):  # rows in no bag say nothing, not even where to cut
            rows = np.flatnonzero(bags.code >= 0)
            code = bags.code[rows]
            noise = None if bags.noise_variance is None else bags.noise_variance[code]
            X, bags = X[rows], Bags.from_rows(bags.proportion[code], code, noise_variance=noise)
        rng = generator(self.random_state)
        categorical = sorted({*self.features_.categorical, *(self.categorical_features or ())})
        data = lgb.Dataset(
            X, label=np.zeros(len(X)), categorical_feature=categorical, params=options.for_lightgbm(0, X.shape[1])
        ).construct()
        seed = int(rng.integers(2**31))  # every penalty meets the same folds and draws of features
        losses = _even([self._held_out_losses(X, data, bags, replace(options, reg_lambda=x), seed) for x in penalties])
        self.risks_ = np.stack([values.mean(axis=0) for values in losses])
        best = choose_path(losses)
        self.reg_lambda_ = penalties[best]
        self.n_estimators_ = choose_length(losses[best])
        options = replace(options, reg_lambda=self.reg_lambda_)
        self.fits_: list[Boosted] = []
        for _ in range(self.n_fits):
            fit = boost(X, data, bags, options, n_trees=self.n_estimators_, seed=int(rng.integers(2**31)))
            fit.h = fit.h[:0]  # predictions for the training rows are of no more use
            self.fits_.append(fit)
        self._classes = bags.proportion.ndim == 2

    def _held_out_losses(
        self, X: Floats, data: lgb.Dataset, bags: Bags, options: TreeOptions, random_state: int
    ) -> Floats:
        """(held-out bags, trees) label-free loss of bags after each tree of a fit that did not see them.

        p and E[h] come from the training folds. A fold that stopped early keeps its last losses.
        """
        rng = generator(random_state)
        paths = []
        for fold in folds_of(len(bags), self.cv, rng):
            fit = boost(
                X,
                data,
                bags.take(fold.train),
                options,
                n_trees=self.n_estimators,
                seed=int(rng.integers(2**31)),
                watch=bags.take(fold.held_out),
                patience=self.early_stopping_rounds,
            )
            paths.append(np.stack(fit.losses, axis=1) if fit.losses else np.empty((len(fold.held_out), 0)))
        if not paths:  # two or three bags: nothing to hold out
            return np.zeros((len(bags), self.n_estimators))
        return np.concatenate(_even(paths))

    def _predict_mean(self, X: Floats) -> Floats:
        h = np.mean([fit.predict(X, self.n_estimators_) for fit in self.fits_], axis=0)
        return h if self._classes else h[:, 0]

    def _options(self, reg_lambda: float, n_jobs: int) -> TreeOptions:
        return TreeOptions(
            learning_rate=self.learning_rate,
            num_leaves=self.num_leaves,
            min_child_samples=self.min_child_samples,
            colsample_bytree=self.colsample_bytree,
            reg_lambda=reg_lambda,
            max_cat_to_onehot=self.max_cat_to_onehot,
            n_jobs=n_jobs,
        )

    def _check_parameters(self) -> list[float]:
        """The penalties to choose from."""
        for name, least in (
            ("n_estimators", 1),
            ("num_leaves", 2),
            ("min_child_samples", 1),
            ("max_cat_to_onehot", 1),
            ("n_fits", 1),
            ("cv", 2),
            ("early_stopping_rounds", 1),
        ):
            value = getattr(self, name)
            if not (isinstance(value, Integral) and int(value) >= least):
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
        for name in ("learning_rate", "colsample_bytree"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0 < float(value) <= 1):
                raise ValueError(f"{name} must be a number above 0 and at most 1, got {value!r}.")
        penalties = np.atleast_1d(np.asarray(self.reg_lambda, dtype=object))
        if not len(penalties) or not all(isinstance(x, Real) and 0 <= float(x) < np.inf for x in penalties):
            raise ValueError(f"reg_lambda must be a finite number of at least 0, or several, got {self.reg_lambda!r}.")
        return [float(penalty) for penalty in penalties]


class BagBoostingClassifier(_BoostingFit, BagClassifier):
    """Boosted trees from bags: LightGBM grows them, their leaf values are solved exactly at the level of bags.

    The solve makes training stable for random, unequal and feature-grouped bags alike (see `boosting.leaves`). Several
    classes by the square form, one tree per class and round. Tables of pandas, polars or Arrow may hold categories and
    missing values as they are.

    n_estimators: most trees per fit; how many are kept is chosen by cross-validation over bags on the label-free risk
        (see `choose_length`).
    reg_lambda: penalty λ of the solve of the leaf values, or several: the first, unless the same cross-validation shows
        another to be better (see `choose_path`). A leaf's value is drawn to 0 as if by λ more rows.
    learning_rate, num_leaves, min_child_samples, colsample_bytree, max_cat_to_onehot: as in LightGBM.
    n_fits: fits with different draws of features whose predictions are averaged.
    cv, early_stopping_rounds: folds of bags, held out in turn until 512 bags have been, or all; trees without
        improvement after which a fold stops.
    categorical_features: columns of an array that hold category codes (tables say so by their types).
    n_jobs: threads, 0 for all (one where the table is small).  random_state: for folds and features.

    n_estimators_, reg_lambda_: what was chosen.  risks_: (penalties, trees) cross-validated label-free risk.

    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6400, 2))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)  # no linear model learns this
    >>> ids = bw.random_bags(6400, size=8, random_state=0)
    >>> model = BagBoostingClassifier(n_jobs=1, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> bool(model.score(X, y) > 0.9)
    True
    """


class BagBoostingRegressor(_BoostingFit, BagRegressor):
    """Boosted trees for real labels from bags. Parameters and attributes as `BagBoostingClassifier`.

    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6400, 2))
    >>> y = np.abs(X[:, 0])
    >>> ids = bw.random_bags(6400, size=8, random_state=0)
    >>> model = BagBoostingRegressor(n_jobs=1, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> bool(np.corrcoef(model.predict(X), y)[0, 1] > 0.9)
    True
    """
