"""Reports in formats of others: small files made here, whose truth is known, through import, join and fit."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bagwise import tables
from bagwise.cli import app
from bagwise.cli.formats import Format
from bagwise.datasets.files import file, held
from bagwise.gains import NoBetterThanConstantWarning
from bagwise.tables.formats import FORMATS

REGISTER = "precincts/senc.tsv"
DUCK = tables.connect(threads=1)


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def imported(folder, format, text, name="source.csv", **options):
    """What an import of a file with some text comes to, and its reports."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    found = tables.import_reports(format, path, folder / "out", **options)
    return found, pd.read_parquet(found.reports)


def joined(found, events):
    """The tables joined as the command to go on with says."""
    options = {name: one.split(",") if "," in one else one for name, one in found.options.items()}
    return tables.join(events, str(found.reports), **options, connection=DUCK)


def test_the_command_knows_all_formats():
    assert [one.value for one in Format] == list(FORMATS)


# -- clean rooms ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log():
    """A log with two keys, one of them a date, and the label of each row."""
    rng = np.random.default_rng(1)
    day = pd.Timestamp("2026-03-01") + pd.to_timedelta(rng.integers(0, 5, 4000), unit="D")
    rows = pd.DataFrame({"campaign": rng.choice(list("ABCDE"), 4000, p=[0.4, 0.3, 0.2, 0.08, 0.02]), "day": day})
    rows["x"] = rng.normal(size=4000)
    return rows, rng.random(4000) < 1 / (1 + np.exp(2 - rows["x"]))


def released(rows, y, threshold, *, last):
    """What a clean room writes: groups of enough rows, and one line for the others."""
    groups = rows.assign(y=y).groupby(["campaign", rows["day"].dt.date], as_index=False)["y"].agg(["size", "sum"])
    groups.columns = ["campaign", "day", "users", "buyers"]
    shown, rest = groups[groups["users"] >= threshold], groups[groups["users"] < threshold]
    lines = ["campaign,day,users,buyers", *(",".join(map(str, line)) for line in shown.itertuples(index=False))]
    return "\n".join([*lines, last.format(users=rest["users"].sum(), buyers=rest["buyers"].sum())]), rest


@pytest.mark.parametrize("last", ["*,*,{users},{buyers}", ",,{users},{buyers}", "filtered rows,NULL,{users},{buyers}"])
def test_filtered_rows_of_a_clean_room_are_a_bag(log, tmp_path, last):
    """Every row counts, and the bag of filtered rows has the size and the count that are true of it."""
    rows, y = log
    text, rest = released(rows, y, 100, last=last)
    options = {"keys": ["campaign", "day"], "count": ["buyers"], "size": "users", "threshold": 100}
    found, lines = imported(tmp_path, "clean-room", text, **options)
    assert found.options == {"keys": "campaign,day", "count": "buyers", "size": "users", "null_keys": "rest"}
    assert lines["campaign"].iloc[-1] == "*"
    data = joined(found, rows)
    assert data.summary.used_rows == len(rows)
    assert data.summary.prior[0] == pytest.approx(y.mean())
    assert data.summary.rest_rows == rest["users"].sum() > 0
    (bag,) = (one for one in data.bags.fetch().to_pylist() if one["campaign"] == "*")
    assert bag["bag_proportion"] * bag["bag_size"] == pytest.approx(rest["buyers"].sum())


@pytest.mark.parametrize(("last", "most"), [("*;;", np.inf), ("*;;20", 20)])
def test_counts_that_a_clean_room_does_not_show(tmp_path, last, most):
    """Those of groups lie below the threshold; of the filtered groups together nothing is known but their size."""
    text = f"city;buyers;users\nRome;60;100\nOslo;NULL;30\n{last}\n"
    options = {"keys": ["city"], "count": ["buyers"], "threshold": 10} | ({"size": "users"} if most == 20 else {})
    found, lines = imported(tmp_path, "clean-room", text, **options)
    assert list(lines["city"]) == ["Rome", "Oslo", "*"]
    events = {"city": np.repeat(["Rome", "Oslo", "Bonn", "Kyiv"], [100, 30, 13, 7]), "x": np.arange(150)}
    data = joined(found, events)
    assert (data.summary.inexact, data.summary.rest_rows) == (2, 20)
    interval = data.reported.interval
    assert sorted(zip(interval.low, interval.high, strict=True)) == [(0, 9), (0, most), (60, 60)]


