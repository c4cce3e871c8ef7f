import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, log_softmax, softmax

import bagwise as bw
from bagwise.bags import Bags
from bagwise.bags.expectation_propagation import Ends, Sites, propagate
from bagwise.bags.intervals import Intervals
from bagwise.log_odds import prior_of_classes, shift_to_class_reports
from bagwise.losses import posterior
from bagwise.losses.tilting_classes import tilted_classes
from bagwise.losses.tilting_intervals import tilted


def drawn(rng, m, k, spread, centre=(0.0, 0.0, 0.0)):
    """Scores, ids and counts of three classes."""
    s = rng.normal(0, spread, size=(m * k, 3)) + np.array(centre)
    ids = np.repeat(np.arange(m), k)
    y = (softmax(s, axis=1).cumsum(axis=1) < rng.random((m * k, 1))).sum(axis=1)
    return s, ids, np.stack([np.bincount(ids[y == c], minlength=m) for c in range(3)], axis=1).astype(float)


HIDDEN = {
    "below 5": lambda c: (np.where(c < 5, 0, c), np.where(c < 5, 4, c)),
    "1 to 9": lambda c: (np.where((c > 0) & (c < 10), 1, c), np.where((c > 0) & (c < 10), 9, c)),
    "rounded to 5": lambda c: (np.maximum(5 * np.rint(c / 5) - 2, 0), 5 * np.rint(c / 5) + 2),
}


def within(counts, ids, how):
    return Bags.from_rows(np.zeros((len(ids), counts.shape[1])), ids).with_intervals(*HIDDEN[how](counts))


def all_counts(h):
    """(k + 1, k + 1) probabilities of the counts of the first two of three classes."""
    found = np.zeros((len(h) + 1, len(h) + 1))
    found[0, 0] = 1
    for row in h:
        moved = row[2] * found
        moved[1:] += row[0] * found[:-1]
        moved[:, 1:] += row[1] * found[:, :-1]
        found = moved
    return found


@pytest.mark.parametrize("how", HIDDEN)
@pytest.mark.parametrize(("k", "spread", "centre"), [(8, 2.0, (0, 0, 0)), (24, 1.0, (1, 0, -1)), (60, 0.5, (2, 0, -2))])
def test_likelihood_is_the_sum_over_the_counts_allowed(how, k, spread, centre):
    s, ids, counts = drawn(np.random.default_rng(0), 24, k, spread, centre)
    bags = within(counts, ids, how)
    found, h = tilted_classes(s, bags), softmax(s, axis=1)
    count = np.array(np.meshgrid(np.arange(k + 1), np.arange(k + 1), indexing="ij"))
    count = np.stack([*count, k - count.sum(axis=0)], axis=-1)
    errors, off = [], []
    for j in np.flatnonzero(bags.interval.open):
        chance = all_counts(h[ids == j])
        allowed = ((count >= bags.interval.low[j]) & (count <= bags.interval.high[j])).all(axis=-1)
        errors.append(found.log_likelihood[j] - np.log(chance[allowed].sum()))
        expected = (chance[allowed, None] * count[allowed]).sum(axis=0) / chance[allowed].sum()
        off.append(found.posterior[ids == j].sum(axis=0) - expected)
    # The next terms of the series of small counts are left out; with none at all errors are about 1.
    assert np.abs(np.mean(errors)) < 0.12
    assert np.abs(errors).max() < 0.4
    assert np.abs(off).max() < 0.25


def test_gradient_by_differences():
    rng = np.random.default_rng(1)
    s, ids, counts = drawn(rng, 40, 30, 1.0, (1, 0, -1))
    bags, along, step = within(counts, ids, "rounded to 5"), rng.normal(size=3) + rng.normal(size=(1200, 3)), 1e-4
    ahead, behind = (tilted_classes(s + sign * step * along, bags).log_likelihood for sign in (1, -1))
    found = bags.sum((tilted_classes(s, bags).gradient * along).sum(axis=1))
    numeric = (ahead - behind) / (2 * step)
    assert np.std(found - numeric) < 0.01 * np.std(numeric)


