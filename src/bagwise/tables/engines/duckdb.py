"""DuckDB: inside this process, unless the user's tables are in another one.

What we keep in it is removed when nobody holds it any more. A connection hands out the rows of one query at a time: the
next one ends it, so we know which one that is, and nothing of ours is removed meanwhile.
"""

import os
import re
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import log2
from pathlib import Path

import duckdb
import pyarrow as pa

from bagwise.utils.files import FULL, TemporaryFolder
from bagwise.utils.parameters import NONE, NamesParameters, Parameter, ParameterError, check_parameters, whole
from bagwise.utils.signals import interrupted_by, last_stop

Relation = duckdb.DuckDBPyRelation
Connection = duckdb.DuckDBPyConnection

DATABASES = (".duckdb", ".db", ".ddb")
"""Endings of DuckDB files."""

_SNIFFED = 200_000  # lines by which DuckDB tells the types of the columns of a CSV file
_SETTINGS = "SET TimeZone = 'UTC'; SET enable_progress_bar = false; SET parquet_metadata_cache = true"
_OURS = "bagwise_"  # how names of ours begin
_PLACES = "perfect_ht_threshold"  # the setting: how many binary digits the places of groups in an array may have
_SHARE, _PER_FIGURE = 0.25, 16  # of the memory, for such an array; and bytes of a sum in it, which each thread has
_EMPTY, _MANY = 4, 2**20  # places for each group at most; and in all, where nobody knows how many groups there are
RELEASE = "bagwise_release"  # in the metadata of a Parquet file: which release it is of
_FUNCTIONS = {"md5": "md5({})", "seconds": "epoch({})", "about": "approx_count_distinct({})"}


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
    duckdb.DuckDBPyConnection
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
        connection = duckdb.connect(config={name: value for name, value in settings.items() if value is not None})
    except duckdb.Error as error:
        place.cleanup()
        raise wrong_memory from error
    connection.execute(f"{_SETTINGS}; SET preserve_insertion_order = {ordered}")
    weakref.finalize(connection, place.cleanup)
    return connection


# -- the engine -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Stream:
    """Rows that a connection is handing out.  late: removes what nobody holds any more, once they are handed out."""

    reader: pa.RecordBatchReader | None = None
    late: list[Callable[[], None]] = field(default_factory=list)


_streams: dict[int, _Stream] = {}  # by the id of the connection


