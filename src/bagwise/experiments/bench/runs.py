"""Runs the benchmark: every method on every partition, each result stored as it comes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from bagwise.bags import Bags, aggregate, random_bags
from bagwise.experiments.bench.config import BenchConfig
from bagwise.experiments.bench.methods import METHODS
from bagwise.experiments.bench.problems import DATASETS, DataSet, Prediction, Problem
from bagwise.experiments.config import provenance
from bagwise.experiments.store import read_table, write_table

_LIBRARIES = ("scikit-learn", "lightgbm", "torch")


def run(
    config: BenchConfig, out: str | Path, *, progress: Callable[[int, int, str], None] | None = None
) -> pd.DataFrame:
    """Run what the Parquet file `out` does not hold yet, and return all rows of this config.

    One row per model trained: dataset, size (of bags), method, partition; learning_rate and risk (label-free, on
    held-out bags), NaN where there is nothing to choose; accuracy, auc and brier on the test rows; seconds of fit and
    prediction; bags, rows, test_rows, cores; error, empty where there was none; config, config_hash and versions.
    The file is written whole after every run, so stopping loses nothing. Equal runs with the same versions are not
    repeated unless they failed; rows of other configs stay in the file.
    `progress` is called with the runs done, their number and what comes now.
    """
    results, units = Results(Path(out)), plan(config)
    source = Source("", config)
    for done, unit in enumerate(units):
        if progress is not None:
            progress(done, len(units), f"{unit.dataset}, bags of {unit.size}, {unit.method}")
        if results.holds(unit):
            continue
        if source.name != unit.dataset:
            source = Source(unit.dataset, config)
        results.add(unit, measure(unit, source, config))
    if progress is not None:
        progress(len(units), len(units), "done")
    return results.of(units)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One method on one partition of one data set: all that its result depends on."""

    dataset: str
    size: int
    method: str
    partition: int
    random_state: int
    settings: dict[str, Any]

    def seed(self, number: int) -> int:
        """Seeds that do not depend on the method: 0 for the partition into bags, 1 for what the method draws."""
        key = (self.partition, self.size, number)
        return int(np.random.SeedSequence(self.random_state, spawn_key=key).generate_state(1)[0] >> 1)

    @cached_property
    def origin(self) -> dict[str, str]:
        """Config, its hash and the versions of libraries."""
        return provenance(self) | {f"{name}_version": _version(name) for name in _LIBRARIES}


def plan(config: BenchConfig) -> list[Run]:
    """All runs of a config; a ceiling runs once per data set, since it does not look at bags."""
    units = []
    for partition in range(config.partitions):  # the outer loop, so that stopping early leaves whole tables
        for dataset in config.datasets:
            for i, size in enumerate(config.sizes):
                for name in config.methods:
                    once = METHODS[name].individual
                    if once and (partition, i) != (0, 0):
                        continue
                    read = (*METHODS[name].settings, *(("synthetic_rows",) if dataset == "synthetic" else ()))
                    units.append(
                        Run(
                            dataset=dataset,
                            size=1 if once else size,
                            method=name,
                            partition=partition,
                            random_state=config.random_state,
                            settings={key: getattr(config, key) for key in read if key != "timeout"},
                        )
                    )
    return units


class Source:
    """A data set, read when first needed."""

    def __init__(self, name: str, config: BenchConfig) -> None:
        self.name, self.rows = name, config.synthetic_rows

    @cached_property
    def data(self) -> DataSet | str:
        """The data set, or why it is missing."""
        try:
            return DATASETS[self.name]((self.rows[0], self.rows[1]))
        except FileNotFoundError as error:
            return f"skipped: {error}"


class Results:
    """The rows of a Parquet file, and those added to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.frame = read_table(path) if path.is_file() else pd.DataFrame()

    def _rows(self, unit: Run) -> pd.DataFrame:
        if self.frame.empty:
            return self.frame
        same = np.ones(len(self.frame), dtype=bool)
        for name, value in unit.origin.items():
            same &= (self.frame[name] == value).to_numpy()
        return self.frame[same]

    def holds(self, unit: Run) -> bool:
        """Whether this run was done before, and did not fail."""
        rows = self._rows(unit)
        return len(rows) > 0 and bool((rows["error"] == "").any())

    def add(self, unit: Run, records: list[dict[str, Any]]) -> None:
        """Put the rows of a run in place of earlier ones, and write the file."""
        where = {name: getattr(unit, name) for name in ("dataset", "size", "method", "partition")}
        fresh = pd.DataFrame([where | record | unit.origin for record in records])
        kept = self.frame.drop(self._rows(unit).index)
        self.frame = fresh if kept.empty else pd.concat([kept, fresh], ignore_index=True)
        write_table(self.frame, self.path)

    def of(self, units: list[Run]) -> pd.DataFrame:
        """The rows of these runs, in their order."""
        return pd.concat([self._rows(unit) for unit in units], ignore_index=True)


def measure(unit: Run, source: Source, config: BenchConfig) -> list[dict[str, Any]]:
    """The rows of one run: one for each prediction the method makes, or one that says why there is none."""
    data, method = source.data, METHODS[unit.method]
    if isinstance(data, str):
        return [_record(error=data)]
    split = getattr(data, method.features)
    n = len(split.y)
    if not method.individual and n // unit.size < config.fewest_bags:
        return [_record(error=f"skipped: {n:,} rows make too few bags of {unit.size}.")]
    if method.individual:
        bags = Bags.singletons(split.y)
    else:
        ids = random_bags(n, unit.size, random_state=unit.seed(0))
        bags = Bags.from_rows(aggregate(split.y, ids), ids)
    facts = {"bags": len(bags), "rows": n, "test_rows": len(split.y_test)}
    problem = Problem(split.X, split.X_test, bags, unit.seed(1))
    records = []
    try:
        import_module(method.needs)
        start = time.perf_counter()
        for prediction in method.run(problem, **{name: getattr(config, name) for name in method.settings}):
            seconds = time.perf_counter() - start if prediction.seconds is None else prediction.seconds
            records.append(_record(**facts, **_scores(prediction, split.y_test), seconds=seconds))
            start = time.perf_counter()
    except Exception as error:  # a method that fails is a result too
        kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
        records.append(_record(**facts, error=f"{kind}{error}"))
    return records


def _scores(prediction: Prediction, y: Any) -> dict[str, Any]:
    """Accuracy, AUC and Brier score of a prediction for the test rows."""
    scores: dict[str, Any] = {"learning_rate": prediction.learning_rate, "risk": prediction.risk}
    h = prediction.h
    if h is None:
        return scores | {"error": prediction.error}
    if not np.isfinite(h).all():
        return scores | {"error": "some predictions are not finite."}
    return scores | {
        "accuracy": float(((h > 0.5) == y).mean()),
        "auc": float(roc_auc_score(y, h)),
        "brier": float(((h - y) ** 2).mean()),
    }


def _record(**given: Any) -> dict[str, Any]:
    numbers = ("learning_rate", "risk", "accuracy", "auc", "brier", "seconds")
    empty = dict.fromkeys(numbers, np.nan) | dict.fromkeys(("bags", "rows", "test_rows"), 0)
    return empty | {"cores": os.cpu_count() or 0, "error": ""} | given


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
