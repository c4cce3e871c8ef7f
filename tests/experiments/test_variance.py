"""The claims of the variance experiment, with tolerances from its own standard errors."""

import numpy as np
import pandas as pd
import pytest

from bagwise.experiments import variance
from bagwise.experiments.variance import MODELS, VarianceConfig

SMALL = VarianceConfig(rows=2**16, sizes=(2, 16, 256), repetitions=10, n_jobs=1)
ROW_VARIANCE = {"h = x": 1 / 12, "h = x²": 4 / 45}
SIGMAS = 5


@pytest.fixture(scope="module")
def frame():
    return variance.run(SMALL)


def select(frame, model, loss, means):
    rows = frame[(frame["model"] == model) & (frame["loss"] == loss) & (frame["means"] == means)]
    return rows.set_index("k")


def test_models_know_their_mean_and_risk():
    x = (np.arange(10**6) + 0.5) / 10**6
    for model in MODELS.values():
        h = model.function(x)
        assert h.mean() == pytest.approx(model.mean, abs=1e-9)
        assert (h**2 + x**2 * (1 - 2 * h)).mean() == pytest.approx(model.risk, abs=1e-9)


def test_one_row_for_each_estimator_model_and_size(frame):
    assert not frame.duplicated(["model", "loss", "means", "k"]).any()
    assert len(frame) == len(MODELS) * len(variance.ESTIMATORS) * len(SMALL.sizes)
    assert frame["config_hash"].nunique() == 1
    assert np.isfinite(frame.select_dtypes(float)).all(axis=None)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("loss", "means"),
    [
        ("ours", "exact"),
        ("ours", "corrected"),
        ("li", "exact"),
        ("easyllp_square", "none"),
        ("centred_square", "leave_one_out"),
    ],
)
def test_unbiased(frame, model, loss, means):
    rows = select(frame, model, loss, means)
    assert (abs(rows["mean"] - rows["risk"]) < SIGMAS * rows["mean_se"]).all()


@pytest.mark.parametrize("model", MODELS)
def test_leave_one_out_exceeds_by_its_known_bias(frame, model):
    rows = select(frame, model, "ours", "leave_one_out")
    bias = (rows.index + 1) * ROW_VARIANCE[model] / (SMALL.batch - rows.index)
    assert (abs(rows["excess"] - bias) < SIGMAS * rows["excess_se"]).all()
    assert bias[-1] > 2 * SIGMAS * rows["excess_se"].iloc[-1]  # the test can see the bias it tests
    corrected = select(frame, model, "ours", "corrected")
    assert (abs(corrected["excess"]) < SIGMAS * corrected["excess_se"]).all()


def moments(model, p=1 / 3):
    """E over rows: sums over y of midpoints of x, as a function that takes expectations, and what it acts on."""
    x = (np.arange(10**5) + 0.5) / 10**5
    h = np.tile(model.function(x), (2, 1))
    y, weight = np.array([[0.0], [1.0]]), np.array([1 - x**2, x**2]) / len(x)

    def mean(value):
        return float((value * weight).sum())

    return mean, y - p, h, mean(h) - p


def quadratic_variance(model, k, *, li):
    r"""Var of R²/k, R a sum of k centred residuals, is 2σ⁴ + κ₄/k; Li's loss adds 2δR to it, δ = E[h] − p."""
    mean, a, h, delta = moments(model)
    c = h - delta - 1 / 3 - a
    s2, m3, m4 = (mean(c**power) for power in (2, 3, 4))
    return 2 * s2**2 + (m4 - 3 * s2**2) / k + li * (4 * k * delta**2 * s2 + 4 * delta * m3)


def label_linear_variance(model, k, *, centred):
    r"""Var of U/k + eA + AB/k, sums over a bag of u = ℓ₀ + p b, a = y − p, b = d − E[d], with e = E[d].

    The centred form lacks the term in e and takes u = ℓ₀. Its leading term is E[a²]E[b²], that of EasyLLP k e² E[a²].
    """
    mean, a, h, _ = moments(model)
    e = mean(1 - 2 * h)
    b = 1 - 2 * h - e
    u = h**2 - mean(h**2) + (0 if centred else b / 3)
    e = 0 if centred else e
    aa, bb, ab = mean(a**2), mean(b**2), mean(a * b)
    bounded = aa * bb + ab**2 + 2 * e * (mean(u * a) + mean(a**2 * b))
    return k * e**2 * aa + bounded + (mean(u**2) + mean((a * b) ** 2) - aa * bb - 2 * ab**2 + 2 * mean(u * a * b)) / k


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("loss", "means", "closed_form", "options"),
    [
        ("ours", "exact", quadratic_variance, {"li": False}),
        ("li", "exact", quadratic_variance, {"li": True}),
        ("easyllp_square", "none", label_linear_variance, {"centred": False}),
        ("centred_square", "exact", label_linear_variance, {"centred": True}),
    ],
)
def test_variances_have_their_closed_form(frame, model, loss, means, closed_form, options):
    rows = select(frame, model, loss, means)
    expected = np.array([closed_form(MODELS[model], k, **options) for k in rows.index])
    assert (abs(rows["variance"] - expected) < SIGMAS * rows["variance_se"]).all()
    assert (SIGMAS * rows["variance_se"] < 0.4 * expected).all()  # between k = 16 and 256 a linear one grows 16-fold


@pytest.mark.slow
def test_running_mean_repairs_mean_and_variance(monkeypatch):
    needed = {("ours", means): variance.ESTIMATORS["ours", means] for means in ("exact", "running", "leave_one_out")}
    monkeypatch.setattr(variance, "ESTIMATORS", needed)  # the others would only cost time
    monkeypatch.setattr(variance, "MODELS", {"h = x": MODELS["h = x"]})
    config = VarianceConfig(rows=2**19, sizes=(256,), repetitions=14, random_state=1, n_jobs=1)
    frame = variance.run(config)
    running, exact, paper = (select(frame, "h = x", "ours", m).loc[256] for m in ("running", "exact", "leave_one_out"))
    assert abs(running["excess"]) + SIGMAS * running["excess_se"] < 0.01 * running["risk"]
    assert running["variance"] == pytest.approx(exact["variance"], rel=0.1)
    assert paper["variance"] - SIGMAS * paper["variance_se"] > 1.1 * exact["variance"]
    assert abs(paper["variance"] - 0.055) < SIGMAS * paper["variance_se"]  # the paper's number


@pytest.mark.slow
def test_result_does_not_depend_on_processes():
    config = {"rows": 4096, "sizes": (4, 64), "repetitions": 3, "random_state": 7}
    calls = []
    one = variance.run(VarianceConfig(**config, n_jobs=1), progress=lambda *done: calls.append(done))
    two = variance.run(VarianceConfig(**config, n_jobs=2))
    pd.testing.assert_frame_equal(one, two, check_exact=True)
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_summary_says_why_easyllp_is_flat(frame):
    assert any("E[d] = 0" in note for note in variance.summary(frame))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 1000}, "rows must .* batch"),
        ({"sizes": (3,)}, "sizes must .*3"),
        ({"sizes": (1024,)}, "sizes must .*1024"),
        ({"repetitions": 1}, "repetitions must .* 2"),
    ],
)
def test_impossible_configs_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        VarianceConfig(**change)
