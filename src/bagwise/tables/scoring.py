"""Rows of a table scored, by a model alone or by it and the reports of their bags; they stream through.

With reports, the engine sorts rows by bag, so that those of a bag come together, whatever its size; scores go through a
temporary file, from which rows come back in the order they had. Bags of several tables of reports hang together:
scores of all rows are then held in memory.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from bagwise.bags import Bags
from bagwise.bags.reading import name as name_of_bag
from bagwise.data.rows import bags_in_order
from bagwise.data.shards import WEIGHT
from bagwise.segment import per_bag
from bagwise.tables.bag_table import CHANGED, NUMBER, BagTable, Mismatch, Reported
from bagwise.tables.engines import Connection
from bagwise.tables.engines.duckdb import connect
from bagwise.tables.engines.spark import Spark
from bagwise.tables.fitting import Tell
from bagwise.tables.model import TableModel
from bagwise.tables.reported import BAG, OURS, ROW, hold, key_text, offset_of, reported_by_each
from bagwise.tables.reports import ReportColumns
from bagwise.tables.schema import ColumnsMet, Reading
from bagwise.tables.sinks import Out, Sink
from bagwise.tables.sources import Source, home, lives_in_engine, read
from bagwise.tables.table import col
from bagwise.utils.files import TemporaryFolder
from bagwise.utils.parameters import ParameterError
from bagwise.utils.text import number_of
from bagwise.utils.typing import Floats, Integers, NDArray

_Piece: TypeAlias = tuple[pa.Table, Integers, Floats]  # rows, the number of the bag of each, predictions
_ASTRAY = 5.0  # standard deviations of its noise, by which a count contradicts others


@dataclass(frozen=True)
class Scored:
    """What came of scoring.

    Attributes
    ----------
    rows : int
        Rows written.
    reported_rows, bags : int
        How many of them are of bags with a report, so that their scores are given that, too, and how many bags these
        are.
    noised : bool
        Whether a report has declared noise, so that scores add up to it only about.
    mismatches : tuple of Mismatch
        Bags and rows whose scores are those of the model alone, and why.
    tables : tuple of int
        Which table of reports each mismatch is of, from 1, where there are several.
    astray : tuple of str
        Bags of several tables whose noised counts scores stay far from, since other tables say something else.
    columns : ColumnsMet
        How the columns of the table fit the model: what is missing, converted, or was never seen.
    """

    rows: int
    reported_rows: int = 0
    bags: int = 0
    noised: bool = False
    mismatches: tuple[Mismatch, ...] = ()
    tables: tuple[int, ...] = ()
    astray: tuple[str, ...] = ()
    columns: ColumnsMet = field(default_factory=lambda: ColumnsMet(0, ()))

    def __str__(self) -> str:
        told = f"{number_of(self.rows, 'row')} scored"
        if not self.bags:
            return "\n".join([f"{told}.", *self.columns.lines])
        how = "follow, as far as its noise lets them," if self.noised else "add up to"
        told += (
            f", {self.reported_rows:,} of them in {number_of(self.bags, 'bag')} with a report, which their scores {how}"
        )
        left = f"{self.rows - self.reported_rows:,} without, by the model alone"
        of = [f" of report table {number}" for number in self.tables] or [""] * len(self.mismatches)
        unused = [f"Not used{which}: {mismatch}." for which, mismatch in zip(of, self.mismatches, strict=True)]
        if self.astray:
            more = f" (and {len(self.astray) - 1:,} more)" if len(self.astray) > 1 else ""
            unused.append(f"Scores stay far from the count of {self.astray[0]}{more}: other tables contradict it.")
        return "\n".join([f"{told}; {left}.", *unused, *self.columns.lines])


def write_scores(
    model: TableModel,
    source: Source,
    out: Out,
    *,
    reports: Source | Sequence[Source] | None = None,
    keep: Sequence[str] | None = None,
    missing_columns: Literal["error", "as-missing"] = "error",
    intervals: float | None = None,
    connection: Connection | None = None,
    force: bool | None = None,
    progress: Tell | None = None,
    keys: Sequence[str] | str | None = None,
    on_mismatch: Literal["error", "drop"] | Sequence[str] = "error",
    **columns: Any,
) -> Scored:
    """Write the rows of a table with their predictions; memory does not grow with the table.

    Rows keep their order where the engine does (see `connect`).

    Parameters
    ----------
    model : TableModel
        As `fit` returns it.
    source : path, table or dict
        Anything that `read` takes.
    out : path or file
        A path that ends in .parquet or .csv, or an open stream, which gets CSV. Or a table: ``file.duckdb::scores`` of
        a DuckDB file, made where there is none; ``::scores`` of the engine that holds the rows. Spark scores its own
        rows where they are, with bagwise on its machines, for a table or an address (``s3a://…``), to which it writes
        Parquet. From all other engines rows come here, and go back.
    reports : path, table or dict, optional
        Reports of bags of these rows, which must be complete. Rows of a bag with a report get the probability given
        features and report, which adds up to the count where that is exact; others that given features alone.
        Several tables of reports are a list: scores then add up to every one of them, as far as its noise lets them
        (iterative proportional fitting on log odds). Exact counts that contradict each other are an
        error that names the bag. Scores of all rows are then held in memory, of 20 million at most.
        Values add up to exact sums, by the least change (see `BagRidgeRegressor.predict`).
    keep : sequence of str, optional
        Columns to hand on; all by default.
    missing_columns : {"error", "as-missing"}
        Whether columns that the model uses and the table lacks raise, or count as missing in every row.
    intervals : float, optional
        The level of intervals of predictions, `prediction_low` to `prediction_high` (`prediction_a_low` and so on of
        a class a), that are written too; of the model alone, without reports.
    connection : duckdb.DuckDBPyConnection, pyspark.sql.SparkSession or ibis.BaseBackend, optional
        For files and tables in memory; by default a DuckDB of our own.
    force : bool, optional
        Whether to replace what is there; False is an error, also where another process wrote a file meanwhile. By
        default a file is replaced, and a table that is there already, or what is at an address, is not.
    progress : callable, optional
        Called with rows done, rows in all and a few words.
    keys, on_mismatch
        As in `join`. By default the keys are those that the model was trained with. Reports that do not fit are an
        error, or their rows are scored by the model alone.
    **columns : str, sequence of str or float
        What columns of the reports say, as in `join`: `count` or `proportion`, `size`, `noise_variance` and so on; by
        default those that the model was trained with, where the reports have them. Without reports, `proportion` or
        `mean` names columns of the rows.

    Returns
    -------
    Scored
        How many rows were written, how many of them have a report, and what was met in the columns. A warning
        (`UnseenValuesWarning`) says where more than a tenth of the rows have a value that training did not have, in a
        column that the model uses.
    """
    every: list[Any] = list(reports) if isinstance(reports, (list, tuple)) else [reports]
    if not every:
        raise ParameterError("reports", "must name one table or more.")
    reports = every[0]
    sink = Sink.of(out, replace=force)
    own = home(source, *every, connection=connection, ordered=True)
    table = read(source, own, what="the table")
    if keep is not None and (unknown := [name for name in keep if name not in table.columns]):
        raise ValueError(f"there is no column {unknown[0]!r} to keep: there are {', '.join(table.columns)}.")
    kept = list(table.columns if keep is None else keep)
    if clash := [name for name in (*model.predictions, *(model.intervals if intervals else ())) if name in kept]:
        raise ValueError(f"the table has a column {clash[0]!r} already: leave it out, or rename it.")
    total = (table if progress is not None else table.head(1)).count()
    if not total:  # before its columns are looked at, which may be of any type
        raise ValueError("the table is empty: there is no row to score.")
    tell, summary = progress or (lambda done, total, text: None), None
    given, reading = ReportColumns(**columns), model.reading(table, missing_columns=missing_columns)
    alone = reports is None and given.proportion is None and given.mean is None
    sink.check(table.engine, lasting=connection is not None or lives_in_engine(source, *every), alone=alone)
    if alone and sink.by_engine and isinstance(table.engine, Spark):
        tell(0, None, "scoring rows in Spark")
        rows = _by_spark(model, reading, kept, intervals, sink, table.engine)
        reading.met.warn()
        return Scored(rows, columns=reading.met)
    if alone:
        scoring: Any = nullcontext(model.score(reading, keep=kept, intervals=intervals))
    else:
        if intervals is not None:
            raise ParameterError("intervals", "is for predictions without reports, which tell more than they know.")
        if ours := [name for name in kept if name.lower().startswith(OURS)]:
            raise ValueError(f"column {ours[0]!r} has a name that bagwise uses: rename it.")
        tell(0, None, "joining rows and reports")
        found = reported_by_each(model, table, every, given, keys=keys, on_mismatch=on_mismatch, connection=own)
        if len(found) > 1:
            return _by_all(model, reading, found, kept, sink, lambda rows: tell(rows, total, f"{rows:,} rows"))
        (data,) = found
        summary, text = data.summary, "{:,} rows scored, bag by bag"
        scoring = _in_order(_by_bag(model, reading, data, kept), lambda rows: tell(rows, total, text.format(rows)))
    with scoring as scored:
        rows = sink.write(scored, table.engine, lambda rows: tell(rows, total, f"{rows:,} rows"))
    reading.met.warn()
    if summary is None:
        return Scored(rows, columns=reading.met)
    return Scored(rows, summary.used_rows, summary.bags, summary.noised, summary.mismatches, columns=reading.met)


def _by_spark(
    model: TableModel, reading: Reading, kept: Sequence[str], intervals: float | None, sink: Sink, engine: Spark
) -> int:
    """Score rows where they are, and leave them there; how many they are."""
    query, made = model.query(reading, kept), [*model.predictions, *(model.intervals if intervals else ())]
    reading.count(query)
    piece = partial(model.score_batch, kept, intervals)
    engine.write_made(query.native, piece, kept, made, sink.table or sink.out, replace=bool(sink.replace))
    return reading.met.rows


# -- with reports -----------------------------------------------------------------------------------------------------


def _by_bag(model: TableModel, reading: Reading, data: BagTable, kept: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows as they are kept, with their place and their scores, bag after bag; those in no bag come as they are."""
    bags = data.bags.select(*data.keys, **{BAG: col(NUMBER)})
    ours = data.of_rows.ours
    rows = reading.select(*kept, *ours, ROW, *data.keys, of=data.events).join(bags, data.keys, "left")
    query = rows.select(*kept, *ours, ROW, BAG, *model.features.names).sort(BAG, ROW)
    reported, text = data.reported, key_text(data)
    stream: Any = query.batches()
    with closing(stream):
        pieces = (_scored(model, reading, batch, [*kept, ROW, *ours]) for batch in stream)
        for table, bag, h in _whole_bags(pieces):
            inside = bag >= 0
            if inside.any():
                h = h.copy()
                weight = None
                if WEIGHT in ours:
                    weight = table.column(WEIGHT).to_numpy()[inside]
                h[inside] = model.given_reports(h[inside], _bags(reported, text, bag[inside], weight))
            table = table.drop_columns(list(ours)) if ours else table
            yield from (model.scored(batch, h[start : start + batch.num_rows]) for start, batch in _placed(table))


def _by_all(
    model: TableModel,
    reading: Reading,
    data: Sequence[BagTable],
    kept: Sequence[str],
    sink: Sink,
    tell: Callable[[int], None],
) -> Scored:
    """Rows with scores that add up to all tables; what is kept of them waits in a temporary file meanwhile."""
    with TemporaryFolder() as folder:
        waiting: list[Any] = []

        def keep(batch: pa.RecordBatch) -> None:
            if not waiting:
                waiting.append(pyarrow.parquet.ParquetWriter(folder / "rows.parquet", batch.schema))
            waiting[0].write_batch(batch)

        try:
            held = hold(model, reading, data, kept=kept, keep=keep)
        finally:
            for writer in waiting:
                writer.close()
        reading.met.warn()
        h = model.given_reports(held.h, held.bags)

        def scored() -> Iterator[pa.RecordBatch]:
            start = 0
            for batch in pyarrow.parquet.ParquetFile(folder / "rows.parquet").iter_batches():
                yield model.scored(batch, h[start : start + batch.num_rows])
                start += batch.num_rows

        rows = sink.write(scored(), reading.table.engine, tell)
    summaries = [one.summary for one in data]
    mismatches = [(number + 1, one) for number, of in enumerate(summaries) for one in of.mismatches]
    tables, unused = tuple(number for number, _ in mismatches), tuple(one for _, one in mismatches)
    inside, noised = len(np.unique(held.bags.order)), any(one.noised for one in summaries)
    bags, astray = sum(one.bags for one in summaries), _astray(h, held.bags)
    return Scored(rows, inside, bags, noised, unused, tables, astray, reading.met)


def _astray(h: Floats, bags: Bags) -> tuple[str, ...]:
    """Bags whose noised counts the sums of scores are far from, the farthest first."""
    noise = bags.declared_noise
    apart = np.abs(bags.sum(h[bags.order]) - per_bag(bags.size, bags.proportion) * bags.proportion)
    off = apart.reshape(len(bags), -1).max(axis=1) / np.sqrt(np.where(noise > 0, noise, np.inf))
    if bags.interval is not None:
        off[bags.interval.open] = 0.0
    far = [int(j) for j in np.argsort(-off, kind="stable") if off[j] > _ASTRAY]
    found = []
    for j in far:
        table, key = bags.keys[j]
        found.append(f"bag {name_of_bag(key)} of report table {table + 1} ({off[j]:.0f} times its noise)")
    return tuple(found)


def _scored(model: TableModel, reading: Reading, batch: pa.RecordBatch, kept: Sequence[str]) -> _Piece:
    h = model.predict_codes(reading.matrix(batch), offset_of(model, batch))
    bag = batch.column(BAG).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return pa.Table.from_batches([batch.select(kept)]), bag, h


def _whole_bags(pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """The same rows, cut between bags; −1 is the bag of rows that are in none."""
    waiting: list[_Piece] = []
    for piece in pieces:
        waiting.append(piece)
        last = piece[1][-1]
        if last == waiting[0][1][0] >= 0:  # the beginning of one bag
            continue
        table, bag, h = _joined(waiting)
        whole = len(bag) if last < 0 else int(np.argmax(bag == last))
        yield table.slice(0, whole), bag[:whole], h[:whole]
        waiting = [(table.slice(whole), bag[whole:], h[whole:])] if whole < len(bag) else []
    if waiting:
        yield _joined(waiting)


def _joined(pieces: Sequence[_Piece]) -> _Piece:
    tables, bags, predictions = zip(*pieces, strict=True)
    return pa.concat_tables(tables), np.concatenate(bags), np.concatenate(predictions)


def _placed(table: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of a table, each with the number of its first row."""
    start = 0
    for batch in table.to_batches():
        yield start, batch
        start += batch.num_rows


def _bags(reported: Reported, text: NDArray[Any], bag: Integers, weight: Floats | None = None) -> Bags:
    """The bags of rows that stand bag after bag, by their numbers."""
    number, size = np.unique(bag, return_counts=True)
    if not np.array_equal(size, reported.rows[number]):
        raise ValueError(CHANGED)
    noise = None if reported.noise is None else reported.noise[number]
    interval = None if reported.interval is None else reported.interval.take(number)
    given = (text[number], size, reported.proportion[number], noise)
    return bags_in_order(*given, interval=interval, weight=weight)


@contextmanager
def _in_order(scored: Iterator[pa.RecordBatch], tell: Callable[[int], None]) -> Iterator[Iterator[pa.RecordBatch]]:
    """The same rows in the order of their places, without these."""
    with TemporaryFolder() as folder:
        file, rows, first = folder / "scored.parquet", 0, next(scored)
        with pyarrow.parquet.ParquetWriter(file, first.schema) as writer:
            for batch in chain([first], scored):
                writer.write(batch)
                rows += batch.num_rows
                tell(rows)
        stream: Any = read(file, connect()).sort(ROW).drop(ROW).batches()
        with closing(stream):
            yield stream
