"""What bags show of how they came about, and the formation that this speaks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logit

from bagwise.bags import Bags
from bagwise.dispersion import (
    NOT_RANDOM,
    Finding,
    among,
    feature_spread,
    proportion_spread,
)
from bagwise.formation.formations import Told
from bagwise.formation.scatter import given_proportions, terms
from bagwise.formation.slopes import Slope, slopes
from bagwise.formation.support import likeliest_factors, settled
from bagwise.gains import HeldOut
from bagwise.log_odds import prior_of
from bagwise.predictions import fitting_bags
from bagwise.ranks import Columns, compared, scores_of
from bagwise.utils.typing import Floats

ENOUGH_BAGS = 12
"""Bags below which nothing is told of their formation."""

_CAREFUL = ("effects", "features", "rates", "random")  # what assumes least comes first
_CELLS = 1_500_000  # numbers of X that are looked at
_SUREST = 1e-6  # that predictions are taken to be away from 0 and 1


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
        Do they differ in a feature, its square, a product of two, or a model's predictions? The least likely one.
    given_proportions : Finding
        Do they differ in one of these more than their proportions explain? The least likely one.
    forward, reverse : Slope, optional
        As `slopes` measures them, where a model was at hand.
    each : tuple of Finding
        Do they differ in this one? For each feature and, where bags do not differ in features, each square and product.
    values : bool
        Whether labels are real numbers: how much their means may differ by chance is then unknown, and is not asked.
    """

    n_bags: int
    proportions: Finding
    features: Finding
    given_proportions: Finding
    forward: Slope | None = None
    reverse: Slope | None = None
    each: tuple[Finding, ...] = ()
    values: bool = False

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

    def among(self, tests: int) -> Evidence:
        """The same, as one of so many looks at the bags, which all p-values then count.

        Parameters
        ----------
        tests : int
            How many.

        Returns
        -------
        Evidence
        """
        return replace(
            self,
            proportions=among(tests, self.proportions),
            features=among(tests, self.features),
            given_proportions=among(tests, self.given_proportions),
            each=tuple(among(tests, one) for one in self.each),
        )


def formation_of(
    name: str,
    X: Any,
    bags: Bags,
    names: Sequence[str] | None = None,
    *,
    h: Floats | None = None,
    values: bool = False,
) -> Told:
    """The formation asked for; or, for "auto", the one that the bags tell.

    Parameters
    ----------
    name : str
        A key of `FORMATIONS`, or "auto".
    X : array or table of shape (n, …), or None
        Rows, in table order.
    bags : Bags
        Their bags.
    names : sequence of str, optional
        Names of the columns of X.
    h : array of shape (n,) or (n, classes), optional
        Predictions of a model that was not fitted to these bags, in table order. They are looked at beside the
        features, and settle what bags alone leave open (see `settled`), however sure the model is of them.
    values : bool
        Whether labels are real numbers: then bags are random, unless they differ in features or predictions.

    Returns
    -------
    Told

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> h = rng.uniform(0.1, 0.9, size=6400)
    >>> moved = logit(h) + np.repeat(rng.normal(size=100), 64)
    >>> y = rng.random(6400) < 1 / (1 + np.exp(-moved))
    >>> bags = Bags.from_rows(np.repeat(y.reshape(100, 64).mean(axis=1), 64), np.arange(6400) // 64)
    >>> formation_of("auto", None, bags, h=h).name
    'effects'
    """
    if name != "auto":
        return Told(name, "as asked for")
    if bags.weight is not None and _are_labels(bags):
        return Told("random", "every row is a bag of its own: reports are labels")
    if bags.overlap is not None:
        parts = [bags.take(bags.overlap.table == number) for number in np.unique(bags.overlap.table)]
        each = [formation_of(name, X, replace(part, overlap=None), names, h=h, values=values) for part in parts]
        careful = min(each, key=lambda one: _CAREFUL.index(one.name))
        return replace(careful, reason=f"of {len(each)} tables of reports the most careful: {careful.reason}")
    found = told(evidence(X, bags, names, h=h, values=values))
    if values:
        return found
    if h is not None and found.others == ("effects",) and found.name == "rates":
        # Where rates differ, predictions would, unless the model says nothing of the label, and then nothing is lost.
        return Told("effects", f"{found.reason}, in which predictions have no part")
    if h is None or h.ndim != 1 or not found.others:
        return found
    one_label = fitting_bags(h, bags)
    scores = logit(np.clip(h, _SUREST, 1 - _SUREST))[one_label.order]
    part = HeldOut.of(prior_of(one_label), one_label, scores, scores, one_label)
    return settled(found, [part], factors=likeliest_factors([part]))  # the model may be far too sure, or wrong


