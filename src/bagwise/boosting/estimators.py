"""Boosted trees from bags, as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from bagwise._rng import RandomState, generator
from bagwise.bags import Bags
from bagwise.base import BagClassifier, BagRegressor
from bagwise.boosting.features import FeatureCodes, is_table
from bagwise.boosting.trees import Boosted, TreeOptions, boost

Floats = NDArray[np.floating]


def choose_length(by_fold: Floats, risks: Floats) -> int:
    """Number of trees: past the least risk, as long as the folds do not clearly agree that it got worse.

    The risk bottoms out early while rows are still being ordered better, and averaging several fits allows for more
    trees than one fit's risk shows; so growth stops where the mean rise exceeds its standard error over folds.

    >>> falls_then_rises = np.array([[3.0, 2.0, 2.1, 2.5], [3.0, 2.0, 1.9, 2.6]])
    >>> choose_length(falls_then_rises, falls_then_rises.mean(axis=0))
    3
    """
    if len(risks) == 0:
        return 0
    best = int(np.argmin(risks))
    rise = by_fold[:, best:] - by_fold[:, [best]]
    error = rise.std(axis=0, ddof=1) / np.sqrt(len(rise))
    worse = np.flatnonzero(risks[best:] - risks[best] > error)
    return best + (int(worse[0]) if len(worse) else len(risks) - best)


class _BoostingFit:
    """The fit and the prediction of both estimators."""

    def __init__(
        self,
        *,
        n_estimators: int = 120,
        learning_rate: float = 0.1,
        num_leaves: int = 15,
        min_child_samples: int = 20,
        colsample_bytree: float = 0.3,
        reg_lambda: float = 1.0,
        max_cat_to_onehot: int = 64,
        n_fits: int = 4,
        cv: int = 5,
        early_stopping_rounds: int = 50,
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

    def _check_features(self, X: Any, *, fitting: bool) -> Floats:
        """Numbers and codes of categories; NaN is a missing value, infinity an error."""
        if not fitting:
            check_is_fitted(self)
        if is_table(X):
            validate_data(self, X, skip_check_array=True, reset=fitting)
            if fitting:
                self.features_ = FeatureCodes.of(X)
            X = self.features_.matrix(X)  # whose columns have been checked
            return check_array(X, ensure_all_finite="allow-nan", ensure_min_samples=2 if fitting else 1)
        options: dict[str, Any] = {"ensure_min_samples": 2} if fitting else {}
        matrix = validate_data(
            self, X, dtype=(np.float64, np.float32), reset=fitting, ensure_all_finite="allow-nan", **options
        )
        if fitting:
            self.features_ = FeatureCodes((None,) * matrix.shape[1])
        return matrix

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        options = self._check_parameters()
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
        by_fold, sizes = self._held_out_risks(X, data, bags, options, rng)
        self.risks_ = sizes @ by_fold / len(bags)
        self.n_estimators_ = choose_length(by_fold, self.risks_)
        self.fits_: list[Boosted] = []
        for _ in range(self.n_fits):
            fit = boost(X, data, bags, options, n_trees=self.n_estimators_, seed=int(rng.integers(2**31)))
            fit.h = fit.h[:0]  # predictions for the training rows are of no more use
            self.fits_.append(fit)
        self._classes = bags.proportion.ndim == 2

    def _held_out_risks(
        self, X: Floats, data: lgb.Dataset, bags: Bags, options: TreeOptions, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.integer]]:
        """(folds, trees) label-free risk of held-out bags after each tree, and (folds,) their number.

        p and E[h] come from the training folds. A fold that stopped early keeps its last risk.
        """
        folds = min(self.cv, len(bags))
        fold = rng.permutation(len(bags)) % folds
        paths = []
        for f in range(folds):
            train, watch = bags.take(np.flatnonzero(fold != f)), bags.take(np.flatnonzero(fold == f))
            fit = boost(
                X,
                data,
                train,
                options,
                n_trees=self.n_estimators,
                seed=int(rng.integers(2**31)),
                watch=watch,
                patience=self.early_stopping_rounds,
            )
            paths.append(fit.risks)
        longest = max(map(len, paths))
        padded = [risks + [risks[-1] if risks else 0.0] * (longest - len(risks)) for risks in paths]
        return np.array(padded).reshape(folds, longest), np.bincount(fold)

    def _predict_mean(self, X: Floats) -> Floats:
        h = np.mean([fit.predict(X, self.n_estimators_) for fit in self.fits_], axis=0)
        return h if self._classes else h[:, 0]

    def _check_parameters(self) -> TreeOptions:
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
        for name, most in (("learning_rate", 1.0), ("colsample_bytree", 1.0), ("reg_lambda", np.inf)):
            value = getattr(self, name)
            if not (isinstance(value, Real) and (0 < float(value) <= most or (name == "reg_lambda" and value == 0))):
                raise ValueError(f"{name} must be a number above 0 and at most {most:g}, got {value!r}.")
        return TreeOptions(
            learning_rate=self.learning_rate,
            num_leaves=self.num_leaves,
            min_child_samples=self.min_child_samples,
            colsample_bytree=self.colsample_bytree,
            reg_lambda=self.reg_lambda,
            max_cat_to_onehot=self.max_cat_to_onehot,
            n_jobs=self.n_jobs,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        return tags


class BagBoostingClassifier(_BoostingFit, BagClassifier):
    """Boosted trees from bags: LightGBM grows them, their leaf values are solved exactly at the level of bags.

    The solve makes training stable for random, unequal and feature-grouped bags alike (see `boosting.leaves`). Several
    classes by the square form, one tree per class and round. Tables of pandas, polars or Arrow may hold categories and
    missing values as they are.

    n_estimators: most trees per fit; how many are kept is chosen by cross-validation over bags on the label-free risk
        (see `choose_length`).
    learning_rate, num_leaves, min_child_samples, colsample_bytree, reg_lambda, max_cat_to_onehot: as in LightGBM; the
        penalty λ acts in the solve of the leaf values.
    n_fits: fits with different draws of features whose predictions are averaged.
    cv, early_stopping_rounds: folds of bags, and trees without improvement after which a fold stops.
    categorical_features: columns of an array that hold category codes (tables say so by their types).
    n_jobs: threads, 0 for all.  random_state: for folds and features.

    n_estimators_: trees kept.  risks_: cross-validated label-free risk after each tree.

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
