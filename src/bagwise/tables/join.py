"""Events and reports joined: which bags can be used, and what is wrong with the others. All of it in the engine.

First comes one line per bag: `key_0`, …; `bag_size`, the proportions and `bag_noise_variance`; `reports`, how many
lines of reports it has; `keyed`, `usable`, `used`, and one truth value per kind of mismatch (see `MISMATCHES`). What
these lines add up to is the summary, or the error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Literal

from bagwise.data.shards import NOISE, SIZE, proportion_columns
from bagwise.tables import engine
from bagwise.tables.bag_table import MISMATCHES, NUMBER, BagTable, Mismatch, Summary, is_reserved
from bagwise.tables.engine import Connection, Expression, Table
from bagwise.tables.reports import Keys, ReportColumns, choose_keys
from bagwise.tables.sources import Source, read
from bagwise.utils.parameters import AdviceError, Parameter, ParameterError, check_parameters, one_of
from bagwise.utils.text import number_of

_ROUNDING = 1e-6  # proportions that went through float32 or a sum may leave [0, 1] by this much
_EMPTY = "the {} are empty: there must be one line at least."


def join(
    events: Source,
    reports: Source | None = None,
    *,
    keys: Sequence[str] | str | None = None,
    count: str | Sequence[str] | None = None,
    proportion: str | Sequence[str] | None = None,
    size: str | None = None,
    noise_variance: str | float | None = None,
    noise_scale: str | float | None = None,
    epsilon: str | float | None = None,
    suppressed: str | None = None,
    ignore: Sequence[str] | str = (),
    on_mismatch: Literal["error", "drop"] = "error",
    connection: Connection | None = None,
) -> BagTable:
    """Join events with the reports of their bags, and check both.

    Columns of the reports that are not named are those of the parameters' names (without reports, a column called
    `size` or `count` is a feature unless it is named).

    Parameters
    ----------
    events, reports : path, table or dict
        Anything that `read` takes. Without reports, `proportion` names columns of the events that are constant in a
        bag, and so do `size`, `noise_variance` (or `noise_scale`, or `epsilon`) and `suppressed`.
    keys : str or sequence of str, optional
        Columns that tell the bag of a row, by default those that both tables have; a row whose key is null is in none.
    count, proportion : str or sequence of str, optional
        Columns of the number or the share of positives, one of the two; several names, one per class, for classes.
    size : str, optional
        Column of the rows of the bag, to be compared with the events.
    noise_variance, noise_scale, epsilon : str or float, optional
        Noise of mean zero on the count, or on each class's: its variance, or for Laplace noise its scale b (variance
        2b²) or ε (b = 1/ε). One of the three, a column or one number for all bags; a bag where the column is null, or
        the variance 0, has no noise.
    suppressed : str, optional
        Column that is true where the bag's report is withheld; such bags are left out. Truth values, numbers (0 is
        false) or words such as yes and no.
    ignore : str or sequence of str
        Columns of the events that are no features.
    on_mismatch : {"error", "drop"}
        Whether bags that do not fit raise, or are left out.
    connection : ibis.BaseBackend, optional
        For files and tables in memory; by default a DuckDB of our own (see `connect`).

    Returns
    -------
    BagTable
        The bags that can be used, their rows, and the summary of what was left out.

    Examples
    --------
    >>> events = {"bag": ["a", "a", "b"], "age": [31, 42, 53]}
    >>> joined = join(events, {"bag": ["b", "a"], "count": [1, 1]})
    >>> print(joined.summary)
    3 events and 2 reports: 2 bags of 1 to 2 rows, 3 rows in all, mean label 0.6667.
    """
    given = ReportColumns(count, proportion, size, noise_variance, noise_scale, epsilon, suppressed)
    found = match(events, reports, given, keys=keys, connection=connection)
    rows, joint, columns, home = found.rows, found.keys, found.columns, found.connection
    features = _features(rows, joint.names, ignore, columns.names if reports is None else ())
    lines, summary = found.checked(on_mismatch=on_mismatch)
    bags = engine.keep(numbered(lines, joint, columns), home)
    keyed = [column.name(name) for name, column in zip(joint.names, joint.columns(rows).values(), strict=True)]
    events = rows.select(*keyed, *features)
    return BagTable(events, bags, joint.names, features, columns.classes, summary, home, columns)


@dataclass(frozen=True, eq=False)
class Matched:
    """Rows and the reports of their bags, in the engine.

    rows: of the events.  told: the lines of bags.  keys, columns: what tells the bag of a row, and what says what.
    """

    rows: Table
    told: Table
    keys: Keys
    columns: ReportColumns
    connection: Connection

    def checked(
        self, *, on_mismatch: str = "error", expected: Sequence[str] = (), least_bags: int = 2
    ) -> tuple[Table, Summary]:
        """The lines of bags, kept in the engine, and what they add up to, unless they do not fit.

        on_mismatch: see `join`.  expected: kinds of mismatch that are no error.
        """
        check_parameters({"on_mismatch": on_mismatch}, {"on_mismatch": one_of("error", "drop")})
        lines, drop = engine.keep(self.told, self.connection), on_mismatch == "drop"
        rules: dict[str, Any] = {"drop": drop, "expected": expected, "least_bags": least_bags}
        return lines, _summary(lines, self.keys, self.columns, self.connection, **rules)


def match(
    events: Source,
    reports: Source | None,
    given: ReportColumns,
    *,
    keys: Sequence[str] | str | None = None,
    usual: ReportColumns | None = None,
    connection: Connection | None = None,
) -> Matched:
    """Events and reports opened, and what their columns mean; usual: what they mean where nothing is given."""
    tables = [source for source in (events, reports) if engine.is_table(source)]
    own = engine.connection_of(*tables) or connection or engine.connect()
    rows = read(events, own, what="events")
    lines = None if reports is None else read(reports, own, what="reports")
    source = rows if lines is None else lines
    home = engine.connection_of(rows, source) or own
    given = given if usual is None else given.otherwise(usual, source.columns)
    try:
        names = choose_keys(keys, rows, lines, given)
        columns = given.guessed(source.columns, never=() if lines is not None else ("count", "size"))
        if lines is None and columns.proportion is None:
            raise ParameterError("proportion", "must name a column, constant in a bag, where there are no reports.")
        columns.check(source, list(dict.fromkeys(names)))
        joint = Keys.of(names, rows, source)
    except ValueError:
        for what, table in (("events", rows), ("reports", source)):  # whose columns may then be of any type
            if not engine.count(table.limit(1), home):
                raise ValueError(_EMPTY.format(what)) from None
        raise
    told = aligned(rows, joint, columns) if lines is None else joined(rows, lines, joint, columns)
    return Matched(rows, told, joint, columns, home)


def _features(rows: Table, keys: Sequence[str], ignore: Sequence[str] | str, taken: Sequence[str]) -> tuple[str, ...]:
    """The columns to learn from."""
    ignored = [ignore] if isinstance(ignore, str) else list(ignore)
    if unknown := [name for name in ignored if name not in rows.columns]:
        raise ValueError(f"the events have no column {unknown[0]!r} to ignore: they have {', '.join(rows.columns)}.")
    features = tuple(name for name in rows.columns if name not in {*keys, *ignored, *taken})
    if not features:
        raise ValueError("the events have no column left to learn from: every one is a key or ignored.")
    if ours := [name for name in (*keys, *features) if is_reserved(name)]:
        raise ValueError(f"column {ours[0]!r} of the events has a name that bagwise uses: rename or ignore it.")
    return features


# -- lines of bags ----------------------------------------------------------------------------------------------------


def joined(events: Table, reports: Table, keys: Keys, columns: ReportColumns) -> Table:
    """The lines of a table of events and one of reports."""
    rows = events.select(**keys.columns(events))
    rows = rows.group_by(keys.ours).agg(**{SIZE: rows.count()})
    said = columns.said(reports)
    told = reports.select(**keys.columns(reports), **said)
    # A bag has one line; where it has more it is not used, and which one is taken does not matter.
    figures = {name: told[name].max() for name in said}
    told = told.group_by(keys.ours).agg(reports=told.count(), differs=told.count() > 1, **figures)
    both = rows.outer_join(told, keys.ours)  # a key that is null matches nothing
    both = both.mutate(**{key: both[key].fill_null(both[f"{key}_right"]) for key in keys.ours})
    return _flagged(both, keys, columns, differing="repeated")


def aligned(events: Table, keys: Keys, columns: ReportColumns) -> Table:
    """The lines of events that carry their bag's report on every row."""
    said = columns.said(events)
    rows = events.select(**keys.columns(events), **said)
    figures = {name: rows[name].max() for name in said}
    figures |= {f"{name}_least": rows[name].min() for name in said}
    figures |= {f"{name}_known": rows[name].count() for name in said}
    lines = rows.group_by(keys.ours).agg(**{SIZE: rows.count()}, **figures)
    differs = []
    for name in said:
        most, least, known = lines[name], lines[f"{name}_least"], lines[f"{name}_known"]
        spread = most - least > 1e-12 + 1e-9 * least.abs()
        differs.append(spread.fill_null(False) | ((known > 0) & (known < lines[SIZE])))
    lines = lines.mutate(differs=engine.any_of(*differs), reports=keys.there(lines).ifelse(1, 0))
    return _flagged(lines, keys, columns, differing="differing")


