"""Networks go on from their weights on later bags, as far as held-out ones of these like it."""

import copy

import numpy as np
import pytest
from scipy.special import expit

import bagwise as bw
from bagwise.bag_fit import gains

pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
pytestmark = pytest.mark.usefixtures("one_thread")


def month(rng, n=1500, offset=-1.0, sign=1.0):
    X = rng.normal(size=(n, 2))
    ids = bw.random_bags(n, 10, random_state=rng)
    y = rng.random(n) < expit(1.5 * sign * X[:, 0] + offset)
    return X, bw.aggregate(y, ids), ids


@pytest.fixture(scope="module")
def old():
    X, y, ids = month(np.random.default_rng(0), 2500)
    options = {"hidden": (8,), "learning_rate": 0.03, "max_epochs": 10, "patience": 3, "cv": 2, "random_state": 0}
    return bw.BagNeuralClassifier(**options).fit(X, y, bags=ids)


def gain(model, data):
    X, y, ids = data
    return gains(model.predict_proba(X)[:, 1], bw.Bags.from_rows(y, ids)).mean()


@pytest.mark.parametrize("change", [{"offset": 0.0}, pytest.param({"sign": -1.0}, marks=pytest.mark.slow)])
def test_later_bags_are_better_served(old, change, tmp_path):
    rng = np.random.default_rng(1)
    new, held_out = month(rng, **change), month(rng, 6000, **change)
    bw.save(old, tmp_path / "old")
    model = bw.load(tmp_path / "old").set_params(max_epochs=40).partial_fit(*new[:2], bags=new[2], epochs="auto")
    assert gain(model, held_out) > gain(old, held_out) + 0.1
    assert (model.n_epochs_ > old.n_epochs_) == ("sign" in change)
    assert model.predict_proba(new[0])[:, 1].mean() == pytest.approx(new[1].mean(), abs=1e-6)
    bw.save(model, tmp_path / "model")
    np.testing.assert_array_equal(bw.load(tmp_path / "model").predict_proba(new[0]), model.predict_proba(new[0]))
    assert bw.load(tmp_path / "model").update_ == model.update_


def test_it_stays_as_it_was_where_nothing_changed(old):
    new = month(np.random.default_rng(2), 1000)
    model = copy.deepcopy(old).partial_fit(*new[:2], bags=new[2], epochs="auto")
    assert not model.update_.learned
    np.testing.assert_array_equal(model.predict_proba(new[0]), old.predict_proba(new[0]))
    with pytest.raises(ValueError, match="epochs must be one of 1, 'auto', got 3"):
        model.partial_fit(*new[:2], bags=new[2], epochs=3)