def test_classes_that_a_clean_room_does_not_show(tmp_path):
    """What is hidden of one class lies below the threshold, and in the rows that the other classes leave."""
    text = "city,red,blue,green,users\nRome,60,30,10,100\nOslo,24,NULL,,30\n*,,15,*,20\n"
    options = {"keys": ["city"], "count": ["red", "blue", "green"], "threshold": 10, "size": "users"}
    found, _ = imported(tmp_path, "clean-room", text, **options)
    assert found.options["low"] == "low_red,low_blue,low_green"
    events = {"city": np.repeat(["Rome", "Oslo", "Bonn", "Kyiv"], [100, 30, 13, 7]), "x": np.arange(150)}
    data = joined(found, events)
    assert (data.classes, data.summary.inexact) == (("red", "blue", "green"), 2)
    interval = data.reported.interval
    ends = sorted(zip(interval.low.tolist(), interval.high.tolist(), strict=True))
    assert ends == [([0, 15, 0], [5, 15, 5]), ([24, 0, 0], [24, 6, 6]), ([60, 30, 10], [60, 30, 10])]


def test_codes_that_begin_with_zero_stay_text(tmp_path):
    _, lines = imported(tmp_path, "clean-room", "zip,n\n00501,3\n10001,4\n", keys=["zip"], count=["n"])
    assert list(lines["zip"]) == ["00501", "10001"]


# -- precincts --------------------------------------------------------------------------------------------------------

PRECINCTS = "place,people,old,young,left,right\nmill,10,6,3,4,5\nhill,7,2,5,0,7\nnowhere,0,0,0,0,0\n"
OF_PRECINCTS = {"keys": ["place"], "groups": ["old", "young"], "count": ["left", "right"], "size": "people"}


def test_precincts_become_people(tmp_path):
    found, lines = imported(tmp_path, "precincts", PRECINCTS, **OF_PRECINCTS)
    assert lines.to_dict("list") == {
        "place": ["mill", "hill"], "size": [10, 7], "left": [4, 0], "right": [5, 7], "others": [1, 0],
    }  # fmt: skip
    people = pd.read_parquet(found.events).groupby(["place", "group"]).size().to_dict()
    assert people == {
        ("mill", "old"): 6, ("mill", "young"): 3, ("mill", "other"): 1, ("hill", "old"): 2, ("hill", "young"): 5,
    }  # fmt: skip
    assert found.options == {"keys": "place", "count": "left,right,others"}
    assert any("1 precinct without people" in note for note in found.notes)
    assert joined(found, str(found.events)).summary.prior == pytest.approx((4 / 17, 12 / 17, 1 / 17))


def test_rates_of_groups_come_out(tmp_path, seed):
    """Against the truth, within 5 standard errors of least squares on shares, which uses no more than the totals."""
    rng = np.random.default_rng(seed)
    truth = {"town": 0.7, "country": 0.2}
    people = rng.integers(20, 200, (80, 2))
    votes = rng.binomial(people, list(truth.values())).sum(1)
    lines = [f"{j},{a},{b},{c}" for j, ((a, b), c) in enumerate(zip(people, votes, strict=True))]
    text = "\n".join(["precinct,town,country,yes", *lines])
    options = {"keys": ["precinct"], "groups": list(truth), "count": ["yes"]}
    found, _ = imported(tmp_path, "precincts", text, **options)
    assert found.options["count"] == "yes,others"
    data = tables.join(str(found.events), str(found.reports), keys="precinct", count="yes")
    model = tables.fit(data, "logistic", random_state=0)
    tables.write_scores(model, {"group": list(truth)}, tmp_path / "rates.parquet")
    rates = pd.read_parquet(tmp_path / "rates.parquet")["prediction"].to_numpy()
    rate = np.array(list(truth.values()))
    size, variance = people.sum(1), (people * rate * (1 - rate)).sum(1)
    error = np.sqrt(np.diag(np.linalg.inv((people.T / variance) @ people)))
    assert size.sum() == data.summary.used_rows
    assert np.all(np.abs(rates - rate) < 5 * error)


