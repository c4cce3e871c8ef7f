"""Logistic regression by the count likelihood: against ordinary supervision, in every formation, and its errors."""

import warnings

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import bagwise as bw
from bagwise import Bags, aggregate, random_bags
from bagwise.gains import NoBetterThanConstantWarning
from bagwise.linear import design as design_module
from bagwise.linear import likelihood, penalties
from bagwise.linear.design import Design
from bagwise.linear.logistic import BagLogisticClassifier
from bagwise.linear.penalties import penalty_of

WEIGHTS = np.array([1.5, -1.0, 0.5, 0.0])


def labelled(n, rng, effect=0.0):
    X = rng.normal(size=(n, 4))
    return X, (rng.random(n) < expit(X @ WEIGHTS - 1 + effect)).astype(float)


def by_rates(rng, k, m, low=0.05, high=0.6):
    X, y = labelled(8 * k * m, rng)
    ones, zeros = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    counts = rng.binomial(k, rng.uniform(low, high, size=m))
    taken = np.concatenate([ones[: counts.sum()], zeros[: k * m - counts.sum()]])
    ids = np.concatenate([np.repeat(np.arange(m), counts), np.repeat(np.arange(m), k - counts)])
    return X[taken], y[taken], ids


def by_features(rng, k, m, effects=0.0):
    ids = np.arange(k * m) // k
    X = 0.7 * rng.normal(size=(m, 4))[ids] + 0.7 * rng.normal(size=(k * m, 4))
    u = rng.normal(0, effects, size=m) if effects else np.zeros(m)
    return X, (rng.random(k * m) < expit(X @ WEIGHTS - 1 + u[ids])).astype(float), ids


def at_random(rng, k, m):
    X, y = labelled(k * m, rng)
    return X, y, random_bags(k * m, k, random_state=rng)


FORMATIONS = {"random": at_random, "rates": by_rates, "features": by_features}
every_formation = pytest.mark.parametrize("formation", FORMATIONS)


def fitted(X, y, ids, **options):
    return BagLogisticClassifier(random_state=0, **options).fit(X, aggregate(y, ids), bags=ids)


def test_singletons_are_logistic_regression():
    X, y = labelled(2000, np.random.default_rng(0))
    model = BagLogisticClassifier(alphas=1e-3, scaling=1.0, random_state=0).fit(X, y)
    plain = LogisticRegression(C=1e9, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coef_, plain.coef_[0], rtol=1e-4)
    assert model.intercept_ == pytest.approx(plain.intercept_[0], rel=1e-3)
    information = np.linalg.inv(_information(X, plain.predict_proba(X)[:, 1]))
    np.testing.assert_allclose(model.coef_errors_, np.sqrt(np.diag(information))[:-1], rtol=0.15)


def _information(X, h):
    Z = np.column_stack([X, np.ones(len(X))])
    return (Z * (h * (1 - h))[:, None]).T @ Z


@every_formation
def test_weights_are_found_in_every_formation(formation):
    rng = np.random.default_rng(1)
    X, y, ids = FORMATIONS[formation](rng, 32, 600)
    model = fitted(X, y, ids, cv=2)
    assert model.formation_.name == formation
    assert (np.abs(model.free_coef_ - WEIGHTS) < 4 * model.coef_errors_).all()
    assert np.abs(model.coef_ - WEIGHTS).max() < 0.35
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=1e-6)


@every_formation
def test_hessian_and_gradient_are_derivatives(formation):
    rng = np.random.default_rng(2)
    X, y, ids = FORMATIONS[formation](rng, 40, 60)
    bags = Bags.from_rows(aggregate(y, ids), ids)
    design, p = Design.of(X, bags), float(y.mean())
    w = 0.8 * WEIGHTS * design.scale

    def at(w):
        return likelihood.point(design, w, p, 0.0)

    found, step = likelihood.system(design, at(w)), 1e-4
    for c, unit in enumerate(np.eye(4)):
        slope = (at(w + step * unit).value - at(w - step * unit).value) / (2 * step)
        assert found.gradient[c] == pytest.approx(slope, rel=1e-3, abs=1e-3)
        up, down = (likelihood.system(design, at(w + sign * step * unit)).gradient for sign in (1, -1))
        scale = np.abs(found.hessian[:-1, :-1]).max()
        np.testing.assert_allclose(found.hessian[:-1, c], (down - up) / (2 * step), atol=0.02 * scale)


