"""Bags gathered into shards: the engine sorts the events by bag, moving to disk what it cannot hold; what comes out is
cut into blocks of whole bags as it passes.

Rows of a bag are put in an order that their numbers alone determine, so the same tables give the same shards, whatever
the engine, its threads and the order of the events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bagwise.data.shards import REPORTS, File, Shards, Stored, write_index
from bagwise.tables.bag_table import NOISE, NUMBER, SIZE, BagTable
from bagwise.tables.columns import Features, Made
from bagwise.tables.engine import batches, execute, fetch
from bagwise.utils.files import new_folder
from bagwise.utils.parameters import check_whole
from bagwise.utils.typing import Integers

_NUMBERS = 2**21  # of a block, unless told otherwise: 8 megabytes in single precision
_DIGITS = 2**10  # by how many times its range a column may be away from 0 to be kept in single precision


def write_shards(
    data: BagTable,
    features: Features,
    folder: str | Path,
    *,
    shard_rows: int = 1_000_000,
    group_rows: int | None = None,
    least_blocks: int = 1,
) -> Shards:
    """Gather the events of usable bags into a new folder of shards, which appears when it is complete.

    The memory it takes is what the engine may use (see `connect`), and that of a few blocks. Numbers are kept in single
    precision, unless their range is small compared to their size.

    shard_rows, group_rows: about how many rows a file and a block hold, in whole bags, of which each has one at least.
        By default a block holds about two million numbers.
    least_blocks: make blocks smaller, if group_rows is not given, until there are about so many or one for each bag.
    """
    check_whole(shard_rows, "shard_rows", least=1)
    check_whole(least_blocks, "least_blocks", least=1)
    rows = group_rows
    if rows is None:
        rows = max(1, min(_NUMBERS // len(features.made), data.summary.used_rows // least_blocks))
    check_whole(rows, "group_rows", least=1)
    data.check_two_classes()
    place = Path(folder)
    if place.exists():
        raise FileExistsError(f"{place} exists already: name a new folder, or remove it first.")
    with new_folder(place) as new:
        types = _types(data, features)
        reports = _reports(data)
        pq.write_table(reports, new / REPORTS, write_page_checksum=True)
        size = reports.column(SIZE).to_numpy()
        blocks = cuts(size, rows)
        rows_of_block = np.add.reduceat(size, blocks[:-1])
        begins_file = set(cuts(rows_of_block, shard_rows)[:-1].tolist())
        stream: Any = batches(_in_order(data, features, types), data.connection, min(max(rows, 1024), 65_536))
        with closing(stream), _Writing(new, features, types) as writing:
            pieces = _pieces(stream, rows_of_block)
            for number, (piece, (first, last)) in enumerate(zip(pieces, pairwise(blocks), strict=True)):
                if number in begins_file:
                    writing.begin_file()
                writing.block(piece, np.repeat(np.arange(first, last), size[first:last]), int(last - first))
        classes = None if data.classes is None else len(data.classes)
        write_index(
            new, writing.columns(), writing.files, n_rows=int(size.sum()), classes=classes, noised=data.summary.noised
        )
    return Shards.open(place)


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


class _Writing:
    """Files of shards while they are written, and what their columns are like."""

    def __init__(self, folder: Path, features: Features, types: Sequence[str]) -> None:
        self.folder, self.features, self.types = folder, features, types
        self.statistics = [_Statistics(made, type_) for made, type_ in zip(features.made, types, strict=True)]
        self.schema = pa.schema(
            [(name, pa.type_for_alias(type_)) for name, type_ in zip(features.names, types, strict=True)]
        )
        self.files: list[File] = []
        self._writer: pq.ParquetWriter | None = None
        self._bags: list[int] = []

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, *error: object) -> None:
        self._end_file()

    def begin_file(self) -> None:
        """The next block goes to a new file."""
        self._end_file()
        codes = [self.features.names[i] for i in self.features.categorical]
        self._writer = pq.ParquetWriter(
            self.folder / self._name,
            self.schema,
            compression="lz4",
            use_dictionary=codes,
            write_statistics=False,
            write_page_checksum=True,
        )

    def block(self, piece: pa.Table, expected: Integers, bags: int) -> None:
        """Write the rows of some bags.  expected: the bag of each."""
        if not np.array_equal(piece.column(NUMBER).to_numpy(), expected):
            raise ValueError(_CHANGED)
        matrix = self.features.matrix(piece)
        columns = [_stored(matrix[:, i], made, self.types[i]) for i, made in enumerate(self.features.made)]
        order = np.lexsort((_fingerprint(columns), expected))
        columns = [column[order] for column in columns]
        for statistics, column in zip(self.statistics, columns, strict=True):
            statistics.add(column)
        assert self._writer is not None
        self._writer.write_table(pa.table(columns, schema=self.schema), row_group_size=len(order))
        self._bags.append(bags)

    def columns(self) -> list[Stored]:
        """The columns of what was written."""
        return [statistics.stored() for statistics in self.statistics]

    @property
    def _name(self) -> str:
        return f"shard-{len(self.files):05d}.parquet"

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            path = self.folder / self._name
            self.files.append(File(path.name, path.stat().st_size, tuple(self._bags)))
            self._writer, self._bags = None, []


class _Statistics:
    """What all rows of a column are like."""

    def __init__(self, made: Made, type_: str) -> None:
        self.made, self.type = made, type_
        self.known, self.total, self.low, self.high = 0, 0.0, np.inf, -np.inf
        self.occurs = np.zeros(len(made.levels or ()), dtype=bool)

    def add(self, column: NDArray[Any]) -> None:
        """Some more rows."""
        if self.made.levels is not None:
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
        levels = None if self.made.levels is None else tuple(np.flatnonzero(self.occurs).tolist())
        return Stored(self.made.name, self.type, self.known, low, high, self.total / max(self.known, 1), levels)


_CHANGED = "the events are not those that were joined with the reports: join them again."


def _pieces(stream: Iterator[pa.RecordBatch], counts: Integers) -> Iterator[pa.Table]:
    """The rows of a stream, in pieces of so many rows each."""
    waiting: list[pa.RecordBatch] = []
    for count in counts.tolist():
        while sum(batch.num_rows for batch in waiting) < count:
            batch = next(stream, None)
            if batch is None:
                raise ValueError(_CHANGED)
            waiting.append(batch)
        table = pa.Table.from_batches(waiting)
        waiting = table.slice(count).to_batches()
        yield table.slice(0, count).combine_chunks()
    if waiting or any(batch.num_rows for batch in stream):
        raise ValueError(_CHANGED)


def _in_order(data: BagTable, features: Features, types: Sequence[str]) -> Any:
    """The rows by bag; narrow ones, since an engine sorts them by many thousands at once."""
    made = features.select(data.rows(), NUMBER)
    single = [name for name, type_ in zip(features.names, types, strict=True) if type_ == "float32"]
    return made.mutate(**{name: made[name].cast("float32") for name in single}).order_by(NUMBER)


def _reports(data: BagTable) -> pa.Table:
    """What each bag reported, in the order of the bags' numbers."""
    lines = data.bags.select(NUMBER, SIZE, *data.proportions, NOISE).order_by(NUMBER)
    table = fetch(lines, data.connection)
    if not np.array_equal(table.column(NUMBER).to_numpy(), np.arange(table.num_rows)):
        raise ValueError(_CHANGED)
    noise = table.column(NOISE).cast(pa.float64()).fill_null(0.0)
    return table.set_column(table.schema.get_field_index(NOISE), NOISE, noise).drop_columns(NUMBER)


