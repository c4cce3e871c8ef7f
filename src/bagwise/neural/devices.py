"""Where networks compute: devices, checked before something is put there, and their random numbers, lent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from bagwise.losses.tilting_tensors import home_of_doubles
from bagwise.utils.parameters import Constraint, ParameterError, check_parameters


def _is_device(value: Any) -> bool:
    try:
        return bool(torch.device("cpu" if value is None else value))
    except (RuntimeError, TypeError, ValueError):
        return False


_DEVICE = Constraint("one that torch knows, such as 'cpu' or 'cuda'", _is_device)


def can_be_used(value: str | torch.device | None) -> bool:
    """Whether numbers can be put on a device and read again; raises where it is none at all."""
    check_parameters({"device": value}, {"device": _DEVICE})
    try:
        torch.zeros(1, device="cpu" if value is None else value).cpu()
    except (AssertionError, RuntimeError):
        return False
    return True


def device_of(value: str | torch.device | None, dtype: torch.dtype = torch.float32) -> torch.device:
    """The device that is meant, None being the CPU; raises unless numbers of the type can be put there and read again.

    >>> device_of(None)
    device(type='cpu')
    """
    usable, device = can_be_used(value), torch.device("cpu" if value is None else value)
    if not usable:
        raise ParameterError(
            "device",
            f"is {str(device)!r}, which torch cannot use on this machine: leave it out to compute on the CPU, or "
            "install torch and drivers for it.",
        )
    if dtype == torch.float64 and home_of_doubles(device) != device:
        raise ParameterError("dtype", f"is 'float64', which {str(device)!r} does not know: take 'float32'.")
    return device


def check_together(device: torch.device, world: int) -> None:
    """Raise unless so many processes can train a network on such devices together."""
    if world > 1 and device.type not in ("cpu", "cuda"):
        raise ParameterError(
            "device",
            f"is {str(device)!r}, by which {world} processes cannot add up derivatives: leave it out for the CPU, "
            "or start one process.",
        )


@contextmanager
def lent_noise(device: torch.device) -> Iterator[None]:
    """Let code draw from torch's global generators, of the CPU and of a device, and put them back as they were."""
    others = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=others, device_type=device.type):
        yield


def seed_noise(device: torch.device, seed: int) -> None:
    """Seed the global generator of a device."""
    kind: Any = torch.get_device_module(device)
    with kind.device(device) if hasattr(kind, "device") else nullcontext():
        kind.manual_seed(seed)
