"""Networks and how bags came about: the count likelihood in the loop, and what is chosen where."""

import copy

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import roc_auc_score

import bagwise as bw
from bagwise import means
from bagwise.bag_fit import gains
from bagwise.gains import NoBetterThanConstantWarning
from bagwise.log_odds import shift_to_classes

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")

from bagwise.distributed.processes import Processes  # noqa: E402
from bagwise.neural import BagNeuralClassifier, Replica, mlp, train_modules, train_replicas  # noqa: E402
from bagwise.neural.batches import BagTensors, stretch  # noqa: E402
from bagwise.neural.distributed import Batch  # noqa: E402
from bagwise.neural.training import Objective  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
SIZES = {"equal": np.full(30, 6), "large": np.full(6, 40), "unequal": np.tile([1, 9, 3, 25, 60], 3)}
every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def rows_of(n, seed):
    """Rows whose labels no linear model tells apart well."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (rng.random(n) < 1 / (1 + np.exp(1 - 2 * X[:, 0] - 2 * X[:, 1] * X[:, 2]))).astype(float)


def mixtures(n, size, seed):
    """Rows in bags whose rates differ from 0 to 0.6, and are otherwise alike."""
    X, y = rows_of(n, seed)
    rng = np.random.default_rng(seed)
    left = [list(rng.permutation(np.flatnonzero(y == label))) for label in (0, 1)]
    chosen, bags = [], 0
    for rate in np.tile(np.linspace(0, 0.6, 5), 100):
        ones = int(rate * size)
        if len(left[1]) < ones or len(left[0]) < size - ones:
            break
        chosen += left[0][: size - ones] + left[1][:ones]
        left = [left[0][size - ones :], left[1][ones:]]
        bags += 1
    return X[chosen], y[chosen], np.repeat(np.arange(bags), size)


def bags_of(sizes, seed, **options):
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(len(sizes)), sizes)
    return bw.Bags.from_rows(bw.aggregate(rng.random(len(ids)) < 0.3, ids), ids, **options)


# -- the loss in the loop ------------------------------------------------------------------------------------------


@every_size
@pytest.mark.parametrize("strategy", [means.LeaveOneOut(), means.Running(decay=0.7), means.Known(0.4)], ids=repr)
@pytest.mark.parametrize("effect_variance", [0.0, 0.2])
def test_the_written_out_derivative_is_that_of_autograd(sizes, strategy, effect_variance):
    rng = np.random.default_rng(0)
    data = BagTensors(torch.zeros(int(sum(sizes)), 1, dtype=torch.float64), bags_of(sizes, 0))
    ours, theirs = (Objective("count_likelihood", strategy, 0.3, effect_variance=effect_variance) for _ in range(2))
    assert ours.written_out
    for _, bags in data.epoch(rng, 60):
        logits = torch.from_numpy(rng.normal(size=(bags.n_bagged, 1))).requires_grad_()
        again = logits.detach().clone().requires_grad_()
        value, expected = ours.backward(logits, bags), theirs.losses(again, bags).mean()
        expected.backward()
        assert float(value) == pytest.approx(float(expected.detach()))
        torch.testing.assert_close(logits.grad, again.grad)


def test_bags_of_one_row_have_the_gradient_of_the_logistic_loss():
    rng = np.random.default_rng(0)
    y = (rng.random(50) < 0.4).astype(float)
    logits = torch.from_numpy(rng.normal(size=50)).requires_grad_()
    bags = bw.Bags.singletons(y).like(logits)
    value = Objective("count_likelihood", means.Known(0.4), 0.4).backward(logits, bags)
    again = logits.detach().clone().requires_grad_()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(again, torch.from_numpy(y))
    expected.backward()
    assert value == pytest.approx(float(expected.detach()))
    torch.testing.assert_close(logits.grad, again.grad)


@pytest.mark.parametrize("means_name", ["running", "leave_one_out"])
def test_the_likelihood_in_replicas_is_that_of_single_runs(means_name):
    X, y = rows_of(480, 0)
    runs = []
    for sizes in (np.full(80, 6), np.full(12, 40), np.tile([1, 9, 3, 11], 20)):
        ids = np.repeat(np.arange(len(sizes)), sizes)
        bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
        options = {"bags": bags, "loss": "count_likelihood", "means": means_name}
        runs += [Replica(learning_rate=rate, **options) for rate in (1e-3, 1e-2)]
        runs += [Replica(learning_rate=0.01, effect_variance=0.5, **options)]
    given = {"epochs": 2, "batch_rows": 120, "dtype": torch.float64}
    together = train_replicas(X, runs, hidden=(5,), **given)
    alone = train_modules(X, runs, lambda seed: mlp(4, (5,), random_state=seed), **given)
    for one, two in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.loss, two.loss, rtol=1e-6)
        for mine, theirs in zip(one.network.parameters(), two.network.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)
    assert len({tuple(one.loss) for one in together}) == len(runs)


class Shared(Processes):
    """Two processes in one: what the other would have sent is known."""

    def total(self, numbers):
        """The sums of both."""
        return numbers + self.others


@every_size
def test_processes_that_share_a_batch_take_the_same_step(sizes):
    """The mean over processes is the loss and the derivative of the whole batch, E[h] that of all its bags."""
    rng = np.random.default_rng(0)
    bags = bags_of(sizes, 0)
    s = torch.from_numpy(rng.normal(size=bags.n_bagged))
    logits = s.clone().requires_grad_()
    whole = Objective("count_likelihood", "running", 0.3).backward(logits, bags.like(s))
    half, losses, slopes = len(bags) // 2, [], []
    for mine in (np.arange(half), np.arange(half, len(bags))):
        own = stretch(bags, mine[0], mine[-1] + 1)
        rows = slice(bags.offsets[mine[0]], bags.offsets[mine[-1] + 1])
        processes = Shared(0, 2)
        sums = bags.sum(torch.sigmoid(s).numpy())
        sums[mine] = 0
        object.__setattr__(processes, "others", sums)
        part = s[rows].clone().requires_grad_()
        batch = Batch(part, own.like(s), bags, mine, processes)
        losses.append(Objective("count_likelihood", "running", 0.3).backward(part, own.like(s), batch))
        slopes.append(part.grad / 2)
    assert np.mean(losses) == pytest.approx(whole)
    torch.testing.assert_close(torch.cat(slopes), logits.grad)


# -- the estimator -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_few_mixtures_teach_nearly_what_labels_do():
    X, y, ids = mixtures(40_000, 2048, 0)
    X, y, ids = X[ids < 15], y[ids < 15], ids[ids < 15]
    assert len(y) == 15 * 2048
    X_test, y_test = rows_of(10_000, 7)
    options = {"learning_rate": 0.03, "max_epochs": 25, "cv": 2, "random_state": 0}
    model = BagNeuralClassifier(**options).fit(X, bw.aggregate(y, ids), bags=ids)
    labels = BagNeuralClassifier(early_stopping=False, **(options | {"max_epochs": 4})).fit(X[:10_000], y[:10_000])
    found, known = (roc_auc_score(y_test, one.predict_proba(X_test)[:, 1]) for one in (model, labels))
    assert (model.formation_.name, model.loss_) == ("rates", "count_likelihood")
    assert found > known - 0.02
    assert model.gain_ > 3 * model.gain_error_
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=1e-6)


def test_two_mixtures_tell_classes_apart():
    X, y = rows_of(8000, 0)
    rng = np.random.default_rng(0)
    ids = (rng.random(len(y)) < np.where(y > 0, 0.8, 0.2)).astype(int)
    options = {"learning_rate": 0.02, "max_epochs": 100, "batch_rows": 100_000, "random_state": 0}
    model = BagNeuralClassifier(**options).fit(X, bw.aggregate(y, ids), bags=ids)
    assert (model.formation_.name, model.loss_) == ("effects", "count_likelihood")
    options = {"learning_rate": 0.01, "max_epochs": 8, "early_stopping": False, "random_state": 0}
    apart = BagNeuralClassifier(**options).fit(X, ids)  # which of the two a row is from
    X_test, y_test = rows_of(10_000, 7)
    found, known = (roc_auc_score(y_test, one.predict_proba(X_test)[:, 1]) for one in (model, apart))
    assert found > known - 0.02


def test_bags_that_differ_in_features(tmp_path):
    X, y = rows_of(4000, 0)
    ids = np.argsort(np.argsort(X[:, 0])) // 40
    y_bag = bw.aggregate(y, ids)
    options = {"learning_rate": (0.003, 0.03), "max_epochs": 10, "cv": 2, "random_state": 0}
    model = BagNeuralClassifier(**options).fit(X, y_bag, bags=ids)
    assert (model.formation_.name, model.loss_) == ("features", "count_likelihood")
    assert model.effect_variance_ < 0.3  # there are none
    X_test, y_test = rows_of(4000, 7)
    h = model.predict_proba(X_test)[:, 1]
    assert np.square(h - y_test).mean() < 0.95 * y_test.var()
    bw.save(model, tmp_path / "network")
    again = bw.load(tmp_path / "network")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    for name in ("formation_", "loss_", "effect_variance_", "stretch_", "offset_", "gain_", "gain_error_"):
        assert getattr(again, name) == getattr(model, name)
    again.partial_fit(X, y_bag, bags=ids)
    assert (again.loss_, again.stretch_) == (model.loss_, model.stretch_)


def test_effects_of_bags_are_found():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(100), 40)
    X = rng.normal(size=(4000, 3)) + 1.5 * rng.normal(size=(100, 3))[ids]
    s = X[:, 0] + rng.normal(size=100)[ids]
    y_bag = bw.aggregate(rng.random(4000) < 1 / (1 + np.exp(-s)), ids)
    options = {"learning_rate": 0.01, "max_epochs": 8, "cv": 2, "random_state": 0}
    model = BagNeuralClassifier(formation="effects", **options).fit(X, y_bag, bags=ids)
    assert 0.1 <= model.effect_variance_ <= 3  # of variance 1
    assert model.formation_.reason == "as asked for"


def test_a_name_fixes_formation_and_loss():
    X, y = rows_of(1200, 0)
    ids = bw.random_bags(1200, 10, random_state=0)
    y_bag, options = bw.aggregate(y, ids), {"learning_rate": 0.01, "max_epochs": 8, "random_state": 0}
    told = BagNeuralClassifier(**options).fit(X, y_bag, bags=ids)
    assert (told.formation_.name, told.loss_) == ("random", "debiased_square")
    named = BagNeuralClassifier(formation="rates", **options).fit(X, y_bag, bags=ids)
    assert (named.formation_.name, named.loss_) == ("rates", "count_likelihood")
    fixed = BagNeuralClassifier(formation="rates", loss="debiased_square", **options).fit(X, y_bag, bags=ids)
    assert fixed.loss_ == "debiased_square"
    likelihood = -named.risk_
    assert likelihood == pytest.approx(np.max([-one["risk"] for one in named.history_ if one["risk"] is not None]))
    assert likelihood < -1  # of a bag's count, not the risk of a row


@pytest.mark.parametrize("formation", ["random", "rates"])
def test_a_network_that_found_nothing_says_so_and_shrinks(formation):
    rng = np.random.default_rng(1)
    X, ids = rng.normal(size=(2000, 5)), np.arange(2000) // 20
    y_bag = bw.aggregate(rng.random(2000) < 0.3, ids)
    model = BagNeuralClassifier(formation=formation, learning_rate=0.01, max_epochs=5, random_state=0)
    with pytest.warns(NoBetterThanConstantWarning, match="do not clearly prefer"):
        model.fit(X, y_bag, bags=ids)
    h = model.predict_proba(X)[:, 1]
    assert model.stretch_ < 1
    assert h.mean() == pytest.approx(y_bag.mean(), abs=1e-6)
    assert h.std() < 0.05


def test_probabilities_are_never_0_or_1():
    X, y = rows_of(600, 0)
    X[:, 0] = 4 * y - 2 + 0.1 * X[:, 0]  # told apart by one column
    model = BagNeuralClassifier(learning_rate=0.1, max_epochs=60, random_state=0).fit(X, y)
    h = model.predict_proba(1e4 * X)[:, 1]
    assert 0 < h.min() < 1e-6
    assert 1 - 1e-6 < h.max() < 1


def test_classes_of_bags_with_other_rates():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(40), 30)
    rates = rng.dirichlet(np.ones(3), size=40)
    labels = (rng.random(1200)[:, None] > np.cumsum(rates, axis=1)[ids]).sum(axis=1)
    X = 2 * np.eye(3)[labels] + rng.normal(size=(1200, 3))
    y_bag = bw.aggregate((labels[:, None] == np.arange(3)).astype(float), ids)
    options = {"learning_rate": 0.03, "max_epochs": 10, "cv": 2, "random_state": 0}
    model = BagNeuralClassifier(formation="rates", **options).fit(X, y_bag, bags=ids)
    assert model.loss_ == "count_likelihood"
    h = model.predict_proba(X)
    np.testing.assert_allclose(h.mean(axis=0), model.prior_, atol=1e-3)
    assert (h.argmax(axis=1) == labels).mean() > 0.75
    assert model.gain_ > 0


def test_the_offsets_of_classes_give_them_their_means():
    rng = np.random.default_rng(0)
    s, p = 3 * rng.normal(size=(500, 4)), np.array([0.7, 0.2, 0.09, 0.01])
    h = np.exp(s + shift_to_classes(p, s))
    np.testing.assert_allclose((h / h.sum(axis=1, keepdims=True)).mean(axis=0), p, rtol=1e-5)


def test_training_goes_on_with_the_formation_of_the_first_bags():
    X, y, ids = mixtures(3000, 40, 0)
    model = BagNeuralClassifier(learning_rate=0.01, random_state=0)
    for _ in range(2):
        model.partial_fit(X, bw.aggregate(y, ids), bags=ids)
    assert (model.formation_.name, model.loss_, model.stretch_) == ("rates", "count_likelihood", 1.0)
    before = copy.deepcopy(model)
    some = ids < 4
    model.partial_fit(X[some], bw.aggregate(y, ids)[some], bags=ids[some])
    assert model.formation_ == before.formation_


# -- updates --------------------------------------------------------------------------------------------------------


def later(rng, n=1500, offset=-1.0, sign=1.0):
    X = rng.normal(size=(n, 2))
    ids = bw.random_bags(n, 10, random_state=rng)
    y = rng.random(n) < expit(1.5 * sign * X[:, 0] + offset)
    return X, bw.aggregate(y, ids), ids


@pytest.fixture(scope="module")
def before():
    X, y, ids = later(np.random.default_rng(0), 2500)
    options = {"hidden": (8,), "learning_rate": 0.03, "max_epochs": 10, "patience": 3, "cv": 2, "random_state": 0}
    return bw.BagNeuralClassifier(**options).fit(X, y, bags=ids)


def gain_of(model, data):
    X, y, ids = data
    return gains(model.predict_proba(X)[:, 1], bw.Bags.from_rows(y, ids)).mean()


@pytest.mark.parametrize("change", [{"offset": 0.0}, pytest.param({"sign": -1.0}, marks=pytest.mark.slow)])
def test_a_network_serves_later_bags_better(before, change, tmp_path):
    rng = np.random.default_rng(1)
    new, held_out = later(rng, **change), later(rng, 6000, **change)
    bw.save(before, tmp_path / "old")
    model = bw.load(tmp_path / "old").set_params(max_epochs=40).partial_fit(*new[:2], bags=new[2], epochs="auto")
    assert gain_of(model, held_out) > gain_of(before, held_out) + 0.1
    assert (model.n_epochs_ > before.n_epochs_) == ("sign" in change)
    assert model.predict_proba(new[0])[:, 1].mean() == pytest.approx(new[1].mean(), abs=1e-6)
    bw.save(model, tmp_path / "model")
    np.testing.assert_array_equal(bw.load(tmp_path / "model").predict_proba(new[0]), model.predict_proba(new[0]))
    assert bw.load(tmp_path / "model").update_ == model.update_


@pytest.mark.slow
def test_a_network_stays_as_it_was_where_nothing_changed(before):
    new = later(np.random.default_rng(2), 200)
    model = copy.deepcopy(before).partial_fit(*new[:2], bags=new[2], epochs="auto")
    assert not model.update_.learned
    np.testing.assert_array_equal(model.predict_proba(new[0]), before.predict_proba(new[0]))
    with pytest.raises(ValueError, match="epochs must be one of 1, 'auto', got 3"):
        model.partial_fit(*new[:2], bags=new[2], epochs=3)


def test_hidden_counts_do_not_move_the_mean_prediction(seed):
    """Where bags differ in features, those of few positives are hidden: by themselves their counts say a p that is
    0.04 too large here. 0.01 is five standard errors of the sum of hidden counts given the features."""
    rng, bags, rows = np.random.default_rng(seed), 300, 40
    x = rng.normal(size=(bags * rows, 2))
    x[:, 0] += np.repeat(rng.normal(scale=1.2, size=bags), rows)
    y = (rng.random(len(x)) < 1 / (1 + np.exp(1.8 - 1.2 * x[:, 0]))).astype(float)
    told = bw.Bags.from_rows(bw.aggregate(y, ids := np.repeat(np.arange(bags), rows)), ids)
    count = told.sum(y)
    hidden = told.with_intervals(np.where(count < 10, 0, count), np.where(count < 10, 9, count))
    options = {"learning_rate": 0.01, "max_epochs": 10, "early_stopping": False, "random_state": 0}
    model = BagNeuralClassifier(formation="features", **options).fit(x, bags=hidden)
    assert abs((hidden.size * hidden.proportion).sum() / len(y) - y.mean()) > 0.03
    assert model.prior_ == pytest.approx(y.mean(), abs=0.01)
    assert model.predict_proba(x)[:, 1].mean() == pytest.approx(y.mean(), abs=0.01)
