"""Tables whose reports are sums or means of a real label: joined, fitted, measured, scored, never taken for counts."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise import tables
from bagwise.cli import app
from bagwise.evaluation import ValueEvaluation
from bagwise.tables import join
from bagwise.tables.evaluation import measure_values
from bagwise.tables.predictions import predict

EVENTS = {"bag": ["a", "a", "b", "b", "b"], "x": [1.0, 2.0, 3.0, 4.0, 6.0]}


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def sentence(*arguments):
    result = call(*arguments)
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    return line


def scores(model, rows):
    table = tables.read(rows, tables.connect(ordered=True))
    return pa.Table.from_batches(model.score(table)).column("prediction").to_numpy()


@pytest.fixture(scope="module")
def bought():
    """8,000 visits in 400 random bags: their features, values, and a report per bag."""
    rng = np.random.default_rng(0)
    n, bag = 8000, rng.permutation(np.arange(8000) % 400)
    events = pd.DataFrame({"bag": bag, "past": rng.poisson(2, n), "device": rng.choice(["phone", "radio", "tv"], n)})
    expected = 5 * events["past"] + 20 * (events["device"] == "radio")
    value = (rng.random(n) < 0.3) * expected / 0.3
    reports = value.groupby(bag).agg(["sum", "mean"]).reset_index(names="bag")
    return events, value.to_numpy(), reports


@pytest.fixture(scope="module")
def files(bought, tmp_path_factory):
    folder = tmp_path_factory.mktemp("values")
    events, _, reports = bought
    events.to_parquet(folder / "events.parquet")
    reports[["bag", "sum"]].rename(columns={"sum": "revenue"}).to_csv(folder / "reports.csv", index=False)
    return folder / "events.parquet", folder / "reports.csv", folder


@pytest.fixture(scope="module")
def model(bought):
    events, _, reports = bought
    train, held_out = tables.split(join(events, reports, target="value"), 0.25)
    return tables.fit(train, "ridge", random_state=0), train, held_out


# -- what is reported ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reports", "given"),
    [
        ({"bag": ["a", "b"], "sum": [30.0, -6.0]}, {"target": "value"}),
        ({"bag": ["a", "b"], "worth": [30.0, -6.0]}, {"sum": "worth"}),
        ({"bag": ["a", "b"], "mean": [15.0, -2.0]}, {"target": "value"}),
        ({"bag": ["a", "b"], "worth": [15.0, -2.0], "count": [1, 1]}, {"mean": "worth"}),
    ],
)
def test_sums_and_means_say_the_same(reports, given):
    data = join(EVENTS, reports, **given)
    assert data.target == "value"
    lines = sorted(data.bags.fetch().to_pylist(), key=lambda line: line["bag"])
    assert [line["bag_proportion"] for line in lines] == pytest.approx([15.0, -2.0])
    assert data.summary.prior == pytest.approx((4.8,))


def test_without_reports_the_mean_is_a_column_of_the_events():
    data = join(EVENTS | {"worth": [15.0, 15.0, -2.0, -2.0, -2.0]}, keys="bag", mean="worth")
    assert (data.target, data.features) == ("value", ("x",))
    assert data.summary.prior == pytest.approx((4.8,))


@pytest.mark.parametrize(
    ("reports", "given", "message"),
    [
        (
            {"sum": [9.0, 9.0]},
            {},
            "count or proportion must name a column .*; values are for models of values, fitted with",
        ),
        ({"worth": [9.0, 9.0]}, {"target": "value"}, "sum or mean must name a column of the reports, one of the two"),
        ({"worth": [9.0, 9.0]}, {"target": "number"}, "target must be one of 'label', 'value', or None"),
        ({"worth": [9.0, 9.0]}, {"sum": "worth", "target": "label"}, "sum does not go with labels: name their column"),
        ({"worth": [9.0, 9.0]}, {"count": "worth", "target": "value"}, "count does not go with values: name their col"),
        ({"worth": [9.0, 9.0]}, {"sum": "worth", "epsilon": 1.0}, "epsilon tells the noise on counts, not on values"),
        ({"worth": [9.0, np.nan]}, {"sum": "worth"}, "with no number reported, for example bag b"),
        (
            {"count": [90.0, 80.5]},
            {},
            "counts are far beyond .* sums of values, say target='value', and name .* by sum",
        ),
        ({"count": [90.0, 80.5]}, {"on_mismatch": "drop"}, "counts are far beyond those of labels 0 and 1"),
        ({"proportion": [900.5, 80.5]}, {}, "proportions are far beyond .* means of values, say target='value'"),
        ({"proportion": [9.5, 8.5]}, {}, "percentages, divide them by 100; if means of values, say target='value'"),
        ({"proportion": [9.5, 8.5]}, {"on_mismatch": "drop"}, "proportions are far beyond those of labels 0 and 1"),
    ],
)
def test_wrong_reports_get_one_sentence(reports, given, message):
    with pytest.raises(ValueError, match=message):
        join(EVENTS, {"bag": ["a", "b"], **reports}, **given)


def test_values_with_noise_are_not_taken_for_counts(bought):
    """Noise may take counts anywhere, but not all of them together."""
    events, _, reports = bought
    noised = reports[["bag"]].assign(count=reports["sum"], noise_variance=1000.0)
    with pytest.raises(ValueError, match="counts are far beyond those of labels 0 and 1"):
        join(events, noised)
    fair = noised.assign(count=5 + np.sqrt(1000.0) * np.random.default_rng(0).normal(size=400))
    assert join(events, fair).target == "label"


# -- models -------------------------------------------------------------------------------------------------------


def test_ridge_in_the_engine_is_ridge_on_rows(bought):
    events, _, reports = bought
    for noise in ({}, {"noise_variance": "noise"}):
        lines = reports.assign(noise=np.where(reports["bag"] % 3 == 0, 0.0, 4e4))
        fitted = tables.fit(join(events, lines, sum="sum", **noise), bw.BagRidgeRegressor(alphas=0.01, scaling=1.0))
        X = pd.get_dummies(events.drop(columns="bag"), dtype=float)
        bags = bw.Bags.from_rows(
            lines["mean"].to_numpy()[events["bag"]],
            events["bag"],
            noise_variance=lines["noise"].to_numpy()[events["bag"]] if noise else None,
        )
        plain = bw.BagRidgeRegressor(alphas=0.01, scaling=1.0, formation="random").fit(X, bags=bags)
        assert scores(fitted, events.head(50)) == pytest.approx(plain.predict(X.head(50)), rel=1e-6)


def test_a_model_of_values_is_measured_and_kept(bought, model, tmp_path):
    fitted, _, held_out = model
    events, value, _ = bought
    assert fitted.target == "value"
    found = tables.evaluate(fitted, held_out)
    assert isinstance(found, ValueEvaluation)
    said = predict(fitted, held_out)
    bags = set(held_out.bags.fetch().column("bag").to_pylist())
    rows = events["bag"].isin(bags).to_numpy()
    h = scores(fitted, events[rows])
    assert np.sort(said.h) == pytest.approx(np.sort(h))
    assert found.mse.low < np.mean((value[rows] - h) ** 2) < found.mse.high
    assert found.r2.low > 0
    bw.save(fitted, tmp_path / "model")
    assert predict(bw.load(tmp_path / "model"), held_out).h == pytest.approx(said.h)
    with pytest.raises(ValueError, match=r"the model predicts values: measure it by tables\.evaluate"):
        tables.measure(fitted, held_out)
    with pytest.raises(ValueError, match="strata is for labels 0 and 1 or classes, not for values"):
        tables.evaluate(fitted, held_out, strata="device")
    groups = tables.evaluate(fitted, held_out, by="device").groups
    for one in groups:  # three intervals of 95%, whose errors are normal
        inside = rows & (events["device"] == one.value).to_numpy()
        assert one.n_rows == inside.sum()
        assert abs(one.rate.value - value[inside].mean()) < 5 * one.rate.standard_error
    assert groups[0].n_rows >= groups[1].n_rows >= groups[2].n_rows


def test_scores_of_values_add_up_to_reports(bought, model, tmp_path):
    """Never negative, they are multiplied; other rows keep the score of the model alone."""
    events, _, reports = bought
    fitted, *_ = model
    known = reports[["bag", "sum"]].rename(columns={"sum": "worth"}).head(300)
    found = tables.write_scores(fitted, events, tmp_path / "s.parquet", reports=known, sum="worth")
    assert (found.bags, found.reported_rows) == (300, 6000)
    scored = pd.read_parquet(tmp_path / "s.parquet")
    total = scored.groupby("bag")["prediction"].sum()
    assert total[known["bag"]].to_numpy() == pytest.approx(known["worth"].to_numpy())
    alone = scores(fitted, events)
    inside = scored["bag"].isin(known["bag"]).to_numpy()
    assert scored["prediction"][~inside].to_numpy() == pytest.approx(alone[~inside])
    ratio = (scored["prediction"] / alone)[inside & (alone > 1e-9)].groupby(scored["bag"])
    assert (ratio.max() - ratio.min()).max() < 1e-9
    assert scored["prediction"].min() >= 0
    noised = known.assign(noise_variance=4.0)
    with pytest.raises(ValueError, match="reports with declared noise are no sums that values could add up to"):
        tables.write_scores(fitted, events, tmp_path / "n.parquet", reports=noised, sum="worth")
    assert not (tmp_path / "n.parquet").exists()


def test_a_model_of_values_has_a_page(files, model, bought, tmp_path):
    from bagwise.pages import model_page, write

    events, reports, _ = files
    folder = tmp_path / "model"
    made = call("fit", events, reports, "--sum", "revenue", "--model", "ridge", "--out", folder)
    assert made.exit_code == 0, made.output
    stored = model_page(folder)
    assert stored.standing == "good", (stored.headline, stored.remarks)
    assert "better than their mean does: R²" in stored.headline
    write(stored, tmp_path / "page.html")
    assert "mean square error of single rows" in (tmp_path / "page.html").read_text()
    shown = call("page", events, reports, "--sum", "revenue", "--model", folder, "--out", tmp_path / "again.html")
    assert shown.exit_code == 0, shown.output
    assert stored.headline in shown.stdout  # the bags held out, measured once more
    assert "holds a model of values: pages compare models of labels" in sentence(
        "page", "--model", folder, "--model", tmp_path / ".." / tmp_path.name / "model", "--out", tmp_path / "c.html"
    )


def test_boosting_reads_values_in_blocks_and_in_memory(bought, monkeypatch):
    events, _, reports = bought
    data = join(events, reports, mean="mean")
    few = bw.BagBoostingRegressor(n_estimators=12, cv=2, n_fits=1, kinds=("greedy",), n_jobs=1, random_state=0)
    inside = tables.fit(data, few)
    assert measure_values(inside, data).r2.value > 0.05
    monkeypatch.setattr("bagwise.tables.fitting.IN_MEMORY", 1)
    assert predict(tables.fit(data, few), data).h == pytest.approx(predict(inside, data).h, rel=0.2, abs=2)


@pytest.mark.parametrize(
    ("target", "model", "message"),
    [
        (
            "value",
            "logistic",
            "model 'logistic' is for labels, not for values: choose auto, boosting, network, ridge, sgd or",
        ),
        ("value", "forest", "model must be one of 'auto', 'boosting', 'network', 'ridge', 'sgd', 'tweedie', got"),
        ("label", "tweedie", "model 'tweedie' is for values, not for labels: choose auto, boosting, logistic"),
        ("value", bw.BagRidgeClassifier(), "must be a regressor, since reports tell of values, got BagRidgeClassifier"),
        ("label", bw.BagRidgeRegressor(), "model must be a classifier, got BagRidgeRegressor"),
    ],
)
def test_labels_and_values_have_models_of_their_own(target, model, message):
    reports = {"bag": ["a", "b"], "sum" if target == "value" else "count": [1.0, 2.0]}
    with pytest.raises(ValueError, match=message):
        tables.fit(join(EVENTS, reports, target=target), model)


def test_a_model_is_not_measured_by_reports_of_another_kind(bought, model):
    events, _, reports = bought
    with pytest.raises(ValueError, match=r"the model predicts values, the reports tell of labels: name .* by sum"):
        tables.evaluate(model[0], join(events, reports[["bag"]].assign(count=3)))


# -- what is found out --------------------------------------------------------------------------------------------


def test_bags_of_values_are_diagnosed_by_their_features(bought):
    events, _, reports = bought
    found = tables.diagnose(join(events, reports, sum="sum"))
    assert found.verdict == "random"
    assert "proportions of real labels" in found.untestable
    assert "fit a regressor" in found.advice
    assert "larger bags all 0" not in str(found)
    grouped = events.assign(bag=np.argsort(np.argsort(events["past"], kind="stable")) // 20)
    lines = {"bag": np.arange(400), "mean": np.linspace(0, 1, 400)}  # which counts could have, too
    found = tables.diagnose(join(grouped, lines, mean="mean"))
    assert found.formation.name == "features"
    assert "not known from such bags of values" in found.advice


# -- on the command line ------------------------------------------------------------------------------------------


def test_the_commands_know_values(files):
    events, reports, folder = files
    model, told = folder / "model", ("--sum", "revenue")
    fitted = call("fit", events, reports, *told, "--model", "ridge", "--out", model)
    assert fitted.exit_code == 0, fitted.output
    assert "BagRidgeRegressor" in fitted.stdout
    for words in ("mean square error", "R²", "their difference", "mean label of rows by their prediction"):
        assert words in fitted.stdout
    assert "accuracy" not in fitted.stdout
    stored = json.loads(call("evaluate", model, "--json").stdout)
    assert stored["r2"]["low"] <= stored["r2"]["value"] <= 1
    assert "mean square error" in call("inspect", model).stdout
    some = pd.read_parquet(events)
    some[some["bag"] < 300].to_parquet(folder / "some.parquet")
    again = call("evaluate", model, folder / "some.parquet", reports, *told, "--level", 0.9, "--on-mismatch", "drop")
    assert "90% intervals" in again.stdout
    scores = folder / "scores.csv"
    assert call("predict", model, events, "--out", scores).exit_code == 0
    assert pd.read_csv(scores)["prediction"].max() > 10
    assert "fit --model auto, boosting, ridge, tweedie or network;" in call("diagnose", events, reports, *told).stdout


@pytest.mark.slow
def test_what_commands_cannot_do_with_values_is_one_sentence(files):
    events, reports, folder = files
    told, out = ("--sum", "revenue"), folder / "nothing"
    model = folder / "other"
    few = pd.read_parquet(events)
    few[few["bag"] < 300].to_parquet(folder / "few.parquet")
    assert call("fit", events, reports, *told, "--model", "ridge", "--hold-out", 0, "--out", model).exit_code == 0
    assert "say --target='value', and name the column by --sum" in sentence(
        "fit", events, reports, "--count", "revenue", "--out", out
    )
    assert "--model 'logistic' is for labels" in sentence(
        "fit", events, reports, *told, "--model", "logistic", "--out", out
    )
    assert "--labels is for labels 0 and 1" in sentence(
        "fit", events, reports, *told, "--labels", events, "--model", "ridge", "--out", out
    )
    assert "no page: see bagwise diagnose" in sentence("page", events, reports, *told, "--out", out)
    assert "bagwise train learns labels" in sentence("gather", events, reports, *told, "--out", out)
    some = ("evaluate", model, folder / "few.parquet", reports, *told, "--on-mismatch", "drop")
    assert "--strata is for labels 0 and 1" in sentence(*some, "--strata", "device")
