"""Rates of groups from a model and the reports of bags: for arrays, and for what tables have read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from scipy import stats
from scipy.special import expit, logit
from sklearn.base import clone

from bagwise.auto.estimator import default_candidates
from bagwise.bags import Bags
from bagwise.bags.grouping import as_bags
from bagwise.base import BagClassifier
from bagwise.data.rows import InMemory
from bagwise.disaggregation.bounds import bounds_in_bags, members, one_by_one, people_in, people_of
from bagwise.disaggregation.result import GroupRate, GroupRates
from bagwise.disaggregation.shifts import contradiction, fit_shifts, positives
from bagwise.evaluation.measures import column
from bagwise.expectations import Expectations
from bagwise.folds import folds_of
from bagwise.formation import FORMATION, Told, formation_of
from bagwise.gains import NoBetterThanConstantWarning
from bagwise.metrics import estimated
from bagwise.predictions import fitting_bags, predicted
from bagwise.utils.parameters import LEVEL, ParameterError, check_parameters, number
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.text import number_of
from bagwise.utils.typing import ArrayLike, Booleans, Floats, Integers, NDArray

RELATED = 0.5
"""The correlation of unseen effects with the shares of groups that intervals allow for: a large one (Cohen, 1988)."""

Refit: TypeAlias = Callable[[Bags], Floats]
"""Predictions (n_rows,) or (n_rows, classes) of all rows by a model that is fitted to these bags alone."""

_NUMBERS = ("prediction", "rate", "low", "high", "least", "most")  # of a group, from 0 to 1
_MOST_GROUPS, _MOST_NUMBERS = 200, 2**26
_FOLDS, _FEWEST = 5, 3  # bags at least
_CONTRADICTED = 0.01  # a p-value, below which the assumption is not kept
_SUREST = 1e-6
_TIGHT = 1e-6  # rows between bounds that say the number
_ALONE = 1e-6  # a share of the variance of scores, below which groups tell all of them


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
    random_state: RandomState = 0,
) -> GroupRates:
    r"""Share of positive labels in each group of rows, given a model and the reports of bags; no labels are needed.

    The model's log odds, with a shift for each group that the reports decide (`shifts`), give the rate; the reports
    settle what they can. Intervals hold what is left: of labels inside of bags, of the fit, by a sandwich over bags,
    and of effects of bags. Bounds hold whatever is true (Duncan and Davis, 1953).

    Whether unseen effects of bags go along with the shares of groups cannot be told from totals: the ecological
    fallacy. Intervals allow for a correlation of `related`; where bags contradict that rates do not change with shares,
    for effects that follow these altogether; where bags are too few, bounds alone are given.

    Parameters
    ----------
    model : fitted classifier, or array of shape (n,) or (n, classes)
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
    settings = {"formation": formation, "level": level, "related": related}
    check_parameters(settings, {"formation": FORMATION, "level": LEVEL, "related": number(least=0, most=1)})
    h = predicted(model, X, bags)
    every = as_bags(y, bags, len(h), whole_labels=True)
    given = fitting_bags(h, every)
    given.check_proportions()
    names: list[Any] = [by] if isinstance(by, str) else list(np.asarray(by, dtype=object))
    named = len(names) != len(h) and all(isinstance(one, str) for one in names)
    columns = [column("by", one, X, len(h)) for one in names] if named else [np.asarray(by)]
    if columns[0].shape != (len(h),):
        raise ParameterError("by", f"must hold one value per row, shape ({len(h)},), got shape {columns[0].shape}.")
    own = getattr(model, "_bags_seen", None) == given.fingerprint
    told: Told | None = getattr(model, "formation_", None) if own else None
    if formation != "auto" or told is None:
        told = formation_of(formation, X, given, h=h)
    refit = None
    if own and isinstance(model, BagClassifier):
        refit = refit_of(model, model._check_features(X, fitting=False), every)
    groups, given = joint(columns), replace(given, offset=every.offset)
    rng = generator(random_state)
    return rates_of(h, given, groups, told=told, refit=refit, related=related, level=level, rng=rng)


