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
from bagwise.utils.files import TemporaryFolder, new_folder, remove_leftovers, replacing

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
    strange = tmp_path / ".bagwise-abcdefgh"  # by its name alone
    strange.mkdir()
    (strange / "letter.txt").write_text("mine")
    os.symlink(strange, tmp_path / ".bagwise-12345678")
    dead.kill()
    dead.wait()
    dead.stdout.close()
    assert os.path.isdir(left)
    remove_leftovers(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {os.path.basename(held), strange.name, ".bagwise-12345678"}
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
    assert removed[:2] == ["spilled", folder.path.name]


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
    for path in paths:
        path.write_text("old")
    whole = os.rename

    def stopped_after(source, target):
        whole(source, target)
        signal.raise_signal(signal.SIGTERM)

    def write():
        with ending.stopped_by_signals(), replacing(*paths) as new:
            [path.write_text("new") for path in new]
            monkeypatch.setattr(os, "rename", stopped_after)

    with pytest.raises(ending.Stopped):
        write()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"events": "new", "reports": "new"}


KILLED = """
import os, signal, sys
from pathlib import Path
from bagwise.utils.files import new_folder, replacing
place, count = Path(sys.argv[1]), int(sys.argv[2])
whole = os.rename
def rename(source, target):
    global count
    if not count:
        os.kill(os.getpid(), signal.SIGKILL)
    count -= 1
    whole(source, target)
if sys.argv[3] == "files":
    with replacing(place / "events", place / "reports") as new:
        [path.write_text("new") for path in new]
        os.rename = rename
else:
    with new_folder(place / "model", replace=True) as new:
        [(new / name).write_text("new") for name in ("events", "reports")]
        os.rename = rename
"""


@pytest.mark.parametrize(("what", "moves"), [("files", 5), ("folder", 3)])
@pytest.mark.parametrize("how", ["the usual place", "the same place"])
def test_who_is_killed_while_outputs_take_their_places_leaves_old_or_new_ones(tmp_path, monkeypatch, what, moves, how):
    """There are never new files beside old ones; the next process that starts, anywhere, fills what is empty."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    found = []
    for count in range(moves + 1):
        place = tmp_path / str(count)
        inside = place if what == "files" else place / "model"
        inside.mkdir(parents=True)
        for name in ("events", "reports"):
            (inside / name).write_text("old")
        environment = {**os.environ, "TMPDIR": str(temporary)}
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(place), str(count), what], env=environment, check=False
        )
        assert done.returncode == (0 if count == moves else -signal.SIGKILL)
        at_once = {path.read_text() for path in inside.glob("[!.]*")}
        assert len(at_once) <= 1
        remove_leftovers(temporary if how == "the usual place" else place)
        found.append({path.name: path.read_text() for path in inside.iterdir()})
        assert set(os.listdir(place)) == ({"events", "reports"} if what == "files" else {"model"})
    remove_leftovers(temporary)
    assert list(temporary.iterdir()) == []
    old, new = ({"events": age, "reports": age} for age in ("old", "new"))
    assert found[0] == old
    assert found == sorted(found, key=lambda one: one == new)  # from some step on it is the new ones
    assert found[-1] == new


def test_what_came_since_stays_when_a_killed_process_is_cleaned_up_after(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    for name in ("events", "reports"):
        (place / name).write_text("old")
    subprocess.run([sys.executable, "-c", KILLED, str(place), "2", "files"], check=False)
    assert not {"events", "reports"} & set(os.listdir(place))
    (place / "events").write_text("mine")
    remove_leftovers(place)
    assert {path.name: path.read_text() for path in place.iterdir()} == {"events": "mine", "reports": "old"}


def test_without_force_the_second_of_two_writers_is_told(tmp_path):
    for write in (lambda: replacing(tmp_path / "scores", force=False), lambda: new_folder(tmp_path / "model")):
        first, second = write(), write()
        paths = [*np.ravel(first.__enter__()), *np.ravel(second.__enter__())]
        for path, text in zip(paths, ("first", "second"), strict=True):
            (path / "file" if path.is_dir() else path).write_text(text)
        first.__exit__(None, None, None)
        with pytest.raises(FileExistsError, match="written by another process meanwhile"):
            second.__exit__(None, None, None)
    assert (tmp_path / "scores").read_text() == (tmp_path / "model" / "file").read_text() == "first"
    assert set(os.listdir(tmp_path)) == {"scores", "model"}


def test_an_output_takes_the_place_of_its_own_kind_alone(tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one").write_text("mine")
    for names in (["letters"], ["letters", "other"]):
        with pytest.raises(IsADirectoryError, match="letters"), replacing(*(tmp_path / one for one in names)) as new:
            [path.write_text("new") for path in new]
    with pytest.raises(NotADirectoryError, match="one"), new_folder(tmp_path / "letters" / "one", replace=True):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["letters", "one"]


def test_a_failure_leaves_no_folder_that_was_made_for_it(tmp_path):
    (tmp_path / "there").mkdir()
    for folder in ("a/b", "there"):
        with pytest.raises(RuntimeError), replacing(tmp_path / folder / "file"):
            raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


FULL = """
import resource, sys
from bagwise.utils.files import replacing
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))  # as a disk that is full soon
with replacing(sys.argv[1]) as (path,):
    if sys.argv[2] == "python":
        path.write_bytes(bytes(100_000))
    else:
        import pyarrow as pa, pyarrow.csv
        pyarrow.csv.write_csv(pa.table({"x": range(100_000)}), path)
