"""Further trees on later bags: better where things changed; the model as it was where nothing speaks for another."""

import copy

import numpy as np
import pytest
from scipy.special import expit

import bagwise as bw
from bagwise.bag_fit import gains
from bagwise.boosting import BagBoostingClassifier, BagBoostingRegressor
from bagwise.updates import CannotUpdateError

SMALL = {"n_estimators": 30, "cv": 2, "n_jobs": 1, "random_state": 0}


def month(rng, n=2000, offset=-1.0, sign=1.0):
    X = rng.normal(size=(n, 2))
    ids = bw.random_bags(n, 10, random_state=rng)
    y = rng.random(n) < expit(1.5 * sign * X[:, 0] + offset)
    return X, bw.aggregate(y, ids), ids


@pytest.fixture(scope="module")
def old():
    X, y, ids = month(np.random.default_rng(0), 4000)
    return BagBoostingClassifier(**SMALL).fit(X, y, bags=ids)


def gain(model, data):
    X, y, ids = data
    return gains(model.predict_proba(X)[:, 1], bw.Bags.from_rows(y, ids)).mean()


@pytest.mark.parametrize("change", [{"offset": 0.0}, pytest.param({"sign": -1.0}, marks=pytest.mark.slow)])
def test_later_bags_are_better_served(old, change):
    rng = np.random.default_rng(1)
    new, held_out = month(rng, **change), month(rng, 6000, **change)
    model = copy.deepcopy(old).partial_fit(*new[:2], bags=new[2])
    assert model.update_.learned
    assert gain(model, held_out) > gain(old, held_out) + 0.1
    assert model.update_.before == pytest.approx(gain(old, new))
    assert model.update_.after == model.gain_ > model.update_.before
    assert model.predict_proba(new[0])[:, 1].mean() == pytest.approx(new[1].mean(), abs=1e-6)
    assert model.updates_[0].fits or "offset" in change  # a rate that moved may do without trees


def test_it_stays_as_it_was_where_nothing_changed(old):
    new = month(np.random.default_rng(2), 1000)
    model = copy.deepcopy(old).partial_fit(*new[:2], bags=new[2])
    assert not model.update_.learned
    assert model.update_.how.startswith("kept as it was")
    np.testing.assert_array_equal(model.predict_proba(new[0]), old.predict_proba(new[0]))


@pytest.mark.slow
def test_updates_hardly_ever_make_it_worse(old):
    """Where nothing changed, an update is taken only if two standard errors better, and costs little then."""
    worse, taken = [], 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        new, held_out = month(rng, 1500), month(rng, 6000)
        model = copy.deepcopy(old).partial_fit(*new[:2], bags=new[2])
        taken += model.update_.learned
        worse.append(gain(old, held_out) - gain(model, held_out))
    assert np.mean(worse) < 0.01  # of a gain of about 0.25
    assert taken <= 6


@pytest.mark.slow
def test_updates_follow_each_other_and_are_saved(old, tmp_path):
    rng, model = np.random.default_rng(3), copy.deepcopy(old)
    for change in ({"sign": -1.0}, {"sign": -1.0, "offset": 0.5}):
        X, y, ids = month(rng, **change)
        model.partial_fit(X, y, bags=ids)
    assert len(model.updates_) == 2
    bw.save(model, tmp_path / "model")
    again = bw.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    del again.updates_  # as folders of earlier versions are: the trees suffice
    np.testing.assert_array_equal(again.predict_proba(X), old.predict_proba(X))
    assert again.partial_fit(X, y, bags=ids).update_.learned


def test_who_cannot_says_so(old):
    rng = np.random.default_rng(0)
    X, y, ids = month(rng, 600)
    with pytest.raises(AttributeError, match="a BagBoostingRegressor cannot be updated"):
        BagBoostingRegressor().partial_fit(X, y, bags=ids)
    with pytest.raises(ValueError, match="forgetting is for linear models, not for boosted trees"):
        copy.deepcopy(old).partial_fit(X, y, bags=ids, forgetting=0.5)
    few = BagBoostingClassifier(**SMALL | {"n_estimators": 2}).fit(X, np.arange(600) % 3)
    with pytest.raises(CannotUpdateError, match="boosted trees of several classes cannot be updated"):
        few.partial_fit(X, np.arange(600) % 3)
    kept = copy.deepcopy(old).partial_fit(X[:30], np.repeat([0.1, 0.2, 0.3], 10), bags=np.repeat([0, 1, 2], 10))
    assert kept.update_.how == "kept as it was, as of 3 bags none can be held out"
