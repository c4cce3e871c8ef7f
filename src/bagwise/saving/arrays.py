"""Arrays and tensors as one safetensors file, and back: the same bits, type, shape and order of the axes in memory.

safetensors holds plain numbers as they are. What it does not know (text, dates, complex and long numbers, numbers in
the other byte order) lies in it as bytes, with the length of an item as the last axis, and the JSON names the type.
Tensors of bfloat16, which NumPy does not have, lie in it as int16.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from bagwise.saving.kinds import short

NAME = "arrays.safetensors"
_PLAIN = {np.dtype(code).name for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")}
_KINDS = "biufcUSmM"
_TYPE = re.compile(
    r"[<>|]([iu][1248]|f[248]|c8|c16|[US][0-9]{1,9}|[mM]8(\[[0-9]{0,9}[a-zA-Zμ]{1,9}\])?|[fc][0-9]{2}:[0-9]{1,3})"
)
_TENSORS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16")


# -- writing ------------------------------------------------------------------------------------------------------


def can_hold(array: NDArray[Any]) -> bool:
    """Whether arrays of this type can be saved; arrays of objects and of records cannot."""
    return array.dtype.kind in _KINDS


def tensor_type(value: Any) -> str | None:
    """The name of a tensor's type; None for what is no tensor, or none that can be saved."""
    if not is_torch_array(value) or str(value.layout) != "torch.strided" or value.is_meta:
        return None
    name = str(value.dtype).removeprefix("torch.")
    return name if name in _TENSORS else None


class Gathered:
    """The arrays of a model, gathered one by one."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def add(self, array: NDArray[Any]) -> dict[str, Any]:
        """Keep an array. Returns what the JSON must say for `find`."""
        entry: dict[str, Any] = {"name": f"a{len(self._arrays)}"}
        if array.flags.f_contiguous and not array.flags.c_contiguous:  # products depend on it in their last bit
            array, entry["transposed"] = array.T, True
        array = np.asarray(array, order="C")  # safetensors reads the memory as it lies
        if array.dtype.name not in _PLAIN or not array.dtype.isnative:
            entry["type"] = _name(array.dtype)
            array = np.ndarray((*array.shape, array.dtype.itemsize), np.uint8, array.tobytes())
        self._arrays[entry["name"]] = array
        return entry

    def add_tensor(self, tensor: Any) -> dict[str, Any]:
        """Keep a tensor that has a `tensor_type`."""
        plain = tensor.detach().cpu().resolve_neg().contiguous()
        if tensor_type(tensor) == "bfloat16":
            import torch

            plain = plain.view(torch.int16)
        return self.add(plain.numpy())

    def files(self) -> dict[str, bytes]:
        """The file that holds the arrays, if there are any."""
        if not self._arrays:
            return {}
        try:
            return {NAME: save(self._arrays)}
        except SafetensorError as error:  # a table of contents beyond what safetensors reads
            raise ValueError(f"the model holds {len(self._arrays)} arrays, which cannot be saved ({error}).") from None


# -- reading ------------------------------------------------------------------------------------------------------


def unpack(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file by name. safetensors takes no array that the file does not hold in full."""
    try:
        arrays = load(data)
    except Exception:  # of safetensors, and of NumPy where it knows no such type or shape
        raise ValueError(f"{NAME} is damaged") from None
    for array in arrays.values():
        if array.dtype == bool and array.view(np.uint8).max(initial=0) > 1:
            raise ValueError(f"{NAME} is damaged: it holds truth values that are neither true nor false")
    return arrays


def find(arrays: dict[str, NDArray[Any]], entry: dict[str, Any]) -> NDArray[Any]:
    """The array of an entry that `Gathered.add` made."""
    name, type_name = entry.get("name"), entry.get("type")
    if not (isinstance(name, str) and name in arrays):
        raise ValueError(f"the array {short(name)} is missing")
    array = arrays[name] if type_name is None else _typed(arrays[name], type_name)
    return array.T if entry.get("transposed") is True else array


def find_tensor(arrays: dict[str, NDArray[Any]], entry: dict[str, Any]) -> Any:
    """The tensor of an entry whose type is a `tensor_type`."""
    try:
        import torch
    except ImportError:
        raise ValueError("it holds torch tensors: pip install 'bagwise[neural]'") from None
    array, name = find(arrays, {"name": entry.get("name")}), entry.get("type")
    if name not in _TENSORS or array.dtype.name != ("int16" if name == "bfloat16" else name):
        raise ValueError(f"a tensor of type {short(name)} cannot be made of numbers of type {array.dtype.name}")
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if name == "bfloat16" else tensor


def _name(dtype: np.dtype[Any]) -> str:
    """A type as NumPy writes it. How long the longest numbers are depends on the machine, so that is written too."""
    return f"{dtype.str}:{np.finfo(dtype).nmant}" if dtype.char in "gG" else dtype.str


def _typed(raw: NDArray[Any], name: Any) -> NDArray[Any]:
    """Bytes as numbers, text or dates of a type that NumPy names."""
    if not (isinstance(name, str) and _TYPE.fullmatch(name)):
        raise ValueError(f"an array has the type {short(name)}, which is none of numbers, text or dates")
    dtype = np.dtype(name.partition(":")[0])
    if _name(dtype) != name:
        raise ValueError(f"an array has the type {short(name)}, which this machine does not have")
    if raw.dtype != np.uint8 or raw.shape[-1:] != (dtype.itemsize,):
        raise ValueError(f"an array of type {short(name)} does not consist of items of {dtype.itemsize} bytes")
    if dtype.kind == "U" and raw.size:
        letters = np.ndarray((raw.size // 4,), np.dtype(np.uint32).newbyteorder(dtype.byteorder), raw)
        if letters.max() > 0x10FFFF:
            raise ValueError("an array of text holds numbers that stand for no letter")
    return np.ndarray(raw.shape[:-1], dtype, raw)
