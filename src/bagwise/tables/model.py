"""A model of tables: what was learned of the columns, and the estimator that reads them; how it is fitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from sklearn.base import clone

from bagwise.bags import Bags
from bagwise.base import BagClassifier, BagEstimator, BagRegressor, given_reports
from bagwise.data.features import Encoding
from bagwise.data.rows import InMemory, fit_codes
from bagwise.data.shards import OFFSET
from bagwise.estimators import make
from bagwise.formation import FORMATION
from bagwise.linear.aggregated import AggregatedClassifier
from bagwise.tables.aggregates_summary import AggregatesSummary
from bagwise.tables.bag_table import BagTable, Summary
from bagwise.tables.columns import MAX_LEVELS, Features
from bagwise.tables.gather import WIDEST, fit_in_engine, gather, write_shards
from bagwise.tables.reports import ReportColumns
from bagwise.tables.row_columns import RowColumns
from bagwise.tables.schema import Reading
from bagwise.tables.table import Table
from bagwise.utils.files import TemporaryFolder
from bagwise.utils.parameters import AdviceError, Parameter, ParameterError, check_parameters
from bagwise.utils.rng import RandomState
from bagwise.utils.typing import Floats

Tell: TypeAlias = Callable[[int, int | None, str], None]
"""Called with steps done, steps in all (None where nobody knows) and what is going on."""

DEFAULT_MODEL = "auto"
"""What `fit` takes where no model is named."""

IN_MEMORY = 2**28  # numbers: a gigabyte in single precision


@dataclass(eq=False)
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
    summary: Summary | AggregatesSummary = field(repr=False)
    reports: ReportColumns = field(default_factory=ReportColumns, repr=False)
    ignored: tuple[str, ...] = ()
    of_rows: RowColumns = field(default_factory=RowColumns, repr=False)

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

    def predict(self, batch: pa.RecordBatch | pa.Table) -> Floats:
        """(n,) probabilities of label 1 or values, or (n, classes), of a `batch` of rows with the made columns."""
        return self.predict_codes(self.features.matrix(batch))

    def predict_codes(self, codes: Floats, offset: Floats | None = None) -> Floats:
        """The same of the numbers and `codes` that `Features.matrix` makes; `offset`: of rows, if it needs one."""
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

    def reading(self, table: Table, *, missing_columns: str = "error") -> Reading:
        """How the rows of a table are read, in the types of training; missing_columns: as in `write_scores`."""
        known = {*self.keys, *self.reports.names, *self.ignored, *self.of_rows.names, *self.of_rows.ours}
        return Reading(self.features, table, unused=self.unused, known=known, missing_columns=missing_columns)

    def score(self, table: Table | Reading, *, keep: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a table, piece by piece, with columns of predictions: `prediction`, or one per class.

        Parameters
        ----------
        table : Table or Reading
            As `read` returns it; or as `reading` does, which then counts what it meets.
        keep : sequence of str, optional
            Columns to hand on; all of them if not given.

        Yields
        ------
        pyarrow.RecordBatch
        """
        reading = self.reading(table) if isinstance(table, Table) else table
        kept = list((table if isinstance(table, Table) else table.table).columns if keep is None else keep)
        needed = RowColumns(offset=self.of_rows.offset)
        with_offset = needed.added(reading.table) if needed.names else None
        for batch in reading.select(*kept, *needed.ours, of=with_offset).batches():
            offset = needed.read(batch).get(OFFSET)
            yield self.scored(batch.select(kept), self.predict_codes(reading.matrix(batch), offset))

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


def fit(
    data: BagTable,
    model: str | BagEstimator | None = None,
    *,
    roles: Mapping[str, str] | None = None,
    max_levels: int = MAX_LEVELS,
    formation: str = "auto",
    time_budget: float | None = None,
    random_state: RandomState = None,
    progress: Tell | None = None,
) -> TableModel:
    """Learn from events and reports.

    Parameters
    ----------
    data : BagTable
        Events and reports, joined.
    model : str, BagClassifier or BagRegressor, optional
        One of `MODELS` ("auto", "boosting", "logistic", "mean-map", "network", "ridge", "sgd"), for values one of
        `VALUE_MODELS` ("auto", "boosting", "network", "ridge", "sgd", "tweedie"), or an estimator with settings of your
        own. "auto" by default.
        Those that read moments, as ridge does, are fitted inside the engine; for the others, rows are gathered in the
        order of their bags: in memory, or, where they are too many, on disk, from where those that read blocks learn,
        as boosting and networks do (see `bagwise.data.Reads`).
    roles, max_levels : dict and int, optional
        Roles of columns ("number", "category", "hashed", "time", "ignored") that are known better than types and values
        tell them; and how many values a text may have to be a category.
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about (see `bagwise.formation`), handed to the estimator; "auto" leaves that as it is.
    time_budget : float, optional
        Seconds for all of this, which "auto" minds (see `BagAutoClassifier`); None for as many as it takes.
    random_state : int, Generator or None
        For everything that is drawn.
    progress : callable, optional
        Called with steps done, steps in all and what comes now.

    Returns
    -------
    TableModel
        It scores rows of a table.
    """
    began = time.monotonic()
    check_parameters({"formation": formation}, {"formation": FORMATION})
    model = model or DEFAULT_MODEL
    estimator: Any = make(model, target=data.target) if isinstance(model, str) else clone(model)
    if not isinstance(estimator, BagRegressor if data.target == "value" else BagClassifier):
        wanted = "a regressor, since reports tell of values" if data.target == "value" else "a classifier"
        raise ParameterError("model", f"must be {wanted}, got {type(estimator).__name__}.")
    _check_of_rows(data, estimator, model if isinstance(model, str) else type(model).__name__)
    if isinstance(model, str) and "random_state" in estimator.get_params(deep=False):
        estimator.set_params(random_state=random_state)
    if formation != "auto":
        estimator.set_params(formation=formation)
    tell = progress or (lambda done, total, text: None)
    tell(0, None, "reading columns")
    by_moments = estimator.reads.moments and not (data.others or data.of_rows.names)
    features = features_of(data, roles=roles, max_levels=max_levels, means=not by_moments)
    kind = model if isinstance(model, str) else type(model).__name__
    data.check_two_classes()
    end = None if time_budget is None else began + time_budget
    with telling(estimator, tell):
        tell(0, None, f"fitting {kind}")
        width = sum(1 if made.levels is None else len(made.levels) for made in features.made)
        encoding: Encoding | None
        if by_moments and width <= WIDEST:
            features, encoding = fit_in_engine(data, features, estimator)
        else:
            features = features_of(data, roles=roles, max_levels=max_levels) if by_moments else features
            encoding = _fit_rows(data, features, estimator, end)
    return Recipe.of(features, data).model(estimator, encoding, kind)


