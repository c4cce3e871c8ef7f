"""Choosing among families without labels."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import bagwise as bw
from bagwise.auto import BagAutoClassifier, default_candidates, estimator, fitting, search
from bagwise.auto.search import Search
from bagwise.auto.trials import Said, Validation, choose, mean_trial, score, stack_weights
from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.boosting.trees import side_by_side
from bagwise.data.rows import InMemory
from bagwise.folds import folds_of
from bagwise.gains import NoBetterThanConstantWarning
from bagwise.numeric import NumericFeatures
from bagwise.utils import deadline
from bagwise.utils.parameters import ParameterError
from tests.weighted import drawn

# Many candidates here are constants, which is told each time.
pytestmark = pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")

TREES = {"n_fits": 1, "reg_lambda": 10.0, "cv": 2, "n_jobs": 1, "n_estimators": 24, "learning_rate": 0.2}


def candidates():
    return {"boosting": bw.BagBoostingClassifier(**TREES), "ridge": bw.BagRidgeClassifier()}


def linear_rows(n, rng):
    """Many features that matter a little each: a plane is one thing to learn, its steps are many."""
    X = rng.normal(size=(n, 12))
    return X, (rng.random(n) < np.clip(0.5 + X @ np.tile([0.08, -0.08], 6), 0, 1)).astype(int)


def crossed_rows(n, rng):
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


class Constant(NumericFeatures, BagClassifier):
    """Predicts one number for everyone."""

    def __init__(self, value=0.5):
        self.value = value

    def _fit_bags(self, X, bags):
        self.fitted_ = True

    def _predict_mean(self, X):
        return np.full(len(X), self.value)


class Broken(Constant):
    """Cannot be fitted."""

    def _fit_bags(self, X, bags):
        raise RuntimeError("it never works.")


@pytest.mark.parametrize(("rows", "chosen"), [(linear_rows, "ridge"), (crossed_rows, "boosting")])
@pytest.mark.parametrize("size", [4, pytest.param(32, marks=pytest.mark.slow)])
def test_it_chooses_the_family_that_is_right(rows, chosen, size, seed):
    X, y = rows(6400 if size == 4 else 12_800, np.random.default_rng(seed))  # 1,600 bags, or 400
    ids = bw.random_bags(len(X), size, random_state=seed)
    model = BagAutoClassifier(candidates=candidates(), random_state=seed).fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.best_name_ == chosen
    assert [line["candidate"] for line in model.trials_] == ["boosting", "ridge"]
    assert model.best_risk_ == next(line["risk"] for line in model.trials_ if line["weight"] == 1)


@pytest.mark.slow
def test_intervals_hold_the_true_risk(seed):
    """Candidates that are constants have a risk that is known: p(1 − p) + (p − c)²."""
    rng = np.random.default_rng(seed)
    covered, trials = 0, 200
    for _ in range(trials):
        y = (rng.random(2000) < 0.3).astype(int)
        ids = bw.random_bags(2000, 20, random_state=rng)
        constant = {"constant": Constant(0.5)}  # once in a while random bags are told to be of another formation
        model = BagAutoClassifier(formation="random", candidates=constant, random_state=rng)
        line = model.fit(rng.normal(size=(2000, 1)), bw.aggregate(y, ids), bags=ids).trials_[0]
        covered += line["low"] <= 0.25 <= line["high"]
    from scipy.stats import binomtest

    assert binomtest(covered, trials, 0.95, alternative="less").pvalue > 1e-6


def test_the_chosen_candidate_is_refitted_on_all_bags():
    X, y = linear_rows(3200, np.random.default_rng(0))
    ids = bw.random_bags(len(X), 16, random_state=0)
    y_bag = bw.aggregate(y, ids)
    model = BagAutoClassifier(candidates={"ridge": bw.BagRidgeClassifier(random_state=1)}, random_state=0)
    alone = bw.BagRidgeClassifier(random_state=1).fit(model.fit(X, y_bag, bags=ids).encoding_(X), y_bag, bags=ids)
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(model.encoding_(X)), atol=2e-6)


@pytest.mark.slow
def test_a_stack_weighs_what_helps():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(12_800, 3))
    y = (rng.random(len(X)) < np.clip(0.5 + 0.3 * np.sign(X[:, 0] * X[:, 1]) + 0.2 * X[:, 2], 0, 1)).astype(int)
    ids = bw.random_bags(len(X), 8, random_state=0)
    model = BagAutoClassifier(candidates={**candidates(), "constant": Constant()}, stack=True, random_state=0)
    model.fit(X, bw.aggregate(y, ids), bags=ids)
    weight = {line["candidate"]: line["weight"] for line in model.trials_}
    assert weight["constant"] == 0
    assert weight["boosting"] > 0.3
    assert sum(weight.values()) == pytest.approx(1)
    assert len(model.models_) == sum(value > 0 for value in weight.values())


def said(validation, deviations):
    """Predictions whose deviations √k(h̄ − E[h]) are given, bag by bag of the whole table; rows of a bag are equal."""
    k = validation.bags.size[0]
    rows = [np.repeat(0.5 + deviations[fold.held_out] / np.sqrt(k), k)[:, None] for fold in validation.folds]
    return score([Said(np.full((2, 1), 0.5), h) for h in rows], validation)


@pytest.fixture
def validation():
    rng = np.random.default_rng(0)
    bags = Bags.from_rows(np.repeat(rng.random(400), 5), np.repeat(np.arange(400), 5))
    return Validation(bags, folds_of(400, 2, rng), 0.01, 0.95)


def test_stack_weights_find_the_mixture(validation):
    rng = np.random.default_rng(1)
    target = np.sqrt(5) * (validation.bags.proportion - validation.bags.proportion.mean())
    noise = rng.normal(size=400)
    trials = [said(validation, values) for values in (target + noise, target - noise, rng.normal(size=400))]
    weights = stack_weights(trials, validation)
    np.testing.assert_allclose(weights[:2], 0.5, atol=0.05)
    assert weights.sum() == pytest.approx(1)


def test_the_trial_of_a_mean_is_that_of_mean_predictions(validation):
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(2, 400))
    trials = {"first": said(validation, first), "second": said(validation, second)}
    mean = mean_trial(trials, {"first": 0.25, "second": 0.75}, validation)
    assert mean.risk == pytest.approx(said(validation, 0.25 * first + 0.75 * second).risk)


def test_the_first_is_kept_unless_another_is_clearly_better(validation):
    rng = np.random.default_rng(1)
    target = np.sqrt(5) * (validation.bags.proportion - validation.bags.proportion.mean())
    noise = rng.normal(size=400)
    first, near, far = (said(validation, target + size * noise) for size in (1.0, 0.999, 0.2))
    assert choose({"first": first}) == "first"
    assert choose({"first": first, "same": first}) == "first"
    assert choose({"first": first, "near": near, "far": far}) == "far"
    assert choose({"first": near, "worse": first}) == "first"


@pytest.mark.parametrize(("errors", "name"), [(1.9, "first"), (2.1, "other")])
def test_clearly_better_is_two_standard_errors(validation, errors, name):
    losses = np.random.default_rng(1).random(400)
    difference = np.tile([1.0, -1.0], 200)
    difference += errors * difference.std(ddof=1) / np.sqrt(400)
    first = replace(said(validation, np.zeros(400)), losses=losses, risk=losses.mean())
    other = replace(first, losses=losses - difference, risk=(losses - difference).mean())
    assert choose({"first": first, "other": other}) == name


def test_the_refit_is_the_candidate_alone():
    X, y = crossed_rows(800, np.random.default_rng(0))
    ids = bw.random_bags(len(X), 8, random_state=0)
    y_bag = bw.aggregate(y, ids)
    model = BagAutoClassifier(candidates=candidates(), cv=2, random_state=7).fit(X, y_bag, bags=ids)
    alone = candidates()[model.best_name_].set_params(random_state=7).fit(X, y_bag, bags=ids)
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X))


class Clock:
    """Time that passes where candidates say so."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        for module in (deadline, search, fitting):
            monkeypatch.setattr(module, "time", self)

    def monotonic(self):
        return self.now


