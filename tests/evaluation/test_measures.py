"""Evaluation and diagnosis of rows that stand for several people, beside rows repeated."""

import numpy as np
import pytest
from scipy.special import expit

import bagwise as bw
from bagwise.bags import Bags
from bagwise.evaluation import label_linear, risk
from bagwise.utils.parameters import ParameterError
from tests.weighted import COEF, FORMATIONS, INTERCEPT, drawn

pytestmark = pytest.mark.filterwarnings("ignore::bagwise.evaluation.BagsNotRandomWarning")
NUMBERS = ("accuracy", "brier", "log_loss", "auc")


def same(one, many, rtol=1e-7):
    assert (one is None) == (many is None)
    if one is not None:
        for name in ("value", "standard_error", "low", "high"):
            np.testing.assert_allclose(getattr(one, name), getattr(many, name), rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("formation", FORMATIONS)
def test_numbers_are_those_of_rows_repeated(formation):
    given = drawn(formation)
    h = expit(INTERCEPT + given.X @ COEF)
    known = False
    for asked in ("auto", "random", "rates"):
        groups = (given.X[:, 1] > 0).astype(str)
        one = bw.evaluate(h, given.X, bags=given.bags, formation=asked, by=groups)
        many = bw.evaluate(
            h[given.rows], given.X[given.rows], bags=given.repeated, formation=asked, by=groups[given.rows]
        )
        assert one.formation.name == many.formation.name
        for name in NUMBERS:
            same(getattr(one, name), getattr(many, name))
        for name in ("gain", "error", "constant_error", "least_accuracy", "most_accuracy"):
            same(getattr(one.bags, name), getattr(many.bags, name))
        assert one.bags.implied == pytest.approx(many.bags.implied, rel=1e-9)
        assert one.bags.fit.p_value == pytest.approx(many.bags.fit.p_value, rel=1e-6)
        assert (one.calibration is None) == (many.calibration is None)
        if one.calibration is not None:
            known = True
            np.testing.assert_allclose(one.calibration.y, many.calibration.y, rtol=1e-7)
            np.testing.assert_allclose(one.roc.y_low, many.roc.y_low, rtol=1e-6, atol=1e-9)
        for a, b in zip(one.groups, many.groups, strict=True):
            same(a.rate, b.rate)
    assert known or formation in ("features", "effects")


@pytest.mark.parametrize("formation", FORMATIONS)
def test_a_diagnosis_is_that_of_rows_repeated(formation):
    given = drawn(formation)
    one = bw.diagnose(given.X, bags=given.bags)
    many = bw.diagnose(given.X[given.rows], bags=given.repeated)
    assert (one.verdict, one.strata, one.random_apart) == (many.verdict, many.strata, many.random_apart)
    for a, b in zip(
        (one.proportions, *one.features, *one.drift), (many.proportions, *many.features, *many.drift), strict=True
    ):
        np.testing.assert_allclose([a.ratio, a.p_value], [b.ratio, b.p_value], rtol=1e-6)
    assert (one.n_rows, one.n_people) == (1500, given.weight.sum())
    assert f"stand for {given.weight.sum():,} people" in str(one)


def test_labels_of_weighted_rows_have_the_weighted_means():
    rng = np.random.default_rng(0)
    h, weight = rng.uniform(size=500), rng.uniform(0.2, 4.0, 500)
    y = (rng.random(500) < h).astype(float)
    bags = Bags.singletons(y).with_weights(weight)
    found = bw.evaluate(h, h[:, None], bags=bags)
    assert found.formation.name == "random"
    assert found.brier.value == pytest.approx(np.average((h - y) ** 2, weights=weight), rel=1e-9)
    assert found.accuracy.value == pytest.approx(np.average((h > 0.5) == y, weights=weight), rel=1e-9)
    g = np.sin(h)
    assert label_linear(h, g, bags).value == pytest.approx(np.average(y * g, weights=weight), rel=1e-9)


def test_a_model_with_an_offset_is_measured_with_it():
    given = drawn("features", n=600, m=40)
    bags = given.bags.with_offset(given.X[:, 2])
    model = bw.BagLogisticClassifier(random_state=0, cv=2, formation="features").fit(given.X, bags=bags)
    found = bw.evaluate(model, given.X, bags=bags)
    h = model.predict_proba(given.X, offset=given.X[:, 2])[:, 1]
    same(found.bags.gain, bw.evaluate(h, given.X, bags=given.bags).bags.gain)
    assert found.bags.gain.value > 0


def test_what_cannot_count_people_says_so():
    given = drawn("random", n=300, m=20)
    h = np.full(300, 0.4)
    with pytest.raises(ParameterError, match="sample_weight is not known to risk"):
        risk(h, given.bags)
    with pytest.raises(ParameterError, match="labels of rows do not go with weights"):
        bw.evaluate(h, given.X, bags=given.bags, labels=np.where(np.arange(300) < 50, 1.0, np.nan))
    with pytest.raises(ParameterError, match="sample_weight is for labels 0 and 1"):
        bw.evaluate(h, given.X, bags=given.bags, target="value")
    with pytest.raises(ParameterError, match="sample_weight is not known to tests of hypotheses"):
        bw.two_function_test(h, 1 - h, given.bags)
