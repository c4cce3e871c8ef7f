"""Candidates for real labels: the right family, the intervals of risks, nothing to find, budgets, what is refused."""

import numpy as np
import pytest
from scipy.stats import binomtest

import bagwise as bw
from bagwise.auto import BagAutoRegressor, default_value_candidates
from bagwise.base import BagRegressor
from bagwise.gains import NoBetterThanConstantWarning
from bagwise.numeric import NumericFeatures


class Constant(NumericFeatures, BagRegressor):
    """The same for every row."""

    def __init__(self, value=0.0):
        self.value = value

    def _fit_bags(self, X, bags):
        self.fitted_ = True

    def _predict_mean(self, X):
        return np.full(len(X), float(self.value))


def candidates():
    few = {"n_estimators": 60, "n_fits": 1, "cv": 2, "n_jobs": 1, "kinds": ("greedy",)}
    return {"boosting": bw.BagBoostingRegressor(**few), "ridge": bw.BagRidgeRegressor(cv=2)}


def linear(X):
    return 3 * X[:, 0] - 2 * X[:, 1]


def crossed(X):
    return 6 * (X[:, 0] * X[:, 1] > 0)


@pytest.mark.parametrize(("rows", "chosen"), [(linear, "ridge"), (crossed, "boosting")])
@pytest.mark.parametrize("formation", ["random", "features"])
def test_it_chooses_the_family_that_is_right(rows, chosen, formation):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(4800, 3))
    y = rows(X) + rng.normal(size=len(X))
    ids = np.empty(len(X), dtype=int)
    ids[np.lexsort((X[:, 1], X[:, 0] // 0.25)) if formation == "features" else rng.permutation(len(X))] = (
        np.arange(len(X)) // 4
    )
    model = BagAutoRegressor(candidates=candidates(), random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.formation_.name == formation
    assert model.best_name_ == chosen
    assert (model.trials_[0]["risk"] is None) == (formation == "features")
    assert model.predict(X).mean() == pytest.approx(y.mean())


def test_intervals_hold_the_true_risk():
    """Of constants it is known: Var(y) + (p − c)²."""
    rng = np.random.default_rng(0)
    covered, trials = 0, 60
    for _ in range(trials):
        y = rng.normal(2.0, 1.0, size=800)
        ids = np.arange(800) // 10
        model = BagAutoRegressor(candidates={"constant": Constant(1.0)}, random_state=rng, formation="random")
        with pytest.warns(NoBetterThanConstantWarning):
            line = model.fit(rng.normal(size=(800, 1)), bw.aggregate(y, ids), bags=ids).trials_[0]
        covered += line["low"] <= 2.0 <= line["high"]
    assert binomtest(covered, trials, 0.95, alternative="less").pvalue > 1e-6


def test_where_nothing_can_be_found_predictions_are_drawn_to_p():
    rng = np.random.default_rng(0)
    X, y, ids = rng.normal(size=(1000, 5)), 50 + rng.normal(size=1000), np.arange(1000) // 20
    model = BagAutoRegressor(candidates=candidates(), random_state=0)
    with pytest.warns(NoBetterThanConstantWarning):
        model.fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.stretch_ < 1
    assert model.predict(X).mean() == pytest.approx(y.mean())


def test_bags_with_much_noise_do_not_decide():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(3200, 2))
    ids, noise = np.arange(3200) // 4, np.where(np.arange(800) % 2 == 0, 0.0, 1e6)
    mean = bw.aggregate(crossed(X), ids) + (np.sqrt(noise) * rng.normal(size=800))[ids]
    bags = bw.Bags.from_rows(mean, ids, noise_variance=noise[ids])
    tried = dict(reversed(candidates().items()))  # ridge is kept unless boosting is clearly better
    assert BagAutoRegressor(candidates=tried, random_state=0).fit(X, bags=bags).best_name_ == "boosting"


def test_three_bags_and_no_time():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    few = BagAutoRegressor(random_state=0).fit(
        X, bw.aggregate(linear(X), np.arange(300) // 100), bags=np.arange(300) // 100
    )
    assert few.best_name_ == "ridge"
    ids = np.arange(300) // 10
    model = BagAutoRegressor(time_budget=1e-9, random_state=0).fit(X, bw.aggregate(linear(X), ids), bags=ids)
    assert model.best_name_ == "mean label"
    assert np.ptp(model.predict(X)) == 0
    assert model.predict(X)[0] == pytest.approx(linear(X).mean())


def test_candidates_are_regressors_and_saved(tmp_path):
    with pytest.raises(ValueError, match="candidates must be None, or a dict of bagwise regressors by name"):
        BagAutoRegressor(candidates={"ridge": bw.BagRidgeClassifier()}).fit(np.zeros((4, 1)), np.arange(4.0))
    assert {"ridge", "tweedie", "sgd", "boosting"} <= {*default_value_candidates()}
    rng = np.random.default_rng(0)
    X, ids = rng.uniform(size=(800, 2)), np.arange(800) // 4
    y = np.maximum(linear(X), 0)
    model = BagAutoRegressor(candidates=candidates(), stack=True, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.predict(X).min() >= 0
    bw.save(model, tmp_path / "model")
    assert bw.load(tmp_path / "model").predict(X) == pytest.approx(model.predict(X))
