"""What each column of a table is to a model, and the columns that are made of it in the engine.

A number stays as it is, NaN being missing; text with few values is a category; text with many is hashed into a fixed
number of categories, by MD5, which every engine computes alike; a time becomes hour, weekday (Monday is 0) and a trend
in days, all in UTC if it has a time zone. Other columns (lists, bytes, durations, …) are ignored, and say so.
`Features` makes of the table one of numbers and text, and of that the matrix that every model reads; what was learned
about the columns in training is part of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bagwise.tables import engine
from bagwise.tables.engine import Connection, DataType, Expression, Table
from bagwise.utils.parameters import check_parameters, whole

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
_HELD = {Role.number: "numbers", Role.time: "dates", Role.category: "categories", Role.hashed: "categories"}


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

    def expressions(self, table: Table, *, plain: bool = False) -> list[Expression]:
        """The made columns as expressions on a table: numbers in double precision, or text; null where missing.

        plain: leave NaN in numbers, which saves looking for it.
        """
        column = table[self.name]
        if self.role is Role.number:
            return [column.cast("float64") if plain else engine.as_number(column)]
        if self.role is Role.category:
            return [_as_text(column)]
        if self.role is Role.hashed:
            return [engine.md5(_as_text(column)).left(2)]
        if self.role is Role.time:
            moment = column.cast("timestamp")
            hours = [moment.hour().cast("string").lpad(2, "0")] if self.has_hours else []
            weekday = moment.day_of_week.index().cast("string")
            days = (engine.as_seconds(moment) - self.origin) / 86_400
            return [*hours, weekday, days]
        return []


@dataclass(frozen=True)
class Made:
    """A column that models read.  levels: of a category, None for a number."""

    name: str
    levels: tuple[str, ...] | None


def infer(
    table: Table,
    names: Sequence[str],
    connection: Connection,
    *,
    roles: Mapping[str, str] | None = None,
    max_levels: int = MAX_LEVELS,
) -> tuple[Column, ...]:
    """The role of each column, from its type and, where that does not tell, from its values.

    roles: roles that are known better, by column.  max_levels: text with more values than this is hashed.
    """
    check_parameters({"max_levels": max_levels}, {"max_levels": whole(1)})
    given = {name: _role(name, value) for name, value in (roles or {}).items()}
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r} to give a role to: there are {', '.join(names)}.")
    kinds = {name: given.get(name) or _by_type(table[name].type()) for name in names}
    for name, role in kinds.items():
        if role is not None and not _fits(role, table[name].type()):
            held = engine.kind_of(table[name].type())
            raise ValueError(f"column {name!r} holds {held} and cannot be {_AS[role]}: convert it or ignore it.")
    counted = [name for name in names if kinds[name] is Role.category and name not in given]
    distinct = _of_each(table, counted, lambda column: column.approx_nunique(), connection)
    times = [name for name in names if kinds[name] is Role.time]
    firsts = _of_each(table, times, lambda column: engine.as_seconds(column.min().cast("timestamp")), connection)
    columns = []
    for name, role in kinds.items():
        type_ = table[name].type()
        if role is None:
            note = "it is empty" if type_.is_null() else f"nothing is made of {str(type_).lower()}"
            columns.append(Column(name, Role.ignored, note=note))
        elif role is Role.time:
            columns.append(Column(name, role, origin=float(firsts[name] or 0), has_hours=type_.is_timestamp()))
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


def _fits(role: Role, type_: DataType) -> bool:
    """Whether a column of a type can have a role."""
    if role is Role.number:
        return bool(type_.is_numeric() or type_.is_boolean())
    if role is Role.time:
        return bool(type_.is_timestamp() or type_.is_date())
    return role is Role.ignored or not (type_.is_nested() or type_.is_binary())


def _category(table: Table, name: str, most: int | None, connection: Connection) -> Column:
    """A category with its levels, hashed where there are more than `most`."""
    levels = table.select(level=_as_text(table[name]))
    levels = levels.filter(levels.level.notnull()).distinct()
    found = engine.fetch(levels if most is None else levels.limit(most + 1), connection)["level"].to_pylist()
    if not found:
        return Column(name, Role.ignored, note="it is empty")
    if most is not None and len(found) > most:
        return Column(name, Role.hashed)
    return Column(name, Role.category, levels=tuple(sorted(found)))


def _of_each(
    table: Table, names: Sequence[str], figure: Callable[[Expression], Expression], connection: Connection
) -> dict[str, Any]:
    """A figure of each column, by one query."""
    figures = {f"n_{number}": figure(table[name]) for number, name in enumerate(names)}
    found = engine.execute(table.agg(**figures), connection) if names else {}
    return {name: found[f"n_{number}"] for number, name in enumerate(names)}


def _is_unique(table: Table, name: str, about: int, connection: Connection) -> bool:
    """Whether nearly every row has a value, and none has another's; `about` how many there are is looked at first."""
    found = engine.execute(table.agg(rows=table.count(), held=table[name].count()), connection)
    if min(about, found["held"]) < _NEARLY_ALL * found["rows"]:
        return False
    return bool(engine.execute(table.agg(n=table[name].nunique()), connection)["n"] == found["held"])


