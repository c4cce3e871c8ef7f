"""Several tables of reports about the same events."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bagwise import BagLogisticClassifier, tables

WEIGHTS = np.array([1.2, -0.7])
LOGISTIC = BagLogisticClassifier(formation="random", alphas=1.0, cv=2, random_state=0)


def log(seed, n=4000):
    """Events, whose labels only two tables by hashes tell."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = rng.random(n) < 1 / (1 + np.exp(1 - X @ WEIGHTS))
    events = pd.DataFrame({"one": rng.integers(0, 150, n), "two": rng.integers(0, 120, n), "x": X[:, 0], "z": X[:, 1]})
    reports = [
        events.assign(y=y).groupby(key, as_index=False).agg(size=("y", "size"), count=("y", "sum"))
        for key in ("one", "two")
    ]
    return events, reports, y


def said_of(model, rows):
    return pa.Table.from_batches(model.score(rows)).column("prediction").to_numpy()


def weights(data):
    return tables.fit(data, LOGISTIC).estimator.coef_


@pytest.mark.slow
def test_two_tables_teach_more_than_one():
    """The mean over two logs of the square distance from the truth."""
    errors = []
    for seed in range(2):
        events, reports, _ = log(seed)
        truth = 1 / (1 + np.exp(1 - events[["x", "z"]].to_numpy() @ WEIGHTS))
        joined = tables.join(events, reports[0], ignore="two"), tables.join(events, reports)
        assert [data.features for data in joined] == [("x", "z")] * 2
        rows = tables.read(events, tables.connect(ordered=True))
        said = [said_of(tables.fit(data, LOGISTIC), rows) for data in joined]
        errors.append([np.mean((h - truth) ** 2) for h in said])
    one, both = np.mean(errors, axis=0)
    assert both < one


def test_the_same_table_twice_says_nothing_more():
    events, (one, _), _ = log(0)
    events = events.drop(columns="two")
    twice = weights(tables.join(events, [one, one]))
    assert twice == pytest.approx(weights(tables.join(events, one)), abs=1e-9)


def test_nothing_that_is_held_out_is_learned_from():
    events, reports, _ = log(1)
    data = tables.join(events, reports)
    train, held_out = tables.split(data, 0.2)
    assert train.others == ()  # every bag of the second table has rows of bags held out
    assert train.summary.set_aside == 120
    assert "120 bags of further reports with rows of bags held out" in str(train.summary)
    assert held_out.summary.bags == 30


def test_tables_that_hang_together_in_parts_are_held_out_together():
    events, (one, _), y = log(2)
    events = events.assign(two=events["one"] // 10)
    two = events.assign(y=y).groupby("two", as_index=False).agg(count=("y", "sum"))
    two["count"] += np.random.default_rng(0).normal(0, 3, len(two))  # without noise it would say nothing new
    noised = two.assign(noise_variance=9.0), one.assign(noise_variance=0.0)
    train, _ = tables.split(tables.join(events, [noised[1], noised[0]]), 0.03)
    assert 0 < sum(other.summary.bags for other in train.others) < 15


def test_what_is_wrong_with_a_table_names_it():
    events, (one, two), _ = log(3)
    with pytest.raises(ValueError, match=r"report table 2: .*count below 0 or above the number of rows"):
        tables.join(events, [one, two.assign(count=np.where(two["two"] == 3, two["size"] + 1, two["count"]))])
    with pytest.raises(ValueError, match="keys are those that events and each of several tables have"):
        tables.join(events, [one, two], keys="one")
    wrong = (
        events.assign(all=1),
        one,
        pd.DataFrame({"all": [1], "size": [4000], "count": [int(one["count"].sum()) + 5]}),
    )
    with pytest.raises(ValueError, match="the tables contradict each other"):
        tables.fit(tables.join(wrong[0], [wrong[1], wrong[2]]), LOGISTIC)
