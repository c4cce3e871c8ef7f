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


def test_bags_with_very_much_noise_leave_boosting_as_it_is_without_them(bought):
    """They are worth less than a twentieth of the others; before, trees were cut by their rows, too."""
    X, _, bags = bought
    declared, silent, exact = noised(bags, 0)
    every, without, blind = (boosting().fit(X, bags=one) for one in (declared, exact, silent))
    np.testing.assert_allclose(every.predict(X), without.predict(X))
    assert not np.allclose(blind.predict(X), without.predict(X))


@pytest.mark.parametrize("make", [ridge, boosting, bw.BagTweedieRegressor])
def test_predictions_of_purchases_are_never_negative_and_their_mean_is_p(make, bought):
    X, _, bags = bought
    h = make().fit(X, bags=bags).predict(X)
    assert h.min() >= 0
    assert h.mean() == pytest.approx(bags.size @ bags.proportion / bags.n_bagged)


def test_labels_that_may_be_negative_have_predictions_that_may_be(bought):
    X, _, bags = bought
    told = ridge().set_params(nonnegative=False).fit(X, bags=bags)
    assert told.predict(X).min() < 0
    shifted = bw.Bags.from_rows((bags.proportion - 2)[bags.code], bags.code)
    assert not ridge().fit(X, bags=shifted).nonnegative_


@pytest.mark.parametrize("size", [1, SIZE])
def test_a_log_linear_model_learns_what_multiplies(size):
    """These are no sum of effects: ridge stays at about 0.3 of the variance of expected values."""
    new, expected, _ = log(np.random.default_rng(6))
    found = []
    for seed in range(5, 8):  # one log of 2,000 purchases may come out by half as much again
        X, _, value = log(np.random.default_rng(seed), 20_000)
        ids = np.arange(len(X)) // size
        bags = bw.Bags.from_rows(bw.aggregate(value, ids), ids)
        models = bw.BagTweedieRegressor(random_state=0), ridge()
        found.append([far(model.fit(X, bags=bags), new, expected) for model in models])
    ours, linear = np.mean(found, axis=0)
    assert ours < 0.75 * linear
