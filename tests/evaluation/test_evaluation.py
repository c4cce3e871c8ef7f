import itertools
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit, ndtri
from scipy.stats import binomtest, rankdata
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score, roc_curve
from sklearn.svm import LinearSVC

import bagwise as bw
from bagwise.dispersion import dispersion_test, dispersions
from bagwise.evaluation import BagsNotRandomWarning, differences, evaluate, label_linear, risk
from bagwise.expectations import Expectations
from bagwise.metrics import Estimate, curves, estimated, intervals, metrics

METRICS = ("brier", "accuracy", "log_loss", "auc")


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def rate(x):
    """The true probability of a positive label."""
    return sigmoid(2 * x - 1.2)


def world(rng, n):
    """Rows with one feature, and their labels."""
    x = rng.normal(size=n)
    return x, (rng.random(n) < rate(x)).astype(float)


def by_rates(rng, rates):
    """Rows whose labels have these rates, and whose features are those of the label, the same in all bags."""
    y = (rng.random(len(rates)) < rates).astype(float)
    x, places = np.empty(len(y)), GRID[::100]
    for label, weight in ((0, 1 - rate(places)), (1, rate(places))):
        chosen = np.searchsorted(np.cumsum(weight) / weight.sum(), rng.random(int((y == label).sum())))
        x[y == label] = places[chosen]
    return x, y


GRID = ndtri((np.arange(1_000_000) + 0.5) / 1_000_000)  # a mean over it integrates over rows, to about 1e-6
MODELS = {"good": lambda x: sigmoid(1.9 * x - 1.1), "bad": lambda x: sigmoid(0.6 - 0.7 * x)}


@pytest.fixture(scope="module")
def truths():
    """The metrics of each model, rows and labels integrated out."""
    result = {}
    eta = rate(GRID)
    for name, model in MODELS.items():
        h = model(GRID)
        rank = (np.arange(len(h)) + 0.5) / len(h)
        rank = rank if h[-1] > h[0] else rank[::-1]
        p = eta.mean()
        result[name] = {
            "brier": (eta * (1 - h) ** 2 + (1 - eta) * h**2).mean(),
            "accuracy": np.where(h > 0.5, eta, 1 - eta).mean(),
            "log_loss": -(eta * np.log(h) + (1 - eta) * np.log(1 - h)).mean(),
            "auc": ((eta * rank).mean() - p**2 / 2) / (p * (1 - p)),
        }
    return result