def _are_labels(bags: Bags) -> bool:
    """Whether bags have one row each, and report 0 or 1."""
    exact = bags.interval is None and not bags.declared_noise.any()
    return exact and bags.equal_size == 1 and bool(((bags.outputs == 0) | (bags.outputs == 1)).all())


def evidence(
    X: Any, bags: Bags, names: Sequence[str] | None = None, *, h: Floats | None = None, values: bool = False
) -> Evidence:
    """Measure what bags show; where X is large, on some of the bags and features.

    Parameters
    ----------
    X : array or table of shape (n, …), or None
        Rows, in table order.
    bags : Bags
        Their bags.
    names : sequence of str, optional
        Names of the columns of X.
    h : array of shape (n,) or (n, classes), optional
        Predictions of a model that was not fitted to these bags, in table order.
    values : bool
        Whether labels are real numbers.

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
    some, columns = (bags, []) if X is None else compared(_named(X, names), bags, cells=_CELLS)
    if h is not None:
        predictions = h[some.order].reshape(some.n_bagged, -1).T
        columns.insert(0, ("predictions", [score for one in predictions for score in scores_of(one, "h", some.weight)]))
    return evidence_of(columns, some, bags, values=values)


def evidence_of(columns: Columns, some: Bags, bags: Bags, *, values: bool = False) -> Evidence:
    """The same, from columns that are ready to be compared.

    Parameters
    ----------
    columns : list
        As `bagwise.ranks.compared` gives them.
    some : Bags
        The bags of their rows.
    bags : Bags
        All bags.
    values : bool
        Whether labels are real numbers.

    Returns
    -------
    Evidence
    """
    more = terms(columns, some)
    each = [*_spread(columns, some, 2 if more else 1), *_spread(more, some, 2)]
    scatter = [Finding("features", np.nan, np.nan)]
    if len(some) >= ENOUGH_BAGS and not values:
        scatter = [
            among((2 if more else 1) * len(part), one)
            for part in (columns, more)
            for one in given_proportions(part, some)
        ]
    left = replace(_least_likely(scatter), subject=f"{_least_likely(scatter).subject} given proportions")
    proportions = Finding("proportions", np.nan, np.nan) if values else proportion_spread(bags)
    return Evidence(len(bags), proportions, _least_likely(each), left, each=tuple(each), values=values)


def _spread(columns: Columns, bags: Bags, families: int) -> list[Finding]:
    return [among(families * len(columns), feature_spread(name, scores, bags)) for name, scores in columns]


def _least_likely(found: Sequence[Finding]) -> Finding:
    known = [one for one in found if not np.isnan(one.p_value)]
    return min(known, key=lambda one: (one.p_value, -one.ratio), default=Finding("features", np.nan, np.nan))


def _named(X: Any, names: Sequence[str] | None) -> Any:
    """A matrix as a table whose columns are called by their names, where these are known."""
    if names is None or not isinstance(X, np.ndarray) or X.ndim != 2:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=list(names), copy=False)


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
    proportions, features, left = found.proportions, found.features, found.given_proportions
    if left.p_value < level:
        what = features.subject if features.p_value < level and features.ratio > 1 else "a feature"
        return Told("features", f"bags differ in {what} more than their proportions explain", ("effects",))
    even = [one for one in found.each if one.p_value < level and one.ratio < 1]
    differ = features.p_value < level and features.ratio > 1
    if even and not differ:
        return Told("features", f"bags are more alike in {_least_likely(even).subject} than random ones")
    if found.values and differ:
        return Told("features", f"bags differ in {features.subject}", ("rates", "effects"))
    if proportions.p_value < level and proportions.ratio < 1:
        return Told("rates", "proportions of bags are more alike than those of random ones")
    if proportions.p_value < level or differ:
        most = f"proportions vary {proportions.ratio:.3g} times as much as in random bags"
        most = most if proportions.p_value < level else f"bags differ in {features.subject} as their proportions do"
        # Effects of random rows leave features alone: where these differ with proportions, bags differ in rates, unless
        # it is by features that the label goes with.
        return Told("rates", most, ("features", "effects") if differ else ("effects",))
    return Told("random", "nothing speaks against random bags")
