"""Values as JSON and arrays, and back: by type, so that no attribute needs to be known by name.

In JSON, None, bool, int, finite floats, str and lists stand for themselves. Everything else is an object whose
``kind`` says what it is: a word of this module in lower case, or the name of a known class.

Arrays and tensors make one safetensors file: the same bits, type, shape and order of the axes in memory. safetensors
holds plain numbers as they are. What it does not know (text, dates, complex and long numbers, numbers in the other byte
order) lies in it as bytes, with the length of an item as the last axis, and the JSON names the type. Tensors of
bfloat16, which NumPy does not have, lie in it as int16.
"""

import math
import re
import sys
from collections import Counter
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any

import numpy as np
import safetensors.numpy
from array_api_compat import is_torch_array
from numpy.typing import NDArray
from safetensors import SafetensorError
from sklearn.base import BaseEstimator

from bagwise.saving import trees
from bagwise.saving.kinds import find, has_state, is_known, is_model, require, short
from bagwise.saving.soundness import check_fields
from bagwise.utils.records import without_default

ARRAYS = "arrays.safetensors"
_DEEPEST = 40
_MOST_ALIKE = 20  # keys of a dict with the same hash: more are chosen to make it slow
_RANDOM = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, np.random.SeedSequence)
_NUMBERS = [np.dtype(code) for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")]
_PLAIN = {dtype.name: dtype.type for dtype in _NUMBERS}  # numbers that safetensors knows
_KINDS = "biufcUSmM"  # of arrays that can be saved: none of objects and of records
_TYPE = re.compile(
    r"[<>|]([iu][1248]|f[248]|c8|c16|[US][0-9]{1,9}|[mM]8(\[[0-9]{0,9}[a-zA-Zμ]{1,9}\])?|[fc][0-9]{2}:[0-9]{1,3})"
)
_TENSORS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16")
_REMEMBERED = {"memory_": None, "_bags_seen": None}  # of estimators, of their bags, and what takes its place
_NOT_STATE = {"_metadata_request"}  # what scikit-learn keeps in an instance beside parameters and fitted attributes


class Encoder:
    """Takes objects apart. Arrays and trees gather in `files`, the rest is returned as JSON.

    redact: leave out what is kept of training data and not needed to predict.
    """

    def __init__(self, *, redact: bool = False) -> None:
        self._redact = redact
        self._arrays: dict[str, NDArray[Any]] = {}
        self._trees: list[str] = []
        self._depth = 0

    def files(self) -> dict[str, bytes]:
        """The files that hold what is not in the JSON."""
        files = {f"trees-{number}.txt": text.encode() for number, text in enumerate(self._trees)}
        if not self._arrays:
            return files
        try:
            return {ARRAYS: safetensors.numpy.save(self._arrays), **files}
        except SafetensorError as error:  # a table of contents beyond what safetensors reads
            raise ValueError(f"the model holds {len(self._arrays)} arrays, which cannot be saved ({error}).") from None

    def encode_object(self, value: Any) -> dict[str, Any]:
        """An object of a known class."""
        name = type(value).__name__
        if has_state(type(value)):
            return {"kind": name, "state": self._items(value._to_state(), "", f" of {name}")}
        if is_dataclass(value) and not isinstance(value, BaseEstimator):
            values = {field.name: getattr(value, field.name) for field in fields(value)}
            if self._redact and name == "Mismatch":
                values["example"] = ""
            return {"kind": name, "fields": self._items(values, "", f" of {name}")}
        own = value.get_params(deep=False)
        parameters = self._items(own, "parameter ", f" of {name}")
        fitted = {key: item for key, item in vars(value).items() if key not in {*own, *_NOT_STATE}}
        if self._redact:
            fitted = {key: _REMEMBERED.get(key, item) for key, item in fitted.items()}
        return {"kind": name, "parameters": parameters, "fitted": self._items(fitted, "attribute ", f" of {name}")}

    def _items(self, values: dict[str, Any], before: str, after: str) -> dict[str, Any]:
        return {key: self.encode(value, f"{before}{key!r}{after}") for key, value in values.items()}

    def encode(self, value: Any, where: str) -> Any:
        """A value as JSON.  where: its place, for messages."""
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
            return [self.encode(item, where) for item in value]
        if kind is tuple:
            return {"kind": "tuple", "items": [self.encode(item, where) for item in value]}
        if isinstance(value, _RANDOM):
            return None
        if is_known(value):
            return self.encode_object(value)
        if isinstance(value, dict):  # a state dict of torch is a subclass
            if all(type(key) is str for key in value):
                return {"kind": "dict", "items": self._items(value, "", f" in {where}")}
            return {"kind": "pairs", "items": [[self.encode(part, where) for part in pair] for pair in value.items()]}
        return self._encode_array(value, where)

    def _encode_array(self, value: Any, where: str) -> dict[str, Any]:
        if isinstance(value, np.str_):
            return {"kind": "scalar", "type": "str", "value": str(value)}
        if isinstance(value, np.generic) and value.dtype.name in _PLAIN:
            return {"kind": "scalar", "type": value.dtype.name, "value": self.encode(value.item(), where)}
        if type(value) in (np.ndarray, np.memmap):
            if value.dtype == object:
                items = [self.encode(item, where) for item in value.ravel().tolist()]
                return {"kind": "objects", "shape": list(value.shape), "items": items}
            if value.dtype.kind in _KINDS:
                return {"kind": "array", **self._keep(value)}
        if (tensor_type := _tensor_type(value)) is not None:
            plain = value.detach().cpu().resolve_neg().contiguous()
            if tensor_type == "bfloat16":
                plain = plain.view(sys.modules["torch"].int16)
            return {"kind": "tensor", "type": tensor_type, **self._keep(plain.numpy())}
        lightgbm = sys.modules.get("lightgbm")
        if lightgbm is not None and isinstance(value, lightgbm.Booster):
            self._trees.append(trees.to_text(value, redact=self._redact))
            return {"kind": "trees", "number": len(self._trees) - 1}
        way = "set it to None or to plain data first, such as numbers, strings, lists or arrays"
        raise ValueError(f"{where} holds a {type(value).__name__}, which cannot be saved: {way}.")

    def _keep(self, array: NDArray[Any]) -> dict[str, Any]:
        """Keep an array. Returns what the JSON must say for it to be found."""
        entry: dict[str, Any] = {"name": f"a{len(self._arrays)}"}
        if array.flags.f_contiguous and not array.flags.c_contiguous:  # products depend on it in their last bit
            array, entry["transposed"] = array.T, True
        array = np.asarray(array, order="C")  # safetensors reads the memory as it lies
        if array.dtype.name not in _PLAIN or not array.dtype.isnative:
            entry["type"] = _type_name(array.dtype)
            array = np.ndarray((*array.shape, array.dtype.itemsize), np.uint8, array.tobytes())
        self._arrays[entry["name"]] = array
        return entry


def _tensor_type(value: Any) -> str | None:
    """The name of a tensor's type; None for what is no tensor, or none that can be saved."""
    if not is_torch_array(value) or str(value.layout) != "torch.strided" or value.is_meta:
        return None
    name = str(value.dtype).removeprefix("torch.")
    return name if name in _TENSORS else None


def _type_name(dtype: np.dtype[Any]) -> str:
    """A type as NumPy writes it. How long the longest numbers are depends on the machine, so that is written too."""
    return f"{dtype.str}:{np.finfo(dtype).nmant}" if dtype.char in "gG" else dtype.str


class Decoder:
    """Puts objects together again, and trusts nothing it reads."""

    def __init__(self, files: dict[str, bytes], module: Any = None) -> None:
        self._files = files
        self._arrays = _unpack(files.pop(ARRAYS)) if ARRAYS in files else {}
        self._taken: set[str] = set()  # read again and again, a small file would take for ever
        self._module = module
        self._depth = 0
        self.used_module = False

    def decode_model(self, document: dict[str, Any]) -> Any:
        """The model that a document describes."""
        cls = find(document["kind"])
        require(is_model(cls), f"it holds a {cls.__name__}, which is no model")
        return self._object(cls, document)

    def _object(self, cls: type, document: dict[str, Any]) -> Any:
        made: Any = cls
        if has_state(cls):
            state = self._items(document, "state", cls)
            if self._module is None or not issubclass(cls, BaseEstimator):
                return made._from_state(state)
            self.used_module = self.used_module or bool(state.get("own_module", True))
            return made._from_state(state, module=self._module)
        if is_dataclass(cls) and not issubclass(cls, BaseEstimator):
            names, values = {field.name for field in fields(cls)}, self._items(document, "fields", cls)
            needed = without_default(cls)  # what later versions added has a default
            required = f"a {cls.__name__} must have the fields {', '.join(sorted(needed))}"
            require(needed <= set(values) <= names, required)
            check_fields(cls, values)
            return cls(**values)
        parameters, fitted = self._items(document, "parameters", cls), self._items(document, "fitted", cls)
        known = signature(cls).parameters
        if unknown := [name for name in parameters if name not in known]:
            raise ValueError(f"{cls.__name__} has no parameter {short(unknown[0])} in this version of bagwise")
        model = cls(**parameters)
        for name, value in fitted.items():
            # Nothing of the class itself, such as a method, may be covered up.
            if not name.isidentifier() or name.startswith("__") or hasattr(cls, name) or name in known:
                raise ValueError(f"{short(name)} is no attribute that fitting a {cls.__name__} could have made")
            setattr(model, name, value)
        return model

    def _items(self, document: dict[str, Any], part: str, cls: type) -> dict[str, Any]:
        values: Any = document.get(part)
        require(isinstance(values, dict), f"the {part} of a {cls.__name__} are missing")
        return {name: self.decode(value) for name, value in values.items()}

    def decode(self, value: Any) -> Any:
        """The value that `encode` made JSON of."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        decoded = self._decode_plain(value)
        self._depth -= 1
        return decoded

    def _decode_plain(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        kind, items = value.get("kind"), value.get("items")
        if kind == "float" and value.get("value") in ("nan", "inf", "-inf"):
            return float(value["value"])
        if kind == "tuple" and isinstance(items, list):
            return tuple(self.decode(item) for item in items)
        if kind == "dict" and isinstance(items, dict):
            return {name: self.decode(item) for name, item in items.items()}
        if kind in ("pairs", "scalar", "array", "objects", "tensor", "trees"):
            return getattr(self, f"_{kind}")(value)
        return self._object(find(kind), value)

    def _pairs(self, entry: Any) -> dict[Any, Any]:
        items = entry.get("items")
        sound = isinstance(items, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in items)
        require(sound, "a dict does not consist of pairs")
        pairs = [(self.decode(key), self.decode(item)) for key, item in items]
        alike = max(Counter(hash(key) for key, _ in pairs).values(), default=0)
        require(alike <= _MOST_ALIKE, "the keys of a dict are too much alike")
        return dict(pairs)

    def _scalar(self, entry: dict[str, Any]) -> Any:
        name, value = entry.get("type"), self.decode(entry.get("value"))
        if name == "str" and isinstance(value, str):
            return np.str_(value)
        if not (isinstance(name, str) and name in _PLAIN and isinstance(value, (bool, int, float))):
            raise ValueError(f"{short(value)} is no number of type {short(name)}")
        with np.errstate(all="ignore"):
            return _PLAIN[name](value)

    def _array(self, entry: Any) -> NDArray[Any]:
        """The array of an entry that `Encoder._keep` made."""
        name, type_name = entry.get("name"), entry.get("type")
        require(not isinstance(name, str) or name not in self._taken, f"the array {short(name)} is used twice")
        require(isinstance(name, str) and name in self._arrays, f"the array {short(name)} is missing")
        self._taken.add(name)
        array = self._arrays.pop(name)
        array = array if type_name is None else _typed(array, type_name)
        return array.T if entry.get("transposed") is True else array

    def _tensor(self, entry: dict[str, Any]) -> Any:
        try:
            import torch
        except ImportError:
            raise ValueError("it holds torch tensors: pip install 'bagwise[neural]'") from None
        array, name = self._array({"name": entry.get("name")}), entry.get("type")
        if name not in _TENSORS or array.dtype.name != ("int16" if name == "bfloat16" else name):
            raise ValueError(f"a tensor of type {short(name)} cannot be made of numbers of type {array.dtype.name}")
        tensor = torch.from_numpy(array)
        return tensor.view(torch.bfloat16) if name == "bfloat16" else tensor

    def _objects(self, entry: dict[str, Any]) -> NDArray[Any]:
        shape: Any = entry.get("shape")
        items = self.decode(entry.get("items"))
        sound = isinstance(shape, list) and all(type(length) is int and length >= 0 for length in shape)
        if not (sound and isinstance(items, list) and math.prod(shape) == len(items)):
            raise ValueError("an array of objects does not have the shape it claims")
        flat = np.empty(len(items), dtype=object)
        for place, item in enumerate(items):  # all at once, NumPy would look into tuples
            flat[place] = item
        return flat.reshape(shape)

    def _trees(self, entry: Any) -> Any:
        number = entry.get("number")
        name = f"trees-{number}.txt"
        require(name not in self._taken, f"{name} is used twice")
        require(type(number) is int and name in self._files, f"the file {short(name)} is missing")
        self._taken.add(name)
        return trees.from_text(self._files.pop(name), name)


def _unpack(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file by name. safetensors takes no array that the file does not hold in full."""
    try:
        arrays = safetensors.numpy.load(data)
    except Exception:  # of safetensors, and of NumPy where it knows no such type or shape
        raise ValueError(f"{ARRAYS} is damaged") from None
    for array in arrays.values():
        if array.dtype == bool and array.view(np.uint8).max(initial=0) > 1:
            raise ValueError(f"{ARRAYS} is damaged: it holds truth values that are neither true nor false")
    return arrays


def _typed(raw: NDArray[Any], name: Any) -> NDArray[Any]:
    """Bytes as numbers, text or dates of a type that NumPy names."""
    if not (isinstance(name, str) and _TYPE.fullmatch(name)):
        raise ValueError(f"an array has the type {short(name)}, which is none of numbers, text or dates")
    dtype = np.dtype(name.partition(":")[0])
    require(_type_name(dtype) == name, f"an array has the type {short(name)}, which this machine does not have")
    if raw.dtype != np.uint8 or raw.shape[-1:] != (dtype.itemsize,):
        raise ValueError(f"an array of type {short(name)} does not consist of items of {dtype.itemsize} bytes")
    if dtype.kind == "U" and raw.size:
        letters = np.ndarray((raw.size // 4,), np.dtype(np.uint32).newbyteorder(dtype.byteorder), raw)
        require(letters.max() <= 0x10FFFF, "an array of text holds numbers that stand for no letter")
    return np.ndarray(raw.shape[:-1], dtype, raw)
