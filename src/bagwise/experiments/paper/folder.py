"""Finished runs on disk: small Parquet files, each written whole; together they are one table.

A file holds the runs that were computed together and is named by their hashes, so processes that share a folder, or
compute the same runs twice, never write to the same place in different ways.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bagwise.experiments.paper.plan import Run
from bagwise.experiments.store import read_table, write_table


class Folder:
    """The runs of one data set: small files in `<folder>/<dataset>/`, all rows in `<folder>/<dataset>.parquet`.

    >>> import tempfile
    >>> Folder(tempfile.mkdtemp(), "adult").read().empty
    True
    """

    def __init__(self, folder: str | Path, dataset: str) -> None:
        self.gathered = Path(folder) / f"{dataset}.parquet"
        self.parts = Path(folder) / dataset

    def read(self) -> pd.DataFrame:
        """All finished runs, one row each."""
        paths = [*([self.gathered] if self.gathered.is_file() else []), *sorted(self.parts.glob("[!.]*.parquet"))]
        frames = [read_table(path) for path in paths]
        if not frames:
            return pd.DataFrame(columns=["key"])
        return pd.concat(frames, ignore_index=True).drop_duplicates("key", keep="last", ignore_index=True)

    def _part(self, runs: Sequence[Run]) -> Path:
        name = hashlib.sha256(" ".join(run.key for run in runs).encode()).hexdigest()[:16]
        return self.parts / f"{name}.parquet"

    def holds(self, runs: Sequence[Run]) -> bool:
        """Whether these runs were computed together before."""
        return self._part(runs).is_file()

    def claim(self, runs: Sequence[Run]) -> bool:
        """Tell other processes that these runs are under way; False if another has told so before.

        A process that was killed leaves its claims behind: a claim is a reason to begin with something else.
        """
        self.parts.mkdir(parents=True, exist_ok=True)
        try:
            self._part(runs).with_suffix(".claim").open("x").close()
        except FileExistsError:
            return False
        return True

    def add(self, runs: Sequence[Run], records: Sequence[dict[str, Any]]) -> None:
        """Store runs that were computed together."""
        part = self._part(runs)
        write_table(pd.DataFrame(list(records)), part)
        part.with_suffix(".claim").unlink(missing_ok=True)

    def gather(self) -> pd.DataFrame:
        """Write all finished runs to one file as well. The small files stay: another process may be at work."""
        frame = self.read()
        if len(frame):
            write_table(frame, self.gathered)
        return frame