@pytest.mark.slow
@pytest.mark.skipif(not held(REGISTER), reason="the precinct register is not there")
def test_democrats_of_a_real_register(tmp_path):
    """Rates by group, beside the true ones: nearer to them than least squares on shares, which leaves [0, 1].

    Of three parties. Democrats against all others are shrunk more (docs/formats.md); 0.08 is what was measured, 0.06,
    and some room: precincts are no sample, so no tolerance can be derived.
    """
    options = {"keys": ["county", "precinct"], "groups": ["white", "black", "natam"], "count": ["dem", "rep", "non"]}
    found = tables.import_reports("precincts", file(REGISTER), tmp_path / "out", size="total", **options)
    register = pd.read_csv(file(REGISTER), sep=" ")
    assert (found.lines, found.rows) == (212, register["total"].sum())
    with pytest.warns(NoBetterThanConstantWarning):  # precincts differ by more than their groups
        model = tables.fit(joined(found, str(found.events)), "logistic", random_state=0)
    tables.write_scores(model, {"group": options["groups"]}, tmp_path / "rates.parquet")
    rates = pd.read_parquet(tmp_path / "rates.parquet")["prediction_dem"].to_numpy()
    truth = [register[f"{short}dem"].sum() / register[group].sum() for group, short in
             zip(options["groups"], ("wh", "bl", "natam"), strict=True)]  # fmt: skip
    people = register[options["groups"]].to_numpy()
    weight = people / register[["total"]].to_numpy()
    plain = np.linalg.solve(weight.T @ people, weight.T @ register["dem"])
    assert plain.max() > 1
    assert np.all(np.abs(rates - truth) < np.abs(plain - truth))
    assert np.abs(rates - truth).max() < 0.08


# -- histograms of attributed conversions -----------------------------------------------------------------------------


def test_histograms_in_every_form_are_the_same(tmp_path):
    lines = "bucket,sum,epsilon,max_value,value\n0,30.5,2,4,2\n1,-3,2,4,2\n"
    records = [{"bucket": 0, "sum": 30.5}, {"bucket": 1, "sum": -3}]
    above = {"epsilon": 2, "max_value": 4, "value": 2}
    forms = [
        (lines, "a.csv", {}),
        (json.dumps({**above, "histogram": [30.5, -3]}), "b.json", {}),
        (json.dumps({**above, "buckets": records}), "c.json", {}),
        (json.dumps(records), "d.json", above),
    ]
    for text, name, options in forms:
        found, reports = imported(tmp_path, "attribution-histogram", text, name, **options)
        expected = {"bucket": [0, 1], "count": [15.25, -1.5], "epsilon": [2, 2], "sensitivity": [2, 2]}
        assert reports.to_dict("list") == expected, name
    data = joined(found, {"bucket": [0] * 40 + [1] * 30, "x": range(70)})
    assert list(data.reported.noise) == [2.0, 2.0]  # of counts: 2 (max_value / value / ε)²
    assert data.summary.noise == "Laplace noise (sensitivity by column 'sensitivity')"


def test_noise_of_a_histogram_is_as_declared(tmp_path):
    """Laplace noise of scale max_value/ε on sums: squares of what it does to counts average to what is declared."""
    rng = np.random.default_rng(5)
    buckets, each, most, epsilon = 4000, 5.0, 10.0, 0.5
    truth = rng.integers(0, 3, buckets)
    sums = each * truth + rng.laplace(scale=most / epsilon, size=buckets)
    text = json.dumps({"epsilon": epsilon, "max_value": most, "value": each, "histogram": list(sums)})
    found, reports = imported(tmp_path, "attribution-histogram", text, "h.json")
    events = {"bucket": np.repeat(np.arange(buckets), 2), "x": np.arange(2 * buckets)}
    declared = joined(found, events).reported.noise
    assert np.ptp(declared) == 0
    square = (reports["count"].to_numpy() - truth) ** 2
    assert abs(square.mean() - declared[0]) < 5 * declared[0] * np.sqrt(5 / buckets)  # E z⁴ = 6 (E z²)²


def test_sums_of_different_worth_are_values(tmp_path):
    text = "bucket,sum\nred,300.5\nblue,12\n"
    found, reports = imported(tmp_path, "attribution-histogram", text, epsilon=2.0, max_value=50.0)
    assert found.options == {"keys": "bucket", "target": "value"}
    assert list(reports["noise_scale"]) == [25.0, 25.0]
    data = joined(found, {"bucket": ["red", "blue", "red", "blue"], "x": [1, 2, 3, 4]})
    assert data.target == "value"
    assert data.reported.noise == pytest.approx([1250.0, 1250.0])


# -- postbacks --------------------------------------------------------------------------------------------------------


def postback(source, fine=None, coarse=None, window=0, **others):
    return {"source-identifier": source, "conversion-value": fine, "coarse-conversion-value": coarse,
            "postback-sequence-index": window, **others}  # fmt: skip