def equal_bags(size, m):
    """Bags of consecutive rows whose proportions are to be filled in."""
    return bw.Bags.from_rows(np.zeros(size * m), np.arange(size * m) // size)


def filled(bags, y, noise=0.0):
    """The same bags with the proportions of these labels: what `Bags.from_rows` makes, without its work."""
    return replace(bags, proportion=(bags.sum(y) + noise) / bags.size)


def as_it_comes(h, bags, *, by_slope=False, n_bins=10):
    """The estimates that the mathematics speaks of: none withheld, none kept in range."""
    rows = Expectations(h, bags, by_slope=by_slope)
    found = {name: estimated(*one, 0.95, positive=name == "log_loss") for name, one in metrics(rows).items()}
    return SimpleNamespace(**found, **curves(rows, n_bins, 0.95))


def covers(estimate, truth):
    return estimate.low <= truth <= estimate.high


# -- identities ---------------------------------------------------------------------------------------------------


def test_with_one_row_per_bag_every_estimate_is_the_ordinary_one():
    rng = np.random.default_rng(0)
    x, y = world(rng, 500)
    h = np.round(MODELS["good"](x), 2).clip(0.01, 0.99)  # with ties
    result = evaluate(h, None, y)
    assert result.brier.value == pytest.approx(brier_score_loss(y, h))
    assert result.accuracy.value == pytest.approx(accuracy_score(y, h > 0.5))
    assert result.log_loss.value == pytest.approx(log_loss(y, h))
    assert result.auc.value == pytest.approx(roc_auc_score(y, h))
    assert risk(h, bw.Bags.singletons(y)).value == pytest.approx(brier_score_loss(y, h))
    for j, edge in enumerate(result.calibration.at):
        low = result.calibration.at[j - 1] if j else -np.inf
        inside = (h > low) & (h <= edge)
        assert result.calibration.x[j] == pytest.approx(h[inside].mean())
        assert result.calibration.y[j] == pytest.approx(y[inside].mean())
    for threshold, false_rate, true_rate in zip(result.roc.at, result.roc.x, result.roc.y, strict=True):
        assert true_rate == pytest.approx((h > threshold)[y == 1].mean())
        assert false_rate == pytest.approx((h > threshold)[y == 0].mean())
    assert result.roc.x[0] == result.roc.y[0] == 0
    assert (result.roc.x[-1], result.roc.y[-1]) == (pytest.approx(1), pytest.approx(1))
    reference = np.column_stack(roc_curve(y, h, drop_intermediate=False)[:2])
    ours = np.column_stack([result.roc.x, result.roc.y])
    assert np.abs(reference - ours[:, None]).sum(axis=2).min(axis=1).max() < 1e-9


def test_one_row_per_bag_gives_the_ordinary_standard_errors():
    rng = np.random.default_rng(0)
    x, y = world(rng, 500)
    h = MODELS["good"](x)
    result = evaluate(h, None, y)
    loss = (y - h) ** 2
    assert result.brier.standard_error == pytest.approx(loss.std(ddof=1) / np.sqrt(500))
    correct = (y == (h > 0.5)).astype(float)
    assert result.accuracy.standard_error == pytest.approx(correct.std(ddof=1) / np.sqrt(500))
    # AUC: DeLong's standard error, from the placements of each class in the other.
    above = (h[y == 1][:, None] > h[y == 0]).astype(float)
    placed = above.mean(axis=1).var(ddof=1) / above.shape[0] + above.mean(axis=0).var(ddof=1) / above.shape[1]
    assert result.auc.standard_error == pytest.approx(np.sqrt(placed), rel=0.01)
    # Curves: a mean prediction and a false positive rate are means over the rows of a bin and of class 0.
    first = h[h <= result.calibration.at[0]]
    assert result.calibration.x_standard_error[0] == pytest.approx(first.std() / np.sqrt(len(first)), rel=0.01)
    false = result.roc.x.clip(0, 1)  # but for rounding
    expected = np.sqrt(false * (1 - false) / (y == 0).sum())
    np.testing.assert_allclose(result.roc.x_standard_error, expected, rtol=0.01, atol=1e-9)


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_the_risk_of_one_row_per_bag_has_the_ordinary_standard_error(shift):
    """A shifted model errs by its mean, whose part of the error is that of the bias term."""
    rng = np.random.default_rng(0)
    h, y = rng.normal(size=500) + shift, rng.normal(size=500)
    loss = (y - h) ** 2
    estimate = risk(h, bw.Bags.singletons(y))
    assert estimate.value == pytest.approx(loss.mean())
    assert estimate.standard_error == pytest.approx(loss.std(ddof=1) / np.sqrt(500))


def sums_about(values, other, bags, n):
    """Σ k (v̄ⱼ − v̄)(ōⱼ − ō) by a plain loop."""
    total = 0.0
    for j in range(len(bags)):
        rows = bags.order[bags.offsets[j] : bags.offsets[j + 1]]
        total += len(rows) * (values[rows].mean() - values.mean()) * (other[rows].mean() - other.mean())
    return total


@pytest.mark.parametrize("formation", ["random", "rates"])
def test_estimates_and_their_errors_equal_plain_loops(formation):
    rng = np.random.default_rng(0)
    h, g, ids = rng.random(60), rng.normal(size=60), rng.integers(0, 9, 60)
    y = (rng.random(60) < h).astype(float)

    def plain(kept):
        ids_kept, h_kept, g_kept, y_kept = ids[kept], h[kept], g[kept], y[kept]
        bags = bw.Bags.from_rows(bw.aggregate(y_kept, ids_kept), ids_kept)
        n, m, p = len(y_kept), len(bags), y_kept.mean()
        with_g = sums_about(y_kept, g_kept, bags, n)
        if formation == "rates":
            return p * g_kept.mean() + p * (1 - p) * with_g / sums_about(y_kept, y_kept, bags, n)
        b = sums_about(y_kept, h_kept, bags, n) / sums_about(h_kept, h_kept, bags, n)
        rest = with_g - b * sums_about(h_kept, g_kept, bags, n)
        known = b * ((h_kept * g_kept).mean() - h_kept.mean() * g_kept.mean())
        return p * g_kept.mean() + known + (1 - 1 / n) * rest / (m - 1)

    found = label_linear(h, g, bw.Bags.from_rows(bw.aggregate(y, ids), ids), formation=formation)
    assert found.value == pytest.approx(plain(ids >= 0))
    without = np.array([plain(ids != j) for j in range(9)])  # the jackknife
    moves = found.value - without
    assert found.standard_error == pytest.approx(np.sqrt(8 / 9 * (moves**2).sum()))


@pytest.mark.parametrize("formation", ["random", "rates"])
def test_several_classes_equal_two_where_there_are_two(formation):
    """A class that nobody has changes nothing; neither does the order of classes."""
    rng = np.random.default_rng(0)
    x, y = world(rng, 640)
    h, ids = MODELS["good"](x), np.arange(640) // 16
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    both = bw.Bags.from_rows(bw.aggregate(np.column_stack([y, 1 - y]), ids), ids)
    one = evaluate(h, None, bags=bags, formation=formation)
    two = Expectations(np.column_stack([h, 1 - h]), both, by_slope=formation == "rates")
    assert two.of_class(0).expectation(np.zeros(640), h)[0] == pytest.approx(
        label_linear(h, h, bags, formation=formation).value
    )
    assert metrics(two)["brier"][0] == pytest.approx(2 * one.brier.value)
    assert metrics(two)["auc"][0] == pytest.approx(one.auc.value)


def test_estimates_are_exactly_unbiased():
    """The mean over all samples from a world of three equally likely rows is the truth, bags of unequal sizes too.

    With a model whose predictions vary, products have a bias of the order of their variance.
    """
    h, g, y = np.array([0.1, 0.7, 0.8]), np.array([1.0, -2.0, 0.5]), np.array([0.0, 0.0, 1.0])
    bags = bw.Bags.from_rows(np.zeros(5), [0, 1, 1, 2, 2])
    samples = [list(sample) for sample in itertools.product(range(3), repeat=5)]
    products = [label_linear(np.full(5, 0.5), g[rows], filled(bags, y[rows])).value for rows in samples]
    risks = [risk(h[rows], filled(bags, y[rows])).value for rows in samples]
    assert np.mean(products) == pytest.approx((y * g).mean())
    assert np.mean(risks) == pytest.approx(((y - h) ** 2).mean())


def test_noise_is_subtracted_exactly():
    """The mean over all signs of noise ±s on the counts, however large, is the estimate without noise."""
    rng = np.random.default_rng(0)
    bags = bw.Bags.from_rows(np.zeros(9), [0, 1, 1, 2, 2, 2, 3, 3, 3])
    y, h, s = (rng.random(9) < 0.4).astype(float), rng.random(9), np.array([30.0, 10.0, 50.0, 0.0])
    noised = [
        replace(filled(bags, y, s * signs), noise_variance=s**2) for signs in itertools.product([-1, 1], repeat=4)
    ]
    assert np.mean([risk(h, b).value for b in noised]) == pytest.approx(risk(h, filled(bags, y)).value)
    plain = label_linear(h, 1 - 2 * h, filled(bags, y)).value
    assert np.mean([label_linear(h, 1 - 2 * h, b).value for b in noised]) == pytest.approx(plain)


def test_order_of_rows_and_bags_does_not_matter():
    rng = np.random.default_rng(0)
    x, y = world(rng, 640)
    h, ids = MODELS["good"](x), np.arange(640) // 16
    y_bag = bw.aggregate(y, ids)
    shuffle, rename = rng.permutation(640), rng.permutation(40)
    first = evaluate(h, None, y_bag, bags=ids)
    second = evaluate(h[shuffle], None, y_bag[shuffle], bags=rename[ids][shuffle])
    for name in METRICS:
        assert getattr(second, name).value == pytest.approx(getattr(first, name).value)
        assert getattr(second, name).standard_error == pytest.approx(getattr(first, name).standard_error)
    np.testing.assert_allclose(second.calibration.y, first.calibration.y)


def test_two_classes_as_columns_equal_two_classes_as_one():
    rng = np.random.default_rng(0)
    x, y = world(rng, 640)
    h, ids = MODELS["good"](x), np.arange(640) // 16
    both = bw.aggregate(np.column_stack([1 - y, y]), ids)
    three = np.column_stack([both, np.zeros(640)])
    one = evaluate(h, None, both[:, 1], bags=ids)
    columns = evaluate(np.column_stack([1 - h, h, np.zeros(640)]), None, three, bags=ids)
    assert columns.accuracy.value == pytest.approx(one.accuracy.value)
    assert columns.brier.value == pytest.approx(2 * one.brier.value)  # summed over the classes
    assert columns.brier.standard_error == pytest.approx(2 * one.brier.standard_error)
    assert columns.log_loss.value == pytest.approx(one.log_loss.value)
    assert columns.auc is None  # nobody has the third class
    assert columns.classes[1].auc.value == pytest.approx(one.auc.value)
    assert columns.classes[2].auc is columns.classes[2].roc is None
    np.testing.assert_allclose(columns.classes[1].calibration.y, one.calibration.y)
    for predictions in (h, h[:, None], np.column_stack([1 - h, h])):
        two = evaluate(predictions, None, both, bags=ids)
        for name in METRICS:
            assert getattr(two, name).value == pytest.approx(getattr(one, name).value)
            assert getattr(two, name).standard_error == pytest.approx(getattr(one, name).standard_error)


# -- statistics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [80, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("size", "m"), [(4, 250), (64, 250), pytest.param(256, 150, marks=pytest.mark.slow)])
def test_intervals_cover(size, m, truths, seed, trials):
    """Intervals of 95% cover 95% of the time, and estimates are unbiased, over many repetitions."""
    rng = np.random.default_rng([seed, size])
    bags = equal_bags(size, m)
    results = {model: [] for model in MODELS}
    for _ in range(trials):
        x, y = world(rng, size * m)
        for model in MODELS:
            results[model].append(as_it_comes(MODELS[model](x), filled(bags, y), n_bins=1))
    for model, name in itertools.product(MODELS, METRICS):
        truth = truths[model][name]
        estimates = [getattr(result, name) for result in results[model]]
        covered = sum(covers(estimate, truth) for estimate in estimates)
        assert binomtest(covered, trials, 0.95, alternative="less").pvalue > 1e-6
        if seed == 0:
            assert covered / trials >= 0.95 - 2.9 * np.sqrt(0.95 * 0.05 / trials)  # 93% of 1,000
        values = [estimate.value for estimate in estimates]
        # AUC is a ratio: its bias is of the order of its variance.
        slack = np.var(values) if name == "auc" else 0.0
        assert abs(np.mean(values) - truth) < 5 * np.std(values) / np.sqrt(trials) + slack


@pytest.mark.parametrize("formation", ["random", "rates"])
@pytest.mark.parametrize("model", MODELS)
def test_intervals_of_ten_bags_cover(model, formation, truths, seed):
    rng = np.random.default_rng([seed, 4])
    bags, trials = equal_bags(64, 10), 120
    covered = dict.fromkeys(METRICS, 0)
    for _ in range(trials):
        if formation == "random":
            x, y = world(rng, 640)
        else:
            x, y = by_rates(rng, np.repeat(rng.beta(1.2, 2.4, size=10), 64))
        result = as_it_comes(MODELS[model](x), filled(bags, y), by_slope=formation == "rates", n_bins=1)
        for name in METRICS:
            covered[name] += covers(getattr(result, name), truths[model][name])
    for name in METRICS:
        assert binomtest(covered[name], trials, 0.93, alternative="less").pvalue > 1e-6


@pytest.mark.parametrize("model", MODELS)
def test_noise_and_unequal_sizes_keep_coverage(model, truths, seed):
    rng = np.random.default_rng([seed, 1])
    sizes = np.tile([1, 5, 40, 80, 124], 40)
    ids = np.repeat(np.arange(200), sizes)
    empty = bw.Bags.from_rows(np.zeros(len(ids)), ids, noise_variance=8.0)
    covered, trials = dict.fromkeys((*METRICS, "risk"), 0), 80
    risks = []
    for _ in range(trials):
        x, y = world(rng, len(ids))
        h, bags = MODELS[model](x), filled(empty, y, rng.laplace(scale=2.0, size=200))
        result = as_it_comes(h, bags, n_bins=1)
        for name in METRICS:
            covered[name] += covers(getattr(result, name), truths[model][name])
        risks.append(risk(h, bags))
        covered["risk"] += covers(risks[-1], truths[model]["brier"])
    for name in METRICS:
        assert binomtest(covered[name], trials, 0.95, alternative="less").pvalue > 1e-6
    # With the debiased square, the noise of the smallest bags is squared and heavy-tailed: intervals are a little
    # short, as the docstring of `risk` states, but no shorter; the estimate is unbiased all the same.
    assert binomtest(covered["risk"], trials, 0.91, alternative="less").pvalue > 1e-6
    values = [estimate.value for estimate in risks]
    assert abs(np.mean(values) - truths[model]["brier"]) < 5 * np.std(values) / np.sqrt(trials)


def test_curves_cover(seed):
    rng = np.random.default_rng([seed, 2])
    h, eta = MODELS["good"](GRID), rate(GRID)  # both increase
    below = {  # how much of the rows, positives, negatives and predictions lies below each place of the grid
        name: np.r_[0, np.cumsum(weight)] / weight.sum()
        for name, weight in {"row": np.ones(len(h)), "positive": eta, "negative": 1 - eta, "h": h}.items()
    }
    bags, trials = equal_bags(64, 250), 80
    covered = dict.fromkeys(["mean prediction", "rate", "false positives", "true positives"], 0.0)
    for _ in range(trials):
        x, y = world(rng, 64 * 250)
        result = as_it_comes(MODELS["good"](x), filled(bags, y))
        places = np.searchsorted(h, np.r_[-np.inf, result.calibration.at[:-1], np.inf], side="right")
        bins = {name: np.diff(share[places]) for name, share in below.items()}
        above = np.searchsorted(h, result.roc.at[1:-1], side="right")
        inner = {name: value[1:-1] for name, value in vars(result.roc).items()}
        points = {
            "mean prediction": (
                result.calibration.x_low,
                bins["h"] / bins["row"] * h.mean(),
                result.calibration.x_high,
            ),
            "rate": (result.calibration.y_low, bins["positive"] / bins["row"] * eta.mean(), result.calibration.y_high),
            "false positives": (inner["x_low"], 1 - below["negative"][above], inner["x_high"]),
            "true positives": (inner["y_low"], 1 - below["positive"][above], inner["y_high"]),
        }
        for name, (low, truth, high) in points.items():
            covered[name] += ((low <= truth) & (truth <= high)).mean()
    # Points of a curve are correlated, so count repetitions, not points, as trials.
    for share in covered.values():
        assert binomtest(round(share), trials, 0.95, alternative="less").pvalue > 1e-6


def test_a_better_model_has_narrower_intervals_than_none():
    """What h explains of g is known from all rows: with h = p it is as if it were not used."""
    rng = np.random.default_rng(0)
    x, y = world(rng, 64 * 1000)
    eta = rate(x)
    ids = np.arange(len(y)) // 64
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    g = np.where(eta > 0.5, 1.0, -1.0)
    with_h = label_linear(eta, g, bags).standard_error
    without = label_linear(np.full(len(y), y.mean()), g, bags).standard_error
    assert with_h < 0.85 * without


# -- behaviour ----------------------------------------------------------------------------------------------------


def test_models_and_predictions_give_the_same():
    rng = np.random.default_rng(0)
    x, y = world(rng, 640)
    model = LogisticRegression().fit(x[:, None], y)
    ids = np.arange(640) // 8
    y_bag = bw.aggregate(y, ids)
    by_model = evaluate(model, x[:, None], y_bag, bags=ids)
    by_values = evaluate(model.predict_proba(x[:, None]), None, y_bag, bags=ids)
    assert by_model.accuracy == by_values.accuracy
    assert str(by_model).startswith("random: ")
    assert "from 80 bags, 95% intervals\naccuracy" in str(by_model)


def test_rows_in_no_bag_are_not_used():
    rng = np.random.default_rng(0)
    x, y = world(rng, 700)
    ids = np.r_[np.arange(640) // 8, np.full(60, -1)]
    h, y_bag = MODELS["good"](x), bw.aggregate(y, ids)
    all_rows, bagged = evaluate(h, None, y_bag, bags=ids), evaluate(h[:640], None, y_bag[:640], bags=ids[:640])
    assert all_rows.accuracy.value == pytest.approx(bagged.accuracy.value)
    assert all_rows.auc.value == pytest.approx(bagged.auc.value)
    assert all_rows.n_rows == 640


@pytest.mark.parametrize("classes", [["none", "click"], [1, 0], [1, 2], ["0", "1"]])
def test_the_second_of_two_classes_is_what_bags_report(classes):
    rng = np.random.default_rng(0)
    x, y = world(rng, 640)
    h, ids = MODELS["good"](x), np.arange(640) // 16

    class Model:
        classes_ = np.array(classes)

        def predict_proba(self, X):
            return np.column_stack([1 - h, h])

    y_bag = bw.aggregate(y, ids)
    found = evaluate(Model(), x[:, None], y_bag, bags=ids)
    assert found.accuracy.value == evaluate(h, x[:, None], y_bag, bags=ids).accuracy.value


@pytest.mark.parametrize("classes", [[0], [1]])
def test_a_model_of_one_class_is_refused(classes):
    class Model:
        classes_ = np.array(classes)

        def predict_proba(self, X):
            return np.ones((len(X), 1))

    with pytest.raises(ValueError, match="the model knows one class only"):
        evaluate(Model(), np.zeros((6, 1)), np.full(6, 0.5), bags=np.arange(6) // 2)


@pytest.mark.parametrize("labels", [bool, int, float])
def test_classes_0_and_1_of_any_type_are_accepted(labels):
    rng = np.random.default_rng(0)
    x, y = world(rng, 64)
    model = LogisticRegression().fit(x[:, None], y.astype(labels))
    assert evaluate(model, x[:, None], y).n_bags == 64


def test_a_model_of_three_classes_is_accepted():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 1)), np.arange(90) % 3
    model, indicators = LogisticRegression().fit(x, y), (y[:, None] == np.arange(3)).astype(float)
    assert evaluate(model, x, indicators).log_loss.value == pytest.approx(log_loss(y, model.predict_proba(x)))


def test_tensors_with_gradient_are_predictions(torch):
    h = np.array([0.2, 0.7, 0.9, 0.4])
    tensor = torch.tensor(h, requires_grad=True)
    assert evaluate(tensor, None, [0, 1, 1, 0]).brier == evaluate(h, None, [0, 1, 1, 0]).brier
    bags = bw.Bags.singletons([0, 1, 1, 0])
    assert risk(tensor, bags) == risk(h, bags)


def test_every_class_is_looked_at_for_randomness():
    """Bags grouped by which of the last two classes is probable; the first is equally probable in all rows."""
    rng = np.random.default_rng(0)
    second = 0.6 * np.sort(rng.random(1600))
    h = np.column_stack([np.full(1600, 0.4), second, 0.6 - second])
    ids = np.arange(1600) // 16
    y = bw.aggregate((rng.random((1600, 1)) < h.cumsum(axis=1)) & (np.arange(3) == 0), ids)
    y[:, 1:] = (1 - y[:, :1]) / 2
    with pytest.warns(BagsNotRandomWarning, match="predictions"):
        assert evaluate(h, None, y, bags=ids).withheld
    hardly = np.argsort(np.argsort(np.arange(1600) + rng.normal(scale=2800, size=1600))) // 16  # grouped
    bags = bw.Bags.from_rows(np.full((1600, 3), 1 / 3), hardly)
    smallest = np.nanmin([dispersion_test(rankdata(column)[bags.order], bags)[1] for column in h.T])
    assert smallest < 1 / 4
    # Two columns of h vary; proportions, all equal, are stranger than that, and both are tested.
    found = {finding.subject: finding.p_value for finding in dispersions(bags, h=h)}
    assert found["predictions"] == pytest.approx(2 * 2 * smallest)


def test_predictions_that_hardly_vary_are_not_tested():
    """Five rows that stand out lie in one bag by chance more often than any law of many rows says."""
    h, ids = np.full(1000, 0.01), np.arange(1000) // 20
    h[:5] = 0.9
    found = dispersions(bw.Bags.from_rows(np.full(1000, 0.05), ids), h=h)
    assert [finding.subject for finding in found] == ["proportions"]


# -- bags that are not random -------------------------------------------------------------------------------------


def bags_by(formation, rng, size=64, m=100):
    """Rows of one feature in bags of a formation: the feature, a second one that says nothing, labels, bag ids."""
    ids = np.repeat(np.arange(m), size)
    if formation == "rates":  # the feature depends on the label alone, whose rate differs
        y = (rng.random(size * m) < np.repeat(rng.uniform(0.05, 0.6, m), size)).astype(float)
        x = rng.normal(size=size * m) + 1.5 * y
    else:
        x = rng.normal(size=size * m)
        x = np.sort(x) if formation == "features" else x
        unseen = np.repeat(rng.normal(scale=0.3, size=m), size) if formation == "effects" else 0.0
        y = (rng.random(size * m) < sigmoid(2 * x - 1.2 + unseen)).astype(float)
    other = np.sort(rng.normal(size=size * m)) if formation == "unread" else rng.normal(size=size * m)
    return np.stack([x, other], axis=1), y, ids


@pytest.mark.parametrize(("formation", "size", "m"), [("features", 64, 100), ("unread", 64, 100)])
def test_rows_are_not_told_of_where_bags_are_grouped(formation, size, m, seed):
    """ "unread" groups by a feature that no model reads."""
    for trial in range(3):
        X, y, ids = bags_by(formation, np.random.default_rng([seed, trial]), size, m)
        h, y_bag = MODELS["good"](X[:, 0]), bw.aggregate(y, ids)
        with pytest.warns(BagsNotRandomWarning, match="cannot be told from these bags"):
            found = evaluate(h, X, y_bag, bags=ids)
        assert found.formation.name in ("features", "effects")
        assert found.brier is found.accuracy is found.log_loss is found.auc is found.calibration is found.roc is None
        right = ((h > 0.5) == y).mean()
        assert found.bags.least_accuracy.value <= right <= found.bags.most_accuracy.value
        assert "Known of bags only" in str(found)


def test_rows_are_told_of_where_rates_differ(truths, seed):
    """Numbers that the identity of random bags would put at several hundred percent."""
    held, trials = dict.fromkeys(METRICS, 0), 8
    for trial in range(trials):
        rng = np.random.default_rng([seed, trial, 12])
        x, y = by_rates(rng, np.repeat(rng.beta(1.2, 2.4, size=100), 64))
        found = evaluate(MODELS["good"](x), None, bags=filled(equal_bags(64, 100), y))
        assert found.formation.name == "rates"
        for name in METRICS:
            held[name] += covers(getattr(found, name), truths["good"][name])
    for name in METRICS:
        assert binomtest(held[name], trials, 0.93, alternative="less").pvalue > 1e-4


def test_a_mild_unseen_effect_is_told_of_or_withheld_but_never_wrong(truths, seed):
    """0.3 on log odds, 50 held-out bags of 500: what came out once was an accuracy of 1.54 [1.08, 2.00]."""
    held, told, trials = 0, 0, 12
    for trial in range(trials):
        X, y, ids = bags_by("effects", np.random.default_rng([seed, trial]), 500, 50)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BagsNotRandomWarning)
            found = evaluate(MODELS["good"](X[:, 0]), X, bw.aggregate(y, ids), bags=ids)
        assert found.formation.name in ("effects", "rates")
        if found.accuracy is not None:
            told += 1
            assert 0 <= found.accuracy.low <= found.accuracy.high <= 1
            held += covers(found.accuracy, truths["good"]["accuracy"])
    assert told == 0 or binomtest(held, told, 0.93, alternative="less").pvalue > 1e-4


