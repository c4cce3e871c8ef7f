"""The formations, and what bags tell of theirs."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, logit

from bagwise import Bags, aggregate, formation, random_bags
from bagwise.formation.support import SPREADS, moved
from bagwise.gains import HeldOut
from bagwise.losses import LOSSES

N, K = 12_800, 64


def labelled(rng, n=N):
    X = rng.normal(size=(n, 3))
    return X, (rng.random(n) < expit(1.5 * X[:, 0] - X[:, 1] - 1)).astype(float)


def by_rates(rng):
    """Rows of two labels, mixed in proportions that differ."""
    X, y = labelled(rng, 6 * N)
    ones, zeros = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    counts = rng.binomial(K, rng.uniform(0.05, 0.6, size=N // K))
    taken = np.concatenate([ones[: counts.sum()], zeros[: N - counts.sum()]])
    ids = np.concatenate([np.repeat(np.arange(N // K), counts), np.repeat(np.arange(N // K), K - counts)])
    return X[taken], y[taken], ids


def by_features(rng):
    X, y = labelled(rng)
    return X, y, np.argsort(np.argsort(X[:, 0])) // K


def by_category(rng):
    """One bag per level of a feature that is among the columns: nothing varies inside a bag."""
    X, _ = labelled(rng)
    ids = rng.integers(N // K, size=N)
    X = np.column_stack([X, ids % 2, ids % 3 == 0])
    return X, (rng.random(N) < expit(X[:, 0] + 2 * X[:, 3] - 1)).astype(float), ids


def at_random(rng):
    X, y = labelled(rng)
    return X, y, random_bags(N, K, random_state=rng)


CASES = {"random": at_random, "rates": by_rates, "features": by_features, "category": by_category}


@pytest.mark.parametrize("case", CASES)
def test_bags_tell_their_formation(case):
    found = []
    for seed in range(5):
        X, y, ids = CASES[case](np.random.default_rng(seed))
        found.append(formation.told(formation.evidence(X, Bags.from_rows(aggregate(y, ids), ids))).name)
    assert found == ["features" if case == "category" else case] * 5


def test_random_bags_are_seldom_called_anything_else():
    """At a level of 1 in 1,000 for each of two tests, 3 alarms in 100 come about 1 in 1,000 times."""
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        X, y = labelled(rng, 1600)
        ids = random_bags(1600, 16, random_state=seed)
        alarms += formation.told(formation.evidence(X, Bags.from_rows(aggregate(y, ids), ids))).name != "random"
    assert alarms <= 2


@pytest.mark.parametrize("tables", [7, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", ["random", "rates"])
def test_rare_values_and_gaps_make_no_features(case, tables):
    """Sums of few rows with long tails are not normal: p-values that took them for it called one bag in ten grouped."""
    names = []
    for seed in range(tables):
        rng = np.random.default_rng(seed)
        X, y, ids = CASES[case](rng)
        rare = rng.random((len(X), 60)) < 0.0005 * (1 + y[:, None])
        gaps = np.where(rng.random(len(X)) < 0.3 + 0.2 * y, np.nan, X[:, 2])
        X = np.column_stack([X[:, :2], gaps, rare])
        names.append(formation.told(formation.evidence(X, Bags.from_rows(aggregate(y, ids), ids))).name)
    assert names.count(case) >= tables - 1


def test_bags_that_differ_in_gaps_differ_in_a_feature():
    rng = np.random.default_rng(0)
    X, y, ids = at_random(rng)
    gaps = rng.random(len(X)) < rng.uniform(0, 0.6, size=ids.max() + 1)[ids]
    X = np.column_stack([X[:, :2], np.where(gaps, np.nan, X[:, 2])])
    assert formation.told(formation.evidence(X, Bags.from_rows(aggregate(y, ids), ids))).name == "features"


def test_a_feature_is_called_by_its_name():
    x = np.arange(1280.0)[:, None] % 1000
    bags = Bags.from_rows(np.full(1280, 0.5), np.repeat(np.arange(20), 64))
    assert "feature 0 " in formation.formation_of("auto", x, bags).reason
    assert "feature 'age' " in formation.formation_of("auto", x, bags, ["age"]).reason


def test_few_bags_tell_nothing():
    X, y = labelled(np.random.default_rng(0), 640)
    ids = np.arange(640) // 64
    told = formation.told(formation.evidence(X, Bags.from_rows(aggregate(y, ids), ids)))
    assert told.name == "effects"
    assert "10 bags are too few" in str(told)


def test_every_formation_names_losses_that_there_are():
    assert list(formation.FORMATIONS) == ["random", "rates", "features", "effects"]
    for name, one in formation.FORMATIONS.items():
        assert one.name == name
        assert set(one.losses) <= set(LOSSES)
        assert "count_likelihood" in one.losses
        assert ("risk" in one.evaluation) == (one.choice == "risk") == (name == "random")


def test_rows_that_cannot_be_compared_are_passed_over():
    X, y = labelled(np.random.default_rng(0), 1600)
    X[::7, 1] = np.nan
    ids = np.arange(1600) // 16
    found = formation.evidence(X, Bags.from_rows(aggregate(y, ids), ids))
    assert np.isfinite(found.given_proportions.p_value)
    images = formation.evidence(X.reshape(1600, 3, 1), Bags.from_rows(aggregate(y, ids), ids))
    assert images == found


# -- with a model -------------------------------------------------------------------------------------------------


def in_bags(y, ids):
    return Bags.from_rows(aggregate(np.asarray(y, dtype=float), ids), ids)


def with_effects(rng, sd):
    """Bags of random rows whose log odds move together."""
    X, _ = labelled(rng)
    ids = np.arange(N) // K
    s = 1.5 * X[:, 0] - X[:, 1] - 1
    return X, (rng.random(N) < expit(s + sd * rng.normal(size=N // K)[ids])).astype(float), ids


def model_of(X, y, ids):
    """The score that rows were labelled by, as if it had been fitted; a shift makes its mean p."""
    bags = in_bags(y, ids)
    s = (1.5 * X[:, 0] - X[:, 1] - 1)[bags.order]
    return HeldOut(float(y.mean()), s, s, bags)


def calibrated(part):
    return expit(part.scores + part.shift())


@pytest.mark.parametrize(
    ("case", "forward", "reverse"),
    [("random", True, True), ("rates", False, True), ("features", True, False)],
)
def test_slopes_tell_formations_apart(case, forward, reverse, seed):
    """Each is what it should be, to 4 standard errors, where its assumption holds, and beyond 6 where it does not."""
    X, y, ids = CASES[case](np.random.default_rng(seed))
    part = model_of(X, y, ids)
    for one, holds in zip(formation.slopes(calibrated(part), part.bags), (forward, reverse), strict=True):
        off = abs(one.value - one.expected) / one.error
        assert off < 4 if holds else off > 6


def test_a_slope_is_least_squares_with_weights(seed):
    rng = np.random.default_rng(seed)
    size = rng.integers(2, 30, size=50)
    ids = np.repeat(np.arange(50), size)
    h, y = rng.random(len(ids)), rng.integers(2, size=len(ids))
    bags = in_bags(y, ids)
    forward, reverse = formation.slopes(h, bags)
    mean = bags.mean(h)
    assert forward.value == pytest.approx(np.polyfit(mean, bags.proportion, 1, w=np.sqrt(size))[0])
    assert reverse.value == pytest.approx(np.polyfit(bags.proportion, mean, 1, w=np.sqrt(size))[0])
    assert reverse.expected == pytest.approx(h.var() / (y.mean() * (1 - y.mean())))


def test_errors_of_slopes_are_those_of_repetitions():
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        h = rng.beta(2, 4, size=1600)
        bags = in_bags(rng.random(1600) < h, np.arange(1600) // 16)
        found.append([(one.value - one.expected) / one.error for one in formation.slopes(h, bags)])
    scatter = np.std(found, axis=0)
    assert scatter == pytest.approx(np.ones(2), abs=5 / np.sqrt(2 * 200))


def test_evidence_takes_in_the_slopes_of_a_model():
    X, y, ids = at_random(np.random.default_rng(0))
    part = model_of(X, y, ids)
    found = formation.evidence(X, part.bags)
    assert found.forward is None
    again = found.with_model(calibrated(part), part.bags)
    assert (again.forward, again.reverse) == formation.slopes(calibrated(part), part.bags)
    assert again.features == found.features


@pytest.mark.parametrize("tables", [3, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("random", "random"),
        ("rates", "rates"),
        ("features", "features"),
        ("effects 0.5", "effects"),
        ("effects 1", "effects"),
    ],
)
def test_a_model_settles_what_bags_alone_do_not_tell(case, name, tables):
    """Right in at least 9 of 10 tables of 200 bags."""
    right = 0
    for seed in range(tables):
        rng = np.random.default_rng(seed)
        X, y, ids = with_effects(rng, float(case.split()[1])) if " " in case else CASES[case](rng)
        part = model_of(X, y, ids)
        found = formation.settled(formation.told(formation.evidence(X, part.bags)), [part])
        right += found.name == name
        assert not found.others
    assert right >= 0.9 * tables


def test_support_is_the_integral_over_effects():
    """One bag, by numerical integration; scores of the rows are all the same, so that counts are binomial."""
    k, c, s, p = 8, 5, -0.4, 0.3
    bags = Bags.from_rows(np.full(k, c / k), np.zeros(k, dtype=int))
    part = HeldOut(p, np.full(4, logit(p)), np.full(k, s), bags)  # E[h] is p: the shift is 0
    spread = 1.0

    def count(u):
        return stats.binom.pmf(c, k, expit(s + u))

    def rows(u):
        r, h = expit(logit(p) + u), expit(s)
        return (h * r / p + (1 - h) * (1 - r) / (1 - p)) ** k

    def over(value):
        return integrate.quad(lambda u: stats.norm.pdf(u, scale=spread) * value(u), -8, 8)[0]

    effects = np.log(over(count) / count(0))
    rates = np.log(over(lambda u: count(u) * rows(u)) / over(rows) / count(0))
    rates_found, rows_found, effects_found = moved(part)
    assert np.interp(spread, SPREADS, effects_found) == pytest.approx(effects, abs=0.02)
    assert np.interp(spread, SPREADS, rates_found) == pytest.approx(rates, abs=0.02)
    assert np.interp(spread, SPREADS, rows_found) == pytest.approx(np.log(over(rows)), abs=0.02)


def test_a_model_that_knows_nothing_leaves_the_weakest_assumption():
    """Rates and effects look the same where features tell nothing; where they do, they tell rates by themselves."""
    rng = np.random.default_rng(0)
    X, y, ids = by_rates(rng)
    bags = in_bags(y, ids)
    flat = HeldOut(float(y.mean()), np.zeros(10), np.zeros(len(y)), bags)
    unrelated = rng.normal(size=X.shape)
    assert formation.settled(formation.told(formation.evidence(unrelated, bags)), [flat]).name == "effects"
    assert formation.settled(formation.told(formation.evidence(X, bags)), [flat]).name == "rates"


def test_noise_is_no_effect():
    """Bags sorted by a feature, whose counts are noised: a model that explains them leaves nothing unseen."""
    rng = np.random.default_rng(0)
    X, y, ids = by_features(rng)
    noised = aggregate(y, ids) + rng.normal(scale=8, size=N // K)[ids] / K
    bags = Bags.from_rows(noised, ids, noise_variance=64.0)
    s = (1.5 * X[:, 0] - X[:, 1] - 1)[bags.order]
    told = formation.told(formation.evidence(X, bags))
    assert formation.settled(told, [HeldOut(float(y.mean()), s, s, bags)]).name == "features"
    silent = Bags.from_rows(noised, ids)  # the same, not declared
    assert formation.settled(told, [HeldOut(float(y.mean()), s, s, silent)]).name == "effects"


def test_noise_on_proportions_makes_no_features_of_rates(seed):
    """It flattens the line through proportions, about which features would then scatter."""
    rng = np.random.default_rng(seed)
    X, y, ids = by_rates(rng)
    noised = aggregate(y, ids) + rng.normal(scale=12, size=N // K)[ids] / K
    assert formation.told(formation.evidence(X, Bags.from_rows(noised, ids, noise_variance=144.0))).name == "rates"
    assert formation.told(formation.evidence(X, Bags.from_rows(noised, ids))).name == "features"  # not declared


MODELS = {"right": 1.0, "far too sure": 3.0, "shrunken": 0.3, "the wrong way round": -1.0}


@pytest.mark.parametrize("case", ["random", "rates", "features", "effects"])
@pytest.mark.parametrize(
    ("stretch", "rows"),
    [*((stretch, True) for stretch in MODELS.values()), (MODELS["right"], False)],
    ids=[*MODELS, "right, without features"],
)
def test_predictions_settle_the_formation_however_sure_they_are(case, stretch, rows):
    rng = np.random.default_rng(7)
    X, y, ids = with_effects(rng, 0.7) if case == "effects" else CASES[case](rng)
    h = expit(stretch * (1.5 * X[:, 0] - X[:, 1] - 1))
    bags = in_bags(y, ids)
    found = formation.formation_of("auto", X if rows else None, bags, h=h)
    assert found.name == case
    assert formation.formation_of("rates", None, bags, h=h).name == "rates"


def test_bags_that_differ_in_predictions_alone_are_not_random():
    """No column is at hand, but a model's predictions are; of one class, of two or of three."""
    rng = np.random.default_rng(0)
    X, _, ids = by_features(rng)
    h, bags = expit(X[:, 0]), in_bags(rng.integers(2, size=N), ids)
    assert formation.formation_of("auto", None, bags).name == "random"
    assert "predictions" in formation.formation_of("auto", None, bags, h=h).reason
    p = bags.repeat(bags.proportion)
    two = Bags.from_rows(np.column_stack([1 - p, p]), np.sort(ids))
    assert formation.formation_of("auto", None, two, h=h[bags.order]).name == "features"
    three = np.column_stack([h / 2, h / 2, 1 - h])
    classes = Bags.from_rows(aggregate(np.eye(3)[rng.integers(3, size=N)], ids), ids)
    assert formation.formation_of("auto", None, classes, h=three).name == "features"


def by_size_of_a_feature(X):
    return np.abs(X[:, 0])


def by_product(X):
    return X[:, 0] * X[:, 1]


@pytest.mark.parametrize("key", [by_size_of_a_feature, by_product])
def test_squares_and_products_tell_what_means_do_not(key, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 5))
    y = rng.random(N) < expit(2 * key(X) - 1)
    found = formation.told(formation.evidence(X, in_bags(y, np.argsort(np.argsort(key(X))) // K)))
    assert found.name == "features"
    assert "squared" in found.reason or "×" in found.reason


def test_bags_that_are_too_much_alike_are_not_random():
    """Rows dealt out by the order of a feature: bags are more alike in it. By the label: in their proportions alone."""
    rng = np.random.default_rng(0)
    X, y = labelled(rng)
    for key, name, words in ((X[:, 0], "features", "alike in feature 0 "), (y + rng.random(N), "rates", "proportions")):
        ids = np.empty(N, dtype=int)
        ids[np.argsort(key)] = np.tile(np.arange(N // K), K)
        found = formation.formation_of("auto", X[:, :1] if name == "features" else X[:, 2:], in_bags(y, ids))
        assert found.name == name
        assert words in found.reason
