"""Where tables live and expressions run: DuckDB inside this process, unless the user's tables are elsewhere.

Everything is said in Ibis, so any of its engines will do. What we leave in an engine (kept results, views of files and
of tables in memory) is removed when nobody holds it any more.
"""

from __future__ import annotations

import re
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pyarrow as pa

from bagwise.utils.files import TemporaryFolder
from bagwise.utils.parameters import NamesParameters, Parameter, ParameterError


class _Stream:
    """Rows that an engine is handing out.  late: what is to be removed afterwards.  ended: another query came first.

    DuckDB ends a result when the next query comes, and says nothing.
    """

    def __init__(self) -> None:
        self.late: list[Callable[[], None]] = []
        self.ended = False


_streams: dict[int, _Stream] = {}  # by engine


def connect(
    *, memory: str | None = None, threads: int | None = None, folder: str | None = None, ordered: bool = False
) -> Any:
    """A DuckDB of our own, in memory, which moves to disk what does not fit.

    memory: most memory to use, such as "2GB"; None leaves it to DuckDB (most of what the machine has).
    threads: None for all cores; fewer need less memory.
    folder: for what does not fit into memory; None for the system's temporary folder.
    ordered: hand rows out in the order of their file. Without that large results pass without being held.
    """
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ParameterError("threads", f"must be a whole number of at least 1, got {threads!r}.")
    if memory is not None and str(memory).strip().startswith("-"):  # DuckDB would take it for no limit
        raise ParameterError("memory", f"must be a size such as '2GB', got {memory!r}.")
    try:
        place = TemporaryFolder(folder)
    except OSError as error:
        raise ParameterError(
            "folder", f"{folder!r} cannot be written to ({error.strerror}): name another one."
        ) from error
    settings: dict[str, Any] = {"temp_directory": str(place.path / "spilled")}
    if memory is not None:
        settings["memory_limit"] = memory
    if threads is not None:
        settings["threads"] = threads
    try:
        connection = ibis.duckdb.connect(**settings)
    except duckdb.Error as error:
        place.cleanup()
        raise ParameterError("memory", f"must be a size such as '2GB', got {memory!r}.") from error
    connection.con.execute(f"SET preserve_insertion_order = {ordered}; SET enable_progress_bar = false")
    weakref.finalize(connection, place.cleanup)
    return connection


def is_duckdb(connection: Any) -> bool:
    """Whether an Ibis backend is DuckDB."""
    return connection.name == "duckdb"


def connection_of(*tables: Any) -> Any:
    """The engine that holds the tables, or None where they are in this process's memory and any engine will do."""
    found: dict[int, Any] = {}  # by identity: Ibis takes two DuckDB in memory for equal
    for table in tables:
        backends, _ = table._find_backends()
        found |= {id(backend): backend for backend in backends}
    if len(found) > 1:
        names = " and ".join(sorted(backend.name for backend in found.values()))
        raise ValueError(
            f"events and reports live in different connections ({names}): bring them into one of them first."
        )
    return next(iter(found.values()), None)


def fetch(expression: Any, connection: Any) -> pa.Table:
    """The whole result, in memory."""
    _end_stream(connection)
    with _plainly(), _stopping(connection):
        return connection.to_pyarrow(expression)


def execute(expression: Any, connection: Any) -> dict[str, Any]:
    """The only line of a result, by column."""
    lines = fetch(expression, connection).to_pylist()
    assert len(lines) == 1
    return lines[0]


def keep(expression: Any, connection: Any) -> Any:
    """The result as a table of the engine's own, which vanishes when nobody holds it any more."""
    if not is_duckdb(connection):
        return expression.cache()
    # Ibis would keep tables that came from this process's memory in a DuckDB of its own.
    _end_stream(connection)
    name = new_name()

    def drop(duck: Any) -> None:
        duck.execute(f'DROP TABLE IF EXISTS temp."{name}"')

    try:
        with _plainly(), _stopping(connection):
            table = connection.create_table(name, expression, temp=True)
    except BaseException:
        _remove(weakref.ref(connection), drop)  # it is made before its rows come
        raise
    return released(table, connection, drop)


