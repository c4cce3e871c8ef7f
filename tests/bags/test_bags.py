"""Bags: ids of every kind, round trips, batches, and a clear error for every bad input."""

from __future__ import annotations

import datetime
import re
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise import Bags, aggregate, random_bags
from bagwise.bags import as_bags

BIG = 2**60  # neighbours of this number are the same float

# column, and what it says: the bag of each row, None for rows in no bag
IDS = {
    "integers": ([3, 1, -1, 3], [3, 1, None, 3]),
    "negative integers": (np.array([-7, -128, 127, -1], dtype=np.int8), [-7, -128, 127, None]),
    "sparse integers": (np.array([10**18, -5, 10**18, -1]), [10**18, -5, 10**18, None]),
    "unsigned": (np.array([2**63 + 5, 2**63 + 6, 2**63 + 5], dtype=np.uint64), [2**63 + 5, 2**63 + 6, 2**63 + 5]),
    "integers beyond 64 bits": ([10**30, 1, -1, 10**30], [10**30, 1, None, 10**30]),
    "integers beside None": ([BIG + 1, None, BIG, -1], [BIG + 1, None, BIG, None]),
    "booleans": (np.array([True, False, True]), [True, False, True]),
    "floats with NaN": ([1.5, np.nan, 1.5, -1.0, np.inf], [1.5, None, 1.5, None, np.inf]),
    "strings": (["b", "a", None, "b", "-1"], ["b", "a", None, "b", "-1"]),
    "NumPy strings": (np.array(["b", "a", "b"]), ["b", "a", "b"]),
    "bytes": (np.array([b"b", b"a"]), [b"b", b"a"]),
    "tuples": ([(1, 2), (0, 1), (1, 2)], [(1, 2), (0, 1), (1, 2)]),
    "ragged tuples": ([(1, 2), (0,), None], [(1, 2), (0,), None]),
    "mixed": ([1, "1", None, 1, -1], [1, "1", None, 1, None]),
    "not comparable": ([1j, (1, 2), "a", 1j], [1j, (1, 2), "a", 1j]),
    "dates": ([datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)], None),
    "generator": ((i for i in (4, 4, 2)), [4, 4, 2]),
    "pandas index": (pd.Index([3, 1]), [3, 1]),
    "pandas multi-index": (pd.MultiIndex.from_tuples([(1, "a"), (0, "b")]), [(1, "a"), (0, "b")]),
    "pandas integers": (pd.Series([3, 1, -1], index=[7, 8, 9]), [3, 1, None]),
    "pandas nullable": (pd.Series([BIG + 1, None, BIG, -1], dtype="Int64"), [BIG + 1, None, BIG, None]),
    "pandas nullable, full": (pd.array([2, 1, -1], dtype="Int64"), [2, 1, None]),
    "pandas strings": (pd.Series(["b", None, "a"], dtype="string"), ["b", None, "a"]),
    "pandas objects": (pd.Series(["b", None, "a"], dtype=object), ["b", None, "a"]),
    "categorical": (pd.Categorical(["b", "a", None], categories=["b", "a", "c"]), ["b", "a", None]),
    "categorical series": (pd.Series(["b", "a", None]).astype("category"), ["b", "a", None]),
    "NumPy dates": (np.array(["2020-01-02", "NaT"], dtype="M8[D]"), [np.datetime64("2020-01-02"), None]),
    "pandas dates": (pd.Series(pd.to_datetime(["2020-01-02", None])), [np.datetime64("2020-01-02"), None]),
    "pandas dates with zone": (
        pd.Series(pd.to_datetime(["2020-01-02", None], utc=True)),
        [pd.Timestamp("2020-01-02", tz="UTC"), None],
    ),
    "Arrow integers": (pa.array([BIG + 1, None, BIG, -1]), [BIG + 1, None, BIG, None]),
    "Arrow strings": (pa.chunked_array([["b", None], ["a"]]), ["b", None, "a"]),
    "Arrow dictionary": (pa.array(["b", None, "a"]).dictionary_encode(), ["b", None, "a"]),
}