def test_random_bags_are_not_withheld(seed):
    """The tests of proportions, predictions and 20 features together raise the alarm once in a thousand times."""
    rng, alarms, trials = np.random.default_rng([seed, 9]), 0, 25
    for _ in range(trials):
        x, y = world(rng, 1600)
        ids = np.arange(1600) // 16
        found = evaluate(MODELS["good"](x), rng.normal(size=(1600, 20)), bw.aggregate(y, ids), bags=ids)
        alarms += found.formation.name != "random"
        for name in METRICS:
            estimate = getattr(found, name)
            assert 0 <= estimate.low <= estimate.value <= estimate.high
            assert estimate.high <= (np.inf if name == "log_loss" else 1)
    assert binomtest(alarms, trials, 1e-3, alternative="greater").pvalue > 1e-6


@pytest.mark.parametrize(
    ("value", "error", "leaves"),
    [
        (1.54, 0.2, True),  # plainly
        (1.04, 0.05, False),  # by less than its error
        (1.004, 0.003, False),  # a nearly perfect model's luck
        (1.01, 0.002, True),  # no interval that holds a possible value
        (-0.3, 0.1, True),
        (0.99, 0.5, False),
    ],
)
def test_what_is_called_impossible(value, error, leaves):
    estimate = Estimate(value, error, value - 2 * error, value + 2 * error)
    assert estimate.leaves(0, 1) is leaves
    kept = estimate.within(0, 1)
    assert 0 <= kept.low <= kept.value <= kept.high <= 1


