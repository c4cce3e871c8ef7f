"""Temporary folders, gone with their process however it ends, and files that are whole or not there at all."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from bagwise.saving import folder as model_folder
from bagwise.tables.engines.duckdb import DuckDB
from bagwise.utils import signals as ending
from bagwise.utils.files import TemporaryFolder, remove_leftovers, replacing

HOLDER = "import sys, time; from bagwise.utils.files import TemporaryFolder\nfolder = TemporaryFolder(sys.argv[1])\n"
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
    monkeypatch.setattr("bagwise.utils.files.shutil.rmtree", lambda path, **_: removed.append(path.name))
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
    monkeypatch.setattr("bagwise.utils.files._machine", lambda: ("another", "started at another time"))
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

    monkeypatch.setattr("bagwise.utils.files.fcntl.flock", unknown)
    with TemporaryFolder(tmp_path) as folder:
        remove_leftovers(tmp_path)
        assert folder.is_dir()  # whose it is cannot be told: it stays
    assert list(tmp_path.iterdir()) == []


class Garbage:
    """What is raised while this is collected gets lost."""

    def __del__(self):
        signal.raise_signal(signal.SIGTERM)


@pytest.fixture
def default_signals():
    """As in a program that nobody has told anything, whatever whoever runs the tests ignores."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_got_lost_comes_again(default_signals, monkeypatch):
    monkeypatch.setattr(ending, "_AGAIN", 0.05)
    heard = []

    def go_on():
        with ending.stopped_by_signals() as signals:
            Garbage()
            heard.extend(signals)
            time.sleep(60)

    with pytest.raises(ending.Stopped) as stopped:
        go_on()
    assert heard == [signal.SIGTERM]  # and nobody minded
    assert stopped.value.number == signal.SIGTERM
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_two_files_are_replaced_together(default_signals, tmp_path, monkeypatch):
    paths = [tmp_path / "events", tmp_path / "reports"]
    whole = os.replace

    def stopped_after(source, target):
        whole(source, target)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(os, "replace", stopped_after)
    with pytest.raises(ending.Stopped), ending.stopped_by_signals(), replacing(*paths) as new:
        [path.write_text("new") for path in new]
    assert {path.name for path in tmp_path.iterdir()} == {"events", "reports"}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("after", ["old", "m"])
def test_a_model_that_is_being_replaced_is_never_lost(default_signals, tmp_path, monkeypatch, name, after):
    """A signal comes when the old one has been moved away, or when the new one has come."""
    place, whole = tmp_path / "m", os.rename
    model_folder.write(place, {"kind": "old"}, {}, force=False)

    def stopped_after(source, target):
        whole(source, target)
        if str(target).endswith(after):
            monkeypatch.setattr(os, "rename", whole)
            signal.raise_signal(getattr(signal, name))

    monkeypatch.setattr(os, "rename", stopped_after)
    with pytest.raises(ending.Stopped), ending.stopped_by_signals():
        model_folder.write(place, {"kind": "new"}, {}, force=True)
    assert model_folder.read(place)[0]["kind"] == ("old" if after == "old" else "new")
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("said", [KeyboardInterrupt(), None])
def test_a_query_ends_before_what_it_made_is_removed(said):
    """DuckDB goes on with a query that Python was stopped in, and whoever asks next waits for it."""
    asked = []

    class Duck:
        def interrupt(self):
            asked.append("interrupt")

        def execute(self, query):
            asked.append(query.split()[0])
            if query.startswith("CREATE"):
                raise RuntimeError("Query interrupted") from said

    duck = Duck()
    with pytest.raises(KeyboardInterrupt):
        DuckDB(duck).keep(None)
    assert asked == ["CREATE", "interrupt", "DROP"]


def wait_for(found, running, seconds=60):
    end = time.monotonic() + seconds
    while not found():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("SIGTERM", "spilled"),
        ("SIGINT", "standard input"),
        pytest.param("SIGHUP", "standard input", marks=pytest.mark.slow),  # handled as SIGTERM is: below
        pytest.param("SIGTERM", "standard input", marks=pytest.mark.slow),
        pytest.param("SIGHUP", "spilled", marks=pytest.mark.slow),
        pytest.param("SIGINT", "spilled", marks=pytest.mark.slow),
    ],
)
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
    assert said.decode().splitlines()[-1] == "Stopped; no file was left half-written."  # after progress, if it was slow
    assert list(temporary.iterdir()) == []
    assert not out.exists() or list(out.iterdir()) == []


AGAIN = """
import bagwise.utils.files as files, bagwise.cli as cli, signal, sys
first, second = (getattr(signal, name) for name in sys.argv[1:3])
whole = files._remove_all
def remove(folder):
    signal.raise_signal(second)
    whole(folder)
def stopped(*_, **__):
    files._remove_all = remove
    signal.raise_signal(first)
import bagwise.tables.publish as holding
holding.classes_of = stopped
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["bagwise", "bag", "-", "--label", "label", "--size", "8", "--out", sys.argv[3]]
cli.run()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("SIGHUP", "SIGINT"),
        pytest.param("SIGTERM", "SIGINT", marks=pytest.mark.slow),
        pytest.param("SIGINT", "SIGINT", marks=pytest.mark.slow),
        pytest.param("SIGINT", "SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_a_second_signal_does_not_cut_cleaning_up_short(tmp_path, first, second):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", AGAIN, first, second, tmp_path / "out"],
        env={**os.environ, "TMPDIR": str(temporary)},
        input=b"a,label\n" + b"1,1\n2,0\n" * 100,
        capture_output=True,
        check=False,
    )
    assert done.returncode in {128 + getattr(signal, name) for name in (first, second)}, done.stderr
    assert list(temporary.iterdir()) == []


EARLY = """
import bagwise.cli as cli, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_DFL)
cli.Commands.get_command = lambda *_: signal.raise_signal(signal.SIGTERM)
sys.argv = ["bagwise", "diagnose"]
cli.run()
"""


def test_a_signal_before_the_command_begins_has_its_own_exit_code():
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr.strip() == "Stopped; no file was left half-written."
