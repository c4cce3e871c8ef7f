"""The benchmark's data sets and runs: every method on every partition, each result stored as it comes."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import joblib
import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from bagwise import datasets
from bagwise.bags import Bags
from bagwise.datasets import Split
from bagwise.experiments.bench.methods import METHODS, Prediction, Task
from bagwise.experiments.harness import BAG_SIZES, LIBRARIES, Progress, Run, complete, names_of, scores, versions
from bagwise.experiments.results import Store
from bagwise.utils.parameters import Constraint, check_parameters, whole
from bagwise.utils.typing import Integers


def _criteo(_: tuple[int, ...]) -> tuple[Split, Split]:
    """The last 20,000 training rows, those next to the test rows: with hundreds of columns, more would take hours."""
    table, encoded = (
        replace(split, X=split.X[-20_000:], y=split.y[-20_000:])
        for split in (datasets.criteo(), datasets.criteo(encoded=True))
    )
    return table, encoded


def _synthetic(rows: tuple[int, ...]) -> tuple[Split, Split]:
    train, test = rows
    log = datasets.synthetic(train + test, random_state=0)
    y = log.y.astype(int)
    table = Split(log.events[:train], y[:train], log.events[train:].reset_index(drop=True), y[train:])
    return table, datasets.encode(table)


DATASETS: dict[str, tuple[str, Callable[[tuple[int, ...]], tuple[Split, Split]]]] = {
    "adult": ("Adult (income over 50K)", lambda _: (datasets.adult(), datasets.adult(encoded=True))),
    "criteo": ("Criteo (click)", _criteo),
    "digits": ("Digits (odd)", lambda _: (datasets.digits(), datasets.digits())),
    "synthetic": ("Synthetic advertising log (conversion)", _synthetic),
}
"""Titles and data sets by name: as a table with categories and as numbers, which are the same for arrays.

They are functions of the training and test rows to draw, which only `_synthetic` looks at.
"""

_CONSTRAINTS = {
    "datasets": names_of(DATASETS),
    "methods": names_of(METHODS),
    "sizes": BAG_SIZES,
    "synthetic_rows": Constraint(
        "two whole numbers of at least 1, the training and the test rows",
        lambda given: len(given) == 2 and all(whole(1).holds(rows) for rows in given),
    ),
    **dict.fromkeys(("partitions", "epochs", "auto_seconds", "timeout"), whole(1)),
    "fewest_bags": whole(2),
}


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """What the benchmark computes."""

    datasets: tuple[str, ...] = tuple(DATASETS)
    """Names of data sets; one whose files are missing is reported and left out."""
    sizes: tuple[int, ...] = (16, 64, 256, 512)
    """Bag sizes k; one that leaves fewer than `fewest_bags` bags is left out."""
    methods: tuple[str, ...] = tuple(METHODS)
    """Names of methods."""
    partitions: int = 1
    """Random partitions into bags, each with its own seed of every method."""
    random_state: int = 0
    """Seed; every partition and size has a draw of its own, whatever else is computed."""
    epochs: int = 20
    """Passes over the bags of the paper's network and of llp-learn's."""
    learning_rates: tuple[float, ...] = (1e-6, 5e-6, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2)
    """The paper's, tried for each of its losses."""
    outside_rates: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    """Tried for llp-learn's network, which takes a step per bag."""
    auto_seconds: int = 90
    """Time budget of `BagAutoClassifier`."""
    synthetic_rows: tuple[int, ...] = (20_000, 20_000)
    """Training and test impressions of the synthetic log."""
    fewest_bags: int = 40
    """Fewest bags to learn from."""
    timeout: int = 900
    """Seconds after which a run of another package is given up."""

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS)


FULL = BenchConfig()
"""All data sets and methods."""
QUICK = BenchConfig(
    datasets=("digits", "synthetic"),
    sizes=(8, 32),
    partitions=2,
    fewest_bags=10,
    learning_rates=(5e-4, 1e-3, 5e-3, 1e-2),
    auto_seconds=20,
    synthetic_rows=(8000, 4000),
)
"""Minutes, and no files needed."""


@dataclass(frozen=True, kw_only=True)
class BenchRun(Run):
    """One method on one partition of one data set: all that its result depends on.

    settings: what the method, or a simulated data set, reads of the config.
    """

    numbered_by: ClassVar[str] = "partition"
    dataset: str
    size: int
    method: str
    partition: int
    random_state: int
    settings: dict[str, Any]


