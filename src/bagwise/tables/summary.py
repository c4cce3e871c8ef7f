"""What the lines of bags add up to: a summary, or the error that says what does not fit, and what to do."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bagwise.data.shards import NOISE, SIZE, end_columns, proportion_columns
from bagwise.tables.bag_table import MISMATCHES, Mismatch, Summary
from bagwise.tables.mismatches import OF_COUNTS, remedy, warn_of_bias
from bagwise.tables.reports import Keys, ReportColumns
from bagwise.tables.row_columns import RowColumns
from bagwise.tables.table import (
    Expression,
    Table,
    any_of,
    as_whole,
    col,
    total,
    where,
)
from bagwise.utils.parameters import AdviceError, Parameter
from bagwise.utils.text import listed, number_of

_FAR = 10.0  # standard deviations of declared noise, beyond which a count is not that of labels
_ENOUGH = 10  # bags with noise, of which one alone does not decide
_OF_KEYS = ("unreported", "keyless_reports")
EMPTY = "the {} are empty: there must be one line at least."
ROUNDING = 1e-6  # proportions that went through float32 or a sum may leave [0, 1] by this much


def figures_of(lines: Table, keys: Keys, columns: ReportColumns, of_rows: RowColumns) -> dict[str, Expression]:
    """All figures of the summary, for one query over the bags."""
    rows = of_rows.rows
    size, reports, used, usable, key = col(SIZE), col("reports"), col("used"), col("usable"), keys.text()
    names = proportion_columns(columns.classes)
    values = [col(name) for name in names]
    no_count = any_of((value != as_whole(value)) | (value > size) | (value < 0) for value in values)
    counts = [value * size for value in values]
    part = any_of((count - count.round(0)).abs() > ROUNDING * (1 + count.abs()) for count in counts)
    beyond = _FAR * col(NOISE).fill_null(0.0).sqrt() + ROUNDING
    plain = usable & ~col("no_value") & ~col("wrong_noise")
    noised = plain & ~col(NOISE).is_null()
    far = any_of((count < -beyond) | (count > size + beyond) for count in counts)
    figures = {
        "rows": total(rows),
        "reports": total(reports),
        "keyless_events": total(where(~col("keyed"), rows)),
        "keyless_reports": total(where(~col("keyed"), reports)),
        "matched": total(col("keyed") & ~size.is_null() & (reports > 0)),
        "matched_rows": total(where(col("keyed") & (reports > 0), rows)),
        "noised": total(used & ~col(NOISE).is_null()),
        "inexact": total(used & any_of(~col(name).is_null() for name in end_columns(columns.classes)[0])),
        "rests": total(used & keys.is_rest()),
        "rest_rows": total(where(used & keys.is_rest(), rows)),
        "usable": total(usable),
        "least": where(usable, values[0]).min(),
        "greatest": where(usable, values[0]).max(),
        "no_counts": total(usable & no_count),
        "parts": total(plain & col(NOISE).is_null() & part),
        "far": total(plain & far),
        "noised_count": where(noised, counts[0]).sum(),
        "noised_rows": total(where(noised, size)),
        "noise": where(noised, col(NOISE)).sum(),
        **Summary.figures(names, used, of_rows=of_rows),
    }
    for kind in MISMATCHES:
        if kind in lines.columns:
            figures[f"{kind}_bags"] = total(col(kind))
            figures[f"{kind}_rows"] = total(where(col(kind), rows))
            figures[f"{kind}_key"] = where(col(kind), key).min()
        if kind in OF_COUNTS and kind in lines.columns:
            figures[f"{kind}_low"] = total(col(kind) & any_of(value < 0 for value in values))
    return figures


def summarise(
    lines: Table,
    keys: Keys,
    columns: ReportColumns,
    *,
    drop: Collection[str],
    expected: Sequence[str],
    least_bags: int,
    learned: bool,
    further: Sequence[str],
    of_rows: RowColumns,
) -> Summary:
    """The summary of lines of bags; an error where they cannot be used as they are (see `Matched.checked`)."""
    found = lines.line(**figures_of(lines, keys, columns, of_rows))
    for what, lines_of in (("events", "rows"), ("reports", "reports")):
        if not found[lines_of]:
            raise ValueError(EMPTY.format(what))
    mismatches = []
    for kind in MISMATCHES:
        if found.get(kind):  # rows without a key
            mismatches.append(Mismatch(kind, 0, int(found[kind])))
        elif found.get(f"{kind}_bags"):
            bags, rows = (int(found[f"{kind}_{what}"] or 0) for what in ("bags", "rows"))
            mismatches.append(Mismatch(kind, bags, rows, found[f"{kind}_key"]))
    unmeant = [mismatch for mismatch in mismatches if not mismatch.expected]
    wrong = [mismatch for mismatch in unmeant if mismatch.kind not in expected]
    hint = _hint(found, columns)
    if unmeant and not found["matched"]:
        check = f"check that the key columns of both tables ({', '.join(keys.names)}) hold the same values"
        raise ValueError(f"no bag of the events has a report ({unmeant[0]}): {check}.")
    if 2 * (found.get("repeated_rows") or 0) > (found["matched_rows"] or 0):
        (repeated,) = (mismatch for mismatch in wrong if mismatch.kind == "repeated")
        by = f"most rows are of bags with several reports, by key {listed(keys.names)} ({repeated}): "
        raise AdviceError(by, *further, ".")
    if drop or not hint:
        _check_labels(found, columns, hint)
    if wrong := [mismatch for mismatch in wrong if mismatch.kind not in drop]:
        if found["keyless_reports"] and columns.null_keys is None and wrong[0].kind in _OF_KEYS:
            hint = ["if reports without a key tell of all other rows, say ", Parameter("null_keys"), "='rest'"]
        hint = hint or remedy(wrong[0], further)
        more = f" (and {number_of(len(wrong) - 1, 'more kind')} of mismatch)" if len(wrong) > 1 else ""
        way = (", or leave such bags out with ", Parameter("on_mismatch"), "='drop'.")
        raise AdviceError(f"{wrong[0]}{more}: ", *hint, *way)
    if found["bags"] < least_bags:
        said = f" ({mismatches[0]})" if mismatches else ""
        what = "one bag" if found["bags"] else "no bag"
        needed = f"at least {least_bags} {'is' if least_bags == 1 else 'are'} needed"
        raise AdviceError(f"{what} can be used{said}: {needed}; ", *(hint or ["pass tables with more bags"]), ".")
    for mismatch in unmeant:
        if learned and mismatch.kind in OF_COUNTS:
            warn_of_bias(mismatch, int(found[f"{mismatch.kind}_low"]))
    rows, reports, noised = int(found["rows"]), int(found["reports"]), bool(found["noised"])
    how: dict[str, Any] = {name: int(found[name]) for name in ("inexact", "rests", "rest_rows")}
    how["noise"] = columns.noise if noised else ""
    return Summary(rows, reports, **Summary.facts(found), noised=noised, mismatches=tuple(mismatches), **how)


def _check_labels(found: Mapping[str, Any], columns: ReportColumns, hint: Sequence[str]) -> None:
    """Raise where reports look like values: far from those of labels, most of them, or all with noise together.

    Of reports that are mostly no whole counts, some such are enough.  hint: what else they may be.
    """
    beyond = _FAR * math.sqrt(found["noise"] or 0.0)
    count, rows = found["noised_count"] or 0.0, found["noised_rows"] or 0.0
    together = found["noised"] >= _ENOUGH and not -beyond <= count <= rows + beyond
    far, twice = int(found["far"]), (found["greatest"] or 0.0) > 2  # as often as there are rows: no noise of a count
    parts = int(found["parts"]) if columns.adds_up and far and twice else 0
    if columns.target == "value" or not (together or 2 * max(far, parts) > found["usable"]):
        return
    what, way = ("counts", "sum") if columns.adds_up else ("proportions", "mean")
    ways = f"if these are {way}s of values, say ", Parameter("target"), "='value', and name the column by "
    raise AdviceError(f"{what} are far beyond those of labels 0 and 1: ", *(hint or [*ways, Parameter(way)]), ".")


def _hint(found: Mapping[str, Any], columns: ReportColumns) -> list[str]:
    """What proportions far outside [0, 1] may be."""
    if found["no_value_bags"] and columns.count is not None and columns.hidden is None:
        return ["if such counts are hidden, say between which numbers they lie (", Parameter("hidden"), "='0-9')"]
    if columns.proportion is None or 2 * found["outside_bags"] <= found["usable"]:
        return []
    if not found["no_counts"]:
        return ["if these are counts, name the column as such (", Parameter("count"), ")"]
    if found["least"] >= 0 and found["greatest"] <= 100:
        means = ["; if means of values, say ", Parameter("target"), "='value' and name it by ", Parameter("mean")]
        return ["if these are percentages, divide them by 100", *means]
    return []
