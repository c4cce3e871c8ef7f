"""Networks from bags: laws of the loop, the estimator's contract, and examples that run."""

import copy
import pickle
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import bagwise as bw
from bagwise import means
from bagwise.folds import folds_of
from bagwise.losses import LOSSES
from bagwise.risk import held_out_risk
from bagwise.utils.parameters import ParameterError
from tests import sklearn_checks

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")

from bagwise.neural import BagBatchSampler, BagNeuralClassifier, cnn, mlp  # noqa: E402
from bagwise.neural.batches import BagTensors, cut  # noqa: E402
from bagwise.neural.training import Objective, Training  # noqa: E402
from bagwise.neural.tuning import Figures, choose  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
FAST = {"learning_rate": 0.03, "max_epochs": 15, "cv": 2, "random_state": 0}
SIZES = {
    "equal": np.full(60, 10),
    "unequal": np.tile([1, 9, 20, 5, 2, 13], 12),
    "single": np.ones(600, dtype=int),
    "oversize": np.full(4, 150),
}


@pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")  # some labels are noise
@sklearn_checks.parametrize([BagNeuralClassifier(learning_rate=0.1, max_epochs=12, cv=2, random_state=0)])
def test_scikit_learn_checks(estimator, check):
    sklearn_checks.check(estimator, check)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4))
    y = (rng.random(1200) < 1 / (1 + np.exp(-2 * X[:, 0] - X[:, 1]))).astype(float)
    return X, y, bw.random_bags(1200, 10, random_state=0)


def bags_of(sizes, rng, classes=None):
    ids = np.repeat(np.arange(len(sizes)), sizes)
    labels = rng.random(len(ids)) < 0.3
    if classes:
        labels = rng.integers(0, classes, len(ids))[:, None] == np.arange(classes)
    return bw.Bags.from_rows(bw.aggregate(labels.astype(float), ids), ids)


# -- batches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("rows", [1, 16, 100, 10_000])
def test_batches_hold_every_bag_once_and_two_or_more_each(sizes, rows):
    rng = np.random.default_rng(0)
    bags = bags_of(rng.permutation(sizes), rng)
    sampler = BagBatchSampler(bags, rows=rows, random_state=0)
    first, second = (list(sampler.batches()) for _ in range(2))
    for batches in (first, second):
        assert len(batches) == len(sampler)
        assert min(map(len, batches)) >= 2
        np.testing.assert_array_equal(np.sort(np.concatenate([b.order for b in batches])), np.arange(bags.n_rows))
        np.testing.assert_array_equal(np.sort(np.concatenate([b.keys for b in batches])), bags.keys)
    assert any(list(a.keys) != list(b.keys) for a, b in zip(first, second, strict=True))
    if rows == 100 and max(sizes) < 100:
        total = [b.n_bagged for b in first]
        even = sum(total) / len(total)
        assert abs(even - 100) < 20
        assert np.abs(np.array(total) - even).max() <= max(sizes)  # as even as whole bags allow


def test_cuts_never_leave_a_lonely_bag():
    rng = np.random.default_rng(0)
    for _ in range(300):
        sizes = rng.choice([1, 2, 50, 400], size=rng.integers(2, 40))
        cuts = cut(sizes, int(rng.integers(1, 600)))
        assert cuts[0] == 0
        assert cuts[-1] == len(sizes)
        assert np.diff(cuts).min() >= 2


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_the_sampler_feeds_a_data_loader(sizes):
    from torch.utils.data import DataLoader, TensorDataset

    rng = np.random.default_rng(0)
    order = rng.permutation(int(sum(sizes)))
    ids = np.repeat(np.arange(len(sizes)), sizes)[order]
    y = bw.aggregate(rng.random(len(ids)), ids)
    sampler = BagBatchSampler(bw.Bags.from_rows(y, ids), rows=100, random_state=0)
    X = torch.from_numpy(y)
    seen = 0
    for x, rows in DataLoader(TensorDataset(X, torch.arange(len(X))), batch_sampler=sampler):
        batch = sampler.bags_of(rows)
        np.testing.assert_allclose(batch.mean(x).numpy(), batch.proportion)  # x is each row's proportion
        seen += len(rows)
    assert seen == len(ids)
    with pytest.raises(ValueError, match="not those of whole bags"):
        sampler.bags_of([int(np.flatnonzero(ids == np.argmax(sizes))[0])] * 2)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("classes", [None, 3])
