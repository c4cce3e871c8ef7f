"""Shards written: columns as they are kept on disk, even parts of whole bags, and the index of what is where."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.data.shards import FORMAT, INDEX, REPORTS, File, Stored, digest, rows_column
from bagwise.utils.typing import Floats, Integers, NDArray

_DIGITS = 2**10  # by how many times its range a column may be away from 0 to be kept in single precision


@dataclass(frozen=True)
class Kept:
    """How a column is kept.  type: of its numbers.  levels: how many codes a category has; None for a number."""

    name: str
    type: str
    levels: int | None

    @classmethod
    def code(cls, name: str, levels: int) -> Kept:
        """A category, in small whole numbers."""
        return cls(name, str(np.min_scalar_type(-levels)), levels)

    @classmethod
    def number(cls, name: str, low: float, high: float) -> Kept:
        """A number between these, in single precision where its digits suffice."""
        largest = max(abs(low), abs(high))
        single = largest <= _DIGITS * (high - low) or np.float32(low) == low == high
        return cls(name, "float32" if single and largest <= float(np.finfo(np.float32).max) else "float64", None)


def as_kept(matrix: Floats, bag: Integers, kept: Sequence[Kept], of_rows: Sequence[Floats] = ()) -> list[NDArray[Any]]:
    """The columns of numbers, codes and NaN as they are kept, in the order of bags and inside a bag of their numbers.

    bag: (n,) of each row.  of_rows: weights and offsets of rows, which come last.
    """
    columns = []
    for values, how in zip(matrix.T, kept, strict=True):  # missing codes are −1; there is one kind of NaN and of 0
        columns.append(np.where(np.isnan(values), np.nan if how.levels is None else -1, values + 0.0).astype(how.type))
    columns += [values + 0.0 for values in of_rows]
    order = np.lexsort((_fingerprint(columns), bag))
    return [column[order] for column in columns]


def cuts(size: Integers, rows: int) -> NDArray[np.int64]:
    """Where to cut bags into even parts of about `rows` rows: part i holds bags cuts[i] to cuts[i + 1], at least one.

    No part has `rows` rows more than its last bag has.

    >>> cuts(np.array([2, 2, 2, 2, 9, 2]), 4)
    array([0, 2, 4, 5, 6])
    """
    ends = np.cumsum(size)
    parts = -(-int(ends[-1]) // rows)
    wanted = np.searchsorted(ends, np.arange(1, parts) * (int(ends[-1]) / parts)) + 1
    return np.unique(np.concatenate([[0], wanted, [len(size)]])).astype(np.int64)


def write_blocks(
    folder: Path,
    blocks: Iterator[Sequence[NDArray[Any]]],
    starts: Integers,
    *,
    kept: Mapping[str, Kept],
    reports: pa.Table,
    shard_rows: int,
    classes: int | None,
    noised: bool,
    of_rows: Sequence[str] = (),
) -> None:
    """Write shards into an empty folder.

    blocks: their columns, as `as_kept` makes them.  starts: the bag that each begins with, and the number of bags.
    kept: by the names of columns in files.  reports: what each bag reported, by columns (see `data.shards`).
    shard_rows: about how many a file holds.  of_rows: `WEIGHT` and `OFFSET`, as far as blocks end with these.
    """
    rows = reports.column(rows_column(reports)).to_numpy()
    types = {**{name: how.type for name, how in kept.items()}, **dict.fromkeys(of_rows, "float64")}
    schema = pa.schema([(name, pa.type_for_alias(type_)) for name, type_ in types.items()])
    codes = [name for name, how in kept.items() if how.levels is not None]
    options = {"use_dictionary": codes, "compression": "lz4", "write_statistics": False, "write_page_checksum": True}
    statistics = [_Statistics(how) for how in kept.values()]
    files: list[File] = []
    pq.write_table(reports, folder / REPORTS, write_page_checksum=True)
    for first, last in pairwise(cuts(np.add.reduceat(rows, starts[:-1]), shard_rows).tolist()):
        path = folder / f"shard-{len(files):05d}.parquet"
        with pq.ParquetWriter(path, schema, **options) as writer:
            for columns in islice(blocks, last - first):
                for one, column in zip(statistics, columns, strict=False):
                    one.add(column)
                writer.write_table(pa.table(list(columns), schema=schema), row_group_size=len(columns[0]))
        files.append(File(path.name, path.stat().st_size, tuple(np.diff(starts[first : last + 1]).tolist())))
    index: dict[str, Any] = {
        "format": FORMAT,
        "rows": int(rows.sum()),
        "bags": len(rows),
        "of_rows": list(of_rows),
        "classes": classes,
        "noised": noised,
        "columns": [asdict(one.stored()) for one in statistics],
        "files": [asdict(file) for file in files],
        "reports_bytes": (folder / REPORTS).stat().st_size,
    }
    index["sha256"] = digest(index)
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


class _Statistics:
    """What all rows of a column are like."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.known, self.total, self.low, self.high = 0, 0.0, np.inf, -np.inf
        self.occurs = np.zeros(kept.levels or 0, dtype=bool)

    def add(self, column: NDArray[Any]) -> None:
        """Some more rows."""
        if self.kept.levels is not None:
            known = column[column >= 0]
            self.occurs[known] = True
        else:
            known = column[~np.isnan(column)]
            self.total += float(known.sum(dtype=float))
        self.known += len(known)
        if len(known):
            self.low, self.high = min(self.low, float(known.min())), max(self.high, float(known.max()))

    def stored(self) -> Stored:
        """The description of the column."""
        low, high = (self.low, self.high) if self.known else (0.0, 0.0)
        levels = None if self.kept.levels is None else tuple(np.flatnonzero(self.occurs).tolist())
        return Stored(self.kept.name, self.kept.type, self.known, low, high, self.total / max(self.known, 1), levels)


def _fingerprint(columns: Sequence[NDArray[Any]]) -> NDArray[np.uint64]:
    """(n,) a number for each row that only equal rows share, but for chance."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        mixed ^= column.view(f"u{column.itemsize}").astype(np.uint64)
        mixed *= np.uint64(0x9E3779B97F4A7C15)  # odd: no two numbers become one
        mixed ^= mixed >> np.uint64(29)
    return mixed
