"""The label-free risk, written once: its laws, and that those who keep a form of their own agree with it."""

from dataclasses import replace

import numpy as np
import pytest

import bagwise as bw
from bagwise.boosting.tuning import Path
from bagwise.expectations import Expectations
from bagwise.folds import Fold, folds_of
from bagwise.linear.moments import BagSums, Moments
from bagwise.losses import clip_threshold, debiased_square
from bagwise.risk import bag_losses, clearly_above, held_out_losses, held_out_risk, least_of, own_risk, training_prior
from bagwise.utils.rng import generator


def some_bags(rng, *, classes=0, noised=False, m=12):
    """Bags of 1 to 9 rows, with predictions in table order: (n,), or (n, classes)."""
    ids = rng.permutation(np.repeat(np.arange(m), rng.integers(1, 10, m)))
    h = rng.dirichlet(np.ones(classes), len(ids)) if classes else rng.random(len(ids))
    y = rng.multinomial(1, h) if classes else (rng.random(len(ids)) < h).astype(float)
    noise = rng.uniform(0, 5, m)[ids] if noised else None
    return h, bw.Bags.from_rows(bw.aggregate(y, ids), ids, noise_variance=noise)


@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("noised", [False, True])
@pytest.mark.parametrize("clipped", [False, True])
def test_losses_equal_a_plain_loop(classes, noised, clipped):
    rng = np.random.default_rng(0)
    h, bags = some_bags(rng, classes=classes, noised=noised)
    p, mean = rng.random(max(classes, 1)), rng.random(max(classes, 1))
    clip = np.full(len(bags), 0.8) if clipped else None
    expected, beyond = np.zeros(len(bags)), 0
    for j, c in np.ndindex(len(bags), max(classes, 1)):
        rows, k = bags.order[bags.offsets[j] : bags.offsets[j + 1]], bags.size[j]
        r = k * (bags.outputs[j, c] - p[c]) - sum(h.reshape(len(h), -1)[i, c] - mean[c] for i in rows)
        beyond += abs(r) > 0.8
        square = 0.0 if clipped and abs(r) > 0.8 else r**2 / k
        expected[j] += square + (mean[c] - p[c]) ** 2 - (bags.noise_variance[j] / k if noised else 0.0)
    assert 0 < beyond < expected.size * max(classes, 1)
    given = {"prior": p if classes else p[0], "mean": mean if classes else mean[0]}
    found = bag_losses(bags.sum_table(h), bags.size, bags.proportion, **given, noise=bags.noise_per_row, clip=clip)
    np.testing.assert_allclose(found, expected)


def test_several_models_are_kept_apart():
    h, bags = some_bags(np.random.default_rng(0), classes=3, noised=True)
    sums, given = bags.sum_table(h), {"prior": 0.2, "mean": 0.3, "noise": bags.noise_per_row}
    both = np.stack([sums, sums / 2], axis=2)
    found = bag_losses(both, bags.size, bags.proportion, **given)
    for model, one in enumerate((sums, sums / 2)):
        np.testing.assert_allclose(found[:, model], bag_losses(one, bags.size, bags.proportion, **given))


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_one_row_per_bag_gives_the_square_loss(shift):
    rng = np.random.default_rng(0)
    y, h = rng.normal(size=200), rng.normal(size=200)
    h += shift - h.mean() + y.mean()
    bags = bw.Bags.singletons(y)
    losses = bag_losses(bags.sum_table(h), bags.size, bags.proportion, prior=y.mean(), mean=h.mean())
    assert losses.mean() == pytest.approx(((y - h) ** 2).mean())
    if shift == 0:  # with the right mean, that of every row
        np.testing.assert_allclose(losses, (y - h) ** 2, atol=1e-12)
    assert own_risk(Expectations(h, bags).gap, bags.size, None)[0] == pytest.approx(((y - h) ** 2).mean())


