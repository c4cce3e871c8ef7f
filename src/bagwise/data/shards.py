"""Bags on disk: rows in files of whole bags, which are read a block at a time however many there are.

A folder of shards holds `shard-00000.parquet`, …, with the made columns `f0`, `f1`, … (see `tables.columns`) of rows
in bag order, numbers as they are and categories as codes, −1 for what is missing; `bags.parquet`, what each bag
reported; and `shards.json`, which says what is where. A row group of a file is a *block*: some whole bags. Bags stand
in the order of their numbers, which is as good as random, so any few blocks are a random sample of the bags.
Rows of a bag are put in an order that their numbers alone determine, so the same rows give the same shards, in whatever
order they come.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.bags import Bags
from bagwise.bags.intervals import Intervals
from bagwise.data.features import Encoding
from bagwise.data.rows import BagRows, checksum, row_starts, subset
from bagwise.utils.typing import Floats, Integers, NDArray

FORMAT = 1
_SHARD = re.compile(r"shard-[0-9]{1,9}\.parquet")
INDEX, REPORTS = "shards.json", "bags.parquet"

SIZE, PROPORTION, NOISE = "bag_size", "bag_proportion", "bag_noise_variance"
"""Columns of bags; with classes, the proportions are `bag_proportion_0`, …"""

ROWS = "bag_rows"
"""Of bags whose rows have weights: how many there are; the size is then that of people."""

WEIGHT, OFFSET = "bagwise_weight", "bagwise_offset"
"""Columns of rows beside the made ones, where rows have weights or an offset."""

LOW, HIGH, DECLARED = "bag_low", "bag_high", "bag_declared_noise"
"""Where some counts are not known: between which numbers they lie, null where all of the bag are; and the noise added.

