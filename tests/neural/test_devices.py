"""Networks on devices: what is computed there is what the CPU computes, and no tensor is on the wrong one."""

from contextlib import nullcontext

import numpy as np
import pytest

import bagwise as bw
from bagwise.data.rows import InMemory
from bagwise.losses import LOSSES
from bagwise.utils.parameters import ParameterError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")

from bagwise.distributed import Checkpoints, Distributed  # noqa: E402
from bagwise.distributed.processes import Processes  # noqa: E402
from bagwise.neural import BagNeuralClassifier, BagNeuralRegressor, cnn  # noqa: E402
from bagwise.neural.devices import device_of  # noqa: E402
from bagwise.neural.networks import Standardise  # noqa: E402
from tests.neural.elsewhere import Elsewhere, There  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning"),
]
QUICK = {"learning_rate": 0.01, "max_epochs": 2, "cv": 2, "batch_rows": 60, "hidden": (4,), "random_state": 0}
KINDS = {"equal": np.arange(240) // 5, "unequal": np.repeat(np.arange(40), np.tile([1, 11, 4, 8], 10))}
missing = next((name for name in ("cuda", "mps", "xpu") if not getattr(torch, name).is_available()), None)


@pytest.fixture(params=["cuda", "mps"])
def elsewhere(request, monkeypatch):
    """A device that is not there, with random numbers of its own."""
    module, state = getattr(torch, request.param), {"seed": None}
    monkeypatch.setattr(module, "get_rng_state", lambda device: state.copy())
    monkeypatch.setattr(module, "set_rng_state", lambda kept, device: state.update(kept))
    monkeypatch.setattr(module, "manual_seed", lambda seed: state.update(seed=seed))
    monkeypatch.setattr(module, "device", lambda device: nullcontext(), raising=False)
    monkeypatch.setattr(Elsewhere, "noise", state, raising=False)
    return Elsewhere(request.param)


def rows(seed=0, n=240):
    rng = np.random.default_rng(seed)
    X = 3 + rng.normal(size=(n, 3))
    return X, (X[:, 0] + rng.normal(size=n) > 3).astype(float)


def case(name):
    """An estimator and bags."""
    X, y = rows()
    ids = KINDS["unequal" if name == "unequal" else "equal"]
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    options = {}
    if name == "classes":
        classes = (np.digitize(X[:, 0], [2.5, 3.5])[:, None] == np.arange(3)).astype(float)
        bags, options = bw.Bags.from_rows(bw.aggregate(classes, ids), ids), {"loss": "count_likelihood"}
    elif name == "weights":
        weight = np.tile([1.0, 2.0, 3.0], 80)
        mean = np.bincount(ids, weight * y) / np.bincount(ids, weight)
        bags = bw.Bags.from_rows(mean[ids], ids).with_weights(weight)
    elif name == "offset":
        bags = bags.with_offset(X[:, 1] - 3)
    elif name == "hidden":
        counts = bags.size * bags.proportion
        bags = bags.with_intervals(np.where(counts < 2, 0, counts), np.where(counts < 2, 1, counts))
        options = {"loss": "count_likelihood"}
    elif name in ("rates", "effects"):
        options = {"formation": name}
    elif name == "module":
        options = {"module": torch.nn.Linear(3, 1), "average": True}
    elif name in LOSSES:
        options = {"loss": name}
    return X, bags, options


CASES = ["equal", "unequal", "classes", "weights", "offset", "hidden", "rates", "effects", "module", *LOSSES]


@pytest.mark.parametrize("name", CASES)
def test_a_fit_elsewhere_is_that_of_the_cpu(name, elsewhere):
    X, bags, options = case(name)
    if "module" in options:
        torch.nn.init.zeros_(options["module"].weight)
    expected = BagNeuralClassifier(**QUICK, **options).fit(X, bags=bags)
    with elsewhere:
        model = BagNeuralClassifier(**QUICK, **options, device=elsewhere.device).fit(X, bags=bags)
        assert {type(one) for one in model.module_.parameters()} == {There}
        asked = {"offset": X[:, 1] - 3} if name == "offset" else {}
        found, known = model.predict_proba(X, **asked), expected.predict_proba(X, **asked)
    assert elsewhere.made > 100
    np.testing.assert_allclose(found, known, atol=2e-3 if "label_generation" in name else 1e-4)
    assert (model.n_epochs_, model.learning_rate_) == (expected.n_epochs_, expected.learning_rate_)


def test_values_contributions_and_further_epochs_elsewhere(elsewhere, tmp_path):
    X, y = rows()
    ids = KINDS["unequal"]
    mean = bw.aggregate(y + X[:, 1], ids)

    def learn(**options):
        model = BagNeuralRegressor(**QUICK, **options).fit(X, mean, bags=ids)
        first = model.predict(X), model.explain(X[:9]).contributions
        return model, (*first, model.partial_fit(X, mean, bags=ids).predict(X))

    _, expected = learn()
    with elsewhere:
        model, found = learn(device=elsewhere.device)
        bw.save(model, tmp_path / "model")
        again = bw.load(tmp_path / "model")
        assert {type(one) for one in again.module_.parameters()} == {There}
        np.testing.assert_array_equal(again.predict(X), found[-1])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)
    with pytest.warns(UserWarning, match=f"the device '{elsewhere.device}', which torch cannot use .* on the CPU"):
        here = bw.load(tmp_path / "model")
    np.testing.assert_allclose(here.predict(X), found[-1], rtol=1e-6)
    assert here.device is None