class DuckDB:
    """A connection as an engine (see `Engine`), whose tables are relations."""

    name, here = "duckdb", True
    unsaid = '."' if duckdb.__version__.startswith("1.") else ""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def holds(self, table: Relation) -> bool:
        """Whether a relation is one of this connection: relations of different ones do not combine."""
        try:
            self.connection.sql("SELECT 1 AS one").cross(table)
        except duckdb.InvalidInputException:
            return False
        return True

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A query, which ends what streams; on Ctrl-C it ends in DuckDB, too, or the next one would wait for it."""
        self._end_stream()
        try:
            with interrupted_by(self.connection.interrupt):  # where its threads are at work, it does not hear itself
                yield
        except (KeyboardInterrupt, RuntimeError, duckdb.InterruptException) as error:
            # DuckDB hears of Ctrl-C itself, or is told, and makes another error of it.
            stop = error if isinstance(error, KeyboardInterrupt) else error.__cause__
            if stop is None and str(error) == "Query interrupted":  # DuckDB 2 does not say by what
                stop = last_stop() or KeyboardInterrupt()
            if stop is None and isinstance(error, duckdb.InterruptException):
                stop = last_stop()
            if not isinstance(stop, KeyboardInterrupt):
                raise
            self.connection.interrupt()
            raise stop from None

    def fetch(self, table: Relation) -> pa.Table:
        """See `Engine`."""
        with plainly(), self.asking():
            return table.to_arrow_table()

    def batches(self, table: Relation, rows: int) -> Iterator[pa.RecordBatch]:
        """See `Engine`."""
        place = id(self.connection)
        with plainly(), self.asking():
            stream = _streams[place] = _Stream()
            try:
                stream.reader = table.to_arrow_reader(rows)
                for batch in stream.reader:
                    yield batch
                    if _streams.get(place) is not stream:
                        said = "rows are missing: the engine was asked again before they were read to the end."
                        raise RuntimeError(said)
            finally:
                if _streams.get(place) is stream:
                    self._end_stream()

    def _end_stream(self) -> None:
        stream = _streams.pop(id(self.connection), None)
        if stream is not None and stream.reader is not None:
            stream.reader.close()
        for remove in stream.late if stream is not None else ():
            remove()

    def keep(self, table: Relation) -> tuple[Relation, object]:
        """See `Engine`."""
        name, held = _new_name(), _Held()
        forget = partial(_drop, weakref.ref(self.connection), name)
        try:
            with plainly(), self.asking():
                bagwise_result = table  # noqa: F841 (DuckDB finds it by its name)
                self.connection.execute(f"CREATE TEMP TABLE {name} AS FROM bagwise_result")
                kept = self.connection.table(f"temp.{name}")
        except BaseException:
            forget()  # a table is there before its rows come
            raise
        weakref.finalize(held, forget).atexit = False
        return kept, held

    def fingerprint(self, table: Relation) -> str:
        """A checksum of all lines, whatever their order."""
        with plainly(), self.asking():
            bagwise_line = table  # noqa: F841 (DuckDB finds it by its name)
            query = "SELECT sum(md5_number_lower(CAST(bagwise_line AS VARCHAR))) FROM bagwise_line"
            return str(self.connection.execute(query).fetchall()[0][0])

    def write_parquet(self, table: Relation, path: Path, *, release: str) -> None:
        """The result as a file, whose metadata say which release it is of."""
        with plainly(), self.asking():
            bagwise_result = table  # noqa: F841 (DuckDB finds it by its name)
            place, id_ = _quoted(str(path), "'"), _quoted(release, "'")
            told = f"(FORMAT parquet, KV_METADATA {{{RELEASE}: {id_}}})"
            self.connection.execute(f"COPY (FROM bagwise_result) TO {place} {told}")

    @contextmanager
    def grouping(self, figures: int, groups: int | None = None) -> Iterator[None]:
        """Groups that are whole numbers get places in an array, if few stay empty: faster than to hash them.

        The array holds every number from the least to the greatest, and fits into a part of the memory.
        """
        asked = "SELECT " + ", ".join(f"current_setting('{name}')" for name in (_PLACES, "memory_limit", "threads"))
        with self.asking():
            before, memory, threads = self.connection.execute(asked).fetchall()[0]
            most = _SHARE * _bytes_of(memory) / (_PER_FIGURE * figures * int(threads))
            digits = int(log2(max(1, min(most, _MANY if groups is None else _EMPTY * groups))))
            with suppress(duckdb.Error):  # of a connection whose settings are locked
                self.connection.execute(f"SET {_PLACES} = {max(int(before), digits)}")
        try:
            yield
        finally:
            with suppress(duckdb.Error):
                self.connection.execute(f"SET {_PLACES} = {before}")

    def take(self, table: pa.Table) -> Relation:
        """See `Engine`; the table is not copied."""
        return self.connection.from_arrow(table)

    def extend(self, table: Relation, function: str, columns: Mapping[str, str]) -> Relation:
        """See `Engine`."""
        made = [f"{_FUNCTIONS[function].format(column)} AS {name}" for name, column in columns.items()]
        return table.project(", ".join(["*", *made]))

    def aggregate(self, table: Relation, figures: Mapping[str, tuple[str, ...]], by: str | None) -> Relation:
        """See `Engine`."""
        return table.aggregate(", ".join([*([by] if by else []), *in_sql(figures, _FUNCTIONS)]), by or "")

    def number(self, table: Relation, name: str) -> Relation:
        """See `Engine`."""
        return table.project(f"*, row_number() OVER () - 1 AS {name}")

    def has_table(self, name: str) -> bool:
        """See `Engine`."""
        *place, last = name.split(".")
        with plainly(), self.asking():
            here = self.connection.execute("SELECT current_database(), current_schema()").fetchall()[0]
            return _is_there(self.connection, last, place or here)

    def adopt(self, file: Path, name: str, *, replace: bool) -> None:
        """See `Engine`."""
        with plainly(f"table {name}", "written"), self.asking():
            _create(self.connection, ".".join(map(_quoted, name.split("."))), file, replace=replace)


def _bytes_of(size: str) -> float:
    """A size as DuckDB says it.

    >>> _bytes_of("1.5 GiB") / 2**30
    1.5
    """
    number, unit = size.split()
    return float(number) * 1024.0 ** ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"].index(unit)


def in_sql(figures: Mapping[str, tuple[str, ...]], functions: Mapping[str, str]) -> list[str]:
    """Figures (see `Engine.aggregate`) in SQL."""
    said = {function: functions.get(function, f"{function}({{}})") for function, *_ in figures.values()}
    return [f"{said[function].format(' * '.join(columns))} AS {name}" for name, (function, *columns) in figures.items()]


class _Held:
    """Something that can be held, and vanish."""


def _new_name() -> str:
    """A name for something of ours."""
    return f"{_OURS}{uuid.uuid4().hex}"


def _drop(connection: weakref.ref[Connection], name: str) -> None:
    """Drop a table of ours, now or when no rows are being handed out."""
    alive = connection()
    if alive is not None and id(alive) in _streams:
        _streams[id(alive)].late.append(partial(_drop, connection, name))
    elif alive is not None:
        with suppress(duckdb.Error):  # a connection that the user closed has forgotten everything by itself
            alive.execute(f"DROP TABLE IF EXISTS temp.{name}")


# -- files ------------------------------------------------------------------------------------------------------------


def read_files(paths: Sequence[str], connection: Connection, *, parquet: bool) -> Relation:
    """Parquet or CSV files as one table, whose columns are matched by name; names of folders may hold some, too."""
    files = ", ".join(_quoted(path, "'") for path in paths)
    reader, options = ("read_parquet", "") if parquet else ("read_csv", f", header = true, sample_size = {_SNIFFED}")
    return connection.sql(f"FROM {reader}([{files}], union_by_name = true{options})")


def as_pattern(file: Path) -> str:
    """A pattern that matches this file alone: DuckDB takes names for patterns."""
    return re.sub(r"([*?[])", r"[\1]", str(file))


def tables_of_file(path: str, connection: Connection) -> dict[str, Callable[[], Relation]]:
    """What opens each table of a DuckDB file, by name; it is open for reading as long as the connection lives."""
    place = os.path.realpath(path)
    attached = connection.execute("SELECT path, database_name FROM duckdb_databases() WHERE path IS NOT NULL")
    catalog = next((_quoted(name) for file, name in attached.fetchall() if os.path.realpath(file) == place), None)
    if catalog is None:
        catalog = _new_name()
        connection.execute(f"""ATTACH {_quoted(place, "'")} AS {catalog} (READ_ONLY, TYPE duckdb)""")
    query = "SELECT table_name FROM information_schema.tables WHERE table_catalog = ? AND table_schema = 'main'"
    names = sorted(name for (name,) in connection.execute(query, [catalog.strip('"')]).fetchall())
    return {name: partial(connection.sql, f"FROM {catalog}.main.{_quoted(name)}") for name in names}


@contextmanager
def _opened(path: str, connection: Connection) -> Iterator[str]:
    """The name by which a connection can write to a DuckDB file, which is made where there is none.

    A process opens a file once: where we have opened it for reading, it is closed meanwhile.
    """
    place, engine = os.path.realpath(path), DuckDB(connection)
    with plainly(f"the DuckDB file {path}", "written"), engine.asking():
        attached = connection.execute("SELECT path, database_name FROM duckdb_databases() WHERE path IS NOT NULL")
        found = next((name for file, name in attached.fetchall() if os.path.realpath(file) == place), None)
        if found is not None and not found.startswith(_OURS):
            yield _quoted(found)
            return
        name, address, new = found or _new_name(), _quoted(place, "'"), not os.path.exists(place)
        if found is not None:
            connection.execute(f"DETACH {name}")
        done = False
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            connection.execute(f"ATTACH {address} AS {name} (TYPE duckdb)")
            try:
                yield name
                done = True
            finally:
                connection.execute(f"DETACH {name}")
        finally:
            if found is not None:
                connection.execute(f"ATTACH {address} AS {name} (READ_ONLY, TYPE duckdb)")
            elif new and not done:
                Path(place).unlink(missing_ok=True)


def is_in_file(path: str, name: str, connection: Connection) -> bool:
    """Whether a DuckDB file can be written to and has a table of that name."""
    if not os.path.exists(path):
        return False
    with _opened(path, connection) as catalog:
        return _is_there(connection, name, [catalog.strip('"')])


def write_to_file(path: str, name: str, rows: Path, connection: Connection, *, replace: bool) -> None:
    """The rows of a Parquet file as a table of a DuckDB file."""
    with _opened(path, connection) as catalog:
        _create(connection, f"{catalog}.main.{_quoted(name)}", rows, replace=replace)


def _is_there(connection: Connection, name: str, place: Sequence[str]) -> bool:
    """Whether a table of a name is in a schema, or a database, or both."""
    query = "SELECT table_catalog, table_schema FROM information_schema.tables WHERE lower(table_name) = lower(?)"
    return any(set(place) <= set(found) for found in connection.execute(query, [name]).fetchall())


def _create(connection: Connection, name: str, rows: Path, *, replace: bool) -> None:
    how = "CREATE OR REPLACE TABLE" if replace else "CREATE TABLE"
    connection.execute(f"""{how} {name} AS FROM read_parquet({_quoted(as_pattern(rows), "'")})""")


def _quoted(name: str, mark: str = '"') -> str:
    return f"{mark}{name.replace(mark, 2 * mark)}{mark}"


# -- errors -----------------------------------------------------------------------------------------------------------


class OutOfMemoryError(NamesParameters, MemoryError):
    """DuckDB needs more memory than it may have."""


@contextmanager
def plainly(what: str = "the tables", done: str = "read") -> Iterator[None]:
    """Errors of DuckDB as one sentence, which says that `what` cannot be read, or whatever was to be done."""
    try:
        yield
    except (duckdb.Error, OSError) as error:
        text = str(error)
        if "max_temp_directory_size" in text:
            said = "what does not fit into DuckDB's memory finds no room in the temporary folder: name another one "
            way = "(TMPDIR in the environment), or give it more memory, such as "
            raise OutOfMemoryError(f"{said}{way}", Parameter("memory"), "='4GB'.") from error
        if isinstance(error, duckdb.IOException) and (code := next((n for n in FULL if os.strerror(n) in text), None)):
            file = re.search(r'file \\?"(.+?)\\?"', text)
            raise OSError(code, os.strerror(code), file[1] if file else tempfile.gettempdir()) from error
        if "Out of Memory" in text:  # as an OSError where it comes through Arrow
            used = re.search(r"\(([^()]*) used\)", text)
            said = f"DuckDB has used up its memory{f' ({used[1]})' if used else ''}: give it more, such as "
            raise OutOfMemoryError(said, Parameter("memory"), "='4GB'.") from error
        if isinstance(error, OSError):
            raise
        if missing := re.search(r"extension ['\"](\w+)['\"]?", text):
            way = f"run `INSTALL {missing[1]}` in DuckDB where there is a network, or download the file"
            said = f"DuckDB reads it by its extension {missing[1]}, which is not here and cannot be had now: {way}."
            raise ValueError(f"{what} cannot be {done}: {said}") from error
        said = text.strip().split("\n\n")[0].split("\nLINE ")[0].split("\nPossible ")[0]
        lines = [line.strip().rstrip(".!") for line in said.splitlines() if line.strip()]
        raise ValueError(f"{what} cannot be {done}: {'; '.join(lines[:3] or [type(error).__name__])}.") from error
