"""Cross-validation over bags with scikit-learn's own tools."""

import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn import config_context
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise.cross_validation import METRICS, BagKFold, label_free_scorer
from bagwise.evaluation import BagsNotRandomWarning
from bagwise.log_odds import shift_to


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 4))
    y = (rng.random(2400) < 1 / (1 + np.exp(-1.5 * X[:, 0]))).astype(int)
    ids = bw.random_bags(2400, 8, random_state=0)
    return X, y, ids, bw.aggregate(y, ids)


# -- the splitter -------------------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(1, 40), min_size=6, max_size=60),
    n_splits=st.integers(2, 6),
    shuffle=st.booleans(),
    seed=st.integers(0, 100),
)
def test_folds_keep_bags_whole_and_are_balanced(sizes, n_splits, shuffle, seed):
    ids = np.random.default_rng(seed).permutation(np.r_[np.repeat(np.arange(len(sizes)), sizes), [-1] * 5])
    splitter = BagKFold(n_splits, shuffle=shuffle, random_state=seed if shuffle else None)
    tested = []
    for train, test in splitter.split(np.zeros((len(ids), 1)), bags=ids):
        assert not set(ids[train]) & set(ids[test])
        assert sorted([*train, *test]) == list(range(len(ids)))  # every row once
        assert -1 not in ids[test]
        tested.append(test)
    assert len(tested) == n_splits == splitter.get_n_splits()
    assert sorted(np.concatenate(tested)) == np.flatnonzero(ids >= 0).tolist()
    rows = [len(test) for test in tested]
    assert max(rows) - min(rows) <= max(sizes)  # the last bag given to the fullest fold went to the then lightest


def test_folds_are_random_and_repeatable():
    X, ids = np.zeros((300, 1)), np.repeat(np.arange(60), 5)

    def folds(**options):
        return [test.tolist() for _, test in BagKFold(3, **options).split(X, bags=ids)]

    assert folds(random_state=0) == folds(random_state=0)
    assert folds(random_state=0) != folds(random_state=1)
    assert folds(shuffle=False) == folds(shuffle=False)
    assert folds() != folds()


def test_any_kind_of_ids_and_tables():
    numbers = np.repeat([3, 1, 2, -1], 4)
    strings = pd.Series(numbers).map({3: "c", 1: "a", 2: "b", -1: None})
    expected = [test.tolist() for _, test in BagKFold(3, random_state=0).split(np.zeros((16, 2)), bags=numbers)]
    frame = pd.DataFrame({"x": np.zeros(16)})
    assert [test.tolist() for _, test in BagKFold(3, random_state=0).split(frame, None, strings)] == expected
    assert [test.tolist() for _, test in BagKFold(3, random_state=0).split([[0]] * 16, bags=list(numbers))] == expected


@pytest.mark.parametrize(
    ("options", "bags", "message"),
    [
        ({}, None, "BagKFold got no bags: pass bags=ids.*enable_metadata_routing=True"),
        ({}, [0, 1], "X has 4 rows but bags has 2"),
        ({"n_splits": 3}, [0, 0, 1, 1], r"n_splits must be at most the number of bags \(2\), got 3"),
        ({"n_splits": 1}, [0, 0, 1, 1], "n_splits must be"),
        ({"n_splits": 2.0}, [0, 0, 1, 1], "n_splits must be"),
        ({"n_splits": 2}, [-1] * 4, "no row is in a bag"),
        ({"n_splits": 2, "shuffle": False, "random_state": 0}, [0, 0, 1, 1], "random_state does nothing"),
        ({"n_splits": 2}, bw.Bags.from_rows([0.0, 1.0], [0, 1]), "pass the column of bag ids, not a Bags"),
    ],
)
def test_wrong_splits_get_one_clear_sentence(options, bags, message):
    with pytest.raises(ValueError, match=message):
        next(BagKFold(**options).split(np.zeros((4, 1)), bags=bags))


# -- the scorers --------------------------------------------------------------------------------------------------


