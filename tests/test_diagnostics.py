import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, kstest

import bagwise as bw
from bagwise.diagnostics import diagnose, dispersion_test, partition_moments


def log(rng, n=6400):
    """Rows with a skewed, a binary, a normal and a categorical feature, and labels that depend on two of them."""
    frame = pd.DataFrame(
        {
            "spend": rng.lognormal(sigma=2, size=n),
            "mobile": rng.random(n) < 0.1,
            "age": rng.normal(40, 10, n),
            "country": np.array(["de", "fr", "us", "jp", "br"])[np.minimum(rng.geometric(0.5, n) - 1, 4)],
        }
    )
    eta = 1 / (1 + np.exp(-(0.05 * (frame["age"] - 40) + 2 * frame["mobile"] - 1)))
    return frame, (rng.random(n) < eta).to_numpy().astype(float)


def by(values, size):
    """Ids of bags of rows that are next to each other in `values`."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable") // size


# -- the null distribution ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(3, 3), (1, 2, 3), (2, 2, 2), (1, 1, 4)])
def test_moments_over_all_partitions_are_exact(size):
    z = np.array([0.0, 0.0, 1.0, 2.0, 4.0, 9.0])
    z = z - z.mean()
    bounds = np.cumsum((0, *size))
    values = [
        sum(sum(order[a:b]) ** 2 / (b - a) for a, b in itertools.pairwise(bounds))
        for order in itertools.permutations(z)
    ]
    mean, variance = partition_moments(6, (z**2).sum(), (z**4).sum(), np.array(size))
    assert mean == pytest.approx(np.mean(values))
    assert variance == pytest.approx(np.var(values))


@pytest.mark.parametrize("size", [2, 10, 100])
@pytest.mark.parametrize("kind", ["normal", "binary"])
def test_p_values_are_uniform_for_random_bags(size, kind, seed):
    rng = np.random.default_rng([seed, size])
    n = 4000
    values = rng.normal(size=n) if kind == "normal" else (rng.random(n) < 0.2).astype(float)
    p_values = []
    for _ in range(400):
        ids = bw.random_bags(n, size, rng)
        p_values.append(dispersion_test(values, bw.Bags.from_rows(np.zeros(n), ids)))
    assert kstest(p_values, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("size", [1, 2, 16, 64, 640])
def test_random_bags_raise_false_alarms_at_most_at_the_nominal_rate(size, seed):
    rng = np.random.default_rng([seed, size])
    frame, y = log(rng)
    alarms = 0
    for _ in range(100):
        ids = bw.random_bags(len(y), size, rng)
        alarms += not diagnose(frame, bw.aggregate(y, ids), bags=ids, level=0.1).random
    assert binomtest(alarms, 100, 0.1, alternative="greater").pvalue > 1e-4


def test_noised_random_bags_stay_random(seed):
    rng = np.random.default_rng([seed, 3])
    frame, y = log(rng)
    alarms = 0
    for _ in range(60):
        ids = bw.random_bags(len(y), 32, rng)
        noise = rng.laplace(scale=2.0, size=200)[np.maximum(ids, 0)] / 32
        noised = bw.aggregate(y, ids) + noise
        alarms += not diagnose(frame, noised, bags=ids, noise_variance=8.0, level=0.1).random
        assert (alarms, diagnose(frame, noised, bags=ids, noise_variance=8.0).revealed_rows)[1] == 0
    assert binomtest(alarms, 60, 0.1, alternative="greater").pvalue > 1e-4


# -- power --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["spend", "mobile", "age", "country"])
@pytest.mark.parametrize("size", [8, 64])
def test_bags_sorted_by_a_feature_are_found_and_named(column, size):
    rng = np.random.default_rng(0)
    frame, y = log(rng)
    key = frame[column] if column != "country" else frame[column].map({"de": 0, "fr": 1, "us": 2, "jp": 3, "br": 4})
    ids = rng.permutation(len(y) // size)[by(key.to_numpy() + 1e-9 * rng.random(len(y)), size)]
    found = diagnose(frame, bw.aggregate(y, ids), bags=ids)
    assert not found.random
    assert found.verdict.startswith(f"grouped by feature '{column}'")
    assert "label-free evaluation" in found.advice


def test_weakly_grouped_bags_are_found():
    """A feature that explains a twentieth of which bag a row is in."""
    rng = np.random.default_rng(0)
    frame, y = log(rng)
    ids = by(frame["age"].rank() + rng.normal(scale=6000, size=len(y)), 64)
    assert diagnose(frame, bw.aggregate(y, ids), bags=ids).verdict.startswith("grouped by feature 'age'")


def test_bags_grouped_by_the_label_are_found():
    rng = np.random.default_rng(0)
    frame, y = log(rng)
    ids = rng.permutation(100)[by(y + rng.normal(scale=0.6, size=len(y)), 64)]
    only = frame[["spend", "country"]]
    found = diagnose(only, bw.aggregate(y, ids), bags=ids)
    assert "related to the label" in found.verdict
    assert found.proportions.ratio > 1


def test_drift_along_the_bag_order_is_found():
    rng = np.random.default_rng(0)
    n = 6400
    X = rng.normal(size=(n, 2))
    trend = np.linspace(-0.5, 0.5, n)
    y = (rng.random(n) < 0.5 + 0.15 * trend).astype(float)
    ids = np.arange(n) // 64
    found = diagnose(X, bw.aggregate(y, ids), bags=ids)
    assert found.verdict == "drifting along the bag order in proportions"


def test_stratified_bags_are_found():
    rng = np.random.default_rng(0)
    frame, y = log(rng)
    ids = np.empty(len(y), dtype=int)
    ids[np.argsort(frame["age"])] = np.tile(np.arange(100), 64)  # each bag gets an even spread of ages
    assert diagnose(frame, bw.aggregate(y, ids), bags=ids).verdict.startswith("stratified: feature 'age'")


# -- contents -----------------------------------------------------------------------------------------------------


def test_sizes_and_leaks_are_counted():
    X = np.arange(12.0)[:, None]
    ids = np.array([0, 1, 1, 2, 2, 2, 3, 3, 3, 3, -1, -1])
    y = np.array([1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1], dtype=float)
    found = diagnose(X, bw.aggregate(y, ids), bags=ids)
    assert (found.n_rows, found.n_bags, found.n_outside) == (10, 4, 2)
    assert (found.single_row_bags, found.pure_bags, found.revealed_rows) == (1, 2, 6)
    assert found.sizes == (1, 1, 2, 3, 4)
    np.testing.assert_array_equal(found.size_histogram, ([1, 2, 3, 4], [1, 1, 1, 1]))
    assert "leaks: 1 bags of one row, 2 larger bags all 0 or all 1, 6 individual labels revealed" in str(found)


def test_arrays_frames_and_arrow_tables_give_the_same():
    rng = np.random.default_rng(0)
    frame, y = log(rng, 640)
    numeric = frame[["spend", "age"]]
    ids = by(numeric["age"].to_numpy(), 16)
    y_bag = bw.aggregate(y, ids)
    as_array = diagnose(numeric.to_numpy(), y_bag, bags=ids)
    as_frame = diagnose(numeric, y_bag, bags=ids)
    assert [f.p_value for f in as_array.features] == [f.p_value for f in as_frame.features]
    import pyarrow as pa

    assert diagnose(pa.Table.from_pandas(frame), y_bag, bags=ids).verdict == diagnose(frame, y_bag, bags=ids).verdict


def test_classes_and_real_labels_are_handled():
    rng = np.random.default_rng(0)
    frame, _ = log(rng)
    ids = bw.random_bags(6400, 64, rng)
    classes = (rng.integers(0, 3, 6400)[:, None] == np.arange(3)).astype(float)
    assert diagnose(frame, bw.aggregate(classes, ids), bags=ids).random
    real = diagnose(frame, bw.aggregate(rng.normal(50, 10, 6400), ids), bags=ids)
    assert np.isnan(real.proportions.p_value)
    assert real.random


def test_rare_and_constant_columns_are_not_testable():
    rng = np.random.default_rng(0)
    X = np.zeros((640, 2))
    X[[3, 5], 1] = 1
    ids = np.arange(640) // 16  # the two unusual rows share a bag
    y = bw.aggregate((rng.random(640) < 0.5).astype(float), ids)
    found = diagnose(X, y, bags=ids)
    assert all(np.isnan(f.p_value) for f in found.features)
    assert found.random


@pytest.mark.parametrize(
    ("X", "y", "ids", "message"),
    [
        (np.zeros((4, 1)), [0.5] * 4, [0] * 4, "one bag only"),
        (np.zeros(4), [0.5] * 4, [0, 0, 1, 1], "two dimensions"),
        (np.array([[0.0], [np.nan], [0], [0]]), [0.5] * 4, [0, 0, 1, 1], "feature 0 of X contains NaN"),
        (np.zeros((4, 1)), [0.5] * 3, [0, 0, 1, 1], "X has 4 rows but y has 3"),
    ],
)
def test_wrong_input_gets_one_clear_sentence(X, y, ids, message):
    with pytest.raises(ValueError, match=message):
        diagnose(X, y, bags=ids)
