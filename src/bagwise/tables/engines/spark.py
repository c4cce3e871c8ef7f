"""Spark: tables are DataFrames of a session, here or elsewhere.

Results come whole into this process's memory, but for scores that Spark keeps: those are made where its rows are.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from bagwise.tables.engines.duckdb import in_sql

_FUNCTIONS = {"about": "approx_count_distinct({})"}
_SECONDS = "timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', CAST({} AS TIMESTAMP_NTZ)) / 1e6D"


class Spark:
    """A session as an engine (see `Engine`)."""

    name, here, unsaid = "spark", False, ".`"

    def __init__(self, session: Any) -> None:
        self.connection = session

    def asking(self) -> AbstractContextManager[None]:
        """See `Engine`."""
        return nullcontext()

    def fetch(self, table: Any) -> pa.Table:
        """See `Engine`."""
        return table.toArrow()

    def batches(self, table: Any, rows: int) -> Iterator[pa.RecordBatch]:
        """See `Engine`."""
        yield from table.toArrow().to_batches(max_chunksize=rows)

    def keep(self, table: Any) -> tuple[Any, object]:
        """See `Engine`."""
        kept, held = table.persist(), _Held()
        weakref.finalize(held, _release, kept).atexit = False
        return kept, held

    def grouping(self, figures: int, groups: int | None = None) -> AbstractContextManager[None]:
        """See `Engine`."""
        return nullcontext()

    def take(self, table: pa.Table) -> Any:
        """See `Engine`."""
        for number, column in enumerate(table.schema):
            if pa.types.is_dictionary(column.type):
                table = table.set_column(number, column.name, table.column(number).cast(column.type.value_type))
        return self.connection.createDataFrame(table)

    def extend(self, table: Any, function: str, columns: Mapping[str, str]) -> Any:
        """See `Engine`."""
        types = dict(table.dtypes)
        made = []
        for name, column in columns.items():
            # A time without a zone is one of the day that it says, whatever the zone of the session.
            seconds = "CAST({} AS DOUBLE)" if types[column] == "timestamp" else _SECONDS
            made.append(f"{(seconds if function == 'seconds' else 'md5({})').format(column)} AS {name}")
        return table.selectExpr("*", *made)

    def aggregate(self, table: Any, figures: Mapping[str, tuple[str, ...]], by: str | None) -> Any:
        """See `Engine`."""
        from pyspark.sql import functions

        return table.groupBy(*([by] if by else [])).agg(*map(functions.expr, in_sql(figures, _FUNCTIONS)))

    def number(self, table: Any, name: str) -> Any:
        """See `Engine`; the numbers have gaps."""
        return table.selectExpr("*", f"monotonically_increasing_id() AS {name}")

    def has_table(self, name: str) -> bool:
        """See `Engine`."""
        return bool(self.connection.catalog.tableExists(name))

    def adopt(self, file: Path, name: str, *, replace: bool) -> None:
        """See `Engine`: files of this machine are none of Spark's."""
        raise NotImplementedError("rows of a table of Spark are made there.")

    def write_made(
        self, table: Any, function: Piece, kept: Sequence[str], made: Sequence[str], to: str, *, replace: bool
    ) -> None:
        """Columns of a table, and columns of double precision that a function makes of its rows where these are.

        function: of a batch, which returns both.  to: the name of a table, or the address of Parquet.
        """
        from pyspark.errors import PySparkException
        from pyspark.sql.types import DoubleType, StructField, StructType

        fields = [*(table.schema[name] for name in kept), *(StructField(name, DoubleType()) for name in made)]
        writer = table.mapInArrow(partial(_each, function), StructType(fields)).write
        writer = writer.mode("overwrite" if replace else "errorifexists")
        try:
            writer.parquet(to) if "://" in to else writer.saveAsTable(to)
        except PySparkException as error:
            raise ValueError(_said(error, to)) from error


Piece: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


def _each(function: Piece, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (function(batch) for batch in batches if batch.num_rows)


def _said(error: Exception, to: str) -> str:
    """The sentence of an error of ours on another machine, or the first line of one of Spark's."""
    if ours := re.findall(r"^ValueError: (.*)$", str(error), re.MULTILINE):
        return str(ours[-1])
    if "ModuleNotFoundError: No module named 'bagwise'" in str(error):
        way = "install it there, or let PYSPARK_PYTHON name a Python that has it"
        return f"{to} cannot be written by Spark: the Python of its workers has no bagwise: {way}."
    first = str(error).strip().splitlines()[0].rstrip(".")
    return f"{to} cannot be written by Spark: {first}."


class _Held:
    """Something that can be held, and vanish."""


def _release(table: Any) -> None:
    with suppress(Exception):  # of a session that was stopped, nothing is left
        table.unpersist()
