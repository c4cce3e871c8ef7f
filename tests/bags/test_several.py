"""Several groupings of the same rows: what they add up to, folds that leak nothing, and what is learned from them."""

import numpy as np
import pytest
from scipy.special import expit, softmax

from bagwise import (
    BagBoostingClassifier,
    BagLogisticClassifier,
    BagRidgeClassifier,
    Bags,
    aggregate,
    random_bags,
)
from bagwise.bags import several
from bagwise.folds import folds_of
from bagwise.gains import HeldOut
from bagwise.linear.design import Design
from bagwise.linear.penalties import _more_and_held_out
from bagwise.log_odds import prior_of
from bagwise.losses.adding_up import adding_up
from bagwise.losses.likelihood import count_likelihood_gradient
from bagwise.utils.parameters import ParameterError


def grouped(y, ids, **options):
    return Bags.from_rows(aggregate(y, ids), ids, **options)


def test_a_table_that_says_the_same_says_nothing():
    y, ids = np.random.default_rng(0).integers(0, 2, 60), np.arange(60) // 6
    one = grouped(y, ids)
    both = several([one, grouped(y, ids + 100)])
    assert both.overlap is None
    assert (both.size == one.size).all()
    assert (both.proportion == one.proportion).all()


def test_coarse_counts_become_those_of_the_rest():
    y = np.array([1, 0, 1, 1, 0, 0, 1, 0])
    fine = grouped(y, np.array([0, 0, 1, 1, -1, -1, 2, 2]))  # two rows are hidden
    coarse = grouped(y, np.array([0, 0, 0, 0, 0, 0, 1, 1]))
    both = several([fine, coarse])
    rest = both.order[both.offsets[3] :]
    assert list(both.size) == [2, 2, 2, 2]
    assert sorted(rest) == [4, 5]
    assert both.proportion[3] == 0


def test_tables_that_contradict_each_other_are_named():
    fine = Bags.from_rows([1.0, 1.0, 0.0, 0.0], [0, 0, 1, 1])
    with pytest.raises(ValueError, match="bag 7 of report table 2 reports a count of 1, but bags inside of it"):
        several([fine, Bags.from_rows([0.25] * 4, [7, 7, 7, 7])])


def test_counts_beside_hidden_ones_are_whole_whatever_rounding_made_of_them():
    """13 of 179 is no whole number of 179ths in floating point; beside a table of intervals it must stay a count."""
    sizes = np.arange(2, 200)
    ids = np.repeat(np.arange(len(sizes)), sizes)
    for count in (1, 13, 14):
        fine = Bags.from_rows((np.minimum(count, sizes) / sizes)[ids], ids)
        coarse = Bags.from_rows(np.zeros(len(ids)), np.zeros(len(ids))).with_intervals([0], [len(ids)])
        exact = ~several([fine, coarse]).interval.open
        assert exact.sum() == len(sizes)


def test_noised_counts_of_the_same_rows_are_weighed():
    one = Bags.from_rows([0.5] * 4, [0] * 4, noise_variance=1.0)
    other = Bags.from_rows([0.75] * 4, [0] * 4, noise_variance=3.0)
    both = several([one, other])
    assert len(both) == 1
    assert both.proportion[0] == pytest.approx(0.75 * 0.5 + 0.25 * 0.75)
    assert both.noise_variance[0] == pytest.approx(0.75)


def test_groupings_of_other_rows_are_refused():
    with pytest.raises(ValueError, match="same rows: one has 2, another 3"):
        several([Bags.from_rows([0.5, 0.5], [0, 0]), Bags.from_rows([0.5] * 3, [0] * 3)])