@pytest.fixture
def model(data):
    X, y, _, _ = data
    return LogisticRegression().fit(X[:1200], y[:1200])  # any classifier can be scored


def test_with_one_row_per_bag_scores_are_the_usual_ones(data, model):
    X, y = data[0][1200:], data[1][1200:]
    h = model.predict_proba(X)[:, 1]
    expected = {
        "neg_risk": -brier_score_loss(y, h),
        "neg_brier": -brier_score_loss(y, h),
        "accuracy": accuracy_score(y, h > 0.5),
        "neg_log_loss": -log_loss(y, h),
        "auc": roc_auc_score(y, h),
        "gain": log_loss(y, np.full(len(y), y.mean())) - log_loss(y, expit(logit(h) + shift_to(y.mean(), logit(h)))),
    }
    assert set(expected) == set(METRICS)
    for metric, value in expected.items():
        assert label_free_scorer(metric)(model, X, y, bags=np.arange(len(y))) == pytest.approx(value)


@pytest.mark.slow
@pytest.mark.parametrize("metric", [*METRICS][:-1])  # a bag's likelihood is not that of its rows
def test_scores_of_bags_are_unbiased(data, model, metric):
    """Over random partitions of the same rows the mean score is that of single rows, within 5 standard errors."""
    X, y = data[0][1200:], data[1][1200:]
    scorer = label_free_scorer(metric)
    truth = scorer(model, X, y, bags=np.arange(len(y)))
    scores = []
    for seed in range(50):
        ids = bw.random_bags(len(y), 20, random_state=seed)
        scores.append(scorer(model, X, bw.aggregate(y, ids), bags=ids))
    assert abs(np.mean(scores) - truth) < 5 * np.std(scores, ddof=1) / np.sqrt(50)
    assert 0 < np.std(scores) < 0.15


def test_scores_are_those_of_evaluate(data, model):
    X, _, ids, y_bag = data
    result = bw.evaluate(model, X, y_bag, bags=ids)
    for metric in ("accuracy", "auc"):
        assert label_free_scorer(metric)(model, X, y_bag, bags=ids) == getattr(result, metric).value
    assert label_free_scorer("neg_brier")(model, X, y_bag, bags=ids) == -result.brier.value


def test_real_labels_classes_and_noise_have_a_risk(data):
    X, _, ids, _ = data
    real = 3 * X[:, 0] + 5
    regressor = DummyRegressor().fit(X, real)
    scorer = label_free_scorer("neg_risk")
    exact = scorer(regressor, X, real, bags=np.arange(len(X)))
    assert exact == pytest.approx(-real.var())
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    indicators = (labels[:, None] == np.arange(3)).astype(float)
    model = bw.BagRidgeClassifier(random_state=0).fit(X, bw.aggregate(indicators, ids), bags=ids)
    brier = ((model.predict_proba(X) - indicators) ** 2).sum(axis=1).mean()
    assert scorer(model, X, indicators, bags=np.arange(len(X))) == pytest.approx(-brier)
    # Noise of variance s² on the counts adds s²/k to the risk, which is subtracted where it is declared.
    plain = scorer(regressor, X, bw.aggregate(real, ids), bags=ids)
    declared = scorer(regressor, X, bw.aggregate(real, ids), bags=ids, noise_variance=8.0)
    assert declared - plain == pytest.approx(1.0, rel=0.01)


def test_scores_follow_the_formation():
    """Where rates differ they are those of single rows; where bags are grouped there is none to rank by."""
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(60), 50)
    y = (rng.random(3000) < np.repeat(rng.uniform(0, 0.6, 60), 50)).astype(int)
    X = rng.normal(size=(3000, 2)) + y[:, None]
    y_bag = bw.aggregate(y, ids)
    model = bw.BagRidgeClassifier(random_state=0).fit(X, y_bag, bags=ids)
    assert label_free_scorer("accuracy")(model, X, y_bag, bags=ids) == pytest.approx(model.score(X, y), abs=0.03)
    gain, wrong = label_free_scorer("gain"), bw.BagRidgeClassifier(formation="features", alphas=100.0)
    assert gain(model, X, y_bag, bags=ids) > gain(wrong.fit(X, y_bag, bags=ids), X, y_bag, bags=ids) + 0.1
    grouped = np.argsort(np.argsort(X[:, 0])) // 50
    y_bag = bw.aggregate(y, grouped)
    for metric in ("accuracy", "auc", "neg_brier"):
        with pytest.warns(BagsNotRandomWarning):
            assert np.isnan(label_free_scorer(metric)(model, X, y_bag, bags=grouped))