def write_parquet(expression: Any, path: Path, connection: Any) -> None:
    """The result as a file."""
    _end_stream(connection)
    with _stopping(connection):
        connection.to_parquet(expression, str(path))


def batches(expression: Any, connection: Any, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
    """The result piece by piece, never whole in memory; to be read to its end before the engine is asked again."""
    if not is_duckdb(connection):
        yield from connection.to_pyarrow_batches(expression, chunk_size=rows)
        return
    _end_stream(connection)
    stream = _streams[id(connection)] = _Stream()
    try:
        with _plainly(), _stopping(connection):
            connection._run_pre_execute_hooks(expression)
            query = connection.con.execute(connection.compile(expression))
            # Ibis calls this by a name that DuckDB gives up.
            known = hasattr(query, "to_arrow_reader")
            for batch in query.to_arrow_reader(rows) if known else query.fetch_record_batch(rows):
                yield batch
                if stream.ended:
                    raise RuntimeError("rows are missing: the engine was asked again before they were read to the end.")
    finally:
        if not stream.ended:
            _end_stream(connection)


def new_name() -> str:
    """A name for something of ours in an engine."""
    return f"bagwise_{uuid.uuid4().hex}"


def released(table: Any, connection: Any, remove: Callable[[Any], object]) -> Any:
    """The table; once no expression holds it, `remove` is called with DuckDB's connection."""
    finalizer = weakref.finalize(table.op(), _remove, weakref.ref(connection), remove)
    finalizer.atexit = False
    return table


def _remove(connection: weakref.ref[Any], remove: Callable[[Any], object]) -> None:
    alive = connection()
    if alive is None:
        return
    if id(alive) in _streams:
        _streams[id(alive)].late.append(lambda: _remove(connection, remove))
        return
    # A connection that the user closed has forgotten everything by itself.
    with suppress(duckdb.ConnectionException):
        remove(alive.con)


def one_line(error: Exception) -> str:
    """What an engine's error says, as one sentence."""
    said = str(error).strip().split("\n\n")[0].split("\nLINE ")[0].split("\nPossible ")[0]
    lines = [line.strip().rstrip(".!") for line in said.splitlines() if line.strip()]
    return "; ".join(lines[:3] or [type(error).__name__]) + "."


def _end_stream(connection: Any) -> None:
    stream = _streams.pop(id(connection), None)
    if stream is not None:
        stream.ended = True
        for remove in stream.late:
            remove()


@contextmanager
def _plainly() -> Iterator[None]:
    """Errors of DuckDB as one sentence."""
    try:
        yield
    except OSError as error:  # DuckDB's error on its way through Arrow
        if "Out of Memory" not in str(error):
            raise
        raise _out_of_memory(error) from error
    except duckdb.OutOfMemoryException as error:
        raise _out_of_memory(error) from error
    except duckdb.Error as error:
        raise ValueError(f"the tables cannot be read: {one_line(error)}") from error


@contextmanager
def _stopping(connection: Any) -> Iterator[None]:
    """On Ctrl-C and its like end the query in DuckDB, too: it would go on, and whoever asks next would wait for it."""
    try:
        yield
    except (KeyboardInterrupt, RuntimeError) as error:  # DuckDB hears of Ctrl-C itself and makes another error of it
        stop = error if isinstance(error, KeyboardInterrupt) else error.__cause__
        if not isinstance(stop, KeyboardInterrupt):
            raise
        if is_duckdb(connection):
            connection.con.interrupt()
        raise stop from None


class OutOfMemoryError(NamesParameters, MemoryError):
    """DuckDB needs more memory than it may have."""


def _out_of_memory(error: Exception) -> OutOfMemoryError:
    used = re.search(r"\(([^()]*) used\)", str(error))
    limit = f" ({used[1]})" if used else ""
    said = f"DuckDB has used up its memory{limit}: give it more, such as "
    return OutOfMemoryError(said, Parameter("memory"), "='4GB'.")


def kind_of(type_: Any) -> str:
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
