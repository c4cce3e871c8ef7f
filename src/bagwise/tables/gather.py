"""Bags gathered from an engine, into memory or into shards on disk.

The engine sorts the events by bag, moving to disk what it cannot hold; what comes out is cut into blocks of whole bags
as it passes.

Rows of a bag are put in an order that their numbers alone determine, so the same tables give the same rows, whatever
the engine, its threads and the order of the events.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise.data.rows import InMemory, bags_in_order
from bagwise.data.shard_writer import Kept, as_kept, cuts, write_blocks
from bagwise.data.shards import SIZE, Shards, matrix_of, precision_of
from bagwise.tables.bag_table import CHANGED, NUMBER, BagTable
from bagwise.tables.columns import Features
from bagwise.tables.engine import batches, execute
from bagwise.utils.files import new_folder
from bagwise.utils.parameters import NONE, check_parameters, whole
from bagwise.utils.typing import Integers

_NUMBERS = 2**21  # of a block, unless told otherwise: 8 megabytes in single precision


def gather(data: BagTable, features: Features) -> InMemory:
    """The events of usable bags in memory: what `write_shards` would write, in the same blocks."""
    kept, rows = _kept(data, features), _block_rows(data, features)
    size, proportion, noise = data.reported
    starts, place = cuts(size, rows), 0
    X = np.empty((int(size.sum()), len(kept)), dtype=precision_of(how.type for how in kept))
    for columns in _blocks(data, features, kept, size, starts, rows):
        matrix_of(columns, into=X[place : place + len(columns[0])])
        place += len(columns[0])
    bags = bags_in_order(np.arange(len(size)), size, proportion, noise)
    return InMemory(X, bags, features.categorical, starts)


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

    shard_rows, group_rows: about how many rows a file and a block hold, in whole bags, of which each has one at least;
    by default a block holds about two million numbers.  least_blocks: make blocks smaller, if group_rows is not given,
    until there are about so many or one for each bag.
    """
    check_parameters(
        {"shard_rows": shard_rows, "group_rows": group_rows, "least_blocks": least_blocks},
        {"shard_rows": whole(1), "group_rows": whole(1) | NONE, "least_blocks": whole(1)},
    )
    data.check_two_classes()
    if Path(folder).exists():
        raise FileExistsError(f"{folder} exists already: name a new folder, or remove it first.")
    with new_folder(Path(folder)) as new:
        kept, reports = _kept(data, features), data.reports()
        size, rows = reports.column(SIZE).to_numpy(), group_rows or _block_rows(data, features, least_blocks)
        starts = cuts(size, rows)
        with closing(_blocks(data, features, kept, size, starts, rows)) as blocks:
            classes, noised = None if data.classes is None else len(data.classes), data.summary.noised
            named = dict(zip(features.names, kept, strict=True))
            write_blocks(
                new, blocks, starts, kept=named, reports=reports, shard_rows=shard_rows, classes=classes, noised=noised
            )
            next(blocks, None)  # raises if the engine has more rows
    return Shards.open(folder)


def _block_rows(data: BagTable, features: Features, least_blocks: int = 1) -> int:
    """About how many rows a block holds."""
    return max(1, min(_NUMBERS // len(features.made), data.summary.used_rows // least_blocks))


def _blocks(
    data: BagTable, features: Features, kept: Sequence[Kept], size: Integers, starts: Integers, rows: int
) -> Generator[list[NDArray[Any]], None, None]:
    """The columns of each block as they are kept.

    starts: the bag that each block begins with, and the number of bags.  rows: about how many a block holds.
    """
    made = features.select(data.rows(), NUMBER)  # narrow rows, since an engine sorts them by many thousands at once
    single = [name for name, how in zip(features.names, kept, strict=True) if how.type == "float32"]
    query = made.mutate(**{name: made[name].cast("float32") for name in single}).order_by(NUMBER)
    stream: Any = batches(query, data.connection, min(max(rows, 1024), 65_536))
    with closing(stream):
        waiting: list[pa.RecordBatch] = []
        for first, last in pairwise(starts):
            bag = np.repeat(np.arange(first, last), size[first:last])
            while sum(batch.num_rows for batch in waiting) < len(bag):
                if (batch := next(stream, None)) is None:
                    raise ValueError(CHANGED)
                waiting.append(batch)
            table = pa.Table.from_batches(waiting)
            block, waiting = table.slice(0, len(bag)).combine_chunks(), table.slice(len(bag)).to_batches()
            if not np.array_equal(block.column(NUMBER).to_numpy(), bag):
                raise ValueError(CHANGED)
            yield as_kept(features.matrix(block), bag, kept)
        if waiting or any(batch.num_rows for batch in stream):
            raise ValueError(CHANGED)


def _kept(data: BagTable, features: Features) -> list[Kept]:
    """How each column is kept, told by its least and greatest number."""
    rows = features.select(data.events)
    numbers = [name for name, made in zip(features.names, features.made, strict=True) if made.levels is None]
    ends = {f"{end}_{name}": getattr(rows[name], end)() for name in numbers for end in ("min", "max")}
    found = execute(rows.agg(**ends), data.connection) if ends else {}
    kept = []
    for name, made in zip(features.names, features.made, strict=True):
        low, high = (float(found.get(f"{end}_{name}") or 0) for end in ("min", "max"))
        levels = made.levels
        kept.append(Kept.number(made.name, low, high) if levels is None else Kept.code(made.name, len(levels)))
    return kept