"""


@pytest.mark.parametrize("by", ["python", "arrow"])
def test_a_full_disk_is_told_with_its_place(tmp_path, by):
    place = tmp_path / "new" / "scores.csv"
    done = subprocess.run([sys.executable, "-c", FULL, place, by], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == f"OSError: [Errno 27] File too large: '{place}'"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("after", ["old", "whole"])
def test_a_model_that_is_being_replaced_is_never_lost(default_signals, tmp_path, monkeypatch, name, after):
    """A signal comes when the old one has been moved away, or when the new one is about to come."""
    place, whole = tmp_path / "m", os.rename
    model_folder.write(place, {"kind": "old"}, {}, force=False)

    def stopped_after(source, target):
        whole(source, target)
        if after in str(target).split(os.sep):
            monkeypatch.setattr(os, "rename", whole)
            signal.raise_signal(getattr(signal, name))

    monkeypatch.setattr(os, "rename", stopped_after)
    with pytest.raises(ending.Stopped), ending.stopped_by_signals():
        model_folder.write(place, {"kind": "new"}, {}, force=True)
    assert os.rename is whole
    assert model_folder.read(place)[0]["kind"] == "new"  # it was whole, and the steps are not cut in two
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


def test_labels_that_a_killed_command_left_go_when_the_next_one_starts(tmp_path):
    """The one thing that can leave labels on disk: a process that nobody could ask to end."""
    temporary, out = tmp_path / "temporary", tmp_path / "out"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", BAGWISE]
    bag = [*command, "bag", "-", "--label", "label", "--size", "8", "--out", str(out)]
    with subprocess.Popen(bag, env=environment, stdin=subprocess.PIPE) as running:
        running.stdin.write(b"a,label\n" + b"1,1\n2,0\n" * 10_000)
        running.stdin.flush()
        wait_for(lambda: any(temporary.glob("*/input.csv")), running)
        running.kill()
    (left,) = temporary.iterdir()
    assert left.stat().st_mode & 0o077 == 0  # for nobody else
    subprocess.run([*command, "--version"], env=environment, capture_output=True, check=True)
    assert list(temporary.iterdir()) == []
    assert not out.exists()


@pytest.mark.slow
def test_commands_that_are_killed_at_any_moment_leave_whole_outputs(tmp_path):
    """Events and reports of one release, a model that loads, scores that are whole; or what was there before."""
    temporary, rng = tmp_path / "temporary", np.random.default_rng(0)
    temporary.mkdir()
    n = 20_000
    frame = pd.DataFrame({"group": rng.integers(0, 50, n).astype(str), "x": rng.normal(size=n)})
    frame.assign(label=(rng.random(n) < 0.3).astype(int)).to_parquet(tmp_path / "table.parquet")
    tables = [str(tmp_path / "bags" / name) for name in ("events.parquet", "reports.parquet")]
    model, scores = str(tmp_path / "model"), str(tmp_path / "scores.parquet")
    commands = (
        ["bag", str(tmp_path / "table.parquet"), "--label", "label", "--by", "group", "--out", str(tmp_path / "bags")],
        ["fit", *tables, "--model", "ridge", "--out", model],
        ["predict", model, tables[0], "--out", scores],
    )
    environment, killed = {**os.environ, "TMPDIR": str(temporary)}, 0
    for options in commands:
        began = time.monotonic()
        command = [sys.executable, "-c", BAGWISE, *options, "--force"]
        subprocess.run(command, env=environment, capture_output=True, check=True)
        whole = time.monotonic() - began
        for share in rng.uniform(0.3, 1.1, size=6):
            with subprocess.Popen(
                command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            ) as one:
                try:
                    one.wait(share * whole)
                except subprocess.TimeoutExpired:
                    one.kill()
                    killed += 1
    assert killed > 5
    remove_leftovers(temporary)
    assert {path.name for path in tmp_path.iterdir()} == {
        "temporary",
        "table.parquet",
        "bags",
        "model",
        "scores.parquet",
    }
    assert {path.name for path in (tmp_path / "bags").iterdir()} == {"events.parquet", "reports.parquet"}
    assert list(temporary.iterdir()) == []
    assert len(pd.read_parquet(scores)) == n
    again = [sys.executable, "-c", BAGWISE, "evaluate", model, *tables]
    assert subprocess.run(again, env=environment, capture_output=True, check=False).returncode == 0
