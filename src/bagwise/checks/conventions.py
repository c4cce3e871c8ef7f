"""Checks of an estimator's manners: what it returns, keeps, repeats, saves and passes on."""

from __future__ import annotations

import tempfile
from typing import Any

import joblib
import numpy as np
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise import saving
from bagwise.bags import aggregate
from bagwise.checks.common import (
    fitted,
    learns_little,
    name,
    outputs,
    refuses,
    refuses_fit,
    same,
    succeeding,
    table_for,
)
from bagwise.cross_validation import BagKFold, label_free_scorer
from bagwise.utils.typing import Floats


def check_predictions(estimator: Any) -> None:
    """One finite prediction per row; probabilities in [0, 1] that sum to 1; classes 0 and 1 by the larger one."""
    table = table_for(estimator)
    _check_outputs(estimator, fitted(estimator, table.X, table.proportion, bags=table.ids), table.X, 2)


def check_several_classes(estimator: Any) -> None:
    """Columns of proportions are classes 0, 1, …; columns that do not sum to 1 are refused."""
    table = table_for(estimator)
    labels = np.digitize(table.X[:, 0], [-0.5, 0.5])
    proportion = aggregate((labels[:, None] == np.arange(3)).astype(float), table.ids)
    model = fitted(estimator, table.X, proportion, bags=table.ids, on="proportions of three classes")
    _check_outputs(estimator, model, table.X, 3)
    if not learns_little(estimator) and not model.score(table.X, labels) > 0.5:
        raise AssertionError(f"{name(estimator)}: three classes that one feature tells apart are not learned.")
    wrong = np.tile([0.5, 0.2, 0.2], (len(table.X), 1))
    refuses_fit(estimator, "class proportions that do not sum to 1", table.X, wrong, bags=table.ids)


def _check_outputs(estimator: Any, model: Any, X: Floats, classes: int) -> None:
    who, h, predicted = name(estimator), outputs(model, X), np.asarray(model.predict(X))
    if not np.isfinite(h).all():
        raise AssertionError(f"{who}: predictions are not finite.")
    if predicted.shape != (len(X),):
        raise AssertionError(f"{who}: predict returns shape {predicted.shape} for {len(X)} rows.")
    if not is_classifier(estimator):
        return
    if h.shape != (len(X), classes) or h.min() < 0 or h.max() > 1 or not np.allclose(h.sum(axis=1), 1):
        raise AssertionError(f"{who}: predict_proba must return {classes} numbers in [0, 1] per row that sum to 1.")
    if not np.array_equal(model.classes_, np.arange(classes)):
        raise AssertionError(f"{who}: classes_ must be 0 … {classes - 1} after a fit on bags, and is {model.classes_}.")
    chosen = np.take_along_axis(h, np.searchsorted(model.classes_, predicted)[:, None], axis=1)[:, 0]
    if not np.allclose(chosen, h.max(axis=1)):
        raise AssertionError(f"{who}: predict does not return the most probable class.")


def check_same_seed_same_model(estimator: Any) -> None:
    """The same fit twice gives the same model, to the last bit."""
    table = table_for(estimator)
    first, second = (fitted(estimator, table.X, table.proportion, bags=table.ids) for _ in range(2))
    when = "when the same fit is repeated"
    same(estimator, outputs(second, table.X), outputs(first, table.X), when, exactly=True)


def check_fit_starts_anew(estimator: Any) -> None:
    """A second `fit` forgets the first."""
    table = table_for(estimator)
    expected = fitted(estimator, table.X, table.proportion, bags=table.ids)
    model = fitted(estimator, table.X[:, :2], table.y[::-1].copy(), on="labels")
    with succeeding(estimator, "a second fit, on other columns,"):
        model.fit(table.X, table.proportion, bags=table.ids)
    same(estimator, outputs(model, table.X), outputs(expected, table.X), "when the model was fitted before")


