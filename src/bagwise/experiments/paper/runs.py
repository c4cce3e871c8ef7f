"""What is computed for each data set, and how: methods, the paper's grid and smaller ones, the runs of a grid.

Runs are stacks of networks, single networks and estimators, in several processes.
"""

import time
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from joblib import parallel_config

from bagwise import datasets
from bagwise.bags import Bags
from bagwise.boosting import BagBoostingClassifier
from bagwise.datasets import Split
from bagwise.experiments.harness import PAPER_LOSSES, Progress, Run, complete, different, names_of, scores
from bagwise.experiments.results import Store
from bagwise.folds import Fold, folds_of
from bagwise.linear import BagRidgeClassifier
from bagwise.plotting import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Look
from bagwise.utils.parameters import Parameter, ParameterError, check_parameters, number, one_of, several, whole
from bagwise.utils.typing import Floats

NAMES = {"adult": "Adult", "mnist": "MNIST, even or odd", "cifar10": "CIFAR-10, animal or machine", "higgs": "Higgs"}
"""For readers."""
DATASETS = tuple(NAMES)
RATES = (1e-6, 5e-6, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2)
SIZES = tuple(2**i for i in range(10))


class Method(NamedTuple):
    """A way to learn from bags.

    label, look: its name for readers, and how it is drawn.
    loss: of a network, a name of `bagwise.losses.LOSSES`; empty for an estimator, which has no epochs and no rate.
    means: how a network estimates means, a name of `bagwise.means.MEANS`.
    """

    label: str
    look: Look
    loss: str = ""
    means: str = "leave_one_out"


METHODS: dict[str, Method] = {
    "ours": Method("Ours", Look(BLUE, "o"), PAPER_LOSSES["ours"]),
    "li": Method("Li et al.", Look(RED, "^"), PAPER_LOSSES["li"]),
    "vanilla_sq": Method("VanillaSQ", Look(PURPLE, "s"), PAPER_LOSSES["vanilla_sq"]),
    "vanilla_ce": Method("VanillaCE", Look(GREEN, "x", "--"), PAPER_LOSSES["vanilla_ce"]),
    "easyllp": Method("EasyLLP", Look(ORANGE, "D"), "easyllp"),
    "ours_running": Method("ours, running mean", Look(SKY, "P", "--"), PAPER_LOSSES["ours"], "running"),
    "centred_log": Method("centred log loss", Look(GREEN, "v", ":"), "centred_log", "running"),
    "count_likelihood": Method("count likelihood", Look(PURPLE, "p", ":"), "count_likelihood"),
    "label_generation": Method("label generation", Look(RED, "X", ":"), "label_generation"),
    "ridge": Method("ridge, closed form", Look(GREY, "h", "-.")),
    "boosting": Method("boosting", Look(BLACK, "*", "-.")),
}
"""Every method by name; the first five are the paper's."""

PAPER = ("ours", "li", "vanilla_sq", "vanilla_ce", "easyllp")


_CONSTRAINTS = {
    "dataset": one_of(*DATASETS),
    "methods": names_of(METHODS),
    "extras": names_of(METHODS),
    "sizes": different("bag sizes"),
    "epochs": different("numbers of epochs"),
    "learning_rates": several(number(above=0), "one or more numbers above 0"),
    "repetitions": whole(1),
    **dict.fromkeys(("extra_repetitions", "held_out_repetitions", "rows"), whole(0)),
}


@dataclass(frozen=True, kw_only=True)
class PaperConfig:
    """What is computed for one data set. Defaults are the paper's."""

    dataset: str = "adult"
    """Name of the data set."""
    rows: int = 0
    """Training rows, the first so many; 0 for all there are."""
    scaled: bool = True
    """Images scaled to [0, 1]; if false, the numbers 0 to 255 as published. Without effect on tables."""
    sizes: tuple[int, ...] = SIZES
    """Bag sizes k."""
    methods: tuple[str, ...] = PAPER
    """Methods with all repetitions."""
    extras: tuple[str, ...] = ()
    """Methods beyond the paper's, with `extra_repetitions`."""
    learning_rates: tuple[float, ...] = RATES
    """Of Adam, tried for every network."""
    epochs: tuple[int, ...] = (20, 200)
    """Durations reported. A network is trained once, for the longest; the others are stages of that training."""
    repetitions: int = 10
    """Repetitions, each with a new partition and new initial weights."""
    extra_repetitions: int = 10
    """Repetitions of the extras."""
    held_out_repetitions: int = 10
    """Repetitions in which networks are trained once more, without a fifth of the bags, whose label-free risk then
    chooses the learning rate."""
    batch_rows: int = 1024
    """Rows of a batch of whole bags."""
    random_state: int = 0
    """Seed; every repetition and size has draws of its own, whatever else is computed."""
    n_jobs: int = 2
    """Processes; the results do not depend on it."""

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS)
        if twice := sorted(set(self.methods) & set(self.extras)):
            said = f" both name {', '.join(twice)}: name it once."
            raise ParameterError("extras", "and ", Parameter("methods"), said)
        if max(self.sizes) * 2 > self.batch_rows:
            why = f" ({self.batch_rows}): E[h] needs another bag."
            raise ParameterError("sizes", "must be at most half of ", Parameter("batch_rows"), why)

    @property
    def measured(self) -> tuple[int, ...]:
        """Epochs after which networks are measured: the durations, and enough others for a learning curve."""
        stages = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200)
        return tuple(sorted({*self.epochs, *(stage for stage in stages if stage <= max(self.epochs))}))


