import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score, roc_curve

import bagwise as bw
from bagwise import evaluation
from bagwise.evaluation import BagsNotRandomWarning, evaluate, label_linear, risk

METRICS = ("brier", "accuracy", "log_loss", "auc")


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def world(rng, n):
    """Rows with one feature, their true probabilities and labels."""
    x = rng.normal(size=n)
    eta = sigmoid(2 * x - 1.2)
    return x, eta, (rng.random(n) < eta).astype(float)


MODELS = {"good": lambda x: sigmoid(1.9 * x - 1.1), "bad": lambda x: sigmoid(0.6 - 0.7 * x)}


@pytest.fixture(scope="module")
def truths():
    """The metrics of each model on a large sample with the labels integrated out."""
    x, eta, _ = world(np.random.default_rng(99), 2_000_000)
    result = {}
    for name, model in MODELS.items():
        h = model(x)
        rank = np.empty(len(h))
        rank[np.argsort(h)] = (np.arange(len(h)) + 0.5) / len(h)
        p = eta.mean()
        result[name] = {
            "brier": (eta * (1 - h) ** 2 + (1 - eta) * h**2).mean(),
            "accuracy": np.where(h > 0.5, eta, 1 - eta).mean(),
            "log_loss": -(eta * np.log(h) + (1 - eta) * np.log(1 - h)).mean(),
            "auc": ((eta * rank).mean() - p**2 / 2) / (p * (1 - p)),
        }
    return result


def random_evaluation(rng, model, size, m, **options):
    x, _, y = world(rng, size * m)
    ids = np.arange(size * m) // size
    return evaluate(model(x), None, bw.aggregate(y, ids), bags=ids, **options)


# -- identities ---------------------------------------------------------------------------------------------------


def test_with_one_row_per_bag_every_estimate_is_the_ordinary_one():
    rng = np.random.default_rng(0)
    x, _, y = world(rng, 500)
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
    x, _, y = world(rng, 500)
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


def test_the_identity_equals_a_plain_loop():
    rng = np.random.default_rng(0)
    h, g, ids = rng.random(60), rng.normal(size=60), rng.integers(0, 9, 60)
    y = (rng.random(60) < h).astype(float)
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    n, m = 60, len(bags)
    p, mean_h, mean_g = y.mean(), h.mean(), g.mean()
    covariance = 0.0
    for j in range(m):
        rows = bags.order[bags.offsets[j] : bags.offsets[j + 1]]
        k = len(rows)
        residual = k * (bags.proportion[j] - p) - sum(h[i] - mean_h for i in rows)
        covariance += residual * sum(g[i] - mean_g for i in rows) / k / (m - 1)
    expected = (h * g).mean() + (p - mean_h) * mean_g + (1 - 1 / n) * covariance
    assert label_linear(h, g, bags).value == pytest.approx(expected)


def test_order_of_rows_and_bags_does_not_matter():
    rng = np.random.default_rng(0)
    x, _, y = world(rng, 640)
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
    x, _, y = world(rng, 640)
    h, ids = MODELS["good"](x), np.arange(640) // 16
    both = bw.aggregate(np.column_stack([1 - y, y]), ids)
    three = np.column_stack([both, np.zeros(640)])
    one = evaluate(h, None, both[:, 1], bags=ids)
    columns = evaluate(np.column_stack([1 - h, h, np.zeros(640)]), None, three, bags=ids)
    assert columns.accuracy.value == pytest.approx(one.accuracy.value)
    assert columns.brier.value == pytest.approx(2 * one.brier.value)  # summed over the classes
    assert columns.brier.standard_error == pytest.approx(2 * one.brier.standard_error)
    assert columns.log_loss.value == pytest.approx(one.log_loss.value)
    assert columns.auc is None
    assert columns.roc is None


