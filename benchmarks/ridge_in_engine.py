"""Ridge inside DuckDB against merely adding up the same columns: 11,000,000 rows × 28 columns in scattered bags.

The table has the shape of Higgs: numbers of single precision in columns of doubles, as pandas reads and writes them.
Both sides read the Parquet file with two threads; seconds are of computing, since the machine may be shared. The fit
includes the join with the reports, its checks and the cross-validated choice of the penalty. At most 2.0 × the sums,
under 2 GB. The sums of small bags, which are many, do not fit into the processor's cache, and how long the plain sums
take depends on how a file is compressed: so there are three sizes of bags, and a file of numbers with all digits at
random, which nothing compresses, as DuckDB writes it for itself. What DuckDB takes to group the same sums by bag, and
for nothing else, is measured beside them: no fit takes less.

Other ways to sums of 172,000 bags with all digits took longer than that, 2.0 × the sums (5,500,000 rows, computing): by
hashes 3.0 ×, of 14 or of 7 columns at a time 2.4 and 2.6 ×, of halves or quarters of the bags 3.1 and 4.9 ×; rows as
Arrow are 1.7 × before anything is added up, 3.3 × with it. One thread takes 1.9 ×, but of the clock twice as long.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise import tables
from history import record

ROWS, COLUMNS, SIZES = 11_000_000, 28, (64, 256, 512)
REPEATS = 4
PIECE = 1_000_000


def generate(folder: Path, rows: int, size_of_bag: int) -> tuple[str, str]:
    """Events without labels, and reports of bags whose rows are scattered over the file."""
    rng = np.random.default_rng(0)
    bags, writer = rows // size_of_bag, None
    size, count = np.zeros(bags, dtype=int), np.zeros(bags, dtype=int)
    events, reports = str(folder / "events.parquet"), str(folder / "reports.parquet")
    for start in range(0, rows, PIECE):
        n = min(PIECE, rows - start)
        bag = rng.integers(0, bags, n, dtype=np.int32)
        X = rng.random((COLUMNS, n), dtype=np.float32)
        y = rng.random(n) < (X[0] + X[1]) / 2
        size += np.bincount(bag, minlength=bags)
        count += np.bincount(bag, weights=y, minlength=bags).astype(int)
        piece = pa.table({"bag": bag, **{f"x{i}": column.astype(float) for i, column in enumerate(X)}})
        writer = writer or pq.ParquetWriter(events, piece.schema)
        writer.write_table(piece)
    writer.close()
    found = size > 0
    lines = {"bag": np.arange(bags, dtype=np.int32)[found], "size": size[found], "count": count[found]}
    pq.write_table(pa.table(lines), reports)
    return events, reports


def incompressible(events: str, folder: Path) -> str:
    """The same table with all digits at random."""
    duck, path = duckdb.connect(config={"memory_limit": "1GB"}), str(folder / "digits.parquet")
    columns = ", ".join(f"x{i} + 1e-9 * random() AS x{i}" for i in range(COLUMNS))
    duck.execute(f"COPY (SELECT bag, {columns} FROM '{events}') TO '{path}'")
    return path


class Clock:
    """The least of several runs: seconds of computing, of all threads, and seconds that passed."""

    def __init__(self) -> None:
        self.computing, self.passed = np.inf, np.inf

    def __enter__(self) -> None:
        self._began = time.process_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        computing, passed = self._began
        self.computing = min(self.computing, time.process_time() - computing)
        self.passed = min(self.passed, time.perf_counter() - passed)


def add_up(events: str) -> None:
    duck = duckdb.connect(config={"threads": 2})
    sums = ", ".join(f"sum(x{i})" for i in range(COLUMNS))
    duck.execute(f"SELECT {sums} FROM '{events}'").fetchall()


def group(events: str) -> None:
    """The sums of each bag, by the quicker of DuckDB's ways: places in an array, not hashes."""
    duck = duckdb.connect(config={"threads": 2, "memory_limit": "1500MB", "perfect_ht_threshold": 18})
    duck.execute("SET preserve_insertion_order = false")
    sums = ", ".join(f"sum(x{i}) AS s{i}" for i in range(COLUMNS))
    duck.execute(f"CREATE TEMP TABLE sums AS SELECT bag, {sums} FROM '{events}' GROUP BY bag")


def fit(events: str, reports: str) -> tables.TableModel:
    connection = tables.connect(threads=2, memory="1500MB")
    return tables.fit(tables.join(events, reports, connection=connection), "ridge")


def compare(what: str, events: str, reports: str) -> None:
    sums, groups, fits = Clock(), Clock(), Clock()
    for _ in range(REPEATS):
        with sums:
            add_up(events)
        with groups:
            group(events)
        with fits:
            model = fit(events, reports)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    coef, ratio, least = model.estimator.coef_, fits.computing / sums.computing, groups.computing / sums.computing
    print(
        f"{what}: sums {sums.computing:.2f} s of computing, by bag {least:.2f} ×, fit {ratio:.2f} × (by the clock "
        f"{sums.passed:.2f} s, {groups.passed / sums.passed:.2f} ×, {fits.passed / sums.passed:.2f} ×); most memory "
        f"{peak:.2f} GB; coefficients of x0, x1 {coef[0]:.3f}, {coef[1]:.3f} (truth ½), of the others at most "
        f"{abs(coef[2:]).max():.3f}",
        flush=True,
    )
    record("ridge_in_engine", f"{what}, to column sums", ratio, at_most=2.0)
    record("ridge_in_engine", f"{what}, sums by bag alone to column sums", least)


def main(rows: int) -> None:
    print(f"{rows:,} rows × {COLUMNS} columns (at most 2.0 × the sums, memory at most 2 GB)")
    for size in SIZES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            events, reports = generate(folder, rows, size)
            compare(f"bags of about {size}, single precision", events, reports)
            compare(f"bags of about {size}, all digits", incompressible(events, folder), reports)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