def test_estimates_beyond_what_is_possible_are_withheld():
    """Bags that pass for random, whose reports agree with the predictions more than any labels could."""
    rng = np.random.default_rng(3)
    h, ids = rng.uniform(0.3, 0.7, 6400), np.arange(6400) // 64
    bags = bw.Bags.from_rows(bw.aggregate(h, ids), ids)
    proportion = 0.5 + (bags.proportion - 0.5) * 4.3
    with pytest.warns(BagsNotRandomWarning, match="the AUC would lie beyond what is possible"):
        found = evaluate(h, None, bags=replace(bags, proportion=proportion), formation="random")
    assert found.withheld
    assert found.impossible == ("auc",)


def test_features_of_any_kind_are_looked_at():
    rng = np.random.default_rng(0)
    x, y = world(rng, 3200)
    ids = bw.random_bags(3200, 32, rng)
    y_bag, h = bw.aggregate(y, ids), MODELS["good"](x)
    gap = np.where(rng.random(3200) < 0.3, np.nan, x)
    frame = pd.DataFrame({"x": x, "gap": gap, "kind": rng.choice(["a", "b"], 3200)})
    frame["day"] = pd.to_datetime("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, 3200), "D")
    frame.loc[0, ["x", "kind", "day"]] = np.inf, None, pd.NaT
    for X in (frame, frame.to_numpy(), rng.normal(size=(3200, 4, 4)), sparse.csr_array(x[:, None]), x + 1j, {"a": x}):
        assert not evaluate(h, X, y_bag, bags=ids).withheld
    by_gap = np.argsort(np.argsort(frame["gap"].isna() + 0.1 * rng.random(3200))) // 32
    with pytest.warns(BagsNotRandomWarning, match="gap"):
        evaluate(h, frame, bw.aggregate(y, by_gap), bags=by_gap)
    with pytest.raises(ValueError, match="X has 3199 rows but there are predictions for 3200"):
        evaluate(h, frame[1:], y_bag, bags=ids)


def test_constant_predictions_and_certain_predictions_are_finite():
    rng = np.random.default_rng(0)
    _, y = world(rng, 640)
    ids = np.arange(640) // 8
    y_bag = bw.aggregate(y, ids)
    for h in (np.full(640, 0.3), np.zeros(640), np.ones(640), (rng.random(640) < 0.5).astype(float)):
        result = evaluate(h, None, y_bag, bags=ids)
        assert all(np.isfinite(getattr(result, name).value) for name in METRICS)
    assert evaluate(np.full(640, 0.3), None, y_bag, bags=ids).auc.value == pytest.approx(0.5)


def test_one_class_only_has_no_auc():
    result = evaluate(np.full(8, 0.25), None, np.zeros(8), bags=np.arange(8) // 2, formation="random")
    assert result.auc is None
    assert result.roc is None
    assert result.accuracy.value == 1
    assert result.brier.value == pytest.approx(0.0625)


IDS = [0, 0, 1, 1, 2, 2]
Y = [0.5, 0.5, 1.0, 1.0, 0.0, 0.0]
H = np.full(6, 0.5)


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        (np.full(6, 1.5), {}, ValueError, r"predictions must lie in \[0, 1\]"),
        (np.r_[np.nan, H[1:]], {}, ValueError, "the prediction of row 0 is NaN"),
        (H, {"y": [0.5, 0.5, 3.0, 3.0, 0, 0]}, ValueError, r"bag 1 reports proportion 3.0, outside \[0, 1\]"),
        (H, {"y": Y[:5]}, ValueError, "X has 6 rows but y has 5"),
        (H, {"y": H, "bags": [0] * 6}, ValueError, "there is 1 bag only: at least 3 are needed"),
        (H, {"y": H, "bags": [0, 0, 0, 1, 1, 1]}, ValueError, "there are 2 bags only: at least 3 are needed"),
        (H, {"level": 95}, ValueError, "level must be a number between 0 and 1, got 95"),
        (H, {"level": "a"}, ValueError, "level must be a number between 0 and 1, got 'a'"),
        (H, {"n_bins": 0}, ValueError, "n_bins must be a whole number of at least 1, got 0"),
        (H, {"n_bins": 2.5}, ValueError, "n_bins must be a whole number of at least 1, got 2.5"),
        (np.full((6, 3), 1 / 3), {}, ValueError, r"predictions have shape \(6, 3\) but the bags' proportions \(3,\)"),
        (np.full((6, 3), 1 / 3), {"y": np.full((6, 4), 0.25)}, ValueError, r"pass predictions of shape \(n, 4\)"),
        (np.full((6, 3), 0.3), {"y": np.full((6, 3), 1 / 3)}, ValueError, "predictions of row 0 sum to 0.9 over class"),
        (np.full((6, 1, 1), 0.3), {}, TypeError, r"model must be a fitted classifier .* got shape \(6, 1, 1\)"),
        (None, {}, TypeError, "model must be a fitted classifier .* got NoneType"),
        (0.5, {}, TypeError, "model must be a fitted classifier .* got float"),
        (lambda X: X, {}, TypeError, "model must be a fitted classifier .* got function"),
        (["yes"] * 6, {}, TypeError, "model must be a fitted classifier .* got list"),
        (LinearSVC(), {}, TypeError, "no predict_proba; if labels are real numbers, say target=.value."),
    ],
)
def test_wrong_input_gets_one_clear_sentence(model, options, error, message):
    with pytest.raises(error, match=message):
        evaluate(model, None, **({"y": Y, "bags": IDS} | options))


