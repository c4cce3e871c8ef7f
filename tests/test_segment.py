"""Sums over bags equal plain loops, in every order, library and type."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise import segment
from bagwise.bags import Bags

codes_and_groups = st.integers(1, 6).flatmap(
    lambda m: st.tuples(st.lists(st.integers(-1, m - 1), max_size=30), st.just(m))
)


@given(codes_and_groups)
def test_group_lists_the_rows_of_each_group_in_table_order(case):
    codes, m = case
    order, offsets = segment.group(np.array(codes, dtype=np.int64), m)
    assert len(offsets) == m + 1
    for j in range(m):
        assert order[offsets[j] : offsets[j + 1]].tolist() == [i for i, code in enumerate(codes) if code == j]


@given(codes_and_groups)
def test_codes_of_inverts_group(case):
    codes, m = case
    order, offsets = segment.group(np.array(codes, dtype=np.int64), m)
    assert segment.codes_of(order, offsets, len(codes)).tolist() == codes


def test_group_leaves_its_argument_alone():
    codes = np.array([1, -1, 0], dtype=np.int32)
    segment.group(codes, 2)
    assert codes.tolist() == [1, -1, 0]


@pytest.mark.parametrize("index", [[2, 0], [1], [0, 0], [-1], np.array([True, False, True]), slice(1, 3), slice(0, 0)])
def test_take_is_the_concatenation_of_the_chosen_bags(index):
    order, offsets = np.array([5, 3, 4, 0, 1, 2]), np.array([0, 1, 3, 6])
    bags = [order[offsets[j] : offsets[j + 1]] for j in range(3)]
    chosen = np.arange(3)[index]
    taken, starts = segment.take(order, offsets, index if isinstance(index, slice) else np.asarray(index))
    assert taken.tolist() == [row for j in chosen for row in bags[j]]
    assert np.diff(starts).tolist() == [len(bags[j]) for j in chosen]


def test_take_outside_the_bags_is_an_error():
    with pytest.raises(IndexError, match="out of bounds"):
        segment.take(np.arange(3), np.array([0, 1, 3]), np.array([2]))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int8", "bool"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 4, 2), (5,)])
def test_sum_sorted_equals_a_loop(shape, dtype, library, sizes, request):
    rng = np.random.default_rng(0)
    values = (100 * rng.random((sum(sizes), *shape))).astype(dtype)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    expected = [sum(values[i].astype(float) for i in range(a, b)) for a, b in itertools.pairwise(offsets)]
    equal_size = sizes[0] if len(set(sizes)) == 1 else None
    if library == "torch":
        values = request.getfixturevalue("torch").from_numpy(values)
    for size in {equal_size, None}:  # the fast path and the general one
        result = segment.sum_sorted(values, offsets, equal_size=size)
        np.testing.assert_allclose(segment.to_numpy(result), expected, rtol=1e-6)


def test_sum_sorted_needs_one_value_per_row():
    with pytest.raises(ValueError, match="the bags hold 3 rows but 2 values were given"):
        segment.sum_sorted(np.zeros(2), np.array([0, 1, 3]))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "bool"])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_sums_of_scattered_rows_equal_a_loop(dtype, shape):
    rng = np.random.default_rng(1)
    codes = rng.integers(-1, 4, size=50)
    values = (100 * rng.random((50, *shape))).astype(dtype)
    expected = np.stack([values[codes == j].astype(float).sum(axis=0) for j in range(4)])
    order, offsets = segment.group(codes, 4)
    bags = Bags.build(np.arange(4), order, offsets, np.zeros(4), None, 50)  # of which no codes are known
    for result in (segment.sum_table(values, codes, 4), bags.sum_table(values)):
        np.testing.assert_allclose(result, expected, rtol=1e-5)
        assert result.dtype == float


def test_rows_in_no_bag_are_not_read():
    assert segment.sum_table(np.array([1.0, np.nan]), np.array([0, -1]), 1).tolist() == [1.0]


def test_a_row_in_two_bags_has_no_code():
    with pytest.raises(ValueError, match="more than one bag"):
        segment.codes_of(np.array([0, 1, 0]), np.array([0, 2, 3]), 2)


def test_repeat_gives_rows_their_bags_value(torch):
    values, offsets = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0, 1, 3])
    expected = [[1.0, 2.0], [3.0, 4.0], [3.0, 4.0]]
    assert segment.repeat(values, offsets).tolist() == expected
    assert segment.repeat(torch.from_numpy(values), offsets).tolist() == expected


def test_as_like_follows_library_and_float_type(torch):
    array = np.array([0.5, 2.0])
    assert segment.as_like(array, torch.zeros(1)).dtype == torch.float32
    assert segment.as_like(array, torch.zeros(1, dtype=torch.int64)).tolist() == [0.5, 2.0]  # not truncated
    assert isinstance(segment.as_like(torch.from_numpy(array), array), np.ndarray)
    assert segment.as_like(None, torch.zeros(1)) is None
    assert segment.as_like(0.5, torch.zeros(1)) == 0.5
    frozen = array.copy()
    frozen.flags.writeable = False
    segment.as_like(frozen, torch.zeros(1))[0] = 7  # a copy, made without a warning
    assert frozen[0] == 0.5


@pytest.mark.parametrize("chunk", [1, 7, 10**6])
def test_sums_of_single_precision_and_of_views_are_exact_in_double(chunk, monkeypatch):
    """A flag on top of a large number: single precision would lose it; sums are added up in chunks of rows."""
    monkeypatch.setattr(segment, "_CHUNK", chunk)
    rng = np.random.default_rng(0)
    wide = (2.0**20 + rng.integers(0, 2, size=(1000, 4))).astype(np.float32)
    codes = rng.integers(-1, 5, size=1000)
    expected = np.stack([wide[codes == j].astype(float).sum(axis=0) for j in range(5)])
    np.testing.assert_array_equal(segment.sum_table(wide, codes, 5), expected)
    np.testing.assert_array_equal(segment.sum_table(wide.astype(float)[:, ::2], codes, 5), expected[:, ::2])
    np.testing.assert_array_equal(segment.sum_table(np.asfortranarray(wide), codes, 5), expected)