# -- statistics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("size", "m"), [(4, 250), (64, 250), (256, 150)])
def test_intervals_cover(model, size, m, truths, seed):
    """At least 93% of the nominal 95% intervals cover, and estimates are unbiased, over 1,000 repetitions."""
    rng = np.random.default_rng([seed, size])
    trials = 1000
    covered, values = dict.fromkeys(METRICS, 0), {name: [] for name in METRICS}
    for _ in range(trials):
        result = random_evaluation(rng, MODELS[model], size, m)
        for name in METRICS:
            estimate, truth = getattr(result, name), truths[model][name]
            covered[name] += estimate.low <= truth <= estimate.high
            values[name].append(estimate.value)
    for name in METRICS:
        assert covered[name] >= 0.93 * trials
        error = np.std(values[name]) / np.sqrt(trials)
        # AUC is a ratio: its bias is of the order of its variance.
        slack = np.var(values[name]) if name == "auc" else 0.0
        assert abs(np.mean(values[name]) - truths[model][name]) < 5 * error + slack + 1e-3


@pytest.mark.parametrize("model", MODELS)
def test_noise_and_unequal_sizes_keep_coverage(model, truths, seed):
    rng = np.random.default_rng([seed, 1])
    sizes = np.tile([1, 5, 40, 80, 124], 40)
    ids = np.repeat(np.arange(200), sizes)
    covered, trials = dict.fromkeys(METRICS, 0), 300
    risk_covered, plain = 0, []
    for _ in range(trials):
        x, _, y = world(rng, sizes.sum())
        noise = rng.laplace(scale=2.0, size=200) / sizes
        h = MODELS[model](x)
        bags = bw.Bags.from_rows(bw.aggregate(y, ids) + noise[ids], ids, noise_variance=8.0)
        result = evaluate(h, None, bags=bags)
        for name in METRICS:
            estimate = getattr(result, name)
            covered[name] += estimate.low <= truths[model][name] <= estimate.high
        estimate = risk(h, bags)
        risk_covered += estimate.low <= truths[model]["brier"] <= estimate.high
        plain.append(estimate.value)
    for name in METRICS:
        assert binomtest(covered[name], trials, 0.93, alternative="less").pvalue > 1e-6
    # With the debiased square, the noise of the smallest bags is squared and heavy-tailed: unbiased all the same.
    assert abs(np.mean(plain) - truths[model]["brier"]) < 5 * np.std(plain) / np.sqrt(trials)


def test_curves_cover(seed):
    rng = np.random.default_rng([seed, 2])
    x, eta, _ = world(np.random.default_rng(98), 2_000_000)
    order = np.argsort(MODELS["good"](x))
    h_sorted = MODELS["good"](x)[order]
    cumulated = np.r_[0, np.cumsum(eta[order])] / eta.sum()
    calibrated = rocked = points = 0
    for _ in range(150):
        result = random_evaluation(rng, MODELS["good"], 64, 250)
        edges = np.r_[-np.inf, result.calibration.at[:-1], np.inf]
        places = np.searchsorted(h_sorted, edges, side="right")
        rate = np.diff(cumulated[places]) * eta.sum() / np.diff(places)
        calibrated += ((result.calibration.y_low <= rate) & (rate <= result.calibration.y_high)).sum()
        above = 1 - cumulated[np.searchsorted(h_sorted, result.roc.at[1:-1], side="right")]
        rocked += ((result.roc.y_low[1:-1] <= above) & (above <= result.roc.y_high[1:-1])).sum()
        points += len(above)
    # Points of a curve are correlated, so count repetitions, not points, as trials.
    assert binomtest(round(150 * calibrated / (150 * 10)), 150, 0.93, alternative="less").pvalue > 1e-6
    assert binomtest(round(150 * rocked / points), 150, 0.93, alternative="less").pvalue > 1e-6


def test_a_better_model_has_narrower_intervals_than_none():
    """The term E[h·g] is what makes the estimate precise: with h = p it is as if it were not used."""
    rng = np.random.default_rng(0)
    _, eta, y = world(rng, 64 * 1000)
    ids = np.arange(len(y)) // 64
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    g = np.where(eta > 0.5, 1.0, -1.0)
    with_h = label_linear(eta, g, bags).standard_error
    without = label_linear(np.full(len(y), y.mean()), g, bags).standard_error
    assert with_h < 0.85 * without


# -- behaviour ----------------------------------------------------------------------------------------------------


def test_models_and_predictions_give_the_same():
    rng = np.random.default_rng(0)
    x, _, y = world(rng, 640)
    model = LogisticRegression().fit(x[:, None], y)
    ids = np.arange(640) // 8
    y_bag = bw.aggregate(y, ids)
    by_model = evaluate(model, x[:, None], y_bag, bags=ids)
    by_values = evaluate(model.predict_proba(x[:, None]), None, y_bag, bags=ids)
    assert by_model.accuracy == by_values.accuracy
    assert str(by_model).startswith("from 80 bags, 95% intervals\naccuracy")