def _as_text(column: Expression) -> Expression:
    """The column as text that does not depend on the type in which a file holds it: 1, 1.0 and 1.00 are "1"."""
    type_ = column.type()
    if type_.is_floating() or type_.is_decimal():
        number = engine.as_number(column)
        whole = engine.as_whole(number)
        return (number == whole).ifelse(whole.cast("string"), number.cast("string"))
    if type_.is_timestamp() or type_.is_date():
        return column.cast("timestamp").cast("string")
    return column.cast("string")


def _by_type(type_: DataType) -> Role | None:
    if type_.is_string():
        return Role.category
    return next((role for role in (Role.number, Role.time) if _fits(role, type_)), None)


def _role(name: str, value: str) -> Role:
    try:
        return Role(value)
    except ValueError:
        raise ValueError(f"column {name!r} cannot be {value!r}: a role is one of {', '.join(Role)}.") from None


@dataclass(frozen=True, eq=False)
class Features:
    """The columns of the training table and their roles.

    Attributes
    ----------
    columns : tuple of Column
        What was learned about each.

    Examples
    --------
    >>> from bagwise.tables.engine import connect
    >>> from bagwise.tables.sources import read
    >>> duck = connect()
    >>> table = read({"age": [31, None], "device": ["phone", "tablet"]}, duck)
    >>> features = Features.of(table, table.columns, duck)
    >>> features.matrix(duck.to_pyarrow(features.select(table)).to_batches()[0])
    array([[31.,  0.],
           [nan,  1.]])
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not all(isinstance(column, Column) for column in self.columns):
            raise ValueError("features are made of columns")

    @classmethod
    def of(
        cls,
        table: Table,
        names: Sequence[str],
        connection: Connection,
        *,
        roles: Mapping[str, str] | None = None,
        max_levels: int = MAX_LEVELS,
    ) -> Features:
        """Learn from a training table (see `infer`)."""
        columns = infer(table, names, connection, roles=roles, max_levels=max_levels)
        found = cls(columns)
        if not found.made:
            notes = "; ".join(f"{column.name}: {column.note or 'ignored'}" for column in columns)
            raise ValueError(f"there is no column to learn from ({notes}).")
        return found

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the table's columns that are read."""
        return tuple(column.name for column in self.columns if column.role is not Role.ignored)

    @property
    def made(self) -> tuple[Made, ...]:
        """The columns that models read, in order."""
        return tuple(made for column in self.columns for made in column.made)

    @property
    def categorical(self) -> list[int]:
        """Numbers of the made columns that are categories."""
        return [number for number, made in enumerate(self.made) if made.levels is not None]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the made columns in `select`: `bagwise_f0`, `bagwise_f1` and so on."""
        return tuple(f"bagwise_f{number}" for number in range(len(self.made)))

    def expressions(self, table: Table, *, plain: bool = False) -> list[Expression]:
        """The made columns as expressions on a table.  plain: with NaN left in numbers."""
        self.check(table)
        return [one for column in self.columns for one in column.expressions(table, plain=plain)]

    def select(self, table: Table, *others: str, plain: bool = False) -> Table:
        """The made columns as a table, by their `names`, after the columns `others` as they are."""
        taken = {name.lower() for name in self.names}
        clash = next((name for name in others if name.lower() in taken), None)
        if clash is not None:
            raise ValueError(f"column {clash!r} has a name that bagwise uses: rename it.")
        return table.select(*others, **dict(zip(self.names, self.expressions(table, plain=plain), strict=True)))

    def check(self, table: Table) -> None:
        """Raise unless a table has the columns that are read, and they hold what they held in training."""
        for column in self.columns:
            if column.role is Role.ignored:
                continue
            if column.name not in table.columns:
                raise ValueError(f"column {column.name!r} is missing: the model was trained with it.")
            type_ = table[column.name].type()
            if not _fits(column.role, type_) or (column.has_hours and not type_.is_timestamp()):
                kind = "times of day" if column.has_hours else _HELD[column.role]
                raise ValueError(
                    f"column {column.name!r} held {kind} in training and {engine.kind_of(type_)} now: convert it first."
                )

    def matrix(self, batch: pa.RecordBatch | pa.Table) -> NDArray[np.float64]:
        """(n, made) numbers and codes of the made columns of a batch; NaN for what is missing or unknown."""
        matrix = np.empty((batch.num_rows, len(self.made)))
        for number, (name, made) in enumerate(zip(self.names, self.made, strict=True)):
            values = batch.column(name)
            if made.levels is not None:
                values = _codes(values, made.levels)
            elif values.null_count:
                values = values.cast(pa.float64()).fill_null(np.nan)
            matrix[:, number] = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values
        infinite = np.isinf(matrix).any(axis=0)
        if infinite.any():
            name = self.made[int(np.argmax(infinite))].name
            raise ValueError(f"column {name!r} contains infinity: replace such values first.")
        return matrix


def _codes(values: pa.Array, levels: Sequence[str]) -> NDArray[np.float64]:
    codes = pc.index_in(values, value_set=pa.array(levels, type=values.type))
    found: NDArray[np.float64] = codes.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return found