def test_pieces_do_not_change_the_sums(monkeypatch):
    rng = np.random.default_rng(3)
    X, y, ids = by_features(rng, 30, 50)
    shuffled = rng.permutation(len(X))
    sums = []
    for rows, piece in ((np.arange(len(X)), 2**20), (shuffled, 500)):
        monkeypatch.setattr(design_module, "_PIECE", piece)
        design = Design.of(X[rows].astype(np.float32), Bags.from_rows(aggregate(y, ids)[rows], ids[rows]))
        point = likelihood.point(design, np.ones(4), float(y.mean()), 0.0)
        sums.append(likelihood.system(design, point))
    np.testing.assert_allclose(sums[0].hessian, sums[1].hessian, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(sums[0].gradient, sums[1].gradient, rtol=1e-4, atol=1e-3)


def test_the_penalty_has_the_maximum_that_it_should():
    """At the maximum the gradient is the penalty's."""
    X, y, ids = at_random(np.random.default_rng(4), 16, 300)
    design = Design.of(X, Bags.from_rows(aggregate(y, ids), ids))
    penalty = penalty_of(design, 20.0, 0.5)
    at = likelihood.maximise(design, float(y.mean()), penalty, close=1e-9)
    np.testing.assert_allclose(likelihood.system(design, at).gradient, penalty * at.w, atol=1e-3)


def test_two_mixtures_are_told_apart_as_well_as_by_a_classifier_of_bags():
    rng = np.random.default_rng(5)
    X, y = labelled(40_000, rng)
    ids = np.where(y == 1, rng.random(40_000) < 0.7, rng.random(40_000) < 0.3).astype(int)
    test, truth = labelled(20_000, rng)
    model = fitted(X, y, ids)
    told = LogisticRegression().fit(X, ids)
    found, best = (roc_auc_score(truth, one.predict_proba(test)[:, 1]) for one in (model, told))
    assert abs(found - best) < 0.02
    assert "too few" in str(model.formation_)


def test_effects_are_found_and_do_no_harm():
    rng = np.random.default_rng(6)
    X, y, ids = by_features(rng, 256, 120, effects=1.0)
    model = fitted(X, y, ids, formation="effects")
    assert 0.3 <= model.effect_variance_ <= 3
    on_average = WEIGHTS / np.sqrt(1 + 0.346)  # over bags: σ(s + u) with u of variance 1 is about σ(s / √1.346)
    assert np.abs(model.free_coef_ - on_average).max() < 0.4
    assert model.effects_.std() == pytest.approx(1, abs=0.3)
    test, truth = labelled(20_000, rng)
    h = model.predict_proba(test)[:, 1]
    assert ((h - truth) ** 2).mean() < truth.var()


@pytest.mark.slow
def test_effects_that_features_do_not_explain_are_not_taken_for_wide_scores():
    """Scores that vary more make counts vary less: what is gained where effects are taken for too large is none."""
    spread = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, ids = rng.normal(size=(6400, 10)), np.arange(6400) // 64
        y = (rng.random(6400) < expit(rng.normal(size=100)[ids])).astype(float)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoBetterThanConstantWarning)
            spread.append(fitted(X, y, ids).predict_proba(X)[:, 1].var())
    assert np.mean(spread) < 0.001  # the square error above that of the mean label


def test_nothing_to_learn_is_told():
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(6400, 5)), (rng.random(6400) < 0.3).astype(float)
    ids = random_bags(6400, 64, random_state=0)
    with pytest.warns(NoBetterThanConstantWarning, match="do not clearly prefer"):
        model = fitted(X, y, ids)
    assert model.gain_ <= model.gain_error_
    assert np.abs(model.predict_proba(X)[:, 1] - y.mean()).max() < 0.15
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoBetterThanConstantWarning)
        fitted(*at_random(rng, 16, 400))


