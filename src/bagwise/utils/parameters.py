"""Parameters: what they may be, as data; and the error that says which one makes no sense.

An estimator or a function lists its constraints once and has them checked in one call:

>>> check_parameters({"cv": 1}, {"cv": whole(2)})
Traceback (most recent call last):
    ...
bagwise.utils.parameters.ParameterError: cv must be a whole number of at least 2, got 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from numbers import Integral, Real
from operator import ge, gt, le, lt
from typing import Any

_LONGEST = 200  # letters of a value in a message


class Parameter(str):
    """The name of a parameter inside a message: who shows the message may call it by another name."""

    __slots__ = ()


class OnlyInPython(str):
    """Words that make sense where parameters are typed in Python, such as of None; options are left out instead."""

    __slots__ = ()


class NamesParameters(Exception):  # noqa: N818  (of warnings, too)
    """A message in parts, in which parameters are marked by `Parameter`: to be inherited by errors and warnings.

    >>> class TooLittleWarning(NamesParameters, UserWarning): ...
    >>> warning = TooLittleWarning("little is left: lower ", Parameter("min_size"), ".")
    >>> str(warning)
    'little is left: lower min_size.'
    >>> warning.shown(lambda name: f"--{name}")
    'little is left: lower --min_size.'
    """

    def __init__(self, *parts: str) -> None:
        super().__init__("".join(parts))
        self.parts = parts

    def shown(self, name_of: Callable[[str], str]) -> str:
        """The message on the command line.  name_of: what a parameter is called there."""
        parts = (part for part in self.parts if not isinstance(part, OnlyInPython))
        return "".join(name_of(part) if isinstance(part, Parameter) else part for part in parts)

    def __str__(self) -> str:
        return "".join(self.parts)


class AdviceError(NamesParameters, ValueError):
    """Data that cannot be used as they are, with advice that names a parameter."""


class ParameterError(NamesParameters, ValueError):
    """A parameter that makes no sense, or does not go with another one.

    parameter: its name.  parts: what is said after it; other parameters in it are marked by `Parameter`.

    >>> error = ParameterError("size", "does not go with ", Parameter("by"), ".")
    >>> str(error)
    'size does not go with by.'
    >>> error.shown(lambda name: f"--{name}")
    '--size does not go with --by.'
    """

    def __init__(self, parameter: str, *parts: str) -> None:
        super().__init__(Parameter(parameter), " ", *parts)
        self.parameter, self.args = parameter, (parameter, *parts)  # args: as pickle hands them over


@dataclass(frozen=True, eq=False)
class Constraint:
    """What a parameter may be.  words: after "must be".  holds: whether a value is such."""

    words: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Constraint) -> Constraint:
        return Constraint(f"{self.words}, or {other.words}", lambda value: self.holds(value) or other.holds(value))


NONE = Constraint("None", lambda value: value is None)


def whole(least: int, most: float = inf) -> Constraint:
    """A whole number of at least `least`, and of at most `most`.

    >>> whole(1, 10**15).words
    'a whole number of at least 1 and at most 1e+15'
    """

    def holds(value: Any) -> bool:
        return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most

    return Constraint(f"a whole number of at least {least}" + (f" and at most {most:g}" if most < inf else ""), holds)


def number(
    *, least: float | None = None, above: float | None = None, most: float | None = None, below: float | None = None
) -> Constraint:
    """A finite number within bounds.

    >>> number(above=0, most=1).words
    'a number above 0 and at most 1'
    """
    possible = (("above", above, gt), ("of at least", least, ge), ("at most", most, le), ("below", below, lt))
    bounds = [(words, bound, keeps) for words, bound, keeps in possible if bound is not None]
    finite = "" if most is not None or below is not None else "finite "
    said = " and ".join(f"{words} {bound:g}" for words, bound, _ in bounds)

    def holds(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool) or not _is_finite(value):
            return False
        return all(keeps(float(value), bound) for _, bound, keeps in bounds)

    return Constraint(f"a {finite}number {said}".rstrip(), holds)


def _is_finite(value: Any) -> bool:
    try:
        return isfinite(float(value))
    except OverflowError:  # a whole number beyond all that numbers with a point hold
        return False


LARGEST = 2**31 - 1
"""What the whole numbers of LightGBM and torch hold."""

LEAVES = whole(2, 2**17)
"""How many leaves LightGBM gives a tree."""

DEEPEST = 256
"""Decisions on the way to a leaf: what explains and exports trees takes memory with each, until there is no more."""

LEVEL = Constraint("a number between 0 and 1", number(above=0, below=1).holds)


def several(one: Constraint, words: str) -> Constraint:
    """One or more of them in a sequence, or one alone."""

    def holds(value: Any) -> bool:
        if (isinstance(value, Sequence) and not isinstance(value, (str, bytes))) or getattr(value, "ndim", 0) == 1:
            return len(value) > 0 and all(one.holds(each) for each in value)
        return one.holds(value)

    return Constraint(words, holds)


def one_of(*options: Any) -> Constraint:
    """One of the options.

    >>> one_of("auto", 1).holds([1])
    False
    """
    return Constraint(f"one of {', '.join(map(repr, options))}", lambda value: _is_plain(value) and value in options)


def _is_plain(value: Any) -> bool:
    """Whether it can be compared: arrays answer with an array, and none of them is an option."""
    return getattr(value, "ndim", 0) == 0 and isinstance(value, Hashable)


TARGET = one_of("auto", "label", "value")
"""What bags report of: labels 0 and 1 or classes, or real values; "auto" is told by what they are used for."""


def instance(kind: type | tuple[type, ...], words: str) -> Constraint:
    """An object of a kind."""
    return Constraint(words, lambda value: isinstance(value, kind))


FLAG = Constraint("True or False", lambda value: type(value).__name__ in ("bool", "bool_"))  # NumPy's, too
FUNCTION = Constraint("a function", callable) | NONE
"""As of a callback."""

COLUMNS = (
    Constraint(
        "numbers of columns in a list",
        lambda value: (
            getattr(value, "ndim", 1) == 1
            and isinstance(value, Collection)
            and not isinstance(value, (str, bytes))
            and all(whole(0).holds(one) for one in value)
        ),
    )
    | NONE
)
"""Which columns of an array are something, such as codes of categories."""


def check_parameters(values: Mapping[str, Any] | object, constraints: Mapping[str, Constraint]) -> None:
    """Raise a `ParameterError` for the first that is not what it may be; values: by name, or an object's attributes."""
    for name, constraint in constraints.items():
        value = values[name] if isinstance(values, Mapping) else getattr(values, name)
        if not constraint.holds(value):
            words, none, more = constraint.words.partition(", or None")
            raise ParameterError(name, f"must be {words}", OnlyInPython(none), f"{more}, got {_shown(value)}.")


def _shown(value: Any) -> str:
    """A value in a sentence: its beginning where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def check_level(level: Any) -> None:
    """Raise unless level is a number between 0 and 1."""
    check_parameters({"level": level}, {"level": LEVEL})
