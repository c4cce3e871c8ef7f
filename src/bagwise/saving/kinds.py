"""The classes that a saved model may name. A name that is not here is never looked for elsewhere."""

import reprlib
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any, TypeVar

from sklearn.base import BaseEstimator

from bagwise.estimators import ESTIMATORS

_MODULE_OF = ESTIMATORS | {
    "AggregatesSummary": "bagwise.tables.aggregates_summary",
    "Boosted": "bagwise.boosting.trees",
    "Column": "bagwise.tables.columns",
    "CountedFeature": "bagwise.data.aggregates",
    "Encoding": "bagwise.data.features",
    "FeatureCodes": "bagwise.data.features",
    "Features": "bagwise.tables.columns",
    "Further": "bagwise.boosting.further",
    "LogisticMemory": "bagwise.linear.memory",
    "Mismatch": "bagwise.tables.bag_table",
    "Moments": "bagwise.linear.moments",
    "Recipe": "bagwise.tables.model",
    "ReportColumns": "bagwise.tables.reports",
    "RidgeMemory": "bagwise.linear.memory",
    "RowColumns": "bagwise.tables.row_columns",
    "RowMoments": "bagwise.linear.memory",
    "ScoreErrors": "bagwise.linear.intervals",
    "ClassErrors": "bagwise.linear.intervals",
    "Summary": "bagwise.tables.bag_table",
    "TableModel": "bagwise.tables.model",
    "Told": "bagwise.formation",
    "Update": "bagwise.updates",
}
_OTHER_MODELS = {"Recipe", "TableModel"}  # that are no estimators
_REGISTERED: dict[str, type] = {}

Class = TypeVar("Class", bound=type)


def register(cls: Class) -> Class:
    """Let models name a class of your own: an estimator, a dataclass, or a class with `_to_state` and `_from_state`.

    Call it, or use it as a decorator, where the class is defined; `save` and `load` then know it by its name.

    >>> from dataclasses import dataclass
    >>> @register
    ... @dataclass(frozen=True)
    ... class Thresholds:
    ...     low: float
    ...     high: float
    """
    name = cls.__name__
    if not (isinstance(cls, type) and (issubclass(cls, BaseEstimator) or is_dataclass(cls) or has_state(cls))):
        raise ValueError(f"{name} is no estimator and no dataclass: give it _to_state and _from_state first.")
    known = _REGISTERED.get(name)
    same = known is None or (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__)
    if name in _MODULE_OF or not same:
        raise ValueError(f"a class named {name} is known already: choose another name.")
    _REGISTERED[name] = cls
    return cls


def has_state(cls: type) -> bool:
    """Whether a class says itself how it is taken apart and built."""
    return hasattr(cls, "_to_state") and hasattr(cls, "_from_state")


def find(name: Any) -> type:
    """The class of that name, if it is one that may be built."""
    if isinstance(name, str) and name in _REGISTERED:
        return _REGISTERED[name]
    if not isinstance(name, str) or name not in _MODULE_OF:
        way = "install the version that saved it, or register the class with bagwise.saving.register"
        raise ValueError(f"it names the kind {short(name)}, which this bagwise does not know: {way}")
    try:
        found: type = getattr(import_module(_MODULE_OF[name]), name)
        return found
    except (ImportError, AttributeError) as error:
        raise ValueError(f"it holds a {name}, which cannot be imported here ({error})") from None


def is_known(value: Any) -> bool:
    """Whether the value's own class, not one it only shares its name with, is in the table."""
    cls, name = type(value), type(value).__name__
    ours = name in _MODULE_OF and cls.__module__.startswith("bagwise.")
    return _REGISTERED.get(name) is cls or (ours and find(name) is cls)


def is_model(cls: type) -> bool:
    """Whether objects of a class are models, not parts of one."""
    return issubclass(cls, BaseEstimator) or cls.__name__ in _OTHER_MODELS


def require_known(model: Any) -> None:
    """Raise unless `model` is an estimator that can be saved."""
    name = type(model).__name__
    if is_known(model) and is_model(type(model)):
        return
    if hasattr(model, "best_estimator_"):
        raise ValueError(f"a {name} cannot be saved: save its best_estimator_.")
    if hasattr(model, "steps"):
        raise ValueError(f"a {name} cannot be saved, only bagwise models: save its last step and rebuild the others.")
    way = "pass a fitted bagwise estimator, or register its class with bagwise.saving.register"
    raise ValueError(f"a {name} cannot be saved: {way}.")


def require(sound: Any, otherwise: str) -> None:
    """Raise a ValueError that says `otherwise` unless what was read is sound."""
    if not sound:
        raise ValueError(otherwise)


class _Brief(reprlib.Repr):
    """Plain values in part, objects by their class alone: showing one whole may take long, or fail."""

    def repr_instance(self, x: Any, level: int) -> str:
        return repr(x) if x is None or isinstance(x, (bool, float)) else f"a {type(x).__name__}"


_brief = _Brief()
_brief.maxstring = 60


def short(value: Any) -> str:
    """A value from a file as an error message shows it: never long."""
    text = _brief.repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
