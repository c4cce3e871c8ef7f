"""Every estimator passes scikit-learn's own checks, with bags=None, and ours with bags; then what only some must do."""

from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import bagwise as bw
from bagwise.baselines import GroupPriorClassifier
from bagwise.checks import checks_for
from bagwise.checks.estimators import Case
from bagwise.data.rows import InMemory, Reads, fit_codes
from bagwise.utils.parameters import ParameterError
from tests import sklearn_checks

SMALL = {
    "n_estimators": 6,
    "learning_rate": 0.4,
    "n_fits": 1,
    "reg_lambda": 10.0,
    "cv": 2,
    "n_jobs": 1,
    "random_state": 0,
}
CLASSIFIERS = [  # with few folds and few settings to choose from: what is checked does not depend on how many
    bw.BagRidgeClassifier(cv=2, random_state=0),
    bw.BagSGDClassifier(random_state=0),
    bw.BagMeanMapClassifier(cv=2, random_state=0),
    bw.BagLogisticClassifier(alphas=(1.0, 10.0), cv=2, random_state=0),
    bw.BagBoostingClassifier(**SMALL),
    bw.BagAutoClassifier(
        candidates={
            "ridge": bw.BagRidgeClassifier(cv=2),
            "boosting": bw.BagBoostingClassifier(**(SMALL | {"kinds": ("greedy",)})),
        },
        cv=2,
        random_state=0,
    ),
    GroupPriorClassifier(n_jobs=1, random_state=0),
]
if find_spec("torch"):
    # Double precision, since sums in another order must not be told apart; scikit-learn's checks of it: test_neural.py.
    network = {"hidden": (8,), "learning_rate": 0.1, "max_epochs": 10, "cv": 2, "dtype": "float64", "random_state": 0}
    CLASSIFIERS.append(bw.BagNeuralClassifier(**network))
REGRESSORS = [
    bw.BagRidgeRegressor(random_state=0),
    bw.BagSGDRegressor(random_state=0),
    bw.BagTweedieRegressor(cv=2, random_state=0),
    bw.BagBoostingRegressor(**SMALL),
    bw.BagAutoRegressor(
        candidates={
            "ridge": bw.BagRidgeRegressor(cv=2),
            "boosting": bw.BagBoostingRegressor(**(SMALL | {"kinds": ("greedy",)})),
        },
        cv=2,
        random_state=0,
    ),
]
if find_spec("torch"):
    REGRESSORS.append(bw.BagNeuralRegressor(**network))
ESTIMATORS = CLASSIFIERS + REGRESSORS


def name(estimator):
    return type(estimator).__name__


LINEAR = [e for e in ESTIMATORS if "Ridge" in name(e) or "SGD" in name(e)]
linear = pytest.mark.parametrize("estimator", LINEAR, ids=name)
sgd = pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if "SGD" in name(e)], ids=name)


# Some checks fit to labels that have nothing to do with X.
of_noise = pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")


@of_noise
@sklearn_checks.parametrize([e for e in ESTIMATORS if "Neural" not in name(e)])
def test_scikit_learn_checks(estimator, check):
    sklearn_checks.check(estimator, check)


@pytest.fixture
def shared_models(monkeypatch):
    """The model that most checks compare with is fitted once for each estimator."""
    monkeypatch.setattr(Case, "model", property(lambda case: MODELS.get(case.estimator) or fit_for_all(case)))


MODELS = {}


def marks(estimator, check):
    """Ids are read by `base`, the same for all: those that take long to fit are asked among the slow tests."""
    quick = estimator in LINEAR or name(estimator) == "GroupPriorClassifier"
    by_base = check.__name__ in ("check_ids_of_any_kind", "check_rows_in_no_bag")
    return [pytest.mark.slow] if by_base and not quick else []


def fit_for_all(case):
    MODELS[case.estimator] = case.fitted(case.X, case.proportion, case.ids)
    return MODELS[case.estimator]


