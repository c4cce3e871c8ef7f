"""Networks trained together are those trained alone, and report what they should."""

from dataclasses import replace

import numpy as np
import pytest

import bagwise as bw
from bagwise import means
from bagwise.losses import LOSSES, debiased_square

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")

from bagwise.neural import Fold, Replica, cnn, folds_of, mlp, train_modules, train_replicas  # noqa: E402
from bagwise.neural.batches import BagTensors  # noqa: E402
from bagwise.neural.training import Objective  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
OPTIONS = {"epochs": 4, "batch_rows": 64, "dtype": torch.float64}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(480, 5))
    return X, (rng.random(480) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(float)


def partition(y, size, seed, **noise):
    ids = bw.random_bags(len(y), size, random_state=seed)
    return bw.Bags.from_rows(bw.aggregate(y, ids), ids, **noise)


def make_mlp(seed):
    return mlp(5, (7,), random_state=seed)


def unequal(y, seed):
    ids = np.random.default_rng(seed).permutation(np.repeat(np.arange(80), np.tile([1, 9, 3, 11], 20)))
    return bw.Bags.from_rows(bw.aggregate(y, ids), ids)


def assert_equal_to_alone(X, runs, hidden=(7,), **options):
    """Also after several epochs, and for what is measured on the way."""
    together = train_replicas(X, runs, hidden=hidden, X_test=X[:50], keep_predictions=True, **options)
    alone = train_modules(
        X,
        runs,
        lambda seed: mlp(X.shape[1], hidden, random_state=seed),
        X_test=X[:50],
        keep_predictions=True,
        **options,
    )
    tolerance = {"rtol": 1e-6, "atol": 1e-7} if options["dtype"] == torch.float64 else {"rtol": 0, "atol": 2e-3}
    for one, two in zip(together, alone, strict=True):
        assert one.replica is two.replica
        np.testing.assert_allclose(one.test_predictions, two.test_predictions, **tolerance)
        np.testing.assert_allclose(one.loss, two.loss, **tolerance)
        if one.replica.fold is not None:
            np.testing.assert_allclose(one.risk, two.risk, **tolerance)
        for mine, theirs in zip(one.network.parameters(), two.network.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, **tolerance)
    return together


@pytest.mark.parametrize("hidden", [(7,), (), (6, 5)], ids=str)
def test_losses_and_rates_on_shared_batches(table, hidden):
    X, y = table
    bags = partition(y, 6, 0)
    rates = (1e-3, 1e-2) if len(hidden) == 1 else (1e-2,)
    runs = [Replica(bags=bags, loss=loss, learning_rate=rate) for loss in LOSSES for rate in rates]
    results = assert_equal_to_alone(X, runs, hidden, **OPTIONS)
    assert len({result.test_predictions[-1].tobytes() for result in results}) == len(runs)  # and they all differ


def hidden(y, seed, below=4):
    """Unequal bags that do not show counts below a number."""
    bags = unequal(y, seed)
    count = bags.sum(y[bags.order])
    most = np.minimum(below - 1, bags.size)
    return bags.with_intervals(np.where(count < below, 0, count), np.where(count < below, most, count))


def test_counts_that_are_hidden_beside_those_that_are_noised_and_those_that_are_known(table):
    """All of them at once, on batches of the same sizes: what one bag reports is not taken for another's."""
    X, y = table
    plain = unequal(y, 0)
    every = [plain, bw.Bags.from_rows(bw.aggregate(y, plain.code), plain.code, noise_variance=2.0), hidden(y, 0)]
    runs = [Replica(bags=bags, loss="count_likelihood", learning_rate=0.01, seed=1) for bags in every]
    results = assert_equal_to_alone(X, runs, **OPTIONS)
    assert len({result.test_predictions[-1].tobytes() for result in results}) == 3


def test_a_step_goes_down_on_the_likelihood_of_intervals(table):
    """The derivative of every batch is that of the sum over the counts allowed, by a plain convolution."""
    X, y = table
    bags = hidden(y, 3)
    data = BagTensors(torch.from_numpy(X[bags.order]), bags)
    objective = Objective("count_likelihood", means.Known(0.3), 0.3)
    for x, batch in data.epoch(np.random.default_rng(0), 60):
        logits = (0.8 * x[:, 0] - 1).requires_grad_()
        loss = float(objective.backward(logits, batch))
        plain = 0.0
        for j, (low, high) in enumerate(zip(batch.interval.low, batch.interval.high, strict=True)):
            chance = np.ones(1)
            for one in torch.sigmoid(logits.detach())[batch.offsets[j] : batch.offsets[j + 1]].tolist():
                chance = np.convolve(chance, [1 - one, one])
            plain -= np.log(chance[int(low) : int(high) + 1].sum()) / len(batch)
        assert batch.interval.open.any()
        assert loss == pytest.approx(plain, rel=1e-3)
        step, down = 1e-6, logits.grad.clone()
        with torch.no_grad():
            for place in (0, len(x) - 1):
                moved = logits.detach().clone()
                moved[place] += step
                found = float(objective.losses(moved, batch).mean())
                assert (found - loss) / step == pytest.approx(float(down[place]), rel=2e-3, abs=1e-4)


@pytest.mark.parametrize(
    "strategy", ["leave_one_out", "corrected", "running", means.Running(decay=0.5), means.Known(0.4)]
)
def test_means_strategies(table, strategy):
    X, y = table
    bags = partition(y, 6, 0)
    runs = [
        Replica(bags=bags, loss=loss, learning_rate=rate, means=strategy)
        for loss in ("debiased_square", "li_square", "centred_log")
        for rate in (1e-3, 1e-2)
    ]
    assert_equal_to_alone(X, runs, **OPTIONS)


@pytest.mark.slow
def test_partitions_seeds_and_folds_of_their_own(table):
    """Bags of several sizes, equal and not, training sets of several lengths, noise: all in one call."""
    X, y = table
    runs = []
    for number, bags in enumerate(
        (partition(y, 4, 0), partition(y, 4, 1), partition(y, 9, 2), unequal(y, 3), unequal(y, 4))
    ):
        first, second = folds_of(len(bags), 3, np.random.default_rng(number))[:2]
        runs += [
            Replica(bags=bags, seed=number),
            Replica(bags=bags, seed=number, loss="matching_cross_entropy", learning_rate=0.01, weight_decay=0.1),
            Replica(bags=bags, seed=9, fold=first),
            Replica(bags=bags, seed=9, fold=second, loss="easyllp"),
        ]
    runs.append(Replica(bags=partition(y, 5, 0, noise_variance=2.0), loss="count_likelihood", fold=first_half(96)))
    assert_equal_to_alone(X, runs, **OPTIONS)


def first_half(n):
    return Fold(np.arange(n // 2), np.arange(n // 2, n))


def test_averaged_weights_and_single_precision(table):
    X, y = table
    bags = partition(y, 6, 0)
    losses = ("debiased_square", "easyllp")
    runs = [Replica(bags=bags, learning_rate=rate, loss=loss) for rate in (1e-3, 1e-2) for loss in losses]
    averaged = assert_equal_to_alone(X, runs, average=True, **OPTIONS)
    plain = assert_equal_to_alone(X, runs, **(OPTIONS | {"dtype": torch.float32}))
    for one, two in zip(averaged, plain, strict=True):
        assert np.abs(one.test_predictions - two.test_predictions).max() > 1e-3


def test_the_figures_are_what_they_say(table):
    X, y = table
    bags, held = partition(y, 4, 0), first_half(120)
    noised = replace(bags, noise_variance=np.full(120, 3.0))
    runs = [Replica(bags=each, learning_rate=0.03, fold=held) for each in (bags, noised)] * 2
    results = train_replicas(X, runs, X_test=X, y_test=y, keep_predictions=True, **(OPTIONS | {"epochs": 8}))
    for result in results:
        measured = zip(result.test_predictions, result.accuracy, result.brier, result.risk, strict=True)
        for h, accuracy, brier, risk in measured:
            assert accuracy == pytest.approx(((h > 0.5) == y).mean())
            assert brier == pytest.approx(((h - y) ** 2).mean())
            train, out = bags.take(held.train), bags.take(held.held_out)
            loss = debiased_square(h[out.order], out, prior=means.prior(train), mean=h[train.order].mean())
            noise = 0 if result.replica.bags is bags else 3.0 / 4
            assert risk == pytest.approx(loss.mean() - noise)
        with torch.no_grad():
            again = torch.sigmoid(result.network(torch.from_numpy(X)))[:, 0]
        np.testing.assert_allclose(again, result.test_predictions[-1])
        assert result.loss[-1] < result.loss[0]


def test_what_is_measured_does_not_change_what_is_trained(table):
    X, y = table
    runs = [Replica(bags=partition(y, 6, 0), learning_rate=rate) for rate in (1e-3, 1e-2)]
    options = OPTIONS | {"epochs": 6, "X_test": X, "y_test": y}
    for train in (train_replicas, lambda *given, **named: train_modules(*given, make_mlp, **named)):
        always, now_and_then = (train(X, runs, measure_at=at, **options) for at in (None, (2, 6)))
        for one, two in zip(always, now_and_then, strict=True):
            np.testing.assert_array_equal(one.loss, two.loss)
            np.testing.assert_array_equal(one.accuracy[[1, 5]], two.accuracy)


def test_a_module_that_diverged_is_left_alone(table):
    X, y = table
    wild = Replica(bags=partition(y, 6, 0), learning_rate=1e300)
    (found,) = train_modules(X, [wild], make_mlp, X_test=X, y_test=y, **(OPTIONS | {"epochs": 5}))
    assert len(found.loss) == len(found.accuracy) == 5
    assert np.isnan(found.loss[-1])
    assert np.isnan(found.accuracy[-1])
    assert np.isnan(found.brier[-1])


def test_a_diverging_replica_does_not_disturb_the_others(table):
    X, y = table
    bags = partition(y, 6, 0)
    calm = [Replica(bags=bags, learning_rate=rate) for rate in (1e-3, 3e-3, 1e-2, 3e-2)]
    wild = replace(calm[0], learning_rate=1e300)
    expected = train_replicas(X, calm, X_test=X, keep_predictions=True, **OPTIONS)
    found = train_replicas(X, [wild, *calm], X_test=X, keep_predictions=True, **OPTIONS)
    assert np.isnan(found[0].loss[-1])
    for one, two in zip(expected, found[1:], strict=True):
        np.testing.assert_allclose(one.test_predictions, two.test_predictions, rtol=1e-6)


@pytest.mark.slow
def test_convolutions_train_in_processes():
    """Two processes give what one gives; the parameters handed in stay as they were."""
    rng = np.random.default_rng(0)
    X = rng.random((64, 1, 10, 10)).astype(np.float32)
    bags = partition(X.mean(axis=(1, 2, 3)) > 0.5, 4, 0)
    runs = [Replica(bags=bags, seed=seed, fold=first_half(16)) for seed in range(3)]
    options = {"epochs": 2, "batch_rows": 16, "X_test": X, "keep_predictions": True}

    def make(seed):
        return cnn(1, 10, random_state=seed)

    state = torch.get_rng_state()
    one, two = (train_modules(X, runs, make, n_jobs=jobs, **options) for jobs in (1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a.test_predictions, b.test_predictions, atol=1e-5)
        np.testing.assert_allclose(a.risk, b.risk, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"batch_rows": 0.5}, "batch_rows must be a whole number of at least 1"),
        ({"y_test": [0, 1]}, "X_test is missing"),
        ({"y_test": [0, 1], "X_test": np.zeros((3, 5))}, "X_test has 3 rows but y_test has 2"),
    ],
)
def test_wrong_arguments_are_named(table, change, message):
    X, y = table
    with pytest.raises(ValueError, match=message):
        train_replicas(X, [Replica(bags=partition(y, 6, 0))], **({"epochs": 1} | change))
