"""SQL: one SELECT from a table to predictions, in the dialect of an engine, which sqlglot writes.

Steps are common table expressions: columns as a model reads them, then whatever is used more than once. Nothing but
CASE, arithmetic, EXP and LN is asked of the engine; MD5 for hashed text, and seconds since 1970 for times.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bagwise.data.features import Encoding
from bagwise.export.described import Described
from bagwise.export.formula import CannotExportError, prediction
from bagwise.export.sql_expressions import FARTHEST, MANY, Expressions
from bagwise.export.trees import Share, Tree, merged
from bagwise.tables.columns import Role
from bagwise.utils.packages import needed
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Floats

if TYPE_CHECKING:
    from sqlglot.expressions import Expression

_Numbers: TypeAlias = "list[Expression]"  # an expression per output
_FEW_LEAVES = 500  # up to which a query is laid out for people
MAX_LEAVES = 20_000
"""Leaves that are written as CASE expressions unless more are asked for."""


def to_sql(
    model: Any,
    table: str = "events",
    *,
    dialect: str = "duckdb",
    keep: Sequence[str] | None = None,
    max_leaves: int = MAX_LEAVES,
) -> str:
    """A model as a SELECT that scores the rows of a table where they are.

    Linear models are a sum, trees are CASE expressions; networks are refused. The columns must have the types of
    training; what is missing, and a category that training did not have, is treated as `predict` does.

    Parameters
    ----------
    model : TableModel, BagClassifier or BagRegressor
        A model that `tables.fit` or `load` returned, or a fitted estimator of arrays, whose columns are named as in
        training, or x0, x1, ….
    table : str
        The name of the table as the engine knows it, or what else stands after FROM.
    dialect : str
        Of an engine, as sqlglot calls it: "duckdb", "spark", "postgres", "bigquery", "snowflake", ….
    keep : sequence of str, optional
        Columns to hand on before the predictions; by default all that the model was trained with.
    max_leaves : int
        Most leaves of trees; more are an error, since engines take long to read them.

    Returns
    -------
    str
        The query, whose last columns are `prediction`, or one for each class.

    Examples
    --------
    >>> import bagwise as bw
    >>> X = np.random.default_rng(0).normal(size=(640, 1))
    >>> ids = bw.random_bags(640, size=16, random_state=0)
    >>> model = bw.BagLogisticClassifier(random_state=0).fit(X, bw.aggregate(X[:, 0] > 0, ids), bags=ids)
    >>> import duckdb
    >>> rows = duckdb.sql("SELECT 0.5 AS x0")
    >>> ((_, found),) = duckdb.sql(to_sql(model, "rows")).fetchall()
    >>> bool(np.isclose(found, model.predict_proba([[0.5]])[0, 1]))
    True
    """
    needed("sqlglot", "sql", "dialects of SQL")
    described = Described.of(model)
    query = _Query(described, dialect, max_leaves)
    every = [one.name for one in described.features.columns]
    kept = every if keep is None else list(keep)
    if clash := [name for name in kept if name in described.outputs]:
        raise ParameterError("keep", f"names column {clash[0]!r}, which is that of a prediction: leave it out.")
    return query.text(table, kept, prediction(described.estimator, described.encoding, query))


class _Query:
    """Words of SQL; a number is an expression for each output, over the columns of the last step."""

    name = "SQL"

    def __init__(self, described: Described, dialect: str, max_leaves: int) -> None:
        import sqlglot

        try:
            sqlglot.Dialect.get_or_raise(dialect)
        except ValueError:
            known = "duckdb, spark, postgres, bigquery, snowflake, …"
            raise ParameterError("dialect", f"must be one that sqlglot knows ({known}), got {dialect!r}.") from None
        self.described, self.dialect, self.max_leaves = described, dialect, max_leaves
        self.sqlglot, self.of, self.say = sqlglot, sqlglot.exp, Expressions(dialect)
        self.steps: list[list[Expression]] = []  # columns that each step adds
        self.leaves = 0

    # -- the query ------------------------------------------------------------------------------------------------

    def text(self, table: str, keep: Sequence[str], found: _Numbers) -> str:
        """The query that ends in predictions."""
        of = self.of
        try:
            source: Any = of.maybe_parse(table, into=of.Table, dialect=self.dialect)
        except self.sqlglot.errors.ParseError:
            raise ParameterError("table", f"must be what stands after FROM, got {table!r}.") from None
        kept: list[Any] = [of.column(name, quoted=True) for name in keep]
        steps = [one for one in [self.columns, *self.steps] if one]
        query = None
        for number, added in enumerate(steps):
            before = self.select([*kept, *added] if number == 0 else [of.Star(), *added], source)
            source = of.to_table(f"bagwise_{number + 1}")
            query = (query or of.Select()).with_(f"bagwise_{number + 1}", as_=before, copy=False)
        last = [of.alias_(one, name, quoted=True) for one, name in zip(found, self.described.outputs, strict=True)]
        final = self.select([*kept, *last], source)
        if query is not None:
            final.set("with_", query.args["with_"])
        return str(final.sql(dialect=self.dialect, pretty=self.leaves <= _FEW_LEAVES)) + "\n"

    def select(self, columns: Sequence[Any], source: Any) -> Any:
        """SELECT columns FROM source."""
        return self.of.Select(expressions=list(columns)).from_(source, copy=False)

    def let(self, numbers: _Numbers) -> _Numbers:
        """Expressions under a name each, for those that use them more than once."""
        if all(isinstance(one, self.of.Column) for one in numbers):
            return numbers
        names = [f"bagwise_v{sum(map(len, self.steps)) + place}" for place in range(len(numbers))]
        self.steps.append([self.of.alias_(one, name) for one, name in zip(numbers, names, strict=True)])
        return [self.of.column(name) for name in names]

    # -- columns --------------------------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> list[Expression]:
        """The first step: what is read of each column."""
        alias, found = self.of.alias_, []
        for place, column in enumerate(self.described.read):
            value = self.of.column(column.name, quoted=True)
            if column.role is Role.number:
                read = self.say.plain(column, value)
                if column.typical is not None:
                    read = self.of.Coalesce(this=read, expressions=[self.say.number(column.typical)])
            elif column.role is Role.time:
                read = self.say.seconds(column, value)
            else:
                read = self.say.as_text(column, value)
                if column.role is Role.hashed:
                    read = self.of.Left(this=self.of.MD5(this=read), expression=self.of.Literal.number(2))
            found.append(alias(read, f"bagwise_c{place}"))
        return found

    @cached_property
    def codes(self) -> list[Expression]:
        """What estimators read, column by column: numbers, texts of categories, numbers of hours and weekdays."""
        places = {column.name: place for place, column in enumerate(self.described.read)}
        found, made_of_times = [], []
        for number, one in enumerate(self.described.made):
            code: Expression = self.of.column(f"bagwise_c{places.get(one.column.name)}")
            if one.used and one.column.role is Role.time:
                made_of_times.append(self.of.alias_(self.say.of_time(one, code), f"bagwise_t{number}"))
                code = self.of.column(f"bagwise_t{number}")
            found.append(code if one.used else self.say.number(0.0))
        self.steps.insert(0, made_of_times)
        return found

    def levels(self, number: int, codes: Sequence[float]) -> list[Expression]:
        """What a column of categories is compared with, of some of its codes."""
        one = self.described.made[number]
        if one.column.role is Role.time or one.made.levels is None:
            return [self.of.Literal.number(int(code)) for code in codes]
        return [self.of.Literal.string(one.made.levels[int(code)]) for code in codes]

    # -- words ----------------------------------------------------------------------------------------------------

    def linear(self, encoding: Encoding | None, coef: Floats, intercept: Floats) -> _Numbers:
        """See `Words`."""
        found = []
        for weights, start in zip(coef, intercept, strict=True):
            constant, terms = float(start), []
            place = 0
            for number, code in enumerate(self.codes):
                levels = None if encoding is None else encoding.levels[number]
                width = 1 if encoding is None else len(levels) if levels is not None else 1 + encoding.missing[number]
                w, used = weights[place : place + width], self.described.made[number].used
                place += width
                if not used or not w.any():
                    continue
                if encoding is None:
                    terms.append(self.say.times(code, float(w[0])))
                elif levels is not None:
                    terms.append(self._of_levels(number, code, levels, w))
                else:
                    terms.append(self._of_number(code, encoding, number, w))
            found.append(self.say.sum([self.say.number(constant), *terms]))
        return found

    def _of_levels(self, number: int, code: Expression, levels: Floats, weights: Floats) -> Expression:
        """The weight of a category."""
        named = zip(self.levels(number, levels.tolist()), weights, strict=True)
        ifs = [self.of.If(this=level, true=self.say.number(float(w))) for level, w in named if w]
        return self.of.Case(this=code, ifs=ifs, default=self.say.number(0.0))

    def _of_number(self, code: Expression, encoding: Encoding, number: int, weights: Floats) -> Expression:
        """The weight of a number as it is scaled, and of being missing."""
        slope = float(weights[0] / encoding.span[number])
        told = self.say.times(self.say.plus(code, -float(encoding.low[number])), slope)
        missing = float(weights[0] * encoding.fill[number]) + (float(weights[1]) if len(weights) > 1 else 0.0)
        return self.say.case(self.of.Is(this=code, expression=self.of.Null()), self.say.number(missing), told)

    def trees(self, outputs: Sequence[Sequence[Share]], constant: Floats) -> _Numbers:
        """See `Words`."""
        self.leaves += sum(tree.n_leaves for trees in outputs for tree, _ in trees)
        if self.leaves > self.max_leaves:
            said = f"must be larger: the trees have {self.leaves:,} leaves and more, got {self.max_leaves:,}"
            other = "or export to onnx, which knows trees, or score by tables.write_scores where the rows are"
            raise ParameterError("max_leaves", f"{said}; {other}.")
        constants = np.broadcast_to(constant, len(outputs))
        parts: list[Expression] = []
        ends = []
        for trees, start in zip(merged(outputs), constants, strict=True):
            # As a whole in double precision: a CASE over numbers with an exponent is a decimal in some engines.
            terms = [self.of.cast(self.branch(tree, 0 if len(tree.feature) else -1), "double") for tree in trees]
            terms = [self.say.number(float(start)), *terms]
            parts += [self.say.chain(terms[first : first + MANY]) for first in range(0, len(terms), MANY)]
            ends.append(len(parts))
        named = self.let(parts)
        return [self.say.sum(named[first:end]) for first, end in pairwise([0, *ends])]

    def branch(self, tree: Tree, child: int) -> Expression:
        """What a tree says of rows that have come to a child of a node."""
        if child < 0:
            return self.say.number(float(tree.value[-1 - child]))
        number, of = int(tree.feature[child]), self.of
        left, right = (self.branch(tree, int(one[child])) for one in (tree.left, tree.right))
        code, codes, threshold = self.codes[number], tree.codes[child], float(tree.threshold[child])
        if codes is not None:
            levels = self.levels(number, [one for one in codes if one < self._n_levels(number)])
            return self.say.case(of.In(this=code, expressions=levels), left, right) if levels else right
        if tree.missing_left[child]:
            return self.say.case(self.say.compared(of.GT, code, threshold), right, left)
        return self.say.case(self.say.compared(of.LTE, code, threshold), left, right)

    def _n_levels(self, number: int) -> float:
        """How many levels a column has; of an array that holds codes, nobody knows."""
        levels = self.described.made[number].made.levels
        return np.inf if levels is None else len(levels)

    def network(self, encoding: Encoding | None, module: Any) -> _Numbers:
        """See `Words`."""
        raise CannotExportError("a network cannot be written as SQL: export it to onnx or torch.")

    def moved(self, number: _Numbers, factor: Floats | float, shift: Floats | float) -> _Numbers:
        """See `Words`."""
        by, to = np.broadcast_to(factor, len(number)), np.broadcast_to(shift, len(number))
        return [
            self.say.plus(self.say.times(one, float(f)), float(s)) for one, f, s in zip(number, by, to, strict=True)
        ]

    def added(self, numbers: Sequence[_Numbers]) -> _Numbers:
        """See `Words`."""
        return [self.say.sum(each) for each in zip(*numbers, strict=True)]

    def clipped(self, number: _Numbers, low: Floats | float | None, high: Floats | float | None) -> _Numbers:
        """See `Words`."""
        named, found = self.let(number), []
        for place, one in enumerate(named):
            ifs = []
            for kind, bound in ((self.of.LT, low), (self.of.GT, high)):
                if bound is not None:
                    value = float(np.broadcast_to(bound, len(named))[place])
                    ifs.append(self.of.If(this=self.say.compared(kind, one, value), true=self.say.number(value)))
            found.append(self.of.Case(ifs=ifs, default=one))
        return found

    def sigmoid(self, number: _Numbers) -> _Numbers:
        """See `Words`."""
        one, found = self.say.number(1.0), []
        for z in self.let(number):
            h = self.say.divided(one, self.say.paren(self.of.Add, one, self.of.Exp(this=self.of.Neg(this=z))))
            found.append(self.say.case(self.say.compared(self.of.LT, z, -FARTHEST), self.say.number(0.0), h))
        return found

    def logit(self, number: _Numbers) -> _Numbers:
        """See `Words`."""
        one = self.say.number(1.0)
        return self.log([self.say.divided(h, self.say.paren(self.of.Sub, one, h)) for h in self.let(number)])

    def exp(self, number: _Numbers) -> _Numbers:
        """See `Words`."""
        named = self.let(number)
        small = [self.say.compared(self.of.LT, z, -FARTHEST) for z in named]
        zero = self.say.number(0.0)
        return [self.say.case(low, zero, self.of.Exp(this=z)) for low, z in zip(small, named, strict=True)]

    def log(self, number: _Numbers) -> _Numbers:
        """See `Words`."""
        return [self.of.Ln(this=one) for one in number]

    def softmax(self, number: _Numbers) -> _Numbers:
        """See `Words`."""
        named, found = self.let(number), []
        for z in named:
            beyond = [self.say.paren(self.of.Sub, other, z) for other in named]
            most = self.say.number(FARTHEST)
            held = [self.say.case(self.say.compared(self.of.GT, one, FARTHEST), most, one) for one in beyond]
            found.append(self.say.divided(self.say.number(1.0), self.say.sum([self.of.Exp(this=one) for one in held])))
        return found

    def shares(self, number: _Numbers) -> _Numbers:
        """See `Words`."""
        named = self.let(number)
        return [self.say.divided(one, self.say.sum(named)) for one in named]
