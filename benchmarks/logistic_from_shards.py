"""Logistic regression from shards on disk: one Newton step against adding up the columns of the same shards.

2,000,000 × 28 numbers in random bags of 64, blocks of two million numbers, seconds of computing. A step reads the
shards twice, for its sums and for the scores along it, and finds the intercept and the tilts of all bags anew. At most
12 × the column sums. The whole fit, the formation and the choice of the penalty included, is measured beside it, and
the most memory that it takes for each row, by a process that has done nothing else.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

import bagwise as bw
from bagwise.data.shards import Shards
from bagwise.linear.design import Design
from bagwise.linear.likelihood import Point, maximise, point, system
from bagwise.log_odds import prior_of
from bagwise.tables import join
from bagwise.tables.fitting import features_of
from bagwise.tables.gather import write_shards
from history import record

ROWS, COLUMNS, SIZE, REPEATS = 2_000_000, 28, 64, 4


def write(folder: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(rows, COLUMNS)).astype(np.float32), 0.3 * rng.normal(size=COLUMNS)
    bag = rng.integers(0, rows // SIZE, rows)
    y = rng.random(rows) < expit(X @ w - 1)
    events = pd.DataFrame(X, columns=[f"x{i}" for i in range(COLUMNS)]).assign(bag=bag)
    count = pd.DataFrame({"bag": bag, "count": y.astype(int)}).groupby("bag", as_index=False).sum()
    data = join(events, count)
    write_shards(data, features_of(data), folder)


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def held() -> float:
    """The most memory so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def add_up(shards: Shards) -> None:
    sum(shards.block(number).sum(axis=0, dtype=float) for number in range(len(shards)))


def step(design: Design, at: Point, prior: float, penalty: np.ndarray) -> None:
    """As `bagwise.linear.likelihood.climb` goes, where the whole step is taken."""
    along, _ = system(design, at).step(at.w, penalty)
    scores = at.z + design.scores(along)
    point(design, at.w + along, prior, 0.0, scores=scores, extra=at.extra, near=at)


def measure(folder: str) -> None:
    shards = Shards.open(folder)
    rows, before, sums, steps, fits = shards.encoded(shards.encoding()), held(), [], [], []
    for _ in range(2):
        model = bw.BagLogisticClassifier(random_state=0)
        fits.append(seconds(lambda model=model: model.fit_rows(rows)))
    memory = (held() - before) / shards.n_rows
    bags = rows.bags
    design, prior, penalty = Design.of_blocks(rows, bags), prior_of(bags), np.full(rows.shape[1], 30.0)
    near = maximise(design.take(np.arange(1000)), prior, penalty).w
    at = point(design, near, prior, 0.0)  # not yet the maximum: tilts move
    for _ in range(REPEATS):
        sums.append(seconds(lambda: add_up(shards)))
        steps.append(seconds(lambda: step(design, at, prior, penalty)))
    ratio, whole = min(steps) / min(sums), min(fits) / min(sums)
    print(f"{shards.n_rows:,} × {COLUMNS} rows in {len(shards)} blocks: column sums {min(sums):.2f} s of computing,")
    print(f"  one Newton step {min(steps):.2f} s, {ratio:.1f} × (at most 12); the whole fit {min(fits):.2f} s,")
    print(f"  {whole:.0f} ×; at most {memory:.0f} bytes for each row, which has {4 * COLUMNS}")
    record("logistic_from_shards", "one Newton step to the column sums", ratio, at_most=12)
    record("logistic_from_shards", "the whole fit to the column sums", whole)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        rows = sys.argv[1] if len(sys.argv) > 1 else str(ROWS)
        with tempfile.TemporaryDirectory() as name:
            subprocess.run([sys.executable, __file__, "--write", f"{name}/shards", rows], check=True)
            measure(f"{name}/shards")
