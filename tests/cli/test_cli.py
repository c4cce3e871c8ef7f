import json
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import replace
from importlib.metadata import entry_points

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bagwise
from bagwise import __main__, saving
from bagwise.cli import app
from bagwise.cli.common import typed
from bagwise.datasets import synthetic
from bagwise.experiments import samples

FILES = {"events.parquet", "reports.parquet", "demo.png"}
ROWS = "10240"  # the least the demo takes


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("cli") / "bagwise-demo"


@pytest.fixture(scope="module")
def told(out):
    """In the folder where `out` is what it makes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(out.parent)
        patch.setattr(sys, "argv", ["bagwise"])
        return call("demo", "--rows", ROWS)


def names(folder):
    return {path.name for path in folder.iterdir()}


def one_sentence(result, code=1):
    assert result.exit_code == code
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "Traceback" not in line
    return line


# -- the whole ----------------------------------------------------------------------------------------------------


def test_version():
    result = call("--version")
    assert (result.exit_code, result.stdout) == (0, f"bagwise {bagwise.__version__}\n")


@pytest.mark.filterwarnings("always:of no use to users")
@pytest.mark.parametrize("kind", [DeprecationWarning, PendingDeprecationWarning, FutureWarning, UserWarning])
def test_warnings_for_developers_of_dependencies_are_not_shown(kind, monkeypatch):
    def plan(*_, **__):
        warnings.warn("of no use to users", kind, stacklevel=1)
        raise ValueError("enough")

    monkeypatch.setattr("bagwise.planning.curves", plan)
    shown = call("plan", "--rows", 10_000).stderr
    assert "Error: enough" in shown
    assert ("Warning: of no use to users" in shown) is (kind is UserWarning)


def test_help_names_the_commands():
    result = call("--help")
    assert result.exit_code == 0
    for word in ("demo", "reproduce", "bench", "--version", "labels are known only for groups"):
        assert word in result.stdout
    assert "reproduce" in call().output  # no command: the same


def test_the_script_is_this_program():
    (script,) = entry_points(group="console_scripts", name="bagwise")
    assert script.load() is __main__.run


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from bagwise.cli import app\n"
        "try: app(['demo', '--help'])\n"
        "finally: print('loaded', {'numpy', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "loaded set()" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["unknown"],
        ["demo", "--rows", "many"],
        ["demo", "--seed", "-1"],
        ["reproduce"],
        ["reproduce", "nothing"],
        ["reproduce", "variance", "--scale", "huge"],
        ["reproduce", "variance", "--jobs", "0"],
    ],
)
def test_wrong_usage_exits_with_2(arguments):
    result = call(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


# -- demo ---------------------------------------------------------------------------------------------------------


def test_demo_tells_the_story(told, out):
    assert told.exit_code == 0, told.stderr
    assert "Warning" not in told.stderr
    assert "10,240 impressions" in told.stdout
    assert "Bags of 256 are too few here" in told.stdout  # 30 of them
    assert "finds the bags random" in told.stdout
    number = r"0\.\d{3}"
    measured = rf"{number} +{number} ± {number} +{number} +{number} ± {number}"
    for size in (16, 64, 256):
        for method in ("ridge on bags", "bag mean as label"):
            assert re.search(rf"^ *{size} +{method} +{measured}", told.stdout, re.MULTILINE)
    assert re.search(rf"any +constant guess +{measured}", told.stdout)
    assert re.search(rf"1 +individual labels +{number} +{number} *$", told.stdout, re.MULTILINE)
    assert "bagwise reproduce variance" in told.stdout
    assert names(out) == FILES


def test_the_lines_it_prints_run(told, out, monkeypatch):
    monkeypatch.chdir(out.parent)
    shown = re.findall(r"^ {4}(\S.*)$", told.stdout, re.MULTILINE)
    lines = "\n".join(line for line in shown if not line.startswith("bagwise "))
    assert "from_reports" in lines
    shown = {}
    exec(lines, shown)
    assert shown["model"].predict_proba(shown["X"]).shape == (int(ROWS), 2)
    assert len(shown["bags"]) == 7680 // 64 + 2560 // 64


def test_the_commands_it_prints_run(told, out, monkeypatch):
    """From two tables to scores; the label-free interval holds the truth, which only the simulation knows."""
    commands = re.findall(r"^ {4}bagwise (.*)$", told.stdout, re.MULTILINE)
    monkeypatch.chdir(out.parent)
    monkeypatch.setitem(bagwise.BagBoostingClassifier.__init__.__kwdefaults__, "n_estimators", 20)
    assert [line.split()[0] for line in commands] == ["diagnose", "fit", "evaluate", "predict"]
    results = [call(*shlex.split(line)) for line in commands]
    assert [result.exit_code for result in results] == [0, 0, 0, 0], [result.stderr for result in results]
    assert "verdict: random" in results[0].stdout
    found = saving.inspect(out / "model").about["evaluation"]["accuracy"]
    y = synthetic(int(ROWS), random_state=np.random.default_rng(0)).y
    h = pd.read_parquet(out / "scored.parquet")["prediction"]
    assert found["low"] < ((h > 0.5) == y).mean() < found["high"]


@pytest.fixture
def script(tmp_path):
    """The program of an environment that is not activated."""
    place = tmp_path / ".venv" / "bin" / "bagwise"
    place.parent.mkdir(parents=True)
    place.write_text(f"#!{sys.executable}\nfrom bagwise.cli import run\n\nrun()\n")
    place.chmod(0o755)
    return place


def test_it_is_called_what_the_shell_finds(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other" / "bagwise"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    python = str(script.with_name("python3"))
    (script.with_name("python")).symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", python)
    for argv, path, said in (
        (script, script.parent, ("bagwise", "python")),
        (".venv/bin/bagwise", script.parent, ("bagwise", "python")),
        (".venv/bin/bagwise", "/nowhere", (".venv/bin/bagwise", ".venv/bin/python3")),
        (script, other.parent, (".venv/bin/bagwise", ".venv/bin/python3")),  # another one would be found
        ("/a b/bagwise", "/nowhere", ("'/a b/bagwise'", ".venv/bin/python3")),
        ("/lib/bagwise/__main__.py", "/nowhere", (".venv/bin/python3 -m bagwise", ".venv/bin/python3")),
        ("/lib/bagwise/__main__.py", script.parent, ("python -m bagwise", "python")),
    ):
        monkeypatch.setattr(sys, "argv", [str(argv)])
        monkeypatch.setenv("PATH", str(path))
        assert typed() == said


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["bagwise-demo", "what's new"])
def test_the_commands_it_prints_run_in_the_shell_it_was_started_from(script, folder, tmp_path):
    def shell(command):
        return subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=100)

    told = shell(f".venv/bin/bagwise demo --rows {ROWS} --out {shlex.quote(folder)}")
    assert told.returncode == 0, told.stderr
    commands = [*re.findall(r"^ {4}(\S+ (?:diagnose|fit|evaluate|predict) .*)$", told.stdout, re.MULTILINE)]
    assert len(commands) == 4
    commands.append(re.search(r"losses: (.*) reproduce variance$", told.stdout, re.MULTILINE)[1] + " --version")
    for command in commands:
        assert command.startswith(".venv/bin/bagwise ")
        done = shell(command)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / folder / "scored.parquet").exists()
    lines = re.findall(r"^ {4}(\S.*)$", told.stdout.split("or in Python")[1], re.MULTILINE)
    assert lines[0].startswith("import")
    python = re.search(r"^or in Python, which is (.*):$", told.stdout, re.MULTILINE)[1]
    assert shell(f"{python} -c {shlex.quote(chr(10).join(lines))}").returncode == 0


@pytest.mark.slow
def test_demo_is_safe_to_repeat(told, out):
    before = pd.read_parquet(out / "events.parquet")
    (out / "notes.txt").write_text("mine")
    assert call("demo", "--out", out, "--rows", ROWS, "--seed", "1").exit_code == 0
    assert names(out) >= FILES | {"notes.txt"}
    assert not pd.read_parquet(out / "events.parquet").equals(before)


@pytest.mark.slow
def test_demo_leaves_other_folders_alone(tmp_path):
    (tmp_path / "events.parquet").write_text("mine")
    line = one_sentence(call("demo", "--out", tmp_path, "--rows", ROWS))
    assert "which is not the demo's: name another folder (--out), or write there all the same (--force)" in line
    assert (tmp_path / "events.parquet").read_text() == "mine"
    assert names(tmp_path) == {"events.parquet"}
    assert call("demo", "--out", tmp_path, "--rows", ROWS, "--force").exit_code == 0
    assert names(tmp_path) == FILES


def test_errors_are_one_sentence_unless_debug(tmp_path):
    line = one_sentence(call("demo", "--out", tmp_path, "--rows", "100"))
    assert line.startswith("Error: --rows must be at least 10,240")
    (tmp_path / "file").touch()
    assert call("demo", "--out", tmp_path / "file").exit_code == 2
    line = one_sentence(call("reproduce", "variance", "--out", tmp_path / "file" / "below"))
    assert line.endswith("not a directory.")
    assert isinstance(call("demo", "--out", tmp_path / "new", "--rows", "100", "--debug").exception, ValueError)
    assert names(tmp_path) == {"file"}


def test_interrupt_exits_with_130(tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("bagwise.demo.diagnose", interrupted)  # late, when all but writing is done
    line = one_sentence(call("demo", "--out", tmp_path / "new", "--rows", ROWS), code=130)
    assert line.startswith("Stopped")
    assert not (tmp_path / "new").exists()


# -- reproduce ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        ("variance", ["h = x²", "leave_one_out", "because E[d] = 0", "256"]),
        pytest.param("samples", ["iii", "ours_estimated", "slope", "128"], marks=pytest.mark.slow),
    ],
)
def test_reproduce_prints_and_writes(tmp_path, monkeypatch, experiment, words):
    few = {"trials": 100, "budget": 10_000}  # and one problem: they say as much here
    monkeypatch.setattr(samples, "QUICK", replace(samples.QUICK, problems=("iii",), **few))
    result = call("reproduce", experiment, "--scale", "quick", "--jobs", "1", "--seed", "1", "--out", tmp_path / "new")
    assert result.exit_code == 0, result.stderr
    for word in words:
        assert word in result.stdout
    assert names(tmp_path / "new") == {f"{experiment}-quick.parquet", f"{experiment}-quick.png"}
    assert f"{experiment}-quick.png" in result.stdout
    frame = pd.read_parquet(tmp_path / "new" / f"{experiment}-quick.parquet")
    assert {"k", "label", "config", "config_hash", "bagwise_version"} <= set(frame)


def test_reproduce_takes_the_seed_and_the_scale(tmp_path, monkeypatch):
    seen = []

    def stop(config, *, progress):
        seen.append((config.random_state, config.n_jobs, config.rows))
        raise KeyboardInterrupt

    monkeypatch.setattr("bagwise.experiments.variance.run", stop)
    for options in (["--seed", "7"], ["--scale", "quick", "--jobs", "3"]):
        assert call("reproduce", "variance", "--out", tmp_path, *options).exit_code == 130
    assert seen == [(7, 2, 2**20), (0, 3, 2**14)]
    assert names(tmp_path) == set()


@pytest.mark.slow
def test_reproduce_takes_a_config_file(tmp_path):
    file, out = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text("rows = 2048\nsizes = [4, 16]\nrepetitions = 2\nrandom_state = 5\nn_jobs = 1\n")
    for options, seed in ([], 5), (["--seed", "7"], 7):  # what is typed wins over the file
        result = call("reproduce", "variance", "--config", file, "--out", out, *options)
        assert result.exit_code == 0, result.stderr
        assert names(out) == {"variance-mine.parquet", "variance-mine.png"}
        frame = pd.read_parquet(out / "variance-mine.parquet")
        assert set(frame["k"]) == {4, 16}
        assert json.loads(frame["config"][0])["random_state"] == seed
    file.write_text("row = 2048\n")
    line = one_sentence(call("reproduce", "variance", "--config", file, "--out", out))
    assert "unknown keys row: the keys are rows" in line
    assert call("reproduce", "variance", "--config", tmp_path / "none.toml").exit_code == 2


# -- bench --------------------------------------------------------------------------------------------------------


def test_bench_prints_tables_and_goes_on_where_it_stopped(tmp_path):
    file, out = tmp_path / "tiny.toml", tmp_path / "out"
    file.write_text('datasets = ["digits"]\nsizes = [8]\nmethods = ["ridge", "class_prior"]\npartitions = 2\n')
    for _ in range(2):  # the second finds every run done
        result = call("bench", "--config", file, "--out", out, "--report", tmp_path / "tables.md")
        assert result.exit_code == 0, result.stderr
        assert "`BagRidgeClassifier`" in result.stdout
        assert names(out) == {"bench-tiny", "bench-tiny.parquet"}
        assert "| Accuracy | k = 8 |" in (tmp_path / "tables.md").read_text(encoding="utf-8")
        assert len(pd.read_parquet(out / "bench-tiny.parquet")) == 4
    file.write_text('methods = ["magic"]\n')
    line = one_sentence(call("bench", "--config", file, "--out", out))
    assert "methods must be" in line
    assert "magic" in line


@pytest.mark.slow
def test_bench_of_formations_runs_parts_and_shows_what_is_stored(tmp_path):
    out, page = tmp_path / "out", tmp_path / "page.md"
    page.write_text("# Benchmark\n\nof random bags\n", encoding="utf-8")
    parts = ("--formations", "--out", out, "--report", page, "--data", "digits", "--sizes", "16")
    for cases, methods in (("rates", "ridge,class_prior"), ("effects-1", "ridge,class_prior,supervised_logistic")):
        result = call("bench", *parts, "--cases", cases, "--methods", methods, "--seeds", "7-8")
        assert result.exit_code == 0, result.stderr
    assert names(out) == {"formations", "formations.parquet"}
    assert len(pd.read_parquet(out / "formations.parquet")) == 2 * (2 * 2 + 3)
    for _ in range(2):
        result = call("bench", "--formations", "--stored", "--seeds", "7,8", "--out", out, "--report", page)
        assert result.exit_code == 0, result.stderr
        assert "| Digits (odd): effects of sd 1, k = 16 | ridge | " in result.stdout
        assert "not run" in result.stdout  # Adult
        text = page.read_text(encoding="utf-8")
        assert text.startswith("# Benchmark\n\nof random bags\n\n# Benchmark of formations\n")
        assert text.count("### ") == 3
    line = one_sentence(call("bench", "--formations", "--cases", "odd", "--out", out))
    assert "must be names out of random, rates-strong" in line
    assert "add --formations" in one_sentence(call("bench", "--data", "adult", "--out", out), code=2)
    assert "--seeds must be" in one_sentence(call("bench", "--formations", "--seeds", "a-b", "--out", out), code=2)