def test_intervals_of_one_count_are_those_counts():
    s, ids, counts = drawn(np.random.default_rng(2), 10, 12, 1.0)
    exact = Bags.from_rows((counts / 12)[ids], ids)
    bags = exact.with_intervals(counts, counts)
    assert bags.interval is None
    for name in ("log_likelihood", "gradient", "posterior"):
        np.testing.assert_array_equal(getattr(tilted_classes(s, bags), name), getattr(tilted_classes(s, exact), name))


def test_a_class_of_which_nothing_is_shown_is_known_by_the_others():
    s, ids, counts = drawn(np.random.default_rng(2), 10, 12, 1.0)
    low, high = counts.copy(), counts.copy()
    low[:, 1], high[:, 1] = 0, 12
    bags = Bags.from_rows(np.zeros((120, 3)), ids).with_intervals(low, high)
    np.testing.assert_allclose(bags.size[:, None] * bags.proportion, counts)
    exact = tilted_classes(s, Bags.from_rows((counts / 12)[ids], ids))
    np.testing.assert_allclose(tilted_classes(s, bags).log_likelihood, exact.log_likelihood)


@pytest.mark.parametrize("noise", [0.0, 4.0])
def test_two_classes_are_labels_0_and_1(noise):
    rng = np.random.default_rng(3)
    s, ids = rng.normal(-1, 1, size=600), np.repeat(np.arange(20), 30)
    count = np.bincount(ids[rng.random(600) < expit(s)], minlength=20).astype(float)
    low, high = np.where(count < 8, 0, count), np.where(count < 8, 7, count)
    if noise:  # of two noised counts each says as much, and both half the variance of one
        told = np.stack([30 - count, count], axis=1) + rng.normal(0, 2, size=(20, 2))
        two = Bags.from_rows((told / 30)[ids], ids, noise_variance=noise)
        one = Bags.from_rows(((told[:, 1] + 30 - told[:, 0]) / 60)[ids], ids, noise_variance=noise / 2)
    else:
        one = Bags.from_rows(np.zeros(600), ids).with_intervals(low, high)
        two = Bags.from_rows(np.zeros((600, 2)), ids)
        two = two.with_intervals(np.stack([30 - high, low], axis=1), np.stack([30 - low, high], axis=1))
        np.testing.assert_allclose(two.proportion[:, 1], one.proportion)
        np.testing.assert_allclose(two.noise_variance, one.noise_variance)
    found, binary = tilted_classes(np.stack([0 * s, s], axis=1), two), tilted(s, one)
    beyond = stats.norm.logpdf((told.sum(axis=1) - 30) / np.sqrt(2 * noise)) - np.log(2 * noise) / 2 if noise else 0.0
    np.testing.assert_allclose(found.log_likelihood, binary.log_likelihood + beyond)
    np.testing.assert_allclose(found.gradient, np.stack([-binary.gradient, binary.gradient], axis=1), atol=1e-9)
    np.testing.assert_allclose(found.posterior[:, 1], binary.posterior, atol=1e-9)


def test_what_is_allowed_adds_up_to_everything():
    s, ids, _ = drawn(np.random.default_rng(4), 6, 20, 1.0)
    anything = Bags.from_rows(np.zeros((120, 3)), ids).with_intervals(0, 20)
    found = tilted_classes(s, anything)
    np.testing.assert_allclose(found.log_likelihood, 0, atol=1e-6)
    np.testing.assert_allclose(found.posterior, softmax(s, axis=1), atol=1e-6)


