"""One network, several processes: the same steps whatever their number, and whatever happens to them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")
import torch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from bagwise import saving
from bagwise.cli import app
from bagwise.cli import distributed as command
from bagwise.means import LeaveOneOut
from bagwise.neural import BagNeuralClassifier, cnn
from bagwise.neural.distributed.checkpoints import Checkpoints
from bagwise.neural.distributed.processes import LostError, Ranks, joined, meet
from bagwise.neural.distributed.training import Together, _shared
from bagwise.tables import Shards, features_of, fit_network, join, write_shards

WORKER = Path(__file__).with_name("train_worker.py")
SETTINGS: dict[str, Any] = {
    "learning_rate": 0.01,
    "max_epochs": 2,
    "early_stopping": False,
    "batch_rows": 320,
    "random_state": 1,
}
STEPS = 50  # in two passes over 8,000 rows


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """8,000 rows in bags of 1 to 11 rows and some of 200, of which a batch holds two."""
    rng = np.random.default_rng(0)
    sizes = np.concatenate([rng.integers(1, 12, size=660), np.full(20, 200)])
    ids = np.repeat(np.arange(len(sizes)), rng.permutation(sizes))[:8000]
    rows = len(ids)
    events = pd.DataFrame({"bag": ids, "x": rng.normal(size=rows), "z": rng.normal(size=rows)})
    count = (events["x"] * events["z"] > 0).groupby(events["bag"]).sum()
    return events, pd.DataFrame({"bag": count.index, "count": count.to_numpy()})


@pytest.fixture(scope="module")
def shards(tables, tmp_path_factory) -> Shards:
    data = join(*tables)
    return write_shards(data, features_of(data), tmp_path_factory.mktemp("together") / "shards", group_rows=400)


def alone(shards: Shards, together: Together, **changes: Any) -> dict[str, Any]:
    """Weights and losses of a training in this process."""
    model = BagNeuralClassifier(**{**SETTINGS, **changes})
    fit_network(shards, model, together=together)
    weights = {name: value.numpy() for name, value in model.module_.state_dict().items()}
    return {**weights, "losses": [line["loss"] for line in model.history_ if line["stage"] == "final"]}


@pytest.fixture
def start():
    """The same by torchrun, started; and ended where a test fails."""
    started = []

    def start(shards: Shards, out: Path, processes: int, **options: Any) -> subprocess.Popen[bytes]:
        given = json.dumps({"estimator": SETTINGS, "lanes": 5, **options})
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "--max-restarts=2"]
        running = subprocess.Popen(
            [sys.executable, *launcher, str(WORKER), str(shards.folder), str(out), given],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
        )
        started.append(running)
        return running

    yield start
    for running in started:
        if running.poll() is None:
            running.terminate()
            running.communicate()


def finish(running: subprocess.Popen[bytes], out: Path) -> dict[str, Any]:
    _, said = running.communicate(timeout=300)
    assert running.returncode == 0, said.decode()
    return dict(np.load(out))


def assert_close(one: dict[str, Any], other: dict[str, Any], **tolerance: Any) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], err_msg=name, **tolerance)


@pytest.fixture(scope="module")
def undisturbed(shards):
    steps = []
    torch.set_num_threads(1)
    result = alone(shards, Together(lanes=5, tell=lambda step, of: steps.append((step, of))))
    assert steps == [(step, STEPS) for step in range(1, STEPS + 1)]
    return result


@pytest.mark.slow  # two of them do so where one is killed, below
@pytest.mark.parametrize("processes", [2, 4])
def test_any_number_of_processes_takes_the_same_steps(shards, undisturbed, start, tmp_path, processes):
    out = tmp_path / "result.npz"
    assert_close(finish(start(shards, out, processes), out), undisturbed, rtol=0, atol=1e-5)


def wait_for(place, running):
    deadline = time.monotonic() + 300
    while not place.exists():
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.02)


def test_a_killed_process_of_two_is_started_again_and_nothing_is_lost(shards, undisturbed, start, tmp_path):
    kept = tmp_path / "checkpoints"
    out = tmp_path / "result.npz"
    running = start(shards, out, 2, checkpoints=str(kept), every=5, pause=0.1)
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
    last = {**undisturbed, "losses": undisturbed["losses"][-1:]}
    checkpoints = Checkpoints(kept, every=5)
    with pytest.raises(StoppedError):
        alone(shards, Together(lanes=5, checkpoints=checkpoints, tell=stopping_at(33)))
    assert_close(finish(start(shards, out, 2, checkpoints=str(kept), every=5), out), last, rtol=0, atol=1e-5)
    shutil.rmtree(kept)
    running = start(shards, out, 2, checkpoints=str(kept), every=5, pause=0.1)
    wait_for(kept / "step-00000030", running)
    running.terminate()
    running.communicate()
    assert_close(alone(shards, Together(lanes=5, checkpoints=checkpoints)), last, rtol=0, atol=1e-5)


class StoppedError(Exception):
    pass


def stopping_at(step: int):
    def tell(done: int, of: int) -> None:
        if done == step:
            raise StoppedError

    return tell


@pytest.mark.parametrize("changes", [{}, {"average": True, "means": "leave_one_out"}, {"loss": "easyllp"}])
def test_training_goes_on_where_it_was_stopped(shards, undisturbed, tmp_path, changes):
    expected = alone(shards, Together(lanes=5), **changes) if changes else undisturbed
    checkpoints = Checkpoints(tmp_path / "kept", every=4)
    for step in (3, 11, 27, 41):
        with pytest.raises(StoppedError):
            alone(shards, Together(lanes=5, checkpoints=checkpoints, tell=stopping_at(step)), **changes)
    result = alone(shards, Together(lanes=5, checkpoints=checkpoints), **changes)
    last = {**expected, "losses": expected["losses"][-1:]}  # the first pass was recorded by a process that is gone
    assert_close(result, last, rtol=0, atol=1e-12)


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
    expected = alone(shards, Together(), **changes)
    checkpoints = Checkpoints(tmp_path / "kept", every=3)
    with pytest.raises(StoppedError):
        alone(shards, Together(checkpoints=checkpoints, tell=stopping_at(14)), **changes)
    result = alone(shards, Together(checkpoints=checkpoints), **changes)
    expected["losses"] = expected["losses"][-1:]
    assert_close(result, expected, rtol=0, atol=1e-12)


def test_functions_among_the_settings_do_not_hinder_going_on(shards, tmp_path):
    checkpoints = Checkpoints(tmp_path / "kept", every=4)

    def optimizer():  # another function every time, as in another process
        return lambda weights, **options: torch.optim.SGD(weights, **options)

    with pytest.raises(StoppedError):
        alone(shards, Together(checkpoints=checkpoints, tell=stopping_at(9)), optimizer=optimizer())
    steps: list[int] = []
    tell = lambda step, of: steps.append(step)  # noqa: E731
    alone(shards, Together(checkpoints=checkpoints, tell=tell), optimizer=optimizer())
    assert steps[0] == 9


@pytest.mark.parametrize("damage", ["cut", "flipped", "progress", "missing"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(shards, undisturbed, tmp_path, damage):
    checkpoints = Checkpoints(tmp_path / "kept", every=4)
    with pytest.raises(StoppedError):
        alone(shards, Together(lanes=5, checkpoints=checkpoints, tell=stopping_at(35)))
    last = tmp_path / "kept" / "step-00000032"
    state = last / "state.safetensors"
    data = bytearray(state.read_bytes())
    if damage == "cut":
        state.write_bytes(data[:-100])
    elif damage == "flipped":
        data[-20] ^= 1
        state.write_bytes(data)
    elif damage == "progress":
        (last / "state.json").write_text("{")
    else:
        state.unlink()
    with pytest.warns(UserWarning, match="step-00000032 is damaged: going on from the checkpoint before it"):
        result = alone(shards, Together(lanes=5, checkpoints=checkpoints))
    expected = {**undisturbed, "losses": undisturbed["losses"][-1:]}
    assert_close(result, expected, rtol=0, atol=1e-12)


def test_without_a_sound_checkpoint_training_begins_anew(shards, undisturbed, tmp_path):
    checkpoints = Checkpoints(tmp_path / "kept", every=4)
    with pytest.raises(StoppedError):
        alone(shards, Together(lanes=5, checkpoints=checkpoints, tell=stopping_at(5)))
    (tmp_path / "kept" / "step-00000004" / "state.json").write_text("{}")
    with pytest.warns(UserWarning, match="step-00000004 is damaged: beginning anew"):
        result = alone(shards, Together(lanes=5, checkpoints=checkpoints))
    assert_close(result, undisturbed, rtol=0, atol=1e-12)


def test_checkpoints_of_another_training_are_refused(shards, tmp_path):
    checkpoints = Checkpoints(tmp_path / "kept", every=4)
    with pytest.raises(StoppedError):
        alone(shards, Together(lanes=5, checkpoints=checkpoints, tell=stopping_at(9)))
    for changes, was in (
        ({"learning_rate": 0.02}, r"learning_rate was 0\.01, now it is 0\.02"),
        ({"hidden": (8,)}, r"hidden was \(32,\), now"),
        ({"random_state": 2}, "random_state was 1, now it is 2"),
    ):
        with pytest.raises(ValueError, match=rf"kept holds checkpoints of another training \({was}.*remove this one"):
            alone(shards, Together(lanes=5, checkpoints=checkpoints), **changes)
    run = tmp_path / "kept" / "run.json"
    for damaged in ("[]", "{", run.read_text().replace('"rate": 0.01', '"rate": 0.02')):
        run.write_text(damaged)
        with pytest.raises(ValueError, match=r"run\.json is damaged, or was written .* remove that file"):
            alone(shards, Together(lanes=5, checkpoints=checkpoints))


@pytest.mark.parametrize(
    ("name", "folder"),
    [("letter.txt", False), (".notes", False), ("step-1200", True), ("step-00001200", True), ("train", True)],
)
def test_checkpoints_share_their_folder_with_nothing(shards, tmp_path, name, folder):
    kept = tmp_path / "kept"
    (kept / name).mkdir(parents=True) if folder else kept.mkdir()
    file = kept / name / "weights.bin" if folder else kept / name
    file.write_text("mine")
    with pytest.raises(FileExistsError, match=rf"kept holds '{name}', which is no checkpoint: name another folder"):
        alone(shards, Together(lanes=5, checkpoints=Checkpoints(kept)))
    Checkpoints(kept).remove()
    assert file.read_text() == "mine"


def test_removing_checkpoints_leaves_what_came_meanwhile(shards, tmp_path):
    kept = tmp_path / "kept"
    checkpoints = Checkpoints(kept, every=4)
    with pytest.raises(StoppedError):
        alone(shards, Together(lanes=5, checkpoints=checkpoints, tell=stopping_at(9)))
    (kept / f".new-{'0' * 32}").mkdir()  # of a process that was killed
    (kept / "letter.txt").write_text("mine")
    checkpoints.remove()
    assert [path.name for path in kept.iterdir()] == ["letter.txt"]
    (kept / "letter.txt").unlink()
    checkpoints.remove()
    assert not kept.exists()


def test_a_training_that_took_no_step_leaves_its_place_to_another(shards, undisturbed, tmp_path):
    checkpoints = Checkpoints(tmp_path / "kept")
    with pytest.raises(ValueError, match="diverged"):
        alone(shards, Together(lanes=5, checkpoints=checkpoints), learning_rate=1e30)
    assert_close(alone(shards, Together(lanes=5, checkpoints=checkpoints)), undisturbed, rtol=0, atol=1e-12)


def test_what_cannot_work_is_said_before_settings_are_chosen(shards, tmp_path):
    (tmp_path / "file").write_text("")
    for together, error, words in (
        (Together(Ranks(0, 6), lanes=5), ValueError, "6 processes for 5 lanes of bags: ask for more lanes, or start 5"),
        (Together(Ranks(0, 99), lanes=99), ValueError, r"one for each block: gather .* smaller blocks \(group_rows\)"),
        (Together(checkpoints=Checkpoints(tmp_path / "file" / "kept")), OSError, "no checkpoints can be written to"),
    ):
        with pytest.raises(error, match=words):
            alone(shards, together, learning_rate="nonsense")
    with pytest.raises(ValueError, match="learning_rate must be"):
        alone(shards, Together(checkpoints=Checkpoints(tmp_path / "kept")), learning_rate="nonsense")
    assert not (tmp_path / "kept").exists()


def test_processes_with_other_options_or_bags_are_refused():
    class Second(Ranks):
        def share(self, value):
            return {"shards": "ab" * 32, "hidden": "(32,)"}

    Second(1, 2).agree({"shards": "ab" * 32, "hidden": "(32,)"})
    with pytest.raises(ValueError, match=r"hidden of process 1 is \(8,\), that of the leading process \(32,\): start"):
        Second(1, 2).agree({"shards": "ab" * 32, "hidden": "(8,)"})
    with pytest.raises(ValueError, match=r"shards of process 1 is ac, that of the leading process abab.*…: start"):
        Second(1, 2).agree({"shards": "ac", "hidden": "(32,)"})


@pytest.fixture
def as_if_by_torchrun(monkeypatch):
    """A process that believes to be the only one of torchrun."""
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    around = {"MASTER_ADDR": "localhost", "MASTER_PORT": store.port, "RANK": 0, "WORLD_SIZE": 1}
    for name, value in {**around, "TORCHELASTIC_RUN_ID": "test"}.items():
        monkeypatch.setenv(name, str(value))
    return store


def test_a_process_that_lost_the_others_is_told_from_one_that_failed(as_if_by_torchrun):
    def fail(error: Exception) -> None:
        with joined() as ranks:
            assert ranks.share({"one": 1}) == {"one": 1}
            raise error

    for error, seen in (
        (RuntimeError("[/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"), LostError),
        (torch.distributed.DistNetworkError("failed to recv"), LostError),
        (RuntimeError("out of memory"), RuntimeError),
        (ValueError("gloo"), ValueError),
    ):
        with pytest.raises(seen) as caught:
            fail(error)
        assert type(caught.value) is seen
        assert not torch.distributed.is_initialized()


@pytest.mark.slow
def test_processes_wait_for_what_the_leading_one_decides(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text(
        "import time\n"
        "from datetime import timedelta\n"
        "from bagwise.neural.distributed.processes import joined\n"
        "with joined(step=timedelta(seconds=5)) as ranks:\n"
        "    if ranks.leads:\n"
        "        time.sleep(12)\n"
        "    assert ranks.share([ranks.rank]) == [0]\n"
    )
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run([sys.executable, *launcher], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()


def test_a_strategy_that_knows_of_one_process_only_is_refused():
    with pytest.raises(ValueError, match="means=function sees the bags of one process only"):
        _shared(lambda values, bags: None, Ranks(0, 2))
    assert _shared(LeaveOneOut(), Ranks(0, 2)).add_up is not None


def test_processes_meet_after_others_have_gone():
    store = torch.distributed.HashStore()
    with ThreadPoolExecutor(3) as threads:

        def start(ranks: tuple[int, ...], seconds: float) -> list[Any]:
            return [threads.submit(meet, store, rank, 3, seconds=seconds) for rank in ranks]

        agreed = set()
        for round_ in range(12):
            if round_ % 3 == 2:  # some die before they meet
                for one in start(((0, 2), (1, 2))[round_ % 2], 0.1):
                    with pytest.raises(TimeoutError, match="waited 0 seconds for the others"):
                        one.result()
            found = [one.result() for one in start((2, 1, 0), 60)]
            for rank, mine in enumerate(found):
                mine.set(f"address {rank}", str(round_))
            assert [mine.get(f"address {(rank + 1) % 3}") for rank, mine in enumerate(found)] == [b"%d" % round_] * 3
            agreed.add(found[0].get("address 0"))
        assert len(agreed) == 12


# -- the command line ---------------------------------------------------------------------------------------------


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


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
        assert "which is no checkpoint: name another folder (--checkpoints)" in refused.stderr
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
        (("fit", *paths, "--engine", "torchrun"), "--engine torchrun trains networks"),
    ):
        result = call(*arguments)
        assert result.exit_code == (2 if words.startswith("--") else 1)
        assert words in result.stderr


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_under_torchrun_one_process_says_what_is_wrong(tmp_path, monkeypatch):
    waited: list[float] = []
    monkeypatch.setattr(command.time, "sleep", waited.append)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    for rank, pause in ((0, []), (1, [command._WITNESS])):
        monkeypatch.setenv("RANK", str(rank))
        waited.clear()
        result = call("train", tmp_path, "--out", tmp_path / "model", "--tell", tmp_path / "told.json")
        assert result.exit_code == 1
        assert waited == pause  # so that torchrun ends those who would say the same
        told = result.stderr.removeprefix("Error: ").strip()
        assert told.endswith("is no folder that bagwise gather wrote: gather events and reports first.")
        seen = ProcessFailure(rank, 1, 1, str(tmp_path / "error.json"))
        assert told in ChildFailedError("bagwise", {rank: seen}).format_msg()
        with pytest.raises(RuntimeError, match="is no folder that bagwise gather wrote"):
            command._tell_again(tmp_path / "told.json", lambda *_: None)
    (tmp_path / "told.json").unlink()
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        (tmp_path / "model-checkpoints" / "step-00000200").mkdir(parents=True, exist_ok=True)
        with monkeypatch.context() as now:
            now.setattr(command, "_recipe", interrupt)
            result = call("train", tmp_path, "--out", tmp_path / "model")
        assert result.exit_code == 130
        assert ("model-checkpoints holds checkpoints: the same command goes on" in result.stderr) is (rank == 0)
    waited.clear()
    with pytest.raises(LostError), command._one_voice(tmp_path / "told.json", tmp_path):
        raise LostError("gone")
    assert waited == [command._LOST]
    assert not (tmp_path / "told.json").exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_who_ends_the_command_ends_its_processes(tmp_path, monkeypatch, name):
    launcher = tmp_path / "python"
    launcher.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    launcher.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(launcher))

    def meanwhile() -> None:
        if (tmp_path / "pid").is_file():
            os.kill(os.getpid(), getattr(signal, name))

    before = signal.getsignal(signal.SIGTERM)
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
    with pytest.raises(KeyboardInterrupt):
        command._torchrun([], 2, tmp_path, meanwhile)
    signal.signal(signal.SIGINT, heard)
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_why_torchrun_failed():
    failed = [ProcessFailure(rank, 1, code, "") for rank, code in ((0, -15), (1, -9))]
    failed[1].timestamp -= 1
    said = ChildFailedError("bagwise", dict(enumerate(failed))).format_msg()
    assert command._why(said) == (
        "a process was ended by SIGKILL, after 3 restarts, too; perhaps memory ran out: start fewer processes."
    )
    assert command._why(said.replace("-9", "3").replace("(SIGKILL)", "")).startswith("a process was ended by exit code")
    assert command._why("no port\n\n") == "torchrun failed: no port"
    assert command._why("") == "torchrun failed: it said nothing"


@pytest.mark.slow
def test_fit_by_torchrun(tables, tmp_path):
    paths = [tmp_path / name for name in ("events.parquet", "reports.parquet")]
    for frame, path in zip(tables, paths, strict=True):
        frame.to_parquet(path)
    result = call("fit", *paths, "--model", "network", "--engine", "torchrun", "--out", tmp_path / "model", "--json")
    assert result.exit_code == 0, result.output
    about = json.loads(result.stdout)
    assert about["model"] == "network"
    assert about["evaluation"]["accuracy"]["high"] > 0.55
    assert sorted(about["sensitivity"]) == ["x", "z"]
