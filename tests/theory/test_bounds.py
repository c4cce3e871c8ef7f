"""Every bound against simulation: observed failures never exceed what was promised."""

import time
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import hadamard

from bagwise.experiments.simulation import Simulation, draw, symmetric_pair
from bagwise.losses import clip_threshold, debiased_square_of_sums
from bagwise.selection import two_function_statistic
from bagwise.theory import (
    HypothesisClass,
    LinearProblem,
    Setting,
    SymmetricPair,
    TwoFunctions,
    bag_information,
    bags_needed,
    erm_bound,
    erm_regret,
    expected_bags,
    expected_regret,
    information_bound,
    information_regret,
    laplace_variance,
    largest_size,
    likely_bags,
    likely_regret,
    limiting_information,
    regrets,
    sample_complexity,
    sgd_bound,
    sgd_excess_risk,
    two_function_bound,
    two_function_error,
)
from bagwise.theory.bounds import laplace_law, laplace_log_mgf, laplace_tail, laplace_tail_square
from bagwise.utils.parameters import ParameterError

EPSILONS = [None, 1.0, 0.3]


def at_most(failures, trials, error):
    """Whether so many failures are compatible with a probability of `error` at most."""
    return stats.binomtest(failures, trials, error, alternative="greater").pvalue > 1e-6


def noise(epsilon, shape, rng):
    """Discrete Laplace noise, for simulation only: the difference of two geometric numbers."""
    if epsilon is None:
        return np.zeros(shape)
    q = 1 - np.exp(-epsilon)
    return rng.geometric(q, size=shape) - rng.geometric(q, size=shape)


def pair(bias, regret):
    """Two functions on two levels with E[(h₁ − h₂)²] = β and E[h₁ − h₂] = Δ; either may be true."""
    spread = np.sqrt(regret - bias**2)
    gap = np.array([bias - spread, bias + spread])
    functions = np.array([0.5 + gap / 2, 0.5 - gap / 2])
    assert functions.min() >= 0
    assert functions.max() <= 1
    return Simulation(title="", weight=np.array([0.5, 0.5]), truths=functions, hypotheses=functions)


# -- noise ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_closed_forms_of_noise(epsilon):
    law = laplace_law(epsilon)
    e = np.arange(len(law)) - len(law) // 2
    assert laplace_variance(epsilon) == pytest.approx(law @ e**2, rel=1e-9)
    for t in (0, 2.5, 7):
        assert laplace_tail(t, epsilon) == pytest.approx(law[abs(e) > t].sum(), rel=1e-9)
        assert laplace_tail_square(t, epsilon) == pytest.approx((law * e**2)[abs(e) > t].sum(), rel=1e-9)
    rate = 0.4 * epsilon
    assert laplace_log_mgf(rate, epsilon) == pytest.approx(np.log(law @ np.exp(rate * e)), rel=1e-7)
    assert np.isinf(laplace_log_mgf(epsilon, epsilon))
    # Moving the count by one changes no probability by more than e^ε.
    assert np.abs(np.diff(np.log(law))).max() == pytest.approx(epsilon)


