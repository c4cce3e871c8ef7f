"""A model of the demo's tables goes to each place where models score, by real components, and scores as it did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise import demo, tables
from tests.export.test_sql import _spark_missing, in_duckdb

KINDS = ("boosting", "logistic")
_IN_SINGLE = 2e-6  # linear models read columns in single precision, engines in double


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's tables, and models as `bagwise fit` saves them."""
    folder = tmp_path_factory.mktemp("demo")
    demo.run(folder, rows=6_000, sizes=(4, 16, 64), random_state=0)
    data = tables.join(folder / "events.parquet", folder / "reports.parquet")
    boosting = bw.BagBoostingClassifier(n_estimators=20, n_jobs=1, random_state=0)
    for kind, estimator in (("boosting", boosting), ("logistic", "logistic")):
        bw.save(tables.fit(data, estimator), folder / kind)
    return folder


@pytest.fixture(params=KINDS)
def saved(place: Path, request: pytest.FixtureRequest) -> tuple[Any, pd.DataFrame, Any]:
    """The model, the rows and their scores by `predict`."""
    model, rows = bw.load(place / request.param), pd.read_parquet(place / "events.parquet")
    expected = model.predict_proba(rows)[:, 1]
    assert np.ptp(expected) > 0.05
    return model, rows, expected


def test_a_folder(saved: Any, tmp_path: Path) -> None:
    model, rows, expected = saved
    bw.save(model, tmp_path / "model")
    np.testing.assert_array_equal(bw.load(tmp_path / "model").predict_proba(rows)[:, 1], expected)
    tables.write_scores(model, rows, tmp_path / "scored.parquet", keep=[])
    np.testing.assert_array_equal(pd.read_parquet(tmp_path / "scored.parquet")["prediction"], expected)


def test_onnx(saved: Any, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model, rows, expected = saved
    bw.export.write(model, tmp_path / "model.onnx", to="onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    (found,) = session.run(None, bw.export.onnx_inputs(model, rows))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_sql_in_duckdb(saved: Any) -> None:
    pytest.importorskip("sqlglot", reason="sqlglot is not installed: pip install 'bagwise[sql]'")
    model, rows, expected = saved
    found = in_duckdb(model, rows.assign(row=np.arange(len(rows))), keep=["row"]).sort_values("row")
    np.testing.assert_allclose(found["prediction"], expected, rtol=0, atol=_IN_SINGLE)


def test_a_table_of_duckdb(saved: Any, place: Path, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    model, _, expected = saved
    tables.write_scores(model, place / "events.parquet", f"{tmp_path}/w.duckdb::scores")
    with duckdb.connect(str(tmp_path / "w.duckdb")) as own:
        np.testing.assert_array_equal(own.sql("FROM scores").df()["prediction"], expected)


def test_mlflow(saved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed: pip install 'bagwise[mlflow]'")
    model, rows, expected = saved
    bw.mlflow.save_model(model, tmp_path / "first")  # which imports MLflow
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    try:
        info = bw.mlflow.log_model(model, "demo")
        scores = mlflow.pyfunc.load_model(info.model_uri).predict(rows)["prediction"]
        again = bw.mlflow.load_model(info.model_uri)
    finally:
        mlflow.set_tracking_uri(before)
    np.testing.assert_array_equal(scores, expected)
    np.testing.assert_array_equal(again.predict_proba(rows)[:, 1], expected)


def test_a_service(saved: Any) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'bagwise[serve]'")
    from bagwise.serving import make_app
    from tests.test_serving import serving

    model, rows, expected = saved
    with serving(make_app(model)) as client:
        answer = client.post("/score", json={"rows": json.loads(rows.to_json(orient="records", double_precision=15))})
    assert answer.status_code == 200, answer.text
    np.testing.assert_allclose(answer.json()["prediction"], expected, rtol=0, atol=1e-9)


@pytest.mark.slow  # the first query of a session takes seconds
@pytest.mark.skipif(bool(_spark_missing()), reason=_spark_missing() or "ready")
@pytest.mark.filterwarnings("ignore")
def test_spark(place: Path, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    settings = {"spark.sql.shuffle.partitions": 1, "spark.ui.enabled": False, "spark.sql.session.timeZone": "UTC"}
    settings["spark.sql.warehouse.dir"] = str(tmp_path / "warehouse")
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    try:
        rows = pd.read_parquet(place / "events.parquet").assign(row=np.arange(6_000))
        texts = dict.fromkeys(rows.select_dtypes("category"), str)
        frame = spark.createDataFrame(tables.read(rows.astype(texts), tables.connect(ordered=True)).fetch())
        frame.createOrReplaceTempView("events")
        for kind in KINDS:
            model = bw.load(place / kind)
            expected = model.predict_proba(rows)[:, 1]
            tables.write_scores(model, frame, f"::{kind}", keep=["row"])
            found = spark.table(kind).toArrow().to_pandas().sort_values("row")["prediction"]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
            query = bw.export.to_sql(model, "events", dialect="spark", keep=["row"])
            found = spark.sql(query).toArrow().to_pandas().sort_values("row")["prediction"]
            np.testing.assert_allclose(found, expected, rtol=0, atol=_IN_SINGLE)
    finally:
        spark.stop()
