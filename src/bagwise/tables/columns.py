"""What each column of a table is to a model, and the columns that are made of it in the engine.

A number stays as it is, NaN being missing; text with few values is a category; text with many is hashed into a fixed
number of categories, by MD5, which every engine computes alike; a time becomes hour, weekday (Monday is 0) and a trend
in days, all in UTC if it has a time zone. A trend goes no further than it was seen: a time before the first or after
the last of training counts as that one. Other columns (lists, bytes, durations, …) are ignored, and say so; so is
text of which nearly every row has a value of its own, which is taken for an id.

A category that training did not have is missing. What is missing is told to a model as such where training had gaps,
too; a number or a time without gaps in training counts as its mean there, since models learned nothing about gaps.
`Features` makes of the table one of numbers and text, and of that the matrix that every model reads; what was learned
about the columns in training is part of the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.tables.table import (
    DataType,
    Expression,
    Table,
    as_text,
    col,
    if_else,
    is_text,
    is_time,
    kind_of,
    length,
    lit,
    without_nan,
)
from bagwise.utils.parameters import check_parameters, whole
from bagwise.utils.typing import Floats

MAX_LEVELS = 64
_SURELY_MORE = 4  # times the limit: an estimated number of values below that is not believed, they are counted
_IDS = 0.9  # values per row from which on a text is taken for an id: what was learned of one would serve no other row
_SURELY_FEWER = 0.8  # of these: an estimated number of values below that is believed
BUCKETS = tuple(f"{number:02x}" for number in range(256))  # of a hashed column: the first two digits of its MD5 sum


class Role(StrEnum):
    """What a column is to a model."""

    number = "number"
    category = "category"
    hashed = "hashed"
    time = "time"
    ignored = "ignored"


_HELD = {Role.number: "numbers", Role.time: "dates", Role.category: "categories", Role.hashed: "categories"}
_TEXTS = (Role.category, Role.hashed)
_READ = "bagwise_read_{}"  # what is read of a column: text, its checksum, or seconds
_LINE = "bagwise_line"
_ENDS = {"first": "min", "last": "max"}
HOUR, DAY, THURSDAY = 3600, 86_400, 3
"""Seconds of an hour and of a day, and the weekday with which 1970 began; Monday is 0."""

_HOURS, _WEEKDAYS = tuple(f"{hour:02d}" for hour in range(24)), tuple(str(day) for day in range(7))


Watch: TypeAlias = Callable[[int, Any, Any], None]


class Made(NamedTuple):
    """A column that models read: numbers or, with levels, text.  of: makes it of what is `read`, null where missing.

    typical: what a missing number counts as; None where models know of gaps.
    """

    name: str
    levels: tuple[str, ...] | None
    of: Callable[[Expression], Expression]
    typical: float | None = None


@dataclass(frozen=True)
class Column:
    """One column of the table, with what was learned about it.

    levels: values of a category, sorted.  first, last: seconds since 1970 of the first and the last training time.
    has_hours: whether a time is more than a date.  note: why it is ignored.  kind: what it held, in words.
    typical: mean of a number, or of the seconds of a time, where training had no gaps.
    """

    name: str
    role: Role
    levels: tuple[str, ...] = ()
    first: float = 0.0
    last: float = 0.0
    has_hours: bool = False
    note: str = ""
    kind: str = ""
    typical: float | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.name, self.kind, *self.levels)):
            raise ValueError("a column has a name and levels that are text")
        if not np.isfinite([self.first, self.last, self.typical or 0.0]).all():
            raise ValueError(f"the first, the last or the mean value of column {self.name!r} is not finite")

    def _to_state(self) -> dict[str, Any]:
        return {**vars(self), "role": self.role.value}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Column:
        return cls(**{**state, "role": Role(state["role"])})

    @property
    def made(self) -> tuple[Made, ...]:
        """The columns that models read in its place."""
        name = self.name
        hour = Made(f"{name}: hour", _HOURS, lambda seconds: _whole_text(seconds, HOUR, 0, 24).str.zfill(2))
        weekday = Made(f"{name}: weekday", _WEEKDAYS, lambda seconds: _whole_text(seconds, DAY, THURSDAY, 7))
        middle = None if self.typical is None else (self.typical - self.first) / DAY
        days = Made(f"{name}: days", None, lambda seconds: (self._held(seconds) - self.first) / DAY, middle)
        made = {
            Role.number: (Made(name, None, lambda column: column.cast(nw.Float64), self.typical),),
            Role.category: (Made(name, self.levels, lambda text: text),),
            Role.hashed: (Made(name, BUCKETS, lambda digits: digits.str.head(2)),),
            Role.time: (hour, weekday, days) if self.has_hours else (weekday, days),
        }
        return made.get(self.role, ())

    @property
    def said(self) -> str:
        """What it held in training, in a sentence."""
        return "times of day" if self.has_hours else (self.role in _TEXTS and self.kind) or _HELD[self.role]

    def fits(self, type_: DataType) -> bool:
        """Whether a column of a type can be read in its place."""
        return _fits(self.role, type_) and (not self.has_hours or isinstance(type_, nw.Datetime))

    def _held(self, seconds: Expression) -> Expression:
        """The time, but no earlier and no later than was seen; null stays null, which LEAST of DuckDB would not do."""
        late = if_else(seconds > self.last, lit(self.last), seconds)
        return if_else(seconds < self.first, lit(self.first), late)


@dataclass(frozen=True, eq=False)
class Features:
    """The columns of the training table, with what was learned about each.

    >>> from bagwise.tables import connect, read
    >>> table = read({"age": [31, None], "device": ["phone", "tablet"]}, connect())
    >>> features = Features.of(table, table.columns)
    >>> features.matrix(features.select(table).fetch())
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
        *,
        roles: Mapping[str, str] | None = None,
        max_levels: int = MAX_LEVELS,
        means: bool = True,
    ) -> Features:
        """Learn the roles of columns from their types and values.

        roles, max_levels: as in `tables.fit`.  means: of numbers; without, they are unknown until `with_means`.
        """
        check_parameters({"max_levels": max_levels}, {"max_levels": whole(1)})
        for name, value in (roles or {}).items():
            if value not in [*Role]:
                raise ValueError(f"column {name!r} cannot be {value!r}: a role is one of {', '.join(Role)}.")
        given = {name: Role(value) for name, value in (roles or {}).items()}
        if unknown := [name for name in given if name not in names]:
            raise ValueError(f"there is no column {unknown[0]!r} to give a role to: there are {', '.join(names)}.")
        told = {name: Role.ignored for name in names if is_pandas_index(name)} | given
        kinds = {name: told.get(name) or _role_of(table.schema[name]) for name in names}
        for name, role in kinds.items():
            if not _fits(role, table.schema[name]):
                held, asked = kind_of(table.schema[name]), "hashed" if role is Role.hashed else f"a {role}"
                raise ValueError(f"column {name!r} holds {held} and cannot be {asked}: convert it or ignore it.")
        found = _figures(table, kinds, given, means=means)
        columns = []
        for number, (name, role) in enumerate(kinds.items()):
            type_ = table.schema[name]
            if role is Role.category:
                column = _category(table, name, found.get(f"about_{number}"), max_levels)
            elif role is Role.time:
                first, last = (float(found[f"{end}_{number}"] or 0) for end in ("first", "last"))
                column = Column(name, role, first=first, last=last, has_hours=isinstance(type_, nw.Datetime))
            else:
                untold = role is Role.ignored and name not in given
                why = "the index of a pandas table" if is_pandas_index(name) else f"nothing is made of {kind_of(type_)}"
                column = Column(name, role, note=why if untold else "")
            columns.append(replace(column, kind=kind_of(type_), typical=_typical(found, number)))
        features = cls(tuple(columns))
        if not features.made:
            notes = "; ".join(f"{column.name}: {column.note or 'ignored'}" for column in columns)
            raise ValueError(f"there is no column to learn from ({notes}).")
        return features

    def with_means(self, means: Mapping[int, float]) -> Features:
        """The same, with the means of numbers that have no gaps, by the number of the made column."""
        columns, place = [], 0
        for column in self.columns:
            known = column.role is Role.number and place in means
            columns.append(replace(column, typical=means[place]) if known else column)
            place += len(column.made)
        return Features(tuple(columns))

    def among(self, names: Collection[str]) -> Features:
        """Those of the columns that have one of these names."""
        return Features(tuple(column for column in self.columns if column.name in names))

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
        """Names of the made columns in `select`: `bagwise_f0` and so on."""
        return tuple(f"bagwise_f{number}" for number in range(len(self.made)))

    def select(self, table: Table, *others: str, plain: bool = False) -> Table:
        """The made columns by their `names`, after `others` as they are.  plain: leave NaN, to save looking for it."""
        self.check(table)
        if clash := [name for name in others if name.lower() in self.names]:
            raise ValueError(f"column {clash[0]!r} has a name that bagwise uses: rename it.")
        used = [(_READ.format(number), column) for number, column in enumerate(self.columns) if column.made]
        texts = {read: as_text(col(one.name), table.schema[one.name]) for read, one in used if one.role in _TEXTS}
        hashed = {read: texts.pop(read) for read, one in used if one.role is Role.hashed}
        times = {read: col(one.name) for read, one in used if one.role is Role.time}
        made = []
        for read, column in used:
            source = texts.get(read, col(column.name if column.role is Role.number else read))
            for one in column.made:
                values = one.of(source)
                made.append(values if plain or one.levels is not None else without_nan(values))
        table = table.with_md5(**hashed).with_seconds(**times)
        return table.select(*others, **dict(zip(self.names, made, strict=True)))

    def check(self, table: Table) -> None:
        """Raise unless a table has the columns that are read, and they hold what they held in training."""
        for column in (one for one in self.columns if one.role is not Role.ignored):
            if column.name not in table.columns:
                raise ValueError(f"column {column.name!r} is missing: the model was trained with it.")
            if not column.fits(table.schema[column.name]):
                held = f"held {column.said} in training and {kind_of(table.schema[column.name])} now"
                raise ValueError(f"column {column.name!r} {held}: convert it first.")

    def matrix(self, batch: pa.RecordBatch | pa.Table, watch: Watch | None = None) -> Floats:
        """(n, made) numbers and codes of the made columns of a batch; NaN for what is missing or was never seen.

        watch: called with the number of each made column of categories, its texts and their codes.
        """
        matrix = np.empty((batch.num_rows, len(self.made)))
        for number, (name, made) in enumerate(zip(self.names, self.made, strict=True)):
            values = batch.column(name)
            if made.levels is not None:
                codes = pc.index_in(values, value_set=pa.array(made.levels, type=values.type))
                if watch is not None:
                    watch(number, values, codes)
                values = codes
            if values.null_count:
                gap = np.nan if made.typical is None else made.typical
                values = values.cast(pa.float64()).fill_null(gap)
            matrix[:, number] = values.to_numpy(zero_copy_only=False)
        if (infinite := np.isinf(matrix).any(axis=0)).any():
            name = self.made[int(np.argmax(infinite))].name
            raise ValueError(f"column {name!r} contains infinity: replace such values first.")
        return matrix


