"""The formations, and what bags tell of theirs."""

import numpy as np
import pytest
from scipy.special import expit

from bagwise import Bags, aggregate, formation, random_bags
from bagwise.losses import LOSSES

N, K = 12_800, 64


def labelled(rng, n=N):
    X = rng.normal(size=(n, 3))
    return X, (rng.random(n) < expit(1.5 * X[:, 0] - X[:, 1] - 1)).astype(float)


def by_rates(rng):
    """Rows of two labels, mixed in proportions that differ."""
    X, y = labelled(rng, 6 * N)
    ones, zeros = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    counts = rng.binomial(K, rng.uniform(0.05, 0.6, size=N // K))
    taken = np.concatenate([ones[: counts.sum()], zeros[: N - counts.sum()]])
    ids = np.concatenate([np.repeat(np.arange(N // K), counts), np.repeat(np.arange(N // K), K - counts)])
    return X[taken], y[taken], ids


def by_features(rng):
    X, y = labelled(rng)
    return X, y, np.argsort(np.argsort(X[:, 0])) // K


def by_category(rng):
    """One bag per level of a feature that is among the columns: nothing varies inside a bag."""
    X, _ = labelled(rng)
    ids = rng.integers(N // K, size=N)
    X = np.column_stack([X, ids % 2, ids % 3 == 0])
    return X, (rng.random(N) < expit(X[:, 0] + 2 * X[:, 3] - 1)).astype(float), ids


def at_random(rng):
    X, y = labelled(rng)
    return X, y, random_bags(N, K, random_state=rng)


CASES = {"random": at_random, "rates": by_rates, "features": by_features, "category": by_category}


@pytest.mark.parametrize("case", CASES)
def test_bags_tell_their_formation(case):
    found = []
    for seed in range(5):
        X, y, ids = CASES[case](np.random.default_rng(seed))
        found.append(formation.told(formation.evidence(X, Bags.from_rows(aggregate(y, ids), ids))).name)
    assert found == ["features" if case == "category" else case] * 5


def test_random_bags_are_seldom_called_anything_else():
    """At a level of 1 in 1,000 for each of two tests, 3 alarms in 100 come about 1 in 1,000 times."""
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        X, y = labelled(rng, 1600)
        ids = random_bags(1600, 16, random_state=seed)
        alarms += formation.told(formation.evidence(X, Bags.from_rows(aggregate(y, ids), ids))).name != "random"
    assert alarms <= 2


def test_few_bags_tell_nothing():
    X, y = labelled(np.random.default_rng(0), 640)
    ids = np.arange(640) // 64
    told = formation.told(formation.evidence(X, Bags.from_rows(aggregate(y, ids), ids)))
    assert told.name == "effects"
    assert "10 bags are too few" in str(told)


def test_every_formation_names_losses_that_there_are():
    assert list(formation.FORMATIONS) == ["random", "rates", "features", "effects"]
    for name, one in formation.FORMATIONS.items():
        assert one.name == name
        assert set(one.losses) <= set(LOSSES)
        assert "count_likelihood" in one.losses
        assert ("risk" in one.evaluation) == (one.choice == "risk") == (name == "random")


def test_rows_that_cannot_be_compared_are_passed_over():
    X, y = labelled(np.random.default_rng(0), 1600)
    X[::7, 1] = np.nan
    ids = np.arange(1600) // 16
    found = formation.evidence(X, Bags.from_rows(aggregate(y, ids), ids))
    assert np.isfinite(found.given_proportions.p_value)
    images = formation.evidence(X.reshape(1600, 3, 1), Bags.from_rows(aggregate(y, ids), ids))
    assert np.isnan(images.given_proportions.p_value)
