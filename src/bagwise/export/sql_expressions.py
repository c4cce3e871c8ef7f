"""Expressions of SQL that queries of models are made of, and how columns are read with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.export.described import MadeColumn
from bagwise.export.formula import CannotExportError
from bagwise.tables.columns import DAY, HOUR, THURSDAY, Column

if TYPE_CHECKING:
    from sqlglot.expressions import Expression

FARTHEST = 700.0
"""Beyond which engines have no e to the power of it."""

MANY = 50
"""Terms that follow one another in a sum."""

_LARGEST = float(np.finfo(float).max)
_SECONDS_OF_SPARK = (
    "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', CAST({} AS TIMESTAMP_NTZ)) / 1e6",
    "CAST({} AS DOUBLE)",
)


class Expressions:
    """In the dialect of an engine."""

    def __init__(self, dialect: str) -> None:
        import sqlglot

        self.dialect, self.sqlglot, self.of = dialect, sqlglot, sqlglot.exp

    def number(self, value: float) -> Expression:
        """A number in double precision, which engines know by its exponent."""
        if not np.isfinite(value):
            raise CannotExportError("a model with numbers that are not finite cannot be written as SQL.")
        literal = self.of.Literal.number(np.format_float_scientific(abs(value), trim="-", exp_digits=1))
        return self.of.Neg(this=literal) if value < 0 else literal

    def paren(self, kind: Any, left: Expression, right: Expression) -> Expression:
        """Two expressions and what is between them, in parentheses."""
        return self.of.Paren(this=kind(this=left, expression=right))

    def sum(self, terms: Sequence[Expression]) -> Expression:
        """The sum, in parts, since engines limit how deep expressions are nested."""
        if len(terms) > MANY:
            return self.sum([self.sum(terms[start : start + MANY]) for start in range(0, len(terms), MANY)])
        return self.of.Paren(this=self.chain(terms)) if len(terms) > 1 else self.chain(terms)

    def chain(self, terms: Sequence[Expression]) -> Expression:
        """The sum of a few, to be a column: Spark reads what is in parentheses anew for each pair around it."""
        chain = terms[0] if terms else self.number(0.0)
        for term in terms[1:]:
            chain = self.of.Add(this=chain, expression=term)
        return chain

    def times(self, one: Expression, factor: float) -> Expression:
        """One, multiplied."""
        return one if factor == 1 else self.paren(self.of.Mul, one, self.number(factor))

    def plus(self, one: Expression, shift: float) -> Expression:
        """One, shifted."""
        return one if shift == 0 else self.paren(self.of.Add, one, self.number(shift))

    def divided(self, one: Expression, by: Expression) -> Expression:
        """One number of double precision by another."""
        return self.of.Paren(this=self.of.Div(this=one, expression=by, typed=True, safe=False))

    def case(self, condition: Expression, then: Expression, otherwise: Expression | None = None) -> Expression:
        """CASE WHEN."""
        return self.of.Case(ifs=[self.of.If(this=condition, true=then)], default=otherwise)

    def compared(self, kind: Any, one: Expression, value: float) -> Expression:
        """One against a number."""
        return kind(this=one, expression=self.number(value))

    def plain(self, column: Column, value: Expression) -> Expression:
        """A finite number of double precision, or null; in some engines NaN is equal to itself, in others not."""
        if column.kind == "boolean":
            return self.of.Case(ifs=[self.of.If(this=value, true=self.number(1)), self._not(value, self.number(0))])
        double = self.of.cast(value, "double")
        return self.case(self.compared(self.of.LTE, self.of.Abs(this=double), _LARGEST), double)

    def _not(self, value: Expression, then: Expression) -> Expression:
        return self.of.If(this=self.of.Not(this=value), true=then)

    def as_text(self, column: Column, value: Expression) -> Expression:
        """Text that does not depend on the type that holds it, as in training."""
        of, text = self.of, self.of.cast(value, "text")
        if column.kind == "boolean":
            yes, no = of.Literal.string("true"), of.Literal.string("false")
            return of.Case(ifs=[of.If(this=value, true=yes), self._not(value, no)])
        if column.kind == "numbers":
            whole = of.cast(of.cast(value, "bigint"), "text")
            return self.case(of.EQ(this=value, expression=of.Floor(this=value)), whole, text)
        if column.kind in ("dates", "times of a time zone"):
            return of.cast(of.cast(value, "timestamp"), "text")
        return text if column.kind and column.kind != "text" else value

    def seconds(self, column: Column, value: Expression) -> Expression:
        """Seconds since 1970, in UTC if a time has a zone."""
        if self.dialect in ("spark", "databricks"):
            how = _SECONDS_OF_SPARK[column.kind == "times of a time zone"]
            return self.sqlglot.parse_one(how.format(value.sql(dialect="spark")), read="spark")
        if self.dialect in ("duckdb", "postgres"):
            return self.of.TimeToUnix(this=value)
        start = self.of.cast(self.of.Literal.string("1970-01-01"), "timestamp")
        return self.of.cast(self.of.DateDiff(this=value, expression=start, unit=self.of.var("SECOND")), "double")

    def of_time(self, one: MadeColumn, seconds: Expression) -> Expression:
        """Hour, weekday or days of a time."""
        of, column = self.of, one.column
        if one.made.levels is None:
            late = self.compared(of.GT, seconds, column.last)
            early = of.If(this=self.compared(of.LT, seconds, column.first), true=self.number(column.first))
            held = of.Case(ifs=[early, of.If(this=late, true=self.number(column.last))], default=seconds)
            days = self.times(self.plus(held, -column.first), 1 / DAY)
            typical = one.made.typical
            return days if typical is None else of.Coalesce(this=days, expressions=[self.number(typical)])
        unit, start, many = (HOUR, 0, 24) if len(one.made.levels) == 24 else (DAY, THURSDAY, 7)
        whole = self.plus(of.Floor(this=self.divided(seconds, self.number(unit))), start)
        turns = of.Floor(this=self.divided(whole, self.number(many)))
        return of.Sub(this=whole, expression=self.times(turns, many))
