"""Weights and offsets of rows in linear models: beside rows repeated, and beside scikit-learn's."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import bagwise as bw
from bagwise.bags import Bags
from bagwise.utils.parameters import ParameterError
from tests.weighted import COEF, FORMATIONS, drawn

pytestmark = pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")


@pytest.mark.parametrize("formation", FORMATIONS)
@pytest.mark.parametrize("kind", [bw.BagRidgeClassifier, bw.BagLogisticClassifier])
def test_weights_are_rows_repeated(kind, formation):
    given = drawn(formation)
    for asked in ("auto", formation):
        settings = {"formation": asked, "random_state": 0, "cv": 3}
        one = kind(**settings).fit(given.X, bags=given.bags)
        many = kind(**settings).fit(given.X[given.rows], bags=given.repeated)
        assert one.formation_.name == many.formation_.name
        np.testing.assert_allclose(one.coef_, many.coef_, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(one.intercept_, many.intercept_, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(one.gain_, many.gain_, rtol=1e-7)
        np.testing.assert_allclose(one.predict_proba(given.X), many.predict_proba(given.X), rtol=1e-8)


@pytest.mark.parametrize("formation", FORMATIONS)
def test_intervals_of_weighted_rows_hold_the_truth(formation):
    given = drawn(formation, n=3000, m=150, seed=4)
    model = bw.BagLogisticClassifier(formation=formation, random_state=0).fit(given.X, bags=given.bags)
    far = np.abs(model.free_coef_ - COEF) / model.coef_errors_
    # Of effects, which move odds a bag at a time, coefficients are those inside of bags only about.
    assert (far < (5 if formation != "effects" else 6)).all()
    assert (model.coef_errors_ < 0.25).all()


def test_weights_are_rows_repeated_for_classes_and_values():
    rng = np.random.default_rng(0)
    X, weight, ids = rng.normal(size=(300, 2)), rng.integers(1, 4, 300), np.arange(300) % 30
    rows = np.repeat(np.arange(300), weight)
    labels = (X[rows, 0] + rng.normal(size=len(rows)) > 0.3).astype(int) + (X[rows, 1] > 0.5)
    proportion = bw.aggregate((labels[:, None] == np.arange(3)).astype(float), ids[rows])
    first = np.searchsorted(rows, np.arange(300))
    for kind in (bw.BagRidgeClassifier, bw.BagLogisticClassifier):
        model = kind(random_state=0, cv=2, alphas=3.0, formation="random")
        one = clone(model).fit(X, bags=Bags.from_rows(proportion[first], ids).with_weights(weight))
        many = clone(model).fit(X[rows], bags=Bags.from_rows(proportion, ids[rows]))
        np.testing.assert_allclose(one.coef_, many.coef_, rtol=1e-4, atol=1e-5)  # L-BFGS ends where it ends
    y = bw.aggregate(X[rows, 0] + rng.normal(size=len(rows)), ids[rows])
    one = bw.BagRidgeRegressor(random_state=0).fit(X, bags=Bags.from_rows(y[first], ids).with_weights(weight))
    many = bw.BagRidgeRegressor(random_state=0).fit(X[rows], y, bags=ids[rows])
    np.testing.assert_allclose(one.coef_, many.coef_, rtol=1e-8)


def test_weights_of_labels_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(400, 3)), rng.uniform(0.1, 3.0, 400)
    y = (rng.random(400) < expit(X[:, 0])).astype(float)
    bags = Bags.singletons(y).with_weights(weight)
    model = bw.BagLogisticClassifier(random_state=0).fit(X, bags=bags)
    assert model.formation_.name == "random"  # reports are labels: people of a row are no effect of its bag
    usual = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.free_coef_, usual.coef_[0], rtol=1e-3, atol=1e-3)
    ridge = bw.BagRidgeClassifier(alphas=1e-12, formation="random", random_state=0).fit(X, bags=bags)
    root, ones = np.sqrt(weight), np.column_stack([X, np.ones(400)])
    np.testing.assert_allclose(ridge.coef_, np.linalg.lstsq(root[:, None] * ones, root * y)[0][:3], rtol=1e-6)


def test_a_constant_offset_moves_the_intercept_alone():
    given = drawn("features")
    model = bw.BagLogisticClassifier(random_state=0, cv=3)
    plain = clone(model).fit(given.X, bags=given.bags)
    moved = clone(model).fit(given.X, bags=given.bags.with_offset(np.full(len(given.X), 2.0)))
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-5)
    np.testing.assert_allclose(moved.intercept_ + 2.0, plain.intercept_, rtol=1e-5)
    h = moved.predict_proba(given.X, offset=np.full(len(given.X), 2.0))
    np.testing.assert_allclose(h, plain.predict_proba(given.X), rtol=1e-5)


@pytest.mark.parametrize("formation", ["random", "features"])
def test_an_offset_is_what_is_known_of_log_odds(formation):
    rng = np.random.default_rng(6)
    n, m = 6000, 300
    X, offset = rng.normal(size=(n, 2)), np.log(rng.uniform(0.05, 4.0, n))
    ids = rng.permutation(n) % m if formation == "random" else np.argsort(np.argsort(X[:, 0])) * m // n
    y = rng.random(n) < expit(X @ [0.8, -0.4] - 1.0 + offset)
    bags = Bags.from_rows(bw.aggregate(y, ids), ids).with_offset(offset)
    model = bw.BagLogisticClassifier(formation=formation, random_state=0).fit(X, bags=bags)
    assert (np.abs(model.free_coef_ - [0.8, -0.4]) < 5 * model.coef_errors_).all()
    assert abs(model.intercept_ + 1.0) < 0.3
    h = model.predict_proba(X, offset=offset)[:, 1]
    assert h.mean() == pytest.approx(y.mean(), abs=1e-6)
    wrong = bw.BagLogisticClassifier(formation=formation, random_state=0).fit(X, bags=replace(bags, offset=None))
    truth = expit(X @ [0.8, -0.4] - 1.0 + offset)
    assert ((h - truth) ** 2).mean() < 0.2 * ((wrong.predict_proba(X)[:, 1] - truth) ** 2).mean()


def test_an_offset_is_asked_for_and_refused_where_it_has_no_meaning():
    given = drawn("features", n=300, m=20)
    bags, offset = given.bags.with_offset(given.X[:, 2]), given.X[:, 2]
    model = bw.BagLogisticClassifier(random_state=0, cv=2, formation="features").fit(given.X, bags=bags)
    with pytest.raises(ParameterError, match="offset is missing: the BagLogisticClassifier was fitted with one"):
        model.predict(given.X)
    with pytest.raises(ParameterError, match=r"offset must hold one number per row, shape \(300,\)"):
        model.predict(given.X, offset=offset[:2])
    assert set(model.predict(given.X, offset=offset)) == {0, 1}
    plain = bw.BagLogisticClassifier(random_state=0, cv=2, formation="features").fit(given.X, bags=given.bags)
    with pytest.raises(ParameterError, match="offset is for models that were fitted with one"):
        plain.predict_proba(given.X, offset=offset)
    with pytest.raises(ParameterError, match="offset is for models that were fitted with one: leave it out, or fit"):
        plain.partial_fit(given.X, bags=bags)
    with pytest.raises(ParameterError, match="offset is missing: the model was fitted with one, and its further bags"):
        model.partial_fit(given.X, bags=given.bags)
    with pytest.raises(ParameterError, match="offset is not known to a BagRidgeClassifier"):
        bw.BagRidgeClassifier().fit(given.X, bags=bags)