def sparse(rng, m, k=16, d=60):
    """A few weights of many are anything."""
    X, weights = rng.normal(size=(m * k, d)), np.zeros(d)
    weights[:4] = [1.5, -1.0, 1.0, -0.7]
    y = (rng.random(m * k) < expit(X @ weights - 1)).astype(float)
    return X, y, random_bags(m * k, k, random_state=rng), weights


def test_large_weights_bear_less_of_the_penalty_where_held_out_bags_like_that():
    X, y, ids, weights = sparse(np.random.default_rng(0), 600)
    model, plain = fitted(X, y, ids), fitted(X, y, ids, scaling=1.0)
    assert model.penalties_[:4].max() < model.penalties_[4:].min()
    assert 1 / np.mean(1 / model.penalties_) == pytest.approx(model.alpha_)
    np.testing.assert_allclose(plain.penalties_, plain.alpha_, rtol=1e-9)
    assert model.gain_ > plain.gain_
    assert ((model.coef_ - weights) ** 2).sum() < 0.6 * ((plain.coef_ - weights) ** 2).sum()


def test_penalties_stay_alike_where_weights_are_or_bags_are_few():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(9600, 30))
    labels = (rng.random(9600) < expit(rows @ np.full(30, 0.3))).astype(float)
    alike = rows, labels, random_bags(9600, 16, random_state=rng)
    for X, y, ids in (alike, sparse(rng, 24)[:3]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoBetterThanConstantWarning)
            model = fitted(X, y, ids)
            given = fitted(X, y, ids, scaling=model.scaling_)
        np.testing.assert_allclose(model.penalties_ / model.alpha_, given.penalties_ / given.alpha_, rtol=1e-9)


def test_updates_penalise_as_the_fit_did():
    X, y, ids, _ = sparse(np.random.default_rng(0), 900)
    first = ids < 600
    model = fitted(X[first], y[first], ids[first])
    before = model.penalties_ / model.alpha_
    later = ids[~first] - 600
    model.partial_fit(X[~first], aggregate(y[~first], later), bags=later)
    np.testing.assert_allclose(model.penalties_ / model.alpha_, before, rtol=1e-9)
    assert before.max() > 5 * before.min()


def few_bags(rng, m=30, d=40):
    """Fewer bags than features, which say nothing of labels."""
    X, ids = rng.normal(size=(32 * m, d)), np.arange(32 * m) // 32
    return X, aggregate((rng.random(32 * m) < 0.3).astype(float), ids), ids


@pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")
def test_held_out_bags_are_unknown_to_fits_that_could_have_learned_them_by_heart():
    """So light a penalty has many maxima: from the fit to all bags on, one would be found that knows all of them."""
    X, y, ids = few_bags(np.random.default_rng(0))
    model = BagLogisticClassifier(formation="random", alphas=0.1, random_state=0).fit(X, y, bags=ids)
    assert model.gain_ < 0.05
    assert model.stretch_ < 0.2


@pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")
def test_few_bags_choose_from_plausible_penalties():
    X, y, ids = few_bags(np.random.default_rng(0))
    assert 2 <= BagLogisticClassifier(formation="random", random_state=0).fit(X, y, bags=ids).alpha_ <= 200
    given = BagLogisticClassifier(formation="random", alphas=[1e4, 1e5], random_state=0).fit(X, y, bags=ids)
    assert given.alpha_ >= 1e4


@pytest.mark.slow
def test_few_bags_that_tell_much_are_not_penalised_for_a_stretch_to_make_up_for():
    rng = np.random.default_rng(0)
    m, k, d = 60, 300, 24
    X = (rng.normal(size=(m, 1, d)) + rng.normal(size=(m, k, d))).reshape(-1, d)
    y = (rng.random(m * k) < expit(X @ rng.normal(size=d, scale=0.3))).astype(float)
    ids = np.repeat(np.arange(m), k)
    model = BagLogisticClassifier(formation="features", random_state=0).fit(X, aggregate(y, ids), bags=ids)
    assert abs(model.stretch_ - 1) < 0.01