def is_pandas_index(name: str) -> bool:
    """Whether a column is the number that rows had before a pandas table was sorted or cut: no feature of a row."""
    return re.fullmatch(r"__index_level_\d+__", name) is not None


def _role_of(type_: DataType) -> Role:
    fitting = (role for role in (Role.number, Role.time, Role.ignored) if _fits(role, type_))
    return Role.category if is_text(type_) else next(fitting)


def _fits(role: Role, type_: DataType) -> bool:
    """Whether a column of a type can have a role."""
    if role is Role.number:
        return type_.is_numeric() or isinstance(type_, nw.Boolean)
    if role is Role.time:
        return is_time(type_)
    return role is Role.ignored or not (type_.is_nested() or isinstance(type_, nw.Binary))


def _figures(table: Table, kinds: Mapping[str, Role], given: Collection[str], *, means: bool) -> dict[str, Any]:
    """In one query: when times begin and end, sums, and about how many values there are of what may be a category.

    means: whether numbers are added up, too.
    """
    places = {name: number for number, name in enumerate(kinds)}
    times, numbers = ([name for name, one in kinds.items() if one is role] for role in (Role.time, Role.number))
    texts = [name for name, role in kinds.items() if role is Role.category and name not in given]
    numbers = numbers if means else []
    if not (times or numbers or texts):
        return {}
    read = {name: _READ.format(places[name]) for name in (*times, *numbers, *texts)}
    figures = {f"{first}_{places[name]}": (end, read[name]) for name in times for first, end in _ENDS.items()}
    for name in (*times, *numbers):
        figures |= {f"sum_{places[name]}": ("sum", read[name]), f"known_{places[name]}": ("count", read[name])}
    figures |= {f"about_{places[name]}": ("about", read[name]) for name in texts}
    table = table.with_seconds(**{read[name]: col(name) for name in times})
    plain = {read[name]: col(name) for name in texts} | {read[name]: col(name).cast(nw.Float64) for name in numbers}
    table = table.select(*(read[name] for name in times), **plain, **{_LINE: lit(1)})
    (line,) = table.aggregate({**figures, "lines": ("count", _LINE)}).fetch().to_pylist()
    return dict(line)


