import numpy as np
import pytest
from scipy.stats import rankdata

from bagwise.ranks import Product, scores_of


@pytest.mark.parametrize("kind", [float, np.float32, int])
def test_a_column_is_compared_by_its_mean_ranks(kind):
    rng = np.random.default_rng(0)
    values = rng.integers(-20, 20, 500).astype(kind) / (1 if kind is int else kind(3))
    values[:3] = -0.0  # the same as 0
    weight = rng.integers(1, 4, 500).astype(float)
    ((ranks, unusual),) = scores_of(values, "x")
    np.testing.assert_array_equal(ranks[:], rankdata(values) - 0.5)
    assert unusual == 500 - np.unique(values, return_counts=True)[1].max()
    ((ranks, unusual),) = scores_of(values, "x", weight)
    people = np.repeat(np.arange(500), weight.astype(int))
    ((each, differ),) = scores_of(values[people], "x")
    np.testing.assert_array_equal(ranks[people], each[:])
    assert unusual == differ


def test_categories_are_compared_by_the_frequent_ones_too():
    rng = np.random.default_rng(0)
    values = rng.choice(np.array(["a", "b", "c"], dtype=object), 300, p=[0.2, 0.5, 0.3])
    (place, most), *each = scores_of(values, "x")
    np.testing.assert_array_equal(place[:], rankdata(np.unique(values, return_inverse=True)[1]) - 0.5)
    assert most == 300 - np.count_nonzero(values == "b")
    for (indicator, unusual), level in zip(each, "bca", strict=True):
        np.testing.assert_array_equal(indicator[:], values == level)
        np.testing.assert_array_equal(indicator[7:9], values[7:9] == level)
        assert unusual == min(np.count_nonzero(values == level), np.count_nonzero(values != level))


def test_products_are_of_deviations_of_all_rows_or_of_some():
    rng = np.random.default_rng(0)
    values, other = rng.normal(size=(2, 50))
    ((ranks, _),) = scores_of(values, "x")
    rows = np.array([3, 40, 7])
    for z, mean in ((other, 0.3), (ranks, 24.5)):
        product = Product((ranks, z), (24.5, mean))
        expected = (rankdata(values) - 25) * (z[:] - mean)
        np.testing.assert_array_equal(product[:], expected)
        np.testing.assert_array_equal(product[rows], expected[rows])
