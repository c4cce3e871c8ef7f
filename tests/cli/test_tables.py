"""The analyst's commands end to end, on small tables; and the data holder's, whose labels must not get out."""

import itertools
import json
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise
from bagwise import saving
from bagwise.cli import app, common
from bagwise.cli.options import Formation
from bagwise.cli.tables import Model
from bagwise.estimators import MODELS, VALUE_MODELS
from bagwise.formation import FORMATIONS

SECRET = "zx-label-q7"  # a label that no file but the first may hold


def call(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def sentence(result, code=1):
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    # Where the machine is busy, lines of progress come before.
    (line,) = (one for one in result.stderr.splitlines() if not re.match(r"\d+:\d\d ", one))
    assert line.startswith("Error: ")
    assert "Traceback" not in line
    return line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def labelled(folder):
    """6,000 rows whose labels depend on two columns."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 6000),
            "device": rng.choice(["phone", "tablet", "radio"], 6000),
            "seen": pd.Timestamp("2026-01-05") + pd.to_timedelta(rng.integers(0, 30 * 86400, 6000), unit="s"),
            "campaign": rng.choice(["north", "south"], 6000),
        }
    )
    p = 0.1 + 0.5 * (frame["device"] == "phone") + 0.3 * (frame["age"] > 50)
    frame["y"] = (rng.random(6000) < p).astype(int)
    path = folder / "labelled.parquet"
    frame.to_parquet(path)
    return path


@pytest.fixture(scope="module")
def bags(folder, labelled):
    result = call("bag", labelled, "--label", "y", "--size", 16, "--out", folder / "bags", "--seed", 3)
    assert result.exit_code == 0, result.output
    return folder / "bags"


@pytest.fixture(scope="module")
def tables(bags):
    return bags / "events.parquet", bags / "reports.parquet"


@pytest.fixture(scope="module")
def few_labelled(folder, labelled):
    """A fifth of the rows, where it does not matter how well they are learned."""
    pd.read_parquet(labelled)[:1200].drop(columns="seen").to_parquet(folder / "few.parquet")
    return folder / "few.parquet"


@pytest.fixture(scope="module")
def few(folder, few_labelled):
    """Their bags."""
    result = call("bag", few_labelled, "--label", "y", "--size", 16, "--out", folder / "few", "--seed", 3)
    assert result.exit_code == 0, result.output
    return folder / "few" / "events.parquet", folder / "few" / "reports.parquet"


@pytest.fixture
def few_trees(monkeypatch):
    monkeypatch.setitem(bagwise.BagBoostingClassifier.__init__.__kwdefaults__, "n_estimators", 20)


@pytest.fixture(scope="module")
def model(folder, tables):
    result = call("fit", *tables, "--model", "ridge", "--out", folder / "model")
    assert result.exit_code == 0, result.output
    return folder / "model"


@pytest.fixture(scope="module")
def campaigns(folder, labelled):
    """The same rows in bags that are not random: one per campaign and hour."""
    truth = pd.read_parquet(labelled)
    truth["y"] = truth["y"] | (np.random.default_rng(0).permutation(97)[truth["seen"].dt.minute] < 40)
    truth["slot"] = truth["seen"].dt.minute
    truth.to_parquet(folder / "slots.parquet")
    options = ("--by", "slot", "--min-size", 1, "--out", folder / "slots")
    result = call("bag", folder / "slots.parquet", "--label", "y", *options)
    assert result.exit_code == 0, result.output
    return folder / "slots" / "events.parquet", folder / "slots" / "reports.parquet"


def test_effects_of_bags_are_told_and_no_number_pretends(campaigns, model, tmp_path):
    """An unseen effect of the bag: the model's predictions and features are those of random bags."""
    options = ("--model", "ridge", "--ignore", "seen", "--out", tmp_path / "fitted", "--hold-out", 0.5)
    fitted = call("fit", *campaigns, *options)
    assert fitted.exit_code == 0, fitted.output
    assert "Formation of the bags measured on: effects (" in fitted.stdout
    for told in (call("evaluate", tmp_path / "fitted", "--json"), call("evaluate", model, *campaigns, "--json")):
        found = json.loads(told.stdout)
        assert found["formation"]["name"] in ("effects", "features")
        if found["accuracy"] is not None:  # rows look random: right, and wide
            assert found["accuracy"]["high"] - found["accuracy"]["low"] > 0.1
        assert found["bags"]["least_accuracy"]["value"] <= found["bags"]["most_accuracy"]["value"]
        assert told.stderr == ""
    page = call("page", "--model", tmp_path / "fitted", "--out", tmp_path / "page.html", "--json")
    assert json.loads(page.stdout)["standing"] == "unsure"
    refused = call("evaluate", tmp_path / "fitted", "--formation", "random")
    assert refused.exit_code == 2
    assert "--formation is for tables to be measured on" in refused.stderr
    asked = call("evaluate", model, *campaigns, "--formation", "features")
    assert "Known of bags only" in asked.stdout
    assert "if the model is right" in asked.stdout


# -- the data holder ----------------------------------------------------------------------------------------------


def test_bags_report_what_the_labels_say(labelled, tables):
    truth, events, reports = (pd.read_parquet(path) for path in (labelled, *tables))
    assert list(events.columns) == ["age", "device", "seen", "campaign", "bag"]
    assert len(events) == len(truth)
    assert reports["count"].sum() == truth["y"].sum()
    assert (events.groupby("bag").size() == reports.set_index("bag")["size"]).all()
    assert reports["size"].between(16, 17).all()
    assert not reports["suppressed"].any()
    columns = ["age", "device", "seen", "campaign"]
    rows = truth.merge(events, on=columns, how="inner")
    assert len(rows.drop_duplicates(columns)) == len(truth.drop_duplicates(columns))


@pytest.mark.parametrize("noise", [(), ("--epsilon", 1), ("--epsilon", 1, "--delta", 1e-6)])
def test_labels_never_reach_the_events(tmp_path, noise):
    if noise:
        pytest.importorskip("opendp", reason="OpenDP is not installed: pip install 'bagwise[privacy]'")
    rng = np.random.default_rng(1)
    y = np.where(rng.random(400) < 0.5, SECRET, "other")
    frame = pd.DataFrame({"x": rng.normal(size=400), "outcome": y}).sort_values("outcome")
    frame.to_csv(tmp_path / "in.csv", index=False)
    out = tmp_path / "out"
    options = ["--label", "outcome", "--positive", SECRET, "--size", 8, "--out", out, *noise]
    result = call("bag", tmp_path / "in.csv", *options)
    assert result.exit_code == 0, result.output
    assert SECRET in (tmp_path / "in.csv").read_text()  # so a search would find it
    for path in out.iterdir():
        data = path.read_bytes()
        assert SECRET.encode() not in data
        assert b"outcome" not in data
    # A table sorted by its labels must not hand them on by the order of its rows.
    position = pd.read_parquet(out / "events.parquet").reset_index().merge(frame, on="x")
    order = position.loc[position["outcome"] == SECRET, "index"]
    assert abs(order.mean() - 199.5) < 5 * 400 / np.sqrt(12 * len(order))


def test_keys_of_bags_never_collide_and_tell_nothing(few_labelled, tmp_path):
    """Batches can be read as one, by any seed; the same rows and seed have the same keys, whatever their labels."""
    frame = pd.read_parquet(few_labelled)
    frame[600:].to_parquet(tmp_path / "later.parquet")
    frame[:600].to_parquet(tmp_path / "first.parquet")
    frame[:600].assign(y=1 - frame["y"]).to_parquet(tmp_path / "turned.parquet")

    def keys(name, out, *seed):
        done = call("bag", tmp_path / f"{name}.parquet", "--label", "y", "--size", 20, "--out", tmp_path / out, *seed)
        assert done.exit_code == 0, done.output
        return pd.read_parquet(tmp_path / out / "events.parquet").set_index("age")["bag"]

    seeded = keys("first", "s1", "--seed", 1), keys("later", "s2", "--seed", 1)
    both = [keys("first", "b1"), keys("first", "b2"), *seeded]
    for one, other in itertools.combinations(both, 2):
        assert not {*one} & {*other}
    pd.testing.assert_series_equal(keys("first", "again", "--seed", 1), seeded[0])
    pd.testing.assert_series_equal(keys("turned", "turned", "--seed", 1), seeded[0])
    for letter in "bs":
        read = bagwise.tables.join(*(tmp_path / f"{letter}[12]" / f"{name}.parquet" for name in ("events", "reports")))
        assert str(read.summary).startswith("1,200 events and 60 reports: 60 bags of 20 rows each")
    pd.read_parquet(tmp_path / "b1" / "reports.parquet").to_csv(tmp_path / "reports.csv", index=False)
    assert bagwise.tables.join(tmp_path / "b1" / "events.parquet", tmp_path / "reports.csv").summary.bags == 30
    assert all(one.str.fullmatch("b[0-9a-f]{16}").all() for one in both)


def test_groups_below_the_least_size_are_withheld(labelled, tmp_path):
    truth = pd.read_parquet(labelled)
    truth["day"] = truth["seen"].dt.strftime("%d")
    truth.to_parquet(tmp_path / "in.parquet")
    sizes = truth.groupby(["campaign", "day"]).size()
    least = int(sizes.median())
    options = ["--by", "campaign,day", "--min-size", least, "--out", tmp_path / "out", "--json"]
    result = call("bag", tmp_path / "in.parquet", "--label", "y", *options)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["withheld"] == (sizes < least).sum()
    reports = pd.read_parquet(tmp_path / "out/reports.parquet").set_index(["campaign", "day"])
    assert (reports["suppressed"] == (sizes < least)).all()
    assert (reports["count"].isna() == reports["suppressed"]).all()
    told = call("diagnose", tmp_path / "out/events.parquet", tmp_path / "out/reports.parquet")
    assert told.exit_code == 0, told.output
    assert "withheld" in told.stdout


def test_bags_within_groups(labelled, tmp_path):
    options = ["--by", "campaign", "--size", 32, "--out", tmp_path]
    assert call("bag", labelled, "--label", "y", *options).exit_code == 0
    reports = pd.read_parquet(tmp_path / "reports.parquet")
    assert reports["size"].between(32, 33).all()
    assert set(reports["campaign"]) == {"north", "south"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--label", "nothing", "--size", 8], "there is no column 'nothing'"),
        (["--label", "y"], "say how bags are made"),
        (["--label", "device", "--by", "device"], "is the label"),
        (["--label", "campaign", "--size", 8], "say which one is positive"),
        (["--label", "y", "--by", "campaign", "--min-size", 100_000], "every bag has fewer than"),
    ],
)
def test_wrong_requests_of_the_data_holder(labelled, tmp_path, options, words):
    result = call("bag", labelled, *options, "--out", tmp_path / "out")
    assert words in sentence(result, 2 if len(options) == 2 else 1)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_several_labels_become_classes(few_labelled, tmp_path):
    assert call("bag", few_labelled, "--label", "device", "--size", 20, "--out", tmp_path, "--seed", 0).exit_code == 0
    counts = "count_phone,count_radio,count_tablet"
    paths = [tmp_path / "events.parquet", tmp_path / "reports.parquet"]
    result = call("fit", *paths, "--count", counts, "--model", "ridge", "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    scored = tmp_path / "scored.parquet"
    assert call("predict", tmp_path / "model", paths[0], "--out", scored, "--keep", "bag").exit_code == 0
    frame = pd.read_parquet(scored)
    np.testing.assert_allclose(frame.filter(like="prediction_").sum(axis=1), 1)


# -- the analyst --------------------------------------------------------------------------------------------------


def test_diagnose(tables):
    result = call("diagnose", *tables)
    assert result.exit_code == 0, result.output
    assert "375 bags of 16 rows each" in result.stdout
    assert "verdict: random" in result.stdout
    assert "reports without noise are no differential privacy" in result.stdout
    found = json.loads(call("diagnose", *tables, "--json").stdout)
    assert found["verdict"] == "random"
    assert found["advice"] == "every --model is right, and the label-free evaluation applies."
    assert f"advice: {found['advice']}" in result.stdout
    assert found["formation"]["name"] == "random"
    assert {"proportions", "drift of proportions"} <= {
        f"{'drift of ' if one['drift'] else ''}{one['subject']}" for one in found["tests"]
    }
    assert all(0 <= one["p_value"] <= 1 for one in found["tests"])
    assert found["allowed"]["choice"] == "risk"
    assert found["slopes"]["forward"]["expected"] == 1


def test_diagnose_goes_on_after_a_mismatch_and_names_every_kind(tables, tmp_path):
    reports = pd.read_parquet(tables[1])
    reports.loc[0, "size"] += 1
    reports = pd.concat([reports.iloc[:-1], reports.iloc[[5]]])  # one is missing, one is there twice
    reports.to_parquet(tmp_path / "reports.parquet")
    result = call("diagnose", tables[0], tmp_path / "reports.parquet")
    assert result.exit_code == 0, result.output
    for words in (
        "with another size reported",
        "with more than one report",
        "no report",
        "--on-mismatch=drop:unreported,repeated,other_size to fit",
        "verdict: random",
    ):
        assert words in result.stdout
    for some in ("error", "drop:unreported,repeated"):
        strict = call("diagnose", tables[0], tmp_path / "reports.parquet", "--on-mismatch", some)
        assert strict.exit_code == 1
    assert "1 bag (16 rows) with another size reported than there are rows" in strict.stderr


def test_the_interval_contains_the_truth(model, labelled, folder):
    """Scores of the first table's rows against its labels: the truth that the label-free interval is about."""
    found = json.loads(call("evaluate", model, "--json").stdout)
    scored = folder / "truth.parquet"
    assert call("predict", model, labelled, "--out", scored).exit_code == 0
    frame = pd.read_parquet(scored)
    accuracy = ((frame["prediction"] > 0.5) == frame["y"]).mean()
    brier = ((frame["prediction"] - frame["y"]) ** 2).mean()
    assert found["accuracy"]["low"] < accuracy < found["accuracy"]["high"]
    assert found["brier"]["low"] < brier < found["brier"]["high"]
    assert found["n_bags"] == 75
    assert accuracy > 0.7


def test_evaluate_on_other_tables(model, labelled, tmp_path):
    assert call("bag", labelled, "--label", "y", "--size", 8, "--out", tmp_path, "--seed", 9).exit_code == 0
    result = call("evaluate", model, tmp_path / "events.parquet", tmp_path / "reports.parquet")
    assert result.exit_code == 0, result.output
    assert "750 bags" in result.stdout
    assert "accuracy" in result.stdout
    assert result.stderr == ""


@pytest.mark.filterwarnings("default:these look like")
def test_evaluate_warns_of_the_tables_that_were_learned_from(model, tables):
    result = call("evaluate", model, *tables)
    assert result.exit_code == 0
    assert "375 bags" in result.stdout
    assert "these look like the tables that the model was fitted to" in result.stderr


@pytest.mark.filterwarnings("default:these look like")
def test_other_bags_with_the_same_mean_label_are_other_tables(tmp_path):
    """Counts are whole numbers: those of another month may well add up to the same."""
    rng, paths = np.random.default_rng(0), [tmp_path / name for name in ("e.parquet", "june.parquet", "july.parquet")]
    pd.DataFrame({"x": rng.normal(size=800), "bag": np.repeat(np.arange(80), 10)}).to_parquet(paths[0])
    june = rng.integers(2, 8, 80)
    july = june + np.where(np.arange(80) % 2, 1, -1)
    for path, count in zip(paths[1:], (june, july), strict=True):
        pd.DataFrame({"bag": np.arange(80), "count": count}).to_parquet(path)
    model = tmp_path / "model"
    assert call("fit", *paths[:2], "--model", "ridge", "--hold-out", 0, "--out", model).exit_code == 0
    warned = ["these look like" in call("evaluate", model, paths[0], one).stderr for one in paths[1:]]
    assert warned == [True, False]


def test_inspect_says_what_it_is(model):
    text = call("inspect", model).stdout
    for words in (
        "Model: ridge",
        "device (category)",
        "seen (time)",
        "accuracy",
        "when a column is shuffled",
        "bagwise",
    ):
        assert words in text
    facts = json.loads(call("inspect", model, "--json").stdout)
    first = next(iter(facts["sensitivity"]))
    assert first in ("device", "age")
    assert saving.inspect(model).about["summary"] == facts["summary"]


@pytest.mark.parametrize("kind", ["boosting", pytest.param("network", marks=pytest.mark.slow), "sgd"])
@pytest.mark.usefixtures("few_trees")
def test_other_models(few, tmp_path, kind):
    if kind == "network":
        pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
    result = call("fit", *few, "--model", kind, "--out", tmp_path / "model", "--hold-out", 0)
    assert result.exit_code == 0, result.output
    scored = tmp_path / "scored.csv"
    assert call("predict", tmp_path / "model", few[0], "--out", scored).exit_code == 0
    assert pd.read_csv(scored)["prediction"].between(0, 1).all()
    assert "fitted without holding bags out" in sentence(call("evaluate", tmp_path / "model"))


@pytest.mark.filterwarnings("default:held-out bags do not")  # there are few
@pytest.mark.parametrize(
    ("kind", "noise"),
    [
        pytest.param("logistic", 4.0, marks=pytest.mark.slow),
        ("mean-map", 0.0),
        pytest.param("logistic", 0.0, marks=pytest.mark.slow),
        pytest.param("mean-map", 4.0, marks=pytest.mark.slow),
    ],
)
def test_models_of_log_odds_take_tables_as_they_are(labelled, tmp_path, kind, noise):
    """Categories, gaps, three classes, noise; and scores given the reports."""
    rng = np.random.default_rng(1)
    frame = pd.read_parquet(labelled).drop(columns="campaign")[:500]
    frame["age"] = frame["age"].where(rng.random(500) > 0.1)
    frame["device"] = frame["device"].where(rng.random(500) > 0.1)
    frame["bag"] = rng.permutation(500) // 10
    label = frame.pop("y") + (frame["age"] > 60)
    counts = pd.DataFrame({f"n{place}": label == place for place in range(3)}).groupby(frame["bag"]).sum()
    counts = counts + rng.normal(scale=np.sqrt(noise), size=counts.shape)
    frame.to_parquet(tmp_path / "events.parquet")
    counts.reset_index().to_parquet(tmp_path / "reports.parquet")
    tables = tmp_path / "events.parquet", tmp_path / "reports.parquet"
    declared = ("--noise-variance", noise) if noise else ()
    result = call("fit", *tables, "--model", kind, "--count", "n0,n1,n2", *declared, "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    scored = tmp_path / "scored.parquet"
    told = call("predict", tmp_path / "model", tables[0], "--reports", tables[1], "--out", scored)
    assert told.exit_code == 0, told.output
    found = pd.read_parquet(scored)
    names = [f"prediction_n{place}" for place in range(3)]
    np.testing.assert_allclose(found[names].sum(axis=1), 1, atol=1e-9)
    assert "500 rows scored, 500 of them in 50 bags with a report" in told.stdout
    sums = found.groupby("bag")[names].sum().to_numpy()
    if noise:
        assert "follow, as far as its noise lets them" in told.stdout
        assert np.abs(sums - counts).mean().mean() < np.sqrt(noise)
    else:
        np.testing.assert_allclose(sums, counts, atol=1e-6)


@pytest.mark.filterwarnings("default:values that training")
def test_what_predict_meets_in_the_columns_is_told(model, tables, tmp_path):
    """Never seen, missing, of another type, unknown: in words, in JSON, and beside scores on standard output."""
    events = pd.read_parquet(tables[0])
    events.loc[events["campaign"] == "north", "campaign"] = "east"
    other = events.drop(columns="device").assign(age=events["age"].astype(str) + ".0", more=1)
    other.to_parquet(tmp_path / "other.parquet")
    command = ("predict", model, tmp_path / "other.parquet")
    refused = sentence(call(*command, "--out", tmp_path / "scored.parquet"))
    assert "column 'device' is missing: the model was trained with it" in refused
    assert "(--missing-columns='as-missing')" in refused
    told = call(*command, "--missing-columns", "as-missing", "--out", tmp_path / "scored.parquet")
    assert told.exit_code == 0, told.output
    unseen = (events["campaign"] == "east").sum()
    lines = [
        "6,000 rows scored.",
        "Column 'age' holds text now, read as numbers.",
        "Column 'device' is missing: it counts so in all rows.",
        f"Column 'campaign': {unseen:,} rows ({unseen / 6000:.2g} of all) with a value that training did not have, "
        "for example 'east': it counts as missing.",
        "Not known to the model: more.",
    ]
    assert told.stdout.splitlines()[:-1] == lines
    assert told.stderr.startswith("Warning: values that training did not have: column 'campaign' in ")
    piped = call(*command, "--missing-columns", "as-missing", "--keep", "bag")
    assert piped.stdout.count("\n") == 6001
    assert piped.stderr.splitlines()[1:] == lines
    out = ("--out", tmp_path / "scored.parquet", "--force", "--json")
    facts = json.loads(call(*command, "--missing-columns", "as-missing", *out).stdout)["columns"]
    assert (facts["rows"], facts["others"]) == (6000, ["more"])
    found = {one["name"]: (one["missing"], one["held"], one["unseen"]) for one in facts["columns"]}
    expected = {"age": (False, "text", 0), "device": (True, "", 0), "seen": (False, "", 0)}
    assert found == {**expected, "campaign": (False, "", unseen)}


def test_scores_add_up_to_the_reports(model, tables, labelled, tmp_path):
    """Nothing has to be told again that was told to fit; rows of other bags are scored as ever."""
    reports, scored = pd.read_parquet(tables[1]), tmp_path / "scored.parquet"
    some = reports[reports.index % 3 > 0]
    some.to_csv(tmp_path / "reports.csv", index=False)
    told = call("predict", model, tables[0], "--reports", tmp_path / "reports.csv", "--out", scored, "--json")
    facts = json.loads(told.stdout)
    assert (facts["rows"], facts["bags"]) == (6000, len(some))
    found = pd.read_parquet(scored)
    sums = found.groupby("bag")["prediction"].sum()
    np.testing.assert_allclose(sums[some["bag"]], some["count"], atol=1e-6)
    assert call("predict", model, tables[0], "--out", tmp_path / "alone.parquet").exit_code == 0
    alone = pd.read_parquet(tmp_path / "alone.parquet")
    others = ~found["bag"].isin(some["bag"])
    assert facts["reported_rows"] == (~others).sum()
    np.testing.assert_array_equal(found["prediction"][others], alone["prediction"][others])
    assert (found["seen"] == alone["seen"]).all()
    piped = call("predict", model, tables[0], "--reports", tables[1])
    assert piped.stdout.count("\n") == 6001
    assert "6,000 of them in 375 bags with a report" in piped.stderr
    some.assign(size=17).to_csv(tmp_path / "wrong.csv", index=False)
    wrong = ("predict", model, tables[0], "--reports", tmp_path / "wrong.csv", "--out", tmp_path / "wrong.parquet")
    assert "with another size reported than there are rows" in sentence(call(*wrong))
    assert "leave such bags out with --on-mismatch=drop" in call(*wrong).stderr.replace("'", "")


@pytest.mark.slow
def test_scores_of_a_month_later_are_those_of_the_last_day(tmp_path):
    """What grew while it was watched is not taken to grow on."""
    rng = np.random.default_rng(0)
    day = rng.integers(0, 28, 4000)
    frame = pd.DataFrame(
        {"seen": pd.Timestamp("2026-01-05") + pd.to_timedelta(day, unit="D"), "x": rng.normal(size=4000)}
    )
    frame["y"] = (rng.random(4000) < 0.1 + 0.02 * day).astype(int)
    frame.to_parquet(tmp_path / "labelled.parquet")
    assert call("bag", tmp_path / "labelled.parquet", "--label", "y", "--size", 16, "--out", tmp_path).exit_code == 0
    tables = tmp_path / "events.parquet", tmp_path / "reports.parquet"
    last = frame[day == 27].drop(columns="y")
    last.assign(seen=last["seen"] + pd.Timedelta(days=28)).to_parquet(tmp_path / "later.parquet")
    last.to_parquet(tmp_path / "last.parquet")
    for kind in ("ridge", "logistic"):
        fitted = call("fit", *tables, "--model", kind, "--out", tmp_path / kind)
        assert "seen: from 2026-01-05 to 2026-02-01; earlier and later days count as these." in fitted.stdout
        means = []
        for name in ("last", "later"):
            out = tmp_path / f"{kind}-{name}.parquet"
            assert call("predict", tmp_path / kind, tmp_path / f"{name}.parquet", "--out", out).exit_code == 0
            means.append(pd.read_parquet(out)["prediction"].mean())
        assert means[1] == pytest.approx(means[0], abs=1e-12)
        assert means[0] > 0.45  # 0.64 on that day, 0.37 on all


@pytest.mark.filterwarnings("default:these look like")
def test_the_formation_is_handed_on_and_told(tables, few, tmp_path):
    place = tmp_path / "model"
    fitted = call("fit", *tables, "--model", "logistic", "--formation", "features", "--out", place)
    assert fitted.exit_code == 0, fitted.output
    assert "Formation of bags: features (as asked for)." in fitted.stdout
    assert "Bags held out while fitting, beside the mean label of all rows: log-likelihood of a bag +" in fitted.stdout
    limits = "Formation of the bags measured on: features (as asked for)."
    for told in (fitted, call("inspect", place), call("evaluate", place)):
        assert limits in told.stdout
        assert "Known of bags only" in told.stdout
    assert "Formation of the bags measured on: random (" in call("evaluate", place, *tables).stdout
    facts = json.loads(call("inspect", place, "--json").stdout)
    assert facts["formation"]["name"] == "features"
    assert facts["bag_gain"]["value"] > facts["bag_gain"]["error"] > 0
    assert saving.load(place).estimator.formation == "features"
    page = json.loads(call("page", "--model", place, "--out", tmp_path / "page.html", "--json").stdout)
    assert page["standing"] == "unsure"
    assert "Known of bags only" in (tmp_path / "page.html").read_text()
    by_itself = call("fit", *few, "--model", "logistic", "--out", tmp_path / "auto")
    assert "Formation of bags: random (" in by_itself.stdout


@pytest.mark.filterwarnings("default:held-out bags do not")
def test_a_model_that_held_out_bags_do_not_prefer_says_so(tmp_path):
    rng = np.random.default_rng(0)
    events = pd.DataFrame(
        {"bag": np.arange(6000) // 16, "x": rng.normal(size=6000), "c": rng.choice(list("abc"), 6000)}
    )
    events.to_parquet(tmp_path / "events.parquet")
    counts = np.random.default_rng(3).binomial(16, 0.5, 375)  # which no feature tells
    pd.DataFrame({"bag": np.arange(375), "count": counts}).to_parquet(tmp_path / "reports.parquet")
    tables = tmp_path / "events.parquet", tmp_path / "reports.parquet"
    fitted = call("fit", *tables, "--model", "logistic", "--out", tmp_path / "model")
    assert fitted.exit_code == 0, fitted.output
    assert len([line for line in fitted.stderr.splitlines() if line.startswith("Warning: held-out bags do not")]) == 1
    said = "Held-out bags do not clearly prefer this model to the mean label of all rows (log-likelihood of a bag"
    assert said in fitted.stdout
    page = json.loads(call("page", "--model", tmp_path / "model", "--out", tmp_path / "page.html", "--json").stdout)
    assert page["standing"] != "good"
    assert page["remarks"][0].startswith(said)


@pytest.mark.slow
@pytest.mark.filterwarnings("default:these look like")
def test_later_commands_know_what_was_told_to_fit(few, tmp_path):
    """Keys, columns of reports, noise, roles and ignored columns."""
    events = pd.read_parquet(few[0]).rename(columns={"bag": "cell"}).assign(noise="loud", day=1)
    reports = pd.read_parquet(few[1]).rename(columns={"bag": "cell", "count": "bought", "size": "people"})
    reports = reports.assign(day=1, count=reports["bought"] * 0 + 99)  # a column of the usual name that says nothing
    events.to_parquet(tmp_path / "events.parquet")
    reports.to_parquet(tmp_path / "reports.parquet")
    tables = tmp_path / "events.parquet", tmp_path / "reports.parquet"
    told = ("--keys", "cell", "--count", "bought", "--size", "people", "--noise-variance", 4, "--ignore", "noise,day")
    fit = call("fit", *tables, *told, "--model", "ridge", "--roles", "age=category", "--out", tmp_path / "model")
    assert fit.exit_code == 0, fit.output
    options = "--keys cell --count bought --size people --noise-variance 4 --suppressed suppressed --ignore noise,day"
    for shown in (fit, call("inspect", tmp_path / "model")):
        assert f"Later commands take, unless told otherwise: {options}." in shown.stdout
    model = tmp_path / "model"
    known = call("evaluate", model, *tables, "--by", "noise", "--json")  # ignored, and asked for
    assert known.exit_code == 0, known.output
    told_again = call("evaluate", model, *tables, *told[:-1], "day", "--by", "noise", "--json")
    assert known.stdout == told_again.stdout
    found = json.loads(call("diagnose", *tables, "--model", model, "--json").stdout)
    assert (found["tables"]["noised"], found["tables"]["bags"]) == (True, 75)
    scored = call("predict", model, tables[0], "--reports", tables[1], "--out", tmp_path / "scored.parquet", "--json")
    facts = json.loads(scored.stdout)
    assert (facts["noised"], facts["bags"], facts["columns"]["others"]) == (True, 75, [])
    page = call("page", *tables, "--model", model, "--out", tmp_path / "page.html")
    assert page.exit_code == 0, page.output
    assert f"bagwise fit --config {model}.toml" in (tmp_path / "page.html").read_text()
    again = call("inspect", model, "--toml").stdout
    assert all(f"{word} = " in again for word in ("keys", "count", "size", "noise-variance", "ignore"))


@pytest.mark.slow
def test_texts_that_are_ids_are_left_out_and_said_to_be(few, tmp_path):
    events = pd.read_parquet(few[0])
    events["user"] = [f"u{number % 1150}" for number in range(len(events))]  # 50 of them twice
    events.to_parquet(tmp_path / "events.parquet")
    tables = tmp_path / "events.parquet", few[1]
    note = "user (taken for an id, since nearly every row has a value of its own; the role hashed or category keeps it)"
    fit = call("fit", *tables, "--model", "ridge", "--hold-out", 0, "--out", tmp_path / "model")
    assert f"Ignored: {note}." in fit.stdout
    assert f"Ignored: {note}." in call("diagnose", *tables).stdout


@pytest.mark.slow
def test_the_latest_bags_may_be_held_out(tmp_path):
    rng = np.random.default_rng(0)
    day = np.repeat(np.arange(40), 10)
    frame = pd.DataFrame(
        {"day": pd.Timestamp("2026-01-05") + pd.to_timedelta(day, unit="D"), "x": rng.normal(size=400)}
    )
    frame["bag"] = rng.permutation(40)[day]
    count = (rng.random(400) < 1 / (1 + np.exp(-2 * frame["x"]))).groupby(frame["bag"]).sum()
    frame.to_parquet(tmp_path / "events.parquet")
    count.rename("count").reset_index().to_parquet(tmp_path / "reports.parquet")
    tables, model = (tmp_path / "events.parquet", tmp_path / "reports.parquet"), tmp_path / "model"
    told = call("fit", *tables, "--model", "ridge", "--hold-out", "latest:0.3", "--out", model)
    assert told.exit_code == 0, told.output
    assert "Measured on 12 held-out bags (120 rows)" in told.stdout
    for shown in (told, call("evaluate", model)):
        assert "  Held out were the latest bags by day.\n" in shown.stdout
    assert "day: from 2026-01-05 to 2026-02-13" in told.stdout  # what columns hold is told by all rows
    page = bagwise.pages.model.Stored.of(model)
    data = bagwise.tables.join(*tables)
    judged = page.judged(data)
    assert judged.predictions.fingerprint == page.about.held_out
    assert len(judged.predictions.bags) == 12


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (
            ("--hold-out", "latest:2"),
            2,
            "--hold-out must be a share from 0 to 0.9, latest, or latest:0.3, got latest:2",
        ),
        (("--hold-out", "earliest"), 2, "--hold-out must be a share"),
        (("--hold-out", "0.95"), 2, "--hold-out must be a share"),
        (("--time", "seen"), 2, "--time says which bags are the latest: pass --hold-out latest, too"),
        (
            ("--hold-out", "latest", "--time", "device"),
            1,
            "--time names 'device', which holds text: it must hold times",
        ),
        (("--hold-out", "latest", "--ignore", "seen"), 1, "there is no column of times: name the one"),
    ],
)
def test_wrong_hold_outs_get_one_sentence(tables, tmp_path, options, code, words):
    told = call("fit", *tables, "--model", "ridge", "--out", tmp_path / "model", *options)
    assert words in sentence(told, code)


def test_refit_takes_the_held_out_bags_in(few, tmp_path):
    result = call("fit", *few, "--model", "ridge", "--out", tmp_path / "model", "--refit", "--json")
    facts = json.loads(result.stdout)
    assert (facts["summary"]["bags"], facts["evaluation"]["n_bags"], facts["refitted"]) == (75, 15, True)


def test_scores_stream_through_standard_input_and_output(model, tables):
    arguments = ["predict", str(model), "-", "--keep", "bag"]
    command = [sys.executable, "-m", "bagwise", *arguments]
    done = subprocess.run(command, input=tables[0].read_bytes(), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    text = call(*arguments, stdin=pd.read_parquet(tables[0]).to_csv(index=False).encode())
    assert text.exit_code == 0, text.output
    for found in (done.stdout.decode(), text.stdout):
        lines = found.splitlines()
        assert lines[0].replace('"', "") == "bag,prediction"
        assert len(lines) == 6001


def test_predictions_do_not_depend_on_how_they_are_written(model, tables, tmp_path):
    for name in ("scored.parquet", "scored.csv"):
        assert call("predict", model, tables[0], "--out", tmp_path / name).exit_code == 0
    one, other = pd.read_parquet(tmp_path / "scored.parquet"), pd.read_csv(tmp_path / "scored.csv")
    np.testing.assert_allclose(one["prediction"], other["prediction"], rtol=1e-12)
    assert pq.read_metadata(tmp_path / "scored.parquet").num_rows == 6000


def test_scores_go_to_a_table_of_a_duckdb_file(model, tables, tmp_path):
    out, plain = f"{tmp_path}/w.duckdb::scores", tmp_path / "scored.parquet"
    told = call("predict", model, tables[0], "--out", out)
    assert f"Written: {out}" in told.stdout
    assert "names a table that is there already (scores): choose another name, or pass --force" in sentence(
        call("predict", model, tables[0], "--out", out)
    )
    assert call("predict", model, tables[0], "--out", out, "--force").exit_code == 0
    assert call("predict", model, tables[0], "--out", plain).exit_code == 0
    with duckdb.connect(str(tmp_path / "w.duckdb")) as own:
        found = own.sql("FROM scores").df()
    np.testing.assert_array_equal(found["prediction"], pd.read_parquet(plain)["prediction"])
    nowhere = sentence(call("predict", model, tables[0], "--out", "::scores"), code=2)
    assert "commands have none: name file.duckdb::scores" in nowhere


# -- refusals -----------------------------------------------------------------------------------------------------


def test_nothing_is_overwritten_without_force(model, tables, tmp_path):
    before = {path: path.read_bytes() for path in model.iterdir()}
    assert "exists already" in sentence(call("fit", *tables, "--model", "ridge", "--out", model))
    scored = tmp_path / "scored.parquet"
    scored.write_text("mine")
    assert "exists already" in sentence(call("predict", model, tables[0], "--out", scored))
    assert scored.read_text() == "mine"
    assert call("predict", model, tables[0], "--out", scored, "--force").exit_code == 0
    assert "exists already" in sentence(call("bag", tables[0], "--label", "y", "--size", 4, "--out", tables[0].parent))
    assert {path: path.read_bytes() for path in model.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "EVENTS", "nowhere.parquet"], "no file nowhere.parquet"),
        (["fit", "EVENTS", "REPORTS", "--count", "clicks"], "no column 'clicks'"),
        (["fit", "EVENTS", "REPORTS", "--roles", "age=colour"], "cannot be 'colour'"),
        (["fit", "EVENTS", "REPORTS", "--keys", "campaign"], "campaign"),
        (["diagnose", "EVENTS"], "--keys"),
        (["diagnose", "EVENTS", "--keys", "bag"], "--proportion"),
        (["diagnose", "EVENTS", "REPORTS", "--noise-variance", "-1"], "--noise-variance must"),
        (["diagnose", "EVENTS", "REPORTS", "--noise-variance", "2", "--epsilon", "1"], "-variance and --epsilon say"),
        (["diagnose", "EVENTS", "REPORTS", "--memory", "lots"], "--memory must"),
        (["predict", "MODEL", "REPORTS", "--out", "x.parquet"], "none of the columns that the model uses is there"),
        (["predict", "MODEL", "EVENTS", "--out", "x.json"], "unknown ending"),
        (["predict", "MODEL", "EVENTS", "--keep", "nothing", "--out", "x.csv"], "no column 'nothing'"),
        (["predict", "nowhere", "EVENTS"], "nowhere"),
        (["inspect", "EVENTS"], "no folder"),
    ],
)
def test_errors_are_one_sentence(arguments, words, tables, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = {"EVENTS": tables[0], "REPORTS": tables[1], "MODEL": model}
    full = [places.get(one, one) for one in arguments]
    if arguments[0] == "fit":
        full += ["--out", tmp_path / "model", "--model", "ridge"]
    assert words in sentence(call(*full))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit"], "missing argument 'events' (see "),
        (["fit", "EVENTS", "REPORTS", "--seed", "-1"], "--seed: "),
        (
            ["fit", "EVENTS", "REPORTS", "--on-mismatch", "maybe"],
            "--on-mismatch must be error, drop, or drop: and kinds",
        ),
        (["fit", "EVENTS", "REPORTS", "--on-mismatch", "drop:unheard"], "eventless, repeated"),
        (["fit", "EVENTS", "REPORTS", "--colour", "red"], "no such option: --colour"),
        (["fit", "EVENTS", "REPORTS", "--roles", "age"], "--roles has 'age' without a role"),
        (["fit", "EVENTS", "REPORTS", "--processes", "4"], "--processes belongs to --engine torchrun"),
        (["fit", "EVENTS", "REPORTS", "--model", "ridge", "--time-budget", "5"], "--time-budget belongs to"),
        (["fit", "EVENTS", "REPORTS", "--time-budget", "0"], "--time-budget: input should be greater"),
        (["fit", "EVENTS", "REPORTS", "--time-budget", "-5"], "--time-budget: input should be greater"),
        (["fit", "EVENTS", "REPORTS", "--time-budget", "soon"], "--time-budget: input should be a valid number"),
        (["fit", "EVENTS", "REPORTS", "--time-budget", "inf"], "--time-budget must be a finite number"),
        (["fit", "EVENTS", "REPORTS", "--formation", "clumps"], "--formation: 'clumps' is not one of 'auto', 'random'"),
        (["fit", "EVENTS", "REPORTS", "--hold-out", "0", "--refit"], "--refit is for bags that were held out"),
        (["diagnose", "EVENTS", "-"], "only the events can come from standard input"),
        (["evaluate", "MODEL", "--level", "0.9"], "what is stored has 95% intervals"),
        (["evaluate", "MODEL", "--keys", "bag"], "--keys says something about tables"),
        (["nothing"], "no such command 'nothing'"),
    ],
)
def test_wrong_use_is_one_sentence_and_exits_with_2(arguments, words, tables, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = {"EVENTS": tables[0], "REPORTS": tables[1], "MODEL": model}
    said = sentence(call(*[places.get(one, one) for one in arguments]), 2)
    assert words in said
    assert said.endswith("--help).")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["fit", "gather", "page", "predict"])
