"""Networks for real labels: ordinary regression with bags of one row, bags of many, blocks, replicas, epochs."""

import numpy as np
import pytest

import bagwise as bw
from tests import sklearn_checks

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")

from bagwise.data.rows import InMemory  # noqa: E402
from bagwise.distributed import Distributed  # noqa: E402
from bagwise.means import LeaveOneOut  # noqa: E402
from bagwise.neural import BagNeuralRegressor, Replica, mlp, train_modules, train_replicas  # noqa: E402
from bagwise.neural.training import Objective  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
FEW = {"learning_rate": 0.03, "max_epochs": 12, "cv": 2, "random_state": 0}


def rows_of(n, seed=0):
    """Labels that no linear model learns, far from 0 and with a large spread."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, 5000 + 300 * X[:, 0] * X[:, 1] + 30 * rng.normal(size=n)


@sklearn_checks.parametrize([BagNeuralRegressor(learning_rate=0.1, max_epochs=12, cv=2, random_state=0)])
@pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")
def test_scikit_learn_checks(estimator, check):
    sklearn_checks.check(estimator, check)


@pytest.mark.parametrize("size", [1, 8])
def test_bags_teach_what_labels_do(size):
    X, y = rows_of(4800)
    ids = np.arange(len(X)) // size
    model = BagNeuralRegressor(**FEW).fit(X, bw.aggregate(y, ids), bags=ids)
    new, wanted = rows_of(2000, 1)
    assert model.score(new, wanted) > (0.7 if size == 1 else 0.5)
    assert model.predict(X).mean() == pytest.approx(y.mean(), abs=1)
    assert model.gain_ > 2 * model.gain_error_


def test_units_do_not_matter():
    X, y = rows_of(1600)
    ids = np.arange(len(X)) // 4
    one, other = (
        BagNeuralRegressor(**FEW, dtype="float64").fit(X, bw.aggregate(labels, ids), bags=ids).predict(X)
        for labels in (y, 1e6 * y - 3e9)
    )
    assert 1e6 * one - 3e9 == pytest.approx(other, rel=1e-6, abs=1e3)


def test_the_written_out_derivative_is_that_of_autograd():
    rng = np.random.default_rng(0)
    for sizes in (np.full(6, 5), np.array([1, 4, 9, 2])):
        ids = np.repeat(np.arange(len(sizes)), sizes)
        bags = bw.Bags.from_rows(bw.aggregate(rng.normal(size=len(ids)), ids), ids)
        logits = torch.from_numpy(rng.normal(size=len(ids))).requires_grad_()
        again = logits.detach().clone().requires_grad_()
        ours, theirs = (Objective("debiased_square", LeaveOneOut(), 0.1, values=True) for _ in range(2))
        assert ours.written_out
        value, expected = ours.backward(logits, bags.like(logits)), theirs.losses(again, bags.like(again)).mean()
        expected.backward()
        assert float(value) == pytest.approx(float(expected.detach()))
        torch.testing.assert_close(logits.grad, again.grad)


def test_replicas_of_values_are_those_of_single_runs():
    X, y = rows_of(480)
    ids = np.arange(480) // 6
    bags = bw.Bags.from_rows(bw.aggregate((y - 5000) / 300, ids), ids)
    runs = [Replica(bags=bags, values=values, learning_rate=0.01) for values in (True, False)]
    given = {"epochs": 2, "batch_rows": 120, "dtype": torch.float64, "X_test": X, "y_test": (y - 5000) / 300}
    together = train_replicas(X, runs, hidden=(5,), **given)
    alone = train_modules(X, runs, lambda seed: mlp(2, (5,), random_state=seed), **given)
    for one, two in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.loss, two.loss, rtol=1e-6)
        np.testing.assert_allclose(one.brier, two.brier, rtol=1e-6)
    assert together[0].loss[0] != together[1].loss[0]
    assert np.isnan(together[0].accuracy).all()
    with pytest.raises(ValueError, match="'easyllp' is for labels 0 and 1, not for values: choose one of debiased_sq"):
        train_replicas(X, [Replica(bags=bags, values=True, loss="easyllp")], epochs=1)


def test_blocks_teach_what_memory_does():
    X, y = rows_of(1600)
    ids = np.arange(1600) // 8
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    settings = FEW | {"max_epochs": 20, "early_stopping": False}
    data = InMemory(X, bags, starts=np.array([0, 60, 120, 200]))
    model = BagNeuralRegressor(**settings).fit_rows(data, distributed=Distributed(streams=2))
    plain = BagNeuralRegressor(**settings).fit(X, bags=bags)
    assert model.score(X, y) > 0.5
    assert model.predict(X).mean() == pytest.approx(y.mean(), rel=1e-3)
    assert abs(model.score(X, y) - plain.score(X, y)) < 0.3


def test_values_that_are_never_negative_and_what_is_saved(tmp_path):
    X, _ = rows_of(1600)
    y = np.maximum(X[:, 0], 0) * 10
    ids = np.arange(1600) // 4
    model = BagNeuralRegressor(**FEW).fit(X, bw.aggregate(y, ids), bags=ids)
    h = model.predict(X)
    assert model.nonnegative_
    assert h.min() >= 0
    assert h.mean() == pytest.approx(y.mean(), rel=1e-4)
    bw.save(model, tmp_path / "model")
    np.testing.assert_array_equal(bw.load(tmp_path / "model").predict(X), h)


def test_partial_fit_goes_on_and_tables_do_not():
    X, y = rows_of(3200)
    ids = np.arange(3200) // 4
    model = BagNeuralRegressor(learning_rate=0.03, batch_rows=64, random_state=0)
    for _ in range(15):
        model.partial_fit(X, bw.aggregate(y, ids), bags=ids)
    assert model.n_epochs_ == 15
    assert model.score(X, y) > 0.5
    assert "partial_fit alone" in model.cannot_update()


def test_bags_with_very_much_noise_are_left_out():
    X, y = rows_of(1600)
    ids, rng = np.arange(1600) // 4, np.random.default_rng(0)
    noise = np.where(np.arange(400) % 2 == 0, 0.0, 1e12)
    mean = bw.aggregate(y, ids) + (np.sqrt(noise) * rng.normal(size=400))[ids]
    bags = bw.Bags.from_rows(mean, ids, noise_variance=noise[ids])
    every = BagNeuralRegressor(**FEW).fit(X, bags=bags)
    exact = BagNeuralRegressor(**FEW).fit(X, mean, bags=np.where(noise[ids] == 0, ids, -1))
    np.testing.assert_allclose(every.predict(X), exact.predict(X), rtol=1e-5)
