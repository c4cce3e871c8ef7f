"""A model of tables refined by events and reports that came later, after a look at what has changed since."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bagwise.data.rows import InMemory
from bagwise.diagnostics import Drift, drift
from bagwise.tables.bag_table import BagTable, Summary
from bagwise.tables.columns import Column, Role, is_pandas_index
from bagwise.tables.diagnosis import frame_of
from bagwise.tables.fitting import IN_MEMORY, Tell, telling
from bagwise.tables.gather import WIDEST, gather, update_in_engine
from bagwise.tables.model import TableModel
from bagwise.tables.predictions import Predictions, predict
from bagwise.tables.schema import UnseenValuesWarning
from bagwise.tables.table import as_text, col, length
from bagwise.updates import FORGETTING, CannotUpdateError, Forgetting, Update
from bagwise.utils.parameters import ParameterError, check_level, check_parameters
from bagwise.utils.text import listed, number_of


@dataclass(frozen=True)
class Novelty:
    """What a model does not know of later events.

    Attributes
    ----------
    column : str
        Its name.
    values : tuple of str
        Some categories that the model has not seen, which count as missing; empty where the column itself is new, and
        is not read.
    rows : int
        Rows that have such.
    """

    column: str
    values: tuple[str, ...]
    rows: int

    def __str__(self) -> str:
        if not self.values:
            return f"column {self.column!r} is new, and is not read: fit a model anew to learn from it"
        some = listed([repr(value) for value in self.values])
        what = f"column {self.column!r} has categories that the model has not seen, such as {some}"
        return f"{what}: in {number_of(self.rows, 'row')} they count as missing"


@dataclass(frozen=True, eq=False)
class Updated:
    """A model after an update, and what was found on the way.

    Attributes
    ----------
    model : TableModel
        The model to go on with; that of before, where new bags did not prefer another.
    update : Update
        What was done.
    drift : Drift
        What the model of before says of the new bags.
    novelties : tuple of Novelty
        Columns and categories that it does not know.
    """

    model: TableModel
    update: Update
    drift: Drift
    novelties: tuple[Novelty, ...]

    def __str__(self) -> str:
        lines = [str(self.drift), *(f"{str(one)[0].upper()}{str(one)[1:]}." for one in self.novelties)]
        return "\n".join([*lines, f"Update: {self.update}"])


def update(
    model: TableModel,
    data: BagTable,
    *,
    forgetting: Forgetting = "auto",
    level: float = 0.01,
    progress: Tell | None = None,
) -> Updated:
    """Refine a model by events and reports that came later, without the old ones.

    Its columns are used as they are; what it does not know of the new ones is told. Before anything is learned, the new
    bags are compared with what the model says of them (see `bagwise.diagnostics.drift`).

    Parameters
    ----------
    model : TableModel
        As `fit` returns it, or `bagwise.load`; it stays as it is.
    data : BagTable
        Later events and reports, joined.
    forgetting : float or "auto"
        The weight of what was learned before, from 0 to 1, as for `partial_fit` of the estimators; "auto" lets held-out
        new bags choose. For linear models; others leave what they were as far as new bags ask for.
    level : float
        Where nothing changed, a drift is told at most this often.
    progress : callable, optional
        As for `fit`.

    Returns
    -------
    Updated
        The model, and what was found.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.tables import fit, join
    >>> rng = np.random.default_rng(0)
    >>> def month():
    ...     x, bag = rng.normal(size=4000), np.arange(4000) // 20
    ...     y = rng.random(4000) < 1 / (1 + np.exp(-x))
    ...     return join({"bag": bag, "x": x}, {"bag": np.arange(200), "count": y.reshape(200, 20).sum(axis=1)})
    >>> model = fit(month(), "ridge", random_state=0)
    >>> found = update(model, month())
    >>> found.model.summary.bags, found.drift.drifted
    (400, False)
    """
    check_parameters({"forgetting": forgetting}, {"forgetting": FORGETTING})
    check_level(level)
    if (reason := model.estimator.cannot_update()) is not None:
        raise CannotUpdateError(f"{reason}.")
    model.check_classes(data.classes)
    if (model.of_rows.offset is None) != (data.of_rows.offset is None):
        one, other = ("was", "has none") if model.of_rows.offset is not None else ("was not", "has one")
        raise ParameterError("offset", f"is of both or none: the model {one} fitted with one, the later table {other}.")
    tell = progress or (lambda done, total, text: None)
    tell(0, None, "comparing new bags with the model")
    news = novelties(model, data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenValuesWarning)  # novelties tell of them
        found = drift_of(model, predict(model, data), level=level)
    estimator: Any = copy.deepcopy(model.estimator)
    with telling(estimator, tell):
        tell(0, None, "learning from new bags")
        if not data.of_rows.names and _in_engine(model, estimator):
            assert model.encoding is not None
            update_in_engine(data, model.features, estimator, model.encoding, forgetting)
        else:
            estimator.update_rows(_rows(model, data, estimator), forgetting=forgetting)
    done: Update = estimator.update_
    if not done.learned:
        return Updated(model, done, found, news)
    assert isinstance(model.summary, Summary)
    summary = together(model.summary, data.summary)
    return Updated(replace(model, estimator=estimator, summary=summary), done, found, news)


def drift_of(model: TableModel, said: Predictions, *, level: float = 0.01) -> Drift:
    """What a model says of the rows of later bags, beside the reports of these; some of the bags, where rows are many.

    said: as `tables.predictions.predict` returns it.
    """
    assert isinstance(model.summary, Summary)
    frame, bags = frame_of(model.features, said.codes), model.summary.bags
    people = model.summary.people or model.summary.used_rows
    return drift(said.said, frame, bags=said.some, level=level, fitted_bags=bags, fitted_rows=people)


def _in_engine(model: TableModel, estimator: Any) -> bool:
    """Whether a model reads moments of columns as the engine adds them up."""
    encoding = model.encoding
    if not estimator.reads.moments or encoding is None or encoding.width != len(estimator.memory_.origin):
        return False
    width = sum(1 if made.levels is None else len(made.levels) for made in model.features.made)
    return width <= WIDEST and bool((encoding.span == 1).all())


def _rows(model: TableModel, data: BagTable, estimator: Any) -> InMemory:
    """The new rows as the estimator reads them."""
    if data.summary.used_rows * len(model.features.made) > IN_MEMORY:
        size = f"{data.summary.used_rows:,} rows of {len(model.features.made)} columns"
        what = f"{size} are too many to be read into memory"
        raise ValueError(f"{what}: update by fewer at a time, or take ridge.")
    read = gather(data, model.features)
    X = read.X if model.encoding is None else model.encoding(read.X)
    names = read.names if model.encoding is None else None
    return InMemory(X, read.bags, read.categorical if model.encoding is None else (), names=names)


def together(old: Summary, new: Summary) -> Summary:
    """What a model has been fitted to after an update; what was left out is that of the last tables."""
    rows, people = old.used_rows + new.used_rows, [one.people or one.used_rows for one in (old, new)]
    pairs = zip(old.prior, new.prior, strict=True)
    prior = tuple((people[0] * one + people[1] * other) / sum(people) for one, other in pairs)
    sums: dict[str, Any] = {
        name: getattr(old, name) + getattr(new, name) for name in ("rows", "reports", "bags", "labelled")
    }
    ends: dict[str, Any] = {"smallest": min(old.smallest, new.smallest), "largest": max(old.largest, new.largest)}
    all_people = float(sum(people)) if old.people or new.people else 0.0
    return replace(new, **sums, **ends, used_rows=rows, people=all_people, prior=prior, noised=old.noised or new.noised)


def novelties(model: TableModel, data: BagTable) -> tuple[Novelty, ...]:
    """Columns of later events, and their categories, that a model does not know."""
    known = {column.name for column in model.features.columns}
    new = [name for name in data.features if name not in known and not is_pandas_index(name)]
    found = [Novelty(name, (), data.summary.rows) for name in new]
    model.features.check(data.events)
    for column in (one for one in model.features.columns if one.role is Role.category):
        if (one := _unseen(column, data)) is not None:
            found.append(one)
    return tuple(found)


def _unseen(column: Column, data: BagTable, *, shown: int = 3) -> Novelty | None:
    """The categories of a column that a model has not seen."""
    text = as_text(col(column.name), data.events.schema[column.name])
    table = data.events.select(level=text).filter(~col("level").is_null() & ~col("level").is_in(list(column.levels)))
    lines: Sequence[dict[str, Any]] = table.group_by(["level"], {"rows": length()}).fetch().to_pylist()
    if not lines:
        return None
    most = sorted(lines, key=lambda line: (-line["rows"], line["level"]))
    return Novelty(column.name, tuple(line["level"] for line in most[:shown]), int(sum(one["rows"] for one in lines)))
