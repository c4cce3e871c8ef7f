"""Tables from wherever they are: files, folders, DuckDB files, data frames, engines."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pyarrow as pa

from bagwise.tables.engine import is_duckdb, new_name, one_line, released
from bagwise.tables.headers import check_names, check_same_columns

_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".csv.gz": "csv", ".tsv.gz": "csv"}
_DATABASES = (".duckdb", ".db", ".ddb")
_SNIFFED = 200_000  # lines by which DuckDB tells the types of the columns of a CSV file


def read(source: Any, connection: Any, *, what: str = "the table") -> Any:
    """An Ibis table of `source`; nothing is read yet but names and types of the columns.

    source: a path of a Parquet or CSV file, of a folder or a pattern (`*`) of such, whose columns are matched by name
        and are null where a file lacks them (in a folder, names that begin with `.` or `_` are none of the data);
        ``file.duckdb::table``, opened for reading as long as the connection lives; a pandas, polars or Arrow table, or
        a dict of columns; or an Ibis table, which stays where it is.
    connection: where files and tables in memory are read.  what: the source's name in messages.

    >>> from bagwise.tables.engine import connect
    >>> read({"bag": [1, 2], "count": [3, 4]}, connect()).columns
    ('bag', 'count')
    """
    if isinstance(source, ibis.Table):
        table = source
    elif isinstance(source, (str, os.PathLike)):
        table = _read_path(os.fspath(source), connection, what)
    else:
        table = _read_memory(source, connection, what)
    check_names(table.columns, what)
    return table


def _read_memory(source: Any, connection: Any, what: str) -> Any:
    arrow = _arrow(source, what)
    check_names(arrow.column_names, what)
    if not is_duckdb(connection):
        return ibis.memtable(arrow)
    name = new_name()
    try:
        connection.con.register(name, arrow)
        table = connection.table(name)
    except duckdb.Error as error:
        connection.con.unregister(name)
        raise ValueError(f"{what} cannot be read: {one_line(error)}") from error
    return released(table, connection, lambda duck: duck.unregister(name))


def _arrow(source: Any, what: str) -> pa.Table:
    if hasattr(source, "collect"):  # polars would be asked for everything each time
        raise ValueError(f"{what} is a lazy table: collect it first, or pass the path of its files.")
    try:
        if hasattr(source, "select_dtypes") and hasattr(source, "index"):  # pandas: its index is no column
            arrow = pa.Table.from_pandas(source, preserve_index=False)
        else:
            arrow = source if isinstance(source, pa.Table) else pa.table(source)
    except (AttributeError, TypeError, ValueError, pa.ArrowException) as error:
        said = "; ".join(str(one) for one in error.args)
        raise ValueError(
            f"{what} cannot be read: pass a path or a table, got {type(source).__name__} ({said.rstrip('.')})."
        ) from error
    for number, field in enumerate(arrow.schema):  # what DuckDB does not know
        if pa.types.is_float16(field.type):
            arrow = arrow.set_column(number, field.name, arrow.column(number).cast(pa.float32()))
        elif pa.types.is_decimal256(field.type):
            arrow = arrow.set_column(number, field.name, arrow.column(number).cast(pa.float64()))
    return arrow


def _read_path(path: str, connection: Any, what: str) -> Any:
    if not is_duckdb(connection):
        raise ValueError(f"{what} is a file ({path}): {connection.name} cannot read it; pass a table of that engine.")
    if "://" in path:
        raise ValueError(f"{what} is an address ({path}): only files on this machine are read; download it first.")
    if not Path(path).exists() and "::" in path:
        file, table = path.rsplit("::", 1)
        return _read_database(file, table, connection, what)
    if Path(path).suffix.lower() in _DATABASES:
        return _read_database(path, None, connection, what)
    files = _files(path, what)
    kinds = {_kind(file) for file in files}
    odd = next((file.name for file in files if _kind(file) is None), None)
    if odd is not None or len(kinds) > 1:
        hold = "files of different kinds" if odd is None else f"a file of unknown kind ({odd})"
        raise ValueError(f"{what} holds {hold}: pass Parquet files or CSV files (.parquet, .csv).")
    # DuckDB takes names for patterns, too.
    names = [re.sub(r"([*?[])", r"[\1]", str(file)) for file in files]
    name = new_name()
    try:
        if kinds == {"parquet"}:
            table = connection.read_parquet(names, table_name=name, union_by_name=True)
        else:
            options = {"header": True, "sample_size": _SNIFFED}
            table = connection.read_csv(names, table_name=name, union_by_name=True, **options)
    except duckdb.Error as error:
        raise ValueError(f"{what} ({path}) cannot be read: {one_line(error)}") from error
    table = released(table, connection, lambda duck: duck.execute(f'DROP VIEW IF EXISTS temp."{name}"'))
    check_same_columns(files, table.columns, what)
    return table


def _files(path: str, what: str) -> Sequence[Path]:
    """The files that a path stands for, in order."""
    place = Path(path)
    if place.is_dir():
        found = sorted(file for file in place.rglob("*") if _kind(file) is not None and not _hidden(file, place))
        if not found:
            raise FileNotFoundError(f"{what}: the folder {path} holds no Parquet or CSV file.")
        return found
    if place.exists():
        return [place]
    if set("*?[") & set(path):
        root = Path(place.anchor)
        found = sorted(file for file in root.glob(str(place.relative_to(root))) if file.is_file())
        if not found:
            raise FileNotFoundError(f"{what}: no file matches {path}.")
        return found
    raise FileNotFoundError(f"{what}: there is no file {path}.")


def _hidden(file: Path, place: Path) -> bool:
    """Whether a file of a folder is by its name, or the name of its own folder, none of the data, as Spark has it."""
    return any(part.startswith((".", "_")) for part in file.relative_to(place).parts) or not file.is_file()


def _kind(file: Path) -> str | None:
    """What the ending of a file says it is; `.csv.gz` is CSV, another `.gz` is not known."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    return _FORMATS.get("".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:]))


def _read_database(path: str, table: str | None, connection: Any, what: str) -> Any:
    """A table of a DuckDB file, which is opened for reading only."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{what}: there is no file {path}.")
    try:
        catalog = _attach(os.path.realpath(path), connection.con)
        query = "SELECT table_name FROM information_schema.tables WHERE table_catalog = ? AND table_schema = 'main'"
        tables = sorted(name for (name,) in connection.con.execute(query, [catalog]).fetchall())
    except duckdb.Error as error:
        raise ValueError(f"{what}: {path} cannot be read as a DuckDB file: {one_line(error)}") from error
    listed = ", ".join(tables) or "none"
    if table is None and len(tables) != 1:
        raise ValueError(f"{what}: {path} holds {len(tables)} tables ({listed}): say which one with {path}::table.")
    if table is not None and table not in tables:
        raise ValueError(f"{what}: {path} has no table {table!r}: it has {listed}.")
    return connection.table(table or tables[0], database=(catalog, "main"))


def _attach(path: str, duck: Any) -> str:
    """The name by which DuckDB knows a file, opened if it is not yet."""
    for name, file in duck.execute("SELECT database_name, path FROM duckdb_databases()").fetchall():
        if file is not None and os.path.realpath(file) == path:
            return name
    name = new_name()
    duck.execute(f"ATTACH '{path.replace(chr(39), chr(39) * 2)}' AS {name} (READ_ONLY, TYPE duckdb)")
    return name
