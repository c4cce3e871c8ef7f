"""Events and reports joined: which bags can be used, and what is wrong with the others. All of it in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ibis

from bagwise.tables.bag_lines import aligned, joined
from bagwise.tables.bag_table import NOISE, NUMBER, SIZE, BagTable, is_reserved, proportion_columns
from bagwise.tables.checksums import md5
from bagwise.tables.engine import connect, connection_of, keep
from bagwise.tables.keys import Keys, chosen
from bagwise.tables.reports import ReportColumns
from bagwise.tables.sources import read
from bagwise.tables.summary import check_not_empty, summarise
from bagwise.utils.parameters import ParameterError


def join(
    events: Any,
    reports: Any = None,
    *,
    keys: Sequence[str] | str | None = None,
    count: str | Sequence[str] | None = None,
    proportion: str | Sequence[str] | None = None,
    size: str | None = None,
    noise_variance: str | float | None = None,
    noise_scale: str | float | None = None,
    epsilon: str | float | None = None,
    suppressed: str | None = None,
    ignore: Sequence[str] = (),
    on_mismatch: str = "error",
    connection: Any = None,
) -> BagTable:
    """Join events with the reports of their bags, and check both.

    events, reports: anything that `read` takes. Without reports, `proportion` names columns of the events that are
        constant in a bag, and so do `size`, `noise_variance` (or `noise_scale`, or `epsilon`) and `suppressed`.
    keys: columns that say which bag a row is in; by default those that both tables have. A row whose key is null is in
        no bag.
    count, proportion, size, noise_variance, noise_scale, epsilon, suppressed: columns of the reports, see
        `ReportColumns`; by default, those of these names (without reports, a column called `size` or `count` is a
        feature unless it is named here).
    ignore: columns of the events that are no features.
    on_mismatch: "error", or "drop" to leave out the bags that do not fit.
    connection: an Ibis DuckDB connection for files and tables in memory; one of our own by default.

    >>> events = {"bag": ["a", "a", "b"], "age": [31, 42, 53]}
    >>> joined = join(events, {"bag": ["b", "a"], "count": [1, 1]})
    >>> print(joined.summary)
    3 events and 2 reports: 2 bags of 1 to 2 rows, 3 rows in all, mean label 0.6667.
    """
    if on_mismatch not in ("error", "drop"):
        raise ParameterError("on_mismatch", f"must be 'error' or 'drop', got {on_mismatch!r}.")
    given = {
        "count": _listed(count),
        "proportion": _listed(proportion),
        "size": size,
        "noise_variance": noise_variance,
        "noise_scale": noise_scale,
        "epsilon": epsilon,
        "suppressed": suppressed,
    }
    own = _engine(events, reports, connection)
    rows = read(events, own, what="events")
    lines = None if reports is None else read(reports, own, what="reports")
    source = rows if lines is None else lines
    engine = connection_of(rows, source) or own
    try:
        names = chosen(keys, rows, lines, given)
        columns = ReportColumns.guessed(source.columns, given, never=() if lines is not None else ("count", "size"))
        if lines is None and columns.proportion is None:
            raise ParameterError(
                "proportion", "must name a column of the events, constant in a bag, where there are no reports."
            )
        columns.check(source, list(dict.fromkeys(names)))
        joint = Keys.of(names, rows, source)
    except ValueError:
        check_not_empty(engine, events=rows, reports=source)
        raise
    features = _features(rows, names, ignore, columns.names if lines is None else ())
    found = aligned(rows, joint, columns) if lines is None else joined(rows, lines, joint, columns)
    found = keep(found, engine)
    summary = summarise(found, joint, columns, engine, aligned=lines is None, drop=on_mismatch == "drop")
    bags = keep(_bags(found, joint, columns), engine)
    keyed = [column.name(name) for name, column in zip(names, joint.columns(rows), strict=True)]
    kept = rows.select(*keyed, *features)
    return BagTable(kept, bags, joint.names, features, columns.classes, summary, engine)


def _bags(lines: Any, keys: Keys, columns: ReportColumns) -> Any:
    """One line per usable bag, under the names of the user's keys."""
    usable = lines.filter(lines.used)
    text = keys.text(usable)
    # In the order of a checksum: the same in every engine and as good as random. Texts of different keys may be equal.
    order = [md5(text), *(usable[key] for key in keys.ours)]
    number = ibis.row_number().over(order_by=order)
    named = [usable[key].name(name) for name, key in zip(keys.names, keys.ours, strict=True)]
    return usable.select(*named, number.name(NUMBER), SIZE, *proportion_columns(columns.classes), NOISE)


def _features(rows: Any, keys: Sequence[str], ignore: Sequence[str], taken: Sequence[str]) -> tuple[str, ...]:
    """The columns to learn from."""
    ignored = [ignore] if isinstance(ignore, str) else list(ignore)
    unknown = [name for name in ignored if name not in rows.columns]
    if unknown:
        raise ValueError(f"the events have no column {unknown[0]!r} to ignore: they have {', '.join(rows.columns)}.")
    features = tuple(name for name in rows.columns if name not in {*keys, *ignored, *taken})
    if not features:
        raise ValueError("the events have no column left to learn from: every one is a key or ignored.")
    for name in (*keys, *features):
        if is_reserved(name):
            raise ValueError(f"column {name!r} of the events has a name that bagwise uses: rename or ignore it.")
    return features


def _engine(events: Any, reports: Any, connection: Any) -> Any:
    """The engine of the Ibis tables among the sources, or the one given, or a DuckDB of our own."""
    tables = [source for source in (events, reports) if isinstance(source, ibis.Table)]
    found = connection_of(*tables) if tables else None
    if found is None:
        found = connection
    return connect() if found is None else found


def _listed(value: str | Sequence[str] | None) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else value
