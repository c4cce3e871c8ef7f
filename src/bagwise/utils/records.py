"""Records as plain data for files, and back: frozen dataclasses of numbers, texts, arrays and each other.

A file may come from anywhere: what is read back is checked against the types that the record declares.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

Record = TypeVar("Record")


def as_data(value: Any) -> Any:
    """A record as JSON's own values: dicts, lists, numbers, strings, True, False and None.

    Numbers that JSON lacks, which arrays may hold, become text.

    >>> from bagwise.metrics import Estimate
    >>> as_data({"brier": Estimate(0.25, 0.01, 0.23, 0.27), "at": np.array([0.5, -np.inf])})
    {'brier': {'value': 0.25, 'standard_error': 0.01, 'low': 0.23, 'high': 0.27}, 'at': [0.5, '-inf']}
    """
    if is_dataclass(value):
        return {field.name: as_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_data(one) for key, one in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return as_data(value.tolist())
    if isinstance(value, (list, tuple)):
        return [as_data(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def without_default(kind: Any) -> set[str]:
    """The fields of a dataclass that must be given.

    >>> from bagwise.metrics import Estimate
    >>> sorted(without_default(Estimate))
    ['high', 'low', 'standard_error', 'value']
    """
    return {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}


def from_data(kind: type[Record], data: Any) -> Record:
    """The record of what `as_data` made of it; a ValueError where the data are not of its types.

    Fields that have a default may be missing, as those are that later versions added.

    >>> from bagwise.metrics import Estimate
    >>> from_data(Estimate, {"value": 0.25, "standard_error": 0.01, "low": 0.23, "high": 0.27}).high
    0.27
    >>> from_data(Estimate, {"value": "much", "standard_error": 0.01, "low": 0.23, "high": 0.27})
    Traceback (most recent call last):
    ValueError: Estimate.value is no float.
    """
    found: Record = _value(kind, data, kind.__name__)
    return found


def _value(kind: Any, data: Any, where: str) -> Any:
    origin, inner = _origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if data is None and NoneType in inner:
            return None
        (kind,) = (one for one in inner if one is not NoneType)
        return _value(kind, data, where)
    if is_dataclass(kind) and isinstance(data, dict) and _has_fields(kind, data):
        make, hints = cast(Callable[..., Any], kind), get_type_hints(kind)
        return make(**{name: _value(hints[name], one, f"{where}.{name}") for name, one in data.items()})
    if origin is tuple and isinstance(data, list):
        return tuple(_value(inner[0], one, where) for one in data)
    if origin is dict and isinstance(data, dict):
        return {key: _value(inner[1], one, where) for key, one in data.items()}
    if origin is np.ndarray and isinstance(data, list):
        return np.array([float(one) if isinstance(one, str) else _value(float, one, where) for one in data])
    if kind is float and type(data) in (int, float) and math.isfinite(data):
        return float(data)
    if type(data) is kind and kind is not float:
        return data
    raise ValueError(f"{where} is no {getattr(kind, '__name__', kind)}.")


def _has_fields(kind: Any, data: Mapping[str, Any]) -> bool:
    return without_default(kind) <= data.keys() <= {one.name for one in fields(kind)}


def _origin(kind: Any) -> Any:
    """What a generic type is one of; of an alias, as NumPy's NDArray is in newer Pythons, what it stands for."""
    origin = get_origin(kind)
    return get_origin(getattr(origin, "__value__", None)) or origin
