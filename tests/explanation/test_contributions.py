"""Contributions add up to scores on every scale, and are what they should be for linear models and for trees."""

from itertools import combinations
from math import comb

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

import bagwise as bw
from bagwise.baselines import GroupPriorClassifier
from bagwise.boosting import links
from bagwise.boosting.trees import Boosted
from bagwise.explanation.contributions import LOG_ODDS, PROBABILITY, Contributions, adding_up_to, mean_of
from bagwise.saving import load, save

TREES = {"n_estimators": 20, "cv": 2, "n_jobs": 1, "random_state": 0}
N = 1600


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3)) + np.array([0.0, 5.0, 0.0])
    s = 1.5 * X[:, 0] + X[:, 2] * (X[:, 1] - 5)
    ids = bw.random_bags(N, size=8, random_state=0)
    classes = np.eye(3)[np.digitize(s + rng.logistic(size=N), [-1, 1])]
    labels = {"label": rng.random(N) < expit(s), "classes": classes, "value": np.maximum(3 * s + rng.normal(size=N), 0)}
    return X, {name: bw.aggregate(y, ids) for name, y in labels.items()}, ids


def auto(kind, boosting, **more):
    return kind(candidates={"a": boosting(**TREES), "b": kind_of_ridge(kind)}, cv=2, random_state=0, **more)


def kind_of_ridge(kind):
    return bw.BagRidgeClassifier(cv=2) if kind is bw.BagAutoClassifier else bw.BagRidgeRegressor(cv=2)


CLASSIFIERS = [
    bw.BagRidgeClassifier(cv=2),
    bw.BagLogisticClassifier(alphas=1.0, cv=2),
    bw.BagMeanMapClassifier(cv=2),
    bw.BagSGDClassifier(random_state=0),
    bw.BagBoostingClassifier(**TREES),
    bw.BagBoostingClassifier(objective="square", **TREES),
    GroupPriorClassifier(n_jobs=1, n_estimators=20),
    auto(bw.BagAutoClassifier, bw.BagBoostingClassifier),
    auto(bw.BagAutoClassifier, bw.BagBoostingClassifier, stack=True),
]
REGRESSORS = [
    bw.BagRidgeRegressor(cv=2),
    bw.BagRidgeRegressor(cv=2, nonnegative=False),
    bw.BagSGDRegressor(random_state=0),
    bw.BagTweedieRegressor(cv=2),
    bw.BagBoostingRegressor(link="identity", **TREES),
    bw.BagBoostingRegressor(link="log", **TREES),
    auto(bw.BagAutoRegressor, bw.BagBoostingRegressor),
]


def score_by_hand(model, X):
    """What is explained, by what models predict."""
    if hasattr(model, "predict_proba"):
        return logit(model.predict_proba(X)[:, 1])
    h = model.predict(X)
    return np.log(h) if isinstance(model, bw.BagTweedieRegressor) else h


def named(model):
    return type(model).__name__


@pytest.mark.parametrize("model", CLASSIFIERS, ids=named)
def test_contributions_add_up_to_log_odds(model, rows):
    X, reports, ids = rows
    found = model.fit(X, reports["label"], bags=ids).explain(X)
    assert found.contributions.shape == X.shape
    assert found.scale == "log odds"
    assert np.abs(found.base + found.contributions.sum(axis=1) - score_by_hand(model, X)).max() < 1e-9  # logit rounds
    assert np.abs(found.predictions - model.predict_proba(X)[:, 1]).max() < 1e-12
    assert np.abs(found.contributions[:, 0]).mean() > 0.1


@pytest.mark.parametrize("model", CLASSIFIERS, ids=named)
def test_contributions_of_several_classes_add_up(model, rows):
    X, reports, ids = rows
    found = model.fit(X, reports["classes"], bags=ids).explain(X)
    assert found.contributions.shape == (*X.shape, 3)
    assert np.abs(found.predictions - model.predict_proba(X)).max() < 1e-12


@pytest.mark.parametrize("model", REGRESSORS, ids=named)
def test_contributions_add_up_to_values(model, rows):
    X, reports, ids = rows
    found = model.fit(X, reports["value"], bags=ids).explain(X)
    assert np.abs(found.scores - score_by_hand(model, X)).max() < 1e-10
    assert np.abs(found.predictions - model.predict(X)).max() < 1e-10


def test_without_a_sigmoid_contributions_are_to_the_probability(rows):
    X, reports, ids = rows
    model = bw.BagSGDClassifier(as_published=True, random_state=0).fit(X, reports["label"], bags=ids)
    found = model.explain(X)
    assert found.scale == "probability"
    assert np.abs(found.scores - (X @ model.coef_ + model.intercept_)).max() < 1e-10
    assert np.array_equal(found.predictions, np.clip(found.scores, 0, 1))


