"""Log-linear regression: the ordinary one where bags have one row, recovery, noise, and what it refuses."""

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

import bagwise as bw
from bagwise.utils.parameters import ParameterError

WEIGHTS = np.array([0.6, -0.4])


def rows_of(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    expected = np.exp(X @ WEIGHTS + 1)
    return X, expected, rng.poisson(expected / 5) * 5.0


def test_with_one_row_per_bag_it_is_ordinary_poisson_regression():
    X, _, y = rows_of(3000, 0)
    ours = bw.BagTweedieRegressor(power=1.0, alphas=0.0).fit(X, y)
    theirs = PoissonRegressor(alpha=0, max_iter=1000, tol=1e-9).fit(X, y)
    assert ours.coef_ == pytest.approx(theirs.coef_, abs=2e-3)
    assert ours.predict(X) == pytest.approx(theirs.predict(X), rel=0.01)


@pytest.mark.parametrize("formation", ["random", "features", "effects"])
def test_weights_are_recovered_in_every_formation_in_which_rows_tell(formation):
    X, expected, _ = rows_of(24_000, 1)
    rng = np.random.default_rng(1)
    order = np.argsort(X[:, 0] + X[:, 1]) if formation == "features" else np.arange(len(X))
    ids = np.empty(len(X), dtype=int)
    ids[order] = np.arange(len(X)) // 20
    effect = rng.gamma(20, 1 / 20, ids.max() + 1)[ids] if formation == "effects" else 1.0
    y = rng.poisson(expected * effect / 5) * 5.0
    model = bw.BagTweedieRegressor(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.coef_ == pytest.approx(WEIGHTS, abs=0.15)
    assert model.predict(X).mean() == pytest.approx(y.mean())


def test_noised_bags_count_for_what_they_are_worth():
    X, expected, y = rows_of(12_000, 2)
    ids, rng = np.arange(12_000) // 20, np.random.default_rng(2)
    noise = np.where(np.arange(600) % 4 == 0, 0.0, 300.0**2)
    mean = bw.aggregate(y, ids) + (np.sqrt(noise) * rng.normal(size=600) / 20)[ids]
    every = bw.BagTweedieRegressor(random_state=0).fit(X, bags=bw.Bags.from_rows(mean, ids, noise_variance=noise[ids]))
    exact = np.where(noise[ids] == 0, ids, -1)
    alone = bw.BagTweedieRegressor(random_state=0).fit(X, mean, bags=exact)
    silent = bw.BagTweedieRegressor(random_state=0).fit(X, bw.aggregate(np.maximum(mean, 0), ids), bags=ids)
    far = [np.mean((one.predict(X) - expected) ** 2) / expected.var() for one in (every, alone, silent)]
    assert far[0] == pytest.approx(far[1])  # these are worth less than a twentieth of the others
    assert far[0] < 0.5 * far[2]


def test_ten_bags_and_labels_that_are_all_0_are_no_trouble():
    X, _, y = rows_of(500, 3)
    ids = np.arange(500) // 50
    with pytest.warns(bw.gains.NoBetterThanConstantWarning):
        h = bw.BagTweedieRegressor(random_state=0).fit(X, bw.aggregate(y, ids) * 0, bags=ids).predict(X)
    assert np.allclose(h, 0)
    with pytest.raises(ValueError, match="the mean label is below 0: a log-linear model is for labels that are never"):
        bw.BagTweedieRegressor().fit(X, -bw.aggregate(y, ids), bags=ids)
    with pytest.raises(ValueError, match="power must be one or more numbers from 0 to 2"):
        bw.BagTweedieRegressor(power=3.0).fit(X, bw.aggregate(y, ids), bags=ids)


def test_offsets_are_added_to_logarithms():
    """Values are in proportion to exposure; what is learned is that of one unit, and sums of people are counted."""
    rng = np.random.default_rng(4)
    n, m = 20_000, 400
    X, ids, weight = rng.normal(size=(n, 2)), np.arange(n) % m, rng.integers(1, 4, n)
    X += 0.7 * rng.normal(size=(m, 2))[ids]
    offset = X[:, 1] + rng.normal(size=n)
    value = rng.gamma(weight, np.exp(1 + 0.5 * X[:, 0] + offset))
    bags = bw.Bags.from_rows((np.bincount(ids, value) / np.bincount(ids, weight))[ids], ids).with_weights(weight)
    model = bw.BagTweedieRegressor(alphas=1e-3, power=1.0, random_state=0)
    known = model.fit(X, bags=bags.with_offset(offset))
    np.testing.assert_allclose(known.coef_, [0.5, 0.0], atol=0.1)
    h = known.predict(X, offset=offset)
    assert np.average(h, weights=weight) == pytest.approx(value.sum() / weight.sum())
    np.testing.assert_allclose(h, known.predict(X, offset=offset + 1) / np.e)
    with pytest.warns(bw.evaluation.BagsNotRandomWarning, match="fitted to these very bags"):
        found = bw.evaluate(known, X, bags=bags.with_offset(offset), formation="random")
    assert found.mean_prediction.value == pytest.approx(found.mean_label.value)
    by = (X[:, 0] > 0).astype(int)
    for one in bw.group_rates(known, X, bags=bags.with_offset(offset), by=by, formation="features").rates:
        inside = by == int(one.value)
        assert one.low < value[inside].sum() / weight[inside].sum() < one.high
    with pytest.raises(ParameterError, match="offset is missing: the BagTweedieRegressor was fitted with one"):
        known.predict(X)
    assert model.fit(X, bags=bags).coef_[1] > 0.8
    with pytest.raises(ParameterError, match="offset is not known to a BagRidgeRegressor: take BagTweedieRegressor"):
        bw.BagRidgeRegressor().fit(X, bags=bags.with_offset(offset))