class Slow(Constant):
    """Takes as many seconds as `seconds` says of the rows in bags; may be stopped at any of them."""

    def __init__(self, value=0.5, clock=None, seconds=None):
        super().__init__(value)
        self.clock = clock
        self.seconds = seconds

    def _fit_bags(self, X, bags):
        for _ in range(round(self.seconds(bags.n_bagged))):
            self.clock.now += 1
            deadline.check_time()
        self.bags_ = len(bags)

    def __sklearn_clone__(self):
        return Slow(self.value, self.clock, self.seconds)


def slow_fit(monkeypatch, time_budget, **candidates):
    """A fit of 200 bags of 80 rows each, 5 folds; candidates by what they predict and the seconds of a row."""
    clock, rng = Clock(monkeypatch), np.random.default_rng(0)
    y, ids = (rng.random(16_000) < 0.3).astype(int), np.repeat(np.arange(200), 80)
    slow = {name: Slow(value, clock, lambda n, per=per: per * n) for name, (value, per) in candidates.items()}
    model = BagAutoClassifier(candidates=slow, time_budget=time_budget, random_state=0)
    model.fit(rng.normal(size=(16_000, 1)), bw.aggregate(y, ids), bags=ids)
    return model, clock.now, [line["note"] for line in model.trials_]


