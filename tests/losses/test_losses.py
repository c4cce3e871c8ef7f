"""Every loss against every law: the formula in a plain loop, gradients, order, singletons, limits, libraries."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize

from bagwise import Bags, aggregate, losses, means, random_bags
from bagwise.losses import LOSSES
from bagwise.segment import to_numpy

PRIOR, MEAN = 0.4, 0.55
PAIR = (lambda h: h**3, lambda h: 2 * (1 - h) ** 2)  # a loss of one's own: ℓ0, ℓ1


# -- each loss in a plain loop over the rows of one bag -----------------------------------------------------------


def plain_residual(h, alpha, p, mean):
    return len(h) * (alpha - p) - sum(x - mean for x in h)


def plain_debiased(h, alpha, p, mean, variance=0.0, clip=math.inf):
    r = plain_residual(h, alpha, p, mean)
    return (r * r / len(h) if abs(r) <= clip else 0.0) + (mean - p) ** 2 - (len(h) + 1) * variance


def plain_li(h, alpha, p, mean):
    k = len(h)
    return (k * alpha - sum(h)) ** 2 / k - (k - 1) * (mean - p) ** 2


def plain_matching_square(h, alpha, p, mean):
    return (sum(h) / len(h) - alpha) ** 2


def plain_matching_ce(h, alpha, p, mean):
    a = sum(h) / len(h)
    return -alpha * math.log(a) - (1 - alpha) * math.log(1 - a)


ROW_LOSSES = {
    "square": (lambda h: h**2, lambda h: (1 - h) ** 2),
    "log": (lambda h: -math.log(1 - h), lambda h: -math.log(h)),
    "pair": PAIR,
}


def plain_easyllp(h, alpha, p, mean, loss):
    loss0, loss1 = ROW_LOSSES[loss]
    k = len(h)
    return sum(loss0(x) + (k * (alpha - p) + p) * (loss1(x) - loss0(x)) for x in h) / k


def plain_centred(h, alpha, p, mean, loss):
    loss0, loss1 = ROW_LOSSES[loss]
    differences = [loss1(x) - loss0(x) for x in h]
    return sum(loss0(x) for x in h) / len(h) + (alpha - p) * sum(d - mean for d in differences) + p * mean


def plain_likelihood(h, alpha, p, mean):
    """Add up the probabilities of all label vectors with the reported count."""
    total = 0.0
    for y in itertools.product((0, 1), repeat=len(h)):
        if sum(y) == round(len(h) * alpha):
            total += math.prod(x if label else 1 - x for x, label in zip(h, y, strict=True))
    return -math.log(total)


def plain_labels(h, count, temperature):
    """Labels that add up to the count: handed out from the largest h down, or a shift of the logits found by Brent."""
    if temperature == 0:
        labels = [0.0] * len(h)
        for i in sorted(range(len(h)), key=lambda i: -h[i]):
            labels[i] = min(max(count, 0.0), 1.0)
            count -= 1
        return labels
    if count <= 0 or count >= len(h):
        return [float(count > 0)] * len(h)
    logit = [math.log(x / (1 - x)) / temperature for x in h]

    def labels(shift):
        return [1 / (1 + math.exp(-z - shift)) for z in logit]

    return labels(optimize.brentq(lambda shift: sum(labels(shift)) - count, -100, 100, xtol=1e-14, rtol=1e-14))


def plain_generation(h, alpha, p, mean, *, temperature, at=None):
    """`at`: predictions the labels come from, where they are held constant."""
    labels = plain_labels(h if at is None else at, len(h) * alpha, temperature)
    return sum(-u * math.log(x) - (1 - u) * math.log(1 - x) for u, x in zip(labels, h, strict=True)) / len(h)


@dataclass(frozen=True)
class Case:
    """A loss as a function of (h, bags, prior, mean), and its formula for one bag.

    individual: the loss of one row it stands for, None where the law of singletons does not apply.
    rowwise: singletons give each row's loss; otherwise only their mean, with p and E[·] the means of the rows.
    mean_of: the row function whose mean the loss takes.
    holds: part of the loss is a function of h that counts as constant; `plain` takes the h it comes from as `at`.
    """

    loss: Callable[..., Any]
    plain: Callable[..., float]
    individual: Callable[[float, float], float] | None
    rowwise: bool = True
    mean_of: Callable[[Any], Any] = lambda h: h
    logits: bool = False
    real: bool = False
    holds: bool = False


def square(h, y):
    return (y - h) ** 2


def row_loss(loss):
    return lambda h, y: ROW_LOSSES[loss][int(y)](h)


def debiased_case(individual=None, **arguments):
    plain = {"variance" if key == "mean_variance" else key: value for key, value in arguments.items()}

    def loss(h, bags, prior, mean):
        return losses.debiased_square(h, bags, prior=prior, mean=mean, **arguments)

    return Case(loss, partial(plain_debiased, **plain), individual, rowwise=False, real=True)


def easyllp_case(loss):
    given = PAIR if loss == "pair" else loss
    return Case(
        lambda h, b, p, m, **kw: losses.easyllp(h, b, prior=p, loss=given, **kw),
        partial(plain_easyllp, loss=loss),
        row_loss(loss),
        logits=True,
    )


def centred_case(loss):
    given = PAIR if loss == "pair" else loss
    return Case(
        lambda h, b, p, m, **kw: losses.centred(h, b, prior=p, mean=m, loss=given, **kw),
        partial(plain_centred, loss=loss),
        row_loss(loss),
        rowwise=False,
        mean_of=partial(losses.difference, loss=given),
        logits=True,
    )


def generation_case(temperature):
    return Case(
        lambda h, b, p, m, **kw: losses.label_generation(h, b, temperature=temperature, **kw),
        partial(plain_generation, temperature=temperature),
        row_loss("log"),
        logits=True,
        holds=True,
    )


CASES = {
    "debiased": debiased_case(square),
    "debiased corrected": debiased_case(mean_variance=0.01),
    "debiased clipped": debiased_case(clip=0.9),
    "li": Case(lambda h, b, p, m: losses.li_square(h, b, prior=p, mean=m), plain_li, square, real=True),
    "matching square": Case(lambda h, b, p, m: losses.matching_square(h, b), plain_matching_square, square, real=True),
    "matching cross-entropy": Case(
        lambda h, b, p, m: losses.matching_cross_entropy(h, b), plain_matching_ce, row_loss("log")
    ),
    **{f"easyllp {loss}": easyllp_case(loss) for loss in ROW_LOSSES},
    **{f"centred {loss}": centred_case(loss) for loss in ROW_LOSSES},
    "count likelihood": Case(
        lambda h, b, p, m, **kw: losses.count_likelihood(h, b, **kw), plain_likelihood, row_loss("log"), logits=True
    ),
    "label generation, hard": generation_case(0),
    "label generation, τ = 1": generation_case(1.0),
    "label generation, τ = 0.2": generation_case(0.2),
}
SIZES = {"unequal": (3, 1, 5, 2, 4), "equal": (4, 4, 4), "one bag": (3,)}

every_loss = pytest.mark.parametrize("name", CASES)
every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def table(sizes, *, real=False, seed=0):
    """Predictions, individual labels and ids of scattered rows; bag 0 is all 0 and the last bag all 1."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    y = (
        rng.normal(size=len(ids))
        if real
        else np.where(ids == 0, 0, np.where(ids == ids.max(), 1, rng.random(len(ids)) < 0.5))
    )
    return rng.uniform(0.05, 0.95, size=len(ids)), y.astype(float), ids