POSTBACKS = [
    postback("1234", 40), postback("1234", 3), postback("1299", 50), postback("123", 60), postback("12"),
    postback("12", None, "high"), postback("5678", 63), postback("56"), postback("5678", 1, window=1),
    postback("5678", 1, **{"did-win": False}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"shown": "first"}, {"12": (6, 6), "56": (2, 2), "*": (0, 0)}),
        ({"shown": "first", "positive": "32-63"}, {"12": (3, 5), "56": (1, 2), "*": (0, 0)}),
        ({"shown": "first", "positive": "high"}, {"12": (1, 6), "56": (0, 2), "*": (0, 0)}),
        (
            {"shown": "first", "positive": "32-63", "digits": 4},
            {"1234": (1, 4), "1299": (1, 3), "5678": (1, 2), "*": (0, 4)},
        ),
        ({"shown": "first", "window": 1}, {"56": (1, 1), "*": (0, 0)}),
        (
            {"shown": "last", "positive": "32-63"},
            {"12": (0, 2), "23": (1, 1), "34": (1, 1), "56": (0, 1), "78": (1, 1), "99": (1, 1), "*": (0, 0)},
        ),
    ],
)  # fmt: skip
def test_postbacks_lie_between_what_is_sure_and_what_may_be(tmp_path, options, expected):
    text = "\n".join(map(json.dumps, POSTBACKS))
    _, reports = imported(tmp_path, "ad-attribution-kit", text, "p.jsonl", **options)
    found = {line.source: (line.low, line.high) for line in reports.itertuples()}
    assert found == expected


def test_true_counts_lie_within_those_of_postbacks(tmp_path, seed):
    """Installs with values, of which digits and values are taken away at random; sources without any are the rest."""
    rng = np.random.default_rng(seed)
    source = rng.choice([f"{number:04d}" for number in rng.integers(0, 10_000, 40)], 600)
    value = rng.integers(0, 64, 600)
    length, known = rng.choice([2, 3, 4], 600), rng.random(600) < 0.7
    lines = [
        postback(one[:digits], int(worth) if there else None)
        for one, digits, worth, there in zip(source, length, value, known, strict=True)
    ]
    text = "\n".join(map(json.dumps, lines))
    events = {"source": np.repeat(np.unique(source), 100), "x": np.arange(100 * len(np.unique(source)))}
    options = {"positive": "50-63", "shown": "first", "digits": 4}
    found, reports = imported(tmp_path, "ad-attribution-kit", text, "p.jsonl", **options)
    truth = pd.Series(value >= 50).groupby(source).sum()
    told = reports[reports["source"] != "*"].set_index("source")
    assert np.all((told["low"] <= truth[told.index]) & (truth[told.index] <= told["high"]))
    data = joined(found, events)
    assert data.summary.used_rows == len(events["x"])
    assert data.summary.inexact > 0


# -- one sentence for everything that can be wrong --------------------------------------------------------------------

