"""Checks of parameters: an error is one sentence that names the parameter."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np


def check_level(level: Any) -> None:
    """Raise unless level is a number between 0 and 1."""
    if not isinstance(level, (float, np.floating)) or not 0 < level < 1:
        raise ValueError(f"level must be a number between 0 and 1, got {level!r}.")


def check_whole(value: Any, parameter: str, *, least: int) -> None:
    """Raise unless a parameter is a whole number of at least `least`."""
    if not (isinstance(value, Integral) and int(value) >= least):
        raise ValueError(f"{parameter} must be a whole number of at least {least}, got {value!r}.")
