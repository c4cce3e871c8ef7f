"""Columns of weights and offsets, from the join to scores, in tables and commands."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import bagwise as bw
from bagwise import tables
from bagwise.cli import app
from bagwise.data.rows import fit_codes
from bagwise.tables.fitting import features_of
from bagwise.tables.gather import gather, write_shards
from bagwise.tables.model import Recipe
from bagwise.tables.row_columns import RowColumns
from bagwise.utils.parameters import ParameterError

pytestmark = [
    pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning"),
    pytest.mark.filterwarnings("ignore::bagwise.evaluation.BagsNotRandomWarning"),
]


@pytest.fixture(scope="module")
def made():
    """Events, reports of people, and the truth."""
    rng = np.random.default_rng(3)
    n, m = 2000, 50
    x, kind, weight = rng.normal(size=n), rng.choice(list("abc"), n), rng.integers(1, 5, n)
    exposure = rng.uniform(0.1, 4.0, n)
    bag = np.argsort(np.argsort(x + 0.7 * rng.normal(size=n))) * m // n
    truth = expit(-2.0 + x + 0.8 * (kind == "a") + np.log(exposure))
    events = pd.DataFrame({"bag": bag, "x": x, "kind": kind, "people": weight, "log_exposure": np.log(exposure)})
    count = np.bincount(bag, rng.binomial(weight, truth))
    size = np.bincount(bag, weight).astype(int)
    return events, pd.DataFrame({"bag": np.arange(m), "count": count, "size": size}), truth


def test_sizes_are_compared_with_people(made):
    events, reports, _ = made
    data = tables.join(events, reports, weight="people", offset="log_exposure")
    assert data.features == ("x", "kind")
    assert (data.summary.used_rows, data.summary.people) == (2000, events.people.sum())
    assert f"2,000 rows in all that stand for {events.people.sum():,} people" in str(data.summary)
    assert data.summary.prior[0] == pytest.approx(reports["count"].sum() / events.people.sum())
    with pytest.raises(ValueError, match="another size reported than there are rows"):
        tables.join(events, reports.assign(size=reports["size"] + 1), weight="people")
    wide = events.assign(count=0, rate=(reports["count"] / reports["size"]).to_numpy()[events.bag])
    aligned = tables.join(wide, keys="bag", proportion="rate", weight="people", ignore="count")
    assert aligned.summary.prior[0] == pytest.approx(data.summary.prior[0])


def test_rows_are_gathered_with_what_is_theirs(made):
    events, reports, _ = made
    data = tables.join(events, reports, weight="people", offset="log_exposure")
    found = gather(data, features_of(data))
    assert found.bags.size.sum() == events.people.sum()
    expected = events.assign(x=events.x.astype("f4")).sort_values("x")
    order = np.argsort(found.X[:, 0], kind="stable")
    np.testing.assert_allclose(found.X[order, 0], expected.x)
    np.testing.assert_allclose(found.bags.weight[order], expected.people)
    np.testing.assert_allclose(found.bags.offset[order], expected.log_exposure)
    again = tables.join(events.sample(frac=1, random_state=0), reports, weight="people", offset="log_exposure")
    np.testing.assert_array_equal(gather(again, features_of(again)).X, found.X)


@pytest.mark.parametrize("model", ["ridge", "logistic"])
def test_weights_in_tables_are_rows_repeated(made, model):
    events, reports, _ = made
    repeated = events.loc[events.index.repeat(events.people)].reset_index(drop=True)
    ignore = ["log_exposure"]
    estimator = {"ridge": bw.BagRidgeClassifier, "logistic": bw.BagLogisticClassifier}[model](random_state=0, cv=3)
    one = tables.join(events, reports, weight="people", ignore=ignore)
    many = tables.join(repeated, reports, ignore=[*ignore, "people"])
    rows = gather(many, features_of(many))
    encoding = gather(one, features_of(one)).encoding()
    fitted = tables.fit(one, estimator)
    known = type(estimator)(random_state=0, cv=3).fit(encoding(rows.X), bags=rows.bags)
    np.testing.assert_allclose(fitted.estimator.coef_, known.coef_, rtol=1e-5)  # numbers in single precision
    found = tables.evaluate(fitted, one)
    assert found.bags.gain.value == pytest.approx(
        tables.evaluate(fitted_without(fitted), many).bags.gain.value, rel=1e-6
    )
    verdicts = [tables.diagnose(data).verdict for data in (one, many)]
    assert verdicts[0] == verdicts[1]


def fitted_without(model):
    """The same model for tables whose rows stand for one person each."""
    return replace(model, of_rows=RowColumns())


@pytest.mark.parametrize("offset", ["log_exposure", None])
def test_rates_of_groups_are_of_people(made, tmp_path, offset):
    """In tables and commands: those of the same rows repeated, by a model that was fitted to some of the bags."""
    events, reports, truth = made
    repeated = events.loc[events.index.repeat(events.people)].reset_index(drop=True)
    ignore = ["log_exposure"] if offset is None else []
    data = tables.join(events[events.bag < 45], reports[:45], weight="people", offset=offset, ignore=ignore)
    fitted = tables.fit(data, bw.BagLogisticClassifier(cv=3, random_state=0, formation="features"))
    told = {"by": "kind", "formation": "features"}
    found = tables.group_rates(fitted, events, reports=reports, **told)
    alone = replace(fitted, of_rows=RowColumns(offset=offset))
    known = tables.group_rates(alone, repeated, reports=reports, **told)
    assert {one.value: one.n_people for one in found.rates} == events.groupby("kind").people.sum().to_dict()
    for one in found.rates:
        (other,) = (other for other in known.rates if other.value == one.value)
        for name in ("prediction", "rate", "low", "high", "least", "most"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-6)
        inside = events.kind == one.value
        assert abs(one.rate - np.average(truth[inside], weights=events.people[inside])) < one.high - one.low
    bw.save(fitted, tmp_path / "model")
    paths = [str(tmp_path / name) for name in ("events.parquet", "reports.parquet")]
    for frame, path in zip((events, reports), paths, strict=True):
        frame.to_parquet(path, index=False)
    asked = ["predict", str(tmp_path / "model"), paths[0], "--reports", paths[1], "--by", "kind", "--json"]
    said = CliRunner().invoke(app, [*asked, "--formation", "features"])
    assert said.exit_code == 0, said.output
    written = {one["value"]: one["rate"] for one in json.loads(said.stdout)["rates"]}
    assert written == pytest.approx({one.value: one.rate for one in found.rates})


@pytest.mark.filterwarnings("ignore:these look like the tables")
def test_commands_from_fit_to_scores(made, tmp_path):
    events, reports, truth = made
    events.to_parquet(tmp_path / "events.parquet", index=False)
    reports.to_parquet(tmp_path / "reports.parquet", index=False)
    both, folder = [str(tmp_path / "events.parquet"), str(tmp_path / "reports.parquet")], str(tmp_path / "model")
    run = CliRunner().invoke
    told = ["--weight", "people", "--offset", "log_exposure", "--model", "logistic", "--out", folder, "--json"]
    fitted = run(app, ["fit", *both, *told])
    assert fitted.exit_code == 0, fitted.output
    about = json.loads(fitted.stdout)
    assert (about["reports"]["weight"], about["reports"]["offset"]) == ("people", "log_exposure")
    model = bw.load(folder)
    assert model.of_rows == RowColumns("people", "log_exposure")
    assert "--weight people --offset log_exposure" in run(app, ["inspect", folder]).output
    evaluated = run(app, ["evaluate", folder, *both, "--json"])
    assert json.loads(evaluated.stdout)["bags"]["gain"]["value"] > 0
    alone, given = str(tmp_path / "alone.parquet"), str(tmp_path / "given.parquet")
    events.drop(columns="people").to_parquet(tmp_path / "later.parquet", index=False)
    assert run(app, ["predict", folder, str(tmp_path / "later.parquet"), "--out", alone]).exit_code == 0
    h = pd.read_parquet(alone).prediction
    assert np.abs(h - truth).mean() < 0.5 * np.abs(truth.mean() - truth).mean()
    assert run(app, ["predict", folder, both[0], "--reports", both[1], "--out", given]).exit_code == 0
    scored = pd.read_parquet(given)
    assert list(scored.columns) == [*events.columns, "prediction"]
    sums = (scored.prediction * scored.people).groupby(scored.bag).sum()
    np.testing.assert_allclose(sums, reports["count"], rtol=1e-9)
    for missing, said in (
        ("log_exposure", "--offset names column 'log_exposure'"),
        ("people", "--weight names column"),
    ):
        events.drop(columns=missing).to_parquet(tmp_path / "less.parquet", index=False)
        less = [str(tmp_path / "less.parquet"), both[1]]
        refused = run(app, ["evaluate", folder, *less])
        assert refused.exit_code != 0
        assert said in refused.output


@pytest.mark.parametrize(
    ("changed", "told", "said"),
    [
        ({"people": -1}, {"weight": "people"}, "weight names column 'people', which is empty or wrong in 2,000 rows"),
        ({"people": np.nan}, {"weight": "people"}, "it must be a number of people, finite and not negative"),
        ({"people": "two"}, {"weight": "people"}, "weight names column 'people', which holds no numbers"),
        ({}, {"weight": "nobody"}, "weight names column 'nobody', which the events do not have"),
        ({"log_exposure": np.inf}, {"offset": "log_exposure"}, "it must be a finite number, added to log odds"),
        ({}, {"weight": "people", "offset": "people"}, "which is the weight of rows already"),
    ],
)
def test_columns_that_cannot_be_read_are_named(made, changed, told, said):
    events, reports, _ = made
    with pytest.raises(ParameterError, match=said):
        tables.join(events.assign(**changed), reports, **told)


def test_rows_that_stand_for_nobody_leave_a_bag_without_rows(made):
    events, reports, _ = made
    empty = events.assign(people=events.people.where(events.bag != 7, 0))
    with pytest.raises(ValueError, match="with a report but no rows, for example bag 7"):
        tables.join(empty, reports, weight="people")


@pytest.mark.parametrize("weight", ["people", None])
def test_shards_keep_what_is_of_rows(made, tmp_path, weight):
    """On disk, in blocks: the same rows, weights and offsets as in memory, and what is learned from them."""
    events, reports, _ = made
    ignore = [] if weight else ["people"]
    sizes = (
        reports
        if weight
        else reports.drop(columns="size").assign(count=np.minimum(reports["count"], np.bincount(events.bag)))
    )
    data = tables.join(events, sizes, weight=weight, offset="log_exposure", ignore=ignore)
    features = features_of(data)
    memory, disk = gather(data, features), write_shards(data, features, tmp_path / "shards", group_rows=300)
    assert len(disk) > 4
    np.testing.assert_array_equal(np.concatenate([disk.block(i) for i in range(len(disk))]), memory.X)
    for name in ("weight", "offset", "size", "proportion", "order"):
        np.testing.assert_array_equal(getattr(disk.bags, name), getattr(memory.bags, name))
    np.testing.assert_array_equal(disk.rows, memory.rows)
    some = disk.sample(600)
    np.testing.assert_array_equal(some.bags.offset, memory.offset[: some.bags.n_bagged])
    assert disk.fingerprint != memory.fingerprint
    for model in (
        bw.BagBoostingClassifier(n_estimators=5, cv=2, random_state=0, n_jobs=1),
        bw.BagNeuralClassifier(learning_rate=0.01, max_epochs=2, cv=2, random_state=0),
    ):
        fitted = [type(model)(**model.get_params(deep=False)) for _ in range(2)]
        encodings = [fit_codes(one, rows) for one, rows in zip(fitted, (disk, memory), strict=True)]
        codes = [memory.X[:500] if one is None else one(memory.X[:500]) for one in encodings]
        said = [one.predict_proba(X, offset=memory.offset[:500]) for one, X in zip(fitted, codes, strict=True)]
        np.testing.assert_allclose(*said, rtol=1e-5)
    model = Recipe.of(features, data).model(fitted[0], encodings[0], "network")
    there, here = (tables.evaluate(model, one) for one in (disk, data))
    assert there.bags.gain.value == pytest.approx(here.bags.gain.value, rel=1e-6)


def test_several_tables_of_reports(made, tmp_path):
    """Reports by bag and by site of people with an offset: sizes are compared, and scores add up to both."""
    events, _, _ = made
    rng = np.random.default_rng(0)
    truth = expit(-2.0 + events.x + 0.8 * (events.kind == "a") + events.log_exposure)
    ones, events = rng.binomial(events.people, truth), events.assign(site=rng.integers(0, 20, len(events)))
    both = [
        pd.DataFrame({key: np.arange(m), "count": np.bincount(ids, ones), "size": np.bincount(ids, events.people)})
        for key, ids, m in (("bag", events.bag, 50), ("site", events.site, 20))
    ]
    told = {"weight": "people", "offset": "log_exposure"}
    data = tables.join(events, both, **told)
    rows = gather(data, features_of(data))
    assert rows.bags.n_people == 2 * events.people.sum()
    order = np.argsort(rows.X[:, 0], kind="stable")
    expected = events.assign(x=events.x.astype("f4")).sort_values("x")
    for of_rows, column in ((rows.bags.weight, "people"), (rows.bags.offset, "log_exposure")):
        np.testing.assert_allclose(rows.bags.of_table(of_rows)[order], expected[column])
    paths = [str(tmp_path / name) for name in ("events.parquet", "bags.parquet", "sites.parquet")]
    for frame, path in zip((events, *both), paths, strict=True):
        frame.to_parquet(path, index=False)
    run, out, folder = CliRunner().invoke, str(tmp_path / "scored.parquet"), str(tmp_path / "model")
    options = ["--weight", "people", "--offset", "log_exposure", "--model", "logistic", "--hold-out", "0"]
    fitted = run(app, ["fit", *paths, *options, "--out", folder])
    assert fitted.exit_code == 0, fitted.output
    scored = run(app, ["predict", folder, paths[0], "--reports", paths[1], "--reports", paths[2], "--out", out])
    assert scored.exit_code == 0, scored.output
    found = pd.read_parquet(out)
    for key, one in zip(("bag", "site"), both, strict=True):
        sums = (found.prediction * found.people).groupby(found[key]).sum()
        np.testing.assert_allclose(sums, one["count"], atol=2e-3)
    with pytest.raises(ValueError, match=r"report table 2: .*another size reported than there are rows"):
        tables.join(events, [both[0], both[1].assign(size=both[1]["size"] + 1)], **told)


def test_what_does_not_know_them_says_so(made):
    events, reports, _ = made
    moved = tables.join(events, reports, weight="people", offset="log_exposure")
    for model in ("ridge", "sgd"):
        with pytest.raises(ParameterError, match=f"added to log odds, which {model} does not have: take logistic"):
            tables.fit(moved, model)
    fitted = tables.fit(moved, bw.BagLogisticClassifier(cv=2, random_state=0))
    with pytest.raises(ParameterError, match="offset is of both or none: the model was fitted with one, the later"):
        tables.update(fitted, tables.join(events, reports, weight="people"))
    known = {"x": [0.0], "kind": ["a"], "label": [1]}
    with pytest.raises(ValueError, match="labels: there is no column 'log_exposure', the offset of the events"):
        tables.with_labels(moved, known)
    with pytest.raises(ValueError, match="labels: column 'people' is not 1 in 1 row: a label is of one person"):
        tables.with_labels(moved, {**known, "log_exposure": [0.0], "people": [2]})


def test_labels_beside_reports_of_people(made):
    """A labelled person is a bag of one; what is learned is that of rows repeated, and measured by labels."""
    events, reports, _ = made
    rng = np.random.default_rng(1)
    some = events.sample(300, random_state=0).drop(columns=["bag", "people"])
    truth = expit(-2.0 + some.x + 0.8 * (some.kind == "a") + some.log_exposure)
    some = some.assign(label=rng.binomial(1, truth))
    repeated = events.loc[events.index.repeat(events.people)].reset_index(drop=True)
    one = tables.with_labels(tables.join(events, reports, weight="people", offset="log_exposure"), some)
    many = tables.with_labels(tables.join(repeated.drop(columns="people"), reports, offset="log_exposure"), some)
    assert (one.summary.bags, one.summary.used_rows, one.summary.people) == (350, 2300, events.people.sum() + 300)
    assert one.summary.prior == pytest.approx(many.summary.prior)
    rows, all_rows = (gather(data, features_of(data)) for data in (one, many))
    encoding = rows.encoding()
    model = bw.BagLogisticClassifier(alphas=1.0, scaling=1.0, formation="features", random_state=0)
    found = model.fit(encoding(rows.X), bags=rows.bags).coef_
    np.testing.assert_allclose(found, model.fit(encoding(all_rows.X), bags=all_rows.bags).coef_, rtol=1e-4)
    data = tables.join(events, reports, weight="people", offset="log_exposure")
    fitted = tables.fit(data, bw.BagLogisticClassifier(cv=3, random_state=0))
    measured = tables.evaluate(fitted, data, labels=some)
    assert measured.n_labels == 300
    h = fitted.predict_codes(gather(data, fitted.features).X, gather(data, fitted.features).offset)
    assert h.shape == (2000,)
    alone = np.mean((some.label - truth) ** 2)
    assert measured.brier.low < alone + 0.02
    assert measured.brier.high > alone - 0.02


def test_later_tables_of_people(made):
    """Half of the bags, then the others: weights and offsets of both."""
    events, reports, _ = made
    told = {"weight": "people", "offset": "log_exposure"}
    fixed = bw.BagLogisticClassifier(alphas=1.0, scaling=1.0, formation="features", cv=3, random_state=0)
    early, late = (
        tables.join(events[chosen(events.bag % 2)], reports[chosen(reports.bag % 2)], **told)
        for chosen in (lambda odd: odd == 0, lambda odd: odd == 1)
    )
    before = tables.fit(early, fixed)
    found = tables.update(before, late)
    assert found.update.learned
    assert not found.drift.drifted
    assert found.model.summary.people == events.people.sum()
    both = tables.fit(tables.join(events, reports, **told), fixed)
    data = gather(tables.join(events, reports, **told), both.features)
    h = [one.predict_codes(data.X, data.offset) for one in (before, found.model, both)]
    assert np.abs(h[1] - h[2]).mean() < 0.5 * np.abs(h[0] - h[2]).mean()
    assert found.model.summary.prior == pytest.approx(both.summary.prior)
