"""One line per bag: what events and reports say of it, and what keeps it from being used. Queries only.

The columns are `key_0`, …; `bag_size`, the proportions and `bag_noise_variance` (see `tables.bagged`); `reports`, how
many lines of reports it has; `keyed`, `used`, and one truth value per problem (see `PROBLEMS`).
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

import ibis

from bagwise.tables.bag_table import NOISE, SIZE, proportion_columns
from bagwise.tables.keys import Keys
from bagwise.tables.reports import ReportColumns, any_of, is_finite

_ROUNDING = 1e-6  # proportions that went through float32 or a sum may leave [0, 1] by this much

PROBLEMS = {
    "unreported": "with rows but no report",
    "eventless": "with a report but no rows",
    "repeated": "with more than one report",
    "unclear": "with a marker of suppression that is neither yes nor no",
    "no_value": "with no number reported",
    "outside": "with a proportion outside [0, 1] though no noise is declared",
    "other_size": "with another size reported than there are rows",
    "no_sum": "with classes that do not sum to the whole bag though no noise is declared",
    "wrong_noise": "with a declared noise that is not positive and finite",
    "withheld": "with a withheld report",
}
"""What may be wrong with a bag, in words; the last is what the data holder wants."""


def joined(events: Any, reports: Any, keys: Keys, columns: ReportColumns) -> Any:
    """The lines of a table of events and one of reports."""
    ours = list(keys.ours)
    rows = events.select(**_by_name(keys, events)).group_by(ours).agg(**{SIZE: ibis._.count()})
    said = columns.said(reports)
    told = reports.select(**_by_name(keys, reports), **said).group_by(ours)
    # A bag has one line; where it has more it is not used, and which one is taken does not matter.
    told = told.agg(reports=ibis._.count(), **{name: _largest(ibis._[name], column) for name, column in said.items()})
    told = told.mutate(differs=ibis._.reports > 1)
    both = rows.outer_join(told, ours)  # a key that is null matches nothing
    both = both.mutate(**{key: ibis.coalesce(both[key], both[f"{key}_right"]) for key in ours})
    return _flagged(both, keys, columns)


def aligned(events: Any, keys: Keys, columns: ReportColumns) -> Any:
    """The lines of events that carry their bag's report on every row."""
    ours = list(keys.ours)
    said = columns.said(events)
    rows = events.select(**_by_name(keys, events), **said).group_by(ours)
    figures = {name: _largest(ibis._[name], column) for name, column in said.items()}
    figures |= {
        f"{name}_least": ibis._[name].all() if column.type().is_boolean() else ibis._[name].min()
        for name, column in said.items()
    }
    figures |= {f"{name}_known": ibis._[name].count() for name in said}
    lines = rows.agg(**{SIZE: ibis._.count()}, **figures)
    differs = []
    for name, column in said.items():
        most, least, known = lines[name], lines[f"{name}_least"], lines[f"{name}_known"]
        spread = most != least if column.type().is_boolean() else most - least > 1e-12 + 1e-9 * least.abs()
        differs.append(spread.fill_null(False) | ((known > 0) & (known < lines[SIZE])))
    lines = lines.mutate(differs=any_of(differs), reports=_keyed(lines, keys).ifelse(1, 0))
    return _flagged(lines, keys, columns)


def _flagged(both: Any, keys: Keys, columns: ReportColumns) -> Any:
    """The lines with a truth value for everything that may be wrong."""
    names = proportion_columns(columns.classes)
    values = {name: both[f"value_{number}"] for number, name in enumerate(names)}
    if columns.count is not None:
        values = {name: value / both[SIZE] for name, value in values.items()}
    keyed = _keyed(both, keys)
    both = both.mutate(keyed=keyed, reports=both.reports.fill_null(0), **values)
    has_rows, has_report = both.keyed & both[SIZE].notnull(), both.keyed & (both.reports > 0)
    repeated = has_report & both.differs.fill_null(False)
    withheld = has_report & ~repeated & both.withheld.fill_null(False)
    usable = has_rows & has_report & ~repeated & ~withheld
    proportions = [both[name] for name in names]
    finite = reduce(and_, (is_finite(value) for value in proportions)).fill_null(False)
    plain = both.noise.isnull()
    outside = any_of((value < -_ROUNDING) | (value > 1 + _ROUNDING) for value in proportions)
    total = reduce(lambda one, other: one + other, proportions)
    flags = {
        "unreported": has_rows & ~has_report,
        "eventless": has_report & ~has_rows & ~repeated & ~withheld,
        "repeated": repeated,
        "withheld": withheld,
        "unclear": usable & both.unclear,
        "no_value": usable & ~finite,
        "outside": usable & finite & plain & outside,
        "other_size": usable & (both.reported_size != both[SIZE]),
        "no_sum": usable & finite & plain & ((total - 1).abs() > _ROUNDING) & ibis.literal(len(names) > 1),
        "wrong_noise": usable & both.wrong_noise,
    }
    lines = both.select(
        *keys.ours, SIZE, *names, both.noise.name(NOISE), "reports", "keyed",
        usable=usable, **{name: flag.fill_null(False) for name, flag in flags.items()},
    )  # fmt: skip
    return lines.mutate(used=lines.usable & ~any_of(lines[name] for name in flags))


def _by_name(keys: Keys, table: Any) -> dict[str, Any]:
    return dict(zip(keys.ours, keys.columns(table), strict=True))


def _keyed(table: Any, keys: Keys) -> Any:
    return reduce(and_, (table[key].notnull() for key in keys.ours))


def _largest(deferred: Any, column: Any) -> Any:
    return deferred.any() if column.type().is_boolean() else deferred.max()
