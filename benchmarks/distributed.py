"""A network by two processes against one, and from Parquet shards against memory: the Higgs network, one thread each.

Two processes must reach 1.6 × the rows per second of one, 1.3 × where batches are small, and shards 0.9 × those of
memory. Processes exchange the same bytes in every step, however many rows it has, so there are two sizes of batches.
What the machine allows at most is measured, too: two processes that train a network each, at the same time, and
exchange nothing. Rates are of the steps after the first ones, the best of several runs of each kind in turn. What else
the machine does takes from them, and from two processes, who wait for each other, most: so those of the quickest
quarter of steps are compared, too.

`--out docs/results/scaling.json` keeps the figures, from which `python benchmarks/scaling.py` writes docs/scaling.md.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from bagwise.data.shards import Shards
from bagwise.distributed import Distributed, joined
from bagwise.means import prior
from bagwise.neural import BagNeuralClassifier, mlp
from bagwise.neural.batches import BagTensors
from bagwise.neural.training import Objective, Training
from bagwise.tables import join
from bagwise.tables.fitting import features_of
from bagwise.tables.gather import write_shards
from bagwise.utils.files import replacing
from history import record

ROWS, COLUMNS, BAG, BATCHES = 400_000, 28, 64, {1024: 1.3, 8192: 1.6}  # and what two processes must reach
HIDDEN = (300, 300, 300, 300)
N_WEIGHTS = sum((wide + 1) * narrow for wide, narrow in pairwise((COLUMNS, *HIDDEN, 1)))
WARM, REPEATS = 10, 5
SETTINGS = {
    "hidden": HIDDEN,
    "learning_rate": 1e-3,
    "max_epochs": 1,
    "early_stopping": False,
    "random_state": 0,
}


class Clock:
    """Rows per second after the first steps."""

    def __init__(self, batch: int) -> None:
        self.batch, self.times = batch, list[float]()

    def __call__(self, step: int, steps: int) -> None:
        self.times.append(time.perf_counter())

    @property
    def rate(self) -> float:
        return (len(self.times) - WARM) * self.batch / (self.times[-1] - self.times[WARM - 1])

    @property
    def quick(self) -> float:
        """Of the quickest quarter of steps, the slowest."""
        return self.batch / float(np.quantile(np.diff(self.times[WARM - 1 :]), 0.25))


def worker(folder: str, batch: int) -> None:
    torch.set_num_threads(1)
    clock, model = Clock(batch), BagNeuralClassifier(**SETTINGS, batch_rows=batch)
    shards = Shards.open(folder)
    with joined() as processes:
        model.fit_rows(shards.encoded(shards.encoding()), distributed=Distributed(processes, tell=clock))
        exchanged = {"sums": _exchange(batch // BAG), "weights": _exchange(N_WEIGHTS)} if processes.world > 1 else {}
        if processes.leads:
            print(json.dumps({"rate": clock.rate, "quick": clock.quick, **exchanged}))


def _exchange(numbers: int, times: int = 50) -> float:
    """Seconds that all processes take to add up so many numbers while nothing else is to do."""
    values = torch.zeros(numbers)
    for left in range(times + 10, 0, -1):
        if left == times:
            start = time.perf_counter()
        torch.distributed.all_reduce(values)
    return (time.perf_counter() - start) / times


def begin(folder: Path, processes: int, batch: int) -> subprocess.Popen[str]:
    """So many processes that train a network together."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.Popen(
        [sys.executable, *launcher, __file__, str(folder), str(batch)],
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


def memory(shards: Shards, batch: int) -> float:
    """The same network on the same rows in memory."""
    torch.set_num_threads(1)
    clock, rows = Clock(batch), shards.sample(shards.n_rows)
    training = Training(
        mlp(COLUMNS, HIDDEN, random_state=0),
        Objective("debiased_square", "running", prior(rows.bags)),
        make_optimizer=lambda weights: torch.optim.Adam(weights, lr=SETTINGS["learning_rate"]),
        rng=np.random.default_rng(0),
    )
    data = BagTensors(torch.as_tensor(rows.X, dtype=torch.float32), rows.bags)
    for x, some in data.epoch(np.random.default_rng(0), batch):
        training.step(x, some)
        clock(0, 0)
    return clock.rate


def main(out: Path | None) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(ROWS, COLUMNS)), columns=[f"x{i}" for i in range(COLUMNS)])
    count = (frame["x0"] * frame["x1"] > 0).groupby(np.arange(ROWS) // BAG).sum()
    frame["bag"] = np.arange(ROWS) // BAG
    with tempfile.TemporaryDirectory() as name:
        data = join(frame, pd.DataFrame({"bag": count.index, "count": count.to_numpy()}))
        shards = write_shards(data, features_of(data), Path(name) / "shards", group_rows=20_000)
        stored = sum(path.stat().st_size for path in shards.folder.iterdir()) / ROWS
        print(f"rows per second, {len(HIDDEN)} layers of {HIDDEN[0]}, one thread per process:")
        batches = {str(batch): compare(shards, batch) for batch in BATCHES}
    if out is not None:
        found = {"columns": COLUMNS, "bag": BAG, "weights": N_WEIGHTS, "bytes_per_row": stored, "batches": batches}
        with replacing(out) as (temporary,):
            temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def compare(shards: Shards, batch: int) -> dict[str, float]:
    """The best of several runs of each kind."""
    runs: list[dict[str, float]] = []
    for _ in range(REPEATS):
        one, two = figures(begin(shards.folder, 1, batch)), figures(begin(shards.folder, 2, batch))
        apart = [figures(started) for started in [begin(shards.folder, 1, batch // 2) for _ in range(2)]]
        runs.append({"memory": memory(shards, batch), "one": one["rate"], "two": two["rate"]})
        runs[-1] |= {"apart": sum(each["rate"] for each in apart)}
        runs[-1] |= {"quick_one": one["quick"], "quick_two": two["quick"]}
        runs[-1] |= {"sums_seconds": two["sums"], "weights_seconds": two["weights"]}
    best = {kind: max(run[kind] for run in runs) for kind in runs[0]}
    best |= {kind: min(run[kind] for run in runs) for kind in runs[0] if kind.endswith("_seconds")}
    print(f"  batches of {batch:,}: memory {best['memory']:,.0f}, shards {best['one']:,.0f}", end="")
    print(f" ({best['one'] / best['memory']:.2f} ×, at least 0.9), two processes {best['two']:,.0f}", end="")
    print(f" ({best['two'] / best['one']:.2f} ×, at least {BATCHES[batch]}); two that exchange nothing ", end="")
    print(f"{best['apart']:,.0f} ({best['apart'] / best['one']:.2f} ×)")
    quick, asked = best["quick_two"] / best["quick_one"], BATCHES[batch]
    print(f"    the quickest quarter of steps: two processes {quick:.2f} × one", flush=True)
    record("distributed", f"batches of {batch:,}, shards to memory", best["one"] / best["memory"], at_least=0.9)
    record("distributed", f"batches of {batch:,}, two processes to one", best["two"] / best["one"], at_least=asked)
    record("distributed", f"batches of {batch:,}, two processes to one, quickest quarter of steps", quick)
    record(
        "distributed", f"batches of {batch:,}, two processes to two that exchange nothing", best["two"] / best["apart"]
    )
    return best


if __name__ == "__main__":
    if "TORCHELASTIC_RUN_ID" in os.environ:
        worker(sys.argv[1], int(sys.argv[2]))
    else:
        main(Path(sys.argv[2]) if sys.argv[1:2] == ["--out"] else None)
