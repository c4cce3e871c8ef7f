"""A purchase log, most of whose rows are worth nothing and a few much: regressors learn it from sums of bags."""

import numpy as np
import pandas as pd
import pytest

import bagwise as bw

SIZE, BAGS = 25, 1200


def log(rng, n=SIZE * BAGS):
    """Visits, the expected value of each, and its value: 9 of 10 buy nothing."""
    past, desktop = rng.poisson(1.5, n), rng.random(n) < 0.4
    hour = rng.uniform(0, 24, n)
    chance = 1 / (1 + np.exp(3.7 - 0.7 * past - 0.6 * desktop))
    typical = np.exp(2.2 + 0.8 * desktop + 0.4 * np.sin(hour * np.pi / 12))
    value = (rng.random(n) < chance) * typical * rng.gamma(2.0, 0.5, n)
    return pd.DataFrame({"past": past, "desktop": desktop.astype(float), "hour": hour}), chance * typical, value


def far(model, X, expected):
    """Mean square distance from E[value given x], over that of the mean value: 0 is perfect, 1 no better than it."""
    return np.mean((model.predict(X) - expected) ** 2) / expected.var()


def ridge():
    return bw.BagRidgeRegressor(random_state=0)


def boosting():
    return bw.BagBoostingRegressor(n_estimators=40, cv=2, n_fits=1, kinds=("greedy",), n_jobs=1, random_state=0)


@pytest.fixture(scope="module")
def bought():
    rng = np.random.default_rng(0)
    X, expected, value = log(rng)
    assert (value == 0).mean() > 0.85
    return X, expected, bw.Bags.from_rows(bw.aggregate(value, np.arange(len(X)) // SIZE), np.arange(len(X)) // SIZE)


@pytest.mark.parametrize(("make", "most"), [(ridge, 0.4), (boosting, 0.5)])
def test_expected_values_are_recovered_better_than_by_the_mean(make, most, bought):
    X, _, bags = bought
    model = make().fit(X, bags=bags)
    new, expected, value = log(np.random.default_rng(1))
    assert far(model, new, expected) < most
    assert model.formation_.name == "random"
    ids = np.arange(len(new)) // SIZE
    found = bw.evaluate(model, new, bw.aggregate(value, ids), bags=ids)
    h = model.predict(new)
    for estimate, true in ((found.mse, np.mean((value - h) ** 2)), (found.bias, (h - value).mean())):
        assert estimate.low < true < estimate.high
    assert found.r2.low > 0


def noised(bags, seed):
    """Three quarters of the bags with far more noise than they report, declared and not; and the others alone."""
    rng, noise, ids = np.random.default_rng(seed), np.where(np.arange(BAGS) % 4 == 0, 0.0, 400.0**2), bags.code
    shifted = (bags.proportion + np.sqrt(noise) * rng.normal(size=BAGS) / SIZE)[ids]
    declared = bw.Bags.from_rows(shifted, ids, noise_variance=noise[ids])
    return declared, bw.Bags.from_rows(shifted, ids), bw.Bags.from_rows(shifted, np.where(noise[ids] == 0, ids, -1))


def test_ridge_is_no_worse_for_bags_with_much_noise(bought):
    X, _, bags = bought
    new, expected, _ = log(np.random.default_rng(3))
    every, silent, exact = (far(ridge().fit(X, bags=one), new, expected) for one in noised(bags, 2))
    assert every < exact + 0.05
    assert every < 0.5 * silent


@pytest.mark.slow
def test_boosting_respects_noise(bought):
    """Before noised bags counted for what they are worth in every choice, some fits were no better than the mean."""
    X, _, bags = bought
    new, expected, _ = log(np.random.default_rng(3))
    found = []
    for seed in range(4):
        declared, silent, _ = noised(bags, seed)
        found.append([far(boosting().fit(X, bags=one), new, expected) for one in (declared, silent)])
    every, silent = np.mean(found, axis=0)
    assert every < 0.9
    assert every < 0.6 * silent