With classes, the ends are `bag_low_0`, …"""


@dataclass(frozen=True)
class Stored:
    """A made column on disk, and what all its rows are like.

    type: of the numbers on disk.  known: rows that are not missing.  low, high, mean: of these.
    levels: of a category, the codes that occur; None for a number.
    """

    name: str
    type: str
    known: int
    low: float
    high: float
    mean: float
    levels: Sequence[int] | None


@dataclass(frozen=True)
class File:
    """A shard.  bytes: its size.  bags: how many each of its blocks holds."""

    name: str
    bytes: int
    bags: Sequence[int]


@dataclass(eq=False, repr=False)
class Shards(BagRows):
    """Bags on disk. `Shards.open` opens a folder of them, `write_shards` makes one.

    Parameters
    ----------
    folder : Path
        Where they are.
    columns, files : tuple
        What is stored, and in which files.
    size, proportion, noise_variance, codes_to_numbers : array, array, array or None, Encoding or None
        As in `BagRows`.
    interval, weight, offset : Intervals, array and array, or None
        As in `BagRows`.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.tables import join
    >>> from bagwise.tables.columns import Features
    >>> from bagwise.tables.gather import write_shards
    >>> events = {"bag": ["a", "b", "a", "b"], "age": [31, 42, 53, 64]}
    >>> data = join(events, {"bag": ["b", "a"], "count": [1, 0]})
    >>> features = Features.of(data.events, data.features)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = write_shards(data, features, folder + "/shards", group_rows=2)
    ...     [sorted(shards.block(number)[:, 0].tolist()) for number in range(len(shards))]
    [[31.0, 53.0], [42.0, 64.0]]
    >>> shards.bags.proportion
    array([0. , 0.5])
    """

    folder: Path
    columns: tuple[Stored, ...]
    files: tuple[File, ...]
    size: Integers
    rows: Integers
    proportion: Floats
    noise_variance: Floats | None
    codes_to_numbers: Encoding | None = None
    interval: Intervals | None = None
    weight: Floats | None = None
    offset: Floats | None = None

    def __post_init__(self) -> None:
        self.starts = np.concatenate([[0], np.cumsum([n for file in self.files for n in file.bags])]).astype(np.int64)
        self.n_rows, self.n_columns = int(self.rows.sum()), len(self.columns)
        codes = [number for number, column in enumerate(self.columns) if column.levels is not None]
        self.categorical = codes if self.codes_to_numbers is None else []
        self._places = [(file.name, group) for file in self.files for group in range(len(file.bags))]
        self._rows = np.diff(row_starts(self))

    @classmethod
    def open(cls, folder: str | Path) -> Shards:
        """The shards in a folder; rows are not read yet."""
        place = Path(folder)
        index = _read_index(place)
        columns, files = _described(place / INDEX, index)
        for name, expected in ((REPORTS, index["reports_bytes"]), *((file.name, file.bytes) for file in files)):
            with _reading(place / name):
                found = (place / name).stat().st_size
            if found != expected:
                raise ValueError(f"{place / name} is damaged ({found} bytes, not {expected}): gather the bags again.")
        with _reading(place / REPORTS):
            reports = pq.read_table(place / REPORTS, page_checksum_verification=True)
        if (index["classes"] or 0) > len(reports.column_names):
            raise ValueError(f"{place / REPORTS} does not have the classes of {INDEX}: gather the bags again.")
        interval = interval_of(reports)
        noised = index["noised"] or interval is not None
        size, rows, proportion, noise = read_reports(reports, classes=index["classes"], noised=noised)
        if not len(rows) == index["bags"] == sum(sum(file.bags) for file in files) or rows.sum() != index["rows"]:
            raise ValueError(f"{place / REPORTS} does not fit the shards: gather the bags again.")
        weight, offset = (_of_rows(place, files, one) if one in index["of_rows"] else None for one in (WEIGHT, OFFSET))
        told: dict[str, Any] = {"interval": interval, "weight": weight, "offset": offset}
        return cls(place, columns, files, size, rows, proportion, noise, **told)

    @property
    def fingerprint(self) -> str:
        """A checksum of the index and of what bags reported: shards of other bags have another one."""
        return checksum(self, (self.folder / INDEX).read_bytes())

    def block(self, number: int) -> Floats:
        """(rows, columns) numbers and codes of one block, bag after bag; NaN for what is missing."""
        file, group = self._places[number]
        path = self.folder / file
        with _reading(path), pq.ParquetFile(path, page_checksum_verification=True) as opened:
            names = [name for name in opened.schema_arrow.names if name not in (WEIGHT, OFFSET)]
            table = opened.read_row_group(group, columns=names, use_threads=False)
        if table.num_rows != self._rows[number] or table.num_columns != len(self.columns):
            raise ValueError(f"{path} does not fit the other shards: gather the bags again.")
        return matrix_of([column.to_numpy() for column in table.columns])

    @property
    def bags(self) -> Bags:
        """All bags, as those of a table of all rows in the order of blocks; made anew, with 8 or 12 bytes per row."""
        return subset(self, np.arange(len(self.size)), coded=True)

    def encoding(self) -> Encoding:
        """The encoding of the columns: that of all rows (see `features.Encoding`)."""
        low, high, mean = np.array([(one.low, one.high, one.mean) for one in self.columns]).reshape(-1, 3).T
        gaps = np.array([one.known < self.n_rows for one in self.columns], dtype=bool)
        levels = tuple(None if one.levels is None else np.array(one.levels, dtype=float) for one in self.columns)
        return Encoding.scaled(low, high, mean, gaps, levels)

    def encoded(self, encoding: Encoding) -> Shards:
        """The same bags for a model that reads numbers; rows are encoded as they are read."""
        return replace(self, codes_to_numbers=encoding)


def matrix_of(columns: Sequence[NDArray[Any]], into: Floats | None = None) -> Floats:
    """(rows, columns) of columns as they are kept: codes are whole numbers, −1 where missing, which becomes NaN.

    into: a matrix to be filled.
    """
    if into is None:
        into = np.empty((len(columns[0]), len(columns)), dtype=precision_of(column.dtype for column in columns))
    for place, values in enumerate(columns):
        into[:, place] = np.where(values < 0, np.nan, values) if values.dtype.kind == "i" else values
    return into


def precision_of(types: Iterable[np.dtype[Any] | str]) -> np.dtype[Any]:
    """Of numbers and codes in one matrix: single, unless a column needs more."""
    return np.dtype(np.float64 if any(np.dtype(type_) == np.float64 for type_ in types) else np.float32)


def read_reports(
    table: pa.Table, *, classes: int | None, noised: bool
) -> tuple[Integers, Integers, Floats, Floats | None]:
    """Sizes and rows (m,), proportions (m,) or (m, classes) and noise variances (m,) of a table of bags."""
    names = proportion_columns(None if classes is None else [""] * classes)
    proportion = np.stack([table.column(name).to_numpy() for name in names], axis=1)
    noise = table.column(NOISE).to_numpy() if noised else None
    size, rows = table.column(SIZE).to_numpy(), table.column(rows_column(table)).to_numpy().astype(np.int64)
    size = size if ROWS in table.column_names else rows
    return size, rows, proportion[:, 0] if classes is None else proportion, noise


def rows_column(table: pa.Table) -> str:
    """The column of a table of bags that says how many rows each has."""
    return ROWS if ROWS in table.column_names else SIZE


def _of_rows(folder: Path, files: Sequence[File], name: str) -> Floats:
    """A column of weights or offsets, of all rows, in the order of blocks."""
    parts = []
    for file in files:
        with _reading(folder / file.name):
            table = pq.read_table(folder / file.name, columns=[name], page_checksum_verification=True)
        parts.append(table.column(name).to_numpy())
    return np.concatenate(parts)


def interval_of(reports: pa.Table) -> Intervals | None:
    """Between which numbers the counts of a table of bags lie, where some are not known; None where all are."""
    if DECLARED not in reports.column_names:
        return None
    several = PROPORTION not in reports.column_names
    classes = [""] * sum(name.startswith(f"{LOW}_") for name in reports.column_names) if several else None
    size = reports.column(SIZE).to_numpy()
    noise = np.nan_to_num(_numbers(reports, DECLARED))
    each = [
        [_numbers(reports, name) for name in names] for names in (proportion_columns(classes), *end_columns(classes))
    ]
    proportion, low, high = (np.stack(columns, axis=1) for columns in each)
    known, count = np.isnan(low), size[:, None] * proportion
    count = np.where((noise == 0)[:, None], np.rint(count), count)
    low, high = np.where(known, count, low), np.where(known, count, high)
    return Intervals(low, high, noise) if several else Intervals(low[:, 0], high[:, 0], noise)


def _numbers(table: pa.Table, name: str) -> Floats:
    """A column, null as NaN."""
    return np.asarray(table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False))


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is no folder of shards, it has no {INDEX}: gather the bags first.")
    try:
        index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = index["format"]
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{path} is damaged: gather the bags again.") from None
    if version != FORMAT:
        raise ValueError(f"{path} is of format {version!r}, this version reads {FORMAT}: gather the bags again.")
    if index.pop("sha256", None) != digest(index):
        raise ValueError(f"{path} was changed or damaged after it was written: gather the bags again.")
    return {"of_rows": []} | index


def _described(path: Path, index: dict[str, Any]) -> tuple[tuple[Stored, ...], tuple[File, ...]]:
    """Columns and files of an index, if files are called as shards are, and numbers are numbers."""
    try:
        columns = tuple(Stored(**each) for each in index["columns"])
        files = tuple(File(**each) for each in index["files"])
        counts = [index["bags"], index["rows"], index["reports_bytes"], *(one.bytes for one in files)]
        counts += [n for one in files for n in one.bags] + [one.known for one in columns]
        counts += [] if index["classes"] is None else [index["classes"]]
        sound = all(type(count) is int and 0 <= count < 2**63 for count in counts)
        sound = sound and all(_SHARD.fullmatch(one.name) for one in files) and bool(np.isfinite(_ends(columns)).all())
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise ValueError(f"{path} does not describe shards: gather the bags again.")
    return columns, files


def _ends(columns: Sequence[Stored]) -> Floats:
    """(columns, 3) least, greatest and mean number of each column, 0 where none is known."""
    of = [(one.low, one.high, one.mean) if one.known else (0.0, 0.0, 0.0) for one in columns]
    return np.array(of, dtype=float).reshape(-1, 3)


def digest(index: dict[str, Any]) -> str:
    """A checksum of the index: what it says of the columns shapes what is learned, and is checked nowhere else."""
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Read a file, or say in one sentence what is wrong with it."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing: gather the bags again.") from None
    except (OSError, IndexError, pa.ArrowException) as error:
        line = (str(error).strip().splitlines() or ["unreadable"])[0]
        raise ValueError(f"{path} is damaged ({line}): gather the bags again.") from error


def proportion_columns(classes: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the columns of proportions."""
    return of_classes(PROPORTION, classes)


def end_columns(classes: Sequence[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the columns of ends, of the least and of the greatest counts."""
    return of_classes(LOW, classes), of_classes(HIGH, classes)


def of_classes(name: str, classes: Sequence[str] | None) -> tuple[str, ...]:
    """Names of a column for each class; the name alone without classes.

    >>> of_classes("bag_low", None), of_classes("bag_low", ["no", "yes"])
    (('bag_low',), ('bag_low_0', 'bag_low_1'))
    """
    return (name,) if classes is None else tuple(f"{name}_{number}" for number in range(len(classes)))
