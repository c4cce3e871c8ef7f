"""Temporary folders: gone with their process, however it ends."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from bagwise._files import TemporaryFolder, remove_leftovers
from bagwise.cli import common

HOLDER = "import sys, time; from bagwise._files import TemporaryFolder\nfolder = TemporaryFolder(sys.argv[1])\n"
HOLDER += "(folder.path / 'labels.csv').write_text('1'); print(folder.path, flush=True); time.sleep(60)"

BAGWISE = "import signal, runpy\n"  # whatever whoever runs the tests ignores
BAGWISE += "for name in ('SIGTERM', 'SIGHUP'): signal.signal(getattr(signal, name), signal.SIG_DFL)\n"
BAGWISE += "signal.signal(signal.SIGINT, signal.default_int_handler); runpy.run_module('bagwise', run_name='__main__')"


def holding(base):
    """A process that has a temporary folder, and the folder."""
    running = subprocess.Popen([sys.executable, "-c", HOLDER, str(base)], stdout=subprocess.PIPE, text=True)
    return running, running.stdout.readline().strip()


def test_folders_of_killed_processes_are_removed_and_no_others(tmp_path):
    (dead, left), (alive, held) = holding(tmp_path), holding(tmp_path)
    strange = tmp_path / "bagwise-abcdefgh"  # by its name alone
    strange.mkdir()
    (strange / "letter.txt").write_text("mine")
    os.symlink(strange, tmp_path / "bagwise-12345678")
    dead.kill()
    dead.wait()
    dead.stdout.close()
    assert os.path.isdir(left)
    remove_leftovers(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {os.path.basename(held), strange.name, "bagwise-12345678"}
    assert (strange / "letter.txt").read_text() == "mine"
    alive.kill()
    alive.wait()
    alive.stdout.close()
    with TemporaryFolder(tmp_path):  # whoever makes one removes them, too
        assert not os.path.exists(held)


def test_what_is_left_of_a_folder_is_found_again(tmp_path, monkeypatch):
    """The lock goes last: without it nobody would know whose the folder is."""
    removed = []
    monkeypatch.setattr("bagwise._files.shutil.rmtree", lambda path, **_: removed.append(path.name))
    folder = TemporaryFolder(tmp_path)
    (folder.path / "spilled").mkdir()
    folder.cleanup()
    assert removed == ["spilled", folder.path.name]


def test_folders_of_other_machines_stay(tmp_path, monkeypatch):
    """Disks that several machines share may know the locks of each one's own processes only."""
    dead, left = holding(tmp_path)
    dead.kill()
    dead.wait()
    dead.stdout.close()
    monkeypatch.setattr("bagwise._files._machine", lambda: ("another", "started at another time"))
    remove_leftovers(tmp_path)
    assert os.path.isdir(left)


def test_a_relative_place_is_found_from_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("here")
    folder = TemporaryFolder("here")
    monkeypatch.chdir("/")
    folder.cleanup()
    assert list((tmp_path / "here").iterdir()) == []


def test_a_disk_without_locks_will_do(tmp_path, monkeypatch):
    def unknown(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("bagwise._files.fcntl.flock", unknown)
    with TemporaryFolder(tmp_path) as folder:
        remove_leftovers(tmp_path)
        assert folder.is_dir()  # whose it is cannot be told: it stays
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_got_lost_can_be_sent_again(monkeypatch):
    """Python swallows what is raised while it collects garbage."""
    monkeypatch.setattr(common, "_CLEANING", 0.0)
    heard = []
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with common.stopped_by_signals():
            for _ in range(2):
                with pytest.raises(common.Stopped):
                    signal.raise_signal(signal.SIGTERM)
                heard.append(1)
            monkeypatch.setattr(common, "_CLEANING", 60.0)
            signal.raise_signal(signal.SIGTERM)  # while cleaning up goes on, nothing
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [1, 1]


def wait_for(found, running, seconds=60):
    end = time.monotonic() + seconds
    while not found():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.parametrize("where", ["standard input", "spilled"])
def test_labels_do_not_stay_on_disk_when_a_command_is_stopped(tmp_path, name, where):
    temporary, out = tmp_path / "temporary", tmp_path / "out"
    temporary.mkdir()
    source, also = "-", []
    if where == "spilled":
        rng, n = np.random.default_rng(0), 250_000
        text = rng.integers(0, 10**9, n).astype(str)
        frame = pd.DataFrame({"a": rng.normal(size=n), "b": text, "label": np.where(rng.random(n) < 0.3, "yes", "no")})
        frame.to_parquet(tmp_path / "table.parquet")
        source, also = str(tmp_path / "table.parquet"), ["--memory", "16MB"]
    command = [sys.executable, "-c", BAGWISE, "bag", source, "--label", "label", "--positive", "yes", "--size", "8"]
    running = subprocess.Popen(
        [*command, "--out", str(out), *also],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if where == "standard input":
        running.stdin.write(b"a,label\n" + b"1,yes\n2,no\n" * 100_000)
        running.stdin.flush()
        wait_for(lambda: any(temporary.glob("*/input.csv")), running)
    else:
        wait_for(lambda: any(temporary.glob("*/spilled/duckdb_temp*")), running)
    running.send_signal(getattr(signal, name))
    _, said = running.communicate()
    assert running.returncode == 128 + getattr(signal, name)
    assert said.decode().strip() == "Stopped; no file was left half-written."
    assert list(temporary.iterdir()) == []
    assert not out.exists() or list(out.iterdir()) == []
