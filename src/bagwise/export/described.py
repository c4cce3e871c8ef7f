"""A model as formats see it: the columns it reads, the estimator, and the names of what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.utils.validation import check_is_fitted

from bagwise.base import BagEstimator, BagRegressor
from bagwise.classes import prediction_columns
from bagwise.data.features import Encoding
from bagwise.export.formula import CannotExportError
from bagwise.tables.columns import Column, Features, Made, Role
from bagwise.tables.model import TableModel


@dataclass(frozen=True)
class MadeColumn:
    """A number or code that estimators read.

    column: of the table.  made: what it is made into.  used: whether a prediction depends on it.
    """

    column: Column
    made: Made
    used: bool


@dataclass(frozen=True)
class Described:
    """What is exported.

    features: columns and what was learned of them.  estimator, encoding: as in `TableModel`.  outputs: names of the
    columns of predictions.  unused: columns that no prediction depends on.  bare: whether it is an estimator of
    arrays, whose columns are numbers.
    """

    features: Features
    estimator: Any
    encoding: Encoding | None
    outputs: tuple[str, ...]
    unused: tuple[str, ...] = ()
    bare: bool = False

    @classmethod
    def of(cls, model: Any) -> Described:
        """Of a table's model, or of a fitted estimator of arrays; an error in a sentence where there is no way."""
        if isinstance(model, TableModel):
            if model.of_rows.offset is not None:
                said = f"the model adds the offset {model.of_rows.offset!r} to its scores and cannot be exported"
                raise CannotExportError(f"{said}: fit it without, or use predict.")
            made = [one.name for one in model.features.columns if one.made]
            unused = model.unused if set(made) - set(model.unused) else tuple(made[1:])  # rows are counted by one
            if clash := [name for name in model.predictions if name in set(made) - set(unused)]:
                raise CannotExportError(f"column {clash[0]!r} has the name of a prediction: rename it, and fit again.")
            return cls(model.features, model.estimator, model.encoding, model.predictions, unused)
        if not isinstance(model, BagEstimator):
            said = f"a {type(model).__name__} cannot be exported"
            raise CannotExportError(f"{said}: pass a model that tables.fit returned, or a fitted estimator of bagwise.")
        check_is_fitted(model)
        known = getattr(model, "features_", None)
        if known is not None and known.categorical:
            said = f"this {type(model).__name__} was fitted to a table with categories, whose texts it does not tell"
            raise CannotExportError(f"{said}: fit it by tables.fit, or to numbers.")
        names = getattr(model, "feature_names_in_", None)
        given = (
            [f"x{number}" for number in range(model.n_features_in_)] if names is None else [str(one) for one in names]
        )
        outputs = prediction_columns(getattr(model, "classes_", None))
        features = Features(tuple(Column(name, Role.number) for name in given))
        return cls(features, model, None, outputs, bare=True)

    @property
    def made(self) -> tuple[MadeColumn, ...]:
        """The columns that estimators read, in order."""
        every = ((column, made) for column in self.features.columns for made in column.made)
        return tuple(MadeColumn(column, made, column.name not in self.unused) for column, made in every)

    @property
    def read(self) -> tuple[Column, ...]:
        """The columns of a table that predictions depend on."""
        return tuple(one for one in self.features.columns if one.made and one.name not in self.unused)

    @property
    def of_values(self) -> bool:
        """Whether it predicts values, not probabilities."""
        return isinstance(self.estimator, BagRegressor)


def names_of_predictions(model: Any) -> tuple[str, ...]:
    """Names of the outputs, or the last columns, of an exported model.

    Parameters
    ----------
    model : TableModel, BagClassifier or BagRegressor
        A model that can be exported.

    Returns
    -------
    tuple of str
        `prediction`, or `prediction_a`, … of several classes, as `bagwise predict` calls them.
    """
    return Described.of(model).outputs