@pytest.mark.parametrize("name", IDS)
def test_ids_of_every_kind(name):
    ids, meaning = IDS[name]
    meaning = list(ids) if meaning is None else meaning
    bags = Bags.from_rows(np.zeros(len(meaning)), ids)
    assert [None if code < 0 else bags.keys[code] for code in bags.code] == meaning
    assert len(bags) == len(set(meaning) - {None})


def test_torch_ids(torch):
    assert Bags.from_rows([0, 0, 0], torch.tensor([3, 1, 3])).keys.tolist() == [1, 3]


def test_polars_ids_and_reports():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    bags = Bags.from_reports(
        polars.Series([BIG + 1, None, BIG]), polars.DataFrame({"bag": [BIG, BIG + 1], "proportion": [0.0, 1.0]})
    )
    assert bags.keys.tolist() == [BIG, BIG + 1]
    assert bags.proportion.tolist() == [0, 1]


id_columns = st.one_of(
    st.lists(st.integers(-1, 5), min_size=1, max_size=30),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30),
    st.lists(st.sampled_from(["a", "b", "ü", "", None]), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), min_size=1, max_size=30),
    st.lists(st.one_of(st.integers(-1, 3), st.sampled_from(["1", "a", None])), min_size=1, max_size=30),
).filter(lambda ids: any(i not in (-1, None) for i in ids))


@given(id_columns, st.data())
def test_round_trip_of_labels_rows_and_reports(ids, data):
    y = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(ids), max_size=len(ids))))
    rows_of = {}
    for i, key in enumerate(ids):
        if key not in (-1, None):
            rows_of.setdefault(key, []).append(i)
    y_bag = aggregate(y, ids)
    bags = Bags.from_rows(y_bag, ids)
    assert set(bags.keys) == set(rows_of)
    for j, key in enumerate(bags.keys):
        assert bags.order[bags.offsets[j] : bags.offsets[j + 1]].tolist() == rows_of[key]
        assert bags.proportion[j] == pytest.approx(y[rows_of[key]].mean())
    np.testing.assert_array_equal(np.isnan(y_bag), bags.code < 0)
    np.testing.assert_allclose(bags.repeat(bags.proportion), y_bag[bags.order])

    rows = rows_of.values()
    reports = {"bag": list(rows_of), "n": [len(r) for r in rows], "c": [y[r].sum() for r in rows]}
    again = Bags.from_reports(ids, reports, count="c", size="n")
    assert again.keys.tolist() == bags.keys.tolist()
    np.testing.assert_allclose(again.proportion, bags.proportion)
    np.testing.assert_array_equal(again.order, bags.order)


@given(id_columns, st.randoms(use_true_random=False))
def test_shuffled_rows_make_the_same_bags(ids, random):
    try:
        sorted({i for i in ids if i not in (-1, None)})
    except TypeError:  # keys without an order come as they appear
        return
    shuffled = random.sample(range(len(ids)), len(ids))
    values, y = np.arange(len(ids)) ** 2.0, np.zeros(len(ids))
    bags, other = Bags.from_rows(y, ids), Bags.from_rows(y, [ids[i] for i in shuffled])
    assert bags.keys.tolist() == other.keys.tolist()
    np.testing.assert_array_equal(bags.sum_table(values), other.sum_table(values[shuffled]))


# -- reports ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [dict, pd.DataFrame, pa.table])
def test_reports_of_every_kind_of_table(table):
    reports = table({"id": ["b", "a"], "n": [1, 2], "clicks": [1, 1], "share": [1.0, 0.5], "s2": [4.0, 9.0]})
    for columns in ({"count": "clicks"}, {"proportion": "share"}):
        bags = Bags.from_reports(["a", "b", "a"], reports, key="id", size="n", noise_variance="s2", **columns)
        assert bags.keys.tolist() == ["a", "b"]
        assert bags.proportion.tolist() == [0.5, 1.0]
        assert bags.noise_variance.tolist() == [9.0, 4.0]
        assert bags.code.tolist() == [0, 1, 0]


