"""Classifiers of single rows from noised tables of counts and label sums, where there are no rows at all."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from bagwise.data.aggregates import Aggregates
from bagwise.data.features import as_frame, is_table
from bagwise.gains import NoBetterThanConstantWarning, clear
from bagwise.linear.aggregated_risk import alpha_of_noise, ridge, risks, usual_alphas
from bagwise.linear.gaussian_scores import choose_given, minimise
from bagwise.linear.one_hot import OneHotMoments, told_noise
from bagwise.log_odds import LEAST, shift_to
from bagwise.utils.parameters import (
    NONE,
    AdviceError,
    Constraint,
    Parameter,
    ParameterError,
    check_parameters,
    instance,
    number,
    one_of,
)
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.text import number_of
from bagwise.utils.typing import Booleans, Floats, Integers, NDArray

_NODES = norm.ppf((np.arange(400) + 0.5) / 400)
_STEEPEST = 8.0  # times the slope that log odds have at p
_FAR = 6.0  # standard errors between declared noise and what repeats tell, and
_MUCH = 0.1  # the share of it, from which on there is a warning
_ROUNDS = 2


class NoiseDiffersWarning(UserWarning):
    """Numbers that tables repeat of each other lie farther apart, or closer, than the declared noise allows."""


class AggregatedClassifier(ClassifierMixin, BaseEstimator, ABC):
    """What classifiers from tables of counts share: moments, a penalty chosen without rows, single rows scored.

    Attributes
    ----------
    classes_ : array
        0 and 1.
    features_ : tuple of CountedFeature
        What rows are read by.
    coef_, intercept_ : array of shape (cells,) and float
        Weights of log odds by the cells of all features, the rest of each last; see `weights`.
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "alpha": number(above=0) | NONE,
        "missing_pairs": one_of("error", "independent"),
    }

    def __init__(
        self, *, alpha: float | None = None, missing_pairs: str = "error", random_state: RandomState = None
    ) -> None:
        self.alpha, self.missing_pairs, self.random_state = alpha, missing_pairs, random_state

    @abstractmethod
    def _solve(self, data: Aggregates, moments: OneHotMoments, alpha: float) -> tuple[Floats, float]:
        """Weights and intercept of log odds b + w·(x − mean).  alpha: of ridge regression."""

    def fit(self, X: Aggregates, y: None = None) -> Self:
        """Learn from tables.

        Parameters
        ----------
        X : Aggregates
            Tables of counts and label sums.
        y : None
            There are no labels but the sums.

        Returns
        -------
        Self
            The estimator itself.
        """
        data = X
        check_parameters(self, self._constraints)
        check_parameters({"X": X}, {"X": instance(Aggregates, "tables of counts (`bagwise.data.Aggregates`)")})
        if y is not None:
            raise ParameterError("y", "must be left out: labels are known as sums, which the tables have.")
        if self.missing_pairs == "error" and (lacking := data.pairs_without_table):
            one, other = (data.features[place].name for place in lacking[0])
            raise AdviceError(
                f"{number_of(len(lacking), 'pair')} of features without a table, as {one!r} and {other!r}: what they "
                "share would count twice; add such tables, leave features out, or take these pairs as independent (",
                Parameter("missing_pairs"),
                "='independent').",
            )
        moments = OneHotMoments.of(data)
        self.noise_ratio_, told = _tell_noise(data, moments)
        if told is not None:
            data = data.at_noise_level(told)
            moments = OneHotMoments.of(data)
        if not LEAST < moments.prior < 1 - LEAST:
            raise ValueError(
                f"the mean label is {moments.prior:.4g} by the tables: a classifier needs two classes; check which "
                "column is the sum of labels."
            )
        self.classes_, self.features_, self.n_features_in_ = np.arange(2), data.features, len(data.features)
        self.feature_names_in_ = np.array([one.name for one in data.features], dtype=object)
        self.prior_, self.rows_, self.noise_variance_ = moments.prior, moments.rows, moments.noise_variance
        self.independent_pairs_ = len(data.pairs_without_table)
        if self.alpha is not None:
            alphas = np.array([float(self.alpha)])
        elif data.threshold is not None:
            alphas = np.array([alpha_of_noise(moments)])
        else:
            alphas = usual_alphas(moments)
        found = risks(data, moments, alphas, generator(self.random_state))
        self.alpha_, r2, error = (float(one[found.best]) for one in (found.alphas, found.r2, found.error))
        # Where cells are hidden, tables tell of what is shown only: enough to choose by, not to report.
        told = data.threshold is None and not self.independent_pairs_ and r2 <= 1
        self.r2_, self.r2_error_ = (r2, error) if told else (float("nan"), float("nan"))
        if not clear(r2, error):
            warnings.warn(
                f"the tables do not clearly say that this model is better than the mean label of all rows (R² of ridge "
                f"regression {r2:+.2g} ± {error:.2g}): it may say nothing about single rows.",
                NoBetterThanConstantWarning,
                stacklevel=2,
            )
        w, b = self._solve(data, moments, self.alpha_)
        self._keep(w, b, data, moments)
        return self

    def _keep(self, w: Floats, b: float, data: Aggregates, moments: OneHotMoments) -> None:
        """Weights of log odds; cells without rows, the rest among them, get the mean of their feature."""
        self.shares_ = moments.mean
        for feature in range(len(data.features)):
            at = data.block(feature)
            share = moments.mean[at]
            w[at] = np.where(share > 0, w[at], share @ w[at])
        self.coef_, self.intercept_ = w, float(b - moments.mean @ w)

    def by_feature(self) -> tuple[list[Floats], list[Floats]]:
        """For each feature, the weights of its cells, and what share of the rows is in each.

        Returns
        -------
        list of array, list of array
        """
        check_is_fitted(self)
        at = np.cumsum([one.rest + 1 for one in self.features_])[:-1]
        return np.split(self.coef_, at), np.split(self.shares_, at)

    def weights(self) -> dict[str, dict[str, float]]:
        """Weights of log odds by feature and value, less their mean over rows; "" is the rest.

        Returns
        -------
        dict of dict of float
        """
        check_is_fitted(self)
        named = zip(self.features_, *self.by_feature(), strict=True)
        return {
            one.name: dict(zip([*one.levels, ""], (w - share @ w).tolist(), strict=True)) for one, w, share in named
        }

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of labels 0 and 1.

        Parameters
        ----------
        X : table, or array of shape (n, features)
            Columns with the names of the features; or, in their order, numbers of levels (NaN for others), and numbers
            as they are where there are edges. Values that have no cell, or are missing, count as the rest.

        Returns
        -------
        array of shape (n, 2)
        """
        cells = self._cells(X)
        scores = np.full(len(cells[0]), self.intercept_)
        for w, cell in zip(self.by_feature()[0], cells, strict=True):
            scores += w[cell]
        h = np.clip(expit(scores), LEAST, 1 - LEAST)
        return np.stack([1 - h, h], axis=1)

    def check_whole(self) -> None:
        """Raise unless its parts fit each other, so that it predicts: of a model that was read from a file."""
        if self.predict_proba(np.zeros((1, len(self.features_)))).shape != (1, 2):
            raise ValueError("it does not predict two classes")

    def predict(self, X: Any) -> NDArray[Any]:
        """The more probable label of each row of `X`, as in `predict_proba`."""
        return np.asarray(self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(int)])

    def _cells(self, X: Any) -> list[Integers]:
        """For each feature, the cells that rows are in."""
        check_is_fitted(self)
        if is_table(X):
            frame = as_frame(X)
            if absent := [one.name for one in self.features_ if one.name not in frame.columns]:
                raise ValueError(f"column {absent[0]!r} is missing: the tables count rows by it.")
            return [one.cells(frame[one.name]) for one in self.features_]
        codes = np.asarray(X, dtype=float)
        if codes.ndim != 2 or codes.shape[1] != len(self.features_):
            raise ValueError(f"X has the shape {codes.shape}: it must have {len(self.features_)} columns.")
        return [one.cells_of(column) for one, column in zip(self.features_, codes.T, strict=True)]

    def used_features(self) -> Booleans | None:
        """Whether the weights of each feature differ."""
        return np.array([bool(np.ptp(w) > 0) for w in self.by_feature()[0]])

    def cannot_update(self) -> str | None:
        """Why it cannot learn from further bags as it is."""
        return f"a {type(self).__name__} learns from tables of counts: add these up, and fit it again"


class AggregatedLogisticClassifier(AggregatedClassifier):
    r"""Logistic regression from noised counts and label sums by one feature and by two; scores single rows.

    Minimises :math:`E[\log(1 + e^s)] - E[y s] + \alpha p(1 - p) |w|^2 / 2n`, s = b + w·x with one-hot x. Tables tell
    E[y s]; of the distribution of s they tell that of any two features, given which the rest is taken as Gaussian (see
    `bagwise.linear.gaussian_scores`): exact for two features, convex for any number. What tables repeat of each other
    is averaged, noise that is left is shrunk (see `bagwise.linear.one_hot`).

    Parameters
    ----------
    alpha : float, optional
        The penalty, in rows, of ridge regression; that of log odds is p(1 − p) as large, the curvature of the log loss.
        None chooses by the square loss of ridge regression for new rows, which tables with noise tell without bias
        once noise is split in two (see `bagwise.linear.aggregated_risk`).
    missing_pairs : {"error", "independent"}
        What pairs of features without a table are: features that go together then count twice, so that probabilities
        are too close to 0 and 1.
    random_state : int, Generator or None
        For the splitting of noise.

    Attributes
    ----------
    features_ : tuple of CountedFeature
        What rows are read by.
    coef_, intercept_ : array of shape (cells,), and float
        Weights of log odds by the cells of all features, the rest of each last; see `weights`.
    shares_ : array of shape (cells,)
        What share of the rows is in each.
    alpha_ : float
        The penalty.
    prior_, rows_ : float
        Mean label, and number of rows, by the tables.
    noise_variance_ : float
        Of the noise on a cell, as declared or as repeats tell; the largest, where lines differ.
    noise_ratio_ : float
        What repeats tell, in that which is declared; NaN where nothing is repeated or declared.
    r2_, r2_error_ : float
        Share of the variance of new labels that ridge regression with this penalty explains, by the tables, and its
        standard error; NaN where cells are hidden or pairs of features have no table.
    independent_pairs_ : int
        Pairs of features without a table, which are taken as independent.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = {"device": rng.integers(3, size=20_000), "hour": rng.integers(4, size=20_000)}
    >>> y = rng.random(20_000) < expit(X["device"] - 0.5 * X["hour"] - 1)
    >>> exact = Aggregates.of(X, y)
    >>> noised = exact.noised(lambda cells: cells + rng.normal(scale=10, size=cells.shape), 100.0)
    >>> model = AggregatedLogisticClassifier(random_state=0).fit(noised)
    >>> device = model.weights()["device"]
    >>> round(device["2"] - device["0"])
    2
    """

    def _solve(self, data: Aggregates, moments: OneHotMoments, alpha: float) -> tuple[Floats, float]:
        w = ridge(moments, np.array([alpha])).coef[:, 0]
        slope, b = steepness(float(w @ moments.covariance @ w) / moments.rows, moments.prior)
        w = slope * w
        for _ in range(_ROUNDS):
            given = choose_given(moments, data, w)
            w, b = minimise(moments, given, alpha * moments.prior * (1 - moments.prior), w, b)
        return w, b


class AggregatedRidgeClassifier(AggregatedClassifier):
    r"""Ridge regression from noised counts and label sums by one feature and by two, in closed form.

    The linear :math:`h = p + w \cdot (x - \bar x)` leaves [0, 1]; were h Gaussian, logistic regression would have the
    same weights divided by :math:`E[\sigma'(s)]` (Stein's lemma), which makes probabilities of it, of mean p. Quicker
    than `AggregatedLogisticClassifier`, and less exact.

    Parameters
    ----------
    alpha : float, optional
        The penalty, in rows; None chooses as in `AggregatedLogisticClassifier`.
    missing_pairs, random_state
        As in `AggregatedLogisticClassifier`.

    Attributes
    ----------
    features_, coef_, intercept_, shares_, alpha_ : tuple, array, float, array and float
        As in `AggregatedLogisticClassifier`.
    prior_, rows_, noise_variance_, noise_ratio_ : float
        As in `AggregatedLogisticClassifier`.
    r2_, r2_error_, independent_pairs_ : float, float and int
        As in `AggregatedLogisticClassifier`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = {"device": rng.integers(3, size=20_000), "hour": rng.integers(4, size=20_000)}
    >>> y = rng.random(20_000) < expit(X["device"] - 0.5 * X["hour"] - 1)
    >>> model = AggregatedRidgeClassifier().fit(Aggregates.of(X, y))
    >>> device = model.weights()["device"]
    >>> round(device["2"] - device["0"])
    2
    """

    def _solve(self, data: Aggregates, moments: OneHotMoments, alpha: float) -> tuple[Floats, float]:
        w = ridge(moments, np.array([alpha])).coef[:, 0]
        slope, b = steepness(float(w @ moments.covariance @ w) / moments.rows, moments.prior)
        return slope * w, b


def steepness(variance: float, prior: float) -> tuple[float, float]:
    r"""The a and b of log odds b + a g for Gaussian g: :math:`a E[\sigma'(b + a g)] = 1` and :math:`E[\sigma] = p`.

    variance: of g, the linear prediction less its mean.  prior: p.

    >>> [round(one, 2) for one in steepness(1e-6, 0.5)], [round(one, 2) for one in steepness(0.04, 0.5)]
    ([4.0, 0.0], [4.77, 0.0])
    """
    g, low = np.sqrt(variance) * _NODES, 1 / (prior * (1 - prior))
    high = _STEEPEST * low
    for _ in range(50):
        a = (low + high) / 2
        h = expit(a * g + shift_to(prior, a * g))
        low, high = (a, high) if a * float((h * (1 - h)).mean()) < 1 else (low, a)
    return low, float(shift_to(prior, low * g)) if variance > 0 else float(logit(prior))


def _tell_noise(data: Aggregates, moments: OneHotMoments) -> tuple[float, float | None]:
    """What repeats tell of the noise in that which is declared, and its variance, if the two are far apart.

    With a warning.
    """
    freedom = sum(one.freedom for one in moments.repeats)
    if data.noise_range is None or data.threshold is not None or not freedom:
        return float("nan"), None
    told, (least, declared) = sum(one.squares for one in moments.repeats) / freedom, data.noise_range
    exact = 1.0 if told < 1e-6 else float("inf")
    ratio = exact if declared == 0 else told / declared
    if abs(ratio - 1) <= max(_MUCH, _FAR * np.sqrt(2 / freedom)):
        return ratio, None
    if least == declared:
        said = f"variance {told:.3g}, not {declared:.3g} as declared: the former is used"
    else:
        said = f"{ratio:.3g} times the variance that is declared: all variances are taken as that much larger"
    warnings.warn(
        f"counts and sums that tables repeat of each other have noise of {said}; check what was declared.",
        NoiseDiffersWarning,
        stacklevel=3,
    )
    return ratio, told_noise(moments.repeats, moments.rows)
