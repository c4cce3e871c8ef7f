"""Rows of a table and the reports of their bags, as scores and rates take them: in the engine, or held in memory.

Rows of bags of several tables hang together, so that all of them are scored before any of them is given the reports:
their scores, and the numbers of their bags, are held in memory, the rows themselves are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa

from bagwise import segment
from bagwise.bags import Bags, several
from bagwise.data.shards import OFFSET, WEIGHT
from bagwise.disaggregation.members import joint
from bagwise.tables.bag_lines import numbered
from bagwise.tables.bag_table import CHANGED, NUMBER, BagTable
from bagwise.tables.engines import Connection
from bagwise.tables.join import check_releases, match
from bagwise.tables.model import TableModel
from bagwise.tables.reports import ReportColumns, choose_keys
from bagwise.tables.schema import Reading
from bagwise.tables.sources import Source, read
from bagwise.tables.table import Table, col
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Floats, Integers, NDArray

OURS = "bagwise_"
"""How names of columns begin that are ours."""

ROW, BAG = OURS + "row", OURS + "bag"
_KEY, _BAG_OF = OURS + "key_{}_{}", OURS + "bag_{}"
_UNUSED = ("unreported", "eventless")  # what is no mistake here: other rows than those of bags are scored, too
MOST_ROWS = 20_000_000
"""Rows whose scores are held in memory at once, some three gigabytes."""


def reported(
    model: TableModel,
    table: Table,
    reports: Source | None,
    given: ReportColumns,
    *,
    keys: Sequence[str] | str | None,
    on_mismatch: str | Sequence[str],
    connection: Connection,
    number: int = 0,
    rows: Table | None = None,
) -> BagTable:
    """The table and the bags that report something, whose keys have names of ours, beside all columns of its own.

    number: of the table of reports, where there are several.  rows: what the table is with the keys of earlier ones.
    """
    told_as: dict[str, Any] = {"target": model.target, "like": model, "of_rows": model.of_rows}
    found = match(table, reports, given, keys=keys, connection=connection, **told_as)
    of_rows = found.of_rows
    model.check_classes(found.columns.classes)
    told, summary = found.checked(on_mismatch=on_mismatch, expected=_UNUSED, least_bags=1, learned=False)
    names = tuple(_KEY.format(number, place) for place in range(len(found.keys.names)))
    ours = replace(found.keys, names=names)
    bags = numbered(told, ours, found.columns, inexact=bool(summary.inexact), of_rows=of_rows)
    placed = found.rests.placed(of_rows.added(table.numbered(ROW)) if rows is None else rows, names)
    return replace(BagTable(placed, bags, names, (), found.columns.classes, summary, found.columns), of_rows=of_rows)


def reported_by_each(
    model: TableModel,
    table: Table,
    reports: Sequence[Source | None],
    given: ReportColumns,
    *,
    keys: Sequence[str] | str | None,
    on_mismatch: str | Sequence[str],
    connection: Connection,
) -> list[BagTable]:
    """The same of each of several tables of reports; the last one's rows have the keys of all."""
    if len(reports) > 1 and keys:
        raise ParameterError("keys", "are those that rows and each of several tables have: rename columns instead.")
    if len(reports) > 1 and model.target == "value":
        raise ParameterError("reports", "of several tables make labels add up, not values: name one table.")
    if len(reports) > 1:  # others than the first may be of other releases
        check_releases(table, [read(one, connection, what="reports") for one in reports if one is not None])
        table = replace(table, releases=frozenset())
    found: list[BagTable] = []
    for number, one in enumerate(reports):
        told: dict[str, Any] = {"keys": keys, "on_mismatch": on_mismatch, "connection": connection}
        rows = found[-1].events if found else None
        try:
            if len(reports) > 1 and one is not None:
                lines = read(one, connection, what="reports")
                told["keys"] = choose_keys(None, table, lines, given.otherwise(model.reports, lines.columns))
            found.append(reported(model, table, one, given, **told, number=number, rows=rows))
        except ValueError as error:
            if len(reports) == 1:
                raise
            raise ValueError(f"report table {number + 1}: {error}") from error
    return found