# -- two functions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("size", "bias"), [(1, 0.0), (8, 0.0), (64, 0.0), (64, 0.03), (8, 0.2), (64, 0.2)])
def test_algorithm_1_errs_no_more_than_promised(size, bias, epsilon, seed):
    rng = np.random.default_rng(seed)
    problem = TwoFunctions(size=size, regret=0.25, bias=bias, error=0.1, epsilon=epsilon)
    trials = 300
    for bags in (max(1, int(two_function_bound(problem).value) // 12), int(two_function_bound(problem).value)):
        functions = pair(bias, 0.25)
        truth = np.arange(trials) % 2
        errors = 0
        for part in np.array_split(truth, max(1, bags * trials // 200_000)):
            v = draw(functions, size, part, bags, rng)
            counts = v[..., 0] + noise(epsilon, v.shape[:2], rng)
            sums = v[..., 1:] @ functions.hypotheses.T
            chosen = two_function_statistic(sums[..., 0], sums[..., 1], counts, totals=problem.totals) >= 0
            errors += int((chosen != part).sum())
        assert at_most(errors, trials, two_function_error(problem, bags))
    assert two_function_error(problem, bags) <= 0.1


def test_branch_condition_and_the_proof_s_constants():
    assert not TwoFunctions(size=64, regret=0.1, bias=0.02).totals
    assert TwoFunctions(size=64, regret=0.1, bias=0.03).totals
    edge = 2 / (stats.norm.cdf(-1) ** 2 * 0.1)
    below = two_function_bound(TwoFunctions(size=int(edge), regret=0.1, bias=0.0))
    above = two_function_bound(TwoFunctions(size=int(edge) + 1, regret=0.1, bias=0.0))
    assert below.by_proof is None
    assert above.value < below.value * 1.01 < above.by_proof
    # e^{−c₁²θ²m/8(1−c₁)k} with θ²/k = β is the slowest of the proof's terms and alone decides.
    share = stats.norm.cdf(-1) / 4
    slowest = share**2 * 0.1 / (8 * (1 - share))
    assert above.by_proof == pytest.approx(np.log(1 / 0.05) / slowest, rel=1e-3)
    totals = two_function_bound(TwoFunctions(size=64, regret=0.1, bias=0.2))
    assert totals.by_proof == pytest.approx(4.5 / (64 * 0.04) * np.log(80))
    assert totals.value < totals.by_proof


@pytest.mark.parametrize("epsilon", [None, 0.5])
def test_without_the_bias_the_bound_covers_every_one(epsilon):
    for size in (1, 8, 300):
        worst = two_function_bound(TwoFunctions(size=size, regret=0.1, epsilon=epsilon)).value
        for bias in np.linspace(0, np.sqrt(0.1), 40):
            one = TwoFunctions(size=size, regret=0.1, bias=bias, epsilon=epsilon)
            assert two_function_bound(one).value <= worst


# -- clipped empirical risk -----------------------------------------------------------------------------------------


def few_hypotheses(regret):
    """Functions on four levels, the truth among them, the others at a distance of the regret and more."""
    truth = np.array([0.2, 0.4, 0.6, 0.8])
    signs = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1], [-1, -1, 1, 1]])
    others = np.clip(truth + 1.02 * np.sqrt(regret) * signs, 0, 1)
    return Simulation(
        title="", weight=np.full(4, 0.25), truths=truth[None], hypotheses=np.concatenate([truth[None], others])
    )


@pytest.mark.parametrize("epsilon", [None, 1.0])
@pytest.mark.parametrize("known", [True, False])
def test_clipped_risk_misses_no_more_than_promised(known, epsilon, seed):
    rng = np.random.default_rng(seed)
    k, regret, error, trials = 16, 0.15, 0.2, 40
    problem = few_hypotheses(regret)
    bad = problem.regrets[0] >= regret
    assert 2 <= bad.sum() < len(bad)
    setting = HypothesisClass(hypotheses=len(bad), size=k, regret=regret, error=error, known=known, epsilon=epsilon)
    promised = int(erm_bound(setting).value)
    clip = clip_threshold(k, regret=regret, estimated=not known, noise_variance=laplace_variance(epsilon) or None)
    failures = 0
    for _ in range(trials):
        v = draw(problem, k, np.zeros(1, dtype=int), promised, rng)[0]
        proportion = (v[:, 0] + noise(epsilon, promised, rng)) / k
        sums = v[:, 1:] @ problem.hypotheses.T
        aside = 0 if known else promised // 2
        prior = problem.prior if known else proportion[:aside].mean()
        mean = problem.means if known else sums[:aside].mean(axis=0) / k
        loss = debiased_square_of_sums(sums[aside:], k, proportion[aside:, None], prior=prior, mean=mean, clip=clip)
        failures += bool(bad[loss.mean(axis=0).argmin()])
    assert at_most(failures, trials, error)


def test_constants_of_the_erm_proof():
    k, beta, gamma = 64, 0.01, 0.003
    bound = erm_bound(HypothesisClass(hypotheses=60, size=k, regret=beta, distance=gamma))
    log_clip = np.log(2 * 16 * k**2 / beta)
    second = 144 * (4 * gamma + 2 * beta) * log_clip + 128 * k**2 * beta / (16 * k**2)
    bernstein = (second + 2 * (8 * log_clip + 1) * (beta / 2) / 3) * 2 / (beta / 2) ** 2
    assert bound.by_proof == pytest.approx(bernstein * np.log(60 / 0.05))
    assert bound.value < bound.by_proof


def test_erm_bound_grows_as_the_theorem_says():
    def bags(**changed):
        return erm_bound(HypothesisClass(**{"hypotheses": 60, "size": 64, "regret": 0.01} | changed)).value

    logs = np.log(2 * 16 * np.array([8.0, 512.0]) ** 2 / 0.01)
    assert bags(size=512) / bags(size=8) < logs[1] / logs[0]  # the logarithm of k only
    assert bags(regret=0.001) == pytest.approx(10 * bags(), rel=0.3)  # 1/β where the truth is in the class
    far = [bags(regret=regret, distance=0.25, size=8) for regret in (1e-4, 1e-5)]
    assert far[1] / far[0] == pytest.approx(100, rel=0.3)  # 1/β² where it is not
    assert bags(hypotheses=600) < 1.5 * bags()
    assert bags(known=False) > 2 * bags()
    assert bags(epsilon=1.0) > bags()
    assert bags(risk=0.05) < bags()


@pytest.mark.parametrize("known", [True, False])
def test_regret_of_bags_is_the_inverse(known):
    regret = erm_regret(1_000_000, hypotheses=60, size=64, known=known)
    needed = erm_bound(HypothesisClass(hypotheses=60, size=64, regret=regret, known=known)).value
    assert needed <= 1_000_000 < 1.01 * needed
    assert np.isinf(erm_regret(10, hypotheses=60, size=64))


# -- SGD ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [None, 0.3])
def test_algorithm_2_keeps_its_excess_risk(epsilon, seed):
    rng = np.random.default_rng(seed)
    k, bags, trials, w_best, scatter = 16, 300, 60, np.array([0.6, -0.3]), 0.3
    problem = LinearProblem(size=k, rho_w=1.0, rho_x=1.0, rho_y=1.0, risk=scatter**2 / 3, epsilon=epsilon)
    constants = problem.constants(bags)
    excess = []
    for _ in range(trials):
        x = rng.uniform(-1, 1, size=(bags, k, 2)) / np.sqrt(2)
        y = x @ w_best + rng.uniform(-scatter, scatter, size=(bags, k))  # |y| ≤ 0.3 + 0.9/√2 < 1, both means 0
        target = y.mean(axis=1) + noise(epsilon, bags, rng) / k
        w, total = np.zeros(2), np.zeros(2)
        for c, a in zip(x.mean(axis=1), target, strict=True):
            total += w
            if np.linalg.norm(c) <= constants.theta[0]:
                w = w - constants.step * 2 * k * (c @ w - a) * c
                w = w / max(1.0, np.linalg.norm(w))
        gap = total / bags - w_best
        excess.append(gap @ gap / 6)  # E[x xᵀ] = I/6
    bound = sgd_excess_risk(problem, bags)
    assert np.mean(excess) - 5 * np.std(excess) / np.sqrt(trials) <= bound
    assert sgd_excess_risk(problem, 100 * bags) < bound


def test_bags_of_algorithm_2_are_the_inverse_of_its_bound():
    problem = LinearProblem(size=64, rho_w=1.0, rho_x=2.0, risk=0.1)
    needed = sgd_bound(problem, 0.05).value
    assert sgd_excess_risk(problem, needed) <= 0.05 < sgd_excess_risk(problem, needed - 1)
    nearly_realizable = LinearProblem(size=64, rho_w=1.0, rho_x=2.0, risk=1e-9)
    ratio = sgd_bound(nearly_realizable, 0.001).value / sgd_bound(nearly_realizable, 0.01).value
    assert 10 < ratio < 15  # 1/β but for logarithms
    assert sgd_bound(problem, 0.01).value / sgd_bound(problem, 0.1).value > 50


# -- the information bound, and what is expected ---------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", [4, 64])
def test_the_best_test_needs_more_than_the_information_bound(size, epsilon, seed):
    """The likelihood ratio is the best test there is: with the bound's bags it must still err more than δ."""
    rng = np.random.default_rng(seed)
    regret, error, trials = 0.2, 0.1, 2000
    problem, law = symmetric_pair(regret), laplace_law(epsilon or 60.0)
    bags = int(information_bound(SymmetricPair(size=size, regret=regret, error=error, epsilon=epsilon)).value)
    q = 0.5 + np.sqrt(regret) / 2
    by_ones = np.empty((size + 1, size + len(law)))
    for ones in range(size + 1):
        one = stats.binom.pmf(np.arange(ones + 1), ones, q)
        other = stats.binom.pmf(np.arange(size - ones + 1), size - ones, 1 - q)
        by_ones[ones] = np.convolve(np.convolve(one, other), law)
    ratio = np.log(by_ones) - np.log(by_ones[:, ::-1])  # of "up at 1" over "up at 0", by ones and noised count
    truth = np.arange(trials) % 2
    v = draw(problem, size, truth, bags, rng)
    counts = (v[..., 0] + noise(epsilon, v.shape[:2], rng)).astype(int) + len(law) // 2
    evidence = ratio[v[..., 2], np.clip(counts, 0, ratio.shape[1] - 1)].sum(axis=1)
    errors = int(((evidence > 0) != (truth == 0)).sum())
    assert stats.binomtest(errors, trials, error, alternative="less").pvalue > 1e-6
    assert errors / trials > error  # with room to spare: Fano is not tight


def test_noise_leaves_less_to_learn_and_large_bags_hide_it():
    def bits(size, epsilon):
        return information_bound(SymmetricPair(size=size, regret=0.05, epsilon=epsilon)).constants["bits"]

    assert bits(8, 0.1) < bits(8, 1.0) < bits(8, None)
    assert bits(512, 1.0) / bits(512, None) > 0.97 > bits(8, 1.0) / bits(8, None)
    assert bits(8, 60.0) == pytest.approx(bits(8, None), rel=1e-9)
    assert bits(2048, None) < limiting_information(0.05)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_impossible_regret_is_the_inverse_of_the_bound(epsilon):
    for bags in (5, 1000):
        regret = information_regret(bags, size=64, epsilon=epsilon)
        pair_ = SymmetricPair(size=64, regret=regret, epsilon=epsilon)
        if regret < 1:
            assert information_bound(pair_).value == pytest.approx(bags, rel=2e-3)
        else:
            assert information_bound(pair_).value >= bags


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_what_is_likely_of_two_candidates_happens(epsilon, seed):
    """At the likely number of bags the risk chooses rightly with probability 1 − δ, as far as sums are normal."""
    rng = np.random.default_rng(seed)
    k, regret, trials = 64, 0.05, 2000
    problem = symmetric_pair(regret)
    setting = Setting(size=k, epsilon=epsilon, hypotheses=2, error=0.1, risk=problem.risks.min())
    bags = int(likely_bags(setting, regret))
    failures = 0
    for part in np.array_split(np.arange(trials) % 2, 10):
        v = draw(problem, k, part, bags, rng)
        sums = v[..., 1:] @ problem.hypotheses.T
        proportion = (v[..., 0] + noise(epsilon, v.shape[:2], rng)) / k
        loss = debiased_square_of_sums(sums, k, proportion[..., None], prior=0.5, mean=problem.means)
        failures += int((loss.mean(axis=1).argmin(axis=-1) != part).sum())
    assert failures / trials == pytest.approx(0.1, abs=0.02 + 5 * np.sqrt(0.09 / trials))
    assert information_bound(SymmetricPair(size=k, regret=regret, error=0.1, epsilon=epsilon)).value < bags


def others_at(distances, size, bags, trials, rng):
    """Regrets of what the debiased risk chooses among a truth and others at these distances, in directions apart."""
    levels = hadamard(len(distances) + 1)[1:]  # orthogonal, of mean 0
    truth = np.full(levels.shape[1], 0.5)
    functions = np.stack([truth, *(truth + np.sqrt(distances)[:, None] * levels)])
    problem = Simulation(title="", weight=truth / truth.sum(), truths=truth[None], hypotheses=functions)
    found = []
    for part in np.array_split(np.zeros(trials, dtype=int), max(1, trials * bags // 20_000)):
        v = draw(problem, size, part, bags, rng)
        sums = v[..., 1:] @ functions.T
        loss = debiased_square_of_sums(sums, size, v[..., :1] / size, prior=0.5, mean=0.5)
        found.append(problem.regrets[0, loss.mean(axis=1).argmin(axis=-1)])
    return np.concatenate(found)


def test_expected_is_the_largest_mean_and_likely_the_largest_quantile_of_any_class(seed):
    rng = np.random.default_rng(seed)
    size, bags, trials = 16, 300, 600
    setting = Setting(size=size, hypotheses=32)
    expected, likely = expected_regret(setting, bags), likely_regret(setting, bags)
    scale = 4 / (bag_information(setting) * bags)
    roots = np.linspace(0.1, 5, 500)
    largest = roots[(roots**2 * (1 - stats.norm.cdf(roots) ** 31)).argmax()] ** 2 * scale
    found = others_at(np.full(31, largest), size, bags, trials, rng)
    error = found.std() / np.sqrt(trials)
    assert found.mean() == pytest.approx(expected, abs=5 * error + 0.05 * expected)  # bags of 16 are nearly normal
    found = others_at(np.full(31, likely * 1.0001), size, bags, trials, rng)
    assert at_most(int((found > likely).sum()), trials, 0.05)
    assert (found > likely).mean() > 0.015


def test_expected_holds_for_random_classes(seed):
    """Distances spread at random: the mean is below what is expected, and comes within a factor of 3 of it."""
    rng = np.random.default_rng(seed)
    size, bags, trials = 16, 300, 300
    setting = Setting(size=size, hypotheses=32)
    expected, likely = expected_regret(setting, bags), likely_regret(setting, bags)
    means = []
    for widest in likely * np.array([0.3, 1.0, 3.0]):
        found = np.concatenate(
            [others_at(rng.uniform(0, widest, 31), size, bags, 30, rng) for _ in range(trials // 30)]
        )
        assert found.mean() - 5 * found.std() / np.sqrt(trials) < expected
        assert at_most(int((found > likely).sum()), trials, 0.05)
        means.append(found.mean())
    assert max(means) > expected / 3


@pytest.mark.parametrize("epsilon", [None, 0.3])
def test_what_is_expected_of_least_squares_happens(epsilon, seed):
    rng = np.random.default_rng(seed)
    k, bags, d, trials = 32, 80, 10, 300
    risk = 0.2
    excess = []
    for _ in range(trials):
        c = rng.normal(size=(bags, d))  # √k times a centred centroid
        target = np.sqrt(risk) * rng.normal(size=bags) + noise(epsilon, bags, rng) / np.sqrt(k)
        w = np.linalg.lstsq(c, target, rcond=None)[0]
        excess.append(w @ w)
    expected = expected_regret(Setting(size=k, epsilon=epsilon, risk=risk, parameters=d), bags)
    assert np.mean(excess) == pytest.approx(expected, abs=5 * np.std(excess) / np.sqrt(trials))


# -- plans ----------------------------------------------------------------------------------------------------------


FORMED = [
    {},
    {"formation": "rates", "rates_sd": 0.04},
    {"formation": "features", "between": 0.1},
    {"formation": "effects", "effects_sd": 0.3},
]


def test_nobody_expects_more_regret_than_a_constant_guess_costs():
    """And what is likely is never below what is impossible, whatever p is."""
    cases = product(FORMED, (0.5, 0.003), (1, 64, 10**5), (None, 0.1), (1, 50, 10**6), (None, 20))
    for given, prior, size, epsilon, bags, parameters in cases:
        setting = Setting(size=size, epsilon=epsilon, prior=prior, parameters=parameters, **given)
        answer = regrets(setting, bags)
        assert 0 < answer.expected <= answer.likely <= prior * (1 - prior)
        assert answer.impossible <= answer.likely * 1.01
        assert answer.guaranteed <= prior * (1 - prior) or np.isinf(answer.guaranteed)
        assert np.isinf(answer.guaranteed) or setting.formation == "random"


@pytest.mark.parametrize("given", FORMED)
@pytest.mark.parametrize("epsilon", [None, 1.0, 1e-3])
def test_any_size_is_answered_at_once(given, epsilon):
    start = time.process_time()
    for size in (1, 1000, 10**6, 10**9):
        setting = Setting(size=size, epsilon=epsilon, **given)
        assert np.isfinite(bags_needed(setting, 0.01).likely)
        regrets(setting, 1000)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("hypotheses", [2, 50])
@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_answers_are_in_order_and_each_other_s_inverse(epsilon, hypotheses):
    setting = Setting(size=16, epsilon=epsilon, hypotheses=hypotheses)
    answer = regrets(setting, 10_000_000)
    assert answer.impossible < answer.likely < answer.guaranteed < 0.25
    assert answer.expected < answer.likely
    for name, tolerance in (("guaranteed", 0.02), ("likely", 1e-6), ("expected", 1e-6), ("impossible", 0.005)):
        needed = getattr(bags_needed(setting, getattr(answer, name)), name)
        assert needed == pytest.approx(10_000_000, rel=tolerance)


def test_which_size():
    sizes = [2**i for i in range(9)]
    found = largest_size(Setting(size=1, hypotheses=2), 100_000, 0.01, sizes)
    assert found["guaranteed"] < found["likely"] <= found["impossible"]
    more = largest_size(Setting(size=1, hypotheses=2), 1_000_000, 0.01, sizes)
    assert more["guaranteed"] > found["guaranteed"]
    assert largest_size(Setting(size=1), 100, 0.01, sizes)["guaranteed"] is None


def test_orders_of_growth_of_earlier_methods():
    small, large = sample_complexity(8, 0.01), sample_complexity(64, 0.01)
    assert [round(large[name] / small[name]) for name in small] == [1, 1, 8, 64]


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: TwoFunctions(size=8, regret=0.01, bias=0.2), "bias"),
        (lambda: TwoFunctions(size=8, regret=0.01, error=0.0), "error"),
        (lambda: TwoFunctions(size=8, regret=0.01, epsilon=0.0), "epsilon"),
        (lambda: HypothesisClass(hypotheses=1, size=8, regret=0.1), "hypotheses"),
        (lambda: HypothesisClass(hypotheses=5, size=8, regret=0.1, distance=2), "distance"),
        (lambda: HypothesisClass(hypotheses=5, size=0, regret=0.1), "size"),
        (lambda: HypothesisClass(hypotheses=5, size=8, regret=0.1, risk=-1), "risk"),
        (lambda: LinearProblem(size=8, rho_w=0.0, rho_x=1.0, risk=0.1), "rho_w"),
        (lambda: sgd_bound(LinearProblem(size=8, rho_w=1.0, rho_x=1.0, risk=0.1), 0.0), "regret"),
        (lambda: Setting(size=8, error=0.6), "error"),
        (lambda: Setting(size=8, risk=0.3), "risk"),
        (lambda: Setting(size=8, risk=0.1, prior=0.05), "risk"),
        (lambda: Setting(size=8, prior=1.0), "prior"),
        (lambda: Setting(size=8, parameters=0), "parameters"),
        (lambda: Setting(size=8, formation="grouped"), "formation"),
        (lambda: Setting(size=8, formation="rates"), "rates_sd"),
        (lambda: Setting(size=8, formation="rates", rates_sd=0.2, prior=0.01), "rates_sd"),
        (lambda: Setting(size=8, rates_sd=0.1), "rates_sd"),
        (lambda: Setting(size=8, formation="effects"), "effects_sd"),
        (lambda: Setting(size=8, formation="rates", rates_sd=0.1, effects_sd=0.1), "effects_sd"),
        (lambda: Setting(size=8, formation="rates", rates_sd=0.1, between=0.1), "between"),
        (lambda: SymmetricPair(size=8, regret=0.1, prior=0.1), "regret"),
        (lambda: regrets(Setting(size=8), 0), "bags"),
        (lambda: expected_bags(Setting(size=8), 2.0), "regret"),
        (lambda: expected_bags(Setting(size=8), -0.1), "regret"),
        (lambda: expected_regret(Setting(size=8), -1), "bags"),
        (lambda: information_regret(0, size=8), "bags"),
    ],
)
def test_refuses_what_it_does_not_cover(make, parameter):
    with pytest.raises(ParameterError) as error:
        make()
    assert error.value.parameter == parameter
