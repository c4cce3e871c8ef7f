"""Estimates of p and E[h]: formulas, gradients, and the bias of their squares by simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise import Bags, aggregate, losses, means
from bagwise.segment import to_numpy

STRATEGIES = {**means.MEANS, "known": lambda: means.Known(0.5)}


@pytest.fixture
def bags():
    """Bags of 2, 1 and 3 rows."""
    return Bags.from_rows([0.5, 0.5, 1, 1 / 3, 1 / 3, 1 / 3], [0, 0, 1, 2, 2, 2])


def plain_leave_one_out(values, bags):
    code = np.repeat(np.arange(len(bags)), bags.size)
    return np.stack([values[code != j].mean(axis=0) for j in range(len(bags))])


def test_prior_is_the_mean_label_of_rows(bags, torch):
    assert means.prior(bags) == pytest.approx(3 / 6)
    assert isinstance(means.prior(bags), float)
    assert means.prior(bags.like(torch.zeros(1))).item() == pytest.approx(0.5)


def test_prior_of_classes():
    y = np.eye(3)[[0, 1, 1, 2, 1]]
    ids = [0, 0, 0, 1, -1]
    np.testing.assert_allclose(means.prior(Bags.from_rows(aggregate(y, ids), ids)), [0.25, 0.5, 0.25])


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("shape", [(), (3,)])
def test_one_interface_for_numpy_and_torch(name, shape, bags, torch):
    values = np.random.default_rng(0).random((6, *shape))
    estimate, tensor = STRATEGIES[name]()(values, bags), STRATEGIES[name]()(torch.from_numpy(values), bags)
    assert isinstance(estimate, means.Mean)
    for a, b in zip(estimate, tensor, strict=True):
        np.testing.assert_allclose(a, to_numpy(b))
        assert np.broadcast_shapes(np.shape(a), (3, *shape)) == (3, *shape)


@pytest.mark.parametrize("name", means.MEANS)
@pytest.mark.parametrize("shape", [(), (3,)])
def test_batch_means_leave_the_bag_out(name, shape, bags):
    values = np.random.default_rng(0).random((6, *shape))
    np.testing.assert_allclose(means.MEANS[name]()(values, bags).value, plain_leave_one_out(values, bags))


@pytest.mark.parametrize("name", means.MEANS)
def test_a_bags_own_rows_do_not_touch_its_mean(name, bags, torch):
    """Also over earlier batches: independence of the bag is what makes the losses unbiased."""
    first, second = torch.rand(6, dtype=torch.float64), torch.rand(6, dtype=torch.float64, requires_grad=True)
    strategy = means.MEANS[name]()
    strategy(first, bags)
    value = strategy(second, bags).value
    for j, own in enumerate(([0, 1], [2], [3, 4, 5])):
        (slope,) = torch.autograd.grad(value[j], second, retain_graph=True)
        assert (slope[own] == 0).all()
        changed = second.detach().clone()
        changed[own] += 1
        again = means.MEANS[name]()
        again(first, bags)
        assert again(changed, bags).value[j].item() == pytest.approx(value[j].item())


def test_corrected_variance_is_that_of_the_others_mean(bags):
    values = np.random.default_rng(0).random(6)
    estimate = means.Corrected()(values, bags)
    np.testing.assert_allclose(estimate.variance, values.var(ddof=1) / (6 - bags.size))


def test_held_out_means_know_their_variance(torch):
    values = np.random.default_rng(0).random((50, 2))
    for array in (values, torch.from_numpy(values)):
        known = means.Known.held_out(array)
        np.testing.assert_allclose(known.value, values.mean(axis=0))
        np.testing.assert_allclose(known.variance, values.var(axis=0, ddof=1) / 50)
    with pytest.raises(ValueError, match="held-out part has 1 rows: at least 2"):
        means.Known.held_out(np.array([0.5]))


@given(st.floats(0, 1), st.integers(1, 4))
def test_running_equals_the_weighted_mean_of_past_and_present(decay, batches):
    rng = np.random.default_rng(0)
    bags = Bags.from_rows([0, 0, 1, 0.5, 0.5], [0, 0, 1, 2, 2])
    running, history = means.Running(decay=decay), rng.random((batches, 5))
    for values in history:
        value = running(values, bags).value
    for j, inside in enumerate(([0, 1], [2], [3, 4])):
        weight = np.concatenate([np.full(5, decay ** (batches - 1 - t)) for t in range(batches)])
        weight[-5:] = [i not in inside for i in range(5)]
        assert value[j] == pytest.approx(np.average(history.ravel(), weights=weight))


def test_running_has_the_gradient_of_the_current_batch(bags, torch):
    weight = torch.tensor([1.0, 2.0, 3.0])
    running = means.Running(decay=0.9)
    past = torch.rand(6, requires_grad=True)
    running(past, bags)
    gradients = []
    for strategy in (running, means.LeaveOneOut()):
        h = torch.linspace(0.1, 0.9, 6, requires_grad=True)
        (strategy(h, bags).value * weight).sum().backward()
        gradients.append(h.grad)
    np.testing.assert_allclose(*gradients, rtol=1e-6)
    assert past.grad is None  # earlier batches belong to earlier parameters
    assert not running.total.requires_grad


@pytest.mark.parametrize("decay", [-0.1, 1.1])
def test_decay_outside_is_an_error(decay, bags):
    with pytest.raises(ValueError, match=r"^decay must be a number of at least 0 and at most 1"):
        means.Running(decay=decay)(np.zeros(6), bags)


@pytest.mark.parametrize("name", means.MEANS)
def test_one_bag_is_an_error_that_says_so(name):
    with pytest.raises(ValueError, match=r"the batch holds one bag only.*use larger batches, or means that are known"):
        means.MEANS[name]()(np.array([0.1, 0.2]), Bags.from_rows([0.5, 0.5], [0, 0]))


# -- the bias of a squared estimate, by simulation: h uniform on [0, 1] ---------------------------------------------

SIZE, BAGS = 16, 6
VARIANCE = 1 / 12


def gains(strategy, loss, *, sizes, batches, seed):
    """What estimating E[h] adds to the loss of each bag: (batches, bags)."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(len(sizes)), sizes)
    empty = Bags.from_rows(np.zeros(len(ids)), ids)
    result = []
    for _ in range(batches):
        h = rng.random(len(ids))
        bags = replace(empty, proportion=empty.mean(rng.random(len(ids)) < h**2))
        estimate = strategy(h, bags)
        exact = loss(h, bags, prior=1 / 3, mean=0.5)
        result.append(loss(h, bags, prior=1 / 3, mean=estimate.value, mean_variance=estimate.variance) - exact)
    return np.array(result)