def _typical(found: Mapping[str, Any], number: int) -> float | None:
    """The mean of a column without gaps, as far as it is a number."""
    known, added = found.get(f"known_{number}", 0), found.get(f"sum_{number}")
    if not known or known < found["lines"] or added is None or not np.isfinite(float(added)):
        return None
    return float(added) / int(known)


def _category(table: Table, name: str, about: int | None, max_levels: int) -> Column:
    """A category with its levels; hashed if they are too many, ignored if nearly every row has one of its own.

    about: how many levels there are; None where the user says that it is a category.
    """
    if about is None or about <= _SURELY_MORE * max_levels:
        levels = table.select(level=as_text(col(name), table.schema[name])).filter(~col("level").is_null())
        levels = levels.group_by(["level"], {"rows": length()})
        levels = levels if about is None else levels.head(max_levels + 1)
        found = levels.fetch()["level"].to_pylist()
        if not found:
            return Column(name, Role.ignored, note="it is empty")
        if about is None or len(found) <= max_levels:
            return Column(name, Role.category, levels=tuple(sorted(found)))
    held = table.line(held=col(name).count())["held"]
    if min(about, held) < _SURELY_FEWER * _IDS * held:
        return Column(name, Role.hashed)
    own = table.filter(~col(name).is_null()).line(n=col(name).n_unique())["n"]
    if own < _IDS * held:
        return Column(name, Role.hashed)
    every = "every row has" if own == held else "nearly every row has"
    note = f"taken for an id, since {every} a value of its own; the role hashed or category keeps it"
    return Column(name, Role.ignored, note=note)


def _whole_text(seconds: Expression, unit: int, first: int, many: int) -> Expression:
    """How many whole units of time have gone by, as text that begins again after so many; first: what 1970 began with.

    By arithmetic, since what is the hour of a time is in some engines told by a setting.
    """
    return (((seconds / unit).floor().cast(nw.Int64) + first) % many).cast(nw.String)
