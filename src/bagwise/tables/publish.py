"""The data holder's side: a table with labels becomes events without them, and reports of bags."""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa

from bagwise.privacy import Budget, budget_for, record, report_counts
from bagwise.tables.bag_table import is_reserved
from bagwise.tables.columns import is_pandas_index
from bagwise.tables.engines import Connection
from bagwise.tables.engines.duckdb import DuckDB
from bagwise.tables.ledger import Spent, beside_earlier, check_budget, spend
from bagwise.tables.sources import Source, home, read
from bagwise.tables.table import Expression, Table, col, if_else, length, lit, null, total, where
from bagwise.utils.files import replacing
from bagwise.utils.parameters import NONE, AdviceError, Parameter, ParameterError, check_parameters, whole
from bagwise.utils.text import number_of, rows_of

BAG = "bag"
EVENTS, REPORTS = "events.parquet", "reports.parquet"
_ORDER, _LINE, _ROW = "bagwise_order", "bagwise_line", "bagwise_row"
_DIGITS = 16  # of a key: two of a million bags are the same with a chance of 3e-8
_SAID = ("size", "count", "suppressed")
_ONE = ("1", "1.0", "true")
_SAID_OF_NOISE = ("noise_variance", "epsilon", "delta", "mechanism", "threshold")
_CONSTRAINTS = {"size": whole(1) | NONE, "min_size": whole(1), "random_state": whole(0) | NONE}


@dataclass(frozen=True)
class Published:
    """What `put_in_bags` wrote.

    Attributes
    ----------
    events, reports : Path
        The two files.
    keys : tuple of str
        The columns that say which bag a row is in.
    rows, bags, smallest, largest, withheld, withheld_rows : int
        All rows; bags that report, and their sizes; bags without a report, and their rows.
    classes : tuple of str or None
        Names of the classes, None for labels 0 and 1.
    budget : Budget or None
        What noise cost, None without.
    threshold : float or None
        Below which noised counts were withheld.
    releases : tuple of Spent
        With noise, this release and those of these labels, or into this folder, before it.
    """

    events: Path
    reports: Path
    keys: tuple[str, ...]
    rows: int
    bags: int
    smallest: int
    largest: int
    withheld: int
    withheld_rows: int
    classes: tuple[str, ...] | None
    budget: Budget | None = None
    threshold: float | None = None
    releases: tuple[Spent, ...] = ()

    def __str__(self) -> str:
        why = "too small" if self.threshold is None else "too small or report less than the threshold"
        left = f" {self.withheld:,} bags ({self.withheld_rows:,} rows) are {why}: their reports are withheld."
        spent = "" if self.budget is None else f" Spent: {self.budget}{beside_earlier(self.releases)}"
        bags = f"{number_of(self.bags, 'bag')} of {rows_of(self.smallest, self.largest)}"
        return f"{self.rows:,} rows in {bags}; key: {', '.join(self.keys)}.{left if self.withheld else ''}{spent}"