def test_a_candidate_that_would_take_too_long_is_not_tried(monkeypatch):
    """One of 1 s a row takes 16,000 s a fit, as fits to few rows show; one after it is quick, and tried."""
    chosen = {"first": (0.5, 0.001), "long": (0.3, 1.0), "last": (0.3, 0.001)}
    model, seconds, notes = slow_fit(monkeypatch, 27_000, **chosen)
    assert notes[0] == notes[2] == ""
    needed, left = (int(number) for number in re.findall(r"about (\d+) s of the (\d+) s left", notes[1])[0])
    assert needed == pytest.approx(16_000 * (0.8 + 1), rel=0.01)  # a fold of 4/5 of the bags, and the refit
    assert 24_000 < left < 25_000  # what two small fits have left over
    assert model.best_name_ == "last"
    assert model.models_[0].bags_ == 200
    assert seconds < 3_000


def test_to_find_out_how_long_a_candidate_takes_costs_little(monkeypatch):
    chosen = {"first": (0.5, 0.001), "long": (0.3, 1.0), "last": (0.3, 0.001)}
    model, seconds, notes = slow_fit(monkeypatch, 5_000, **chosen)
    assert notes[0] == notes[2] == ""
    assert notes[1].startswith("not tried: to fit it to few rows alone takes more than 10% of the")
    assert model.best_name_ == "last"
    assert seconds < 1_400


def test_where_time_is_short_a_candidate_is_tried_on_fewer_folds(monkeypatch):
    """12,800 s a fold, and 16,000 s the last fit: three folds leave the time for it, four would not."""
    model, seconds, notes = slow_fit(monkeypatch, 60_000, first=(0.5, 0.001), long=(0.3, 1.0))
    assert notes == ["", "on 3 of 5 folds: the time budget was spent"]
    assert model.best_name_ == "long"
    assert model.models_[0].bags_ == 200
    assert 50_000 < seconds < 60_000


def test_a_candidate_is_stopped_inside_its_fit(monkeypatch):
    """What small fits did not show, since it takes long with all rows only."""
    clock, rng = Clock(monkeypatch), np.random.default_rng(0)
    y, ids = (rng.random(16_000) < 0.3).astype(int), np.repeat(np.arange(200), 80)
    pair = {"first": Slow(0.5, clock, lambda n: 10), "late": Slow(0.3, clock, lambda n: 10 if n < 5000 else 1e6)}
    model = BagAutoClassifier(candidates=pair, time_budget=1000, random_state=0)
    model.fit(rng.normal(size=(16_000, 1)), bw.aggregate(y, ids), bags=ids)
    assert model.trials_[1]["note"] == "stopped: the time budget was spent"
    assert model.best_name_ == "first"
    assert model.models_[0].bags_ == 200
    assert clock.now <= 1000  # the refit of the first had its time left


@pytest.mark.parametrize(
    ("seconds", "note", "bags", "taken"),
    [
        (641, "on 3 of 5 folds: the time budget was spent", 200, 3 * 128 + 160),
        (300, "on 1 of 5 folds: the time budget was spent", 200, 128 + 160),
        (200, "fitted without the bags of one fold: the time budget was spent", 160, 1.05 * 200),
        (50, "fitted without a trial to 6 of 200 bags: the time budget was spent", 6, 1.05 * 50),
    ],
)
def test_what_is_there_is_returned_when_time_is_over(monkeypatch, seconds, note, bags, taken):
    """A fit without a fold takes 128 s, a fit to all bags 160 s."""
    model, found, notes = slow_fit(monkeypatch, seconds, only=(0.3, 0.01), other=(0.5, 0.01))
    assert notes[0] == note
    assert notes[1].startswith("not tried: ")
    assert model.best_name_ == "only"
    assert model.models_[0].bags_ == bags
    assert np.isnan(model.best_risk_) == ("without a trial" in note)
    assert taken <= found <= taken + 26  # fits that tell the time of the other included


def test_cheap_candidates_that_are_not_leave_time_for_the_preferred_one(monkeypatch):
    """Each has a part of the time, the first a larger one."""
    clock, rng = Clock(monkeypatch), np.random.default_rng(0)
    y, ids = (rng.random(16_000) < 0.3).astype(int), np.repeat(np.arange(200), 80)
    three = {name: Slow(0.3, clock, lambda n: 80 if n > 5000 else 4) for name in ("ridge", "mean map", "boosting")}
    monkeypatch.setattr(estimator, "default_candidates", lambda: three)
    model = BagAutoClassifier(time_budget=1000, random_state=0)
    model.fit(rng.normal(size=(16_000, 1)), bw.aggregate(y, ids), bags=ids)
    folds = [re.findall(r"on (\d) of 5 folds", line["note"]) for line in model.trials_]
    assert folds == [["3"], ["1"], []]
    assert model.best_name_ == "boosting"
    assert clock.now <= 1100


