"""Arrow: tables in this process's memory, for rows that are scored one or a few at a time.

Other engines take longer to be asked than a few rows take to be scored. What learns from tables asks more than is
answered here: it takes them into DuckDB.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Arrow:
    """Tables in memory as those of an engine (see `Engine`), as far as the reading of a model asks for it."""

    name, here, unsaid, connection = "arrow", True, "", None

    def asking(self) -> AbstractContextManager[None]:
        """See `Engine`."""
        return nullcontext()

    def fetch(self, table: pa.Table) -> pa.Table:
        """See `Engine`."""
        return table

    def batches(self, table: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
        """See `Engine`."""
        yield from table.combine_chunks().to_batches(max_chunksize=rows)

    def keep(self, table: pa.Table) -> tuple[pa.Table, object]:
        """See `Engine`."""
        return table, table

    def grouping(self, figures: int, groups: int | None = None) -> AbstractContextManager[None]:
        """See `Engine`."""
        return nullcontext()

    def take(self, table: pa.Table) -> pa.Table:
        """See `Engine`."""
        return table

    def extend(self, table: pa.Table, function: str, columns: Mapping[str, str]) -> pa.Table:
        """See `Engine`."""
        make = _FUNCTIONS[function]
        for name, column in columns.items():
            table = table.append_column(name, make(table.column(column)))
        return table

    def aggregate(self, table: pa.Table, figures: Mapping[str, tuple[str, ...]], by: str | None) -> pa.Table:
        """See `Engine`."""
        raise NotImplementedError("tables in memory are scored here; what learns from them takes them into DuckDB.")

    def number(self, table: pa.Table, name: str) -> pa.Table:
        """See `Engine`."""
        return table.append_column(name, pa.array(range(table.num_rows), pa.int64()))

    def has_table(self, name: str) -> bool:
        """See `Engine`: tables in memory have no names."""
        return False

    def adopt(self, file: Path, name: str, *, replace: bool) -> None:
        """See `Engine`."""
        raise NotImplementedError("tables in memory have no names.")


def _md5(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The digits of texts, each of which is looked at once."""
    coded = texts.combine_chunks().dictionary_encode()
    digits = [None if text is None else hashlib.md5(text.encode()).hexdigest() for text in coded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(digits, pa.string()).take(coded.indices)])


def _seconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Seconds since 1970 of times or dates; Arrow holds those of a zone in UTC."""
    if not pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("s"))
    return pc.divide(times.cast(pa.int64()).cast(pa.float64(), safe=False), float(_PER_SECOND[times.type.unit]))


_FUNCTIONS: dict[str, Callable[[pa.ChunkedArray], pa.ChunkedArray]] = {"md5": _md5, "seconds": _seconds}
