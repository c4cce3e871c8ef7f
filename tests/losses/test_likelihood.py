"""The count likelihood against exact convolution, its gradient against differences, and its behaviour far out."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, log_softmax, softmax

from bagwise import Bags, aggregate, losses
from bagwise.losses.likelihood import extra_variance
from bagwise.losses.tilting_classes import tilted_classes
from bagwise.losses.tilting_intervals import tilted

SCORES = {"alike": (0, 0.5), "spread": (0, 2), "rare": (-3, 1), "rare and spread": (-3, 3), "sure": (0, 8)}
every_score = pytest.mark.parametrize(("centre", "spread"), SCORES.values(), ids=SCORES)


def bags_of(counts, sizes, **options):
    ids = np.repeat(np.arange(len(sizes)), sizes)
    return Bags.from_rows((np.asarray(counts) / sizes)[ids], ids, **options)


def case(rng, centre, spread, sizes):
    """Scores and bags; every other count is drawn from the scores, the others from anywhere."""
    s = rng.normal(centre, spread, size=sizes.sum()).clip(-50, 50)
    ids = np.repeat(np.arange(len(sizes)), sizes)
    drawn = np.bincount(ids, weights=rng.random(len(s)) < expit(s))
    counts = np.where(np.arange(len(sizes)) % 2, drawn, rng.integers(0, sizes + 1))
    return s, bags_of(counts, sizes)


def convolved(s, count):
    """Log probability of a count, from rows tilted to expect it, so that nothing underflows."""
    low, high = -200.0, 200.0
    for _ in range(100):
        t = (low + high) / 2
        low, high = (t, high) if expit(s + t).sum() < count else (low, t)
    distribution = np.ones(1)
    for q in expit(s + t):
        distribution = np.convolve(distribution, [1 - q, q])
    return (np.logaddexp(0, s + t) - np.logaddexp(0, s)).sum() - count * t + math.log(distribution[round(count)])


def differences(log_likelihood, s, places, step=1e-5):
    """The gradient of a sum over bags at some places, by central differences."""
    found = []
    for place in places:
        up, down = s.copy(), s.copy()
        up[place] += step
        down[place] -= step
        found.append((log_likelihood(up).sum() - log_likelihood(down).sum()) / (2 * step))
    return np.array(found)


# -- two classes --------------------------------------------------------------------------------------------------


@every_score
@pytest.mark.parametrize("exact_up_to", [0, 20])
def test_every_size_from_20_on_agrees_with_convolution(centre, spread, exact_up_to):
    rng = np.random.default_rng(0)
    s, bags = case(rng, centre, spread, rng.integers(20, 200, size=60))
    found = tilted(s, bags, exact_up_to=exact_up_to).log_likelihood
    expected = [convolved(part, k * p) for part, k, p in zip(_split(s, bags), bags.size, bags.proportion, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-9)


@every_score
def test_small_bags_are_exact(centre, spread):
    rng = np.random.default_rng(1)
    s, bags = case(rng, centre, spread, rng.integers(1, 21, size=80))
    expected = [convolved(part, k * p) for part, k, p in zip(_split(s, bags), bags.size, bags.proportion, strict=True)]
    np.testing.assert_allclose(tilted(s, bags).log_likelihood, expected, rtol=1e-9, atol=1e-9)


def _split(s, bags):
    return np.split(s, bags.offsets[1:-1])


@pytest.mark.parametrize("k", [1, 5, 40, 300])
def test_equal_predictions_are_binomial(k):
    counts = np.arange(k + 1)
    bags = bags_of(counts, np.full(k + 1, k))
    value = losses.count_likelihood(np.full(k * (k + 1), 0.3), bags)
    np.testing.assert_allclose(value, -stats.binom(k, 0.3).logpmf(counts), rtol=1e-4 if k > 20 else 1e-10)


def test_probabilities_of_all_counts_sum_to_one():
    for k, tolerance in ((12, 1e-12), (64, 1e-3)):
        h = np.random.default_rng(0).random(k)
        bags = bags_of(np.arange(k + 1), np.full(k + 1, k))
        total = np.exp(-losses.count_likelihood(np.tile(h, k + 1), bags)).sum()
        assert total == pytest.approx(1, abs=tolerance)


@every_score
@pytest.mark.parametrize("least", [1, 15, 60])
def test_the_gradient_is_the_derivative(centre, spread, least):
    rng = np.random.default_rng(2)
    s, bags = case(rng, centre, min(spread, 4), rng.integers(least, 2 * least + 1, size=20))
    places = rng.integers(len(s), size=15)
    found = tilted(s, bags).gradient[places]
    expected = differences(lambda at: tilted(at, bags).log_likelihood, s, places)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_the_gradient_with_extra_variance_is_the_derivative():
    rng = np.random.default_rng(3)
    s, sizes = rng.normal(-1, 2, size=400), np.full(10, 40)
    bags = bags_of(rng.normal(14, 6, size=10), sizes, noise_variance=np.repeat(np.linspace(0.5, 60, 10), 40))
    places = rng.integers(400, size=20)
    expected = differences(lambda at: tilted(at, bags).log_likelihood, s, places)
    np.testing.assert_allclose(tilted(s, bags).gradient[places], expected, rtol=1e-5, atol=1e-8)


def test_the_curvature_is_that_of_the_likelihood():
    """−∂²L/∂s² is diag(h(1−h) − v) + v vᵀ/W up to terms of the order 1/W."""
    rng = np.random.default_rng(4)
    s, bags = rng.normal(-0.5, 1.5, size=400), bags_of([230], np.array([400]))
    found, h, step = tilted(s, bags), expit(s), 1e-5
    for i in range(5):
        up, down = s.copy(), s.copy()
        up[i] += step
        down[i] -= step
        column = -(tilted(up, bags).gradient - tilted(down, bags).gradient) / (2 * step)
        expected = found.spread * found.spread[i] / found.variance[0]
        expected[i] += h[i] * (1 - h[i]) - found.spread[i]
        assert np.abs(column - expected).max() < 2 / found.variance[0] ** 1.5


def test_noise_is_a_normal_that_is_added():
    """Against the convolution of the exact counts with a normal density."""
    rng = np.random.default_rng(5)
    for noise in (1.0, 9.0, 100.0):
        s, count = rng.normal(-1, 1, size=60), 25.3
        distribution = np.ones(1)
        for q in expit(s):
            distribution = np.convolve(distribution, [1 - q, q])
        expected = math.log((distribution * stats.norm(count, math.sqrt(noise)).pdf(np.arange(61))).sum())
        bags = bags_of([count], np.array([60]), noise_variance=noise)
        assert -losses.count_likelihood(s, bags, logits=True)[0] == pytest.approx(expected, rel=2e-3)


def test_noise_declared_as_zero_leaves_the_likelihood_exact():
    ids, y = [0, 0, 1, 1], [0.5, 0.5, 1.0, 1.0]
    h = np.array([0.3, 0.6, 0.8, 0.9])
    exact = losses.count_likelihood(h, Bags.from_rows(y, ids))
    np.testing.assert_allclose(losses.count_likelihood(h, Bags.from_rows(y, ids, noise_variance=0.0)), exact)
    mixed = losses.count_likelihood(h, Bags.from_rows(y, ids, noise_variance=[0.0, 0.0, 2.0, 2.0]))
    assert mixed[0] == pytest.approx(exact[0])
    assert mixed[1] != pytest.approx(exact[1])


@pytest.mark.parametrize("size", [1, 2, 30, 1000, 10**5, pytest.param(10**6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sure", [1.0, 50.0])
@pytest.mark.parametrize("effect_variance", [0.0, 0.5])
def test_nothing_overflows(size, sure, effect_variance):
    s = np.linspace(-sure, sure, size)
    for count in {0, 1, size // 2, size - 1, size} & set(range(size + 1)):
        bags = bags_of([count], np.array([size]))
        found = tilted(s, bags, extra=extra_variance(s, bags, effect_variance))
        for value in (found.log_likelihood, found.gradient, found.posterior, found.variance):
            assert np.isfinite(value).all()
        assert found.log_likelihood[0] < 1e-6
        if effect_variance == 0:
            assert found.posterior.sum() == pytest.approx(count, rel=1e-8, abs=1e-8)


def test_the_posterior_is_that_of_all_label_vectors():
    rng = np.random.default_rng(6)
    s = rng.normal(size=10)
    labels = (np.arange(2**10)[:, None] >> np.arange(10)) & 1
    weights = np.exp((labels * s).sum(axis=1) - np.logaddexp(0, s).sum())
    for count in range(11):
        fits = labels.sum(axis=1) == count
        expected = (labels[fits] * weights[fits, None]).sum(axis=0) / weights[fits].sum()
        found = losses.posterior(s, bags_of([count], np.array([10])))
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_posterior_adds_up_to_the_reports():
    rng = np.random.default_rng(7)
    s, bags = case(rng, -1, 2, rng.integers(1, 300, size=50))
    np.testing.assert_allclose(bags.sum(losses.posterior(s, bags)), bags.size * bags.proportion, atol=1e-8)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_posterior_adds_up_where_bags_have_effects(classes):
    """Given the count, labels do not depend on what moves all log odds of a bag."""
    rng = np.random.default_rng(3)
    s = rng.normal(size=600) if classes == 2 else rng.normal(size=(600, classes))
    counts = np.array([0, 7, 30, 55, 60, 1, 20, 40, 12, 59])
    proportion = (
        counts / 60 if classes == 2 else np.stack([counts, (60 - counts) // 2, (61 - counts) // 2], axis=1) / 60
    )
    bags = Bags.from_rows(np.repeat(proportion, 60, axis=0), np.repeat(np.arange(10), 60))
    found = losses.posterior(s, bags, effect_variance=0.5)
    np.testing.assert_allclose(bags.sum(found), (bags.size * bags.proportion.T).T, atol=1e-6)
    np.testing.assert_allclose(found, losses.posterior(s, bags), atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_noised_count_is_believed_as_far_as_effects_make_it_likely(classes):
    """In the mean over bags with effects, posterior counts are the true ones, whatever was reported."""
    rng, m, k, effects, noise = np.random.default_rng(4), 4000, 40, 0.2, 60.0
    width = 1 if classes == 2 else classes
    s = 0.5 * rng.normal(size=(m, k, width))
    moved = s + np.sqrt(effects) * rng.normal(size=(m, 1, width))
    if classes == 2:
        y = (rng.random((m, k, 1)) < expit(moved)).astype(float)
    else:
        y = np.eye(classes)[np.argmax(moved + rng.gumbel(size=moved.shape), axis=2)]
    count = y.sum(axis=1)
    noised = count + np.sqrt(noise) * rng.normal(size=count.shape)
    ids = np.repeat(np.arange(m), k)
    reported = (noised / k)[:, 0] if classes == 2 else noised / k
    bags = Bags.from_rows(reported[ids], ids, noise_variance=np.full(m * k, noise))
    found = bags.sum(losses.posterior(s.reshape(m * k, -1).squeeze(), bags, effect_variance=effects)).reshape(m, -1)
    for high in (True, False):  # where a report is above its mean, and below
        chosen = (noised[:, 0] > noised[:, 0].mean()) == high
        off = (found - count)[chosen, 0]
        assert abs(off.mean()) < 4 * off.std() / np.sqrt(len(off)) + 0.05  # the formula is that of small tilts


def test_effects_make_large_bags_say_less():
    rng = np.random.default_rng(8)
    s, bags = rng.normal(size=4000), bags_of([1700, 17], np.array([3960, 40]))
    plain, effects = (losses.count_likelihood(s, bags, logits=True, effect_variance=v) for v in (0.0, 0.5))
    assert plain[0] > 50 > 8 > effects[0]
    assert effects[1] == pytest.approx(plain[1], abs=1.5)


def test_the_mean_part_is_the_likelihood_of_the_total():
    bags = bags_of([3, 5], np.array([10, 20]))
    plain, held = (
        losses.count_likelihood(np.full(30, 0.3), bags, **more) for more in ({}, {"prior": 0.25, "mean": 0.3})
    )
    total = stats.binom.logpmf(25, 100, 0.25) - stats.binom.logpmf(25, 100, 0.3)  # of 100 rows
    np.testing.assert_allclose(held - plain, np.array([10, 20]) * total / 100)


def test_singletons_are_ordinary_supervision():
    s, y = np.linspace(-50, 50, 21), np.arange(21) % 2
    np.testing.assert_allclose(
        losses.count_likelihood(s, Bags.singletons(y), logits=True), np.logaddexp(0, np.where(y, -s, s)), rtol=1e-12
    )


def test_torch_has_the_same_values_and_gradients(torch):
    rng = np.random.default_rng(9)
    s, bags = case(rng, -1, 2, rng.integers(1, 80, size=12))
    given = torch.tensor(s, requires_grad=True)
    loss = losses.count_likelihood(given, bags, logits=True)
    loss.sum().backward()
    np.testing.assert_allclose(loss.detach(), losses.count_likelihood(s, bags, logits=True), rtol=1e-11)
    np.testing.assert_allclose(given.grad.numpy(), -tilted(s, bags).gradient, rtol=1e-9)
    h = torch.tensor(expit(s), requires_grad=True)
    losses.count_likelihood(h, bags).sum().backward()
    np.testing.assert_allclose(h.grad.numpy() * expit(s) * expit(-s), -tilted(s, bags).gradient, rtol=1e-6, atol=1e-9)


@every_score
@pytest.mark.parametrize(
    "options", [{}, {"noise_variance": 3.0}, {"effect_variance": 0.3}, {"exact_up_to": 0}], ids=str
)
@pytest.mark.parametrize("sizes", [np.full(9, 7), np.full(5, 40), np.tile([1, 2, 15, 21, 90, 700], 2)], ids=str)
def test_tensors_have_the_same_likelihood_and_gradient(torch, centre, spread, sizes, options):
    from bagwise.losses.tilting_tensors import tilted_tensors

    rng, more = np.random.default_rng(3), dict(options)
    s, bags = case(rng, centre, spread, sizes)
    if noise := more.pop("noise_variance", None):
        bags = bags_of(bags.size * bags.proportion + rng.normal(size=len(bags)), sizes, noise_variance=noise)
    extra = extra_variance(s, bags, more.get("effect_variance", 0.0))
    expected = tilted(s, bags, extra=extra, exact_up_to=more.get("exact_up_to", 20))
    value, gradient = tilted_tensors(torch.tensor(s), bags, **more)
    np.testing.assert_allclose(value, expected.log_likelihood, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(gradient, expected.gradient, rtol=1e-6, atol=1e-9)
    single, _ = tilted_tensors(torch.tensor(s, dtype=torch.float32), bags, **more)
    assert single.dtype == torch.float32
    nothing = tilted_tensors(torch.zeros(0), bags.take([]), **more)
    assert [len(one) for one in nothing] == [0, 0]


def test_hard_predictions_have_a_finite_loss():
    value = losses.count_likelihood(np.array([0, 1, 1, 0]), bags_of([1, 2], np.array([2, 2])))
    assert value[0] == pytest.approx(0, abs=1e-9)
    assert 100 < value[1] < 1000


def test_counts_that_are_no_counts_are_errors():
    bags = Bags.from_rows([0.3, 0.3, 0.5, 0.5], ["a", "a", "b", "b"])
    with pytest.raises(ValueError, match=r"bag 'a' of 2 rows reports a count of 0\.6, which is no whole number"):
        losses.count_likelihood(np.full(4, 0.5), bags)
    with pytest.raises(ValueError, match=r"bag 'a' reports proportion 1\.5, outside"):
        losses.count_likelihood(np.full(2, 0.5), Bags.from_rows([1.5, 1.5], ["a", "a"]))


# -- several classes ----------------------------------------------------------------------------------------------


def classes_case(rng, size, spread, *, m=10, classes=3):
    s = rng.normal(0, spread, size=(m * size, classes))
    ids = np.repeat(np.arange(m), size)
    labels = (softmax(s, axis=1).cumsum(axis=1) < rng.random((len(s), 1))).sum(axis=1)
    other = ids % 2 == 0
    labels[other] = rng.choice(classes, size=other.sum(), p=[0.7, 0.2, 0.1])
    return s, Bags.from_rows(aggregate(np.eye(classes)[labels], ids), ids)


def all_counts(h):
    """Probabilities of all vectors of counts of three classes, the first two counted."""
    found = np.zeros((len(h) + 1, len(h) + 1))
    found[0, 0] = 1
    for row in h:
        moved = row[2] * found
        moved[1:] += row[0] * found[:-1]
        moved[:, 1:] += row[1] * found[:, :-1]
        found = moved
    return found


@pytest.mark.parametrize(
    ("size", "spread", "tolerance"), [(20, 0.5, 0.02), (60, 0.5, 0.01), (20, 2, 0.2), (60, 2, 0.06)]
)
def test_classes_agree_with_convolution(size, spread, tolerance):
    s, bags = classes_case(np.random.default_rng(0), size, spread)
    counts = np.rint(bags.proportion * size).astype(int)
    expected = [
        math.log(all_counts(h)[c[0], c[1]])
        for h, c in zip(np.split(softmax(s, axis=1), len(bags)), counts, strict=True)
    ]
    np.testing.assert_allclose(tilted_classes(s, bags).log_likelihood, expected, atol=tolerance)


@pytest.mark.parametrize("size", [1, 4, 30])
@pytest.mark.parametrize("noise_variance", [None, 9.0])
def test_the_gradient_of_classes_is_the_derivative(size, noise_variance):
    rng = np.random.default_rng(1)
    s, bags = classes_case(rng, size, 1.5)
    if noise_variance is not None:
        noised = bags.proportion + rng.normal(0, 3, size=bags.proportion.shape) / size
        ids = np.repeat(np.arange(len(bags)), size)
        bags = Bags.from_rows(noised[ids], ids, noise_variance=noise_variance)
    places = list(zip(rng.integers(len(s), size=12), rng.integers(3, size=12), strict=True))
    expected = differences(lambda at: tilted_classes(at, bags).log_likelihood, s, places)
    found = np.array([tilted_classes(s, bags).gradient[place] for place in places])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_classes_of_rows_that_are_alike_are_multinomial():
    p = np.array([0.5, 0.3, 0.2])
    for counts in ([30, 20, 10], [60, 0, 0], [0, 59, 1]):
        bags = Bags.from_rows(np.tile(np.array(counts) / 60, (60, 1)), np.zeros(60, dtype=int))
        found = tilted_classes(np.tile(np.log(p), (60, 1)), bags)
        assert found.log_likelihood[0] == pytest.approx(stats.multinomial(60, p).logpmf(counts), abs=1e-9)
        np.testing.assert_allclose(found.posterior.sum(axis=0), counts, atol=1e-7)


def test_singletons_of_classes_are_ordinary_supervision():
    rng = np.random.default_rng(2)
    s, y = rng.normal(0, 5, size=(40, 4)), rng.integers(4, size=40)
    value = losses.count_likelihood(s, Bags.singletons(np.eye(4)[y]), logits=True)
    np.testing.assert_allclose(value, -log_softmax(s, axis=1)[np.arange(40), y], atol=1e-9)


def test_two_classes_are_two_classes():
    rng = np.random.default_rng(3)
    s, bags = case(rng, -1, 1, np.full(10, 200))
    both = Bags.from_rows(np.repeat(np.stack([1 - bags.proportion, bags.proportion], axis=1), 200, axis=0), bags.code)
    found = tilted_classes(np.stack([np.zeros_like(s), s], axis=1), both)
    binary = tilted(s, bags)
    np.testing.assert_allclose(found.log_likelihood, binary.log_likelihood, atol=5e-3)
    np.testing.assert_allclose(found.posterior[:, 1], binary.posterior, atol=1e-7)
    np.testing.assert_allclose(found.gradient[:, 1], binary.gradient, atol=1e-3)


def test_classes_far_out_stay_finite():
    s = np.array([[50.0, -50, 0], [-50, 50, 0], [0, 0, 50]] * 5)
    bags = Bags.from_rows([[0.2, 0.2, 0.6]] * 15, [0] * 15)
    for effect_variance in (0.0, 0.5):
        value = losses.count_likelihood(s, bags, logits=True, effect_variance=effect_variance)
        assert np.isfinite(value).all()
