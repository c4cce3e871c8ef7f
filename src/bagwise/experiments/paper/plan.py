"""The runs of a config, and which of them are computed together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bagwise.experiments.config import fingerprint
from bagwise.experiments.paper.config import PaperConfig
from bagwise.experiments.paper.methods import METHODS, PAPER

STACKED = ("adult", "higgs")
"""Data sets whose networks are fully connected and trained many at once."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training: all that its result depends on.

    learning_rate: 0 where there is none.  held_out: without a fifth of the bags, to measure the label-free risk on.
    measured: epochs after which it is measured; empty where there are none.
    """

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

    @cached_property
    def key(self) -> str:
        """Hash of all fields."""
        return fingerprint(self)

    def seed(self, number: int) -> int:
        """Seeds that do not depend on the method: 0 for the partition, 1 for what the method draws, 2 for the fold."""
        key = (self.repetition, self.size, number)
        return int(np.random.SeedSequence(self.random_state, spawn_key=key).generate_state(1)[0] >> 1)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def plan(config: PaperConfig) -> list[Run]:
    """All runs of a config. Repetitions are the outer loop: stopping early leaves whole tables."""
    runs = []
    most = max(config.repetitions, config.extra_repetitions)
    for repetition in range(most):
        for size in config.sizes:
            for methods, repetitions in (
                (config.methods, config.repetitions),
                (config.extras, config.extra_repetitions),
            ):
                if repetition < repetitions:
                    runs += [run for name in methods for run in _runs(config, name, size, repetition)]
    return runs


def _runs(config: PaperConfig, name: str, size: int, repetition: int) -> list[Run]:
    network = METHODS[name].is_network
    holds_out = network and repetition < config.held_out_repetitions
    measured = config.measured if network else ()
    return [
        Run(
            dataset=config.dataset,
            rows=config.rows,
            scaled=config.scaled,
            size=size,
            method=name,
            learning_rate=rate,
            repetition=repetition,
            held_out=held_out,
            measured=measured,
            batch_rows=config.batch_rows,
            random_state=config.random_state,
        )
        for held_out in ((False, True) if holds_out else (False,))
        for rate in (config.learning_rates if network else (0.0,))
    ]


def units(runs: Sequence[Run], done: Collection[str] = ()) -> list[list[Run]]:
    """The runs that are not done, in groups to be computed together, in order.

    Networks of a stack share a partition and the order of bags; the paper's losses, which are fast, form stacks of
    their own. Everything else is computed one by one.
    """
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        if run.key in done:
            continue
        together = run.dataset in STACKED and METHODS[run.method].is_network
        own = (run.size, run.repetition, run.held_out, run.method in PAPER)
        groups.setdefault(own if together else run.key, []).append(run)
    return list(groups.values())