BAGS = bw.Bags.from_rows(Y, IDS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: risk(H, BAGS.take([0, 1])), "there are 2 bags only: at least 3 are needed"),
        (lambda: label_linear(H, H, BAGS.take([0, 1])), "there are 2 bags only: at least 3 are needed"),
        (lambda: risk(H, BAGS, level=95), "level must be a number between 0 and 1, got 95"),
        (lambda: label_linear(H, H, BAGS, level=95), "level must be a number between 0 and 1, got 95"),
        (lambda: risk(H[:5], BAGS), r"h must hold one number per row, shape \(6,\), got shape \(5,\)"),
        (lambda: risk(np.full((6, 2), 0.5), BAGS), r"h must hold one number per row, shape \(6,\), got shape \(6, 2\)"),
        (lambda: risk(H, bw.Bags.from_rows(np.full((6, 3), 1 / 3), IDS)), "the bags report 3 classes but one label"),
        (lambda: label_linear(H, np.r_[H[:5], np.nan], BAGS), "g of row 5 is NaN or infinite"),
        (lambda: label_linear(H, H[:5], BAGS), r"g must hold one number per row, shape \(6,\), got shape \(5,\)"),
        (lambda: label_linear(H, None, BAGS), r"g must hold one number per row, shape \(6,\), got shape \(\)"),
        (lambda: label_linear(H, ["a"] * 6, BAGS), r"g must hold one number per row, shape \(6,\), got list"),
        (lambda: label_linear(H, H, BAGS, a=np.nan), "a of row 0 is NaN or infinite"),
        (lambda: label_linear(H, H, BAGS, a=H[:5]), r"a must hold one number per row, shape \(6,\), got shape \(5,\)"),
    ],
)
def test_wrong_row_values_get_one_clear_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_real_labels_have_a_risk():
    rng = np.random.default_rng(0)
    x = rng.normal(size=64000)
    y = 3 * x + rng.normal(size=64000)
    ids = np.arange(64000) // 64
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    estimate = risk(2.5 * x + 0.2, bags)
    truth = 1 + 0.25 + 0.04
    assert abs(estimate.value - truth) < 5 * estimate.standard_error
    assert estimate.standard_error < 0.1


