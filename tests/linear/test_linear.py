import warnings

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import bagwise as bw
from bagwise.gains import NoBetterThanConstantWarning
from bagwise.linear.iterates import average_iterate
from bagwise.linear.moments import BagSums, Moments, solve_ridge
from bagwise.losses import debiased_square
from bagwise.theory import sgd_constants
from bagwise.utils.parameters import ParameterError


def bagged(rng, n=3000, d=5, size=None, classes=None):
    """Rows, bags (of unequal size unless given) and the proportions of labels that are linear in x plus noise."""
    X = rng.normal(size=(n, d)) * np.arange(1, d + 1) + 3
    outputs = () if classes is None else (classes,)
    y = X @ rng.normal(size=(d, *outputs)) + rng.normal(size=(n, *outputs))
    ids = rng.integers(0, n // 20, n) if size is None else bw.random_bags(n, size, rng)
    return X, y, bw.Bags.from_rows(bw.aggregate(y, ids), ids)


# -- ridge --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("scaling", [0.0, 1.0])
def test_ridge_minimises_the_debiased_loss(alpha, scaling):
    """The gradient of the penalised mean debiased loss, taken numerically, vanishes at the solution."""
    X, _, bags = bagged(np.random.default_rng(0))
    model = bw.BagRidgeRegressor(alphas=alpha, scaling=scaling).fit(X, bags=bags)
    prior = (bags.size * bags.proportion).sum() / bags.n_bagged
    centroid = bags.sum_table(X) / bags.size[:, None]
    deviation = np.sqrt(bags.size)[:, None] * (centroid - X[bags.order].mean(axis=0))
    variance = (deviation**2).mean(axis=0)
    weight = variance if scaling else np.full(5, variance.mean())

    def objective(coef, intercept):
        h = X[bags.order] @ coef + intercept
        loss = debiased_square(h, bags, prior=prior, mean=h.mean())
        return loss.mean() + alpha * (weight * coef**2).sum()

    at = objective(model.coef_, model.intercept_)
    for direction in np.vstack([np.eye(6), np.random.default_rng(1).normal(size=(5, 6))]):
        step = 1e-4 * direction
        ahead = objective(model.coef_ + step[:5], model.intercept_ + step[5])
        behind = objective(model.coef_ - step[:5], model.intercept_ - step[5])
        assert abs(ahead - behind) / 2e-4 < 1e-5
        assert ahead > at < behind


def test_ridge_on_single_rows_is_ridge():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    ours = bw.BagRidgeRegressor(alphas=0.5, scaling=0).fit(X, y)
    penalty = 50 * 0.5 * X.var(axis=0).mean()
    theirs = Ridge(alpha=penalty).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_)
    assert ours.intercept_ == pytest.approx(theirs.intercept_)


def test_moments_add_up_and_move():
    rng = np.random.default_rng(0)
    sums, size, proportion = rng.normal(size=(6, 3)), np.arange(1, 7), rng.random((6, 2))
    whole = Moments.of(sums, size, proportion)
    parts = Moments.of(sums[:2], size[:2], proportion[:2]) + Moments.of(sums[2:], size[2:], proportion[2:])
    for name in Moments.__dataclass_fields__:
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name))
        np.testing.assert_allclose(
            getattr(parts - Moments.of(sums[2:], size[2:], proportion[2:]), name),
            getattr(Moments.of(sums[:2], size[:2], proportion[:2]), name),
            atol=1e-12,
        )
    mean_x, mean_y = rng.normal(size=3), rng.normal(size=2)
    moved = whole.about(mean_x, mean_y)
    direct = Moments.of(sums - size[:, None] * mean_x, size, proportion - mean_y)
    for name in Moments.__dataclass_fields__:
        np.testing.assert_allclose(getattr(moved, name), getattr(direct, name), atol=1e-12)
    coef = rng.normal(size=(3, 2))
    plain = [k * ((a - s / k @ coef) ** 2).sum() for s, k, a in zip(sums, size, proportion, strict=True)]
    assert whole.risk(coef) == pytest.approx(np.mean(plain))