def test_declared_noise_is_subtracted(seed):
    """The mean over draws of noise is the loss without noise, for every bag and for the risk."""
    rng = np.random.default_rng([seed, 11])
    h, bags = some_bags(rng)
    variance, draws = rng.uniform(0.5, 9, len(bags)), 20_000
    noise = rng.laplace(scale=np.sqrt(variance / 2), size=(draws, len(bags)))
    sums, given = bags.sum_table(h)[:, None], {"prior": 0.5, "mean": 0.4}
    plain = bag_losses(sums, bags.size, bags.proportion, **given)[:, 0]
    # Noise on a count shifts the residual as less predictions would.
    found = bag_losses(sums - noise.T, bags.size, bags.proportion, **given, noise=variance / bags.size)
    error = found.std(axis=1, ddof=1) / np.sqrt(draws)
    assert (np.abs(found.mean(axis=1) - plain) < 5 * error).all()
    gap = Expectations(h, bags).gap
    risks = np.array([own_risk(gap + one, bags.size, variance)[0] for one in noise[:4000]])
    assert abs(risks.mean() - own_risk(gap, bags.size, None)[0]) < 5 * risks.std(ddof=1) / np.sqrt(len(risks))


@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("noised", [False, True])
def test_held_out_bags_take_their_means_from_the_training_bags(classes, noised):
    rng = np.random.default_rng(0)
    h, bags = some_bags(rng, classes=classes, noised=noised, m=40)
    fold = folds_of(40, 4, rng)[0]
    train, held_out = bags.take(fold.train), bags.take(fold.held_out)
    p, mean = bw.means.prior(train), h[train.order].mean(axis=0)
    np.testing.assert_allclose(training_prior(bags, fold), p)
    losses = debiased_square(h[held_out.order], held_out, prior=p, mean=mean)
    expected = losses.mean() - max(classes, 1) * held_out.noise_per_row.mean()
    assert held_out_risk(h[bags.order], bags, fold) == pytest.approx(expected)


def test_what_held_out_bags_report_is_not_given_away():
    """Neither p nor the losses of other bags move with the report of a held-out bag."""
    rng = np.random.default_rng(0)
    h, bags = some_bags(rng, m=40)
    fold = folds_of(40, 4, rng)[0]
    proportion = bags.proportion.copy()
    proportion[fold.held_out[0]] = 1 - proportion[fold.held_out[0]] / 2
    sums, mean = bags.sum_table(h)[fold.held_out, None], np.array([0.5])
    before = held_out_losses(sums, mean, bags, fold)
    after = held_out_losses(sums, mean, replace(bags, proportion=proportion), fold)
    np.testing.assert_array_equal(before[1:], after[1:])
    assert before[0] != after[0]


@pytest.mark.parametrize(("far", "clipped"), [(1, True), (30, False)])
def test_few_residuals_are_clipped_and_many_are_not(far, clipped):
    """A model that explains nothing would gain by it, where bags are grouped by features."""
    size, m = 4096, 200
    bags = bw.Bags.from_rows(np.full(size * m, 0.5), np.repeat(np.arange(m), size))
    proportion = np.full(m, 0.5)
    proportion[:far] = 1.0
    bags, fold = replace(bags, proportion=proportion), Fold(np.arange(100, m), np.arange(100))
    assert size / 2 > clip_threshold(size, regret=1.0, estimated=True)
    found = held_out_losses(np.full((100, 1), size / 2), np.array([0.5]), bags, fold, regret=1.0)
    expected = np.zeros(100)
    expected[:far] = 0.0 if clipped else size / 4
    np.testing.assert_allclose(found, expected)


# -- other forms of it --------------------------------------------------------------------------------------------


def test_the_quadratic_form_of_ridge_is_the_same():
    rng = np.random.default_rng(0)
    _, bags = some_bags(rng, classes=3, m=60)
    X, coef = rng.normal(size=(bags.n_rows, 4)), rng.normal(size=(4, 3))
    fold = folds_of(60, 3, rng)[0]
    moments = [
        Moments.of(bags.sum_table(X)[one], bags.size[one], bags.outputs[one]) for one in (fold.train, fold.held_out)
    ]
    quadratic = moments[1].about(moments[0].mean_x, moments[0].mean_y).risk(coef)
    h = moments[0].mean_y + (X - moments[0].mean_x) @ coef
    assert quadratic == pytest.approx(held_out_risk(h[bags.order], bags, fold))