# -- differences --------------------------------------------------------------------------------------------------


def test_differences_are_those_of_two_evaluations_and_know_that_bags_are_shared():
    rng = np.random.default_rng(5)
    h = rng.uniform(0.1, 0.9, size=8000)
    y = (rng.random(8000) < h).astype(float)
    other = h + 0.02 * rng.uniform(-1, 1, size=8000)
    ids = bw.random_bags(8000, size=16, random_state=5)
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    one, two = (evaluate(given, None, bags=bags) for given in (h, other))
    found = differences(h, other, bags)
    assert set(found) == {"brier", "accuracy", "log_loss", "auc"}
    for name, estimate in found.items():
        assert estimate.value == pytest.approx(getattr(one, name).value - getattr(two, name).value, abs=1e-12)
        assert estimate.standard_error < getattr(one, name).standard_error / 2
    assert differences(h, h, bags)["auc"].high == 0


@pytest.mark.parametrize("measure", [lambda y: evaluate(np.full(8, 0.5), None, y), lambda y: bw.diagnose(np.eye(8), y)])
def test_proportions_without_their_bags_are_refused(measure):
    with pytest.raises(ValueError, match=r"^bags is missing: y holds proportions"):
        measure([0.5] * 8)


def test_single_rows_may_be_noised_or_lack_a_label():
    noised = np.random.default_rng(0).normal(0.5, 1, size=40)
    assert evaluate(np.full(40, 0.5), None, noised, noise_variance=1.0, formation="random").n_bags == 40
    with pytest.raises(ValueError, match=r"row 1 has a NaN or infinite label"):
        evaluate(np.full(8, 0.5), None, [0.0, np.nan, *[1.0] * 6])