@pytest.mark.parametrize("budget", [30, 300, 3000, 30_000])
@pytest.mark.parametrize("per_row", [0.001, 0.1, 10])
def test_the_budget_holds_whatever_candidates_take(monkeypatch, budget, per_row):
    """Fits of 16 to 160,000 s, which can be stopped at every second."""
    chosen = {"first": (0.5, per_row), "other": (0.3, 2 * per_row), "last": (0.4, per_row / 2)}
    model, seconds, _ = slow_fit(monkeypatch, budget, **chosen)
    assert seconds <= 1.1 * budget
    assert model.predict_proba(np.zeros((2, 1))).shape == (2, 2)


def test_without_time_for_any_candidate_all_rows_get_the_mean_label(monkeypatch):
    model, seconds, notes = slow_fit(monkeypatch, 10, only=(0.5, 100.0))
    assert model.best_name_ == "mean label"
    assert notes[-1] == "fitted without a trial: the time budget was spent"
    assert seconds <= 11
    h = model.predict_proba(np.zeros((2, 1)))[:, 1]
    assert h == pytest.approx(model.prior_)


class NeedsRows(Constant):
    """Cannot be fitted to few rows."""

    def _fit_bags(self, X, bags):
        if bags.n_bagged < 10_000:
            raise ValueError("these are too few rows.")
        self.fitted_ = True


def test_fits_that_tell_the_time_may_fail(monkeypatch):
    """They are fits to few rows, which say nothing about one to all."""
    rng = np.random.default_rng(0)
    y, ids = (rng.random(16_000) < 0.3).astype(int), np.repeat(np.arange(200), 80)
    pair = {"first": Constant(0.5), "second": NeedsRows(0.3)}
    model = BagAutoClassifier(candidates=pair, time_budget=1000, random_state=0)
    model.fit(rng.normal(size=(16_000, 1)), bw.aggregate(y, ids), bags=ids)
    assert [line["note"] for line in model.trials_] == ["", ""]
    assert model.best_name_ == "second"


def test_all_fits_side_by_side_know_the_limit():
    """joblib asks for most of them in threads of its own."""
    seen = []

    def call(_):
        with pytest.raises(deadline.OutOfTimeError):
            deadline.check_time()
        seen.append(1)

    with deadline.time_limit(0):
        side_by_side([call] * 20, InMemory(np.zeros((1000, 1000)), Bags.singletons(np.zeros(1000))), 2, dict)
    assert len(seen) == 20


def test_a_candidate_that_fails_does_not_use_up_the_others_time(monkeypatch):
    clock, rng = Clock(monkeypatch), np.random.default_rng(0)
    y, ids = (rng.random(1600) < 0.3).astype(int), np.repeat(np.arange(20), 80)
    pair = {"broken": Broken(), "slow": Slow(0.3, clock, lambda n: 100 if n > 1000 else 2)}
    model = BagAutoClassifier(candidates=pair, time_budget=50, random_state=0)
    model.fit(np.zeros((1600, 1)), bw.aggregate(y, ids), bags=ids)
    spent = "fitted without a trial to 6 of 20 bags: the time budget was spent"
    assert [line["note"] for line in model.trials_] == ["failed: it never works.", spent]
    assert model.best_name_ == "slow"


@pytest.mark.parametrize("name", ["boosting", "group prior", "logistic", "mean map", "ridge", "network, 32"])
def test_fits_of_all_families_can_be_stopped(name, torch):
    X, y = linear_rows(400, np.random.default_rng(0))
    ids = bw.random_bags(len(X), 8, random_state=0)
    candidate = default_candidates()[name]
    with pytest.raises(deadline.OutOfTimeError), deadline.time_limit(0):
        candidate.fit(X, bw.aggregate(y, ids), bags=ids)


def test_cheap_families_come_first_and_boosting_is_kept(validation, monkeypatch):
    assert list(default_candidates())[:5] == ["ridge", "mean map", "logistic", "group prior", "boosting"]
    losses = np.random.default_rng(1).random(400)
    ridge = replace(said(validation, np.zeros(400)), losses=losses, risk=losses.mean())
    boosting = replace(ridge, losses=losses + 0.001, risk=losses.mean() + 0.001)
    assert choose({"ridge": ridge, "boosting": boosting}, "boosting") == "ridge"  # clearly better
    noise = np.tile([0.2, -0.2], 200)
    boosting = replace(ridge, losses=losses + 0.001 + noise, risk=losses.mean() + 0.001)
    assert choose({"ridge": ridge, "boosting": boosting}, "boosting") == "boosting"
    assert choose({"ridge": ridge, "mean map": boosting}, "boosting") == "ridge"
    # On the folds that both were tried on.
    short = replace(ridge, losses=losses[:80] - 0.1, risk=(losses[:80] - 0.1).mean())
    assert choose({"ridge": ridge, "mean map": short}) == "mean map"


