"""Rates of people: rows with weights beside the same rows repeated, and offsets of log odds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binomtest

import bagwise as bw
from bagwise.bags import Bags, several
from bagwise.disaggregation import group_bounds, group_rates
from tests.weighted import FORMATIONS, drawn


def told(found: Any) -> Any:
    """(groups, numbers) of the record, by the value of the group."""
    names = ("n_people", "prediction", "rate", "low", "high", "least", "most")
    ordered = sorted(found.rates, key=lambda one: (one.label, one.value))
    return np.array([[getattr(one, name) for name in names] for one in ordered])


@pytest.mark.parametrize("noise", [None, 9.0])
@pytest.mark.parametrize("formation", FORMATIONS)
def test_whole_weights_are_rows_repeated(formation: str, noise: float | None) -> None:
    given = drawn(formation, 900, 30, seed=1)
    by, h = np.digitize(given.X[:, 1], [-0.5, 0.6]), expit(0.5 * given.X[:, 0] - 0.5)
    proportion = given.bags.repeat(given.bags.proportion)[np.argsort(given.bags.order)]
    one = Bags.from_rows(proportion, given.ids, noise_variance=noise).with_weights(given.weight)
    many = Bags.from_rows(proportion[given.rows], given.ids[given.rows], noise_variance=noise)
    found = group_rates(h, None, bags=one, by=by, formation=formation)
    known = group_rates(h[given.rows], None, bags=many, by=by[given.rows], formation=formation)
    np.testing.assert_allclose(told(found), told(known), rtol=1e-6, atol=1e-9)
    assert found.effect_variance == pytest.approx(known.effect_variance, rel=1e-6)
    assert (found.of_people, known.of_people) == (True, False)
    assert "people" in str(found)
    assert sum(one.n_rows for one in found.rates) == found.n_rows == 900


def test_whole_weights_are_rows_repeated_in_several_tables() -> None:
    rng = np.random.default_rng(2)
    n = 600
    weight, one, other = rng.integers(1, 4, n), rng.integers(0, 25, n), rng.integers(0, 15, n)
    by, x = rng.integers(0, 3, n), rng.normal(size=n)
    ones, rows = rng.binomial(weight, expit(x + 0.5 * by - 1)), np.repeat(np.arange(n), weight)
    offset = rng.normal(scale=0.5, size=n)
    tables: Any = ([], [])
    for ids in (one, other):
        share = (np.bincount(ids, ones) / np.bincount(ids, weight))[ids]
        tables[0].append(Bags.from_rows(share, ids).with_weights(weight).with_offset(offset))
        tables[1].append(Bags.from_rows(share[rows], ids[rows]).with_offset(offset[rows]))
    h = expit(0.7 * x - 0.5)
    found = group_rates(h, None, bags=several(tables[0]), by=by, formation="features")
    known = group_rates(h[rows], None, bags=several(tables[1]), by=by[rows], formation="features")
    np.testing.assert_allclose(told(found), told(known), rtol=1e-5, atol=1e-7)


def test_a_model_that_is_fitted_again_is_fitted_to_people() -> None:
    """Its own bags, an offset and weights: what it is fitted to five times more has both."""
    rng = np.random.default_rng(3)
    n, m = 1500, 40
    X, ids = rng.normal(size=(n, 2)), np.arange(n) % m
    weight, offset, by = rng.integers(1, 4, n), rng.normal(scale=0.7, size=n), rng.integers(0, 2, n)
    X[:, 0] += rng.normal(size=m)[ids]
    ones = rng.binomial(weight, expit(X[:, 0] + 0.8 * by - 1 + offset))
    share, rows = (np.bincount(ids, ones) / np.bincount(ids, weight))[ids], np.repeat(np.arange(n), weight)
    one = Bags.from_rows(share, ids).with_weights(weight).with_offset(offset)
    many = Bags.from_rows(share[rows], ids[rows]).with_offset(offset[rows])
    found = []
    for A, bags, groups in ((X, one, by), (X[rows], many, by[rows])):
        model = bw.BagLogisticClassifier(cv=3, formation="features", random_state=0).fit(A, bags=bags)
        found.append(group_rates(model, A, bags=bags, by=groups, formation="features", related=0))
    np.testing.assert_allclose(told(found[0]), told(found[1]), rtol=1e-4)
    for g in (0, 1):
        rate = next(rate for rate in found[0].rates if rate.value == str(g))
        assert rate.low < ones[by == g].sum() / weight[by == g].sum() < rate.high


def test_bounds_are_of_people() -> None:
    bags = Bags.from_rows([0.75, 0.75, 0.75], [0, 0, -1]).with_weights([3, 1, 7])
    least, most = group_bounds(np.array([0, 1, 1]), 2, bags)
    assert (least.tolist(), most.tolist()) == ([2, 0], [3, 1])


def test_an_offset_is_not_stretched() -> None:
    """Scores shrunken to a third are stretched again, what is known of exposure is not: intervals are half as wide."""
    rng, runs, covered, width, m, k = np.random.default_rng(4), 20, 0, np.zeros((20, 2)), 60, 50
    for run in range(runs):
        bag, share = np.repeat(np.arange(m), k), rng.dirichlet([2, 2], m)
        by = (rng.random(m * k) < share[bag, 1]).astype(int)
        x, moved = rng.normal(size=m * k) + 0.7 * rng.normal(size=m)[bag], 1.5 * rng.normal(size=m)[bag]
        offset, weight = 1.5 * by + moved + rng.normal(size=m * k), rng.integers(1, 4, m * k)
        ones = rng.binomial(weight, expit(-1.5 + 1.2 * x - by + offset))
        bags = Bags.from_rows((np.bincount(bag, ones) / np.bincount(bag, weight))[bag], bag).with_weights(weight)
        h, truth = expit(0.4 * x - 1 + offset), ones[by == 1].sum() / weight[by == 1].sum()
        for place, given in enumerate((bags.with_offset(offset), bags)):
            found = group_rates(h, None, bags=given, by=by, formation="features", related=0)
            (one,) = (one for one in found.rates if one.value == "1")
            width[run, place] = one.high - one.low
            covered += place == 0 and one.low <= truth <= one.high
    assert binomtest(covered, runs, 0.93, alternative="less").pvalue > 1e-3
    median = np.median(width, axis=0)
    assert median[0] < 0.6 * median[1]
