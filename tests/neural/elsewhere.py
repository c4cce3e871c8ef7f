"""A device that is not there: numbers lie in memory as ever, and everything else is as strict as a real one.

Inside `Elsewhere("cuda")` tensors that are made on or moved to "cuda" say that they are there. They meet no tensor of
the CPU but single numbers, do not become arrays, and, on "mps", know no double precision. Functions that make tensors
must name a device wherever bagwise calls them.
"""

import sys
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

import bagwise

_HOME = str(Path(bagwise.__file__).parent)
_NAMES = (
    "tensor",
    "as_tensor",
    "asarray",
    "empty",
    "zeros",
    "ones",
    "full",
    "eye",
    "arange",
    "linspace",
    "rand",
    "randint",
)
_MAKERS = {getattr(torch, name) for name in _NAMES}
_ACROSS = {torch.Tensor.copy_, torch.Tensor.__getitem__, torch.Tensor.__setitem__, torch.Tensor.data.__set__}
_TO_ARRAYS = {torch.Tensor.numpy, torch.Tensor.__array__}


class There(torch.Tensor):
    """A tensor that is said to be on the device."""


class Elsewhere(TorchFunctionMode):
    """Lets a device be there that is not."""

    def __init__(self, kind):
        super().__init__()
        self.device, self.made = torch.device(kind), 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        """What any function of torch does inside."""
        kwargs = dict(kwargs or {})
        first = args[0] if args else None
        if function == torch.Tensor.device.__get__ and isinstance(first, There):
            return self.device
        if function is torch._has_compatible_shallow_copy_type:  # else a module would keep its tensors of the CPU
            return isinstance(first, There) == isinstance(args[1], There) and function(*args)
        if function in _TO_ARRAYS and isinstance(first, There):
            raise TypeError(f"can't convert {self.device} tensor to numpy")
        if function is torch.Tensor.__deepcopy__ and isinstance(first, There):
            return self._copy(first, args[1])
        if function is torch.Tensor.cpu:
            return _here(function(*args, **kwargs))
        if function is torch.Tensor.to:
            return self._moved(args, kwargs)
        if function in _MAKERS:
            return self._new(function, args, kwargs)
        if function is torch.autograd.grad:  # derivatives are where what they are by is
            inputs = [args[1]] if isinstance(args[1], torch.Tensor) else args[1]
            pairs = zip(inputs, function(*args, **kwargs), strict=True)
            return tuple(self._there(slope) if isinstance(one, There) else _here(slope) for one, slope in pairs)
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        there = [isinstance(one, There) for one in given]
        if any(there) and function not in _ACROSS:
            lost = [one for one, is_there in zip(given, there, strict=True) if not is_there and one.ndim]
            assert not lost, f"{function.__name__}: a tensor of the CPU meets one of {self.device}"
        found = function(*args, **kwargs)
        return tree_map(self._there, found) if any(there) and (function not in _ACROSS or there[0]) else found

    def _there(self, found):
        if not isinstance(found, torch.Tensor):
            return found
        if self.device.type == "mps" and found.dtype in (torch.float64, torch.complex128):
            raise TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."
            )
        self.made += 1
        return found if isinstance(found, There) else found.as_subclass(There)

    def _new(self, function, args, kwargs):
        caller = sys._getframe(2)
        ours = caller.f_code.co_filename.startswith(_HOME)
        assert "device" in kwargs or not ours, f"{function.__name__} names no device: {caller.f_code}"
        where = kwargs.get("device")
        if where is None or torch.device(where).type != self.device.type:
            return function(*args, **kwargs)
        return self._there(function(*args, **(kwargs | {"device": "cpu"})))

    def _moved(self, args, kwargs):
        tensor, *rest = args
        device, dtype, other = kwargs.pop("device", None), kwargs.pop("dtype", None), kwargs.pop("other", None)
        for one in rest:
            if isinstance(one, torch.Tensor):
                other = one
            elif isinstance(one, torch.dtype):
                dtype = one
            elif isinstance(one, (str, torch.device)):
                device = one
        if other is not None:
            dtype, device = other.dtype, self.device if isinstance(other, There) else "cpu"
        if device is None:
            device = self.device if isinstance(tensor, There) else "cpu"
        found = tensor if dtype is None else tensor.to(dtype)
        if torch.device(device).type == "cpu":
            return _here(found)
        assert torch.device(device).type == self.device.type
        return self._there(found)

    def _copy(self, tensor, memo):
        copied = self._there(tensor.detach().clone()).requires_grad_(tensor.requires_grad)
        if tensor.requires_grad or getattr(tensor, "_is_param", False):
            copied = torch.nn.Parameter(copied, tensor.requires_grad)
        memo[id(tensor)] = copied
        return copied


def _here(found):
    with torch._C.DisableTorchFunctionSubclass():
        return found.as_subclass(torch.Tensor) if isinstance(found, There) else found