def batch(sizes, **arguments):
    """Bags, and predictions in bag order."""
    h, y, ids = table(sizes, **arguments)
    bags = Bags.from_rows(aggregate(y, ids), ids)
    return h[bags.order], bags


def plain_values(case, h, bags, prior=PRIOR, mean=MEAN, at=None):
    mean = np.broadcast_to(mean, len(bags))
    slices = [slice(a, b) for a, b in itertools.pairwise(bags.offsets)]
    return [
        case.plain(h[s].tolist(), alpha, prior, m, **({"at": at[s].tolist()} if case.holds and at is not None else {}))
        for s, alpha, m in zip(slices, bags.proportion, mean, strict=True)
    ]


# -- the laws -----------------------------------------------------------------------------------------------------


@every_loss
@every_size
def test_equals_the_plain_loop(name, sizes):
    case = CASES[name]
    for real in {False, case.real}:
        h, bags = batch(sizes, real=real)
        for mean in (MEAN, np.linspace(0.3, 0.7, len(bags))):
            value = case.loss(h, bags, PRIOR, mean)
            assert value.shape == (len(bags),)
            np.testing.assert_allclose(value, plain_values(case, h, bags, mean=mean), rtol=1e-10)


def test_clipping_is_at_work_in_these_tests():
    h, bags = batch(SIZES["unequal"])
    kept = [abs(plain_residual(h[a:b], alpha, PRIOR, MEAN)) <= 0.9
            for (a, b), alpha in zip(itertools.pairwise(bags.offsets), bags.proportion, strict=True)]  # fmt: skip
    assert 0 < sum(kept) < len(kept)


