"""The end of the program: by signals at any moment, and with the process that it works for."""

import os
import signal
import subprocess
import sys
import time

import pytest

CHILD = "from bagwise.utils.signals import end_with_parent; import sys, time; end_with_parent(int(sys.argv[1]))\n"
CHILD += "print('at work', flush=True)\nwhile True: sum(range(1000))"
PARENT = "import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())]).wait()"

WORKERS = """
import os, time
from bagwise.experiments.harness import in_processes
def work(number):
    print("at work", flush=True)
    time.sleep(600)
if __name__ == "__main__":
    list(in_processes(work, [(1,), (2,)], n_jobs=2))
"""

TORCHRUN = """
import sys
from pathlib import Path
from bagwise.distributed.torchrun import run
run(["sleeper", sys.argv[2]], 2, Path(sys.argv[1]), lambda: None)
"""
SLEEPER = """
import sys, time
from bagwise.distributed import joined
with joined(), open(sys.argv[1], "w") as pipe:
    print("at work", file=pipe, flush=True)
    time.sleep(600)
"""


def end_of(stream, running, workers):
    """Seconds from the end of a process, which is killed when its workers are at work, to that of the last of them."""
    assert [stream.readline().strip() for _ in range(workers)] == ["at work"] * workers
    running.kill()
    began = time.monotonic()
    assert stream.read() == ""  # nobody holds it any more
    running.wait()
    return time.monotonic() - began


def test_who_works_for_a_process_that_is_killed_ends_at_once():
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert end_of(running.stdout, running, 1) < 10


def test_who_begins_after_its_parent_has_ended_ends_at_once():
    command = [sys.executable, "-c", CHILD, str(2**22 + 1)]  # no process has such a number
    assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=60, check=False).returncode == -signal.SIGKILL


@pytest.mark.slow
def test_workers_of_experiments_end_with_them(tmp_path):
    (tmp_path / "experiment.py").write_text(WORKERS)
    command = [sys.executable, str(tmp_path / "experiment.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert end_of(running.stdout, running, 2) < 30


@pytest.mark.slow
def test_processes_of_torchrun_end_with_who_launched_them(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-c", TORCHRUN, str(tmp_path), str(tmp_path / "pipe")]
    with subprocess.Popen(command) as running, (tmp_path / "pipe").open() as pipe:
        assert end_of(pipe, running, 2) < 30


PROGRAM = """
import builtins, os, signal, sys
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
whole, number, count, how = builtins.__import__, getattr(signal, sys.argv[1]), int(sys.argv[2]), sys.argv[3]
from bagwise.__main__ import run
def load(name, *others, **named):
    global count
    count -= 1
    if count == 0:
        if how == "as it is":
            signal.raise_signal(number)
        try:
            signal.raise_signal(number)
        except BaseException:
            raise ImportError("a library makes an error of its own of it") from None
    return whole(name, *others, **named)
builtins.__import__ = load
sys.argv = ["bagwise", "inspect", "nothing"]
run()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("how", ["as it is", "as another error"])
def test_a_signal_while_the_program_loads_has_its_exit_code_and_one_line(name, how):
    count = {"as it is": 30, "as another error": 3}[how]
    command = [sys.executable, "-c", PROGRAM, name, str(count), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + getattr(signal, name)
    assert done.stderr == "Stopped; no file was left half-written.\n"


DUCK = """
import signal, sys, threading, time, os
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from bagwise.tables import publish
def query(rows, *_, **__):  # which takes minutes; threads of DuckDB are at work, and this one waits for them
    threading.Timer(0.3, os.kill, (os.getpid(), getattr(signal, NAME))).start()
    every = "SELECT count(*) FROM range(10000000) AS a(x), range(10000000) AS b(y) WHERE hash(x + y) = 1"
    return rows.engine.fetch(rows.engine.connection.sql(every))
publish.classes_of = query
from bagwise.__main__ import run
sys.argv = ["bagwise", "bag", sys.argv[1], "--label", "y", "--size", "8", "--out", sys.argv[2]]
run()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_inside_of_duckdb_has_its_exit_code(tmp_path, name):
    (tmp_path / "table.csv").write_text("x,y\n1,0\n")
    program = DUCK.replace("NAME", repr(name))
    command = [sys.executable, "-c", program, str(tmp_path / "table.csv"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 128 + getattr(signal, name)
    assert done.stderr.splitlines()[-1] == "Stopped; no file was left half-written."
    assert "Traceback" not in done.stderr
