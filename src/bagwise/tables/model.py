"""A model of tables: what was learned of the columns, and the estimator that reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise.bags import Bags
from bagwise.base import BagClassifier, BagEstimator, BagRegressor
from bagwise.data.features import Encoding
from bagwise.data.shards import OFFSET
from bagwise.explanation import Explanation
from bagwise.intervals import TellsIntervals
from bagwise.linear.aggregated import AggregatedClassifier
from bagwise.predictions import given_reports
from bagwise.tables.aggregates_summary import AggregatesSummary
from bagwise.tables.bag_table import BagTable, Summary
from bagwise.tables.columns import Column, Features, Role
from bagwise.tables.reports import ReportColumns
from bagwise.tables.row_columns import RowColumns
from bagwise.tables.schema import Reading
from bagwise.tables.sources import Source, home, in_memory, read
from bagwise.tables.table import Table, is_time
from bagwise.utils.parameters import AdviceError, Parameter
from bagwise.utils.text import listed, number_of
from bagwise.utils.typing import Floats, NDArray

_NAMED = 5  # classes that a representation lists

_ENDS = ("low", "high")
"""Columns of the ends of intervals."""


@dataclass(eq=False, repr=False)
class TableModel:
    """A fitted model that scores rows of a table.

    Attributes
    ----------
    features : Features
        Columns and their roles.
    estimator : BagClassifier, BagRegressor or AggregatedClassifier
        Reads the numbers and codes that `features` makes or, if there is an `encoding`, what that makes of them.
    encoding : Encoding or None
        See `estimator`.
    classes : tuple of str or None
        Names of the classes, None for labels 0 and 1, and for values.
    kind : str
        What `fit` was asked for, or the class of the estimator.
    keys : tuple of str
        Columns of the bags it was trained on.
    summary : Summary or AggregatesSummary
        What it was trained on.
    reports : ReportColumns
        Which columns of the reports said what.
    ignored : tuple of str
        Columns of the events that were said to be no features.
    of_rows : RowColumns
        Columns of the events that say for how many people a row stands, and what is added to its log odds: the latter
        must be there to score rows.
    """

    features: Features
    estimator: BagEstimator | AggregatedClassifier
    encoding: Encoding | None
    classes: tuple[str, ...] | None
    kind: str
    keys: tuple[str, ...]
    summary: Summary | AggregatesSummary
    reports: ReportColumns = field(default_factory=ReportColumns)
    ignored: tuple[str, ...] = ()
    of_rows: RowColumns = field(default_factory=RowColumns)

    def __post_init__(self) -> None:
        kinds: dict[str, Any] = {"features": Features, "encoding": Encoding | None, "kind": str}
        kinds |= {"estimator": BagClassifier | BagRegressor | AggregatedClassifier, "of_rows": RowColumns}
        kinds |= {"summary": Summary | AggregatesSummary, "reports": ReportColumns}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} of a table's model is of the wrong kind")
        if self.target == "value":
            if self.classes is not None:
                raise ValueError("a table's model of values has no classes")
        elif len(self.estimator.classes_) != (2 if self.classes is None else len(self.classes)):
            raise ValueError("a table's model has as many classes as its estimator")

    @property
    def target(self) -> str:
        """What it predicts: a "label", or a real "value"."""
        return "value" if isinstance(self.estimator, BagRegressor) else "label"

    def __repr__(self) -> str:
        read, what = sum(bool(column.made) for column in self.features.columns), "values"
        if self.target == "label":
            names = [str(name) for name in self.classes_[:_NAMED]]
            what = (
                f"classes {listed(names + ([f'{left:,} more'] if (left := len(self.classes_) - _NAMED) > 0 else []))}"
            )
        return f"<TableModel: {self.kind} of {number_of(read, 'column')}, {what}>"

    @property
    def classes_(self) -> NDArray[Any]:
        """Names of the classes, or the labels 0 and 1: what `predict` tells, and the columns of `predict_proba`."""
        if self.target == "value":
            raise AttributeError("a model of values has no classes.")
        return np.array((0, 1) if self.classes is None else self.classes)

    def predict(self, X: Source, *, missing_columns: str = "error") -> NDArray[Any]:
        """The most probable class of each row, or its expected value.

        Rows are read as `write_scores` reads them: columns of other types are converted where nothing is lost,
        categories that training did not have count as missing, columns that the model does not know are left alone. A
        table in memory is read where it is, without an engine.

        Parameters
        ----------
        X : table, dict or path
            A pandas, polars or Arrow table, a dict of columns, or anything else that `tables.read` takes.
        missing_columns : {"error", "as-missing"}
            Whether columns that the model uses and the table lacks raise, or count as missing in every row.

        Returns
        -------
        array, shape (n,)
            One of `classes_` for each, or values.
        """
        h = self._predicted(X, missing_columns)
        if self.target == "value":
            return h
        return np.asarray(self.classes_[(h > 0.5).astype(int) if h.ndim == 1 else h.argmax(axis=1)])

    def predict_proba(self, X: Source, *, missing_columns: str = "error") -> Floats:
        """Probabilities of the classes of each row.

        Parameters
        ----------
        X, missing_columns
            As for `predict`.

        Returns
        -------
        array, shape (n, classes)
            In the order of `classes_`.
        """
        if self.target == "value":
            raise AttributeError("a model of values has no probabilities: call predict.")
        h = self._predicted(X, missing_columns)
        return h if h.ndim == 2 else np.stack([1 - h, h], axis=1)

    def explain(self, X: Source | Table, *, missing_columns: str | None = "error") -> Explanation:
        """What each column of a table adds to the score of each row (see `bagwise.explanation`).

        What is made of a column, as the levels of a category or the hour and the day of a time, is added up.

        Parameters
        ----------
        X, missing_columns
            As for `predict`.

        Returns
        -------
        Explanation
        """
        reading = self._reading(X, missing_columns)
        codes, offsets = zip(*((codes, offset) for _, codes, offset in self.codes(reading, [])), strict=True)
        reading.met.warn(stacklevel=2)
        return self.explain_codes(np.concatenate(codes), None if offsets[0] is None else np.concatenate(offsets))

    def interval_codes(self, codes: Floats, offset: Floats | None, level: float) -> Floats:
        """(2, n) intervals of a `level` of the same of `codes` with an `offset`, (2, n, classes) of several classes.

        See `predict_interval` of ridge.
        """
        if not isinstance(self.estimator, TellsIntervals):
            kind = type(self.estimator).__name__
            raise ValueError(f"a {kind} tells no intervals: take boosting, logistic regression or ridge.")
        rows = codes if self.encoding is None else self.encoding(codes)
        return self.estimator.predict_interval(rows, level=level, offset=offset)

    def explain_codes(self, codes: Floats, offset: Floats | None = None) -> Explanation:
        """The same of `codes` that `Features.matrix` makes.  offset: of rows, if it needs one."""
        if isinstance(self.estimator, AggregatedClassifier):
            raise ValueError("a model of tables of counts does not tell contributions: see its weights.")
        rows = codes if self.encoding is None else self.encoding(codes)
        found = self.estimator.explain(rows) if offset is None else self.estimator.explain(rows, offset=offset)
        names = [column.name for column in self.features.columns for _ in column.made]
        names = names if self.encoding is None else self.encoding.names(names)
        return found.gathered([*names, *([] if offset is None else [str(self.of_rows.offset)])])

    def _predicted(self, X: Source, missing_columns: str) -> Floats:
        """(n,) or (n, classes) predictions of the rows of a table, wherever it is."""
        reading = self._reading(X, missing_columns)
        found = np.concatenate([h for _, h in self._batches(reading, [])])
        reading.met.warn(stacklevel=3)
        return found

    def _reading(self, X: Source | Table, missing_columns: str | None) -> Reading:
        """How the rows of a table are read, wherever it is."""
        table = X if isinstance(X, Table) else in_memory(X)
        if table is None or any(self._is_told_by_engine(table, column) for column in self.features.columns):
            table = read(X, home(X, ordered=True))
        if not table.head(1).count():  # before its columns are looked at, which may be of any type
            raise ValueError("the table is empty: there is no row to score.")
        return self.reading(table, missing_columns=missing_columns)

    def _is_told_by_engine(self, table: Table, column: Column) -> bool:
        """Whether the text of a time is compared, which every engine writes in its own way; training had DuckDB's."""
        texts = column.role in (Role.category, Role.hashed)
        return texts and column.name in table.columns and is_time(table.schema[column.name])

    def predict_codes(self, codes: Floats, offset: Floats | None = None) -> Floats:
        """(n,) probabilities of label 1 or values, or (n, classes), of `codes` that `Features.matrix` makes.

        offset: of rows, if it needs one.
        """
        rows = codes if self.encoding is None else self.encoding(codes)
        if isinstance(self.estimator, BagRegressor):
            return self.estimator.predict(rows) if offset is None else self.estimator.predict(rows, offset=offset)
        more = {} if offset is None else {"offset": offset}
        h: Floats = self.estimator.predict_proba(rows, **more)
        return h if self.classes is not None else h[:, 1]

    @cached_property
    def unused(self) -> tuple[str, ...]:
        """Columns that no prediction depends on: of weight 0, or never split on."""
        used = self.estimator.used_features()
        if used is None:
            return ()
        made = used if self.encoding is None else self.encoding.used(used)
        of = np.array([column.name for column in self.features.columns for _ in column.made])
        return tuple(column.name for column in self.features.columns if not made[of == column.name].any())

    def reading(self, table: Table, *, missing_columns: str | None = None) -> Reading:
        """How rows of a table are read, in the types of training; missing_columns: of `write_scores`, if it is said."""
        known = {*self.keys, *self.reports.names, *self.ignored, *self.of_rows.names, *self.of_rows.ours}
        return Reading(self.features, table, unused=self.unused, known=known, missing_columns=missing_columns)

    def score(
        self, table: Table | Reading, *, keep: Sequence[str] | None = None, intervals: float | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a table, piece by piece, with columns of predictions: `prediction`, or one per class.

        Parameters
        ----------
        table : Table or Reading
            As `read` returns it; or as `reading` does, which then counts what it meets.
        keep : sequence of str, optional
            Columns to hand on; all of them if not given.
        intervals : float, optional
            The level of intervals, `prediction_low` to `prediction_high`, that are told too.

        Yields
        ------
        pyarrow.RecordBatch
        """
        reading = self.reading(table) if isinstance(table, Table) else table
        kept = list(reading.table.columns if keep is None else keep)
        for rows, codes, offset in self.codes(reading, kept):
            yield self.scored_codes(rows, codes, offset, intervals)

    def scored_codes(
        self, rows: pa.RecordBatch, codes: Floats, offset: Floats | None, intervals: float | None = None
    ) -> pa.RecordBatch:
        """The `rows` with columns of predictions, and of `intervals` of a level, of their `codes` and `offset`."""
        scored = self.scored(rows, self.predict_codes(codes, offset))
        if intervals is not None:
            ends = self.interval_codes(codes, offset, intervals).reshape(2, len(codes), -1)
            for name, end in zip(self.intervals, np.concatenate(ends.transpose(2, 0, 1)), strict=True):
                scored = scored.append_column(name, pa.array(end, pa.float64()))
        return scored

    def _batches(self, reading: Reading, kept: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, Floats]]:
        """Rows, of which columns are kept, and their predictions, piece by piece."""
        return ((rows, self.predict_codes(codes, offset)) for rows, codes, offset in self.codes(reading, kept))

    def codes(self, reading: Reading, kept: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, Floats, Floats | None]]:
        """Rows, of which columns are kept, their numbers and codes, and offsets if it needs such, piece by piece.

        Parameters
        ----------
        reading : Reading
            As `reading` returns it.
        kept : sequence of str
            Columns to hand on.

        Yields
        ------
        pyarrow.RecordBatch, array, array or None
        """
        for batch in self.query(reading, kept).batches():
            yield batch.select(kept), reading.matrix(batch), self._needed.read(batch).get(OFFSET)

    def query(self, reading: Reading, kept: Sequence[str]) -> Table:
        """What `codes` reads: columns that are kept, and those that are made."""
        with_offset = self._needed.added(reading.table) if self._needed.names else None
        return reading.select(*kept, *self._needed.ours, of=with_offset)

    def score_batch(self, kept: Sequence[str], intervals: float | None, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns `kept` of a `batch` of what `query` returns, with those of predictions, and of `intervals`."""
        codes, offset = self.features.matrix(batch), self._needed.read(batch).get(OFFSET)
        return self.scored_codes(batch.select(kept), codes, offset, intervals)

    @property
    def _needed(self) -> RowColumns:
        return RowColumns(offset=self.of_rows.offset)

    def scored(self, rows: pa.RecordBatch, h: Floats) -> pa.RecordBatch:
        """Rows with columns of their predictions."""
        predicted = [pa.array(column, pa.float64()) for column in ([h] if h.ndim == 1 else h.T)]
        return pa.RecordBatch.from_arrays([*rows.columns, *predicted], names=[*rows.schema.names, *self.predictions])

    def given_reports(self, h: Floats, bags: Bags) -> Floats:
        """Predictions `h` of rows, given the reports of their `bags`, too (see `predict_proba` and `predict`)."""
        if isinstance(self.estimator, BagRegressor):
            return self.estimator.given_sums(h, bags)
        return given_reports(h, bags, getattr(self.estimator, "effect_variance_", 0.0))

    def check_target(self, target: str) -> None:
        """Raise unless reports tell of what it predicts."""
        if target != self.target:
            one, other = ("sum", "mean") if self.target == "value" else ("count", "proportion")
            said = f"the model predicts {self.target}s, the reports tell of {target}s: name their column by "
            raise AdviceError(said, Parameter(one), " or ", Parameter(other), ".")

    def check_classes(self, classes: tuple[str, ...] | None) -> None:
        """Raise unless reports tell of these `classes`, in order."""
        if classes != self.classes:
            mine, theirs = (", ".join(one or ("0", "1")) for one in (self.classes, classes))
            said = f"the model knows the classes {mine}, the reports have {theirs}"
            raise ValueError(f"{said}: name the same, in order.")

    @property
    def predictions(self) -> tuple[str, ...]:
        """Names of the columns of predictions."""
        return ("prediction",) if self.classes is None else tuple(f"prediction_{name}" for name in self.classes)

    @property
    def intervals(self) -> tuple[str, ...]:
        """Names of the columns of intervals: `prediction_low` and `prediction_high`, or those of each class."""
        return tuple(f"{name}_{end}" for name in self.predictions for end in _ENDS)


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a model must know of the tables that shards were gathered from.

    features, keys, classes, reports, ignored: as in `TableModel`.
    summary, seen: of the bags gathered to learn from, and of the tables.  latest: the column of time by which bags were
    held out.
    """

    features: Features
    keys: tuple[str, ...]
    classes: tuple[str, ...] | None
    summary: Summary
    seen: Summary
    reports: ReportColumns = field(default_factory=ReportColumns)
    ignored: tuple[str, ...] = ()
    latest: str = ""
    of_rows: RowColumns = field(default_factory=RowColumns)

    @classmethod
    def of(cls, features: Features, train: BagTable, seen: BagTable | None = None, latest: str | None = None) -> Recipe:
        """Of bags to learn from, and of the tables that these are from; latest: see `split`."""
        keys, columns, summary = train.named_keys, train.columns, train.summary
        told = (features, keys, train.classes, summary, (seen or train).summary, columns, train.ignored)
        return cls(*told, latest or "", train.of_rows)

    def model(self, estimator: BagEstimator, encoding: Encoding | None, kind: str) -> TableModel:
        """The model, once an estimator is fitted to them."""
        about = (self.classes, kind, self.keys, self.summary, self.reports, self.ignored, self.of_rows)
        return TableModel(self.features, estimator, encoding, *about)
