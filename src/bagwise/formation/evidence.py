"""What bags show of how they came about, and the formation that this speaks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from bagwise.bags import Bags
from bagwise.dispersion import NOT_RANDOM, Finding, among, feature_dispersions, proportion_spread
from bagwise.formation.formations import Told
from bagwise.utils.typing import Floats

ENOUGH_BAGS = 12
"""Bags below which nothing is told of their formation."""

_CELLS = 1_500_000  # numbers of X that are looked at
_ENOUGH_OF_MANY = 100  # bags that are looked at where X is large


@dataclass(frozen=True)
class Slope:
    """A line through bags.

    Attributes
    ----------
    value, error : float
        Its slope and the standard error of that, which respects bags.
    expected : float
        What it is where the assumption that it tests holds.
    """

    value: float
    error: float
    expected: float


@dataclass(frozen=True)
class Evidence:
    """What bags show, each beside what random bags would.

    Attributes
    ----------
    n_bags : int
        How many bags there are.
    proportions : Finding
        Do bags differ in their proportion?
    features : Finding
        Do they differ in a feature? The one in which they do most.
    given_proportions : Finding
        Do they differ in a feature more than their proportions explain?
    forward, reverse : Slope, optional
        As `slopes` measures them, where a model was at hand.
    """

    n_bags: int
    proportions: Finding
    features: Finding
    given_proportions: Finding
    forward: Slope | None = None
    reverse: Slope | None = None

    def with_model(self, h: Floats, bags: Bags) -> Evidence:
        """The same, with the slopes of a model's predictions.

        Parameters
        ----------
        h : array of shape (n_bagged,)
            Predictions for rows of bags that the model was not fitted to, in bag order.
        bags : Bags
            Those bags.

        Returns
        -------
        Evidence
        """
        forward, reverse = slopes(h, bags)
        return replace(self, forward=forward, reverse=reverse)


def formation_of(name: str, X: Any, bags: Bags, names: Sequence[str] | None = None) -> Told:
    """The formation asked for; or, for "auto", the one that the bags tell.

    Parameters
    ----------
    name : str
        A key of `FORMATIONS`, or "auto".
    X : array of shape (n, …)
        Rows, in table order.
    bags : Bags
        Their bags.
    names : sequence of str, optional
        Names of the columns of X.

    Returns
    -------
    Told
    """
    return told(evidence(X, bags, names)) if name == "auto" else Told(name, "as asked for")


def evidence(X: Any, bags: Bags, names: Sequence[str] | None = None) -> Evidence:
    """Measure what bags show; where X is large, on some of the bags and features.

    Parameters
    ----------
    X : array of shape (n, …)
        Rows, in table order.
    bags : Bags
        Their bags.
    names : sequence of str, optional
        Names of the columns of X.

    Returns
    -------
    Evidence

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(6400, 2))
    >>> y = rng.random(6400) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> ids = np.argsort(np.argsort(X[:, 0])) // 64
    >>> found = evidence(X, Bags.from_rows(bw.aggregate(y, ids), ids))
    >>> found.features.p_value < 1e-6, found.given_proportions.p_value < 1e-6
    (True, True)
    """
    X, some = _some(X, bags)
    spread = [one for one in feature_dispersions(_named(X, names), some) if not np.isnan(one.p_value)]
    unknown = Finding("features", np.nan, np.nan)
    features = min(spread, key=lambda one: one.p_value, default=unknown)
    return Evidence(len(bags), proportion_spread(bags), features, _given_proportions(np.asarray(X), some))


def _named(X: Any, names: Sequence[str] | None) -> Any:
    """A matrix as a table whose columns are called by their names, where these are known."""
    if names is None or not isinstance(X, np.ndarray) or X.ndim != 2:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=list(names), copy=False)


def _some(X: Any, bags: Bags) -> tuple[Any, Bags]:
    """Rows of some of the bags, where there are many of both; all of a table that is no array of numbers."""
    if not isinstance(X, np.ndarray) or X.ndim != 2:
        return X, bags
    step = max(1, min(-(-bags.n_bagged * X.shape[1] // _CELLS), len(bags) // _ENOUGH_OF_MANY))
    if step == 1:
        return X, bags
    some = bags.take(np.arange(0, len(bags), step))
    rows, code = np.arange(some.n_bagged), some.repeat(np.arange(len(some)))
    noise = some.noise_variance
    return X[some.order], Bags.build(some.keys, rows, some.offsets, some.proportion, noise, len(rows), code)


def _given_proportions(X: Floats, bags: Bags) -> Finding:
    """Do bag means of features scatter about the line through the proportions more than rows of one label do?

    Given its count, a bag's sum of a feature varies by what rows of one label vary among themselves: what they do in a
    bag, less what is between the labels.
    """
    if X.ndim != 2 or X.dtype.kind not in "fiub" or len(bags) < ENOUGH_BAGS or (bags.size < 2).all():
        return Finding("features given proportions", np.nan, np.nan)
    columns = np.arange(0, X.shape[1], max(1, bags.n_bagged * X.shape[1] // _CELLS))
    found = [_scatter(_ranks(X[bags.order, c]), bags) for c in columns]
    tested = [one for one in found if not np.isnan(one[1])]
    ratio, p_value = min(tested, key=lambda one: one[1], default=(np.nan, np.nan))
    return among(max(len(tested), 1), Finding("features given proportions", ratio, p_value))


def _ranks(x: Floats) -> Floats:
    """Ranks, equal ones for equal values; to be missing is one, beyond the others."""
    x = np.where(np.isnan(x), np.inf, x)
    order = np.argsort(x)
    ordered = x[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    first = np.append(np.flatnonzero(new), len(x))
    ranks = np.empty(len(x))
    ranks[order] = (first[:-1] + first[1:] - 1)[np.cumsum(new) - 1] / 2
    return ranks


def _scatter(x: Floats, bags: Bags) -> tuple[float, float]:
    size, outputs = bags.size, bags.outputs[:, : max(1, bags.outputs.shape[1] - 1)]
    mean = bags.mean(x)
    within = bags.sum((x - bags.repeat(mean)) ** 2)
    root = np.sqrt(size)
    line = np.column_stack([np.ones(len(bags)), outputs]) * root[:, None]
    slope, _, rank, _ = np.linalg.lstsq(line, root * mean)
    freedom = len(bags) - int(rank)
    spread = float(within.sum() / (size - 1).sum()) if (size > 1).any() else 0.0
    if bags.proportion.ndim == 1:  # what is between the labels, which a known count takes away
        between = float(np.average(bags.proportion * (1 - bags.proportion), weights=size)) * slope[1] ** 2
        spread -= max(0.0, between)
    rest = float(((root * mean - line @ slope) ** 2).sum())
    if freedom < 2 or rest <= 1e-12 * float((x**2).sum()):
        return np.nan, np.nan
    if spread <= 0:  # rows of a bag are more alike than labels that far apart allow
        return np.inf, 0.0
    # Squares of sums of few rows with long tails vary more than those of normal ones: so much less freedom.
    tail = float(((x - bags.repeat(mean)) ** 4).mean() / (within.sum() / len(x)) ** 2) - 3
    wild = 1 + max(tail, 0.0) * float((1 / size).mean()) / 2
    statistic = rest / spread
    return statistic / freedom, float(stats.chi2.sf(statistic / wild, freedom / wild))


def told(found: Evidence, *, level: float = NOT_RANDOM) -> Told:
    """The formation that the evidence speaks for.

    Parameters
    ----------
    found : Evidence
        As measured.
    level : float
        p-value below which something is not by chance.

    Returns
    -------
    Told

    Examples
    --------
    >>> unusual, usual = Finding("proportions", 30.0, 1e-9), Finding("features", 1.0, 0.5)
    >>> told(Evidence(100, usual, usual, usual)).name, told(Evidence(100, unusual, usual, usual)).others
    ('random', ('effects',))
    """
    if found.n_bags < ENOUGH_BAGS:
        return Told("effects", f"{found.n_bags} bags are too few to tell: the weakest assumption is made")
    grouped = found.given_proportions.p_value < level and found.given_proportions.ratio > 1
    uneven = found.proportions.p_value < level and found.proportions.ratio > 1
    if grouped:
        return Told(
            "features", f"bags differ in {_words(found.features)} more than their proportions explain", ("effects",)
        )
    if uneven:
        return Told(
            "rates", f"proportions vary {found.proportions.ratio:.3g} times as much as in random bags", ("effects",)
        )
    return Told("random", "nothing speaks against random bags")


def _words(finding: Finding) -> str:
    return finding.subject if not np.isnan(finding.p_value) else "a feature"


def slopes(h: Floats, bags: Bags) -> tuple[Slope, Slope]:
    """The line of proportions on mean predictions of bags, and that of mean predictions on proportions.

    Bags weigh as many rows as they have. The forward slope is 1 where the model is calibrated and bags are random or
    formed by features; the reverse slope is Var(h) / p(1 − p) where it is calibrated and bags are random or differ in
    rates.

    Parameters
    ----------
    h : array of shape (n_bagged,)
        Predictions for rows of bags that the model was not fitted to, in bag order.
    bags : Bags
        Those bags, of labels 0 and 1; declared noise is subtracted from the variance of proportions.

    Returns
    -------
    Slope, Slope

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> h = rng.uniform(size=40_000)
    >>> y = rng.random(40_000) < h
    >>> bags = Bags.from_rows(np.repeat(y.reshape(-1, 10).mean(axis=1), 10), np.arange(40_000) // 10)
    >>> [abs(one.value - one.expected) < 4 * one.error for one in slopes(h, bags)]
    [True, True]
    """
    h = np.asarray(h, dtype=float)
    mean, p = bags.mean(h), float(np.average(bags.proportion, weights=bags.size))
    noise = 0.0 if bags.noise_variance is None else float((bags.noise_variance / bags.size).sum())
    expected = float(h.var()) / max(p * (1 - p), 1e-300)
    return _slope(mean, bags.proportion, bags.size, 1.0), _slope(bags.proportion, mean, bags.size, expected, noise)


def _slope(x: Floats, y: Floats, weight: Floats, expected: float, noise: float = 0.0) -> Slope:
    """Least squares of y on x, whose sum of squares has so much noise in it."""
    x, y = x - np.average(x, weights=weight), y - np.average(y, weights=weight)
    square = float((weight * x**2).sum()) - noise
    if square <= 1e-12 * float(weight.sum()) or len(x) < 3:
        return Slope(np.nan, np.nan, expected)
    value = float((weight * x * y).sum()) / square
    influence = weight * x * (y - value * x)
    return Slope(value, float(np.sqrt((influence**2).sum() * len(x) / (len(x) - 2))) / square, expected)
