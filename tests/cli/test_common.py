"""What the command line says of wrong use: it names the option, table or column that is wrong, and no Python."""

import socket

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bagwise.cli import app
from bagwise.planning import Question


def told(*asked):
    """What a command that fails says, in one line."""
    ended = CliRunner().invoke(app, [str(part) for part in asked])
    assert ended.exit_code in (1, 2), ended.output
    return " ".join(ended.output.split()).partition("Error: ")[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("messages"), np.random.default_rng(0)
    events = pd.DataFrame({"bag": np.repeat(range(40), 8), "x": rng.normal(size=320)})
    y = (events["x"] + rng.normal(size=320) > 0).astype(int)
    reports = events.assign(count=y).groupby("bag", as_index=False)["count"].sum()
    tables = {
        "events": events,
        "reports": reports,
        "labelled": events.assign(y=y),
        "halves": reports.assign(count=0.5),
    }
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    fit = ["fit", folder / "events.csv", folder / "reports.csv", "--model", "ridge", "--out", folder / "model"]
    assert CliRunner().invoke(app, [str(part) for part in fit]).exit_code == 0
    return folder


def files(place, text):
    """Words of a command, with the files of the place."""
    return [place / word[1:] if word.startswith("@") else word for word in text.split()]


FIT = "fit @events.csv @reports.csv --model ridge --out @other"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (f"{FIT} --label y", "--label names the column of --labels: pass that, too"),
        ("evaluate @model @events.csv @reports.csv --label y", "--label names the column of --labels: pass that, too"),
        (
            f"{FIT} --labels @labelled.csv",
            "--label names column 'label', which the labels do not have: they have bag, x, y.",
        ),
        (f"{FIT} --hidden -1", "--hidden must be two counts, as in 0-9, got '-1'."),
        (
            f"{FIT} --count bag",
            "--keys must name the columns that tell the bag of a row: both tables have bag, which says something else",
        ),
        (f"{FIT} --epsilon 0", "--epsilon must be a finite number above 0, or the name of a column, got 0.0."),
        ("plan --rows 10000 --regret 2", "--regret must be a number of at least 1e-12 and at most 1, got 2.0."),
        (
            "predict @model @events.csv --reports @halves.csv --out @scores.csv",
            "of 8 rows reports a count of 0.5, which is no whole number: correct it, or declare its noise "
            "(--noise-variance).",
        ),
        ("train @shards --out /dev/null", "/dev/null is a device or a pipe, no file"),
        ("serve @model --host 999.1.1.1", "--host 999.1.1.1 and --port 8000 cannot be listened on ("),
        ("demo --out /proc/x", "/proc/x/events.parquet cannot be written (no such file or directory)"),
    ],
)
def test_what_is_wrong_is_named_as_it_was_typed(place, asked, said):
    assert said in told(*files(place, asked))


def test_a_folder_without_a_name_is_one_that_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told("train", "shards", "--out", "").startswith(". exists already: choose another place")


@pytest.mark.filterwarnings("ignore")  # of tables that it was fitted to
def test_columns_that_are_missing_may_count_as_missing_where_there_is_an_option(place):
    table = pd.read_csv(place / "events.csv").assign(other=np.random.default_rng(1).normal(size=320))
    table.to_csv(place / "two.csv", index=False)
    fit = ["fit", place / "two.csv", place / "reports.csv", "--model", "ridge", "--out", place / "of-two"]
    assert CliRunner().invoke(app, [str(part) for part in fit]).exit_code == 0
    said = "column 'other' is missing: the model was trained with it; add it"
    events, reports = place / "events.csv", place / "reports.csv"
    assert told("evaluate", place / "of-two", events, reports) == f"{said}."
    assert told("explain", place / "of-two", events) == f"{said}."
    way = f"{said}, or let such columns count as missing (--missing-columns='as-missing')."
    assert told("predict", place / "of-two", events, "--out", place / "scores.csv") == way


def test_columns_to_ignore_are_there(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"c": rng.choice(["u", "v"], 200), "d": rng.choice(["r", "s"], 200)})
    table.assign(label=rng.integers(0, 2, 200)).to_csv(tmp_path / "rows.csv", index=False)
    made = ["aggregate", tmp_path / "rows.csv", "--label", "label", "--out", tmp_path / "counts"]
    assert CliRunner().invoke(app, [str(part) for part in made]).exit_code == 0
    found = told("fit-aggregates", tmp_path / "counts", "--out", tmp_path / "model", "--ignore", "nope")
    assert found.startswith("--ignore names 'nope', which is no column: there are count, ")
    found = told("fit-aggregates", tmp_path / "counts", "--out", tmp_path / "model", "--rest", "nope")
    assert found == "--rest names 'nope', which is no value of any table: leave it out."


def test_a_port_that_is_taken_is_told(place):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = told("serve", place / "model", "--port", port)
    assert (
        found
        == f"--host 127.0.0.1 and --port {port} cannot be listened on (address already in use): choose another one."
    )


def test_python_says_what_options_leave_out():
    """None is what one types in Python."""
    with pytest.raises(ValueError, match=r"regret must be .* at most 1, or None, got 2\.$"):
        Question(rows=10_000, regret=2)