@of_noise
@pytest.mark.usefixtures("shared_models")
@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(e, check, id=f"{name(e)}-{check.__name__}", marks=marks(e, check))
        for e in ESTIMATORS
        for check in checks_for(e)
    ],
)
def test_bag_checks(estimator, check):
    check(estimator)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4))
    y = (rng.random(1200) < 1 / (1 + np.exp(-X[:, 0] - 0.5 * X[:, 1]))).astype(float)
    return X, y, bw.random_bags(1200, 10, random_state=0)


@sgd
def test_many_passes_learn_from_unequal_sizes(estimator, data):
    """The theorem's step is small: a public check on one pass over 600 rows would ask too much."""
    X, y, _ = data
    ids = np.repeat(np.arange(60), np.tile([1, 9, 20, 30, 25, 35], 10))
    model = clone(estimator).set_params(n_passes=50).fit(X, bw.aggregate(y, ids), bags=ids)
    h = model.predict_proba(X)[:, 1] if hasattr(model, "predict_proba") else model.predict(X)
    assert np.corrcoef(h, X[:, 0] + 0.5 * X[:, 1])[0, 1] > 0.8


def test_many_passes_learn_several_classes(data):
    X, _, ids = data
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    proportion = bw.aggregate((labels[:, None] == np.arange(3)).astype(float), ids)
    model = bw.BagSGDClassifier(n_passes=30, random_state=0).fit(X, proportion, bags=ids)
    assert model.score(X, labels) > 0.55  # the most frequent class has 0.38


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
def test_the_column_and_the_row_are_named(estimator, data):
    """In new rows as in those of `fit`; NaN is a missing value where an estimator allows it."""
    X, y, ids = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = clone(estimator).fit(frame, bw.aggregate(y, ids), bags=ids)
    gaps = get_tags(estimator).input_tags.allow_nan
    message = rf"column 'b' of X contains {'infinity' if gaps else 'NaN or infinity'} \(first in row 7\)"
    for value in (np.nan, -np.inf):
        frame.loc[7, "b"] = value
        if gaps and np.isnan(value):
            assert np.isfinite(model.predict(frame)).all()
            continue
        with pytest.raises(ValueError, match=message):
            clone(estimator).fit(frame, bw.aggregate(y, ids), bags=ids)
        with pytest.raises(ValueError, match=message):
            model.predict(frame)


@linear
def test_weights_are_those_of_bags(estimator, data):
    """`sample_weight` is another way to say `Bags.with_weights`, whose laws are tested with bags and likelihoods."""
    X, y, ids = data
    y_bag, weight = bw.aggregate(y, ids), np.random.default_rng(1).integers(1, 4, len(X))
    model = clone(estimator).fit(X, y_bag, bags=ids, sample_weight=weight)
    bags = bw.Bags.from_rows(y_bag, ids).with_weights(weight)
    np.testing.assert_array_equal(model.predict(X), clone(estimator).fit(X, bags=bags).predict(X))
    assert (model.coef_ != clone(estimator).fit(X, y_bag, bags=ids).coef_).any()
    with pytest.raises(ParameterError, match="sample_weight is in the Bags given already"):
        clone(estimator).fit(X, bags=bags, sample_weight=weight)


@linear
def test_labelled_rows_that_stand_for_nobody_are_left_out(estimator, data):
    X, y, _ = data
    weight = np.random.default_rng(1).integers(0, 2, len(X))
    model = clone(estimator).fit(X, y, sample_weight=weight)
    without = clone(estimator).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_allclose(model.coef_, without.coef_, atol=1e-9)