def _flagged(both: Table, keys: Keys, columns: ReportColumns, *, differing: str) -> Table:
    """The lines with a truth value for everything that may be wrong.  differing: what several reports of a bag are."""
    names = proportion_columns(columns.classes)
    values = {name: both[f"value_{number}"] for number, name in enumerate(names)}
    if columns.count is not None:
        values = {name: value / both[SIZE] for name, value in values.items()}
    both = both.mutate(keyed=keys.there(both), reports=both.reports.fill_null(0), **values)
    has_rows, has_report = both.keyed & both[SIZE].notnull(), both.keyed & (both.reports > 0)
    differs = has_report & both.differs.fill_null(False)
    withheld = has_report & ~differs & (both.withheld == 1).fill_null(False)
    usable = has_rows & has_report & ~differs & ~withheld
    proportions = [both[name] for name in names]
    finite = engine.all_of(*(engine.is_finite(value) for value in proportions)).fill_null(False)
    exact = usable & finite & both.noise.isnull()
    outside = engine.any_of(*((value < -_ROUNDING) | (value > 1 + _ROUNDING) for value in proportions))
    flags = {
        "unreported": has_rows & ~has_report,
        "eventless": has_report & ~has_rows & ~differs & ~withheld,
        differing: differs,
        "withheld": withheld,
        "unclear": usable & (both.unclear == 1),
        "no_value": usable & ~finite,
        "outside" if columns.count is None else "impossible": exact & outside,
        "other_size": usable & (both.reported_size != both[SIZE]),
        "no_sum": exact & ((reduce(add, proportions) - 1).abs() > _ROUNDING) & engine.literal(len(names) > 1),
        "wrong_noise": usable & (both.wrong_noise == 1),
    }
    lines = both.select(
        *keys.ours, SIZE, *names, both.noise.name(NOISE), "reports", "keyed",
        usable=usable, **{name: flag.fill_null(False) for name, flag in flags.items()},
    )  # fmt: skip
    return lines.mutate(used=lines.usable & ~engine.any_of(*(lines[name] for name in flags)))


