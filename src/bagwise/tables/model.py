"""A model of tables: what was learned of the columns, and the estimator that reads them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from sklearn.base import clone

from bagwise.base import BagClassifier
from bagwise.data.features import Encoding
from bagwise.data.reading import fit_codes
from bagwise.estimators import make
from bagwise.tables.bag_table import BagTable, Summary
from bagwise.tables.columns import MAX_LEVELS, Features
from bagwise.tables.engine import batches
from bagwise.tables.gather import gather, write_shards
from bagwise.tables.moments import WIDEST, fit_in_engine, width
from bagwise.tables.progress import Tell, telling
from bagwise.utils.files import TemporaryFolder
from bagwise.utils.rng import RandomState
from bagwise.utils.typing import Floats

_IN_MEMORY = 2**28  # numbers: a gigabyte in single precision


@dataclass(eq=False)
class TableModel:
    """A fitted model that scores rows of a table.

    Attributes
    ----------
    features : Features
        Columns and their roles.
    estimator : BagClassifier
        Reads the numbers and codes that `features` makes or, if there is an `encoding`, what that makes of them.
    encoding : Encoding or None
        See `estimator`.
    classes : tuple of str or None
        Names of the classes, None for labels 0 and 1.
    kind : str
        What `fit` was asked for, or the class of the estimator.
    keys : tuple of str
        Columns of the bags it was trained on.
    summary : Summary
        What it was trained on.
    """

    features: Features
    estimator: BagClassifier
    encoding: Encoding | None
    classes: tuple[str, ...] | None
    kind: str
    keys: tuple[str, ...]
    summary: Summary = field(repr=False)

    def __post_init__(self) -> None:
        kinds = {"features": Features, "estimator": BagClassifier, "encoding": (Encoding, type(None)), "kind": str}
        kinds |= {"summary": Summary}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):  # type: ignore[arg-type]
                raise ValueError(f"{name} of a table's model is of the wrong kind")
        outputs = 2 if self.classes is None else len(self.classes)
        if len(self.estimator.classes_) != outputs:
            raise ValueError("a table's model has as many classes as its estimator")

    def predict(self, batch: pa.RecordBatch | pa.Table) -> Floats:
        """(n,) probabilities of label 1, or (n, classes), of a `batch` of rows with the made columns."""
        return self.predict_codes(self.features.matrix(batch))

    def predict_codes(self, codes: Floats) -> Floats:
        """The same of the numbers and `codes` that `Features.matrix` makes."""
        h = self.estimator.predict_proba(codes if self.encoding is None else self.encoding(codes))
        return h if self.classes is not None else h[:, 1]

    def score(
        self, table: Any, connection: Any, *, keep: Sequence[str] | None = None, rows: int = 65_536
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a table, piece by piece, with columns of predictions: `prediction`, or one per class.

        Parameters
        ----------
        table, connection : table of an engine and its connection
            As `read` returns them.
        keep : sequence of str, optional
            Columns to hand on; all of them if not given.
        rows : int
            Most rows of a piece.

        Yields
        ------
        pyarrow.RecordBatch
        """
        kept = list(table.columns if keep is None else keep)
        made = list(self.features.names)
        for batch in batches(self.features.select(table, *kept), connection, rows):
            h = self.predict(batch.select(made))
            names = self.predictions
            columns = [h] if h.ndim == 1 else list(h.T)
            yield pa.RecordBatch.from_arrays(
                [*(batch.column(name) for name in kept), *(pa.array(column, pa.float64()) for column in columns)],
                names=[*kept, *names],
            )

    @property
    def predictions(self) -> tuple[str, ...]:
        """Names of the columns of predictions."""
        return ("prediction",) if self.classes is None else tuple(f"prediction_{name}" for name in self.classes)


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a model must know of the tables that shards were gathered from.

    Attributes
    ----------
    features, keys, classes : Features, tuple of str, tuple of str or None
        As in `TableModel`.
    summary, seen : Summary
        Of the bags gathered to learn from, and of the tables.
    """

    features: Features
    keys: tuple[str, ...]
    classes: tuple[str, ...] | None
    summary: Summary
    seen: Summary

    def model(self, estimator: BagClassifier, encoding: Encoding | None, kind: str) -> TableModel:
        """The model of a `kind`, once an `estimator` is fitted to the shards, through an `encoding` or without."""
        return TableModel(self.features, estimator, encoding, self.classes, kind, self.keys, self.summary)


def fit(
    data: BagTable,
    model: str | BagClassifier = "auto",
    *,
    roles: Mapping[str, str] | None = None,
    max_levels: int = MAX_LEVELS,
    time_budget: float | None = None,
    random_state: RandomState = None,
    progress: Tell | None = None,
) -> TableModel:
    """Learn from events and reports.

    Parameters
    ----------
    data : BagTable
        Events and reports, joined.
    model : str or BagClassifier
        One of `MODELS` ("auto", "boosting", "network", "ridge", "sgd"), or an estimator with settings of your own.
        Those that read moments, as ridge does, are fitted inside the engine; for the others, rows are gathered in the
        order of their bags: in memory, or, where they are too many, on disk, from where those that read blocks learn,
        as boosting and networks do (see `bagwise.data.reading.Reads`).
    roles, max_levels : dict and int, optional
        See `columns.infer`.
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
    estimator: BagClassifier = make(model, random_state=random_state) if isinstance(model, str) else clone(model)
    tell = progress or (lambda done, total, text: None)
    tell(0, None, "reading columns")
    features = features_of(data, roles=roles, max_levels=max_levels)
    kind = model if isinstance(model, str) else type(model).__name__
    data.check_two_classes()
    encoding: Encoding | None = None
    with telling(estimator, tell):
        tell(0, None, f"fitting {kind}")
        if estimator.reads.moments and width(features) <= WIDEST:
            encoding = fit_in_engine(data, features, estimator)
        else:
            encoding = _fit_rows(data, features, estimator, None if time_budget is None else began + time_budget)
    return TableModel(features, estimator, encoding, data.classes, kind, data.keys, data.summary)


def features_of(data: BagTable, *, roles: Mapping[str, str] | None = None, max_levels: int = MAX_LEVELS) -> Features:
    """The columns to learn from and their roles.

    Parameters
    ----------
    data : BagTable
        As `join` returns it.
    roles, max_levels : dict and int, optional
        As in `fit`.

    Returns
    -------
    Features
    """
    return Features.of(data.events, data.features, data.connection, roles=roles, max_levels=max_levels)


def _fit_rows(data: BagTable, features: Features, estimator: BagClassifier, end: float | None) -> Encoding | None:
    """Fit to rows that are gathered first, on disk if they are many; with their encoding, None where codes are read.

    end: when an estimator that minds the time should be done.
    """
    many = data.summary.used_rows * len(features.made) > _IN_MEMORY
    if many and not estimator.reads.blocks:
        raise ValueError(
            f"{data.summary.used_rows:,} rows of {len(features.made)} columns are too many to be read into memory, as "
            f"{type(estimator).__name__} does: choose boosting, a network, or ridge with fewer categories."
        )
    with TemporaryFolder() as place:
        rows = write_shards(data, features, place / "shards") if many else gather(data, features)
        if end is not None and hasattr(estimator, "time_budget"):
            estimator.set_params(time_budget=max(1.0, end - time.monotonic()))
        return fit_codes(estimator, rows)
