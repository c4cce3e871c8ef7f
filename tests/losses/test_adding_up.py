"""Predictions that add up to several tables: those of iterative proportional fitting, and contradictions by name."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from bagwise.bags import Bags, several
from bagwise.losses import posterior
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


# -- several classes --------------------------------------------------------------------------------------------------


def classes_in(ids: np.ndarray, counts: np.ndarray) -> Bags:
    """Bags that report counts (m, classes)."""
    return Bags.from_rows((counts / counts.sum(axis=1, keepdims=True))[ids], ids)


def crossed(rng: np.random.Generator, n: int = 360) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """Scores of three classes, and the ids and counts of two groupings of their rows."""
    s, y = rng.normal(size=(n, 3)), rng.integers(3, size=n)
    ids = [rng.integers(12, size=n), rng.integers(9, size=n)]
    counts = [np.stack([np.bincount(one[y == c], minlength=one.max() + 1) for c in range(3)], axis=1) for one in ids]
    return s, ids, [one.astype(float) for one in counts]


def test_classes_of_several_tables_are_met_as_by_a_plain_loop() -> None:
    s, ids, counts = crossed(np.random.default_rng(0))
    found = adding_up(s, several([classes_in(*one) for one in zip(ids, counts, strict=True)]))
    q = softmax(s, axis=1)
    for _ in range(3000):  # iterative proportional fitting: rows to 1, then each table's counts
        for one, count in zip(ids, counts, strict=True):
            sums = np.stack([np.bincount(one, column, len(count)) for column in q.T], axis=1)
            q = q * (count / sums)[one]
            q /= q.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, q, atol=1e-4)


def test_two_classes_add_up_as_labels_0_and_1() -> None:
    s, ids, counts = crossed(np.random.default_rng(1))
    two = [np.stack([one[:, 0] + one[:, 1], one[:, 2]], axis=1) for one in counts]
    classes = adding_up(s[:, :2], several([classes_in(*one) for one in zip(ids, two, strict=True)]))
    labels = [Bags.from_rows((one[:, 1] / one.sum(axis=1))[own], own) for own, one in zip(ids, two, strict=True)]
    np.testing.assert_allclose(classes[:, 1], adding_up(s[:, 1] - s[:, 0], several(labels)), atol=1e-5)


def test_hidden_counts_of_classes_stay_as_they_are_inside_their_ends() -> None:
    s, ids, counts = crossed(np.random.default_rng(2))
    exact, other = classes_in(ids[0], counts[0]), classes_in(ids[1], counts[1])
    hidden = other.with_intervals(np.where(counts[1] < 12, 0, counts[1]), np.where(counts[1] < 12, 11, counts[1]))
    found = adding_up(s, several([exact, hidden]))
    sums = hidden.sum(found[hidden.order])
    assert (sums >= hidden.interval.low - 1e-3).all()
    assert (sums <= hidden.interval.high + 1e-3).all()
    np.testing.assert_allclose(exact.sum(found[exact.order]), counts[0], atol=1e-3)
    # Where all that one table says is true of the scores given the other, it changes nothing.
    anything = other.with_intervals(0, counts[1].sum(axis=1, keepdims=True) * np.ones(3))
    alone = adding_up(s, several([exact, anything]))
    np.testing.assert_allclose(alone, posterior(s[exact.order], exact)[np.argsort(exact.order)], atol=1e-5)


def test_noised_counts_of_classes_are_followed_as_far_as_their_noise_lets_them() -> None:
    s, ids, counts = crossed(np.random.default_rng(3))
    exact, h = classes_in(ids[0], counts[0]), softmax(s, axis=1)
    off = []
    for noise in (0.01, 1e6):
        noised = Bags.from_rows(classes_in(ids[1], counts[1]).proportion[ids[1]], ids[1], noise_variance=noise)
        q = adding_up(s, several([exact, noised]))
        off.append(np.abs(noised.sum(q[noised.order]) - counts[1]).max())
    alone = np.abs(np.stack([np.bincount(ids[1], column) for column in h.T], axis=1) - counts[1]).max()
    assert off[0] < 0.1 < off[1] < 2 * alone


def test_tables_of_classes_that_contradict_each_other_are_named() -> None:
    one = classes_in(np.array([0, 0, 0, 1, 1, 1]), np.array([[1.0, 1, 1], [1, 1, 1]]))
    other = classes_in(np.array([0, 1, 0, 1, 0, 1]), np.array([[1.0, 0, 2], [1, 1, 1]]))
    with pytest.raises(ValueError, match="report table 1 counts 2 rows of class 1, table 2 of the same rows 1"):
        adding_up(np.zeros((6, 3)), several([one, other]))
    left = classes_in(np.array([0, 0, 1, 1]), np.array([[2.0, 0, 0], [0, 1, 1]]))
    right = classes_in(np.array([0, 1, 0, 1]), np.array([[1.0, 0, 1], [1, 1, 0]]))
    wrong = classes_in(np.array([0, 1, 1, 0]), np.array([[2.0, 0, 0], [0, 1, 1]]))
    assert np.isfinite(adding_up(np.zeros((4, 3)), several([left, right]))).all()
    with pytest.raises(ValueError, match=r"bag .* tells a count of class . of"):
        adding_up(np.zeros((4, 3)), several([left, wrong, right]))
