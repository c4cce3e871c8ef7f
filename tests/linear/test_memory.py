"""What linear models keep of bags that are gone: new bags give what old and new ones together would have."""

import copy

import numpy as np
import pytest
from scipy.special import expit, xlogy
from sklearn.base import clone

import bagwise as bw
from bagwise.bags import Bags
from bagwise.linear.memory import TOGETHER, LogisticMemory, Weighing
from bagwise.updates import CannotUpdateError
from tests.weighted import FORMATIONS, drawn

WEIGHTS = np.array([1.0, -0.5, 0.0])


def month(rng, n=3000, k=10, *, weights=WEIGHTS, offset=-0.3, classes=None):
    """Rows, proportions and ids of random bags."""
    X = rng.normal(size=(n, 3))
    ids = bw.random_bags(n, k, random_state=rng)
    y = (rng.random(n) < expit(X @ weights + offset)).astype(int)
    y = y if classes is None else np.eye(classes)[(y + (X[:, 1] > 0)).clip(0, classes - 1)]
    return X, bw.aggregate(y, ids), ids


def together(one, two):
    """Two months as one."""
    return *(np.concatenate([a, b]) for a, b in zip(one[:2], two[:2], strict=True)), np.r_[one[2], two[2] + 100_000]


def fitted(model, data):
    return copy.deepcopy(model).fit(*data[:2], bags=data[2])


def updated(model, data, **options):
    return copy.deepcopy(model).partial_fit(*data[:2], bags=data[2], **options)


def excess(model, rng, weights, offset, n=20_000):
    """Log loss of single rows above that of the truth."""
    X = rng.normal(size=(n, 3))
    p, h = expit(X @ weights + offset), model.predict_proba(X)[:, 1]
    return float((xlogy(p, p / h) + xlogy(1 - p, (1 - p) / (1 - h))).mean())


RIDGE = {"alphas": 0.01, "scaling": 0.5, "formation": "random", "random_state": 0}


@pytest.mark.parametrize("kind", [bw.BagRidgeClassifier, bw.BagRidgeRegressor])
def test_ridge_of_two_months_is_that_of_both(kind):
    rng = np.random.default_rng(0)
    months = [month(rng, 2000), month(rng, 1400, k=7, offset=0.5), month(rng, 400)]
    model = fitted(kind(**RIDGE), months[0])
    for later in months[1:]:
        model.partial_fit(*later[:2], bags=later[2])
    both = fitted(kind(**RIDGE), together(together(months[0], months[1]), (*months[2][:2], months[2][2] + 10**6)))
    np.testing.assert_allclose(model.coef_, both.coef_, atol=1e-8)
    assert model.intercept_ == pytest.approx(both.intercept_, abs=1e-8)
    assert (model.update_.bags, model.update_.rows, model.update_.forgetting) == (len(set(months[2][2])), 400, 1.0)
    assert not np.allclose(fitted(kind(**RIDGE), months[0]).coef_, both.coef_, atol=1e-3)


def test_ridge_chooses_its_penalty_by_bags_of_both_months():
    rng = np.random.default_rng(0)
    one, two = month(rng, 2000), month(rng, 2000)
    model = updated(fitted(bw.BagRidgeRegressor(random_state=0), one), two)
    memory = model.memory_
    again = bw.BagRidgeRegressor().fit_moments(list(memory.parts), memory.origin)
    np.testing.assert_allclose(model.coef_, again.coef_, atol=1e-8)
    assert (model.alpha_, model.scaling_) == (again.alpha_, again.scaling_)
    assert memory.whole.bags == 400


def test_ridge_of_several_classes():
    rng = np.random.default_rng(0)
    one, two = month(rng, 2000, classes=3), month(rng, 2000, classes=3)
    model = updated(fitted(bw.BagRidgeClassifier(**RIDGE), one), two)
    both = fitted(bw.BagRidgeClassifier(**RIDGE), together(one, two))
    np.testing.assert_allclose(model.coef_, both.coef_, atol=1e-8)


@pytest.mark.parametrize("formation", ["rates", pytest.param("features", marks=pytest.mark.slow)])
def test_ridge_in_other_formations(formation):
    rng = np.random.default_rng(0)
    options = {"formation": formation, "random_state": 0}
    one, two = month(rng, 3000), month(rng, 3000)
    model = updated(fitted(bw.BagRidgeClassifier(**options), one), two)
    both = fitted(bw.BagRidgeClassifier(**options), together(one, two))
    # Penalties are those that held-out bags of the last month like, of a grid: weights differ by that at most.
    assert np.abs(model.coef_ - both.coef_).max() < 0.25 * np.abs(both.coef_).max()
    assert model.predict_proba(two[0])[:, 1].mean() == pytest.approx(both.predict_proba(two[0])[:, 1].mean(), abs=0.01)


