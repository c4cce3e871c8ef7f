"""Scored tables: read, predicted and written piece by piece."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.csv
import pyarrow.parquet as pq

from bagwise.tables.engine import connect, connection_of, execute
from bagwise.tables.model import TableModel
from bagwise.tables.sources import read
from bagwise.utils.files import replacing

_EMPTY = "the table is empty: there is no row to score."


def write_scores(
    model: TableModel,
    source: Any,
    out: str | os.PathLike[str] | BinaryIO,
    *,
    keep: Sequence[str] | None = None,
    connection: Any = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> int:
    """Write the rows of a table with their predictions; memory does not grow with the table. Returns how many.

    Rows keep their order where the engine does (see `connect`).

    source: anything that `read` takes.  out: a file that ends in .parquet or .csv, or an open stream, which gets CSV.
    keep: columns to hand on; None for all.
    """
    own = connection if connection is not None else connect(ordered=True)
    table = read(source, own, what="the table")
    own = connection_of(table) or own
    if keep is not None and (unknown := [name for name in keep if name not in table.columns]):
        raise ValueError(f"there is no column {unknown[0]!r} to keep: there are {', '.join(table.columns)}.")
    clash = [name for name in model.predictions if name in (table.columns if keep is None else keep)]
    if clash:
        raise ValueError(f"the table has a column {clash[0]!r} already: leave it out, or rename it.")
    first = table if progress is not None else table.limit(1)
    total = int(execute(first.agg(n=first.count()), own)["n"])
    if not total:
        raise ValueError(_EMPTY)  # before its columns are looked at, which may be of any type
    scored = model.score(table, own, keep=keep)
    if not isinstance(out, (str, os.PathLike)):
        return _write(scored, out, ".csv", total, progress)
    path = Path(out)
    if path.suffix.lower() not in (".parquet", ".csv"):
        raise ValueError(f"{path} has an unknown ending: scores are written to .parquet or .csv.")
    with replacing(path) as (temporary,):
        return _write(scored, str(temporary), path.suffix.lower(), total, progress)


def _write(scored: Any, out: Any, kind: str, total: int, progress: Callable[[int, int, str], None] | None) -> int:
    writer, rows = None, 0
    try:
        for batch in scored:
            if writer is None:
                make = pq.ParquetWriter if kind == ".parquet" else pyarrow.csv.CSVWriter
                writer = make(out, batch.schema)
            writer.write_batch(batch) if kind == ".parquet" else writer.write(batch)
            rows += batch.num_rows
            if progress is not None:
                progress(rows, total, f"{rows:,} rows")
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise ValueError(_EMPTY)
    return rows