def check_fit_changes_nothing_given(estimator: Any) -> None:
    """`fit` changes neither its parameters nor X, y and bags."""
    table = table_for(estimator)
    model = clone(estimator)
    parameters = {key: joblib.hash(value) for key, value in model.get_params().items()}
    given = {"X": table.X, "y": table.proportion, "bags": table.ids}
    before = {key: value.copy() for key, value in given.items()}
    with succeeding(estimator, "fit on bags"):
        model.fit(table.X, table.proportion, bags=table.ids)
    for key, value in model.get_params().items():
        if joblib.hash(value) != parameters.get(key):
            raise AssertionError(f"{name(estimator)}: fit changes its parameter {key!r}.")
    for key, value in given.items():
        if not np.array_equal(value, before[key]):
            raise AssertionError(f"{name(estimator)}: fit writes into {key}.")
        if not value.flags.writeable:
            raise AssertionError(f"{name(estimator)}: fit makes {key} read-only.")


def check_clone(estimator: Any) -> None:
    """A clone of a fitted model has its parameters, is not fitted, and learns the same."""
    table = table_for(estimator)
    model = fitted(estimator, table.X, table.proportion, bags=table.ids)
    with succeeding(estimator, "clone of a fitted model"):
        copy = clone(model)
    learned = [key for key in vars(copy) if key.endswith("_") and not key.startswith("_")]
    if learned:
        raise AssertionError(f"{name(estimator)}: a clone keeps {learned[0]}, which was learned.")
    with succeeding(estimator, "fit of a clone"):
        copy.fit(table.X, table.proportion, bags=table.ids)
    when = "when a clone is fitted to the same data"
    same(estimator, outputs(copy, table.X), outputs(model, table.X), when, exactly=True)


def check_save_and_load(estimator: Any) -> None:
    """A model that was saved and loaded, without pickle, predicts the same to the last bit."""
    table = table_for(estimator)
    model = fitted(estimator, table.X, table.proportion, bags=table.ids)
    with tempfile.TemporaryDirectory() as place:
        with succeeding(estimator, "save"):
            saving.save(model, f"{place}/model")
        with succeeding(estimator, "load"):
            again = saving.load(f"{place}/model")
    with succeeding(estimator, "predict of a loaded model"):
        found = outputs(again, table.X)
    same(estimator, found, outputs(model, table.X), "when the model is saved and loaded", exactly=True)


def check_feature_names(estimator: Any) -> None:
    """Names of columns are remembered; a table with others, or with their order changed, is refused."""
    import pandas as pd

    table = table_for(estimator)
    frame = pd.DataFrame(table.X, columns=["a", "b", "c", "d"])
    model = fitted(estimator, frame, table.proportion, bags=table.ids, on="a data frame")
    if list(getattr(model, "feature_names_in_", ())) != list(frame.columns):
        raise AssertionError(f"{name(estimator)}: feature_names_in_ does not hold the names of the columns.")
    if getattr(model, "n_features_in_", None) != 4:
        raise AssertionError(f"{name(estimator)}: n_features_in_ is not the number of columns.")
    for what, columns in (("columns in another order", list("bacd")), ("a column less", list("abc"))):
        other = frame[columns]
        refuses(estimator, f"predict on {what}", lambda other=other: model.predict(other))  # type: ignore[misc]


def check_pipelines_and_searches(estimator: Any) -> None:
    """Bags reach `fit` through a pipeline and cross-validation, by scikit-learn's metadata routing."""
    table = table_for(estimator)
    if not hasattr(estimator, "set_fit_request"):
        raise AssertionError(f"{name(estimator)}: fit does not ask for bags by scikit-learn's metadata routing.")
    with config_context(enable_metadata_routing=True), succeeding(estimator, "cross-validation of a pipeline"):
        result = cross_validate(
            make_pipeline(StandardScaler(), clone(estimator).set_fit_request(bags=True)),
            table.X,
            table.proportion,
            params={"bags": table.ids},
            cv=BagKFold(3, random_state=0),
            scoring=label_free_scorer("neg_risk"),
            error_score="raise",
        )
    if not np.isfinite(result["test_score"]).all():
        raise AssertionError(f"{name(estimator)}: cross-validation of a pipeline gives scores that are not finite.")
