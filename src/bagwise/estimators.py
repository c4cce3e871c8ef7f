"""The estimators by name, and where they are; nothing of theirs is loaded before it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bagwise import PUBLIC
from bagwise.utils.parameters import ParameterError, check_parameters, one_of
from bagwise.utils.text import listed

if TYPE_CHECKING:
    from bagwise.base import BagEstimator

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

VALUE_MODELS = {
    "auto": "BagAutoRegressor",
    "boosting": "BagBoostingRegressor",
    "network": "BagNeuralRegressor",
    "ridge": "BagRidgeRegressor",
    "sgd": "BagSGDRegressor",
    "tweedie": "BagTweedieRegressor",
}
"""Regressors that tables of values are fitted with."""


def make(model: str, *, target: str = "label", **parameters: Any) -> Any:
    """A classifier by its word in `MODELS`; where the target is a "value", a regressor by that in `VALUE_MODELS`.

    >>> make("ridge", random_state=0), make("ridge", target="value")
    (BagRidgeClassifier(random_state=0), BagRidgeRegressor())
    """
    models = MODELS if target == "label" else VALUE_MODELS
    other = {"label": "values, not for labels", "value": "labels, not for values"}[target]
    if model in {*MODELS, *VALUE_MODELS} and model not in models:
        raise ParameterError("model", f"{model!r} is for {other}: choose {listed(list(models), 'or')}.")
    check_parameters({"model": model}, {"model": one_of(*models)})
    made: BagEstimator = getattr(import_module(ESTIMATORS[models[model]]), models[model])(**parameters)
    return made


_TOLD_ELSEWHERE = ("callback", "formation", "random_state")


def set_parameters(estimator: Any, settings: Mapping[str, Any]) -> None:
    """Give an estimator parameters by name, but those that `tables.fit` takes itself.

    >>> model = make("ridge")
    >>> set_parameters(model, {"cv": 3})
    >>> model.cv
    3
    """
    known = estimator.get_params(deep=False)
    for name in settings:
        if name not in known or name in _TOLD_ELSEWHERE:
            said = f"names {name!r}, which is no such parameter of a {type(estimator).__name__}: it has "
            raise ParameterError("settings", f"{said}{listed(sorted(set(known) - set(_TOLD_ELSEWHERE)), 'and')}.")
    estimator.set_params(**settings)
