"""Tables from wherever they are: files, folders, DuckDB files, data frames, engines.

Names of columns that would be mistaken for each other, and first lines of files that are no names, are refused.
"""

import csv
import gzip
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import duckdb
import narwhals.stable.v2 as nw
import pyarrow as pa
import pyarrow.parquet as pq
from narwhals.stable.v2 import dependencies as kinds

from bagwise.tables.engines import Connection, Engine, engine_of
from bagwise.tables.engines.arrow import Arrow
from bagwise.tables.engines.duckdb import (
    DATABASES,
    RELEASE,
    DuckDB,
    as_pattern,
    connect,
    plainly,
    read_files,
    tables_of_file,
)
from bagwise.tables.table import Table
from bagwise.utils.files import TemporaryFolder


class ArrowTable(Protocol):
    """A table of pandas, polars, Arrow or an engine."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | ArrowTable | Table  # what `read` takes

_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".csv.gz": "csv", ".tsv.gz": "csv"}
_DELIMITERS = ",;\t|"


def read(source: Source, connection: Connection, *, what: str = "the table") -> Table:
    """Open a table; nothing is read yet but names and types of the columns.

    Parameters
    ----------
    source : path, table or dict
        The path of a Parquet or CSV file, of a folder or a pattern (`*`) of such, whose columns are matched by name and
        are null where a file lacks them (in a folder, names that begin with `.` or `_` are none of the data); its
        address (``s3://``, ``https://``, …), which DuckDB reads by an extension; ``file.duckdb::table``, opened for
        reading as long as the connection lives; a pandas, polars or Arrow table, or a dict of columns; a DataFrame of
        Spark or a table of Ibis, which stay where they are, as does a relation of DuckDB if this is its connection.
    connection : duckdb.DuckDBPyConnection, pyspark.sql.SparkSession or ibis.BaseBackend
        Where files and tables in memory are read (see `connect`).
    what : str
        The source's name in messages.

    Returns
    -------
    Table
        The table in its engine.

    Examples
    --------
    >>> from bagwise.tables import connect
    >>> read({"bag": [1, 2], "count": [3, 4]}, connect()).columns
    ('bag', 'count')
    """
    engine = engine_of(connection)
    if isinstance(source, Table):
        table = source
    elif isinstance(source, (str, os.PathLike)):
        table = _read_path(os.fspath(source), engine, what)
    elif (holder := _holder(source, engine)) is not None:
        table = Table.of(nw.to_native(source, pass_through=True), holder)
    elif isinstance(engine, DuckDB) and kinds.is_polars_lazyframe(nw.to_native(source, pass_through=True)):
        table = _read_lazy(source, engine, what)
    else:
        arrow = _arrow(source, what)
        _check_names(arrow.column_names, what)
        with plainly(what):
            table = replace(Table.of(engine.take(arrow), engine), releases=_releases([arrow.schema.metadata]))
    _check_names(table.columns, what)
    if taken := [name for name in table.columns if set(table.engine.unsaid) & set(name)]:
        raise ValueError(f"{what}: column {taken[0]!r} has a name that {table.engine.name} takes apart: rename it.")
    return table


def in_memory(source: Source, *, what: str = "the table") -> Table | None:
    """A pandas, polars or Arrow table, or a dict of columns, as it is; None for what lives elsewhere."""
    native = nw.to_native(source, pass_through=True)
    if isinstance(native, (str, os.PathLike, Table)) or hasattr(native, "collect") or _holder(native, None) is not None:
        return None
    arrow = _arrow(native, what)
    _check_names(arrow.column_names, what)
    return Table(nw.from_native(arrow).lazy(), Arrow(), releases=_releases([arrow.schema.metadata]))


def home(*sources: Source | None, connection: Connection | None = None, ordered: bool = False) -> Connection:
    """Where tables are to be read: where those that live in an engine do; else a `connection`, or one of our own."""
    given = None if connection is None else engine_of(connection)
    holders = [_holder(source, given) for source in sources]
    # By identity: what a connection is equal to is its own affair.
    found = {id(holder.connection): holder for holder in holders if holder is not None}
    if len(found) > 1:
        names = f"different connections ({' and '.join(sorted(holder.name for holder in found.values()))})"
        raise ValueError(f"events and reports live in {names}: bring them into one of them first.")
    if found:
        return next(iter(found.values())).connection
    return connection if connection is not None else connect(ordered=ordered)


def lives_in_engine(*sources: Source | None) -> bool:
    """Whether one of them is a table of an engine, not one that is read."""
    return any(_holder(source, None) is not None for source in sources)


def _holder(source: object, engine: Engine | None) -> Engine | None:
    """The engine that a table lives in, None for what is read; engine: the one at hand."""
    if isinstance(source, Table):
        return source.engine
    native = nw.to_native(source, pass_through=True)
    if isinstance(native, duckdb.DuckDBPyRelation):
        # A relation does not tell its connection; that of `duckdb.sql` is the default one.
        at_hand = [engine] if isinstance(engine, DuckDB) else []
        return next((one for one in (*at_hand, DuckDB(duckdb.default_connection())) if one.holds(native)), None)
    if kinds.is_pyspark_dataframe(native) or kinds.is_pyspark_connect_dataframe(native):
        return engine_of(native.sparkSession)
    return engine_of(native.get_backend()) if kinds.is_ibis_table(native) else None


def _read_lazy(source: Any, engine: DuckDB, what: str) -> Table:
    """A query of polars, run once, its rows on disk as long as somebody holds the table."""
    folder = TemporaryFolder()
    file = folder.path / "collected.parquet"
    try:
        nw.to_native(source, pass_through=True).sink_parquet(file)
    except Exception as error:  # polars has errors of its own for everything that may be wrong with a query
        folder.cleanup()
        raise ValueError(f"{what} cannot be read: {str(error).strip().splitlines()[0].rstrip('.')}.") from error
    with plainly(what):
        return Table.of(read_files([as_pattern(file)], engine.connection, parquet=True), engine, folder)


def _arrow(source: Any, what: str) -> pa.Table:
    source = nw.to_native(source, pass_through=True)
    if hasattr(source, "collect"):
        if not kinds.is_polars_lazyframe(source):
            raise ValueError(f"{what} is a lazy table: collect it first, or pass the path of its files.")
        source = source.collect()
    try:
        if hasattr(source, "select_dtypes") and hasattr(source, "index"):  # pandas: its index is no column
            arrow = pa.Table.from_pandas(source, preserve_index=False)
        elif kinds.is_polars_dataframe(source):
            import polars

            arrow = source.to_arrow(compat_level=polars.CompatLevel.oldest())  # views of text came late to Arrow
        else:
            arrow = source if isinstance(source, pa.Table) else pa.table(source)
    except (AttributeError, TypeError, ValueError, pa.ArrowException) as error:
        got = f"{type(source).__name__} ({'; '.join(str(one) for one in error.args).rstrip('.')})"
        raise ValueError(f"{what} cannot be read: pass a path or a table, got {got}.") from error
    for number, field in enumerate(arrow.schema):
        if (known := _known(field.type)) is not field.type:
            arrow = arrow.set_column(number, field.name, arrow.column(number).cast(known))
    return arrow


def _known(type_: pa.DataType) -> pa.DataType:
    """The type, or one that engines know in its place."""
    if pa.types.is_null(type_):
        return pa.int32()
    if pa.types.is_float16(type_):
        return pa.float32()
    return pa.float64() if pa.types.is_decimal256(type_) else type_


def _read_path(path: str, engine: Engine, what: str) -> Table:
    if not isinstance(engine, DuckDB):
        raise ValueError(f"{what} is a file ({path}): {engine.name} cannot read it; pass a table of that engine.")
    address = "://" in path
    if not address and not Path(path).exists() and "::" in path:
        file, table = path.rsplit("::", 1)
        return _read_database(file, table, engine, what)
    if not address and Path(path).suffix.lower() in DATABASES:
        return _read_database(path, None, engine, what)
    files = [Path(path.partition("?")[0])] if address else _files(path, what)
    kinds = {_kind(file): file.name for file in files}
    if None in kinds or len(kinds) > 1:
        hold = f"a file of unknown kind ({kinds[None]})" if None in kinds else "files of different kinds"
        raise ValueError(f"{what} holds {hold}: pass Parquet files or CSV files (.parquet, .csv).")
    with plainly(f"{what} ({path})"):
        places = [path] if address else [as_pattern(file) for file in files]
        found = Table.of(read_files(places, engine.connection, parquet="parquet" in kinds), engine)
        columns = found.columns
    if not address:
        _check_same_columns(files, columns, what)
        if "parquet" in kinds:
            found = replace(found, releases=_releases(_metadata(file) for file in files))
    return found


def _releases(metadata: Iterable[Mapping[bytes, bytes] | None]) -> frozenset[str]:
    """Ids of releases that metadata of Parquet files, or of tables read from them, tell."""
    found = [(one or {}).get(RELEASE.encode()) for one in metadata]
    return frozenset(one.decode(errors="replace") for one in found if one is not None)


def _metadata(file: Path) -> Mapping[bytes, bytes] | None:
    with suppress(pa.ArrowException):  # DuckDB reads what Arrow does not
        return pq.read_metadata(file).metadata  # type: ignore[no-any-return]
    return None


def _read_database(path: str, name: str | None, engine: DuckDB, what: str) -> Table:
    """A table of a DuckDB file, the only one if it is not named."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{what}: there is no file {path}.")
    with plainly(f"{what}: the DuckDB file {path}"):
        tables = tables_of_file(path, engine.connection)
    listed = ", ".join(tables) or "none"
    if name is None and len(tables) != 1:
        raise ValueError(f"{what}: {path} holds {len(tables)} tables ({listed}): say which one with {path}::table.")
    if name is not None and name not in tables:
        raise ValueError(f"{what}: {path} has no table {name!r}: it has {listed}.")
    return Table.of(tables[name or listed](), engine)


