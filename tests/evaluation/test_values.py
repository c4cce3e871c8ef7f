"""Real labels: their error, R², means and calibration from bags alone."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_squared_error, r2_score

import bagwise as bw
from bagwise.bag_fit import value_fit
from bagwise.displays import BagCalibrationDisplay, BagRocDisplay
from bagwise.evaluation import BagsNotRandomWarning, Evaluation, ValueEvaluation, evaluate
from bagwise.evaluation.values import formation_of_values, measure_values
from bagwise.utils.records import as_data, from_data


def normal(rng, n):
    x = rng.normal(size=n)
    return x, 10 + 3 * x + 2 * rng.normal(size=n)


def purchases(rng, n):
    """Most rows 0, a few large."""
    x = rng.normal(size=n)
    buys = rng.random(n) < 1 / (1 + np.exp(2.5 - x))
    return x, buys * rng.lognormal(3 + 0.5 * x, 0.8)


WORLDS = {"normal": (normal, lambda x: 9.5 + 2.5 * x), "purchases": (purchases, lambda x: 2.5 * np.exp(x))}


def truths(name):
    """Mean square error, R² and bias of the model, by many rows."""
    world, model = WORLDS[name]
    x, y = world(np.random.default_rng(0), 400_000)
    mse, h = np.mean((y - model(x)) ** 2), model(x)
    return {"mse": mse, "r2": 1 - mse / y.var(), "bias": (h - y).mean(), "mean_label": y.mean()}


def tolerance(name, errors, one):
    """Five standard errors of a mean of estimates, and of the truth, which is a mean over rows."""
    world, model = WORLDS[name]
    x, y = world(np.random.default_rng(0), 400_000)
    each = {"mse": (y - model(x)) ** 2, "bias": model(x) - y, "mean_label": y}[one]
    return 5 * np.sqrt(errors[one].var() / len(errors[one]) + each.var() / len(each))


def simulated(rng, name, sizes, noise=0.0):
    """Predictions and random bags of these sizes."""
    world, model = WORLDS[name]
    x, y = world(rng, int(np.sum(sizes)))
    ids = np.repeat(np.arange(len(sizes)), sizes)
    bags = bw.Bags.from_rows(np.zeros(len(x)), ids, noise_variance=noise or None)
    noised = bags.sum(y) + np.sqrt(noise) * rng.normal(size=len(bags))
    return model(x), replace(bags, proportion=noised / bags.size), y


def repeated(name, sizes, noise, trials, seed=0):
    """Errors of the estimates, and how often intervals hold the truth, by name."""
    rng, truth = np.random.default_rng(seed), truths(name)
    values, covered = {one: [] for one in truth}, dict.fromkeys(truth, 0)
    for _ in range(trials):
        found = measure_values(*simulated(rng, name, sizes, noise)[:2], formation="random")
        for one, true in truth.items():
            estimate = getattr(found, one)
            values[one].append(estimate.value - true)
            covered[one] += estimate.low <= true <= estimate.high
    return {one: np.array(errors) for one, errors in values.items()}, covered


# -- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORLDS)
def test_bags_of_one_row_give_the_ordinary_numbers(name):
    h, _, y = simulated(np.random.default_rng(1), name, np.ones(400, dtype=int))
    found = evaluate(h, None, y, target="value")
    assert found.formation.name == "random"
    assert found.mse.value == pytest.approx(mean_squared_error(y, h), rel=1e-9)
    assert found.r2.value == pytest.approx(r2_score(y, h), rel=1e-9)
    assert found.mean_label.value == pytest.approx(y.mean())
    assert found.bias.value == pytest.approx((h - y).mean())
    part = pd.qcut(h, 10, labels=False)
    assert found.calibration.x == pytest.approx([h[part == b].mean() for b in range(10)])
    assert found.calibration.y == pytest.approx([y[part == b].mean() for b in range(10)])


@pytest.mark.parametrize(("name", "noise"), [("normal", 0.0), ("purchases", 0.0), ("normal", 30.0)])
def test_estimates_are_unbiased_and_intervals_hold(name, noise):
    errors, covered = repeated(name, np.r_[np.full(30, 8), np.full(30, 24)], noise, trials=80)
    for one in ("mse", "bias", "mean_label"):  # which have no bias at all
        assert abs(errors[one].mean()) < tolerance(name, errors, one), one
    assert abs(errors["r2"].mean()) < errors["r2"].std()  # a ratio, whose bias is of the order of its variance
    for one, times in covered.items():
        assert binomtest(times, 80, 0.93, alternative="less").pvalue > 1e-6, one


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(("sizes", "noise"), [((16, 60), 0.0), ((64, 200), 0.0), ((64, 100), 100.0), ((200, 100), 0.0)])
def test_intervals_hold_the_truth_in_all_settings(name, sizes, noise):
    size, bags = sizes
    rng = np.random.default_rng(2)
    unequal = np.clip(rng.poisson(size, bags) + rng.integers(-size // 2, size // 2, bags), 2, None)
    errors, covered = repeated(name, unequal, noise, trials=600, seed=3)
    for one in ("mse", "bias", "mean_label"):
        assert abs(errors[one].mean()) < tolerance(name, errors, one), one
    for one, times in covered.items():
        assert binomtest(times, 600, 0.92, alternative="less").pvalue > 1e-3, one


@pytest.mark.slow
def test_calibration_by_bags_holds_the_mean_label_of_every_decile():
    rng, held, trials = np.random.default_rng(4), np.zeros(10), 300
    world, model = WORLDS["purchases"]
    x, y = world(rng, 1_000_000)
    order = np.argsort(model(x))
    true = y[order].reshape(10, -1).mean(axis=1)
    for _ in range(trials):
        curve = measure_values(*simulated(rng, "purchases", np.full(100, 64))[:2], formation="random").calibration
        held += (curve.y_low <= true) & (true <= curve.y_high)
    for times in held:
        assert binomtest(int(times), trials, 0.9, alternative="less").pvalue > 1e-4


def test_noise_is_subtracted():
    rng = np.random.default_rng(5)
    h, bags, _ = simulated(rng, "normal", np.full(400, 16), noise=300.0)
    declared = measure_values(h, bags, formation="random")
    silent = measure_values(h, replace(bags, noise_variance=None), formation="random")
    true = truths("normal")
    assert declared.mse.low < true["mse"] < declared.mse.high
    assert silent.mse.value == pytest.approx(declared.mse.value + 300 / 16, rel=0.05)
    assert silent.r2.high < true["r2"]


# -- what is not known --------------------------------------------------------------------------------------------


def test_grouped_bags_get_no_number_of_single_rows_but_a_bound():
    rng = np.random.default_rng(6)
    x, y = normal(rng, 6400)
    ids = np.argsort(np.argsort(x)) // 64
    h = 10 + 3 * x + 4 * (rng.random(6400) < 0.5)
    with pytest.warns(BagsNotRandomWarning, match="cannot be told from these bags: bags differ in feature 0"):
        found = evaluate(h, x[:, None], bw.aggregate(y, ids), bags=ids, target="value")
    assert found.formation.name == "features"
    assert found.mse is found.r2 is found.calibration is None
    assert 0 < found.bags.least_mse.low < np.mean((y - h) ** 2)
    assert "is at least" in found.known
    assert found.bias.low < (h - y).mean() < found.bias.high
    assert found.bias.low > 0
    assert "clearly too high" in str(found)
    shown = BagCalibrationDisplay(found).plot()
    assert shown.ax_.get_ylabel() == "mean label of bags"


def test_the_bound_is_the_error_where_rows_of_a_bag_are_alike():
    bags = bw.Bags.from_rows(np.repeat([1.0, 5.0, 9.0, 2.0], 3), np.repeat(np.arange(4), 3))
    h = np.repeat([2.0, 5.0, 8.0, 4.0], 3)
    assert value_fit(h, bags).error.value == pytest.approx(1.5)
    noised = replace(bags, noise_variance=np.full(4, 9.0))
    assert value_fit(h, noised).least_mse.value == pytest.approx(0.5)


def test_effects_of_bags_show_in_the_larger_ones():
    rng = np.random.default_rng(7)
    h, bags, _ = simulated(rng, "normal", np.r_[np.full(75, 10), np.full(75, 100)])
    assert formation_of_values("auto", h, None, bags).name == "random"
    moved = replace(bags, proportion=bags.proportion + 1.5 * rng.normal(size=150))
    told = formation_of_values("auto", h, None, moved)
    assert (told.name, told.reason) == ("effects", "large bags are farther from the model than random ones would be")
    assert measure_values(h, moved).withheld


def test_random_bags_are_not_taken_for_others():
    rng, wrong = np.random.default_rng(8), 0
    for _ in range(60):
        h, bags, _ = simulated(rng, "purchases", np.clip(rng.poisson(30, 60), 1, None))
        wrong += formation_of_values("auto", h, h[:, None], bags).name != "random"
    assert binomtest(wrong, 60, 0.005, alternative="greater").pvalue > 1e-6


def test_values_between_0_and_1_are_not_taken_for_counts():
    rng = np.random.default_rng(9)
    x = rng.normal(size=3200)
    y = 0.5 + 0.02 * x + 0.01 * rng.normal(size=3200)  # of far less variance than labels with such means
    ids = bw.random_bags(3200, size=32, random_state=0)
    model = bw.BagRidgeRegressor(random_state=0).fit(x[:, None], bw.aggregate(y, ids), bags=ids)
    assert model.formation_.name == "random"
    found = evaluate(0.5 + 0.02 * x, x[:, None], bw.aggregate(y, ids), bags=ids, target="value")
    assert found.formation.name == "random"
    assert found.r2.low < 0.8 < found.r2.high


def test_what_cannot_be_is_withheld():
    rng = np.random.default_rng(10)
    h, bags, _ = simulated(rng, "normal", np.full(60, 16))
    much = replace(bags, noise_variance=np.full(60, 150.0))  # more than there is, less than all that varies
    found = measure_values(h, much, formation="random")
    assert found.impossible == ("mse",)
    assert found.withheld
    assert "the mean square error would lie beyond what is possible" in found.doubt
    more = replace(bags, noise_variance=np.full(60, 1e6))
    found = measure_values(h, more, formation="random")
    assert found.impossible == ("r2",)
    assert "the R² would lie beyond what is possible" in found.doubt


def test_labels_that_are_all_the_same_have_an_error_and_no_r2():
    ids = np.arange(600) // 20
    found = evaluate(np.full(600, 7.5), None, np.full(600, 7.0), bags=ids, target="value", formation="random")
    assert found.mse.value == pytest.approx(0.25)
    assert found.r2 is None
    assert "not told: all bags report one mean" in str(found)


@pytest.mark.parametrize("formation", ["rates", "features", "effects"])
def test_other_formations_are_taken_as_they_are_told(formation):
    h, bags, _ = simulated(np.random.default_rng(11), "normal", np.full(60, 16))
    with pytest.warns(BagsNotRandomWarning, match="as asked for"):
        found = evaluate(h, None, bags=bags, formation=formation, target="value")
    assert found.withheld
    assert found.known.startswith("Known of bags only: mean predictions explain")


# -- how it is asked ----------------------------------------------------------------------------------------------


def test_regressors_are_measured_as_they_are():
    rng = np.random.default_rng(12)
    X = rng.normal(size=(6400, 2))
    y = 100 * X[:, 0] + 50 * rng.normal(size=6400)
    ids = bw.random_bags(6400, size=16, random_state=0)
    train, test = ids < 200, ids >= 200
    ours = bw.BagRidgeRegressor(random_state=0).fit(X[train], bw.aggregate(y, ids)[train], bags=ids[train])
    theirs = LinearRegression().fit(X[train], y[train])
    for model in (ours, theirs):
        found = evaluate(model, X[test], bw.aggregate(y, ids)[test], bags=ids[test])
        assert isinstance(found, ValueEvaluation)
        true = r2_score(y[test], model.predict(X[test]))
        assert found.r2.low < true < found.r2.high
        assert found.doubt is None
    with pytest.warns(BagsNotRandomWarning, match="fitted to these very bags"):
        assert evaluate(ours, X[train], bw.aggregate(y, ids)[train], bags=ids[train]).own_bags
    positive = bw.aggregate(y > 0, ids)
    classifier = bw.BagRidgeClassifier(random_state=0).fit(X[train], positive[train], bags=ids[train])
    assert isinstance(evaluate(classifier, X[test], positive[test], bags=ids[test]), Evaluation)


def test_the_record_is_plain_data_and_has_words():
    h, bags, _ = simulated(np.random.default_rng(13), "purchases", np.full(200, 32))
    found = measure_values(h, bags)
    assert as_data(from_data(ValueEvaluation, as_data(found))) == as_data(found)
    told = str(found)
    assert "mean square error" in told
    assert told.count("predicted") == 10
    assert "<pre>" in found._repr_html_()
    assert BagCalibrationDisplay(found).plot().ax_.get_ylabel() == "mean label of rows"
    assert found.plot().ax_.get_xlabel() == "mean prediction of rows"
    with pytest.raises(ValueError, match="values have no ROC curve"):
        BagRocDisplay(found).plot()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"target": "sum"}, ValueError, "target must be one of 'auto', 'label', 'value', got 'sum'"),
        ({"labels": np.zeros(60)}, ValueError, "labels is for labels 0 and 1 or classes, not for values: leave it out"),
        ({"strata": np.zeros(60)}, ValueError, "strata is for labels 0 and 1"),
        ({"threshold": 0.3}, ValueError, "threshold is for labels 0 and 1"),
        ({"model": np.zeros((60, 2))}, TypeError, r"must be a fitted regressor, or its predictions \(n,\), got shape"),
        ({"model": "ridge"}, TypeError, "must be a fitted regressor, or its predictions .*, got str"),
        ({"model": np.full(60, np.nan)}, ValueError, "the prediction of row 0 is NaN or infinite"),
        ({"y": np.full((60, 3), 0.3)}, ValueError, "the bags report 3 classes but one label is needed"),
        ({"level": 2}, ValueError, "level must be a number between 0 and 1"),
    ],
)
def test_wrong_use_is_one_sentence(given, error, message):
    options = {"model": np.zeros(60), "X": None, "y": np.repeat(np.arange(20.0), 3), "target": "value"} | given
    with pytest.raises(error, match=message):
        evaluate(bags=np.repeat(np.arange(20), 3), **options)
