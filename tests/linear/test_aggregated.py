"""Classifiers from tables of counts, beside those that see the rows."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss

import bagwise as bw
from bagwise.data import Aggregates
from bagwise.data.aggregates import CountTable
from bagwise.gains import NoBetterThanConstantWarning, clear
from bagwise.linear import NoiseDiffersWarning
from bagwise.linear.aggregated_risk import ridge, risks
from bagwise.linear.gaussian_scores import choose_given, minimise
from bagwise.linear.gaussian_scores import log_loss as tables_log_loss
from bagwise.linear.one_hot import OneHotMoments

CLASSIFIERS = (bw.AggregatedLogisticClassifier, bw.AggregatedRidgeClassifier)
classifiers = pytest.mark.parametrize("classifier", CLASSIFIERS)


def rows_of(rng, n, features=6, effect=0.4):
    """Rows whose features of five values depend on each other, and labels that depend on all of them."""
    z = rng.normal(size=n)
    X = {f"f{j}": np.digitize(0.7 * z + rng.normal(size=n), [-1, -0.3, 0.3, 1]) for j in range(features)}
    scores = effect * sum((values - 2) * (1 if j % 2 else -0.5) for j, values in enumerate(X.values())) - 1
    return X, (rng.random(n) < expit(scores)).astype(int)


def design(data, X):
    """(n, cells) one-hot rows."""
    cells = np.stack([one.cells(X[one.name]) + data.first[i] for i, one in enumerate(data.features)], axis=1)
    return (cells[:, :, None] == np.arange(data.width)).any(axis=1).astype(float)


def add_noise(exact, scale, rng, threshold=None):
    return exact.noised(lambda cells: cells + rng.normal(scale=scale, size=cells.shape), scale**2, threshold=threshold)


def noised_by(exact, scale_of, rng):
    """Tables whose noise has a standard deviation by table: a number, or one for each cell."""
    found = []
    for table in exact.tables:
        scale = np.broadcast_to(scale_of(table), table.count.shape)
        count, total = (np.nan_to_num(one) + scale * rng.normal(size=scale.shape) for one in (table.count, table.sum))
        found.append(CountTable(table.features, count, total, scale**2))
    return Aggregates(exact.features, tuple(found), None)


def alike(data):
    """The same tables where noise is declared once, as the mean of all variances."""
    variance = float(np.mean([one.noise_variance.mean() for one in data.tables]))
    return Aggregates(data.features, tuple(replace(one, noise_variance=None) for one in data.tables), variance)


def fitted(classifier, data, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoBetterThanConstantWarning)
        return classifier(random_state=0, **settings).fit(data)


# -- exact tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [1, 2])
def test_of_one_or_two_features_it_is_logistic_regression_on_the_rows(features):
    X, y = rows_of(np.random.default_rng(0), 5000, features, effect=1.0)
    data = Aggregates.of(X, y)
    model = fitted(bw.AggregatedLogisticClassifier, data, alpha=20.0)
    rows, p = design(data, X), y.mean()
    wanted = LogisticRegression(C=1 / (20 * p * (1 - p)), tol=1e-10, max_iter=1000).fit(rows, y)
    np.testing.assert_allclose(model.predict_proba(pd.DataFrame(X))[:, 1], wanted.predict_proba(rows)[:, 1], atol=2e-5)


def test_ridge_of_exact_tables_is_ridge_on_the_rows():
    X, y = rows_of(np.random.default_rng(0), 3000)
    data = Aggregates.of(X, y)
    wanted = Ridge(alpha=30.0).fit(design(data, X), y)
    np.testing.assert_allclose(ridge(OneHotMoments.of(data), np.array([30.0])).coef[:, 0], wanted.coef_, atol=1e-8)


def test_of_many_features_it_is_close_to_logistic_regression_on_the_rows(seed):
    rng = np.random.default_rng(seed)
    X, y = rows_of(rng, 20_000, features=10, effect=0.6)
    X_test, y_test = rows_of(rng, 20_000, features=10, effect=0.6)
    data = Aggregates.of(X, y)
    wanted = LogisticRegression(C=0.1, max_iter=1000).fit(design(data, X), y)
    wanted = log_loss(y_test, wanted.predict_proba(design(data, X_test))[:, 1])
    found = {one: log_loss(y_test, fitted(one, data).predict_proba(pd.DataFrame(X_test))[:, 1]) for one in CLASSIFIERS}
    constant = log_loss(y_test, np.full(len(y_test), y.mean()))
    assert found[bw.AggregatedLogisticClassifier] - wanted < 0.02 * (constant - wanted)
    assert found[bw.AggregatedRidgeClassifier] - wanted < 0.06 * (constant - wanted)


@pytest.mark.parametrize(("features", "scale"), [(1, 0.0), (2, 0.0), (5, 0.0), (5, 20.0)])
def test_the_gradient_of_the_log_loss_is_its_derivative(features, scale):
    rng = np.random.default_rng(0)
    data = Aggregates.of(*rows_of(rng, 2000, features))
    data = add_noise(data, scale, rng) if scale else data
    moments = OneHotMoments.of(data)
    w, b = rng.normal(scale=0.5, size=data.width), -0.7
    given = choose_given(moments, data, w)
    _, by_w, by_b = tables_log_loss(w, b, moments, given)
    step = 1e-5

    def value(at, start):
        return tables_log_loss(at, start, moments, given)[0]

    for place in range(data.width):
        unit = step * np.eye(data.width)[place]
        assert by_w[place] == pytest.approx((value(w + unit, b) - value(w - unit, b)) / (2 * step), abs=1e-7)
    assert by_b == pytest.approx((value(w, b + step) - value(w, b - step)) / (2 * step), abs=1e-7)


def test_the_log_loss_is_convex_so_that_every_start_ends_in_the_same_place():
    rng = np.random.default_rng(0)
    data = Aggregates.of(*rows_of(rng, 2000))
    moments = OneHotMoments.of(data)
    given = choose_given(moments, data, ridge(moments, np.array([10.0])).coef[:, 0])
    ends = [minimise(moments, given, 5.0, rng.normal(size=data.width), 2.0)[0] for _ in range(3)]
    np.testing.assert_allclose(ends[1], ends[0], atol=1e-2)
    np.testing.assert_allclose(ends[2], ends[0], atol=1e-2)


# -- noise --------------------------------------------------------------------------------------------------------


@classifiers
def test_the_penalty_is_chosen_so_that_noise_does_little_harm(classifier, seed):
    rng = np.random.default_rng(seed)
    X, y = rows_of(rng, 20_000)
    X_test, y_test = rows_of(rng, 20_000)
    exact = Aggregates.of(X, y)
    constant, losses = log_loss(y_test, np.full(len(y_test), y.mean())), []
    for scale in (0, 30, 100):
        data = add_noise(exact, scale, rng) if scale else exact
        losses.append(log_loss(y_test, fitted(classifier, data).predict_proba(pd.DataFrame(X_test))[:, 1]))
    best = constant - losses[0]
    assert constant - losses[1] > 0.95 * best
    assert constant - losses[2] > 0.7 * best
    frame, best = pd.DataFrame(X_test), []
    for alpha in (10.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0):
        best.append(log_loss(y_test, fitted(classifier, data, alpha=alpha).predict_proba(frame)[:, 1]))
    assert constant - losses[2] > 0.9 * (constant - min(best))
    assert max(best) - losses[2] > 0.2 * (constant - min(best))  # a penalty at random would not do


@classifiers
def test_noise_of_each_line_that_is_the_same_is_noise_declared_once(classifier):
    rng = np.random.default_rng(0)
    noised = noised_by(Aggregates.of(*rows_of(rng, 5000)), lambda _: 30.0, rng)
    one, other = (fitted(classifier, data) for data in (noised, alike(noised)))
    assert other.noise_variance_ == one.noise_variance_ == 900
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert (one.alpha_, one.r2_, one.r2_error_, one.noise_ratio_) == (
        other.alpha_, other.r2_, other.r2_error_, other.noise_ratio_)  # fmt: skip


# Standard deviations of noise by table; what is kept of how much better than the mean label exact tables are.
UNEQUAL = {
    "a pair of features": (lambda table: 1000.0 if table.features == (0, 1) else 30.0, 0.85),
    "all about a feature": (lambda table: 300.0 if 1 in table.features else 10.0, 0.65),
    "features by themselves": (lambda table: 300.0 if len(table.features) == 1 else 10.0, 0.95),
    "pairs": (lambda table: 0.0 if len(table.features) == 1 else 100.0, 0.9),
    "every other line": (lambda table: 80.0 * (np.arange(table.count.size) % 2).reshape(table.count.shape), 0.9),
}


@pytest.mark.parametrize("noisy", UNEQUAL)
def test_lines_that_are_noisier_than_others_do_little_harm(noisy, seed):
    rng, (scale_of, kept) = np.random.default_rng(seed), UNEQUAL[noisy]
    X, y = rows_of(rng, 20_000)
    X_test, y_test = rows_of(rng, 20_000)
    exact, frame = Aggregates.of(X, y), pd.DataFrame(X_test)
    data, constant = noised_by(exact, scale_of, rng), log_loss(y_test, np.full(len(y_test), y.mean()))

    def gain(tables, **settings):
        model = fitted(bw.AggregatedLogisticClassifier, tables, **settings)
        return constant - log_loss(y_test, model.predict_proba(frame)[:, 1])

    found = gain(data)
    assert found > kept * gain(exact)
    assert found > 0.85 * max(gain(data, alpha=alpha) for alpha in (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0))
    if noisy == "a pair of features":  # the penalty alone would not do
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoiseDiffersWarning)
            same = [gain(alike(data), alpha=alpha) for alpha in (30.0, 300.0, 1000.0, 3000.0)]
        assert found > 1.1 * max(same)


def test_noise_of_lines_is_told_by_repeats_in_proportion(seed):
    rng = np.random.default_rng(seed)
    noised = noised_by(Aggregates.of(*rows_of(rng, 5000)), lambda table: 10.0 + 5 * len(table.features), rng)
    assert abs(fitted(bw.AggregatedRidgeClassifier, noised).noise_ratio_ - 1) < 5 * np.sqrt(2 / 360)
    halved = tuple(replace(one, noise_variance=one.noise_variance / 2) for one in noised.tables)
    with pytest.warns(
        NoiseDiffersWarning, match=r"noise of [\d.]+ times the variance that is declared: all variances are"
    ):
        told = bw.AggregatedRidgeClassifier(random_state=0).fit(Aggregates(noised.features, halved, None))
    assert abs(told.noise_ratio_ / 2 - 1) < 5 * np.sqrt(2 / 360)
    assert told.noise_variance_ == pytest.approx(told.noise_ratio_ * 200)


def test_noise_of_lines_is_a_number_for_each():
    data = Aggregates.of(*rows_of(np.random.default_rng(0), 500, 2))
    own = replace(data.tables[0], noise_variance=np.ones(6))
    with pytest.raises(ValueError, match="the noise of the table by 'f0' must be finite and at least 0"):
        replace(data, tables=(replace(data.tables[0], noise_variance=np.full(6, -1.0)), *data.tables[1:]))
    with pytest.raises(ValueError, match="noise_variance must be told for the table by 'f1', too"):
        Aggregates(data.features, (own, *data.tables[1:]), None)


@pytest.mark.parametrize(
    "scale_of",
    [
        lambda _: 30.0,
        lambda table: 60.0 if table.features == (0, 1) else 10.0 * len(table.features),
    ],
    ids=["alike", "by tables"],
)
def test_what_tables_say_of_ridge_is_what_it_does_on_new_rows(scale_of, seed):
    rng = np.random.default_rng(seed)
    X_test, y_test = rows_of(rng, 40_000)
    told, error, true, alpha = [], [], [], np.array([200.0])
    for _ in range(24):
        exact = Aggregates.of(*rows_of(rng, 5000))
        noised = noised_by(exact, scale_of, rng)
        found = risks(noised, OneHotMoments.of(noised), alpha, rng)
        told.append(found.r2[0])
        error.append(found.error[0])
        moments = OneHotMoments.of(noised_by(exact, lambda table: scale_of(table) * np.sqrt(1.25), rng))  # as is told
        w = ridge(moments, alpha).coef[:, 0]
        h = moments.prior + (design(exact, X_test) - moments.mean) @ w
        true.append(1 - np.mean((y_test - h) ** 2) / y_test.var())
    difference = np.array(told) - np.array(true)
    assert abs(difference.mean()) < 5 * difference.std() / np.sqrt(24)
    # The interval tells of an average model; each has noise of its own in `true`, which is small beside.
    covered = int((np.abs(difference) < 2 * np.array(error)).sum())
    assert binomtest(covered, 24, 0.9, alternative="less").pvalue > 1e-6


@pytest.mark.parametrize("scale", [0, 20])
def test_labels_that_have_nothing_to_do_with_features_are_said_to(scale, seed):
    rng = np.random.default_rng(seed)
    clears = 0
    for _ in range(20):
        X, _ = rows_of(rng, 2000)
        data = Aggregates.of(X, (rng.random(2000) < 0.3).astype(int))
        data = add_noise(data, scale, rng) if scale else data
        model = fitted(bw.AggregatedRidgeClassifier, data)
        clears += clear(model.r2_, model.r2_error_)
    assert binomtest(clears, 20, 0.05, alternative="greater").pvalue > 1e-6
    with pytest.warns(NoBetterThanConstantWarning, match="better than the mean label of all rows"):
        bw.AggregatedLogisticClassifier(random_state=0).fit(Aggregates.of({"a": [0, 0, 1, 1] * 50}, [0, 1, 0, 1] * 50))


def test_noise_that_nobody_declares_is_told_by_repeats(seed):
    rng = np.random.default_rng(seed)
    noised = add_noise(Aggregates.of(*rows_of(rng, 5000)), 12.0, rng)
    untold = Aggregates(noised.features, noised.tables, None)
    found, freedom = fitted(bw.AggregatedRidgeClassifier, untold), 2 * 6 * 6 * 5
    assert abs(found.noise_variance_ / 144 - 1) < 5 * np.sqrt(2 / freedom)
    wrong = Aggregates(noised.features, noised.tables, 9.0)
    with pytest.warns(NoiseDiffersWarning, match="not 9 as declared: the former is used"):
        told = bw.AggregatedRidgeClassifier(random_state=0).fit(wrong)
    np.testing.assert_array_equal(told.coef_, found.coef_)
    assert told.noise_ratio_ == pytest.approx(found.noise_variance_ / 9)
    exact = Aggregates.of(*rows_of(rng, 5000))
    assert fitted(bw.AggregatedRidgeClassifier, Aggregates(exact.features, exact.tables, None)).noise_variance_ == 0


@pytest.mark.parametrize("scale", [0, 10])
def test_hidden_cells_cost_little_and_their_quality_is_not_told(scale, seed):
    rng = np.random.default_rng(seed)
    X, y = rows_of(rng, 20_000)
    X_test, y_test = rows_of(rng, 20_000)
    exact = Aggregates.of(X, y)
    hidden = add_noise(exact, scale, rng, threshold=600) if scale else exact.noised(lambda c: c, 0.0, threshold=600)
    assert hidden.lines < 0.9 * exact.lines
    model = fitted(bw.AggregatedLogisticClassifier, hidden)
    losses = [
        log_loss(y_test, one.predict_proba(pd.DataFrame(X_test))[:, 1])
        for one in (fitted(bw.AggregatedLogisticClassifier, exact), model)
    ]
    constant = log_loss(y_test, np.full(len(y_test), y.mean()))
    assert constant - losses[1] > 0.85 * (constant - losses[0])  # of cells of up to 3% of all rows
    assert np.isnan([model.r2_, model.r2_error_, model.noise_ratio_]).all()


# -- scores -------------------------------------------------------------------------------------------------------


@classifiers
def test_probabilities_are_inside_and_their_mean_is_that_of_labels(classifier, seed):
    X, y = rows_of(np.random.default_rng(seed), 20_000, features=8, effect=1.0)
    h = fitted(classifier, Aggregates.of(X, y)).predict_proba(pd.DataFrame(X))
    assert h.min() > 0
    assert h.max() < 1
    np.testing.assert_allclose(h.sum(axis=1), 1)
    assert abs(h[:, 1].mean() - y.mean()) < 0.01


@classifiers
def test_values_that_were_never_seen_count_as_the_mean_of_their_feature(classifier):
    X, y = rows_of(np.random.default_rng(0), 5000, features=2, effect=1.0)
    model = fitted(classifier, Aggregates.of(X, y))
    weights = model.weights()["f0"]
    assert weights[""] == pytest.approx(0)
    share = np.bincount(X["f0"]) / 5000
    assert share @ [weights[str(one)] for one in range(5)] == pytest.approx(0, abs=1e-9)
    known, unknown = (model.predict_proba(pd.DataFrame({"f0": [one], "f1": [2]}))[0, 1] for one in (0, 99))
    odds = np.log(known / (1 - known)) - np.log(unknown / (1 - unknown))
    assert odds == pytest.approx(weights["0"])
    codes = model.predict_proba(np.array([[0.0, 2.0], [np.nan, 2.0]]))[:, 1]
    np.testing.assert_allclose(codes, [known, unknown])


def test_pairs_without_a_table_are_an_error_or_independent():
    X, y = rows_of(np.random.default_rng(0), 5000, features=3)
    data = Aggregates.of(X, y)
    alone = Aggregates(data.features, data.tables[:3])
    with pytest.raises(ValueError, match="3 pairs of features without a table, as 'f0' and 'f1'"):
        fitted(bw.AggregatedLogisticClassifier, alone)
    model = fitted(bw.AggregatedLogisticClassifier, alone, missing_pairs="independent")
    assert model.independent_pairs_ == 3
    assert np.isnan(model.r2_)
    assert not OneHotMoments.of(alone).covariance[data.block(0), data.block(1)].any()


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (np.ones((3, 2)), None, "X must be tables of counts"),
        (Aggregates.of({"a": [1, 2]}, [0, 1]), [0, 1], "y must be left out"),
        (Aggregates.of({"a": [1, 2]}, [0, 0]), None, "a classifier needs two classes"),
    ],
)
def test_wrong_input_is_said(X, y, said):
    with pytest.raises(ValueError, match=said):
        bw.AggregatedLogisticClassifier().fit(X, y)


def test_wrong_rows_and_parameters_are_said():
    model = fitted(bw.AggregatedLogisticClassifier, Aggregates.of(*rows_of(np.random.default_rng(0), 500)))
    with pytest.raises(ValueError, match="column 'f0' is missing"):
        model.predict(pd.DataFrame({"f1": [1]}))
    with pytest.raises(ValueError, match="it must have 6 columns"):
        model.predict(np.ones((3, 2)))
    with pytest.raises(ValueError, match="alpha must be a finite number above 0"):
        bw.AggregatedLogisticClassifier(alpha=0).fit(Aggregates.of({"a": [1, 2]}, [0, 1]))


@classifiers
def test_a_saved_model_says_the_same(classifier, tmp_path):
    X, y = rows_of(np.random.default_rng(0), 2000)
    model = fitted(classifier, Aggregates.of(X, y, edges={"f0": [1.5]}))
    bw.save(model, tmp_path / "model")
    again = bw.load(tmp_path / "model")
    frame = pd.DataFrame(X)
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert again.features_ == model.features_