KEYED = {"keys": ["city"], "count": ["n"]}
COPY = json.dumps({**postback("12"), "postback-identifier": 7})
WRONG = {
    "format": ("spreadsheet", "a,b\n1,2\n", {}, "format must be"),
    "empty": ("clean-room", "", KEYED, "is empty"),
    "no lines": ("clean-room", "city,n\n", KEYED, "no line below the names"),
    "ragged": ("clean-room", "city,n\na,1\nb\n", KEYED, "line 3: 1 fields, but the first line names 2"),
    "twice": ("clean-room", "city,city\na,1\n", KEYED, "two columns are called 'city'"),
    "column": ("clean-room", "town,n\na,1\n", KEYED, "keys names a column 'city'"),
    "needed": ("clean-room", "city,n\na,1\n", {"keys": ["city"]}, "count must be given"),
    "other": ("clean-room", "city,n\na,1\n", {**KEYED, "groups": ["n"]}, "groups does not go with"),
    "count": ("clean-room", "city,n\na,many\n", KEYED, "line 2: 'n' is 'many'"),
    "part": ("clean-room", "city,n\na,1.5\n", KEYED, "must be a whole number"),
    "hidden": ("clean-room", "city,n\na,\nb,2\n", KEYED, "threshold is missing, as line 2"),
    "below": ("clean-room", "city,n\na,3\n", {**KEYED, "threshold": 5}, "below the threshold 5"),
    "above": ("clean-room", "city,n,k\na,3,2\n", {**KEYED, "size": "k"}, "above its size 2"),
    "reserved": ("clean-room", "bag_size,n\na,3\n", {"keys": ["bag_size"], "count": ["n"]}, "bagwise uses itself"),
    "votes": ("precincts", "p,a,b,c\nx,1,2,9\n", {"keys": ["p"], "groups": ["a", "b"], "count": ["c"]}, "9 votes of 3"),
    "groups": ("precincts", PRECINCTS.replace("10,6", "8,6"), OF_PRECINCTS, "more than 'people' says"),
    "precinct": ("precincts", PRECINCTS.replace("hill", "mill"), OF_PRECINCTS, "mill is in line 2 already"),
    "no key": ("precincts", PRECINCTS.replace("hill", ""), OF_PRECINCTS, "'place' is empty"),
    "gap": ("precincts", PRECINCTS.replace("10,6", "10,"), OF_PRECINCTS, "'old' is ''"),
    "epsilon": ("attribution-histogram", "bucket,sum\n1,2\n", {}, "epsilon must be given"),
    "negative": ("attribution-histogram", "bucket,sum,epsilon\n1,2,-1\n", {"max_value": 1.0}, "a positive number"),
    "bucket": ("attribution-histogram", "bucket,total\n1,2\n", {}, "needs the fields bucket and sum"),
    "buckets": ("attribution-histogram", "bucket,sum\n1,2\n1,3\n", {"epsilon": 1.0, "max_value": 1.0}, "there twice"),
    "worth": ("attribution-histogram", "bucket,sum,value\n1,2,2\n2,3,\n", {"epsilon": 1.0, "max_value": 4.0}, "of 1 b"),
    "no JSON": ("ad-attribution-kit", "{nothing", {}, "line 1: no JSON"),
    "no source": ("ad-attribution-kit", '{"jws-string": "e30"}', {}, "decode the payload"),
    "digits": ("ad-attribution-kit", json.dumps(postback("1")), {}, "2 to 4 digits"),
    "fine": ("ad-attribution-kit", json.dumps(postback("12", 64)), {}, "from 0 to 63"),
    "coarse": ("ad-attribution-kit", json.dumps(postback("12", None, "big")), {}, "low, medium or high"),
    "window": ("ad-attribution-kit", json.dumps(postback("12", window=3)), {}, "must be 0, 1 or 2"),
    "no window": ("ad-attribution-kit", json.dumps(postback("12")), {"window": 2}, "no postback"),
    "lengths": ("ad-attribution-kit", "\n".join(json.dumps(postback(one)) for one in ("12", "123")), {}, "or last"),
    "positive": ("ad-attribution-kit", json.dumps(postback("12")), {"positive": "60-70"}, "32-63"),
    "copies": ("ad-attribution-kit", f"{COPY}\n{COPY}", {}, "postback 7 is there twice"),
    "short": ("ad-attribution-kit", json.dumps(postback("12")), {"digits": 3}, "no postback shows so many"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_malformed_files_get_one_sentence(tmp_path, case):
    format, text, options, words = WRONG[case]
    with pytest.raises(ValueError, match=words) as raised:
        imported(tmp_path, format, text, **options)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_to_go_on_with_runs(tmp_path, log):
    rows, y = log
    text, _ = released(rows, y, 100, last="*,*,{users},{buyers}")
    (tmp_path / "release.csv").write_text(text)
    rows.to_parquet(tmp_path / "log.parquet")
    told = ["--keys", "campaign,day", "--count", "buyers", "--size", "users", "--threshold", 100]
    source, out = tmp_path / "release.csv", tmp_path / "out"
    result = call("import", "clean-room", source, *told, "--out", out)
    assert result.exit_code == 0, result.output
    *_, last = result.stdout.splitlines()
    command = last.removeprefix("Go on with: ").replace("EVENTS", str(tmp_path / "log.parquet"))
    fitted = call(*shlex.split(command)[1:], "--model", "ridge", "--hold-out", 0, "--out", tmp_path / "model")
    assert fitted.exit_code == 0, fitted.output
    assert "in 1 bag of all others (*)" in fitted.stdout
    again = call("import", "clean-room", source, *told, "--out", out)
    assert "pass --force" in again.stderr
    shown = json.loads(call("import", "clean-room", source, *told, "--out", out, "--force", "--json").stdout)
    assert shown["options"]["null_keys"] == "rest"
    binary = call("import", "clean-room", tmp_path / "log.parquet", *told, "--out", out, "--force")
    assert "is no text in UTF-8" in binary.stderr
    gone = call("import", "clean-room", tmp_path / "none.csv", *told, "--out", out, "--force")
    assert "there is no file" in gone.stderr
    other = call("import", "clean-room", source, *told, "--max-value", 3, "--out", out, "--force")
    assert other.stderr == "Error: --max-value does not go with the format clean-room: leave it out.\n"
