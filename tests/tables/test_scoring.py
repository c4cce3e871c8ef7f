"""Scores given reports: those of the estimator in memory, however rows stream; what does not fit gets one sentence."""

from __future__ import annotations

from functools import cache, partialmethod
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise import tables
from bagwise.bags import several
from bagwise.tables import Table

ROWS = 3_000


def made_up(classes: int, *, noise: float = 0.0) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Events and reports; some bags without a report, one report without rows."""
    rng = np.random.default_rng(classes)
    events = pd.DataFrame(
        {
            "row": np.arange(ROWS),
            "part": rng.choice(["a", "b"], ROWS),
            "bag": np.minimum(rng.integers(0, 300, ROWS), 200),  # one of about a thousand rows
            "x": rng.normal(size=ROWS),
            "c": rng.choice(["u", "v", None], ROWS),
        }
    )
    score = events["x"] + (events["c"] == "u") + (events["part"] == "a") + rng.logistic(size=ROWS)
    label = np.digitize(score, [0.5] if classes == 2 else [0.0, 1.0])
    names = ["count"] if classes == 2 else ["low", "mid", "high"]
    counts = {"count": label} if classes == 2 else {name: label == place for place, name in enumerate(names)}
    reports = pd.DataFrame(counts).groupby([events["part"], events["bag"]]).sum().reset_index()
    reports["size"] = events.groupby(["part", "bag"]).size().to_numpy()
    if noise:
        reports[names] += rng.normal(scale=np.sqrt(noise), size=reports[names].shape)
    reports = reports[reports["bag"] % 5 > 0]
    reports = pd.concat([reports, reports[:1].assign(bag=999)])
    events["bag"] = events["bag"].astype("Int64")
    return events, reports, {} if classes == 2 else {"count": names}


@cache  # nobody changes what it returns
def fitted(classes: int, *, noise: float = 0.0) -> tuple[Any, pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    events, reports, named = made_up(classes, noise=noise)
    told = {**named, **({"noise_variance": noise} if noise else {})}
    data = tables.join(events, reports, **told, ignore="row", on_mismatch="drop")
    return tables.fit(data, "ridge", random_state=0), events, reports, told


def scored(model: Any, events: Any, reports: Any, out: Any, **options: Any) -> tuple[Any, Any]:
    found = tables.write_scores(model, events, out, reports=reports, **options)
    return found, pd.read_parquet(out)


@pytest.mark.parametrize(
    ("classes", "noise"),
    [
        (2, 9.0),
        (3, 0.0),
        pytest.param(2, 0.0, marks=pytest.mark.slow),
        pytest.param(3, 9.0, marks=pytest.mark.slow),
    ],
)
def test_scores_are_those_of_the_estimator_given_the_reports(
    classes: int, noise: float, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Table, "batches", partialmethod(Table.batches, rows=64))  # bags go over several batches
    model, events, reports, _ = fitted(classes, noise=noise)
    shuffled = events.sample(frac=1, random_state=1)
    plain, alone = scored(model, shuffled, None, tmp_path / "alone.parquet")
    found, given = scored(model, shuffled, reports, tmp_path / "given.parquet")
    names = list(model.predictions)
    assert given["row"].tolist() == alone["row"].tolist() == shuffled["row"].tolist()
    pd.testing.assert_frame_equal(given.drop(columns=names), alone.drop(columns=names))

    keyed = shuffled.reset_index(drop=True).merge(reports, on=["part", "bag"], how="left")
    inside = keyed["size"].notna().to_numpy()
    value = keyed[["count"] if classes == 2 else ["low", "mid", "high"]].div(keyed["size"], axis=0).to_numpy()[inside]
    ids = keyed.groupby(["part", "bag"]).ngroup().to_numpy()[inside]
    told = {"noise_variance": np.full(inside.sum(), noise)} if noise else {}
    bags = bw.Bags.from_rows(value.squeeze(), ids, **told)
    h = alone[names].to_numpy()
    np.testing.assert_array_equal(given[names].to_numpy()[~inside], h[~inside])
    expected = model.given_reports(h[inside].squeeze(), bags).reshape(inside.sum(), -1)
    np.testing.assert_allclose(given[names].to_numpy()[inside], expected, atol=1e-9)
    if not noise:
        sums = given[inside].groupby(ids)[names].sum().to_numpy()
        np.testing.assert_allclose(sums, bags.outputs * np.asarray(bags.size)[:, None], atol=1e-6)
    assert (found.rows, found.reported_rows, found.bags) == (ROWS, inside.sum(), len(bags))
    assert found.noised is (noise > 0)
    assert {one.kind for one in found.mismatches} == {"unreported", "eventless"}
    assert f"{inside.sum():,} of them in {len(bags)} bags with a report" in str(found)
    assert f"{ROWS - inside.sum():,} without, by the model alone" in str(found)
    assert str(plain) == "3,000 rows scored."


def test_reports_on_the_rows_themselves(tmp_path: Any) -> None:
    model, events, reports, _ = fitted(2)
    rate = events.merge(reports, on=["part", "bag"], how="left")
    rows = events.assign(rate=(rate["count"] / rate["size"]).to_numpy())
    rows.loc[rows["rate"].isna(), "bag"] = None
    _, two = scored(model, events, reports, tmp_path / "two.parquet")
    found, one = scored(model, rows, None, tmp_path / "one.parquet", proportion="rate")
    np.testing.assert_allclose(one["prediction"], two["prediction"], atol=1e-9)
    assert found.bags == len(reports) - 1


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda e, r: (e, r.assign(size=r["size"] + (r["bag"] == 7))), {}, "with another size reported than there are"),
        (lambda e, r: (e, pd.concat([r, r[:1]])), {}, "with more than one report, for example bag a / 1"),
        (
            lambda e, r: (e, r.assign(count=r["count"].where(r["count"] == r["size"], r["count"] + 0.5))),
            {},
            "which is no whole number: correct it, or declare its noise",
        ),
        (lambda e, r: (e.drop(columns="bag"), r), {"keys": ["part", "bag"]}, "the events have no key column 'bag'"),
        (lambda e, r: (e, r.drop(columns="bag")), {"keys": ["part", "bag"]}, "the reports have no key column 'bag'"),
        (lambda e, r: (e, r.assign(bag=-r["bag"])), {}, "no bag of the events has a report"),
        (lambda e, r: (e, r.rename(columns={"count": "n"})), {}, "must name a column of the reports"),
        (lambda e, r: (e, r), {"count": ["count", "size"]}, "the model knows the classes 0, 1, the reports have count"),
        (lambda e, r: (e.assign(bagwise_bag=1), r), {}, "column 'bagwise_bag' has a name that bagwise uses"),
    ],
)
def test_reports_that_do_not_fit_get_one_sentence(change: Any, options: Any, words: str, tmp_path: Any) -> None:
    model, events, reports, _ = fitted(2)
    events, reports = change(events, reports)
    with pytest.raises(ValueError, match=words):
        scored(model, events, reports, tmp_path / "out.parquet", **options)
    assert not (tmp_path / "out.parquet").exists()


def test_bags_that_do_not_fit_may_be_scored_by_the_model_alone(tmp_path: Any) -> None:
    model, events, reports, _ = fitted(2)
    wrong = reports.assign(size=reports["size"] + (reports["bag"] == 7))
    _, alone = scored(model, events, None, tmp_path / "alone.parquet")
    found, given = scored(model, events, wrong, tmp_path / "given.parquet", on_mismatch="drop")
    same = (given["prediction"] == alone["prediction"]).to_numpy()
    assert same[events["bag"] == 7].all()
    assert "Not used: 2 bags" in str(found)
    assert not same.all()


def test_names_of_columns_are_those_of_the_fit_unless_others_are_given(tmp_path: Any) -> None:
    events, reports, _ = made_up(2)
    reports = reports.rename(columns={"count": "bought", "size": "people"})
    told = {"count": "bought", "size": "people", "noise_scale": 2.0, "ignore": "row", "on_mismatch": "drop"}
    model = tables.fit(tables.join(events, reports, **told), "ridge", random_state=0)
    bw.save(model, tmp_path / "model")
    model = bw.load(tmp_path / "model")
    assert (model.reports.count, model.reports.size, model.reports.noise_scale) == ("bought", "people", 2.0)
    assert model.ignored == ("row",)
    again = tables.join(events, reports, like=model, on_mismatch="drop")
    assert (again.columns, again.keys, again.ignored) == (model.reports, ("part", "bag"), ("row",))
    assert (again.features, again.summary.noised) == (("x", "c"), True)
    other = tables.join(events, reports, like=model, noise_variance=0, ignore=["c"], on_mismatch="drop")
    assert (other.features, other.summary.noised) == (("row", "x"), False)  # told otherwise
    usual, _ = scored(model, events, reports, tmp_path / "usual.parquet")
    assert usual.noised
    exact, rows = scored(model, events, reports, tmp_path / "exact.parquet", noise_variance=0.0)
    assert not exact.noised
    sums = rows.groupby(["part", "bag"])["prediction"].sum()
    some = reports[:-1].set_index(["part", "bag"])["bought"]
    np.testing.assert_allclose(sums[some.index], some, atol=1e-6)


# -- several tables of reports, and rates of groups -------------------------------------------------------------------


@cache
def of_two_tables() -> tuple[Any, pd.DataFrame, pd.DataFrame, pd.DataFrame, Any]:
    rng = np.random.default_rng(3)
    campaign, site = np.repeat(np.arange(60), 40), rng.integers(0, 40, 2_400)
    country, x = rng.choice(["US", "DE"], 2_400), rng.normal(size=2_400)
    y = rng.random(2_400) < 1 / (1 + np.exp(1 - x - (country == "DE")))
    events = pd.DataFrame({"campaign": campaign, "site": site, "country": country, "x": x})
    one = pd.DataFrame({"campaign": np.arange(60), "count": np.bincount(campaign, y).astype(int)})
    other = pd.DataFrame({"site": np.arange(40), "count": np.bincount(site, y).astype(int)})
    data = tables.join(events, one, ignore=["site"])
    return tables.fit(data, "logistic", random_state=0), events, one, other, y


def test_scores_add_up_to_several_tables(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, events, one, other, _ = of_two_tables()
    monkeypatch.setattr(Table, "batches", partialmethod(Table.batches, rows=100))
    shuffled = events.sample(frac=1, random_state=0)
    found, given = scored(model, shuffled, [one, other], tmp_path / "given.parquet")
    assert given["campaign"].tolist() == shuffled["campaign"].tolist()
    for key, reports in (("campaign", one), ("site", other)):
        sums = given.groupby(key)["prediction"].sum()
        np.testing.assert_allclose(sums.loc[reports[key]], reports["count"], atol=1e-4)
    assert (found.rows, found.reported_rows, found.bags) == (2_400, 2_400, 100)
    _, alone = scored(model, shuffled, None, tmp_path / "alone.parquet")
    bags = several([
        bw.Bags.from_reports(shuffled[key], reports, key=key, count="count")
        for key, reports in (("campaign", one), ("site", other))
    ])  # fmt: skip
    expected = model.given_reports(alone["prediction"].to_numpy(), bags)
    np.testing.assert_allclose(given["prediction"], expected, atol=1e-5)


def test_several_tables_with_rows_without_reports_and_contradictions(tmp_path: Any) -> None:
    model, events, one, other, _ = of_two_tables()
    found, _ = scored(model, events, [one[:50], other[:30]], tmp_path / "some.parquet")
    assert found.tables == (1, 2)
    assert "Not used of report table 2: 10 bags" in str(found)
    wrong = other.assign(count=other["count"] + (other["site"] == 4))
    with pytest.raises(ValueError, match=r"table 2 of the same rows .*contradict each other; repair one"):
        scored(model, events, [one, wrong], tmp_path / "wrong.parquet")
    assert not (tmp_path / "wrong.parquet").exists()
    noised, _ = scored(model, events, [one, wrong], tmp_path / "noised.parquet", noise_variance=4.0)
    assert "follow, as far as its noise lets them," in str(noised)
    astray = other.assign(count=other["count"] + 60 * (other["site"] == 4))
    told, _ = scored(model, events, [one, astray], tmp_path / "astray.parquet", noise_variance=4.0)
    assert "Scores stay far from the count of bag '4' of report table 2" in str(told)
    with pytest.raises(ValueError, match=r"report table 2: .*no column in common"):
        scored(model, events.drop(columns="site"), [one, other], tmp_path / "none.parquet")


def test_scores_of_classes_add_up_to_several_tables(tmp_path: Any) -> None:
    rng, names = np.random.default_rng(0), ["red", "blue", "green"]
    keys = {"ward": np.arange(1200) // 30, "school": rng.permutation(1200) // 40}
    x = rng.normal(size=1200)
    y = (np.column_stack([0.5 + x, 0 * x, -x]) + rng.gumbel(size=(1200, 3))).argmax(axis=1)
    events, reports = pd.DataFrame({**keys, "x": x}), []
    for key, code in keys.items():
        counts = {name: np.bincount(code[y == c], minlength=code.max() + 1) for c, name in enumerate(names)}
        reports.append(pd.DataFrame({key: np.arange(code.max() + 1), **counts}))
    model = tables.fit(tables.join(events, reports, count=names), "ridge", random_state=0)
    found, given = scored(model, events, reports, tmp_path / "scored.parquet")
    assert found.bags == 70
    for key, one in zip(keys, reports, strict=True):
        sums = given.groupby(key)[[f"prediction_{name}" for name in names]].sum()
        np.testing.assert_allclose(sums, one[names], atol=1e-3)
    wrong = reports[1].assign(red=reports[1]["red"] + 1, blue=reports[1]["blue"] - 1)
    with pytest.raises(ValueError, match=r"rows of class 0, table 2 of the same rows .*contradict each other"):
        scored(model, events, [reports[0], wrong], tmp_path / "wrong.parquet")
    astray = reports[1].assign(red=reports[1]["red"] + 60 * (reports[1]["school"] == 4))
    told, _ = scored(model, events, [reports[0], astray], tmp_path / "astray.parquet", noise_variance=4.0)
    assert "Scores stay far from the count of bag '4' of report table 2" in str(told)


@pytest.mark.parametrize("number", [1, 2])
def test_rates_of_groups(number: int) -> None:
    model, events, one, other, y = of_two_tables()
    shuffled = events.assign(y=y).sample(frac=1, random_state=0)
    reports = [one, other][:number]
    found = tables.group_rates(model, shuffled.drop(columns="y"), reports=reports, by="country", formation="features")
    assert [one.n_rows for one in found.rates] == shuffled["country"].value_counts().tolist()
    for rate in found.rates:
        truth = shuffled["y"][shuffled["country"] == rate.value].mean()
        assert rate.least <= rate.low < truth < rate.high <= rate.most
    with pytest.raises(ValueError, match="names 'land', which is no column of the table"):
        tables.group_rates(model, events, reports=one, by="land")
