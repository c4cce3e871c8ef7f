"""Results on disk: whole files or none, however the program ends."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary file in the folder of `path` that takes its place if the block succeeds and vanishes if not."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}-{uuid.uuid4().hex}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_table(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a table to Parquet."""
    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), temporary)
    return Path(path)


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table written by `write_table`."""
    return pq.read_table(path).to_pandas()


def save_figure(figure: Figure, path: str | Path, **options: Any) -> Path:
    """Save a Matplotlib figure; the format follows the name."""
    with replacing(path) as temporary:
        figure.savefig(temporary, **{"dpi": 150, **options})
    return Path(path)
