"""Moments of one-hot rows from tables of counts."""

from dataclasses import replace

import numpy as np
import pytest

from bagwise.data import Aggregates
from bagwise.linear.one_hot import OneHotMoments, filled, margins, shrunk
from tests.linear.test_aggregated import add_noise, design, noised_by, rows_of


def test_moments_of_exact_tables_are_those_of_the_rows():
    X, y = rows_of(np.random.default_rng(0), 3000)
    data = Aggregates.of(X, y)
    moments, rows = OneHotMoments.of(data), design(data, X)
    centred = rows - rows.mean(axis=0)
    assert moments.rows == pytest.approx(3000)
    assert moments.prior == pytest.approx(y.mean())
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(moments.covariance, centred.T @ centred, atol=1e-8)
    np.testing.assert_allclose(moments.xy, centred.T @ (y - y.mean()), atol=1e-8)


def test_repeats_are_averaged_by_precision_and_tell_the_noise(seed):
    rng = np.random.default_rng(seed)
    exact = Aggregates.of(*rows_of(rng, 4000))
    truth, errors, squares = margins(exact, "count").value, [], []
    for _ in range(100):
        noised = add_noise(exact, 7.0, rng)
        found = margins(noised, "count")
        errors.append((found.value - truth)[found.worth < np.inf])
        squares.append(found.repeats.variance / 49)
    worth = found.worth[found.worth < np.inf]
    # Each of 5 pair tables has 6 cells for each value, so that 1 + 5/6 one-way tables are as precise.
    np.testing.assert_allclose(worth, 1 + 5 / 6)
    ratio = np.mean(np.square(errors)) / (49 / worth[0])
    freedom = found.repeats.freedom
    assert freedom == 6 * 6 * 5
    assert abs(np.mean(squares) - 1) < 5 * np.sqrt(2 / freedom / 100)
    assert abs(ratio - 1) < 5 * np.sqrt(2 / (len(worth) * 100) * 2)  # margins of one table share its noise


def test_repeats_with_noise_of_their_own_are_averaged_by_precision(seed):
    rng = np.random.default_rng(seed)
    exact = Aggregates.of(*rows_of(rng, 4000, features=3))
    truth, errors, squares = margins(exact, "count").value, [], []
    by_cells = [rng.uniform(0, 20, one.count.shape) for one in exact.tables]
    scales = {table.features: scale for table, scale in zip(exact.tables, by_cells, strict=True)}
    for _ in range(300):
        found = margins(noised_by(exact, lambda table: scales[table.features], rng), "count")
        errors.append(found.value - truth)
        squares.append(found.repeats.variance)
    most = max(scale.max() for scale in by_cells) ** 2
    own = by_cells[0][:-1] ** 2, (by_cells[3] ** 2).sum(axis=1)[:-1], (by_cells[4] ** 2).sum(axis=1)[:-1]
    np.testing.assert_allclose(found.worth[:5], sum(most / one for one in own))
    ratio = np.square(errors)[:, :5].mean(axis=0) / (most / found.worth[:5])
    assert (np.abs(ratio - 1) < 5.5 * np.sqrt(2 / 300)).all()
    assert abs(np.mean(squares) / most - 1) < 5 * np.sqrt(2 / found.repeats.freedom / 300) * 2  # margins share noise


@pytest.mark.parametrize("unequal", [False, True])
def test_moments_left_as_they_are_have_no_bias(unequal, seed):
    rng = np.random.default_rng(seed)
    X, y = rows_of(rng, 4000)
    exact = Aggregates.of(X, y)
    truth = OneHotMoments.of(exact)
    scales = {table.features: rng.uniform(0, 20, table.count.shape) if unequal else 10.0 for table in exact.tables}
    found = [
        OneHotMoments.of(noised_by(exact, lambda table: scales[table.features], rng), as_it_is=True) for _ in range(200)
    ]
    for name in ("covariance", "xy", "mean"):
        values = np.array([getattr(one, name) for one in found])
        error = values.std(axis=0) / np.sqrt(len(found))
        assert (np.abs(values.mean(axis=0) - getattr(truth, name)) < 5.5 * error + 1e-2 * error.max()).all(), name


def test_noise_makes_no_negative_eigenvalues_and_less_error_than_it_had(seed):
    rng = np.random.default_rng(seed)
    exact = Aggregates.of(*rows_of(rng, 4000))
    truth, noised = OneHotMoments.of(exact).covariance, add_noise(exact, 20.0, rng)
    raw, found = (OneHotMoments.of(noised, as_it_is=one).covariance for one in (True, False))
    assert np.linalg.eigvalsh(raw).min() < -50
    assert np.linalg.eigvalsh(found).min() > -1e-6
    assert np.square(found - truth).sum() < 0.5 * np.square(raw - truth).sum()


def test_shrinking_keeps_what_is_there_and_nothing_of_noise_alone():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(20, 30))
    centred = noise - noise.mean(axis=1, keepdims=True) - noise.mean(axis=0) + noise.mean()
    assert np.abs(shrunk(centred, 1.2)).max() < 1e-12
    signal = np.outer(np.arange(20) - 9.5, np.arange(30) - 14.5)
    kept = shrunk(signal + centred, 1.0)
    assert np.square(kept - signal).sum() < 0.2 * np.square(centred).sum()


def test_rows_and_columns_that_are_noisier_are_shrunk_more(seed):
    """What is left of the noise is less than if all cells were taken to be as noisy as on average."""
    rng = np.random.default_rng(seed)
    exact = Aggregates.of(*rows_of(rng, 20_000))
    truth, errors, at = OneHotMoments.of(exact).covariance, [], np.arange(6)
    scale = np.where((at[:, None] == 0) | (at == 1), 300.0, 10.0)
    for _ in range(20):
        noised = noised_by(exact, lambda table: 10.0 if len(table.features) == 1 else scale, rng)
        mean = np.full((6, 6), np.square(scale).mean())
        same = tuple(replace(one, noise_variance=mean) if len(one.features) == 2 else one for one in noised.tables)
        both = noised, replace(noised, tables=same)
        errors.append([np.square(OneHotMoments.of(one).covariance - truth).sum() for one in both])
    by_cells, by_mean = np.mean(errors, axis=0)
    assert by_cells < 0.9 * by_mean


def test_hidden_cells_get_what_the_margins_leave():
    rng = np.random.default_rng(0)
    count = np.outer(rng.integers(1, 20, 8), rng.integers(1, 20, 9)).astype(float)
    hidden = np.where(count < 30, np.nan, count)
    found = filled(hidden, count.sum(axis=1), count.sum(axis=0), count.sum(), most=30)
    np.testing.assert_array_equal(found[~np.isnan(hidden)], count[~np.isnan(hidden)])
    at = np.isnan(hidden)
    assert found[at].min() >= 0
    assert found[:-1, :-1][at[:-1, :-1]].max() <= 30
    assert np.square(found - count)[at].mean() < 0.1 * np.square(count)[at].mean()


def test_hidden_cells_without_declared_noise_are_an_error():
    exact = Aggregates.of(*rows_of(np.random.default_rng(0), 500))
    hidden = exact.noised(lambda cells: cells, 0.0, threshold=5)
    with pytest.raises(ValueError, match="tables do not tell their noise: declare it"):
        OneHotMoments.of(Aggregates(hidden.features, hidden.tables, None, 5))
