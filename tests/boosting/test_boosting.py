import copy
import subprocess
import sys
from functools import cache

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import bagwise as bw
from bagwise.boosting import dataset, growth, trees
from bagwise.boosting.leaves import leaves_of
from bagwise.boosting.objectives import CountLikelihood, solve_leaves
from bagwise.boosting.parts import Parts
from bagwise.boosting.tuning import Path, choose_length, choose_path
from bagwise.data.features import FeatureCodes
from bagwise.gains import log_likelihoods
from bagwise.log_odds import prior_of, shift_to
from bagwise.losses import debiased_square
from bagwise.utils.parameters import ParameterError

FAST = {"n_estimators": 25, "n_fits": 1, "cv": 3, "n_jobs": 1, "random_state": 0}


def objective(values, leaf, h, bags, prior, reg_lambda):
    """Mean debiased loss after the tree, plus the penalty."""
    after = h + values[leaf]
    loss = debiased_square(after, bags, prior=prior, mean=after.mean())
    return loss.mean() + reg_lambda / len(bags) * (values**2).sum()


@pytest.mark.parametrize("reg_lambda", [0.01, 5.0])
@pytest.mark.parametrize("bag_size", [1, 2, 40])  # fewer rows than leaves, and more
def test_leaf_values_minimise_the_loss_of_bags(reg_lambda, bag_size):
    """The gradient, taken numerically, vanishes at the solution; unequal sizes."""
    rng = np.random.default_rng(0)
    ids = np.sort(rng.integers(0, 800 // bag_size, 800))
    h, y = rng.random(800), rng.random(800)
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    leaf = rng.integers(0, 5, 800)
    prior, mean = float((bags.size * bags.proportion).sum() / 800), h.mean()
    residual = bags.size * (bags.proportion - prior) - (bags.sum(h) - bags.size * mean)
    values = solve_leaves(leaf, 5, Parts.of(bags), [residual], mean - prior, reg_lambda=reg_lambda)
    for direction in np.eye(5):
        ahead, behind = (
            objective(values + step * direction, leaf, h, bags, prior, reg_lambda) for step in (1e-4, -1e-4)
        )
        assert abs(ahead - behind) / 2e-4 < 1e-6
        assert ahead > objective(values, leaf, h, bags, prior, reg_lambda) < behind


@pytest.mark.parametrize("bag_size", [1, 40])
def test_leaf_values_on_log_odds_go_down_the_loss(bag_size):
    """The solve linearises h = expit(score + v): its right side is the numerical gradient at v = 0, and a short way
    along the solution the loss falls."""
    rng = np.random.default_rng(0)
    ids = np.sort(rng.integers(0, 800 // bag_size, 800))
    scores, y, leaf = rng.normal(size=800), rng.random(800), rng.integers(0, 5, 800)
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    h = expit(scores)
    prior, mean = float((bags.size * bags.proportion).sum() / 800), h.mean()
    residual = bags.size * (bags.proportion - prior) - (bags.sum(h) - bags.size * mean)

    def loss(values):
        after = expit(scores + values[leaf])
        return debiased_square(after, bags, prior=prior, mean=after.mean()).mean()

    # With a huge penalty the solution is −gradient / 2, divided by λ/m times the square of the mean slope.
    slope, penalty = h * (1 - h), 1e9
    values = solve_leaves(leaf, 5, Parts.of(bags), [residual], mean - prior, reg_lambda=penalty, slope=slope)
    gradient = np.array([(loss(step) - loss(-step)) / 2e-5 for step in 1e-5 * np.eye(5)])
    np.testing.assert_allclose(values * penalty / len(bags) * slope.mean() ** 2, -gradient / 2, rtol=1e-3)
    values = solve_leaves(leaf, 5, Parts.of(bags), [residual], mean - prior, reg_lambda=1.0, slope=slope)
    assert loss(0.1 * values) < loss(0 * values)


def test_a_slope_of_one_is_the_plain_solve():
    rng = np.random.default_rng(0)
    bags = bw.Bags.from_rows(np.repeat(rng.random(40), 10), np.repeat(np.arange(40), 10))
    leaf, residual = rng.integers(0, 4, 400), rng.normal(size=40)
    plain, sloped = (
        solve_leaves(leaf, 4, Parts.of(bags), [residual], 0.1, reg_lambda=2.0, slope=slope)
        for slope in (None, np.ones(400))
    )
    np.testing.assert_allclose(plain, sloped)


def test_a_row_tells_its_leaf_by_how_far_it_moved():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=500), rng.integers(0, 6, 500)])
    X[::9, 0] = np.nan
    parameters = {"objective": "none", "num_leaves": 9, "learning_rate": 1.0, "verbosity": -1, "num_threads": 1}
    data = lgb.Dataset(X, label=np.zeros(500), categorical_feature=[1])
    booster, before = lgb.Booster(parameters, data), np.zeros(500)
    for tree in range(5):
        gradient = rng.normal(size=500)
        booster.update(fobj=lambda _, data, gradient=gradient: (gradient, np.ones(500)))
        after = booster.predict(X, raw_score=True)
        expected = booster.predict(X, pred_leaf=True, start_iteration=tree, num_iteration=1).ravel()
        np.testing.assert_array_equal(leaves_of(booster, tree, after - before, 9), expected)
        before = after
    assert leaves_of(booster, 4, np.zeros(500), 9) is None  # moved as no leaf does
    booster.set_leaf_output(4, 0, booster.get_leaf_output(4, 1))
    assert leaves_of(booster, 4, after - before, 9) is None  # two leaves alike


def test_leaves_that_moved_rows_alike_are_counted():
    X = np.repeat(np.arange(4.0), 25)[:, None]
    parameters = {"objective": "none", "num_leaves": 4, "min_data_in_leaf": 1, "learning_rate": 1.0, "verbosity": -1}
    booster = lgb.Booster(parameters, lgb.Dataset(X, label=np.zeros(100)))
    gradient = np.array([1.0, -1.0, 1.0, -1.0])[X[:, 0].astype(int)]
    booster.update(fobj=lambda _, data: (gradient, np.ones(100)))
    leaf = booster.predict(X, pred_leaf=True).ravel()
    step = booster.predict(X, raw_score=True)
    assert len(np.unique(leaf)) == 4
    assert len(np.unique(step)) == 2
    for most in (4, 5, 9):
        assert leaves_of(booster, 0, step, most) is None


def test_threads_change_nothing():
    rng = np.random.default_rng(0)
    frame, y = interaction(rng, 2000)
    ids = np.arange(2000) // 10
    one, two = (
        bw.BagBoostingClassifier(**(FAST | {"n_jobs": n_jobs})).fit(frame, bw.aggregate(y, ids), bags=ids)
        for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.predict_proba(frame), two.predict_proba(frame))


@pytest.mark.slow
def test_threads_do_not_write_into_each_other():
    """LightGBM's number of threads is one for the whole process; set by one fit, it crashed another now and then."""
    code = (
        "import numpy as np, bagwise as bw\n"
        "X = np.random.default_rng(0).normal(size=(20_000, 12))\n"
        "ids = bw.random_bags(20_000, 16, random_state=0)\n"
        "y = bw.aggregate((X[:, 0] * X[:, 1] > 0).astype(int), ids)\n"
        "for seed in range(150):\n"
        "    bw.BagBoostingClassifier(n_estimators=8, n_jobs=2, cv=8, random_state=seed).fit(X, y, bags=ids)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("kinds", [("greedy",), ("random",)])
def test_each_kind_learns_alone(kinds):
    rng = np.random.default_rng(0)
    frame, y = interaction(rng, 8000)
    ids = bw.random_bags(8000, 8, rng)
    model = bw.BagBoostingClassifier(**FAST, kinds=kinds).fit(frame, bw.aggregate(y, ids), bags=ids)
    new, labels = interaction(rng, 4000)
    assert tuple(model.fits_) == kinds
    assert roc_auc_score(labels, model.predict_proba(new)[:, 1]) > 0.75


def test_on_single_rows_leaf_values_are_mean_residuals():
    rng = np.random.default_rng(0)
    y, leaf = rng.random(300), rng.integers(0, 4, 300)
    bags = bw.Bags.singletons(y)
    values = solve_leaves(leaf, 4, Parts.of(bags), [y - y.mean()], 0.0, reg_lambda=0.0)
    np.testing.assert_allclose(values, [(y - y.mean())[leaf == number].mean() for number in range(4)])


def interaction(rng, n):
    """Rows whose label depends on a product and on a category: no linear model of these columns learns it."""
    frame = pd.DataFrame({"a": rng.uniform(-1, 1, n), "b": rng.uniform(-1, 1, n)})
    frame["device"] = np.array(["phone", "tablet", "radio"])[rng.integers(0, 3, n)]
    eta = np.where(frame["device"] == "radio", 0.5, np.where(frame["a"] * frame["b"] > 0, 0.9, 0.1))
    return frame, (rng.random(n) < eta).astype(float)


def by(values, size):
    return np.argsort(np.argsort(values, kind="stable"), kind="stable") // size


@pytest.mark.parametrize("bags", ["random", "unequal", "grouped"])
def test_random_unequal_and_grouped_bags_all_train(bags):
    """Bags sorted by features diverge without the solve at the level of bags: there the AUC falls to that of chance."""
    rng = np.random.default_rng(0)
    frame, y = interaction(rng, 8000)
    ids = {
        "random": bw.random_bags(8000, 8, rng),
        "unequal": np.repeat(np.arange(800), np.tile([1, 3, 6, 20, 20], 160)),
        "grouped": by(frame["a"] + 0.1 * frame["b"], 8),
    }[bags]
    model = bw.BagBoostingClassifier(**FAST | {"n_estimators": 15}).fit(frame, bw.aggregate(y, ids), bags=ids)
    new, labels = interaction(rng, 4000)
    auc = roc_auc_score(labels, model.predict_proba(new)[:, 1])
    # The best possible rule has AUC 0.5·(1/3)² + …, about 0.86 here; a linear model has 0.5.
    assert auc > (0.75 if bags == "grouped" else 0.8)


def test_the_choice_of_length_and_the_fits_use_no_label():
    """What fit sees is bags: other labels with the same proportions give the same model."""
    rng = np.random.default_rng(0)
    frame, y = interaction(rng, 2000)
    ids = np.arange(2000) // 10
    shuffled = np.concatenate([rng.permutation(part) for part in y.reshape(-1, 10)])
    models = [
        bw.BagBoostingClassifier(**FAST).fit(frame, bw.aggregate(labels, ids), bags=ids) for labels in (y, shuffled)
    ]
    np.testing.assert_array_equal(models[0].predict_proba(frame), models[1].predict_proba(frame))


@pytest.mark.parametrize(
    ("paths", "length"),
    [
        ([[3, 2, 1], [3, 2, 1]], 3),  # still falling: all
        ([[3, 1, 2, 3], [3, 1, 2, 3]], 2),  # all bags agree that it rises
        ([[3, 1, 0, 2], [3, 1, 2.5, 2.5]], 3),  # they disagree on the third tree, not on the fourth
        (np.zeros((2, 0)), 0),
    ],
)
def test_growth_stops_where_bags_agree_that_it_got_worse(paths, length):
    paths = np.array(paths, dtype=float)
    assert choose_length(paths) == length


def test_the_penalty_is_chosen_by_held_out_bags():
    rng = np.random.default_rng(0)
    frame, y = interaction(rng, 4000)
    ids = bw.random_bags(4000, 4, rng)
    for penalties, chosen in (((1.0, 1e6), 1.0), ((1e6, 1.0), 1.0)):
        model = bw.BagBoostingClassifier(**FAST | {"n_estimators": 15}, reg_lambda=penalties).fit(
            frame, bw.aggregate(y, ids), bags=ids
        )
        assert set(model.reg_lambda_.values()) == {chosen}


def test_the_stretch_undoes_a_shrinkage(seed):
    """Deviations that are a third of what they should be, in noise of declared variance."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(4000, 1))
    target = truth + rng.normal(size=truth.shape)
    path = Path(truth[:, :, None] * np.array([2 / 3, 1.0]), target, np.full(4000, 0.25), np.ones(4000))
    # The slope of 4,000 standard normal pairs scatters by 1/√4000, times the shrinkage.
    assert np.abs(path.stretch - [1.5, 1.0]).max() < 5 * 1.5 / np.sqrt(4000)
    # Both are stretched to the truth, whose loss is the noise's variance 1, less the declared 0.25.
    assert np.abs(path.losses.mean(axis=0) - 0.75).max() < 5 * np.sqrt(2 / 4000)


def test_few_trees_are_stretched():
    rng = np.random.default_rng(0)
    frame, y = interaction(rng, 8000)
    ids = bw.random_bags(8000, 4, rng)
    few = bw.BagBoostingClassifier(**{**FAST, "n_estimators": 8}).fit(frame, bw.aggregate(y, ids), bags=ids)
    assert few.stretch_ > 1.2
    plain = copy.copy(few)
    plain.stretch_ = 1.0
    assert few.predict_proba(frame)[:, 1].std() > 1.1 * plain.predict_proba(frame)[:, 1].std()


@pytest.mark.parametrize("size", [1, 8, 64])
def test_probabilities_have_the_mean_of_the_reports_and_are_never_0_or_1(size):
    """Log-odds trees drift to ½; what was averaged on probabilities and stretched was cut off at 0 and 1."""
    rng = np.random.default_rng(0)
    frame, _ = interaction(rng, 4000)
    chance = 1 / (1 + np.exp(-6 * frame["a"] * frame["b"] + 3))
    y = (rng.random(4000) < chance).astype(int)
    ids = bw.random_bags(4000, size, rng)
    y_bag = bw.aggregate(y, ids)
    model = bw.BagBoostingClassifier(**FAST | {"n_estimators": 15}).fit(frame, y_bag, bags=ids)
    h = model.predict_proba(frame)[ids >= 0]
    assert abs(h[:, 1].mean() - y_bag[ids >= 0].mean()) < 1e-6
    assert 0 < h.min() < h.max() < 1


def test_classes_have_the_means_of_the_reports():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    y = np.eye(3)[X.argmax(axis=1)]
    ids = bw.random_bags(1500, 5, rng)
    model = bw.BagBoostingClassifier(**FAST).fit(X, bw.aggregate(y, ids), bags=ids)
    np.testing.assert_allclose(model.predict_proba(X).mean(axis=0), y.mean(axis=0), atol=1e-8)
    assert model.predict_proba(X).min() > 0


@pytest.mark.parametrize(
    "drawn", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in (24, 28))]
)  # p below 0; so rare that LightGBM loses count; steps without end
def test_rare_labels_with_noise_are_fitted(drawn):
    rng = np.random.default_rng(drawn)
    ids, X = np.repeat(np.arange(60), 30), rng.normal(size=(1800, 2))
    y = rng.random(1800) < 0.002
    count = np.bincount(ids, y, minlength=60) + rng.laplace(0, 2, 60)
    bags = bw.Bags.from_rows((count / 30)[ids], ids, noise_variance=np.full(1800, 8.0))
    model = bw.BagBoostingClassifier(random_state=0, n_jobs=1, n_estimators=60).fit(X, bags=bags)
    h = model.predict_proba(X)[:, 1]
    assert h.mean() == pytest.approx(prior_of(bags), rel=1e-4)
    assert 0 < h.min() <= h.max() < 0.1


def test_other_errors_of_lightgbm_are_not_hidden(monkeypatch):
    def fails(*_, **__):
        raise lgb.basic.LightGBMError("out of memory")

    monkeypatch.setattr(growth, "add_tree", fails)
    X, y = np.arange(400.0)[:, None], np.arange(400) % 2
    with pytest.raises(lgb.basic.LightGBMError, match="out of memory"):
        bw.BagBoostingClassifier(**FAST).fit(X, y)


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ([[0.1, 0.2], [0.1, 0.2], [0.1, 0.2]], 1),  # clearly better
        ([[0.5, 0.2], [0.5, 0.45], [0.5, 0.25]], 0),  # better on average, within a standard error
        ([[0.9, 0.9], [0.9, 0.9], [0.9, 0.9]], 0),
        (np.empty((3, 0)), 0),
    ],
)
def test_another_penalty_must_be_clearly_better(others, chosen):
    first = np.array([[0.5, 0.3], [0.5, 0.31], [0.5, 0.3]])
    assert choose_path([first, np.array(others)]) == chosen


def test_held_out_risk_estimates_the_true_one(seed):
    rng = np.random.default_rng(seed)
    frame, y = interaction(rng, 8000)
    ids = bw.random_bags(8000, 4, rng)
    model = bw.BagBoostingClassifier(**FAST).fit(frame, bw.aggregate(y, ids), bags=ids)
    new, labels = interaction(rng, 8000)
    truth = ((labels - model.predict_proba(new)[:, 1]) ** 2).mean()
    # R²/k scatters by about √2 times the risk from bag to bag; the folds' models have two thirds of the bags.
    risk = model.risk_
    assert abs(risk - truth) < 5 * np.sqrt(2) * truth / np.sqrt(2000) + 0.1 * truth


@pytest.mark.slow
def test_tables_of_any_library_give_the_same_model():
    polars = pytest.importorskip("polars")
    import pyarrow as pa

    rng = np.random.default_rng(0)
    frame, y = interaction(rng, 1200)
    frame.loc[frame.index[::7], "a"] = np.nan
    frame.loc[frame.index[::11], "device"] = None
    ids = np.arange(1200) // 6
    y_bag, few = bw.aggregate(y, ids), FAST | {"n_estimators": 10}
    expected = bw.BagBoostingClassifier(**few).fit(frame, y_bag, bags=ids).predict_proba(frame)
    for table in (
        frame.assign(device=frame["device"].astype("category")),
        polars.from_pandas(frame),
        pa.Table.from_pandas(frame),
    ):
        model = bw.BagBoostingClassifier(**few).fit(table, y_bag, bags=ids)
        np.testing.assert_allclose(model.predict_proba(table), expected)
    codes = FeatureCodes.of(frame)
    by_number = bw.BagBoostingClassifier(**few, categorical_features=[2]).fit(codes.matrix(frame), y_bag, bags=ids)
    np.testing.assert_allclose(by_number.predict_proba(codes.matrix(frame)), expected)


def test_unknown_categories_are_missing_values():
    codes = FeatureCodes.of(pd.DataFrame({"device": ["phone", "tablet", None]}))
    seen = codes.matrix(pd.DataFrame({"device": ["tablet", "radio", None]}))[:, 0]
    np.testing.assert_array_equal(seen, [1, np.nan, np.nan])


def test_dates_are_named():
    table = pd.DataFrame({"when": pd.to_datetime(["2026-01-01", "2026-01-02"])})
    with pytest.raises(ValueError, match="column 'when' of X holds dates"):
        bw.BagBoostingClassifier(**FAST).fit(table, [0, 1])


def test_features_that_never_vary_give_the_prior():
    model = bw.BagBoostingRegressor(**FAST).fit(np.ones((40, 2)), np.arange(40.0))
    assert model.n_estimators_ == {"greedy": 0, "random": 0}
    np.testing.assert_allclose(model.predict(np.zeros((3, 2))), 19.5)


def test_averaged_fits_are_the_mean_of_single_ones():
    rng = np.random.default_rng(0)
    frame, y = interaction(rng, 1200)
    model = bw.BagBoostingClassifier(**FAST).fit(frame, y.astype(int))
    matrix = model.features_.matrix(frame)
    single = [
        fit.log_odds(fit.scores(matrix, model.n_estimators_[kind]))[:, 0]
        for kind, fits in model.fits_.items()
        for fit in fits
    ]
    assert len(single) == 3 * len(model.fits_)  # one without each fold
    expected = expit(model.stretch_ * np.mean(single, axis=0) + model.offset_)
    np.testing.assert_allclose(model.predict_proba(frame)[:, 1], expected, atol=1e-9)
    assert np.std(single, axis=0).max() > 0


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_estimators": 0},
        {"num_leaves": 1},
        {"cv": 1},
        {"learning_rate": 0},
        {"colsample_bytree": 1.5},
        {"cat_smooth": -1},
        {"reg_lambda": -1},
        {"reg_lambda": []},
        {"kinds": ()},
        {"kinds": "greedy"},
        {"kinds": ("random", "random")},
    ],
)
def test_wrong_parameters_are_named(parameters):
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        clone(bw.BagBoostingClassifier(**parameters)).fit([[0.0], [1.0]] * 20, [0, 1] * 20)


def test_an_unlucky_draw_of_features_does_not_end_growth():
    """Columns too rare to be cut are drawn most of the time: rounds without a tree are passed over."""
    rng = np.random.default_rng(0)
    X = np.zeros((2000, 12))
    X[:, 0] = rng.normal(size=2000)
    for column in range(1, 12):
        X[rng.choice(2000, 12, replace=False), column] = 1
    y = (X[:, 0] > 0).astype(int)
    model = bw.BagBoostingClassifier(**FAST).fit(X, y)
    assert model.score(X, y) > 0.95
    assert next(iter(model.fits_.values()))[0].boosters[0].num_trees() > 8


def test_being_missing_is_a_value():
    X = np.where(np.arange(400)[:, None] % 2 == 0, np.nan, 1.0)
    y = np.arange(400) % 2
    assert bw.BagBoostingClassifier(**FAST).fit(X, y).score(X, y) == 1


def test_two_bags_leave_nothing_to_choose():
    X = np.arange(8.0)[:, None]
    model = bw.BagBoostingClassifier(**FAST, min_child_samples=1).fit(X, [0] * 4 + [1] * 4, bags=np.repeat([0, 1], 4))
    assert np.isnan([model.risk_, model.gain_]).all()
    assert model.formation_.name == "effects"  # too few bags to tell: the weakest assumption
    assert (model.stretch_, model.n_estimators_) == (1.0, {"greedy": 25, "random": 25})


@pytest.mark.parametrize("columns", [[99], [-1], ["a"], [1.5]])
def test_categorical_features_are_checked(columns):
    with pytest.raises(ParameterError, match="categorical_features"):
        bw.BagBoostingClassifier(categorical_features=columns).fit(np.eye(2)[[0, 1] * 10], [0, 1] * 10)


def test_tables_and_arrays_are_not_mixed():
    rng = np.random.default_rng(0)
    frame, y = interaction(rng, 400)
    model = bw.BagBoostingClassifier(**FAST).fit(frame, y.astype(int))
    with pytest.raises(ValueError, match="fitted on a table with categories"):
        model.predict(np.zeros((3, frame.shape[1])))
    number = next(name for name in frame if frame[name].dtype.kind == "f")
    with pytest.raises(ValueError, match=f"column '{number}' of X held numbers in training"):
        model.predict(frame.assign(**{number: "x"}))


def log_likelihood(scores, bags, prior):
    return log_likelihoods(scores + shift_to(prior, scores), bags).sum()


@pytest.mark.parametrize("size", [1, 8, 64])
@pytest.mark.parametrize("rates", [False, True])
def test_leaf_values_go_up_the_likelihood(size, rates):
    """The gradient by leaf values is that of differences; a step of the solve goes up, and a second one hardly more."""
    rng = np.random.default_rng(size)
    n = 64 * 40
    s, leaf = rng.normal(size=n), rng.integers(0, 4, n)
    chance = expit(s + np.array([-1.0, 0.0, 0.5, 1.0])[leaf])
    y = (rng.random(n) < chance).astype(float)
    if rates:
        y = y[np.lexsort([rng.random(n), y * rng.random(n)])]
    ids = np.arange(n) // size
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    found = CountLikelihood(Parts.of(bags), prior_of(bags), 0.0)
    found.gradient(s)
    value = found.leaf_values(leaf, 4, 0.0)
    start, step = log_likelihood(s, bags, found.prior), 1e-4
    slope = [(log_likelihood(s + step * (leaf == one), bags, found.prior) - start) / step for one in range(4)]
    share = np.bincount(leaf, found.slope[0]) / found.slope[0].sum()
    gradient = found.found[0].gradient
    expected = np.bincount(leaf, gradient) - gradient.sum() * share
    np.testing.assert_allclose(slope, expected, atol=0.02 * np.abs(expected).max() + 0.02)
    first = log_likelihood(s + 0.3 * value[leaf], bags, found.prior)
    assert first > start
    np.testing.assert_allclose(value @ share, 0, atol=10)  # a shift of all leaves means nothing


@cache
def fitted_to_labels():
    """Rows, their labels, and a model that was fitted to these."""
    frame, y = interaction(np.random.default_rng(0), 8192)
    return frame, y, bw.BagBoostingClassifier(**FAST).fit(frame, y.astype(int))


@pytest.mark.parametrize("k", [512, pytest.param(64, marks=pytest.mark.slow)])
def test_bags_that_differ_in_their_rates_tell_nearly_as_much_as_labels(k):
    """Rows of one label are alike in all bags: as few as 16 bags teach what no sum of random bags would."""
    rng = np.random.default_rng(1)
    frame, y, best = fitted_to_labels()
    zeros, ones = np.flatnonzero(y == 0), np.flatnonzero(y == 1)
    ids, used = np.full(8192, -1), [0, 0]
    for number in range(8192 // k):
        count = int(k * rng.uniform(0.1, 0.9))
        take = zeros[used[0] : used[0] + k - count], ones[used[1] : used[1] + count]
        if len(take[0]) + len(take[1]) < k:
            break
        ids[np.concatenate(take)] = number
        used = [used[0] + k - count, used[1] + count]
    model = bw.BagBoostingClassifier(**FAST).fit(frame, bw.aggregate(y, ids), bags=ids)
    assert model.formation_.name == "rates"
    new, labels = interaction(rng, 4000)
    auc, ceiling = (roc_auc_score(labels, each.predict_proba(new)[:, 1]) for each in (model, best))
    assert auc > ceiling - 0.03


def test_the_objective_follows_formation_and_reports():
    rng = np.random.default_rng(0)
    frame, y = interaction(rng, 1600)
    ids = by(frame["a"], 16)
    model = bw.BagBoostingClassifier(**FAST).fit(frame, bw.aggregate(y, ids), bags=ids)
    assert (model.formation_.name, {fit.link for fits in model.fits_.values() for fit in fits}) == (
        "features",
        {"logit"},
    )
    at_random = bw.random_bags(1600, 4, random_state=0)
    model = bw.BagBoostingClassifier(**FAST, kinds=("greedy",)).fit(frame, bw.aggregate(y, at_random), bags=at_random)
    assert (model.formation_.name, {fit.link for fit in model.fits_["greedy"]}) == ("random", {"identity"})
    rounded = np.round(bw.aggregate(y, ids), 1)  # no counts
    model = bw.BagBoostingClassifier(**FAST).fit(frame, rounded, bags=ids)
    assert model.predict_proba(frame)[:, 1].min() > 0
    with pytest.raises(ValueError, match="no whole number"):
        bw.BagBoostingClassifier(**FAST, objective="likelihood").fit(frame, rounded, bags=ids)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")
def test_noised_bags_never_make_it_worse():
    """All bags, three quarters of them noised, against the exact quarter alone; squares of real labels and counts."""
    worse = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        frame, y = interaction(rng, 8000)
        ids, noised = np.arange(8000) // 40, (np.arange(8000) // 40) % 4 > 0
        count = np.bincount(ids, y)
        noise = np.where(np.arange(200) % 4 > 0, 20 * rng.normal(size=200), 0.0)
        bags = bw.Bags.from_rows(((count + noise) / 40)[ids], ids, noise_variance=400.0 * noised)
        exact = np.flatnonzero(~noised)
        new, labels = interaction(rng, 4000)
        few = FAST | {"n_estimators": 15}
        every = bw.BagBoostingRegressor(**few).fit(frame, bags=bags).predict(new)
        quarter = bw.BagBoostingRegressor(**few).fit(frame.iloc[exact], (count / 40)[ids][exact], bags=ids[exact])
        worse.append(((every - labels) ** 2).mean() - ((quarter.predict(new) - labels) ** 2).mean())
    assert np.mean(worse) < 0.01


@pytest.mark.parametrize("size", [64, 16])  # of which each fit watches few bags, and many
def test_effects_of_bags_are_told_from_rates_and_allowed_for(size):
    rng = np.random.default_rng(0)
    frame, _ = interaction(rng, 12_800)
    ids = bw.random_bags(12_800, size, rng)
    s, u = 2 * np.sign(frame["a"] * frame["b"]).to_numpy() - 0.5, rng.normal(size=12_800 // size)
    y, new = (rng.random(12_800) < expit(s + u[ids])).astype(int), (rng.random(12_800) < expit(s)).astype(int)
    model = bw.BagBoostingClassifier(**FAST).fit(frame, bw.aggregate(y, ids), bags=ids)
    assert model.formation_.name == "effects"
    assert 0.1 < model.effect_variance_ < 2  # 1, less what a model that knows little of the rows takes for chance
    assert np.square(model.predict_proba(frame)[:, 1] - new).mean() < new.var()
    few = FAST | {"n_estimators": 5, "kinds": ("greedy",)}
    rates = bw.BagBoostingClassifier(**few, formation="rates").fit(frame, bw.aggregate(y, ids), bags=ids)
    assert rates.effect_variance_ == 0


def test_rows_in_no_bag_say_nothing_also_where_counts_are_hidden():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 2))
    y = rng.random(2400) < expit(X[:, 0] - 2)
    ids = np.where(np.arange(2400) % 5 == 0, -1, rng.permutation(2400) // 20)
    counts = np.bincount(ids[ids >= 0], weights=y[ids >= 0], minlength=120)
    low, high = np.where(counts < 3, 0, counts), np.where(counts < 3, 2, counts)

    def fitted(inside):
        bags = bw.Bags.from_reports(
            ids[inside], {"bag": np.arange(120), "low": low, "high": high}, low="low", high="high"
        )
        return bw.BagBoostingClassifier(n_estimators=10, n_jobs=1, random_state=0).fit(X[inside], bags=bags)

    all_rows, in_bags = fitted(np.ones(2400, dtype=bool)), fitted(ids >= 0)
    np.testing.assert_allclose(all_rows.predict_proba(X), in_bags.predict_proba(X), rtol=1e-9)


def test_fits_of_many_rows_let_go_of_them(monkeypatch):
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(640, 2)), np.arange(640) // 8
    y, held = bw.aggregate((X[:, 0] > 0).astype(int), ids), []
    fit = trees.Job.fit

    def told(job, n_jobs):
        found = fit(job, n_jobs)
        held.append((getattr(found.boosters[0], "train_set", None) is not None, found.trained is not None))
        return found

    monkeypatch.setattr(trees.Job, "fit", told)
    given = {"n_estimators": 10, "n_jobs": 1, "random_state": 0}
    few = bw.BagBoostingClassifier(**given).fit(X, y, bags=ids).predict_proba(X)
    assert all(one == (True, False) for one in held)
    held.clear()
    monkeypatch.setattr(trees, "_FEW_ROWS", 0)
    many = bw.BagBoostingClassifier(**given).fit(X, y, bags=ids).predict_proba(X)
    assert all(one == (False, False) for one in held)
    np.testing.assert_allclose(few, many, rtol=1e-12)


@pytest.mark.parametrize("deepest", [5, 15])
def test_trees_are_no_deeper_than_can_be_loaded(monkeypatch, deepest):
    """Rows that are split off one by one, the largest label first."""
    monkeypatch.setattr(dataset, "DEEPEST", deepest)
    grown = {"learning_rate": 1.0, "num_leaves": 90, "min_child_samples": 1, "colsample_bytree": 1.0}
    options = dataset.TreeOptions(**grown, reg_lambda=0.0, max_cat_to_onehot=4, cat_smooth=1.0, n_jobs=1)
    data = lgb.Dataset(np.arange(80.0)[:, None], 2.0 ** np.arange(80))
    (tree,) = lgb.train(options.for_lightgbm(0, 1) | {"objective": "regression"}, data, num_boost_round=1).dump_model()[
        "tree_info"
    ]
    level, depth = [tree["tree_structure"]], 0
    while level := [one[side] for one in level if "left_child" in one for side in ("left_child", "right_child")]:
        depth += 1
    assert depth == deepest
