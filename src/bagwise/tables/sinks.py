"""Where scores go: files and streams, tables of DuckDB files, tables of the engine that holds the rows, or its Parquet.

A file is written as batches come. For a table they wait in a temporary file: an engine that hands rows out takes none
meanwhile, and the table appears whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from bagwise.tables.engines import Engine
from bagwise.tables.engines.duckdb import DATABASES, DuckDB, connect, is_in_file, write_to_file
from bagwise.tables.engines.spark import Spark
from bagwise.utils.files import TemporaryFolder, replacing
from bagwise.utils.parameters import Parameter, ParameterError

Out: TypeAlias = "str | os.PathLike[str] | BinaryIO"

_WRITERS: dict[str, Any] = {".parquet": pyarrow.parquet.ParquetWriter, ".csv": pyarrow.csv.CSVWriter}
_MARK = "::"  # before the name of a table


@dataclass(frozen=True)
class Sink:
    """A place for scores, as `out` of `write_scores` says it.

    out: a path, an address, or an open stream, which gets CSV; empty for a table of the engine.  kind: the ending of a
    file, "database", "engine" or "address".  table: its name, in a database or in the engine.  replace: whether what is
    there is replaced; by default only a file is.
    """

    out: Any
    kind: str
    table: str = ""
    replace: bool | None = None

    @classmethod
    def of(cls, out: Out, *, replace: bool | None = None) -> Sink:
        """The place that is meant, if scores can be written to such."""
        if not isinstance(out, (str, os.PathLike)):
            return cls(out, ".csv")
        path = os.fspath(out)
        if "://" in path:
            return cls(path, "address", replace=replace)
        place, mark, table = path.rpartition(_MARK)
        if mark and table and (not place or Path(place).suffix.lower() in DATABASES):
            return cls(place, "database" if place else "engine", table, replace)
        kind = Path(path).suffix.lower()
        if kind in DATABASES:
            raise ParameterError("out", f"must say which table of {path} to write: {path}{_MARK}scores.")
        if kind not in _WRITERS:
            known = f".parquet or .csv, or to a table, as scores.duckdb{_MARK}scores"
            raise ValueError(f"{out} has an unknown ending: scores are written to {known}.")
        return cls(path, kind, replace=replace)

    @property
    def by_engine(self) -> bool:
        """Whether the engine that holds the rows holds the scores, too."""
        return self.kind in ("engine", "address")

    def check(self, engine: Engine, *, lasting: bool, alone: bool) -> None:
        """Raise where `write` would, before any work.

        engine: of the rows.  lasting: whether it is the user's.  alone: whether scores are those of the model alone,
        which engines may make; others are made here.
        """
        by_spark = isinstance(engine, Spark)
        if self.kind == "address" and not by_spark:
            said = f"is an address ({self.out}), to which Spark alone writes, and only rows that it holds"
            raise ParameterError("out", f"{said}: name a file of this machine, or a table.")
        if self.by_engine and by_spark and not alone:
            said = "must be a file of this machine: scores given reports are made here, not in Spark."
            raise ParameterError("out", said)
        if self.kind == "engine" and not lasting:
            said = "names a table of the engine that holds the rows, and these are in none: name a file, or pass "
            raise ParameterError("out", said, Parameter("connection"), ".")
        if self.replace:
            return
        there = self.kind == "engine" and engine.has_table(self.table)
        if there or (self.kind == "database" and is_in_file(self.out, self.table, _duckdb_of(engine))):
            said = f"names a table that is there already ({self.table}): choose another name, or pass "
            raise ParameterError("out", said, Parameter("force"), " to replace it.")

    def write(self, batches: Iterator[pa.RecordBatch], engine: Engine, tell: Callable[[int], None]) -> int:
        """Write batches; how many rows they have.  engine: of the rows."""
        if self.kind in _WRITERS:
            aside = (
                nullcontext([self.out])
                if hasattr(self.out, "write")
                else replacing(self.out, force=self.replace is not False)
            )
            with aside as (target,):
                return _written(batches, target, self.kind, tell)
        with TemporaryFolder() as folder:
            file = folder / "scored.parquet"
            rows = _written(batches, file, ".parquet", tell)
            if self.kind == "engine":
                engine.adopt(file, self.table, replace=bool(self.replace))
            else:
                write_to_file(self.out, self.table, file, _duckdb_of(engine), replace=bool(self.replace))
            return rows


def _duckdb_of(engine: Engine) -> Any:
    """The connection that writes to DuckDB files: that of the rows, which may hold the file open, or a new one."""
    return engine.connection if isinstance(engine, DuckDB) else connect()


def _written(batches: Iterator[pa.RecordBatch], target: Any, kind: str, tell: Callable[[int], None]) -> int:
    rows = 0
    first = next(batches)
    with _WRITERS[kind](target, first.schema) as writer:
        for batch in chain([first], batches):
            writer.write(batch)
            rows += batch.num_rows
            tell(rows)
    return rows