@every_loss
@every_size
def test_gradient_is_that_of_the_plain_loop(name, sizes, torch):
    case = CASES[name]
    h, bags = batch(sizes)
    weight = np.linspace(1, 2, len(bags))
    tensor = torch.tensor(h, requires_grad=True)
    (case.loss(tensor, bags, PRIOR, MEAN) * torch.from_numpy(weight)).sum().backward()
    step = 1e-6
    for i in range(len(h)):
        up, down = h.copy(), h.copy()
        up[i] += step
        down[i] -= step
        above, below = (np.dot(weight, plain_values(case, moved, bags, at=h)) for moved in (up, down))
        slope = (above - below) / (2 * step)
        assert tensor.grad[i].item() == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.logits])
def test_gradient_by_logits(name, torch):
    h, bags = batch(SIZES["unequal"])
    z = torch.tensor(np.log(h / (1 - h)), requires_grad=True)
    CASES[name].loss(z, bags, PRIOR, MEAN, logits=True).sum().backward()
    p = torch.tensor(h, requires_grad=True)
    CASES[name].loss(p, bags, PRIOR, MEAN).sum().backward()
    np.testing.assert_allclose(z.grad, p.grad * p.detach() * (1 - p.detach()), rtol=1e-9)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.logits])
@every_size
def test_logits_equal_probabilities(name, sizes):
    h, bags = batch(sizes)
    by_logits = CASES[name].loss(np.log(h / (1 - h)), bags, PRIOR, MEAN, logits=True)
    np.testing.assert_allclose(by_logits, CASES[name].loss(h, bags, PRIOR, MEAN), rtol=1e-10)


@every_loss
@settings(max_examples=8)  # each moves all rows and bags
@given(random=st.randoms(use_true_random=False))
def test_order_of_rows_and_bags_does_not_matter(name, random):
    h, y, ids = table(SIZES["unequal"])
    y_bag = aggregate(y, ids)
    rows = random.sample(range(len(ids)), len(ids))
    names = np.array(random.sample(range(100), 5))  # new keys: bags come in another order
    bags, other = Bags.from_rows(y_bag, ids), Bags.from_rows(y_bag[rows], names[ids][rows])
    value = CASES[name].loss(h[bags.order], bags, PRIOR, MEAN)
    moved = CASES[name].loss(h[rows][other.order], other, PRIOR, MEAN)
    np.testing.assert_allclose(moved[np.argsort(np.argsort(names))], value, rtol=1e-10)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.individual])
def test_singletons_give_the_individual_loss(name):
    case = CASES[name]
    rng = np.random.default_rng(3)
    h, y = rng.uniform(0.05, 0.95, size=40), (rng.random(40) < 0.3).astype(float)
    expected = [case.individual(a, b) for a, b in zip(h, y, strict=True)]
    if case.rowwise:
        np.testing.assert_allclose(case.loss(h, Bags.singletons(y), PRIOR, MEAN), expected, rtol=1e-12)
    value = case.loss(h, Bags.singletons(y), y.mean(), case.mean_of(h).mean())
    assert value.mean() == pytest.approx(np.mean(expected), rel=1e-12)


@every_loss
@every_size
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("pattern", ["zeros", "ones", "alternating"])
def test_finite_at_0_and_1(name, sizes, dtype, pattern, torch):
    h, bags = batch(sizes)
    h = {"zeros": np.zeros, "ones": np.ones, "alternating": lambda n: np.arange(n) % 2}[pattern](len(h))
    check_finite(CASES[name].loss, torch.tensor(h, dtype=getattr(torch, dtype)), bags, torch)
    assert np.isfinite(CASES[name].loss(h.astype(dtype), bags, PRIOR, MEAN)).all()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.logits])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [30.0, 1e4])