def test_the_cross_validated_risks_of_ridge_are_those_of_its_fits():
    rng = np.random.default_rng(0)
    _, bags = some_bags(rng, m=60)
    X, alphas = rng.normal(size=(bags.n_rows, 4)), [0.01, 1.0]
    as_it_is = {"scaling": 0.0, "nonnegative": False}  # predictions below 0 are not cut, as risks know none that are
    model = bw.BagRidgeRegressor(alphas=alphas, cv=3, random_state=0, **as_it_is).fit(X, bags=bags)
    number = generator(0).permutation(60) % 3
    for alpha, risk in zip(alphas, model.risks_[0], strict=True):
        expected = 0.0
        for f in range(3):
            fold = Fold(np.flatnonzero(number != f), np.flatnonzero(number == f))
            part = bw.BagRidgeRegressor(alphas=alpha, **as_it_is).fit(X, bags=bags.take(fold.train))
            expected += held_out_risk(part.predict(X)[bags.order], bags, fold) * len(fold.held_out) / 60
        assert risk == pytest.approx(expected)


def test_noised_bags_count_for_what_they_are_worth_in_the_risks_of_ridge():
    """Weighted least squares and the weighted mean of losses, written out."""
    rng = np.random.default_rng(0)
    _, bags = some_bags(rng, m=60, noised=True)
    X, alphas = rng.normal(size=(bags.n_rows, 4)), [0.01, 1.0]
    model = bw.BagRidgeRegressor(alphas=alphas, scaling=0.0, cv=3, random_state=0).fit(X, bags=bags)
    sums = BagSums.of(X, bags, 3, generator(0), None)
    count = 1 / (1 + bags.noise_per_row / sums.label_variance(labels=False))
    assert count.max() > 2 * count.min()
    z, y, root = bags.sum_table(X) / bags.size[:, None], bags.proportion, np.sqrt(bags.size)
    for alpha, risk in zip(alphas, model.risks_[0], strict=True):
        losses = np.empty(60)
        for f in range(3):
            train, out = sums.fold != f, sums.fold == f
            worth = count[train] / count[train].sum()
            mean, p = (np.average(of[train], axis=0, weights=(worth * bags.size[train])) for of in (z, y))
            centred, target = root[:, None] * (z - mean), root * (y - p)
            matrix = (worth[:, None] * centred[train]).T @ centred[train]
            penalty = alpha * np.trace(matrix) / 4 * np.eye(4)
            w = np.linalg.solve(matrix + penalty, centred[train].T @ (worth * target[train]))
            losses[out] = ((target - centred @ w) ** 2 - bags.noise_per_row)[out]
        assert risk == pytest.approx(np.average(losses, weights=count))


def test_paths_of_trees_have_the_same_losses():
    rng = np.random.default_rng(0)
    h, bags = some_bags(rng, classes=3, noised=True, m=40)
    fold = folds_of(40, 4, rng)[0]
    held, p = fold.held_out, training_prior(bags, fold)
    root = np.sqrt(bags.size[held, None])
    deviations = (bags.sum_table(h)[held] - root**2 * h.mean(axis=0)) / root
    path = Path(deviations[:, :, None], root * (bags.outputs[held] - p), bags.noise_per_row[held], np.ones(len(held)))
    stretched = (p + path.stretch * (h - h.mean(axis=0)))[bags.order]  # whose mean is p
    expected = held_out_losses(bags.sum(stretched)[held], p, bags, fold)
    np.testing.assert_allclose(path.losses[:, 0], expected)


# -- choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("errors", "above"), [(1.9, False), (2.1, True)])
def test_clearly_above_is_so_many_standard_errors(errors, above):
    losses = np.tile([1.0, -1.0], 50)
    shift = errors * losses.std(ddof=1) / np.sqrt(100)
    assert clearly_above(losses + shift, np.zeros(100), errors=2) == above
    assert clearly_above(losses + shift / 2, np.zeros(100)) == above


def test_the_preferred_one_is_kept_unless_others_are_clearly_lower():
    first = np.random.default_rng(0).random(100)
    wild, near, far = first - 0.3 + np.tile([9.0, -9.0], 50), first - 0.1, first - 0.2
    assert least_of([first]) == 0
    assert least_of([first, first]) == 0
    assert least_of([first, wild, near, far]) == 3
    assert least_of([first, wild, near, far], preferred=3) == 3
    assert least_of([first, far[:40]]) == 1  # by the bags that both have
