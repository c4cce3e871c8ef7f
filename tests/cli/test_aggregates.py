"""The commands on tables of counts, end to end."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.cli.test_tables import call, sentence
from tests.linear.test_aggregated import rows_of


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    place = tmp_path_factory.mktemp("aggregates")
    X, y = rows_of(np.random.default_rng(0), 8000, features=4, effect=0.8)
    frame = pd.DataFrame(X).assign(age=np.random.default_rng(1).integers(18, 90, 8000))
    frame[:6000].assign(label=y[:6000]).to_parquet(place / "rows.parquet")
    frame[6000:].assign(bag=np.arange(2000)).to_parquet(place / "events.parquet")
    pd.DataFrame({"bag": np.arange(2000), "count": y[6000:]}).to_parquet(place / "reports.parquet")
    return place


def test_rows_become_tables_and_tables_a_model_that_scores_rows(files, tmp_path):
    pytest.importorskip("opendp")
    noise = ["--epsilon", 6, "--delta", 1e-6]
    made = call("aggregate", files / "rows.parquet", "--label", "label", "--out", tmp_path / "t", "--bins", 5, *noise)
    assert made.exit_code == 0, made.output
    assert "15 tables, by f0, f1, f2, f3, age" in made.stdout
    model = tmp_path / "model"
    fit = call("fit-aggregates", tmp_path / "t", "--out", model)
    assert fit.exit_code == 0, fit.output
    assert "R² of single rows by the tables" in fit.stdout
    assert call("inspect", model).stdout.split("Made with")[0].strip() == fit.stdout.split("Written")[0].strip()
    scored = call("predict", model, files / "events.parquet", "--out", tmp_path / "scored.parquet")
    assert scored.exit_code == 0, scored.output
    h = pd.read_parquet(tmp_path / "scored.parquet")["prediction"]
    y = pd.read_parquet(files / "reports.parquet")["count"]
    measured = call("evaluate", model, files / "events.parquet", files / "reports.parquet", "--json")
    assert measured.exit_code == 0, measured.output
    found = json.loads(measured.stdout)
    assert found["brier"]["value"] == pytest.approx(np.mean((y - h) ** 2), abs=1e-3)
    assert found["brier"]["high"] < y.mean() * (1 - y.mean())
    facts = json.loads(call("inspect", model, "--json").stdout)
    assert facts["aggregates"]["summary"]["features"] == 5


def test_json_says_what_the_text_does(files, tmp_path):
    made = call(
        "aggregate", files / "rows.parquet", "--label", "label", "--out", tmp_path / "t", "--ignore", "age", "--json"
    )
    assert json.loads(made.stdout)["features"] == ["f0", "f1", "f2", "f3"]
    fit = call(
        "fit-aggregates", tmp_path / "t", "--out", tmp_path / "m", "--model", "ridge", "--json", "--noise-variance", 0
    )
    assert json.loads(fit.stdout)["estimator"] == "AggregatedRidgeClassifier"


def test_noise_is_told_for_each_table(files, tmp_path):
    """By a number for each, or by a column of theirs: the same model."""
    frame, rng, scales = (
        pd.read_parquet(files / "rows.parquet"),
        np.random.default_rng(0),
        {"f0": 5, "f1": 20, "both": 9},
    )
    names = {"f0": ["f0"], "f1": ["f1"], "both": ["f0", "f1"]}
    for name, scale in scales.items():
        cells = frame.groupby(names[name])["label"].agg(count="size", sum="sum").reset_index()
        cells[["count", "sum"]] += rng.normal(scale=scale, size=(len(cells), 2))
        cells.to_csv(tmp_path / f"{name}.csv", index=False)
        cells.assign(sigma=float(scale)).to_csv(tmp_path / f"{name}-told.csv", index=False)
    fit, gaussian = ("fit-aggregates", "--out", tmp_path / "m", "--force"), ("--mechanism", "gaussian")
    tables = [tmp_path / f"{name}.csv" for name in scales]
    told = [tmp_path / f"{name}-told.csv" for name in scales]
    one = call(*fit, *tables, "--noise-scale", "5,20,9", *gaussian)
    assert "Noise of variance 25 to 400 on each count and each sum, as declared" in one.stdout, one.output
    assert call(*fit, *told, "--noise-scale", "sigma", *gaussian).stdout == one.stdout
    wrong = sentence(call(*fit, *tables, "--noise-scale", "5,20", *gaussian))
    assert "--noise-scale says 2 things: say one for all, or one for each of the 3 tables" in wrong
    assert "f0.csv has no column 'sigma'" in sentence(call(*fit, tables[0], told[1], "--noise-scale", "sigma"))
    told[1].write_text(told[1].read_text().replace("sigma", "noise_variance"))
    assert "--noise-variance must be told of" in sentence(call(*fit, tables[0], told[1]))


def test_wrong_use_is_one_sentence_that_names_the_option(files, tmp_path):
    out = tmp_path / "out"
    aggregate = "aggregate", files / "rows.parquet", "--out", out, "--label"
    assert "--bins must be given for column 'age'" in sentence(call(*aggregate, "label"))
    assert "there is no column 'no'" in sentence(call(*aggregate, "no"))
    assert "--edges names 'x', which is no column" in sentence(call(*aggregate, "label", "--edges", edges(tmp_path)))
    fit = "fit-aggregates", "--out", out
    assert "there is no file" in sentence(call(*fit, tmp_path / "nothing.csv"))
    assert "--count must name a column" in sentence(call(*fit, files / "rows.parquet"))
    table = tmp_path / "a.csv"
    table.write_text("a,count,sum\nx,60,20\ny,40,10\n")
    assert "--sum must name a column" in sentence(call(*fit, table, "--sum", "clicks"))
    assert "--noise-variance must be told" in sentence(call(*fit, table, "--threshold", 5))
    assert not out.exists()
    assert call(*fit, table, "--noise-variance", 0).exit_code == 0
    other = tmp_path / "b.csv"
    other.write_text("b,count,sum\nx,60,20\ny,40,10\n")
    pairs = "fit-aggregates", table, other, "--noise-variance", 0, "--out", tmp_path / "c"
    assert "1 pair of features without a table, as 'a' and 'b'" in sentence(call(*pairs))
    assert call(*pairs, "--missing-pairs", "independent").exit_code == 0
    assert "pass --force" in sentence(call(*fit, table))
    assert "of which there is no page: see bagwise inspect" in sentence(call("page", "--model", out))
    assert "pass events and reports of other bags" in sentence(call("evaluate", out))
    events, reports = files / "events.parquet", files / "reports.parquet"
    said = sentence(call("fit", events, reports, "--from", out, "--out", tmp_path / "b", "--hold-out", 0))
    assert "learns from tables of counts" in said


def edges(place):
    file = place / "edges.json"
    file.write_text('{"x": [1, 2]}')
    return file
