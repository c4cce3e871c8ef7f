"""Rows with weights beside the same rows repeated, and offsets, in linear estimators that read no likelihood."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone

import bagwise as bw
from bagwise.bags import Bags
from bagwise.updates import CannotUpdateError
from bagwise.utils.parameters import ParameterError
from tests.weighted import FORMATIONS, drawn

pytestmark = pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")

CLASSIFIERS = {
    "sgd": bw.BagSGDClassifier(n_passes=2, random_state=0),
    "as published": bw.BagSGDClassifier(as_published=True, random_state=0),
    "mean map": bw.BagMeanMapClassifier(random_state=0),
    "mean map, one penalty": bw.BagMeanMapClassifier(alpha=0.3, random_state=0),
}
REGRESSORS = {
    "ridge": bw.BagRidgeRegressor(random_state=0),
    "sgd": bw.BagSGDRegressor(n_passes=2, random_state=0),
    "tweedie": bw.BagTweedieRegressor(random_state=0),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("formation", FORMATIONS)
def test_classifiers_of_people_are_those_of_rows_repeated(name, formation):
    given, model = drawn(formation, n=900, m=40), CLASSIFIERS[name]
    model.set_params(formation=formation)
    one = model.fit(given.X, bags=given.bags).predict_proba(given.X)
    many = model.fit(given.X[given.rows], bags=given.repeated).predict_proba(given.X)
    np.testing.assert_allclose(one, many, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["sgd", "mean map"])
def test_several_classes_of_people_are_those_of_rows_repeated(name):
    rng = np.random.default_rng(1)
    X, ids, weight = rng.normal(size=(600, 2)), np.arange(600) % 30, rng.integers(1, 4, 600)
    rows = np.repeat(np.arange(600), weight)
    label = np.argmax(X[rows] @ rng.normal(size=(2, 3)) + rng.gumbel(size=(len(rows), 3)), axis=1)
    share = np.stack([np.bincount(ids[rows], label == c) / np.bincount(ids[rows]) for c in range(3)], axis=1)
    model = CLASSIFIERS[name].set_params(formation="auto")
    one = model.fit(X, bags=Bags.from_rows(share[ids], ids).with_weights(weight)).predict_proba(X)
    many = model.fit(X[rows], share[ids[rows]], bags=ids[rows]).predict_proba(X)
    np.testing.assert_allclose(one, many, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("noise", [None, 20.0])
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_of_people_are_those_of_rows_repeated(name, noise):
    """People of a row have values of their own, whose sum is reported."""
    rng = np.random.default_rng(2)
    n, m = 800, 40
    X, ids, weight = rng.normal(size=(n, 2)), rng.integers(0, m, n), rng.integers(1, 4, n)
    X[:, 0] += rng.normal(size=m)[ids]
    rows = np.repeat(np.arange(n), weight)
    value = rng.gamma(1.0, np.exp(0.5 * X[rows, 0] + 1))
    mean = (np.bincount(ids[rows], value) / np.bincount(ids[rows]))[ids]
    one, many = (
        REGRESSORS[name].fit(A, bags=bags).predict(X)
        for A, bags in (
            (X, Bags.from_rows(mean, ids, noise_variance=noise).with_weights(weight)),
            (X[rows], Bags.from_rows(mean[rows], ids[rows], noise_variance=noise)),
        )
    )
    np.testing.assert_allclose(one, many, rtol=1e-5)
    assert np.corrcoef(one, X[:, 0])[0, 1] > 0.7


def test_the_mean_map_knows_offsets():
    """Rates differ, and what is added to log odds, too: what is learned is the rest."""
    rng = np.random.default_rng(3)
    n, m = 40_000, 100
    X, offset = rng.normal(size=(n, 2)), rng.normal(scale=1.5, size=n)
    X[:, 1] += 0.7 * offset  # which would otherwise be taken for a cause
    y = rng.random(n) < expit(X[:, 0] - 1 + offset)
    rate = rng.uniform(0.1, 0.9, m)
    ids = np.where(y, rng.choice(m, n, p=rate / rate.sum()), rng.choice(m, n, p=(1 - rate) / (1 - rate).sum()))
    bags = Bags.from_rows(bw.aggregate(y.astype(int), ids), ids)
    model = bw.BagMeanMapClassifier(alpha=1e-3, random_state=0, formation="rates")
    coef = model.fit(X, bags=bags.with_offset(offset)).coef_
    np.testing.assert_allclose(coef, [1.0, 0.0], atol=0.12)
    h = model.predict_proba(X, offset=offset)[:, 1]
    assert h.mean() == pytest.approx(y.mean(), abs=1e-6)
    assert model.fit(X, bags=bags).coef_[1] > 0.5
    with pytest.raises(ParameterError, match="offset is for models that were fitted with one"):
        model.predict_proba(X, offset=offset)


def test_who_has_no_log_odds_says_so():
    given = drawn("random", n=300, m=20)
    moved = given.bags.with_offset(np.zeros(300))
    for model in (bw.BagSGDClassifier(), bw.BagRidgeClassifier(), bw.BagTweedieRegressor()):
        with pytest.raises(ParameterError, match="offset is not known to a Bag"):
            model.fit(given.X, bags=moved)


# -- later bags -------------------------------------------------------------------------------------------------------


def months(formation):
    """Two months: rows, bags of people, and the same of rows repeated."""
    found = []
    for seed in (0, 1):
        given = drawn(formation, n=900, m=40, seed=seed)
        found.append([(given.X, given.bags), (given.X[given.rows], given.repeated)])
    return zip(*found, strict=True)


@pytest.mark.parametrize("forgetting", [1.0, "auto"])
@pytest.mark.parametrize("formation", FORMATIONS)
@pytest.mark.parametrize("kind", [bw.BagRidgeClassifier, bw.BagLogisticClassifier])
def test_updates_by_people_are_those_by_rows_repeated(kind, formation, forgetting):
    coef = []
    for (X, bags), (later, more) in months(formation):
        model = kind(formation=formation, cv=3, random_state=0).fit(X, bags=bags)
        before = model.coef_.copy()
        model.partial_fit(later, bags=more, forgetting=forgetting)
        coef.append(np.append(model.coef_, model.predict_proba(later[:1])))
        assert model.update_.learned
        assert not np.allclose(before, model.coef_, rtol=1e-4)
    np.testing.assert_allclose(*coef, rtol=1e-3, atol=1e-4)


def test_ridge_adds_moments_of_people():
    (X, bags), (later, more) = next(iter(months("random")))
    told = {"alphas": 0.01, "scaling": 0.5, "formation": "random", "random_state": 0}
    model = bw.BagRidgeRegressor(**told).fit(X, bags=bags).partial_fit(later, bags=more)
    ids, weight = (np.concatenate([getattr(bags, name), getattr(more, name) + plus]) for name, plus in (
        ("code", len(bags)), ("weight", 0)))  # fmt: skip
    place = np.concatenate([bags.order, len(X) + more.order])
    both = np.empty(len(ids))
    both[place] = weight
    y = np.concatenate([bags.proportion, more.proportion])[ids]
    joint = bw.BagRidgeRegressor(**told).fit(np.vstack([X, later]), bags=Bags.from_rows(y, ids).with_weights(both))
    np.testing.assert_allclose(model.coef_, joint.coef_, atol=1e-8)


def test_logistic_regression_is_updated_with_an_offset():
    """Old and new rows have an offset: nearly the fit to both; whoever else has one says that there is no update."""
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(6000, 2)), np.arange(6000) // 20
    X += rng.normal(size=(300, 2))[ids]
    offset = 1.5 * X[:, 1] + rng.normal(size=6000)
    y = rng.random(6000) < expit(X[:, 0] - 0.5 + offset)
    share = bw.aggregate(y.astype(int), ids)
    model = bw.BagLogisticClassifier(alphas=1.0, scaling=1.0, formation="features", cv=3, random_state=0)

    def part(rows):
        return X[rows], Bags.from_rows(share[rows], ids[rows]).with_offset(offset[rows])

    first, second, every = (part(rows) for rows in (slice(0, 3000), slice(3000, None), slice(None)))
    both = clone(model).fit(every[0], bags=every[1])
    alone = model.fit(first[0], bags=first[1]).free_coef_
    model.partial_fit(second[0], bags=second[1])
    assert (np.abs(model.free_coef_ - both.free_coef_) < 0.3 * both.coef_errors_).all()
    assert (np.abs(alone - both.free_coef_) > 0.3 * both.coef_errors_).any()
    assert model.intercept_ == pytest.approx(both.intercept_, abs=0.02)
    assert model.predict_proba(X, offset=offset)[:, 1].mean() == pytest.approx(y.mean(), abs=5e-3)
    boosted = bw.BagBoostingClassifier(n_estimators=3, n_fits=1, cv=2, n_jobs=1, random_state=0)
    boosted.fit(first[0], bags=first[1])
    with pytest.raises(CannotUpdateError, match="a BagBoostingClassifier with an offset cannot be updated: fit it to"):
        boosted.partial_fit(second[0], bags=second[1])
