"""Consistency: the term that is added, by one process or several, and what of it is kept."""

import copy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import bagwise as bw
from bagwise import means
from bagwise.data.rows import InMemory
from bagwise.utils.parameters import ParameterError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")

from bagwise.bags.pieces import stretch  # noqa: E402
from bagwise.distributed import Distributed  # noqa: E402
from bagwise.distributed.processes import Processes  # noqa: E402
from bagwise.distributed.torchrun import launch  # noqa: E402
from bagwise.neural import BagNeuralClassifier, BagNeuralRegressor, mlp  # noqa: E402
from bagwise.neural.consistency import Consistency  # noqa: E402
from bagwise.neural.distributed import Batch  # noqa: E402
from bagwise.neural.training import Objective, Training  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning"),
]
QUICK = {"learning_rate": 0.01, "max_epochs": 3, "cv": 2, "batch_rows": 60, "hidden": (8,), "random_state": 0}


def swapped(x):
    """Rows with their columns in the other order."""
    return x.flip(1)


def shaken(x):
    """Rows with noise in all columns but the first, on which labels depend; written over what was given."""
    x[:, 1:] += torch.randn_like(x[:, 1:])
    return x


def rows(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (rng.random(n) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(float)


def bags_of(kind, sizes):
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(len(sizes)), sizes)
    y = rng.random(len(ids)) if kind == "values" else (rng.random(len(ids)) < 0.4).astype(float)
    if kind == "classes":
        y = (rng.integers(0, 3, len(ids))[:, None] == np.arange(3)).astype(float)
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    if kind == "weights":
        weight = rng.integers(1, 4, len(ids)).astype(float)
        mean = np.bincount(ids, weight * y) / np.bincount(ids, weight)
        return bw.Bags.from_rows(mean[ids], ids).with_weights(weight)
    return bags.with_offset(rng.normal(size=len(ids))) if kind == "offset" else bags


def one_step(kind, loss, bags, *, module, split=None, prior=None):
    """The loss of a step, and the weights after it."""
    training = Training(
        module,
        Objective(loss, means.Known(0.4 if kind != "classes" else np.full(3, 1 / 3)), prior, values=kind == "values"),
        make_optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1),
        rng=np.random.default_rng(0),
        consistency=Consistency(swapped, 0.7),
    )
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(bags.n_bagged, 3)))
    if split is not None:
        x = x[split.rows]
    value = training.step(x, bags.like(x) if split is None else split.bags.like(x), split=split)
    return float(value), [one.detach() for one in module.parameters()]


CASES = [
    ("labels", "debiased_square"),
    ("labels", "count_likelihood"),
    ("labels", "easyllp"),
    ("weights", "debiased_square"),
    ("offset", "count_likelihood"),
    ("values", "debiased_square"),
    ("classes", "debiased_square"),
    ("classes", "count_likelihood"),
]


@pytest.mark.parametrize(("kind", "loss"), CASES)
@pytest.mark.parametrize("sizes", [np.full(8, 5), np.array([1, 9, 4, 12])], ids=["equal", "unequal"])
def test_a_step_is_that_of_autograd_on_the_formula(kind, loss, sizes):
    bags = bags_of(kind, sizes)
    module = mlp(3, (4,), 3 if kind == "classes" else 1, random_state=0).double()
    plain, prior = copy.deepcopy(module), np.full(3, 1 / 3) if kind == "classes" else 0.4
    value, weights = one_step(kind, loss, bags, module=module, prior=prior)

    objective = Objective(loss, means.Known(prior), prior, values=kind == "values")
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(bags.n_bagged, 3)))
    added = 0 if bags.offset is None else torch.tensor(bags.offset)[:, None]
    pair = [plain(each) + added for each in (x, swapped(x))]
    if kind == "classes":
        apart = (torch.softmax(pair[0], 1) - torch.softmax(pair[1], 1)).square().sum(1)
    else:
        apart = (pair[0] - pair[1] if kind == "values" else pair[0].sigmoid() - pair[1].sigmoid()).square()[:, 0]
    weight = torch.ones(len(x)) if bags.weight is None else torch.tensor(bags.weight)
    expected = objective.losses(plain(x), bags.like(x)).mean() + 0.7 * (weight * apart).sum() / weight.sum()
    expected.backward()
    assert value == pytest.approx(float(expected.detach()))
    assert float(apart.detach().mean()) > 1e-4
    for mine, theirs in zip(weights, plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs.detach() - 0.1 * theirs.grad)


class Shared(Processes):
    """Two processes in one: what the other would have sent is known."""

    def total(self, numbers):
        """The sums of both."""
        return numbers + self.others


class Part(Batch):
    """A part of a batch, and which of its rows."""

    @property
    def rows(self):
        """Of the whole batch."""
        return slice(self.whole.offsets[self.mine[0]], self.whole.offsets[self.mine[-1] + 1])