def test_linear_terms_are_weights_times_distances_from_the_mean_row(rows):
    X, reports, ids = rows
    model = bw.BagLogisticClassifier(alphas=1.0, cv=2).fit(X, reports["label"], bags=ids)
    plain = [[w * (x - m) for w, x, m in zip(model.coef_, row, X.mean(axis=0), strict=True)] for row in X[:5]]
    assert np.allclose(model.explain(X[:5]).contributions, plain, atol=1e-12)
    assert np.allclose(model.explain(X).contributions.mean(axis=0), 0, atol=1e-10)


def test_an_offset_is_a_feature_of_its_own(rows):
    X, reports, ids = rows
    offset = np.where(np.arange(N) % 2, 0.5, -0.5)
    bags = bw.Bags.from_rows(reports["label"], ids).with_offset(offset)
    for model in (bw.BagLogisticClassifier(alphas=1.0, cv=2), bw.BagBoostingClassifier(**TREES)):
        model.fit(X, bags=bags)
        found = model.explain(X, offset=offset)
        assert found.names[-1] == "offset"
        assert np.array_equal(found.contributions[:, -1], offset)
        assert np.allclose(found.predictions, model.predict_proba(X, offset=offset)[:, 1], atol=1e-12)
        with pytest.raises(ValueError, match="offset is missing"):
            model.explain(X)


def test_further_trees_contribute(rows):
    X, reports, ids = rows
    rng = np.random.default_rng(1)
    model = bw.BagBoostingClassifier(**TREES).fit(X, reports["label"], bags=ids)
    other = bw.aggregate(rng.random(N) < expit(-2 * X[:, 0]), ids)
    model.partial_fit(X, other, bags=ids)
    assert model.updates_[0].fits
    assert np.abs(model.explain(X).predictions - model.predict_proba(X)[:, 1]).max() < 1e-12


# -- trees, by hand ---------------------------------------------------------------------------------------------------


def expected(node, x, known):
    """The value of a tree where only some features are known: others go both ways, as training rows did."""
    if "leaf_value" in node:
        return node["leaf_value"]
    sides = [node["left_child"], node["right_child"]]
    if node["split_feature"] in known:
        return expected(sides[0 if x[node["split_feature"]] <= node["threshold"] else 1], x, known)
    counts = [side.get("internal_count", side.get("leaf_count")) for side in sides]
    return sum(count * expected(side, x, known) for count, side in zip(counts, sides, strict=True)) / sum(counts)


def shapley(trees, x, width):
    """Shapley values by all coalitions of features."""
    found = np.zeros(width)
    for feature in range(width):
        others = [one for one in range(width) if one != feature]
        for size in range(width):
            for some in combinations(others, size):
                gain = sum(expected(t, x, {*some, feature}) - expected(t, x, {*some}) for t in trees)
                found[feature] += gain / (width * comb(width - 1, size))
    return found


def test_contributions_of_trees_are_shapley_values(rows):
    X, reports, ids = rows
    model = bw.BagBoostingClassifier(n_estimators=6, num_leaves=6, kinds=("random",), cv=2, n_jobs=1, random_state=0)
    X = np.column_stack([X, X[:, 0] + X[:, 1]])
    model.fit(X, reports["label"], bags=ids)
    found, plain = model.explain(X[:4]), np.zeros((4, 4))
    fits = [fit for fits in model.fits_.values() for fit in fits]
    for fit in fits:
        trees = [one["tree_structure"] for one in fit.boosters[0].dump_model()["tree_info"]]
        plain += [model.stretch_ * shapley(trees, x, 4) / len(fits) for x in X[:4]]
    assert np.abs(plain).max() > 0.05
    assert np.allclose(found.contributions, plain, atol=1e-10)


def test_trees_on_probabilities_contribute_to_log_odds_in_proportion(rows):
    X = rows[0]
    booster = lgb.train({"verbosity": -1, "num_threads": 1}, lgb.Dataset(X, expit(X[:, 0]) * X[:, 2] ** 2 / 3), 5)
    fit = Boosted(np.array([0.3]), [booster], links.IDENTITY)
    linear, found = fit.contributions(X, 5), fit.log_odds_contributions(X, 5)
    h = fit.scores(X, 5)
    assert np.allclose(linear.total, h, atol=1e-12)
    assert np.abs(found.total - fit.log_odds(h)).max() < 1e-12
    factor = (found.total - found.base) / (linear.total - linear.base)
    far = np.abs(linear.total - linear.base)[:, 0] > 1e-3
    assert np.allclose(found.values[far], (factor[:, None] * linear.values)[far], atol=1e-10)


# -- scales -----------------------------------------------------------------------------------------------------------


