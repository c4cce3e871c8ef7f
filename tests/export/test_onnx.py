"""Graphs of ONNX tell in onnxruntime what models tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.export import CannotExportError, names_of_predictions, onnx_inputs, to_onnx
from tests.export.conftest import KINDS, VALUE_KINDS, events, expected, later

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'bagwise[onnx]'")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::bagwise.tables.UnseenValuesWarning")


def run(graph: Any, inputs: Any) -> Any:
    """(n, outputs) by onnxruntime."""
    session = ort.InferenceSession(graph.SerializeToString())
    return np.stack(session.run(None, inputs), axis=1)


def check(model: Any, atol: float) -> None:
    for rows in (events(3), later()):
        found = run(to_onnx(model), onnx_inputs(model, rows))
        np.testing.assert_allclose(found, expected(model, rows), rtol=1e-5, atol=atol)
        assert np.ptp(found[:, 0]) > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_two_classes(of_kind: Any, kind: str) -> None:
    check(of_kind(kind), 1e-6 if kind == "network" else 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_several_classes(of_kind: Any, kind: str) -> None:
    model = of_kind(kind, classes=3)
    check(model, 1e-6 if kind == "network" else 1e-9)
    assert names_of_predictions(model) == ("prediction_low", "prediction_mid", "prediction_high")
    assert [one.name for one in to_onnx(model).graph.output] == list(model.predictions)


@pytest.mark.parametrize("kind", VALUE_KINDS)
def test_values(of_kind: Any, kind: str) -> None:
    check(of_kind(kind, "value"), 1e-5)


def test_what_was_chosen_of_candidates(of_kind: Any) -> None:
    """A mean of a linear model, which reads encoded columns, and of trees, shrunk and moved."""
    rows, rng = events(), np.random.default_rng(0)
    label = (rows["x"].fillna(0) + rng.logistic(size=len(rows)) > 0).astype(int)
    data = bw.tables.join(rows, label.groupby(rows["bag"]).sum().rename("count").reset_index(), ignore="row")
    candidates = {kind: KINDS[kind]() for kind in ("logistic", "boosting")}
    model = bw.tables.fit(data, bw.BagAutoClassifier(candidates=candidates, cv=2, stack=True, random_state=0))
    model.estimator.weights_ = np.array([0.3, 0.7])
    model.estimator.models_ = [of_kind(kind).estimator for kind in candidates]
    model.estimator.encoding_ = of_kind("logistic").encoding
    model.features = of_kind("logistic").features
    for model.estimator.stretch_, model.estimator.offset_ in ((1.0, 0.0), (0.8, 0.1)):
        check(model, 1e-9)


def test_inputs_are_the_columns_that_predictions_depend_on(of_kind: Any) -> None:
    model = of_kind("boosting")
    graph = to_onnx(model)
    used = [one.name for one in model.features.columns if one.made and one.name not in model.unused]
    assert [one.name for one in graph.graph.input] == used
    assert used
    rows = events(3)
    one = {name: column[:1] for name, column in onnx_inputs(model, rows[used]).items()}
    np.testing.assert_allclose(run(graph, one), expected(model, rows)[:1], atol=1e-9)


def test_further_trees_and_trees_of_nothing(of_kind: Any) -> None:
    X, rng = np.random.default_rng(0).normal(size=(1280, 2)), np.random.default_rng(1)
    bags = bw.random_bags(1280, size=8, random_state=0)
    y = (X[:, 0] + rng.logistic(size=1280) > 0).astype(int)
    model = KINDS["boosting"]().fit(X, bw.aggregate(y, bags), bags=bags)
    model.partial_fit(X, bw.aggregate((X[:, 1] > 0).astype(int), bags), bags=bags)
    assert model.updates_
    found = run(to_onnx(model), {"X": X})
    np.testing.assert_allclose(found[:, 0], model.predict_proba(X)[:, 1], atol=1e-9)
    assert found.dtype == np.float64
    flat = KINDS["boosting"]().fit(np.zeros((64, 1)), np.tile([0, 1], 32))
    np.testing.assert_allclose(run(to_onnx(flat), {"X": np.zeros((3, 1))}), np.full((3, 1), 0.5), atol=1e-6)


def test_estimators_of_arrays_have_one_input() -> None:
    X = np.random.default_rng(0).normal(size=(640, 3)).astype(np.float32)
    for kind in ("ridge", "boosting", "network"):
        model = KINDS[kind]().fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
        found = run(to_onnx(model), {"X": X.astype(float)})
        np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-6)
    assert names_of_predictions(model) == ("prediction_0", "prediction_1", "prediction_2")


def test_what_cannot_be_exported_says_so_in_a_sentence(torch: Any) -> None:
    rows = pd.DataFrame({"x": np.arange(320.0) % 7, "log_days": 0.1, "bag": np.arange(320) // 8})
    counts = (rows["x"] > 3).groupby(rows["bag"]).sum().rename("count").reset_index()
    model = bw.tables.fit(bw.tables.join(rows, counts, offset="log_days"), KINDS["logistic"]())
    with pytest.raises(CannotExportError, match=r"^the model adds the offset 'log_days' .*: fit it without, or use"):
        to_onnx(model)
    with pytest.raises(CannotExportError, match=r"^a dict cannot be exported: pass a model that tables.fit returned"):
        to_onnx({})
    table, y = rows[["x"]].assign(c=pd.Categorical(["u", "v"] * 160)), rows["x"] > 3
    of_categories = KINDS["boosting"]().fit(table, y)
    with pytest.raises(CannotExportError, match=r"was fitted to a table with categories, .*: fit it by tables.fit"):
        to_onnx(of_categories)
    own = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
    network = bw.BagNeuralClassifier(module=own, max_epochs=1, learning_rate=0.1, random_state=0)
    network.fit(rows[["x"]].to_numpy().copy(), y)
    with pytest.raises(CannotExportError, match=r"a layer Tanh has no words .*: export it by torch.onnx.export"):
        to_onnx(network)

    class Mine(bw.BagRidgeClassifier):
        pass

    with pytest.raises(CannotExportError, match="a Mine cannot be exported: models that can are ridge, logistic"):
        to_onnx(Mine().fit(rows[["x"]], y))
