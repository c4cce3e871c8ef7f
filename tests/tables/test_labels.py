"""Rows with labels of their own beside the reports of bags."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app


def world(rng, n):
    """Rows of a number and a category, with their labels."""
    rows = pd.DataFrame({"x": rng.normal(size=n), "place": rng.choice(["north", "south"], n)})
    rows["label"] = (rng.random(n) < expit(1.5 * rows["x"] - (rows["place"] == "north"))).astype(int)
    return rows


@pytest.fixture
def tables():
    """Events sorted by the number, so that bags are grouped by it, their reports, and labelled rows."""
    rng = np.random.default_rng(0)
    rows = world(rng, 3200).sort_values("x", ignore_index=True)
    rows["day"] = np.arange(len(rows)) // 32
    reports = rows.groupby("day", as_index=False)["label"].sum().rename(columns={"label": "count"})
    return rows, rows.drop(columns="label"), reports, world(rng, 200)


def test_a_labelled_row_is_a_bag_of_one_row(tables):
    rows, events, reports, labelled = tables
    data = bw.tables.with_labels(bw.tables.join(events, reports), labelled)
    assert (data.summary.bags, data.summary.used_rows, data.summary.labelled) == (300, 3400, 200)
    assert "3,200 events and 100 reports beside 200 labelled rows: 300 bags of 1 to 32 rows" in str(data.summary)
    train, held_out = bw.tables.split(data, 0.1)
    assert held_out.summary.smallest == 32
    assert train.summary.bags == 270
    model = bw.tables.fit(data, bw.BagRidgeClassifier(alphas=1.0, scaling=1.0, formation="random"))
    assert model.keys == ("day",)
    both = pd.concat([rows, labelled.assign(day=1000 + np.arange(200))])
    X = np.column_stack([both["x"], both["place"] == "north", both["place"] == "south"]).astype(float)
    ids = both["day"].to_numpy()
    plain = bw.BagRidgeClassifier(alphas=1.0, scaling=1.0, formation="random")
    plain.fit(X, bw.aggregate(both["label"], ids), bags=ids)
    expected = np.clip(X @ plain.coef_ + plain.intercept_, 0.01, 0.99)
    assert np.clip(model.predict_proba(both)[:, 1], 0.01, 0.99) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", ["ridge", "logistic", pytest.param("boosting", marks=pytest.mark.slow)])
def test_every_kind_of_model_learns_from_labels(tables, kind):
    """Few bags that tell nothing of places, and labels that do."""
    rng = np.random.default_rng(1)
    rows = world(rng, 640)
    rows["day"] = np.arange(640) // 160
    reports = rows.groupby("day", as_index=False)["label"].sum().rename(columns={"label": "count"})
    data = bw.tables.join(rows.drop(columns="label"), reports)
    test, labelled = world(rng, 4000), world(rng, 400)
    errors = []
    for bags in (data, bw.tables.with_labels(data, labelled)):
        model = bw.tables.fit(bags, kind, random_state=0)
        h = model.predict_proba(test)[:, 1]
        errors.append(float(((h - test["label"]) ** 2).mean()))
    assert errors[1] < errors[0]


def test_evaluation_by_labels_is_right_where_bags_do_not_tell(tables):
    rows, events, reports, labelled = tables
    data = bw.tables.join(events, reports)
    model = bw.tables.fit(data, "ridge", random_state=0)
    with pytest.warns(bw.evaluation.BagsNotRandomWarning):
        assert bw.tables.evaluate(model, data).withheld
    found = bw.tables.evaluate(model, data, labels=labelled)
    assert found.n_labels == 200
    h = model.predict_proba(rows)[:, 1]
    truth = float(((h > 0.5) == rows["label"]).mean())
    assert found.accuracy.low < truth < found.accuracy.high
    alone = ((model.predict_proba(labelled)[:, 1] > 0.5) == labelled["label"]).std(ddof=1) / np.sqrt(200)
    assert found.accuracy.standard_error <= alone * (1 + 1e-9)


def test_classes_are_called_by_their_names():
    rng = np.random.default_rng(2)
    rows = pd.DataFrame({"x": rng.normal(size=960), "bag": np.arange(960) // 32})
    kind = rng.integers(3, size=960)
    counts = pd.crosstab(rows["bag"], np.array(["a", "b", "c"])[kind]).reset_index()
    data = bw.tables.join(rows, counts, keys="bag", count=["a", "b", "c"])
    more = bw.tables.with_labels(data, {"x": [0.1, 0.2, 0.3], "what": ["b", "c", "a"]}, label="what")
    assert more.reported.proportion[:3].sum(axis=0).tolist() == [1, 1, 1]
    assert more.reported.proportion[0].tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="labels: column 'what' is 'd' in 1 row: it must be a or b or c"):
        bw.tables.with_labels(data, {"x": [0.1], "what": ["d"]}, label="what")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"x": [1.0], "label": [1]}, "labels: there is no column 'place': there are x, label"),
        ({"x": [1.0], "place": ["north"]}, "label names column 'label', which the labels do not have"),
        ({"x": ["1"], "place": ["north"], "label": [1]}, "labels: column 'x' holds text in the labels and numbers in"),
        ({"x": [1.0], "place": ["north"], "label": [2]}, "labels: column 'label' is '2' in 1 row: it must be 0 or 1"),
        ({"x": [1.0], "place": ["north"], "label": [None]}, "labels: column 'label' is empty in 1 row"),
    ],
)
def test_labels_that_cannot_be(tables, labels, message):
    _, events, reports, _ = tables
    with pytest.raises(ValueError, match=message):
        bw.tables.with_labels(bw.tables.join(events, reports), labels)


def test_the_command_line_takes_labels(tables, tmp_path):
    _, events, reports, labelled = tables
    places = {name: str(tmp_path / f"{name}.parquet") for name in ("events", "reports", "learned", "drawn")}
    for name, table in zip(places, (events, reports, labelled[:100], labelled[100:]), strict=True):
        table.rename(columns={"label": "bought"}).to_parquet(places[name])
    options = ["--model", "ridge", "--out", str(tmp_path / "model")]
    labels = ["--labels", places["learned"], "--label", "bought"]
    fitted = CliRunner().invoke(app, ["fit", places["events"], places["reports"], *options, *labels])
    assert fitted.exit_code == 0, fitted.output
    assert "beside 100 labelled rows" in fitted.output
    asked = ["--labels", places["drawn"], "--label", "bought", "--json"]
    told = CliRunner().invoke(app, ["evaluate", str(tmp_path / "model"), places["events"], places["reports"], *asked])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert found["n_labels"] == 100
    assert found["accuracy"] is not None
    refused = CliRunner().invoke(app, ["evaluate", str(tmp_path / "model"), "--labels", places["drawn"]])
    assert refused.exit_code == 2
    assert "--labels is for tables to be measured on" in refused.stderr
