"""What is computed for each data set: the paper's grid, and smaller ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from bagwise.experiments.paper.methods import METHODS, PAPER

DATASETS = ("adult", "mnist", "cifar10", "higgs")
RATES = (1e-6, 5e-6, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2)
SIZES = tuple(2**i for i in range(10))
_NETWORKS = ("ours_running", "centred_log", "count_likelihood", "label_generation")
_TABLES = ("ridge", "boosting")


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
        if self.dataset not in DATASETS:
            raise ValueError(f"unknown dataset {self.dataset}: choose from {', '.join(DATASETS)}.")
        unknown = sorted({*self.methods, *self.extras} - set(METHODS))
        if unknown:
            raise ValueError(f"unknown methods {', '.join(unknown)}: choose from {', '.join(METHODS)}.")
        twice = sorted(set(self.methods) & set(self.extras))
        if twice:
            raise ValueError(f"{', '.join(twice)} stands in methods and in extras: name it once.")
        for name in ("sizes", "epochs"):
            values = getattr(self, name)
            if not values or min(values) < 1 or len(set(values)) < len(values):
                raise ValueError(f"{name} must be different whole numbers of at least 1, got {values}.")
        if max(self.sizes) * 2 > self.batch_rows:
            raise ValueError(f"sizes must be at most half of batch_rows ({self.batch_rows}): E[h] needs another bag.")
        if not self.learning_rates or not all(0 < rate < math.inf for rate in self.learning_rates):
            raise ValueError(f"learning_rates must be positive numbers, got {self.learning_rates}.")
        for name, least in (("repetitions", 1), ("extra_repetitions", 0), ("held_out_repetitions", 0), ("rows", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}.")

    @property
    def measured(self) -> tuple[int, ...]:
        """Epochs after which networks are measured: the durations, and enough others for a learning curve."""
        stages = {1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200}
        longest = max(self.epochs)
        return tuple(sorted({*self.epochs, *(stage for stage in stages if stage <= longest)}))


_ADULT = PaperConfig(dataset="adult", extras=(*_NETWORKS, *_TABLES))
_MNIST = PaperConfig(dataset="mnist", extras=_NETWORKS)
_CIFAR10 = PaperConfig(dataset="cifar10", extras=_NETWORKS)
_HIGGS = PaperConfig(dataset="higgs", extras=(*_NETWORKS, *_TABLES), epochs=(5, 50))

_HERE = {"repetitions": 3, "extra_repetitions": 1, "held_out_repetitions": 1}
_SHORT = {"repetitions": 2, "extra_repetitions": 1, "held_out_repetitions": 1, "extras": ("ours_running",)}

PRESETS: dict[str, dict[str, PaperConfig]] = {
    "paper": {"adult": _ADULT, "mnist": _MNIST, "cifar10": _CIFAR10, "higgs": _HIGGS},
    "machine": {
        "adult": replace(_ADULT, extra_repetitions=1, held_out_repetitions=2),
        "mnist": replace(
            _MNIST,
            **_HERE,  # type: ignore[arg-type]
            sizes=(1, 8, 64, 256, 512),
            extras=(),
            learning_rates=(5e-4, 5e-3),
            epochs=(1, 3),
        ),
        "cifar10": replace(
            _CIFAR10,
            **_HERE,  # type: ignore[arg-type]
            rows=10_000,
            sizes=(1, 8, 64, 256),
            extras=(),
            learning_rates=(1e-3, 5e-3),
            epochs=(2, 8),
        ),
        "higgs": replace(
            _HIGGS,
            **_HERE,  # type: ignore[arg-type]
            sizes=(1, 8, 64, 256),
            extras=("ours_running", *_TABLES),
            learning_rates=(5e-4, 1e-3),
            epochs=(2, 10),
        ),
    },
    "quick": {
        "adult": replace(
            _ADULT,
            **{**_SHORT, "extras": ("ours_running", *_TABLES)},  # type: ignore[arg-type]
            sizes=(1, 16, 64, 256),
            learning_rates=(1e-3, 5e-3, 1e-2),
            epochs=(5, 20),
        ),
        "mnist": replace(_MNIST, **_SHORT, rows=2000, sizes=(1, 64), learning_rates=(1e-3,), epochs=(2, 5)),  # type: ignore[arg-type]
        "cifar10": replace(_CIFAR10, **_SHORT, rows=2000, sizes=(1, 64), learning_rates=(1e-3,), epochs=(2, 5)),  # type: ignore[arg-type]
        "higgs": replace(_HIGGS, **_SHORT, rows=10_000, sizes=(1, 64), learning_rates=(1e-3,), epochs=(2, 5)),  # type: ignore[arg-type]
    },
}
"""Configs by scale and data set: quick, minutes; machine, hours on two cores; paper, everything."""