def test_classes_of_which_nothing_is_shown_are_as_one():
    s, ids, _ = drawn(np.random.default_rng(4), 6, 60, 1.0)
    low, high = np.zeros((6, 3)), np.full((6, 3), 60.0)
    low[:, 2] = high[:, 2] = [15, 18, 21, 24, 30, 36]
    bags, log_h = Bags.from_rows(np.zeros((360, 3)), ids).with_intervals(low, high), log_softmax(s, axis=1)
    merged = log_h[:, 2] - np.logaddexp(log_h[:, 0], log_h[:, 1])
    one = tilted(merged, Bags.from_rows(np.repeat(low[:, 2] / 60, 60), ids), exact_up_to=0)
    found = tilted_classes(s, bags)
    np.testing.assert_allclose(found.posterior[:, 2], one.posterior, atol=1e-6)
    np.testing.assert_allclose(found.gradient[:, 2], one.gradient, atol=2e-3)
    np.testing.assert_allclose(found.log_likelihood, one.log_likelihood, atol=0.02)


def test_noised_counts_between_ends():
    rng = np.random.default_rng(5)
    s, ids, counts = drawn(rng, 8, 40, 1.0)
    told = counts + rng.normal(0, 3, size=counts.shape)
    noised = Bags.from_rows((told / 40)[ids], ids, noise_variance=9.0)
    almost = tilted_classes(s, noised.with_intervals(told - 1e-3, told + 1e-3))
    exact = tilted_classes(s, noised)
    np.testing.assert_allclose(almost.log_likelihood, exact.log_likelihood + 3 * np.log(2e-3), atol=0.02)
    np.testing.assert_allclose(almost.posterior, exact.posterior, atol=1e-3)
    clamped = tilted_classes(
        s, noised.with_intervals(np.where(told < 10, -np.inf, told), np.where(told < 10, 10, told))
    )
    assert np.isfinite(clamped.log_likelihood).all()


def test_moments_of_two_intervals_by_draws():
    rng = np.random.default_rng(6)
    mean, root = np.array([6.0, 5.0, 9.0]), rng.normal(size=(3, 3)) + 2 * np.eye(3)
    interval = Intervals(np.array([[0.0, 6.0, -5.0]]), np.array([[5.0, 9.0, 30.0]]), np.ones(1))
    found = propagate(mean[None], (root @ root.T)[None], (ends := Ends.of(interval, np.array([20]))), Sites.none(ends))
    z = mean + rng.normal(size=(400_000, 3)) @ root.T
    kept = z[((z >= interval.low) & (z <= interval.high)).all(axis=1)]
    error = kept.std(axis=0) / np.sqrt(len(kept))
    assert (np.abs(found.mean[0] - kept.mean(axis=0)) < 5 * error + 0.02).all()


def test_rows_that_are_sure_of_what_cannot_be_stay_finite():
    rng = np.random.default_rng(7)
    s, ids, counts = drawn(rng, 40, 20, 1.0)
    bags = within(counts, ids, "1 to 9")
    found = tilted_classes(60 * rng.normal(size=s.shape), bags)
    assert np.isfinite(found.log_likelihood).all()
    assert (found.log_likelihood < 1).all()
    sums = bags.sum(found.posterior)
    assert (sums >= bags.interval.low - 1e-5).all()
    assert (sums <= bags.interval.high + 1e-5).all()


def test_what_was_found_close_by_is_a_start_and_no_more():
    rng = np.random.default_rng(8)
    s, ids, counts = drawn(rng, 30, 20, 1.0)
    bags = within(counts, ids, "1 to 9")
    near = tilted_classes(s + 0.1 * rng.normal(size=s.shape), bags)
    for name in ("log_likelihood", "gradient"):
        again, anew = (getattr(tilted_classes(s, bags, start=one), name) for one in (near, None))
        np.testing.assert_allclose(again, anew, atol=1e-4)


