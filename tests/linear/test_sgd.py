"""Gradient steps on rows with weights, beside the same rows repeated; and other linear estimators in the same way."""

import numpy as np
import pytest

import bagwise as bw
from bagwise.bags import Bags
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


def test_who_has_no_log_odds_says_so():
    given = drawn("random", n=300, m=20)
    moved = given.bags.with_offset(np.zeros(300))
    for model in (bw.BagSGDClassifier(), bw.BagRidgeClassifier(), bw.BagSGDRegressor()):
        with pytest.raises(ParameterError, match="offset is not known to a Bag"):
            model.fit(given.X, bags=moved)