def test_the_light_batches_are_those_of_take(sizes, classes):
    rng = np.random.default_rng(0)
    bags = bags_of(sizes, rng, classes)
    X = torch.from_numpy(rng.normal(size=(bags.n_bagged, 2, 3)))
    chosen = np.flatnonzero(rng.random(len(bags)) < 0.7)
    chosen = np.arange(len(bags)) if len(chosen) < 2 else chosen
    seen = []
    for x, batch in BagTensors(X, bags).epoch(np.random.default_rng(1), 100, chosen):
        expected = bags.take(np.searchsorted(bags.keys, batch.keys))
        np.testing.assert_array_equal(x, X[expected.order])
        np.testing.assert_allclose(batch.proportion, expected.proportion)
        np.testing.assert_array_equal(batch.offsets, expected.offsets)
        np.testing.assert_array_equal(batch.size, expected.size)
        seen += list(batch.keys)
    np.testing.assert_array_equal(np.sort(seen), bags.keys[chosen])


# -- the loop -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("strategy", [means.LeaveOneOut(), means.Running(decay=0.7), means.Known(0.4)], ids=repr)
def test_the_written_out_derivative_is_that_of_autograd(sizes, strategy):
    rng = np.random.default_rng(0)
    data = BagTensors(torch.zeros(int(sum(sizes)), 1, dtype=torch.float64), bags_of(sizes, rng))
    ours, theirs = (Objective("debiased_square", strategy, 0.3) for _ in range(2))
    assert ours.reads_sums
    for _ in range(3):  # several batches, since a running mean remembers
        for _, bags in data.epoch(rng, 100):
            logits = torch.from_numpy(rng.normal(size=(bags.n_bagged, 1))).requires_grad_()
            again = logits.detach().clone().requires_grad_()
            value, expected = ours.backward(logits, bags), theirs.losses(again, bags).mean()
            expected.backward()
            assert float(value) == pytest.approx(float(expected.detach()))
            torch.testing.assert_close(logits.grad, again.grad)


class Halved(means.LeaveOneOut):
    """A strategy of a user's, which estimates otherwise than the one it is derived from."""

    def __call__(self, values, bags):
        return means.Mean(super().__call__(values, bags).value / 2)


@pytest.mark.parametrize(
    "objective",
    [
        Objective("debiased_square", Halved(), 0.3),
        Objective("debiased_square", means.Corrected(), 0.3),
        Objective("debiased_square", means.Known(0.4, 0.01), 0.3),
        Objective("debiased_square", means.LeaveOneOut(add_up=print), 0.3),
        Objective("debiased_square", "running", np.array([0.3, 0.7])),
        Objective("li_square", "running", 0.3),
    ],
)
def test_what_is_not_written_out_is_left_to_autograd(objective):
    assert not objective.reads_sums


def run(module, loss, strategy, p, lr, seed=0, **more):
    return Training(
        module,
        Objective(loss, strategy, p),
        make_optimizer=lambda weights: torch.optim.Adam(weights, lr=lr),
        rng=np.random.default_rng(seed),
        **more,
    )