def test_later_bags_elsewhere(elsewhere):
    X, y = rows()
    ids = KINDS["equal"]
    later = rows(1)

    def learn(**options):
        model = BagNeuralClassifier(**QUICK, **options).fit(X, bw.aggregate(y, ids), bags=ids)
        model.partial_fit(later[0], bw.aggregate(later[1], ids), bags=ids, epochs="auto")
        return model.predict_proba(X)

    expected = learn()
    with elsewhere:
        np.testing.assert_allclose(learn(device=elsewhere.device), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["equal", "classes", "rates"])
def test_blocks_and_checkpoints_elsewhere(name, elsewhere, tmp_path):
    X, bags, options = case(name)
    data = InMemory(X, bags, starts=np.array([0, 12, 24, 36, 48]))

    def learn(folder, stop=None, **more):
        class StoppedError(Exception):
            pass

        def tell(step, steps):
            if step == stop:
                raise StoppedError

        given = Distributed(streams=2, checkpoints=Checkpoints(folder, every=2), tell=tell)
        model = BagNeuralClassifier(**QUICK, **options, **more)
        try:
            return model.fit_rows(data, distributed=given).predict_proba(X)
        except StoppedError:
            return learn(folder, **more)

    expected = learn(tmp_path / "here")
    with elsewhere:
        found = learn(tmp_path / "there", stop=3, device=elsewhere.device)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_images_and_dropout_elsewhere(elsewhere):
    rng = np.random.default_rng(0)
    X, y = rng.random((80, 1, 10, 10)).astype(np.float32), rng.random(80) < 0.5
    ids = np.arange(80) // 4
    elsewhere.noise["seed"], state = "of before", torch.get_rng_state()
    with elsewhere:
        model = BagNeuralClassifier(module=cnn(1, 10, random_state=0), **QUICK, device=elsewhere.device)
        h = model.fit(X, bw.aggregate(y, ids), bags=ids).predict_proba(X)
    assert np.isfinite(h).all()
    assert elsewhere.noise["seed"] == "of before"
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.skipif(missing is None, reason="torch has every device")
def test_a_device_that_is_missing_is_one_sentence():
    X, y = rows()
    for name in (missing, "meta"):
        for model in (BagNeuralClassifier(device=name), BagNeuralRegressor(device=torch.device(name))):
            with pytest.raises(ParameterError, match=f"^device is '{name}', which torch cannot use on this") as caught:
                model.fit(X, y)
            assert caught.value.parameter == "device"
            assert "\n" not in str(caught.value)


def test_several_processes_train_where_they_can_add_up():
    X, bags, _ = case("equal")
    data, together = InMemory(X, bags, starts=np.array([0, 24, 48])), Distributed(Processes(0, 2))
    with Elsewhere("mps"), pytest.raises(ParameterError, match="device is 'mps', by which 2 processes cannot add up"):
        BagNeuralClassifier(device="mps").fit_rows(data, distributed=together)


def test_double_precision_is_not_asked_of_what_does_not_know_it():
    X, y = rows()
    with Elsewhere("mps"), pytest.raises(ParameterError, match="dtype is 'float64', which 'mps' does not know"):
        BagNeuralClassifier(device="mps", dtype="float64").fit(X, y)
    with Elsewhere("cuda"):
        assert device_of("cuda", torch.float64) == torch.device("cuda")


def test_standardised_rows_keep_their_digits_where_there_is_no_double_precision():
    X = 1e9 + np.random.default_rng(0).normal(size=(50, 2))
    scale = Standardise.of(X, torch.float32)
    expected = scale(torch.from_numpy(X))
    with Elsewhere("mps") as mps:
        scale.to("mps")
        found = scale(torch.from_numpy(X))
        assert (found.device, found.dtype) == (mps.device, torch.float32)
        np.testing.assert_array_equal(found.cpu().numpy(), expected)
        assert scale.cpu()(torch.from_numpy(X)).device.type == "cpu"


def test_the_device_that_is_not_there_is_strict():
    """Or the tests above would pass whatever the code does."""
    with Elsewhere("mps") as mps:
        there = torch.ones(3, device=mps.device)
        assert there.device == (2 * there).sum().device == mps.device
        with pytest.raises(AssertionError, match="a tensor of the CPU meets one of mps"):
            there + torch.ones(3)
        with pytest.raises(TypeError, match="to numpy"):
            there.numpy()
        with pytest.raises(TypeError, match="float64"):
            there.double()
        assert there.cpu().numpy().sum() == 3
        names = {"__name__": "bagwise"}
        code = compile("import torch; torch.zeros(3)", str(bw.__file__), "exec")
        with pytest.raises(AssertionError, match="zeros names no device"):
            exec(code, names)