def _check_of_rows(data: BagTable, estimator: BagEstimator, kind: str) -> None:
    """Raise where rows have weights or an offset that the estimator does not know what to do with."""
    if data.of_rows.weight is not None and not estimator.reads.weights:
        raise ParameterError("weight", f"is not known to {kind}: take ridge, logistic or boosting, or repeat rows.")
    if data.of_rows.offset is not None and not (estimator.reads.offset and data.classes is None):
        what, way = f"{kind} does not have", "take logistic, boosting, network or mean-map"
        if data.target == "value":
            raise ParameterError("offset", f"is added to logarithms of values, which {what}: take tweedie.")
        what = what if data.classes is None else "models of several classes do not have"
        raise ParameterError("offset", f"is added to log odds, which {what}: {way}.")


def features_of(
    data: BagTable, *, roles: Mapping[str, str] | None = None, max_levels: int = MAX_LEVELS, means: bool = True
) -> Features:
    """The columns to learn from and their roles; roles, max_levels, means: as in `fit` and `Features.of`."""
    return Features.of(data.events, data.features, roles=roles, max_levels=max_levels, means=means)


def _fit_rows(data: BagTable, features: Features, estimator: BagEstimator, end: float | None) -> Encoding | None:
    """Fit to rows, gathered on disk if many, by the `end` of the time; their encoding, None where codes are read."""
    many = data.summary.used_rows * len(features.made) > IN_MEMORY
    if many and not data.others and not estimator.reads.blocks:
        what = f"{data.summary.used_rows:,} rows of {len(features.made)} columns are too many to be read into memory"
        way = "choose boosting, a network, or ridge with fewer categories"
        raise ValueError(f"{what}, as {type(estimator).__name__} does: {way}.")
    if many and data.others:
        what = f"{data.summary.rows:,} rows of {len(features.made)} columns are too many to be read into memory"
        why = "which several tables of reports need, since bags that share rows cannot be read block by block"
        other = ", or pass the one table of reports that has the most bags."
        raise AdviceError(f"{what}, {why}: leave out columns with ", Parameter("ignore"), other)
    with TemporaryFolder() as place:
        rows = write_shards(data, features, place / "shards") if many else gather(data, features)
        if end is not None and hasattr(estimator, "time_budget"):
            estimator.set_params(time_budget=max(1.0, end - time.monotonic()))
        if isinstance(rows, InMemory) and not estimator.reads.codes:  # codes are gone before anything is learned
            encoding = rows.encoding()
            rows = rows.encoded(encoding)
            fit_codes(estimator, rows, rows)
            return encoding
        return fit_codes(estimator, rows)


@contextmanager
def telling(estimator: Any, tell: Tell) -> Iterator[None]:
    """While this lasts, the estimator tells of every step."""
    silent = estimator.get_params(deep=False).get("callback", tell) is None
    if silent:
        estimator.set_params(callback=lambda line: tell(*_step(estimator, line)))
    try:
        yield
    finally:
        if silent:
            estimator.set_params(callback=None)


def _step(estimator: Any, line: Mapping[str, Any]) -> tuple[int, int | None, str]:
    """A line as candidates, trees or networks give it."""
    if "candidate" in line:
        comes = {"trial": f"trying {line['next']}", "fit": "fitting to all bags", "end": "fitted"}
        comes["second trial"] = f"trying {line['next']} again, for bags formed by {estimator.formation_.name}"
        return line["done"], line["total"], f"{comes[line['stage']]} ({line['candidate']}: {line['note'] or 'tried'})"
    chooses = line["stage"] == "choice"
    what = "choosing settings" if chooses else "fitting to all bags"
    if "fits" in line:
        return line["fit"], line["fits"], f"{what}: fit {line['fit']} of {line['fits']}"
    epochs, also = (estimator.max_epochs, " at most") if chooses else (estimator.n_epochs_, "")
    return line["epoch"], epochs, f"{what}: epoch {line['epoch']} of {epochs}{also}"
