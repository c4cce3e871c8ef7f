"""Tables of counts as arrays."""

import numpy as np
import pandas as pd
import pytest

from bagwise.data import Aggregates, CountedFeature, CountTable
from bagwise.utils.parameters import ParameterError


def some_rows(n=500, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"device": rng.choice(["phone", "tablet", "tv"], n, p=[0.6, 0.3, 0.1]), "age": rng.integers(18, 80, n)}
    )
    frame["hour"] = rng.integers(4, size=n)
    frame.loc[::50, "device"] = None
    return frame, rng.integers(2, size=n)


def test_tables_of_rows_are_counts_by_a_plain_loop():
    frame, y = some_rows()
    data = Aggregates.of(frame, y, edges={"age": [30, 50]}, max_levels=3)
    cells = [one.cells(frame[one.name]) for one in data.features]
    assert len(data.tables) == 3 + 3
    for table in data.tables:
        count, total = np.zeros((2, *table.count.shape))
        for row in range(len(y)):
            at = tuple(cells[one][row] for one in table.features)
            count[at] += 1
            total[at] += y[row]
        np.testing.assert_array_equal(np.nan_to_num(table.count), count)
        np.testing.assert_array_equal(np.nan_to_num(table.sum), total)
        np.testing.assert_array_equal(np.isnan(table.count), count == 0)


def test_rows_are_put_in_cells_by_value_or_by_edges():
    device, age = CountedFeature("device", ("1", "a")), CountedFeature("age", ("0", "2"), (30.0, 50.0))
    assert device.cells(["a", 1, 1.0, None, "b"]).tolist() == [1, 0, 0, 2, 2]
    assert age.cells([29.9, 30.0, 50.0, None, 80]).tolist() == [0, 2, 1, 2, 1]  # bin 1 has no cell: it is in the rest
    assert device.cells_of(np.array([1.0, np.nan, 0.0, 7.0, 0.5])).tolist() == [1, 2, 0, 2, 2]
    assert age.cells_of(np.array([10.0, np.nan])).tolist() == [0, 2]


def test_noise_is_split_in_two_that_make_it_whole_again_and_know_nothing_of_each_other():
    frame, y = some_rows()
    rng = np.random.default_rng(1)
    exact = Aggregates.of(frame[["device", "hour"]], y)
    noised = exact.noised(lambda cells: cells + rng.normal(scale=3.0, size=cells.shape), 9.0)
    one, other = noised.split(0.25, rng)
    assert (one.noise_variance, other.noise_variance) == (9 * 1.25, 9 * 5)
    for whole, first, second in zip(noised.tables, one.tables, other.tables, strict=True):
        np.testing.assert_allclose((first.count + 0.25 * second.count) / 1.25, whole.count)
        np.testing.assert_allclose((first.sum + 0.25 * second.sum) / 1.25, whole.sum)
    products = []
    for _ in range(400):
        noised = exact.noised(lambda cells: cells + rng.normal(scale=3.0, size=cells.shape), 9.0)
        one, other = noised.split(0.25, rng)
        noise = [part.tables[0].count - np.nan_to_num(exact.tables[0].count) for part in (one, other)]
        products.append((noise[0] * noise[1]).mean())
    products = np.array(products)
    assert abs(products.mean()) < 5 * products.std() / 20  # 20: root of 400


def test_rare_cells_are_hidden_with_their_sums():
    frame, y = some_rows()
    exact = Aggregates.of(frame[["device", "hour"]], y)
    hidden = exact.noised(lambda cells: cells, 0.0, threshold=40)
    assert hidden.threshold == 40
    for whole, shown in zip(exact.tables, hidden.tables, strict=True):
        np.testing.assert_array_equal(np.isnan(shown.count), ~(np.nan_to_num(whole.count) >= 40))
        np.testing.assert_array_equal(np.isnan(shown.sum), np.isnan(shown.count))


@pytest.mark.parametrize(
    ("features", "tables", "said"),
    [
        ([], [], "one feature at least"),
        ([CountedFeature("a", ("x",))], [], "no table by 'a'"),
        ([CountedFeature("a", ("x",))], [CountTable((0,), np.ones(3), np.ones(3))], r"must have the shape \(2,\)"),
        ([CountedFeature("a", ("x",))] * 2, [], "another name"),
    ],
)
def test_what_does_not_fit_is_said(features, tables, said):
    with pytest.raises(ValueError, match=said):
        Aggregates(tuple(features), tuple(tables))


def test_edges_and_bins_must_fit():
    with pytest.raises(ParameterError, match="edges of 'age' must be finite numbers that increase"):
        CountedFeature("age", ("0",), (3.0, 2.0))
    with pytest.raises(ParameterError, match="make the bins 0 to 1, but its tables have the value '17'"):
        CountedFeature("age", ("17",), (30.0,))
    with pytest.raises(ValueError, match="y must be 0 or 1"):
        Aggregates.of({"a": [1, 2]}, [1, 2])
