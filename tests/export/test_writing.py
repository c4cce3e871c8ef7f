"""Files of exported models, and the command that writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise import demo
from bagwise.cli import app
from bagwise.export import onnx_inputs, write

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed: pip install 'bagwise[onnx]'")
pytest.importorskip("sqlglot", reason="sqlglot is not installed: pip install 'bagwise[sql]'")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's tables, a model of them as a folder, and its scores by the command."""
    folder = tmp_path_factory.mktemp("demo")
    demo.run(folder / "demo", rows=6_400, sizes=(16,), random_state=0)
    events, reports = (str(folder / "demo" / f"{name}.parquet") for name in ("events", "reports"))
    command("fit", events, reports, "--model", "logistic", "--hold-out", "0", "--out", str(folder / "model"))
    command("predict", str(folder / "model"), events, "--out", str(folder / "scores.parquet"))
    return folder


def command(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_the_demos_model_goes_to_onnx_sql_and_torch_with_equal_scores(place: Path, torch: Any) -> None:
    events, scores = pd.read_parquet(place / "demo" / "events.parquet"), pd.read_parquet(place / "scores.parquet")
    model, expected = bw.load(place / "model"), scores["prediction"].to_numpy()
    said = command("export", str(place / "model"), "--to", "onnx", "--out", str(place / "model.onnx"))
    assert "Its scores are in prediction. Written: " in said
    (found,) = ort.InferenceSession(place / "model.onnx").run(None, onnx_inputs(model, events))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    rows = f"read_parquet('{place / 'demo' / 'events.parquet'}')"
    out = ["--out", str(place / "model.sql"), "--table", rows, "--keep", "bag,bid"]
    command("export", str(place / "model"), "--to", "sql", *out)
    table = bw.tables.connect(ordered=True).sql((place / "model.sql").read_text()).df()
    assert list(table.columns) == ["bag", "bid", "prediction"]
    np.testing.assert_allclose(table["prediction"], expected, atol=1e-5)
    command("export", str(place / "model"), "--to", "torch", "--out", str(place / "model.pt2"))
    codes = model.features.select(bw.tables.read(events, bw.tables.connect(ordered=True))).fetch()
    program = torch.export.load(place / "model.pt2").module()
    np.testing.assert_allclose(program(torch.tensor(model.features.matrix(codes))).detach(), expected, atol=1e-5)


def test_an_estimator_saved_from_python_is_exported_too(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(640, 2))
    options: Any = {"objective": "likelihood", "n_estimators": 5, "n_jobs": 1, "random_state": 0}
    model = bw.BagBoostingClassifier(**options).fit(X, X[:, 0] > 0)
    bw.save(model, tmp_path / "model")
    command("export", str(tmp_path / "model"), "--to", "lightgbm", "--out", str(tmp_path / "model.txt"))
    found = lgb.Booster(model_file=tmp_path / "model.txt").predict(X)
    np.testing.assert_allclose(found, model.predict_proba(X)[:, 1], atol=1e-9)


def test_what_cannot_be_is_told_and_leaves_no_file(place: Path, tmp_path: Path) -> None:
    model, out = str(place / "model"), str(tmp_path / "file")
    said = command("export", model, "--to", "lightgbm", "--out", out, code=1)
    assert "Error: a linear model is no booster of LightGBM: export to sql or onnx." in said
    said = command("export", model, "--to", "onnx", "--out", out, "--dialect", "spark", code=1)
    assert "Error: --dialect is for sql, not for onnx: leave it out." in said
    assert "exists already" in command(
        "export", model, "--to", "onnx", "--out", str(place / "model" / "model.json"), code=1
    )
    assert "reports" in command("export", model, "--to", "sql", "--out", out, "--reports", "r.parquet", code=2)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="to must be one of 'onnx', 'sql', 'lightgbm', 'torch', got 'pmml'"):
        write(bw.load(model), out, to="pmml")