@pytest.mark.parametrize("together", [True, False], ids=["all hang together", "in parts"])
def test_folds_share_no_row_with_what_is_learned_from(together):
    rng = np.random.default_rng(0)
    n = 1200
    y = rng.integers(0, 2, n)
    ids = random_bags(n, 10, random_state=0)
    other = random_bags(n, 30, random_state=1) if together else 1000 * (ids // 6) + rng.integers(0, 2, n)
    both = several([grouped(y, ids), grouped(y, other)])
    folds = folds_of(len(both), 4, rng, enough=len(both), shared=both.shared)
    assert folds
    for fold in folds:
        held, train = ({*both.take(some).order.tolist()} for some in (fold.held_out, fold.train))
        assert not held & train


def two_hashes(rng, n=12_000, sizes=(40, 60)):
    X = rng.normal(size=(n, 4))
    truth = expit(X @ np.array([1.2, -0.8, 0.5, 0.0]) - 1)
    y = (rng.random(n) < truth).astype(float)
    return X, y, truth, [grouped(y, random_bags(n, size, random_state=rng)) for size in sizes]


@pytest.mark.parametrize(
    "estimator",
    [
        BagLogisticClassifier,
        pytest.param(BagRidgeClassifier, marks=pytest.mark.slow),
        pytest.param(BagBoostingClassifier, marks=pytest.mark.slow),
    ],
)
def test_two_tables_teach_more_than_one(estimator):
    """The mean over some logs of the square distance from the truth."""
    options = {"n_estimators": 20, "n_jobs": 1} if estimator is BagBoostingClassifier else {}
    seeds = range({BagLogisticClassifier: 3, BagRidgeClassifier: 12}.get(estimator, 1))
    errors = []
    for seed in seeds:
        X, _, truth, tables = two_hashes(np.random.default_rng(seed), n=6000)
        each = [
            estimator(random_state=0, formation="random", **options).fit(X, bags=one)
            for one in (tables[0], several(tables))
        ]
        errors.append([np.mean((model.predict_proba(X)[:, 1] - truth) ** 2) for model in each])
    one, both = np.mean(errors, axis=0)
    assert both < one


@pytest.mark.slow
def test_cross_validated_gain_is_that_on_fresh_bags():
    """Folds that leaked held-out bags would promise more: within 4 standard errors, over 12 logs."""
    off = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, _, _, tables = two_hashes(rng, n=6000, sizes=(30, 30))
        model = BagLogisticClassifier(random_state=0, formation="random").fit(X, bags=several(tables))
        fresh = rng.normal(size=(30_000, 4))
        labels = rng.random(30_000) < expit(fresh @ np.array([1.2, -0.8, 0.5, 0.0]) - 1)
        bags = grouped(labels, np.arange(30_000) // 30)
        one = BagLogisticClassifier(random_state=0, formation="random").fit(X, bags=tables[0])
        s = fresh @ one.coef_ + one.intercept_
        gain = HeldOut(prior_of(bags), s, s, bags).gains(np.ones(1))[0].mean()
        off.append(model.gain_ - gain)
    assert abs(np.mean(off)) < 4 * np.std(off, ddof=1) / np.sqrt(12)


def test_scores_add_up_to_every_table():
    X, y, _, tables = two_hashes(np.random.default_rng(3), n=3000)
    both = several(tables)
    model = BagLogisticClassifier(random_state=0, formation="random", cv=2).fit(X, bags=both)
    q = model.predict_proba(X, bags=both)[:, 1]
    for table in tables:
        assert np.abs(table.sum(q[table.order]) - table.size * table.proportion).max() < 0.01
    h = model.predict_proba(X)[:, 1]
    assert np.mean((q - y) ** 2) < np.mean((h - y) ** 2)


@pytest.mark.slow
def test_intervals_of_weights_cover_with_two_tables():
    weights, covered = np.array([1.2, -0.8, 0.5, 0.0]), 0
    for seed in range(40):
        X, _, _, tables = two_hashes(np.random.default_rng(seed), n=6000, sizes=(20, 30))
        model = BagLogisticClassifier(alphas=1.0, cv=2, random_state=0, formation="random").fit(X, bags=several(tables))
        low, high = model.coef_interval()
        covered += int(((low <= weights) & (weights <= high)).sum())
    assert covered >= 0.9 * 160


def test_rows_that_are_read_once_are_those_that_stand_for_each_of_their_bags():
    """Logistic regression reads X as it is; other estimators read a row once for each of its bags."""
    X, _, _, tables = two_hashes(np.random.default_rng(4), n=3000)
    both = several(tables)
    model = BagLogisticClassifier(random_state=0, cv=2).fit(X, bags=both)
    copied = BagLogisticClassifier(random_state=0, cv=2).fit(X[both.order], bags=both.apart())
    assert model.coef_ == pytest.approx(copied.coef_, abs=1e-6)
    assert model.coef_errors_ == pytest.approx(copied.coef_errors_, rel=1e-5)
    half = several([tables[0].take(np.arange(37)), tables[1].take(np.arange(25))])  # as many rows in bags as there are
    for bags in (both, half):
        one, other = Design.of(X, bags), Design.of(X[bags.order], bags.apart())
        assert one.mean == pytest.approx(other.mean)
        assert one.scale == pytest.approx(other.scale)


def test_what_many_rows_are_measured_on_shares_no_row_with_what_is_fitted():
    X, _, _, tables = two_hashes(np.random.default_rng(5), n=6000)
    design = Design.of(X, several(tables))
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(design.bags))
        more, held_out = (design.bags.take(some) for some in _more_and_held_out(design, order))
        assert not {*more.order.tolist()} & {*held_out.order.tolist()}
        assert more.n_bagged > 500
        assert held_out.n_bagged > 500


# -- rows of weights, and offsets ------------------------------------------------------------------------------------


def weighted_groupings(seed=0, n=400):
    """Nested and crossed groupings of rows with weights, the same of rows repeated, and which row each repeat is of."""
    rng = np.random.default_rng(seed)
    X, weight = rng.normal(size=(n, 2)), rng.integers(1, 4, n)
    ones = rng.binomial(weight, expit(X[:, 0] - 0.5))
    fine, crossed = rng.integers(0, 40, n), rng.integers(0, 12, n)
    rows = np.repeat(np.arange(n), weight)
    pairs = []
    for ids in (np.where(fine < 36, fine, -1), fine // 4, crossed):
        inside = ids >= 0
        size, count = (np.bincount(ids[inside], one[inside]) for one in (weight, ones))
        share = (count / size)[np.maximum(ids, 0)]
        one = Bags.from_rows(share, ids).with_weights(weight)
        pairs.append((one, Bags.from_rows(share[rows], ids[rows])))
    return X, rows, *zip(*pairs, strict=True)


def test_whole_weights_are_rows_repeated():
    """What is taken out of coarse bags, the likelihood, a fit, and predictions that add up to all."""
    X, rows, one, many = weighted_groupings()
    bags, repeated = several(one), several(many)
    np.testing.assert_array_equal(bags.keys, repeated.keys)
    np.testing.assert_allclose(bags.size, repeated.size)
    np.testing.assert_allclose(bags.proportion, repeated.proportion)
    assert len(bags) < sum(map(len, one))
    s = np.random.default_rng(1).normal(size=len(X))
    found, known = (
        count_likelihood_gradient(s[bags.order], bags),
        count_likelihood_gradient(s[rows][repeated.order], repeated),
    )
    np.testing.assert_allclose(found[0], known[0], rtol=1e-8)
    q = [adding_up(s, bags), adding_up(s[rows], repeated)]
    np.testing.assert_allclose(q[0][rows], q[1], atol=1e-5)
    np.testing.assert_allclose(bags.sum(q[0][bags.order]), bags.size * bags.proportion, atol=1e-3)
    models = [BagLogisticClassifier(cv=2, random_state=0) for _ in range(2)]
    models[0].fit(X, bags=bags)
    models[1].fit(X[rows], bags=repeated)
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-5)
    apart, apart_repeated = bags.apart(), repeated.apart()
    np.testing.assert_allclose(apart.sum(X[bags.order]), apart_repeated.sum(X[rows][repeated.order]))
    ridge = [BagRidgeClassifier(alphas=0.1, random_state=0) for _ in range(2)]
    ridge[0].fit(X, bags=bags)
    ridge[1].fit(X[rows], bags=repeated)
    np.testing.assert_allclose(ridge[0].coef_, ridge[1].coef_, rtol=1e-6)


def test_offsets_go_with_rows_of_all_groupings():
    X, _, one, _ = weighted_groupings()
    offset = np.random.default_rng(2).normal(size=len(X))
    bags = several([bags.with_offset(offset) for bags in one])
    np.testing.assert_array_equal(bags.offset, offset[bags.order])
    np.testing.assert_array_equal(bags.apart().offset, offset[bags.order])
    model = BagLogisticClassifier(cv=2, random_state=0).fit(X, bags=bags)
    h = model.predict_proba(X, offset=offset, bags=bags)[:, 1]
    np.testing.assert_allclose(bags.sum(h[bags.order]), bags.size * bags.proportion, atol=1e-3)
    with pytest.raises(ParameterError, match="same of a row, but give row"):
        several([one[0].with_offset(offset), one[1].with_offset(offset + 1)])


def test_people_of_tables_that_contradict_each_other_are_counted():
    fine = Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1]).with_weights([3, 1, 4])
    coarse = Bags.from_rows([0.25] * 3, ["all"] * 3).with_weights([3, 1, 4])
    with pytest.raises(ValueError, match=r"a count of 2, but bags inside of it, .* 6 of 8 people"):
        several([fine, coarse])