def test_finite_at_extreme_logits(name, dtype, size, torch):
    h, bags = batch(SIZES["unequal"])
    for z in (np.full(len(h), size), np.full(len(h), -size), np.where(np.arange(len(h)) % 2, size, -size)):
        loss = partial(CASES[name].loss, logits=True)
        check_finite(loss, torch.tensor(z, dtype=getattr(torch, dtype)), bags, torch)
        assert np.isfinite(loss(z.astype(dtype), bags, PRIOR, MEAN)).all()


def check_finite(loss, h, bags, torch):
    h.requires_grad_()
    value = loss(h, bags, PRIOR, MEAN)
    value.sum().backward()
    assert value.dtype == h.dtype
    assert torch.isfinite(value).all()
    assert torch.isfinite(h.grad).all()


def test_the_log_loss_of_logits_is_exact_far_out():
    bags = Bags.singletons([0, 1])
    np.testing.assert_allclose(
        losses.easyllp(np.array([50.0, -50.0]), bags, prior=0.5, logits=True), [50, 50], rtol=1e-12
    )
    np.testing.assert_allclose(
        losses.count_likelihood(np.array([50.0, -50.0]), bags, logits=True), [50, 50], rtol=1e-12
    )


@every_loss
@every_size
def test_numpy_equals_torch(name, sizes, torch):
    h, bags = batch(sizes)
    mean = np.linspace(0.3, 0.7, len(bags))
    value = CASES[name].loss(h, bags, PRIOR, mean)
    for other in (mean, torch.from_numpy(mean)):
        tensor = CASES[name].loss(torch.from_numpy(h), bags, PRIOR, other)
        np.testing.assert_allclose(to_numpy(tensor), value, rtol=1e-12)
    prepared = CASES[name].loss(torch.from_numpy(h), bags.like(torch.from_numpy(h)), PRIOR, mean)
    np.testing.assert_allclose(to_numpy(prepared), value, rtol=1e-12)


@every_loss
def test_the_path_for_equal_sizes_changes_nothing(name, torch):
    h, bags = batch(SIZES["equal"])
    assert bags.equal_size == 4
    for values in (h, torch.from_numpy(h)):
        fast, slow = (CASES[name].loss(values, b, PRIOR, MEAN) for b in (bags, replace(bags, equal_size=None)))
        np.testing.assert_allclose(fast, slow, rtol=1e-12)


@every_loss
def test_hard_predictions_may_be_whole_numbers(name, torch):
    _, bags = batch(SIZES["unequal"])
    whole = np.arange(bags.n_bagged) % 2
    expected = CASES[name].loss(whole.astype(float), bags, PRIOR, MEAN)
    np.testing.assert_allclose(CASES[name].loss(whole, bags, PRIOR, MEAN), expected)
    single = CASES[name].loss(torch.from_numpy(whole).float(), bags, PRIOR, MEAN)
    np.testing.assert_allclose(CASES[name].loss(torch.from_numpy(whole), bags, PRIOR, MEAN), single, rtol=1e-6)


# -- classes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.real])
@every_size
def test_classes_sum_the_binary_loss(name, sizes, torch):
    rng = np.random.default_rng(5)
    _, _, ids = table(sizes)
    y = np.eye(3)[rng.integers(3, size=len(ids))]
    bags = Bags.from_rows(aggregate(y, ids), ids)
    h = rng.dirichlet(np.ones(3), size=len(ids))
    prior, mean = np.array([0.2, 0.3, 0.5]), rng.random((len(bags), 3))
    for mean_given in (mean, mean[0]):
        expected = sum(
            CASES[name].loss(h[:, c], replace(bags, proportion=bags.proportion[:, c]), prior[c], mean_given[..., c])
            for c in range(3)
        )
        for values in (h, torch.from_numpy(h)):
            value = CASES[name].loss(values, bags, prior, mean_given)
            assert value.shape == (len(bags),)
            np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_cross_entropy_of_classes(torch):
    bags = Bags.from_rows([[0.5, 0.25, 0.25]] * 4, [0] * 4)
    h = np.random.default_rng(0).dirichlet(np.ones(3), size=4)
    expected = -sum(a * math.log(m) for a, m in zip((0.5, 0.25, 0.25), h.mean(axis=0), strict=True))
    assert losses.matching_cross_entropy(h, bags) == pytest.approx(expected)
    assert losses.matching_cross_entropy(torch.from_numpy(h), bags).item() == pytest.approx(expected)
    assert np.isfinite(losses.matching_cross_entropy(np.eye(3)[[0, 0, 0, 0]], bags)).all()


