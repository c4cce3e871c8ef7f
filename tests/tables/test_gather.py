"""Ridge inside the engine is ridge: the same coefficients as from rows in memory, whatever table they came in."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise import tables
from bagwise.linear.moments import Moments, solve_ridge, worth
from bagwise.linear.ridge_fit import ALPHAS, SCALINGS
from bagwise.tables.bag_table import NUMBER
from bagwise.tables.columns import Features
from bagwise.tables.engines.duckdb import DuckDB
from bagwise.tables.gather import WIDEST, gather


def made_up(rows=3000, *, seed=0, classes=0):
    """Events with numbers far from 0, gaps, categories and times; reports of unequal bags."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "bag": rng.integers(0, rows // 12, rows),
            "age": rng.normal(1e6, 10, rows),
            "clicks": rng.poisson(3, rows),
            "gap": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(size=rows)),
            "device": rng.choice(["phone", "tablet", "radio"], rows),
            "day": pd.Timestamp("2026-03-02") + pd.to_timedelta(rng.integers(0, 20, rows), unit="D"),
            "always": 7.3,
        }
    )
    score = (frame["age"] - 1e6) / 20 + (frame["device"] == "radio") - frame["clicks"] / 6 + rng.normal(size=rows)
    label = np.digitize(score, [-0.3, 0.6])
    if not classes:
        counts = pd.DataFrame({"count": label == 2})
    else:
        counts = pd.DataFrame({f"count_{c}": label == c for c in range(classes)})
    reports = counts.groupby(frame["bag"]).sum().reset_index()
    return frame, reports


def narrow(rows):
    """Of the same tables, a number, gaps and a category: few columns make few sums for the engine."""
    events, reports = made_up(rows)
    return events[["bag", "age", "gap", "device"]], reports


def from_rows(data, model, noise_variance=0.0):
    """The solution from encoded rows in memory, in double precision and with the same folds."""
    table = model.features.select(data.rows(), NUMBER, *data.proportions).fetch()
    codes, encoding = model.features.matrix(table), model.encoding
    columns = []
    for i, levels in enumerate(encoding.levels):
        if levels is not None:
            columns += list((codes[:, i, None] == levels).T.astype(float))
            continue
        missing = np.isnan(codes[:, i])
        columns.append(np.where(missing, encoding.fill[i], (codes[:, i] - encoding.low[i]) / encoding.span[i]))
        if encoding.missing[i]:
            columns.append(missing.astype(float))
    X, number = np.stack(columns, axis=1), table.column(NUMBER).to_numpy()
    proportion = np.stack([table.column(name).to_numpy() for name in data.proportions], axis=1)
    bags = bw.Bags.from_rows(proportion, number)
    sums, fold = bags.sum_table(X), np.arange(len(bags)) % 5
    origin = X.mean(axis=0)
    deviation = sums - bags.size[:, None] * origin
    noise, mean = noise_variance / bags.size, bags.size @ bags.outputs / bags.n_bagged
    count = worth(noise, (mean * (1 - mean)).mean())
    parts = [
        Moments.of(deviation[one], bags.size[one], bags.outputs[one], count[one])
        for one in (fold == f for f in range(5))
    ]
    return solve_ridge(parts, ALPHAS, SCALINGS, count @ noise / count.sum()), origin


@pytest.fixture(params=[True, False])
def here(request, monkeypatch):
    """The engine with bags that stream by, and as one that is elsewhere."""
    monkeypatch.setattr(DuckDB, "here", request.param)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("classes", [0, 3])
def test_the_engine_solves_what_memory_solves(classes):
    events, reports = made_up(classes=classes)
    counts = [f"count_{c}" for c in range(classes)] if classes else None
    data = tables.join(events, reports, count=counts)
    model = tables.fit(data, "ridge")
    (coef, intercept, alpha, scaling, risks), origin = from_rows(data, model)
    assert (model.estimator.alpha_, model.estimator.scaling_) == (alpha, scaling)
    scale = np.abs(coef).max()
    np.testing.assert_allclose(np.atleast_2d(model.estimator.coef_), coef.T, atol=1e-8 * scale)
    np.testing.assert_allclose(model.estimator.intercept_, (intercept - origin @ coef).squeeze(), rtol=1e-7)
    np.testing.assert_allclose(model.estimator.risks_, risks, rtol=1e-9)


def test_the_model_learns():
    events, reports = made_up(20_000)
    model = tables.fit(tables.join(events, reports), "ridge")
    h = np.concatenate([batch.column("prediction").to_numpy() for batch in model.score(_table(events))])
    rows = events.assign(h=h)
    high = rows["device"] == "radio"
    assert rows.loc[high, "h"].mean() > rows.loc[~high, "h"].mean() + 0.1
    assert 0 <= h.min() <= h.max() <= 1


def _table(events):
    connection = tables.connect(ordered=True)
    return tables.read(events, connection)


@pytest.mark.usefixtures("here")
def test_noise_is_subtracted_from_the_risks_and_bags_count_for_less():
    events, reports = narrow(3000)
    data = tables.join(events, reports, noise_scale=1.5)
    model = tables.fit(data, "ridge")
    (coef, *_, risks), _ = from_rows(data, model, 2 * 1.5**2)
    np.testing.assert_allclose(model.estimator.risks_, risks, rtol=1e-9)
    np.testing.assert_allclose(model.estimator.coef_, coef[:, 0], atol=1e-8 * np.abs(coef).max())
    assert (
        np.abs(model.estimator.coef_ - tables.fit(tables.join(events, reports), "ridge").estimator.coef_).max() > 1e-6
    )


