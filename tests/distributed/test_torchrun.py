"""Processes that torchrun starts: progress, errors and an end in order."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
import torch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from bagwise.distributed import Distributed, LostError, launch, torchrun
from bagwise.means import LeaveOneOut
from bagwise.neural import BagNeuralClassifier
from bagwise.utils.parameters import ParameterError
from tests.distributed.common import SETTINGS, alone


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
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    heard = {one: signal.signal(one, how) for one, how in usual.items()}  # whoever runs the tests may ignore them
    with pytest.raises(KeyboardInterrupt):
        torchrun.run([], 2, tmp_path, meanwhile)
    for one, how in heard.items():
        signal.signal(one, how)
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_why_torchrun_failed():
    failed = [ProcessFailure(rank, 1, code, "") for rank, code in ((0, -15), (1, -9))]
    failed[1].timestamp -= 1
    said = ChildFailedError("bagwise", dict(enumerate(failed))).format_msg()
    assert torchrun.why(said) == (
        "a process was ended by SIGKILL, after 3 restarts, too; perhaps memory ran out: start fewer processes."
    )
    assert torchrun.why(said.replace("-9", "3").replace("(SIGKILL)", "")).startswith("a process was ended by exit code")
    assert torchrun.why("no port\n\n") == "torchrun failed: no port"
    assert torchrun.why("") == "torchrun failed: it said nothing"


def test_a_process_that_leads_speaks_for_all(tmp_path, monkeypatch):
    waited: list[float] = []
    monkeypatch.setattr(torchrun.time, "sleep", waited.append)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    told = tmp_path / "told.json"
    for rank, pause in ((0, []), (1, [torchrun._WITNESS])):
        monkeypatch.setenv("RANK", str(rank))
        waited.clear()
        with pytest.raises(OSError, match="full"), torchrun.one_voice(told=told):
            raise OSError(28, "Disk is full", "shards")
        assert waited == pause  # so that torchrun ends those who would say the same
        seen = ProcessFailure(rank, 1, 1, str(tmp_path / "error.json"))
        assert "shards: disk is full." in ChildFailedError("bagwise", {rank: seen}).format_msg()
        with pytest.raises(RuntimeError, match="shards: disk is full"):
            torchrun._tell_again(told, lambda *_: None)
    told.unlink()
    waited.clear()
    with pytest.raises(LostError), torchrun.one_voice(told=told):
        raise LostError("gone")
    assert waited == [torchrun._LOST]
    assert not told.exists()


def test_what_processes_write_down_is_told_again(tmp_path):
    told, seen = tmp_path / "told.json", []
    torchrun._tell_again(told, lambda *progress: seen.append(progress))
    tell = torchrun._teller(told)
    tell(3, 50)
    tell(4, 50)  # too soon after the last
    torchrun._tell_again(told, lambda *progress: seen.append(progress))
    assert seen == [(0, None, "choosing settings"), (3, 50, "training: step 3 of 50")]


@pytest.mark.parametrize(
    ("name", "value"), [("module", torch.nn.Linear(2, 1)), ("optimizer", torch.optim.SGD), ("means", LeaveOneOut())]
)
def test_parameters_that_cannot_be_handed_over_are_named(shards, name, value):
    with pytest.raises(ParameterError) as caught:
        launch(BagNeuralClassifier(**{name: value}), shards)
    assert caught.value.parameter == name


@pytest.mark.slow
def test_processes_are_launched_from_python(shards, undisturbed):
    seen: list[str] = []
    model = BagNeuralClassifier(**SETTINGS, hidden=[32], callback=lambda line: seen.append(line["stage"]))
    launch(model, shards, processes=2, progress=lambda done, total, text: seen.append(text))
    assert "choosing settings" in seen
    assert any(text.startswith("training: step") for text in seen)
    assert seen[-2:] == ["final", "final"]
    losses = [line["loss"] for line in model.history_]
    np.testing.assert_allclose(losses, alone(shards, Distributed())["losses"], rtol=0, atol=1e-5)


@pytest.mark.slow  # what a process writes down, and who tells it again, is tested above
def test_an_error_of_the_processes_is_that_of_the_launch(shards, monkeypatch):
    monkeypatch.setattr(torchrun, "_RESTARTS", 0)  # which would end in the same error
    with pytest.raises(RuntimeError, match="diverged with learning rate 1e\\+30"):
        launch(BagNeuralClassifier(**{**SETTINGS, "learning_rate": 1e30}), shards)
