"""One line per bag: what rows add up to, what was reported, and a truth value for each thing that may be wrong.

A line has `key_0`, …; `bag_size`, the proportions and `bag_noise_variance`; `reports`, how many lines of reports the
bag has; `keyed`, `usable`, `used`, and one truth value per kind of mismatch (see `bag_table.MISMATCHES`).
"""

from collections.abc import Sequence
from functools import reduce
from operator import add

from bagwise.data.shards import NOISE, SIZE, end_columns, proportion_columns
from bagwise.tables.bag_table import NUMBER
from bagwise.tables.intervals import as_counts, said_ends
from bagwise.tables.reports import Keys, ReportColumns
from bagwise.tables.rests import Rests
from bagwise.tables.row_columns import NO_COLUMNS, RowColumns
from bagwise.tables.summary import ROUNDING
from bagwise.tables.table import (
    Expression,
    Table,
    all_of,
    any_of,
    col,
    if_else,
    is_finite,
    length,
    lit,
)


def joined(events: Table, reports: Table, rests: Rests, columns: ReportColumns, of_rows: RowColumns) -> Table:
    """The lines of a table of events and one of reports."""
    keys = rests.keys
    rows = rests.placed(events, keys.ours).group_by(keys.ours, of_rows.sizes())
    said = columns.said(reports) | said_ends(reports, columns)
    told = reports.select(**keys.columns(reports, open_keys=columns.null_keys == "rest"), **said)
    # A bag has one line; where it has more it is not used, and which one is taken does not matter.
    told = told.group_by(keys.ours, {"reports": length(), **{name: col(name).max() for name in said}})
    both = rows.join(told, keys.ours, "full")
    coalesced = {key: col(key).fill_null(col(f"{key}_right")) for key in keys.ours}
    both = both.with_columns(**coalesced, differs=col("reports") > 1)
    return _flagged(both, keys, columns, of_rows, differing="repeated")


def aligned(events: Table, keys: Keys, columns: ReportColumns, of_rows: RowColumns) -> Table:
    """The lines of events that carry their bag's report on every row."""
    said = columns.said(events) | said_ends(events, columns)
    rows = events.select(*of_rows.ours, **keys.columns(events), **said)
    figures = {name: col(name).max() for name in said}
    figures |= {f"{name}_least": col(name).min() for name in said}
    figures |= {f"{name}_known": col(name).count() for name in said}
    lines = rows.group_by(keys.ours, {**of_rows.sizes(), **figures})
    differs = []
    for name in said:
        most, least, known = col(name), col(f"{name}_least"), col(f"{name}_known")
        spread = most - least > 1e-12 + 1e-9 * least.abs()
        differs.append(spread.fill_null(False) | ((known > 0) & (known < of_rows.rows)))
    lines = lines.with_columns(differs=any_of(differs), reports=if_else(keys.there(), lit(1), lit(0)))
    return _flagged(lines, keys, columns, of_rows, differing="differing")


def _flagged(both: Table, keys: Keys, columns: ReportColumns, of_rows: RowColumns, *, differing: str) -> Table:
    """The lines with a truth value for everything that may be wrong.  differing: what several reports of a bag are."""
    names, (lows, highs) = proportion_columns(columns.classes), end_columns(columns.classes)
    values = {name: col(f"value_{number}") for number, name in enumerate(names)}
    if columns.adds_up:
        values = {name: value / col(SIZE) for name, value in values.items()}
    ends = [(col(f"least_{number}"), col(f"most_{number}")) for number in range(len(names))]
    for name, (least, _) in zip(names, ends, strict=True):
        values[name] = if_else(~least.is_null() & (values[name] > 1), lit(1.0), values[name])
    both = both.with_columns(keyed=keys.there(), reports=col("reports").fill_null(0), **values)
    has_rows, has_report = col("keyed") & ~col(SIZE).is_null(), col("keyed") & (col("reports") > 0)
    differs = has_report & col("differs").fill_null(False)
    withheld = has_report & ~differs & (col("withheld") == 1).fill_null(False)
    usable = has_rows & has_report & ~differs & ~withheld
    proportions = [col(name) for name in names]
    finite = all_of(is_finite(value) for value in proportions).fill_null(False)
    exact = usable & finite & col("noise").is_null()
    # There need not be other rows than those of other lines.
    none = all_of(
        (col(f"value_{number}") == 0).fill_null(False) | (least <= 0).fill_null(False)
        for number, (least, _) in enumerate(ends)
    )
    size = col(SIZE)
    far = any_of((least > size) | (most < 0) for least, most in ends).fill_null(False)
    flags = {
        "unreported": has_rows & ~has_report,
        "eventless": has_report & ~has_rows & ~differs & ~withheld & ~(keys.is_rest() & none),
        differing: differs,
        "withheld": withheld,
        "unclear": usable & (col("unclear") == 1),
        "no_value": usable & ~finite,
        "outside" if columns.count is None else "impossible": (
            exact & any_of((value < -ROUNDING) | (value > 1 + ROUNDING) for value in proportions)
            | (usable & col("noise").is_null() & far)
        )
        & lit(columns.target == "label"),
        "other_size": usable & _differ(col("reported_size"), of_rows),
        "no_sum": exact & lit(len(names) > 1) & _not_whole(proportions, ends),
        "wrong_noise": usable & (col("wrong_noise") == 1),
    }
    lines = both.select(
        *keys.ours, SIZE, *of_rows.lines, *names, col("noise").alias(NOISE), "reports", "keyed",
        **{low: least for low, (least, _) in zip(lows, ends, strict=True)},
        **{high: most for high, (_, most) in zip(highs, ends, strict=True)},
        usable=usable, **{name: flag.fill_null(False) for name, flag in flags.items()},
    )  # fmt: skip
    return lines.with_columns(used=col("usable") & ~any_of(col(name) for name in flags))


def _not_whole(proportions: Sequence[Expression], ends: Sequence[tuple[Expression, Expression]]) -> Expression:
    """Whether the counts of classes, or those between whose ends they lie, cannot add up to the bag."""
    low, high = [], []
    for proportion, (least, most) in zip(proportions, ends, strict=True):
        low.append(if_else(~least.is_null(), if_else(least > 0, least / col(SIZE), lit(0.0)), proportion))
        high.append(if_else(~most.is_null(), if_else(most < col(SIZE), most / col(SIZE), lit(1.0)), proportion))
    return (reduce(add, low) > 1 + ROUNDING) | (reduce(add, high) < 1 - ROUNDING)


def _differ(size: Expression, of_rows: RowColumns) -> Expression:
    """Whether another size is reported than rows add up to, which of weights may differ by rounding."""
    return size != col(SIZE) if of_rows.weight is None else (size - col(SIZE)).abs() > ROUNDING * (1 + size.abs())


def numbered(
    lines: Table, keys: Keys, columns: ReportColumns, *, inexact: bool = False, of_rows: RowColumns = NO_COLUMNS
) -> Table:
    """One line per usable bag, under the names of the user's keys.  inexact: whether some counts are not known."""
    # In the order of a checksum: the same in every engine and as good as random. Texts of different keys may be equal.
    usable = lines.filter(col("used")).with_md5(digits=keys.text()).numbered(NUMBER, "digits", *keys.ours)
    named = [col(key).alias(name) for name, key in zip(keys.names, keys.ours, strict=True)]
    low, high = end_columns(columns.classes)
    ends = [*low, *high] if inexact else []
    found = usable.select(*named, NUMBER, SIZE, *of_rows.lines, *proportion_columns(columns.classes), NOISE, *ends)
    return (as_counts(found, columns) if inexact else found).keep()