def test_a_rate_that_moved_is_no_weight():
    """Taken apart, months with other means tell of weights by what differs inside of each."""
    rng = np.random.default_rng(0)
    one, two = month(rng, 6000, offset=-1.5), month(rng, 6000, offset=1.5)
    moved = (two[0] + [0, 0, 3.0], *two[1:])  # what has no weight moved with the rate
    model = fitted(bw.BagRidgeRegressor(**RIDGE), one)
    alike, apart = updated(model, moved), updated(model, moved, forgetting="auto")
    assert apart.update_.apart
    assert np.abs(apart.coef_[2]) < 0.03 < alike.coef_[2]


def test_logistic_regression_of_two_months_is_nearly_that_of_both():
    rng = np.random.default_rng(1)
    one, two = month(rng), month(rng)
    options = {"alphas": 3.0, "scaling": 1.0, "random_state": 0}
    model = updated(fitted(bw.BagLogisticClassifier(**options), one), two)
    both = fitted(bw.BagLogisticClassifier(**options), together(one, two))
    # A quadratic errs by the third derivative: by a share of a standard error that is about the standard error itself,
    # some tenths here, and so does the way from one month's maximum to that of both.
    error = both.coef_errors_
    assert (np.abs(model.free_coef_ - both.free_coef_) < 0.3 * error).all()
    np.testing.assert_allclose(model.coef_errors_, error, rtol=0.15)
    assert abs(model.intercept_ - both.intercept_) < 0.3 * error.max()
    assert model.freedom_ == both.freedom_ == 600 - 4
    alone = fitted(bw.BagLogisticClassifier(**options), one)
    assert (np.abs(alone.free_coef_ - both.free_coef_) > 0.3 * error).any()


@pytest.mark.slow
def test_logistic_regression_after_an_update_is_as_good_as_of_both_months():
    """Square errors over months drawn anew: those of both together within a tenth, and below those of either alone."""
    truth, errors = np.r_[WEIGHTS, -0.3], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        one, two = month(rng), month(rng)
        new = bw.BagLogisticClassifier(random_state=0)
        models = [fitted(new, one), fitted(new, two), fitted(new, together(one, two))]
        models.append(updated(models[0], two))
        errors.append([((np.r_[each.coef_, each.intercept_] - truth) ** 2).sum() for each in models])
    errors = np.array(errors)
    first, second, both, after = errors.mean(axis=0)
    spread = (errors[:, 3] - errors[:, 2]).std(ddof=1) / np.sqrt(len(errors))
    assert after < 1.1 * both + 2 * spread
    for alone in errors[:, :2].T:
        gain = alone - errors[:, 3]
        assert gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(len(gain))
    assert after < min(first, second)


DRIFTS = {"rate": (WEIGHTS, 0.6), "weights and rate": (WEIGHTS + 0.3 * np.array([-1, 1, 0.5]), 0.4)}


