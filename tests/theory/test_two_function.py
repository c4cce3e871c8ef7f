"""The information bound against closed forms, brute force and its limits."""

import time

import numpy as np
import pytest
from scipy import special, stats

from bagwise.theory import SymmetricPair, information_bound, limiting_information
from bagwise.theory.two_function import binary_entropy
from bagwise.utils.parameters import ParameterError


def bits(size, regret):
    return information_bound(SymmetricPair(size=size, regret=regret)).constants["bits"]


@pytest.mark.parametrize("regret", [1e-4, 0.01, 0.3, 1.0])
def test_single_rows_have_a_closed_form(regret):
    assert bits(1, regret) == pytest.approx(1 - binary_entropy(0.5 + np.sqrt(regret) / 2), abs=1e-13)


@pytest.mark.parametrize("regret", [0.01, 0.5, 1.0])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_equals_mutual_information_summed_over_every_bag(size, regret):
    q = 0.5 + np.sqrt(regret) / 2
    joint = np.zeros((2, 2**size, size + 1))  # the true function, the bag's rows in order, its count
    for bag in range(2**size):
        rows = np.array(list(np.binary_repr(bag, size)), dtype=int)
        for truth in (0, 1):
            distribution = np.ones(1)
            for x in rows:
                p = q if x != truth else 1 - q
                distribution = np.convolve(distribution, [1 - p, p])
            joint[truth, bag] = distribution / 2 ** (size + 1)
    product = joint.sum(axis=(1, 2), keepdims=True) * joint.sum(axis=0, keepdims=True)
    assert bits(size, regret) == pytest.approx(special.rel_entr(joint, product).sum() / np.log(2), abs=1e-12)


@pytest.mark.parametrize("regret", [0.01, 0.1, 0.5])
def test_bound_of_the_proof_holds_and_has_its_limit(regret):
    bounds = [information_bound(SymmetricPair(size=size, regret=regret)) for size in (1, 2, 7, 64, 2048)]
    assert all(b.constants["bits"] <= b.constants["bits_bound"] + 1e-13 for b in bounds)
    assert all(b.value >= b.by_proof * (1 - 1e-12) for b in bounds)
    assert bounds[-1].constants["bits_bound"] == pytest.approx(limiting_information(regret), rel=1e-5)


def test_limit_for_small_regret_is_not_the_regret_itself():
    regret = 1e-6
    assert limiting_information(regret) == pytest.approx(regret / (2 * np.log(2)), rel=1e-5)


def test_exact_information_tends_to_that_of_a_gaussian_channel():
    # With s = k/2 + z √k/2 ones, the counts under both functions become normal, a = z √(β/(1 − β)) deviations from k/2.
    regret = 0.1

    nodes, weight = np.polynomial.hermite_e.hermegauss(80)  # E[f(z)] of a normal z is the sum of weight f(nodes)
    weight = weight / weight.sum()
    a = np.sqrt(regret / (1 - regret)) * nodes[:, None]
    nats = -np.log((1 + np.exp(-2 * a * (nodes + a))) / 2) @ weight  # of a count t + a, t normal, given z
    limit = float(weight @ nats) / np.log(2)
    errors = [abs(bits(size, regret) - limit) for size in (64, 256, 1024)]
    assert errors[2] < errors[1] < errors[0] < 1e-3 * limit


def test_monotone_in_regret_and_error():
    information = [bits(64, regret) for regret in (1e-3, 0.01, 0.1, 0.5, 1.0)]
    assert np.all(np.diff(information) > 0)
    bags = [information_bound(SymmetricPair(size=64, regret=0.01, error=e)).value for e in (0, 0.01, 0.1, 0.4)]
    assert np.all(np.diff(bags) < 0)


@pytest.mark.parametrize("prior", [0.5, 0.2, 0.9])
def test_information_around_any_share_of_positives(prior):
    """Written out: the counts of a bag with s ones under both functions, and what they tell apart."""
    size, regret = 7, 0.03
    high, low = prior + np.sqrt(regret) / 2, prior - np.sqrt(regret) / 2

    def counts(ones, first, second):
        one = stats.binom.pmf(np.arange(ones + 1), ones, first)
        return np.convolve(one, stats.binom.pmf(np.arange(size - ones + 1), size - ones, second))

    total = 0.0
    for ones in range(size + 1):
        one, other = counts(ones, high, low), counts(ones, low, high)
        middle = (one + other) / 2
        told = (one * np.log2(one / middle) + other * np.log2(other / middle)).sum() / 2
        total += stats.binom.pmf(ones, size, 0.5) * told
    found = information_bound(SymmetricPair(size=size, regret=regret, prior=prior))
    assert found.constants["bits"] == pytest.approx(total, rel=1e-9)
    assert (found.by_proof is None) == (prior != 0.5)


@pytest.mark.parametrize(("epsilon", "prior"), [(None, 0.5), (0.2, 0.5), (None, 0.1), (0.05, 0.3)])
def test_large_bags_go_on_where_exact_information_ends(epsilon, prior, monkeypatch):
    """The normal limit tells more than the truth, as noise counts by half of its variance: the bound still holds."""
    pair = SymmetricPair(size=1000, regret=0.01, epsilon=epsilon, prior=prior)
    exact = information_bound(pair).value
    monkeypatch.setattr("bagwise.theory.two_function._EXACT", 0)
    assert (0.95 if epsilon is None else 0.5) * exact < information_bound(pair).value < exact
    for size in (10**6, 10**9):
        assert information_bound(SymmetricPair(size=size, regret=0.01, prior=prior)).value < exact


def test_large_bags_take_less_than_a_second():
    start = time.process_time()
    bits(1024, 0.01)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    [
        ({"size": 0, "regret": 0.1}, "size"),
        ({"size": 2.5, "regret": 0.1}, "size"),
        ({"size": 2, "regret": 0}, "regret"),
        ({"size": 2, "regret": 1.1}, "regret"),
        ({"size": 2, "regret": 0.1, "error": 0.5}, "error"),
        ({"size": 2, "regret": 0.1, "error": -0.1}, "error"),
    ],
)
def test_refuses_what_it_does_not_cover(arguments, parameter):
    with pytest.raises(ParameterError) as error:
        SymmetricPair(**arguments)
    assert error.value.parameter == parameter