def test_trials_on_fewer_folds_are_liked_by_what_others_say_of_these(validation):
    """The first bags are easy: one that was tried on these alone has the largest mean gain, and is no better."""
    gains = np.linspace(1, 0, 400)
    long = replace(said(validation, np.zeros(400)), gains=gains)
    found = Search(None, validation, (), 0.0, None, False, None, {"long": long})
    for easier, liked in ((-0.01, "long"), (0.01, "short")):
        found.tried["short"] = replace(long, gains=gains[:80] + easier)
        assert found.tried["short"].gain > long.gain
        assert found.liked_best() is found.tried[liked]


def test_a_candidate_that_fails_is_noted_and_passed_over():
    X, y = linear_rows(800, np.random.default_rng(0))
    ids = bw.random_bags(len(X), 8, random_state=0)
    model = BagAutoClassifier(candidates={"broken": Broken(), "ridge": bw.BagRidgeClassifier()}, random_state=0)
    model.fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.trials_[0]["note"] == "failed: it never works."
    assert model.best_name_ == "ridge"
    with pytest.raises(ValueError, match="no candidate could be fitted: failed: it never works"):
        BagAutoClassifier(candidates={"broken": Broken()}).fit(X, bw.aggregate(y, ids), bags=ids)


class FailsOnAll(bw.BagRidgeClassifier):
    """Works on some of the bags, not on all 100."""

    def _fit_bags(self, X, bags):
        if len(bags) == 100:
            raise ValueError("too many bags.")
        super()._fit_bags(X, bags)


@pytest.mark.parametrize("stack", [False, True])
def test_a_refit_that_fails_leaves_the_others(stack):
    X, y = linear_rows(800, np.random.default_rng(0))
    ids = bw.random_bags(len(X), 8, random_state=0)
    own = {"fragile": FailsOnAll(), "ridge": bw.BagRidgeClassifier()}
    model = BagAutoClassifier(candidates=own, stack=stack, cv=2, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.best_name_ == "ridge"
    assert [line["note"] for line in model.trials_] == ["failed: too many bags.", ""]
    assert [line["weight"] for line in model.trials_] == [0.0, 1.0]
    with pytest.raises(ValueError, match="no candidate could be fitted: failed: too many bags"):
        BagAutoClassifier(candidates={"fragile": FailsOnAll()}).fit(X, bw.aggregate(y, ids), bags=ids)


@pytest.mark.parametrize("regret", [0, 1.5, "low"])
def test_a_wrong_regret_is_refused_before_anything_is_tried(regret):
    seen = []
    model = BagAutoClassifier(regret=regret, callback=seen.append)
    with pytest.raises(ValueError, match="regret"):
        model.fit(np.eye(8), [0, 1] * 4)
    assert not seen


def test_tables_with_categories_and_gaps():
    rng = np.random.default_rng(0)
    device = rng.choice(["phone", "tablet", "desktop"], 4800)
    age = rng.uniform(20, 60, 4800)
    y = (rng.random(4800) < np.where(device == "phone", 0.8, 0.2)).astype(int)
    age[::7] = np.nan
    table = pd.DataFrame({"age": age, "device": device})
    ids = bw.random_bags(4800, 8, random_state=0)
    model = BagAutoClassifier(candidates=candidates(), cv=2, random_state=0).fit(table, bw.aggregate(y, ids), bags=ids)
    assert all(line["note"] == "" for line in model.trials_)
    assert model.score(table, y) > 0.75


@pytest.mark.slow
def test_several_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4800, 2))
    y = np.where(X[:, 0] > 0.4, 2, np.where(X[:, 1] > 0, 1, 0))
    ids = bw.random_bags(4800, 8, random_state=0)
    y_bag = bw.aggregate(np.eye(3)[y], ids)
    model = BagAutoClassifier(candidates=candidates(), random_state=0).fit(X, y_bag, bags=ids)
    assert model.best_name_ == "boosting"
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize(("bags", "used"), [(100_000, 1), (2000, 2), (1000, 3), (508, 5), (9, 4), (4, 2), (3, 0)])
def test_as_many_folds_as_hold_out_enough(bags, used):
    folds = folds_of(bags, 5, np.random.default_rng(0))
    assert len(folds) == used
    for fold in folds:
        assert len(fold.held_out) >= 2
        np.testing.assert_array_equal(np.sort(np.concatenate([fold.train, fold.held_out])), np.arange(bags))


