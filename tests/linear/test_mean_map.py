"""The mean map: class means from bags, and logistic regression where every bag is one row."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise.bags import Bags
from bagwise.linear.mean_map import BagMeanMapClassifier, class_means
from bagwise.utils.parameters import ParameterError


def gaussians(n, classes=2, seed=0):
    """Rows of classes with different means; X given the class is normal, so proportions alone say where a bag lies."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    return rng.normal(size=(n, 3)) * [1, 2, 0.5] + 1.5 * rng.normal(size=(classes, 3))[y] + 10, y


def mixed_bags(y, size, seed=0):
    """Bags of one size whose proportions differ widely: half of them sorted by the label, half random."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    half = len(y) // 2
    order[:half] = order[:half][np.argsort(y[order[:half]], kind="stable")]
    ids = np.empty(len(y), dtype=int)
    ids[order] = np.arange(len(y)) // size
    return ids


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("alpha", [1e-3, 1e-1])
def test_bags_of_one_row_are_logistic_regression(classes, alpha):
    X, y = gaussians(600, classes)
    model = BagMeanMapClassifier(alpha=alpha).fit(X, y)
    scaled = StandardScaler().fit_transform(X)
    other = LogisticRegression(C=1 / (alpha * len(X)), tol=1e-10, max_iter=10_000).fit(scaled, y)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(scaled), atol=1e-5)
    np.testing.assert_allclose(model.class_means_, [X[y == c].mean(axis=0) for c in range(classes)], rtol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_class_means_are_exact_where_centroids_are_mixtures(classes):
    rng = np.random.default_rng(0)
    truth, proportion = rng.normal(size=(classes, 4)), rng.dirichlet(np.ones(classes), size=20)
    np.testing.assert_allclose(class_means(proportion @ truth, np.arange(1, 21), proportion), truth, atol=1e-9)


def test_large_bags_weigh_more():
    """One class: the weighted least-squares solution is the mean of the rows."""
    centroids, size = np.array([[1.0], [5.0]]), np.array([3, 1])
    np.testing.assert_allclose(class_means(centroids, size, np.ones((2, 1))), [[2.0]])


@pytest.mark.parametrize("classes", [2, 3])
def test_bags_that_differ_give_the_supervised_model(classes, seed):
    """Class means have standard errors of order 1/√rows where half of the bags hold one class."""
    X, y = gaussians(6000, classes, seed)
    ids = mixed_bags(y, 20, seed)
    indicators = y if classes == 2 else np.eye(classes)[y]
    model = BagMeanMapClassifier(alpha=0.01).fit(X, bw.aggregate(indicators, ids), bags=ids)
    truth = np.array([X[y == c].mean(axis=0) for c in range(classes)])
    assert np.abs((model.class_means_ - truth) / X.std(axis=0)).max() < 5 * np.sqrt(2 / (len(y) / classes))
    supervised = BagMeanMapClassifier(alpha=0.01).fit(X, y)
    assert model.score(X, y) > supervised.score(X, y) - 0.02
    assert supervised.score(X, y) > 1 / classes + 0.2  # there is something to learn


def test_errors_of_the_class_means_shrink_with_bags_not_rows(seed):
    """Random bags: the same number of bags, 16 times the rows, and the error is about the same."""

    def error(size, bags):
        off, (X, y) = [], gaussians(size * bags, seed=0)
        truth = np.array([X[y == c].mean(axis=0) for c in (0, 1)])
        for i in range(30):
            ids = bw.random_bags(len(y), size, random_state=1000 * seed + i)
            bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
            means = class_means(
                bags.mean(X[bags.order]), bags.size, np.column_stack([1 - bags.proportion, bags.proportion])
            )
            off.append(((means - truth) / X.std(axis=0)) ** 2)
        return np.mean(off)

    small, large, more = error(8, 40), error(128, 40), error(8, 640)
    assert 0.5 < large / small < 2
    assert more < small / 5


def test_equal_proportions_teach_nothing():
    X, _ = gaussians(400)
    ids = np.repeat(np.arange(40), 10)
    model = BagMeanMapClassifier(random_state=0).fit(X, np.full(400, 0.3), bags=ids)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 0.3, atol=1e-6)


def test_scale_and_offset_of_features_do_not_matter():
    X, y = gaussians(1000)
    ids = bw.random_bags(1000, 5, random_state=0)
    y_bag = bw.aggregate(y, ids)
    first = BagMeanMapClassifier(random_state=0).fit(X, y_bag, bags=ids).predict_proba(X)
    moved = 1e3 * X - 50
    np.testing.assert_allclose(
        BagMeanMapClassifier(random_state=0).fit(moved, y_bag, bags=ids).predict_proba(moved), first, atol=1e-6
    )


def test_constant_features_get_no_weight():
    X, y = gaussians(400)
    model = BagMeanMapClassifier(random_state=0).fit(np.column_stack([X, np.full(400, 0.1)]), y)
    assert model.coef_[3] == 0
    np.testing.assert_allclose(model.coef_[:3], BagMeanMapClassifier(random_state=0).fit(X, y).coef_, rtol=1e-6)


def test_rows_in_no_bag_are_ignored_and_noise_may_be_declared():
    X, y = gaussians(800)
    ids = bw.random_bags(800, 8, random_state=0)
    y_bag = bw.aggregate(y, ids)
    expected = BagMeanMapClassifier(random_state=0).fit(X, y_bag, bags=ids)
    ids_more, y_more = np.r_[ids, np.full(9, -1)], np.r_[y_bag, np.full(9, np.nan)]
    model = clone(expected).fit(np.vstack([X, 1e3 * X[:9]]), y_more, bags=ids_more)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6)
    noised = bw.Bags.from_rows(2 * y_bag - 0.5, ids, noise_variance=4.0)
    closer = BagMeanMapClassifier(random_state=0).fit(X, bags=noised)
    assert np.ptp(closer.class_means_[:, 0]) < np.ptp(expected.class_means_[:, 0])


def test_wrong_input_gets_one_clear_sentence():
    X, y = gaussians(40)
    for alpha in (0, -1.0, np.inf, "much"):
        with pytest.raises(ParameterError, match="alpha"):
            BagMeanMapClassifier(alpha=alpha).fit(X, y)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"column 1 of X contains NaN or infinity \(first in row 3\)"):
        BagMeanMapClassifier(random_state=0).fit(X, y)
    X[3, 1] = 1e200
    with pytest.raises(ValueError, match="column 1 of X holds numbers too large to add up"):
        BagMeanMapClassifier(random_state=0).fit(X, y)
    with pytest.raises(NotFittedError):
        BagMeanMapClassifier(random_state=0).predict(X)


def test_the_penalty_is_chosen_by_held_out_bags():
    """In random bags of 100 rows the class means are rough: what is chosen beats a light penalty."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 10))
    truth = 1 / (1 + np.exp(1 - X[:, 0]))
    ids = bw.random_bags(10_000, 100, random_state=0)
    bags = bw.Bags.from_rows(bw.aggregate(rng.random(10_000) < truth, ids), ids)
    chosen, light = (BagMeanMapClassifier(alpha=alpha, random_state=0).fit(X, bags=bags) for alpha in (None, 0.01))
    wrong, more = (((model.predict_proba(X)[:, 1] - truth) ** 2).mean() for model in (chosen, light))
    assert wrong < 0.8 * more
    assert chosen.alpha_ > 0.01
    assert chosen.formation_.name == "random"
    assert np.isfinite([chosen.gain_, chosen.gain_error_]).all()