def test_two_columns_are_one_label(data, model):
    X, _, ids, y_bag = data
    both = np.stack([1 - y_bag, y_bag], axis=1)
    for metric in METRICS:
        scorer = label_free_scorer(metric)
        assert scorer(model, X, both, bags=ids) == pytest.approx(scorer(model, X, y_bag, bags=ids))


def test_wrong_scores_get_one_clear_sentence(data, model):
    X, _, ids, y_bag = data
    with pytest.raises(ValueError, match=r"metric must be one of 'neg_risk', .* got 'f1'"):
        label_free_scorer("f1")
    with pytest.raises(ValueError, match="the scorer got no bags: pass bags=ids"):
        label_free_scorer("accuracy")(model, X, y_bag)
    with pytest.raises(ValueError, match="auc needs bags that report ten labels or more of each class"):
        label_free_scorer("auc")(model, X, np.zeros(len(X)), bags=ids)
    with pytest.raises(ValueError, match=r"there are 2 bags only: at least 3 are needed"):
        label_free_scorer("neg_risk")(model, X, y_bag, bags=np.where(ids < 2, ids, -1))
    with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
        label_free_scorer("neg_risk")(model, X, 9 * y_bag, bags=ids)


# -- with scikit-learn --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("routing")
def test_a_search_over_a_pipeline_works_end_to_end(data):
    """Every score equals what a loop written by hand gives."""
    X, _, ids, y_bag = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipeline = Pipeline([("scale", StandardScaler()), ("ridge", bw.BagRidgeClassifier(scaling=0, random_state=0))])
    splitter = BagKFold(2, random_state=0)
    search = GridSearchCV(
        pipeline,
        {"ridge__alphas": [0.01, 100.0]},
        cv=splitter,
        scoring={metric: label_free_scorer(metric) for metric in METRICS},
        refit="neg_risk",
        error_score="raise",
    ).fit(frame, y_bag, bags=ids)
    assert search.best_params_ == {"ridge__alphas": 0.01}
    assert search.score(frame, y_bag, bags=ids) > -0.25
    for place, alpha in enumerate([0.01, 100.0]):
        scores = []
        for train, test in splitter.split(frame, bags=ids):
            scale = StandardScaler().fit(frame.iloc[train])
            ridge = bw.BagRidgeClassifier(scaling=0, alphas=alpha, random_state=0)
            ridge.fit(scale.transform(frame.iloc[train]), y_bag[train], bags=ids[train])
            new = scale.transform(frame.iloc[test])
            scores.append([label_free_scorer(metric)(ridge, new, y_bag[test], bags=ids[test]) for metric in METRICS])
        found = [search.cv_results_[f"mean_test_{metric}"][place] for metric in METRICS]
        assert found == pytest.approx(np.mean(scores, axis=0))


@pytest.mark.usefixtures("routing")
def test_requests_may_also_be_written_out(data):
    X, _, ids, y_bag = data
    scores = cross_val_score(
        bw.BagRidgeClassifier(random_state=0).set_fit_request(bags=True),
        X,
        y_bag,
        params={"bags": ids},
        cv=BagKFold(3, random_state=0).set_split_request(bags=True),
        scoring=label_free_scorer("accuracy").set_score_request(bags=True),
    )
    assert scores.shape == (3,)
    assert scores.mean() > 0.65