def test_two_mixtures_are_told_apart():
    """Two bags, none of which can be held out: logistic regression, without a trial."""
    rng = np.random.default_rng(0)
    ids = np.repeat([0, 1], 2000)
    y = (rng.random(4000) < np.where(ids == 0, 0.2, 0.7)).astype(int)
    X = rng.normal(size=(4000, 3)) + np.outer(y, [1.0, 0.5, 0.0])
    model = BagAutoClassifier(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.best_name_ == "logistic"
    assert np.isnan(model.gain_)
    assert [line["note"] for line in model.trials_] == ["fitted without a trial: of 2 bags none can be held out"]
    assert model.formation_.name == "effects"
    apart = LogisticRegression().fit(X, ids).decision_function(X)
    assert roc_auc_score(y, model.predict_proba(X)[:, 1]) > roc_auc_score(y, apart) - 0.02


@pytest.mark.parametrize(
    "parameters",
    [{"cv": 1}, {"time_budget": 0}, {"candidates": {}}, {"candidates": {"mine": object()}}, {"level": 2}],
)
def test_wrong_parameters_are_named(parameters):
    X, y = linear_rows(80, np.random.default_rng(0))
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        BagAutoClassifier(**parameters).fit(X, y)


def test_default_candidates_are_of_all_families(torch):
    kinds = {type(candidate).__name__ for candidate in default_candidates().values()}
    linear = {"BagRidgeClassifier", "BagMeanMapClassifier", "BagLogisticClassifier"}
    assert kinds == linear | {"GroupPriorClassifier", "BagBoostingClassifier", "BagNeuralClassifier"}


def test_a_constant_does_not_win_by_being_clipped():
    """Bags grouped by the feature that decides: the residuals of a constant are beyond the threshold."""
    x = np.repeat([0.0, 1.0], 20 * 64)
    ids = np.repeat(np.arange(40), 64)
    pair = {"constant": Constant(0.5), "ridge": bw.BagRidgeClassifier(alphas=0.01)}
    model = BagAutoClassifier(candidates=pair, cv=2, random_state=0).fit(x[:, None], bw.aggregate(x, ids), bags=ids)
    assert model.best_name_ == "ridge"
    assert model.formation_.name != "random"
    assert model.trials_[0]["risk"] is None
    as_if_random = BagAutoClassifier(candidates=pair, formation="random", cv=2, random_state=0)
    as_if_random.fit(x[:, None], bw.aggregate(x, ids), bags=ids)
    assert as_if_random.best_name_ == "ridge"
    assert as_if_random.trials_[0]["risk"] > 10


def test_a_candidate_keeps_its_own_categories():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, size=(800, 2)).astype(float)
    own = {"boosting": bw.BagBoostingClassifier(categorical_features=[1], **TREES)}
    model = BagAutoClassifier(candidates=own, random_state=0).fit(X, X[:, 1].astype(int) % 2)
    assert model.models_[0].categorical_features == [1]


# -- formations ---------------------------------------------------------------------------------------------------


def by_rates(rng, m=60, k=128):
    """Bags of two kinds of rows, mixed in proportions that differ."""
    ids = np.repeat(np.arange(m), k)
    y = (rng.random(m * k) < np.repeat(rng.uniform(0, 0.5, m), k)).astype(int)
    return rng.normal(size=(m * k, 3)) + np.outer(y, [1.5, -1.0, 0.0]), y, ids


def with_effects(rng, m=60, k=256):
    """Nothing but what is unseen of bags moves labels."""
    ids = np.repeat(np.arange(m), k)
    return rng.normal(size=(m * k, 3)), (rng.random(m * k) < expit(rng.normal(size=m)[ids] - 1)).astype(int), ids


def linear_candidates():
    return {"ridge": bw.BagRidgeClassifier(), "logistic": bw.BagLogisticClassifier(alphas=(1.0, 10.0), cv=2)}


def test_where_rates_differ_the_likelihood_chooses():
    """Candidates that are given the formation are compared by fits for what was found, not for what was feared."""
    X, y, ids = by_rates(np.random.default_rng(0), k=48)
    three = {"wrong": bw.BagRidgeClassifier(formation="effects", alphas=100.0), **linear_candidates()}
    told = []
    model = BagAutoClassifier(candidates=three, cv=3, random_state=0, callback=told.append)
    model.fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.formation_.name == "rates"
    again = [line["next"] for line in told if line["stage"] == "second trial"]
    assert {*again} == {"ridge", "logistic"}
    assert [line["candidate"] for line in told] == [*three, *again]
    assert [line["next"] for line in told] == ["ridge", "logistic", *again, None]
    assert [(line["done"], line["total"]) for line in told] == [(1, 3), (2, 3), (3, 5), (4, 5), (5, 5)]
    for line in told[3:]:  # what the second trial scored
        assert line["gain"] == next(one["gain"] for one in model.trials_ if one["candidate"] == line["candidate"])
    best = {line["candidate"]: line for line in model.trials_}[model.best_name_]
    assert best["candidate"] != "wrong"  # which comes first
    assert np.isnan(model.best_risk_)
    wrong, ridge, logistic = model.trials_
    assert ridge["risk"] is ridge["low"] is ridge["high"] is None
    assert abs(logistic["gain"] - ridge["gain"]) < 0.1 * ridge["gain_error"]
    assert ridge["gain"] - wrong["gain"] > 0.5 * ridge["gain_error"] > 0
    assert (model.gain_, model.gain_error_) == (best["gain"], best["gain_error"])
    assert model.models_[0].formation == "rates"  # as was found for all
    assert model.stretch_ == 1
    assert np.mean((model.predict_proba(X)[:, 1] - y) ** 2) < 0.6 * y.mean() * (1 - y.mean())