@pytest.mark.parametrize("loss", ["debiased_square", "li_square", "matching_square", "easyllp_square"])
def test_singleton_bags_train_as_plain_supervision_does(loss):
    """With known means and single rows the debiased loss is (y − h)²: the same batches give the same network."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(300, 3)))
    y = (rng.random(300) < 0.4).astype(float)
    data = BagTensors(X, bw.Bags.singletons(y))
    module = mlp(3, (8,), random_state=0).double()
    plain = copy.deepcopy(module)
    training = run(module, loss, means.Known(0.4), 0.4, 0.01)
    batches = copy.deepcopy(training.rng)
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
    for _ in range(5):
        value = training.epoch(data, 50)
        total = 0.0
        for x, bags in data.epoch(batches, 50):
            optimizer.zero_grad()
            square = ((torch.sigmoid(plain(x)[:, 0]) - bags.proportion) ** 2).mean()
            square.backward()
            optimizer.step()
            total += float(square.detach()) * len(bags) / 300
        assert value == pytest.approx(total)
    for one, two in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, two)


BAGS = {"unequal": np.repeat(np.arange(60), np.tile([1, 9, 20, 30, 25, 35], 10)), "equal": np.arange(1200) // 4}
AUTO = ("debiased_square", "count_likelihood")  # what "auto" takes


def trainings():
    """Every loss on every kind of bags; slow, but for every loss on one of them and the usual losses on all."""
    for loss in LOSSES:
        for kind, early_stopping in (("unequal", True), ("equal", False)):
            kept = kind == "equal" or loss in AUTO
            yield pytest.param(loss, kind, early_stopping, marks=[] if kept else pytest.mark.slow)


@pytest.mark.parametrize(("loss", "kind", "early_stopping"), list(trainings()))
def test_every_loss_trains_on_every_kind_of_bags(loss, kind, early_stopping, data):
    X, y, _ = data
    bags = BAGS[kind]
    settings = {"learning_rate": 0.01, "batch_rows": 100, "max_epochs": 12, "early_stopping": early_stopping, "cv": 2}
    model = BagNeuralClassifier(loss=loss, random_state=0, **settings)
    h = model.fit(X, bw.aggregate(y, bags), bags=bags).predict_proba(X)[:, 1]
    assert np.corrcoef(h, 2 * X[:, 0] + X[:, 1])[0, 1] > 0.8


def test_classes_and_their_losses(data):
    X, _, ids = data
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    y = bw.aggregate((labels[:, None] == np.arange(3)).astype(float), ids)
    for loss in ("debiased_square", "li_square", "matching_square", "matching_cross_entropy", "count_likelihood"):
        model = BagNeuralClassifier(loss=loss, early_stopping=False, **FAST).fit(X, y, bags=ids)
        assert model.predict_proba(X).shape == (1200, 3)
        assert model.score(X, labels) > 0.6  # the most frequent class has 0.38
        assert model.prior_.shape == (3,)
    for loss in ("easyllp", "centred_log", "label_generation"):
        with pytest.raises(
            ValueError, match=rf"loss '{loss}' is for two classes but there are 3: choose one of debiased_square, li"
        ):
            BagNeuralClassifier(loss=loss, **FAST).fit(X, y, bags=ids)


def test_averaged_weights_are_the_mean_over_the_last_epoch():
    rng = np.random.default_rng(0)
    data = BagTensors(torch.from_numpy(rng.normal(size=(200, 3))), bags_of(np.full(50, 4), rng))
    module = mlp(3, (4,), random_state=0).double()
    training = run(module, "debiased_square", means.LeaveOneOut(), 0.3, 0.05, average=True)
    iterates = []
    step = training.step
    training.step = lambda x, bags: (step(x, bags), iterates.append([p.detach().clone() for p in module.parameters()]))[
        0
    ]
    for _ in range(3):
        iterates.clear()
        training.epoch(data, 20)
    for number, weight in enumerate(training.reading.parameters()):
        torch.testing.assert_close(weight, torch.stack([weights[number] for weights in iterates]).mean(0))
        assert not torch.equal(weight, iterates[-1][number])


# -- choosing -----------------------------------------------------------------------------------------------------


def scripted():
    """Candidates whose risks are given."""
    paths = {
        0.1: [5, 4, 3, 3.5, 3.2, 1],  # stops before it would get to 1
        0.2: [0.1, 0.01, np.nan, 0],  # dropped, however low it was
        0.3: [4, 2, 2.5, 2.1, 9],
    }
    return [
        ((rate,), ([Figures(0.5 if np.isfinite(risk) else np.nan, risk, [np.full(3, risk)])] for risk in path))
        for rate, path in paths.items()
    ]


def test_the_least_risk_is_chosen_and_patience_kept():
    seen = []
    choice = choose(scripted(), max_epochs=10, patience=2, record=lambda **line: seen.append(line))
    assert (choice.learning_rate, choice.n_epochs, choice.risk) == (0.3, 2, 2)
    np.testing.assert_array_equal(choice.scores[0], 2)  # of the epoch that was chosen
    assert [sum(line["learning_rate"] == rate for line in seen) for rate in (0.1, 0.2, 0.3)] == [5, 3, 4]
    assert choose(scripted()[:1], max_epochs=2, patience=9, record=lambda **line: None).n_epochs == 2
    with pytest.raises(ValueError, match=r"diverged with every learning rate tried \(0.2\)"):
        choose(scripted()[1:2], max_epochs=5, patience=2, record=lambda **line: None)


@pytest.mark.parametrize("module", [None, "given"])
def test_rate_and_epochs_are_those_of_least_held_out_risk(data, module):
    """With stacked networks and with any module; what was tried is on record, and told as it happens."""
    X, y, ids = data
    told = []
    model = BagNeuralClassifier(
        module=None if module is None else mlp(4, (8,), random_state=0),
        learning_rate=(1e-5, 0.03, 0.1),
        max_epochs=12,
        patience=3,
        batch_rows=100,
        cv=2,
        callback=told.append,
        random_state=0,
    ).fit(X, bw.aggregate(y, ids), bags=ids)
    tried = pd.DataFrame([line for line in model.history_ if line["stage"] == "choice"])
    best = tried.loc[tried["risk"].idxmin()]
    assert (model.learning_rate_, model.n_epochs_, model.risk_) == (best["learning_rate"], best["epoch"], best["risk"])
    assert model.learning_rate_ > 1e-5  # which gets nowhere in 12 epochs
    assert set(tried["learning_rate"]) == {1e-5, 0.03, 0.1}
    final = [line for line in model.history_ if line["stage"] == "final"]
    assert [line["epoch"] for line in final] == list(range(1, model.n_epochs_ + 1))
    assert told == model.history_
    assert {type(value) for line in told for value in line.values()} <= {str, float, int, type(None)}


def test_the_held_out_risk_estimates_the_true_one(seed):
    rng = np.random.default_rng(seed)
    n = 32_000
    h, eta = rng.random(n), rng.random(n)
    y = (rng.random(n) < eta).astype(float)
    ids = bw.random_bags(n, 8, rng)
    noise = rng.normal(size=n // 8) * 2
    y_bag = bw.aggregate(y, ids) + (noise / 8)[ids]
    bags = bw.Bags.from_rows(y_bag, ids, noise_variance=4.0)
    folds = folds_of(len(bags), 4, rng)
    assert len(folds) == 1
    estimate = held_out_risk(h[bags.order], bags, folds[0])
    truth = ((y - h) ** 2).mean()
    # One bag's loss scatters by √2 times its mean, noise included.
    error = np.sqrt(2) * (truth + 4 / 8) / np.sqrt(len(folds[0].held_out))
    assert abs(estimate - truth) < 5 * error
    assert abs(estimate + 4 / 8 - truth) > 5 * error  # it is seen if noise is not subtracted


def test_few_bags_hold_nothing_out():
    X, y = np.array([[0.0], [1.0], [2.0]]), [0, 1, 1]
    model = BagNeuralClassifier(max_epochs=3, random_state=0).fit(X, y)
    assert (model.learning_rate_, model.n_epochs_, model.n_iter_) == (1e-3, 3, 3)
    assert np.isnan(model.risk_)
    assert BagNeuralClassifier(learning_rate=[0.5, 0.1], max_epochs=3).fit(X, y).learning_rate_ == 0.5


def test_a_diverging_rate_is_dropped_and_a_lone_one_is_an_error(data):
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    options = {"max_epochs": 4, "random_state": 0, "dtype": "float64"}
    for module in (None, mlp(4, (8,), random_state=0)):
        model = BagNeuralClassifier(module=module, learning_rate=[1e300, 0.01], **options).fit(X, y_bag, bags=ids)
        assert model.learning_rate_ == 0.01
        assert np.isfinite(model.predict_proba(X)).all()
        with pytest.raises(ValueError, match="diverged with every learning rate tried"):
            BagNeuralClassifier(module=module, learning_rate=1e300, **options).fit(X, y_bag, bags=ids)
        with pytest.raises(ValueError, match=r"diverged with learning rate 1e\+300"):
            BagNeuralClassifier(module=module, learning_rate=1e300, early_stopping=False, **options).fit(
                X, y_bag, bags=ids
            )


# -- the estimator ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_images_and_a_module_that_stays_as_it_was():
    rng = np.random.default_rng(0)
    X = rng.random((400, 1, 10, 10)).astype(np.float32)
    bright = rng.random(400) < 0.4
    X[bright, :, 3:7, 3:7] += 1
    ids = bw.random_bags(400, 4, random_state=0)
    module = cnn(1, 10, random_state=0)
    before = copy.deepcopy(module.state_dict())
    model = BagNeuralClassifier(module=module, learning_rate=0.003, max_epochs=8, batch_rows=50, cv=2, random_state=0)
    state = torch.get_rng_state()
    model.fit(X, bw.aggregate(bright, ids), bags=ids)
    assert model.score(X, bright) > 0.9
    assert torch.equal(torch.get_rng_state(), state)  # though dropout draws
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    again = clone(model).fit(X, bw.aggregate(bright, ids), bags=ids)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match=r"rows of X have shape \(1, 9, 10\), those the model was fitted on"):
        model.predict(X[:, :, :9])
    for wrong in (mlp(3, (), 3, random_state=0), torch.nn.Flatten()):
        with pytest.raises(
            ValueError, match=r"module gives outputs of shape .* it must give logits \(n,\) or \(n, 1\)"
        ):
            BagNeuralClassifier(module=wrong, **FAST).fit(rng.random((40, 3)), np.arange(40) % 2)


def test_the_network_for_images_is_the_papers():
    network = cnn(3, 12, dropout=0.0, random_state=0)
    first, second, last = (
        copy.deepcopy(network[place]).to(memory_format=torch.contiguous_format) for place in (0, 3, 8)
    )
    X = torch.randn(600, 3, 12, 12, generator=torch.Generator().manual_seed(0))  # more than one piece
    Z = torch.nn.functional.max_pool2d(first(X).relu(), 2)
    Z = torch.nn.functional.max_pool2d(second(Z).relu(), 2)
    expected = last(Z.flatten(1))
    torch.testing.assert_close(network(X), expected)
    expected.square().mean().backward()
    network(X).square().mean().backward()
    for place, layer in ((0, first), (3, second), (8, last)):
        torch.testing.assert_close(network[place].weight.grad, layer.weight.grad, rtol=1e-4, atol=1e-5)


def test_large_batches_go_through_layers_in_pieces_with_the_same_numbers():
    network = mlp(5, (300, 200), 2, random_state=0).double()
    whole = torch.nn.Sequential(*copy.deepcopy(network))
    X = torch.randn(1000, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert network.rows < len(X)
    expected, found = whole(X), network(X)
    torch.testing.assert_close(found, expected)
    for one in (expected, found):
        one.square().mean().backward()
    for ours, theirs in zip(network.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert len(network[:2]) == 2  # and what a Sequential does, they do


def test_the_same_seed_gives_the_same_model_and_another_another(data):
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    state = torch.get_rng_state()
    one, two, other = (
        BagNeuralClassifier(**(FAST | {"random_state": seed})).fit(X, y_bag, bags=ids).predict_proba(X)
        for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize("learning_rate", [0.03, (0.01, 0.03)])
def test_rows_in_another_order_and_other_ids_give_the_same_model(data, learning_rate):
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    model = BagNeuralClassifier(**(FAST | {"dtype": "float64", "learning_rate": learning_rate}))
    expected = clone(model).fit(X, y_bag, bags=ids).predict_proba(X)
    shuffle = np.random.default_rng(1).permutation(len(y))
    shuffled = clone(model).fit(X[shuffle], y_bag[shuffle], bags=ids[shuffle])
    np.testing.assert_allclose(shuffled.predict_proba(X), expected, rtol=1e-5)
    strings = np.array([f"{i:04d}" for i in ids])
    np.testing.assert_array_equal(clone(model).fit(X, y_bag, bags=strings).predict_proba(X), expected)
    more = np.vstack([X, 100 * X[:50]]), np.r_[y_bag, np.full(50, np.nan)], np.r_[ids, np.full(50, -1)]
    np.testing.assert_allclose(clone(model).fit(*more[:2], bags=more[2]).predict_proba(X), expected, rtol=1e-5)


def test_scale_and_offset_of_features_do_not_matter(data):
    """Features are standardised in double precision, and the statistics are part of the module."""
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    moved = X * [1e-6, 1.0, 1e6, 1.0] + [0.0, 1e9, 0.0, 0.0]
    expected = BagNeuralClassifier(**FAST).fit(X, y_bag, bags=ids).predict_proba(X)
    model = BagNeuralClassifier(**FAST).fit(moved, y_bag, bags=ids)
    np.testing.assert_allclose(model.predict_proba(moved), expected, atol=1e-3)
    with torch.no_grad():
        h = torch.sigmoid(model.stretch_ * model.module_(torch.from_numpy(moved)) + model.offset_)[:, 0]
    np.testing.assert_allclose(h, model.predict_proba(moved)[:, 1], atol=1e-6)
    constant = np.column_stack([X, np.full(len(X), 0.1)])
    flat = BagNeuralClassifier(**FAST).fit(constant, y_bag, bags=ids)
    constant[:, 4] = 1e6
    assert np.isfinite(flat.predict_proba(constant)).all()  # what never varied says nothing


def test_partial_fit_continues(data):
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    options = {"learning_rate": 0.03, "batch_rows": 100, "random_state": 0}
    straight = BagNeuralClassifier(max_epochs=4, early_stopping=False, **options).fit(X, y_bag, bags=ids)
    model = BagNeuralClassifier(**options)
    for _ in range(4):
        model.partial_fit(X, y_bag, bags=ids)
    for one, two in zip(model.module_.parameters(), straight.module_.parameters(), strict=True):
        torch.testing.assert_close(one, two)
    assert model.offset_ == 0 != straight.offset_  # the mean is known at the end of `fit`
    assert [line["epoch"] for line in model.history_] == [1, 2, 3, 4]
    before = straight.predict_proba(X)
    loaded = pickle.loads(pickle.dumps(straight))
    for each in (straight, loaded):  # after fit, and after a trip through a file
        each.partial_fit(X, y_bag, bags=ids)
        assert each.n_epochs_ == 5
    assert np.abs(straight.predict_proba(X) - before).max() > 1e-4
    np.testing.assert_array_equal(straight.predict_proba(X), loaded.predict_proba(X))
    half = ids < 60
    parts = BagNeuralClassifier(**options)
    for part in (half, ~half):
        parts.partial_fit(X[part], y_bag[part], bags=ids[part])
    assert parts.prior_ == pytest.approx(y.mean())  # of all rows given so far
    labels = np.where(y > 0, "yes", "no")
    names = BagNeuralClassifier(**options).partial_fit(X[:9], np.full(9, "no"), classes=["yes", "no"])
    assert set(names.partial_fit(X, labels).predict(X)) == {"yes", "no"}
    with pytest.raises(ValueError, match="y holds the class 'maybe'"):
        names.partial_fit(X[:2], ["maybe", "no"])
    with pytest.raises(ValueError, match="the bags report 3 classes, those before 2"):
        names.partial_fit(X[:4], np.full((4, 3), 1 / 3), bags=[0, 0, 1, 1])


def test_optimizers_of_the_users_own(data):
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    seen = []

    def sgd(parameters, lr, weight_decay):
        seen.append((lr, weight_decay))
        return torch.optim.SGD(parameters, lr=lr, weight_decay=weight_decay)

    model = BagNeuralClassifier(optimizer=sgd, learning_rate=0.5, weight_decay=0.01, max_epochs=3, random_state=0)
    model.fit(X, y_bag, bags=ids)
    assert set(seen) == {(0.5, 0.01)}
    strong, weak = (
        BagNeuralClassifier(weight_decay=decay, early_stopping=False, **FAST).fit(X, y_bag, bags=ids).predict_proba(X)
        for decay in (1.0, 0.0)
    )
    assert strong[:, 1].std() < 0.5 * weak[:, 1].std()


def test_declared_noise_and_bags_beyond_a_batch_train(data):
    X, y, _ = data
    X, y = np.tile(X, (4, 1)), np.tile(y, 4)
    ids = bw.random_bags(4800, 40, random_state=0)
    rng = np.random.default_rng(0)
    noised = bw.aggregate(y, ids) + (rng.laplace(scale=1.0, size=120) / 40)[ids]
    bags = bw.Bags.from_rows(noised, ids, noise_variance=2.0)
    model = BagNeuralClassifier(batch_rows=8, learning_rate=0.01, max_epochs=10, random_state=0).fit(X, bags=bags)
    assert model.score(X, y) > 0.75
    assert model.risk_ < 0.25


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("loss", "hinge"),
        ("means", "median"),
        ("means", 0.5),
        ("learning_rate", 0),
        ("learning_rate", "best"),
        ("learning_rate", []),
        ("batch_rows", 0),
        ("max_epochs", 0),
        ("patience", 0),
        ("cv", 1),
        ("weight_decay", -1),
        ("dtype", "float16"),
        ("module", "mlp"),
        ("hidden", (0,)),
        ("hidden", 32),
        ("device", "moon"),
    ],
)
def test_wrong_parameters_are_named(parameter, value):
    with pytest.raises(ParameterError) as caught:
        BagNeuralClassifier(**{parameter: value}).fit([[0.0], [1.0]] * 20, [0, 1] * 20)
    assert caught.value.parameter == parameter
    assert str(caught.value).endswith(f"got {value!r}.")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_columns_with_gaps_are_named(data, bad):
    X, y, ids = data
    frame, y_bag = pd.DataFrame(X, columns=list("abcd")), bw.aggregate(y, ids)
    model = BagNeuralClassifier(**FAST).fit(frame, y_bag, bags=ids)
    frame.loc[7, "b"] = bad
    for call in (lambda: model.predict(frame), lambda: clone(model).fit(frame, y_bag, bags=ids)):
        with pytest.raises(ValueError, match=r"column 'b' of X contains NaN or infinity \(first in row 7\)"):
            call()
    with pytest.raises(NotFittedError):
        clone(model).predict(X)
    with pytest.raises(ValueError, match="one bag only"):
        BagBatchSampler(bw.Bags.from_rows([0.5, 0.5], [0, 0]))


# -- around it ----------------------------------------------------------------------------------------------------


def test_without_torch_one_sentence_says_what_to_do():
    code = "import sys; sys.modules['torch'] = None; import bagwise; import bagwise.neural"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: networks need torch: pip install 'bagwise[neural]'." in found.stderr
    code = "import sys, bagwise; bagwise.Bags; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of packages that examples alone import
@pytest.mark.parametrize(
    ("name", "least"),
    [("neural_plain_torch", 0.85), ("neural_lightning", 0.85), ("neural_datasets", 0.85), ("neural_pretrained", 0.7)],
)
def test_examples_learn(name, least, capsys):
    if name == "neural_datasets":
        pytest.importorskip("datasets")
    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    accuracy = runpy.run_path(str(path))["main"]()
    assert np.min(accuracy) > least
    assert "accuracy" in capsys.readouterr().out


def test_a_saved_network_goes_on_from_its_weights(tmp_path, data):
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)
    model = BagNeuralClassifier(**FAST | {"learning_rate": 0.01}).fit(X, y_bag, bags=ids)
    bw.save(model, tmp_path / "network")
    loaded = bw.load(tmp_path / "network")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    before = model.predict_proba(X)
    after = loaded.partial_fit(X, y_bag, bags=ids).predict_proba(X)
    assert 0 < np.abs(after - before).max() < 0.2  # a step on, not a new start
    assert loaded.n_epochs_ == model.n_epochs_ + 1


def test_a_saved_module_of_the_users_needs_its_shape(tmp_path, data):
    X, y, ids = data
    y_bag = bw.aggregate(y, ids)

    def make(width):
        return torch.nn.Sequential(torch.nn.Linear(X.shape[1], width), torch.nn.Tanh(), torch.nn.Linear(width, 1))

    model = BagNeuralClassifier(module=make(3), **FAST).fit(X, y_bag, bags=ids)
    bw.save(model, tmp_path / "network")
    with pytest.raises(ValueError, match="weights of a module of yours"):
        bw.load(tmp_path / "network")
    with pytest.raises(ValueError, match="weights do not fit the module"):
        bw.load(tmp_path / "network", module=make(4))
    loaded = bw.load(tmp_path / "network", module=make(3))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_two_columns_of_proportions_are_saved_too(tmp_path, data):
    X, y, ids = data
    model = BagNeuralClassifier(**FAST).fit(X, bw.aggregate(np.stack([1 - y, y], axis=1), ids), bags=ids)
    bw.save(model, tmp_path / "network")
    np.testing.assert_array_equal(bw.load(tmp_path / "network").predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="module"):  # it has no module of the user's
        bw.load(tmp_path / "network", module=mlp(4))
    model.set_params(callback=print)
    with pytest.raises(ValueError, match="'callback' in 'parameters' of BagNeuralClassifier"):
        bw.save(model, tmp_path / "other")


def test_partial_fit_needs_labels_of_two_classes(data):
    X, *_ = data
    with pytest.raises(ValueError, match="y is missing"):
        BagNeuralClassifier().partial_fit(X)
    with pytest.raises(ValueError, match="y holds one class only: name all classes"):
        BagNeuralClassifier().partial_fit(X, np.ones(len(X)))