def test_offsets_are_added_to_log_odds():
    """Rates differ, and what is added to log odds, too: what is learned is the rest."""
    rng = np.random.default_rng(3)
    n, m = 40_000, 100
    X, offset = rng.normal(size=(n, 2)), rng.normal(scale=1.5, size=n)
    X[:, 1] += 0.7 * offset  # which would otherwise be taken for a cause
    y = rng.random(n) < expit(X[:, 0] - 1 + offset)
    rate = rng.uniform(0.1, 0.9, m)
    ids = np.where(y, rng.choice(m, n, p=rate / rate.sum()), rng.choice(m, n, p=(1 - rate) / (1 - rate).sum()))
    bags = Bags.from_rows(bw.aggregate(y.astype(int), ids), ids)
    model = bw.BagMeanMapClassifier(alpha=1e-3, random_state=0, formation="rates")
    coef = model.fit(X, bags=bags.with_offset(offset)).coef_
    np.testing.assert_allclose(coef, [1.0, 0.0], atol=0.12)
    h = model.predict_proba(X, offset=offset)[:, 1]
    assert h.mean() == pytest.approx(y.mean(), abs=1e-6)
    assert model.fit(X, bags=bags).coef_[1] > 0.5
    with pytest.raises(ParameterError, match="offset is for models that were fitted with one"):
        model.predict_proba(X, offset=offset)