@pytest.mark.usefixtures("routing")
def test_group_k_fold_works_with_groups(data):
    X, _, ids, y_bag = data
    result = cross_validate(
        make_pipeline(StandardScaler(), bw.BagRidgeClassifier(random_state=0)),
        X,
        y_bag,
        params={"bags": ids, "groups": ids},
        cv=GroupKFold(3),
        scoring=label_free_scorer("neg_risk"),
        error_score="raise",
    )
    assert (result["test_score"] > -0.25).all()


@pytest.mark.usefixtures("routing")
def test_rows_in_no_bag_are_no_trouble(data):
    X, _, ids, y_bag = data
    ids, y_bag = np.where(ids < 50, -1, ids), np.where(ids < 50, np.nan, y_bag)
    options = {"params": {"bags": ids}, "cv": BagKFold(3, random_state=0)}
    estimator = bw.BagRidgeClassifier(random_state=0)
    scores = cross_val_score(estimator, X, y_bag, scoring=label_free_scorer(), error_score="raise", **options)
    kept = ids >= 0
    options["params"] = {"bags": ids[kept]}
    expected = cross_val_score(estimator, X[kept], y_bag[kept], scoring=label_free_scorer(), **options)
    np.testing.assert_allclose(scores, expected)


@pytest.mark.usefixtures("routing")
def test_random_labels_are_not_predicted_however_many_features():
    """The trap of cross-validation over bags: features outnumber bags, and a fold must not give itself away.

    Labels are coin flips, so no model has a risk below 0.25, and one of almost no penalty overfits. R²/k of a bag
    scatters by √2 times the risk.
    """
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(640, 60)), (rng.random(640) < 0.5).astype(float)
    ids = bw.random_bags(640, 16, random_state=0)
    scores = cross_val_score(
        bw.BagRidgeClassifier(alphas=1e-5, scaling=1.0),
        X,
        bw.aggregate(y, ids),
        params={"bags": ids},
        cv=BagKFold(5, random_state=0),
        scoring=label_free_scorer("neg_risk"),
    )
    assert -scores.mean() > 0.25 - 2 * np.sqrt(2) * 0.25 / np.sqrt(40)


def test_without_routing_groups_split_too(data):
    X, _, ids, y_bag = data
    search = GridSearchCV(
        bw.BagRidgeClassifier(), {"alphas": [0.1, 1.0]}, cv=BagKFold(3), scoring=lambda model, X, y: -model.alpha_
    )
    assert search.fit(X, y_bag, bags=ids, groups=ids).best_params_ == {"alphas": 0.1}


def test_without_routing_the_way_is_shown(data):
    X, _, ids, y_bag = data
    search = GridSearchCV(
        clone(bw.BagRidgeClassifier()), {"alphas": [0.1]}, cv=BagKFold(3), scoring=label_free_scorer()
    )
    with pytest.raises(ValueError, match=r"BagKFold got no bags: .*enable_metadata_routing=True"):
        search.fit(X, y_bag, bags=ids)


@pytest.mark.usefixtures("routing")
def test_a_bags_in_place_of_ids_is_told(data):
    X, _, ids, y_bag = data
    with pytest.raises(ValueError, match="pass the column of bag ids, not a Bags"):
        cross_val_predict(
            bw.BagRidgeClassifier(), X, y_bag, params={"bags": bw.Bags.from_rows(y_bag, ids)}, cv=BagKFold(3)
        )


@pytest.mark.slow
def test_the_example_runs(capsys):
    with config_context():  # which puts the setting of the example back
        runpy.run_path(str(Path(__file__).parent.parent / "examples/grid_search.py"))
    printed = capsys.readouterr().out
    assert re.search(r"chosen: \{'ridge__alphas': \d+\.\d+\}", printed)
    low, high = map(float, re.search(r"without labels: \d\.\d+ \[(\d\.\d+), (\d\.\d+)\]", printed).groups())
    truth = float(re.search(r"by the labels:\s+(\d\.\d+)", printed).group(1))
    assert low < truth < high
    assert truth > 0.78  # the constant guess has 0.765
