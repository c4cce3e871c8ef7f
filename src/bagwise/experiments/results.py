"""Results of experiments on disk: tables, pages, figures, finished runs. Files are written whole or not at all."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.utils.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_table(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a table to Parquet, compressed well enough to be kept beside the code."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with replacing(path) as (temporary,):
        pq.write_table(table, temporary, compression="zstd", compression_level=19, use_dictionary=False)
    return Path(path)


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table written by `write_table`."""
    return pq.read_table(path).to_pandas()


def write_text(text: str, path: Path) -> None:
    """Write a text, such as a page of Markdown."""
    with replacing(path) as (temporary,):
        temporary.write_text(text, encoding="utf-8")


def write_chapter(text: str, path: Path) -> None:
    """Write a chapter of a page of Markdown, which begins with a line of one #, in place of the one of that title.

    Chapters of other titles stay as they are, in their order.
    """
    page = path.read_text(encoding="utf-8") if path.is_file() else ""
    chapters = {one.split("\n", 1)[0]: one for one in re.split(r"^(?=# )", page, flags=re.MULTILINE) if one}
    chapters[text.split("\n", 1)[0]] = text
    write_text("\n".join(one.rstrip("\n") + "\n" for one in chapters.values()), path)


def save_figure(figure: Figure, path: Path) -> Path:
    """Save a Matplotlib figure; the format follows the name."""
    with replacing(path) as (temporary,):
        figure.savefig(temporary, dpi=150)
    return path


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown.

    >>> print(markdown_table(["", "k = 8"], [["ridge", "0.85"]]))
    | | k = 8 |
    | --- | --- |
    | ridge | 0.85 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("|" + "".join(f" {cell} |" if cell else " |" for cell in line) for line in lines)


class Store:
    """Finished runs: all rows in the table at `path`, and until they are gathered there, in small files beside it.

    path: of the Parquet file; the small ones lie in a folder of the same name without an ending.
    versions: columns and the values that rows must have to count as results; rows with others stay where they are.

    A run is known by its key, which is the column `config_hash` of its rows. A small file holds the runs that were
    computed together and is named by their keys, so processes that share a folder, or compute the same runs twice,
    never write to the same place in different ways.

    >>> import tempfile
    >>> Store(Path(tempfile.mkdtemp()) / "adult.parquet").read().empty
    True
    """

    def __init__(self, path: str | Path, *, versions: Mapping[str, str] | None = None) -> None:
        self.path, self.versions = Path(path), dict(versions or {})
        self.parts = self.path.with_suffix("")

    def read(self) -> pd.DataFrame:
        """All rows; of a run that was computed again, the last ones."""
        paths = [*([self.path] if self.path.is_file() else []), *sorted(self.parts.glob("[!.]*.parquet"))]
        if not paths:
            return pd.DataFrame(columns=["config_hash", *self.versions])
        frame = pd.concat([read_table(path).assign(_file=place) for place, path in enumerate(paths)], ignore_index=True)
        last = frame.groupby(["config_hash", *self.versions], dropna=False)["_file"].transform("max")
        return frame[frame["_file"] == last].drop(columns="_file").reset_index(drop=True)

    def rows(self, keys: Iterable[str]) -> pd.DataFrame:
        """The rows of the runs with these keys, in their order."""
        frame, order = self._counting(self.read()), {key: place for place, key in enumerate(keys)}
        frame = frame[frame["config_hash"].isin(list(order))]
        return frame.sort_values("config_hash", key=lambda found: found.map(order), kind="stable", ignore_index=True)

    def finished(self) -> set[str]:
        """Keys of the runs that are stored and did not fail."""
        return self._sound(self.read())

    def holds(self, keys: Sequence[str]) -> bool:
        """Whether these runs were computed together before, and did not fail."""
        part = self._part(keys)
        return part.is_file() and set(keys) <= self._sound(read_table(part))

    def claim(self, keys: Sequence[str]) -> bool:
        """Tell other processes that these runs are under way; False if another has told so before.

        A process that was killed leaves its claims behind: a claim is a reason to begin with something else.
        """
        self.parts.mkdir(parents=True, exist_ok=True)
        try:
            self._part(keys, "claim").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def release(self, keys: Sequence[str]) -> None:
        """Take a claim back."""
        self._part(keys, "claim").unlink(missing_ok=True)

    def add(self, keys: Sequence[str], records: Sequence[Mapping[str, Any]]) -> None:
        """Store the rows of runs that were computed together."""
        write_table(pd.DataFrame(list(records)), self._part(keys))

    def gather(self) -> None:
        """Write all rows to the table at `path`. The small files stay: another process may be at work."""
        frame = self.read()
        if len(frame):
            write_table(frame, self.path)

    def _part(self, keys: Sequence[str], ending: str = "parquet") -> Path:
        name = hashlib.sha256(" ".join([*keys, *self.versions.values()]).encode()).hexdigest()[:16]
        return self.parts / f"{name}.{ending}"

    def _counting(self, frame: pd.DataFrame) -> pd.DataFrame:
        for name, value in self.versions.items():
            frame = frame[frame[name] == value]
        return frame

    def _sound(self, frame: pd.DataFrame) -> set[str]:
        frame = self._counting(frame)
        return set(frame.loc[frame["error"] == "", "config_hash"] if "error" in frame else frame["config_hash"])