def check_mean(gain, expected):
    """Bags of a batch share its rows: the batch is the unit, for each bag."""
    error = gain.std(axis=0, ddof=1) / math.sqrt(len(gain))
    assert (abs(gain.mean(axis=0) - expected) <= 5 * error).all()


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(SIZE,) * BAGS, (40, 4, 16, 1)])
@pytest.mark.parametrize(
    ("loss", "factor"), [(losses.debiased_square, lambda k: k + 1), (losses.li_square, lambda k: 1 - k)]
)
def test_leave_one_out_gains_what_theory_says_and_corrected_nothing(loss, factor, sizes, seed):
    k = np.array(sizes)
    gain = gains(means.LeaveOneOut(), loss, sizes=sizes, batches=3000, seed=seed)
    bias = factor(k) * VARIANCE / (k.sum() - k)
    check_mean(gain, bias)
    if loss is losses.debiased_square:  # the simulation is large enough to see the bias
        with pytest.raises(AssertionError):
            check_mean(gain, 0)
    check_mean(gains(means.Corrected(), loss, sizes=sizes, batches=3000, seed=seed), 0)


def test_running_without_decay_nearly_removes_the_gain(seed):
    """Estimates of successive batches are alike, so each run counts once, by its last batch."""
    batches, runs = 20, 300
    sizes = (SIZE,) * BAGS
    last = [
        gains(means.Running(decay=1.0), losses.debiased_square, sizes=sizes, batches=batches, seed=runs * seed + run)[
            -1
        ]
        for run in range(runs)
    ]
    alone = (SIZE + 1) * VARIANCE / (SIZE * (BAGS - 1))
    check_mean(np.array(last), (SIZE + 1) * VARIANCE / (SIZE * (BAGS * batches - 1)))
    with pytest.raises(AssertionError):
        check_mean(np.array(last), alone)


def test_held_out_means_are_corrected_too(seed):
    rng = np.random.default_rng(seed)

    def fresh(values, bags):
        known = means.Known.held_out(rng.random(50))
        return known(values, bags)

    check_mean(gains(fresh, losses.debiased_square, sizes=(SIZE,) * BAGS, batches=3000, seed=seed + 1), 0)
    uncorrected = gains(lambda v, b: means.Mean(fresh(v, b).value), losses.debiased_square,
                        sizes=(SIZE,) * BAGS, batches=3000, seed=seed + 1)  # fmt: skip
    check_mean(uncorrected, (SIZE + 1) * VARIANCE / 50)
