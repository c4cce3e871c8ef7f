"""Counts released with differential privacy: the noise is what is declared, protects what it should, biases nothing."""

import gc
import itertools
import json
import struct
import sys
import tempfile
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats import binomtest, chisquare
from typer.testing import CliRunner

import bagwise as bw
from bagwise import evaluation, privacy, tables
from bagwise.cli import app
from bagwise.evaluation.measures import measure
from bagwise.linear.probabilities import ENOUGH_BAGS
from bagwise.losses import debiased_square
from bagwise.tables.fitting import features_of
from bagwise.tables.gather import write_shards

opendp = pytest.importorskip("opendp", reason="OpenDP is not installed: pip install 'bagwise[privacy]'")

ONE_LABEL = np.array([0.0, 1.0, 1.0])  # a bag of three rows


def law(budget, reach=400):
    """Probabilities of the noise e = −reach, …, reach, from the definition of the mechanism."""
    x = np.arange(-reach, reach + 1)
    exponent = -np.abs(x) / budget.scale if budget.delta is None else -(x**2) / (2 * budget.scale**2)
    weight = np.exp(exponent)
    return x, weight / weight.sum()


def many(y, times, **budget):
    """The same bag released `times` times: (times,) or (times, classes) noised counts, and the budget of each."""
    y = np.asarray(y, dtype=float)
    rows = np.tile(y, (times, 1) if y.ndim == 2 else times)
    found = privacy.release(rows, np.repeat(np.arange(times), len(y)), **budget)
    noised = found.bags.proportion * len(y)
    np.testing.assert_allclose(noised, np.rint(noised), atol=1e-9)
    return np.rint(noised).astype(int), found.budget


# -- the noise ----------------------------------------------------------------------------------------------------

CLASSES = np.eye(3)[[0, 1, 1]]
BUDGETS = {
    "Laplace": (ONE_LABEL, {"epsilon": 1.0}, 1.0, 1.0),
    "little Laplace": (ONE_LABEL, {"epsilon": 3.0}, 1.0, 1 / 3),
    "Gaussian": (ONE_LABEL, {"epsilon": 1.0, "delta": 1e-6}, 1.0, 4.5309),
    "little Gaussian": (ONE_LABEL, {"epsilon": 8.0, "delta": 1e-2}, 1.0, None),
    "classes": (CLASSES, {"epsilon": 1.0}, 2.0, 2.0),
    "classes, Gaussian": (CLASSES, {"epsilon": 1.0, "delta": 1e-6}, 2**0.5, 6.4076),
}


