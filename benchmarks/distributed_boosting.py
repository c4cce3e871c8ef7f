"""Boosted trees by two processes against one, one thread each: 4,000,000 × 30 numbers in bags of 64.

Two processes must grow trees at least 1.6 × as fast as one. What the machine allows at most is measured, too: two
processes that each grow trees on half of the rows, at the same time, and exchange nothing. Seconds are of a tree after
the first ones, the median of all trees of runs of each kind in turn. Rows are read before, and settings chosen before
that, on a sample; what that takes is printed, as is the computing that a tree takes of each process, which says
less about waiting and more where the machine is busy with other things.

    python benchmarks/distributed_boosting.py [rows]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa

from bagwise.boosting import BagBoostingClassifier
from bagwise.data.rows import fit_codes
from bagwise.data.shard_writing import Kept, as_kept, write_blocks
from bagwise.data.shards import PROPORTION, SIZE, Shards
from bagwise.distributed import Distributed, joined
from history import record

ROWS, COLUMNS, BAG, BLOCKS = 4_000_000, 30, 64, 64
TREES, WARM, REPEATS = 30, 5, 2
SETTINGS = {"n_estimators": TREES, "n_fits": 1, "cv": 2, "random_state": 0, "n_jobs": 1}


def worker(folder: str) -> None:
    clocks = (time.perf_counter, time.process_time)
    times = [[clock() for clock in clocks]]
    model, shards = BagBoostingClassifier(**SETTINGS), Shards.open(folder)
    with joined() as processes:
        tell = lambda step, steps: times.append([clock() for clock in clocks])  # noqa: E731
        fit_codes(model, shards, distributed=Distributed(processes, tell=tell))
        times.append([clock() for clock in clocks])
        tree, computing = np.median(np.diff(times[1:-1], axis=0)[WARM:], axis=0)
        before, whole = times[1][0] - times[0][0], times[-1][0] - times[0][0]
        said = processes.collect({"tree": tree, "computing": computing, "before": before, "whole": whole})
        if processes.leads:
            print(json.dumps({part: max(float(one[part]) for one in said) for part in said[0]}))


def begin(folder: Path, processes: int) -> subprocess.Popen[str]:
    """So many processes that grow trees together."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.Popen(
        [sys.executable, *launcher, __file__, str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def figures(started: subprocess.Popen[str]) -> dict[str, float]:
    """What they measured."""
    printed, errors = started.communicate()
    if started.returncode:
        raise RuntimeError(errors)
    return json.loads(printed.splitlines()[-1])


def write(folder: Path, rows: int) -> Path:
    """Shards of so many rows, in random bags, block by block."""
    rng, n_bags = np.random.default_rng(0), rows // BAG
    kept = {f"f{column}": Kept.number(f"f{column}", -6.0, 6.0) for column in range(COLUMNS)}
    starts = np.linspace(0, n_bags, BLOCKS + 1).astype(np.int64)
    proportions, blocks = [], []
    for n in (BAG * np.diff(starts)).tolist():
        X = rng.normal(size=(n, COLUMNS)).astype(np.float32)
        y = rng.random(n) < 1 / (1 + np.exp(1 - X[:, 0] * X[:, 1] - X[:, 2]))
        bag = np.repeat(np.arange(n // BAG), BAG)
        proportions.append(np.bincount(bag, y) / BAG)
        blocks.append(as_kept(X, bag, list(kept.values())))
    reports = pa.table({SIZE: np.full(n_bags, BAG), PROPORTION: np.concatenate(proportions)})
    folder.mkdir()
    told = {"kept": kept, "reports": reports, "shard_rows": rows // 4, "classes": None, "noised": False}
    write_blocks(folder, iter(blocks), starts, **told)
    return folder


def main(rows: int) -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        whole, half = (write(Path(name) / str(part), rows // part) for part in (1, 2))
        runs: list[dict[str, float]] = []
        for _ in range(REPEATS):
            one, two = (figures(begin(whole, processes)) for processes in (1, 2))
            apart = [figures(started) for started in [begin(half, 1) for _ in range(2)]]
            runs.append({"apart": max(each["tree"] for each in apart)})
            for kind, found in (("one", one), ("two", two)):
                runs[-1] |= {f"{kind} {part}": value for part, value in found.items()}
    middle = {kind: float(np.median([run[kind] for run in runs])) for kind in runs[0]}
    one, two, apart = middle["one tree"], middle["two tree"], middle["apart"]
    print(f"{rows:,} × {COLUMNS} in bags of {BAG}, one thread per process, seconds of a tree: one process {one:.3f},")
    print(f"  two {two:.3f} ({one / two:.2f} ×, at least 1.6), two apart {apart:.3f} ({one / apart:.2f} ×)")
    for kind in ("one", "two"):
        computing, before, whole = (middle[f"{kind} {part}"] for part in ("computing", "before", "whole"))
        print(f"  {kind}: {computing:.3f} s of computing, {before:.1f} s before the first tree, {whole:.1f} s in all")
    record("distributed_boosting", "trees by two processes to one", one / two, at_least=1.6)


if __name__ == "__main__":
    if "TORCHELASTIC_RUN_ID" in os.environ:
        worker(sys.argv[1])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