def _types(data: BagTable, features: Features) -> list[str]:
    """How each column is kept: codes as small whole numbers, numbers in single precision where its digits suffice."""
    rows = features.select(data.events)
    numbers = [name for name, made in zip(features.names, features.made, strict=True) if made.levels is None]
    known = {name: ibis.ifelse(rows[name].isnan(), None, rows[name]) for name in numbers}
    ends = {f"{end}_{name}": getattr(known[name], end)() for name in numbers for end in ("min", "max")}
    found = execute(rows.agg(**ends), data.connection) if ends else {}

    def type_of(name: str, made: Made) -> str:
        if made.levels is not None:
            return str(np.min_scalar_type(-len(made.levels)))
        low, high = (float(found[f"{end}_{name}"] or 0) for end in ("min", "max"))
        largest = max(abs(low), abs(high))
        if largest > float(np.finfo(np.float32).max):
            return "float64"
        return "float32" if largest <= _DIGITS * (high - low) or np.float32(low) == low == high else "float64"

    return [type_of(name, made) for name, made in zip(features.names, features.made, strict=True)]


def _stored(column: NDArray[np.float64], made: Made, type_: str) -> NDArray[Any]:
    """The column as it is kept; missing codes are −1, and there is one kind of NaN and of 0."""
    gap = np.isnan(column)
    return np.where(gap, np.nan if made.levels is None else -1, column + 0.0).astype(type_)


def _fingerprint(columns: Sequence[NDArray[Any]]) -> NDArray[np.uint64]:
    """(n,) a number for each row that only equal rows share, but for chance."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        mixed ^= column.view(f"u{column.itemsize}").astype(np.uint64)
        mixed *= np.uint64(0x9E3779B97F4A7C15)  # odd: no two numbers become one
        mixed ^= mixed >> np.uint64(29)
    return mixed