@every_loss
def test_predictions_of_another_shape_are_an_error(name):
    """A network's (n, 1) output would broadcast against (m,) proportions to nonsense."""
    h, bags = batch(SIZES["equal"])
    with pytest.raises(ValueError, match=re.escape(f"shape {(len(h), 1)}") + "|" + re.escape(f"got {(len(h), 1)}")):
        CASES[name].loss(h[:, None], bags, PRIOR, MEAN)
    classes = Bags.from_rows([[0.5, 0.5, 0.0]] * 2, [0, 1])
    with pytest.raises(ValueError, match=re.escape("pass predictions of shape (n, 3)")):
        CASES[name].loss(np.zeros(2), classes, PRIOR, MEAN)


# -- clipping -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("estimated", "factor", "inside"), [(False, 8, 2), (True, 18, 6)])
def test_clip_thresholds_are_the_papers(estimated, factor, inside, torch):
    size, regret = np.array([1, 4, 64]), 0.05
    expected = [math.sqrt(factor * k * math.log(inside / (regret / (16 * k * k)))) for k in size]
    for k in (size, torch.from_numpy(size)):
        np.testing.assert_allclose(losses.clip_threshold(k, regret=regret, estimated=estimated), expected)
    assert losses.clip_threshold(64, regret=regret, estimated=estimated) == pytest.approx(expected[2])


@pytest.mark.parametrize("estimated", [False, True])
def test_clipping_removes_the_square_beyond_the_threshold_and_only_it(estimated, torch):
    k, prior, mean = 4096, 0.5, 0.6
    threshold = losses.clip_threshold(k, regret=0.5, estimated=estimated)
    share = np.array([0.99, 1.01]) * threshold / k  # mean residuals on either side of the threshold
    bags = Bags.from_rows(np.repeat(prior + share, k), np.repeat([0, 1], k))
    h = np.full(2 * k, mean)
    for values in (h, torch.from_numpy(h)):
        clip = losses.clip_threshold(bags.size, regret=0.5, estimated=estimated)
        value = losses.debiased_square(values, bags, prior=prior, mean=mean, clip=clip)
        np.testing.assert_allclose(value, [(0.99 * threshold) ** 2 / k + 0.01, 0.01], rtol=1e-9)


@pytest.mark.parametrize("regret", [0, -0.1, 1.5])
def test_regret_outside_is_an_error(regret):
    with pytest.raises(ValueError, match=r"^regret must be a number above 0 and at most 1"):
        losses.clip_threshold(4, regret=regret)


# -- label generation ---------------------------------------------------------------------------------------------

TEMPERATURES = pytest.mark.parametrize("temperature", [0, 0.05, 0.5, 1.0, 3.0])


