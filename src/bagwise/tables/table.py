"""A table of an engine, or a query that makes one; and the words of expressions over its columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import and_, or_
from sys import float_info
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw
import pyarrow as pa
from narwhals.stable.v2.dtypes import DType

from bagwise.tables.engines import Engine

Expression: TypeAlias = nw.Expr
DataType: TypeAlias = DType

col, lit, length = nw.col, nw.lit, nw.len  # a column by name; the same value in every row; how many lines there are
_INNER = "bagwise_of_{}"
_WHOLE = 2.0**53  # up to which double precision tells whole numbers apart


@dataclass(frozen=True, eq=False)
class Table:
    """A table of an engine, or a query that makes one; nothing is computed before it is asked for.

    Attributes
    ----------
    frame : narwhals.LazyFrame
        What it is to narwhals; ``frame.to_native()`` is a relation of DuckDB, a DataFrame of Spark, a table of Ibis.
    engine : Engine
        Where it lives.
    held : tuple
        What must last as long as it does: kept results, temporary folders.
    releases : frozenset of str
        Ids of the releases that its files are of, as far as they say so (see `put_in_bags`).
    """

    frame: nw.LazyFrame[Any]
    engine: Engine = field(repr=False)
    held: tuple[object, ...] = field(default=(), repr=False)
    releases: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def of(cls, native: Any, engine: Engine, *held: object) -> Table:
        """Take a table of the engine's own kind.

        Parameters
        ----------
        native : duckdb.DuckDBPyRelation, pyspark.sql.DataFrame or ibis.Table
            The table.
        engine : Engine
            Where it lives.
        *held : object
            What must last as long as it does.

        Returns
        -------
        Table
        """
        return cls(nw.from_native(native), engine, held)

    @property
    def native(self) -> Any:
        """The table in the engine's own kind."""
        return self.frame.to_native()

    @cached_property
    def schema(self) -> dict[str, DataType]:
        """Types of the columns by name."""
        with self.engine.asking():  # narwhals asks DuckDB for its time zone
            return dict(self.frame.collect_schema())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.schema)

    # -- queries ------------------------------------------------------------------------------------------------------

    def select(self, *columns: str | Expression, **named: Expression) -> Table:
        """These columns alone."""
        return replace(self, frame=self.frame.select(*columns, **named))

    def with_columns(self, **named: Expression) -> Table:
        """These columns, too, or in place of those of the same names."""
        return replace(self, frame=self.frame.with_columns(**named)) if named else self

    def drop(self, *columns: str) -> Table:
        """All columns but these."""
        return replace(self, frame=self.frame.drop(*columns))

    def filter(self, condition: Expression) -> Table:
        """The lines where the condition holds."""
        return replace(self, frame=self.frame.filter(condition))

    def head(self, lines: int) -> Table:
        """So many lines at most."""
        return replace(self, frame=self.frame.head(lines))

    def sort(self, *by: str) -> Table:
        """The lines in the order of columns; null comes last."""
        return replace(self, frame=self.frame.sort(*by, nulls_last=True))

    def group_by(self, keys: Sequence[str], figures: Mapping[str, Expression]) -> Table:
        """A line for each combination of keys, null among them."""
        return replace(self, frame=self.frame.group_by(*keys).agg(**figures))

    def join(self, other: Table, on: Sequence[str], how: Any = "inner") -> Table:
        """Lines of two tables with the same keys, of which null equals nothing.

        Parameters
        ----------
        other : Table
            Of the same engine; those of its columns whose names are taken end in `_right`.
        on : sequence of str
            The keys.
        how : {"inner", "left", "full"}
            Whether other lines of this table, or of both, are there, too; for both, `other` has keys of its own.

        Returns
        -------
        Table
        """
        joined = self.frame.join(other.frame, on=list(on), how=how)
        return replace(self, frame=joined, held=(*self.held, *other.held))

    def beside(self, other: Table) -> Table:
        """Every line with every line of another table."""
        return replace(self, frame=self.frame.join(other.frame, how="cross"), held=(*self.held, *other.held))

    def followed_by(self, other: Table) -> Table:
        """The lines of both; of the other table, the columns of this one, in its types."""
        same = other.select(**{name: col(name).cast(type_) for name, type_ in self.schema.items()})
        return replace(self, frame=nw.concat([self.frame, same.frame]), held=(*self.held, *other.held))

    def numbered(self, name: str, *order_by: str) -> Table:
        """The lines counted from 0, in an order; in that of the engine, where the numbers may have gaps, if not."""
        if order_by:
            return replace(self, frame=self.frame.with_row_index(name, order_by=order_by))
        return self._native(self.engine.number(self.native, name))

    def with_md5(self, **texts: Expression) -> Table:
        """These columns, too: the 32 digits of MD5 sums, which every engine computes alike."""
        return self._extended("md5", texts)

    def with_seconds(self, **times: Expression) -> Table:
        """These columns, too: seconds since 1970, in UTC if a time has a zone."""
        return self._extended("seconds", times)

    def _extended(self, function: str, columns: Mapping[str, Expression]) -> Table:
        if not columns:
            return self
        inner = {name: _INNER.format(name) for name in columns}
        table = self.with_columns(**{inner[name]: column for name, column in columns.items()})
        return table._native(self.engine.extend(table.native, function, inner)).drop(*inner.values())

    def aggregate(self, figures: Mapping[str, tuple[str, ...]], by: str | None = None) -> Table:
        """Figures that narwhals has no words for, or too many of (see `Engine.aggregate`)."""
        return self._native(self.engine.aggregate(self.native, figures, by))

    def _native(self, native: Any) -> Table:
        return replace(self, frame=nw.from_native(native))

    # -- results ------------------------------------------------------------------------------------------------------

    def fetch(self) -> pa.Table:
        """The whole result, in memory."""
        return self.engine.fetch(self.native)

    def batches(self, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """The result piece by piece; to be read to its end before the engine is asked again."""
        return self.engine.batches(self.native, rows)

    def line(self, **figures: Expression) -> dict[str, Any]:
        """Figures of all lines."""
        (line,) = self.select(**figures).fetch().to_pylist()
        return dict(line)

    def count(self) -> int:
        """How many lines there are."""
        return int(self.line(lines=length())["lines"])

    def keep(self) -> Table:
        """The result as a table of the engine's own, which vanishes when nobody holds it any more."""
        kept, held = self.engine.keep(self.native)
        return replace(Table.of(kept, self.engine, held), releases=self.releases)


# -- types ------------------------------------------------------------------------------------------------------------


def is_text(type_: DataType) -> bool:
    """Whether a column holds text."""
    return isinstance(type_, (nw.String, nw.Categorical, nw.Enum))


def is_time(type_: DataType) -> bool:
    """Whether a column holds dates or times of a day."""
    return isinstance(type_, (nw.Datetime, nw.Date))


def kind_of(type_: DataType) -> str:
    """What a column holds, in words; keys of different kinds never match."""
    if type_.is_numeric():
        return "numbers"
    if is_text(type_):
        return "text"
    if isinstance(type_, nw.Datetime) and type_.time_zone is not None:
        return "times of a time zone"
    if is_time(type_):
        return "dates"
    if isinstance(type_, (nw.List, nw.Array)):
        return f"array<{str(type_.inner).lower()}>"
    return type(type_).__name__.lower()


# -- expressions ------------------------------------------------------------------------------------------------------


def null(type_: DataType) -> Expression:
    """Null of a type in every row."""
    return lit(None, type_)


def where(condition: Expression, value: Expression) -> Expression:
    """The value where the condition holds, otherwise null."""
    return nw.when(condition).then(value)


def if_else(condition: Expression, value: Expression, other: Expression) -> Expression:
    """The value where the condition holds, otherwise, or if that is null, the other one."""
    return nw.when(condition).then(value).otherwise(other)


def any_of(conditions: Iterable[Expression]) -> Expression:
    """Whether one of several conditions holds."""
    return reduce(or_, conditions)


def all_of(conditions: Iterable[Expression]) -> Expression:
    """Whether all of several conditions hold."""
    return reduce(and_, conditions)


def total(whole: Expression) -> Expression:
    """The sum of whole numbers, or how often a condition holds; 0 of none."""
    return whole.cast(nw.Int64).sum().cast(nw.Int64)


def without_nan(number: Expression) -> Expression:
    """Numbers of single or double precision with null for NaN."""
    return where(~number.is_nan(), number)


def as_number(column: Expression) -> Expression:
    """The column in double precision; NaN, which some files have for what is missing, as null."""
    return without_nan(column.cast(nw.Float64))


def as_whole(number: Expression) -> Expression:
    """The whole number next to a number, as far as double precision tells whole numbers apart; otherwise null."""
    return where(number.abs() <= _WHOLE, number).round().cast(nw.Int64)  # Arrow casts whole numbers only


def as_text(column: Expression, type_: DataType) -> Expression:
    """The column as text that does not depend on the type in which a file holds it: 1, 1.0 and 1.00 are "1"."""
    if type_.is_float() or type_.is_decimal():
        number = as_number(column)
        whole = as_whole(number)
        return if_else(number == whole, whole.cast(nw.String), number.cast(nw.String))
    if isinstance(type_, nw.Datetime) and type_.time_zone is not None:
        return column.dt.replace_time_zone(None).cast(nw.String)
    return (column.cast(nw.Datetime("us")) if is_time(type_) else column).cast(nw.String)


def is_finite(number: Expression) -> Expression:
    """Whether a number is not infinite; null for null."""
    return number.abs() <= float_info.max