def test_posteriors_lie_between_the_ends():
    s, ids, counts = drawn(np.random.default_rng(9), 30, 24, 2.0, (1, 0, -1))
    for how in HIDDEN:
        bags = within(counts, ids, how)
        sums = bags.sum(posterior(s, bags))
        assert (sums >= bags.interval.low - 1e-5).all()
        assert (sums <= bags.interval.high + 1e-5).all()
        np.testing.assert_allclose(sums.sum(axis=1), 24)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        ([[5, 5, 5]], [[9, 9, 9]], "add up to 15 or more"),
        ([[0, 0, 0]], [[3, 3, 3]], "add up to 9 or fewer"),
        ([[0, 4, 0]], [[9, 3, 9]], "of class 1 from 4 to 3"),
        ([[0, 13, 0]], [[9, 14, 9]], "of class 1 from 13 to 14"),
        ([0, 0, 0], [[9, 9, 9]], r"low must be a number or have shape \(1, 3\)"),
    ],
)
def test_counts_that_cannot_be_are_named(low, high, words):
    bags = Bags.from_rows(np.zeros((12, 3)), np.zeros(12, dtype=int))
    with pytest.raises(ValueError, match=words):
        bags.with_intervals(low, high)


def test_labels_of_rows_move_the_intervals():
    bags = Bags.from_rows(np.zeros((6, 3)), [0] * 6).with_intervals([[1, 0, 2]], [[3, 3, 4]])
    left = bags.with_labels([0, np.nan, np.nan, 2, np.nan, np.nan])
    np.testing.assert_array_equal(left.interval.low[0], [0, 0, 1])
    np.testing.assert_array_equal(left.interval.high[0], [2, 3, 3])
    np.testing.assert_array_equal(left.interval.low[1:], [[1, 0, 0], [0, 0, 1]])


@pytest.mark.parametrize("how", HIDDEN)
def test_counts_in_place_of_intervals_say_as_much(how):
    """They add up to the bag, are off by about as much as they say, and, so weighed, tell p."""
    rng = np.random.default_rng(10)
    counts = rng.multinomial(40, [0.75, 0.15, 0.1], size=4000).astype(float)
    bags = within(counts, np.repeat(np.arange(4000), 40), how)
    told, hidden = bags.size[:, None] * bags.proportion, bags.interval.open
    np.testing.assert_allclose(told.sum(axis=1), 40)
    np.testing.assert_allclose(told[~hidden], counts[~hidden])
    np.testing.assert_allclose(((told - counts)[hidden] ** 2).mean(), bags.noise_variance[hidden].mean(), rtol=0.25)
    off = prior_of_classes(bags) - counts.sum(axis=0) / counts.sum()
    # By chance 0.0005, the standard error of what is hidden; whole counts are taken for numbers.
    assert np.abs(off).max() < 0.003


def test_shifts_follow_what_is_expected_of_hidden_counts():
    s, ids, counts = drawn(np.random.default_rng(11), 60, 30, 1.0, (2, 0, -2))
    bags = within(counts, ids, "1 to 9")
    shift = shift_to_class_reports(prior_of_classes(bags), s, bags)
    h = softmax(s + shift, axis=1)
    np.testing.assert_allclose(h.mean(axis=0), tilted_classes(s + shift, bags).posterior.mean(axis=0), atol=1e-3)


def hidden_register(rng, m=150, k=40):
    """Bags that differ in their features; the third class is rare."""
    weights, base = np.array([[1.0, 0, 0], [-0.5, 1, 0], [-0.5, -1, 0]]), np.array([1.5, 0.0, -1.0])
    ids = np.repeat(np.arange(m), k)
    X = rng.normal(size=(m * k, 3)) + 0.5 * rng.normal(size=(m, 3))[ids]
    h = softmax(X @ weights.T + base, axis=1)
    y = (h.cumsum(axis=1) < rng.random((m * k, 1))).sum(axis=1)
    return X, y, ids, np.stack([np.bincount(ids[y == c], minlength=m) for c in range(3)], axis=1).astype(float), weights