def test_cross_validated_risk_equals_refitting_by_hand():
    """p and μ of a fold's risk come from the other folds only."""
    X, _, bags = bagged(np.random.default_rng(0), n=400)
    alphas = np.array([0.01, 1.0])
    model = bw.BagRidgeRegressor(alphas=alphas, scaling=1.0, cv=4, random_state=5).fit(X, bags=bags)
    fold = np.random.default_rng(5).permutation(len(bags)) % 4
    for alpha, risk in zip(alphas, model.risks_[0], strict=True):
        losses = []
        for f in range(4):
            train, test = bags.take(fold != f), bags.take(fold == f)
            part = bw.BagRidgeRegressor(alphas=alpha, scaling=1.0).fit(
                X[train.order], bags.take(fold != f).repeat(train.proportion), bags=train.repeat(train.keys)
            )
            prior = (train.size * train.proportion).sum() / train.n_bagged
            h = X[test.order] @ part.coef_ + part.intercept_
            losses += list(debiased_square(h, test, prior=prior, mean=prior))
        assert risk == pytest.approx(np.mean(losses))


def test_more_features_than_bags_do_not_fool_the_choice():
    """With the overall mean, leaving a bag out reports a risk near 0 as soon as features outnumber bags."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(640, 60)), (rng.random(640) < 0.5).astype(float)
    ids = bw.random_bags(640, 16, random_state=0)
    model = bw.BagRidgeClassifier(cv=40, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    # Labels are coin flips, so no model has risk below 0.25, and almost no penalty overfits: √2·0.25/√40 is one s.e.
    assert (model.risks_[:, 0] > 0.25 - 2 * np.sqrt(2) * 0.25 / np.sqrt(40)).all()


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_a_large_offset_costs_no_digits(offset):
    X, _, bags = bagged(np.random.default_rng(0))
    plain = bw.BagRidgeRegressor(alphas=0.1).fit(X, bags=bags)
    moved = bw.BagRidgeRegressor(alphas=0.1).fit(X + offset, bags=bags)
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-6)


def test_constant_and_repeated_columns_are_harmless():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = X[:, 0] + rng.normal(size=400)
    doubled = np.column_stack([X, X[:, 0], np.full(400, 7.0)])
    model = bw.BagRidgeRegressor(alphas=0.0).fit(doubled, y)
    plain = bw.BagRidgeRegressor(alphas=0.0).fit(X, y)
    np.testing.assert_allclose(model.predict(doubled), plain.predict(X), atol=1e-8)
    assert model.coef_[3] == 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_features_of_any_scale_are_used(dtype):
    """A flag beside a time in milliseconds (its digits beyond single precision do not matter here)."""
    rng = np.random.default_rng(1)
    flag, time = (rng.random(32000) < 0.5).astype(float), 1.7e12 + rng.uniform(0, 2.6e9, 32000)
    y = (rng.random(32000) < 0.2 + 0.5 * flag).astype(float)
    ids = bw.random_bags(32000, 32, random_state=0)
    X = np.column_stack([flag, time]).astype(dtype)
    model = bw.BagRidgeClassifier(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.coef_[0] == pytest.approx(0.5, abs=0.1)
    assert model.score(X, y) > 0.7


def test_single_precision_loses_no_digits_in_the_sums():
    rng = np.random.default_rng(0)
    year = rng.integers(2024, 2027, 200_000).astype(np.float32)[:, None]
    y = (rng.random(200_000) < 0.2 + 0.1 * (year[:, 0] - 2024)).astype(float)
    ids = bw.random_bags(200_000, 10_000, random_state=0)
    single, double = (
        bw.BagRidgeClassifier(alphas=0.0, random_state=0).fit(year.astype(t), bw.aggregate(y, ids), bags=ids)
        for t in ("f4", "f8")
    )
    np.testing.assert_allclose(single.coef_, double.coef_, rtol=1e-6)


@pytest.mark.parametrize("size", [1e307, 1e200])
def test_numbers_too_large_are_called_so(size):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=400), size * (1 + rng.random(400))])
    with pytest.raises(ValueError, match="column 1 of X holds numbers too large"):
        bw.BagRidgeRegressor().fit(X, bw.aggregate(rng.random(400), np.arange(400) // 10), bags=np.arange(400) // 10)


def test_every_class_is_its_own_regression():
    X, _, bags = bagged(np.random.default_rng(0), classes=3)
    parts = BagSums.of(X, bags, 1, np.random.default_rng(0), None).moments(np.ones(len(bags)))
    together, *_ = solve_ridge(parts, np.array([0.1]), np.array([1.0]))
    for c in range(3):
        alone = bw.BagRidgeRegressor(alphas=0.1, scaling=1.0).fit(
            X, bags=bw.Bags.from_rows(bags.proportion[bags.code, c], bags.code)
        )
        np.testing.assert_allclose(together[:, c], alone.coef_)


def test_declared_noise_is_subtracted_from_the_risk():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(64000, 2))
    y = (X[:, 0] + rng.normal(size=64000) > 0).astype(float)
    ids = np.arange(64000) // 16
    noise = rng.normal(scale=5.0, size=4000)
    noised = bw.aggregate(y, ids) + noise[ids] / 16
    model = bw.BagRidgeClassifier(alphas=[0.01, 0.1], random_state=0)
    risk = model.fit(X, bags=bw.Bags.from_rows(noised, ids, noise_variance=25.0)).risks_.min()
    clean = model.fit(X, bw.aggregate(y, ids), bags=ids).risks_.min()
    # R²/k has variance about 2(σ² + s²/k)², so the mean over 4000 bags has standard error √2·1.7/√4000.
    assert abs(risk - clean) < 5 * np.sqrt(2) * 1.75 / np.sqrt(4000)
    assert 10 * np.sqrt(2) * 1.75 / np.sqrt(4000) < 25 / 16  # so that not subtracting would be seen


@pytest.mark.parametrize(
    "parameters",
    [{"alphas": -1.0}, {"alphas": []}, {"alphas": [0.1, np.nan]}, {"alphas": "few"}, {"cv": 1}, {"scaling": 2}],
)
def test_ridge_refuses_wrong_parameters(parameters):
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        bw.BagRidgeClassifier(**parameters).fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])


# -- Algorithm 2 --------------------------------------------------------------------------------------------------


def algorithm_2(X, bags, *, rho_w, rho_x, rho_y, risk_bound, orders, intercept):
    """The paper's listing as a plain loop, with the corrected step."""
    X = np.column_stack([X, np.ones(len(X))]) if intercept else X
    rho_x = np.hypot(rho_x, 1) if intercept else rho_x
    m = len(bags)
    mu, mu_y = X[bags.order].mean(axis=0), (bags.size * bags.proportion).sum() / bags.n_bagged
    log = [np.log(9 * k * m * (rho_w * rho_x + rho_y) ** 2 / (rho_w**2 * rho_x**2)) for k in bags.size]
    zeta = max((k * (8 / k * value) + 1) * rho_x**2 for k, value in zip(bags.size, log, strict=True))
    eta = min(rho_w / np.sqrt(4 * zeta * m * risk_bound), 1 / (4 * zeta))
    w = np.zeros(X.shape[1])
    for order in orders:
        iterates = []
        for j in order:
            iterates.append(w)
            k = bags.size[j]
            centroid = X[bags.order[bags.offsets[j] : bags.offsets[j + 1]]].mean(axis=0) - mu
            if np.linalg.norm(centroid) <= np.sqrt(8 / k * log[j]) * rho_x:
                gradient = 2 * k * (w @ centroid - (bags.proportion[j] - mu_y)) * centroid + 2 * (w @ mu - mu_y) * mu
                w = w - eta * gradient
                if np.linalg.norm(w) > rho_w:
                    w = w * rho_w / np.linalg.norm(w)
    return np.mean(iterates, axis=0)


