"""Means of single rows from bags of which some are hidden: intervals hold the truth, whatever the law of rates."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from bagwise.bags import Bags, aggregate
from bagwise.expectations import Expectations
from bagwise.metrics import METRICS, estimated, metrics

MEANS = np.array([0.0, 1.5])  # of the feature, by label


def predicted(x):
    return expit(1.5 * x - 1.97)


def truth(p):
    """The metrics of all rows, by sums over the quantiles of each label's feature."""
    x = MEANS[:, None] + stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    h = predicted(x)
    below = np.searchsorted(np.sort(x[0]), x[1]) / x.shape[1]
    chance = np.array([1 - p, p])
    return {
        "accuracy": float(chance @ [(h[0] <= 0.5).mean(), (h[1] > 0.5).mean()]),
        "brier": float(chance @ [(h[0] ** 2).mean(), ((1 - h[1]) ** 2).mean()]),
        "log_loss": float(chance @ [-np.log1p(-h[0]).mean(), -np.log(h[1]).mean()]),
        "auc": float(below.mean()),
    }


def hidden(y, ids, below):
    """Bags of the labels, of which counts below a number are not shown."""
    count = np.bincount(ids, weights=y)
    low, high = np.where(count < below, 0, count), np.where(count < below, below - 1, count)
    return Bags.from_rows(np.zeros(len(y)), ids).with_intervals(low, high)


LAWS = {
    "beta": (lambda rng, m: rng.beta(1.2, 2.8, m), 0.3, 14),
    "three rates": (lambda rng, m: rng.choice([0.1, 0.3, 0.6], m, p=[0.5, 0.25, 0.25]), 0.275, 10),
    "uniform": (lambda rng, m: rng.uniform(0, 0.6, m), 0.3, 12),
}


@pytest.mark.parametrize("law", LAWS)
def test_hidden_counts_of_bags_whose_rates_differ(law):
    """Half of the bags are hidden; of 60 intervals of 95 %, 50 or more hold the truth, but once in 5,000."""
    (draw, p, below), rng = LAWS[law], np.random.default_rng(0)
    right, held, off = truth(p), dict.fromkeys(METRICS, 0), []
    ids = np.repeat(np.arange(150), 50)
    for _ in range(60):
        y = rng.random(len(ids)) < draw(rng, 150)[ids]
        h = predicted(rng.normal(MEANS[y.astype(int)]))
        found = metrics(Expectations(h, hidden(y, ids, below), by_slope=True))
        for name, one in found.items():
            told = estimated(*one, 0.95, positive=name == "log_loss")
            held[name] += told.low <= right[name] <= told.high
        off.append(found["auc"][0] - right["auc"])
    assert min(held.values()) >= 50, held
    assert abs(np.mean(off)) < 4 * np.std(off) / np.sqrt(60) + 0.01  # a ratio has a bias of its own


def test_hidden_counts_of_random_bags():
    right, held, rng = truth(0.3), dict.fromkeys(METRICS, 0), np.random.default_rng(1)
    ids = np.repeat(np.arange(150), 50)
    for _ in range(60):
        y = rng.random(len(ids)) < 0.3
        found = metrics(Expectations(predicted(rng.normal(MEANS[y.astype(int)])), hidden(y, ids, 14)))
        for name, one in found.items():
            told = estimated(*one, 0.95, positive=name == "log_loss")
            held[name] += told.low <= right[name] <= told.high
    assert min(held.values()) >= 50, held


def test_what_is_shown_alone_is_as_it_was():
    """Intervals whose ends are equal are counts."""
    rng = np.random.default_rng(2)
    ids = np.repeat(np.arange(40), 25)
    y = rng.random(1_000) < rng.beta(2, 4, 40)[ids]
    h = predicted(rng.normal(MEANS[y.astype(int)]))
    bags = Bags.from_rows(aggregate(y, ids), ids)
    for by_slope in (False, True):
        plain = metrics(Expectations(h, bags, by_slope=by_slope))
        told = metrics(Expectations(h, hidden(y, ids, 0), by_slope=by_slope))
        for name, one in plain.items():
            np.testing.assert_allclose(told[name][0], one[0], rtol=1e-12)
            np.testing.assert_allclose(told[name][1], one[1], rtol=1e-9, atol=1e-12)


def test_nothing_is_told_where_no_bag_is_shown():
    rng = np.random.default_rng(3)
    ids = np.repeat(np.arange(40), 25)
    y = rng.random(1_000) < 0.3
    rows = Expectations(predicted(rng.normal(MEANS[y.astype(int)])), hidden(y, ids, 26), by_slope=True)
    assert np.isnan(rows.prior)