def fractional(seed=0, scale=1.0):
    """Logits of unequal bags whose counts are no whole numbers, some outside 0 … k."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, size=60)
    ids = np.repeat(np.arange(60), sizes)
    bags = Bags.from_rows(rng.uniform(-0.2, 1.2, size=60)[ids], ids, noise_variance=1.0)
    return scale * rng.normal(size=len(ids)), bags


@TEMPERATURES
@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0])
def test_generated_labels_add_up_to_the_clipped_count(temperature, scale, torch):
    z, bags = fractional(scale=scale)
    count = np.clip(bags.size * bags.proportion, 0, bags.size)
    assert (count != bags.size * bags.proportion).any()
    for values in (z, torch.from_numpy(z), torch.tensor(z, dtype=torch.float32)):
        labels = to_numpy(losses.generate_labels(values, bags, temperature=temperature, logits=True))
        assert ((labels >= 0) & (labels <= 1)).all()
        largest = 1 + abs(z).max() / (temperature or 1)  # a logit is known up to rounding, and a label not better
        off = abs(bags.sum(labels) - count) / bags.size
        assert (off <= 8 * np.finfo(labels.dtype).eps * largest).all()


@TEMPERATURES
def test_generated_labels_follow_the_predictions(temperature):
    z, bags = fractional()
    labels = losses.generate_labels(z, bags, temperature=temperature, logits=True)
    for a, b in itertools.pairwise(bags.offsets):
        assert (np.diff(labels[a:b][np.argsort(z[a:b])]) >= -1e-12).all()


def test_a_low_temperature_gives_hard_labels():
    h, bags = batch((9, 4, 16))
    hard = losses.generate_labels(h, bags, temperature=0)
    assert set(hard.tolist()) == {0.0, 1.0}
    np.testing.assert_allclose(losses.generate_labels(h, bags, temperature=1e-4), hard, atol=1e-6)


def test_labels_at_temperature_1_are_the_nearest_to_h():
    """The gradient of KL(u, h) must not change by moving label from one row to another: one value for the bag."""
    z, bags = fractional()
    labels = losses.generate_labels(z, bags, logits=True)
    inside = (bags.proportion > 0) & (bags.proportion < 1) & (bags.size > 1)
    for j in np.flatnonzero(inside):
        part = slice(*bags.offsets[j : j + 2])
        gradient = np.log(labels[part] / (1 - labels[part])) - z[part]
        np.testing.assert_allclose(gradient, gradient[0], atol=1e-9)


def test_labels_of_predictions_that_add_up_are_the_predictions():
    h = np.array([0.1, 0.3, 0.6, 0.9, 0.7])
    bags = Bags.from_rows(aggregate(h, [0, 0, 0, 1, 1]), [0, 0, 0, 1, 1])
    np.testing.assert_allclose(losses.generate_labels(h, bags), h, rtol=1e-12)


def test_no_gradient_flows_through_the_labels(torch):
    z, bags = fractional()
    values = torch.tensor(z, requires_grad=True)
    labels = losses.generate_labels(values, bags, logits=True)
    assert not labels.requires_grad
    losses.label_generation(values, bags, logits=True).sum().backward()
    expected = (1 / (1 + np.exp(-z)) - labels.numpy()) / bags.repeat(bags.size)
    np.testing.assert_allclose(values.grad, expected, rtol=1e-9)


@pytest.mark.parametrize("temperature", [-0.1, math.inf, math.nan])
def test_temperatures_that_are_none(temperature):
    with pytest.raises(ValueError, match="temperature must be a finite number of at least 0"):
        losses.label_generation(np.array([0.5]), Bags.singletons([1.0]), temperature=temperature)


def test_undeclared_noise_is_refused_by_label_generation():
    with pytest.raises(ValueError, match=r"bag 'a' reports proportion 1\.5, outside"):
        losses.label_generation(np.full(2, 0.5), Bags.from_rows([1.5, 1.5], ["a", "a"]))


# -- by name ------------------------------------------------------------------------------------------------------


def test_losses_by_name_are_the_functions():
    h, bags = batch(SIZES["unequal"])
    prior, loo = means.prior(bags), means.LeaveOneOut()
    mean = loo(h, bags).value
    expected = {
        "debiased_square": losses.debiased_square(h, bags, prior=prior, mean=mean),
        "li_square": losses.li_square(h, bags, prior=prior, mean=mean),
        "matching_square": losses.matching_square(h, bags),
        "matching_cross_entropy": losses.matching_cross_entropy(h, bags),
        "easyllp": losses.easyllp(h, bags, prior=prior, loss="log"),
        "easyllp_square": losses.easyllp(h, bags, prior=prior, loss="square"),
        "count_likelihood": losses.count_likelihood(h, bags, prior=prior, mean=mean),
        "label_generation": losses.label_generation(h, bags),
    }
    for kind in ("log", "square"):
        d = loo(losses.difference(h, kind), bags).value
        expected[f"centred_{kind}"] = losses.centred(h, bags, prior=prior, mean=d, loss=kind)
    assert set(expected) == set(LOSSES)
    for name, loss in LOSSES.items():
        np.testing.assert_array_equal(loss(h, bags, prior=prior, means=loo), expected[name])
        if loss.takes_logits:
            np.testing.assert_allclose(
                loss(np.log(h / (1 - h)), bags, prior=prior, means=loo, logits=True), expected[name], rtol=1e-10
            )


def test_corrected_means_reach_the_losses_that_correct():
    h, bags = batch(SIZES["unequal"])
    estimate = means.Corrected()(h, bags)
    for name, gain in (("debiased_square", bags.size + 1), ("li_square", 1 - bags.size)):
        corrected = LOSSES[name](h, bags, prior=PRIOR, means=means.Corrected())
        plain = LOSSES[name](h, bags, prior=PRIOR, means=means.LeaveOneOut())
        np.testing.assert_allclose(plain - corrected, gain * estimate.variance)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("strategy", [means.LeaveOneOut(), means.Running(decay=0.5), means.Known(0.4)], ids=repr)
@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.gradient is not None])
def test_derivatives_by_bag_sums_are_those_of_the_loss(sizes, strategy, name):
    """The loss is that of the function, the slope that of finite differences; several batches at once, too."""
    h, bags = batch(sizes)
    if len(bags) < 2:
        pytest.skip("a batch has two bags or more")
    loss, sums = LOSSES[name], bags.sum(h)

    def by_sums(sums):
        mean, rest = copy.deepcopy(strategy).of_sums(sums, bags.size, bags.n_bagged)
        return loss.gradient(sums, bags.size, bags.proportion, prior=PRIOR, mean=mean, rest=rest)

    value, slope = by_sums(sums)
    assert value == pytest.approx(loss(h, bags, prior=PRIOR, means=copy.deepcopy(strategy)).mean())
    step = 1e-5
    for j in range(len(bags)):
        aside = step * (np.arange(len(bags)) == j)
        difference = (by_sums(sums + aside)[0] - by_sums(sums - aside)[0]) / (2 * step)
        if isinstance(strategy, means.Running):  # whose past is a constant; here there is none
            assert strategy.weight == 0
        assert slope[j] == pytest.approx(difference, rel=1e-6, abs=1e-8)
    values, slopes = by_sums(np.stack([sums, 2 * sums]))
    assert values[0] == pytest.approx(value)
    np.testing.assert_allclose(slopes[1], by_sums(2 * sums)[1])


def test_losses_by_name_say_what_is_missing():
    h, bags = batch(SIZES["unequal"])
    with pytest.raises(ValueError, match="needs the prior: pass prior="):
        LOSSES["debiased_square"](h, bags, means=means.LeaveOneOut())
    with pytest.raises(ValueError, match="needs a mean: pass means="):
        LOSSES["centred_log"](h, bags, prior=0.5)
    with pytest.raises(ValueError, match="apply the sigmoid"):
        LOSSES["matching_square"](h, bags, logits=True)
    with pytest.raises(ValueError, match=r"^loss must be one of 'debiased_square', .*, got 'theirs'"):
        losses.by_name("theirs")
    assert losses.by_name("debiased_square") is LOSSES["debiased_square"]
    with pytest.raises(ValueError, match="loss must be 'log', 'square' or a pair of functions"):
        losses.easyllp(h, bags, prior=0.5, loss="hinge")


# -- statistics: x uniform on [0, 1], P(y = 1) = x², h = 0.1 + 0.8 x³; nothing is centred by accident ----------------


def prediction(x):
    return 0.1 + 0.8 * x**3


def expectation(function):
    return integrate.quad(function, 0, 1)[0]


P = 1 / 3
MEAN_H = expectation(prediction)
RISK = {
    "square": expectation(lambda x: x**2 * (1 - prediction(x)) ** 2 + (1 - x**2) * prediction(x) ** 2),
    "log": expectation(lambda x: -(x**2) * math.log(prediction(x)) - (1 - x**2) * math.log(1 - prediction(x))),
}
MEAN_D = {
    "square": expectation(lambda x: 1 - 2 * prediction(x)),
    "log": expectation(lambda x: math.log(1 - prediction(x)) - math.log(prediction(x))),
}
UNBIASED = {
    "debiased": ("square", lambda h, b: losses.debiased_square(h, b, prior=P, mean=MEAN_H)),
    "li": ("square", lambda h, b: losses.li_square(h, b, prior=P, mean=MEAN_H)),
    "easyllp square": ("square", lambda h, b: losses.easyllp(h, b, prior=P, loss="square")),
    "easyllp log": ("log", lambda h, b: losses.easyllp(h, b, prior=P, loss="log")),
    "centred square": ("square", lambda h, b: losses.centred(h, b, prior=P, mean=MEAN_D["square"], loss="square")),
    "centred log": ("log", lambda h, b: losses.centred(h, b, prior=P, mean=MEAN_D["log"], loss="log")),
}


def sample(sizes, seed):
    """Random bags of these sizes with predictions, rows already in bag order."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.random(len(ids))
    y = rng.random(len(ids)) < x**2
    return prediction(x), Bags.from_rows(aggregate(y, ids), ids)


