"""What holds for every estimator: scikit-learn's own checks with bags=None, and the same demands with bags."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import bagwise as bw

SMALL = {"n_fits": 2, "cv": 2, "n_jobs": 1, "random_state": 0}
CLASSIFIERS = [
    bw.BagRidgeClassifier(random_state=0),
    bw.BagSGDClassifier(random_state=0),
    bw.BagBoostingClassifier(**SMALL),
]
REGRESSORS = [
    bw.BagRidgeRegressor(random_state=0),
    bw.BagSGDRegressor(random_state=0),
    bw.BagBoostingRegressor(**SMALL),
]
ESTIMATORS = CLASSIFIERS + REGRESSORS
LINEAR = [estimator for estimator in ESTIMATORS if "Boosting" not in type(estimator).__name__]
linear = pytest.mark.parametrize("estimator", LINEAR, ids=lambda e: type(e).__name__)
every = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
classifiers = pytest.mark.parametrize("estimator", CLASSIFIERS, ids=lambda e: type(e).__name__)


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        check(estimator)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4))
    y = (rng.random(1200) < 1 / (1 + np.exp(-X[:, 0] - 0.5 * X[:, 1]))).astype(float)
    return X, y, bw.random_bags(1200, 10, random_state=0)


def outputs(model, X):
    return model.predict_proba(X) if is_classifier(model) else model.predict(X)


@every
def test_bags_of_one_row_are_ordinary_supervision(estimator, data):
    X, y, _ = data
    without = clone(estimator).fit(X, y)
    with_bags = clone(estimator).fit(X, y, bags=np.arange(len(y)))
    np.testing.assert_allclose(outputs(with_bags, X), outputs(without, X))


@every
def test_row_order_does_not_matter(estimator, data):
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    shuffle = np.random.default_rng(1).permutation(len(y))
    first = clone(estimator).fit(X, y_bag, bags=ids)
    second = clone(estimator).fit(X[shuffle], y_bag[shuffle], bags=ids[shuffle])
    np.testing.assert_allclose(outputs(second, X), outputs(first, X), rtol=1e-6, atol=1e-9)


@every
def test_ids_of_any_kind_give_the_same_model(estimator, data):
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    expected = outputs(clone(estimator).fit(X, y_bag, bags=ids), X)
    strings = np.array([f"{i:04d}" for i in ids])
    for other in (strings, pd.Series(strings), ids.astype(float), [("bag", int(i)) for i in ids]):
        np.testing.assert_allclose(outputs(clone(estimator).fit(X, y_bag, bags=other), X), expected)
    ready = bw.Bags.from_rows(y_bag, ids)
    np.testing.assert_allclose(outputs(clone(estimator).fit(X, bags=ready), X), expected)


@every
def test_rows_in_no_bag_are_ignored(estimator, data):
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    expected = outputs(clone(estimator).fit(X, y_bag, bags=ids), X)
    more_X = np.vstack([X, 0.1 * X[:50]])  # shorter rows, so that the longest row, which SGD looks at, stays the same
    more_y, more_ids = np.r_[y_bag, np.full(50, np.nan)], np.r_[ids, np.full(50, -1)]
    np.testing.assert_allclose(outputs(clone(estimator).fit(more_X, more_y, bags=more_ids), X), expected)


@linear
def test_unequal_sizes_learn_too(estimator, data):
    X, y, _ = data
    ids = np.repeat(np.arange(60), np.tile([1, 9, 20, 30, 25, 35], 10))
    model = clone(estimator)
    if "n_passes" in model.get_params():
        model.set_params(n_passes=50)
    model.fit(X, bw.aggregate(y, ids), bags=ids)
    h = outputs(model, X)
    h = h[:, 1] if h.ndim == 2 else h
    assert np.corrcoef(h, X[:, 0] + 0.5 * X[:, 1])[0, 1] > 0.8


@every
def test_the_same_seed_gives_the_same_model(estimator, data):
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    one, two = (clone(estimator).fit(X, y_bag, bags=ids) for _ in range(2))
    np.testing.assert_array_equal(outputs(one, X), outputs(two, X))


@classifiers
def test_classes_come_from_columns_of_proportions(estimator, data):
    X, _, ids = data
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    indicators = (labels[:, None] == np.arange(3)).astype(float)
    model = clone(estimator)
    if "n_passes" in model.get_params():
        model.set_params(n_passes=60)
    model.fit(X, bw.aggregate(indicators, ids), bags=ids)
    probabilities = model.predict_proba(X)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (probabilities >= 0).all()
    np.testing.assert_array_equal(model.predict(X), model.classes_[probabilities.argmax(axis=1)])
    assert model.score(X, labels) > 0.55  # the most frequent class has 0.38
    np.testing.assert_array_equal(
        model.predict(X), clone(model).fit(X, bags=bw.Bags.from_rows(bw.aggregate(indicators, ids), ids)).predict(X)
    )


@every
def test_data_frames_and_pipelines_work(estimator, data):
    from sklearn import config_context
    from sklearn.model_selection import GroupKFold, cross_validate
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y, ids = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    y_bag = bw.aggregate(y, ids)
    with config_context(enable_metadata_routing=True):
        model = make_pipeline(StandardScaler(), clone(estimator).set_fit_request(bags=True))
        result = cross_validate(
            model,
            frame,
            y_bag,
            params={"bags": ids, "groups": ids},
            cv=GroupKFold(3),
            scoring=lambda m, X, y: float(len(X)),
            error_score="raise",
        )
    assert len(result["test_score"]) == 3


@every
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nan feature", r"column 'b' of X contains NaN or infinity \(first in row 7\)"),
        ("infinite feature", r"column 'b' of X contains NaN or infinity \(first in row 7\)"),
        ("two proportions", "bag 0 carries two different proportions"),
        ("nan proportion", "bag 3 has NaN or infinite"),
        ("one bag", "one bag only"),
        ("no bags", "no row is in a bag"),
        ("short y", "X has 1200 rows but y has 1199"),
        ("short bags", "y has 1200 rows but bags has 1199"),
        ("foreign Bags", "built on 2 rows but X has 1200"),
        ("empty", "0 sample"),
    ],
)
def test_wrong_input_gets_one_clear_sentence(estimator, data, change, message):
    if estimator not in LINEAR and change in ("nan feature", "infinite feature"):
        message = r"column 'b' of X contains infinity \(first in row 7\)" if change == "infinite feature" else None
    X, y, ids = data
    frame, y_bag = pd.DataFrame(X, columns=list("abcd")), bw.aggregate(y, ids)
    if change in ("nan feature", "infinite feature"):
        frame.loc[7, "b"] = np.nan if change == "nan feature" else -np.inf
    elif change == "two proportions":
        y_bag[np.flatnonzero(ids == 0)[1]] += 0.1
    elif change == "nan proportion":
        y_bag[ids == 3] = np.nan
    elif change == "one bag":
        ids, y_bag = np.zeros(1200, dtype=int), np.full(1200, 0.5)
    elif change == "no bags":
        ids = np.full(1200, -1)
    elif change == "short y":
        y_bag = y_bag[:-1]
    elif change == "short bags":
        ids = ids[:-1]
    elif change == "foreign Bags":
        ids = bw.Bags.from_rows([0.0, 1.0], [0, 1])
    elif change == "empty":
        frame, y_bag, ids = frame[:0], y_bag[:0], ids[:0]
    if message is None:
        clone(estimator).fit(frame, y_bag, bags=ids)  # trees read NaN as a missing value
        return
    with pytest.raises(ValueError, match=message):
        clone(estimator).fit(frame, y_bag, bags=ids)


@classifiers
def test_classifiers_refuse_what_is_no_proportion(estimator, data):
    X, y, ids = data
    with pytest.raises(ValueError, match=r"outside \[0, 1\].*noise_variance"):
        clone(estimator).fit(X, bw.aggregate(y, ids) * 10, bags=ids)
    with pytest.raises(ValueError, match="one class only"):
        clone(estimator).fit(X, np.zeros(len(y)), bags=ids)
    with pytest.raises(ValueError, match="sum to"):
        clone(estimator).fit(X, np.tile([0.5, 0.2, 0.2], (len(y), 1)), bags=ids)
    declared = bw.Bags.from_rows(bw.aggregate(y, ids) * 3 - 1, ids, noise_variance=5.0)
    clone(estimator).fit(X, bags=declared)  # declared noise may leave [0, 1]


@every
def test_an_unfitted_model_says_so(estimator, data):
    with pytest.raises(NotFittedError):
        clone(estimator).predict(data[0])


@linear
def test_columns_without_numbers_are_named(estimator, data):
    X, y, ids = data
    frame = pd.DataFrame(X, columns=list("abcd")).assign(device="mobile")
    polars = pytest.importorskip("polars")
    with pytest.raises(ValueError, match=r"column 'device' of X holds no numbers"):
        clone(estimator).fit(polars.from_pandas(frame), bw.aggregate(y, ids), bags=ids)
    with pytest.raises(ValueError, match=r"column 'device' of X holds no numbers.*get_dummies"):
        clone(estimator).fit(frame, bw.aggregate(y, ids), bags=ids)


@linear
def test_nan_in_new_rows_is_named(estimator, data):
    X, y, ids = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = clone(estimator).fit(frame, bw.aggregate(y, ids), bags=ids)
    frame.loc[5, "c"] = np.nan
    with pytest.raises(ValueError, match=r"column 'c' of X contains NaN or infinity \(first in row 5\)"):
        model.predict(frame)
