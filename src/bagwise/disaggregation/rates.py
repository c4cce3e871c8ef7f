"""Rates of groups from a model and the reports of bags of labels: for arrays, and for what tables have read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import stats
from scipy.special import expit, logit

from bagwise.bags import Bags
from bagwise.disaggregation.bounds import bounds_in_bags
from bagwise.disaggregation.members import (
    Groups,
    but_largest,
    members,
    of_these_alone,
    one_by_one,
    people_of,
    told_by_groups,
)
from bagwise.disaggregation.refitting import Refit, cross_fitted
from bagwise.disaggregation.result import GroupRate, GroupRates
from bagwise.disaggregation.shifts import contradiction, fit_shifts, positives
from bagwise.expectations import Expectations
from bagwise.formation import Told
from bagwise.metrics import estimated
from bagwise.utils.parameters import ParameterError
from bagwise.utils.text import number_of, p_digits
from bagwise.utils.typing import Floats

CONTRADICTED = 0.01
"""A p-value, below which the assumption is not kept."""

MOST_GROUPS = 200
"""That share bags."""

NUMBERS = ("prediction", "rate", "low", "high", "least", "most")
"""Of a group."""

_FEWEST = 3  # bags at least
_SUREST = 1e-6
_TIGHT = 1e-6  # rows between bounds that say the number


def rates_of(
    h: Floats,
    bags: Bags,
    groups: Groups,
    *,
    told: Told,
    refit: Refit | None,
    related: float,
    level: float,
    rng: np.random.Generator,
    labels: Sequence[str] = (),
) -> GroupRates:
    """As `group_rates`, of predictions, checked bags and groups.

    bags: with the offset that predictions have in them.  refit: of a model that has learned from these bags.  labels:
    names of classes.
    """
    alone = h if bags.offset is None else _scores(h, bags)
    known = refit is None or told.name == "rates" or told_by_groups(alone, groups.code, groups.people)
    h_apart = h if known or refit is None else cross_fitted(h, bags, refit, rng)
    every = 1 if h.ndim == 1 else h.shape[1]
    found, doubts, effects, least_p = [], [], 0.0, 1.0
    for c in range(every):
        one = bags if h.ndim == 1 else bags.of_class(c)
        mine, apart = (of if h.ndim == 1 else of[:, c] for of in (h, h_apart))
        table, tau, p_value, doubt = _of_label(mine, apart, one, groups, told.name, related, level, every)
        label = "" if h.ndim == 1 else (labels[c] if labels else str(c))
        found += group_lines(groups, table, label)
        doubts.append(doubt)
        effects, least_p = max(effects, tau), min(least_p, p_value)
    noised = bool(bags.declared_noise.any())
    said = next((one for one in doubts if one is not None), None)
    against = least_p if least_p < CONTRADICTED else None
    related = related if against is None else 1.0
    rows, of_people = int(groups.rows.sum()), bags.weight is not None
    about = (told, len(bags), rows, level, effects, related, against, noised, said, of_people)
    return GroupRates(tuple(found), *about)


def group_lines(groups: Groups, table: Floats, label: str = "") -> list[GroupRate]:
    """Numbers of groups as they are told, the largest first.  table: (groups, 6) `NUMBERS`.  label: the class."""
    found = []
    for g in groups.largest_first().tolist():
        numbers = dict(zip(NUMBERS, table[g].tolist(), strict=True))
        of_group = (str(groups.values[g]), int(groups.rows[g]), float(groups.size[g]))
        found.append(GroupRate(*of_group, label=label, **numbers))
    return found


def check_not_too_many(open_: int, bags: Bags, what: str) -> None:
    """Raise where so many groups share bags that these say little of each.  what: is asked."""
    if open_ > MOST_GROUPS:
        said = f"tells {open_:,} groups that share bags, of whose {what} {number_of(len(bags), 'bag')} say little"
        raise ParameterError("by", f"{said}: name columns with at most {MOST_GROUPS} values.")


def _scores(h: Floats, bags: Bags) -> Floats:
    """(n_rows,) log odds of predictions, without the offset of rows."""
    s, offset = logit(np.clip(h, _SUREST, 1 - _SUREST)), bags.of_table(bags.offset)
    return np.asarray(s if offset is None else s - offset)


def _of_label(
    h: Floats,
    apart: Floats,
    bags: Bags,
    groups: Groups,
    formation: str,
    related: float,
    level: float,
    labels: int,
) -> tuple[Floats, float, float, str | None]:
    """(groups, 6) prediction, rate, interval and bounds; τ²; p of the assumption; why bounds alone are known."""
    n = groups.divisor
    least, most = (end / n for end in bounds_in_bags(groups.code, len(groups), bags, groups.size, level))
    prediction = groups.total(h) / n
    known = (most - least) * n <= _TIGHT
    open_ = ~known & (groups.size > 0)
    table = np.column_stack([prediction, np.clip(prediction, least, most), least, most, least, most])
    if not open_.any():
        return table, 0.0, 1.0, None
    check_not_too_many(int(open_.sum()), bags, "rates")
    found: tuple[Floats, Floats, Floats] | str
    if formation in ("random", "rates"):
        found, tau, p_value = by_identity(apart, bags, groups, formation, level), 0.0, 1.0
    else:
        found, tau, p_value = _by_shifts(apart, bags, groups, (least, most), related, level, labels)
    if isinstance(found, str):
        return table, tau, p_value, found
    for place, one in zip((1, 2, 3), found, strict=True):
        table[open_, place] = np.clip(one, least, most)[open_]
    return table, tau, p_value, None


def by_identity(
    h: Floats, bags: Bags, groups: Groups, formation: str, level: float
) -> tuple[Floats, Floats, Floats] | str:
    """(groups,) rates and the ends of their intervals where bags are random or differ in rates, as `evaluate` has them.

    Of several groupings the one with the most bags tells.
    """
    finest = max(one_by_one(bags), key=len)
    if len(finest) < _FEWEST:
        return f"{number_of(len(finest), 'bag')} are too few"
    finest = replace(finest, overlap=None)
    rows, (code, number) = Expectations(h, finest, by_slope=formation == "rates"), (groups.code, len(groups))
    share = members(code, number, finest)
    value, influence = rows.positives(members(code, number, finest, h), share)
    of_group, group_influence = rows.mean(share)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = value / of_group
        influence = (influence - rate * group_influence) / of_group
    if not np.isfinite(rate).all() or not np.isfinite(influence).all():
        return "proportions of bags do not differ by more than their noise"
    each = [estimated(float(rate[g]), influence[:, g], level) for g in range(number)]
    return rate, np.array([one.low for one in each]), np.array([one.high for one in each])


def _by_shifts(
    h: Floats,
    bags: Bags,
    groups: Groups,
    bounds: tuple[Floats, Floats],
    related: float,
    level: float,
    labels: int,
) -> tuple[tuple[Floats, Floats, Floats] | str, float, float]:
    """(groups,) the same where bags are formed by features, and may have effects; τ², and p of the assumption."""
    code, n, (least, most) = groups.code, groups.divisor, bounds
    known = (most - least) * n <= _TIGHT
    some = bags.take(np.flatnonzero(~of_these_alone(bags, code, known)))
    open_ = np.flatnonzero(~known & (groups.size > 0))
    columns = [code == g for g in but_largest(open_, groups.size, known)]
    score = _scores(h, some)
    if not told_by_groups(score, code, people_of(some)):
        columns.append(score)
    if not columns or len(some) - len(columns) - 1 < 1:
        return f"{number_of(len(some), 'bag')} are too few for {number_of(len(open_), 'group')}", 0.0, 1.0
    fitted = fit_shifts(np.column_stack(columns).astype(float), some, effects=True)
    found, tau = positives(fitted, code, len(groups)), fitted.effect_variance
    p_value = min(labels * float(np.nan_to_num(contradiction(fitted, code, len(groups)), nan=1.0)), 1.0)
    if p_value < CONTRADICTED:
        related = 1.0
        if not tau:
            said = (
                f"bags contradict that shares of groups have nothing to do with their rates (p {p_digits(p_value, 1)})"
            )
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