@pytest.mark.parametrize("how", ["1 to 9", pytest.param("rounded to 5", marks=pytest.mark.slow)])
def test_weights_are_learned_without_bias(how):
    """Over registers, the mean of weights is the truth, within 5 of its standard errors and what a penalty takes."""
    found = []
    for seed in range(5):
        X, _, ids, counts, truth = hidden_register(np.random.default_rng(seed), m=80)
        model = bw.BagLogisticClassifier(alphas=0.01, cv=2).fit(X, bags=within(counts, ids, how))
        found.append(model.coef_ - model.coef_.mean(axis=0))
    off, error = np.mean(found, axis=0) - truth, np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(off) < 5 * error + 0.01).all()


@pytest.mark.parametrize("estimator", ["BagRidgeClassifier", "BagBoostingClassifier", "BagSGDClassifier"])
def test_others_learn_from_hidden_counts_too(estimator):
    X, y, ids, counts, _ = hidden_register(np.random.default_rng(0))
    options = {"n_estimators": 15, "n_jobs": 1} if "Boosting" in estimator else {}
    bags = within(counts, ids, "1 to 9")
    known = counts.copy()
    known[(counts > 0) & (counts < 10)] = 5  # what one might put
    naive = Bags.from_rows((known / known.sum(axis=1, keepdims=True))[ids], ids, noise_variance=1.0)

    def brier(given):
        h = getattr(bw, estimator)(random_state=0, **options).fit(X, bags=given).predict_proba(X)
        return ((h - np.eye(3)[y]) ** 2).sum(axis=1).mean()

    constant = 1 - (np.bincount(y) / len(y)) @ (np.bincount(y) / len(y))
    assert brier(bags) < min(brier(naive) + 0.005, 0.8 * constant)


@pytest.mark.filterwarnings("ignore::bagwise.evaluation.measures.BagsNotRandomWarning")
def test_evaluation_and_bounds_know_of_hidden_classes():
    X, y, ids, counts, weights = hidden_register(np.random.default_rng(1), m=100)
    h = softmax(X @ weights.T + [1.5, 0, -1], axis=1)
    exact = bw.evaluate(h, X, bags=Bags.from_rows((counts / 40)[ids], ids))
    found = bw.evaluate(h, X, bags=within(counts, ids, "1 to 9"))
    right = (h.argmax(axis=1) == y).mean()
    least, most = (
        tuple(getattr(one.bags, f"{end}_accuracy").value for one in (found, exact)) for end in ("least", "most")
    )
    assert least[0] <= least[1] <= right <= most[1] <= most[0]
    assert 0 < found.bags.gain.value < exact.bags.gain.value + 0.5


def test_whole_weights_are_rows_repeated():
    rng = np.random.default_rng(12)
    s, ids, weight = rng.normal(size=(90, 3)), np.repeat(np.arange(10), 9), rng.integers(1, 5, size=90)
    rows = np.repeat(np.arange(90), weight)
    y = (s[rows] + rng.gumbel(size=(len(rows), 3))).argmax(axis=1)
    counts = np.stack([np.bincount(ids[rows][y == c], minlength=10) for c in range(3)], axis=1).astype(float)
    weighted = Bags.from_rows(np.zeros((90, 3)), ids).with_weights(weight)
    repeated = Bags.from_rows(np.zeros((len(rows), 3)), ids[rows])
    one, other = (bags.with_intervals(*HIDDEN["1 to 9"](counts)) for bags in (weighted, repeated))
    np.testing.assert_allclose(one.proportion, other.proportion)
    found, known = tilted_classes(s[one.order], one), tilted_classes(s[rows][other.order], other)
    np.testing.assert_allclose(found.log_likelihood, known.log_likelihood, atol=1e-5)
    np.testing.assert_allclose(one.sum(found.posterior), other.sum(known.posterior), atol=1e-4)
    with pytest.raises(ValueError, match="whole numbers where counts are hidden"):
        one.with_weights(weight + 0.5)
