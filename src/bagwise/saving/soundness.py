"""Whether what was read fits together: types of fields, and a prediction.

Checksums and the shapes of single files do not tell that the parts of a model belong to each other. So the fields of
known dataclasses are held to the types they declare, and a model that was read predicts a row of zeros before it is
handed over: what loads, predicts.
"""

from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from bagwise.saving.kinds import require, short
from bagwise.utils.threads import one_thread


def check_fields(cls: type, values: dict[str, Any]) -> None:
    """Raise unless the values of a dataclass's fields are of the types that it declares."""
    for name, hint in hints_of(cls).items():
        if name in values and not _is(values[name], hint):
            raise ValueError(f"{name} of a {cls.__name__} is {short(values[name])}, which is of the wrong kind")


@cache
def hints_of(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields, as its own module declares them."""
    try:
        hints = get_type_hints(cls)
    except NameError:  # a class of the user's, with names that only type checkers know
        return {}
    return {one.name: hints[one.name] for one in fields(cls)}


def _is(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, as far as that is known here."""
    origin, inner = get_origin(hint), get_args(hint)
    origin = get_origin(getattr(origin, "__value__", None)) or origin  # NumPy's NDArray in newer Pythons
    if origin in (Union, UnionType):
        return any(_is(value, one) for one in inner)
    if origin is tuple:
        alike = len(inner) == 2 and inner[1] is Ellipsis
        if not isinstance(value, tuple) or not (alike or len(value) == len(inner)):
            return False
        return all(_is(one, inner[0 if alike else place]) for place, one in enumerate(value))
    if origin is list:
        return isinstance(value, list) and all(_is(one, inner[0]) for one in value)
    if origin is dict:
        pairs = value.items() if isinstance(value, dict) else ()
        return isinstance(value, dict) and all(_is(key, inner[0]) and _is(one, inner[1]) for key, one in pairs)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray)
    if hint is float:
        return isinstance(value, (float, int, np.floating, np.integer)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if hint in (str, bool, NoneType):
        return isinstance(value, (hint, np.bool_) if hint is bool else hint)
    return not isinstance(hint, type) or origin is not None or hint is object or isinstance(value, hint)


def check_predicts(model: Any) -> None:
    """Raise unless a model that was read predicts a row as it should; classes of others are left to them."""
    try:
        with np.errstate(all="ignore"), one_thread():
            _predict(model)
    except MemoryError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        raise ValueError(f"its parts do not fit each other, so that it predicts nothing ({said[:200]})") from None


def _predict(model: Any) -> None:
    if hasattr(model, "check_whole"):
        model.check_whole()
    elif hasattr(model, "predict_codes"):  # of tables
        _predict(model.estimator)
        width = sum(len(column.made) for column in model.features.columns)
        told = getattr(model.estimator, "has_offset_", False)
        require(bool(told) == (model.of_rows.offset is not None), "an offset is told and not used")
        h = model.predict_codes(np.zeros((1, width)), np.zeros(1) if told else None)
        require(h.shape == ((1,) if model.classes is None else (1, len(model.classes))), "wrong classes")