def risks_after_drift(kind, drift, seeds):
    """(seeds, 3) losses of the next month's rows, of forgetting "auto", 1 and 0."""
    weights, by = DRIFTS[drift]
    found = []
    for seed in seeds:
        rng = np.random.default_rng(100 + seed)
        old = fitted(kind(random_state=0), month(rng, 8000, offset=-1.0))
        new, next_month = month(rng, 1600, weights=weights, offset=by - 1.0), rng.integers(2**31)
        found.append(
            [
                excess(updated(old, new, forgetting=one), np.random.default_rng(next_month), weights, by - 1.0)
                for one in ("auto", 1.0, 0.0)
            ]
        )
    return np.array(found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")
@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("kind", [bw.BagRidgeClassifier, bw.BagLogisticClassifier])
def test_forgetting_is_better_than_all_and_nothing(kind, drift):
    found = risks_after_drift(kind, drift, range(16))
    for other in found[:, 1:].T:
        gain = other - found[:, 0]
        assert gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(len(gain))


@pytest.mark.slow
def test_forgetting_costs_little_where_nothing_changed():
    found = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        old, new = fitted(bw.BagRidgeClassifier(random_state=0), month(rng, 8000)), month(rng, 1600)
        found.append([excess(updated(old, new, forgetting=one), rng, WEIGHTS, -0.3) for one in ("auto", 1.0, 0.0)])
    auto, alike, anew = np.mean(found, axis=0)
    assert auto - alike < 0.25 * (anew - alike)


def test_weights_of_old_bags():
    """0 is a fit to the new bags alone, up to what is chosen; a share lies between."""
    rng = np.random.default_rng(0)
    one, two = month(rng, 2000), month(rng, 2000, weights=np.array([0.0, 1.0, 0.0]))
    model = fitted(bw.BagRidgeRegressor(**RIDGE), one)
    new = fitted(bw.BagRidgeRegressor(**RIDGE), two)
    np.testing.assert_allclose(updated(model, two, forgetting=0).coef_, new.coef_, atol=1e-8)
    some = updated(model, two, forgetting=0.2).coef_
    assert model.coef_[0] > some[0] > new.coef_[0]
    with pytest.raises(ValueError, match="forgetting must be one of 'auto', or a number of at least 0 and at most 1"):
        updated(model, two, forgetting=2)


def test_the_intercept_lies_between_those_of_old_and_new_rows():
    memory = LogisticMemory(*[np.zeros(1)] * 4, np.eye(1), np.eye(1), -1.0, np.zeros(1), 100.0, 10.0)
    scores, bags = np.zeros(400), bw.Bags.from_rows(np.full(400, 0.5), np.arange(400) // 10)
    new = memory.shift(scores, bags, np.zeros(1), Weighing(1.0, apart=True))
    assert new == pytest.approx(0.0, abs=1e-9)
    assert memory.shift(scores, bags, np.zeros(1), TOGETHER) == pytest.approx(-0.5, abs=0.02)  # 400/4 beside 100
    assert memory.shift(scores, bags, np.zeros(1), Weighing(0.0)) == pytest.approx(0.0, abs=1e-9)


def test_a_feature_that_was_constant_may_vary_later():
    rng = np.random.default_rng(0)
    one, two = month(rng), month(rng)
    model = fitted(bw.BagLogisticClassifier(random_state=0), (np.where([True, False, True], one[0], 2.0), *one[1:]))
    after = updated(model, two)
    assert model.coef_[1] == 0
    assert abs(after.coef_[1] - WEIGHTS[1]) < 5 * after.coef_errors_[1]


@pytest.mark.parametrize("kind", [bw.BagRidgeClassifier, bw.BagLogisticClassifier])
def test_saved_models_are_updated_alike_and_old_folders_say_that_they_cannot(tmp_path, kind):
    rng = np.random.default_rng(0)
    one, two = month(rng, 1500), month(rng, 1500)
    model = fitted(kind(random_state=0), one)
    bw.save(model, tmp_path / "model")
    again, after = updated(bw.load(tmp_path / "model"), two), updated(model, two)
    np.testing.assert_array_equal(again.predict_proba(one[0]), after.predict_proba(one[0]))
    bw.save(after, tmp_path / "after")
    assert bw.load(tmp_path / "after").update_ == after.update_
    del model.memory_  # as folders of earlier versions are
    bw.save(model, tmp_path / "old")
    old = bw.load(tmp_path / "old")
    np.testing.assert_array_equal(old.predict_proba(one[0]), model.predict_proba(one[0]))
    with pytest.raises(CannotUpdateError, match="cannot be updated, as it keeps nothing of the bags"):
        updated(old, two)


def test_what_does_not_fit_together_is_not_kept():
    with pytest.raises(ValueError, match="does not fit together"):
        LogisticMemory(*[np.zeros(2)] * 4, np.eye(3), np.eye(2), 0.0, np.zeros(2), 1.0, 1.0)


def test_wide_models_keep_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr("bagwise.linear.memory.MOST_KEPT", 10)
    for kind in (bw.BagRidgeClassifier, bw.BagLogisticClassifier):
        model = fitted(kind(random_state=0), month(rng, 1000))
        assert model.memory_ is None
        with pytest.raises(CannotUpdateError, match="too many columns"):
            updated(model, month(rng, 1000))


def test_who_cannot_says_so():
    rng = np.random.default_rng(0)
    data = month(rng, 600)
    model = fitted(bw.BagMeanMapClassifier(cv=2, random_state=0), data)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError, match="a BagMeanMapClassifier cannot be updated: fit it to the reports of both"):
        model.partial_fit(*data[:2], bags=data[2])
    several = fitted(bw.BagLogisticClassifier(alphas=10.0, random_state=0), month(rng, 600, classes=3))
    with pytest.raises(CannotUpdateError, match="logistic regression of several classes cannot be updated"):
        updated(several, month(rng, 600, classes=3))


def test_the_first_call_is_fit_and_later_ones_know_its_classes():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), np.array(["no", "yes"])[rng.integers(2, size=300)]
    model = bw.BagRidgeClassifier(**RIDGE)
    with pytest.warns(bw.gains.NoBetterThanConstantWarning):
        model.partial_fit(X[:150], y[:150])
    with pytest.warns(bw.gains.NoBetterThanConstantWarning):
        model.partial_fit(X[150:], y[150:])
    with pytest.warns(bw.gains.NoBetterThanConstantWarning):
        both = bw.BagRidgeClassifier(**RIDGE).fit(X, y)
    np.testing.assert_allclose(model.coef_, both.coef_, atol=1e-8)
    with pytest.raises(ValueError, match="y holds the class 'maybe', which is not among classes"):
        model.partial_fit(X[:2], ["maybe", "no"])