def numbered(lines: Table, keys: Keys, columns: ReportColumns) -> Table:
    """One line per usable bag, under the names of the user's keys."""
    usable = lines.filter(lines.used)
    # In the order of a checksum: the same in every engine and as good as random. Texts of different keys may be equal.
    number = engine.row_number(engine.md5(keys.text(usable)), *(usable[key] for key in keys.ours))
    named = [usable[key].name(name) for name, key in zip(keys.names, keys.ours, strict=True)]
    return usable.select(*named, number.name(NUMBER), SIZE, *proportion_columns(columns.classes), NOISE)


# -- what they add up to ----------------------------------------------------------------------------------------------


def figures_of(lines: Table, keys: Keys, columns: ReportColumns) -> dict[str, Expression]:
    """All figures of the summary, for one query over the bags."""
    size, used, key = lines[SIZE], lines.used, keys.text(lines)
    names = proportion_columns(columns.classes)
    values = [lines[name] for name in names]
    no_counts = [(value != engine.as_whole(value)) | (value > size) | (value < 0) for value in values]
    figures = {
        "rows": size.sum(),
        "reports": lines.reports.sum(),
        "keyless_events": size.sum(where=~lines.keyed),
        "keyless_reports": lines.reports.sum(where=~lines.keyed),
        "matched": (lines.keyed & size.notnull() & (lines.reports > 0)).sum(),
        "noised": lines[NOISE].notnull().any(where=used),
        "usable": lines.usable.sum(),
        "least": values[0].min(where=lines.usable),
        "greatest": values[0].max(where=lines.usable),
        "no_counts": engine.any_of(*no_counts).any(where=lines.usable),
        **Summary.figures(lines, names, used),
    }
    for kind in MISMATCHES:
        if kind in lines.columns:
            figures[f"{kind}_bags"] = lines[kind].sum()
            figures[f"{kind}_rows"] = size.sum(where=lines[kind])
            figures[f"{kind}_key"] = key.min(where=lines[kind])
    return figures


