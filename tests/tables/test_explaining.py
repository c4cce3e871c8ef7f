"""Why a model of tables says what it says, by the columns of its user's table."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from typer.testing import CliRunner

from bagwise import saving, tables
from bagwise.boosting import BagBoostingClassifier
from bagwise.cli import app
from bagwise.explanation.importance import SQUARE
from bagwise.tables.explaining import drivers
from bagwise.tables.predictions import predict

N = 6400
TREES = BagBoostingClassifier(n_estimators=15, cv=2, n_jobs=1, random_state=0)


@pytest.fixture(scope="module")
def events():
    rng = np.random.default_rng(0)
    when = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 28 * 86400, N), unit="s")
    age = rng.uniform(20, 80, N)
    country = rng.choice(["at", "de", "fr"], N)
    label = rng.random(N) < expit(0.06 * (age - 50) + np.where(country == "fr", 1.0, -0.5))
    gap = np.where(rng.random(N) < 0.05, np.nan, age)
    ids = rng.permutation(N) // 16
    return pd.DataFrame({"bag": ids, "age": gap, "country": country, "when": when, "id": np.arange(N) % 5}), label


@pytest.fixture(scope="module")
def reports(events):
    table, label = events
    return pd.DataFrame({"bag": table["bag"], "count": label.astype(int)}).groupby("bag", as_index=False).sum()


@pytest.fixture(scope="module")
def halves(events, reports):
    table, _ = events
    joined = [
        tables.join(table[part(table["bag"])], reports[part(reports["bag"])], ignore=["id"])
        for part in (lambda bag: bag < 200, lambda bag: bag >= 200)
    ]
    return joined


@pytest.fixture(scope="module", params=["boosting", "ridge"])
def model(request, halves):
    return tables.fit(halves[0], TREES if request.param == "boosting" else "ridge", random_state=0)


def test_what_is_made_of_a_column_is_added_up(model, events):
    table = events[0].head(200)
    found = model.explain(table)
    assert {*found.names} == {"age", "country", "when"}
    assert found.contributions.shape == (200, 3)
    h = model.predict_proba(table)[:, 1]
    score = logit(h) if found.scale == "log odds" else h
    assert np.abs(found.scores - score).max() < 1e-6  # numbers of encoded columns are in single precision
    assert next(iter(found.importances)) in ("age", "country")
    again = model.explain(tables.read(table, tables.connect()))
    assert np.allclose(again.contributions, found.contributions)


def test_bags_tell_which_columns_a_model_needs(model, halves):
    found = tables.permutation_importance(model, halves[1], formation="random", random_state=0)
    assert {one.column for one in found.columns} <= {"age", "country", "when"}
    assert [one.column for one in found.columns[:2]] == ["age", "country"]
    assert found.columns[0].clear
    assert found.measure == SQUARE
    assert found.n_bags == len(halves[1].reported.rows)


def test_drivers_hold_the_dependence_on_what_is_made_of_columns(model, halves):
    said = predict(model, halves[1])
    told = tables.permutation_importance(model, said, formation="random").formation
    found = drivers(model, said, told)
    by_name = {one.column: one for one in found.dependences}
    assert list(by_name["country"].values) == ["at", "de", "fr"]
    assert by_name["country"].predictions.argmax() == 2
    assert (by_name["age"].predictions[-1] - by_name["age"].predictions[0]) > 0.3


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory, events, reports):
    place = tmp_path_factory.mktemp("explained")
    events[0].drop(columns="id").to_parquet(place / "events.parquet")
    reports.to_parquet(place / "reports.parquet")
    call("fit", place / "events.parquet", place / "reports.parquet", "--model", "ridge", "--out", place / "model")
    return place


def call(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_command_explains_rows_and_what_bags_lose(folder):
    given = (folder / "model", folder / "events.parquet")
    facts = json.loads(call("explain", *given, "--json").stdout)
    assert list(facts["contributions"])[:2] == ["age", "country"]
    assert "importances" not in facts
    text = call("explain", *given, folder / "reports.parquet").stdout
    assert "lost when a column is permuted (80 bags" in text  # those held out
    assert "Formation of the bags: random" in text


def test_the_command_explains_a_row_and_writes_all(folder):
    out = folder / "why.parquet"
    given = (folder / "model", folder / "events.parquet")
    facts = json.loads(call("explain", *given, "--row", 7, "--out", out, "--keep", "age", "--json").stdout)
    rows = pd.read_parquet(out)
    assert list(rows) == ["age", "adds_age", "adds_country", "adds_when", "base", "score"]
    assert len(rows) == facts["rows"] == N
    assert np.allclose(rows.filter(like="adds_").sum(axis=1) + rows["base"], rows["score"], atol=1e-12)
    assert facts["contributions"]["age"] == pytest.approx(rows["adds_age"][6])
    assert sum(facts["contributions"].values()) + facts["base"] == pytest.approx(facts["score"])
    assert "Row 7: " in call("explain", *given, "--row", 7).stdout


def test_the_command_says_what_is_wrong(folder):
    given = (folder / "model", folder / "events.parquet")
    assert "--row must be at most 6400" in call("explain", *given, "--row", 10_000, code=2).stderr
    assert "--keep belongs to --out" in call("explain", *given, "--keep", "age", code=2).stderr
    assert "--formation says something about bags" in call("explain", *given, "--formation", "rates", code=2).stderr
    other = folder / "why.txt"
    assert "unknown ending" in call("explain", *given, "--out", other, code=1).stderr


def test_the_page_shows_what_drives_the_model(folder):
    from bagwise.pages import model_page

    data = tables.join(str(folder / "events.parquet"), str(folder / "reports.parquet"))
    html = model_page(folder / "model", data).html
    assert "What bags lose without a column" in html
    assert "Mean prediction by country" in html
    assert "Mean change of a prediction when a column is shuffled" not in html
    assert "Mean change of a prediction when a column is shuffled" in model_page(folder / "model").html
    assert saving.inspect(folder / "model").kind == "TableModel"