class Given(Slow):
    """Takes the formation that it is given."""

    def __init__(self, value=0.5, clock=None, seconds=None, formation="auto"):
        super().__init__(value, clock, seconds)
        self.formation = formation

    def __sklearn_clone__(self):
        return Given(self.value, self.clock, self.seconds, self.formation)


def tried_twice(monkeypatch, budget, *seconds):
    """A fit to bags that only differ in rates, of candidates whose fits take so long; and the lines that were told."""
    clock, told = Clock(monkeypatch), []
    monkeypatch.setattr(estimator, "settled", lambda found, parts: replace(found, others=()))
    X, y, ids = by_rates(np.random.default_rng(0), m=20, k=32)
    own = {str(number): Given(0.3, clock, lambda n, own=own: own) for number, own in enumerate(seconds)}
    model = BagAutoClassifier(candidates=own, time_budget=budget, random_state=0, callback=told.append)
    model.fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.models_[0].formation == "rates"
    assert clock.now <= 1.05 * budget
    return told


@pytest.mark.parametrize("budget", [50, 80, 120, 165, 250, 335])
def test_time_is_kept_to_try_again_for_the_formation_that_was_found(monkeypatch, budget):
    """A fit takes 10 s, all folds of all candidates 150 s: as many are tried as can be tried again."""
    told = tried_twice(monkeypatch, budget, 10, 10, 10)
    tried = [line for line in told[:3] if line["gain"] is not None]
    assert 1 <= len(tried) == len(told) - 3
    assert not [line["note"] for line in told if "for rates" in line["note"]]


def test_a_costly_second_trial_does_not_keep_cheap_ones_from_theirs(monkeypatch):
    told = tried_twice(monkeypatch, 260, 10, 10, 60)
    assert [line["note"] for line in told[3:]] == [
        "on 1 of 5 folds: the time budget was spent",
        "on 1 of 5 folds: the time budget was spent",
        "tried for bags formed by effects; for rates stopped: the time budget was spent",
    ]


