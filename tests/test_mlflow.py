"""Models in MLflow, with a file store: the scores of predict, by its pyfunc and as they were; nothing is pickled."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise import tables
from tests.tables.test_model import events, fitted

pytest.importorskip("mlflow", reason="mlflow is not installed: pip install 'bagwise[mlflow]'")
pytestmark = pytest.mark.filterwarnings("ignore::bagwise.tables.UnseenValuesWarning")


@pytest.fixture
def mlflow(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow with a store of its own; code is not read from files."""
    bw.mlflow.save_model(bw.BagRidgeClassifier(alphas=1.0).fit([[0.0], [1.0]], [0, 1]), tmp_path / "first")
    import mlflow

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was pickled")

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    for name in ("load", "loads", "dump", "dumps"):
        monkeypatch.setattr(pickle, name, refuse)
    yield mlflow
    mlflow.set_tracking_uri(before)


def test_a_model_is_logged_registered_and_scores(mlflow: Any) -> None:
    model, rows = fitted("boosting"), events(2)
    with mlflow.start_run() as run:
        info = bw.mlflow.log_model(model, "clicks", registered_model_name="clicks", params={"bags": "150"})
    assert mlflow.get_logged_model(info.model_id).source_run_id == run.info.run_id
    expected = model.predict_proba(rows)[:, 1]
    for uri in (info.model_uri, "models:/clicks/1"):
        scores = mlflow.pyfunc.load_model(uri).predict(rows.set_index("row"))
        assert list(scores) == ["prediction"]
        assert scores.index.tolist() == rows["row"].tolist()
        np.testing.assert_array_equal(scores["prediction"], expected)
        again = bw.mlflow.load_model(uri)
        assert repr(again) == repr(model)
        np.testing.assert_array_equal(again.predict_proba(rows)[:, 1], expected)


def test_the_signature_is_that_of_the_columns(mlflow: Any, tmp_path: Any) -> None:
    model, rows = fitted("boosting"), events(2)
    bw.mlflow.save_model(model, tmp_path / "model", metadata={"by": "test"})
    signature = mlflow.models.get_model_info(str(tmp_path / "model")).signature
    made = [one.name for one in model.features.columns if one.made]
    assert signature.inputs.input_names() == made
    assert set(signature.inputs.optional_input_names()) == set(model.unused) != set()
    assert [(one.name, str(one.type)) for one in signature.outputs] == [("prediction", "DataType.double")]
    scorer, expected = mlflow.pyfunc.load_model(str(tmp_path / "model")), model.predict_proba(rows)[:, 1]
    others = {"whole": "int16", "grade": "float32", "place": "category"}  # of other types, without what is not used
    found = scorer.predict(rows.astype(others).drop(columns=list(model.unused)))
    np.testing.assert_array_equal(found["prediction"], expected)
    with pytest.raises(mlflow.exceptions.MlflowException, match="missing inputs"):
        scorer.predict(rows.drop(columns="x"))
    given = mlflow.models.infer_signature(rows[["x"]], found)
    bw.mlflow.save_model(model, tmp_path / "typed", signature=given)
    assert mlflow.models.get_model_info(str(tmp_path / "typed")).signature == given


def test_what_is_kept_is_the_folder_of_save(mlflow: Any, tmp_path: Any) -> None:
    bw.mlflow.save_model(fitted("logistic"), tmp_path / "model")
    files = {str(one.relative_to(tmp_path / "model")) for one in (tmp_path / "model").rglob("*") if one.is_file()}
    ours = {"data/model/model.json", "data/model/arrays.safetensors"}
    assert files == {*ours, "MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt"}
    assert bw.saving.inspect(tmp_path / "model" / "data" / "model").kind == "TableModel"
    assert re.search(
        rf"^bagwise(\[neural\])?=={bw.__version__}$", (tmp_path / "model" / "requirements.txt").read_text(), re.M
    )


def test_estimators_of_arrays_and_values(mlflow: Any, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(640, 2)), columns=["a", "b"])
    models = {
        "classes": bw.BagRidgeClassifier(alphas=1.0).fit(X, np.digitize(X["a"], [-0.5, 0.5])),
        "values": bw.BagRidgeRegressor(alphas=1.0).fit(X, X["a"]),
        "unnamed": bw.BagLogisticClassifier(random_state=0).fit(X.to_numpy(), X["a"] > 0),
        "network": bw.BagNeuralClassifier(max_epochs=1, hidden=(2,), random_state=0).fit(X, X["a"] > 0),
    }
    for name, model in models.items():
        bw.mlflow.save_model(model, tmp_path / name)
        rows = X.to_numpy() if name == "unnamed" else X
        found = mlflow.pyfunc.load_model(str(tmp_path / name)).predict(rows)
        expected = model.predict(rows)[:, None] if name == "values" else model.predict_proba(rows)
        np.testing.assert_allclose(found, expected[:, -found.shape[1] :], rtol=1e-12)  # BLAS adds up by how rows lie
    assert list(mlflow.pyfunc.load_model(str(tmp_path / "classes")).predict(X)) == [f"prediction_{n}" for n in range(3)]


def test_values_of_tables(mlflow: Any, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"bag": np.arange(800) // 8, "x": rng.normal(size=800)})
    sums = (rows["x"] + 3).groupby(rows["bag"]).sum().rename("sum").reset_index()
    model = tables.fit(tables.join(rows, sums, sum="sum"), bw.BagRidgeRegressor(random_state=0))
    bw.mlflow.save_model(model, tmp_path / "model")
    found = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(rows)
    np.testing.assert_array_equal(found["prediction"], model.predict(rows))


def test_what_is_none_of_ours_gets_one_sentence(mlflow: Any, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=r"^model must be what tables.fit returned or a fitted .*, got a dict"):
        bw.mlflow.save_model({}, tmp_path / "model")
    place = tmp_path / "first"
    (place / "data" / "model" / "arrays.safetensors").write_bytes(b"\x80\x04" + b"." * 100)
    for load in (bw.mlflow.load_model, lambda uri: mlflow.pyfunc.load_model(str(uri))):
        with pytest.raises(ValueError, match=r"cannot be loaded: arrays\.safetensors"):
            load(place)
    text = (place / "MLmodel").read_text().replace("bagwise:", "sklearn:").replace("data/model", "../elsewhere")
    (place / "MLmodel").write_text(text)
    with pytest.raises(ValueError, match=r"^model_uri is no model of bagwise: its flavours are .*sklearn"):
        bw.mlflow.load_model(place)


def test_the_folder_is_read_from_one_place_whatever_is_said(mlflow: Any, tmp_path: Any) -> None:
    place = tmp_path / "first"
    (place / "MLmodel").write_text((place / "MLmodel").read_text().replace("data/model", "/etc"))
    assert isinstance(bw.mlflow.load_model(place), bw.BagRidgeClassifier)
    assert json.loads((place / "data" / "model" / "model.json").read_text())["kind"] == "BagRidgeClassifier"