def _summary(
    lines: Table,
    keys: Keys,
    columns: ReportColumns,
    connection: Connection,
    *,
    drop: bool,
    expected: Sequence[str],
    least_bags: int,
) -> Summary:
    """The summary of lines of bags; an error where they cannot be used as they are (see `Matched.checked`)."""
    found = engine.execute(lines.agg(**figures_of(lines, keys, columns)), connection)
    for what, lines_of in (("events", "rows"), ("reports", "reports")):
        if not found[lines_of]:
            raise ValueError(_EMPTY.format(what))
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
    if wrong and not drop:
        more = f" (and {number_of(len(wrong) - 1, 'more kind')} of mismatch)" if len(wrong) > 1 else ""
        way = (", or leave such bags out with ", Parameter("on_mismatch"), "='drop'.")
        raise AdviceError(f"{wrong[0]}{more}: ", *(hint or ["repair the tables"]), *way)
    if found["bags"] < least_bags:
        said = f" ({mismatches[0]})" if mismatches else ""
        what = "one bag" if found["bags"] else "no bag"
        needed = f"at least {least_bags} {'is' if least_bags == 1 else 'are'} needed"
        raise AdviceError(f"{what} can be used{said}: {needed}; ", *(hint or ["pass tables with more bags"]), ".")
    rows, reports, noised = int(found["rows"]), int(found["reports"]), bool(found["noised"])
    return Summary(rows, reports, **Summary.facts(found), noised=noised, mismatches=tuple(mismatches))


def _hint(found: Mapping[str, Any], columns: ReportColumns) -> list[str]:
    """What proportions far outside [0, 1] may be."""
    if columns.proportion is None or 2 * found["outside_bags"] <= found["usable"]:
        return []
    if not found["no_counts"]:
        return ["if these are counts, name the column as such (", Parameter("count"), ")"]
    if found["least"] >= 0 and found["greatest"] <= 100:
        return ["if these are percentages, divide them by 100"]
    return []
