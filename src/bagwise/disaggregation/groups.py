"""What users ask for: rates, or mean values, of groups of rows in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.grouping import as_bags
from bagwise.base import BagClassifier, BagRegressor
from bagwise.disaggregation.members import Groups, joint
from bagwise.disaggregation.rates import rates_of
from bagwise.disaggregation.refitting import refit_of
from bagwise.disaggregation.result import GroupRates
from bagwise.disaggregation.values import means_of
from bagwise.evaluation.measures import column
from bagwise.evaluation.values import formation_of_values
from bagwise.formation import FORMATION, Told, formation_of
from bagwise.nonnegative import NONNEGATIVE, never_negative
from bagwise.predictions import check_one_label, fitting_bags, predicted, predicted_values
from bagwise.utils.parameters import LEVEL, TARGET, ParameterError, check_parameters, number
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats, NDArray

RELATED = 0.5
"""The correlation of unseen effects with the shares of groups that intervals allow for: a large one (Cohen, 1988)."""

_GROUPS = "the groups"

CONSTRAINTS = {"formation": FORMATION, "level": LEVEL, "related": number(least=0, most=1)}
"""Of what may be asked for."""


def group_rates(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    by: ArrayLike | str | Sequence[str],
    bags: ArrayLike | Bags | None = None,
    formation: str = "auto",
    related: float = RELATED,
    level: float = 0.95,
    target: str = "auto",
    nonnegative: bool | str = "auto",
    random_state: RandomState = 0,
) -> GroupRates:
    r"""Share of positive labels in each group of rows, given a model and the reports of bags; no labels are needed.

    Of a regressor, whose labels are real: their mean in each group (see `bagwise.disaggregation.values`).

    The model's log odds, with a shift for each group that the reports decide (`shifts`), give the rate; the reports
    settle what they can. Intervals hold what is left: of labels inside of bags, of the fit, by a sandwich over bags,
    and of effects of bags. Bounds hold whatever is true (Duncan and Davis, 1953).

    Whether unseen effects of bags go along with the shares of groups cannot be told from totals: the ecological
    fallacy. Intervals allow for a correlation of `related`; where bags contradict that rates do not change with shares,
    for effects that follow these altogether; where bags are too few, bounds alone are given.

    Parameters
    ----------
    model : fitted classifier or regressor, or array of shape (n,) or (n, classes)
        The model, or its predictions. One that was fitted to these very bags is fitted five times more, each time to
        four fifths of them, since its own scores know the reports that they are to be compared with.
    X : array or table of shape (n, features), or None
        The rows; None where predictions are given.
    y, bags
        What bags reported, as for `fit`. Where rows have weights, rates are those of the people for whom rows stand;
        predictions that are given have the offset of rows in them.
    by : array of shape (n,), or names of columns of X
        What tells the group of a row; several columns together.
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about: what intervals assume.
    related : float
        Correlation from 0 to 1, see above; 0 for effects that have nothing to do with groups.
    level : float
        Of the intervals.
    target : {"auto", "label", "value"}
        What bags report: proportions of labels, or means of real numbers. "auto": the latter for a regressor.
    nonnegative : bool or "auto"
        Of values: whether none is negative, which bounds are made of; "auto" takes the parameter of that name of the
        model, if it has one, and values for that where no bag reports less than 0.
    random_state : int, Generator or None
        Of the folds.

    Returns
    -------
    GroupRates

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(1)
    >>> town = rng.random(20_000) < np.repeat(rng.uniform(size=100), 200)
    >>> y, precinct = rng.random(20_000) < 0.3 + 0.4 * town, np.repeat(np.arange(100), 200)
    >>> share, group = bw.aggregate(y, precinct), np.where(town, "town", "country")
    >>> found = group_rates(np.full(20_000, y.mean()), None, share, bags=precinct, by=group, formation="features")
    >>> [(one.value, round(one.rate, 2)) for one in found.rates]
    [('town', 0.71), ('country', 0.3)]
    >>> all(one.low < y[group == one.value].mean() < one.high for one in found.rates)
    True
    """
    settings = {"formation": formation, "level": level, "related": related, "target": target}
    settings["nonnegative"] = nonnegative
    check_parameters(settings, {**CONSTRAINTS, "target": TARGET, "nonnegative": NONNEGATIVE})
    of_values = target == "value" or (target == "auto" and isinstance(model, BagRegressor))
    h = (predicted_values if of_values else predicted)(model, X, bags)
    every = as_bags(y, bags, len(h), whole_labels=not of_values)
    if of_values:
        check_one_label(given := every)
    else:
        given = fitting_bags(h, every)
        given.check_proportions()
    names: list[Any] = [by] if isinstance(by, str) else list(np.asarray(by, dtype=object))
    named = len(names) != len(h) and all(isinstance(one, str) for one in names)
    columns = [column("by", one, X, len(h)) for one in names] if named else [np.asarray(by)]
    if columns[0].shape != (len(h),):
        raise ParameterError("by", f"must hold one value per row, shape ({len(h)},), got shape {columns[0].shape}.")
    own = getattr(model, "_bags_seen", None) == given.fingerprint
    texts = joint(columns)
    known = getattr(model, "formation_", None) if own else None
    told = formation_beside(known, formation, X, texts, h, given, values=of_values)
    refit = None
    if own and isinstance(model, (BagClassifier, BagRegressor)):
        refit = refit_of(model, model._check_features(X, fitting=False), every)
    given, rng = replace(given, offset=every.offset), generator(random_state)
    groups = Groups.of(texts, given)
    asked: dict[str, Any] = {"told": told, "refit": refit, "related": related, "level": level, "rng": rng}
    if not of_values:
        return rates_of(h, given, groups, **asked)
    return means_of(h, given, groups, nonnegative=sign_of(model, nonnegative, given), **asked)


def formation_beside(
    known: Told | None, asked: str, X: Any, texts: NDArray[Any], h: Floats, bags: Bags, *, values: bool
) -> Told:
    """The formation asked for; or that of a fit to these bags, unless this found bags random where groups differ.

    known: of the fit.  X: rows, or None.  texts: (n_rows,) of groups, of which bags may differ in the shares.  h:
    predictions.  bags: without offset.
    """
    if asked != "auto":
        return formation_of(asked, None, bags)
    if known is not None and known.name != "random":
        return known
    X = _with_groups(X, texts)
    if known is not None:  # predictions know what these bags report
        found = formation_of("auto", X, bags, values=values)
        return known if found.name == "random" else found
    return formation_of_values("auto", h, X, bags) if values else formation_of("auto", X, bags, h=h)


def _with_groups(X: Any, texts: NDArray[Any]) -> Any:
    """The rows with their groups as a further column; as they are where they are no table of pandas or array."""
    import pandas as pd

    groups = pd.Categorical(texts)
    if X is None or isinstance(X, pd.DataFrame):
        return pd.DataFrame({_GROUPS: groups}) if X is None else X.assign(**{_GROUPS: groups})
    if isinstance(X, np.ndarray) and X.ndim == 2:
        return pd.DataFrame(X, columns=[f"feature {place}" for place in range(X.shape[1])]).assign(**{_GROUPS: groups})
    return X


def sign_of(model: Any, nonnegative: bool | str, bags: Bags) -> bool:
    """Whether values are never negative, so that sums bound them: as asked for, here or of the model, or as bags tell.

    Bounds ask for more than predictions: that no report is below 0, whatever its noise.
    """
    asked = getattr(model, "nonnegative", "auto") if nonnegative == "auto" else nonnegative
    return never_negative(asked, bags.size, bags.proportion) and bool(getattr(model, "nonnegative_", True))