@pytest.mark.slow
def test_noised_bags_never_make_it_worse():
    """Three quarters of the bags noised, the more the less they count: the exact quarter alone is no better."""
    errors = {"all": [], "exact": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y, ids = at_random(rng, 40, 400)
        noised = np.arange(400) % 4 > 0
        counts, exact = np.bincount(ids, weights=y), ~noised[ids]
        models = [("exact", fitted(X[exact], y[exact], ids[exact], cv=2))]
        for variance in (25.0, 400.0):
            reported = (counts + noised * rng.normal(0, np.sqrt(variance), size=400)) / 40
            noise = np.where(noised, variance, 0.0)
            everything = Bags.from_rows(reported[ids], ids, noise_variance=noise[ids])
            models.append(("all", BagLogisticClassifier(cv=2, random_state=0).fit(X, bags=everything)))
        for name, model in models:
            errors[name].append(np.mean((model.predict_proba(X)[:, 1] - expit(X @ WEIGHTS - 1)) ** 2))
    assert np.mean(errors["all"]) < 1.05 * np.mean(errors["exact"])


def test_several_classes():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(4000, 3))
    s = np.column_stack([2 * X[:, 0], 2 * X[:, 1], 2 * X[:, 2]])
    labels = (s + rng.gumbel(size=s.shape)).argmax(axis=1)
    ids = random_bags(4000, 10, random_state=0)
    model = BagLogisticClassifier(random_state=0).fit(X, aggregate(np.eye(3)[labels], ids), bags=ids)
    assert model.score(X, labels) > 0.97 * np.mean(s.argmax(axis=1) == labels)
    h = model.predict_proba(X)
    np.testing.assert_allclose(h.mean(axis=0), np.bincount(labels) / 4000, atol=0.01)


def test_reports_of_bags_are_added_up_to():
    rng = np.random.default_rng(9)
    X, y, ids = by_features(rng, 40, 50)
    ids[:7] = -1
    bags = Bags.from_rows(aggregate(y, ids), ids)
    for model in (fitted(X, y, ids, formation="features"), bw.BagRidgeClassifier(random_state=0).fit(X, bags=bags)):
        known = model.predict_proba(X, bags=bags)[:, 1]
        h = model.predict_proba(X)[:, 1]
        np.testing.assert_array_equal(known[:7], h[:7])
        if getattr(model, "effect_variance_", 0.0) == 0:
            np.testing.assert_allclose(bags.sum(known[bags.order]), bags.size * bags.proportion, atol=1e-6)
        assert ((known - y) ** 2).mean() < ((h - y) ** 2).mean()
    with pytest.raises(ValueError, match=r"built on 2000 rows but X has 10"):
        model.predict_proba(X[:10], bags=bags)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"formation": "grouped"}, "formation"),
        ({"alphas": -1}, "alphas"),
        ({"cv": 1}, "cv"),
        ({"scaling": 2}, "scaling"),
    ],
)
def test_wrong_parameters_are_named(options, named):
    X, y, ids = at_random(np.random.default_rng(0), 8, 20)
    with pytest.raises(ValueError, match=rf"^{named} must be"):
        fitted(X, y, ids, **options)


