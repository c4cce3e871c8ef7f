"""What each column of a table is to a model, and the columns that are made of it in the engine.

A number stays as it is, NaN being missing; text with few values is a category; text with many is hashed into a fixed
number of categories, by MD5, which every engine computes alike; a time becomes hour, weekday (Monday is 0) and a trend
in days, all in UTC if it has a time zone. Other columns (lists, bytes, durations, …) are ignored, and say so. The
result is a table of numbers and text that every model reads (see `tables.features`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import ibis
import numpy as np

from bagwise.tables.checksums import md5
from bagwise.tables.engine import execute, fetch, kind_of
from bagwise.tables.reports import as_number, as_whole
from bagwise.utils.parameters import check_whole

MAX_LEVELS = 64
_SURELY_MORE = 4
"""Times the limit that an estimated number of values must reach to be believed; below, values are counted."""
_NEARLY_ALL = 0.8
"""Share of the rows that an estimated number of values must reach for every row to have a value of its own."""
BUCKETS = tuple(f"{number:02x}" for number in range(256))
"""Levels of a hashed column: the first two digits of its MD5 sum."""


class Role(StrEnum):
    """What a column is to a model."""

    number = "number"
    category = "category"
    hashed = "hashed"
    time = "time"
    ignored = "ignored"


_AS = {Role.number: "a number", Role.category: "a category", Role.hashed: "hashed", Role.time: "a time"}


@dataclass(frozen=True)
class Column:
    """One column of the table, with what was learned about it.

    levels: values of a category, sorted.  origin: seconds since 1970 of the first training time.
    has_hours: whether a time is more than a date.  note: why it is ignored.
    """

    name: str
    role: Role
    levels: tuple[str, ...] = ()
    origin: float = 0.0
    has_hours: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and all(isinstance(level, str) for level in self.levels)):
            raise ValueError("a column has a name and levels that are text")
        if not np.isfinite(self.origin):
            raise ValueError(f"the origin of column {self.name!r} is not finite")

    def _to_state(self) -> dict[str, Any]:
        return {**vars(self), "role": self.role.value}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Column:
        return cls(**{**state, "role": Role(state["role"])})

    @property
    def made(self) -> tuple[Made, ...]:
        """The columns that models read in its place."""
        if self.role is Role.number:
            return (Made(self.name, None),)
        if self.role is Role.category:
            return (Made(self.name, self.levels),)
        if self.role is Role.hashed:
            return (Made(self.name, BUCKETS),)
        if self.role is Role.time:
            hours = (Made(f"{self.name}: hour", tuple(f"{hour:02d}" for hour in range(24))),)
            weekday = Made(f"{self.name}: weekday", tuple(str(day) for day in range(7)))
            return (*(hours if self.has_hours else ()), weekday, Made(f"{self.name}: days", None))
        return ()

    def expressions(self, table: Any, *, plain: bool = False) -> list[Any]:
        """The made columns as expressions on a table: numbers in double precision, or text; null where missing.

        plain: leave NaN in numbers, which saves looking for it.
        """
        column = table[self.name]
        if self.role is Role.number:
            return [column.cast("float64") if plain else as_number(column)]
        if self.role is Role.category:
            return [_as_text(column)]
        if self.role is Role.hashed:
            return [md5(_as_text(column)).left(2)]
        if self.role is Role.time:
            moment = column.cast("timestamp")
            hours = [moment.hour().cast("string").lpad(2, "0")] if self.has_hours else []
            weekday = moment.day_of_week.index().cast("string")
            days = (_seconds(moment) - self.origin) / 86_400
            return [*hours, weekday, days]
        return []


@dataclass(frozen=True)
class Made:
    """A column that models read.  levels: of a category, None for a number."""

    name: str
    levels: tuple[str, ...] | None


def infer(
    table: Any,
    names: Sequence[str],
    connection: Any,
    *,
    roles: Mapping[str, str] | None = None,
    max_levels: int = MAX_LEVELS,
) -> tuple[Column, ...]:
    """The role of each column, from its type and, where that does not tell, from its values.

    roles: roles that are known better, by column.  max_levels: text with more values than this is hashed.
    """
    check_whole(max_levels, "max_levels", least=1)
    given = {name: _role(name, value) for name, value in (roles or {}).items()}
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r} to give a role to: there are {', '.join(names)}.")
    kinds = {name: given.get(name) or _by_type(table[name].type()) for name in names}
    for name, role in kinds.items():
        if role is not None and not fits(role, table[name].type()):
            held = kind_of(table[name].type())
            raise ValueError(f"column {name!r} holds {held} and cannot be {_AS[role]}: convert it or ignore it.")
    counted = [name for name in names if kinds[name] is Role.category and name not in given]
    distinct = _distinct(table, counted, connection)
    origins = _origins(table, [name for name in names if kinds[name] is Role.time], connection)
    columns = []
    for name, role in kinds.items():
        type_ = table[name].type()
        if role is None:
            note = "it is empty" if type_.is_null() else f"nothing is made of {str(type_).lower()}"
            columns.append(Column(name, Role.ignored, note=note))
        elif role is Role.time:
            columns.append(Column(name, role, origin=origins[name], has_hours=type_.is_timestamp()))
        elif role is Role.category:
            many = name in distinct and distinct[name] > _SURELY_MORE * max_levels
            most = None if name in given else max_levels
            column = Column(name, Role.hashed) if many else _category(table, name, most, connection)
            if column.role is Role.hashed and name in distinct and _is_unique(table, name, distinct[name], connection):
                column = Column(name, Role.ignored, note="every row has a value of its own")
            columns.append(column)
        else:
            columns.append(Column(name, role))
    return tuple(columns)


def fits(role: Role, type_: Any) -> bool:
    """Whether a column of a type can have a role."""
    if role is Role.number:
        return type_.is_numeric() or type_.is_boolean()
    if role is Role.time:
        return type_.is_timestamp() or type_.is_date()
    return role is Role.ignored or not (type_.is_nested() or type_.is_binary())


def _category(table: Any, name: str, most: int | None, connection: Any) -> Column:
    """A category with its levels, hashed where there are more than `most`."""
    levels = table.select(level=_as_text(table[name])).filter(ibis._.level.notnull()).distinct()
    found = fetch(levels if most is None else levels.limit(most + 1), connection)["level"].to_pylist()
    if not found:
        return Column(name, Role.ignored, note="it is empty")
    if most is not None and len(found) > most:
        return Column(name, Role.hashed)
    return Column(name, Role.category, levels=tuple(sorted(found)))


def _distinct(table: Any, names: Sequence[str], connection: Any) -> dict[str, int]:
    """About how many values each column has."""
    if not names:
        return {}
    figures = {f"n_{number}": table[name].approx_nunique() for number, name in enumerate(names)}
    found = execute(table.agg(**figures), connection)
    return {name: found[f"n_{number}"] for number, name in enumerate(names)}


def _is_unique(table: Any, name: str, about: int, connection: Any) -> bool:
    """Whether nearly every row has a value, and none has another's; `about` so many are there, which is looked at
    first."""
    found = execute(table.agg(rows=table.count(), held=table[name].count()), connection)
    if min(about, found["held"]) < _NEARLY_ALL * found["rows"]:
        return False
    return execute(table.agg(n=table[name].nunique()), connection)["n"] == found["held"]


def _origins(table: Any, names: Sequence[str], connection: Any) -> dict[str, float]:
    """The first time in each column, in seconds since 1970; 0 where there is none."""
    if not names:
        return {}
    firsts = {f"n_{i}": _seconds(table[name].min().cast("timestamp")) for i, name in enumerate(names)}
    found = execute(table.agg(**firsts), connection)
    return {name: float(found[f"n_{i}"] or 0) for i, name in enumerate(names)}


def _seconds(moment: Any) -> Any:
    """Seconds since 1970; DuckDB has fractions of them, though Ibis expects whole numbers."""
    return moment.epoch_seconds().cast("float64")


def _as_text(column: Any) -> Any:
    """The column as text that does not depend on the type in which a file holds it: 1, 1.0 and 1.00 are "1"."""
    type_ = column.type()
    if type_.is_floating() or type_.is_decimal():
        number = as_number(column)
        whole = as_whole(number)
        return (number == whole).ifelse(whole.cast("string"), number.cast("string"))
    if type_.is_timestamp() or type_.is_date():
        return column.cast("timestamp").cast("string")
    return column.cast("string")


def _by_type(type_: Any) -> Role | None:
    roles = {role: fits(role, type_) for role in (Role.number, Role.time)}
    if type_.is_string():
        return Role.category
    return next((role for role, right in roles.items() if right), None)


def _role(name: str, value: str) -> Role:
    try:
        return Role(value)
    except ValueError:
        raise ValueError(f"column {name!r} cannot be {value!r}: a role is one of {', '.join(Role)}.") from None
