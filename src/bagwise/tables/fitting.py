"""Models of tables, learned from events and reports: which estimator, on rows in memory, on disk or by moments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from sklearn.base import clone

from bagwise.base import BagClassifier, BagEstimator, BagRegressor
from bagwise.data.features import Encoding
from bagwise.data.rows import InMemory, fit_codes
from bagwise.estimators import make, set_parameters
from bagwise.formation import FORMATION
from bagwise.tables.bag_table import BagTable
from bagwise.tables.columns import MAX_LEVELS, Features
from bagwise.tables.gather import WIDEST, fit_in_engine, gather, write_shards
from bagwise.tables.model import Recipe, TableModel
from bagwise.utils.files import TemporaryFolder
from bagwise.utils.parameters import AdviceError, Parameter, ParameterError, check_parameters
from bagwise.utils.rng import RandomState

Tell: TypeAlias = Callable[[int, int | None, str], None]
"""Called with steps done, steps in all (None where nobody knows) and what is going on."""

DEFAULT_MODEL = "auto"
"""What `fit` takes where no model is named."""

IN_MEMORY = 2**28  # numbers: a gigabyte in single precision


def fit(
    data: BagTable,
    model: str | BagEstimator | None = None,
    *,
    roles: Mapping[str, str] | None = None,
    max_levels: int = MAX_LEVELS,
    formation: str = "auto",
    settings: Mapping[str, Any] | None = None,
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
        as boosting, logistic regression and networks do (see `bagwise.data.Reads`).
    roles, max_levels : dict and int, optional
        Roles of columns ("number", "category", "hashed", "time", "ignored") that are known better than types and values
        tell them; and how many values a text may have to be a category.
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about (see `bagwise.formation`), handed to the estimator; "auto" leaves that as it is.
    settings : dict, optional
        Parameters of the estimator, by name.
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
    set_parameters(estimator, settings or {})
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
        way = "choose boosting, logistic regression, a network, or ridge with fewer categories"
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