def standard_error(values):
    return values.std(ddof=1) / math.sqrt(len(values))


@pytest.mark.parametrize("name", UNBIASED)
@pytest.mark.parametrize("k", [1, 4, 64, None])
def test_unbiased_over_random_bags(name, k, seed):
    m = 8000
    sizes = np.random.default_rng(seed).integers(1, 65, size=m) if k is None else np.full(m, k)
    kind, loss = UNBIASED[name]
    values = loss(*sample(sizes, seed + 100))
    assert abs(values.mean() - RISK[kind]) < 5 * standard_error(values)


def moment(power):
    """Central moments of y − h."""
    delta = P - MEAN_H
    return expectation(
        lambda x: x**2 * (1 - prediction(x) - delta) ** power + (1 - x**2) * (-prediction(x) - delta) ** power
    )


def theory_debiased(k):
    """Var(S²/k) of a sum S of k independent centred terms."""
    return 2 * moment(2) ** 2 + (moment(4) - 3 * moment(2) ** 2) / k


def theory_li(k):
    """Var((kδ + S)²/k): the mean error δ = p − E[h] makes it grow with k."""
    delta = P - MEAN_H
    return theory_debiased(k) + 4 * k * delta**2 * moment(2) + 4 * delta * moment(3)


@pytest.mark.parametrize(("name", "theory"), [("debiased", theory_debiased), ("li", theory_li)])
@pytest.mark.parametrize("k", [4, 256])
def test_variance_is_that_of_theory(name, theory, k, seed):
    values = UNBIASED[name][1](*sample(np.full(4000, k), seed))
    squares = (values - values.mean()) ** 2
    assert abs(squares.mean() - theory(k)) < 5 * standard_error(squares)