@pytest.mark.parametrize("rho_w", [10.0, 0.3])  # 0.3: the ball is met all the time
@pytest.mark.parametrize("rho_x", [3.0, 0.05])  # 0.05: too small a bound, so that many bags are skipped
@pytest.mark.parametrize("intercept", [True, False])
def test_sgd_equals_the_plain_loop(rho_w, rho_x, intercept):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(4000, 3)) + 0.2
    y = X @ [1.0, -2.0, 0.5] + 1
    ids = rng.integers(0, 300, 4000)
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    model = bw.BagSGDRegressor(
        as_published=True,
        rho_w=rho_w,
        rho_x=rho_x,
        rho_y=4.0,
        risk_bound=0.01,
        n_passes=2,
        fit_intercept=intercept,
        random_state=7,
    ).fit(X, bags=bags)
    order = np.random.default_rng(7)
    orders = [order.permutation(len(bags)) for _ in range(2)]
    expected = algorithm_2(
        X, bags, rho_w=rho_w, rho_x=rho_x, rho_y=4.0, risk_bound=0.01, orders=orders, intercept=intercept
    )
    ours = np.append(model.coef_, model.intercept_) if intercept else model.coef_
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)
    if rho_x == 0.05 and not intercept:
        assert 0 < model.n_skipped_ < len(bags)
    if rho_w == 0.3:
        assert np.linalg.norm(ours) <= 0.3


