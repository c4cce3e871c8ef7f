"""The workers of a Dask cluster as processes that fit one model."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")

from bagwise.distributed import Distributed, launch_on_dask
from bagwise.neural import BagNeuralClassifier
from bagwise.utils.parameters import ParameterError
from tests.distributed.common import SETTINGS, alone


class Here:
    """A cluster of this process alone, or of none."""

    def __init__(self, workers: int = 1) -> None:
        self.workers, self.cancelled = workers, 0

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {f"tcp://127.0.0.1:{number}": {} for number in range(self.workers)}}

    def submit(self, do: Any, *given: Any, workers: list[str], pure: bool) -> Any:
        try:
            found = do(*given)
        except ValueError as error:
            return SimpleNamespace(done=lambda: True, status="error", result=partial(self.fail, error))
        return SimpleNamespace(done=lambda: True, status="finished", result=lambda: found)

    def fail(self, error: Exception) -> None:
        raise error

    def cancel(self, running: list[Any]) -> None:
        self.cancelled += len(running)


class Silent(Here):
    """The same, where what is wrong cannot be written down."""

    def submit(self, do: Any, *given: Any, workers: list[str], pure: bool) -> Any:
        found = super().submit(do, *given, workers=workers, pure=pure)
        if given:
            Path(given[0]).with_name("told.json").unlink()
        return found


def test_a_worker_takes_the_steps_of_this_process_and_forgets_where_it_was(shards, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "of something else")
    model, seen, client = BagNeuralClassifier(**SETTINGS, hidden=[32]), list[tuple[int, int | None]](), Here()
    launch_on_dask(model, shards, client, folder=tmp_path, progress=lambda done, of, text: seen.append((done, of)))
    losses = [line["loss"] for line in model.history_]
    np.testing.assert_allclose(losses, alone(shards, Distributed())["losses"], rtol=0, atol=1e-5)
    assert seen[-1][1] == 50
    assert os.environ["RANK"] == "of something else"
    assert not {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"} & {*os.environ}
    assert client.cancelled == 1
    assert not list(tmp_path.iterdir())


def test_what_is_wrong_in_a_worker_is_said(shards, tmp_path):
    with pytest.raises(RuntimeError, match="diverged with learning rate 1e\\+30"):
        launch_on_dask(BagNeuralClassifier(**{**SETTINGS, "learning_rate": 1e30}), shards, Here(), folder=tmp_path)
    with pytest.raises(ValueError, match="diverged"):
        launch_on_dask(BagNeuralClassifier(**{**SETTINGS, "learning_rate": 1e30}), shards, Silent(), folder=tmp_path)
    with pytest.raises(ParameterError, match="client has no workers"):
        launch_on_dask(BagNeuralClassifier(**SETTINGS), shards, Here(0))
