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

Names are loaded when first used, so that importing bagwise is quick. What long fits come to is told to
``logging.getLogger("bagwise")``: what was found and chosen at INFO, each step at DEBUG; nothing is shown by default.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers, which cannot follow `__getattr__`
    from bagwise import auto as auto
    from bagwise import bag_fit as bag_fit
    from bagwise import bags as bags
    from bagwise import baselines as baselines
    from bagwise import boosting as boosting
    from bagwise import checks as checks
    from bagwise import cross_validation as cross_validation
    from bagwise import data as data
    from bagwise import datasets as datasets
    from bagwise import diagnostics as diagnostics
    from bagwise import disaggregation as disaggregation
    from bagwise import displays as displays
    from bagwise import distributed as distributed
    from bagwise import evaluation as evaluation
    from bagwise import explanation as explanation
    from bagwise import export as export
    from bagwise import formation as formation
    from bagwise import gains as gains
    from bagwise import linear as linear
    from bagwise import log_odds as log_odds
    from bagwise import losses as losses
    from bagwise import means as means
    from bagwise import mlflow as mlflow
    from bagwise import neural as neural
    from bagwise import pages as pages
    from bagwise import planning as planning
    from bagwise import privacy as privacy
    from bagwise import saving as saving
    from bagwise import selection as selection
    from bagwise import tables as tables
    from bagwise import theory as theory
    from bagwise import updates as updates
    from bagwise.auto import BagAutoClassifier as BagAutoClassifier
    from bagwise.auto import BagAutoRegressor as BagAutoRegressor
    from bagwise.bags import Bags as Bags
    from bagwise.bags import aggregate as aggregate
    from bagwise.bags import random_bags as random_bags
    from bagwise.boosting import BagBoostingClassifier as BagBoostingClassifier
    from bagwise.boosting import BagBoostingRegressor as BagBoostingRegressor
    from bagwise.cross_validation import BagKFold as BagKFold
    from bagwise.cross_validation import label_free_scorer as label_free_scorer
    from bagwise.diagnostics import diagnose as diagnose
    from bagwise.disaggregation import group_rates as group_rates
    from bagwise.displays import BagCalibrationDisplay as BagCalibrationDisplay
    from bagwise.displays import BagFunnelDisplay as BagFunnelDisplay
    from bagwise.displays import BagRocDisplay as BagRocDisplay
    from bagwise.evaluation import evaluate as evaluate
    from bagwise.explanation import BagContributionDisplay as BagContributionDisplay
    from bagwise.explanation import BagDependenceDisplay as BagDependenceDisplay
    from bagwise.explanation import BagImportanceDisplay as BagImportanceDisplay
    from bagwise.explanation import partial_dependence as partial_dependence
    from bagwise.explanation import permutation_importance as permutation_importance
    from bagwise.linear import AggregatedLogisticClassifier as AggregatedLogisticClassifier
    from bagwise.linear import AggregatedRidgeClassifier as AggregatedRidgeClassifier
    from bagwise.linear import BagLogisticClassifier as BagLogisticClassifier
    from bagwise.linear import BagMeanMapClassifier as BagMeanMapClassifier
    from bagwise.linear import BagRidgeClassifier as BagRidgeClassifier
    from bagwise.linear import BagRidgeRegressor as BagRidgeRegressor
    from bagwise.linear import BagSGDClassifier as BagSGDClassifier
    from bagwise.linear import BagSGDRegressor as BagSGDRegressor
    from bagwise.linear import BagTweedieRegressor as BagTweedieRegressor
    from bagwise.neural import BagNeuralClassifier as BagNeuralClassifier
    from bagwise.neural import BagNeuralRegressor as BagNeuralRegressor
    from bagwise.privacy import release as release
    from bagwise.saving import load as load
    from bagwise.saving import save as save
    from bagwise.selection import clipped_erm as clipped_erm
    from bagwise.selection import tournament as tournament
    from bagwise.selection import two_function_test as two_function_test

    __version__: str

PUBLIC: dict[str, tuple[str, ...]] = {
    "auto": ("BagAutoClassifier", "BagAutoRegressor"),
    "bag_fit": (),
    "bags": ("Bags", "aggregate", "random_bags"),
    "baselines": (),
    "boosting": ("BagBoostingClassifier", "BagBoostingRegressor"),
    "checks": (),
    "cross_validation": ("BagKFold", "label_free_scorer"),
    "data": (),
    "datasets": (),
    "diagnostics": ("diagnose",),
    "disaggregation": ("group_rates",),
    "displays": ("BagCalibrationDisplay", "BagFunnelDisplay", "BagRocDisplay"),
    "distributed": (),
    "evaluation": ("evaluate",),
    "explanation": (
        "BagContributionDisplay",
        "BagDependenceDisplay",
        "BagImportanceDisplay",
        "partial_dependence",
        "permutation_importance",
    ),
    "export": (),
    "formation": (),
    "gains": (),
    "log_odds": (),
    "linear": (
        "AggregatedLogisticClassifier",
        "AggregatedRidgeClassifier",
        "BagLogisticClassifier",
        "BagMeanMapClassifier",
        "BagRidgeClassifier",
        "BagRidgeRegressor",
        "BagSGDClassifier",
        "BagSGDRegressor",
        "BagTweedieRegressor",
    ),
    "losses": (),
    "means": (),
    "mlflow": (),
    "neural": ("BagNeuralClassifier", "BagNeuralRegressor"),
    "pages": (),
    "planning": (),
    "privacy": ("release",),
    "saving": ("load", "save"),
    "selection": ("clipped_erm", "tournament", "two_function_test"),
    "tables": (),
    "theory": (),
    "updates": (),
}
"""What is public: these modules with the names in their `__all__`, and which of those `bagwise` itself has too."""

_MODULE_OF = {name: module for module, names in PUBLIC.items() for name in names}

__all__ = sorted(_MODULE_OF)

logging.getLogger("bagwise").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Load a public module, or a name from its module, on first use."""
    if name in PUBLIC:
        return import_module(f"bagwise.{name}")
    if name in _MODULE_OF:
        return getattr(import_module(f"bagwise.{_MODULE_OF[name]}"), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("bagwise")
    raise AttributeError(f"module 'bagwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(module for module in PUBLIC if "." not in module), "__version__"])
