"""Leaf values of rows with weights and an offset."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from bagwise.bags import Bags
from bagwise.boosting import BagBoostingClassifier
from bagwise.boosting.links import IDENTITY, LOGIT
from bagwise.boosting.objectives import CountLikelihood, DebiasedSquare
from bagwise.boosting.parts import Parts
from bagwise.log_odds import prior_of
from bagwise.utils.parameters import ParameterError
from tests.weighted import FORMATIONS, drawn

pytestmark = pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")


@pytest.mark.parametrize("formation", FORMATIONS)
@pytest.mark.parametrize("effect_variance", [0.0, 0.2])
def test_leaf_values_of_weighted_rows_are_those_of_rows_repeated(formation, effect_variance):
    given, rng = drawn(formation, n=400, m=20), np.random.default_rng(1)
    leaf, s = rng.integers(0, 5, 400), 0.5 * rng.normal(size=400)
    made = []
    for bags, rows in ((given.bags, np.arange(400)), (given.repeated, given.rows)):
        prior, of = prior_of(bags), rows[bags.order]
        objectives = [CountLikelihood(Parts.of(bags), prior, effect_variance)]
        objectives += [DebiasedSquare(Parts.of(bags), 0, prior, link) for link in (IDENTITY, LOGIT)]
        for one in objectives:
            down = one.gradient(s[of] if getattr(one, "link", LOGIT) == LOGIT else expit(s[of]))
            sums = [np.bincount(of, each, minlength=400) for each in down]
            made.append((*sums, one.leaf_values(leaf[of], 5, 3.0)))
    for one, many in zip(made[:3], made[3:], strict=True):
        np.testing.assert_allclose(one[2], many[2], rtol=1e-4, atol=1e-6)  # leaf values, of slopes in single precision
        # What a tree is grown on is the same but for a factor, which no cut depends on.
        for a, b in zip(one[:2], many[:2], strict=True):
            np.testing.assert_allclose(a / np.abs(a).sum(), b / np.abs(b).sum(), rtol=2e-3, atol=1e-5)


def test_boosting_reads_weights_and_an_offset():
    rng = np.random.default_rng(0)
    n, m = 4000, 250
    X, offset, weight = rng.uniform(-1, 1, size=(n, 2)), np.log(rng.uniform(0.2, 4.0, n)), rng.integers(1, 4, n)
    truth = expit(np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.5) - 0.5 + offset)
    ids = np.argsort(np.argsort(X[:, 0])) * m // n
    count = np.bincount(ids, rng.binomial(weight, truth))
    bags = Bags.from_rows((count / np.bincount(ids, weight))[ids], ids).with_weights(weight).with_offset(offset)
    settings = {"n_estimators": 40, "cv": 3, "n_jobs": 1, "random_state": 0, "formation": "features"}
    model = BagBoostingClassifier(**settings).fit(X, bags=bags)
    h = model.predict_proba(X, offset=offset)[:, 1]
    assert np.average(h, weights=weight) == pytest.approx(count.sum() / weight.sum(), abs=2e-3)
    without = BagBoostingClassifier(**settings).fit(X, bags=replace(bags, offset=None))
    errors = [np.mean((one - truth) ** 2) for one in (h, without.predict_proba(X)[:, 1])]
    assert errors[0] < 0.7 * errors[1]
    moved = bags.with_offset(offset + 3.0)  # another unit of exposure: the same model
    again = BagBoostingClassifier(**settings).fit(X, bags=moved).predict_proba(X, offset=offset + 3.0)[:, 1]
    np.testing.assert_allclose(again, h, atol=0.02)
    with pytest.raises(ParameterError, match="objective must be the likelihood"):
        BagBoostingClassifier(**settings, objective="square").fit(X, bags=bags)
    flat = BagBoostingClassifier(**settings).fit(np.zeros((n, 1)), bags=bags)  # nothing to cut: the offset alone
    h = flat.predict_proba(np.zeros((n, 1)), offset=offset)[:, 1]
    assert np.average(h, weights=weight) == pytest.approx(count.sum() / weight.sum(), abs=1e-6)
    assert np.ptp(logit(h) - offset) < 1e-6


@pytest.mark.parametrize("formation", FORMATIONS)
def test_shift_and_tilts_begin_where_a_tree_moves_them(formation):
    bags, rng = drawn(formation, n=4000, m=40).bags, np.random.default_rng(1)
    leaf, s = rng.integers(0, 5, bags.n_bagged), 0.5 * rng.normal(size=bags.n_bagged)
    value, objective = 0.2 * rng.normal(size=5), CountLikelihood(Parts.of(bags), prior_of(bags), 0.0)
    objective.gradient(s)
    objective.leaf_values(leaf, 5, 3.0)
    before = np.append(objective.start[0], objective.shift)
    objective.follow(value)
    expected = np.append(objective.start[0], objective.shift)
    objective.gradient(s + value[leaf])
    found = np.append(objective.found[0].tilt, objective.shift)
    known = np.isfinite(found)
    assert known.sum() > 20
    assert np.abs(found - expected)[known].max() < 0.3 * np.abs(found - before)[known].max()
