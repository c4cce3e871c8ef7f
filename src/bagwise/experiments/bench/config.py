"""What the benchmark computes."""

from __future__ import annotations

from dataclasses import dataclass

from bagwise.experiments.bench.methods import METHODS
from bagwise.experiments.bench.problems import DATASETS


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
        for name, known in (("datasets", DATASETS), ("methods", METHODS)):
            unknown = sorted(set(getattr(self, name)) - set(known))
            if unknown:
                raise ValueError(f"unknown {name} {', '.join(unknown)}: choose from {', '.join(known)}.")
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes must be one or more positive bag sizes, got {self.sizes}.")
        if len(self.synthetic_rows) != 2 or min(self.synthetic_rows) < 1:
            raise ValueError(f"synthetic_rows must be the training and the test rows, got {self.synthetic_rows}.")
        for name in ("partitions", "epochs", "auto_seconds", "timeout"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.fewest_bags < 2:
            raise ValueError(f"fewest_bags must be at least 2, got {self.fewest_bags}.")


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
