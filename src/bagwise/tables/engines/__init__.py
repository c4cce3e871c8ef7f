"""Engines that hold tables: a module for each, with the same few functions, for what their expressions cannot say.

Expressions are those of narwhals, which says them to each engine in its own words; here is what is left: to run a
query, to keep its result, and a few functions that narwhals does not know. `engine_of` is the one place that chooses.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from bagwise.utils.parameters import ParameterError

Connection: TypeAlias = Any  # duckdb.DuckDBPyConnection, pyspark.sql.SparkSession or ibis.BaseBackend


class Engine(Protocol):
    """What an engine does with tables of its own kind."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def here(self) -> bool:
        """Whether it is a part of this process, to which rows stream at no cost."""

    @property
    def unsaid(self) -> str:
        """Characters by which it, or narwhals on its behalf, takes the name of a column apart."""

    @property
    def connection(self) -> Connection:
        """What the user knows it by."""

    def asking(self) -> AbstractContextManager[None]:
        """A query, for as long as this lasts."""

    def fetch(self, table: Any) -> pa.Table:
        """The whole result, in memory."""

    def batches(self, table: Any, rows: int) -> Iterator[pa.RecordBatch]:
        """The result piece by piece, in its order; to be read to the end before the engine is asked again."""

    def keep(self, table: Any) -> tuple[Any, object]:
        """The result as a table of the engine's own, and what it vanishes with."""

    def grouping(self, figures: int, groups: int | None = None) -> AbstractContextManager[None]:
        """A query that adds up so many figures in each of many groups, for as long as this lasts.

        groups: how many there are, where it is known.
        """

    def take(self, table: pa.Table) -> Any:
        """A table in this process's memory as one of the engine."""

    def extend(self, table: Any, function: str, columns: Mapping[str, str]) -> Any:
        """The table and, by name, columns that a function makes of others, whose names are ours, too.

        function: "md5", the 32 digits of the MD5 sum of a text in UTF-8; or "seconds" since 1970 of a time or date.
        """

    def aggregate(self, table: Any, figures: Mapping[str, tuple[str, ...]], by: str | None) -> Any:
        """Figures by name, of all lines or of those with the same value of `by`: a function and columns of ours.

        Functions: "min", "max", "count", "about", roughly how many values there are, and "sum", of the product of the
        columns.
        """

    def number(self, table: Any, name: str) -> Any:
        """The table and a column that counts its rows up from 0 in the order in which the engine has them."""

    def has_table(self, name: str) -> bool:
        """Whether there is a table, or a view, of that name, which may have those of a schema before it, and a dot."""

    def adopt(self, file: Path, name: str, *, replace: bool) -> None:
        """The rows of a Parquet file of this machine as a table of that name, which stays; whole or not at all."""


def engine_of(connection: Connection) -> Engine:
    """The engine of a connection."""
    import duckdb

    if isinstance(connection, duckdb.DuckDBPyConnection):
        from bagwise.tables.engines.duckdb import DuckDB

        return DuckDB(connection)
    package = type(connection).__module__.split(".")[0]
    if package == "pyspark":
        from bagwise.tables.engines.spark import Spark

        return Spark(connection)
    if package == "ibis":
        from bagwise.tables.engines.ibis import Ibis

        return Ibis(connection)
    said = "must be a connection of DuckDB, a SparkSession or a backend of Ibis, got "
    raise ParameterError("connection", f"{said}{type(connection).__name__}.")
