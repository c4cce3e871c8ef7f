"""What bags are worth, by formation, against simulation."""

import numpy as np
import pytest
from scipy import special
from scipy.linalg import hadamard

from bagwise.formation import FORMATIONS
from bagwise.theory import (
    PlannedBags,
    Setting,
    bag_information,
    bags_needed,
    expected_regret,
    laplace_variance,
    likely_bags,
    likely_regret,
)
from tests.theory.test_bounds import at_most, noise

P, BETA = 0.4, 0.004
RAMP = np.linspace(-1, 1, 16)
FAR = hadamard(16)[5]  # a direction of its own


def two_at(spread):
    """A truth that explains more of the labels the larger the spread, and a function at distance β from it."""
    truth = P + spread * RAMP
    plane = np.linalg.qr(np.stack([np.ones(16), RAMP], axis=1))[0]
    gap = FAR - plane @ (plane.T @ FAR)
    return truth, truth + gap * np.sqrt(BETA / (gap**2).mean())


def test_random_bags_are_worth_what_the_loss_says_and_formations_have_their_names():
    assert bag_information(Setting(size=9, risk=0.1)) == pytest.approx(10)
    noised = PlannedBags(size=10, epsilon=0.5, risk=0.1)
    assert bag_information(noised) == pytest.approx(1 / (0.1 + laplace_variance(0.5) / 10))
    for name in FORMATIONS:
        given = {"rates": {"rates_sd": 1e-9}, "effects": {"effects_sd": 1e-9}}.get(name, {})
        for epsilon in (None, 0.5):  # with nothing that differs, all formations are one
            same = PlannedBags(size=64, risk=0.2, epsilon=epsilon, formation=name, **given)
            assert bag_information(same) == pytest.approx(
                bag_information(PlannedBags(size=64, risk=0.2, epsilon=epsilon))
            )
    assert bag_information(PlannedBags(size=7, formation="rates", rates_sd=0.5)) == pytest.approx(7 / 0.25)  # labels


@pytest.mark.parametrize(("epsilon", "size", "rates_sd"), [(None, 32, 0.1), (None, 128, 0.2), (0.3, 64, 0.1)])
@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_bags_of_differing_rates_are_worth_what_the_slope_makes_of_them(spread, epsilon, size, rates_sd, seed):
    """A choice by the risk that slopes on proportions estimate errs as often as the information says."""
    rng = np.random.default_rng(seed)
    truth, other = two_at(spread)
    v, error, trials = P * (1 - P), 0.1, 400
    setting = {"size": size, "prior": P, "epsilon": epsilon, "hypotheses": 2, "error": error}
    setting = Setting(**setting, formation="rates", rates_sd=rates_sd)
    bags = int(likely_bags(setting, BETA))
    assert bags < likely_bags(Setting(size=size, prior=P, epsilon=epsilon, hypotheses=2, error=error), BETA) / 2
    a = v / rates_sd**2 - 1
    count = rng.binomial(size, rng.beta(P * a, (1 - P) * a, size=(trials, bags)))
    of_label = (truth / truth.sum(), (1 - truth) / (1 - truth).sum())
    levels = rng.multinomial(count, of_label[0]) + rng.multinomial(size - count, of_label[1])
    alpha = (count + noise(epsilon, count.shape, rng)) / size
    gap = levels @ (other - truth) / size
    prior, off = alpha.mean(axis=1), alpha - alpha.mean(axis=1, keepdims=True)
    spread_of = (off**2).sum(axis=1) - (bags - 1) * laplace_variance(epsilon) / size**2
    slope = (off * gap).sum(axis=1) / spread_of
    worse = (other**2 - truth**2).mean() - 2 * (prior * gap.mean(axis=1) + prior * (1 - prior) * slope)
    assert (worse < 0).mean() == pytest.approx(error, abs=0.05 + 5 * np.sqrt(error * (1 - error) / trials))


@pytest.mark.parametrize(("epsilon", "size"), [(None, 32), (None, 256), (0.3, 128)])
def test_effects_cost_what_they_add_to_the_variance_of_counts(epsilon, size, seed):
    rng = np.random.default_rng(seed)
    truth, other = two_at(0.2)
    risk, error, trials = float((truth * (1 - truth)).mean()), 0.1, 400
    given = {"size": size, "prior": P, "risk": risk, "epsilon": epsilon, "hypotheses": 2, "error": error}
    setting = Setting(**given, formation="effects", effects_sd=0.3)
    beta = 0.02
    bags = int(likely_bags(setting, beta))
    assert bags > 1.3 * likely_bags(Setting(**given), beta)
    gap, wrong = (other - truth) * np.sqrt(beta / BETA), 0
    for _ in range(0, trials, 40):
        levels = rng.multinomial(size, np.full(16, 1 / 16), size=(40, bags))
        moved = special.expit(special.logit(truth) + 0.3 * rng.normal(size=(40, bags, 1)))
        count = rng.binomial(levels, moved).sum(axis=-1) + noise(epsilon, (40, bags), rng)
        D, rest = levels @ gap, count - levels @ truth
        wrong += int(((D**2 - 2 * D * (rest - rest.mean(axis=1, keepdims=True))).sum(axis=1) < 0).sum())
    assert wrong / trials == pytest.approx(error, abs=0.05 + 5 * np.sqrt(error * (1 - error) / trials))


def test_large_bags_with_effects_stop_to_help_and_those_of_differing_rates_do_not():
    def worth(size, **given):
        return bag_information(PlannedBags(size=size, **given))

    effects = {"formation": "effects", "effects_sd": 0.5, "between": 0.1}
    floor = 0.1 / (0.5**2 * 0.25**2)
    assert worth(10, **effects) < worth(1000, **effects) < floor
    assert worth(10**9, **effects) == pytest.approx(floor, rel=1e-3)
    apart = {"formation": "effects", "effects_sd": 0.5}
    assert worth(1000, **apart) < worth(10, **apart)  # what bags do not differ in drowns
    rates = {"formation": "rates", "rates_sd": 0.1}
    assert worth(10_000, **rates) / worth(1000, **rates) == pytest.approx(10, rel=0.03)
    assert worth(64, **rates) > 3 * worth(64)
    noise_costs = [worth(64, **given) / worth(64, **given, epsilon=0.3) for given in (rates, {})]
    assert 1 < noise_costs[0] < noise_costs[1]  # noise matters less where rates differ


def test_least_squares_where_rates_differ_needs_fewer_bags_than_parameters(seed):
    rng = np.random.default_rng(seed)
    size, bags, d, trials, rates_sd = 256, 12, 40, 200, 0.15
    v = 0.25
    setting = Setting(size=size, formation="rates", rates_sd=rates_sd, parameters=d)
    alpha = 0.5 + np.sqrt(rates_sd**2 + (v - rates_sd**2) / size) * rng.normal(size=(trials, bags, 1))
    means = rng.normal(size=(trials, bags, d)) / np.sqrt(size)  # features that do not depend on the label
    off = alpha - alpha.mean(axis=1, keepdims=True)
    weights = v * (off * means).sum(axis=1) / (off**2).sum(axis=1)
    excess = (weights**2).sum(axis=-1)
    assert excess.mean() == pytest.approx(expected_regret(setting, bags), abs=5 * excess.std() / np.sqrt(trials))
    assert at_most(int((excess > likely_regret(setting, bags)).sum()), trials, 0.05)
    assert bags_needed(setting, 0.02).expected < d < bags_needed(Setting(size=size, parameters=d), 0.02).expected
