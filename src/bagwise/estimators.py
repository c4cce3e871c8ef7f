"""The estimators by name, and where they are; nothing of theirs is loaded before it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bagwise import PUBLIC
from bagwise.utils.parameters import check_parameters, one_of

if TYPE_CHECKING:
    from bagwise.base import BagClassifier

ESTIMATORS = {
    name: f"bagwise.{module}"
    for module, names in PUBLIC.items()
    for name in names
    if name.endswith(("Classifier", "Regressor"))
} | {"GroupPriorClassifier": "bagwise.baselines"}
"""Modules of all estimators, by the names of their classes."""

MODELS = {
    "auto": "BagAutoClassifier",
    "boosting": "BagBoostingClassifier",
    "logistic": "BagLogisticClassifier",
    "mean-map": "BagMeanMapClassifier",
    "network": "BagNeuralClassifier",
    "ridge": "BagRidgeClassifier",
    "sgd": "BagSGDClassifier",
}
"""Classifiers that tables are fitted with, by the words for them."""


def make(model: str, **parameters: Any) -> BagClassifier:
    """A classifier by its word in `MODELS`.

    >>> make("ridge", random_state=0)
    BagRidgeClassifier(random_state=0)
    """
    check_parameters({"model": model}, {"model": one_of(*MODELS)})
    name = MODELS[model]
    made: BagClassifier = getattr(import_module(ESTIMATORS[name]), name)(**parameters)
    return made
