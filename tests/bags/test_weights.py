"""Weights and offsets of rows, and every sum and likelihood of weighted rows beside those of rows repeated."""

import numpy as np
import pytest
from scipy.special import expit

from bagwise.bags import Bags, several
from bagwise.losses.likelihood import count_likelihood, count_likelihood_gradient, extra_variance, posterior
from bagwise.losses.tilting import tilted_counts
from bagwise.losses.tilting_classes import tilted_classes
from bagwise.losses.tilting_intervals import tilted
from bagwise.utils.parameters import ParameterError
from tests.weighted import drawn

IDS = np.array([1, 0, 0, -1, 1])


def test_sizes_and_sums_are_of_people():
    bags = Bags.from_rows([0.5] * 5, IDS).with_weights([2, 1, 0, np.nan, 0.5])
    assert bags.size.tolist() == [1.0, 2.5]
    assert bags.rows.tolist() == [2, 2]
    assert (bags.n_people, bags.n_bagged) == (3.5, 4)
    values = np.array([4.0, 1.0, 8.0, 100.0, 2.0])
    for found in (bags.sum(values[bags.order]), bags.sum_table(values), bags.take([0, 1]).sum_table(values)):
        np.testing.assert_allclose(found, [1.0, 9.0])
    np.testing.assert_allclose(bags.mean(values[bags.order]), [1.0, 3.6])
    np.testing.assert_allclose(bags.average(values[bags.order]), 10 / 3.5)
    np.testing.assert_allclose(bags.take([1]).weight, [2.0, 0.5])
    np.testing.assert_allclose(bags.of_table(bags.weight), [2, 1, 0, 0, 0.5])
    singles = Bags.singletons([0, 1]).with_weights([3, 2])
    np.testing.assert_allclose(singles.sum_table(np.array([[1.0], [5.0]])), [[3.0], [10.0]])


def test_without_weights_nothing_is_added():
    bags = Bags.from_rows([0.5] * 5, IDS)
    assert bags.weight is None
    assert bags.size.dtype.kind == "i"
    assert np.shares_memory(bags.rows, bags.size)
    assert bags.weighted(values := np.ones(4)) is values


def test_offsets_go_with_their_rows():
    bags = Bags.from_rows([0.5] * 5, IDS).with_weights([2, 1, 1, 1, 1]).with_offset([5.0, 1.0, 2.0, np.inf, 6.0])
    assert bags.offset.tolist() == [1.0, 2.0, 5.0, 6.0]
    assert bags.take([1]).offset.tolist() == [5.0, 6.0]
    assert bags.take([1]).weight.tolist() == [2.0, 1.0]


def test_reported_counts_and_sizes_are_of_people():
    reports = {"bag": [0, 1], "count": [2, 3], "size": [5, 4]}
    given = {"count": "count", "size": "size"}
    bags = Bags.from_reports([0, 0, 1], reports, **given, sample_weight=[3, 2, 4])
    assert bags.proportion.tolist() == [0.4, 0.75]
    with pytest.raises(ValueError, match="reports size 5"):
        Bags.from_reports([0, 0, 1], reports, **given)


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        ([1, -1, 1, 1, 1], r"sample_weight of row 1 is -1: it must be a number of people"),
        ([1, np.nan, 1, 1, 1], r"sample_weight of row 1 is nan"),
        ([1, 0, 0, 1, 1], r"sample_weight is 0 in all rows of bag 0"),
        ([1, 2], r"sample_weight must hold one number per row, shape \(5,\), got shape \(2,\)"),
        (["a"] * 5, r"sample_weight must hold one number per row"),
    ],
)
def test_what_is_no_weight_is_refused(weight, said):
    with pytest.raises(ParameterError, match=said):
        Bags.from_rows([0.5] * 5, IDS).with_weights(weight)


