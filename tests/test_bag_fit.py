import itertools

import numpy as np
import pytest
from scipy.stats import binomtest

import bagwise as bw
from bagwise.bag_fit import bag_fit


def by_features(rng, m, size, *, factor=1.0):
    """Bags sorted by a feature, of labels by a model or by one that is wrong by a factor of log odds."""
    x = np.sort(rng.normal(size=m * size))
    y = (rng.random(m * size) < 1 / (1 + np.exp(-x))).astype(float)
    ids = np.arange(m * size) // size
    return 1 / (1 + np.exp(-factor * x)), y, bw.Bags.from_rows(bw.aggregate(y, ids), ids)


def test_bounds_are_those_of_all_labels_that_bags_allow():
    rng = np.random.default_rng(0)
    h, ids = rng.random(15), np.repeat(np.arange(3), 5)
    counts = [1, 3, 4]
    bags = bw.Bags.from_rows(np.repeat(counts, 5) / 5, ids)
    right = []
    for j, count in enumerate(counts):
        called = h[ids == j] > 0.5
        labels = (np.isin(np.arange(5), chosen) for chosen in itertools.combinations(range(5), count))
        right.append([int((called == one).sum()) for one in labels])
    found = bag_fit(h, bags)
    assert found.least_accuracy.value == pytest.approx(sum(map(min, right)) / 15)
    assert found.most_accuracy.value == pytest.approx(sum(map(max, right)) / 15)


def test_bounds_of_classes_hold_every_assignment():
    rng = np.random.default_rng(1)
    h, labels, ids = (
        rng.dirichlet([1, 1, 1], 12),
        np.array([0, 0, 1, 2, 1, 1, 2, 0, 2, 2, 1, 0]),
        np.repeat([0, 1, 2], 4),
    )
    bags = bw.Bags.from_rows(bw.aggregate(np.eye(3)[labels], ids), ids)
    called = h.argmax(axis=1)
    least = most = 0
    for j in range(3):
        right = [
            sum(a == b for a, b in zip(called[ids == j], one, strict=True))
            for one in itertools.permutations(labels[ids == j])
        ]
        least, most = least + min(right), most + max(right)
    found = bag_fit(h, bags)
    assert found.least_accuracy.value == pytest.approx(least / 12)
    assert found.most_accuracy.value == pytest.approx(most / 12)


def test_a_right_model_fits_and_a_wrong_one_does_not(seed):
    rng, alarms, trials = np.random.default_rng(seed), 0, 200
    for _ in range(trials):
        h, _, bags = by_features(rng, 40, 30)
        alarms += bag_fit(h, bags).fit.p_value < 0.05
    assert binomtest(alarms, trials, 0.05, alternative="greater").pvalue > 1e-4
    h, _, bags = by_features(rng, 40, 100, factor=3.0)
    assert bag_fit(h, bags).fit.p_value < 1e-3


def test_what_a_right_model_implies_is_true():
    h, y, bags = by_features(np.random.default_rng(2), 400, 100)
    found = bag_fit(h, bags)
    assert found.implied["accuracy"] == pytest.approx(((h > 0.5) == y).mean(), abs=0.01)
    assert found.implied["brier"] == pytest.approx(((h - y) ** 2).mean(), abs=0.005)
    assert found.gain.low > 0
    assert found.error.high < found.constant_error.low
    inside = (found.calibration.y_low <= found.calibration.x) & (found.calibration.x <= found.calibration.y_high)
    assert inside.sum() >= 7


def test_noise_widens_bounds():
    h, _, bags = by_features(np.random.default_rng(3), 40, 30)
    noised = bw.Bags.from_rows(np.repeat(bags.proportion, 30), np.repeat(np.arange(40), 30), noise_variance=9.0)
    assert bag_fit(h, noised).most_accuracy.value > bag_fit(h, bags).most_accuracy.value
    assert bag_fit(h, noised).least_accuracy.value < bag_fit(h, bags).least_accuracy.value
