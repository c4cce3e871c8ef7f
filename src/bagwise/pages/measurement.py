"""Predictions of a model for bags, and all that they tell without labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise import evaluation
from bagwise.bags import Bags
from bagwise.diagnostics import Finding
from bagwise.pages.funnel import Funnel
from bagwise.tables import BagTable, TableModel, evaluation_facts
from bagwise.tables.evaluation import numbered, predictions, reported

LEVEL = 0.95
"""Of all intervals on a page."""


@dataclass(frozen=True, eq=False)
class Reports:
    """What bags reported, by number: size (m,), proportion (m, outputs), noise (m,), 0 where none was declared."""

    size: NDArray[Any]
    proportion: NDArray[Any]
    noise: NDArray[Any]

    @classmethod
    def of(cls, data: BagTable) -> Reports:
        """One line per bag of the tables."""
        size, proportion, noise = reported(data)
        return cls(size, proportion.reshape(len(size), -1), np.zeros(len(size)) if noise is None else noise)

    def funnel(self, output: int = 0) -> Funnel:
        """The reported proportions of one class beside their mean."""
        shares = self.proportion[:, output]
        prior = float(shares @ self.size / self.size.sum())
        p = float(np.clip(prior, 0, 1))
        return Funnel(self.size, np.full(len(self.size), prior), shares, self.noise, p * (1 - p))


@dataclass(frozen=True, eq=False)
class Measured:
    """A model on bags that it was not fitted to.

    h: (n,) or (n, classes) predictions.  bags: of these rows.  guess: the measures of one prediction for all rows, the
    mean label of the bags that the model was fitted to.  gain: the model less the guess, paired.
    """

    h: NDArray[Any]
    bags: Bags
    found: evaluation.Evaluation
    guess: dict[str, evaluation.Estimate]
    gain: dict[str, evaluation.Estimate]

    @property
    def facts(self) -> dict[str, Any]:
        """The figures, as models' files hold them."""
        return evaluation_facts(self.found)

    def level(self) -> tuple[float, float, float]:
        """Mean prediction, mean of what the bags report, and the standard error of their difference; two classes."""
        size, predicted = np.asarray(self.bags.size), self.bags.sum_table(self.h)
        reported, n = size * self.bags.outputs[:, 0], size.sum()
        missed = reported - predicted - size * (reported.sum() - predicted.sum()) / n
        return float(predicted.sum() / n), float(reported.sum() / n), float(np.sqrt((missed**2).sum()) / n)

    def funnel(self, output: int = 0) -> Funnel:
        """Reported beside predicted proportions of bags, of one class."""
        h = self.h if self.h.ndim == 1 else self.h[:, output]
        reported = self.bags.outputs[:, output]
        noise = np.zeros(len(self.bags)) if self.bags.noise_variance is None else np.asarray(self.bags.noise_variance)
        size = np.asarray(self.bags.size)
        return Funnel(size, self.bags.sum_table(h) / size, reported, noise, float((h * (1 - h)).mean()))


def measure(
    model: TableModel,
    data: BagTable,
    prior: list[float],
    features: Sequence[Finding],
    *,
    even_if_not_random: bool = False,
) -> Measured:
    """Judge a model by bags that it was not fitted to.

    prior: the constant guess.  features: how much the bags differ in each (see `tables.judging.spread`).
    """
    h, bags = predict(model, data)
    p = np.clip(prior, 0, 1)  # noise may have put it elsewhere
    constant = np.full(len(h), p[0]) if h.ndim == 1 else np.tile(p / p.sum(), (len(h), 1))
    found = evaluation.measure(h, bags, features=features, level=LEVEL, even_if_not_random=even_if_not_random)
    # A constant's numbers are right whatever the bags: they need no more than the mean label.
    measured = evaluation.measure(constant, bags, level=LEVEL, even_if_not_random=True)
    guess, gain = {}, {}
    for name, one in evaluation.differences(h, constant, bags, level=LEVEL).items():
        least, most = evaluation.possible(name, h.ndim)
        guess[name] = getattr(measured, name).within(least, most)
        gain[name] = one.within(least - guess[name].value, most - guess[name].value)
    return Measured(h, bags, found, guess, gain)


def predict(model: TableModel, data: BagTable) -> tuple[NDArray[Any], Bags]:
    """Predictions of all rows in bags, and the bags.

    Rows come in an order that does not depend on how the engine's threads worked: pages are equal to the last digit.
    """
    number, h = predictions(model, data)
    order = np.lexsort((h, number) if h.ndim == 1 else (*h.T, number))
    return h[order], numbered(data, number[order])