# -- strata, labels, groups ---------------------------------------------------------------------------------------


def test_strata_are_measured_by_themselves(truths, seed):
    """Bags are random inside three campaigns that differ in feature and label."""
    held, trials = 0, 12
    for trial in range(trials):
        rng = np.random.default_rng([seed, trial, 20])
        ids = np.arange(64 * 150) // 64
        campaign = ids % 3
        x = rng.normal(size=len(ids)) + 1.5 * (campaign - 1)
        y = (rng.random(len(ids)) < rate(x)).astype(float)
        truth = np.mean(
            [
                np.where(MODELS["good"](GRID + shift) > 0.5, rate(GRID + shift), 1 - rate(GRID + shift)).mean()
                for shift in (-1.5, 0, 1.5)
            ]
        )
        frame = pd.DataFrame({"x": x, "campaign": campaign})
        found = evaluate(MODELS["good"](x), frame, bw.aggregate(y, ids), bags=ids, strata="campaign")
        assert found.n_strata == 3
        held += covers(found.accuracy, truth)
    assert binomtest(held, trials, 0.94, alternative="less").pvalue > 1e-4
    with pytest.warns(BagsNotRandomWarning):
        assert evaluate(MODELS["good"](x), frame, bw.aggregate(y, ids), bags=ids).withheld
    frame["half"] = ids % 2  # strata inside of which bags still differ
    with pytest.warns(BagsNotRandomWarning, match="inside strata, too, bags differ in"):
        assert evaluate(MODELS["good"](x), frame, bw.aggregate(y, ids), bags=ids, strata="half").withheld


@pytest.mark.parametrize("of_bags", [True, False])
def test_labels_are_right_in_every_formation_and_no_wider_than_alone(seed, of_bags):
    """100 labels beside bags sorted by the feature, of rows in bags or in none, of a model that is wrong."""
    held, widths, alone, trials = dict.fromkeys(METRICS, 0), [], [], 20
    for trial in range(trials):
        rng = np.random.default_rng([seed, trial, 30])
        X, y, ids = bags_by("features", rng)
        h = MODELS["bad"](X[:, 0])
        labelled = rng.choice(len(y), 100, replace=False)
        labels = np.full(len(y), np.nan)
        labels[labelled] = y[labelled]
        if not of_bags:
            ids[labelled] = -1
        found = evaluate(h, X, bw.aggregate(y, ids), bags=ids, labels=labels, formation="features")
        assert found.n_labels == 100
        right = ((h > 0.5) == y).astype(float)
        truth = {
            "accuracy": right.mean(),
            "brier": ((h - y) ** 2).mean(),
            "log_loss": log_loss(y, h),
            "auc": roc_auc_score(y, h),
        }
        for name in METRICS:
            held[name] += covers(getattr(found, name), truth[name])
        widths.append(found.accuracy.standard_error)
        alone.append(right[labelled].std(ddof=1) / 10)
    for name in METRICS:
        assert binomtest(held[name], trials, 0.93, alternative="less").pvalue > 1e-4
    assert (np.array(widths) <= np.array(alone) * (1 + 1e-9)).all()
    assert np.median(widths) < 0.95 * np.median(alone)


