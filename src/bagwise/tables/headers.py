"""Names of columns that would be mistaken for each other, and first lines of files that are no names."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_DELIMITERS = ",;\t|"


def check_names(names: Sequence[str], what: str) -> None:
    """Raise unless the names differ by more than case: to most engines, DuckDB among them, `x` and `X` are one column.

    >>> check_names(["x", "y", "X"], "events")
    Traceback (most recent call last):
    ValueError: events: columns 'x' and 'X' are the same to the engine: rename one of them.
    """
    if not names:
        raise ValueError(f"{what}: the table has no columns.")
    if not all(names):
        raise ValueError(f"{what}: column {list(names).index('')} has no name: give it one.")
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other is not name or list(names).count(name) > 1:
            raise ValueError(f"{what}: columns {other!r} and {name!r} are the same to the engine: rename one of them.")


def check_same_columns(files: Sequence[Path], columns: Sequence[str], what: str) -> None:
    """Raise unless the columns are those that the first file with content names.

    DuckDB renames columns that it would mistake for each other, and guesses where the lines of a CSV file differ.
    """
    file = next((file for file in files if file.stat().st_size), files[0])
    if file.name.lower().endswith((".parquet", ".pq")):
        with suppress(pa.ArrowException):  # DuckDB reads what Arrow does not
            check_names(pq.read_schema(file).names, what)
        return
    first = _first_line(file)
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
    check_names([name for name in fitting[0] if name], what)


def _first_line(file: Path) -> str:
    """The first line of a text file that is neither empty nor a comment."""
    options: dict[str, Any] = {"mode": "rt", "encoding": "utf-8-sig", "errors": "replace"}
    with gzip.open(file, **options) if file.suffix.lower() == ".gz" else open(file, **options) as lines:
        return next((line.strip("\r\n") for line in lines if line.strip() and not line.startswith("#")), "")
