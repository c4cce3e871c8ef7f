"""Rows that stand for several people in networks, beside the same rows repeated, and offsets of log odds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit

import bagwise as bw
from bagwise import means
from bagwise.data.rows import InMemory
from bagwise.distributed import Distributed
from bagwise.losses import LOSSES
from bagwise.neural import mlp
from bagwise.neural.batches import BagTensors
from bagwise.neural.replicas import Replica, train_modules, train_replicas
from bagwise.neural.training import Objective
from bagwise.utils.parameters import ParameterError
from tests.weighted import COEF, INTERCEPT, drawn

pytestmark = pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")
STRATEGIES = [means.LeaveOneOut(), means.Running(decay=0.7), means.Corrected(), means.Known(0.4)]


def in_bag_order(bags):
    """The same bags of rows that stand in bag order, as batches know them."""
    return BagTensors(torch.zeros(bags.n_bagged, 1), bags).bags


def pair(n, m, *, noised=False, hidden=False, classes=False, seed=0):
    """Weighted and repeated bags of equal rows in bag order, and which row each repeat is of."""
    given = drawn("features", n, m, seed=seed)
    one, many = given.bags, given.repeated
    if classes:
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 3, len(given.rows))
        size = np.bincount(given.ids, given.weight)
        alpha = np.stack([np.bincount(given.ids[given.rows], labels == c, m) / size for c in range(3)], axis=1)
        one = bw.Bags.from_rows(alpha[given.ids], given.ids).with_weights(given.weight)
        many = bw.Bags.from_rows(alpha[given.ids][given.rows], given.ids[given.rows])
    if noised:
        noise = np.where(np.arange(m) % 2, 4.0, 0.0)
        one, many = (replace(bags, noise_variance=noise) for bags in (one, many))
    if hidden:
        count = np.rint(one.size * one.proportion)
        ends = np.where(count < 6, 0, count), np.where(count < 6, np.minimum(5, one.size), count)
        one, many = one.with_intervals(*ends), many.with_intervals(*ends)
    place = np.empty(n, dtype=int)
    place[one.order] = np.arange(n)
    return in_bag_order(one), in_bag_order(many), place[given.rows[many.order]]


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_and_gradients_are_those_of_rows_repeated(loss):
    """Bags of one size and of several, counts exact and by the series, with every strategy."""
    for (n, m), strategy in zip([(48, 12), (90, 3), (61, 4), (46, 4)], STRATEGIES, strict=True):
        one, many, rows = pair(n, m)
        assert_the_same(loss, strategy, one, many, rows, np.random.default_rng(1).normal(size=n), 0.3)


@pytest.mark.parametrize("loss", [name for name, one in LOSSES.items() if one.classes])
def test_classes(loss):
    one, many, rows = pair(60, 5, classes=True)
    prior = np.array([0.3, 0.5, 0.2])
    assert_the_same(loss, means.LeaveOneOut(), one, many, rows, np.random.default_rng(1).normal(size=(60, 3)), prior)


@pytest.mark.parametrize("kind", ["noised", "hidden"])
@pytest.mark.parametrize("effect_variance", [0.0, 0.3])
def test_noised_and_hidden_counts(kind, effect_variance):
    one, many, rows = pair(120, 10, **{kind: True})
    told = {"effect_variance": effect_variance}
    scores = np.random.default_rng(1).normal(size=120)
    assert_the_same("count_likelihood", means.LeaveOneOut(), one, many, rows, scores, 0.3, **told)


def assert_the_same(loss, strategy, one, many, rows, scores, prior, **told):
    """The mean loss of a batch and its derivatives, written out and by autograd, in several steps of a running mean."""
    prior = prior if isinstance(prior, float) else torch.from_numpy(prior)
    found = []
    for bags, s in ((one, scores), (many, scores[rows])):
        objectives = [Objective(loss, strategy, prior, **told) for _ in range(2)]
        for _ in range(2):
            written, plain = (torch.from_numpy(s).requires_grad_() for _ in range(2))
            batch = bags.like(written)
            value = float(objectives[0].backward(written, batch))
            expected = objectives[1].losses(plain, batch).mean()
            expected.backward()
            assert value == pytest.approx(float(expected.detach()), rel=1e-9)
            torch.testing.assert_close(written.grad, plain.grad, rtol=1e-7, atol=1e-10)
        by_row = np.zeros_like(scores)
        np.add.at(by_row, rows if bags is many else np.arange(len(s)), written.grad.numpy())
        found.append((value, by_row))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-7)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5, atol=1e-8)
    assert np.abs(found[0][1]).max() > 1e-6


def test_parts_of_people_have_the_gradient_of_their_loss():
    one, _, _ = pair(40, 4)
    weight = one.weight + 0.37
    bags = bw.Bags.from_rows(one.repeat(one.proportion), one.repeat(np.arange(4))).with_weights(weight)
    for loss in ("debiased_square", "count_likelihood"):
        objective, s = Objective(loss, means.LeaveOneOut(), 0.3), np.random.default_rng(0).normal(size=40)
        logits = torch.from_numpy(s).requires_grad_()
        objective.backward(logits, bags.like(logits))
        step = 1e-5
        for row in (0, 21):
            up, down = (
                objective.losses(torch.from_numpy(s + sign * step * (np.arange(40) == row)), bags.like(logits)).mean()
                for sign in (1, -1)
            )
            assert float(logits.grad[row]) == pytest.approx(float(up - down) / (2 * step), rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("loss", ["debiased_square", "count_likelihood", "matching_cross_entropy"])
@pytest.mark.parametrize("n", [60, 61])
def test_stacked_networks_are_those_of_single_runs(loss, n):
    given = drawn("features", n, 12, seed=4)
    offset = np.random.default_rng(0).normal(size=n)
    alike = bw.Bags.from_rows(np.full(n, 0.5), given.ids)
    bags = [given.bags, given.bags.with_offset(offset), alike.with_offset(offset)]
    runs = [Replica(bags=one, loss=loss, learning_rate=rate) for one in bags for rate in (1e-3, 1e-2)]
    options = {"epochs": 2, "batch_rows": 20, "dtype": torch.float64}
    together = train_replicas(given.X, runs, hidden=(4,), **options)
    alone = train_modules(given.X, runs, lambda seed: mlp(3, (4,), random_state=seed), **options)
    for mine, theirs in zip(together, alone, strict=True):
        np.testing.assert_allclose(mine.loss, theirs.loss, rtol=1e-6)
    assert len({tuple(one.loss) for one in together}) == len(runs)


@pytest.mark.parametrize("formation", ["random", "features"])
@pytest.mark.parametrize("given_loss", ["auto", "easyllp"])
def test_a_fit_is_that_of_rows_repeated(formation, given_loss):
    """All bags are one batch, so that both see the same in every step."""
    given = drawn("features", 300, 20, seed=1)
    options = {"batch_rows": 10**6, "max_epochs": 4, "dtype": "float64", "cv": 2, "random_state": 0}
    options |= {"learning_rate": [0.01, 0.03], "formation": formation, "loss": given_loss}
    one, many = (bw.BagNeuralClassifier(**options) for _ in range(2))
    one.fit(given.X, bags=given.bags)
    many.fit(given.X[given.rows], bags=given.repeated)
    assert (one.learning_rate_, one.n_epochs_) == (many.learning_rate_, many.n_epochs_)
    for what in ("risk_", "gain_", "stretch_", "offset_", "effect_variance_", "prior_"):
        assert getattr(one, what) == pytest.approx(getattr(many, what), rel=1e-5, abs=1e-8), what
    np.testing.assert_allclose(one.predict_proba(given.X), many.predict_proba(given.X), rtol=1e-6)
    one.partial_fit(given.X, bags=given.bags)
    many.partial_fit(given.X[given.rows], bags=given.repeated)
    np.testing.assert_allclose(one.predict_proba(given.X), many.predict_proba(given.X), rtol=1e-6)


@pytest.mark.parametrize("loss", ["debiased_square", "count_likelihood", "matching_square"])
def test_a_fit_on_blocks_is_that_of_rows_repeated(loss):
    """The steps that processes share, on batches that hold all bags."""
    given = drawn("features", 300, 20, seed=1)
    options = {"batch_rows": 10**6, "max_epochs": 4, "dtype": "float64", "early_stopping": False, "random_state": 0}
    models = [bw.BagNeuralClassifier(learning_rate=0.01, loss=loss, **options) for _ in range(2)]
    offset = np.random.default_rng(0).normal(size=300)
    pairs = ((given.X, given.bags, offset), (given.X[given.rows], given.repeated, offset[given.rows]))
    for model, (X, bags, moved) in zip(models, pairs, strict=True):
        model.fit_rows(InMemory(X, bags.with_offset(moved)), distributed=Distributed(streams=1))
    np.testing.assert_allclose(*(model.predict_proba(given.X, offset=offset) for model in models), rtol=1e-6)


def test_a_regressor_is_that_of_rows_repeated():
    given = drawn("random", 300, 20, seed=1)
    values = given.ids + given.bags.proportion[given.ids] * 10
    one, many = (bw.Bags.from_rows(values[rows], given.ids[rows]) for rows in (np.arange(300), given.rows))
    options = {"batch_rows": 10**6, "max_epochs": 4, "dtype": "float64", "cv": 2, "random_state": 0}
    models = [bw.BagNeuralRegressor(learning_rate=0.01, **options) for _ in range(2)]
    models[0].fit(given.X, bags=one.with_weights(given.weight))
    models[1].fit(given.X[given.rows], bags=many)
    np.testing.assert_allclose(*(model.predict(given.X) for model in models), rtol=1e-6)


def test_an_offset_is_a_feature_with_a_coefficient_of_one():
    """Of the loss, and what is learned beside it."""
    rng = np.random.default_rng(3)
    n, m = 3000, 300
    X, offset = rng.normal(size=(n, 3)), 2 * rng.normal(size=n)
    ids = rng.permutation(n) % m
    y = rng.random(n) < expit(INTERCEPT + X @ COEF + offset)
    plain = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    moved = in_bag_order(plain.with_offset(offset))
    for loss in ("debiased_square", "count_likelihood"):
        found = []
        for bags, added in ((moved, 0.0), (in_bag_order(plain), moved.offset)):
            logits = torch.from_numpy(X[plain.order, 0]).requires_grad_()
            value = Objective(loss, "running", 0.4).backward(logits + torch.as_tensor(added), bags.like(logits))
            found.append((value, logits.grad))
        assert found[0][0] == pytest.approx(found[1][0])
        torch.testing.assert_close(found[0][1], found[1][1])
    model = bw.BagNeuralClassifier(learning_rate=0.01, max_epochs=25, hidden=(8,), random_state=0)
    model.fit(X, bags=plain.with_offset(offset))
    h = model.predict_proba(X, offset=offset)[:, 1]
    assert h.mean() == pytest.approx(y.mean(), abs=1e-3)
    assert np.corrcoef(model._decision(X), X @ COEF)[0, 1] > 0.9
    assert np.square(h - y).mean() < np.square(expit(offset + np.log(y.mean() / (1 - y.mean()))) - y).mean()
    with pytest.raises(ParameterError, match="offset is missing"):
        model.predict(X)


def test_what_cannot_be_is_said():
    given = drawn("random", 40, 8)
    moved = given.bags.with_offset(np.zeros(40))
    with pytest.raises(ParameterError, match="offset is not known to a BagNeuralRegressor"):
        bw.BagNeuralRegressor().fit(given.X, bags=moved)
    with pytest.raises(ParameterError, match="X_test holds rows of unknown offset"):
        train_replicas(given.X, [Replica(bags=moved)], epochs=1, X_test=given.X)
    with pytest.raises(ParameterError, match="values are real labels"):
        train_replicas(given.X, [Replica(bags=moved, values=True)], epochs=1)