_NETWORKS = ("ours_running", "centred_log", "count_likelihood", "label_generation")
_TABLES = ("ridge", "boosting")
_FEW = ("ours_running", *_TABLES)
_ADULT = PaperConfig(dataset="adult", extras=(*_NETWORKS, *_TABLES))
_MNIST = PaperConfig(dataset="mnist", extras=_NETWORKS)
_CIFAR10 = PaperConfig(dataset="cifar10", extras=_NETWORKS)
_HIGGS = PaperConfig(dataset="higgs", extras=(*_NETWORKS, *_TABLES), epochs=(5, 50))

_SHORT: dict[str, Any] = {"repetitions": 2, "extra_repetitions": 1, "held_out_repetitions": 1}
_HERE = {**_SHORT, "repetitions": 3}
_SMALL: dict[str, Any] = {
    **_SHORT, "extras": ("ours_running",), "rows": 2000, "sizes": (1, 64), "learning_rates": (1e-3,), "epochs": (2, 5),
}  # fmt: skip

PRESETS: dict[str, dict[str, PaperConfig]] = {
    "paper": {"adult": _ADULT, "mnist": _MNIST, "cifar10": _CIFAR10, "higgs": _HIGGS},
    "machine": {
        "adult": replace(_ADULT, extra_repetitions=1, held_out_repetitions=2),
        "mnist": replace(
            _MNIST, **_HERE, sizes=(1, 8, 64, 256, 512), extras=(), learning_rates=(5e-4, 5e-3), epochs=(1, 3)
        ),
        "cifar10": replace(
            _CIFAR10, **_HERE, rows=10_000, sizes=(1, 8, 64, 256), extras=(), learning_rates=(1e-3, 5e-3), epochs=(2, 8)
        ),
        "higgs": replace(
            _HIGGS, **_HERE, sizes=(1, 8, 64, 256), extras=_FEW, learning_rates=(5e-4, 1e-3), epochs=(2, 10)
        ),
    },
    "quick": {
        "adult": replace(
            _ADULT, **_SHORT, sizes=(1, 16, 64, 256), extras=_FEW, learning_rates=(1e-3, 5e-3, 1e-2), epochs=(5, 20)
        ),
        "mnist": replace(_MNIST, **_SMALL),
        "cifar10": replace(_CIFAR10, **_SMALL),
        "higgs": replace(_HIGGS, **{**_SMALL, "rows": 10_000}),
    },
}
"""Configs by scale and data set: quick, minutes; machine, hours on two cores; paper, everything."""

_HIDDEN = {"adult": (32,), "higgs": (300, 300, 300, 300)}  # where networks are fully connected, many trained at once
_SHARE_HELD_OUT = 5  # one bag in so many


@dataclass(frozen=True, kw_only=True)
class PaperRun(Run):
    """One training: all that its result depends on.

    learning_rate: 0 where there is none.  held_out: without a fifth of the bags, to measure the label-free risk on.
    measured: epochs after which it is measured; empty where there are none.
    """

    numbered_by: ClassVar[str] = "repetition"
    dataset: str
    rows: int
    scaled: bool
    size: int
    method: str
    learning_rate: float
    repetition: int
    held_out: bool
    measured: tuple[int, ...]
    batch_rows: int
    random_state: int

    @property
    def stack(self) -> Hashable:
        """What it is computed together with.

        Networks of a stack share a partition and the order of bags; the paper's losses, which are fast, form stacks of
        their own. Everything else is computed one by one.
        """
        if self.dataset in _HIDDEN and METHODS[self.method].loss:
            return self.size, self.repetition, self.held_out, self.method in PAPER
        return self.key


def plan(config: PaperConfig) -> list[PaperRun]:
    """All runs of a config. Repetitions are the outer loop: stopping early leaves whole tables."""
    return [
        run
        for repetition in range(max(config.repetitions, config.extra_repetitions))
        for size in config.sizes
        for methods, repetitions in ((config.methods, config.repetitions), (config.extras, config.extra_repetitions))
        if repetition < repetitions
        for name in methods
        for run in _runs(config, name, size, repetition)
    ]


def _runs(config: PaperConfig, name: str, size: int, repetition: int) -> list[PaperRun]:
    network = METHODS[name].loss != ""
    holds_out = network and repetition < config.held_out_repetitions
    shared = {field: getattr(config, field) for field in ("dataset", "rows", "scaled", "batch_rows", "random_state")}
    shared |= {"size": size, "method": name, "repetition": repetition, "measured": config.measured if network else ()}
    return [
        PaperRun(**shared, learning_rate=rate, held_out=held_out)
        for held_out in ((False, True) if holds_out else (False,))
        for rate in (config.learning_rates if network else (0.0,))
    ]


def store_of(folder: str | Path, dataset: str) -> Store:
    """The finished runs of a data set in a folder."""
    return Store(Path(folder) / f"{dataset}.parquet")


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
    shared: dict[str, Any] = {"bags": bags, "fold": fold}
    replicas = [
        Replica(loss=method.loss, means=method.means, learning_rate=one.learning_rate, seed=one.seed(1), **shared)
        for one, method in ((one, METHODS[one.method]) for one in unit)
    ]
    options: dict[str, Any] = {"epochs": max(stages), "measure_at": first.measured}
    options |= {"batch_rows": first.batch_rows, "X_test": split.X_test, "y_test": split.y_test}
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        if first.dataset in _HIDDEN:
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
    model: Any = BagRidgeClassifier(random_state=one.seed(1))
    if one.method == "boosting":
        split = load(one.dataset, one.rows, table=True)
        model = BagBoostingClassifier(n_jobs=threads or 0, random_state=one.seed(1))
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