# -- rows that stand for several people, and offsets ------------------------------------------------------------------


def months(formation):
    """Two months: rows, bags of people, and the same of rows repeated."""
    found = []
    for seed in (0, 1):
        given = drawn(formation, n=900, m=40, seed=seed)
        found.append([(given.X, given.bags), (given.X[given.rows], given.repeated)])
    return zip(*found, strict=True)


@pytest.mark.parametrize("forgetting", [1.0, "auto"])
@pytest.mark.parametrize("formation", FORMATIONS)
@pytest.mark.parametrize("kind", [bw.BagRidgeClassifier, bw.BagLogisticClassifier])
def test_updates_by_people_are_those_by_rows_repeated(kind, formation, forgetting):
    coef = []
    for (X, bags), (later, more) in months(formation):
        model = kind(formation=formation, cv=3, random_state=0).fit(X, bags=bags)
        before = model.coef_.copy()
        model.partial_fit(later, bags=more, forgetting=forgetting)
        coef.append(np.append(model.coef_, model.predict_proba(later[:1])))
        assert model.update_.learned
        assert not np.allclose(before, model.coef_, rtol=1e-4)
    np.testing.assert_allclose(*coef, rtol=1e-3, atol=1e-4)


def test_ridge_adds_moments_of_people():
    (X, bags), (later, more) = next(iter(months("random")))
    told = {"alphas": 0.01, "scaling": 0.5, "formation": "random", "random_state": 0}
    model = bw.BagRidgeRegressor(**told).fit(X, bags=bags).partial_fit(later, bags=more)
    ids, weight = (np.concatenate([getattr(bags, name), getattr(more, name) + plus]) for name, plus in (
        ("code", len(bags)), ("weight", 0)))  # fmt: skip
    place = np.concatenate([bags.order, len(X) + more.order])
    both = np.empty(len(ids))
    both[place] = weight
    y = np.concatenate([bags.proportion, more.proportion])[ids]
    joint = bw.BagRidgeRegressor(**told).fit(np.vstack([X, later]), bags=Bags.from_rows(y, ids).with_weights(both))
    np.testing.assert_allclose(model.coef_, joint.coef_, atol=1e-8)


def test_logistic_regression_is_updated_with_an_offset():
    """Old and new rows have an offset: nearly the fit to both; whoever else has one says that there is no update."""
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(6000, 2)), np.arange(6000) // 20
    X += rng.normal(size=(300, 2))[ids]
    offset = 1.5 * X[:, 1] + rng.normal(size=6000)
    y = rng.random(6000) < expit(X[:, 0] - 0.5 + offset)
    share = bw.aggregate(y.astype(int), ids)
    model = bw.BagLogisticClassifier(alphas=1.0, scaling=1.0, formation="features", cv=3, random_state=0)

    def part(rows):
        return X[rows], Bags.from_rows(share[rows], ids[rows]).with_offset(offset[rows])

    first, second, every = (part(rows) for rows in (slice(0, 3000), slice(3000, None), slice(None)))
    both = clone(model).fit(every[0], bags=every[1])
    alone = model.fit(first[0], bags=first[1]).free_coef_
    model.partial_fit(second[0], bags=second[1])
    assert (np.abs(model.free_coef_ - both.free_coef_) < 0.3 * both.coef_errors_).all()
    assert (np.abs(alone - both.free_coef_) > 0.3 * both.coef_errors_).any()
    assert model.intercept_ == pytest.approx(both.intercept_, abs=0.02)
    assert model.predict_proba(X, offset=offset)[:, 1].mean() == pytest.approx(y.mean(), abs=5e-3)
    boosted = bw.BagBoostingClassifier(n_estimators=3, n_fits=1, cv=2, n_jobs=1, random_state=0)
    boosted.fit(first[0], bags=first[1])
    with pytest.raises(CannotUpdateError, match="a BagBoostingClassifier with an offset cannot be updated: fit it to"):
        boosted.partial_fit(second[0], bags=second[1])
