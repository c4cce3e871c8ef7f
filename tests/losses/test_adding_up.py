"""Predictions that add up to several tables: those of iterative proportional fitting, and contradictions by name."""

from __future__ import annotations

import numpy as np
import pytest

from bagwise.bags import Bags, several
from bagwise.losses.adding_up import adding_up


def counted(ids: np.ndarray, counts: np.ndarray) -> Bags:
    return Bags.from_rows((counts / np.bincount(ids))[ids], ids)


def test_several_tables_are_met_as_by_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    a, b, s = rng.integers(0, 6, 300), rng.integers(0, 5, 300), rng.normal(size=300)
    y = rng.random(300) < 0.4
    q = adding_up(s, several([counted(a, np.bincount(a, y)), counted(b, np.bincount(b, y))]))
    for ids in (a, b):
        np.testing.assert_allclose(np.bincount(ids, q), np.bincount(ids, y), atol=1e-5)
    # Log odds differ from those given by one number per bag of either table.
    moved = np.log(q / (1 - q)) - s
    design = np.column_stack([np.eye(6)[a], np.eye(5)[b]])
    np.testing.assert_allclose(design @ np.linalg.lstsq(design, moved)[0], moved, atol=1e-6)


def test_hidden_counts_beside_exact_ones() -> None:
    """Counts between whole ends and counts that a division has made inexact go together."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 40, 2000), rng.integers(0, 37, 2000)
    y = rng.random(2000) < 0.3
    count = np.bincount(a, y)
    hidden = counted(a, count).with_intervals(np.where(count < 15, 0, count), np.where(count < 15, 14, count))
    q = adding_up(rng.normal(size=2000), several([hidden, counted(b, np.bincount(b, y))]))
    np.testing.assert_allclose(np.bincount(b, q), np.bincount(b, y), atol=1e-5)
    sums = np.bincount(a, q)
    np.testing.assert_allclose(sums[count >= 15], count[count >= 15], atol=1e-4)
    assert (sums[count < 15] < 14 + 1e-4).all()


def test_tables_that_contradict_each_other_are_named() -> None:
    a, b = np.repeat([0, 1], [10, 10]), np.tile([0, 1], 10)
    with pytest.raises(ValueError, match="report table 1 counts 9 positive labels, table 2 of the same rows 11"):
        adding_up(np.zeros(20), several([counted(a, np.array([4.0, 5.0])), counted(b, np.array([5.0, 6.0]))]))
    # Totals agree, but all of bag 0 of the second table is in bags of the first that report nothing.
    a, b = np.repeat([0, 1, 2], [6, 6, 8]), np.repeat([0, 1, 0, 1], [5, 1, 4, 10])
    with pytest.raises(ValueError, match=r"bag \d of report table \d .*the tables contradict each other"):
        adding_up(np.zeros(20), several([counted(a, np.array([0.0, 0.0, 8.0])), counted(b, np.array([3.0, 5.0]))]))