@pytest.mark.parametrize(("kind", "loss"), [("labels", "debiased_square"), ("weights", "count_likelihood")])
def test_processes_that_share_a_batch_take_the_same_step(kind, loss):
    bags = bags_of(kind, np.array([3, 9, 4, 12, 2, 6]))
    module = mlp(3, (4,), random_state=0).double()
    whole, weights = one_step(kind, loss, bags, module=copy.deepcopy(module), prior=0.4)
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(bags.n_bagged, 3)))
    values, steps = [], []
    for mine in (np.arange(2), np.arange(2, 6)):
        processes = Shared(0, 2)
        sums = bags.sum(module(x).detach().sigmoid().reshape(-1).numpy())
        sums[mine] = 0
        object.__setattr__(processes, "others", sums)
        part = Part(x, stretch(bags, mine[0], mine[-1] + 1), bags, mine, processes)
        value, after = one_step(kind, loss, bags, module=copy.deepcopy(module), prior=0.4, split=part)
        values.append(value)
        steps.append(after)
    assert np.mean(values) == pytest.approx(whole)
    for one, other, expected in zip(*steps, weights, strict=True):
        torch.testing.assert_close((one + other) / 2, expected)


@pytest.mark.parametrize("kind", [BagNeuralClassifier, BagNeuralRegressor])
def test_without_weight_nothing_changes(kind):
    X, y = rows()
    ids = np.arange(240) // 5
    plain = kind(**QUICK).fit(X, bw.aggregate(y, ids), bags=ids)
    aside = kind(**QUICK, augment=lambda x: 1 / 0).fit(X, bw.aggregate(y, ids), bags=ids)
    np.testing.assert_array_equal(aside._scores(X), plain._scores(X))
    assert plain.n_iter_ == plain.n_epochs_
    assert not hasattr(kind(), "n_iter_")


@pytest.mark.parametrize("kind", [BagNeuralClassifier, BagNeuralRegressor])
def test_predictions_stay_where_rows_are_shaken(kind):
    X, y = rows()
    ids = np.arange(240) // 4
    other = X + np.random.default_rng(5).normal(size=X.shape) * [0, 1, 1]
    moved = []
    for weight in (0.0, 10.0, 10.0):
        options = QUICK | {"max_epochs": 15, "early_stopping": False}
        model = kind(**options, augment=shaken, consistency=weight).fit(X, bw.aggregate(y, ids), bags=ids)
        scores = model._scores(X)
        moved.append(np.std(model._scores(other) - scores) / np.std(scores))
    assert moved[1] < 0.7 * moved[0]
    assert moved[1] == moved[2]  # what is drawn depends on random_state alone


def test_choice_and_blocks_know_it():
    X, y = rows()
    ids = np.arange(240) // 5
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    chosen = BagNeuralClassifier(**QUICK, augment=shaken, consistency=1.0).fit(X, bags=bags)
    plain = BagNeuralClassifier(**QUICK).fit(X, bags=bags)
    first = [next(line["loss"] for line in model.history_ if line["stage"] == "choice") for model in (chosen, plain)]
    assert first[0] > first[1] + 1e-4  # the same weights, order and rows, and what consistency adds
    data = InMemory(X, bags, starts=np.array([0, 24, 48]))
    blocks = BagNeuralClassifier(**QUICK, augment=shaken, consistency=1.0)
    blocks.fit_rows(data, distributed=Distributed(streams=2))
    without = BagNeuralClassifier(**QUICK).fit_rows(data, distributed=Distributed(streams=2))
    assert np.abs(blocks._scores(X) - without._scores(X)).max() > 1e-4


def test_models_on_disk_hold_no_code(tmp_path):
    X, y = rows()
    ids = np.arange(240) // 5
    model = BagNeuralClassifier(**QUICK, augment=shaken, consistency=1.0).fit(X, bw.aggregate(y, ids), bags=ids)
    bw.save(model, tmp_path / "model")
    again = bw.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert (again.augment, again.consistency) == (None, 1.0)
    for call in (again.partial_fit, again.fit):
        with pytest.raises(ParameterError, match="augment is missing, while consistency is 1: give the function"):
            call(X, bw.aggregate(y, ids), bags=ids)
    again.set_params(augment=shaken).partial_fit(X, bw.aggregate(y, ids), bags=ids)
    assert again.n_epochs_ == model.n_epochs_ + 1


def test_what_cannot_be_is_one_sentence():
    X, y = rows()
    for options, said in [
        ({"consistency": 0.5}, "augment is missing, while consistency is 0.5"),
        ({"consistency": -1}, "consistency must be a finite number of at least 0, got -1"),
        ({"augment": "shift", "consistency": 1}, "augment must be a function of rows, or None, got 'shift'"),
        (
            {"augment": lambda x: x[:, :2], "consistency": 1},
            r"augment makes a tensor of shape \(\d+, 2\) of rows of sh",
        ),
        ({"augment": lambda x: None, "consistency": 1}, r"augment makes NoneType of rows of shape \(\d+, 3\): it must"),
    ]:
        with pytest.raises(ParameterError, match=said):
            BagNeuralClassifier(**QUICK, **options).fit(X, y)
    with pytest.raises(ParameterError, match="augment is a function, which cannot be handed to other processes"):
        launch(BagNeuralClassifier(augment=shaken, consistency=1.0), SimpleNamespace(folder=Path("shards")))