def test_rows_in_no_bag_are_not_used():
    rng = np.random.default_rng(0)
    x, _, y = world(rng, 700)
    ids = np.r_[np.arange(640) // 8, np.full(60, -1)]
    h, y_bag = MODELS["good"](x), bw.aggregate(y, ids)
    all_rows, bagged = evaluate(h, None, y_bag, bags=ids), evaluate(h[:640], None, y_bag[:640], bags=ids[:640])
    assert all_rows.accuracy.value == pytest.approx(bagged.accuracy.value)
    assert all_rows.auc.value == pytest.approx(bagged.auc.value)
    assert all_rows.n_rows == 640


def test_grouped_bags_are_warned_about_and_random_ones_are_not():
    rng = np.random.default_rng(0)
    x, _, y = world(rng, 6400)
    h = MODELS["good"](x)
    grouped = np.argsort(np.argsort(x)) // 64
    with pytest.warns(BagsNotRandomWarning, match="the bags are not random"):
        evaluate(h, None, bw.aggregate(y, grouped), bags=grouped)
    random = bw.random_bags(6400, 64, rng)
    assert evaluate(h, None, bw.aggregate(y, random), bags=random).randomness > 1e-4


def test_constant_predictions_and_certain_predictions_are_finite():
    rng = np.random.default_rng(0)
    _, _, y = world(rng, 640)
    ids = np.arange(640) // 8
    y_bag = bw.aggregate(y, ids)
    for h in (np.full(640, 0.3), np.zeros(640), np.ones(640), (rng.random(640) < 0.5).astype(float)):
        result = evaluate(h, None, y_bag, bags=ids)
        assert all(np.isfinite(getattr(result, name).value) for name in METRICS)
    assert evaluate(np.full(640, 0.3), None, y_bag, bags=ids).auc.value == pytest.approx(0.5)


def test_one_class_only_has_no_auc():
    result = evaluate(np.full(8, 0.25), None, np.zeros(8), bags=np.arange(8) // 2)
    assert result.auc is None
    assert result.roc is None
    assert result.accuracy.value == 1
    assert result.brier.value == pytest.approx(0.0625)


GOOD = (np.full(4, 0.5), None, [0.5, 0.5, 1.0, 1.0])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((np.full(4, 1.5), None, GOOD[2]), {}, ValueError, r"predictions must lie in \[0, 1\]"),
        ((np.r_[np.nan, 0, 0, 0], None, GOOD[2]), {}, ValueError, "prediction of row 0 is NaN"),
        ((GOOD[0], None, [0.5, 0.5, 3.0, 3.0]), {}, ValueError, r"bag 1 reports proportion 3.0, outside \[0, 1\]"),
        ((GOOD[0], None, GOOD[2][:3]), {}, ValueError, "X has 4 rows but y has 3"),
        ((GOOD[0], None, np.full(4, 0.5)), {"bags": [0, 0, 0, 0]}, ValueError, "one bag only"),
        (GOOD, {"level": 95}, ValueError, "level must lie between 0 and 1"),
        (GOOD, {"n_bins": 0}, ValueError, "n_bins must be at least 1"),
        ((np.full((4, 3), 1 / 3), None, GOOD[2]), {}, ValueError, "report proportions of shape"),
        ((bw.BagRidgeRegressor(), None, GOOD[2]), {}, TypeError, "no predict_proba"),
    ],
)
def test_wrong_input_gets_one_clear_sentence(arguments, options, error, message):
    with pytest.raises(error, match=message):
        evaluate(*arguments, **({"bags": [0, 0, 1, 1]} | options))


def test_real_labels_have_a_risk():
    rng = np.random.default_rng(0)
    x = rng.normal(size=64000)
    y = 3 * x + rng.normal(size=64000)
    ids = np.arange(64000) // 64
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    estimate = evaluation.risk(2.5 * x + 0.2, bags)
    truth = 1 + 0.25 + 0.04
    assert abs(estimate.value - truth) < 5 * estimate.standard_error
    assert estimate.standard_error < 0.1
