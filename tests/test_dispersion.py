import itertools

import numpy as np
import pytest
from scipy.stats import kstest

import bagwise as bw
from bagwise.dispersion import Finding, among, dispersion_test, partition_moments


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
    for _ in range(200):
        ids = bw.random_bags(n, size, rng)
        bags = bw.Bags.from_rows(np.zeros(n), ids)
        p_values.append(dispersion_test(values[bags.order], bags)[1])
    assert kstest(p_values, "uniform").pvalue > 1e-4


def test_what_cannot_differ_is_not_tested():
    values = np.random.default_rng(0).normal(size=640)
    assert np.isnan(dispersion_test(values, bw.Bags.singletons(np.zeros(640)))[1])
    assert np.isnan(dispersion_test(np.full(640, 0.1), bw.Bags.from_rows(np.zeros(640), np.arange(640) // 16))[1])


def test_a_finding_counts_the_tests_made_with_it():
    finding = Finding("age", 2.0, 0.02)
    assert among(10, finding) == Finding("age", 2.0, pytest.approx(0.2))
    assert among(100, finding).p_value == 1
