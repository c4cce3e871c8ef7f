"""Hidden, rounded and clamped counts, as they are on average: against sums over all counts, and over many draws."""

import numpy as np
import pytest
from scipy import stats

from bagwise.bags.expected_counts import expected_counts, stretched_counts
from bagwise.bags.intervals import Intervals


def hidden(count, below):
    """Intervals of counts of which those below a number are not shown."""
    return Intervals(np.where(count < below, 0, count), np.where(count < below, below - 1, count), np.zeros(len(count)))


def summed(chance):
    """Mean and variance of counts 0, 1, … with these chances."""
    at = np.arange(len(chance))
    mean = chance @ at / chance.sum()
    return mean, chance @ at**2 / chance.sum() - mean**2


def test_random_bags_by_sums_over_counts():
    size = np.repeat([10, 40], 300)
    count = np.random.default_rng(0).binomial(size, 0.25).astype(float)
    mean, variance = expected_counts(hidden(count, 8), size, rates_differ=False)
    p = mean.sum() / size.sum()
    for k in (10, 40):
        at = np.flatnonzero((size == k) & (count < 8))[0]
        told = summed(stats.binom.pmf(np.arange(8), k, p))
        np.testing.assert_allclose((mean[at], variance[at]), told, rtol=1e-4)
    shown = count >= 8
    assert np.array_equal(mean[shown], count[shown])
    assert not variance[shown].any()


def test_rates_that_differ_by_sums_over_counts():
    """A beta-binomial prior, of 24 rates in place of all: within a few hundredths of a standard deviation."""
    rng, size = np.random.default_rng(1), np.full(4_000, 30)
    count = rng.binomial(size, rng.beta(2.0, 5.0, 4_000)).astype(float)
    mean, variance = expected_counts(hidden(count, 6), size, rates_differ=True)
    told_mean, told_variance = summed(stats.betabinom.pmf(np.arange(6), 30, 2.0, 5.0))
    at = np.flatnonzero(count < 6)[0]
    assert abs(mean[at] - told_mean) < 0.1 * np.sqrt(told_variance)
    assert variance[at] == pytest.approx(told_variance, rel=0.1)


def test_counts_of_classes_add_up():
    rng = np.random.default_rng(2)
    count = rng.multinomial(24, [0.6, 0.25, 0.15], 200).astype(float)
    told = Intervals(np.where(count < 9, 0, count), np.where(count < 9, 8, count), np.zeros(200)).tightened(
        np.full(200, 24)
    )
    mean, variance = expected_counts(told, np.full(200, 24), rates_differ=False)
    np.testing.assert_allclose(mean.sum(axis=1), 24)
    assert (variance >= 0).all()
    assert not variance[told.low == told.high].any()


@pytest.mark.parametrize("rates_differ", [False, True])
def test_moments_are_those_of_the_counts(rates_differ):
    """Mean, variance and covariance with what is linear in the counts, within 4 standard errors of 60 draws."""
    rng, k, m = np.random.default_rng(3), 40, 400
    off = []
    for _ in range(60):
        rate = rng.beta(3.0, 7.0, m) if rates_differ else np.full(m, 0.3)
        count = rng.binomial(k, rate).astype(float)
        other = 0.5 * count + rng.normal(size=m)
        told = stretched_counts(hidden(count, 11), np.full(m, k), np.zeros(m, int), rates_differ=rates_differ)
        made, noise = told
        off.append(
            [
                made.mean() - count.mean(),
                (made.var() - noise.mean()) / count.var() - 1,
                np.cov(made, other)[0, 1] / np.cov(count, other)[0, 1] - 1,
            ]
        )
    off = np.array(off)
    error = off.std(axis=0) / np.sqrt(len(off))
    slack = np.array([0.02 * k / 10, 0.02, 0.02]) if rates_differ else 0.005  # 24 rates stand for all
    assert (np.abs(off.mean(axis=0)) < 4 * error + slack).all(), (off.mean(axis=0), error)


def test_noised_counts_that_are_hidden_are_what_such_reports_are(seed):
    """Within 4 standard errors of 3,000 bags; a report deviates by sqrt(50 · 0.3 · 0.7 + 9) = 4.4."""
    rng, size = np.random.default_rng(seed), np.full(3_000, 50)
    reported = rng.binomial(size, 0.3) + rng.normal(scale=3.0, size=3_000)
    secret = reported < 14
    low, high = np.where(secret, -np.inf, reported), np.where(secret, 14.0, reported)
    told = Intervals(low, high, np.full(3_000, 9.0))
    mean, variance = expected_counts(told, size, rates_differ=False)
    assert mean[secret][0] == pytest.approx(reported[secret].mean(), abs=4 * 4.4 / np.sqrt(secret.sum()))
    assert variance[secret][0] == pytest.approx(reported[secret].var(), rel=0.2)
    made, noise = stretched_counts(told, size, np.zeros(3_000, int), rates_differ=False)
    assert made.var() - noise.mean() == pytest.approx(50 * 0.3 * 0.7, rel=4 * 2 * np.sqrt(2 / 3_000))
