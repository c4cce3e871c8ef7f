"""Later bags of people: what goes on from where it was takes weights as rows repeated, as far as it can."""

import copy

import numpy as np
import pytest
from scipy.special import expit

import bagwise as bw
from bagwise.bags import Bags

pytestmark = pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")


def month(rng, shift, n=1500, m=60):
    """Rows, bags of people, and the same of rows repeated."""
    X, ids, weight = rng.normal(size=(n, 2)), np.arange(n) % m, rng.integers(1, 4, n)
    X[:, 0] += rng.normal(size=m)[ids]
    ones = rng.binomial(weight, expit(X[:, 0] + shift))
    share, rows = (np.bincount(ids, ones) / np.bincount(ids, weight))[ids], np.repeat(np.arange(n), weight)
    return [(X, Bags.from_rows(share, ids).with_weights(weight)), (X[rows], Bags.from_rows(share[rows], ids[rows]))]


@pytest.mark.parametrize("kind", ["boosting", "auto", pytest.param("network", marks=pytest.mark.slow)])
def test_models_move_to_the_rate_of_later_people(kind):
    """Rates rose; predictions of people follow, as by rows repeated."""
    if kind == "network":
        pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
    ridge = bw.BagRidgeClassifier(alphas=0.1, scaling=1.0, cv=3, formation="features")
    model = {
        "boosting": lambda: bw.BagBoostingClassifier(n_estimators=10, n_fits=1, cv=2, n_jobs=1, random_state=0),
        "auto": lambda: bw.BagAutoClassifier(candidates={"ridge": ridge}, cv=2, random_state=0),
        "network": lambda: bw.BagNeuralClassifier(learning_rate=0.01, max_epochs=3, cv=2, random_state=0),
    }[kind]()
    rng = np.random.default_rng(0)
    first, later = month(rng, -1.0), month(rng, 1.0)
    means = []
    for (X, bags), (more, their) in zip(first, later, strict=True):
        fitted = copy.deepcopy(model).fit(X, bags=bags)
        fitted.partial_fit(more, bags=their, **({"epochs": "auto"} if kind == "network" else {}))
        h = fitted.predict_proba(more)[:, 1]
        means.append(their.average(h[their.order]))
    bags = later[0][1]
    np.testing.assert_allclose(*means, atol=1e-7 if kind == "auto" else 0.02)
    if kind != "auto":  # ridge adds moments: its mean is that of both months
        np.testing.assert_allclose(means, bags.size @ bags.proportion / bags.n_people, atol=0.02)
