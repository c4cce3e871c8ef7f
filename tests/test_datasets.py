import numpy as np
import pandas as pd
import pytest

from bagwise.datasets import synthetic


@pytest.fixture(scope="module")
def log():
    return synthetic(200_000, random_state=0)


def test_same_seed_same_log():
    one, two, other = (synthetic(500, random_state=seed) for seed in (3, 3, 4))
    pd.testing.assert_frame_equal(one.events, two.events)
    assert (one.y == two.y).all()
    assert (one.y != other.y).any()


def test_a_generator_is_drawn_from_and_global_state_is_not():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    rng = np.random.default_rng(0)
    assert (synthetic(500, random_state=rng).probability != synthetic(500, random_state=rng).probability).any()
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_events_are_features_without_gaps(log):
    assert len(log) == len(log.events) == len(log.probability) == 200_000
    assert not log.events.isna().any(axis=None)
    assert not {"y", "label", "probability"} & set(log.events)
    assert log.y.dtype == np.int8
    assert set(np.unique(log.y)) == {0, 1}
    assert log.events.select_dtypes("number").shape[1] == 5
    levels = [log.events[name].nunique() for name in log.events.select_dtypes("category")]
    assert len(levels) == 6
    assert min(levels) >= 3
    assert max(levels) == 30
    assert log.events["hour"].between(0, 23).all()


def test_labels_are_drawn_with_the_probabilities(log):
    p, y = log.probability, log.y
    assert 0 < p.min() <= p.max() < 1
    part = np.searchsorted(np.linspace(0, 1, 21)[1:-1], p)  # 20 bins of probability
    for b in np.unique(part):
        inside = part == b
        error = np.sqrt((p[inside] * (1 - p[inside])).sum())
        assert abs((y[inside] - p[inside]).sum()) <= 5 * error


def test_the_world_is_worth_learning(log):
    assert 0.2 < log.probability.mean() < 0.25
    assert log.best_accuracy > 1 - log.probability.mean() + 0.06


def test_the_world_does_not_depend_on_the_draw(log):
    other = synthetic(200_000, random_state=1)
    first, second = (
        pd.Series(each.probability).groupby(each.events["campaign"], observed=True).mean() for each in (log, other)
    )
    rare = log.events["campaign"].value_counts().min()
    assert (first - second).abs().max() < 5 * np.sqrt(2 * 0.25 / rare)


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "10", None])
def test_wrong_n(n):
    with pytest.raises(ValueError, match="n must be a whole number of rows, at least 1"):
        synthetic(n)


def test_one_row():
    assert len(synthetic(1, random_state=0).events) == 1