def test_variance_grows_with_the_bags_only_where_it_must(seed):
    small, large = sample(np.full(4000, 4), seed), sample(np.full(4000, 256), seed)
    growth = {name: loss(*large).var() / loss(*small).var() for name, (_, loss) in UNBIASED.items()}
    for name in ("debiased", "centred square", "centred log"):
        assert growth[name] < 1.5
    assert theory_li(256) > 2 * theory_li(4)
    assert growth["li"] > 2
    for name in ("easyllp square", "easyllp log"):
        assert growth[name] > 10


@pytest.mark.parametrize("k", [4, 64])
def test_noise_on_the_count_adds_its_variance_over_k(k, seed):
    h, bags = sample(np.full(8000, k), seed)
    s = 3.0
    noise = np.random.default_rng(seed + 1).normal(scale=s, size=len(bags))
    noised = replace(bags, proportion=bags.proportion + noise / k)
    gain = UNBIASED["debiased"][1](h, noised) - UNBIASED["debiased"][1](h, bags)
    assert abs(gain.mean() - s**2 / k) < 5 * standard_error(gain)


def test_random_bags_of_a_fixed_table_keep_the_mean(seed):
    """Cutting one table at random, with p and E[h] those of the table, gives the table's risk up to (n−k)/(n−1)."""
    rng = np.random.default_rng(seed)
    n, k = 64, 8
    h, y = rng.random(n), (rng.random(n) < 0.4).astype(float)
    values = []
    for i in range(2000):
        ids = random_bags(n, k, random_state=10_000 * seed + i)
        bags = Bags.from_rows(aggregate(y, ids), ids)
        values.append(losses.debiased_square(h[bags.order], bags, prior=y.mean(), mean=h.mean()).mean())
    delta2 = (h.mean() - y.mean()) ** 2
    expected = (((y - h) ** 2).mean() - delta2) * (n - k) / (n - 1) + delta2
    assert abs(np.mean(values) - expected) < 5 * standard_error(np.array(values))


@pytest.mark.parametrize("name", LOSSES)
def test_predictions_of_the_wrong_length_are_refused(name):
    bags = Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1])
    with pytest.raises(ValueError, match=r"the bags hold 3 rows but [24]"):
        LOSSES[name](np.full(4, 0.5), bags, prior=0.5, means=means.Known(0.5))
    with pytest.raises(ValueError, match=r"the bags hold 3 rows but [24]"):
        LOSSES[name](np.full(2, 0.5), bags, prior=0.5, means=means.Known(0.5))


def test_a_name_is_no_means_strategy():
    with pytest.raises(ValueError, match="pass means="):
        LOSSES["debiased_square"](np.full(1, 0.5), Bags.singletons([1.0]), prior=0.5, means="leave_one_out")
