"""Networks as plain data and arrays, for `bagwise.save`, and back."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from bagwise.neural.networks import Standardise, mlp


def to_state(model: Any) -> dict[str, Any]:
    """Parameters, what was learned, and weights; not the optimizer's moments."""
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name != "module"}
    state = {"parameters": parameters, "own_module": model.module is not None}
    if hasattr(model, "module_"):
        learned = {name: value for name, value in vars(model).items() if name.endswith("_") and name != "module_"}
        rest = {"shape": tuple(model._shape), "rows_seen": model._rows_seen, "weights": model.module_.state_dict()}
        state |= {"learned": learned} | rest
    return state


def from_state(cls: type, state: dict[str, Any], module: nn.Module | None) -> Any:
    """The model again. A module of the user's cannot be rebuilt from a file: a new one of the same shape is given."""
    own = state["own_module"]
    module = module if own else None
    if own and module is None:
        raise ValueError(
            "it holds weights of a module of yours: pass a new one of the same shape, load(folder, module=…)"
        )
    model = cls(**state["parameters"], module=module)
    if "weights" not in state:
        return model
    for name, value in state["learned"].items():
        if not name.endswith("_") or hasattr(cls, name):
            raise ValueError(f"{name!r} is nothing that a network learns")
        setattr(model, name, value)
    model._shape, model._rows_seen = state["shape"], state["rows_seen"]
    if model.dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {model.dtype!r}")
    dtype = getattr(torch, model.dtype)
    if module is not None:
        model._scale, body = None, copy.deepcopy(module).to(dtype)
    else:
        features, outputs = model._shape[0], int(np.size(model.prior_))
        _require_sizes(state["weights"], [features, *model.hidden, outputs])
        model._scale = Standardise(np.zeros(features), np.ones(features), dtype)
        body = mlp(features, model.hidden, outputs).to(dtype)
    try:
        (body if own else nn.Sequential(model._scale, body)).load_state_dict(state["weights"])
    except RuntimeError:
        raise ValueError("the weights do not fit the module") from None
    try:
        return model._resume(body)
    except (AssertionError, RuntimeError):
        raise ValueError(f"it was saved for the device {model.device!r}, which this machine does not have") from None


def _require_sizes(weights: dict[str, Any], widths: list[int]) -> None:
    """Raise unless the weights are those of a network of such layers: no more is built than the file has."""
    sizes: dict[str, tuple[int, ...]] = {"0.mean": (widths[0],), "0.scale": (widths[0],)}
    for layer, (wide, narrow) in enumerate(pairwise(widths)):
        sizes |= {f"1.{2 * layer}.weight": (narrow, wide), f"1.{2 * layer}.bias": (narrow,)}
    if {name: tuple(tensor.shape) for name, tensor in weights.items()} != sizes:
        raise ValueError("the weights do not fit the module")