def test_what_does_not_go_with_weights_is_refused():
    bags = Bags.from_rows([0.5] * 5, IDS)
    weighted = bags.with_weights(np.full(5, 2))
    with pytest.raises(ParameterError, match="offset of row 4 is nan"):
        bags.with_offset([0, 0, 0, 0, np.nan])
    with pytest.raises(ParameterError, match="same of a row, but give row 1 the weights 2 and 1"):
        several([weighted, bags])
    with pytest.raises(ParameterError, match="sample_weight is given to each of several groupings"):
        several([bags, Bags.from_rows([0.2] * 5, [0, 1, 2, 2, 2])]).with_weights(np.ones(5))
    with pytest.raises(ParameterError, match="labels are of row 3, which is in no bag, so that its offset is"):
        bags.with_offset(np.zeros(5)).with_labels([np.nan, np.nan, np.nan, 1, np.nan])
    with pytest.raises(ParameterError, match="whole numbers where counts are hidden"):
        bags.with_intervals([0, 0], [1, 2]).with_weights(np.full(5, 1.5))


def test_labelled_rows_leave_with_all_their_people():
    """Bag 0 has people 1, 2 and 4, of whom 6 are positive; the row of 4 is."""
    bags = Bags.from_rows([6 / 7] * 3 + [0.5, 0.5, 9], [0, 0, 0, 1, 1, -1]).with_weights([1, 2, 4, 1, 3, 1])
    found = bags.with_offset([0.1, 0.2, 0.3, 0.4, 0.5, 9.0]).with_labels([np.nan, np.nan, 1, 0, np.nan, np.nan])
    assert found.size.tolist() == [3, 3, 4, 1]
    np.testing.assert_allclose(found.size * found.proportion, [2, 2, 4, 0])
    np.testing.assert_allclose(found.of_table(found.offset), [0.1, 0.2, 0.3, 0.4, 0.5, 0.0])
    outside = bags.with_labels([np.nan] * 5 + [1])  # in no bag: one person
    assert (outside.size[-1], outside.proportion[-1]) == (1, 1)
    whole = bags.with_labels([0, 1, 1, np.nan, np.nan, np.nan])  # all of a bag
    assert (len(whole), whole.n_people) == (4, 11)
    with pytest.raises(ValueError, match="labels of rows of bag 0 do not fit its report"):
        bags.with_labels([np.nan, 0, 0, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("hidden", [False, True])
def test_likelihoods_beside_labels_are_those_of_rows_repeated(hidden):
    rng = np.random.default_rng(2)
    n, m = 60, 6
    ids, weight, y = np.arange(n) % m, rng.integers(1, 4, n), rng.integers(0, 2, n)
    rows, label = np.repeat(np.arange(n), weight), np.where(rng.random(n) < 0.2, y, np.nan)
    share = (np.bincount(ids, weight * y) / np.bincount(ids, weight))[ids]
    one, many = Bags.from_rows(share, ids).with_weights(weight), Bags.from_rows(share[rows], ids[rows])
    if hidden:
        count = np.bincount(ids, weight * y)
        one, many = (bags.with_intervals(np.maximum(count - 2, 0), count + 1) for bags in (one, many))
    one, many, s = one.with_labels(label), many.with_labels(label[rows]), rng.normal(size=n)
    found, known = (tilted(x[bags.order], bags).log_likelihood for x, bags in ((s, one), (s[rows], many)))
    np.testing.assert_allclose(found[:m], known[:m], rtol=1e-8)
    np.testing.assert_allclose(found.sum(), known.sum(), rtol=1e-8)


# -- likelihoods ------------------------------------------------------------------------------------------------------


def repeated_sums(values, rows, n):
    """(n, …) sums over the repeats of each row."""
    found = np.zeros((n, *values.shape[1:]))
    np.add.at(found, rows, values)
    return found


@pytest.mark.parametrize(("n", "m"), [(40, 20), (60, 6), (600, 5)])  # exact, both, by the series
@pytest.mark.parametrize("effect_variance", [0.0, 0.3])
@pytest.mark.parametrize("hidden", [False, True])
def test_whole_weights_are_rows_repeated(n, m, effect_variance, hidden):
    given = drawn("random", n, m, seed=n)
    bags, repeated = given.bags, given.repeated
    if hidden:  # some counts are not known
        count = np.rint(bags.size * bags.proportion)
        open_ = np.arange(m) % 2 == 0
        ends = (
            np.where(open_, np.maximum(count - 2, 0), count),
            np.where(open_, np.minimum(count + 3, bags.size), count),
        )
        bags, repeated = bags.with_intervals(*ends), repeated.with_intervals(*ends)
        np.testing.assert_allclose(bags.noise_variance, repeated.noise_variance)
    s = np.random.default_rng(1).normal(size=n)
    one, many = s[bags.order], s[given.rows][repeated.order]
    extra = [extra_variance(*pair, effect_variance) for pair in ((one, bags), (many, repeated))]
    found, known = tilted(one, bags, extra=extra[0]), tilted(many, repeated, extra=extra[1])
    np.testing.assert_allclose(found.log_likelihood, known.log_likelihood, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.variance, known.variance, rtol=1e-8)
    for each in ("gradient", "posterior", "spread"):
        by_row = np.zeros(n)
        by_row[given.rows[repeated.order]] = getattr(known, each)  # all repeats have the same
        np.testing.assert_allclose(getattr(found, each), by_row[bags.order], rtol=1e-6, atol=1e-7)


def test_whole_weights_are_rows_repeated_for_classes():
    rng = np.random.default_rng(0)
    n, m = 60, 6
    weight, ids = rng.integers(1, 4, n), np.arange(n) % m
    rows = np.repeat(np.arange(n), weight)
    labels = rng.integers(0, 3, len(rows))
    counts = repeated_sums(np.eye(3)[labels], ids[rows], m)
    proportion = (counts / counts.sum(axis=1, keepdims=True))[ids]
    bags = Bags.from_rows(proportion, ids).with_weights(weight)
    repeated = Bags.from_rows(proportion[rows], ids[rows])
    s = rng.normal(size=(n, 3))
    found, known = tilted_classes(s[bags.order], bags), tilted_classes(s[rows][repeated.order], repeated)
    np.testing.assert_allclose(found.log_likelihood, known.log_likelihood, rtol=1e-9)
    np.testing.assert_allclose(bags.sum(found.posterior), repeated.sum(known.posterior), rtol=1e-9)


@pytest.mark.parametrize("part", [0.0, 0.37])
def test_the_gradient_is_that_of_the_likelihood_and_posteriors_add_up(part):
    given = drawn("features", 90, 6, seed=3)
    weight = given.weight + part
    size = np.bincount(given.ids, weight)
    count = np.rint(np.bincount(given.ids, given.weight * expit(given.X[:, 0])))
    bags = Bags.from_rows((count / size)[given.ids], given.ids).with_weights(weight)
    s, step = np.random.default_rng(0).normal(size=90), 1e-5
    _, slope = count_likelihood_gradient(s, bags)
    for row in (0, 17, 89):
        move = step * (np.arange(90) == row)
        up, down = (count_likelihood_gradient(s + sign * move, bags)[0].sum() for sign in (1, -1))
        assert slope[row] == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-7)
    np.testing.assert_allclose(bags.sum(posterior(s, bags)), count, rtol=1e-8)


def test_parts_of_people_are_near_whole_ones():
    """The series that weights in parts have, beside the exact likelihood of about the same weights."""
    given = drawn("random", 160, 4, seed=5)
    s = np.random.default_rng(0).normal(size=160)
    whole = tilted_counts(s, given.bags, exact_up_to=1000).log_likelihood
    near = given.bags.with_weights(given.weight * (1 + 1e-9))
    np.testing.assert_allclose(tilted_counts(s, near).log_likelihood, whole, atol=1e-3)


def test_a_row_whose_people_are_all_alike_is_weighted_supervision():
    bags = Bags.singletons([0, 1, 1]).with_weights([0.5, 2.0, 3.7])
    h = np.array([0.2, 0.6, 0.9])
    expected = -np.array([0.5, 2.0, 3.7]) * np.log([0.8, 0.6, 0.9])
    np.testing.assert_allclose(count_likelihood(h, bags), expected)
    np.testing.assert_allclose(posterior(np.zeros(3), bags), [0, 1, 1])