def test_places_that_cannot_be_written_are_found_before_any_work(command, tables, model, tmp_path):
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "below"
    arguments = [model, tables[0]] if command == "predict" else tables
    assert sentence(call(command, *arguments, "--out", out)) == (
        f"Error: {out} cannot be written (not a directory): choose another place."
    )


def test_missing_values_are_diagnosed_and_may_be_what_groups_bags(tables, tmp_path):
    events = pd.read_parquet(tables[0])
    events["gap"] = np.where(events["bag"].astype("category").cat.codes % 2, np.nan, 1.0)
    events.to_parquet(tmp_path / "events.parquet")
    result = call("diagnose", tmp_path / "events.parquet", tables[1])
    assert result.exit_code == 0, result.output
    assert "gap, missing" in result.stdout


def test_every_model_and_formation_has_its_option():
    assert [model.value for model in Model] == sorted({*MODELS, *VALUE_MODELS})
    assert [formation.value for formation in Formation] == ["auto", *FORMATIONS]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--count", "count"), "--count says something about reports: pass --reports, too"),
        (("--reports", "-"), "only the events can come from standard input"),
    ],
)
def test_options_about_reports_need_reports(model, tables, tmp_path, options, words):
    told = call("predict", model, tables[0], "--out", tmp_path / "scored.csv", *options)
    assert told.exit_code == 2
    assert words in told.stderr