def _files(path: str, what: str) -> Sequence[Path]:
    """The files that a path stands for, in order."""
    place, said = Path(path), "there is no file {}"
    if place.is_dir():
        inside = [(file, file.relative_to(place).parts) for file in place.rglob("*") if file.is_file()]
        # By its name, or the name of its own folder, a file may be none of the data, as Spark has it.
        found = [file for file, parts in inside if _kind(file) and not any(part[0] in "._" for part in parts)]
        said = "the folder {} holds no Parquet or CSV file"
    elif place.exists():
        found = [place]
    elif set("*?[") & set(path):
        root = Path(place.anchor)
        found = [file for file in root.glob(str(place.relative_to(root))) if file.is_file()]
        said = "no file matches {}"
    else:
        found = []
    if not found:
        raise FileNotFoundError(f"{what}: {said.format(path)}.")
    return sorted(found)


def _kind(file: Path) -> str | None:
    """What the ending of a file says it is; `.csv.gz` is CSV, another `.gz` is not known."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    return _FORMATS.get("".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:]))


def _check_names(names: Sequence[str], what: str) -> None:
    """Raise unless the names differ by more than case: to most engines, DuckDB among them, `x` and `X` are one column.

    >>> _check_names(["x", "y", "X"], "events")
    Traceback (most recent call last):
    ValueError: events: columns 'x' and 'X' are the same to the engine: rename one of them.
    """
    if not names:
        raise ValueError(f"{what}: the table has no columns.")
    if not all(names):
        raise ValueError(f"{what}: column {list(names).index('')} has no name: give it one.")
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.get(name.lower())) is not None:
            raise ValueError(f"{what}: columns {other!r} and {name!r} are the same to the engine: rename one of them.")
        seen[name.lower()] = name


def _check_same_columns(files: Sequence[Path], columns: Sequence[str], what: str) -> None:
    """Raise unless the first file with content names these columns.

    DuckDB renames columns that it would mistake for each other, and guesses where the lines of a CSV file differ.
    """
    file = next((file for file in files if file.stat().st_size), files[0])
    if file.name.lower().endswith((".parquet", ".pq")):
        with suppress(pa.ArrowException):  # DuckDB reads what Arrow does not
            _check_names(pq.read_schema(file).names, what)
        return
    options: dict[str, Any] = {"mode": "rt", "encoding": "utf-8-sig", "errors": "replace"}
    with gzip.open(file, **options) if file.suffix.lower() == ".gz" else open(file, **options) as lines:
        # A line that is empty or a comment names nothing.
        first = next((line.strip("\r\n") for line in lines if line.strip() and not line.startswith("#")), "")
    if not first:
        raise ValueError(f"{what}: the file {file} is empty: its first line must name the columns.")
    headers = [next(csv.reader([first], delimiter=delimiter)) for delimiter in _DELIMITERS]
    split = [[name.strip() for name in header] for header in headers if len(header) > 1]
    if len(columns) == 1 and not split:
        return
    known = {name.lower() for name in columns}
    fitting = [names for names in split if all(name.lower() in known for name in names if name)]
    if not fitting:
        raise ValueError(f"{what}: the lines of {file} do not all have as many fields as the first line has names.")
    _check_names([name for name in fitting[0] if name], what)
