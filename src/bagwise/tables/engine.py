"""Where tables live and expressions run: DuckDB inside this process, unless the user's tables are elsewhere.

This is the one module that imports Ibis and DuckDB: connections, results, views of files and of tables in memory, and
the words of expressions that engines differ in. What we leave in an engine (kept results, views) is removed when nobody
holds it any more.
"""

import os
import re
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial, reduce
from operator import mul
from pathlib import Path
from sys import float_info
from typing import Any, TypeAlias, TypeGuard, cast

import duckdb
import ibis
import pyarrow as pa

from bagwise.utils.files import TemporaryFolder
from bagwise.utils.parameters import NONE, NamesParameters, Parameter, ParameterError, check_parameters, whole

Connection: TypeAlias = ibis.BaseBackend  # an engine; DuckDB's own connection is its `con`
Table: TypeAlias = ibis.Table  # of an engine, or a query that makes one
Expression: TypeAlias = ibis.Value  # a column of a table, or what is computed from some
DataType: TypeAlias = ibis.DataType
_Remove: TypeAlias = Callable[[duckdb.DuckDBPyConnection, str], object]

_SNIFFED = 200_000  # lines by which DuckDB tells the types of the columns of a CSV file


# -- connections ------------------------------------------------------------------------------------------------------


def connect(
    *, memory: str | None = None, threads: int | None = None, folder: str | None = None, ordered: bool = False
) -> Connection:
    """Open a DuckDB of our own, in memory, which moves to disk what does not fit.

    Parameters
    ----------
    memory : str, optional
        Most memory to use, such as "2GB"; by default DuckDB decides (most of what the machine has).
    threads : int, optional
        All cores by default; fewer need less memory.
    folder : str, optional
        For what does not fit into memory; by default the system's temporary folder.
    ordered : bool
        Hand rows out in the order of their file. Without that large results pass without being held.

    Returns
    -------
    ibis.BaseBackend
        The connection, to be passed as ``connection=``; its temporary files go when it does.
    """
    check_parameters({"threads": threads}, {"threads": whole(1) | NONE})
    wrong_memory = ParameterError("memory", f"must be a size such as '2GB', got {memory!r}.")
    if str(memory).strip().startswith("-"):  # DuckDB would take it for no limit
        raise wrong_memory
    try:
        place = TemporaryFolder(folder)
    except OSError as error:
        why = f"{folder!r} cannot be written to ({error.strerror}): name another one."
        raise ParameterError("folder", why) from error
    settings = {"temp_directory": str(place.path / "spilled"), "memory_limit": memory, "threads": threads}
    try:
        connection = ibis.duckdb.connect(**{name: value for name, value in settings.items() if value is not None})
    except duckdb.Error as error:
        place.cleanup()
        raise wrong_memory from error
    connection.con.execute(f"SET preserve_insertion_order = {ordered}; SET enable_progress_bar = false")
    weakref.finalize(connection, place.cleanup)
    return connection


def is_duckdb(connection: Connection) -> bool:
    """Whether an engine is DuckDB."""
    return bool(connection.name == "duckdb")


def is_table(source: object) -> TypeGuard[Table]:
    """Whether something is a table of an engine."""
    return isinstance(source, ibis.Table)


def connection_of(*tables: Table) -> Connection | None:
    """The engine that holds the tables, or None where they are in this process's memory and any engine will do."""
    # By identity: Ibis takes two DuckDB in memory for equal.
    found = {id(backend): backend for table in tables for backend in table._find_backends()[0]}
    if len(found) > 1:
        names = f"different connections ({' and '.join(sorted(backend.name for backend in found.values()))})"
        raise ValueError(f"events and reports live in {names}: bring them into one of them first.")
    return next(iter(found.values()), None)


# -- results ----------------------------------------------------------------------------------------------------------


# What is to be removed when an engine, known by its id, has handed out the rows that it is handing out now. DuckDB ends
# a result when the next query comes, and says nothing.
_streams: dict[int, list[Callable[[], None]]] = {}


def fetch(expression: Table, connection: Connection) -> pa.Table:
    """The whole result, in memory."""
    with plainly(), _asking(connection):
        return connection.to_pyarrow(expression)


def execute(expression: Table, connection: Connection) -> dict[str, Any]:
    """The only line of a result, by column."""
    (line,) = fetch(expression, connection).to_pylist()
    return dict(line)


def sums_of_products(
    table: Table, products: Mapping[str, tuple[str, ...]], *, by: str, connection: Connection
) -> list[dict[str, Any]]:
    """Sums of products of columns, by name, for each value of the column `by`, in its order."""
    if not is_duckdb(connection):
        sums = {name: reduce(mul, (table[column] for column in columns)).sum() for name, columns in products.items()}
        return list(fetch(table.group_by(by).agg(**sums).order_by(by), connection).to_pylist())
    # Ibis takes seconds to write down the thousands of products that there are of a hundred columns.
    terms = [f'SUM({" * ".join(columns)}) AS "{name}"' for name, columns in products.items()]
    with plainly(), _asking(connection):
        connection._run_pre_execute_hooks(table)
        inner = connection.compile(table)
        lines = connection.con.execute(f"SELECT {by}, {', '.join(terms)} FROM ({inner}) GROUP BY {by} ORDER BY {by}")
        return [dict(zip((by, *products), line, strict=True)) for line in lines.fetchall()]


