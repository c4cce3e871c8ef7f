"""The data holder's side: a table with labels becomes events without them, and reports of bags."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ibis

from bagwise._files import replacing
from bagwise.tables.checksums import md5
from bagwise.tables.engine import connect, execute, fetch, is_duckdb, keep
from bagwise.tables.sources import read

BAG = "bag"
EVENTS, REPORTS = "events.parquet", "reports.parquet"
_ORDER = "bagwise_order"


@dataclass(frozen=True)
class Held:
    """What was written.  withheld: bags too small to be reported, and their rows."""

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

    def __str__(self) -> str:
        left = (
            f" {self.withheld:,} bags ({self.withheld_rows:,} rows) are too small: their reports are withheld."
            if self.withheld
            else ""
        )
        return (
            f"{self.rows:,} rows in {self.bags:,} bags of {self.smallest:,} to {self.largest:,}; key: "
            f"{', '.join(self.keys)}.{left}"
        )


def put_in_bags(
    source: Any,
    folder: str | os.PathLike[str],
    *,
    label: str,
    size: int | None = None,
    by: Sequence[str] = (),
    min_size: int = 2,
    positive: str | None = None,
    random_state: int | None = None,
    connection: Any = None,
) -> Held:
    """Write `events.parquet`, which has no labels, and `reports.parquet`, one line per bag, into `folder`.

    source: a table with individual labels, anything that `read` takes.  label: its column of labels, of two values (0
        and 1, false and true, or any two with `positive` naming one) or more, which become classes.
    size: rows per bag: every group, or the whole table, is dealt at random into bags of `size` rows or a few more.
    by: columns to group by. Without `size`, a group is a bag.
    min_size: bags with fewer rows get no report: their line says `suppressed` and has no count.
    random_state: a number deals the same bags to the same file again, and lets anyone who knows it undo the shuffling
        of the rows; None draws a secret one.
    """
    if size is None and not by:
        raise ValueError("say how bags are made: by their size, by columns to group by, or both.")
    if size is not None and size < 1:
        raise ValueError(f"size must be at least 1, got {size}.")
    if min_size < 1:
        raise ValueError(f"min_size must be at least 1, got {min_size}.")
    own = connection if connection is not None else connect(ordered=True)
    table = read(source, own, what="the table with labels")
    if not is_duckdb(own):
        raise ValueError("labels are cut into bags by DuckDB: pass a file or a data frame.")
    _check_columns(table, label, by, size)
    salt = secrets.token_hex(16) if random_state is None else str(random_state)
    rows = keep(_dealt(table, by, size, salt), own)
    classes, positives = _classes(rows, label, positive, own)
    keys = (*by, *((BAG,) if size is not None else ()))
    reports = keep(_reports(rows, keys, label, classes, positives, min_size), own)
    folder = Path(folder)
    with replacing(folder / EVENTS, folder / REPORTS) as (events_path, reports_path):
        # Rows in their old order could tell labels, where the table was sorted by them.
        own.to_parquet(rows.order_by(_ORDER).drop(label, _ORDER), str(events_path))
        own.to_parquet(reports.order_by(list(keys)), str(reports_path))
        found = execute(
            reports.agg(
                rows=ibis._["size"].sum(),
                bags=(~ibis._.suppressed).sum(),
                smallest=ibis._["size"].min(where=~ibis._.suppressed),
                largest=ibis._["size"].max(where=~ibis._.suppressed),
                withheld=ibis._.suppressed.sum(),
                withheld_rows=ibis._["size"].sum(where=ibis._.suppressed).fill_null(0),
            ),
            own,
        )
        if not found["bags"]:
            raise ValueError(f"every bag has fewer than {min_size} rows: make larger bags.")
    return Held(folder / EVENTS, folder / REPORTS, tuple(keys), classes=classes, **found)


def _check_columns(table: Any, label: str, by: Sequence[str], size: int | None) -> None:
    for name in (label, *by):
        if name not in table.columns:
            raise ValueError(f"there is no column {name!r}: there are {', '.join(table.columns)}.")
    if label in by:
        raise ValueError(f"column {label!r} is the label: bags grouped by it would give it away.")
    taken = [name for name in (*((BAG,) if size is not None else ()),) if name in table.columns]
    if taken:
        raise ValueError(f"the table has a column {taken[0]!r} already: rename it first.")
    clash = [name for name in by if name in {"size", "count", "suppressed"}]
    if clash:
        raise ValueError(f"column {clash[0]!r} has the name of a column of the reports: rename it first.")


def _dealt(table: Any, by: Sequence[str], size: int | None, salt: str) -> Any:
    """The rows with the key of their bag, and a column to shuffle them by."""
    numbered = table.mutate(bagwise_row=ibis.row_number())
    drawn = md5(ibis.literal(f"{salt} ") + numbered.bagwise_row.cast("string"))
    rows = numbered.mutate(**{_ORDER: drawn}).drop("bagwise_row")
    if size is None:
        return rows
    groups = list(by) or None
    dealt = rows.mutate(
        bagwise_place=ibis.row_number().over(group_by=groups, order_by=_ORDER),
        bagwise_rows=ibis._.count().over(group_by=groups),
    )
    bags = ibis.greatest(dealt.bagwise_rows // size, 1)
    return dealt.mutate(**{BAG: dealt.bagwise_place % bags}).drop("bagwise_place", "bagwise_rows")


def _classes(rows: Any, label: str, positive: str | None, connection: Any) -> tuple[tuple[str, ...] | None, list[str]]:
    """Names of the classes, None for two; and the values to count, as text."""
    column = rows[label]
    missing = execute(rows.agg(n=column.isnull().sum().fill_null(0)), connection)["n"]
    if missing:
        raise ValueError(f"column {label!r} is empty in {missing:,} rows: every row needs a label.")
    text = rows.select(value=column.cast("string")).distinct().order_by("value").limit(1001)
    values = fetch(text, connection).column("value").to_pylist()
    if len(values) > 1000:
        raise ValueError(f"column {label!r} has more than 1,000 values: labels must be classes.")
    if len(values) < 2:
        raise ValueError(f"column {label!r} has one value only: there is nothing to learn.")
    if positive is not None:
        if positive not in values:
            raise ValueError(f"column {label!r} has no value {positive!r}: it has {', '.join(values[:10])}.")
        return None, [positive]
    if set(values) <= {"0", "1", "0.0", "1.0", "false", "true", "False", "True"}:
        return None, [value for value in values if value.lower() in ("1", "1.0", "true")]
    if len(values) == 2:
        raise ValueError(f"column {label!r} has the values {values[0]} and {values[1]}: say which one is positive.")
    return tuple(values), values


def _reports(
    rows: Any, keys: Sequence[str], label: str, classes: tuple[str, ...] | None, values: list[str], min_size: int
) -> Any:
    text = rows[label].cast("string")
    names = ["count"] if classes is None else [f"count_{name}" for name in classes]
    counts = {name: (text == value).sum() for name, value in zip(names, values, strict=True)}
    reports = rows.group_by(list(keys)).agg(size=ibis._.count(), **counts)
    small = reports["size"] < min_size
    shown = {name: small.ifelse(ibis.null("int64"), reports[name].cast("int64")) for name in names}
    return reports.select(*keys, "size", **shown, suppressed=small)