def test_through_a_function_sums_stay_exact_where_contributions_cancel():
    values = np.array([[1.0, -1.0], [1.0, -1.0 + 1e-12], [0.0, 0.0], [40.0, -3.0]])
    found = Contributions(values, np.array(0.4), LOG_ODDS).through(expit, PROBABILITY)
    assert np.allclose(found.total, expit(0.4 + values.sum(axis=1)), atol=1e-14)
    assert np.isclose(found.values[0, 0], expit(0.4) * (1 - expit(0.4)), atol=1e-6)  # the slope
    assert np.abs(found.values).max() < 1.1


def test_a_mean_of_scores_is_explained_by_the_mean():
    one, two = (Contributions(np.full((2, 3), v), np.array(v), LOG_ODDS) for v in (1.0, 3.0))
    assert np.allclose(mean_of([one, two], [0.25, 0.75]).total, 4 * 2.5)
    assert np.allclose(adding_up_to(np.array([1.0]), np.array([[3.0, 1.0]])), [[0.75, 0.25]])


# -- the result -------------------------------------------------------------------------------------------------------


def test_names_come_from_tables_and_frames_add_up(rows):
    X, reports, ids = rows
    table = pd.DataFrame({"age": X[:, 0], "kind": np.where(X[:, 2] > 0, "a", "b")})
    model = bw.BagBoostingClassifier(**TREES).fit(table, reports["label"], bags=ids)
    found = model.explain(table)
    frame = found.to_frame()
    assert list(frame) == ["age", "kind", "base", "score"]
    assert np.allclose(frame[["age", "kind", "base"]].sum(axis=1), frame["score"])
    assert next(iter(found.importances)) == "age"
    assert list(found.of_row(0)) in (["age", "kind"], ["kind", "age"])
    assert len(repr(found)) < 200
    assert np.isclose(model.feature_importances_.sum(), 1)
    assert model.feature_importances_.argmax() == 0


def test_a_class_must_be_named_where_there_are_several(rows):
    X, reports, ids = rows
    model = bw.BagLogisticClassifier(alphas=1.0, cv=2).fit(X, reports["classes"], bags=ids)
    frame = model.explain(X).to_frame(2)
    assert np.allclose(frame[["x0", "x1", "x2", "base"]].sum(axis=1), frame["score"])
    with pytest.raises(ValueError, match="label must be the number of a class, from 0 to 2"):
        model.explain(X).to_frame()


def test_a_model_that_was_loaded_explains_alike(rows, tmp_path):
    X, reports, ids = rows
    for number, model in enumerate([bw.BagRidgeClassifier(cv=2), bw.BagBoostingClassifier(**TREES)]):
        model.fit(X, reports["label"], bags=ids)
        save(model, tmp_path / f"{number}")
        assert np.array_equal(load(tmp_path / f"{number}").explain(X).contributions, model.explain(X).contributions)


def test_a_model_of_an_earlier_version_says_what_is_missing(rows):
    X, reports, ids = rows
    model = bw.BagRidgeClassifier(cv=2).fit(X, reports["label"], bags=ids)
    del model.feature_means_
    with pytest.raises(ValueError, match=r"saved before explanations were known, .* fit it again"):
        model.explain(X)


# -- networks ---------------------------------------------------------------------------------------------------------


def test_integrated_gradients_add_up_and_are_linear_terms_of_linear_networks(torch, one_thread, rows):
    X, reports, ids = rows
    told = {"learning_rate": 0.03, "max_epochs": 3, "cv": 2, "dtype": "float64", "hidden": (8,), "random_state": 0}
    model = bw.BagNeuralClassifier(module=torch.nn.Linear(3, 1), **told).fit(X, reports["label"], bags=ids)
    w = model.stretch_ * model.module_.weight.detach().numpy()[0]
    assert np.allclose(model.explain(X).contributions, w * (X - X.mean(axis=0)), atol=1e-10)
    for kind, y in ((bw.BagNeuralClassifier, "label"), (bw.BagNeuralRegressor, "value")):
        model = kind(**told).fit(X, reports[y], bags=ids)
        h = model.predict_proba(X)[:, 1] if y == "label" else model.predict(X)
        assert np.abs(model.explain(X).predictions - h).max() < 1e-10


def test_networks_of_classes_and_of_pictures_are_explained(torch, one_thread, rows):
    X, reports, ids = rows
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 3))
    pictures = np.stack([X, X**2], axis=2)
    told = {"learning_rate": 0.03, "max_epochs": 3, "cv": 2, "random_state": 0}
    model = bw.BagNeuralClassifier(module=module, **told).fit(pictures, reports["classes"], bags=ids)
    found = model.explain(pictures)
    assert found.contributions.shape == (N, 6, 3)
    assert np.abs(found.predictions - model.predict_proba(pictures)).max() < 1e-10