def put_in_bags(
    source: Source,
    folder: str | os.PathLike[str],
    *,
    label: str,
    size: int | None = None,
    by: Sequence[str] = (),
    min_size: int = 2,
    positive: str | None = None,
    classes: Sequence[str] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    threshold: float | None = None,
    random_state: int | None = None,
    force: bool = True,
    force_budget: bool = False,
    connection: Connection | None = None,
) -> Published:
    """Write `events.parquet`, which has no labels, and `reports.parquet`, one line per bag, into a folder.

    Parameters
    ----------
    source : path, table or dict
        A table with individual labels, anything that `read` takes.
    folder : path
        Where to write.
    label : str
        Its column of labels: two values (0 and 1, false and true, or any two with `positive` naming one), or classes.
    size : int, optional
        Rows per bag: every group, or the whole table, is dealt at random into bags of `size` rows or a few more.
    by : sequence of str
        Columns to group by. Without `size`, a group is a bag.
    min_size : int
        Bags with fewer rows get no report: their line says `suppressed` and has no count.
    positive : str, optional
        The label that counts, where there are two that are not 0 and 1.
    classes : sequence of str, optional
        The labels that may occur; by default those that do, which with noise must not show.
    epsilon, delta, threshold : float, optional
        As in `bagwise.release`: counts with noise, and columns of what was spent; exact counts are then in no file.
    random_state : int, optional
        A number deals the same bags, with the same keys, to the same rows again, and lets anyone who tries numbers
        until the result is the same undo the shuffling of the rows, which gives labels away where their order tells
        them; so none goes with noise. By default it is secret. Noise is always secret.
    force : bool
        Replace what is there. Without it that stays and is an error, also where another process wrote it meanwhile.
    force_budget : bool
        Release labels that were released before all the same. Without it that is an error, which says what would be
        spent in all: see `bagwise.tables.ledger`.
    connection : duckdb.DuckDBPyConnection, optional
        By default a DuckDB of our own.

    Returns
    -------
    Published
        The files, and figures of what they hold.

    Notes
    -----
    The two files carry the same release id in their metadata, by which `join` refuses files of different releases. With
    noise, `ledger.json` beside them says what was spent, by all releases of these labels that are known to this user.

    With `size`, the key `bag` is a text that tells nothing: digits of a checksum of the bag's number and a secret. So
    bags of two calls never have the same key, and their tables can be read as one. With a `random_state` the checksum
    is of that and of the rows without their labels, in place of the secret: other rows have other keys. With `by`
    alone the groups are the keys: tables that share a group do not go together.
    """
    if size is None and not by:
        raise AdviceError("say how bags are made: pass ", Parameter("size"), ", ", Parameter("by"), ", or both.")
    check_parameters({"size": size, "min_size": min_size, "random_state": random_state}, _CONSTRAINTS)
    if epsilon is None and (delta is not None or threshold is not None):
        given = "threshold" if delta is None else "delta"
        raise ParameterError(given, "belongs to noised counts: give ", Parameter("epsilon"), ", too.")
    if epsilon is not None and random_state is not None:
        why = "whoever tries numbers finds it, and with it the order of the rows, which may tell the labels that noise"
        said = f": {why} is to protect; leave it out."
        raise ParameterError("random_state", "does not go with ", Parameter("epsilon"), said)
    if classes is not None and (positive is not None or len(set(classes)) < max(2, len(classes))):
        said = "must be two labels or more, each named once, and go without "
        raise ParameterError("classes", said, Parameter("positive"), ".")
    # Before the work: what is wrong with the budget, and that OpenDP is there.
    budget = None if epsilon is None else budget_for(epsilon, delta, classes=classes is not None)
    table = read(source, home(source, connection=connection, ordered=True), what="the table with labels")
    engine = table.engine
    if not isinstance(engine, DuckDB):
        raise ValueError("labels are cut into bags by DuckDB: pass a file or a data frame.")
    _check_columns(table, label, by, size)
    spent = None if budget is None else Spent.of(table, label, budget)
    if spent is not None:
        check_budget(spent, Path(folder), force_budget=force_budget)
    salt = secrets.token_hex(16) if random_state is None else str(random_state)
    numbered = table.numbered(_ROW)
    # With a number in place of the secret, other rows would get the same keys.
    own = "" if random_state is None or size is None else engine.fingerprint(numbered.drop(label).native)
    rows = _dealt(numbered, by, size, salt, f"bag {salt} {own}").keep()
    names, values = classes_of(rows, label, positive, classes, noised=budget is not None)
    counts = ["count"] if names is None else [f"count_{name}" for name in names]
    same: dict[str, str] = {}
    for name in names or ():
        if (other := same.setdefault(name.lower(), name)) != name:
            why = "differ in case only, and names of columns must not"
            raise ValueError(
                f"the labels {other!r} and {name!r} of column {label!r} {why}: call one of them otherwise."
            )
    columns = {*_SAID, *counts, *(() if budget is None else _SAID_OF_NOISE)}
    if clash := [name for name in by if name.lower() in {column.lower() for column in columns}]:
        raise ValueError(f"column {clash[0]!r} has the name of a column of the reports: rename it first.")
    keys = [*by] if size is None else [*by, BAG]
    reports = _reports(rows, keys, label, dict(zip(counts, values, strict=True)), min_size).keep()
    if budget is not None:
        reports = _noised(reports, counts, budget, threshold, min_size)
    files = Path(folder) / EVENTS, Path(folder) / REPORTS
    release = secrets.token_hex(16) if spent is None else spent.release
    known: tuple[Spent, ...] = ()
    with replacing(*files, force=force) as (events_path, reports_path):
        # Rows in their old order could tell labels, where the table was sorted by them.
        engine.write_parquet(rows.sort(_ORDER).drop(label, _ORDER).native, events_path, release=release)
        engine.write_parquet(reports.sort(*keys).native, reports_path, release=release)
        size_, hidden = col("size"), col("suppressed")
        shown = where(~hidden, size_)
        told = {"bags": shown.count(), "smallest": shown.min(), "largest": shown.max()}
        left = {"withheld": total(hidden), "withheld_rows": total(where(hidden, size_))}
        found = reports.line(rows=total(size_), **told, **left)
        if not found["bags"]:
            said = f"every bag has fewer than {min_size} rows: make larger bags, or lower "
            raise AdviceError(said, Parameter("min_size"), ".")
        if spent is not None:
            known = spend(spent, Path(folder), force_budget=force_budget)
    found |= {"classes": names, "budget": budget, "threshold": threshold, "releases": known}
    return Published(*files, tuple(keys), **found)