# -- several classes --------------------------------------------------------------------------------------------------


def hashes_of_classes(rng, n=6000, sizes=(40, 50), below=0):
    """Rows of three classes in two random groupings; counts below a number are hidden."""
    X = rng.normal(size=(n, 3))
    s = X @ np.array([[1.0, 0, 0], [-0.5, 1, 0], [-0.5, -1, 0]]).T + np.array([1.0, 0, -0.5])
    y = (s + rng.gumbel(size=s.shape)).argmax(axis=1)
    tables = []
    for size in sizes:
        ids = random_bags(n, size, random_state=rng)
        one = grouped(np.eye(3)[y], ids)
        count = one.size[:, None] * one.proportion
        if below:
            one = one.with_intervals(np.where(count < below, 0, count), np.where(count < below, below - 1, count))
        tables.append(one)
    return X, y, softmax(s, axis=1), tables


@pytest.mark.parametrize(
    ("estimator", "below", "seeds"),
    [
        (BagLogisticClassifier, 0, 6),
        pytest.param(BagLogisticClassifier, 5, 8, marks=pytest.mark.slow),
        pytest.param(BagRidgeClassifier, 0, 16, marks=pytest.mark.slow),
        pytest.param(BagBoostingClassifier, 5, 4, marks=pytest.mark.slow),
    ],
)
def test_two_tables_of_classes_teach_more_than_the_better_one(estimator, below, seeds):
    """The mean over some logs of the square distance from the truth."""
    options = {BagLogisticClassifier: {"alphas": 1.0}, BagBoostingClassifier: {"n_estimators": 20, "n_jobs": 1}}
    errors = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        X, _, truth, tables = hashes_of_classes(rng, n=2400, sizes=(16, 16), below=below)
        blank = [estimator(random_state=0, cv=2, formation="random", **options.get(estimator, {})) for _ in range(3)]
        models = [model.fit(X, bags=one) for model, one in zip(blank, (*tables, several(tables)), strict=True)]
        errors.append([np.mean((model.predict_proba(X) - truth) ** 2) for model in models])
    one, other, both = np.mean(errors, axis=0)
    assert both < min(one, other)


