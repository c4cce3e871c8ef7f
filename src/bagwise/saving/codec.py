"""Values as JSON and arrays, and back: by type, so that no attribute needs to be known by name.

In JSON, None, bool, int, finite floats, str and lists stand for themselves. Everything else is an object whose
``kind`` says what it is: a word of this module in lower case, or the name of a known class.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from bagwise.saving import arrays, trees
from bagwise.saving.kinds import find, has_state, is_known, is_model, short

_DEEPEST = 40
_MOST_ALIKE = 20  # keys of a dict with the same hash: more are chosen to make it slow
_RANDOM = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, np.random.SeedSequence)
_SCALARS = {
    np.dtype(code).name: np.dtype(code).type
    for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
_NOT_STATE = {"_metadata_request"}  # what scikit-learn keeps in an instance beside parameters and fitted attributes


class Encoder:
    """Takes objects apart. Arrays and trees gather in `files`, the rest is returned as JSON."""

    def __init__(self) -> None:
        self._arrays = arrays.Gathered()
        self._trees: list[str] = []
        self._depth = 0

    def files(self) -> dict[str, bytes]:
        """The files that hold what is not in the JSON."""
        texts = {f"trees-{number}.txt": text.encode() for number, text in enumerate(self._trees)}
        return {**self._arrays.files(), **texts}

    def encode_object(self, value: Any) -> dict[str, Any]:
        """An object of a known class."""
        name = type(value).__name__
        if has_state(type(value)):
            return {"kind": name, "state": self._items(value._to_state(), f"{{}} of {name}")}
        if is_dataclass(value):
            values = {field.name: getattr(value, field.name) for field in fields(value)}
            return {"kind": name, "fields": self._items(values, f"{{}} of {name}")}
        parameters = value.get_params(deep=False)
        fitted = {key: item for key, item in vars(value).items() if key not in {*parameters, *_NOT_STATE}}
        return {
            "kind": name,
            "parameters": self._items(parameters, f"parameter {{}} of {name}"),
            "fitted": self._items(fitted, f"attribute {{}} of {name}"),
        }

    def _items(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        return {key: self._encode(value, where.format(repr(key))) for key, value in values.items()}

    def _encode(self, value: Any, where: str) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"{where} is nested too deeply to be saved.")
        encoded = self._encode_plain(value, where)
        self._depth -= 1
        return encoded

    def _encode_plain(self, value: Any, where: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
            return value
        if kind is float:
            return {"kind": "float", "value": str(value)}
        if kind is list:
            return [self._encode(item, where) for item in value]
        if kind is tuple:
            return {"kind": "tuple", "items": [self._encode(item, where) for item in value]}
        if isinstance(value, _RANDOM):
            return None
        if is_known(value):
            return self.encode_object(value)
        if isinstance(value, dict):  # a state dict of torch is a subclass
            if all(type(key) is str for key in value):
                inside = "{} in " + where.replace("{", "{{").replace("}", "}}")  # `_items` fills in the key
                return {"kind": "dict", "items": self._items(value, inside)}
            return {"kind": "pairs", "items": [[self._encode(part, where) for part in pair] for pair in value.items()]}
        return self._encode_array(value, where)

    def _encode_array(self, value: Any, where: str) -> dict[str, Any]:
        if isinstance(value, np.str_):
            return {"kind": "scalar", "type": "str", "value": str(value)}
        if isinstance(value, np.generic) and value.dtype.name in _SCALARS:
            return {"kind": "scalar", "type": value.dtype.name, "value": self._encode(value.item(), where)}
        if type(value) in (np.ndarray, np.memmap):
            if value.dtype == object:
                items = [self._encode(item, where) for item in value.ravel().tolist()]
                return {"kind": "objects", "shape": list(value.shape), "items": items}
            if arrays.can_hold(value):
                return {"kind": "array", **self._arrays.add(value)}
        tensor_type = arrays.tensor_type(value)
        if tensor_type is not None:
            return {"kind": "tensor", "type": tensor_type, **self._arrays.add_tensor(value)}
        lightgbm = sys.modules.get("lightgbm")
        if lightgbm is not None and isinstance(value, lightgbm.Booster):
            self._trees.append(trees.to_text(value))
            return {"kind": "trees", "number": len(self._trees) - 1}
        raise ValueError(
            f"{where} holds a {type(value).__name__}, which cannot be saved: set it to None or to plain data first, "
            "such as numbers, strings, lists or arrays."
        )


class Decoder:
    """Puts objects together again, and trusts nothing it reads."""

    def __init__(self, files: dict[str, bytes], module: Any = None) -> None:
        self._files = files
        self._arrays = arrays.unpack(files[arrays.NAME]) if arrays.NAME in files else {}
        self._taken: set[int] = set()
        self._module = module
        self._depth = 0
        self.used_module = False

    def decode_model(self, document: dict[str, Any]) -> Any:
        """The model that a document describes."""
        cls = find(document["kind"])
        if not is_model(cls):
            raise ValueError(f"it holds a {cls.__name__}, which is no model")
        return self._object(cls, document)

    def _object(self, cls: type, document: dict[str, Any]) -> Any:
        if has_state(cls):
            return self._from_state(cls, self._items(document, "state", cls))
        if is_dataclass(cls):
            names = {field.name for field in fields(cls)}
            values = self._items(document, "fields", cls)
            if set(values) != names:
                raise ValueError(f"a {cls.__name__} must have the fields {', '.join(sorted(names))}")
            return cls(**values)
        return self._estimator(cls, self._items(document, "parameters", cls), self._items(document, "fitted", cls))

    def _from_state(self, cls: Any, state: dict[str, Any]) -> Any:
        if self._module is None or not issubclass(cls, BaseEstimator):
            return cls._from_state(state)
        self.used_module = self.used_module or bool(state.get("own_module", True))
        return cls._from_state(state, module=self._module)

    def _estimator(self, cls: Any, parameters: dict[str, Any], fitted: dict[str, Any]) -> Any:
        known = cls._get_param_names()
        for name in parameters:
            if name not in known:
                raise ValueError(f"{cls.__name__} has no parameter {short(name)} in this version of bagwise")
        model = cls(**parameters)
        for name, value in fitted.items():
            # Nothing of the class itself, such as a method, may be covered up.
            if not name.isidentifier() or name.startswith("__") or hasattr(cls, name) or name in known:
                raise ValueError(f"{short(name)} is no attribute that fitting a {cls.__name__} could have made")
            setattr(model, name, value)
        return model

    def _items(self, document: dict[str, Any], part: str, cls: type) -> dict[str, Any]:
        values = document.get(part)
        if not isinstance(values, dict):
            raise ValueError(f"the {part} of a {cls.__name__} are missing")
        return {name: self._decode(value) for name, value in values.items()}

    def _decode(self, value: Any) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        decoded = self._decode_plain(value)
        self._depth -= 1
        return decoded

    def _decode_plain(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        kind = value.get("kind")
        if kind == "float" and value.get("value") in ("nan", "inf", "-inf"):
            return float(value["value"])
        if kind == "tuple" and isinstance(value.get("items"), list):
            return tuple(self._decode(item) for item in value["items"])
        if kind == "dict" and isinstance(value.get("items"), dict):
            return {name: self._decode(item) for name, item in value["items"].items()}
        if kind == "pairs" and isinstance(value.get("items"), list):
            return self._pairs(value["items"])
        if kind == "scalar":
            return self._scalar(value.get("type"), self._decode(value.get("value")))
        if kind == "array":
            return arrays.find(self._arrays, value)
        if kind == "objects":
            return self._objects(value.get("shape"), self._decode(value.get("items")))
        if kind == "tensor":
            return arrays.find_tensor(self._arrays, value)
        if kind == "trees":
            return self._trees(value.get("number"))
        return self._object(find(kind), value)

    def _pairs(self, items: list[Any]) -> dict[Any, Any]:
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in items):
            raise ValueError("a dict does not consist of pairs")
        pairs = [(self._decode(key), self._decode(item)) for key, item in items]
        if max(Counter(hash(key) for key, _ in pairs).values(), default=0) > _MOST_ALIKE:
            raise ValueError("the keys of a dict are too much alike")
        return dict(pairs)

    def _scalar(self, name: Any, value: Any) -> Any:
        if name == "str" and isinstance(value, str):
            return np.str_(value)
        if not (isinstance(name, str) and name in _SCALARS and isinstance(value, (bool, int, float))):
            raise ValueError(f"{short(value)} is no number of type {short(name)}")
        with np.errstate(all="ignore"):
            return _SCALARS[name](value)

    def _objects(self, shape: Any, items: Any) -> NDArray[Any]:
        sound = isinstance(shape, list) and all(type(length) is int and length >= 0 for length in shape)
        if not (sound and isinstance(items, list) and math.prod(shape) == len(items)):
            raise ValueError("an array of objects does not have the shape it claims")
        flat = np.empty(len(items), dtype=object)
        for place, item in enumerate(items):  # all at once, NumPy would look into tuples
            flat[place] = item
        return flat.reshape(shape)

    def _trees(self, number: Any) -> Any:
        name = f"trees-{number}.txt"
        if type(number) is not int or name not in self._files:
            raise ValueError(f"the file {short(name)} is missing")
        if number in self._taken:  # read again and again, a small file would take for ever
            raise ValueError(f"{name} is used twice")
        self._taken.add(number)
        return trees.from_text(self._files[name], name)
