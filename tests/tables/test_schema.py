"""Tables that people have at scoring time: columns missing, of other types, with values never seen; all of it told."""

from __future__ import annotations

import datetime
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise import tables
from bagwise.tables import UnseenValuesWarning
from bagwise.tables.schema import MANY_UNSEEN

N = 2_400
DAY = datetime.datetime(2026, 1, 5)


def made_up() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Events and reports; labels depend on `x` and `c`; `flat` is constant, so that nothing uses it."""
    rng = np.random.default_rng(0)
    events = pd.DataFrame(
        {
            "bag": rng.permutation(N) // 8,
            "x": rng.normal(10, 1, N),
            "c": rng.choice(["red", "green", "blue"], N),
            "flat": 3.0,
            "seen": DAY + pd.to_timedelta(rng.integers(0, 28 * 86_400, N), unit="s"),
            "code": rng.integers(1, 4, N),
        }
    )
    p = 1 / (1 + np.exp(-2 * (events["x"] - 10) - 2 * (events["c"] == "red") + (events["code"] == 2)))
    label = pd.Series(rng.random(N) < p)
    return events, label.groupby(events["bag"]).sum().rename("count").reset_index()


@cache  # nobody changes what it returns
def fitted(kind: str) -> tuple[Any, pd.DataFrame]:
    events, reports = made_up()
    chosen = bw.BagBoostingClassifier(n_estimators=20, random_state=0) if kind == "boosting" else kind
    return tables.fit(tables.join(events, reports), chosen, roles={"code": "category"}, random_state=0), events


def scores(model: Any, frame: Any, place: Any, **options: Any) -> tuple[Any, pd.DataFrame]:
    found = tables.write_scores(model, frame, place / "scored.parquet", **options)
    return found, pd.read_parquet(place / "scored.parquet")


KINDS = ["ridge", pytest.param("boosting", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_without_influence_may_be_missing(kind: str, tmp_path: Any) -> None:
    model, events = fitted(kind)
    assert "flat" in model.unused
    assert not {"x", "c"} & {*model.unused}
    plain, before = scores(model, events, tmp_path)
    assert str(plain) == "2,400 rows scored."
    assert not plain.columns.changed
    found, after = scores(model, events.drop(columns="flat"), tmp_path)
    np.testing.assert_array_equal(after["prediction"], before["prediction"])
    assert str(found).splitlines() == [
        "2,400 rows scored.",
        "Column 'flat' is missing: the model does not use it.",
    ]
    wrong, after = scores(model, events.assign(flat="three"), tmp_path)  # cannot be converted, and need not be
    np.testing.assert_array_equal(after["prediction"], before["prediction"])
    assert "Column 'flat' is missing (text cannot be read as a number): the model does not use it." in str(wrong)
    assert (after["flat"] == "three").all()


@pytest.mark.parametrize("kind", ["ridge", pytest.param("boosting", marks=pytest.mark.slow)])
def test_a_column_that_matters_is_an_error_or_counts_as_missing(kind: str, tmp_path: Any) -> None:
    """As missing, rows score as those with the mean of the column do, which training had no gaps in."""
    model, events = fitted(kind)
    with pytest.raises(ValueError, match=r"columns 'x' and 'c' are missing: the model was trained with them; add them"):
        scores(model, events.drop(columns=["x", "c"]), tmp_path)
    with pytest.raises(ValueError, match=r"column 'x' is missing \(there is 'X'\): .*missing_columns='as-missing'"):
        scores(model, events.rename(columns={"x": "X"}), tmp_path)
    assert not (tmp_path / "scored.parquet").exists()
    found, without = scores(model, events.drop(columns="x"), tmp_path, missing_columns="as-missing")
    _, at_mean = scores(model, events.assign(x=events["x"].mean()), tmp_path)
    _, empty = scores(model, events.assign(x=np.nan), tmp_path)
    np.testing.assert_allclose(without["prediction"], at_mean["prediction"], atol=1e-12)
    np.testing.assert_allclose(empty["prediction"], at_mean["prediction"], atol=1e-12)
    assert "x" not in without
    assert "Column 'x' is missing: it counts so in all rows." in str(found)
    with pytest.raises(ValueError, match="missing_columns must be one of 'error', 'as-missing', got 'drop'"):
        scores(model, events, tmp_path, missing_columns="drop")


@pytest.mark.parametrize("kind", KINDS)
def test_unseen_categories_count_as_missing_and_are_told(kind: str, tmp_path: Any) -> None:
    model, events = fitted(kind)
    few, many = np.arange(N) < 0.5 * MANY_UNSEEN * N, np.arange(N) < 2 * MANY_UNSEEN * N
    found, given = scores(model, events.assign(c=events["c"].mask(few, "violet"), new=1, code=events["code"]), tmp_path)
    _, gaps = scores(model, events.assign(c=events["c"].mask(few, None)), tmp_path)
    np.testing.assert_array_equal(given["prediction"], gaps["prediction"])
    (met,) = (one for one in found.columns.columns if one.name == "c")
    assert (met.unseen, met.example, met.used) == (few.sum(), "violet", True)
    assert found.columns.others == ("new",)
    assert "120 rows (0.05 of all) with a value that training did not have, for example 'violet'" in str(found)
    assert str(found).endswith("Not known to the model: new.")
    with pytest.warns(UnseenValuesWarning, match=r"column 'c' in 20% of the rows \(as 'violet'\): they count as missi"):
        scores(model, events.assign(c=events["c"].mask(many, "violet")), tmp_path)


def test_types_are_converted_where_nothing_is_lost(tmp_path: Any) -> None:
    model, events = fitted("ridge")
    _, before = scores(model, events, tmp_path)
    texts = events.assign(
        x=events["x"].map(lambda x: f" {x!r} "), seen=events["seen"].astype(str), code=events["code"].astype(str)
    )
    found, after = scores(model, texts, tmp_path)
    np.testing.assert_allclose(after["prediction"], before["prediction"], atol=1e-12)
    assert after["x"].tolist() == texts["x"].tolist()  # handed on as it is
    assert str(found).splitlines()[1:] == [
        "Column 'x' holds text now, read as numbers.",
        "Column 'seen' holds text now, read as times.",
        "Column 'code' holds text now, compared as text.",
    ]
    whole, after = scores(model, events.assign(code=events["code"].astype(float)), tmp_path)
    np.testing.assert_array_equal(after["prediction"], before["prediction"])
    assert not whole.columns.changed


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"x": "much"}, r"column 'x' held numbers in training and text now \(as 'much'\): convert it first\."),
        ({"x": DAY}, "column 'x' held numbers in training and dates now: convert it first"),
        ({"seen": "5 January"}, r"column 'seen' held times of day in training and text now \(as '5 January'\)"),
        ({"seen": "2026-01-05"}, r"column 'seen' held times of day in training and text now \(as '2026-01-05'\)"),
        ({"seen": DAY.date()}, "column 'seen' held times of day in training and dates now"),
        ({"c": 7}, r"column 'c' held text in training and numbers now, none of which \(as '7'\) it had then: convert"),
        ({"c": [["red"]] * N}, "column 'c' held text in training and array<string> now"),
    ],
)
def test_types_that_cannot_be_converted_get_one_sentence(changed: Any, sentence: str, tmp_path: Any) -> None:
    model, events = fitted("ridge")
    with pytest.raises(ValueError, match=sentence):
        scores(model, events.assign(**changed), tmp_path)
    assert not (tmp_path / "scored.parquet").exists()


def test_what_is_met_is_told_with_reports_and_in_evaluations_too(tmp_path: Any) -> None:
    model, events = fitted("ridge")
    _, reports = made_up()
    other = events.drop(columns="flat").assign(x=events["x"].astype(str), c=events["c"].mask(events["c"] == "red", "?"))
    with pytest.warns(UnseenValuesWarning):
        found, given = scores(model, other, tmp_path, reports=reports)
    sums = given.groupby("bag")["prediction"].sum()
    np.testing.assert_allclose(sums, reports.set_index("bag")["count"], atol=1e-6)
    assert [one.unseen for one in found.columns.columns if one.name == "c"] == [(events["c"] == "red").sum()]
    with pytest.warns(UnseenValuesWarning):
        tables.measure(model, tables.join(other, reports))
    bw.save(model, tmp_path / "model")
    assert bw.load(tmp_path / "model").unused == model.unused


def test_used_features_are_those_that_move_predictions() -> None:
    """Of every kind of model: what is said to be unused moves nothing."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=800), np.full(800, 2.0), rng.normal(size=800)])
    ids, y = bw.random_bags(800, size=8, random_state=0), X[:, 0] + 0.1 * rng.normal(size=800) > 0
    for model in (
        bw.BagRidgeClassifier(),
        bw.BagLogisticClassifier(alphas=1.0),
        bw.BagBoostingClassifier(n_estimators=6, random_state=0),
        bw.BagAutoClassifier(candidates={"ridge": bw.BagRidgeClassifier()}, random_state=0),
    ):
        model.fit(X, bw.aggregate(y, ids), bags=ids)
        used = model.used_features()
        assert used[0]
        assert not used[1]
        for column in range(3):
            moved = model.predict_proba(X + 5.0 * (np.arange(3) == column)) != model.predict_proba(X)
            assert used[column] or not moved.any()
