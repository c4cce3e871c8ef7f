"""Computes the runs of a config: stacks of networks, single networks and estimators, in several processes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed, parallel_config

from bagwise import datasets
from bagwise.bags import Bags, aggregate, random_bags
from bagwise.boosting import BagBoostingClassifier
from bagwise.datasets import Split
from bagwise.experiments.aliases import library_loss
from bagwise.experiments.config import provenance
from bagwise.experiments.paper.config import PaperConfig
from bagwise.experiments.paper.folder import Folder
from bagwise.experiments.paper.methods import METHODS
from bagwise.experiments.paper.plan import STACKED, Run, plan, units
from bagwise.folds import Fold, folds_of
from bagwise.linear import BagRidgeClassifier

_LIBRARIES = ("lightgbm", "scikit-learn", "torch")
_HIDDEN = {"adult": (32,), "higgs": (300, 300, 300, 300)}
_SHARE_HELD_OUT = 5  # one bag in so many


def run(
    config: PaperConfig, out: str | Path, *, progress: Callable[[int, int, str], None] | None = None
) -> pd.DataFrame:
    """Compute what the folder `out` does not hold yet, and return all rows of this config.

    One row per run: its fields, `key` (their hash), epoch, accuracy, brier and risk (lists, one number per measured
    epoch; risk is label-free, of held-out bags), seconds (of a processor's time; a network's share of its stack's),
    bags, diverged, versions.
    Each group of runs is stored when it is finished: stopping loses those under way. Several processes, also started
    apart, may work on one folder.
    `progress` is called with the runs done, their number and what comes now.
    """
    runs, folder = plan(config), Folder(out, config.dataset)
    load(config.dataset, config.rows, config.scaled)  # a missing file is reported before anything is begun
    workers = Parallel(n_jobs=config.n_jobs, return_as="generator_unordered")
    threads = 1 if config.n_jobs > 1 else None
    for polite in (True, False):  # first what no other process works at, then what is still missing
        done = set(folder.read()["key"]) & {run.key for run in runs}
        if progress is not None:
            progress(len(done), len(runs), "starting" if polite else "what other processes left")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="A worker stopped")  # joblib replaces those that have grown large
            for unit in workers(delayed(_finish)(unit, str(out), threads, polite) for unit in units(runs, done)):
                done |= {one.key for one in unit}
                if unit and progress is not None:
                    progress(len(done), len(runs), f"{config.dataset}, bags of {unit[0].size}")
    frame = folder.gather()
    order = {run.key: place for place, run in enumerate(runs)}
    frame = frame[frame["key"].isin(list(order))]
    return frame.sort_values("key", key=lambda keys: keys.map(order), ignore_index=True)


def _finish(unit: list[Run], out: str, threads: int | None, polite: bool) -> list[Run]:
    """Compute a group of runs and store it, unless another process has done so or, if `polite`, is at it.

    Returns what is stored by now: the group, or nothing.
    """
    folder = Folder(out, unit[0].dataset)
    if folder.holds(unit):
        return unit
    if not folder.claim(unit) and polite:
        return []
    with parallel_config(backend="threading"):  # what works here must not wait for a cluster that it is part of
        folder.add(unit, compute(unit, threads))
    return unit


def compute(unit: Sequence[Run], threads: int | None = None) -> list[dict[str, Any]]:
    """The rows of runs that share data set, partition and fold."""
    first, start = unit[0], time.process_time()
    split = load(first.dataset, first.rows, first.scaled)
    ids = random_bags(len(split.y), first.size, random_state=first.seed(0))
    bags = Bags.from_rows(aggregate(split.y, ids), ids)
    fold = folds_of(len(bags), _SHARE_HELD_OUT, np.random.default_rng(first.seed(2)))[0] if first.held_out else None
    results = (_networks if METHODS[first.method].is_network else _estimators)(unit, split, bags, fold, threads)
    share = (time.process_time() - start) / len(unit)
    versions = {f"{name}_version": version(name) for name in _LIBRARIES}
    return [
        {
            "key": one.key,
            **one.fields,
            "measured": list(one.measured),
            "seed": one.seed(1),
            "bags": len(bags),
            "seconds": share,
            **result,
            **provenance(one),
            **versions,
        }
        for one, result in zip(unit, results, strict=True)
    ]


def _networks(
    unit: Sequence[Run], split: Split, bags: Bags, fold: Fold | None, threads: int | None
) -> list[dict[str, Any]]:
    import torch

    from bagwise.neural import Replica, cnn, train_modules, train_replicas

    first = unit[0]
    replicas = [
        Replica(
            bags=bags,
            loss=library_loss(METHODS[one.method].loss or ""),
            means=METHODS[one.method].means,
            learning_rate=one.learning_rate,
            seed=one.seed(1),
            fold=fold,
        )
        for one in unit
    ]
    options: dict[str, Any] = {
        "epochs": max(first.measured),
        "measure_at": first.measured,
        "batch_rows": first.batch_rows,
        "X_test": split.X_test,
        "y_test": split.y_test,
    }
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        if first.dataset in STACKED:
            trained = train_replicas(split.X, replicas, hidden=_HIDDEN[first.dataset], **options)
        else:
            _, channels, side, _ = split.X.shape
            trained = train_modules(split.X, replicas, lambda seed: cnn(channels, side, random_state=seed), **options)
    finally:
        torch.set_num_threads(before)
    nothing = np.full(len(first.measured), np.nan)
    return [
        {
            "epoch": list(first.measured),
            "accuracy": _listed(result.accuracy, nothing),
            "brier": _listed(result.brier, nothing),
            "risk": _listed(result.risk, nothing),
            "diverged": not bool(np.isfinite(result.loss).all()),
        }
        for result in trained
    ]


def _estimators(
    unit: Sequence[Run], split: Split, bags: Bags, fold: Fold | None, threads: int | None
) -> list[dict[str, Any]]:
    """Ridge and boosting, which choose their settings themselves."""
    results = []
    for one in unit:
        boosts = one.method == "boosting"
        data = load(one.dataset, one.rows, table=True) if boosts else split
        model = (
            BagBoostingClassifier(n_jobs=threads or 0, random_state=one.seed(1))
            if boosts
            else BagRidgeClassifier(random_state=one.seed(1))
        )
        h = model.fit(data.X, bags=bags).predict_proba(data.X_test)[:, 1]
        results.append(
            {
                "epoch": [0],
                "accuracy": [float(((h > 0.5) == split.y_test).mean())],
                "brier": [float(np.square(h - split.y_test).mean())],
                "risk": [np.nan],
                "diverged": False,
            }
        )
    return results


def _listed(values: Any, instead: Any) -> list[float]:
    return [float(value) for value in (instead if values is None else values)]


@lru_cache(maxsize=2)
def load(dataset: str, rows: int, scaled: bool = True, *, table: bool = False) -> Split:
    """A data set with its first `rows` training rows, 0 for all; `table`: with categories as they are.

    scaled: images to [0, 1].
    """
    if dataset == "adult":
        split = datasets.adult(encoded=not table)
        if rows > len(split.y):
            raise ValueError(f"rows is {rows:,}, but Adult has {len(split.y):,} training rows.")
        return Split(split.X[: rows or None], split.y[: rows or None], split.X_test, split.y_test)
    if dataset == "higgs":
        return datasets.higgs(rows=rows or None)
    return getattr(datasets, dataset)(rows=rows or None, scaled=scaled)
