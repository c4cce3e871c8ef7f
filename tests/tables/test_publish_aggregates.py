"""The data holder's side of tables of counts."""

import json

import numpy as np
import pandas as pd
import pytest

from bagwise import privacy, tables
from bagwise.data import Aggregates
from bagwise.utils.parameters import ParameterError
from tests.linear.test_aggregated import rows_of


@pytest.fixture
def rows():
    X, y = rows_of(np.random.default_rng(0), 4000, features=3)
    X["age"] = np.random.default_rng(1).integers(18, 90, 4000)
    return pd.DataFrame(X).assign(label=y)


def test_without_noise_the_tables_are_exact(rows, tmp_path):
    found = tables.publish_aggregates(rows, tmp_path, label="label", bins=4)
    edges = json.loads((tmp_path / "edges.json").read_text())
    assert len(edges["age"]) == 3
    exact = Aggregates.of(rows.drop(columns="label"), rows["label"], edges=edges)
    read = tables.read_aggregates(tmp_path)
    assert {one.name: one.levels for one in read.features} == {one.name: one.levels for one in exact.features}
    count = {tuple(read.features[i].name for i in one.features): one.count for one in read.tables}
    for one in exact.tables:
        names = tuple(exact.features[i].name for i in one.features)
        mine = count[names] if names in count else count[names[::-1]].T
        np.testing.assert_array_equal(mine, one.count)
    assert "can give single rows and labels away" in str(found)


def test_noise_is_for_a_row_in_all_tables(rows, tmp_path):
    pytest.importorskip("opendp")
    found = tables.publish_aggregates(rows, tmp_path, label="label", bins=4, epsilon=4.0, delta=1e-6)
    d = 4
    assert found.budget.sensitivity == pytest.approx(np.sqrt(2 * (d + d * (d - 1) / 2)))
    assert "one has one row more, with its features and its label" in str(found)
    assert "ε does not cover what these tell" in str(found)
    read = tables.read_aggregates(tmp_path)
    assert read.noise_variance == pytest.approx(found.budget.noise_variance)
    assert all(np.isfinite(one.count).all() for one in read.tables)  # cells without rows have noise, too
    model = tables.fit_aggregates(read, random_state=0)
    freedom = 2 * sum(one.rest + 1 for one in read.features) * (d - 1)
    assert abs(model.estimator.noise_ratio_ - 1) < 5 * np.sqrt(2 / freedom)
    hidden = tables.publish_aggregates(
        rows, tmp_path / "b", label="label", bins=4, epsilon=4.0, threshold=30.0, force_budget=True
    )
    assert hidden.budget.mechanism == "discrete Laplace"
    assert hidden.budget.sensitivity == 2 * (d + d * (d - 1) // 2)
    read = tables.read_aggregates(tmp_path / "b")
    assert read.threshold == 30
    assert min(np.nanmin(one.count) for one in read.tables if np.isfinite(one.count).any()) >= 30
    assert hidden.hidden == sum(int(np.isnan(one.count).sum()) for one in read.tables) or hidden.hidden > 0


def test_a_budget_for_tables_grows_with_their_number():
    pytest.importorskip("opendp")
    one, many = (privacy.budget_for_tables(1.0, None, tables=tables) for tables in (1, 10))
    assert (one.sensitivity, many.sensitivity) == (2, 20)
    assert many.scale == pytest.approx(10 * one.scale, rel=1e-6)
    one, many = (privacy.budget_for_tables(1.0, 1e-6, tables=tables) for tables in (2, 200))
    assert many.scale == pytest.approx(10 * one.scale, rel=1e-6)
    assert one.sensitivity >= 2


def test_rows_one_by_one_move_the_tables_as_much_as_noise_is_made_for(rows):
    """By L1 and L2 of the difference that a row makes, which is what the sensitivity is."""
    frame, y = rows.drop(columns=["label", "age"]), rows["label"].to_numpy()
    whole = Aggregates.of(frame, y)
    for row in range(3):
        kept = np.arange(len(y)) != row
        part = Aggregates.of(frame[kept], y[kept])
        moved = np.concatenate([
            (np.nan_to_num(getattr(one, what)) - np.nan_to_num(getattr(other, what))).ravel()
            for one, other in zip(whole.tables, part.tables, strict=True) for what in ("count", "sum")
        ])  # fmt: skip
        assert np.abs(moved).sum() == 6 * (1 + y[row])
        assert np.square(moved).sum() == 6 * (1 + y[row])


@pytest.mark.parametrize(
    ("changed", "given", "said"),
    [
        ({}, {"label": "no"}, "there is no column 'no'"),
        ({}, {}, r"bins must be given for column 'age', which holds 72 numbers"),
        ({"label": "x"}, {"bins": 3}, "has one value only"),
        ({}, {"label": "f0", "bins": 3}, "label must be a column of two values, but 'f0' has 5"),
        ({"day": pd.Timestamp("2020-01-01")}, {"bins": 3}, "ignore must name column 'day', which holds dates"),
        ({}, {"edges": {"other": [1]}}, "edges names 'other', which is no column to count by"),
        ({}, {"delta": 1e-6}, "delta belongs to noised counts: give epsilon, too"),
        ({}, {"max_levels": 0}, "max_levels must be a whole number of at least 1"),
        ({}, {"ignore": ["f0", "f1", "f2", "age"]}, "ignore leaves no column to count by"),
    ],
)
def test_what_cannot_be_published_is_said(rows, changed, given, said, tmp_path):
    with pytest.raises((ParameterError, ValueError), match=said):
        tables.publish_aggregates(rows.assign(**changed), tmp_path / "out", **{"label": "label", **given})
    assert not (tmp_path / "out").exists()
