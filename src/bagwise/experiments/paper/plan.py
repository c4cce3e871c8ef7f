"""What is computed for each data set: methods, the paper's grid and smaller ones, and the runs of a grid."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from bagwise.experiments.harness import Run, Store, different, names_of
from bagwise.plotting import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Look
from bagwise.utils.parameters import Parameter, ParameterError, check_parameters, number, one_of, several, whole

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
    "ours": Method("Ours", Look(BLUE, "o"), "debiased_square"),
    "li": Method("Li et al.", Look(RED, "^"), "li_square"),
    "vanilla_sq": Method("VanillaSQ", Look(PURPLE, "s"), "matching_square"),
    "vanilla_ce": Method("VanillaCE", Look(GREEN, "x", "--"), "matching_cross_entropy"),
    "easyllp": Method("EasyLLP", Look(ORANGE, "D"), "easyllp"),
    "ours_running": Method("ours, running mean", Look(SKY, "P", "--"), "debiased_square", "running"),
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

STACKED = ("adult", "higgs")
"""Data sets whose networks are fully connected and trained many at once."""


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
        if self.dataset in STACKED and METHODS[self.method].loss:
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
