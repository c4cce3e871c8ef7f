"""Learn about individuals when labels are known only for groups.

Rows are grouped in bags; for each bag only the mean label is reported; the model that comes out scores single rows.

>>> import numpy as np
>>> import bagwise as bw
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(6400, 3))
>>> y = rng.random(6400) < 1 / (1 + np.exp(-2 * X[:, 0]))
>>> ids = bw.random_bags(len(X), size=64, random_state=0)  # the data holder's side
>>> y_bag = bw.aggregate(y, ids)
>>> model = bw.BagRidgeClassifier().fit(X, y_bag, bags=ids)  # labels of bags only
>>> bool(model.score(X, y) > 0.75)
True

Names are loaded when first used, so that importing bagwise is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bagwise.auto import BagAutoClassifier
    from bagwise.bags import Bags, aggregate, random_bags
    from bagwise.boosting import BagBoostingClassifier, BagBoostingRegressor
    from bagwise.cross_validation import BagKFold, label_free_scorer
    from bagwise.diagnostics import diagnose
    from bagwise.evaluation import evaluate
    from bagwise.linear import (
        BagMeanMapClassifier,
        BagRidgeClassifier,
        BagRidgeRegressor,
        BagSGDClassifier,
        BagSGDRegressor,
    )
    from bagwise.neural import BagNeuralClassifier
    from bagwise.privacy import release
    from bagwise.saving import load, save
    from bagwise.selection import clipped_erm, tournament, two_function_test

__version__ = "0.1.0"

__all__ = [
    "BagAutoClassifier",
    "BagBoostingClassifier",
    "BagBoostingRegressor",
    "BagKFold",
    "BagMeanMapClassifier",
    "BagNeuralClassifier",
    "BagRidgeClassifier",
    "BagRidgeRegressor",
    "BagSGDClassifier",
    "BagSGDRegressor",
    "Bags",
    "aggregate",
    "clipped_erm",
    "diagnose",
    "evaluate",
    "label_free_scorer",
    "load",
    "random_bags",
    "release",
    "save",
    "tournament",
    "two_function_test",
]

_ROOMS = (
    "auto",
    "bags",
    "baselines",
    "boosting",
    "checks",
    "datasets",
    "diagnostics",
    "evaluation",
    "linear",
    "losses",
    "means",
    "neural",
    "privacy",
    "pages",
    "saving",
    "selection",
    "tables",
    "theory",
    "cross_validation",
)


_ROOM_OF = {
    "BagAutoClassifier": "auto",
    "BagBoostingClassifier": "boosting",
    "BagBoostingRegressor": "boosting",
    "BagKFold": "cross_validation",
    "BagMeanMapClassifier": "linear",
    "BagNeuralClassifier": "neural",
    "BagRidgeClassifier": "linear",
    "BagRidgeRegressor": "linear",
    "BagSGDClassifier": "linear",
    "BagSGDRegressor": "linear",
    "Bags": "bags",
    "aggregate": "bags",
    "clipped_erm": "selection",
    "diagnose": "diagnostics",
    "evaluate": "evaluation",
    "label_free_scorer": "cross_validation",
    "load": "saving",
    "random_bags": "bags",
    "release": "privacy",
    "save": "saving",
    "tournament": "selection",
    "two_function_test": "selection",
}


def __getattr__(name: str) -> Any:
    """Load a room, or a public name from its room, on first use."""
    if name in _ROOMS:
        return import_module(f"bagwise.{name}")
    if name in _ROOM_OF:
        return getattr(import_module(f"bagwise.{_ROOM_OF[name]}"), name)
    raise AttributeError(f"module 'bagwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, "__version__"])