def test_updates_know_weights(data):
    X, y, ids = data
    y_bag, weight = bw.aggregate(y, ids), np.full(len(X), 2.0)
    for model in (bw.BagRidgeClassifier(random_state=0), bw.BagRidgeRegressor(random_state=0)):
        model.fit(X, y_bag, bags=ids).partial_fit(X, y_bag, bags=ids, sample_weight=weight)
        again = clone(model).fit(X, y_bag, bags=ids)
        again.partial_fit(X, bags=bw.Bags.from_rows(y_bag, ids).with_weights(weight))
        np.testing.assert_array_equal(model.coef_, again.coef_)


def test_weights_that_an_estimator_does_not_know_are_refused_in_a_sentence(data, monkeypatch):
    X, y, ids = data
    monkeypatch.setattr(bw.BagSGDClassifier, "reads", Reads())
    with pytest.raises(ParameterError, match="sample_weight is not known to a BagSGDClassifier: take ridge"):
        bw.BagSGDClassifier().fit(X, bw.aggregate(y, ids), bags=ids, sample_weight=np.ones(len(X)))


def test_a_pipeline_gives_its_estimator_tables(data):
    """`set_output` of scikit-learn makes steps hand on tables: the estimator then knows the names of columns."""
    X, y, ids = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = make_pipeline(StandardScaler(), bw.BagLogisticClassifier(alphas=1.0, cv=2, random_state=0))
    model.set_output(transform="pandas").fit(frame, bw.aggregate(y, ids), baglogisticclassifier__bags=ids)
    assert model[-1].feature_names_in_.tolist() == list("abcd")
    plain = clone(model[-1]).fit(StandardScaler().fit_transform(X), bw.aggregate(y, ids), bags=ids)
    np.testing.assert_allclose(model.predict_proba(frame), plain.predict_proba(StandardScaler().fit_transform(X)))


@linear
def test_columns_without_numbers_are_named(estimator, data):
    X, y, ids = data
    frame = pd.DataFrame(X, columns=list("abcd")).assign(device="mobile")
    polars = pytest.importorskip("polars")
    with pytest.raises(ValueError, match=r"column 'device' of X holds no numbers"):
        clone(estimator).fit(polars.from_pandas(frame), bw.aggregate(y, ids), bags=ids)
    with pytest.raises(ValueError, match=r"column 'device' of X holds no numbers.*get_dummies"):
        clone(estimator).fit(frame, bw.aggregate(y, ids), bags=ids)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("two proportions", "bag 0 carries two different proportions"),
        ("nan proportion", "bag 3 has NaN or infinite"),
        ("one bag", "one bag only"),
        ("no bags", "no row is in a bag"),
        ("short y", "X has 1200 rows but y has 1199"),
        ("short bags", "y has 1200 rows but bags has 1199"),
        ("foreign Bags", "built on 2 rows but X has 1200"),
        ("counts", r"outside \[0, 1\].*noise_variance"),
        ("one class", "y holds one class only"),
    ],
)
def test_the_sentences_of_our_errors(data, change, message):
    """That every estimator refuses these is checked by `checks`; the words are those of `base`, the same for all."""
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    if change == "two proportions":
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
    elif change == "counts":
        y_bag = 10 * y_bag
    elif change == "one class":
        y_bag = np.zeros(1200)
    with pytest.raises(ValueError, match=message):
        bw.BagRidgeClassifier().fit(X, y_bag, bags=ids)


def test_what_bags_differ_in_has_the_name_of_the_column_also_where_categories_become_several():
    rng = np.random.default_rng(0)
    x, bag = rng.normal(size=3000), np.arange(3000) // 30
    codes = np.column_stack([rng.integers(0, 5, 3000), x + rng.normal(size=100)[bag]])
    y = rng.random(3000) < 1 / (1 + np.exp(-codes[:, 1]))
    data = InMemory(codes, bw.Bags.from_rows(bw.aggregate(y, bag), bag), categorical=[0], names=["country", "age"])
    for model in (bw.BagLogisticClassifier(cv=2, random_state=0), bw.BagBoostingClassifier(n_estimators=5, cv=2)):
        fit_codes(model, data)
        assert "'age'" in model.formation_.reason