def _check_columns(table: Table, label: str, by: Sequence[str], size: int | None) -> None:
    if absent := [name for name in (label, *by) if name not in table.columns]:
        raise ValueError(f"there is no column {absent[0]!r}: there are {', '.join(table.columns)}.")
    if reserved := [name for name in table.columns if is_reserved(name)]:
        raise ValueError(f"column {reserved[0]!r} has a name that bagwise uses itself: rename it first.")
    if index := [name for name in table.columns if is_pandas_index(name)]:
        why = "may tell the order of its rows, and that their labels"
        raise ValueError(f"column {index[0]!r} is the index of a pandas table, which {why}: write it with index=False.")
    for name in (label, *by):
        if table.schema[name].is_nested():
            raise ValueError(f"column {name!r} holds lists or records: labels and bags are told by single values.")
    if label in by:
        raise ValueError(f"column {label!r} is the label: bags grouped by it would give it away.")
    if taken := [name for name in table.columns if size is not None and name.lower() == BAG]:
        raise ValueError(f"the table has a column {taken[0]!r} already: rename it first.")


def _dealt(numbered: Table, by: Sequence[str], size: int | None, salt: str, key_salt: str) -> Table:
    """The rows with the key of their bag, and a column to shuffle them by."""
    rows = numbered.with_md5(**{_ORDER: _salted(salt, col(_ROW))}).drop(_ROW)
    if size is None:
        return rows
    place, of = col(_ORDER).cum_count().over(*by, order_by=_ORDER) - 1, length().over(*by) if by else length()
    dealt = rows.with_columns(bagwise_place=place, bagwise_bags=of // size)
    bags = if_else(col("bagwise_bags") < 1, lit(1), col("bagwise_bags"))
    keyed = dealt.with_md5(**{BAG: _salted(key_salt, col("bagwise_place") % bags)})
    # After a letter, since digits alone, or with an e among them, are numbers to who reads a text file.
    key = nw.concat_str([lit("b"), col(BAG).str.head(_DIGITS)])
    return keyed.with_columns(**{BAG: key}).drop("bagwise_place", "bagwise_bags")


def _salted(salt: str, number: Expression) -> Expression:
    return nw.concat_str([lit(f"{salt} "), number.cast(nw.String)])


def classes_of(
    rows: Table, label: str, positive: str | None, given: Sequence[str] | None, *, noised: bool
) -> tuple[tuple[str, ...] | None, list[str]]:
    """Names of the classes, None for two; and the values to count, as text."""
    column, type_ = col(label), rows.schema[label]
    as_text = labels_as_text(rows, label)
    if empty := rows.filter(column.is_null()).count():
        raise ValueError(f"column {label!r} is empty in {number_of(empty, 'row')}: every row needs a label.")
    text = rows.select(value=as_text).group_by(["value"], {"rows": length()})
    values = text.sort("value").head(1001).fetch().column("value").to_pylist()
    if not values:
        raise ValueError("the table with labels is empty: there must be one row at least.")
    if len(values) > (1000 if given is not None or not type_.is_float() else 50):
        many = "more than 1,000" if len(values) > 1000 else len(values)
        said = f"column {label!r} has {many} values: labels must be classes; name them if so ("
        raise AdviceError(said, Parameter("classes"), ").")
    if given is not None:
        if others := [value for value in values if value not in given]:
            raise ValueError(f"column {label!r} has the value {others[0]!r}, which is not among the classes.")
        return tuple(given), list(given)
    if len(values) < 2 and not noised:
        raise ValueError(f"column {label!r} has one value only: there is nothing to learn.")
    if positive is not None:
        if positive in values:
            return None, [positive]
        if isinstance(type_, nw.Boolean):
            raise ValueError(f"column {label!r} was read as truth values: name false or true as positive, or none.")
        raise ValueError(f"column {label!r} has no value {positive!r}: it has {', '.join(values[:10])}.")
    if set(values) <= {"0", "1", "0.0", "1.0", "false", "true", "False", "True"}:
        if len(values) > 2 or len({value.lower() in _ONE for value in values}) < len(values):
            raise ValueError(f"column {label!r} writes one label in two ways ({', '.join(values)}): write it in one.")
        return None, [value for value in values if value.lower() in _ONE] or ["1"]
    if len(values) == 2:
        said = f"column {label!r} has the values {values[0]} and {values[1]}: say which one is positive ("
        raise AdviceError(said, Parameter("positive"), ").")
    if noised:
        way = "with noise, which cannot hide which labels occur, name the classes that may ("
        said = f"column {label!r} is not 0 and 1: {way}"
        raise AdviceError(said, Parameter("classes"), ") or the positive one (", Parameter("positive"), ").")
    return tuple(values), values


def labels_as_text(rows: Table, label: str) -> Expression:
    """Labels as text; −0.0 is 0.0."""
    column = col(label)
    return (if_else(column == 0, lit(0.0), column) if rows.schema[label].is_float() else column).cast(nw.String)


def _reports(rows: Table, keys: Sequence[str], label: str, counts: Mapping[str, str], min_size: int) -> Table:
    """One line per bag.  counts: the label that each column counts, by its name."""
    text = labels_as_text(rows, label)
    told = {name: total(text == value) for name, value in counts.items()}
    reports = rows.group_by(keys, {"size": length(), **told})
    small = col("size") < min_size
    shown = {name: if_else(small, null(nw.Int64()), col(name)) for name in counts}
    return reports.select(*keys, "size", **shown, suppressed=small)


def _noised(reports: Table, names: list[str], budget: Budget, threshold: float | None, min_size: int) -> Table:
    """The reports with noise on their counts. Sizes and counts alone come into memory: a few numbers per bag."""
    lines = reports.numbered(_LINE).keep()
    exact = lines.select(_LINE, "size", *names).fetch()
    counts = np.stack([exact.column(name).fill_null(0).to_numpy() for name in names], axis=1)
    counts, size = counts if len(names) > 1 else counts[:, 0], exact.column("size").to_numpy()
    noised, shown = report_counts(counts, size, budget, min_size=min_size, threshold=threshold, stacklevel=4)
    drawn = {name: pa.array(column, mask=~shown) for name, column in zip(names, np.atleast_2d(noised.T), strict=True)}
    told = pa.table({_LINE: exact.column(_LINE), **drawn, "suppressed": ~shown})
    told = Table.of(lines.engine.take(told), lines.engine)
    noised_lines = lines.drop(*names, "suppressed").join(told, [_LINE]).drop(_LINE)
    variance = if_else(col("suppressed"), null(nw.Float64()), lit(budget.noise_variance, nw.Float64))
    said = {name: lit(value) for name, value in record(budget, threshold).items()}
    return noised_lines.with_columns(noise_variance=variance, **said).keep()
