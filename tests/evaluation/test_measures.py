"""Evaluation and diagnosis of rows that stand for several people, beside rows repeated."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binomtest

import bagwise as bw
from bagwise.bags import Bags
from bagwise.evaluation import label_linear, risk
from bagwise.prediction_powered import of_labels
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


@pytest.mark.parametrize("noise", [None, 9.0])
@pytest.mark.parametrize("formation", ["auto", "random"])
def test_values_of_people_are_measured_as_rows_repeated(formation, noise):
    rng = np.random.default_rng(0)
    n, m = 800, 40
    x, ids, weight = rng.normal(size=n), rng.permutation(n) % m, rng.integers(1, 4, n)
    rows, by = np.repeat(np.arange(n), weight), np.where(x > 0.5, "high", "low")
    value = 3 * x[rows] + 10 + rng.normal(size=len(rows))
    mean = (np.bincount(ids[rows], value) / np.bincount(ids[rows]))[ids]
    bags = Bags.from_rows(mean, ids, noise_variance=noise).with_weights(weight)
    repeated = Bags.from_rows(mean[rows], ids[rows], noise_variance=noise)
    asked = {"formation": formation, "target": "value"}
    one = bw.evaluate(9.5 + 2 * x, x[:, None], bags=bags, by=by, **asked)
    many = bw.evaluate(9.5 + 2 * x[rows], x[rows, None], bags=repeated, by=by[rows], **asked)
    assert one.formation.name == many.formation.name
    assert (one.mse is None) == (formation == "auto")  # people of a row are together: no random sets of people
    for name in ("mse", "r2", "mean_label", "mean_prediction", "bias"):
        same(getattr(one, name), getattr(many, name))
    for name in ("error", "constant_error", "least_mse"):
        same(getattr(one.bags, name), getattr(many.bags, name))
    for a, b in zip(one.groups, many.groups, strict=True):
        same(a.rate, b.rate)


def test_values_of_weighted_rows_have_the_weighted_means():
    """Of bags of one row, reports are labels: of all people of a row alike."""
    rng = np.random.default_rng(1)
    h, weight = rng.uniform(size=500), rng.uniform(0.2, 4.0, 500)
    y = 2 * h + rng.normal(size=500)
    found = bw.evaluate(2 * h, h[:, None], bags=Bags.singletons(y).with_weights(weight), target="value")
    assert found.formation.name == "random"
    mse, mean = np.average((2 * h - y) ** 2, weights=weight), np.average(y, weights=weight)
    assert found.mse.value == pytest.approx(mse, rel=1e-9)
    assert found.r2.value == pytest.approx(1 - mse / np.average((y - mean) ** 2, weights=weight), rel=1e-9)
    assert found.mse.low < mse < found.mse.high


def test_a_model_with_an_offset_is_measured_with_it():
    given = drawn("features", n=600, m=40)
    bags = given.bags.with_offset(given.X[:, 2])
    model = bw.BagLogisticClassifier(random_state=0, cv=2, formation="features").fit(given.X, bags=bags)
    found = bw.evaluate(model, given.X, bags=bags)
    h = model.predict_proba(given.X, offset=given.X[:, 2])[:, 1]
    same(found.bags.gain, bw.evaluate(h, given.X, bags=given.bags).bags.gain)
    assert found.bags.gain.value > 0


@pytest.mark.parametrize("classes", [2, 3])
def test_labels_of_rows_that_stand_for_several_people(classes):
    """Estimates are those of rows repeated; errors are larger, as all people of a row have one label."""
    rng = np.random.default_rng(2)
    n, m = 1200, 40
    x, ids, weight = rng.normal(size=n), np.arange(n) % m, rng.integers(1, 4, n)
    rows, s = np.repeat(np.arange(n), weight), np.stack([0 * x, x, -x][:classes], axis=1)
    label = np.argmax(s + rng.gumbel(size=s.shape), axis=1)
    h = np.exp(s) / np.exp(s).sum(axis=1, keepdims=True)
    counts = np.stack([np.bincount(ids, weight * (label == c)) for c in range(classes)], axis=1)
    share = (counts / counts.sum(axis=1, keepdims=True))[ids]
    share, h = (share[:, 1], h[:, 1]) if classes == 2 else (share, h)
    known = np.where(np.arange(n) < 200, label, np.nan)
    one = bw.evaluate(h, None, bags=Bags.from_rows(share, ids).with_weights(weight), labels=known, formation="random")
    repeated = Bags.from_rows(share[rows], ids[rows])
    many = bw.evaluate(h[rows], None, bags=repeated, labels=known[rows], formation="random")
    assert (one.n_labels, many.n_labels) == (200, weight[:200].sum())
    truth = np.average((h > 0.5) == label if classes == 2 else h.argmax(axis=1) == label, weights=weight)
    for name in ("brier", "accuracy", "log_loss", *(["auc"] if classes == 2 else [])):
        a, b = getattr(one, name), getattr(many, name)
        assert a.value == pytest.approx(b.value, rel=1e-8)
        assert 1.05 < a.standard_error / b.standard_error < 2.5
    assert one.accuracy.low < truth < one.accuracy.high


def test_intervals_by_labels_of_weighted_rows_cover():
    rng, runs, covered = np.random.default_rng(3), 200, 0
    n, m = 2000, 20
    for _ in range(runs):
        h, ids, weight = rng.uniform(size=n), np.arange(n) % m, rng.integers(1, 6, n)
        y = rng.random(n) < h
        share = (np.bincount(ids, weight * y) / np.bincount(ids, weight))[ids]
        known = np.full(n, np.nan)
        known[:60] = y[:60]  # rows are in no order
        given = Bags.from_rows(share, ids).with_weights(weight)
        found = of_labels(h, given, known, threshold=0.5, level=0.95)["brier"]
        covered += found.low <= np.average((y - h) ** 2, weights=weight) <= found.high
    assert binomtest(covered, runs, 0.93, alternative="less").pvalue > 1e-4


def test_what_cannot_count_people_says_so():
    given = drawn("random", n=300, m=20)
    h = np.full(300, 0.4)
    with pytest.raises(ParameterError, match="sample_weight is not known to risk"):
        risk(h, given.bags)
    with pytest.raises(ParameterError, match="sample_weight is not known to tests of hypotheses"):
        bw.two_function_test(h, 1 - h, given.bags)