def test_reports_of_classes():
    reports = {"bag": [1, 0], "cat": [0, 1], "dog": [1, 2]}
    bags = Bags.from_reports([0, 0, 0, 1], reports, count=["cat", "dog"])
    np.testing.assert_allclose(bags.proportion, [[1 / 3, 2 / 3], [0, 1]])
    bags.check_proportions()


@pytest.mark.parametrize(
    ("ids", "keys"),
    [
        ([1, 2, 1], [2.0, 1.0]),  # a column that became floats on the way
        ([1, 2, 1], np.array([2, 1], dtype=np.int16)),
        ([BIG + 1, BIG, BIG + 1], pd.array([BIG, BIG + 1], dtype="Int64")),
        (pd.to_datetime(["2020-01-02", "2020-01-01", "2020-01-02"]), np.array(["2020-01-01", "2020-01-02"], "M8[D]")),
        (pd.Categorical(["b", "a", "b"]), np.array(["a", "b"])),
        ([(1, "x"), (0, "y"), (1, "x")], [(0, "y"), (1, "x")]),
    ],
)
def test_keys_meet_across_column_types(ids, keys):
    bags = Bags.from_reports(ids, {"bag": keys, "proportion": [0.0, 1.0]})
    assert bags.proportion[bags.code].tolist() == [1.0, 0.0, 1.0]


def test_drop_leaves_out_what_does_not_match():
    reports = {"bag": ["c", "a", None, "z"], "proportion": [0.25, 0.75, 0.0, 0.5]}
    bags = Bags.from_reports(["a", "b", None, "c", "a", "b"], reports, on_mismatch="drop")
    assert bags.keys.tolist() == ["a", "c"]
    assert bags.proportion.tolist() == [0.75, 0.25]
    assert bags.code.tolist() == [0, -1, -1, 1, 0, -1]
    assert bags.order.tolist() == [0, 4, 3]
    assert bags.n_rows == 6


# -- bags in use --------------------------------------------------------------------------------------------------


@pytest.fixture
def bags():
    """Bags 0 … 3 of 3, 1, 2 and 2 rows, scattered; row 4 in no bag."""
    ids = [2, 0, 3, 0, -1, 1, 0, 3, 2]
    return Bags.from_rows(np.array([0.5, 1.0, 0.25, 0.75])[ids], ids, noise_variance=np.array([1.0, 2, 3, 4])[ids])


@pytest.mark.parametrize("index", [[2, 0], [1], [], [3, 3, 0], [-1], 2, [True, False, True, False], slice(1, 3)])
def test_take_chooses_bags_and_points_into_the_table(bags, index):
    taken = bags.take(index)
    chosen = np.atleast_1d(np.arange(4)[np.array(index, dtype=int) if index == [] else index])
    assert taken.keys.tolist() == chosen.tolist()
    assert taken.size.tolist() == bags.size[chosen].tolist()
    assert taken.proportion.tolist() == bags.proportion[chosen].tolist()
    assert taken.noise_variance.tolist() == bags.noise_variance[chosen].tolist()
    assert taken.n_rows == bags.n_rows
    values = np.arange(9.0)
    np.testing.assert_array_equal(taken.sum(values[taken.order]), bags.sum_table(values)[chosen])
    np.testing.assert_array_equal(taken.sum_table(values), bags.sum_table(values)[chosen])


def test_take_costs_only_the_rows_chosen():
    bags = Bags.singletons(np.zeros(1_000_000))
    tracemalloc.start()
    bags.take(np.arange(10))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000  # anything per bag of the whole would take at least one byte each


@pytest.mark.parametrize(("index", "message"), [([4], "out of bounds"), ([True], "boolean index did not match")])
def test_take_outside_is_an_error(bags, index, message):
    with pytest.raises(IndexError, match=message):
        bags.take(index)


def test_a_bag_taken_twice_has_no_code(bags):
    with pytest.raises(ValueError, match="more than one bag"):
        _ = bags.take([0, 0]).code


