"""Proportions taken for labels: what comes out, and where it fails."""

import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import bagwise as bw
from bagwise.baselines import GroupPriorClassifier
from bagwise.utils.parameters import ParameterError


@parametrize_with_checks([GroupPriorClassifier(n_jobs=1)])
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        check(estimator)


def data(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    probability = 1 / (1 + np.exp(-2 * X[:, 0] + 1))
    return X, (rng.random(n) < probability).astype(float), probability


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # LightGBM 4.6 says so of its own names
def test_bags_of_one_row_are_lightgbm_itself():
    X, y, _ = data()
    ours = GroupPriorClassifier(n_jobs=1, random_state=0).fit(X, y)
    theirs = lgb.LGBMClassifier(n_jobs=1, verbosity=-1, deterministic=True, force_row_wise=True).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=0.02)


def test_predictions_are_k_times_too_close_to_the_prior(seed):
    """E[α | x] = p + (E[y | x] − p)/k: the slope of h on the true probability is 1/k, up to shrinkage and noise."""
    X, y, _ = data(20_000, seed)
    new_X, _, probability = data(4000, seed + 100)
    for k in (1, 4, 16):
        ids = bw.random_bags(len(y), k, random_state=seed)
        model = GroupPriorClassifier(n_jobs=1, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
        h = model.predict_proba(new_X)[:, 1]
        assert np.polyfit(probability, h, 1)[0] == pytest.approx(1 / k, rel=0.15)
        assert roc_auc_score(probability > 0.5, h) > 0.85  # yet rows are in order
    assert (model.predict(new_X) == 0).all()  # and no row passes the threshold


def test_classes_are_learned_one_by_one():
    X, _, _ = data()
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    ids = bw.random_bags(len(X), 2, random_state=0)
    model = GroupPriorClassifier(n_jobs=1).fit(X, bw.aggregate(np.eye(3)[labels], ids), bags=ids)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert model.score(X, labels) > 0.9


def test_tables_with_categories_and_gaps_are_read_as_they_are():
    rng = np.random.default_rng(0)
    device = rng.choice(["phone", "tablet", "desktop"], size=3000)
    table = pd.DataFrame({"device": device, "depth": rng.normal(size=3000)})
    table.loc[::10, "depth"] = np.nan
    y = (device == "tablet").astype(float)
    ids = bw.random_bags(3000, 4, random_state=0)
    model = GroupPriorClassifier(n_jobs=1).fit(table, bw.aggregate(y, ids), bags=ids)
    h = model.predict_proba(table)[:, 1]
    assert h[y == 1].min() > h[y == 0].mean()


def test_rows_in_no_bag_are_ignored_and_noise_is_clipped():
    X, y, _ = data()
    ids = bw.random_bags(len(y), 4, random_state=0)
    y_bag = bw.aggregate(y, ids)
    first = GroupPriorClassifier(n_jobs=1, random_state=0).fit(X, y_bag, bags=ids).predict_proba(X)
    more_ids, more_y = np.r_[ids, np.full(500, -1)], np.r_[y_bag, np.full(500, np.nan)]
    model = GroupPriorClassifier(n_jobs=1, random_state=0).fit(np.vstack([X, 9 * X[:500]]), more_y, bags=more_ids)
    np.testing.assert_allclose(model.predict_proba(X), first)
    noised = bw.Bags.from_rows(3 * y_bag - 1, ids, noise_variance=4.0)
    clipped = bw.Bags.from_rows(np.clip(3 * y_bag - 1, 0, 1), ids)
    one, two = (GroupPriorClassifier(n_jobs=1, random_state=0).fit(X, bags=b) for b in (noised, clipped))
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X))


def test_wrong_input_gets_one_clear_sentence():
    X, y, _ = data(100)
    with pytest.raises(ParameterError, match="n_estimators"):
        GroupPriorClassifier(n_estimators=0).fit(X, y)
    with pytest.raises(NotFittedError):
        GroupPriorClassifier().predict(X)


def test_rows_that_stand_for_several_people_count_as_often():
    """As rows repeated, but for the least number of rows in a leaf; values are few, so that bins are the same."""
    X, y, _ = data(3000)
    X = np.round(X)
    weight, ids = np.random.default_rng(1).integers(1, 4, 3000), np.arange(3000) // 2
    share, rows = (np.bincount(ids, weight * y) / np.bincount(ids, weight))[ids], np.repeat(np.arange(3000), weight)
    model = GroupPriorClassifier(n_jobs=1, random_state=0, n_estimators=20, min_child_samples=1)
    one = model.fit(X, bags=bw.Bags.from_rows(share, ids).with_weights(weight)).predict_proba(X)[:, 1]
    many = model.fit(X[rows], bags=bw.Bags.from_rows(share[rows], ids[rows])).predict_proba(X)[:, 1]
    plain = model.fit(X, bags=bw.Bags.from_rows(share, ids)).predict_proba(X)[:, 1]
    assert np.abs(one - many).mean() < 0.2 * np.abs(plain - many).mean()
