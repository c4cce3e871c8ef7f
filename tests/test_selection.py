import warnings

import numpy as np
import pytest
from scipy.stats import binomtest

from bagwise import Bags, aggregate, clipped_erm, tournament, two_function_test
from bagwise.evaluation import BagsNotRandomWarning
from bagwise.losses import clip_threshold, debiased_square
from bagwise.selection import counts_decide
from bagwise.theory import Setting, likely_bags


def draw(rng, size, m, eta=lambda x: x**2):
    """Random bags of rows uniform on [0, 1] with P(y = 1 | x) = eta(x)."""
    x = rng.uniform(size=size * m)
    y = rng.random(size * m) < eta(x)
    ids = np.arange(size * m) // size
    return x, Bags.from_rows(y.reshape(m, size).mean(axis=1).repeat(size), ids)


def powers(*exponents):
    return [lambda x, a=a: x**a for a in exponents]


@pytest.mark.parametrize("size", [1, 5])
def test_two_function_statistics_equal_the_paper_written_as_loops(size):
    rng = np.random.default_rng(0)
    x, bags = draw(rng, size, 7)
    h0, h1 = x, x**3
    a = [0.0, 0.0]
    q = 0.0
    for j in range(7):
        rows = range(j * size, (j + 1) * size)
        count = size * bags.proportion[j]
        e = [sum(h[i] for i in rows) for h in (h0, h1)]
        a[0] += count - e[0]
        a[1] += count - e[1]
        middle = (e[0] + e[1]) / 2
        q += count - middle if e[0] <= e[1] else middle - count
    on_totals = two_function_test(h0, h1, bags, delta=1.0, beta=0.5)
    on_bags = two_function_test(h0, h1, bags, delta=0.0, beta=0.5)
    assert (on_totals.branch, on_bags.branch) == ("totals", "bags")
    assert on_totals.statistic == pytest.approx(abs(a[0]) - abs(a[1]))
    assert on_bags.statistic == pytest.approx(q)
    assert on_totals.choice == int(abs(a[0]) >= abs(a[1]))
    assert on_bags.choice == int(q >= 0)


def test_the_branch_follows_the_size_and_the_separation():
    assert counts_decide(delta=0.1, beta=0.02, size=1)  # √(0.02/2) = 0.1
    assert not counts_decide(delta=0.0999, beta=0.02, size=1)
    assert counts_decide(delta=-0.05, beta=0.02, size=4)


def test_delta_and_beta_are_estimated_from_all_rows():
    x = np.array([0.1, 0.5, 0.9, 0.3])
    bags = Bags.from_rows([0.5, 0.5, np.nan, np.nan], [0, 0, -1, -1])
    result = two_function_test(x, np.zeros(4), bags)
    assert result.delta == pytest.approx(x.mean())
    assert result.beta == pytest.approx((x**2).mean())


@pytest.mark.parametrize("truth", [0, 1])
@pytest.mark.parametrize("models", ["same mean", "different means"])
def test_algorithm_1_finds_the_true_model(truth, models):
    """Both branches: 100 bags of 64 are several times what the theorem's rate asks for, so errors are rare."""
    pair = {"same mean": (lambda x: x, lambda x: 1 - x), "different means": (lambda x: x, lambda x: x**2)}[models]
    rng = np.random.default_rng(3)
    right = 0
    for _ in range(100):
        x, bags = draw(rng, 64, 100, eta=pair[truth])
        right += two_function_test(*pair, bags, X=x).choice == truth
    assert binomtest(right, 100, 0.95, alternative="less").pvalue > 1e-6


def test_the_tournament_finds_the_true_model_among_many():
    rng = np.random.default_rng(0)
    exponents = [0.3, 0.6, 1.0, 2.0, 3.5, 6.0]
    for truth in range(len(exponents)):
        x, bags = draw(rng, 32, 2000, eta=lambda x, a=exponents[truth]: x**a)
        assert tournament(powers(*exponents), bags, X=x) == truth
        assert tournament(np.stack([x**a for a in exponents], axis=1), bags) == truth