@pytest.mark.parametrize("shape", [(), (2,)])
def test_sums_and_means_equal_a_loop(bags, shape):
    values = np.random.default_rng(0).normal(size=(9, *shape))
    rows = [[1, 3, 6], [5], [0, 8], [2, 7]]
    expected = np.stack([values[r].sum(axis=0) for r in rows])
    mean = np.stack([values[r].mean(axis=0) for r in rows])
    np.testing.assert_allclose(bags.sum_table(values), expected)
    np.testing.assert_allclose(bags.sum(values[bags.order]), expected)
    np.testing.assert_allclose(bags.mean(values[bags.order]), mean)
    np.testing.assert_array_equal(bags.repeat(mean), np.concatenate([[mean[j]] * len(rows[j]) for j in range(4)]))


def test_sum_table_of_singletons_in_any_order():
    bags = Bags.from_rows([0.0, 0.0, 0.0], [7, 5, 6])
    assert bags.sum_table(np.array([1, 2, 3])).tolist() == [2.0, 3.0, 1.0]
    assert bags.sum_table(np.array([1, 2, 3])).dtype == float


def test_like_turns_numbers_into_tensors_and_back(bags, torch):
    tensors = bags.like(torch.zeros(1, dtype=torch.float64))
    assert tensors.proportion.dtype == tensors.size.dtype == tensors.noise_variance.dtype == torch.float64
    assert bags.like(torch.zeros(1)).proportion.dtype == torch.float32
    assert tensors.like(torch.zeros(1)).proportion.dtype == torch.float32
    assert bags.like(torch.zeros(1, dtype=torch.int64)).proportion.tolist() == bags.proportion.tolist()
    assert bags.like(np.zeros(1)) is bags
    assert isinstance(tensors.like(np.zeros(1)).size, np.ndarray)
    assert tensors.take([3, 1]).proportion.tolist() == [0.75, 1.0]
    with pytest.raises(ValueError, match="outside"):
        Bags.from_rows([2.0], [0]).like(torch.zeros(1)).check_proportions()


def test_bags_cannot_be_changed(bags):
    for name in ("keys", "order", "offsets", "size", "proportion", "noise_variance", "code"):
        for some in (bags, bags.take([1, 2]), bags.take(slice(0, 2))):
            if name == "order" and some is not bags:
                continue  # a batch's own copy, which torch indexes with only if it is writable
            with pytest.raises(ValueError, match="read-only"):
                getattr(some, name)[0] = 0
        with pytest.raises(AttributeError):
            setattr(bags, name, None)


def test_building_bags_leaves_the_callers_arrays_alone():
    y, ids = np.array([0.0, 1.0]), np.array([1, 0])
    singletons, rows = Bags.singletons(y), Bags.from_rows(y, ids, noise_variance=y)
    reports = {"bag": ids, "proportion": y, "noise": y}
    Bags.from_reports(ids, reports, noise_variance="noise")
    y[0], ids[0] = 9.0, 9  # still writable
    assert singletons.proportion.tolist() == [0.0, 1.0]
    assert rows.keys.tolist() == [0, 1]


def test_equal_sizes_are_noticed():
    assert Bags.from_rows([0] * 4, [0, 1, 0, 1]).equal_size == 2
    assert Bags.from_rows([0] * 3, [0, 1, 0]).equal_size is None
    assert Bags.from_rows([0] * 3, [0, 1, 0]).take([0]).equal_size == 2
    assert Bags.singletons([0, 1]).equal_size == 1


def test_one_noise_variance_serves_all_bags():
    assert Bags.from_rows([0, 0, 1], [0, 0, 1], noise_variance=2).noise_variance.tolist() == [2.0, 2.0]


# -- the data holder's side ---------------------------------------------------------------------------------------


