"""Checkpoints: the last sound one of the same training is gone on from, and nothing else is touched."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")

from bagwise.distributed import Checkpoints, Distributed
from bagwise.utils.parameters import ParameterError
from tests.distributed.common import StoppedError, alone, assert_close, stopping_at


@pytest.mark.parametrize("damage", ["cut", "flipped", "progress", "missing"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(shards, undisturbed, tmp_path, damage):
    checkpoints = Checkpoints(tmp_path / "kept", every=4)
    with pytest.raises(StoppedError):
        alone(shards, Distributed(streams=5, checkpoints=checkpoints, tell=stopping_at(35)))
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
        result = alone(shards, Distributed(streams=5, checkpoints=checkpoints))
    assert_close(result, undisturbed, rtol=0, atol=1e-12)


def test_without_a_sound_checkpoint_training_begins_anew(shards, undisturbed, tmp_path):
    checkpoints = Checkpoints(tmp_path / "kept", every=4)
    with pytest.raises(StoppedError):
        alone(shards, Distributed(streams=5, checkpoints=checkpoints, tell=stopping_at(5)))
    (tmp_path / "kept" / "step-00000004" / "state.json").write_text("{}")
    with pytest.warns(UserWarning, match="step-00000004 is damaged: beginning anew"):
        result = alone(shards, Distributed(streams=5, checkpoints=checkpoints))
    assert_close(result, undisturbed, rtol=0, atol=1e-12)


def test_checkpoints_of_another_training_are_refused(shards, tmp_path):
    checkpoints = Checkpoints(tmp_path / "kept", every=4)
    with pytest.raises(StoppedError):
        alone(shards, Distributed(streams=5, checkpoints=checkpoints, tell=stopping_at(9)))
    for changes, was in (
        ({"learning_rate": 0.02}, r"learning_rate was 0\.01, now it is 0\.02"),
        ({"hidden": (8,)}, r"hidden was \[32\], now it is \[8\]"),
        ({"random_state": 2}, "random_state was 1, now it is 2"),
    ):
        with pytest.raises(ParameterError, match=rf"^checkpoints in .*kept .*\({was}"):
            alone(shards, Distributed(streams=5, checkpoints=checkpoints), **changes)
    run = tmp_path / "kept" / "run.json"
    for damaged in ("[]", "{", run.read_text().replace('"learning_rate_": 0.01', '"learning_rate_": 0.02')):
        run.write_text(damaged)
        with pytest.raises(ParameterError, match=r"^checkpoints lie in .*kept, whose run\.json is damaged"):
            alone(shards, Distributed(streams=5, checkpoints=checkpoints))


@pytest.mark.parametrize(
    ("name", "folder"),
    [("letter.txt", False), (".notes", False), ("step-1200", True), ("step-00001200", True), ("train", True)],
)
def test_checkpoints_share_their_folder_with_nothing(shards, tmp_path, name, folder):
    kept = tmp_path / "kept"
    (kept / name).mkdir(parents=True) if folder else kept.mkdir()
    file = kept / name / "weights.bin" if folder else kept / name
    file.write_text("mine")
    with pytest.raises(ParameterError, match=rf"^checkpoints lie in .*kept, which holds '{name}'"):
        alone(shards, Distributed(streams=5, checkpoints=Checkpoints(kept)))
    Checkpoints(kept).remove()
    assert file.read_text() == "mine"


def test_removing_checkpoints_leaves_what_came_meanwhile(shards, tmp_path):
    kept = tmp_path / "kept"
    checkpoints = Checkpoints(kept, every=4)
    with pytest.raises(StoppedError):
        alone(shards, Distributed(streams=5, checkpoints=checkpoints, tell=stopping_at(9)))
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
        alone(shards, Distributed(streams=5, checkpoints=checkpoints), learning_rate=1e30)
    assert_close(alone(shards, Distributed(streams=5, checkpoints=checkpoints)), undisturbed, rtol=0, atol=1e-12)
