"""Warehouses behind Ibis: tables are expressions of Ibis, which belong to one of its backends."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache, reduce
from operator import mul
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

_INSERTED = 65_536  # rows at a time


class Ibis:
    """A backend as an engine (see `Engine`)."""

    here, unsaid = False, ""

    def __init__(self, backend: Any) -> None:
        self.connection, self.name = backend, str(backend.name)

    def asking(self) -> AbstractContextManager[None]:
        """See `Engine`."""
        return nullcontext()

    def fetch(self, table: Any) -> pa.Table:
        """See `Engine`."""
        return self.connection.to_pyarrow(table)

    def batches(self, table: Any, rows: int) -> Iterator[pa.RecordBatch]:
        """See `Engine`."""
        yield from self.connection.to_pyarrow_batches(table, chunk_size=rows)

    def keep(self, table: Any) -> tuple[Any, object]:
        """See `Engine`."""
        kept = table.cache()
        return kept, kept

    def grouping(self, figures: int, groups: int | None = None) -> AbstractContextManager[None]:
        """See `Engine`."""
        return nullcontext()

    def take(self, table: pa.Table) -> Any:
        """See `Engine`."""
        import ibis

        return ibis.memtable(table)

    def extend(self, table: Any, function: str, columns: Mapping[str, str]) -> Any:
        """See `Engine`."""
        made = {name: self._made(function, table[column]) for name, column in columns.items()}
        return table.mutate(**made)

    def _made(self, function: str, column: Any) -> Any:
        if function == "md5":
            return md5(column, self.name)
        return column.cast("timestamp").epoch_seconds().cast("float64")

    def aggregate(self, table: Any, figures: Mapping[str, tuple[str, ...]], by: str | None) -> Any:
        """See `Engine`."""
        said = {"about": "approx_nunique"}
        made = {
            name: getattr(reduce(mul, (table[column] for column in columns)), said.get(function, function))()
            for name, (function, *columns) in figures.items()
        }
        return table.agg(**made) if by is None else table.group_by(by).agg(**made)

    def number(self, table: Any, name: str) -> Any:
        """See `Engine`."""
        import ibis

        return table.mutate(**{name: ibis.row_number()})

    def has_table(self, name: str) -> bool:
        """See `Engine`."""
        place, last = _split(name)
        return last in self.connection.list_tables(database=place)

    def adopt(self, file: Path, name: str, *, replace: bool) -> None:
        """See `Engine`; rows go in piece by piece."""
        import ibis

        (place, last), rows = _split(name), pq.ParquetFile(file)
        schema = ibis.Schema.from_pyarrow(rows.schema_arrow)
        self.connection.create_table(last, schema=schema, database=place, overwrite=replace)
        try:
            for batch in rows.iter_batches(_INSERTED):
                self.connection.insert(last, pa.Table.from_batches([batch]), database=place)
        except BaseException:
            self.connection.drop_table(last, database=place, force=True)
            raise


def _split(name: str) -> tuple[str | None, str]:
    """Where a table is, and its own name."""
    place, _, last = name.rpartition(".")
    return place or None, last


@cache
def _builtin(name: str, takes: type, returns: type) -> Callable[[Any], Any]:
    """A function that engines have by themselves."""
    import ibis

    def function(value: Any) -> Any: ...

    function.__annotations__ = {"value": takes, "return": returns}
    return cast("Callable[[Any], Any]", ibis.udf.scalar.builtin(name=name)(function))


def md5(text: Any, engine: str) -> Any:
    """The digits of the MD5 sum of texts, in the engine of that name; Ibis knows those of few engines only."""
    if engine in ("bigquery", "trino"):
        takes, value = (str, text) if engine == "bigquery" else (bytes, _builtin("to_utf8", str, bytes)(text))
        return _builtin("to_hex", bytes, str)(_builtin("md5", takes, bytes)(value)).lower()
    if engine == "clickhouse":  # where case counts
        return _builtin("hex", bytes, str)(_builtin("MD5", str, bytes)(text)).lower()
    if engine in ("exasol", "mssql"):
        return text.hexdigest("md5")
    return _builtin("md5", str, str)(text)  # DuckDB, Spark, Databricks, Snowflake, PostgreSQL, MySQL
