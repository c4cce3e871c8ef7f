"""Mixed bags: what their counts tell of rows in each formation, the term that is added, and where it is refused."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

import bagwise as bw
from bagwise import means
from bagwise.bags.pieces import stretch
from bagwise.data.rows import InMemory
from bagwise.losses import LOSSES, debiased_square
from bagwise.utils.parameters import ParameterError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")

from bagwise.distributed import Distributed  # noqa: E402
from bagwise.neural import BagNeuralClassifier, BagNeuralRegressor, mlp  # noqa: E402
from bagwise.neural.batches import deal  # noqa: E402
from bagwise.neural.mixing import LOSSES_OF_MIXED, Mixing, label_covariance, rate_covariance  # noqa: E402
from bagwise.neural.training import Objective, Training  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning"),
]
QUICK = {"learning_rate": 0.01, "max_epochs": 3, "cv": 2, "batch_rows": 60, "hidden": (8,), "random_state": 0}
SIZES = np.array([2, 5, 9, 16])
CLASSES = np.array([0.2, 0.3, 0.5])


def drawn(formation, m, rng, classes=False):
    """Rows x of m bags of several sizes, their labels (n,) or (n, classes), and bags."""
    ids = np.repeat(np.arange(m), rng.choice(SIZES, m))
    if formation == "features":
        x = 0.7 * rng.normal(size=m)[ids] + 0.7 * rng.normal(size=len(ids))
        y = (rng.random(len(ids)) < 1 / (1 + np.exp(-2 * x))).astype(float)
    else:
        rates = np.tile(CLASSES if classes else [0.6, 0.4], (m, 1))
        if formation == "rates":  # of classes, of which the last varies least
            rates = rng.dirichlet([1, 1, 8], m) if classes else rng.dirichlet([1.5, 1], m)
        label = (rng.random(len(ids))[:, None] > np.cumsum(rates, axis=1)[ids]).sum(axis=1)
        x = label + rng.normal(size=len(ids))  # whatever the bag
        y = (label[:, None] == np.arange(3)).astype(float) if classes else label.astype(float)
    return x, y, bw.Bags.from_rows(bw.aggregate(y, ids), ids)


def mixed_of(mixing, bags, prior):
    torch.manual_seed(0)
    place, mixed = mixing.mixed(bags, prior)
    return place.numpy(), mixed


def covariances(x, y, bags, mixed, place, prior):
    """(bags, …) products of deviations of counts, as mixed bags put them and as they are, with sums of functions."""
    size = mixed.size[:, None]
    told = size * (mixed.outputs - prior)
    true = mixed.sum(y.reshape(len(y), -1)[place]) - size * prior
    functions = np.stack([np.tanh(x), x > 1, x**2], axis=1).astype(float)
    functions -= functions.mean(axis=0)
    g = mixed.sum(functions[place])
    return (
        (told[:, :, None] * g[:, None]) / size[..., None],
        (true[:, :, None] * g[:, None]) / size[..., None],
        told,
        true,
    )


def apart(one, other):
    """By how many standard errors means of pairs differ."""
    d = one - other
    return np.abs(d.mean(axis=0)) / (d.std(axis=0) / np.sqrt(len(d)) + 1e-12)


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("formation", ["random", "rates"])
def test_counts_of_mixed_bags_go_with_every_function_of_rows_as_true_ones_do(formation, classes, seed):
    x, y, bags = drawn(formation, 60_000, np.random.default_rng([seed, 1]), classes)
    prior = y.mean(axis=0)
    rates = rate_covariance(bags) if formation == "rates" else np.zeros((3, 3) if classes else (1, 1))
    mixing = Mixing.of(1.0, label_covariance(prior), rates)
    place, mixed = mixed_of(mixing, bags, prior)
    with_told, with_true, told, true = covariances(x, y, bags, mixed, place, prior)
    assert apart(with_told, with_true).max() < 5
    # Their variance is that of true counts and of the noise that they declare.
    more = (told**2 - true**2).sum(axis=1) / mixed.size
    declared = mixed.noise_variance / mixed.size * max(np.size(prior) - 1, 1)
    assert declared.mean() > 0.05
    assert apart(more, declared) < 5
    if classes:
        np.testing.assert_allclose(told.sum(axis=1), 0, atol=1e-8)


def test_shares_of_counts_draw_predictions_to_the_mean_in_random_bags(seed):
    """As MixBag takes them; and where bags are formed by features, no count goes with all functions."""
    rng = np.random.default_rng([seed, 2])
    x, y, bags = drawn("random", 20_000, rng)
    plain = Mixing.of(1.0, np.array([[0.24]]), np.array([[0.24]]))
    place, mixed = mixed_of(plain, bags, y.mean())
    with_told, with_true, *_ = covariances(x, y, bags, mixed, place, y.mean())
    assert 0.4 < with_told[:, 0, 0].mean() / with_true[:, 0, 0].mean() < 0.75
    assert mixed.noise_variance.max() < 1e-4
    x, y, bags = drawn("features", 20_000, rng)
    p = y.mean()
    mixing = Mixing.of(1.0, label_covariance(p), rate_covariance(bags))
    place, mixed = mixed_of(mixing, bags, p)
    between = np.tanh(bags.repeat(bags.mean(x)))
    for g, sign in ((between, 1), (np.tanh(x - bags.repeat(bags.mean(x))), -1)):
        g = g - g.mean()
        sums = mixed.sum(g[place])
        product = (mixed.size * (mixed.proportion - p) - mixed.sum(y[place]) + mixed.size * p) * sums
        assert sign * product.mean() > 5 * product.std() / np.sqrt(len(product))


def test_the_square_loss_of_mixed_bags_is_that_of_rows(seed):
    x, y, bags = drawn("random", 40_000, np.random.default_rng([seed, 3]))
    mixing = Mixing.of(1.0, label_covariance(y.mean()), np.zeros((1, 1)))
    place, mixed = mixed_of(mixing, bags, y.mean())
    for h in (1 / (1 + np.exp(0.5 - x)), np.full(len(x), 0.3), 0.5 + 0.4 * np.sin(3 * x)):
        losses = debiased_square(h[place], mixed, prior=y.mean(), mean=h.mean()) - mixed.noise_variance / mixed.size
        assert abs(losses.mean() - np.mean((y - h) ** 2)) < 5 * losses.std() / np.sqrt(len(losses))


def test_rates_of_bags_vary_as_they_are_said_to(seed):
    rng = np.random.default_rng([seed, 4])
    found = []
    for _ in range(200):
        rates = 0.3 + 0.2 * rng.choice([-1, 1], 60)
        size = rng.integers(2, 30, 60)
        ids = np.repeat(np.arange(60), size)
        count = rng.binomial(size, rates) + rng.normal(size=60)
        bags = bw.Bags.from_rows((count / size)[ids], ids, noise_variance=1.0)
        found.append(rate_covariance(bags)[0, 0])
    assert abs(np.mean(found) - 0.04) < 5 * np.std(found) / np.sqrt(200) + 0.04 / 60  # p is theirs
    own = bw.Bags.singletons([0, 1, 1, 0])
    assert rate_covariance(own).shape == (1, 1)


def test_mixed_bags_are_two_after_the_other_of_one_batch():
    _, _, bags = drawn("random", 11, np.random.default_rng(0))
    bags = bw.Bags.from_rows(bw.aggregate(np.arange(bags.n_bagged) % 2.0, bags.code), bags.code, noise_variance=4.0)
    mixing = Mixing.of(1.0, np.array([[0.25]]), np.zeros((1, 1)))
    place, mixed = mixed_of(mixing, bags, 0.5)
    assert len(mixed) == 5
    assert len(set(place)) == len(place) == mixed.n_bagged  # nobody twice
    for pair in range(5):
        rows = place[mixed.offsets[pair] : mixed.offsets[pair + 1]]
        assert set(bags.code[rows]) == {2 * pair, 2 * pair + 1}
    taken = np.bincount(bags.code[place], minlength=11)[:10]
    left = (bags.size[:10] - taken).reshape(5, 2).sum(axis=1)
    np.testing.assert_allclose(mixed.noise_variance, 0.25 * left + 8)
    assert len(mixing.mixed(stretch(bags, 0, 3), 0.5)[1]) == 0


@pytest.mark.parametrize(
    ("kind", "loss"), [*(("labels", loss) for loss in LOSSES_OF_MIXED), ("classes", "count_likelihood")]
)
def test_a_step_goes_down_both_losses(kind, loss):
    rng = np.random.default_rng(0)
    x, _, bags = drawn("random", 12, rng)
    y = rng.integers(0, 3, len(x))[:, None] == np.arange(3) if kind == "classes" else rng.random(len(x)) < 0.4
    bags = bw.Bags.from_rows(bw.aggregate(y.astype(float), bags.code), bags.code)
    bags = bags if kind == "classes" else bags.with_offset(rng.normal(size=len(x)))
    p = means.prior(bags)
    X = torch.from_numpy(np.stack([x, x**2], axis=1))
    module = mlp(2, (4,), 3 if kind == "classes" else 1, random_state=0).double()
    mixing = Mixing.of(0.7, label_covariance(p), np.zeros((np.size(p), np.size(p))))
    objective = Objective(loss, "running", p)
    (warmed,) = deal(bags.like(X), 1000)
    if objective.means is not None and LOSSES[loss].mean_of is not None:
        objective.backward(module(X).detach().requires_grad_(), warmed)  # E[h] has a past
        if kind == "labels":
            objective.means.total = float(np.ravel(objective.means.total)[0])  # for tensors and arrays
    training = Training(
        copy.deepcopy(module),
        objective,
        make_optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1),
        rng=np.random.default_rng(0),
        mixing=mixing,
    )
    others = [objective.aside(), objective.aside()]
    torch.manual_seed(3)
    value = float(training.step(X, warmed))
    torch.manual_seed(3)
    place, mixed = mixing.mixed(warmed, p)
    logits = module(X)
    expected = others[0].losses(logits, warmed).mean() + 0.7 * others[1].losses(logits[place], mixed.like(X)).mean()
    expected.backward()
    assert value == pytest.approx(float(expected.detach()))
    for mine, theirs in zip(training.module.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs.detach() - 0.1 * theirs.grad)


def rows(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (rng.random(n) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(float)


@pytest.mark.parametrize("kind", [BagNeuralClassifier, BagNeuralRegressor])
def test_fits_repeat_in_memory_and_from_blocks_and_are_kept(kind, tmp_path):
    X, y = rows()
    ids = np.arange(240) // 4
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    one, two, plain = (kind(**QUICK, mix_bags=weight).fit(X, bags=bags) for weight in (1.0, 1.0, 0.0))
    np.testing.assert_array_equal(one._scores(X), two._scores(X))
    assert np.abs(one._scores(X) - plain._scores(X)).max() > 1e-4
    assert plain.rate_covariance_ is None
    bw.save(one, tmp_path / "model")
    again = bw.load(tmp_path / "model").partial_fit(X, bags=bags)
    assert again.n_epochs_ == one.n_epochs_ + 1
    data = InMemory(X, bags, starts=np.array([0, 30, 60]))
    blocks = [kind(**QUICK, mix_bags=w).fit_rows(data, distributed=Distributed(streams=2)) for w in (1.0, 1.0, 0.0)]
    np.testing.assert_array_equal(blocks[0]._scores(X), blocks[1]._scores(X))
    assert np.abs(blocks[0]._scores(X) - blocks[2]._scores(X)).max() > 1e-4


def test_single_rows_are_learned_where_bags_are_random_and_where_rates_differ():
    rng = np.random.default_rng(0)
    for formation in ("random", "rates"):
        x, y, bags = drawn(formation, 400, rng)
        options = QUICK | {"max_epochs": 15, "learning_rate": 0.03, "early_stopping": False, "batch_rows": 200}
        model = BagNeuralClassifier(**options, formation=formation, mix_bags=1.0).fit(x[:, None], bags=bags)
        truth = 1 / (1 + np.exp(0.5 - x - np.log(y.mean() / (1 - y.mean()))))
        assert np.mean((model.predict_proba(x[:, None])[:, 1] - truth) ** 2) < 0.01


def test_what_cannot_be_is_one_sentence():
    X, y = rows()
    ids = np.arange(240) // 4
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    sorted_ids = np.argsort(np.argsort(X[:, 0])) // 4
    by_features = bw.Bags.from_rows(bw.aggregate(y, sorted_ids), sorted_ids)
    for options, given, said in [
        ({"mix_bags": -1}, bags, "mix_bags must be a finite number of at least 0, got -1"),
        (
            {"mix_bags": 1, "loss": "matching_cross_entropy"},
            bags,
            "counts that may lie outside of a bag, which the loss",
        ),
        ({"mix_bags": 1, "formation": "features"}, by_features, "formation is random or rates, and that of these bags"),
        ({"mix_bags": 1, "batch_rows": 8}, bags, "needs batches of 4 bags, and these have 2"),
        ({"mix_bags": 1}, bags.with_weights(np.full(240, 2.0)), "counts that are known, of rows that stand for one"),
    ]:
        with pytest.raises(ParameterError, match=said):
            BagNeuralClassifier(**{**QUICK, "formation": "random", **options}).fit(X, bags=given)
    with pytest.raises(ParameterError, match="formation is random, and that of these bags is rates"):
        BagNeuralRegressor(**QUICK, formation="rates", mix_bags=1).fit(X, bags=bags)
    several = SimpleNamespace(processes=SimpleNamespace(world=2))
    with pytest.raises(ParameterError, match="mixes bags of one process: leave it out, or start one process"):
        BagNeuralClassifier(**QUICK, mix_bags=1)._fit_data(InMemory(X, bags), several)
