"""Computes the runs of a config: stacks of networks, single networks and estimators, in several processes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import parallel_config

from bagwise import datasets
from bagwise.bags import Bags
from bagwise.boosting import BagBoostingClassifier
from bagwise.datasets import Split
from bagwise.experiments.harness import Progress, complete, scores
from bagwise.experiments.paper.plan import METHODS, STACKED, PaperConfig, PaperRun, plan, store_of
from bagwise.folds import Fold, folds_of
from bagwise.linear import BagRidgeClassifier
from bagwise.utils.typing import Floats

_HIDDEN = {"adult": (32,), "higgs": (300, 300, 300, 300)}
_SHARE_HELD_OUT = 5  # one bag in so many


def run(config: PaperConfig, out: str | Path, *, progress: Progress | None = None) -> pd.DataFrame:
    """Compute what the folder `out` does not hold yet, and return all rows of this config.

    One row per run: its fields, `key` (their hash), epoch, accuracy, brier and risk (lists, one number per measured
    epoch; risk is label-free, of held-out bags), seconds (of a processor's time; a network's share of its stack's),
    bags, diverged, versions. See `harness.complete` for what is stored when.
    """
    load(config.dataset, config.rows, config.scaled)  # a missing file is reported before anything is begun
    return complete(
        plan(config),
        store_of(out, config.dataset),
        partial(compute, threads=1 if config.n_jobs > 1 else None),
        together=lambda run: run.stack,
        n_jobs=config.n_jobs,
        progress=progress,
    )


def compute(unit: Sequence[PaperRun], threads: int | None = None) -> list[dict[str, Any]]:
    """The rows of runs that share data set, partition and fold."""
    first, start = unit[0], time.process_time()
    split = load(first.dataset, first.rows, first.scaled)
    bags = first.bags_of(split.y)
    fold = folds_of(len(bags), _SHARE_HELD_OUT, np.random.default_rng(first.seed(2)))[0] if first.held_out else None
    learn = _networks if METHODS[first.method].loss else _estimator
    with parallel_config(backend="threading"):  # what works here must not wait for a cluster that it is part of
        results = learn(unit, split, bags, fold, threads)
    facts = {"bags": len(bags), "seconds": (time.process_time() - start) / len(unit)}
    return [
        {"key": one.key, **asdict(one), "measured": list(one.measured), "seed": one.seed(1)}
        | facts
        | result
        | one.origin
        for one, result in zip(unit, results, strict=True)
    ]


def _networks(
    unit: Sequence[PaperRun], split: Split, bags: Bags, fold: Fold | None, threads: int | None
) -> list[dict[str, Any]]:
    import torch

    from bagwise.neural import Replica, cnn, train_modules, train_replicas

    first, stages = unit[0], list(unit[0].measured)
    shared = {"bags": bags, "fold": fold}
    replicas = [
        Replica(loss=method.loss, means=method.means, learning_rate=one.learning_rate, seed=one.seed(1), **shared)
        for one, method in ((one, METHODS[one.method]) for one in unit)
    ]
    options: dict[str, Any] = {"epochs": max(stages), "measure_at": first.measured}
    options |= {"batch_rows": first.batch_rows, "X_test": split.X_test, "y_test": split.y_test}
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

    def listed(values: Floats | None) -> list[float]:  # one number for each stage, NaN where nothing was measured
        return [np.nan] * len(stages) if values is None else values.tolist()

    return [
        {"epoch": stages}
        | {name: listed(getattr(result, name)) for name in ("accuracy", "brier", "risk")}
        | {"diverged": not bool(np.isfinite(result.loss).all())}
        for result in trained
    ]


def _estimator(
    unit: Sequence[PaperRun], split: Split, bags: Bags, fold: Fold | None, threads: int | None
) -> list[dict[str, Any]]:
    """Ridge or boosting, which choose their settings themselves."""
    (one,) = unit
    model: BagBoostingClassifier | BagRidgeClassifier
    if one.method == "boosting":
        split = load(one.dataset, one.rows, table=True)
        model = BagBoostingClassifier(n_jobs=threads or 0, random_state=one.seed(1))
    else:
        model = BagRidgeClassifier(random_state=one.seed(1))
    h = model.fit(split.X, bags=bags).predict_proba(split.X_test)[:, 1]
    found = {name: [value] for name, value in scores(h, split.y_test).items()}
    return [{"epoch": [0], **found, "risk": [np.nan], "diverged": False}]


@lru_cache(maxsize=2)
def load(dataset: str, rows: int, scaled: bool = True, *, table: bool = False) -> Split:
    """A data set's first `rows` training rows, 0 for all; scaled: images to [0, 1]; table: categories as they are."""
    if dataset == "adult":
        split = datasets.adult(encoded=not table)
        if rows > len(split.y):
            raise ValueError(f"rows is {rows:,}, but Adult has {len(split.y):,} training rows.")
        return replace(split, X=split.X[: rows or None], y=split.y[: rows or None])
    if dataset == "higgs":
        return datasets.higgs(rows=rows or None)
    return (datasets.mnist if dataset == "mnist" else datasets.cifar10)(rows=rows or None, scaled=scaled)
