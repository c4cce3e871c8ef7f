"""Reports of intervals: their likelihood against sums of exact convolutions, and what is learned from them."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from bagwise import BagBoostingClassifier, BagLogisticClassifier, BagRidgeClassifier, Bags, aggregate, losses
from bagwise.bags.intervals import Intervals
from bagwise.losses import tilting_intervals
from bagwise.losses.tilting_intervals import tilted

SIZES = (1, 2, 5, 12, 20, 40, 150)


def distribution(h):
    found = np.ones(1)
    for one in h:
        found = np.convolve(found, [1 - one, one])
    return found


def one_bag(k, low, high, **options):
    return Bags.from_rows(np.zeros(k), np.zeros(k), **options).with_intervals([low], [high])


def intervals(rng, k):
    """Of all widths, anywhere."""
    low = int(rng.integers(0, k))
    return low, int(min(low + rng.choice([1, 4, 9, k]), k))


@pytest.mark.parametrize("k", SIZES)
def test_likelihood_is_the_sum_over_the_counts_allowed(k):
    rng = np.random.default_rng(k)
    for _ in range(8):
        s = rng.normal(rng.normal(-1, 1), rng.uniform(0.2, 2), k)
        low, high = intervals(rng, k)
        truth = np.log(distribution(expit(s))[low : high + 1].sum())
        found = tilted(s, one_bag(k, low, high)).log_likelihood[0]
        assert abs(found - truth) < 1e-3 * max(1, abs(truth))


@pytest.mark.parametrize("k", [3, 12, 60])
def test_posterior_is_that_of_the_counts_allowed(k):
    rng = np.random.default_rng(k)
    s = rng.normal(-1, 1, k)
    low, high = intervals(rng, k)
    h = expit(s)
    rest = distribution(h[1:])
    # With the first row's label 1, the others add up to one less.
    truth = h[0] * rest[max(low - 1, 0) : high].sum() / distribution(h)[low : high + 1].sum()
    found = tilted(s, one_bag(k, low, high))
    assert found.posterior[0] == pytest.approx(truth, abs=1e-3)
    assert low - 1e-6 <= found.posterior.sum() <= high + 1e-6


@pytest.mark.parametrize("k", [2, 12, 60, 400])
def test_gradient_by_differences(k):
    rng = np.random.default_rng(k)
    s = rng.normal(-1, 1, k)
    bags = one_bag(k, *intervals(rng, k))
    found = tilted(s, bags).gradient
    for place in range(min(k, 3)):
        up, down = (tilted(s + d * (np.arange(k) == place), bags).log_likelihood[0] for d in (1e-4, -1e-4))
        assert (up - down) / 2e-4 == pytest.approx(found[place], abs=2e-3 * np.abs(found).max() + 1e-5)


def test_what_is_allowed_adds_up_to_everything():
    s = np.random.default_rng(0).normal(-1, 1, 90)
    parts = [tilted(s, one_bag(90, low, high)).log_likelihood[0] for low, high in ((0, 9), (10, 30), (31, 90))]
    assert np.exp(parts).sum() == pytest.approx(1, abs=1e-3)


def test_an_interval_of_one_count_is_that_count():
    s, known = np.random.default_rng(0).normal(size=30), Bags.from_rows(np.full(30, 0.4), np.zeros(30))
    same = one_bag(30, 12, 12)
    assert same.interval is None
    assert tilted(s, same).log_likelihood == tilted(s, known).log_likelihood


def test_noised_counts_that_are_clamped():
    """P(count + noise ≤ 0), noise normal: against a sum over counts."""
    s = np.random.default_rng(0).normal(-3, 1, 40)
    counts, chances = np.arange(41), distribution(expit(s))
    truth = np.log((chances * stats.norm.cdf(-counts / 2.0)).sum())
    found = tilted(s, one_bag(40, -np.inf, 0, noise_variance=4.0)).log_likelihood[0]
    assert found == pytest.approx(truth, abs=5e-3)


def test_tensors_are_as_arrays():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    ids = np.repeat([0, 1, 2], [5, 30, 12])
    bags = Bags.from_rows(np.zeros(47), ids).with_intervals([0, 3, 4], [2, 9, 4])
    s = rng.normal(size=47)
    tensor = torch.tensor(s, requires_grad=True)
    value = losses.count_likelihood(tensor, bags, logits=True)
    assert np.allclose(value.detach(), losses.count_likelihood(s, bags, logits=True))
    value.sum().backward()
    assert np.allclose(tensor.grad, -tilted(s, bags).gradient)


def test_counts_in_place_of_intervals_say_as_much():
    """With the prior of the mean label they have the mean and the variance of the counts allowed."""
    k, p = np.full(200, 50), 0.3
    c = np.random.default_rng(0).binomial(k, p)
    low, high = np.where(c < 12, 0, c).astype(float), np.where(c < 12, 11, c).astype(float)
    count, noise = Intervals(low, high, np.zeros(200)).as_counts(k)
    hidden = np.flatnonzero(c < 12)[0]
    prior, spread = 50 * p, 50 * p * (1 - p)
    both = 1 / (1 / noise[hidden] + 1 / spread)
    allowed = stats.binom.pmf(np.arange(12), 50, p)
    allowed /= allowed.sum()
    mean = allowed @ np.arange(12)
    assert both * (count[hidden] / noise[hidden] + prior / spread) == pytest.approx(mean, abs=0.3)  # p is estimated
    assert both == pytest.approx(allowed @ (np.arange(12) - mean) ** 2, rel=0.1)
    assert (noise[c >= 12] == 0).all()


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (3, 2, "from 3 to 2"),
        (6, 9, "from 6 to 9"),
        (-4, -1, "from -4 to -1"),
        (2.2, 2.8, "from 2.2"),
        (np.nan, 1, "nan"),
    ],
)
def test_intervals_without_a_count_are_named(low, high, words):
    with pytest.raises(ValueError, match=f"bag 0 of 5 rows reports a count .*{words}"):
        Bags.from_rows(np.zeros(5), np.zeros(5, dtype=int)).with_intervals([low], [high])


def test_labels_of_rows_move_the_interval():
    bags = Bags.from_rows(np.zeros(6), [0, 0, 0, 1, 1, 1]).with_intervals([1, 2], [3, 2])
    known = bags.with_labels([1, np.nan, np.nan, np.nan, 0, np.nan])
    assert list(known.size) == [2, 2, 1, 1]
    assert (list(known.interval.low), list(known.interval.high)) == ([0, 2, 1, 0], [2, 2, 1, 0])


# -- what is learned ----------------------------------------------------------------------------------------------

WEIGHTS = np.array([1.0, -0.7, 0.0])


def hidden_counts(rng, m=400, k=40, intercept=-1.6):
    """Bags that differ in features; counts below 10 are hidden, others rounded to fives."""
    X = rng.normal(size=(m * k, 3)) + np.repeat(rng.normal(scale=0.7, size=(m, 3)), k, axis=0)
    y = rng.random(m * k) < expit(X @ WEIGHTS + intercept)
    ids = np.repeat(np.arange(m), k)
    c = np.bincount(ids, weights=y)
    rounded = 5 * np.rint(c / 5)
    low = np.where(c < 10, 0, np.maximum(rounded - 2, 10))  # what is shown is not below 10
    high = np.where(c < 10, 9, np.minimum(rounded + 2, k))
    return X, y.astype(float), ids, c, low, high


def test_hidden_and_rounded_counts_are_learned_from_without_bias():
    """Leaving hidden counts out selects by the label: the mean label alone is then far off."""
    X, y, ids, c, low, high = hidden_counts(np.random.default_rng(0))
    bags = Bags.from_rows(np.zeros(len(y)), ids).with_intervals(low, high)
    model = BagLogisticClassifier(formation="features", alphas=1.0, cv=2, random_state=0).fit(X, bags=bags)
    # Errors of the weights are about 0.05, from 400 bags; 5 of them.
    assert np.abs(model.free_coef_ - WEIGHTS).max() < 5 * model.coef_errors_.max() < 0.5
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.02)
    assert c[c >= 10].sum() / 40 / (c >= 10).sum() > y.mean() + 0.1


@pytest.mark.slow
def test_intervals_of_weights_cover_with_hidden_counts():
    covered = 0
    for seed in range(60):
        X, y, ids, _, low, high = hidden_counts(np.random.default_rng(seed), m=150)
        bags = Bags.from_rows(np.zeros(len(y)), ids).with_intervals(low, high)
        model = BagLogisticClassifier(formation="features", alphas=1.0, cv=2, random_state=0).fit(X, bags=bags)
        below, above = model.coef_interval(0.95)
        covered += int(((below <= WEIGHTS) & (above >= WEIGHTS)).sum())
    assert stats.binomtest(covered, 180, 0.95, alternative="less").pvalue > 1e-3


@pytest.mark.parametrize("estimator", [BagRidgeClassifier, BagBoostingClassifier])
def test_others_learn_from_hidden_counts_too(estimator):
    rng = np.random.default_rng(1)
    X, y, ids, *_, low, high = hidden_counts(rng, m=100)
    bags = Bags.from_rows(np.zeros(len(y)), ids).with_intervals(low, high)
    options = (
        {"n_estimators": 20, "n_jobs": 1, "kinds": ["greedy"], "cv": 2, "formation": "features"}
        if estimator is BagBoostingClassifier
        else {}
    )
    model = estimator(random_state=0, **options).fit(X, bags=bags)
    h = model.predict_proba(X)[:, 1]
    assert np.mean((h - y) ** 2) < 0.9 * y.var()
    assert abs(h.mean() - y.mean()) < 0.03


def test_scores_given_hidden_reports_lie_in_them():
    X, y, ids, _, low, high = hidden_counts(np.random.default_rng(2), m=60)
    model = BagRidgeClassifier(random_state=0).fit(X, aggregate(y, ids), bags=ids)
    bags = Bags.from_rows(np.zeros(len(y)), ids).with_intervals(low, high)
    total = np.bincount(ids, weights=model.predict_proba(X, bags=bags)[:, 1])
    assert (total >= low - 0.01).all()
    assert (total <= high + 0.01).all()


@pytest.mark.parametrize("mixed", [True, False], ids=["some counts hidden", "all counts known"])
def test_many_rows_are_computed_in_pieces_as_at_once(monkeypatch, mixed):
    rng = np.random.default_rng(0)
    ids = np.sort(rng.integers(0, 60, 1500))
    y, s = (rng.random(1500) < 0.2).astype(float), rng.normal(-1.4, 1, 1500)
    bags = Bags.from_rows(aggregate(y, ids), ids, noise_variance=np.where(ids % 3 == 0, 4.0, 0.0))
    if mixed:
        count, width = bags.sum(y), np.arange(60) % 5
        bags = bags.with_intervals(count - width, count + width)
    whole = tilted(s, bags)
    monkeypatch.setattr(tilting_intervals, "_PIECE", 100)
    found, warm = tilted(s, bags), tilted(s, bags, start=whole.tilt + 0.1)
    for name in vars(whole):
        for one in (found, warm):
            assert getattr(one, name) == pytest.approx(getattr(whole, name), rel=1e-5, abs=1e-6), name