def test_rates_of_groups(seed):
    rng = np.random.default_rng([seed, 40])
    held = 0
    for _ in range(20):
        x, y = world(rng, 64 * 200)
        ids, group = np.arange(len(x)) // 64, np.where(x > 0.5, "high", "low")
        found = evaluate(MODELS["good"](x), None, bw.aggregate(y, ids), bags=ids, by=group)
        assert [one.value for one in found.groups] == ["low", "high"]
        assert sum(one.n_rows for one in found.groups) == len(x)
        truths = [rate(GRID[GRID <= 0.5]).mean(), rate(GRID[GRID > 0.5]).mean()]
        held += sum(covers(one.rate, truth) for one, truth in zip(found.groups, truths, strict=True))
    assert binomtest(held, 40, 0.93, alternative="less").pvalue > 1e-4


def test_a_model_on_its_own_bags_is_told_so():
    rng = np.random.default_rng(0)
    x, y = world(rng, 3200)
    ids = np.arange(3200) // 16
    y_bag = bw.aggregate(y, ids)
    model = bw.BagRidgeClassifier(random_state=0).fit(x[:, None], y_bag, bags=ids)
    with pytest.warns(BagsNotRandomWarning, match="fitted to these very bags"):
        assert evaluate(model, x[:, None], y_bag, bags=ids).own_bags
    other, labels = world(rng, 3200)
    assert not evaluate(model, other[:, None], bw.aggregate(labels, ids), bags=ids).own_bags


def test_a_threshold_of_ones_own():
    rng = np.random.default_rng(0)
    x, y = world(rng, 500)
    h = MODELS["good"](x)
    assert evaluate(h, None, y, threshold=0.2).accuracy.value == pytest.approx(((h > 0.2) == y).mean())


def test_intervals_reach_further_towards_the_longer_tail():
    """As of bags that hold most of the rare labels: Student's interval alone covers 0.90 of such means of ten."""
    draws = np.random.default_rng(0).exponential(size=(10, 4000))
    value = draws.mean(axis=0)
    _, error, low, high = intervals(value, draws - value, 0.95)
    assert ((low <= 1) & (high >= 1)).mean() > 0.925  # standard error 0.004
    assert (high - value > value - low + 0.1 * error).mean() > 0.9
    even = np.concatenate([draws, -draws])
    _, _, low, high = intervals(0.0, even, 0.95)
    np.testing.assert_allclose(low, -high)


def test_log_loss_has_an_interval_that_stays_positive():
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = world(rng, 64 * 12)
        found = as_it_comes(MODELS["good"](x), filled(equal_bags(64, 12), y), n_bins=1).log_loss
        assert found.value < 0 or 0 < found.low < found.value < found.high


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"formation": "campaign"}, "formation must be one of 'auto', 'random', 'rates', 'features', 'effects'"),
        ({"strata": "day"}, "strata names the column 'day', which X does not have"),
        ({"strata": [0, 1, 0, 0, 0, 0]}, "strata has several values in bag"),
        ({"strata": [0, 0, 0, 0, 1, 1]}, "strata has the value 1 in 1 bag only"),
        ({"strata": [0, 0]}, r"strata must hold one value per row, shape \(6,\), got shape \(2,\)"),
        ({"labels": [0, 1]}, r"labels must hold one label or NaN per row"),
        (
            {"labels": [0.0, 1.0, np.nan, np.nan, np.nan, np.nan]},
            "labels must hold 5 labels or more, got 2",
        ),
        ({"labels": [0.0, 1.0, 2.0, 1.0, 1.0, 0.0]}, "labels must be 0 to 1, or NaN"),
        ({"threshold": 2}, "threshold must be a number of at least 0 and at most 1, got 2"),
        ({"by": "group"}, "by names the column 'group', which X does not have"),
    ],
)
def test_wrong_options_get_one_clear_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(H, None, Y, bags=IDS, **({"formation": "random"} | options))


@pytest.mark.parametrize("calls", [60, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::bagwise.evaluation.BagsNotRandomWarning")
def test_no_estimate_leaves_its_range(calls, seed):
    """Whatever the formation, the sizes, the model, the noise and the number of bags are."""
    rng = np.random.default_rng([seed, 50])
    for _ in range(calls):
        m, size = int(rng.integers(3, 60)), int(rng.integers(1, 40))
        formation = str(rng.choice(["random", "rates", "features", "effects", "unread"]))
        X, y, ids = bags_by(formation, rng, size, m)
        h = expit(float(rng.choice([-1, 0.1, 1, 4])) * X[:, 0] + rng.normal())
        noise = float(rng.choice([0.0, 4.0]))
        bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids, noise_variance=noise if noise else None)
        bags = replace(bags, proportion=bags.proportion + np.sqrt(noise) * rng.normal(size=m) / size)
        asked = str(rng.choice(["auto", "random", "rates", "effects"]))
        found = evaluate(h, X if rng.random() < 0.5 else None, bags=bags, formation=asked)
        for name in METRICS:
            one = getattr(found, name)
            assert one is None or 0 <= one.low <= one.value <= one.high <= (np.inf if name == "log_loss" else 1)
        for curve in (found.calibration, found.roc):
            if curve is not None:
                assert (curve.y_low >= 0).all()
                assert (curve.y_high <= 1).all()
        assert 0 <= found.bags.least_accuracy.value <= found.bags.most_accuracy.value <= 1
        assert "nan" not in str(found)