def count(table: Table, connection: Connection) -> int:
    """How many lines a table has."""
    return int(execute(table.agg(n=table.count()), connection)["n"])


def keep(expression: Table, connection: Connection) -> Table:
    """The result as a table of the engine's own, which vanishes when nobody holds it any more."""
    if not is_duckdb(connection):
        return expression.cache()

    def make(table_name: str) -> Table:
        # Ibis would keep tables that came from this process's memory in a DuckDB of its own.
        with plainly(), _asking(connection):
            return connection.create_table(table_name, expression, temp=True)

    return _held(connection, make, lambda duck, name: duck.execute(f'DROP TABLE IF EXISTS temp."{name}"'))


def write_parquet(expression: Table, path: Path, connection: Connection) -> None:
    """The result as a file."""
    with _asking(connection):
        connection.to_parquet(expression, str(path))


def batches(expression: Table, connection: Connection, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
    """The result piece by piece, never whole in memory; to be read to its end before the engine is asked again."""
    if not is_duckdb(connection):
        yield from connection.to_pyarrow_batches(expression, chunk_size=rows)
        return
    with plainly(), _asking(connection):
        late = _streams[id(connection)] = []
        try:
            connection._run_pre_execute_hooks(expression)
            query = connection.con.execute(connection.compile(expression))
            # Ibis calls this by a name that DuckDB gives up.
            known = hasattr(query, "to_arrow_reader")
            for batch in query.to_arrow_reader(rows) if known else query.fetch_record_batch(rows):
                yield batch
                if _streams.get(id(connection)) is not late:
                    raise RuntimeError("rows are missing: the engine was asked again before they were read to the end.")
        finally:
            if _streams.get(id(connection)) is late:
                _end_stream(connection)


def _end_stream(connection: Connection) -> None:
    for remove in _streams.pop(id(connection), ()):
        remove()


class OutOfMemoryError(NamesParameters, MemoryError):
    """DuckDB needs more memory than it may have."""


@contextmanager
def plainly(what: str = "the tables") -> Iterator[None]:
    """Errors of DuckDB as one sentence, which says that `what` cannot be read."""
    try:
        yield
    except (duckdb.Error, OSError) as error:
        if "Out of Memory" in str(error):  # as an OSError where it comes through Arrow
            used = re.search(r"\(([^()]*) used\)", str(error))
            said = f"DuckDB has used up its memory{f' ({used[1]})' if used else ''}: give it more, such as "
            raise OutOfMemoryError(said, Parameter("memory"), "='4GB'.") from error
        if isinstance(error, OSError):
            raise
        said = str(error).strip().split("\n\n")[0].split("\nLINE ")[0].split("\nPossible ")[0]
        lines = [line.strip().rstrip(".!") for line in said.splitlines() if line.strip()]
        raise ValueError(f"{what} cannot be read: {'; '.join(lines[:3] or [type(error).__name__])}.") from error


@contextmanager
def _asking(connection: Connection) -> Iterator[None]:
    """A query, which ends what streams; on Ctrl-C and its like it ends in DuckDB, too, or the next one would wait."""
    _end_stream(connection)
    try:
        yield
    except (KeyboardInterrupt, RuntimeError) as error:  # DuckDB hears of Ctrl-C itself and makes another error of it
        stop = error if isinstance(error, KeyboardInterrupt) else error.__cause__
        if not isinstance(stop, KeyboardInterrupt):
            raise
        if is_duckdb(connection):
            connection.con.interrupt()
        raise stop from None


# -- views ------------------------------------------------------------------------------------------------------------


def view_of_memory(table: pa.Table, connection: Connection) -> Table:
    """A table in this process's memory as one of the engine; it is not copied."""
    if not is_duckdb(connection):
        return ibis.memtable(table)

    def make(table_name: str) -> Table:
        connection.con.register(table_name, table)
        return connection.table(table_name)

    return _held(connection, make, lambda duck, name: duck.unregister(name))


def view_of_files(files: Sequence[Path], connection: Connection, *, parquet: bool) -> Table:
    """Parquet or CSV files as one table of DuckDB, whose columns are matched by name."""
    paths = [re.sub(r"([*?[])", r"[\1]", str(file)) for file in files]  # DuckDB takes names for patterns, too
    opened = connection.read_parquet if parquet else partial(connection.read_csv, header=True, sample_size=_SNIFFED)
    make = partial(opened, paths, union_by_name=True)
    return _held(connection, make, lambda duck, name: duck.execute(f'DROP VIEW IF EXISTS temp."{name}"'))


def tables_of_file(path: str, connection: Connection) -> dict[str, Callable[[], Table]]:
    """What opens each table of a DuckDB file, by name; it is open for reading as long as the connection lives."""
    place, duck = os.path.realpath(path), connection.con
    attached = duck.execute("SELECT path, database_name FROM duckdb_databases() WHERE path IS NOT NULL").fetchall()
    catalog = next((name for file, name in attached if os.path.realpath(file) == place), None)
    if catalog is None:
        catalog = _new_name()
        duck.execute(f"ATTACH '{place.replace(chr(39), chr(39) * 2)}' AS {catalog} (READ_ONLY, TYPE duckdb)")
    query = "SELECT table_name FROM information_schema.tables WHERE table_catalog = ? AND table_schema = 'main'"
    names = sorted(name for (name,) in duck.execute(query, [catalog]).fetchall())
    return {name: partial(connection.table, name, database=(catalog, "main")) for name in names}


def _new_name() -> str:
    """A name for something of ours in an engine."""
    return f"bagwise_{uuid.uuid4().hex}"


def _held(connection: Connection, make: Callable[..., Table], remove: _Remove) -> Table:
    """What `make` makes in DuckDB under a new `table_name`; removed if that fails, or once no expression holds it."""
    name = _new_name()
    forget = partial(_remove, weakref.ref(connection), name, remove)
    try:
        table = make(table_name=name)
    except BaseException:
        forget()  # a table is there before its rows come
        raise
    weakref.finalize(table.op(), forget).atexit = False
    return table


def _remove(connection: weakref.ref[Connection], name: str, remove: _Remove) -> None:
    alive = connection()
    if alive is not None and id(alive) in _streams:
        _streams[id(alive)].append(partial(_remove, connection, name, remove))
    elif alive is not None:
        # A connection that the user closed has forgotten everything by itself.
        with suppress(duckdb.ConnectionException):
            remove(alive.con, name)


# -- expressions ------------------------------------------------------------------------------------------------------


def kind_of(type_: DataType) -> str:
    """What a column holds, in words; keys of different kinds never match."""
    if type_.is_numeric():
        return "numbers"
    if type_.is_string():
        return "text"
    if type_.is_timestamp() and type_.timezone is not None:
        return "times of a time zone"
    if type_.is_timestamp() or type_.is_date():
        return "dates"
    return str(type_).lower()


literal, null = ibis.literal, ibis.null  # the same value in every row, and null of a type
any_of, all_of = ibis.or_, ibis.and_  # whether one, or all, of several conditions hold


def row_number(*order_by: Expression | str, group_by: Sequence[str] = ()) -> Expression:
    """Rows counted from 0, in the engine's own order if none is given."""
    number = ibis.row_number()
    return number.over(group_by=list(group_by) or None, order_by=list(order_by)) if order_by else number


def without_nan(column: Expression) -> Expression:
    """The column with null for NaN."""
    return column.nullif(float("nan")) if column.type().is_floating() else column


def as_number(column: Expression) -> Expression:
    """The column in double precision; NaN, which some files have for what is missing, as null."""
    return without_nan(column.cast("float64"))


def as_whole(number: Expression) -> Expression:
    """The whole number next to a number, as far as double precision tells whole numbers apart."""
    return number.clip(-(2**53), 2**53).cast("int64")


def as_seconds(time: Expression) -> Expression:
    """Seconds since 1970 of a time or date; DuckDB has fractions of them, though Ibis expects whole numbers."""
    return time.cast("timestamp").epoch_seconds().cast("float64")


def is_finite(number: Expression) -> Expression:
    """Whether a number is not infinite; null for null."""
    return number.abs() <= float_info.max


@cache
def _builtin(name: str, takes: type, returns: type) -> Callable[[Expression], Expression]:
    """A function that engines have by themselves."""

    def function(value: Any) -> Any: ...

    function.__annotations__ = {"value": takes, "return": returns}
    return cast("Callable[[Any], Any]", ibis.udf.scalar.builtin(name=name)(function))


def md5(text: Expression, engine: str | None = None) -> Expression:
    """The 32 digits of the MD5 sum of texts in UTF-8, in the engine of that name, by default the one that holds it."""
    if engine is None:
        backends, _ = text._find_backends()
        engine = backends[0].name if backends else "duckdb"
    # Ibis knows those of few engines only.
    if engine in ("bigquery", "trino"):
        takes, value = (str, text) if engine == "bigquery" else (bytes, _builtin("to_utf8", str, bytes)(text))
        return _builtin("to_hex", bytes, str)(_builtin("md5", takes, bytes)(value)).lower()
    if engine == "clickhouse":  # where case counts
        return _builtin("hex", bytes, str)(_builtin("MD5", str, bytes)(text)).lower()
    if engine in ("exasol", "mssql"):
        return text.hexdigest("md5")
    return _builtin("md5", str, str)(text)  # DuckDB, Spark, Databricks, Snowflake, PostgreSQL, MySQL