@pytest.mark.parametrize("how", ["known", "own", "split"])
def test_clipped_erm_equals_the_loss_of_each_hypothesis(how):
    """Risks are the means of the clipped loss over the bags used, whether hypotheses are functions or columns."""
    rng = np.random.default_rng(1)
    x, bags = draw(rng, 8, 50)
    exponents = (0.5, 1, 2, 4)
    columns = np.stack([x**a for a in exponents], axis=1)
    given = {"prior": 1 / 3, "means": [1 / (a + 1) for a in exponents]} if how == "known" else {"split": how == "split"}
    result = clipped_erm(powers(*exponents), bags, X=x, random_state=0, **given)
    other = clipped_erm(columns, bags, random_state=0, **given)
    np.testing.assert_allclose(result.risks, other.risks)
    assert result.n_bags == (25 if how == "split" else 50)
    used, apart = bags, bags
    if how == "split":  # the half set aside is the first of the permutation
        split = np.random.default_rng(0).permutation(50)
        apart, used = bags.take(split[:25]), bags.take(np.sort(split[25:]))
    if how != "known":
        given = {"prior": apart.proportion.mean(), "means": columns[apart.order].mean(axis=0)}
    assert result.prior == pytest.approx(given["prior"])
    np.testing.assert_allclose(result.means, given["means"])
    clip = clip_threshold(used.size, regret=0.01, estimated=how != "known")
    for h in range(4):
        loss = debiased_square(columns[used.order, h], used, prior=given["prior"], mean=given["means"][h], clip=clip)
        off = (given["means"][h] - given["prior"]) ** 2
        if how == "own":  # m − 1 for the means that were estimated on the same bags, 1 − 1/n for the square of theirs
            assert result.risks[h] == pytest.approx((1 - 1 / 400) * (loss - off).sum() / 49 + off)
        else:
            assert result.risks[h] == pytest.approx(loss.mean())
        plain = loss.std(ddof=1) / np.sqrt(len(used))
        if how == "known":
            assert result.standard_errors[h] == pytest.approx(plain)
        elif how == "split":  # the error of the means comes on top
            assert result.standard_errors[h] > plain
    assert result.choice == int(np.argmin(result.risks))
    assert (result.low < result.risks).all()
    assert (result.risks < result.high).all()


def wrong_choices(count, size, regret, trials, rng):
    """How often all bags, and half of them, choose wrongly where the plan calls the regret of all others likely."""
    m = int(likely_bags(Setting(size=size, hypotheses=count, risk=0.24), regret))
    truth = 0.5 + 0.1 * rng.choice([-1.0, 1.0], size=64)
    levels = np.stack([truth, *(truth + np.sqrt(regret) * rng.choice([-1.0, 1.0], size=(count - 1, 64)))])
    wrong = {False: 0, True: 0}
    ids = np.arange(m * size) // size
    for _ in range(trials):
        x = rng.integers(64, size=m * size)
        y = rng.random(m * size) < levels[0, x]
        bags = Bags.from_rows(aggregate(y, ids), ids)
        for split in wrong:
            with warnings.catch_warnings():  # of one table in 1,000
                warnings.simplefilter("ignore", BagsNotRandomWarning)
                wrong[split] += clipped_erm(levels[:, x].T, bags, split=split, random_state=rng).choice != 0
    return wrong


def test_choice_from_all_bags_errs_as_rarely_as_promised_and_from_half_of_them_does_not(seed):
    wrong = wrong_choices(30, 8, 0.1, 150, np.random.default_rng(seed))
    assert binomtest(wrong[False], 150, 0.05, alternative="greater").pvalue > 1e-6
    assert binomtest(wrong[True], 150, 0.15, alternative="greater").pvalue < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("size", [8, 64])
def test_choice_among_a_hundred_errs_as_often_as_promised(size, seed):
    """Directions drawn at random are not quite apart, so that errors may be somewhat fewer than promised."""
    wrong = wrong_choices(100, size, 0.1, 1000, np.random.default_rng([seed, size]))
    assert binomtest(wrong[False], 1000, 0.07, alternative="greater").pvalue > 1e-6
    assert binomtest(wrong[False], 1000, 0.02, alternative="less").pvalue > 1e-6
    assert binomtest(wrong[True], 1000, 0.5, alternative="less").pvalue > 1e-6


@pytest.mark.filterwarnings("ignore::bagwise.evaluation.BagsNotRandomWarning")
def test_clipping_counts_only_residuals_within_the_threshold():
    """A hypothesis that is wildly off in one large bag is clipped there."""
    size, m = 4096, 20
    ids = np.arange(size * m) // size
    bags = Bags.from_rows(np.repeat(np.r_[1.0, np.full(m - 1, 0.5)], size), ids)
    h = np.full((size * m, 1), 0.5)
    result = clipped_erm(h, bags, prior=0.5, means=[0.5], regret=1.0)
    assert result.n_clipped[0] == 1  # |R| = 2048 in the first bag, threshold √(8·4096·log(32·4096²)) = 814
    assert result.risks[0] == 0


