"""Results on disk: whole files or none, however the program ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from bagwise.utils.files import replacing


def write_table(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a table to Parquet, compressed well enough to be kept beside the code."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with replacing(path) as (temporary,):
        pq.write_table(table, temporary, compression="zstd", compression_level=19, use_dictionary=False)
    return Path(path)


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table written by `write_table`."""
    return pq.read_table(path).to_pandas()


def save_figure(figure: Figure, path: str | Path, **options: Any) -> Path:
    """Save a Matplotlib figure; the format follows the name."""
    with replacing(path) as (temporary,):
        figure.savefig(temporary, **{"dpi": 150, **options})
    return Path(path)
