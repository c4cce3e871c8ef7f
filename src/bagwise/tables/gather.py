r"""Bags gathered from an engine: their rows, into memory or into shards on disk, or moments of them, d × d numbers.

For rows, the engine sorts the events by bag, moving to disk what it cannot hold; what comes out is cut into blocks of
whole bags as it passes. Rows of a bag are put in an order that their numbers alone determine, so the same tables give
the same rows, whatever the engine, its threads and the order of the events.

For moments, which ridge needs, a first query adds up every column in every bag. Categories count once per level; a
missing number counts as the mean, and gets a column that says it is missing. The moments of the folds are then sums
over bags of products of deviations, :math:`\sum_j (s_j - k_j\mu)(s_j - k_j\mu)^T / k_j`: of bags that stream by, where
the engine is a part of this process, since matrices multiply faster here; elsewhere by the engine.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa

from bagwise import segment
from bagwise.bags import Bags, several
from bagwise.data.features import Encoding
from bagwise.data.rows import InMemory, bags_in_order
from bagwise.data.shard_writing import Kept, as_kept, cuts, write_blocks
from bagwise.data.shards import (
    NOISE,
    OFFSET,
    SIZE,
    WEIGHT,
    Shards,
    matrix_of,
    precision_of,
    rows_column,
)
from bagwise.linear.moments import Moments, label_variance, told_variance, worth
from bagwise.tables.bag_table import CHANGED, NUMBER, ROW, BagTable
from bagwise.tables.columns import Features
from bagwise.tables.table import Expression, Table, col, if_else, length, lit, total
from bagwise.updates import Forgetting
from bagwise.utils.files import new_folder
from bagwise.utils.parameters import NONE, check_parameters, whole
from bagwise.utils.typing import Floats, Integers, NDArray

_NUMBERS = 2**21  # of a block, unless told otherwise: 8 megabytes in single precision
_OURS = "bagwise_sum_"
_LOOKED_AT = 100_000  # rows by which the mean of predictions that are never negative is known
_SUM, _KNOWN, _LEVEL = _OURS + "of_{}", _OURS + "known_{}", _OURS + "level_{}_{}"
WIDEST = 100  # encoded columns, those of gaps not counted, that the engine multiplies at most: one pair at a time


# -- rows -------------------------------------------------------------------------------------------------------------


def gather(data: BagTable, features: Features) -> InMemory:
    """The events of usable bags in memory: what `write_shards` would write, in the same blocks."""
    if data.others:
        return _gather_several(data, features)
    kept, (_, proportion, noise, interval, rows) = _kept(data, features), data.reported
    about, place, n = _block_rows(data, features), 0, int(rows.sum())
    starts = cuts(rows, about)
    X = np.empty((n, len(kept)), dtype=precision_of(how.type for how in kept))
    of_rows = {our: np.empty(n) for our in data.of_rows.ours}
    for columns in _blocks(data, features, kept, rows, starts, about):
        block = slice(place, place + len(columns[0]))
        matrix_of(columns[: len(kept)], into=X[block])
        for filled, values in zip(of_rows.values(), columns[len(kept) :], strict=True):
            filled[block] = values
        place = block.stop
    told: dict[str, Any] = {"interval": interval, "weight": of_rows.get(WEIGHT), "offset": of_rows.get(OFFSET)}
    bags = bags_in_order(np.arange(len(rows)), rows, proportion, noise, **told)
    return InMemory(X, bags, features.categorical, starts, names=[made.name for made in features.made])


def _gather_several(data: BagTable, features: Features) -> InMemory:
    """Events of bags of several tables, each once, and the bags of all tables."""
    kept, parts, events = _kept(data, features), (data, *data.others), _Events.of(data)
    codes = [events.filled(part.rows(), NUMBER) for part in parts]
    used = np.logical_or.reduce([code >= 0 for code in codes])
    n, place, bags = int(used.sum()), np.cumsum(used) - 1, []
    X, there = np.empty((n, len(kept)), dtype=precision_of(how.type for how in kept)), 0
    of_rows = {our: np.empty(n) for our in data.of_rows.ours}
    for batch in features.select(data.events, ROW, *of_rows).batches():  # in any order: each row has its place
        row = events.numbers(batch)
        inside = used[row]
        X[place[row[inside]]] = features.matrix(batch)[inside]
        for our, values in data.of_rows.read(batch).items():
            of_rows[our][place[row[inside]]] = values[inside]
        there += int(np.count_nonzero(inside))
    if there != n:
        raise ValueError(CHANGED)
    for part in parts:
        code, (_, proportion, noise, interval, rows) = codes.pop(0)[used], part.reported
        order, offsets = segment.group(code, len(rows))
        if not np.array_equal(np.diff(offsets), rows):
            raise ValueError(CHANGED)
        weight, offset = (of_rows[our][order] if our in of_rows else None for our in (WEIGHT, OFFSET))
        given = (np.arange(len(rows)), order, offsets, proportion, noise, n, code, interval)
        bags.append(Bags.build(*given, weight, offset))
    return InMemory(X, several(bags), features.categorical, names=[made.name for made in features.made])


@dataclass(frozen=True, eq=False)
class _Events:
    """Events by the numbers that their engine gave them.  many: how many.  known: the numbers, where they have gaps."""

    many: int
    known: Integers | None

    @classmethod
    def of(cls, data: BagTable) -> "_Events":
        found = data.events.line(many=length(), last=col(ROW).max())
        gaps = int(found["last"]) >= int(found["many"])
        known = np.sort(data.events.select(ROW).fetch().column(ROW).to_numpy()) if gaps else None
        return cls(int(found["many"]), known)

    def numbers(self, batch: pa.RecordBatch) -> Integers:
        """Those of the rows of a batch, counted from 0."""
        row = batch.column(ROW).to_numpy()
        return np.asarray(row if self.known is None else np.searchsorted(self.known, row))

    def filled(self, rows: Table, name: str) -> NDArray[np.int32]:
        """(events,) a column of some rows, of whole numbers, and −1 for other events."""
        values = np.full(self.many, -1, dtype=np.int32)
        for batch in rows.select(name, ROW).batches():
            values[self.numbers(batch)] = batch.column(name).to_numpy()
        return values


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
    given = {"shard_rows": shard_rows, "group_rows": group_rows, "least_blocks": least_blocks}
    check_parameters(given, {**dict.fromkeys(given, whole(1)), "group_rows": whole(1) | NONE})
    data.check_two_classes()
    if data.others:
        why = "bags of several tables of reports share rows, and bags that share rows cannot be read block by block"
        raise ValueError(f"{why}: fit them in memory, by one process, or pass the one table that has the most bags.")
    if Path(folder).exists():
        raise FileExistsError(f"{folder} exists already: name a new folder, or remove it first.")
    with new_folder(Path(folder)) as new:
        kept, reports = _kept(data, features), data.reports()
        rows = reports.column(rows_column(reports)).to_numpy()
        about = group_rows or _block_rows(data, features, least_blocks)
        starts, named = cuts(rows, about), dict(zip(features.names, kept, strict=True))
        classes = None if data.classes is None else len(data.classes)
        told: dict[str, Any] = {"classes": classes, "noised": data.summary.noised, "shard_rows": shard_rows}
        told["of_rows"] = data.of_rows.ours
        with closing(_blocks(data, features, kept, rows, starts, about)) as blocks:
            write_blocks(new, blocks, starts, kept=named, reports=reports, **told)
            next(blocks, None)  # raises if the engine has more rows
    return Shards.open(folder)


def _block_rows(data: BagTable, features: Features, least_blocks: int = 1) -> int:
    """About how many rows a block holds."""
    return max(1, min(_NUMBERS // len(features.made), data.summary.used_rows // least_blocks))


def _blocks(
    data: BagTable, features: Features, kept: Sequence[Kept], rows: Integers, starts: Integers, about: int
) -> Generator[list[NDArray[Any]], None, None]:
    """The columns of each block as kept, and weights and offsets.

    rows: of bags.  starts: the first bags of blocks, and the end.  about: how many rows a block has.
    """
    # Narrow rows, since an engine sorts them by many thousands at once.
    made = features.select(data.rows(), NUMBER, *data.of_rows.ours)
    single = [name for name, how in zip(features.names, kept, strict=True) if how.type == "float32"]
    query = made.with_columns(**{name: col(name).cast(nw.Float32) for name in single}).sort(NUMBER)
    stream: Any = query.batches(min(max(about, 1024), 65_536))
    with closing(stream):
        waiting: list[pa.RecordBatch] = []
        for first, last in pairwise(starts):
            bag = np.repeat(np.arange(first, last), rows[first:last])
            while sum(batch.num_rows for batch in waiting) < len(bag):
                if (batch := next(stream, None)) is None:
                    raise ValueError(CHANGED)
                waiting.append(batch)
            table = pa.Table.from_batches(waiting)
            block, waiting = table.slice(0, len(bag)).combine_chunks(), table.slice(len(bag)).to_batches()
            if not np.array_equal(block.column(NUMBER).to_numpy(), bag):
                raise ValueError(CHANGED)
            yield as_kept(features.matrix(block), bag, kept, list(data.of_rows.read(block).values()))
        if waiting or any(batch.num_rows for batch in stream):
            raise ValueError(CHANGED)


def _kept(data: BagTable, features: Features) -> list[Kept]:
    """How each column is kept, told by its least and greatest number."""
    rows = features.select(data.events)
    numbers = [name for name, made in zip(features.names, features.made, strict=True) if made.levels is None]
    ends = {f"{end}_{name}": getattr(col(name), end)() for name in numbers for end in ("min", "max")}
    found = rows.line(**ends) if ends else {}
    kept = []
    for name, made in zip(features.names, features.made, strict=True):
        low, high = (float(found.get(f"{end}_{name}") or 0) for end in ("min", "max"))
        levels = made.levels
        kept.append(Kept.number(made.name, low, high) if levels is None else Kept.code(made.name, len(levels)))
    return kept


# -- moments ----------------------------------------------------------------------------------------------------------


def fit_in_engine(data: BagTable, features: Features, model: Any) -> tuple[Features, Encoding]:
    """Fit a model that reads moments (see `data.Reads`) in the engine.

    features: whose means may be unknown.
    Returns them with means, and the encoding of their columns.
    """
    sums, totals, means = _bag_sums(data, features)
    features = features.with_means(means)
    encoding, origin, deviations = _encode(totals, features)
    parts, noise = _moments(sums, deviations, data, model.n_folds(data.summary.bags))
    model.fit_moments(parts, origin, noise=noise)
    _settle_sign(data, features, model, encoding)
    return features, encoding


def update_in_engine(
    data: BagTable, features: Features, model: Any, encoding: Encoding, forgetting: Forgetting
) -> None:
    """Update a model that was fitted in the engine, or to the same columns, by moments of further bags."""
    sums, totals, _ = _bag_sums(data, features)
    _, _, deviations = _encode(totals, features, (encoding, model.memory_.origin))
    parts, noise = _moments(sums, deviations, data, len(model.memory_.parts))
    model.update_moments(parts, noise=noise, forgetting=forgetting)
    _settle_sign(data, features, model, encoding)


def _settle_sign(data: BagTable, features: Features, model: Any, encoding: Encoding) -> None:
    """Let a regressor see some rows, where labels are never negative."""
    if hasattr(model, "settle_sign"):
        some = features.select(data.rows(data.bags_with(_LOOKED_AT))).fetch()
        model.settle_sign(encoding(features.matrix(some)), *data.reported[:3])


def _bag_sums(data: BagTable, features: Features) -> tuple[Table, dict[str, Any], dict[int, float]]:
    """Per usable bag: sums of numbers, how many are known, rows of each level; and the sums of these over all bags.

    And, by their number, the means of numbers that all events have, whether of usable bags or not.
    """
    columns = list(enumerate(zip(features.names, features.made, strict=True)))
    numbers = {number: name for number, (name, made) in columns if made.levels is None}
    levels = {(number, i): (name, one) for number, (name, made) in columns for i, one in enumerate(made.levels or ())}
    # To look for NaN in every number takes as long as to add them up: it is done only where a sum came out as none.
    for plain in (True, False):
        rows = features.select(data.events, *data.keys, plain=plain)
        gaps = set(features.names)
        if plain:
            known = rows.line(**{name: col(name).count() for name in features.names}, rows=length())
            gaps = {name for name in features.names if known[name] < known["rows"]}
        sums = {_LEVEL.format(*place): total(col(name) == level) for place, (name, level) in levels.items()}
        sums |= {_SUM.format(number): col(name).sum() for number, name in numbers.items()}
        sums |= {_KNOWN.format(number): col(name).count() for number, name in numbers.items() if name in gaps}
        with data.events.engine.grouping(len(sums), data.summary.reports):
            groups = rows.group_by(data.keys, sums).keep()
        bags = groups.join(data.bags, data.keys)
        added = {name: col(name).cast(nw.Float64).sum() for name in sums}
        totals = bags.line(**added, **{SIZE: col(SIZE).cast(nw.Float64).sum()})
        if all(_finite(totals[_SUM.format(number)]) for number in numbers):
            break
    of_all, every = groups.line(**added), known["rows"]
    whole = [number for number in numbers if of_all.get(_KNOWN.format(number), every) == every]
    found = {number: of_all[_SUM.format(number)] for number in whole}
    return bags, totals, {number: float(added) / every for number, added in found.items() if _finite(added)}


def _known(number: int, columns: Collection[str]) -> str:
    """The column that says how many rows of a bag know this number: where there are no gaps, all of them."""
    name = _KNOWN.format(number)
    return name if name in columns else SIZE


def _finite(added: float | None) -> bool:
    """Whether a sum is a number; some engines hand NaN over as null."""
    return added is not None and bool(np.isfinite(added))


def _encode(
    totals: Mapping[str, Any], features: Features, known: tuple[Encoding, Floats] | None = None
) -> tuple[Encoding, Floats, list[Expression]]:
    """The encoding of rows, the means of the encoded columns, and their bag sums less those of the means.

    known: an encoding of before, and the means of its columns.
    """
    rows, k = totals[SIZE], col(SIZE).cast(nw.Float64)
    low: list[float] = []
    missing: list[bool] = []
    encoded: list[tuple[float, Expression]] = []
    for number, made in enumerate(features.made):
        mean, gap = 0.0, False
        for i in range(len(made.levels or ())):
            share = totals[_LEVEL.format(number, i)] / rows if known is None else float(known[1][len(encoded)])
            encoded.append((share, col(_LEVEL.format(number, i)).cast(nw.Float64) - k * share))
        if made.levels is None:
            added, told = totals[_SUM.format(number)], totals[_known(number, totals)]
            if not _finite(added):
                raise ValueError(f"column {made.name!r} contains NaN or infinity: replace such values first.")
            mean, gap = added / max(told, 1), told < rows
            share = 1 - told / rows
            if known is not None:
                mean, gap = float(known[0].low[number]), bool(known[0].missing[number])
                share = float(known[1][len(encoded) + 1]) if gap else 0.0
            count = col(_known(number, totals)).cast(nw.Float64)
            # A constant column deviates by rounding only.
            deviation = col(_SUM.format(number)) - count * mean
            slack = 16 * np.finfo(float).eps * abs(mean)
            encoded.append((0.0, if_else(deviation.abs() <= count * slack, lit(0.0), deviation)))
            if gap:
                encoded.append((share, k * (1 - share) - count))
        low.append(mean)
        missing.append(gap)
    levels = tuple(None if made.levels is None else np.arange(float(len(made.levels))) for made in features.made)
    encoding = Encoding(np.array(low), np.ones(len(low)), np.zeros(len(low)), np.array(missing, dtype=bool), levels)
    return encoding, np.array([mean for mean, _ in encoded]), [deviation for _, deviation in encoded]


def _moments(sums: Table, deviations: Sequence[Expression], data: BagTable, folds: int) -> tuple[list[Moments], float]:
    """Moments of the folds of bags, and the mean over bags, as they count, of s²/k."""
    size, spread = col(SIZE).cast(nw.Float64), _label_variance(sums, data)
    table = sums.select(
        fold=col(NUMBER) % folds, k=size, noise=(col(NOISE) / size).fill_null(0.0),
        **{f"x{i}": deviation for i, deviation in enumerate(deviations)},
        **{f"y{i}": col(name) for i, name in enumerate(data.proportions)},
    )  # fmt: skip
    add_up = _moments_here if data.events.engine.here else _moments_there
    parts, noise = add_up(table, len(deviations), len(data.proportions), folds, spread)
    return parts, noise * len(data.proportions) / sum(part.bags for part in parts)


def _moments_here(table: Table, d: int, outputs: int, folds: int, spread: float) -> tuple[list[Moments], float]:
    """Moments of the folds of bags that stream by, and the sum over bags, as they count, of s²/k."""
    nothing = Moments.of(np.empty((0, d)), np.empty(0, dtype=int), np.empty((0, outputs)))
    parts, noise = [nothing] * folds, 0.0
    for batch in table.batches():
        fold, size, per_row, *columns = (column.to_numpy() for column in batch.columns)
        values, count = np.stack(columns, axis=1), worth(per_row, spread)
        noise += float(count @ per_row)
        for f in range(folds):
            one = fold == f
            parts[f] += Moments.of(values[one, :d], size[one], values[one, d:], count[one])
    return parts, noise


def _moments_there(table: Table, d: int, outputs: int, folds: int, spread: float) -> tuple[list[Moments], float]:
    """The same, added up by an engine that is elsewhere."""
    root, count = col("k").sqrt(), 1 / (1 + col("noise") / spread)  # as `linear.moments.worth`
    columns = [root, *(col(f"x{i}") / root for i in range(d)), *(col(f"y{i}") * root for i in range(outputs))]
    table = table.select("fold", "k", "noise", worth=count, **{f"z{i}": column for i, column in enumerate(columns)})
    pairs = list(combinations_with_replacement(range(len(columns)), 2))
    figures = {"bags": ("sum", "worth"), "rows": ("sum", "worth", "k"), "noise": ("sum", "worth", "noise")}
    figures |= {f"zz{i}_{j}": ("sum", "worth", f"z{i}", f"z{j}") for i, j in pairs}
    lines = table.aggregate(figures, by="fold").fetch().to_pylist()
    told = {line["fold"] for line in lines}  # of bags that came later there may be fewer than folds
    lines += [{**dict.fromkeys(figures, 0.0), "fold": fold} for fold in range(folds) if fold not in told]
    of_x, of_y, parts = slice(1, d + 1), slice(d + 1, None), []
    for line in sorted(lines, key=itemgetter("fold")):
        zz = np.empty((len(columns), len(columns)))
        for i, j in pairs:
            zz[i, j] = zz[j, i] = line[f"zz{i}_{j}"]
        products = {"xx": zz[of_x, of_x], "xy": zz[of_x, of_y], "yy": zz.diagonal()[of_y]}
        parts.append(Moments(float(line["bags"]), float(line["rows"]), zz[0, of_x], zz[0, of_y], **products))
    return parts, sum(float(line["noise"]) for line in lines)


def _label_variance(sums: Table, data: BagTable) -> float:
    """Variance of labels, p(1 − p); of values, as bags show it."""
    if data.target == "value":
        told = data.reported
        noise = np.zeros(len(told.size)) if told.noise is None else told.noise / told.size
        return told_variance(told.size, told.proportion[:, None], noise, labels=False)
    size = col(SIZE).cast(nw.Float64)
    found = sums.line(**{name: (col(name) * size).sum() for name in data.proportions}, rows=size.sum())
    mean = np.array([float(found[name]) for name in data.proportions]) / float(found["rows"])
    return label_variance(mean)