def test_a_split_uses_rows_without_a_bag_for_the_means():
    x = np.r_[np.linspace(0, 1, 8), 0.7, 0.7]
    bags = Bags.from_rows(np.r_[np.tile(0.5, 8), np.nan, np.nan], [0, 0, 1, 1, 2, 2, 3, 3, -1, -1])
    result = clipped_erm([lambda x: x], bags, X=x, split=True, random_state=0)
    aside = bags.take(np.random.default_rng(0).permutation(4)[:2])
    assert result.means[0] == pytest.approx(np.r_[x[aside.order], 0.7, 0.7].mean())


def test_declared_noise_is_subtracted_from_risks():
    rng = np.random.default_rng(0)
    x, bags = draw(rng, 16, 4000)
    noise = rng.normal(scale=4.0, size=4000)
    noised = Bags.from_rows(bags.repeat(bags.proportion + noise / 16), np.arange(16 * 4000) // 16, noise_variance=16.0)
    given = {"prior": 1 / 3, "means": [1 / 3]}
    result = clipped_erm(powers(2), noised, X=x, **given)
    truth = (x**2 * (1 - x**2)).mean()
    assert abs(result.risks[0] - truth) < 5 * result.standard_errors[0]
    assert abs(result.risks[0] + 1 - truth) > 5 * result.standard_errors[0]  # s²/k = 1 would be noticed


@pytest.mark.parametrize("scale", [5.0, 15.0])
def test_noise_much_larger_than_a_bag_does_not_turn_the_choice_around(scale):
    """Were the threshold blind to noise, worse hypotheses would be clipped more often and win."""
    rng = np.random.default_rng(0)
    x, bags = draw(rng, 4, 40_000)
    noise = rng.laplace(scale=scale / np.sqrt(2), size=len(bags))
    noised = Bags.from_rows(bags.repeat(bags.proportion + noise / 4), bags.code, noise_variance=scale**2)
    models = [lambda x: x**2, lambda x: 1 - x]
    result = clipped_erm(models, noised, X=x, prior=1 / 3, means=[1 / 3, 1 / 2])
    risks = np.array([2 / 15, 1 / 2])
    assert (np.abs(result.risks - risks) < 5 * result.standard_errors).all()
    assert result.choice == 0
    assert result.n_clipped.max() <= 5


def test_nan_in_a_row_without_a_bag_is_found_too():
    bags = Bags.from_rows([0.5, 0.5, 1.0, 1.0, np.nan], [0, 0, 1, 1, -1])
    h = np.full((5, 2), 0.5)
    h[4, 1] = np.nan
    with pytest.raises(ValueError, match="row 4 of hypothesis 1 is NaN"):
        clipped_erm(h, bags, prior=0.5, means=[0.5, 0.5])


def test_models_and_memory_maps_are_hypotheses(tmp_path):
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x, bags = draw(rng, 4, 200)
    model = LogisticRegression().fit(x[:, None], x > 0.6)
    columns = np.stack([model.predict_proba(x[:, None])[:, 1], np.full(len(x), 0.3)], axis=1).astype(np.float32)
    on_disk = np.memmap(tmp_path / "h", dtype=np.float32, mode="w+", shape=columns.shape)
    on_disk[:] = columns
    by_map = clipped_erm(on_disk, bags, random_state=0)
    by_model = clipped_erm([model, lambda x: np.full(len(x), 0.3)], bags, X=x[:, None], random_state=0)
    np.testing.assert_allclose(by_map.risks, by_model.risks, rtol=1e-4)


def test_ids_are_no_bags():
    with pytest.raises(TypeError, match=r"bags must be a bagwise\.Bags"):
        clipped_erm([lambda x: x], np.array([0, 0, 1, 1]), X=H)


@pytest.mark.filterwarnings("ignore::bagwise.evaluation.BagsNotRandomWarning")  # of one table in 1,000
@pytest.mark.parametrize("how", ["known", "own", "split"])
@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize(
    ("model", "mean", "truth"),  # E[(y − h)²] with y ~ Bernoulli(x²), x uniform
    [(lambda x: x, 1 / 2, 1 / 6), (lambda x: np.full_like(x, 0.9), 0.9, 0.81 - 0.8 / 3), (lambda x: 1 - x, 0.5, 0.5)],
    ids=["x", "0.9", "1-x"],
)
def test_intervals_cover_the_true_risk(how, size, model, mean, truth, seed):
    rng = np.random.default_rng([seed, size])
    covered, trials = 0, 60
    for _ in range(trials):
        x, bags = draw(rng, size, 400)
        given = {"prior": 1 / 3, "means": [mean]} if how == "known" else {"split": how == "split"}
        result = clipped_erm([model], bags, X=x, random_state=rng, **given)
        covered += result.low[0] <= truth <= result.high[0]
    assert binomtest(covered, trials, 0.95, alternative="less").pvalue > 1e-4


def test_hypotheses_stream_in_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    x, bags = draw(rng, 4, 30)
    columns = np.stack([x**a for a in np.linspace(0.5, 3, 11)], axis=1)
    whole = clipped_erm(columns, bags, random_state=0)
    monkeypatch.setattr("bagwise.selection._BLOCK_BYTES", 8 * len(x) * 3)
    in_blocks = clipped_erm(columns, bags, random_state=0)
    np.testing.assert_allclose(in_blocks.risks, whole.risks)
    assert in_blocks.choice == whole.choice


BAGS = Bags.from_rows([0.5, 0.5, 1.0, 1.0], [0, 0, 1, 1])
H = np.full(4, 0.5)
CLASSES = Bags.from_rows(np.tile([0.2, 0.3, 0.5], (4, 1)), [0, 0, 1, 1])
COUNTS = Bags.from_rows([3.0, 3.0, 1.0, 1.0], [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: two_function_test(H[:3], H, BAGS), r"one number per row, shape \(4,\)"),
        (lambda: two_function_test(np.r_[H[:3], np.nan], H, BAGS), "hypothesis of row 3 is NaN"),
        (lambda: two_function_test(lambda x: x, H, BAGS), "X is missing"),
        (lambda: two_function_test(H, H, BAGS, beta=2.0), "^beta must be a number"),
        (lambda: two_function_test(H, H, BAGS, delta=-3.0), "^delta must be a number"),
        (lambda: tournament([], BAGS), "^hypotheses must hold at least one"),
        (lambda: clipped_erm([], BAGS), "^hypotheses must hold at least one"),
        (lambda: clipped_erm([lambda x: x], BAGS, X=H), "2 bags only: 3 are needed"),
        (lambda: clipped_erm([lambda x: x], BAGS, X=H, split=True), "2 bags only: 4 are needed"),
        (lambda: clipped_erm([H], BAGS, prior=0.5), "^means is missing, which belongs to prior"),
        (lambda: clipped_erm([H], BAGS, means=[0.5]), "^prior is missing, which belongs to means"),
        (lambda: clipped_erm([H], BAGS, prior=0.5, means=[0.5], split=True), "^split leaves nothing to estimate"),
        (lambda: clipped_erm([H], BAGS, split="half"), "^split must be one of"),
        (lambda: clipped_erm(np.ones((3, 2)), BAGS, prior=0.5, means=[1, 1]), "shape \\(4, number of hypotheses\\)"),
        (lambda: clipped_erm(np.ones((4, 2)), BAGS, prior=0.5, means=[1]), "one finite number per hypothesis"),
        (lambda: clipped_erm(np.ones((4, 2)), BAGS, prior=0.5, means=[1, np.nan]), "one finite number per hypothesis"),
        (lambda: clipped_erm(np.ones((4, 2)), BAGS, prior=0.5, means=[1, 1], regret=0), "^regret must be a number"),
        (lambda: clipped_erm(np.ones((4, 2)), BAGS, prior=5.0, means=[1, 1]), "^prior must be a number"),
        (lambda: clipped_erm(np.ones((4, 2)), BAGS, prior=np.nan, means=[1, 1]), "^prior must be a number"),
        (
            lambda: clipped_erm(np.ones((4, 2)), BAGS, prior=0.5, means=[1, 1], level=95),
            "level must be a number between 0 and 1",
        ),
        (lambda: clipped_erm(H, BAGS, prior=0.5, means=[1]), r"got shape \(4,\)"),
        (lambda: clipped_erm([H, "x"], BAGS, prior=0.5, means=[1, 1]), "^hypothesis must hold one number per row"),
        (lambda: clipped_erm([H], CLASSES, prior=0.5, means=[1]), "report 3 classes but one label"),
        (lambda: two_function_test(H, H, CLASSES), "report 3 classes but one label"),
        (lambda: two_function_test(H, H, COUNTS), r"bag 0 reports proportion 3.0, outside \[0, 1\]"),
        (
            lambda: clipped_erm(np.c_[H, np.r_[H[:2], np.inf, 0]], BAGS, prior=0.5, means=[0.5, 0.5]),
            "row 2 of hypothesis 1 is NaN or infinite",
        ),
    ],
)
def test_wrong_input_gets_one_clear_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bags_that_are_not_random_are_told():
    """Rates that differ: the least risk is then no reason to choose."""
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(60), 50)
    y = rng.random(3000) < np.repeat(rng.uniform(0, 0.6, 60), 50)
    bags = Bags.from_rows(aggregate(y.astype(float), ids), ids)
    with pytest.warns(BagsNotRandomWarning, match="compare models by the likelihood"):
        clipped_erm(rng.random((3000, 2)), bags, random_state=0)
