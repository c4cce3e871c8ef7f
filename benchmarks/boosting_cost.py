"""What boosting costs beside one fit of LightGBM to the labels: seconds of computing, memory, and prediction.

The same table, one thread each, defaults of both; bags of 64. Asked: at most 10 × on Adult and on Criteo's sample with
its categories, whatever the formation, at most 4 × on 300,000 × 30, where memory may be twice that of LightGBM;
prediction at most 1.5 × that of a LightGBM model of as many trees. Data that are missing are left out.
"""

import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import lightgbm as lgb
import numpy as np
from scipy.special import expit

import bagwise as bw
from bagwise.experiments.bench.formation_cases import Data
from history import record

SIZE, ROWS, COLUMNS, REPEATS, SEED = 64, 300_000, 30, 3, 900
CASES = {"adult": ("random", "rates-strong", "sorted", "groups", "effects-0.5"), "criteo": ("random", "sorted")}


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def best(*runs: Callable[[], object]) -> list[float]:
    """The least seconds of each, in turn."""
    return [min(one) for one in zip(*([seconds(run) for run in runs] for _ in range(REPEATS)), strict=True)]


def of_bags(X: Any, y: np.ndarray, ids: np.ndarray) -> bw.BagBoostingClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bw.BagBoostingClassifier(n_jobs=1, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)


def of_labels(X: Any, y: np.ndarray, **others: Any) -> lgb.LGBMClassifier:
    return lgb.LGBMClassifier(n_jobs=1, verbosity=-1, **others).fit(X, y)


def with_categories(X: Any) -> Any:
    """Text as LightGBM reads it."""
    return X.astype({name: "category" for name in X if X[name].dtype.kind not in "if"}) if hasattr(X, "columns") else X


def tell(what: str, ratio: float, *, at_most: float | None = None, more: str = "") -> None:
    asked = "" if at_most is None else f" (at most {at_most:g})"
    print(f"  {what:<44} {ratio:6.2f} ×{asked} {more}", flush=True)
    record("boosting_cost", what, ratio, at_most=at_most)


def fits(name: str, case: str, data: Data) -> None:
    drawn = data.draw(case, SIZE, lambda number: SEED + number)
    X, X_labels = data.table.X, with_categories(data.table.X)
    ours, labels = best(lambda: of_bags(X, drawn.y, drawn.ids), lambda: of_labels(X_labels, drawn.y))
    tell(f"{name}, {case}", ours / labels, at_most=10.0, more=f"{ours:.2f} s, labels {labels:.2f} s")


def predictions(data: Data) -> None:
    drawn = data.draw("random", SIZE, lambda number: SEED + number)
    model = of_bags(data.table.X, drawn.y, drawn.ids)
    trees = sum(one.num_trees() for fits in model.fits_.values() for fit in fits for one in fit.boosters)
    like = of_labels(with_categories(data.table.X), drawn.y, n_estimators=trees, num_leaves=8)
    test, test_labels = data.table.X_test, with_categories(data.table.X_test)
    ours, labels = best(lambda: model.predict_proba(test), lambda: like.predict_proba(test_labels))
    tell("prediction by as many trees", ours / labels, at_most=1.5, more=f"{trees:,} trees")


def data_sets() -> None:
    for name, cases in CASES.items():
        try:
            data = Data.of(name)
        except FileNotFoundError as error:
            print(f"  {name}: {error}")
            continue
        for case in cases:
            fits(name, case, data)
        if name == "adult":
            predictions(data)


def many_rows(how: str) -> tuple[float, float]:
    """Seconds of computing, and the most memory of the process."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS))
    s = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.5 * X[:, 3] + 0.3 * (X[:, 4] > 0.5) - 1
    y, ids = (rng.random(ROWS) < expit(s)).astype(int), bw.random_bags(ROWS, SIZE, random_state=0)
    took = seconds(lambda: of_bags(X, y, ids) if how == "bags" else of_labels(X, y))
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    print(f"Boosting from bags of {SIZE} to LightGBM on labels, one thread, least of {REPEATS} in turn:")
    data_sets()
    found = {}
    for how in ("bags", "labels"):  # processes of their own, for their memory
        told = subprocess.run([sys.executable, __file__, how], check=True, capture_output=True, text=True).stdout
        found[how] = json.loads(told)
    times, memory = (found["bags"][number] / found["labels"][number] for number in (0, 1))
    tell(f"{ROWS:,} × {COLUMNS}, random", times, at_most=4.0, more=f"{found['bags'][0]:.1f} s")
    tell(f"{ROWS:,} × {COLUMNS}, memory", memory, at_most=2.0, more=f"{found['bags'][1] / 1e9:.2f} GB")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(many_rows(sys.argv[1])))
    else:
        main()