def joint(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """(n,) the values of several columns as one text."""
    texts = []
    for values in columns:
        said = ["missing" if one is None or one != one else str(one) for one in values.tolist()]
        texts.append(np.array(said, dtype=object))
    found = texts[0]
    for more in texts[1:]:
        found = found + " / " + more
    return found.astype(str)


def refit_of(model: BagClassifier, X: Floats, every: Bags) -> Refit:
    """A `Refit` of a fitted classifier to rows as it reads them, X (n_rows, …), whose bags are these."""

    def refit(bags: Bags) -> Floats:
        fresh: Any = clone(model)
        told = fresh.get_params(deep=False)
        if "candidates" in told:  # of all families, the one that was chosen
            name = model.best_name_
            tried = told["candidates"] or default_candidates()
            fresh.set_params(candidates={name: tried[name]} if name in tried else None)
        if "callback" in told:
            fresh.set_params(callback=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoBetterThanConstantWarning)
            fresh.fit_rows(InMemory(X, bags))
        return predicted(fresh, X, every)

    return refit


def rates_of(
    h: Floats,
    bags: Bags,
    groups: NDArray[Any],
    *,
    told: Told,
    refit: Refit | None,
    related: float,
    level: float,
    rng: np.random.Generator,
    labels: Sequence[str] = (),
) -> GroupRates:
    """As `group_rates`, of predictions, checked bags and the text of groups (n_rows,).

    bags: with the offset that predictions have in them.  refit: of a model that has learned from these bags.  labels:
    names of classes.
    """
    values, code = np.unique(groups, return_inverse=True)
    people = people_of(bags)
    size, rows = (people_in(code, len(values), of) for of in (people, np.sign(people)))
    if len(values) * len(h) > _MOST_NUMBERS:
        most = _MOST_NUMBERS // len(values)
        raise ParameterError(
            "by", f"tells {len(values):,} groups of {len(h):,} rows: at most {most:,} can be worked on."
        )
    alone = h if bags.offset is None else _scores(h, bags)
    if refit is not None and told.name != "rates" and not _told_by_groups(alone, code, people):
        h_apart = _cross_fitted(h, bags, refit, rng)
    else:
        h_apart = h
    every = 1 if h.ndim == 1 else h.shape[1]
    found, doubts, effects, least_p = [], [], 0.0, 1.0
    for c in range(every):
        one = bags if h.ndim == 1 else replace(bags, proportion=bags.proportion[:, c])
        mine, apart = (of if h.ndim == 1 else of[:, c] for of in (h, h_apart))
        table, tau, p_value, doubt = _of_label(mine, apart, one, code, size, told.name, related, level, every)
        label = "" if h.ndim == 1 else (labels[c] if labels else str(c))
        for g in np.argsort(-size, kind="stable"):
            if size[g]:
                numbers = dict(zip(_NUMBERS, table[g].tolist(), strict=True))
                of_group = (str(values[g]), int(rows[g]), float(size[g]))
                found.append(GroupRate(*of_group, label=label, **numbers))
        doubts.append(doubt)
        effects, least_p = max(effects, tau), min(least_p, p_value)
    noised = bool(bags.declared_noise.any())
    said = next((one for one in doubts if one is not None), None)
    against = least_p if least_p < _CONTRADICTED else None
    related = related if against is None else 1.0
    of_people = bags.weight is not None
    about = (told, len(bags), int(rows.sum()), level, effects, related, against, noised, said, of_people)
    return GroupRates(tuple(found), *about)


def _scores(h: Floats, bags: Bags) -> Floats:
    """(n_rows,) log odds of predictions, without the offset of rows."""
    s, offset = logit(np.clip(h, _SUREST, 1 - _SUREST)), bags.of_table(bags.offset)
    return np.asarray(s if offset is None else s - offset)


def _told_by_groups(h: Floats, code: Integers, people: Floats) -> bool:
    """Whether predictions are the same in each group: then they say no more than groups do."""
    size, n = _some(people_in(code, 0, people)), people.sum()
    for one in h.reshape(len(h), -1).T:
        mean = np.bincount(code, people * one) / size
        about = one - people @ one / n
        if people @ (one - mean[code]) ** 2 > _ALONE * max(float(people @ about**2), n * 1e-18):
            return False
    return True


def _some(people: Floats) -> Floats:
    """Numbers of people to divide by, 1 where there are none."""
    return np.where(people > 0, people, 1.0)


def _cross_fitted(h: Floats, bags: Bags, refit: Refit, rng: np.random.Generator) -> Floats:
    """The same predictions, of rows of each fold by a model that was fitted to the other bags."""
    found = h.copy()
    for fold in folds_of(len(bags), _FOLDS, rng, enough=len(bags), shared=bags.shared):
        rows = bags.take(fold.held_out).order
        found[rows] = refit(bags.take(fold.train))[rows]
    return found


def _of_label(
    h: Floats,
    apart: Floats,
    bags: Bags,
    code: Integers,
    size: Floats,
    formation: str,
    related: float,
    level: float,
    labels: int,
) -> tuple[Floats, float, float, str | None]:
    """(groups, 6) prediction, rate, interval and bounds; τ²; p of the assumption; why bounds alone are known."""
    groups, n = len(size), _some(size)
    least, most = (end / n for end in bounds_in_bags(code, groups, bags, size, level))
    prediction = np.bincount(code, people_of(bags) * h, minlength=groups) / n
    known = (most - least) * n <= _TIGHT
    open_ = ~known & (size > 0)
    table = np.column_stack([prediction, np.clip(prediction, least, most), least, most, least, most])
    if not open_.any():
        return table, 0.0, 1.0, None
    if open_.sum() > _MOST_GROUPS:
        what = f"tells {open_.sum():,} groups that share bags, of whose rates {number_of(len(bags), 'bag')} say little"
        raise ParameterError("by", f"{what}: name columns with at most {_MOST_GROUPS} values.")
    found: tuple[Floats, Floats, Floats] | str
    if formation in ("random", "rates"):
        found, tau, p_value = _by_identity(apart, bags, code, n, formation, level), 0.0, 1.0
    else:
        found, tau, p_value = _by_shifts(apart, bags, code, size, (least, most), related, level, labels)
    if isinstance(found, str):
        return table, tau, p_value, found
    for place, one in zip((1, 2, 3), found, strict=True):
        table[open_, place] = np.clip(one, least, most)[open_]
    return table, tau, p_value, None


def _by_identity(
    h: Floats, bags: Bags, code: Integers, n: Floats, formation: str, level: float
) -> tuple[Floats, Floats, Floats] | str:
    """(groups,) rates and the ends of their intervals where bags are random or differ in rates, as `evaluate` has them.

    Of several groupings the one with the most bags tells.
    """
    finest = max(one_by_one(bags), key=len)
    if len(finest) < _FEWEST:
        return f"{number_of(len(finest), 'bag')} are too few"
    finest = replace(finest, overlap=None)
    rows, groups = Expectations(h, finest, by_slope=formation == "rates"), len(n)
    share = members(code, groups, finest)
    value, influence = rows.positives(members(code, groups, finest, h), share)
    of_group, group_influence = rows.mean(share)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = value / of_group
        influence = (influence - rate * group_influence) / of_group
    if not np.isfinite(rate).all() or not np.isfinite(influence).all():
        return "proportions of bags do not differ by more than their noise"
    each = [estimated(float(rate[g]), influence[:, g], level) for g in range(groups)]
    return rate, np.array([one.low for one in each]), np.array([one.high for one in each])


def _by_shifts(
    h: Floats,
    bags: Bags,
    code: Integers,
    size: Floats,
    bounds: tuple[Floats, Floats],
    related: float,
    level: float,
    labels: int,
) -> tuple[tuple[Floats, Floats, Floats] | str, float, float]:
    """(groups,) the same where bags are formed by features, and may have effects; τ², and p of the assumption."""
    groups, n, (least, most) = len(size), _some(size), bounds
    known = (most - least) * n <= _TIGHT
    some = bags.take(np.flatnonzero(~_of_one_known(bags, code, known)))
    open_ = np.flatnonzero(~known & (size > 0))
    columns = [code == g for g in _but_largest(open_, size, known)]
    score = _scores(h, some)
    if not _told_by_groups(score, code, people_of(some)):
        columns.append(score)
    if not columns or len(some) - len(columns) - 1 < 1:
        return f"{number_of(len(some), 'bag')} are too few for {number_of(len(open_), 'group')}", 0.0, 1.0
    fitted = fit_shifts(np.column_stack(columns).astype(float), some, effects=True)
    found, tau = positives(fitted, code, groups), fitted.effect_variance
    p_value = min(labels * float(np.nan_to_num(contradiction(fitted, code, groups), nan=1.0)), 1.0)
    if p_value < _CONTRADICTED:
        related = 1.0
        if not tau:
            said = f"bags contradict that shares of groups have nothing to do with their rates (p {p_value:.1g})"
            return said, tau, p_value
    edge = 0.5 / np.maximum(n, 1)
    rate = np.clip(found.count / n, edge, 1 - edge)
    far = float(stats.t.ppf((1 + level) / 2, fitted.freedom))
    wide = (far * np.sqrt(found.variance) + related * found.drift) / n / (rate * (1 - rate))
    low, high = (expit(logit(rate) + side * wide) for side in (-1, 1))
    # Close to 0 or 1 log odds reach far and counts do not: what such a group may have less, others have more.
    low, high = np.maximum(low, least), np.minimum(high, most)
    moved = [found.follows * (n * end - found.count) / n[:, None] for end in (low, high)]  # (groups, by the other)
    far_off = np.stack(moved)[:, :, open_]
    value = found.count / n
    low = np.minimum(low, value + far_off.min(axis=(0, 2)))
    high = np.maximum(high, value + far_off.max(axis=(0, 2)))
    return (value, low, high), tau, p_value


def _but_largest(open_: Integers, size: Floats, known: Booleans) -> Integers:
    """Groups that get a shift: all but one, which the intercept has; known ones have it together."""
    return open_ if known.any() else np.delete(open_, np.argmax(size[open_]))


def _of_one_known(bags: Bags, code: Integers, known: Booleans) -> Booleans:
    """(m,) whether all rows of a bag are of groups whose positives are known anyway."""
    each = [members(code, len(known), part)[:, ~known].sum(axis=1) == 0 for part in one_by_one(bags)]
    return np.concatenate(each)