@dataclass(frozen=True, eq=False)
class Held:
    """What is held of rows, in the order of the table.

    h: (n,) or (n, classes).  bags: of all tables of reports.  codes: (n, made) or None.  groups: (n,) texts or None.
    """

    h: Floats
    bags: Bags
    codes: Floats | None
    groups: NDArray[Any] | None


def hold(
    model: TableModel,
    reading: Reading,
    data: Sequence[BagTable],
    *,
    kept: Sequence[str] = (),
    keep: Callable[[pa.RecordBatch], None] | None = None,
    coded: bool = False,
    by: Sequence[str] = (),
) -> Held:
    """Scores of rows and the bags of all tables, in one pass.  kept, keep: columns that are handed on meanwhile."""
    total = data[-1].summary.rows
    if total > MOST_ROWS:
        what = f"of {total:,} rows are too many to be held in memory ({MOST_ROWS:,} at most)"
        raise ParameterError("reports", f"{what}: name one table of reports and no groups, or score some of the rows.")
    keys = [key for one in data for key in one.keys]
    numbers = [_BAG_OF.format(number) for number in range(len(data))]
    ours = data[-1].of_rows.ours
    rows = reading.select(*dict.fromkeys([*kept, *by]), *ours, ROW, *keys, of=data[-1].events)
    for one, name in zip(data, numbers, strict=True):
        rows = rows.join(one.bags.select(*one.keys, **{name: col(NUMBER)}), one.keys, "left")
    query = rows.select(*dict.fromkeys([*kept, *by]), *ours, ROW, *numbers, *model.features.names).sort(ROW)
    said: list[Floats] = []
    of_rows: dict[str, list[Floats]] = {our: [] for our in ours}
    matrices: list[Floats] = []
    texts: list[NDArray[Any]] = []
    codes: list[list[Integers]] = [[] for _ in data]
    stream: Any = query.batches()
    with closing(stream):
        for batch in stream:
            matrix = reading.matrix(batch)
            said.append(model.predict_codes(matrix, offset_of(model, batch)))
            for our, values in of_rows.items():
                values.append(batch.column(our).to_numpy(zero_copy_only=False))
            if coded:
                matrices.append(matrix)
            if by:
                texts.append(joint([_as_text(batch.column(name)) for name in by]))
            for code, name in zip(codes, numbers, strict=True):
                code.append(batch.column(name).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64))
            if keep is not None:
                keep(batch.select(kept))
    told = {our: np.concatenate(values) for our, values in of_rows.items()}
    each = [_bags_of(one, np.concatenate(code), told) for one, code in zip(data, codes, strict=True)]
    every = np.concatenate(matrices) if coded else None
    return Held(np.concatenate(said), several(each), every, np.concatenate(texts) if by else None)


def offset_of(model: TableModel, batch: pa.RecordBatch) -> Floats | None:
    """(n,) what is added to the log odds of rows, where the model was fitted with an offset."""
    return None if model.of_rows.offset is None else batch.column(OFFSET).to_numpy(zero_copy_only=False)


def _as_text(column: pa.Array) -> NDArray[Any]:
    """Values as texts, each converted once."""
    encoded = column.dictionary_encode(null_encoding="encode")
    texts = np.array([None if one is None else str(one) for one in encoded.dictionary.to_pylist()], dtype=object)
    return np.asarray(texts[encoded.indices.to_numpy(zero_copy_only=False)])


def _bags_of(data: BagTable, code: Integers, of_rows: Mapping[str, Floats]) -> Bags:
    """The bags of one table of reports, of rows whose bags have these numbers, −1 for none.

    of_rows: weights and offsets of all rows, by our names.
    """
    _, proportion, noise, interval, rows = data.reported
    order, offsets = segment.group(code, len(rows))
    if not np.array_equal(np.diff(offsets), rows):
        raise ValueError(CHANGED)
    inside = [of_rows[our][order] if our in of_rows else None for our in (WEIGHT, OFFSET)]
    return Bags.build(key_text(data), order, offsets, proportion, noise, len(code), code, interval, *inside)


def key_text(data: BagTable) -> NDArray[Any]:
    """The keys of bags as messages show them, by number."""
    text = nw.concat_str([col(key).cast(nw.String) for key in data.keys], separator=" / ")
    return np.asarray(data.bags.select(NUMBER, text=text).sort(NUMBER).fetch().column("text").to_numpy())
