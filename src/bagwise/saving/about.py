"""What a saved model tells about itself: facts for people and pages. `load` makes no use of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bagwise.saving.kinds import short

_DEEPEST = 16
_LARGEST = 2**20
_KINDS = "numbers, strings, True, False, None, lists and dicts"


def facts(about: Any) -> dict[str, Any]:
    """A copy of `about` made of nothing but JSON's own values; a ValueError names the key of what is none.

    >>> facts({"columns": ["age", "device"], "brier": np.float64(0.25)})
    {'columns': ['age', 'device'], 'brier': 0.25}
    >>> facts({"fit": {"seconds": float("inf")}})
    Traceback (most recent call last):
    ValueError: about['fit']['seconds'] is inf: give finite numbers, or None.
    """
    if about is None:
        return {}
    if not isinstance(about, dict):
        raise ValueError(f"about must be a dict of facts, got a {type(about).__name__}.")
    found: dict[str, Any] = _Copy().of(about, "about", 1)
    return found


class _Copy:
    """Copies values and counts them, so that one that contains itself, or another many times, comes to an end."""

    def __init__(self) -> None:
        self._size = 0

    def of(self, value: Any, where: str, depth: int) -> Any:
        """The value at the place `where`, which is `depth` lists and dicts deep."""
        value = value.item() if isinstance(value, np.generic) else value
        self._count(1, where)
        if type(value) is str:
            return self._text(value, where)
        if type(value) in (int, float):
            return _number(value, where)
        if value is None or type(value) is bool:
            return value
        if depth > _DEEPEST:
            raise ValueError(f"{where} is nested too deeply: {_DEEPEST} lists and dicts in each other are the most.")
        if isinstance(value, dict):
            return {self._key(key, where): self.of(item, _at(where, key), depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.of(item, _at(where, place), depth + 1) for place, item in enumerate(value)]
        raise ValueError(f"{where} is a {type(value).__name__}: give {_KINDS} only.")

    def _key(self, key: Any, where: str) -> str:
        if type(key) is not str:
            raise ValueError(f"{where} has the key {short(key)}: give strings as keys.")
        return self._text(key, _at(where, key))

    def _text(self, text: str, where: str) -> str:
        self._count(len(text), where)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where} holds letters that cannot be written to a file.") from None
        return text

    def _count(self, size: int, where: str) -> None:
        self._size += size
        if self._size > _LARGEST:
            raise ValueError(f"about holds more than {_LARGEST} letters and values (at {where}): keep what matters.")


def _number(value: float, where: str) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}: give finite numbers, or None.")
    if isinstance(value, int) and not -(2**64) < value < 2**64:
        raise ValueError(f"{where} is a number of more than 64 bits: give it as a string.")
    return value


def _at(where: str, key: Any) -> str:
    """The place of an item, of which the beginning is enough where it is deep."""
    place = f"{where}[{short(key)}]"
    return place if len(place) <= 200 else place[:199] + "…"
