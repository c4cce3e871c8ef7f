"""Models score tables in memory as the command does: the same numbers, conversions, warnings and sentences."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise import tables

ROWS = 1_200


def events(seed: int = 0) -> pd.DataFrame:
    """A column of every kind, with gaps, a zone, and days before 1970."""
    rng = np.random.default_rng(seed)
    minute = pd.Timestamp("1969-12-28", tz="Asia/Tokyo") + pd.to_timedelta(rng.integers(0, 20_000, ROWS), unit="min")
    x = rng.normal(size=ROWS)
    return pd.DataFrame(
        {
            "row": np.arange(ROWS),
            "bag": np.arange(ROWS) // 8,
            "x": np.where(rng.random(ROWS) < 0.1, np.nan, x),
            "whole": rng.integers(0, 50, ROWS),
            "flag": rng.random(ROWS) < 0.5,
            "place": rng.choice(["north", "south", "", None], ROWS),
            "grade": rng.choice([1.0, 1.5, 2.0], ROWS),
            "town": [f"town {one}" for one in rng.integers(0, 200, ROWS)],
            "day": (minute.tz_localize(None)).normalize().date,
            "at": minute,
            "mark": rng.choice(np.array(["2020-01-01T00:00", "2020-01-02T12:30"], "datetime64[us]"), ROWS),
        }
    )


@cache
def fitted(kind: str = "boosting") -> Any:
    rows = events()
    rng = np.random.default_rng(1)
    score = rows["x"].fillna(0) + (rows["place"] == "north") + (rows["grade"] > 1) - 0.5 * rows["flag"]
    label = (score + rng.logistic(size=ROWS) > 0.5).astype(int)
    reports = label.groupby(rows["bag"]).sum().rename("count").reset_index()
    options = {"n_estimators": 20, "n_jobs": 1, "random_state": 0} if kind == "boosting" else {"random_state": 0}
    estimator = {"boosting": bw.BagBoostingClassifier, "logistic": bw.BagLogisticClassifier}[kind](**options)
    roles = {"grade": "category", "mark": "category"}
    return tables.fit(tables.join(rows, reports, ignore="row"), estimator, roles=roles)


def by_command(model: Any, rows: Any, tmp_path: Any, **options: Any) -> Any:
    tables.write_scores(model, rows, tmp_path / "scores.parquet", keep=[], **options)
    return pd.read_parquet(tmp_path / "scores.parquet")["prediction"].to_numpy()


def as_polars(rows: pd.DataFrame) -> Any:
    return pytest.importorskip("polars").from_arrow(as_arrow(rows))


def as_arrow(rows: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(rows, preserve_index=False)


@pytest.mark.parametrize("of_kind", [lambda rows: rows, as_polars, as_arrow], ids=["pandas", "polars", "arrow"])
@pytest.mark.parametrize("kind", ["boosting", "logistic"])
def test_tables_in_memory_get_the_scores_of_the_command(kind: str, of_kind: Any, tmp_path: Any) -> None:
    model, rows = fitted(kind), events(2).drop(columns="mark").assign(mark=None, other="not known")
    rows["place"] = rows["place"].where(rows["row"] % 50 > 0, "nowhere")  # which training did not have
    assert {column.role.value for column in model.features.columns} >= {"number", "category", "hashed", "time"}
    expected = by_command(model, rows, tmp_path)
    found = model.predict_proba(of_kind(rows))
    np.testing.assert_allclose(found[:, 1], expected, rtol=1e-12)
    assert found.sum(axis=1) == pytest.approx(1.0)
    assert np.array_equal(model.predict(of_kind(rows)), expected > 0.5)
    assert np.ptp(expected) > 0.05


def test_other_types_are_converted_alike(tmp_path: Any) -> None:
    """Text that is numbers or times, numbers where text was, and a time whose text is a category."""
    model, rows = fitted(), events(3)
    changed = rows.assign(x=rows["x"].map("{:.6f}".format).replace("nan", ""), whole=rows["whole"].astype(str))
    changed["at"] = rows["at"].dt.tz_convert("UTC").dt.strftime("%Y-%m-%d %H:%M")
    changed["grade"] = rows["grade"].map({1.0: "1", 1.5: "1.5", 2.0: "2"})
    expected = by_command(model, rows, tmp_path)
    for one in (rows, changed):
        np.testing.assert_allclose(model.predict_proba(one)[:, 1], by_command(model, one, tmp_path), rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(changed)[:, 1], expected, atol=1e-3)


def test_missing_columns_and_values_never_seen(tmp_path: Any) -> None:
    model, rows = fitted(), events(4)
    with pytest.raises(ValueError, match="column 'place' is missing: the model was trained with it"):
        model.predict_proba(rows.drop(columns="place"))
    found = model.predict_proba(rows.drop(columns="place"), missing_columns="as-missing")[:, 1]
    expected = by_command(model, rows.drop(columns="place"), tmp_path, missing_columns="as-missing")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.warns(tables.UnseenValuesWarning, match="'place' in 100% of the rows") as told:
        model.predict(rows.assign(place="elsewhere"))
    assert told[0].filename == __file__
    with pytest.raises(ValueError, match="the table is empty"):
        model.predict(rows[:0])


def test_one_row_is_scored_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an engine was asked")

    model, rows = fitted(), events(5).drop(columns="mark").assign(mark=None)
    monkeypatch.setattr("bagwise.tables.sources.connect", refuse)
    (line,) = rows[:1].to_dict("records")
    assert model.predict({name: [value] for name, value in line.items()}).shape == (1,)


def test_paths_and_tables_of_engines_are_read_where_they_are(tmp_path: Any) -> None:
    model, rows = fitted(), events(6)
    rows.to_parquet(tmp_path / "rows.parquet")
    duck = tables.connect(ordered=True)
    expected = model.predict_proba(rows)
    for source in (tmp_path / "rows.parquet", duck.read_parquet(str(tmp_path / "rows.parquet"))):
        source = tables.read(source, duck)
        np.testing.assert_allclose(model.predict_proba(source), expected, rtol=1e-12)


def test_what_a_model_is_stands_in_one_line() -> None:
    model = fitted()
    assert repr(model) == "<TableModel: BagBoostingClassifier of 9 columns, classes 0 and 1>"
    assert model.classes_.tolist() == [0, 1]
    rows = pd.DataFrame({"x": np.arange(64.0), "bag": np.arange(64) // 4})
    sums = rows.groupby("bag")["x"].sum().rename("sum").reset_index()
    values = tables.fit(tables.join(rows, sums, sum="sum"), "ridge", random_state=0)
    assert repr(values) == "<TableModel: ridge of 1 column, values>"
    assert np.corrcoef(values.predict(rows), rows["x"])[0, 1] > 0.9
    with pytest.raises(AttributeError, match="no probabilities"):
        values.predict_proba(rows)


def test_classes_by_their_names() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.normal(size=960), "bag": np.arange(960) // 8})
    names = np.array(["low", "mid", "high"])[np.digitize(rows["x"], [-0.5, 0.5])]
    counts = pd.crosstab(rows["bag"], names).reset_index()
    model = tables.fit(tables.join(rows, counts, count=["low", "mid", "high"]), "ridge", random_state=0)
    assert model.predict_proba(rows).shape == (960, 3)
    assert float((model.predict(rows) == names).mean()) > 0.6
    assert "classes low, mid and high" in repr(model)