def test_nan_is_missing():
    events, reports = narrow(600)
    null = pa.Table.from_pandas(events, preserve_index=False)
    place = null.column_names.index("gap")
    nan = null.set_column(place, "gap", pa.array(events["gap"].to_numpy(), from_pandas=False))
    assert nan.column("gap").null_count == 0 < null.column("gap").null_count
    one, other = (tables.fit(tables.join(table, reports), "ridge").estimator for table in (null, nan))
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-9 * np.abs(one.coef_).max())


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_is_named(value):
    events, reports = made_up(600)
    events.loc[5, "age"] = value
    with pytest.raises(ValueError, match="column 'age' contains"):
        tables.fit(tables.join(events, reports), "ridge")


def test_means_of_columns_without_gaps_are_those_of_all_events():
    events, reports = made_up(600)
    events, fewer = events.assign(t=pd.Timestamp("2024-02-29")), reports[reports["bag"] % 3 > 0]
    for table in (events, events.assign(whole=events["age"].fillna(7.0).where(events["bag"] % 3 > 0, np.nan))):
        data = tables.join(table, fewer, on_mismatch="drop")
        of_all = Features.of(data.events, data.features).columns
        found = tables.fit(data, "ridge").features.columns
        assert [column.typical is None for column in found] == [column.typical is None for column in of_all]
        known = [(one.typical, other.typical) for one, other in zip(found, of_all, strict=True) if one.typical]
        assert known
        np.testing.assert_allclose(*zip(*known, strict=True), rtol=1e-12)


def test_keys_of_numbers_and_of_text_give_the_same_coefficients():
    """Groups that are whole numbers have places in an array, others are hashed."""
    events, reports = narrow(3000)
    one, other = (
        tables.fit(tables.join(*(table.astype({"bag": kind}) for table in (events, reports))), "ridge").estimator
        for kind in (int, str)
    )
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-9 * np.abs(one.coef_).max())


def test_one_class_only_is_refused():
    events, reports = made_up(600)
    with pytest.raises(ValueError, match="every row has label 0: a classifier needs 2 classes"):
        tables.fit(tables.join(events, reports.assign(count=0)), "ridge")


def test_keys_may_have_any_name():
    events, reports = narrow(600)
    plain = tables.fit(tables.join(events, reports), "ridge").estimator
    for name in ("s0", "n0", "fold", "k", "f0"):
        renamed = [table.rename(columns={"bag": name}) for table in (events, reports)]
        found = tables.fit(tables.join(*renamed), "ridge").estimator
        np.testing.assert_allclose(found.coef_, plain.coef_, atol=1e-9 * np.abs(plain.coef_).max())


def test_names_of_ours_are_refused():
    events, reports = (table.rename(columns={"bag": "bagwise_sum_of_0"}) for table in made_up(600))
    with pytest.raises(ValueError, match="column 'bagwise_sum_of_0' of the events has a name that bagwise uses"):
        tables.join(events, reports)


def test_many_categories_are_fitted_from_rows(monkeypatch):
    def refuse(*_):
        raise AssertionError("so many columns are not for the engine")

    monkeypatch.setattr("bagwise.tables.fitting.fit_in_engine", refuse)
    events, reports = made_up()
    events["place"] = np.random.default_rng(1).choice([f"place {i}" for i in range(120)], len(events))
    model = tables.fit(tables.join(events, reports), "ridge", max_levels=200)
    assert model.encoding is not None
    assert len(model.estimator.coef_) > WIDEST


def test_frames_of_any_library_give_the_same_coefficients(tmp_path):
    events, reports = narrow(600)
    expected = tables.fit(tables.join(events, reports), "ridge").estimator
    events.to_parquet(tmp_path / "events.parquet")
    polars = [pl.from_pandas(table) for table in (events, reports)]
    others = {
        "polars": polars,
        "polars query": [table.lazy() for table in polars],
        "Arrow": [table.to_arrow() for table in polars],
        "DuckDB": [duckdb.from_df(events), reports],
        "file": [tmp_path / "events.parquet", reports],
    }
    for kind, (rows, lines) in others.items():
        found = tables.fit(tables.join(rows, lines), "ridge").estimator
        np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8, err_msg=kind)
        np.testing.assert_allclose(found.intercept_, expected.intercept_, rtol=1e-8, err_msg=kind)


@pytest.mark.parametrize("gaps", [False, True], ids=["numbered from 0", "numbered with gaps, as Spark does"])
def test_events_of_several_tables_are_read_once_each(monkeypatch, gaps):
    """Against a plain loop: the row of each bag is the row of the events, in tables that leave some rows out."""
    rng = np.random.default_rng(0)
    events = {"x": np.arange(600.0), "one": rng.integers(0, 20, 600), "other": rng.integers(0, 9, 600)}
    reports = [
        pd.DataFrame({key: np.arange(3, many), "count": np.bincount(events[key])[3:many] // 2})
        for key, many in (("one", 20), ("other", 9))
    ]
    if gaps:
        monkeypatch.setattr(
            DuckDB,
            "number",
            lambda _, table, name: table.project(f"*, 5_000_000_000 - 7 * row_number() OVER () AS {name}"),
        )
    data = tables.join(events, reports, on_mismatch=["unreported"])
    rows = gather(data, Features.of(data.events, data.features))
    code = {key: np.where(events[key] < 3, -1, events[key]) for key in ("one", "other")}
    used = (code["one"] >= 0) | (code["other"] >= 0)
    assert rows.X.shape == (used.sum(), 1)
    assert rows.X.dtype == np.float32
    members = {frozenset(rows.X[rows.bags.take([j]).order, 0].astype(int)) for j in range(len(rows.bags))}
    assert members == {frozenset(np.flatnonzero(code[key] == one)) for key in code for one in np.unique(code[key])[1:]}