def test_a_candidate_tells_effects_from_rates():
    """Bags of random rows, whose proportions differ for reasons unseen."""
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(6400, 2)), np.arange(6400) // 32
    y = (rng.random(6400) < expit(2 * X[:, 0] + 0.7 * rng.normal(size=200)[ids])).astype(int)
    own = {"logistic": bw.BagLogisticClassifier(alphas=10.0, cv=2)}
    model = BagAutoClassifier(candidates=own, cv=2, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.formation_.name == "effects"
    assert "as a model shows" in model.formation_.reason
    assert model.models_[0].formation == "effects"
    assert model.trials_[0]["gain"] == model.gain_


def test_gains_are_those_of_plain_probabilities():
    """The log-likelihood of counts, of models that say the same of all rows, is that of a binomial distribution."""
    rng = np.random.default_rng(0)
    bags = Bags.from_rows(np.repeat(rng.binomial(5, 0.4, size=40) / 5, 5), np.repeat(np.arange(40), 5))
    validation = Validation(bags, folds_of(40, 2, rng), 0.01, 0.95, "rates")
    trial = said(validation, np.zeros(40))
    np.testing.assert_allclose(trial.gains, 0, atol=1e-8)  # with E[h] = p it is the constant
    fold, own = validation.folds[0], np.where(bags.proportion > 0.4, 0.3, -0.3)
    trial = said(validation, own)
    part = trial.parts[0]
    h = np.clip(0.5 + own / np.sqrt(5), 0, 1)[fold.held_out]
    p, count = part.prior, np.rint(5 * bags.proportion[fold.held_out])
    shifted = expit(logit(h) + logit(p) - logit(0.5))  # rows fitted to were given 0.5
    expected = count * np.log(shifted / p) + (5 - count) * np.log((1 - shifted) / (1 - p))
    np.testing.assert_allclose(trial.gains[: len(count)], expected, rtol=1e-6)
    np.testing.assert_array_equal(trial.losses, -trial.gains)


class Follows(NumericFeatures, BagClassifier):
    """Least squares on means of bags, which follows their effects and is not shrunk."""

    def _fit_bags(self, X, bags):
        self.mean_ = X.mean(axis=0)
        self.line_ = np.linalg.lstsq(bags.mean(X[bags.order]) - self.mean_, bags.proportion - bags.proportion.mean())[0]
        self.prior_ = bags.proportion.mean()

    def _predict_mean(self, X):
        return np.clip(self.prior_ + (X - self.mean_) @ self.line_, 0, 1)


def test_what_is_no_better_than_the_mean_label_is_told_and_shrunk():
    X, y, ids = with_effects(np.random.default_rng(1))
    own = {"follows": Follows()}
    model = BagAutoClassifier(candidates=own, formation="effects", random_state=0)
    with pytest.warns(NoBetterThanConstantWarning):
        model.fit(X, bw.aggregate(y, ids), bags=ids)
    p, h = y.mean(), model.predict_proba(X)[:, 1]
    alone = model.models_[0].predict_proba(model.encoding_(X))[:, 1]
    assert model.stretch_ < 0.1
    assert h.mean() == pytest.approx(p, abs=1e-6)
    assert np.mean((h - y) ** 2) < p * (1 - p) + 0.01 < np.mean((alone - y) ** 2)


def test_probabilities_are_probabilities_of_mean_p():
    """A candidate that is off p, and certain of some rows."""
    X, y, ids = by_rates(np.random.default_rng(1), k=32)

    class Certain(bw.BagRidgeClassifier):
        def _predict_mean(self, X):
            return np.clip(2 * super()._predict_mean(X), 0, 1)

    model = BagAutoClassifier(candidates={"certain": Certain(cv=2)}, cv=2, random_state=0)
    model.fit(X, bw.aggregate(y, ids), bags=ids)
    h = model.predict_proba(X)
    assert h.mean(axis=0)[1] == pytest.approx(y.mean(), abs=1e-3)
    assert 0 < h.min() < h.max() < 1


@pytest.mark.slow
def test_the_mean_of_several_classes_is_theirs():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(40), 30)
    rate = rng.dirichlet([2, 1, 1], size=40)[ids]
    y = (rng.random(1200)[:, None] > np.cumsum(rate, axis=1)).sum(axis=1)
    X = rng.normal(size=(1200, 2)) + np.array([[0, 0], [2, 0], [0, 2]])[y]
    own = {"ridge": bw.BagRidgeClassifier(alphas=0.1), "logistic": bw.BagLogisticClassifier(alphas=10.0)}
    model = BagAutoClassifier(candidates=own, cv=2, random_state=0)
    model.fit(X, bw.aggregate(np.eye(3)[y], ids), bags=ids)
    assert model.formation_.name == "rates"
    assert model.gain_ > model.gain_error_ > 0
    np.testing.assert_allclose(model.predict_proba(X).mean(axis=0), np.bincount(y) / 1200, atol=0.01)
    assert model.score(X, y) > 0.75


def test_a_model_that_was_settled_can_be_saved(tmp_path):
    X, y, ids = with_effects(np.random.default_rng(2), m=20, k=32)
    model = BagAutoClassifier(candidates=linear_candidates(), cv=2, random_state=0)
    model.fit(X, bw.aggregate(y, ids), bags=ids)
    bw.save(model, tmp_path / "model")
    again = bw.load(tmp_path / "model")
    assert again.formation_ == model.formation_
    assert again.gain_ == model.gain_
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_many_levels_do_not_make_a_table_too_wide():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({f"c{i}": rng.integers(200, size=400).astype(str) for i in range(30)})
    own = {"ridge": bw.BagRidgeClassifier(alphas=1.0, scaling=0.0)}
    ids = np.arange(400) // 8
    model = BagAutoClassifier(candidates=own, random_state=0).fit(
        table, bw.aggregate(rng.integers(2, size=400), ids), bags=ids
    )
    assert model.encoding_.width <= 512


@pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")
def test_without_time_an_offset_is_all_that_moves_predictions():
    given = drawn("features", n=600, m=40)
    offset = given.X[:, 2]
    model = bw.BagAutoClassifier(time_budget=1e-3, random_state=0).fit(given.X, bags=given.bags.with_offset(offset))
    h = model.predict_proba(given.X, offset=offset)[:, 1]
    assert model.best_name_ == "mean label"
    assert np.ptp(np.log(h / (1 - h)) - offset) < 1e-6
    mean = given.bags.size @ given.bags.proportion / given.bags.n_people
    assert np.average(h, weights=given.weight) == pytest.approx(mean)
    with pytest.raises(ParameterError, match="stack must be False where there is an offset"):
        bw.BagAutoClassifier(stack=True).fit(given.X, bags=given.bags.with_offset(offset))