@pytest.mark.parametrize("case", BUDGETS)
def test_noise_is_what_is_declared(case, seed):
    """Mean, variance and law; tolerances of mean and variance are 5 standard errors, from the law's own moments."""
    y, given, sensitivity, scale = BUDGETS[case]
    noised, budget = many(y, 9000 // (1 if y.ndim == 1 else 3), **given)
    assert (budget.sensitivity, budget.epsilon, budget.delta) == (sensitivity, given["epsilon"], given.get("delta"))
    if scale is not None:
        assert budget.scale == pytest.approx(scale, rel=1e-4)
    error = (noised - y.sum(axis=0).astype(int)).ravel()
    x, p = law(budget)
    second, fourth = (x**2 * p).sum(), (x**4 * p).sum()
    assert budget.noise_variance == pytest.approx(second, rel=1e-12)
    assert abs(error.mean()) < 5 * np.sqrt(second / len(error))
    assert abs((error**2).mean() - second) < 5 * np.sqrt((fourth - second**2) / len(error))
    cells = np.flatnonzero(p * len(error) > 10)
    low, high = x[cells[0]], x[cells[-1]]
    seen = np.bincount(np.clip(error, low, high) - low, minlength=high - low + 1)
    expected = p[cells].copy()
    expected[[0, -1]] += p[x < low].sum(), p[x > high].sum()
    assert chisquare(seen, expected * len(error)).pvalue > 1e-6


def test_the_variance_is_that_of_whole_numbers():
    """Continuous noise of the same scale varies twice as much as the discrete noise of ε = 3."""
    assert privacy.noise_variance(3.0) == pytest.approx(2 * np.exp(-3) / (1 - np.exp(-3)) ** 2)
    assert privacy.noise_variance(3.0) < 0.51 * 2 / 3**2
    assert privacy.noise_variance(1e-4) == pytest.approx(2e8, rel=1e-8)
    for case in BUDGETS.values():
        counts = 1 if case[0].ndim == 1 else case[0].shape[1]
        budget = privacy.release(case[0], [0, 0, 0], **case[1]).budget
        assert privacy.noise_variance(**case[1], counts=counts) == pytest.approx(budget.noise_variance, rel=1e-12)
    assert privacy.noise_variance(800.0) == 0
    with pytest.raises(ValueError, match="no usable discrete Laplace noise for epsilon 1e-300"):
        privacy.noise_variance(1e-300)


def test_classes_get_independent_noise(seed):
    noised, budget = many(CLASSES, 3000, epsilon=1.0)
    error = noised - CLASSES.sum(axis=0)
    for a, b in itertools.combinations(range(3), 2):
        assert abs((error[:, a] * error[:, b]).mean()) < 5 * budget.noise_variance / np.sqrt(3000)


def test_noise_is_never_repeated():
    """No seed of NumPy's reaches it."""
    np.random.seed(0)  # noqa: NPY002
    one, _ = many(ONE_LABEL, 200, epsilon=0.1)
    np.random.seed(0)  # noqa: NPY002
    two, _ = many(ONE_LABEL, 200, epsilon=0.1)
    assert (one == two).sum() < 100  # equal in 3% of the bags


# -- privacy ------------------------------------------------------------------------------------------------------


def violations(one, other, epsilon):
    """P-values of the hypothesis P(one in S) ≤ exp(ε) P(other in S), for sets S = {x}, {≤ x}, {≥ x}.

    Of the draws that lie in S, at most a share exp(ε)/(1 + exp(ε)) comes from `one`: an exact binomial test.
    """
    share = np.exp(epsilon) / (1 + np.exp(epsilon))
    found = []
    for x in range(min(one.min(), other.min()), max(one.max(), other.max()) + 1):
        for hits in (np.equal, np.less_equal, np.greater_equal):
            a, b = int(hits(one, x).sum()), int(hits(other, x).sum())
            if a + b:
                found.append(binomtest(a, a + b, share, alternative="greater").pvalue)
    return np.array(found)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_neighbours_cannot_be_told_apart_by_more_than_epsilon(epsilon, seed):
    """One label changes; the others and the bags do not, so that its own count is all that differs."""
    one, _ = many([0, 1, 1], 16_000, epsilon=epsilon)
    other, _ = many([0, 0, 1], 16_000, epsilon=epsilon)
    for left, right in ((one, other), (other, one)):
        assert violations(left, right, epsilon).min() > 1e-6 / 100  # about 100 sets
        assert violations(left, right, 0.7 * epsilon).min() < 1e-6  # the test would see ε exceeded


def test_neighbours_of_classes_cannot_be_told_apart_by_more_than_epsilon(seed):
    """One count goes down, another up: noise for one count alone would lose exp(2ε) in this corner."""
    epsilon = 0.7
    one, _ = many(CLASSES, 10_000, epsilon=epsilon)
    other, _ = many(np.eye(3)[[0, 0, 1]], 10_000, epsilon=epsilon)
    share = np.exp(epsilon) / (1 + np.exp(epsilon))
    for (left, right), sign in (((one, other), 1), ((other, one), -1)):
        corner = [((sign * (draws[:, :2] - [1.5, 1.5]) * [-1, 1]) > 0).all(axis=1).sum() for draws in (left, right)]
        a, b = map(int, corner)
        assert binomtest(a, a + b, share, alternative="greater").pvalue > 1e-6
        assert binomtest(a, a + b, 0.9 * share, alternative="greater").pvalue < 1e-6


def test_gaussian_noise_keeps_epsilon_and_delta(seed):
    """P(S) ≤ exp(ε) P'(S) + δ for half-lines, within 5 standard errors."""
    epsilon, delta, n = 0.5, 0.05, 10_000
    one, _ = many([0, 1, 1], n, epsilon=epsilon, delta=delta)
    other, _ = many([0, 0, 1], n, epsilon=epsilon, delta=delta)
    for left, right, side in ((one, other, 1), (other, one, -1)):
        for x in np.unique(one):
            p, q = (side * left >= side * x).mean(), (side * right >= side * x).mean()
            error = np.sqrt((p * (1 - p) + np.exp(2 * epsilon) * q * (1 - q)) / n)
            assert p - np.exp(epsilon) * q < delta + 5 * error


def test_opendp_vouches_for_the_scale():
    """Its own account of the mechanism, at the scale that is used and at a slightly smaller one."""
    for y, given, _, _ in BUDGETS.values():
        budget = privacy.release(y, [0, 0, 0], **given).budget
        moved = budget.sensitivity if budget.delta else int(budget.sensitivity)
        wanted = given["epsilon"] if budget.delta is None else (given["epsilon"], given["delta"])
        with privacy._opendp() as dp:
            assert privacy._measurement(dp, budget.scale, budget.delta).check(moved, wanted)
            assert not privacy._measurement(dp, 0.999 * budget.scale, budget.delta).check(moved, wanted)


def test_opendp_is_left_as_it_was():
    from opendp.mod import GLOBAL_FEATURES, disable_features, enable_features

    for agreed in (False, True):
        (enable_features if agreed else disable_features)("contrib")
        many(ONE_LABEL, 3, epsilon=1.0)
        assert ("contrib" in GLOBAL_FEATURES) == agreed
    disable_features("contrib")


def test_without_opendp_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    assert privacy.noise_variance(1.0) == pytest.approx(1.8413, abs=1e-4)
    for ask in (
        lambda: bw.release([0, 1], [0, 0], epsilon=1.2345),  # of which no scale is known yet
        lambda: privacy.noise_variance(1.2345, delta=1e-6),
        lambda: tables.put_in_bags({"x": [1, 2], "y": [0, 1]}, "nowhere", label="y", size=2, epsilon=1.2345),
    ):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'bagwise\[privacy\]'"):
            ask()


# -- what is released ---------------------------------------------------------------------------------------------


def problem(n=3200, size=16, seed=0):
    """Rows, labels of which one in ten is 1, and random bags."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = (rng.random(n) < 0.2 / (1 + np.exp(-2 * X[:, 0]))).astype(float)
    return X, y, bw.random_bags(n, size, rng)


def test_the_release_says_what_was_reported_and_spent():
    y = [1, 0, 1, 1, 0, 0, 1, 0]
    ids = ["b", "b", "a", "a", "a", None, "c", "c"]
    found = bw.release(y, ids, epsilon=0.5)
    assert found.bags.keys.tolist() == ["a", "b", "c"]
    assert found.bags.size.tolist() == [3, 2, 2]
    assert found.bags.n_rows == 8
    assert (found.bags.noise_variance == privacy.noise_variance(0.5)).all()
    table = found.reports
    assert list(table) == ["bag", "size", "count", "suppressed", "noise_variance", "epsilon", "mechanism"]
    assert (table["count"].to_numpy() == np.rint(found.bags.proportion * found.bags.size)).all()
    assert set(table["epsilon"]) == {0.5}
    assert set(table["mechanism"]) == {"discrete Laplace"}
    assert asdict(found.budget)["neighbours"].startswith("data sets that differ in the label of one row")
    assert "ε = 0.5" in str(found.budget)
    assert "3 bags, 0 withheld" in repr(found)
    again = bw.Bags.from_reports(ids, table, count="count", size="size", noise_variance="noise_variance")
    np.testing.assert_array_equal(again.proportion, found.bags.proportion)
    gaussian = bw.release(y, ids, epsilon=0.5, delta=1e-5).reports
    assert (set(gaussian["delta"]), set(gaussian["mechanism"])) == ({1e-5}, {"discrete Gaussian"})


def test_counts_are_not_clipped():
    found = bw.release(np.tile([0, 1], 200), np.repeat(np.arange(100), 4), epsilon=0.05)
    counts = found.reports["count"].to_numpy()
    assert counts.min() < 0
    assert counts.max() > 4
    assert (found.bags.proportion * 4 == counts).all()


def test_small_bags_are_withheld():
    ids = np.array([0, 1, 1, 2, 2, 2, -1])
    found = bw.release([1, 0, 1, 1, 0, 1, 1], ids, epsilon=1.0, min_size=2)
    assert found.reports["suppressed"].tolist() == [True, False, False]
    assert found.reports["count"].isna().tolist() == [True, False, False]
    assert found.reports["noise_variance"].isna().tolist() == [True, False, False]
    assert found.reports["count"].array._data[0] == 0  # nor does it hide behind the missing value
    assert found.bags.keys.tolist() == [1, 2]
    assert found.bags.code.tolist() == [-1, 0, 0, 1, 1, 1, -1]


def test_a_threshold_withholds_noised_counts_and_warns():
    _, y, ids = problem()
    with pytest.warns(privacy.SelectedBagsWarning, match="is biased") as told:
        found = bw.release(y, ids, epsilon=0.5, threshold=2)
    assert told[0].filename == __file__
    shown = found.reports[~found.reports["suppressed"]]
    assert shown["count"].min() == 2
    assert len(found.bags) == len(shown) < 200
    assert set(found.reports["threshold"]) == {2}
    # As the warning says: counts that are left are too high.
    exact = pd.Series(y).groupby(ids).sum()
    assert shown["count"].mean() > exact[exact.index >= 0].mean() + 1
    bw.release(y, ids, epsilon=0.5, threshold=-1000)  # nothing withheld, nothing to warn of
    with pytest.warns(privacy.SelectedBagsWarning):
        classes = bw.release(np.eye(2)[y.astype(int)], ids, epsilon=0.5, threshold=2).reports
    shown = classes[~classes["suppressed"]]
    assert min(shown["count_0"].min(), shown["count_1"].min()) == 2


BAD = {
    "ε = 0": ({"epsilon": 0}, "epsilon must be a finite number above 0, got 0"),
    "ε < 0": ({"epsilon": -1.0}, "epsilon must be a finite number above 0"),
    "ε NaN": ({"epsilon": float("nan")}, "epsilon must be a finite number above 0, got nan"),
    "ε infinite": ({"epsilon": float("inf")}, "epsilon must be a finite number above 0, got inf"),
    "ε text": ({"epsilon": "1"}, "epsilon must be a finite number above 0, got '1'"),
    "ε true": ({"epsilon": True}, "epsilon must be a finite number above 0, got True"),
    "ε tiny": ({"epsilon": 1e-14}, "no usable discrete Laplace noise for epsilon 1e-14"),
    "ε huge": ({"epsilon": 1e5, "delta": 1e-6}, "no usable discrete Gaussian noise for epsilon 100000 and delta 1e-06"),
    "δ = 0": ({"delta": 0.0}, "delta must be a number between 0 and 1"),
    "δ = 1": ({"delta": 1}, "delta must be a number between 0 and 1"),
    "δ NaN": ({"delta": float("nan")}, "delta must be a number between 0 and 1"),
    "labels": ({"y": [0, 2, 1, 0]}, "y is 2.0 in row 1: individual labels must be 0 or 1"),
    "proportions": ({"y": [0.5, 0.5, 1, 1]}, "y is 0.5 in row 0"),
    "NaN": ({"y": [0, 1, float("nan"), 0]}, "y is NaN or infinite in row 2"),
    "two classes": ({"y": [[0, 1], [1, 1], [1, 0], [0, 1]]}, r"y is \[1. 1.\] in row 1: .* one 1 among zeros"),
    "text": ({"y": list("abcd")}, "y must be numeric"),
    "no bag": ({"ids": [-1] * 4}, "no row is in a bag"),
    "rows": ({"ids": [0]}, "y has 4 rows but bags has 1"),
    "min_size": ({"min_size": 0}, "min_size must be a whole number of at least 1, got 0"),
    "too small": ({"min_size": 3}, "every bag has fewer than 3 rows"),
    "threshold": ({"threshold": "5"}, "threshold must be .*, got '5'"),
    "threshold NaN": ({"threshold": float("nan")}, "threshold must be .*, got nan"),
    "nothing left": ({"threshold": 1e6}, "every noised count is below the threshold 1e.06"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence(case):
    changed, sentence = BAD[case]
    given = {"y": [0, 1, 1, 0], "ids": [0, 0, 1, 1], "epsilon": 1.0} | changed
    with pytest.raises(ValueError, match=sentence) as raised:
        bw.release(given.pop("y"), given.pop("ids"), **given)
    assert str(raised.value).endswith(".")
    assert "\n" not in str(raised.value)


def test_labels_in_no_bag_are_not_read():
    found = bw.release([0, 1, np.nan, 7], [("a", 1), ("a", 1), None, None], epsilon=1.0)
    assert found.bags.keys.tolist() == found.reports["bag"].tolist() == [("a", 1)]


# -- what is learned and measured ---------------------------------------------------------------------------------


def releases(y, ids, times, **budget):
    """Several releases of the same bags, in one call: rows are repeated, with bags of their own."""
    inside = ids >= 0
    shift = np.arange(times)[:, None] * (ids.max() + 1)
    all_ids = np.where(inside, ids + shift, -1).ravel()
    found = privacy.release(np.tile(y, times), all_ids, **budget)
    exact = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    variance = found.bags.noise_variance[: len(exact)]
    proportions = found.bags.proportion.reshape(times, len(exact))
    return exact, [replace(exact, proportion=one, noise_variance=variance) for one in proportions]


def near(values, expected):
    """Whether the mean of values (draws, …) is within 5 standard errors of what is expected."""
    values = np.asarray(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return (np.abs(values.mean(axis=0) - expected) < 5 * error).all()


def test_gradients_are_unbiased(seed):
    """The loss is a parabola in each weight: half its difference at w ± 1 is the derivative."""
    X, y, ids = problem(640, 16, seed)
    exact, noised = releases(y, ids, 200, epsilon=0.5)
    X, w = X[exact.order], np.array([0.1, -0.2, 0.3])

    def loss(bags, weights):
        h, p = X @ weights + 0.1, (bags.size * bags.proportion).sum() / bags.n_bagged
        return debiased_square(h, bags, prior=p, mean=h.mean()).mean()

    def gradient(bags):
        return np.array([(loss(bags, w + step) - loss(bags, w - step)) / 2 for step in np.eye(3)])

    gradients = np.array([gradient(bags) for bags in noised])
    assert near(gradients, gradient(exact))
    assert gradients.std(axis=0).min() > 0.05  # noise that can be seen
    # With p known, the loss itself is too high by s²/k, which evaluation subtracts.
    p = y[ids >= 0].mean()
    h = X @ w + 0.1
    values = [debiased_square(h, bags, prior=p, mean=h.mean()).mean() - bags.noise_per_row.mean() for bags in noised]
    assert near(values, debiased_square(h, exact, prior=p, mean=h.mean()).mean())


def test_fits_are_unbiased(seed):
    """Ridge with a fixed penalty is linear in the counts, with so many bags that held-out ones choose a sigmoid and
    shrink no weights. Counts of 1.6 in the mean, often below 0 by now: a fit that clipped them would raise the
    intercept."""
    X, y, ids = problem(16 * ENOUGH_BAGS, 16, seed)
    exact, noised = releases(y, ids, 16, epsilon=0.5)
    assert np.mean([(bags.proportion < 0).mean() for bags in noised]) > 0.1

    def fitted(bags):
        model = bw.BagRidgeClassifier(formation="random", alphas=0.1, scaling=0.0).fit(X, bags=bags)
        return np.append(model.coef_, model.intercept_)

    assert near([fitted(bags) for bags in noised], fitted(exact))
    clipped = [fitted(replace(bags, proportion=np.clip(bags.proportion, 0, 1))) for bags in noised]
    assert not near(clipped, fitted(exact))


def test_choice_of_the_penalty_knows_of_the_noise():
    X, y, ids = problem()
    bags = bw.release(y, ids, epsilon=0.5).bags
    noised = bw.BagRidgeClassifier(random_state=0).fit(X, bags=bags)
    clipped = np.clip(bags.proportion, 0, 1)
    assert (clipped != bags.proportion).any()
    undeclared = bw.BagRidgeRegressor(random_state=0).fit(X, bags=replace(bags, noise_variance=None))
    np.testing.assert_allclose(noised.risks_, undeclared.risks_ - bags.noise_variance[0] / 16, atol=1e-12)


def test_intervals_keep_their_coverage(seed):
    """Accuracy, Brier score and risk of a fixed model, over random bags and noise; the truth is known here."""
    rng = np.random.default_rng([seed, 5])
    n, trials = 1600, 60
    h = rng.uniform(0.05, 0.6, n)
    y = (rng.random(n) < h).astype(float)
    truth = {"accuracy": ((h > 0.5) == y).mean(), "brier": ((h - y) ** 2).mean(), "risk": ((h - y) ** 2).mean()}
    ids = np.stack([bw.random_bags(n, 16, rng) + 100 * t for t in range(trials)])
    drawn = privacy.release(np.tile(y, trials), ids.ravel(), epsilon=1.0).bags
    found = {name: [] for name in truth}
    for t in range(trials):
        proportion = drawn.proportion[ids[t]]
        bags = bw.Bags.from_rows(proportion, ids[t], noise_variance=drawn.noise_variance[0])
        # As they come: noise is drawn anew in each run, and one table in a thousand passes for not random by chance.
        result = measure(h, bags, formation="random")
        for name, estimate in (
            ("accuracy", result.accuracy),
            ("brier", result.brier),
            ("risk", evaluation.risk(h, bags)),
        ):
            found[name].append(estimate)
    for name, estimates in found.items():
        assert near([estimate.value for estimate in estimates], truth[name])
        covered = sum(estimate.low <= truth[name] <= estimate.high for estimate in estimates)
        assert binomtest(covered, trials, 0.95, alternative="less").pvalue > 1e-6


# -- leaks --------------------------------------------------------------------------------------------------------


def test_diagnose_tells_what_aggregation_leaks():
    X = np.arange(60.0)[:, None]
    ids = np.repeat([0, 1, 2], 20)
    y = np.concatenate([np.ones(20), np.eye(20)[0], np.tile([0.0, 1], 10)])
    found = bw.diagnose(X, bw.aggregate(y, ids), bags=ids)
    told = found.leaks
    assert (told.pure_bags, told.revealed_rows, told.nearly_certain_rows) == (1, 20, 20)
    assert told.certainty == (0.5, 0.5, 0.95, 1.0, 1.0)
    assert (told.exposed_rows, told.noised_rows) == (60, 0)
    assert "reports without noise are no differential privacy" in str(found)
    noised = bw.diagnose(X, bags=bw.release(y, ids, epsilon=1.0).bags)
    assert (noised.leaks.revealed_rows, noised.leaks.certainty, noised.leaks.exposed_rows) == (0, None, 0)
    assert "no differential privacy" not in str(noised)
    assert "a factor of exp(ε) at most" in str(noised)
    some = bw.diagnose(X, bw.aggregate(y, ids), bags=ids, noise_variance=np.where(ids == 0, 2.0, 0.0))
    assert (some.leaks.revealed_rows, some.leaks.exposed_rows, some.leaks.noised_rows) == (0, 40, 20)
    assert "reports of 40 rows without noise" in str(some)


def test_hidden_counts_are_not_taken_for_noised_ones():
    X, ids = np.arange(60.0)[:, None], np.repeat([0, 1, 2], 20)
    bags = bw.Bags.from_rows(np.repeat([0.0, 0.25, 1.0], 20), ids)
    hidden = bags.with_intervals(low=[0, 5, 20], high=[4, 5, 20])
    joined = bw.tables.join({"bag": ids, "x": X[:, 0]}, {"bag": [0, 1, 2], "count": ["<5", "5", "20"]})
    for found in (bw.diagnose(X, bags=hidden).leaks, bw.tables.diagnose(joined).leaks):
        assert (found.hidden_rows, found.noised_rows, found.exposed_rows, found.revealed_rows) == (20, 0, 40, 20)
        assert "counts of 20 rows are hidden, rounded or clamped, which is no differential privacy" in str(found)
        assert "noise" not in str(found)
    noised = bw.Bags.from_rows(np.repeat([0.0, 0.25, 1.0], 20), ids, noise_variance=4.0)
    both = bw.diagnose(X, bags=noised.with_intervals(low=[0, 5, 20], high=[4, 5, 20])).leaks
    assert (both.hidden_rows, both.noised_rows) == (0, 60)


def test_leaks_of_classes_and_of_real_labels():
    ids = np.repeat([0, 1], 20)
    labels = np.concatenate([np.zeros(20), np.arange(20) % 3]).astype(int)
    found = bw.diagnose(np.arange(40.0)[:, None], bw.aggregate(np.eye(3)[labels], ids), bags=ids).leaks
    assert (found.pure_bags, found.revealed_rows, found.certainty[0]) == (1, 20, 0.35)
    real = bw.diagnose(np.arange(40.0)[:, None], bw.aggregate(np.append(np.ones(20), [7.0] * 20), ids), bags=ids).leaks
    assert (real.pure_bags, real.revealed_rows, real.certainty) == (0, 0, None)


# -- tables -------------------------------------------------------------------------------------------------------


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """4,800 rows whose labels depend on two columns; the other two have names that reports use, too."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 80, 4800), "device": rng.choice(["phone", "radio"], 4800)})
    frame["delta"], frame["threshold"] = rng.normal(size=(2, 4800))
    p = 0.05 + 0.3 * (frame["device"] == "phone") + 0.2 * (frame["age"] > 50)
    frame["y"] = (rng.random(4800) < p).astype(int)
    path = tmp_path_factory.mktemp("labelled") / "in.parquet"
    frame.to_parquet(path)
    return path


def test_noise_flows_from_bag_to_fit_and_evaluate(labelled, tmp_path):
    made = call("bag", labelled, "--label", "y", "--size", 8, "--epsilon", 1, "--out", tmp_path)
    assert made.exit_code == 0, made.output
    assert "ε = 1 between data sets that differ in the label of one row" in made.stdout
    paths = tmp_path / "events.parquet", tmp_path / "reports.parquet"
    reports = pd.read_parquet(paths[1])
    assert list(reports) == ["bag", "size", "count", "suppressed", "noise_variance", "epsilon", "mechanism"]
    assert not reports["count"].between(0, reports["size"]).all()
    assert set(reports["noise_variance"]) == {privacy.noise_variance(1.0)}
    told = json.loads(call("diagnose", *paths, "--json").stdout)
    assert told["tables"]["noised"]
    assert told["leaks"]["noised_rows"] == 4800
    dealt = ("--formation", "random")  # one release in a thousand passes for not random by chance
    assert call("fit", *paths, "--model", "ridge", *dealt, "--out", tmp_path / "model").exit_code == 0
    found = json.loads(call("evaluate", tmp_path / "model", "--json").stdout)
    scored = tmp_path / "scored.parquet"
    assert call("predict", tmp_path / "model", labelled, "--out", scored).exit_code == 0
    frame = pd.read_parquet(scored)
    for name, truth in (
        ("accuracy", ((frame["prediction"] > 0.5) == frame["y"]).mean()),
        ("brier", ((frame["prediction"] - frame["y"]) ** 2).mean()),
    ):
        error = (found[name]["high"] - found[name]["low"]) / 2 / stats.norm.ppf(0.975)
        assert abs(found[name]["value"] - truth) < 5 * error
    # On the tables of another release, too.
    again = tmp_path / "again"
    noise = ("--epsilon", 1, "--delta", 1e-3)
    told = call("bag", labelled, "--label", "y", "--size", 8, *noise, "--out", again)
    assert told.exit_code == 1
    assert "it would be ε = 2, δ = 0.001 in all: to spend that, say so (--force-budget)" in told.stderr
    made = call("bag", labelled, "--label", "y", "--size", 8, *noise, "--out", again, "--force-budget")
    assert made.exit_code == 0, made.output
    result = call("evaluate", tmp_path / "model", again / "events.parquet", again / "reports.parquet", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["n_bags"] == 600


def test_no_seed_undoes_the_shuffling_of_noised_reports(tmp_path):
    """In a table sorted by its labels the order tells them, and the order of the events was that of a seed."""
    frame = pd.DataFrame({"x": np.arange(400) * 7919 % 400, "y": np.arange(400) // 200})

    def order(folder):
        return pd.read_parquet(folder / "events.parquet")["x"].tolist()

    given = {"label": "y", "size": 8}
    tables.put_in_bags(frame, tmp_path / "seeded", **given, random_state=17)
    seeds = [
        tables.put_in_bags(frame, tmp_path / str(seed), **given, random_state=seed).events.parent for seed in (16, 17)
    ]
    assert [order(place) == order(tmp_path / "seeded") for place in seeds] == [False, True]  # as it was found out
    with pytest.raises(ValueError, match="random_state does not go with epsilon"):
        tables.put_in_bags(frame, tmp_path / "refused", **given, epsilon=1.0, random_state=17)
    assert not (tmp_path / "refused").exists()
    given |= {"epsilon": 1.0, "force_budget": True}
    noised = [tables.put_in_bags(frame, tmp_path / name, **given).events.parent for name in "ab"]
    assert order(noised[0]) != order(noised[1])  # a secret each time
    frame.to_parquet(tmp_path / "in.parquet")
    place = ("bag", tmp_path / "in.parquet", "--label", "y", "--size", 8, "--out", tmp_path / "refused")
    refused = call(*place, "--epsilon", 1, "--seed", 17)
    assert refused.exit_code == 2
    assert "--seed does not go with --epsilon" in refused.stderr
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("name", ["bagwise_order", "bagwise_row", "bagwise_place", "bagwise_rows", "Bagwise_Order"])
def test_reserved_names_are_refused(tmp_path, name):
    """A column of such a name was dropped, and bags by bagwise_order were single rows, whose reports are labels."""
    frame = pd.DataFrame({"x": range(40), name: np.arange(40) % 4, "y": np.arange(40) % 2})
    for options in ({"size": 4}, {"by": [name], "min_size": 1}):
        with pytest.raises(ValueError, match=f"column '{name}' has a name that bagwise uses itself: rename it first"):
            tables.put_in_bags(frame, tmp_path / "out", label="y", **options)
    assert not (tmp_path / "out").exists()


def test_columns_of_the_reports_are_no_keys(tmp_path):
    frame = pd.DataFrame({"count_a": np.arange(40) % 4, "y": np.tile(["a", "b", "c", "a"], 10)})
    with pytest.raises(ValueError, match="column 'count_a' has the name of a column of the reports: rename it first"):
        tables.put_in_bags(frame, tmp_path / "out", label="y", by=["count_a"])
    with pytest.raises(ValueError, match="random_state must be a whole number"):  # its text would be a secret to none
        tables.put_in_bags(frame, tmp_path / "out", label="y", size=8, random_state=np.random.RandomState(1))
    assert not (tmp_path / "out").exists()


def test_no_file_holds_labels_or_exact_counts(tmp_path, monkeypatch):
    """Two counts that noise of ε = 0.01 hardly leaves as they are; as the least and the largest they stand in the
    statistics of a Parquet file, in bytes that a search finds."""
    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spare))
    counts = {"a": 70_001, "b": 80_003, "c": 3}
    secret = "zx-label-q7"
    frame = pd.concat(
        [
            pd.DataFrame({"group": name, "outcome": [secret] * n + ["other"] * (90_000 - n if n > 9 else 1)})
            for name, n in counts.items()
        ]
    )
    frame["x"] = np.arange(len(frame)) % 7
    exact = {name: struct.pack("<q", n) for name, n in counts.items()}

    def written(folder, **options):
        given = {"label": "outcome", "positive": secret, "by": ["group"], "min_size": 10}
        tables.put_in_bags(frame, tmp_path / folder, **given, **options)
        gc.collect()
        files = [path for path in (*(tmp_path / folder).rglob("*"), *spare.rglob("*")) if path.is_file()]
        ledger = ["ledger.json"] if "epsilon" in options else []
        assert sorted(path.name for path in files) == ["events.parquet", *ledger, "reports.parquet"]
        return b"".join(path.read_bytes() for path in files)

    plain = written("plain")
    assert all(exact[name] in plain for name in "ab")  # so a search would find them
    private = written("private", epsilon=0.01)
    reports = pd.read_parquet(tmp_path / "private/reports.parquet").set_index("group")
    assert struct.pack("<q", int(reports.loc["a", "count"])) in private
    for name in "ab":
        # The noise is 0 in one of 200 cases: then the exact count is what was released.
        assert exact[name] not in private or reports.loc[name, "count"] == counts[name]
    assert abs(reports.loc["a", "count"] - counts["a"]) < 50 * np.sqrt(privacy.noise_variance(0.01))
    assert pd.isna(reports.loc["c", "count"])
    assert reports.loc["c", "suppressed"]
    assert secret.encode() not in private
    assert b"outcome" not in private


def test_classes_must_be_named_where_noise_is_asked_for(labelled, tmp_path):
    """Which labels occur is itself something about labels: a class with one row would appear or not."""
    frame = pd.read_parquet(labelled).assign(kind=lambda rows: rows["age"] % 3)
    with pytest.raises(ValueError, match="name the classes"):
        tables.put_in_bags(frame, tmp_path, label="kind", size=8, epsilon=1.0)
    with pytest.raises(ValueError, match="'2', which is not among the classes"):
        tables.put_in_bags(frame, tmp_path, label="kind", size=8, epsilon=1.0, classes=["0", "1"])
    with pytest.raises(ValueError, match="two labels or more"):
        tables.put_in_bags(frame, tmp_path, label="kind", size=8, epsilon=1.0, classes=["0", "0"])
    held = tables.put_in_bags(frame, tmp_path, label="kind", size=8, epsilon=1.0, classes=["0", "1", "2", "9"])
    assert held.classes == ("0", "1", "2", "9")
    assert held.budget.sensitivity == 2
    data = tables.join(held.events, held.reports, count=["count_0", "count_1", "count_2", "count_9"])
    variance = data.bags.fetch().column("bag_noise_variance").to_numpy()
    np.testing.assert_allclose(variance, privacy.noise_variance(1.0, counts=4), rtol=1e-12)  # not 2/ε²
    assert pd.read_parquet(held.reports)["count_9"].ne(0).any()
    one = tables.put_in_bags(frame.assign(y=0), tmp_path / "one", label="y", size=8, epsilon=1.0)
    assert pd.read_parquet(one.reports)["count"].ne(0).any()


@pytest.mark.filterwarnings("ignore:fetch_arrow_table")  # Ibis calls this by a name that DuckDB gives up
def test_thresholds_of_tables(labelled, tmp_path):
    with pytest.warns(privacy.SelectedBagsWarning, match="a noised count is below the threshold 1") as caught:
        held = tables.put_in_bags(labelled, tmp_path, label="y", size=8, epsilon=1.0, threshold=1)
    (told,) = [one for one in caught if one.category is privacy.SelectedBagsWarning]
    assert told.filename == __file__
    reports = pd.read_parquet(held.reports)
    assert reports["count"].isna().sum() == reports["suppressed"].sum() == held.withheld > 0
    assert reports["count"].min() == 1
    assert set(reports["threshold"]) == {1}
    assert "report less than the threshold" in str(held)
    data = tables.join(held.events, held.reports)
    assert data.summary.bags == held.bags == 600 - held.withheld
    assert data.keys == ("bag",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--epsilon", 0], "epsilon must be a finite number above 0"),
        (["--epsilon", "nan"], "epsilon must be a finite number above 0"),
        (["--epsilon", 1, "--delta", 2], "delta must be a number between 0 and 1"),
        (["--delta", 1e-6], "--delta belongs to noised counts: give --epsilon, too"),
        (["--threshold", 3], "--threshold belongs to noised counts: give --epsilon, too"),
        (["--epsilon", 1, "--threshold", 1000], "every noised count is below the threshold 1000"),
        (["--epsilon", 1, "--min-size", 1000], "every bag has fewer than 1000 rows"),
        (["--epsilon", 1, "--by", "delta"], "column 'delta' has the name of a column of the reports"),
    ],
)
def test_wrong_requests(labelled, tmp_path, options, words):
    result = call("bag", labelled, "--label", "y", "--size", 8, *options, "--out", tmp_path)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert words in line
    assert not list(tmp_path.iterdir())


def test_counts_outside_go_through_the_engine_and_shards(tmp_path):
    """What the tables hand on is what was released: nothing is clipped on the way."""
    n = 12 * ENOUGH_BAGS  # with fewer bags, held-out ones shrink the weights, which moments cannot
    X, y, ids = problem(n, 12)
    frame = pd.DataFrame(X, columns=list("abc")).assign(bag=ids)
    found = bw.release(y, ids, epsilon=0.3)
    assert (found.reports["count"] < 0).any()
    data = tables.join(frame, found.reports)
    lines = data.bags.fetch().to_pandas().sort_values("bag")
    np.testing.assert_array_equal(lines["bag_proportion"], found.bags.proportion)
    np.testing.assert_array_equal(lines["bag_noise_variance"], found.bags.noise_variance)
    model = tables.fit(data, "ridge").estimator
    fixed = bw.BagRidgeClassifier(alphas=model.alpha_, scaling=model.scaling_).fit(X, bags=found.bags)
    np.testing.assert_allclose(model.coef_, fixed.coef_, atol=1e-7 * np.abs(fixed.coef_).max())
    assert model.intercept_ == pytest.approx(found.reports["count"].sum() / n)  # columns are centred there: p
    shards = write_shards(data, features_of(data), tmp_path / "shards")
    assert sorted(shards.proportion) == sorted(found.bags.proportion)
    np.testing.assert_array_equal(shards.bags.noise_variance, found.bags.noise_variance)
    assert tables.diagnose(data).leaks.noised_rows == n
