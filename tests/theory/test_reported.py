"""What hiding, rounding and clamping leave of a count: against the exact likelihood, and what plans make of it."""

import numpy as np
import pytest
from scipy.special import expit

from bagwise import Bags
from bagwise.losses.tilting_intervals import tilted
from bagwise.theory import PlannedBags, Setting, bag_information, bags_needed, expected_regret, regrets
from bagwise.theory.reported import Cells, variance_of_cells

SIZE, BAGS = 40, 8000
CELLS = {
    "hidden": Cells(hidden=(0, 9)),
    "rounded": Cells(rounded=5),
    "clamped": Cells(clamped=(5, 10)),
    "hidden and rounded": Cells(hidden=(0, 5), rounded=5),
}


def ends(cells, count, most):
    """Between which counts each lies, by what reports show."""
    every = np.arange(-most, 2 * most + 1.0)
    told, shown = (np.nan_to_num(cells.shown(one), nan=-np.inf) for one in (every, count))
    low, high = np.empty_like(count), np.empty_like(count)
    for one in np.unique(shown):
        low[shown == one], high[shown == one] = every[told == one].min(), every[told == one].max()
    return low, high


@pytest.mark.parametrize("noise", [0.0, 4.0], ids=["exact", "noised"])
@pytest.mark.parametrize("spread", [0.0, 1.0], ids=["rows alike", "rows differ"])
@pytest.mark.parametrize("name", CELLS)
def test_the_information_is_that_of_the_exact_likelihood(name, spread, noise):
    """Simulated: the mean square of the derivative as all log odds of a bag move; within 5 standard errors."""
    rng = np.random.default_rng(0)
    s = -1.4 + spread * rng.normal(size=SIZE)
    h = expit(s)
    mean, variance = h.sum(), (h * (1 - h)).sum()
    count = (rng.random((BAGS, SIZE)) < h).sum(axis=1).astype(float)
    if noise:
        count = np.round(count + rng.normal(scale=np.sqrt(noise), size=BAGS))
    low, high = ends(CELLS[name], count, SIZE)
    if noise:  # in the likelihood, noise is a number of any digits
        low, high = low - 0.5, high + 0.5
    rows = np.repeat(np.arange(BAGS), SIZE)
    bags = Bags.from_rows(np.zeros(len(rows)), rows, noise_variance=noise or None).with_intervals(low, high)
    score = bags.sum(tilted(np.tile(s, BAGS), bags).gradient)
    error = (score**2).std() / np.sqrt(BAGS)
    given = {"noise": noise, "mechanism": "gaussian"}
    expected = variance**2 / (variance + noise + variance_of_cells(SIZE, mean, variance, CELLS[name], **given))
    slack = 0.015 * expected if spread else 0.0  # by how much a binomial law of the same variance is off
    assert abs((score**2).mean() - expected) < 5 * error + slack
    assert expected < 0.97 * variance**2 / (variance + noise)  # and it costs something


