"""`evaluate` and `diagnose` on ten million rows: seconds of computing, beside one sort of the bag ids, and memory.

10,000,000 × 10 numbers in scattered bags of 64. Memory is the most that each of them held beyond what was there before,
over the table.
"""

import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import expit

import bagwise as bw
from growth import held
from history import record

ROWS, COLUMNS, SIZE, SAMPLE = 10_000_000, 10, 64, 640_000


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def main(rows: int) -> None:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, COLUMNS))
    ids = bw.random_bags(rows, SIZE, random_state=0)
    reported = bw.aggregate((rng.random(rows) < expit(X[:, 0] - 1)).astype(float), ids)
    some = np.flatnonzero(ids < min(SAMPLE, rows) // SIZE)
    model = bw.BagRidgeClassifier(random_state=0).fit(X[some], reported[some], bags=ids[some])
    bw.diagnose(X[some], reported[some], bags=ids[some])  # what is imported is not measured
    sort = seconds(lambda: np.argsort(ids, kind="stable"))
    print(f"{rows:,} × {COLUMNS} rows in scattered bags of {SIZE}; a sort of the ids takes {sort:.2f} s:")
    tasks = {
        "evaluate": lambda: bw.evaluate(model, X, reported, bags=ids),
        "diagnose": lambda: bw.diagnose(X, reported, bags=ids),
    }
    for name, run in tasks.items():
        before = held("VmRSS", anew=True)
        took = seconds(run)
        memory = (held("VmHWM") - before) * 1e9 / X.nbytes
        print(f"  {name}: {took:.1f} s of computing, {memory:.2f} × the table more memory", flush=True)
        record("measuring", f"{name}, to a sort of the ids", took / sort)
        record("measuring", f"{name}, memory to the table", memory)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
