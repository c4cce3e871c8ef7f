"""A model of single rows fitted to tables of counts and label sums, and what it tells about itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from bagwise.data.aggregates import Aggregates
from bagwise.gains import clear
from bagwise.linear.aggregated import AggregatedClassifier, AggregatedLogisticClassifier, AggregatedRidgeClassifier
from bagwise.tables.aggregates_summary import AggregatesSummary
from bagwise.tables.columns import Column, Features, Role
from bagwise.tables.model import TableModel
from bagwise.utils.parameters import ParameterError, check_parameters, one_of
from bagwise.utils.records import from_data
from bagwise.utils.rng import RandomState

AGGREGATED_MODELS = {"logistic": AggregatedLogisticClassifier, "ridge": AggregatedRidgeClassifier}
"""Classifiers that tables of counts are fitted with, by the words for them."""

_FACTS = "aggregates"  # the name of what a model's folder stores
_MOST_WEIGHTS = 12


def fit_aggregates(
    data: Aggregates,
    model: str | AggregatedClassifier = "logistic",
    *,
    missing_pairs: str = "error",
    random_state: RandomState = None,
) -> TableModel:
    """Learn from tables of counts and label sums, without rows.

    Parameters
    ----------
    data : Aggregates
        As `read_aggregates` returns them.
    model : {"logistic", "ridge"}, AggregatedLogisticClassifier or AggregatedRidgeClassifier
        What to fit; an estimator for settings of your own.
    missing_pairs : {"error", "independent"}
        What pairs of features without a table are.
    random_state : int, Generator or None
        For the splitting of noise.

    Returns
    -------
    TableModel
        It scores rows of a table, as other models do.

    Examples
    --------
    >>> from bagwise.tables import read_aggregates
    >>> device = {"device": ["phone", "tablet"], "count": [6000, 4000], "sum": [1200, 400]}
    >>> model = fit_aggregates(read_aggregates([device], noise_variance=0))
    >>> model.features.columns[0].levels, model.summary.prior
    (('phone', 'tablet'), (0.16,))
    """
    if isinstance(model, str):
        check_parameters({"model": model}, {"model": one_of(*AGGREGATED_MODELS)})
        estimator: Any = AGGREGATED_MODELS[model](missing_pairs=missing_pairs, random_state=random_state)
    elif isinstance(model, AggregatedClassifier):
        estimator = clone(model)
    else:
        raise ParameterError("model", f"must learn from tables of counts, got {type(model).__name__}.")
    estimator.fit(data)
    columns = tuple(
        Column(one.name, Role.category, levels=one.levels)
        if one.edges is None
        else Column(one.name, Role.number, kind="numbers")
        for one in data.features
    )
    kind = model if isinstance(model, str) else type(model).__name__
    summary = AggregatesSummary.of(data, estimator)
    return TableModel(Features(columns), estimator, None, None, kind, (), summary)


@dataclass(frozen=True)
class Effect:
    """How a feature moves log odds: their standard deviation over rows, the values with least and most weight."""

    feature: str
    spread: float
    least: str
    most: str


@dataclass(frozen=True)
class AboutAggregates:
    """What a model of tables of counts tells about itself.

    model, estimator: its kind, as the command calls it, and its class.  summary: of the tables.
    alpha: the penalty.  r2, r2_error: the share of the variance of labels that ridge regression explains by the tables,
    None where they do not tell.  effects: of features, the largest first.
    """

    model: str
    estimator: str
    summary: AggregatesSummary
    alpha: float
    r2: float | None
    r2_error: float | None
    effects: tuple[Effect, ...]

    @classmethod
    def of(cls, model: TableModel, data: Aggregates) -> AboutAggregates:
        """Of a model and the tables that it was fitted to."""
        estimator: Any = model.estimator
        known = math.isfinite(estimator.r2_)
        r2, error = (estimator.r2_, estimator.r2_error_) if known else (None, None)
        assert isinstance(model.summary, AggregatesSummary)
        effects = _effects(estimator)
        return cls(model.kind, type(estimator).__name__, model.summary, estimator.alpha_, r2, error, effects)

    @property
    def lines(self) -> list[str]:
        """The same in words."""
        lines = [f"Model: {self.model} ({self.estimator}), penalty {self.alpha:.4g}.", *str(self.summary).split("\n")]
        lines += ["", *self._quality, "", "Standard deviation of log odds over rows, by feature:"]
        for one in self.effects[:_MOST_WEIGHTS]:
            lines.append(f"  {one.spread:.3f}  {one.feature} (least {one.least}, most {one.most})")
        if len(self.effects) > _MOST_WEIGHTS:
            lines.append(f"  and {len(self.effects) - _MOST_WEIGHTS:,} further features")
        return [*lines, ""]

    @property
    def _quality(self) -> list[str]:
        if self.r2 is None or self.r2_error is None:
            why = "cells are hidden" if self.summary.threshold is not None else "pairs of features have no table"
            return [f"How good it is the tables do not tell, since {why}; measure it on rows: bagwise evaluate."]
        low, high = (self.r2 + side * 1.96 * self.r2_error for side in (-1, 1))
        lines = [
            f"R² of single rows by the tables, of ridge regression with this penalty: {self.r2:.4f} "
            f"[{low:.4f}, {high:.4f}], noise taken off (95%, about).",
            "Log loss, AUC and calibration of rows the tables do not tell; measure them on rows: bagwise evaluate.",
        ]
        if not clear(self.r2, self.r2_error):
            doubt = "it may say nothing about single rows"
            lines.append(f"That is not clearly better than the mean label of all rows: {doubt}.")
        return lines


def _effects(estimator: Any) -> tuple[Effect, ...]:
    """What each feature does to log odds."""
    found = []
    for one, w, share in zip(estimator.features_, *estimator.by_feature(), strict=True):
        names, used = np.array([*one.levels, "the rest"]), share > 0
        spread = math.sqrt(max(float(share @ w**2) - float(share @ w) ** 2, 0.0))
        ordered = names[used][np.argsort(w[used], kind="stable")]
        found.append(Effect(one.name, spread, str(ordered[0]), str(ordered[-1])))
    return tuple(sorted(found, key=lambda one: -one.spread))


def facts(about: AboutAggregates) -> dict[str, Any]:
    """What a model's folder stores."""
    from bagwise.utils.records import as_data

    return {_FACTS: as_data(about)}


def read_about_aggregates(found: Mapping[str, Any]) -> AboutAggregates | None:
    """What a folder tells, None if it is no model of tables of counts; a ValueError where the facts are not ours."""
    if _FACTS not in found:
        return None
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        return from_data(AboutAggregates, found[_FACTS])
    raise ValueError("the model's file tells facts that bagwise did not write: fit it again.")
