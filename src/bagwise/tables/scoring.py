"""Scored tables: read, predicted and written piece by piece."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from bagwise.tables.engine import Connection, connect, connection_of, execute
from bagwise.tables.model import TableModel
from bagwise.tables.sources import Source, read
from bagwise.utils.files import replacing


def write_scores(
    model: TableModel,
    source: Source,
    out: str | os.PathLike[str] | BinaryIO,
    *,
    keep: Sequence[str] | None = None,
    connection: Connection | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> int:
    """Write the rows of a table with their predictions; memory does not grow with the table.

    Rows keep their order where the engine does (see `connect`).

    Parameters
    ----------
    model : TableModel
        As `fit` returns it.
    source : path, table or dict
        Anything that `read` takes.
    out : path or file
        A path that ends in .parquet or .csv, or an open stream, which gets CSV.
    keep : sequence of str, optional
        Columns to hand on; all by default.
    connection : ibis.BaseBackend, optional
        For files and tables in memory; by default a DuckDB of our own.
    progress : callable, optional
        Called with rows done, rows in all and a few words.

    Returns
    -------
    int
        How many rows were written.
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
        # Before its columns are looked at, which may be of any type.
        raise ValueError("the table is empty: there is no row to score.")
    scored = model.score(table, own, keep=keep)
    if not isinstance(out, (str, os.PathLike)):
        return _write(scored, out, ".csv", total, progress)
    path = Path(out)
    if path.suffix.lower() not in (".parquet", ".csv"):
        raise ValueError(f"{path} has an unknown ending: scores are written to .parquet or .csv.")
    with replacing(path) as (temporary,):
        return _write(scored, str(temporary), path.suffix.lower(), total, progress)


def _write(
    scored: Iterator[pa.RecordBatch],
    out: str | BinaryIO,
    kind: str,
    total: int,
    progress: Callable[[int, int, str], None] | None,
) -> int:
    make = pq.ParquetWriter if kind == ".parquet" else pyarrow.csv.CSVWriter
    batch, rows = next(scored), 0
    with make(out, batch.schema) as writer:
        for piece in chain([batch], scored):
            writer.write(piece)
            rows += piece.num_rows
            if progress is not None:
                progress(rows, total, f"{rows:,} rows")
    return rows