def test_the_theorems_constants():
    size = np.array([16, 64])
    constants = sgd_constants(size, rho_w=2.0, rho_x=3.0, rho_y=1.0, risk_bound=0.2)
    theta = np.sqrt(8 / size * np.log(9 * size * 2 * (2 * 3 + 1) ** 2 / (2 * 3) ** 2))
    np.testing.assert_allclose(constants.theta, theta)
    assert constants.zeta == pytest.approx((64 * theta[1] ** 2 + 1) * 9)
    assert constants.step == pytest.approx(min(2 / np.sqrt(4 * constants.zeta * 2 * 0.2), 1 / (4 * constants.zeta)))


def test_the_bag_loss_is_two_zeta_smooth_and_not_zeta_smooth():
    """The paper's lemma has half the Hessian: a bag at the truncation threshold exceeds ζ but never 2ζ."""
    rho_x, k = 1.0, 8
    constants = sgd_constants(np.full(50, k), rho_w=1.0, rho_x=rho_x, rho_y=1.0, risk_bound=0.1)
    c = np.array([constants.theta[0] * rho_x, 0.0])  # a centroid at the threshold
    mu = np.array([0.0, rho_x])

    def loss(w):
        return k * (w @ c - 0.3) ** 2 + (w @ mu - 0.2) ** 2

    step = 1e-3 * c / np.linalg.norm(c)
    curvature = (loss(step) - 2 * loss(np.zeros(2)) + loss(-step)) / 1e-6
    assert curvature > constants.zeta
    assert curvature <= 2 * constants.zeta * (1 + 1e-6)


@pytest.mark.slow
def test_the_excess_risk_bound_holds(seed):
    """E[L(w̄)] − L(w*) ≤ 9k(ρ_wρ_x+ρ_y)²δ + ρ_w²/(ηm) + 4ζηL*, with the corrected constants, over repetitions.

    There are so many bags that w = 0, where the steps start, breaks the bound: it is the learning that is tested.
    """
    rng = np.random.default_rng(seed)
    k, m, best = 2, 400_000, np.array([1.0, -1.0]) / np.sqrt(2)
    rho_w = rho_x = rho_y = 1.0
    excess = []
    for _ in range(2):
        X = rng.uniform(-1, 1, size=(k * m, 2)) / np.sqrt(2)
        y = X @ best
        ids = np.arange(k * m) // k
        model = bw.BagSGDRegressor(
            as_published=True,
            rho_w=rho_w,
            rho_x=rho_x,
            rho_y=rho_y,
            risk_bound=1e-6,
            fit_intercept=False,
            random_state=0,
        ).fit(X, bw.aggregate(y, ids), bags=ids)
        excess.append((((model.coef_ - best) ** 2) / 6).sum())  # E[x xᵀ] = I/6
    delta = 1 / (9 * k * m * 4)
    bound = 9 * k * 4 * delta + rho_w**2 / (model.step_ * m) + 4 * model.zeta_ * model.step_ * 1e-6
    assert bound < (best**2 / 6).sum()
    assert np.mean(excess) < bound


