"""Bags on disk: rows in files of whole bags, which are read a block at a time however many there are.

A folder of shards holds `shard-00000.parquet`, …, with the made columns `f0`, `f1`, … (see `tables.columns`) of rows
in bag order, numbers as they are and categories as codes, −1 for what is missing; `bags.parquet`, what each bag
reported; and `shards.json`, which says what is where. A row group of a file is a *block*: some whole bags. Bags stand
in the order of their numbers, which is as good as random, so any few blocks are a random sample of the bags.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.data.features import Encoding
from bagwise.data.rows import BagRows, checksum, row_starts, subset
from bagwise.utils.typing import Floats, Integers

FORMAT = 1
INDEX, REPORTS = "shards.json", "bags.parquet"

SIZE, PROPORTION, NOISE = "bag_size", "bag_proportion", "bag_noise_variance"
"""Columns of bags; with classes, the proportions are `bag_proportion_0`, …"""


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
    levels: tuple[int, ...] | None


@dataclass(frozen=True)
class File:
    """A shard.  bytes: its size.  bags: how many each of its blocks holds."""

    name: str
    bytes: int
    bags: tuple[int, ...]


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

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.tables import join
    >>> from bagwise.tables.columns import Features
    >>> from bagwise.tables.gather import write_shards
    >>> events = {"bag": ["a", "b", "a", "b"], "age": [31, 42, 53, 64]}
    >>> data = join(events, {"bag": ["b", "a"], "count": [1, 0]})
    >>> features = Features.of(data.events, data.features, data.connection)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = write_shards(data, features, folder + "/shards", group_rows=2)
    ...     [sorted(shards.block(number)[:, 0].tolist()) for number in range(len(shards))]
    [[31.0, 53.0], [42.0, 64.0]]
    >>> shards.bags.proportion
    array([0. , 0.5])
    """

    def __init__(
        self,
        folder: Path,
        columns: tuple[Stored, ...],
        files: tuple[File, ...],
        size: Integers,
        proportion: Floats,
        noise_variance: Floats | None,
        codes_to_numbers: Encoding | None = None,
    ) -> None:
        self.folder, self.columns, self.files, self.codes_to_numbers = folder, columns, files, codes_to_numbers
        self.size, self.proportion, self.noise_variance = size, proportion, noise_variance
        self.starts = np.concatenate([[0], np.cumsum([n for file in files for n in file.bags])]).astype(np.int64)
        self.n_rows, self.n_columns = int(size.sum()), len(columns)
        codes = [number for number, column in enumerate(columns) if column.levels is not None]
        self.categorical = codes if codes_to_numbers is None else []
        self._places = [(file.name, group) for file in files for group in range(len(file.bags))]
        self._rows = np.diff(row_starts(self))

    @classmethod
    def open(cls, folder: str | Path) -> Shards:
        """The shards in a folder; rows are not read yet."""
        place = Path(folder)
        index = _read_index(place)
        columns = tuple(Stored(**{**each, "levels": _tuple(each["levels"])}) for each in index["columns"])
        files = tuple(File(each["name"], each["bytes"], tuple(each["bags"])) for each in index["files"])
        classes, noised, n_bags, n_rows = (index[name] for name in ("classes", "noised", "bags", "rows"))
        for name, bytes_ in ((REPORTS, index["reports_bytes"]), *((file.name, file.bytes) for file in files)):
            _check_file(place / name, bytes_)
        reports = _damaged(place / REPORTS, lambda: pq.read_table(place / REPORTS, page_checksum_verification=True))
        size, proportion, noise = read_reports(reports, classes=classes, noised=noised)
        if not len(size) == n_bags == sum(sum(file.bags) for file in files) or size.sum() != n_rows:
            raise ValueError(f"{place / REPORTS} does not fit the shards: gather the bags again.")
        return cls(place, columns, files, size, proportion, noise)

    @property
    def fingerprint(self) -> str:
        """A checksum of the index and of what bags reported: shards of other bags have another one."""
        return checksum(self, (self.folder / INDEX).read_bytes())

    def block(self, number: int) -> Floats:
        """(rows, columns) numbers and codes of one block, bag after bag; NaN for what is missing."""
        file, group = self._places[number]
        path = self.folder / file
        table = _damaged(path, lambda: _read_group(path, group))
        if table.num_rows != self._rows[number] or table.num_columns != len(self.columns):
            raise ValueError(f"{path} does not fit the other shards: gather the bags again.")
        return matrix_of([column.to_numpy() for column in table.columns])

    @property
    def bags(self) -> Bags:
        """All bags, as those of a table of all rows in the order of blocks; made anew, with 8 or 12 bytes per row."""
        return subset(self, np.arange(len(self.size)), coded=True)

    def encoding(self) -> Encoding:
        """The encoding of the columns: that of all rows (see `features.Encoding`)."""
        rows, numbers = self.n_rows, [column.levels is None for column in self.columns]
        low, high, mean = (np.array([getattr(column, name) for column in self.columns]) for name in _STATISTICS)
        span = np.where(high > low, high - low, 1.0)
        missing = np.array([column.known < rows for column in self.columns]) & numbers
        levels = tuple(None if each.levels is None else np.array(each.levels, dtype=float) for each in self.columns)
        return Encoding(low, span, (mean - low) / span, missing, levels)

    def encoded(self, encoding: Encoding) -> Shards:
        """The same bags for a model that reads numbers; rows are encoded as they are read."""
        parts = (self.folder, self.columns, self.files, self.size, self.proportion, self.noise_variance)
        return Shards(*parts, encoding)


_STATISTICS = ("low", "high", "mean")


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


def read_reports(table: pa.Table, *, classes: int | None, noised: bool) -> tuple[Integers, Floats, Floats | None]:
    """Sizes (m,), proportions (m,) or (m, classes) and noise variances (m,) of a table of bags."""
    names = proportion_columns(None if classes is None else [""] * classes)
    proportion = np.stack([table.column(name).to_numpy() for name in names], axis=1)
    noise = table.column(NOISE).to_numpy() if noised else None
    return table.column(SIZE).to_numpy().astype(np.int64), proportion[:, 0] if classes is None else proportion, noise


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
    return index


def digest(index: dict[str, Any]) -> str:
    """A checksum of the index: what it says of the columns shapes what is learned, and is checked nowhere else."""
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def _check_file(path: Path, bytes_: int) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: gather the bags again.")
    if path.stat().st_size != bytes_:
        raise ValueError(f"{path} is damaged ({path.stat().st_size} bytes, not {bytes_}): gather the bags again.")


def _read_group(path: Path, group: int) -> pa.Table:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read_row_group(group, use_threads=False)


def _damaged(path: Path, read: Any) -> pa.Table:
    """What is read, or one sentence about the file."""
    try:
        return read()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing: gather the bags again.") from None
    except (OSError, IndexError, pa.ArrowException) as error:
        line = (str(error).strip().splitlines() or ["unreadable"])[0]
        raise ValueError(f"{path} is damaged ({line}): gather the bags again.") from error


def _tuple(values: Any) -> Any:
    return None if values is None else tuple(values)


def proportion_columns(classes: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the columns of proportions."""
    return (PROPORTION,) if classes is None else tuple(f"{PROPORTION}_{number}" for number in range(len(classes)))
