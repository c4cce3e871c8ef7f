"""Which column of a table of reports says what, and what it says in numbers and names of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import isfinite
from numbers import Real
from operator import or_
from sys import float_info
from typing import Any

import ibis

from bagwise.tables.engine import kind_of
from bagwise.utils.parameters import Parameter, ParameterError

NOISES = ("noise_variance", "noise_scale", "epsilon")
"""Ways to declare noise; where a table has several, the first is exact and the others say how it was made."""
GUESSES = {name: name for name in ("count", "proportion", "size", *NOISES, "suppressed")}
"""Columns that are known by their names."""
_RECORD = ("delta", "mechanism", "threshold")  # what `bagwise.privacy` writes beside noise_variance and epsilon
_TRUE = ("1", "1.0", "true", "t", "yes", "y", "x", "*", "suppressed", "withheld")
_FALSE = ("", "0", "0.0", "false", "f", "no", "n", "none", "null", "nan")


@dataclass(frozen=True, kw_only=True)
class ReportColumns:
    """Names of the columns of a table of reports, one line per bag. What is None is not there.

    count, proportion: of positives; one of the two. Several names, one per class, make a problem of classes.
    size: rows of the bag, to be compared with the events.
    noise_variance: variance of zero-mean noise on the count, or on each class's.  noise_scale: scale b of Laplace noise
        on it (variance 2b²).  epsilon: ε of such noise, b = 1/ε. One of the three, a column or one number for all bags;
        a bag where the column is null, or the variance 0, has no noise.
    suppressed: true where the bag's report is withheld; such bags are left out. Truth values, numbers (0 is false) or
        words such as yes and no.
    """

    count: str | tuple[str, ...] | None = None
    proportion: str | tuple[str, ...] | None = None
    size: str | None = None
    noise_variance: str | float | None = None
    noise_scale: str | float | None = None
    epsilon: str | float | None = None
    suppressed: str | None = None

    @classmethod
    def guessed(cls, names: Sequence[str], given: Mapping[str, Any], *, never: Iterable[str] = ()) -> ReportColumns:
        """What is given, and what the names of the columns say where nothing is; `never` is not guessed."""
        told = {key: value for key, value in given.items() if value is not None}
        taken = {*never, *(one for value in told.values() for one in names_of(value))}
        found = {key: name for key, name in GUESSES.items() if name in names and name not in taken}
        for same in (("count", "proportion"), NOISES):  # what is told counts, then what comes first
            known = [name for name in same if name in told] or [name for name in same if name in found]
            found = {name: column for name, column in found.items() if name not in same or name == known[0]}
        return cls(**{**found, **told})

    @property
    def values(self) -> tuple[str, ...]:
        """The columns of counts or proportions."""
        return names_of(self.count if self.count is not None else self.proportion)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, None where labels are 0 and 1."""
        given = self.count if self.count is not None else self.proportion
        return None if isinstance(given, str) or given is None else tuple(given)

    @property
    def noise(self) -> str | float | None:
        """The column or number that declares the noise, in whatever way."""
        return next((given for name in NOISES if (given := getattr(self, name)) is not None), None)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that must hold numbers."""
        rest = (self.size, *(getattr(self, name) for name in NOISES))
        return (*self.values, *(one for one in rest if isinstance(one, str)))

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are named."""
        return (*self.numbers, *names_of(self.suppressed))

    def check(self, table: Any, keys: Sequence[str]) -> None:
        """Raise unless the table has what is named, and nothing is said twice."""
        columns = table.columns
        for parameter in ("count", "proportion", "size", "suppressed"):
            given = getattr(self, parameter)
            several = isinstance(given, tuple) and parameter in ("count", "proportion")
            if given is not None and not all(isinstance(one, str) for one in (given if several else (given,))):
                raise ParameterError(parameter, f"must be the name of a column, got {given!r}.")
        if (self.count is None) == (self.proportion is None):
            rest = f" must name a column of the reports, one of the two: they have {', '.join(columns)}."
            raise ParameterError("count", "or ", Parameter("proportion"), rest)
        if self.classes is not None and len(self.classes) < 2:
            raise ValueError("classes need at least two columns, one per class: give one name for labels 0 and 1.")
        self._check_noise()
        missing = [name for name in self.names if name not in columns]
        if missing:
            raise ValueError(f"the reports have no column {missing[0]!r}: they have {', '.join(columns)}.")
        all_names = (*keys, *self.names)
        twice = [name for name in all_names if all_names.count(name) > 1]
        if twice:
            raise ValueError(f"column {twice[0]!r} of the reports is named for two things: it can say one only.")
        for name in self.names:
            type_ = table[name].type()
            marker = name == self.suppressed and type_.is_string()
            if not (type_.is_numeric() or type_.is_boolean() or type_.is_null() or marker):
                wanted = "truth values" if name == self.suppressed else "numbers"
                raise ValueError(f"column {name!r} of the reports holds {kind_of(type_)}: convert it to {wanted}.")

    def _check_noise(self) -> None:
        declared = [name for name in NOISES if getattr(self, name) is not None]
        if len(declared) > 1:
            raise ParameterError(declared[0], "and ", Parameter(declared[1]), " say the same: give one of them.")
        for parameter in declared:
            given = getattr(self, parameter)
            if isinstance(given, str):
                continue
            number = isinstance(given, Real) and not isinstance(given, bool) and isfinite(given)
            if not number or given < 0 or (parameter == "epsilon" and given == 0):
                least = "above 0" if parameter == "epsilon" else "of at least 0"
                raise ParameterError(parameter, f"must be a number {least} or the name of a column, got {given!r}.")

    def said(self, table: Any) -> dict[str, Any]:
        """What each line reports, by names of ours: `value_0`, …, `reported_size`, `noise` (variance on the count),
        `wrong_noise`, `withheld`, `unclear` (a marker that is neither yes nor no)."""
        variance, wrong = self._variance(table)
        withheld, unclear = self._marked(table)
        return {
            **{f"value_{number}": as_number(table[name]) for number, name in enumerate(self.values)},
            "reported_size": ibis.null("float64") if self.size is None else as_number(table[self.size]),
            "noise": variance.nullif(0.0),
            "wrong_noise": (wrong | ~is_finite(variance)).fill_null(False),
            "withheld": withheld.fill_null(False),
            "unclear": unclear.fill_null(False),
        }

    def _variance(self, table: Any) -> tuple[Any, Any]:
        """The variance of the noise on a count, and whether what is declared cannot be."""
        given = self.noise
        if given is None:
            return ibis.null("float64"), ibis.literal(False)
        number = as_number(table[given]) if isinstance(given, str) else ibis.literal(float(given))
        if self.noise_variance is not None:
            return number, number < 0
        scale = number if self.noise_scale is not None else 1 / number.nullif(0.0)
        return 2 * scale * scale, number < 0 if self.noise_scale is not None else number <= 0

    def _marked(self, table: Any) -> tuple[Any, Any]:
        """Whether a line is withheld, and whether its marker says neither yes nor no."""
        if self.suppressed is None:
            return ibis.literal(False), ibis.literal(False)
        column = table[self.suppressed]
        if column.type().is_string():
            word = column.strip().lower()
            return word.isin(_TRUE), ~word.isin((*_TRUE, *_FALSE))
        return (column if column.type().is_boolean() else as_number(column) != 0), ibis.literal(False)


def no_keys(columns: Sequence[str]) -> set[str]:
    """Columns of reports that are never guessed to be keys: what has a meaning, and the record of a private release."""
    released = {"noise_variance", "epsilon"} <= set(columns)
    return {*GUESSES, *(_RECORD if released else ())}


def names_of(value: Any) -> tuple[str, ...]:
    """The names in what may be a name, several, a number or nothing."""
    if value is None or isinstance(value, Real):
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def as_number(column: Any) -> Any:
    """The column in double precision; NaN, which some files have for what is missing, as null."""
    return without_nan(column.cast("float64"))


def without_nan(column: Any) -> Any:
    """The column with null for NaN."""
    return column.nullif(float("nan")) if column.type().is_floating() else column


def as_whole(number: Any) -> Any:
    """The whole number next to a number, as far as double precision tells whole numbers apart."""
    return number.clip(-(2**53), 2**53).cast("int64")


def is_finite(number: Any) -> Any:
    """Whether a number is not infinite; null for null."""
    return number.abs() <= float_info.max


def any_of(conditions: Iterable[Any]) -> Any:
    """Whether one of several conditions holds."""
    return reduce(or_, conditions, ibis.literal(False))
