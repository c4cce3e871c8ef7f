"""One network, several processes: the same steps whatever their number, and whatever happens to them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
import torch

import bagwise as bw
from bagwise.data.rows import InMemory
from bagwise.distributed import Checkpoints, Distributed, LostError, Processes, joined
from bagwise.means import LeaveOneOut
from bagwise.neural import BagNeuralClassifier, cnn
from bagwise.neural.distributed import shared_means
from bagwise.tables import join
from bagwise.tables.fitting import features_of
from bagwise.tables.gather import write_shards
from bagwise.utils.parameters import ParameterError
from tests.distributed.common import SETTINGS, WORKER, StoppedError, alone, assert_close, stopping_at
from tests.distributed.conftest import _one_thread, shards, start, undisturbed  # noqa: F401


def finish(running: subprocess.Popen[bytes], out: Path) -> dict[str, Any]:
    _, said = running.communicate(timeout=300)
    assert running.returncode == 0, said.decode()
    return dict(np.load(out))


@pytest.fixture
def second(shards, tmp_path, monkeypatch):
    """Another process beside this one, which believes that torchrun started both; it keeps the same checkpoints."""
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    around = {"MASTER_ADDR": "localhost", "MASTER_PORT": store.port, "RANK": 0, "WORLD_SIZE": 2}
    for name, value in {**around, "TORCHELASTIC_RUN_ID": "test"}.items():
        monkeypatch.setenv(name, str(value))
    given = json.dumps({"estimator": SETTINGS, "streams": 5, "checkpoints": str(tmp_path / "kept"), "every": 5})
    command = [sys.executable, str(WORKER), str(shards.folder), str(tmp_path / "result.npz"), given]
    with subprocess.Popen(command, env={**os.environ, "RANK": "1"}, stderr=subprocess.DEVNULL) as running:
        yield running
        running.kill()


@pytest.mark.slow
def test_two_processes_take_the_same_steps_and_nothing_is_lost_where_one_is_killed(
    shards, undisturbed, second, tmp_path
):
    checkpoints, steps = Checkpoints(tmp_path / "kept", every=5), []

    def tell(step: int, _: int) -> None:
        if step == 17:
            second.kill()

    # What gloo has under way when the other is gone is waited for as long as a step may take.
    with pytest.raises(LostError), joined(step=timedelta(seconds=20)) as processes:
        alone(shards, Distributed(processes, streams=5, checkpoints=checkpoints, tell=tell))
    distributed = Distributed(streams=5, checkpoints=checkpoints, tell=lambda step, _: steps.append(step))
    assert_close(alone(shards, distributed), undisturbed, rtol=0, atol=1e-5)
    assert steps[0] == 16  # those before are of two processes


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_any_number_of_processes_takes_the_same_steps(shards, undisturbed, start, tmp_path, processes):
    out = tmp_path / "result.npz"
    assert_close(finish(start(shards, out, processes), out), undisturbed, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_likelihood_takes_the_same_steps_in_two_processes(shards, start, tmp_path):
    out, changes = tmp_path / "result.npz", {"loss": "count_likelihood", "dtype": "float64"}
    expected = alone(shards, Distributed(streams=5), **changes)
    found = finish(start(shards, out, 2, estimator={**SETTINGS, **changes}), out)
    assert_close(found, expected, rtol=0, atol=1e-9)


def wait_for(place, running):
    deadline = time.monotonic() + 300
    while not place.exists():
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.02)


@pytest.mark.slow  # without torchrun, which starts it again: above
def test_a_killed_process_of_two_is_started_again_and_nothing_is_lost(shards, undisturbed, start, tmp_path):
    kept = tmp_path / "checkpoints"
    out = tmp_path / "result.npz"
    running = start(shards, out, 2, checkpoints=str(kept), every=5, pause=0.04)
    wait_for(kept / "step-00000015", running)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    workers = [pid for pid in children if str(WORKER) in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(workers) == 2
    os.kill(int(workers[1]), signal.SIGKILL)
    result = finish(running, out)
    assert_close(result, undisturbed, rtol=0, atol=1e-5)
    said = {path.name for path in kept.iterdir()}
    assert said == {"run.json", "step-00000045", "step-00000050"}


@pytest.mark.slow
def test_another_number_of_processes_goes_on(shards, undisturbed, start, tmp_path):
    kept, out = tmp_path / "checkpoints", tmp_path / "result.npz"
    checkpoints = Checkpoints(kept, every=5)
    with pytest.raises(StoppedError):
        alone(shards, Distributed(streams=5, checkpoints=checkpoints, tell=stopping_at(33)))
    assert_close(finish(start(shards, out, 2, checkpoints=str(kept), every=5), out), undisturbed, rtol=0, atol=1e-5)
    shutil.rmtree(kept)
    running = start(shards, out, 2, checkpoints=str(kept), every=5, pause=0.1)
    wait_for(kept / "step-00000030", running)
    running.terminate()
    running.communicate()
    assert_close(alone(shards, Distributed(streams=5, checkpoints=checkpoints)), undisturbed, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [{}, {"average": True, "means": "leave_one_out"}, {"loss": "easyllp"}, {"loss": "count_likelihood"}],
)
def test_training_goes_on_where_it_was_stopped(shards, undisturbed, tmp_path, changes):
    expected = alone(shards, Distributed(streams=5), **changes) if changes else undisturbed
    checkpoints = Checkpoints(tmp_path / "kept", every=4)
    for step in (3, 11, 41):
        with pytest.raises(StoppedError):
            alone(shards, Distributed(streams=5, checkpoints=checkpoints, tell=stopping_at(step)), **changes)
    result = alone(shards, Distributed(streams=5, checkpoints=checkpoints), **changes)
    assert_close(result, expected, rtol=0, atol=1e-12)
    steps: list[int] = []
    again = alone(
        shards, Distributed(streams=5, checkpoints=checkpoints, tell=lambda step, _: steps.append(step)), **changes
    )
    assert_close(again, expected, rtol=0, atol=1e-12)  # a training that is done is taken over as it is
    assert not steps


@pytest.mark.slow
def test_dropout_draws_the_same_after_a_stop(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((600, 100)).astype(np.float32), columns=[f"p{i}" for i in range(100)])
    frame["bag"] = np.arange(600) // 4
    count = (frame["p44"] > 0.5).groupby(frame["bag"]).sum()
    data = join(frame, pd.DataFrame({"bag": count.index, "count": count.to_numpy()}))
    shards = write_shards(data, features_of(data), tmp_path / "shards", group_rows=100)

    class Images(torch.nn.Sequential):
        def forward(self, x):
            return super().forward(x.view(-1, 1, 10, 10))

    changes = {"module": Images(cnn(1, 10, random_state=0)), "batch_rows": 60}
    expected = alone(shards, Distributed(), **changes)
    checkpoints = Checkpoints(tmp_path / "kept", every=3)
    with pytest.raises(StoppedError):
        alone(shards, Distributed(checkpoints=checkpoints, tell=stopping_at(14)), **changes)
    result = alone(shards, Distributed(checkpoints=checkpoints), **changes)
    assert_close(result, expected, rtol=0, atol=1e-12)


def test_functions_among_the_settings_do_not_hinder_going_on(shards, tmp_path):
    checkpoints = Checkpoints(tmp_path / "kept", every=4)

    def optimizer():  # another function every time, as in another process
        return lambda weights, **options: torch.optim.SGD(weights, **options)

    with pytest.raises(StoppedError):
        alone(shards, Distributed(checkpoints=checkpoints, tell=stopping_at(9)), optimizer=optimizer())
    steps: list[int] = []
    tell = lambda step, of: steps.append(step)  # noqa: E731
    alone(shards, Distributed(checkpoints=checkpoints, tell=tell), optimizer=optimizer())
    assert steps[0] == 9


def test_what_cannot_work_is_said_before_settings_are_chosen(shards, tmp_path):
    (tmp_path / "file").write_text("")
    chosen: list[dict[str, Any]] = []
    changes = {"learning_rate": [0.01, 0.02], "callback": chosen.append}
    for distributed, error, words in (
        (Distributed(Processes(0, 6), streams=5), ValueError, "6 processes for 5 streams"),
        (Distributed(Processes(0, 99), streams=99), ValueError, "one for each block"),
        (Distributed(checkpoints=Checkpoints(tmp_path / "file" / "kept")), OSError, "no checkpoints can be written to"),
    ):
        with pytest.raises(error, match=words):
            alone(shards, distributed, **changes)
    assert not chosen
    with pytest.raises(ParameterError, match=r"^learning_rate must be"):
        alone(shards, Distributed(checkpoints=Checkpoints(tmp_path / "kept")), learning_rate="nonsense")
    assert not (tmp_path / "kept").exists()


def test_a_strategy_that_knows_of_one_process_only_is_refused():
    with pytest.raises(ParameterError, match="means of the kind function"):
        shared_means(lambda values, bags: None, Processes(0, 2))
    assert shared_means(LeaveOneOut(), Processes(0, 2)).add_up is not None


def test_rows_in_memory_are_a_block_too():
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(400, 3)), bw.random_bags(400, 5, random_state=0)
    bags = bw.Bags.from_rows(bw.aggregate(X[:, 0] > 0, ids), ids)
    settings = {"learning_rate": 0.03, "max_epochs": 20, "early_stopping": False, "random_state": 0, "batch_rows": 50}
    for distributed in (None, Distributed()):
        model = BagNeuralClassifier(**settings).fit_rows(InMemory(X, bags), distributed=distributed)
        assert model.score(X, X[:, 0] > 0) > 0.9
    plain = BagNeuralClassifier(**settings).fit(X, bags=bags).predict_proba(X)
    assert np.array_equal(BagNeuralClassifier(**settings).fit_rows(InMemory(X, bags)).predict_proba(X), plain)
