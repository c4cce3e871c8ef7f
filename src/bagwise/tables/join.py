"""Events and reports joined: which bags can be used, and what is wrong with the others. All of it in the engine.

First comes one line per bag (`bag_lines`); what these lines add up to is the summary, or the error.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from bagwise.data.shards import OFFSET, WEIGHT, end_columns, proportion_columns
from bagwise.tables.bag_lines import aligned, joined, numbered
from bagwise.tables.bag_table import ROW, BagTable, Summary, is_reserved
from bagwise.tables.engines import Connection
from bagwise.tables.intervals import with_ends
from bagwise.tables.mismatches import dropped, further_keys
from bagwise.tables.reports import RECORD, Keys, Meaning, ReportColumns, choose_keys
from bagwise.tables.rests import Rests
from bagwise.tables.row_columns import NO_COLUMNS, RowColumns
from bagwise.tables.sources import Source, home, read
from bagwise.tables.summary import EMPTY, summarise
from bagwise.tables.table import Table, col, total
from bagwise.utils.parameters import ParameterError


def join(
    events: Source,
    reports: Source | list[Source] | tuple[Source, ...] | None = None,
    *,
    keys: Sequence[str] | str | None = None,
    count: str | Sequence[str] | None = None,
    proportion: str | Sequence[str] | None = None,
    size: str | None = None,
    noise_variance: str | float | None = None,
    noise_scale: str | float | None = None,
    epsilon: str | float | None = None,
    suppressed: str | None = None,
    sum: str | None = None,
    mean: str | None = None,
    target: Literal["label", "value"] | None = None,
    low: str | Sequence[str] | None = None,
    high: str | Sequence[str] | None = None,
    hidden: str | None = None,
    rounded: float | None = None,
    clamped: str | None = None,
    mechanism: str | None = None,
    sensitivity: str | float | None = None,
    null_keys: Literal["none", "rest"] | None = None,
    ignore: Sequence[str] | str | None = None,
    weight: str | None = None,
    offset: str | None = None,
    like: Meaning | None = None,
    on_mismatch: Literal["error", "drop"] | Sequence[str] = "error",
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
        Several tables of reports about the same events are a list: the first is what models are measured on, and all
        of them are learned from (see `bagwise.bags.several`).
    keys : str or sequence of str, optional
        Columns that tell the bag of a row, by default those that both tables have; a row whose key is null is in none.
        A line of the reports whose key is `*` reports the rows that no line with fewer such keys does.
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
    sum, mean : str, optional
        Columns of the sum or the mean of a real label, such as a purchase's value, one of the two, in place of counts;
        noise is that on the sum. Without reports, `mean` names a column of the events.
    target : {"label", "value"}, optional
        What is reported: labels 0 and 1, or classes; or values, whose column is then called `sum` or `mean` unless it
        is named. By default as the named columns tell, and labels where none is named.
    low, high : str or sequence of str, optional
        Columns of the least and the greatest count that a bag may have, where the count is not known; one per class.
    hidden : str, optional
        Between which counts those lie that the column of counts does not show (`*`, or nothing), as in "0-9". Without
        it such bags do not fit. What the column itself says is read: `<10`, `1-7`, `100+`.
    rounded : float, optional
        To the nearest multiple of what counts were rounded, as in 5.
    clamped : str, optional
        What counts below, and above, were set to, as in "0-100".
    mechanism : {"laplace", "discrete-laplace", "gaussian"}, optional
        How the noise was made: `noise_scale` of Gaussian noise is its standard deviation. Laplace by default.
    sensitivity : str or float, optional
        By how much one person can change the count, which ε is divided by; a column or one number. 1 by default.
    null_keys : {"none", "rest"}, optional
        What a key that is null in the reports says: nothing, so that the line is of no bag, or what `*` does.
    ignore : str or sequence of str, optional
        Columns of the events that are no features.
    weight : str, optional
        Column of the events: for how many people a row stands, whom counts and sizes of the reports count. Labels of
        these are independent given the features (see `Bags.with_weights`).
    offset : str, optional
        Column of the events: what is added to the log odds of a row, such as the log of its exposure.
    like : TableModel, optional
        A model: keys, columns of the reports, noise and ignored columns are those that it was trained with, as far as
        the tables have them and nothing else is given; and so are weight and offset, which the events must have.
    on_mismatch : {"error", "drop"} or sequence of str
        Whether bags that do not fit raise, or are left out; or the kinds of mismatch that are left out, such as
        "unreported" and "eventless" (see `Mismatch`), while others raise. Withheld reports and rows without a key are
        left out in any case. What is left out because of its count ("impossible", "outside", "no_value") biases what is
        learned, and a warning (`bagwise.privacy.SelectedBagsWarning`) says which way.
    connection : duckdb.DuckDBPyConnection, pyspark.sql.SparkSession or ibis.BaseBackend, optional
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
    given = ReportColumns(
        count, proportion, size, noise_variance, noise_scale, epsilon, suppressed, sum, mean,
        low, high, hidden, rounded, clamped, mechanism, sensitivity, null_keys,
    )  # fmt: skip
    told: dict[str, Any] = {"target": target, "like": like, "ignore": ignore, "on_mismatch": on_mismatch}
    of_rows = RowColumns(weight, offset)
    of_rows = of_rows if like is None else of_rows.otherwise(like.of_rows)
    if isinstance(reports, (list, tuple)):
        return _join_several(events, reports, given, keys=keys, connection=connection, of_rows=of_rows, **told)
    return _join_one(events, reports, given, keys=keys, connection=connection, of_rows=of_rows, **told)


def _join_one(
    events: Source,
    reports: Source | None,
    given: ReportColumns,
    *,
    keys: Sequence[str] | str | None,
    target: str | None,
    like: Meaning | None,
    ignore: Sequence[str] | str | None,
    on_mismatch: Any,
    connection: Connection | None,
    least_bags: int = 2,
    of_rows: RowColumns = NO_COLUMNS,
) -> BagTable:
    """Events and one table of reports, or none."""
    told: dict[str, Any] = {"keys": keys, "target": target, "like": like, "of_rows": of_rows}
    found = match(events, reports, given, connection=connection, **told)
    rows, joint, columns = found.rows, found.keys, found.columns
    if ignore is None:
        ignore = () if like is None else [name for name in like.ignored if name in rows.columns]
    taken = (*of_rows.names, *of_rows.ours, *(columns.names if reports is None else ()))
    features = _features(rows, joint.names, ignore, taken)
    lines, summary = found.checked(on_mismatch=on_mismatch, least_bags=least_bags)
    bags = numbered(lines, joint, columns, inexact=bool(summary.inexact), of_rows=of_rows)
    if summary.inexact:
        figures = Summary.figures(proportion_columns(columns.classes), of_rows=of_rows)
        figures["inexact"] = total(~col(end_columns(columns.classes)[0][0]).is_null())  # those left by other classes
        line = bags.line(**figures)
        summary = replace(summary, **Summary.facts(line), inexact=int(line["inexact"]))
    placed = found.rests.placed(rows, joint.names)
    events = placed.select(*joint.names, *features, *of_rows.ours, *([ROW] if ROW in rows.columns else []))
    no_features = {*joint.names, *features, *columns.names, *of_rows.names, *of_rows.ours}
    left = tuple(name for name in rows.columns if name not in no_features)
    table = BagTable(events, bags, joint.names, features, columns.classes, summary, columns, left)
    return replace(table, of_rows=of_rows)


def _join_several(
    events: Source,
    reports: Sequence[Source],
    given: ReportColumns,
    *,
    keys: Sequence[str] | str | None,
    ignore: Sequence[str] | str | None,
    connection: Connection | None,
    like: Meaning | None,
    **told: Any,
) -> BagTable:
    """Events with each of several tables of reports: the first, and the others beside it."""
    if not reports:
        raise ParameterError("reports", "must name one table or more.")
    if keys:
        raise ParameterError("keys", "are those that events and each of several tables have: rename columns instead.")
    own = home(events, *reports, connection=connection)
    opened, tables = read(events, own, what="events"), [read(one, own, what="reports") for one in reports]
    check_releases(opened, tables)
    rows = replace(opened.numbered(ROW).keep(), releases=frozenset())  # other tables may be of other releases
    keys_of = [[name for name in choose_keys(None, rows, table, given) if name != ROW] for table in tables]
    ignored = (
        (() if like is None else like.ignored) if ignore is None else (ignore,) if isinstance(ignore, str) else ignore
    )
    no_features = dict.fromkeys([*ignored, *(key for names in keys_of for key in names)])
    found = []
    for number, (table, own_keys) in enumerate(zip(tables, keys_of, strict=True)):
        rest = [ROW, *(name for name in no_features if name not in own_keys)]
        try:
            told |= {"keys": own_keys, "ignore": rest, "least_bags": 1 if number else 2}
            one = _join_one(rows, table, given, like=like, connection=own, **told)
        except ValueError as error:
            raise ValueError(f"report table {number + 1}: {error}") from error
        found.append(replace(one, ignored=tuple(name for name in one.ignored if name in ignored)))
    first, *others = found
    if any(other.classes != first.classes or other.target != first.target for other in others):
        raise ValueError("tables of reports must report the same labels: one has other classes than the first.")
    summary = replace(first.summary, further=tuple(other.summary for other in others))
    return replace(first, others=tuple(others), summary=summary)


@dataclass(frozen=True, eq=False)
class Matched:
    """Rows and the reports of their bags, in the engine.

    rows: of the events.  told: the lines of bags.  rests: which bag a row is in.  columns, of_rows: what says what.
    spare: further columns of the reports, which may be keys.
    """

    rows: Table
    told: Table
    rests: Rests
    columns: ReportColumns
    spare: tuple[str, ...] = ()
    of_rows: RowColumns = NO_COLUMNS

    @property
    def keys(self) -> Keys:
        """What tells the bag of a row."""
        return self.rests.keys

    def checked(
        self,
        *,
        on_mismatch: str | Sequence[str] = "error",
        expected: Sequence[str] = (),
        least_bags: int = 2,
        learned: bool = True,
    ) -> tuple[Table, Summary]:
        """The lines of bags, kept in the engine, and what they add up to, unless they do not fit.

        on_mismatch: see `join`.  expected: kinds of mismatch that are no error.  learned: whether they teach.
        """
        further = further_keys(self.spare, self.rows.columns)
        rules: dict[str, Any] = {"expected": expected, "least_bags": least_bags, "learned": learned, "further": further}
        drop = dropped(on_mismatch)
        with self.rows.engine.grouping(len(self.told.columns)):
            lines = self.told.keep()
        return lines, summarise(lines, self.keys, self.columns, drop=drop, of_rows=self.of_rows, **rules)


def match(
    events: Source,
    reports: Source | None,
    given: ReportColumns,
    *,
    keys: Sequence[str] | str | None = None,
    target: str | None = None,
    like: Meaning | None = None,
    of_rows: RowColumns = NO_COLUMNS,
    connection: Connection | None = None,
) -> Matched:
    """Events and reports opened, and what their columns mean; like: what they mean where nothing is given.

    target: see `join`.  of_rows: columns of the events.
    """
    own = home(events, reports, connection=connection)
    rows = of_rows.added(read(events, own, what="events"))
    lines = None if reports is None else read(reports, own, what="reports")
    if lines is not None:
        check_releases(rows, [lines])
    source = rows if lines is None else lines
    if like is not None:
        given = given.otherwise(like.reports, source.columns)
        keys = keys or (like.keys if {*like.keys} <= {*rows.columns} & {*source.columns} else None)
    target = given.of_target(target)
    never = given.not_of(target) + (() if lines is not None else ("count", "size", "sum"))
    try:
        names = choose_keys(keys, rows, lines, given)
        columns = given.guessed(source.columns, never=never)
        aligned_name = "proportion" if target == "label" else "mean"
        if lines is None and getattr(columns, aligned_name) is None:
            raise ParameterError(aligned_name, "must name a column, constant in a bag, where there are no reports.")
        columns.check(source, list(dict.fromkeys(names)), target)
        joint = Keys.of(names, rows, source)
    except ValueError:
        for what, table in (("events", rows), ("reports", source)):  # whose columns may then be of any type
            if not table.head(1).count():
                raise ValueError(EMPTY.format(what)) from None
        raise
    if lines is None:
        return Matched(rows, aligned(rows, joint, columns, of_rows), Rests(joint), columns, of_rows=of_rows)
    rests = Rests.of(lines, joint, null=columns.null_keys == "rest")
    rests.check(rows)
    spare = tuple(name for name in lines.columns if name not in {*names, *columns.names, *vars(columns), *RECORD})
    told = joined(rows, with_ends(lines, columns), rests, columns, of_rows)
    return Matched(rows, told, rests, columns, spare, of_rows)


def check_releases(events: Table, reports: Sequence[Table]) -> None:
    """Raise where files of events and of reports say of which releases they are, and these are all different."""
    told = [one.releases for one in reports]
    if events.releases and all(told) and events.releases.isdisjoint(frozenset().union(*told)):
        said = "which may put other rows in bags of the same names: take both files from one run"
        raise ValueError(f"events and reports are of different releases, {said} of bagwise bag or bagwise import.")


def _features(rows: Table, keys: Sequence[str], ignore: Sequence[str] | str, taken: Sequence[str]) -> tuple[str, ...]:
    """The columns to learn from."""
    ignored = [ignore] if isinstance(ignore, str) else list(ignore)
    if unknown := [name for name in ignored if name not in rows.columns]:
        there = ", ".join(name for name in rows.columns if name not in (WEIGHT, OFFSET))
        raise ValueError(f"the events have no column {unknown[0]!r} to ignore: they have {there}.")
    features = tuple(name for name in rows.columns if name not in {*keys, *ignored, *taken})
    if not features:
        raise ValueError("the events have no column left to learn from: every one is a key or ignored.")
    if ours := [name for name in (*keys, *features) if is_reserved(name)]:
        raise ValueError(f"column {ours[0]!r} of the events has a name that bagwise uses: rename or ignore it.")
    return features