def test_what_tells_nothing_is_worth_nothing_and_what_tells_all_costs_nothing():
    everything, nothing = Cells(hidden=(0, 200)), Cells(hidden=(150, 200), rounded=1, clamped=(0, 200))
    assert variance_of_cells(100, 20, 16, everything) > 1e6
    assert variance_of_cells(100, 20, 16, nothing) == pytest.approx(0, abs=1e-9)
    assert bag_information(PlannedBags(size=100, prior=0.2, hidden=(0, 100))) < 1e-6
    for size, mean, variance in ((100, 20, 16), (100, 80, 16), (100, 20, 9), (100, 20, 60)):
        fine, coarse = (variance_of_cells(size, mean, variance, Cells(rounded=one)) for one in (3, 9))
        assert fine == pytest.approx((3**2 - 1) / 12, rel=0.1)
        assert fine < coarse


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"risk": 0.06},
        {"formation": "features", "between": 0.2},
        {"formation": "rates", "rates_sd": 0.08},
        {"formation": "effects", "effects_sd": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("epsilon", [None, 0.5])
def test_less_is_known_the_more_is_hidden_in_every_formation(given, epsilon):
    worth = [
        bag_information(PlannedBags(size=60, prior=0.1, epsilon=epsilon, hidden=hidden, **given))
        for hidden in (None, (0, 2), (0, 5), (0, 9), (0, 20))
    ]
    assert (np.diff(worth) < 0).all()
    assert worth[1] > 0.9 * worth[0]


def test_noise_counts_by_its_mechanism_and_sensitivity():
    worth = {
        name: 1 / bag_information(PlannedBags(size=10, **given)) - 0.25
        for name, given in {
            "discrete": {"epsilon": 1.0},
            "laplace": {"epsilon": 1.0, "mechanism": "laplace"},
            "three": {"epsilon": 1.0, "sensitivity": 3.0},
            "a third": {"epsilon": 1 / 3},
            "gaussian": {"noise_scale": 2.0, "mechanism": "gaussian"},
            "b": {"noise_scale": 2.0},
        }.items()
    }
    assert worth["laplace"] == pytest.approx(0.2)
    assert worth["discrete"] == pytest.approx(0.18413, rel=1e-4)
    assert worth["three"] == worth["a third"]
    assert worth["gaussian"] == pytest.approx(0.4)
    assert worth["b"] == pytest.approx(0.8)


def test_crossed_tables_add_up_and_a_duplicate_adds_nothing():
    """The rank of what bags add up, for tables of 24 rows."""
    rng = np.random.default_rng(0)
    fine, other = rng.permutation(24) // 4, rng.permutation(24) // 6
    matrix = np.concatenate([fine == np.arange(6)[:, None], other == np.arange(4)[:, None]])
    assert Setting(size=4, further=(6,)).together(6) == pytest.approx(np.linalg.matrix_rank(matrix))
    twice = np.concatenate([matrix[:6], matrix[:6], (fine // 2) == np.arange(3)[:, None]])  # and one that joins bags
    assert np.linalg.matrix_rank(twice) == 6
    assert expected_regret(Setting(size=64, further=(64,)), 1000) == pytest.approx(
        expected_regret(Setting(size=64), 1999)
    )
    one, both = bags_needed(Setting(size=64), 0.01), bags_needed(Setting(size=64, further=(64,)), 0.01)
    assert both.guaranteed == one.guaranteed  # by the first alone
    assert both.likely == pytest.approx(one.likely / 2, abs=1)
    assert both.impossible < one.impossible


def test_least_squares_on_two_crossed_tables_lose_what_is_expected():
    """Regret of the best linear fit to both tables' counts, weighed by their covariance, labels being normal."""
    rng = np.random.default_rng(1)
    rows, d, sizes, lost = 1200, 5, (20, 30), []
    for _ in range(60):
        X = rng.normal(size=(rows, d))
        ids = [rng.permutation(rows) // k for k in sizes]
        A = np.concatenate([one == np.arange(rows // k)[:, None] for one, k in zip(ids, sizes, strict=True)])
        A = A.astype(float)
        y = 0.5 * rng.normal(size=rows)
        w = np.linalg.pinv(A @ A.T)
        fitted = np.linalg.solve((A @ X).T @ w @ (A @ X), (A @ X).T @ w @ (A @ y))
        lost.append(fitted @ fitted)
    setting = Setting(size=sizes[0], further=(sizes[1],), parameters=d)
    expected = expected_regret(setting, rows / sizes[0])
    assert abs(np.mean(lost) - expected) < 5 * np.std(lost) / np.sqrt(len(lost))
    alone = expected_regret(Setting(size=sizes[0], parameters=d), rows / sizes[0])
    assert alone - expected > 5 * np.std(lost) / np.sqrt(len(lost))


def test_sums_of_values_are_worth_what_counts_of_that_variance_are():
    counts, values = Setting(size=64, epsilon=None), Setting(size=64, value_sd=0.5)
    assert bag_information(values) == bag_information(counts)
    assert regrets(values, 1000).likely == regrets(counts, 1000).likely
    large = Setting(size=64, value_sd=50, noise_scale=100, mechanism="gaussian", risk=2000)
    assert bag_information(large) == pytest.approx(1 / (2000 + 100**2 / 64))
    assert bags_needed(large, 100).guaranteed == np.inf


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 1.0, "mechanism": "gaussian"}, "does not tell the scale of Gaussian noise"),
        ({"sensitivity": 2.0}, "is what epsilon is about"),
        ({"mechanism": "laplace"}, "give how much, by epsilon or noise_scale"),
        ({"epsilon": 1.0, "noise_scale": 2.0}, "say the same"),
        ({"value_sd": 3.0, "rounded": 5.0}, "is about counts, and does not go with value_sd"),
        ({"value_sd": 3.0, "epsilon": 1.0}, "sensitivity of sums of values is needed"),
        ({"value_sd": 3.0, "formation": "effects", "effects_sd": 0.2}, "is about labels 0 and 1"),
        ({"value_sd": 3.0, "risk": 10.0}, "at most the variance of the values = 9"),
        ({"hidden": (9, 0)}, "hidden must be two counts"),
        ({"further": (0,)}, "further must be sizes of bags"),
        ({"further": (64,), "formation": "rates", "rates_sd": 0.1}, "random or features"),
    ],
)
def test_what_does_not_go_together_is_said(given, message):
    with pytest.raises(ValueError, match=message):
        Setting(size=64, **given)


def test_beside_noise_without_end_clamping_costs_what_it_costs_a_normal_number():
    """Half of the square of a normal number lies below its mean, and above it what its sign tells, 1/π."""
    of = [
        variance_of_cells(10**6, 3e5, 2e5, Cells(clamped=(0, 3e5)), noise=scale**2, mechanism="gaussian") / scale**2
        for scale in (1900.0, 2100.0, 1e5)
    ]
    assert of[0] == pytest.approx(of[1], rel=0.02)  # on both sides of where two counts stand for all
    assert of[2] == pytest.approx(1 / (1 / 2 + 1 / np.pi) - 1, rel=2e-3)