@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 10))
def test_random_bags_are_a_partition_with_a_remainder(n, size, seed):
    if size > n:
        return
    ids = random_bags(n, size, random_state=seed)
    assert np.bincount(ids[ids >= 0]).tolist() == [size] * (n // size)
    assert (ids == -1).sum() == n % size
    np.testing.assert_array_equal(ids, random_bags(n, size, random_state=seed))


def test_random_bags_are_uniform(seed):
    """Each pair of rows shares a bag with probability (k−1)/(n−1)."""
    together = [ids[0] == ids[1] for ids in (random_bags(8, 4, random_state=1000 * seed + i) for i in range(1000))]
    p = 3 / 7
    assert abs(np.mean(together) - p) < 5 * np.sqrt(p * (1 - p) / 1000)


def test_random_state_of_every_kind():
    for make in (np.random.default_rng, np.random.RandomState):
        first, second = make(3), make(3)
        np.testing.assert_array_equal(random_bags(50, 7, first), random_bags(50, 7, second))
        assert (random_bags(50, 7, first) != random_bags(50, 7, make(3))).any()  # the state moves on
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    random_bags(50, 7)
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_aggregate_of_classes():
    y = np.eye(3)[[0, 1, 1, 2]]
    result = aggregate(y, ["a", "a", None, "b"])
    np.testing.assert_array_equal(result, [[0.5, 0.5, 0], [0.5, 0.5, 0], [np.nan] * 3, [0, 0, 1]])
    Bags.from_rows(result, ["a", "a", None, "b"]).check_proportions()


def test_aggregate_does_not_read_rows_in_no_bag():
    np.testing.assert_array_equal(aggregate([np.nan, 1.0], [-1, 0]), [np.nan, 1.0])
    assert Bags.from_rows([np.nan, 1.0], [-1, 0]).proportion.tolist() == [1.0]


# -- bad input ----------------------------------------------------------------------------------------------------

TWO = {"bag": ["a", "b"], "proportion": [0.5, 1.0], "n": [2, 1], "word": ["x", "y"]}
IDS2 = ["a", "a", "b"]

BAD = {
    "NaN label": (lambda: Bags.singletons([0, np.nan]), "row 1 has a NaN or infinite label"),
    "infinite label": (lambda: Bags.singletons([np.inf, 0]), "row 0 has a NaN or infinite label"),
    "NaN proportion": (lambda: Bags.from_rows([1, np.nan], ["a", "b"]), "bag 'b' has NaN or infinite proportions"),
    "NaN in a later row": (lambda: Bags.from_rows([1, 0.5, np.nan], [0, 7, 7]), "bag 7 has NaN or infinite"),
    "infinities that cancel": (lambda: Bags.from_rows([[np.inf, -np.inf]], ["a"]), "bag 'a' has NaN or infinite"),
    "NaN report": (
        lambda: Bags.from_reports(IDS2, {"bag": ["a", "b"], "proportion": [0.5, None]}),
        "bag 'b' has a NaN or infinite proportion",
    ),
    "NaN to aggregate": (lambda: aggregate([0, np.nan], [0, 0]), "y is NaN or infinite in row 1"),
    "infinities to aggregate": (lambda: aggregate([[np.inf, -np.inf]], [0]), "y is NaN or infinite in row 0"),
    "two proportions": (
        lambda: Bags.from_rows([0.5, 0.25, 1], IDS2),
        "bag 'a' carries two different proportions (0.5 and 0.25): each row must repeat its bag's value",
    ),
    "two class proportions": (
        lambda: Bags.from_rows([[0.5, 0.5], [0.5, 0.25]], [4, 4]),
        "bag 4 carries two different proportions ([0.5 0.5] and [0.5  0.25])",
    ),
    "two noise variances": (
        lambda: Bags.from_rows([0, 0], [4, 4], noise_variance=[1, 2]),
        "bag 4 carries two different noise variances (1.0 and 2.0)",
    ),
    "negative noise": (lambda: Bags.from_rows([0], ["a"], noise_variance=-1), "bag 'a' has noise variance -1.0"),
    "NaN noise": (lambda: Bags.from_rows([0], ["a"], noise_variance=np.nan), "bag 'a' has NaN or infinite noise"),
    "noise of another length": (
        lambda: Bags.from_rows([0, 0], [0, 0], noise_variance=[1, 1, 1]),
        "noise_variance must be one number or one per row (2 rows)",
    ),
    "words as noise": (lambda: Bags.from_rows([0], [0], noise_variance="x"), "noise_variance must be one number"),
    "count for a proportion": (
        lambda: Bags.from_rows([3, 3, 1], IDS2).check_proportions(),
        "bag 'a' reports proportion 3.0, outside [0, 1]: pass proportions, not counts, or declare the noise",
    ),
    "negative proportion": (lambda: Bags.from_rows([-0.5], [0]).check_proportions(), "bag 0 reports proportion -0.5"),
    "class proportions do not sum to 1": (
        lambda: Bags.from_rows([[0.5, 0.25]], ["a"]).check_proportions(),
        "bag 'a' reports class proportions that sum to 0.75: they must sum to 1",
    ),
    "rows without report": (
        lambda: Bags.from_reports(["a", "c", "d"], {"bag": ["a"], "proportion": [1]}),
        "bag 'c' has rows but no report (2 such bags): add the reports, or set on_mismatch='drop'",
    ),
    "report without rows": (
        lambda: Bags.from_reports(["a", "a"], TWO),
        "bag 'b' has a report but no rows (1 such bags): add the rows, or set on_mismatch='drop'",
    ),
    "report without key": (
        lambda: Bags.from_reports(["a"], {"bag": ["a", None, None], "proportion": [1, 1, 1]}),
        "line 1 of the report table has no bag key (−1 or missing): remove it, or set on_mismatch='drop'",
    ),
    "report twice": (
        lambda: Bags.from_reports(["a", "b"], {"bag": ["a", "b", "b"], "proportion": [1, 1, 1]}, on_mismatch="drop"),
        "bag 'b' has more than one report: keep one line per bag",
    ),
    "other kind of key": (
        lambda: Bags.from_reports([1, 2], {"bag": ["1", "2"], "proportion": [1, 1]}, on_mismatch="drop"),
        "no report matches a bag (rows have ids like 1, reports like '1'): check that the two key columns",
    ),
    "size mismatch": (
        lambda: Bags.from_reports([*IDS2, "a"], TWO, size="n"),
        "bag 'a' reports size 2 but has 3 rows: rows are missing or repeated",
    ),
    "missing column": (
        lambda: Bags.from_reports(IDS2, TWO, count="clicks"),
        "the report table has no column 'clicks': it has bag, proportion, n, word",
    ),
    "missing key column": (lambda: Bags.from_reports(IDS2, pa.table(TWO), key="id"), "no column 'id'"),
    "words in a column": (
        lambda: Bags.from_reports(IDS2, pd.DataFrame(TWO), count="word"),
        "column 'word' of the report table must be numeric",
    ),
    "columns of different length": (
        lambda: Bags.from_reports(IDS2, {"bag": ["a", "b"], "proportion": [1, 1, 1]}),
        "column 'proportion' of the report table has 3 lines where the key column has 2",
    ),
    "number as a column": (
        lambda: Bags.from_reports(IDS2, {"bag": ["a", "b"], "proportion": 0.5}),
        "column 'proportion' of the report table must be one column, got 0.5",
    ),
    "empty reports": (lambda: Bags.from_reports(IDS2, {"bag": []}), "the report table is empty"),
    "reports as a list": (lambda: Bags.from_reports(IDS2, [TWO]), "reports must be a dict of columns or a table"),
    "on_mismatch": (
        lambda: Bags.from_reports(IDS2, TWO, on_mismatch="ignore"),
        "on_mismatch must be one of 'error', 'drop', got 'ignore'",
    ),
    "no rows": (lambda: Bags.from_rows([], []), "the table is empty"),
    "no rows with reports": (lambda: Bags.from_reports([], TWO), "the table is empty"),
    "no singletons": (lambda: Bags.singletons([]), "the table is empty"),
    "no row in a bag": (lambda: Bags.from_rows([0, 1], [-1, -1]), "no row is in a bag: every bag id is −1 or missing"),
    "no row in a bag, None": (lambda: aggregate([0, 1], [None, None]), "no row is in a bag"),
    "lengths differ": (lambda: Bags.from_rows([0, 1, 1], [0, 1]), "y has 3 rows but bags has 2"),
    "lengths differ in aggregate": (lambda: aggregate([0, 1, 1], [0, 1]), "y has 3 rows but bags has 2"),
    "words as labels": (lambda: Bags.singletons(["yes", "no"]), "y must be numeric: encode labels as 0 and 1"),
    "dates as labels": (lambda: Bags.singletons(np.array(["2020-01-01"], dtype="M8[D]")), "y must be numeric"),
    "complex labels": (lambda: Bags.singletons(np.array([1j])), "y must be numeric"),
    "labels of three axes": (lambda: Bags.singletons(np.zeros((2, 2, 2))), "y must have shape (n,) or (n, classes)"),
    "ids of two axes": (lambda: Bags.from_rows([0, 1], np.zeros((2, 2))), "bags must be one column, got an array"),
    "ids as a frame": (lambda: Bags.from_rows([0, 1], pd.DataFrame({"a": [1, 2]})), "bags must be one column"),
    "one number as ids": (lambda: Bags.from_rows([0, 1], 5), "bags must be one column, got 5"),
    "one word as ids": (lambda: Bags.from_rows([0, 1], "ab"), "bags must be one column, got 'ab'"),
    "lists as ids": (lambda: Bags.from_rows([0, 1], [[1], [2]]), "bags must be ids that can be hashed"),
    "sums of another length": (lambda: Bags.singletons([0]).sum_table(np.zeros(2)), "built on 1 rows but 2 were given"),
    "values of another length": (lambda: Bags.singletons([0]).sum(np.zeros(2)), "the bags hold 1 rows but 2 values"),
    "no rows to put in bags": (lambda: random_bags(0, 1), "n must be"),
    "size 0": (lambda: random_bags(5, 0), "size must be"),
    "size beyond the rows": (lambda: random_bags(5, 6), "size must be at most the number of rows (5)"),
    "half a row": (lambda: random_bags(5, 2.5), "size must be a whole number"),
    "y missing": (lambda: as_bags(None, [0], 1), "y is missing: pass row-aligned proportions, or a bagwise.Bags"),
    "y of another length": (lambda: as_bags([0, 1], None, 3), "X has 3 rows but y has 2"),
    "bags of another length": (lambda: as_bags(None, Bags.singletons([0]), 3), "built on 1 rows but X has 3"),
    "noise twice": (lambda: as_bags(None, Bags.singletons([0]), 1, noise_variance=1), "noise_variance belongs to"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_an_error_that_says_what_to_do(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_noise_and_rounding_excuse_proportions_outside():
    Bags.from_rows([-0.5], [0], noise_variance=1).check_proportions()
    Bags.from_rows([1 + 1e-12], [0]).check_proportions()
    Bags.from_rows([[1 + 1e-12, -1e-12]], [0]).check_proportions()


def test_as_bags_reads_what_fit_accepts():
    bags = Bags.singletons([0, 1])
    assert as_bags(None, bags, 2) is bags
    assert as_bags([0, 1], None, 2).equal_size == 1
    assert as_bags([0, 1], None, 2, noise_variance=3).noise_variance.tolist() == [3, 3]
    assert as_bags([0.5, 0.5], ["a", "a"], 2, noise_variance=3).noise_variance.tolist() == [3]


def test_a_batch_indexes_torch_tensors_without_a_warning(torch):
    bags = Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1])
    assert torch.arange(3.0)[bags.take([1]).order].tolist() == [2.0]


def test_categories_of_arrow_with_missing_values_are_ids():
    column = pa.array(["b", None, "a", "b"]).dictionary_encode()
    bags = Bags.from_rows([0.5, np.nan, 1.0, 0.5], column)
    assert list(bags.keys) == ["a", "b"]
    assert bags.n_bagged == 3
    narrow = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], type=pa.uint32()), ["a", "b"])
    assert list(Bags.from_rows([0.5, np.nan, 1.0, 0.5], narrow).keys) == ["a", "b"]