def test_debug_shows_the_traceback(tables, tmp_path):
    result = call("fit", tables[0], "nowhere.parquet", "--out", tmp_path / "model", "--debug")
    assert isinstance(result.exception, FileNotFoundError)


def test_long_stages_are_told_again_and_again(monkeypatch, capsys):
    """In logs, a line when a stage changes, and the same one again after half a minute at most."""
    assert common._PAUSE * common._LONGEST <= 30
    monkeypatch.setattr(common, "_PAUSE", 0.01)
    with common._progress_lines() as progress:
        for stage in ("joining", "fitting"):
            progress(0, None, stage)
            end = time.monotonic() + 20
            said = ""
            while said.count(stage) < 2 and time.monotonic() < end:
                said += capsys.readouterr().err
                time.sleep(0.01)
            assert said.count(stage) >= 2


@pytest.mark.usefixtures("few_trees")
def test_progress_is_told_without_a_terminal(few, tmp_path, monkeypatch):
    monkeypatch.setattr(common, "_PAUSE", 0.02)
    monkeypatch.setattr(common, "_LONGEST", 10**6)
    result = call("fit", *few, "--model", "boosting", "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    lines = result.stderr.splitlines()
    assert all(re.fullmatch(r"\d+:\d\d \S.*", line) for line in lines)
    assert any("choosing settings: fit" in line for line in lines)
    assert all(one != two for one, two in itertools.pairwise(lines))


def test_the_default_minds_the_time(few, tmp_path, monkeypatch):
    """Without --time-budget there are five minutes for all of it, joining and measuring, too; two fits share them."""
    seen, clock = [], [0.0]
    join, split = bagwise.tables.join, bagwise.tables.split

    def fit(bags, kind, *, time_budget, **_):
        seen.append((kind, time_budget))
        raise RuntimeError("seen.")

    def slow_join(*arguments, **options):
        clock[0] += 20
        return join(*arguments, **options)

    monkeypatch.setattr("bagwise.cli.tables.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("bagwise.tables.fit", fit)
    monkeypatch.setattr("bagwise.tables.join", slow_join)
    for options in ((), ("--refit",), ("--time-budget", 60), ("--time-budget", 10), ("--model", "ridge")):
        call("fit", *few, "--out", tmp_path / "model", *options)
    assert seen == [("auto", 250), ("auto", 115), ("auto", 34), ("auto", 1), ("ridge", None)]
    seen.clear()
    fitted = bagwise.tables.fitting.fit(split(join(*few), 0.2)[0], "ridge")

    def slow_fit(bags, kind, *, time_budget, **_):
        clock[0] += 100  # less than it might have taken
        seen.append(time_budget)
        return fitted

    monkeypatch.setattr("bagwise.tables.fit", slow_fit)
    assert call("fit", *few, "--out", tmp_path / "model", "--refit").exit_code == 0
    assert seen == [115, 150]


def test_two_bags_are_learned_from_where_none_is_held_out(tmp_path, monkeypatch):
    """None can be held out while fitting, either."""
    only = {"logistic": bagwise.BagLogisticClassifier(alphas=1.0)}
    monkeypatch.setattr("bagwise.auto.estimator.default_candidates", lambda: only)
    rng, bag = np.random.default_rng(0), np.repeat([0, 1], 200)
    y = rng.random(400) < np.where(bag == 0, 0.2, 0.7)
    pd.DataFrame({"bag": bag, "x": rng.normal(size=400) + 2 * y}).to_csv(tmp_path / "events.csv", index=False)
    pd.DataFrame({"bag": [0, 1], "count": [y[:200].sum(), y[200:].sum()]}).to_csv(tmp_path / "r.csv", index=False)
    command = ("fit", tmp_path / "events.csv", tmp_path / "r.csv", "--out", tmp_path / "model")
    refused = call(*command)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "--hold-out 0.2 of 2 bags is 1: at least 3 must be held out" in refused.stderr
    assert not (tmp_path / "model").exists()
    told = call(*command, "--hold-out", 0)
    assert told.exit_code == 0, told.output
    assert "No candidate was tried on held-out bags:" in told.stdout
    assert "logistic              fitted without a trial: of 2 bags none can be held out" in told.stdout


def test_auto_returns_within_a_short_budget(tables, tmp_path):
    result = call("fit", *tables, "--time-budget", 1, "--out", tmp_path / "model", "--json")
    assert result.exit_code == 0, result.output
    tried = json.loads(result.stdout)["trials"]
    assert tried[-1]["risk"] is None
    assert tried[-1]["note"].startswith(("not tried: ", "stopped: ", "fitted without a trial: "))
    assert call("predict", tmp_path / "model", tables[0], "--out", tmp_path / "scored.parquet").exit_code == 0


# -- later tables ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::bagwise.tables.schema.UnseenValuesWarning")
def test_later_tables_refine_a_model(few, tmp_path):
    model, later = tmp_path / "model", tmp_path / "later"
    assert call("fit", *few, "--model", "ridge", "--out", model).exit_code == 0
    events, reports = pd.read_parquet(few[0]), pd.read_parquet(few[1])
    events = events.assign(device=events["device"].replace("radio", "television"), colour="red")
    reports = reports.assign(count=np.minimum(reports["count"] + 4, 16)).iloc[1:]
    later.mkdir()
    events[events["bag"].isin(reports["bag"])].to_parquet(later / "events.parquet")
    reports.to_parquet(later / "reports.parquet")
    tables = later / "events.parquet", later / "reports.parquet"
    result = call("fit", *tables, "--from", model, "--out", tmp_path / "model2")
    assert result.exit_code == 0, result.output
    assert "Labels have drifted since the model was fitted" in result.stdout
    assert "Column 'colour' is new, and is not read" in result.stdout
    assert "has categories that the model has not seen, such as 'television'" in result.stdout
    assert "moments of bags added to those of the old ones" in result.stdout
    assert isinstance(saving.load(tmp_path / "model2"), bagwise.tables.TableModel)
    found = call("fit", *tables, "--from", model, "--forgetting", 0.5, "--json", "--out", tmp_path / "model3")
    facts = json.loads(found.stdout)
    assert facts["update"]["forgetting"] == 0.5
    assert facts["drift"]["p_value"] < 0.01
    assert {one["column"] for one in facts["novelties"]} == {"colour", "device"}
    assert "they would count twice" in call("fit", *few, "--from", model, "--out", tmp_path / "model4").stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--forgetting", "0.5"], "--forgetting belongs to --from"),
        (["--from", "nowhere", "--forgetting", "2"], "--forgetting must be auto or a number from 0 to 1, got 2"),
        (["--from", "nowhere", "--model", "ridge"], "--model does not go with --from"),
        (["--from", "nowhere", "--roles", "age=ignored"], "--roles does not go with --from"),
    ],
)
def test_options_of_updates_that_make_no_sense(few, tmp_path, options, said):
    assert said in sentence(call("fit", *few, "--out", tmp_path / "model", *options), 2)