@pytest.mark.parametrize("below", [0, 10])
def test_a_table_of_classes_that_says_the_same_says_nothing(below):
    X, _, _, tables = hashes_of_classes(np.random.default_rng(0), n=2000, below=below)
    twice = several([tables[0], tables[0]])
    assert len(twice) == len(tables[0])
    if below:
        np.testing.assert_array_equal(twice.interval.low, tables[0].interval.low)
        np.testing.assert_array_equal(twice.interval.high, tables[0].interval.high)
    models = [BagLogisticClassifier(alphas=10.0, cv=2).fit(X, bags=one) for one in (tables[0], twice)]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, atol=1e-3)


def test_hidden_counts_of_the_same_rows_are_those_that_both_allow():
    rows = grouped(np.eye(3)[[0, 0, 1, 2, 2, 2]], np.zeros(6, dtype=int))
    one, other = rows.with_intervals([[0, 0, 3]], [[3, 3, 3]]), rows.with_intervals([[2, 0, 2]], [[4, 4, 4]])
    both = several([one, other])
    np.testing.assert_array_equal(both.interval.low, [[2, 0, 3]])
    np.testing.assert_array_equal(both.interval.high, [[3, 1, 3]])
    known = several([one, rows])
    assert known.interval is None
    np.testing.assert_allclose(known.proportion, rows.proportion)
    with pytest.raises(ValueError, match="are of the same rows and tell counts that cannot be the same"):
        several([one, rows.with_intervals([[4, 0, 0]], [[6, 1, 1]])])


@pytest.mark.parametrize("below", [0, 10])
def test_scores_of_classes_add_up_to_every_table(below):
    X, y, _, tables = hashes_of_classes(np.random.default_rng(3), n=2000, below=below)
    both = several(tables)
    model = BagLogisticClassifier(random_state=0, formation="random", alphas=10.0, cv=2).fit(X, bags=both)
    q, h = model.predict_proba(X, bags=both), model.predict_proba(X)
    np.testing.assert_allclose(q.sum(axis=1), 1)
    for table in tables:
        count = table.size[:, None] * table.proportion
        ends = (count, count) if table.interval is None else (table.interval.low, table.interval.high)
        sums = table.sum(q[table.order])
        assert np.maximum(ends[0] - sums, sums - ends[1]).max() < 0.01
    one = model.predict_proba(X, bags=tables[0])
    assert np.mean((q - np.eye(3)[y]) ** 2) < np.mean((one - np.eye(3)[y]) ** 2) < np.mean((h - np.eye(3)[y]) ** 2)
