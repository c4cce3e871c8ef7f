"""The learners against the library's losses on rows, and the claims of the samples experiment at small scale."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bagwise import Bags, losses, means, two_function_test
from bagwise.experiments import samples, simulation
from bagwise.experiments.samples import SamplesConfig, bags_needed, clearly_passed, log_bags_error, slope
from bagwise.experiments.simulation import LEARNERS, TRUTH, Sample, draw, simulations

BETA = 0.01
PROBLEMS = simulations(BETA)


def sample_of(name, size=6, bags=8, trials=3):
    sample = Sample(PROBLEMS[name], size, trials, np.random.default_rng(3))
    sample.grow(bags // 2, trials)
    sample.grow(bags, trials)  # in two steps, as in the experiment
    return sample


def rows_of(vectors):
    """The level of every row and the bags, from the vectors of one trial's bags."""
    size = int(vectors[0, 1:].sum())
    level = np.concatenate([np.repeat(np.arange(len(v) - 1), v[1:]) for v in vectors])
    proportion = np.repeat(vectors[:, 0] / size, size)
    return level, Bags.from_rows(proportion, np.repeat(np.arange(len(vectors)), size))


ON_ROWS = {
    "li": (simulation.li_risks, lambda h, bags, p, mean: losses.li_square(h, bags, prior=p, mean=mean)),
    "matching": (simulation.matching_risks, lambda h, bags, p, mean: losses.matching_square(h, bags)),
    "easyllp": (simulation.easyllp_risks, lambda h, bags, p, mean: losses.easyllp(h, bags, prior=p, loss="square")),
    "centred": (
        simulation.centred_risks,
        lambda h, bags, p, mean: losses.centred(h, bags, prior=p, mean=1 - 2 * mean, loss="square"),
    ),
    "clipped": (
        lambda sample: simulation.clipped_risks(sample, regret=BETA, estimated=False),
        lambda h, bags, p, mean: losses.debiased_square(
            h, bags, prior=p, mean=mean, clip=losses.clip_threshold(bags.size, regret=BETA)
        ),
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("loss", ON_ROWS)
def test_risks_equal_the_losses_on_rows(name, loss):
    sample, problem = sample_of(name), PROBLEMS[name]
    risks, on_rows = ON_ROWS[loss]
    found = risks(sample)
    for trial, vectors in enumerate(sample.vectors):
        level, bags = rows_of(vectors)
        expected = [
            on_rows(h[level], bags, problem.prior, mean).mean()
            for h, mean in zip(problem.hypotheses, problem.means, strict=True)
        ]
        np.testing.assert_allclose(found[trial], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bags", [8, 9])
def test_estimated_means_come_from_the_second_half(bags):
    sample, problem = sample_of("ii", bags=bags), PROBLEMS["ii"]
    found = simulation.clipped_risks(sample, regret=BETA, estimated=True)
    for trial, vectors in enumerate(sample.vectors):
        level, first = rows_of(vectors[:4])
        other_level, second = rows_of(vectors[4:])
        clip = losses.clip_threshold(sample.size, regret=BETA, estimated=True)
        expected = [
            losses.debiased_square(
                h[level], first, prior=means.prior(second), mean=means.Known.held_out(h[other_level]).value, clip=clip
            ).mean()
            for h in problem.hypotheses
        ]
        np.testing.assert_allclose(found[trial], expected, rtol=1e-9)


def test_algorithm_1_equals_the_test_on_rows():
    sample, problem = sample_of("i", size=9, trials=20), PROBLEMS["i"]
    chosen = simulation.two_function_choice(sample)
    for trial, vectors in enumerate(sample.vectors):
        level, bags = rows_of(vectors)
        first, second = problem.hypotheses
        assert two_function_test(first[level], second[level], bags, delta=0.0, beta=BETA).choice == chosen[trial]
    assert 0 < chosen.mean() < 1


@pytest.mark.parametrize("name", ["i", "ii"])
def test_drawn_bags_have_the_moments_of_random_rows(name):
    problem, size, bags = PROBLEMS[name], 40, 20_000
    truth = np.arange(len(problem.truths))
    vectors = draw(problem, size, truth, bags, np.random.default_rng(5))
    assert (vectors[..., 1:].sum(axis=-1) == size).all()
    z = (vectors.mean(axis=1) - size * np.r_[problem.prior, problem.weight]) / (vectors.std(axis=1) / np.sqrt(bags))
    assert abs(z).max() < 5
    for t, counts in enumerate(vectors):
        expected = problem.truths[t] @ counts[:, 1:].T  # E[count | levels] is Σ η
        error = counts[:, 0] - expected
        assert abs(error.mean()) < 5 * error.std() / np.sqrt(bags)
        assert error.var() == pytest.approx(
            size * (problem.truths[t] * (1 - problem.truths[t])) @ problem.weight, rel=0.1
        )


def test_trials_that_end_leave_the_others_alone():
    sample = sample_of("ii", trials=4)
    square = sample.square[:2].copy()
    sample.grow(sample.bags, 2)
    np.testing.assert_array_equal(sample.square, square)
    assert sample.vectors.shape[:2] == (2, 8)


# -- the problems --------------------------------------------------------------------------------------------------


def test_regrets_keep_clear_of_the_target():
    assert PROBLEMS["i"].regrets == pytest.approx(np.array([[0, BETA], [BETA, 0]]))
    for name in ("ii", "iii", "iv"):
        ratio = PROBLEMS[name].regrets / BETA
        assert not ((ratio > 2 / 3) & (ratio < 2)).any()
        assert (ratio > 1).any()


def test_means_are_as_the_problems_say():
    off = {name: abs(problem.means - problem.prior) for name, problem in PROBLEMS.items()}
    best = {name: problem.regrets[0].argmin() for name, problem in PROBLEMS.items()}
    assert off["i"].max() < 1e-12
    assert off["ii"][best["ii"]] < 1e-12
    assert np.delete(off["ii"], best["ii"]).min() >= 0.02
    assert not np.isclose(PROBLEMS["iii"].hypotheses, TRUTH).all(axis=1).any()
    assert off["iii"].min() >= 0.04
    assert off["iv"][best["iv"]] == pytest.approx(0.05)
    assert PROBLEMS["iv"].regrets[0][off["iv"].argmin()] > BETA
    assert off["iv"].min() < 1e-12
    assert all(problem.hypotheses.min() >= 0 and problem.hypotheses.max() <= 1 for problem in PROBLEMS.values())


def test_only_matching_is_wrong_in_the_end_and_only_for_large_bags():
    for name, learner in LEARNERS.items():
        wrong = [learner.limit_regret(PROBLEMS["iv"], k) >= BETA for k in (8, 16, 32, 512)]
        assert wrong == ([False, False, True, True] if name == "matching" else [False] * 4)


def test_a_target_that_nothing_misses_is_refused():
    with pytest.raises(ValueError, match="every hypothesis meets"):
        simulations(0.5)


# -- success curves ------------------------------------------------------------------------------------------------


def test_bags_needed_recovers_the_level_of_a_known_curve():
    m = np.unique(np.rint(2 * 1.12 ** np.arange(80)).astype(int))
    success = stats.norm.cdf(stats.norm.ppf(0.95) * np.sqrt(m / 300))
    needed = bags_needed(m, success, np.full(len(m), 1000), level=0.95)
    assert needed["bags"] == pytest.approx(300, rel=0.01)
    assert needed["bags_grid"] == m[m >= 300][0]
    # By the delta method: the error of a success rate over the slope of the curve at the level.
    nearby = stats.norm.cdf(stats.norm.ppf(0.95) * np.sqrt(np.exp([-1e-4, 1e-4])))
    expected = np.sqrt(0.95 * 0.05 / 1000) / (np.diff(nearby).item() / 2e-4)
    assert needed["log_bags_se"] == pytest.approx(expected, rel=1e-6)


def test_curves_below_the_level_are_censored():
    needed = bags_needed([2, 4, 8], [0.5, 0.96, 0.9], [100, 100, 100], level=0.95)
    assert needed["censored"]
    assert np.isnan(needed["bags"])


def walk(rng, need, trials):
    """The bags needed by trials that each follow a random walk, and succeed with 95% after `need` bags."""
    drift = stats.norm.ppf(0.95) / np.sqrt(need)
    place, before, curve = np.zeros(trials), 0, []
    for m in np.unique(np.rint(2 * 1.2 ** np.arange(60)).astype(int)):
        place = place + rng.normal(drift * (m - before), np.sqrt(m - before), trials)
        before = m
        curve.append((m, (place > 0).mean(), trials))
        if clearly_passed(curve, 0.95):
            break
    return bags_needed(*zip(*curve, strict=True), level=0.95)


@pytest.mark.slow
def test_the_error_of_a_slope_has_the_right_size(seed):
    """The slope scatters as its ± says, or somewhat less: the ± leaves out what making curves monotone gains."""
    rng, repetitions = np.random.default_rng(seed), 400
    size, need, trials = [8, 32, 128], [40, 80, 160], [300, 300, 150]  # the true slope is 1/2
    z = []
    for _ in range(repetitions):
        found = pd.DataFrame([walk(rng, m, t) for m, t in zip(need, trials, strict=True)])
        fit = slope(size, found["bags"], found["log_bags_se"])
        z.append((fit["slope"] - 0.5) / fit["slope_se"])
    tolerance = 5 / np.sqrt(2 * repetitions)  # of the standard deviation of a normal variable
    assert 0.8 - tolerance < np.std(z) < 1 + tolerance
    assert abs(np.mean(z)) < 5 / np.sqrt(repetitions)


def test_slope_is_missing_where_a_count_is():
    assert np.isnan(slope([8, 16, 32, 64], [10, 20, 40, np.nan], [0.1, 0.1, 0.1, np.nan])["slope"])
    assert np.isnan(slope([8], [10], [0.1])["slope"])


# -- the experiment ------------------------------------------------------------------------------------------------

SMALL = SamplesConfig(
    sizes=(8, 64), trials=300, fewest_trials=80, budget=60_000, ratio=1.2, cap=3000, cap_biased=400, n_jobs=1,
    learners=("algorithm_1", "ours", "centred", "matching"),
)  # fmt: skip
FLAT = SamplesConfig(
    problems=("ii", "iii", "iv"), learners=("ours", "ours_estimated", "centred"), sizes=(8, 512), trials=900,
    fewest_trials=900, ratio=1.4, cap=400, n_jobs=1,
)  # fmt: skip
GROWING = SamplesConfig(
    problems=("ii",),
    learners=("li", "easyllp"),
    sizes=(8, 64),
    trials=150,
    fewest_trials=150,
    ratio=1.2,
    cap=8000,
    n_jobs=1,
)


@pytest.fixture(scope="module")
def frame():
    return samples.run(SMALL)


def slopes(frame):
    """Slope of log bags on log k by problem and learner: 0 is a need that does not grow, 1 one that grows like k."""
    groups = frame.groupby(["problem", "learner"])
    return pd.DataFrame({pair: slope(rows["k"], rows["bags"], rows["log_bags_se"]) for pair, rows in groups}).T


def table(frame):
    (bags,) = samples.tables(frame).values()
    return bags


def slope_tolerance(config):
    """Five standard errors of a slope between two sizes."""
    return 5 * np.sqrt(2) * log_bags_error(config.success, config.trials) / np.log(config.sizes[1] / config.sizes[0])


@pytest.mark.parametrize("problems", [("iv",), pytest.param(FLAT.problems, marks=pytest.mark.slow)])
def test_ours_and_centred_do_not_grow(problems, seed):
    fits = slopes(samples.run(replace(FLAT, problems=problems, random_state=seed)))
    assert len(fits) == 3 * len(problems)
    assert slope_tolerance(FLAT) < 0.15  # a slope of 0.3 is as far from passing as 0 is from failing
    assert (abs(fits["slope"]) < slope_tolerance(FLAT)).all()


@pytest.mark.slow
def test_li_and_easyllp_grow(frame):
    found = samples.run(GROWING)
    fits, bags, ours = slopes(found), table(found), table(frame).loc[("ii", "ours")]
    assert len(fits) == 2
    assert (abs(fits["slope"] - 1) < slope_tolerance(GROWING)).all()
    for learner in GROWING.learners:
        assert np.log(bags.loc[("ii", learner), 64] / ours[64]) > 5 * np.sqrt(2) * log_bags_error(0.95, GROWING.trials)


def test_losses_coincide_where_all_means_are_equal():
    # With equal means and h₁ = 1 − h₀, all of these losses give the two functions the same difference.
    sample = sample_of("i", trials=50)
    gaps = {name: np.diff(ON_ROWS[name][0](sample))[:, 0] for name in ("clipped", "li", "easyllp", "matching")}
    for name in ("li", "easyllp"):
        np.testing.assert_allclose(gaps[name], gaps["clipped"], atol=1e-12)
    np.testing.assert_allclose(sample.size * gaps["matching"], gaps["clipped"], atol=1e-12)


def test_no_learner_beats_the_information_bound(frame):
    rows = frame[frame["problem"] == "i"]
    assert set(rows["learner"]) == set(SMALL.learners)
    for success, checkpoints, trials, bound in zip(
        rows["successes"], rows["checkpoints"], rows["trials"], rows["lower_bound"], strict=True
    ):
        for s, m, t in zip(success, checkpoints, trials, strict=True):
            if m < bound:
                assert s < 0.95 + 5 * np.sqrt(0.95 * 0.05 / t)
    assert (np.log(rows["bags"] / rows["lower_bound"]) > 0).all()


def test_matching_is_given_up_where_it_cannot_succeed(frame):
    row = frame[(frame["problem"] == "iv") & (frame["learner"] == "matching")].set_index("k").loc[64]
    assert row["censored"]
    assert row["cap"] == SMALL.cap_biased
    assert row["limit_regret"] > BETA
    assert np.isnan(row["bags"])


def test_summary_says_what_the_table_holds():
    frame = samples.run(replace(SMALL, problems=("iv",), learners=("matching",), sizes=(8, 64)))
    line, note = samples.summary(frame)
    number = f"{frame['bags'].iloc[0]:.0f}"
    assert line.startswith(f"(iv) matching: {number} bags at k = 8; no number of bags suffices at k = 64, where")
    assert "classes are ours" in note
    capped = frame.assign(limit_regret=0.0)  # as if it were only slow
    assert samples.summary(capped)[0].endswith("bags at k = 8; more than 400 bags at k = 64.")
    lost = capped.assign(censored=True, bags=np.nan, cap=[300, 400])
    assert samples.summary(lost)[0] == "(iv) matching: more than 300 bags at k = 8; more than 400 bags at k = 64."
    two = frame.assign(censored=False, bags=[1200.0, 2400.0], log_bags_se=0.1)
    assert samples.summary(two)[0] == "(iv) matching: 1,200 bags at k = 8, 2,400 bags at k = 64, slope +0.33 ± 0.07."


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])  # processes take long to start
def test_result_depends_on_the_seed_alone(n_jobs):
    few = {"trials": 30, "fewest_trials": 20, "budget": 1000, "ratio": 1.5, "cap": 40, "cap_biased": 40}
    calls = []
    one = samples.run(
        SamplesConfig(**few, problems=("i", "iv"), sizes=(8, 16), n_jobs=1), progress=lambda *done: calls.append(done)
    )
    two = samples.run(SamplesConfig(**few, problems=("i", "iv"), sizes=(8, 16), n_jobs=n_jobs))
    pd.testing.assert_frame_equal(one, two, check_exact=True)
    alone = samples.run(SamplesConfig(**few, problems=("iv",), sizes=(16,), n_jobs=1))
    part = one[(one["problem"] == "iv") & (one["k"] == 16)].reset_index(drop=True)
    results = ["learner", "bags", "successes", "trials"]
    pd.testing.assert_frame_equal(alone[results], part[results], check_exact=True)
    other = samples.run(SamplesConfig(**few, problems=("iv",), sizes=(16,), n_jobs=1, random_state=1))
    assert list(other["successes"]) != list(alone["successes"])
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problems": ("v",)}, "problems must be .*'v'"),
        ({"learners": ("oracle",)}, "learners must be .*oracle"),
        ({"ratio": 1.0}, "ratio"),
        ({"trials": 10}, "fewest_trials"),
        ({"sizes": ()}, "sizes"),
        ({"success": 0.5}, "success"),
        ({"regret": 0.0}, "regret"),
        ({"cap": 2}, "cap"),
    ],
)
def test_impossible_configs_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        SamplesConfig(**change)


def test_success_that_would_not_last_does_not_count():
    assert bags_needed([2, 4], [0.99, 0.99], [100, 100], level=0.95, lasts=False)["censored"]


def test_algorithm_1_is_left_out_where_there_are_more_than_two():
    frame = samples.run(
        SamplesConfig(
            problems=("i", "iv"), learners=("algorithm_1",), sizes=(8,), trials=20, fewest_trials=20, cap=20, n_jobs=1
        )
    )
    assert list(frame["problem"]) == ["i"]
