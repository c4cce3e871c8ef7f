"""Models fitted anew without some of the bags: scores of a model that knows reports cannot be compared with them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import clone

from bagwise.auto import default_candidates, default_value_candidates
from bagwise.bags import Bags
from bagwise.base import BagClassifier, BagRegressor
from bagwise.data.rows import InMemory
from bagwise.folds import folds_of
from bagwise.gains import NoBetterThanConstantWarning
from bagwise.predictions import predicted, predicted_values
from bagwise.utils.typing import Floats

Refit: TypeAlias = Callable[[Bags], Floats]
"""Predictions (n_rows,) or (n_rows, classes) of all rows by a model that is fitted to these bags alone."""

_FOLDS = 5


def refit_of(model: BagClassifier | BagRegressor, X: Floats, every: Bags) -> Refit:
    """A `Refit` of a fitted model to rows as it reads them, X (n_rows, …), whose bags are these."""

    def refit(bags: Bags) -> Floats:
        fresh: Any = clone(model)
        told = fresh.get_params(deep=False)
        if "candidates" in told:  # of all families, the one that was chosen
            name = getattr(model, "best_name_", "")
            usual = default_value_candidates if isinstance(model, BagRegressor) else default_candidates
            tried = told["candidates"] or usual()
            fresh.set_params(candidates={name: tried[name]} if name in tried else None)
        if "callback" in told:
            fresh.set_params(callback=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoBetterThanConstantWarning)
            fresh.fit_rows(InMemory(X, bags))
        return (predicted_values if isinstance(model, BagRegressor) else predicted)(fresh, X, every)

    return refit


def cross_fitted(h: Floats, bags: Bags, refit: Refit, rng: np.random.Generator) -> Floats:
    """The same predictions, of rows of each fold by a model that was fitted to the other bags."""
    found = h.copy()
    for fold in folds_of(len(bags), _FOLDS, rng, enough=len(bags), shared=bags.shared):
        rows = bags.take(fold.held_out).order
        found[rows] = refit(bags.take(fold.train))[rows]
    return found
