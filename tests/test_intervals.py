"""Intervals of predictions hold E[y | x] as often as they say, in every formation, where the model is right."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit, softmax

import bagwise as bw
from bagwise.intervals import jackknife_interval
from bagwise.saving import load, save

K, D = 16, 3
FORMATIONS = ("random", "rates", "features", "effects")
TREES = {"n_estimators": 20, "cv": 3, "n_jobs": 1, "random_state": 0}


def linear(X):
    return 0.45 + 0.25 * X[:, 0] - 0.15 * X[:, 1]


def logistic(X):
    return expit(-0.3 + 1.5 * X[:, 0] - X[:, 1])


def bags_of(formation, rng, m, truth):
    """Rows in m bags of a formation, and what they report; P(y = 1 | x) is `truth` (of a bag without effects)."""
    ids, X = np.repeat(np.arange(m), K), rng.uniform(-1, 1, size=(m * K, D))
    if formation in ("features", "effects"):
        X = X / 2 + np.repeat(rng.uniform(-0.5, 0.5, size=(m, D)), K, axis=0)
    p = truth(X)
    if formation == "effects":
        p = expit(logit(p) + np.repeat(0.4 * rng.normal(size=m), K))
    y = rng.random(m * K) < p
    if formation == "random":
        ids = rng.permutation(ids)
    if formation == "rates":
        many = rng.uniform(-1, 1, size=(6 * m * K, D))
        label = rng.random(len(many)) < truth(many)
        pools = [list(np.flatnonzero(label == one)) for one in (False, True)]
        positive = rng.binomial(K, np.clip(label.mean() + 0.2 * rng.normal(size=m), 0.03, 0.97))
        order = [pools[int(i < c)].pop() for c in positive for i in range(K)]
        X, y = many[order], label[order]
    return X, bw.aggregate(y, ids), ids


def held(model, formation, truth, rng, m, trials, at, bags_of=bags_of):
    """(trials,) in how many of some rows the interval holds the truth, fit by fit."""
    found = []
    for _ in range(trials):
        X, y, ids = bags_of(formation, rng, m, truth)
        low, high = model.fit(X, y, bags=ids).predict_interval(at)
        found.append(np.mean((low <= truth(at)) & (truth(at) <= high)))
    return np.array(found)


def linear_classes(X):
    return np.stack(
        [1 / 3 + 0.15 * X[:, 0] - 0.1 * X[:, 1], 1 / 3 + 0.15 * X[:, 1], 1 / 3 - 0.15 * X[:, 0] - 0.05 * X[:, 1]],
        axis=1,
    )


def logistic_classes(X):
    return softmax(X @ [[1.2, 0, -1], [-0.8, 0.8, 0], [0, -1, 1]] + [0.2, 0, -0.2], axis=1)


def bags_of_classes(formation, rng, m, truth):
    """The same of three classes."""
    ids, X = np.repeat(np.arange(m), K), rng.uniform(-1, 1, size=((8 if formation == "rates" else 1) * m * K, D))
    if formation == "features":
        X = X / 2 + np.repeat(rng.uniform(-0.5, 0.5, size=(m, D)), K, axis=0)
    p = truth(X)
    y = (rng.random(len(X))[:, None] > np.cumsum(p, axis=1)[:, :2]).sum(axis=1)
    if formation == "random":
        ids = rng.permutation(ids)
    if formation == "rates":
        pools = [list(np.flatnonzero(y == c)) for c in range(3)]
        rates = rng.dirichlet(12 * np.bincount(y) / len(y), m)
        order = [pools[c].pop() for one in rates for c in rng.choice(3, K, p=one)]
        X, y = X[order], y[order]
    return X, bw.aggregate(np.eye(3)[y], ids), ids


def covers(found, wanted):
    """Whether a mean of `found`, one for each fit, may be as much as is wanted."""
    return found.mean() + 5 * found.std(ddof=1) / np.sqrt(len(found)) >= wanted


@pytest.mark.parametrize("formation", FORMATIONS)
@pytest.mark.parametrize(
    ("model", "truth"),
    [(bw.BagRidgeClassifier, linear), (bw.BagLogisticClassifier, logistic)],
    ids=["ridge", "logistic"],
)
def test_intervals_cover_where_the_model_is_right(model, truth, formation, seed):
    rng = np.random.default_rng([seed, 5])
    at = rng.uniform(-1, 1, size=(97, D))
    quick = {"alphas": 1.0, "cv": 2} if truth is logistic else {"cv": 5}
    covered = held(model(formation=formation, **quick), formation, truth, rng, 60, 6, at)
    assert covers(covered, 0.95)
    assert covered.mean() > 0.8


@pytest.mark.parametrize(
    ("model", "truth", "formation"),
    [
        *((bw.BagRidgeClassifier, linear_classes, one) for one in ("random", "features")),
        *((bw.BagLogisticClassifier, logistic_classes, one) for one in ("random", "rates", "features")),
    ],
)
def test_intervals_of_each_class_cover(model, truth, formation, seed):
    rng = np.random.default_rng([seed, 8])
    at = rng.uniform(-1, 1, size=(97, D))
    quick = {"alphas": 1.0} if truth is logistic_classes else {}
    trials = 4 if quick else 12
    covered = held(model(formation=formation, **quick), formation, truth, rng, 60, trials, at, bags_of_classes)
    assert covers(covered, 0.95)
    assert covered.mean() > 0.8


def test_intervals_of_values_cover(seed):
    rng = np.random.default_rng([seed, 6])
    covered, row = 0, np.array([[0.5, -0.5]])
    for _ in range(30):
        X = rng.normal(size=(60 * K, 2))
        ids = rng.permutation(np.repeat(np.arange(60), K))
        y = bw.aggregate(10 + X @ [3.0, 1.0] + rng.normal(size=len(X)), ids)
        low, high = bw.BagRidgeRegressor(formation="random").fit(X, y, bags=ids).predict_interval(row)
        covered += low[0] <= 11 <= high[0]
    assert stats.binomtest(int(covered), 30, 0.92, alternative="less").pvalue > 1e-6


def test_one_row_a_bag_gives_the_interval_of_least_squares():
    rng = np.random.default_rng(0)
    X, n = rng.normal(size=(200, 2)), 200
    y = 1 + X @ [2.0, -1.0] + rng.normal(size=n)
    model = bw.BagRidgeRegressor(alphas=0.0, nonnegative=False, formation="random").fit(X, y)
    A = np.column_stack([np.ones(n), X])
    beta, rest = np.linalg.lstsq(A, y)[:2]
    rows = np.column_stack([np.ones(3), rng.normal(size=(3, 2))])
    error = np.sqrt(rest[0] / (n - 3) * np.einsum("ij,jk,ik->i", rows, np.linalg.inv(A.T @ A), rows))
    far = stats.t.ppf(0.975, n - 3)
    low, high = model.predict_interval(rows[:, 1:])
    assert np.allclose([low, high], [rows @ beta - far * error, rows @ beta + far * error], atol=1e-8)


def test_the_jackknife_of_a_mean_is_its_standard_error():
    y = np.random.default_rng(0).normal(size=(40, 1))
    without = (y.sum() - y) / 39
    low, high = jackknife_interval(without, y.mean(axis=0), 0.95)
    half = stats.t.ppf(0.975, 39) * y.std(ddof=1) / np.sqrt(40)
    assert np.allclose(high - low, 2 * half)


def test_intervals_narrow_with_bags_and_hold_the_prediction(tmp_path):
    rng = np.random.default_rng(0)
    at = rng.uniform(-1, 1, size=(50, D))
    ridge, logit_model, trees = bw.BagRidgeClassifier(), bw.BagLogisticClassifier(), bw.BagBoostingClassifier(**TREES)
    auto = bw.BagAutoClassifier(candidates={"logistic": bw.BagLogisticClassifier(alphas=1.0)}, cv=2, random_state=0)
    for number, model in enumerate((ridge, logit_model, trees, auto)):
        widths = []
        for m in (40, 400):
            X, y, ids = bags_of("random", rng, m, logistic)
            low, high = model.fit(X, y, bags=ids).predict_interval(at)
            h = model.predict_proba(at)[:, 1]
            assert ((low <= h) & (h <= high) & (low >= 0) & (high <= 1)).all()
            widths.append((high - low).mean())
        assert widths[1] < 0.8 * widths[0]  # at 40 bags many are cut off at 0 or 1
        assert (np.diff(model.predict_interval(at, level=0.5), axis=0) <= high - low).all()
        save(model, tmp_path / f"{number}")
        assert np.array_equal(load(tmp_path / f"{number}").predict_interval(at), [low, high])


def test_intervals_of_classes_narrow_hold_predictions_and_are_kept(tmp_path):
    rng = np.random.default_rng(0)
    at = rng.uniform(-1, 1, size=(50, D))
    for number, model in enumerate((bw.BagRidgeClassifier(), bw.BagLogisticClassifier(alphas=1.0))):
        widths = []
        for m in (40, 400):
            X, y, ids = bags_of_classes("random", rng, m, logistic_classes)
            low, high = model.fit(X, y, bags=ids).predict_interval(at)
            h = model.predict_proba(at)
            assert low.shape == high.shape == h.shape
            assert ((low <= h) & (h <= high) & (low >= 0) & (high <= 1)).all()
            widths.append((high - low).mean())
        assert widths[1] < 0.8 * widths[0]
        assert (np.diff(model.predict_interval(at, level=0.5), axis=0) <= high - low).all()
        save(model, tmp_path / f"{number}")
        assert np.array_equal(load(tmp_path / f"{number}").predict_interval(at), [low, high])


def test_where_nothing_is_known_the_interval_is_everything():
    rng = np.random.default_rng(0)
    X, y, ids = bags_of("random", rng, 4, logistic)
    low, high = bw.BagRidgeClassifier(formation="random").fit(X, y, bags=ids).predict_interval(X[:3])
    assert np.array_equal([low, high], [[0.0] * 3, [1.0] * 3])


def classes_of(X, m):
    """Reports of m bags of three classes that depend on nothing."""
    ids = np.arange(len(X)) % m
    label = np.random.default_rng(3).integers(0, 3, len(X))
    return {"y": bw.aggregate(np.eye(3)[label], ids), "bags": ids}


def test_models_without_intervals_say_so():
    rng = np.random.default_rng(0)
    X, y, ids = bags_of("random", rng, 60, logistic)
    classes = np.column_stack([y, (1 - y) / 4, (1 - y) * 3 / 4])
    with pytest.raises(ValueError, match="where rates differ, ridge regression tells intervals of two classes only"):
        bw.BagRidgeClassifier(formation="rates").fit(X, classes, bags=ids).predict_interval(X)
    few = bw.BagLogisticClassifier(alphas=1.0).fit(X[:128], **classes_of(X[:128], 8))
    with pytest.raises(ValueError, match="its rows are too many or its bags too few for several classes"):
        few.predict_interval(X)
    auto = bw.BagAutoClassifier(candidates={"ridge": bw.BagRidgeClassifier()}, cv=2, random_state=0)
    with pytest.raises(ValueError, match="intervals of several classes are those of logistic regression and ridge"):
        auto.fit(X, **classes_of(X, 60)).predict_interval(X)
    trees = bw.BagBoostingClassifier(**TREES, formation="random").fit(X, classes, bags=ids)
    with pytest.raises(ValueError, match="trees of several classes are fitted to all bags"):
        trees.predict_interval(X)
    trees = bw.BagBoostingClassifier(**TREES).fit(X, y, bags=ids)
    trees._folded = False
    with pytest.raises(ValueError, match="intervals come from fits without a fold"):
        trees.predict_interval(X)
    auto = bw.BagAutoClassifier(candidates={"mean map": bw.BagMeanMapClassifier()}, cv=2, random_state=0)
    with pytest.raises(ValueError, match="a BagMeanMapClassifier, which was chosen, tells no intervals"):
        auto.fit(X, y, bags=ids).predict_interval(X)


@pytest.mark.slow
@pytest.mark.parametrize("formation", FORMATIONS)
def test_intervals_of_trees_cover_nine_times_in_ten(formation, seed):
    """Trees are never quite right: the jackknife of fits on folds holds the truth a little less often than it says."""
    rng = np.random.default_rng([seed, 7])

    def truth(X):
        return expit(-0.3 + 1.5 * np.sin(2 * X[:, 0]) + np.sign(X[:, 1]) * (X[:, 2] > 0))

    at, model = rng.uniform(-1, 1, size=(97, D)), bw.BagBoostingClassifier(formation=formation, n_jobs=1)
    covered = held(model, formation, truth, rng, 100, 10, at)
    assert covers(covered, 0.92)
    assert covered.mean() > 0.8
