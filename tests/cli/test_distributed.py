"""Commands for many rows: bags gathered on disk, and a network that several processes train."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from bagwise import saving
from bagwise.cli import app
from bagwise.distributed import torchrun
from tests.distributed.common import made_up


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def tables():
    return made_up()


def test_commands_gather_and_train(tables, tmp_path):
    paths = [tmp_path / name for name in ("events.parquet", "reports.parquet")]
    for frame, path in zip(tables, paths, strict=True):
        frame.to_parquet(path)
    gathered = call("gather", *paths, "--out", tmp_path / "shards", "--json")
    assert gathered.exit_code == 0, gathered.output
    assert json.loads(gathered.stdout)["rows"] > 6000
    assert json.loads(gathered.stdout)["blocks"] >= 8  # enough for as many processes
    assert call("gather", *paths, "--out", tmp_path / "shards").exit_code == 1
    options = ("--epochs", 2, "--learning-rate", 0.01, "--hidden", "8,8", "--out", tmp_path / "model")
    trained = call("train", tmp_path / "shards", *options)
    assert trained.exit_code == 0, trained.output
    assert "held-out bags (" in trained.stdout
    assert not (tmp_path / "model-checkpoints").exists()
    for place in ("papers", "shards"):  # neither a folder of the user's nor the input is taken for checkpoints
        (tmp_path / "papers").mkdir(exist_ok=True)
        (tmp_path / "papers" / "letter.txt").write_text("mine")
        refused = call(
            "train", tmp_path / "shards", *options[:-1], tmp_path / "other", "--checkpoints", tmp_path / place
        )
        assert refused.exit_code == 1
        assert refused.stderr.startswith("Error: --checkpoints lie in")
        assert not (tmp_path / "other").exists()
    assert (tmp_path / "papers" / "letter.txt").read_text() == "mine"
    assert (tmp_path / "shards" / "train").is_dir()
    model = saving.load(tmp_path / "model")
    assert [layer.out_features for layer in model.estimator.module_[1] if hasattr(layer, "out_features")] == [8, 8, 1]
    scored = call("predict", tmp_path / "model", paths[0], "--out", tmp_path / "scored.parquet")
    assert scored.exit_code == 0, scored.output
    for arguments, words in (
        (("train", tmp_path, "--out", tmp_path / "other"), "is no folder that bagwise gather wrote: gather events"),
        (("train", tmp_path / "shards", "--out", tmp_path, "--force"), "is no saved model: only a saved model"),
        (("train", tmp_path / "shards", "--out", tmp_path / "other", "--hidden", "many"), "--hidden must be whole"),
        (
            ("train", tmp_path / "shards", "--out", tmp_path / "o", "--checkpoints", tmp_path / "o"),
            "--checkpoints lies",
        ),
        (("fit", *paths, "--engine", "torchrun"), "--engine torchrun fits networks and boosting"),
    ):
        result = call(*arguments)
        assert result.exit_code == (2 if words.startswith("--") else 1)
        assert words in result.stderr


def test_commands_train_boosted_trees(tables, tmp_path):
    paths = [tmp_path / name for name in ("events.parquet", "reports.parquet")]
    for frame, path in zip(tables, paths, strict=True):
        frame.to_parquet(path)
    assert call("gather", *paths, "--out", tmp_path / "shards").exit_code == 0
    trained = call("train", tmp_path / "shards", "--model", "boosting", "--out", tmp_path / "model")
    assert trained.exit_code == 0, trained.output
    assert "held-out bags (" in trained.stdout
    assert not (tmp_path / "model-checkpoints").exists()
    scored = call("predict", tmp_path / "model", paths[0], "--out", tmp_path / "scored.parquet")
    assert scored.exit_code == 0, scored.output
    rows = pd.read_parquet(tmp_path / "scored.parquet")
    assert ((rows["prediction"] > 0.5) == (rows["x"] * rows["z"] > 0)).mean() > 0.9
    refused = call("train", tmp_path / "shards", "--model", "boosting", "--hidden", "8", "--out", tmp_path / "other")
    assert refused.exit_code == 2
    assert "--hidden is for networks: leave it out, or pass --model network" in refused.stderr
    tables[1]["value"] = tables[1].pop("count") + 0.5
    tables[1].to_parquet(paths[1])
    given = ("--sum", "value", "--model", "boosting", "--engine", "torchrun", "--out", tmp_path / "other")
    refused = call("fit", *paths, *given)
    assert refused.exit_code == 1
    assert "several processes fit boosted trees of labels 0 and 1 alone: leave --engine out" in refused.stderr


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_under_torchrun_one_process_says_what_is_wrong(tmp_path, monkeypatch):
    waited: list[float] = []
    monkeypatch.setattr(torchrun.time, "sleep", waited.append)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    for rank, pauses in ((0, 0), (1, 1)):
        monkeypatch.setenv("RANK", str(rank))
        waited.clear()
        result = call("train", tmp_path, "--out", tmp_path / "model")
        assert result.exit_code == 1
        assert len(waited) == pauses  # so that torchrun ends those who would say the same
        told = result.stderr.removeprefix("Error: ").strip()
        assert told.endswith("is no folder that bagwise gather wrote: gather events and reports first.")
        seen = ProcessFailure(rank, 1, 1, str(tmp_path / "error.json"))
        assert told in ChildFailedError("bagwise", {rank: seen}).format_msg()
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        (tmp_path / "model-checkpoints" / "step-00000200").mkdir(parents=True, exist_ok=True)
        with monkeypatch.context() as now:
            now.setattr("bagwise.saving.check_free", interrupt)
            result = call("train", tmp_path, "--out", tmp_path / "model")
        assert result.exit_code == 130
        assert ("model-checkpoints holds checkpoints: the same command goes on" in result.stderr) is (rank == 0)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["network", "boosting"])
def test_fit_by_torchrun(tables, tmp_path, model):
    paths = [tmp_path / name for name in ("events.parquet", "reports.parquet")]
    for frame, path in zip(tables, paths, strict=True):
        frame.to_parquet(path)
    result = call("fit", *paths, "--model", model, "--engine", "torchrun", "--out", tmp_path / "model", "--json")
    assert result.exit_code == 0, result.output
    about = json.loads(result.stdout)
    assert about["model"] == model
    scored = call("predict", tmp_path / "model", paths[0], "--out", tmp_path / "scored.parquet")
    assert scored.exit_code == 0, scored.output
    rows = pd.read_parquet(tmp_path / "scored.parquet")
    accuracy = ((rows["prediction"] > 0.5) == (rows["x"] * rows["z"] > 0)).mean()
    assert accuracy > 0.9
    found = about["evaluation"]["accuracy"]
    assert found["low"] < accuracy < found["high"]
    assert sorted(about["sensitivity"]) == ["x", "z"]