@pytest.mark.parametrize("scaling", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("alpha", [1.0, 100.0])
def test_a_penalty_that_is_given_is_the_one_that_is_used(alpha, scaling):
    rng = np.random.default_rng(0)
    X, y, ids = at_random(rng, 8, 60)
    model = fitted(X * rng.uniform(0.1, 5, X.shape[1]), y, ids, alphas=alpha, scaling=scaling, formation="random")
    assert (model.alpha_, model.scaling_) == (pytest.approx(alpha), scaling)


def test_counts_must_be_whole():
    X, _, ids = at_random(np.random.default_rng(0), 8, 20)
    with pytest.raises(ValueError, match=r"bag 0 of 8 rows reports a count of 2\.4, which is no whole number"):
        BagLogisticClassifier().fit(X, np.full(160, 0.3), bags=ids)


COVERED = {
    "random, small bags": (at_random, 20, 200, {"formation": "random"}),
    "random, large bags": (at_random, 200, 100, {"formation": "random"}),
    "rates": (by_rates, 50, 60, {"formation": "rates"}),
    "features": (by_features, 30, 100, {"formation": "features"}),
}


def covered(case, seed):
    draw, k, m, options = COVERED[case]
    X, y, ids = draw(np.random.default_rng(seed), k, m)
    low, high = fitted(X, y, ids, alphas=10.0, scaling=1.0, cv=2, **options).coef_interval()
    return np.mean((low < WEIGHTS) & (high > WEIGHTS))


@pytest.mark.slow
@pytest.mark.parametrize("case", COVERED)
def test_intervals_cover_in_every_formation(case):
    """At least 93 %, five standard errors of the simulation allowed."""
    shares = np.array([covered(case, seed) for seed in range(400)])
    assert shares.mean() >= 0.93 - 5 * shares.std(ddof=1) / 20


def test_intervals_cover_in_a_few_draws():
    shares = np.array([covered("random, small bags", seed) for seed in range(12)])
    assert shares.mean() > 0.75  # 45 of 48 are expected; 36 would be by chance in one of 10⁵ simulations


def test_intervals_are_told_where_there_are_none():
    X, y, ids = at_random(np.random.default_rng(1), 40, 400)
    model = fitted(X, y, ids)
    low, high = model.coef_interval(0.5)
    assert ((low < model.free_coef_) & (model.free_coef_ < high)).all()
    wider = model.coef_interval(0.99)
    assert (wider[0] < low).all()
    with pytest.raises(ValueError, match=r"^level must be"):
        model.coef_interval(1.0)
    few = BagLogisticClassifier(random_state=0).fit(
        X[:160], bags=Bags.from_rows(np.repeat([0.2, 0.4, 0.3, 0.5], 40), np.arange(160) // 40)
    )
    assert np.isinf(few.coef_interval()).all()


@pytest.mark.parametrize("kind", ["BagLogisticClassifier", "BagMeanMapClassifier"])
def test_saved_models_come_back(tmp_path, kind):
    X, y, ids = at_random(np.random.default_rng(2), 16, 100)
    model = getattr(bw, kind)(random_state=0).fit(X, aggregate(y, ids), bags=ids)
    bw.save(model, tmp_path / "model")
    again = bw.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.formation_ == model.formation_
    assert set(vars(again)) == set(vars(model))


@pytest.mark.slow
@pytest.mark.parametrize("k", [64, 512])
@pytest.mark.parametrize("spread", [0.25, 0.5, 1.0])
def test_unseen_effects_of_bags_never_make_it_worse_than_the_constant(k, spread):
    """Random rows, bags with effects of their own; measured on fresh rows without and with new effects."""
    over = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, ids = rng.normal(size=(k * 64, 4)), np.arange(k * 64) // k
        y = (rng.random(len(X)) < expit(X @ WEIGHTS - 1 + rng.normal(0, spread, 64)[ids])).astype(float)
        h_of = fitted(X, y, ids).predict_proba
        fresh = rng.normal(size=(20_000, 4))
        for effect in (0.0, rng.normal(0, spread, 20_000)):
            label = rng.random(20_000) < expit(fresh @ WEIGHTS - 1 + effect)
            over.append(np.mean((h_of(fresh)[:, 1] - label) ** 2) - np.mean((y.mean() - label) ** 2))
    assert np.mean(over) <= 0


def test_penalties_are_chosen_on_enough_bags_where_these_are_large(monkeypatch):
    """A large bag with an effect of its own says little more than a small one: few rows would be few bags."""
    monkeypatch.setattr(penalties, "CHOICE_ROWS", 2_000)
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(60), 400)
    group = rng.random(len(bag)) < np.repeat(rng.uniform(0.1, 0.9, 60), 400)
    y = rng.random(len(bag)) < expit(-1 + 2.5 * group + rng.normal(scale=0.6, size=60)[bag])
    X, share = group[:, None].astype(float), (np.bincount(bag, y) / 400)[bag]
    design = penalties.Design.of(X, bw.Bags.from_rows(share, bag))
    found = penalties.choose(design, 5, rng, penalties.ALPHAS, penalties.SCALINGS, effects=True)
    assert len(found.gains) == 60  # every bag was held out once, not those that 2,000 rows make
