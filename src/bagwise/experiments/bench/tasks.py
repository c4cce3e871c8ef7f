"""What a method is given, what it gives back, and the data sets that tasks are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bagwise import datasets
from bagwise.bags import Bags
from bagwise.datasets import Split
from bagwise.folds import Fold
from bagwise.risk import held_out_risk
from bagwise.utils.typing import Floats

HELD_OUT = 0.1
"""Part of the bags that a choice without labels holds out."""


@dataclass(frozen=True, eq=False)
class Task:
    """All that a method sees. There are no labels of test rows in it, and none of training rows but for a ceiling.

    X, X_test: features.  bags: bags of the training rows with their proportions; single rows for a ceiling.
    random_state: seed of the run.
    """

    X: Any
    X_test: Any
    bags: Bags
    random_state: int

    @cached_property
    def fold(self) -> Fold:
        """Bags to train on and bags held out, at random."""
        order = np.random.default_rng(self.random_state).permutation(len(self.bags))
        held = max(1, round(HELD_OUT * len(order)))
        return Fold(np.sort(order[held:]), np.sort(order[:held]))

    @cached_property
    def training_bags(self) -> Bags:
        """The bags that are not held out."""
        return self.bags.take(self.fold.train)

    def held_out_risk(self, h: Floats) -> float:
        """Label-free risk of the held-out bags. h: (n,) predictions for all rows of X."""
        return held_out_risk(h[self.bags.order], self.bags, self.fold)


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a method says about the test rows.

    h: (n,) probabilities of label 1, None if it failed.  error: why.
    learning_rate, risk: where a learning rate is still to be chosen, this one and its held-out risk.
    seconds: of fit and prediction, where the caller's clock would measure other things too.
    """

    h: Floats | None = None
    learning_rate: float = np.nan
    risk: float = np.nan
    seconds: float | None = None
    error: str = ""


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