def test_means_of_the_data_can_be_given():
    X, _, bags = bagged(np.random.default_rng(0), n=2000)
    mean = X[bags.order].mean(axis=0)
    prior = float((bags.size * bags.proportion).sum() / bags.n_bagged)
    estimated = bw.BagSGDRegressor(as_published=True, random_state=0).fit(X, bags=bags)
    given = bw.BagSGDRegressor(as_published=True, random_state=0, mu_x=mean, mu_y=prior).fit(X, bags=bags)
    np.testing.assert_allclose(given.coef_, estimated.coef_)
    other = bw.BagSGDRegressor(as_published=True, random_state=0, mu_x=mean + 1, mu_y=prior).fit(X, bags=bags)
    assert not np.allclose(other.coef_, estimated.coef_)
    with pytest.raises(ParameterError, match="mu_x"):
        bw.BagSGDRegressor(as_published=True, mu_x=[0.0]).fit(X, bags=bags)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_bound_on_the_risk_is_a_bound(intercept):
    """The constant p is a model only where there is an intercept; otherwise the model 0 is the one to beat."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 1)), 4 + 0.1 * rng.normal(size=4000)
    model = bw.BagSGDRegressor(as_published=True, fit_intercept=intercept, random_state=0).fit(X, y)
    assert model.risk_bound_ == pytest.approx(0.01 if intercept else 16.01, rel=0.1)


def test_rows_in_no_bag_do_not_set_the_bound_on_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)), rng.random(400)
    ids = np.r_[np.arange(390) // 10, np.full(10, -1)]
    plain = bw.BagSGDRegressor(as_published=True, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    X[395], X[396] = np.nan, 1e9
    same = bw.BagSGDRegressor(as_published=True, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    np.testing.assert_array_equal(same.coef_, plain.coef_)


def test_sgd_finds_what_ridge_finds_given_passes():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(20000, 3))
    y = (rng.random(20000) < 0.5 + X @ [0.3, -0.1, 0.0]).astype(float)
    ids = bw.random_bags(20000, 10, random_state=0)
    y_bag = bw.aggregate(y, ids)
    sgd = bw.BagSGDClassifier(as_published=True, n_passes=100, random_state=0).fit(X, y_bag, bags=ids)
    ridge = bw.BagRidgeClassifier(alphas=0.0).fit(X, y_bag, bags=ids)
    np.testing.assert_allclose(sgd.coef_, ridge.coef_, atol=0.02)


@pytest.mark.parametrize("radius", [100.0, 0.9])  # 0.9: the ball is met in most blocks
@pytest.mark.parametrize("m", [1, 63, 64, 65, 130])
def test_blocks_of_steps_are_exact_at_their_edges(m, radius):
    rng = np.random.default_rng(m)
    rows, targets, mean = rng.normal(size=(m, 4)), rng.normal(size=m), rng.normal(size=4)
    weights, start = rng.integers(1, 4, m).astype(float), np.full(4, 0.4)
    total, last = average_iterate(rows, targets, mean, 0.3, weights=weights, start=start, step=0.01, radius=radius)
    w, plain = start, np.zeros(4)
    for j in range(m):
        plain += weights[j] * w
        w = w - 0.02 * (rows[j] * (rows[j] @ w - targets[j]) + mean * (mean @ w - 0.3))
        w = w * min(1.0, radius / np.linalg.norm(w))
    np.testing.assert_allclose(last, w)
    np.testing.assert_allclose(total, plain)


@pytest.mark.parametrize("name", ["rho_w", "rho_x", "rho_y", "risk_bound"])
@pytest.mark.parametrize("value", [0, -1, np.inf, "1"])
def test_sgd_refuses_wrong_parameters(name, value):
    with pytest.raises(ParameterError, match=name):
        bw.BagSGDRegressor(as_published=True, **{name: value}).fit([[0.0], [1.0]], [0, 1])


def test_sgd_refuses_no_passes():
    with pytest.raises(ParameterError, match="n_passes"):
        bw.BagSGDRegressor(as_published=True, n_passes=0).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.slow
def test_noised_bags_never_make_ridge_worse():
    """Three quarters of the bags noised, the more the less they count: the exact quarter alone is no better."""
    weights, wrong = np.array([0.1, -0.05, 0.05, 0.0]), {"all": [], "exact": []}
    for seed in range(30):
        rng = np.random.default_rng(seed)
        X, ids = rng.normal(size=(8000, 4)), bw.random_bags(8000, 40, random_state=seed)
        counts = np.bincount(ids, weights=rng.random(8000) < 0.3 + X @ weights)
        noised = np.arange(200) % 4 > 0
        for variance in (25.0, 100.0, 400.0):
            reported = (counts + noised * rng.normal(0, np.sqrt(variance), size=200)) / 40
            noise = np.where(noised, variance, 0.0)
            everything = bw.Bags.from_rows(reported[ids], ids, noise_variance=noise[ids])
            for name, bags in (("all", everything), ("exact", everything.take(~noised))):
                model = bw.BagRidgeRegressor(alphas=0.01, scaling=1.0, random_state=0).fit(X, bags=bags)
                wrong[name].append(((model.coef_ - weights) ** 2).sum())
    everything, exact = (np.reshape(wrong[name], (30, 3)) for name in ("all", "exact"))
    more = everything - exact
    assert (more.mean(axis=0) < 2 * more.std(axis=0) / np.sqrt(30)).all()
    assert everything[:, 0].mean() < 0.75 * exact[:, 0].mean()


def by_rates(rng, k, m):
    """Mixtures of two normal classes, bags differing in how much of each they hold."""
    ids = np.repeat(np.arange(m), k)
    y = (rng.random(k * m) < rng.uniform(0.05, 0.6, size=m)[ids]).astype(float)
    return rng.normal(size=(k * m, 3)) + y[:, None] * [1.5, -1.0, 0.0], y, ids


def test_where_rates_differ_ridge_is_least_squares_on_rows():
    X, y, ids = by_rates(np.random.default_rng(0), 200, 150)
    model = bw.BagRidgeClassifier(alphas=1e-9, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.formation_.name == "rates"
    rows = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y)[0]
    np.testing.assert_allclose(model.coef_, rows[:-1], atol=0.03)  # slopes of 150 bag means: ± 0.006
    assert model.intercept_ == pytest.approx(rows[-1], abs=0.01)
    on_bags = bw.BagRidgeClassifier(alphas=1e-9, formation="random", random_state=0)
    on_bags.fit(X, bw.aggregate(y, ids), bags=ids)
    assert np.abs(on_bags.coef_ - rows[:-1]).max() > 0.1


def test_a_risk_that_random_bags_cannot_have_is_told():
    _, y, ids = by_rates(np.random.default_rng(0), 200, 150)
    model = bw.BagRidgeClassifier(formation="random", random_state=0)
    with pytest.warns(UserWarning, match=r"impossible for random bags: their formation"):
        model.fit(np.random.default_rng(1).normal(size=(len(y), 2)), bw.aggregate(y, ids), bags=ids)


def test_risks_that_noise_explains_are_not_told():
    rng, ids = np.random.default_rng(0), np.repeat(np.arange(200), 8)
    for _ in range(10):
        count = rng.binomial(8, 0.1, size=200) + rng.normal(scale=3.0, size=200)
        bags = bw.Bags.from_rows((count / 8)[ids], ids, noise_variance=np.full(1600, 9.0))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            bw.BagRidgeClassifier(formation="random", random_state=0).fit(rng.normal(size=(1600, 2)), bags=bags)
        assert {one.category for one in told} <= {NoBetterThanConstantWarning}


@pytest.mark.parametrize("k", [8, 64])
def test_probabilities_of_ridge_are_probabilities(k):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(12_800, 3))
    y = (rng.random(12_800) < 1 / (1 + np.exp(1 - 2 * X[:, 0]))).astype(float)
    ids = bw.random_bags(12_800, k, random_state=0)
    model = bw.BagRidgeClassifier(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    h = model.predict_proba(X)[:, 1]
    assert model.sigmoid_ is not None
    assert 0 < h.min() <= h.max() < 1
    assert h.mean() == pytest.approx(y.mean(), abs=0.01)
    constant = -(y.mean() * np.log(y.mean()) + (1 - y.mean()) * np.log(1 - y.mean()))
    assert -(y * np.log(h) + (1 - y) * np.log(1 - h)).mean() < 0.9 * constant
    assert model.gain_ > 3 * model.gain_error_ > 0
    np.testing.assert_array_equal(model.predict(X), h > 0.5)


@pytest.mark.parametrize("kind", [bw.BagRidgeClassifier, bw.BagSGDClassifier])
def test_probabilities_of_few_bags_have_the_mean_of_the_labels(kind):
    X, y, ids = by_rates(np.random.default_rng(2), 100, 40)
    y_bag = bw.aggregate(y, ids)
    model = kind(formation="features", random_state=0).fit(X, y_bag, bags=ids)
    h = model.predict_proba(X)[:, 1]
    assert h.mean() == pytest.approx(y.mean(), abs=1e-3)
    assert 0 < h.min() <= h.max() < 1
    np.testing.assert_array_equal(model.predict(X), h > 0.5)
    # No steeper than h itself, whose slope by w·x is that of log odds of p.
    assert 0 < model.sigmoid_[0] <= 1 / (y.mean() * (1 - y.mean())) * (1 + 1e-9)


@pytest.mark.parametrize("kind", [bw.BagRidgeClassifier, bw.BagSGDClassifier])
def test_probabilities_have_the_mean_of_all_labels_where_some_bags_are_looked_at(kind):
    """More rows than probabilities are chosen on, in bags whose rates differ widely."""
    rng = np.random.default_rng(3)
    rates = rng.uniform(0.05, 0.9, size=60)
    y = (rng.random((60, 1200)) < rates[:, None]).astype(float).ravel()
    X, ids = np.column_stack([y + rng.normal(size=y.size), rng.normal(size=y.size)]), np.arange(y.size) // 1200
    model = kind(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=1e-3)


def test_grouped_bags_choose_the_penalty_by_likelihood():
    """Bags made by one feature: least held-out square error leaves the others wild, which rows show and bags do not."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(12_800, 6)) @ (np.eye(6) + 0.3)
    y = (rng.random(12_800) < 1 / (1 + np.exp(1 - 2 * X[:, 0]))).astype(float)
    ids = np.argsort(np.argsort(X[:, 0])) // 200
    model = bw.BagRidgeClassifier(formation="features", random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    by_risk = model.alphas_[np.argmin(model.risks_[list(model.scalings_).index(model.scaling_)])]
    assert model.alpha_ in model.alphas_
    assert model.alpha_ != by_risk
    h = model.predict_proba(X)[:, 1]
    assert ((h - y) ** 2).mean() < 0.8 * y.var()


def test_ridge_that_found_nothing_shrinks_to_the_constant():
    rng = np.random.default_rng(3)
    X, y, ids = rng.normal(size=(6400, 20)), (rng.random(6400) < 0.3).astype(float), np.arange(6400) // 64
    with pytest.warns(NoBetterThanConstantWarning):
        model = bw.BagRidgeClassifier(alphas=1e-6, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    assert ((model.predict_proba(X)[:, 1] - y.mean()) ** 2).mean() < 0.02


def test_moments_say_what_they_do_not_tell():
    X, y, ids = by_rates(np.random.default_rng(4), 50, 200)
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    model = bw.BagRidgeClassifier()
    sums = BagSums.of(X, bags, model.n_folds(len(bags)), np.random.default_rng(0), None)
    model.fit_moments(sums.moments(np.ones(len(bags))), sums.origin)
    assert "moments alone tell no more" in str(model.formation_)
    assert model.sigmoid_ is None
    assert np.isnan(model.gain_)
    assert set(model.formation_.others) == {"rates", "effects"}


@pytest.mark.parametrize("k", [16, 64, 256])
def test_gradient_steps_beat_the_constant(k):
    rng = np.random.default_rng(k)
    X = rng.normal(size=(25_600, 8)) * [1, 1, 1, 1, 5, 5, 20, 100] + 50
    truth = 1 / (1 + np.exp(1 - (X[:, 0] - 50) + (X[:, 6] - 50) / 20))
    ids = bw.random_bags(25_600, k, random_state=0)
    y_bag = bw.aggregate(rng.random(25_600) < truth, ids)
    model = bw.BagSGDClassifier(random_state=0).fit(X, y_bag, bags=ids)
    h = model.predict_proba(X)[:, 1]
    assert ((h - truth) ** 2).mean() < 0.5 * truth.var()
    assert 0 < h.min() <= h.max() < 1
    assert h.mean() == pytest.approx(y_bag.mean(), abs=0.01)
    np.testing.assert_array_equal(model.predict(X), h > 0.5)