def plan(config: BenchConfig) -> list[BenchRun]:
    """All runs of a config; a ceiling runs once per data set, since it does not look at bags."""
    return [
        BenchRun(
            dataset=dataset,
            size=1 if METHODS[name].individual else size,
            method=name,
            partition=partition,
            random_state=config.random_state,
            settings={key: getattr(config, key) for key in _settings(name, dataset)},
        )
        for partition in range(config.partitions)  # the outer loop, so that stopping early leaves whole tables
        for dataset in config.datasets
        for i, size in enumerate(config.sizes)
        for name in config.methods
        if not METHODS[name].individual or (partition, i) == (0, 0)
    ]


def _settings(method: str, dataset: str) -> list[str]:
    """Fields of the config that matter for a result."""
    names = [name for name in METHODS[method].settings if name != "timeout"]
    return [*names, "synthetic_rows"] if dataset == "synthetic" else names


def store_of(path: str | Path) -> Store:
    """The finished runs in a Parquet file; those of other versions of libraries are other runs."""
    return Store(path, versions=versions(*LIBRARIES))


def run(config: BenchConfig, out: str | Path, *, progress: Progress | None = None) -> pd.DataFrame:
    """Run what the Parquet file `out` does not hold yet, and return all rows of this config.

    One row per model trained: dataset, size (of bags), method, partition; learning_rate and risk (label-free, on
    held-out bags), NaN where there is nothing to choose; accuracy, auc and brier on the test rows; seconds of fit and
    prediction; bags, rows, test_rows, cores; error, empty where there was none; config, config_hash and versions.
    See `harness.complete` for what is stored when. Equal runs with the same versions are not repeated unless they
    failed; rows of other configs stay in the file.
    """

    @lru_cache(maxsize=1)  # runs of one data set follow each other
    def load(name: str) -> tuple[Split, Split] | str:
        """The data set, or why it is missing."""
        try:
            return DATASETS[name][1](config.synthetic_rows)
        except FileNotFoundError as error:
            return f"skipped: {error}"

    def compute(group: list[BenchRun]) -> list[dict[str, Any]]:
        (one,) = group
        where = {name: getattr(one, name) for name in ("dataset", "size", "method", "partition")}
        return [where | record | one.origin for record in measure(one, load(one.dataset), config)]

    return complete(plan(config), store_of(out), compute, progress=progress)


def measure(run: BenchRun, data: tuple[Split, Split] | str, config: BenchConfig) -> list[dict[str, Any]]:
    """The rows of one run: one for each prediction the method makes, or one that says why there is none."""
    method = METHODS[run.method]
    if isinstance(data, str):
        return [_record(error=data)]
    table, encoded = data
    y, y_test, n = table.y, table.y_test, len(table.y)
    if not method.individual and n // run.size < config.fewest_bags:
        return [_record(error=f"skipped: {n:,} rows make too few bags of {run.size}.")]
    bags = Bags.singletons(y) if method.individual else run.bags_of(y)
    facts = {"bags": len(bags), "rows": n, "test_rows": len(y_test)}
    records = []
    try:
        import_module(method.needs)
        split = table if method.reads().codes else encoded
        task = Task(split.X, split.X_test, bags, run.seed(1))
        start = time.perf_counter()
        for prediction in method.run(task, **{name: getattr(config, name) for name in method.settings}):
            seconds = time.perf_counter() - start if prediction.seconds is None else prediction.seconds
            records.append(_record(**facts, **_scores(prediction, y_test), seconds=seconds))
            start = time.perf_counter()
    except Exception as error:  # a method that fails is a result too
        kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
        records.append(_record(**facts, error=f"{kind}{error}"))
    return records


def _scores(prediction: Prediction, y: Integers) -> dict[str, Any]:
    """Accuracy, AUC and Brier score of a prediction for the test rows."""
    h, found = prediction.h, {"learning_rate": prediction.learning_rate, "risk": prediction.risk}
    if h is None:
        return found | {"error": prediction.error}
    if not np.isfinite(h).all():
        return found | {"error": "some predictions are not finite."}
    return found | {"auc": float(roc_auc_score(y, h)), **scores(h, y)}


def _record(**given: Any) -> dict[str, Any]:
    numbers = ("learning_rate", "risk", "accuracy", "auc", "brier", "seconds")
    empty = dict.fromkeys(numbers, np.nan) | dict.fromkeys(("bags", "rows", "test_rows"), 0)
    return empty | {"cores": joblib.cpu_count(), "error": ""} | given