def test_one_column_tables_of_labels_are_columns():
    assert Bags.from_rows(np.array([[0.5], [0.5]]), [0, 0]).proportion.shape == (1,)


def test_bags_describe_themselves_in_one_line():
    assert repr(Bags.from_rows([0.5, 0.5, 1.0], [0, 0, -1])) == "<Bags: 1 bags, 2 of 3 rows>"


@pytest.mark.parametrize("random_state", ["x", -1, 1.5])
def test_random_state_is_named_when_wrong(random_state):
    with pytest.raises(ValueError, match="random_state must be"):
        random_bags(4, 2, random_state)


def test_dates_are_no_counts():
    reports = {"bag": [0, 1], "count": np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]")}
    with pytest.raises(ValueError, match="column 'count' of the report table must be numeric"):
        Bags.from_reports([0, 1], reports, count="count")
    with pytest.raises(ValueError, match="name one column per class"):
        Bags.from_reports([0, 1], {"bag": [0, 1]}, count=[])


@pytest.mark.parametrize("classes", [False, True])
def test_labelled_rows_leave_their_bags_and_nothing_is_lost(classes):
    rng = np.random.default_rng(0)
    ids = np.r_[np.arange(40) // 8, -1, -1]
    y = rng.integers(0, 3 if classes else 2, 42)
    outputs = np.eye(3)[y] if classes else y.astype(float)
    bags = Bags.from_rows(aggregate(outputs, ids), ids)
    labels = np.where(rng.random(42) < 0.3, y.astype(float), np.nan)
    labels[:8] = y[:8]  # all of a bag
    labels[41] = y[41]  # of a row in none
    found = bags.with_labels(labels)
    assert len(found) == 4 + (~np.isnan(labels)).sum()
    rows = np.flatnonzero(found.code >= 0)
    np.testing.assert_array_equal(np.isnan(labels[found.code < 0]), True)
    for j in range(len(found)):
        inside = rows[found.code[rows] == j]
        np.testing.assert_allclose(found.proportion[j], outputs[inside].mean(axis=0), atol=1e-12)
        assert len(inside) == 1 or np.isnan(labels[inside]).all()


def test_labels_that_reports_contradict_are_refused():
    bags = Bags.from_rows([0.5, 0.5, 0.0, 0.0], ["a", "a", "b", "b"])
    with pytest.raises(ValueError, match="labels of rows of bag 'b' do not fit its report"):
        bags.with_labels([np.nan, np.nan, 1.0, np.nan])
    with pytest.raises(ValueError, match="labels must be 0 to 1, or NaN"):
        bags.with_labels([2.0, np.nan, np.nan, np.nan])
    with pytest.raises(ValueError, match=r"labels must hold one label or NaN per row, shape \(4,\), got \(2,\)"):
        bags.with_labels([1.0, 0.0])
    noised = Bags.from_rows([0.5, 0.5, 0.0, 0.0], [0, 0, 1, 1], noise_variance=4.0)
    assert noised.with_labels([np.nan, np.nan, 1.0, np.nan]).noise_variance.tolist() == [4.0, 4.0, 0.0]


def test_reports_of_classes_between_ends():
    lines = {"bag": [0, 1], "a": [1, np.nan], "b": [1, 1], "c": [0, np.nan], "least": [0, 0], "most": [2, 2]}
    names = {"count": ["a", "b", "c"], "low": ["least"] * 3, "high": ["most"] * 3}
    bags = Bags.from_reports([0, 0, 1, 1, 1], lines, **names)
    np.testing.assert_array_equal(bags.interval.low, [[1, 1, 0], [0, 1, 0]])
    np.testing.assert_array_equal(bags.interval.high, [[1, 1, 0], [2, 1, 2]])
    with pytest.raises(ValueError, match="low and high must name one column each, or one for each class"):
        Bags.from_reports([0, 0, 1, 1, 1], lines, **(names | {"low": "least"}))
    with pytest.raises(ValueError, match="name the columns of both ends"):
        Bags.from_reports([0, 0, 1, 1, 1], lines, low="least")
