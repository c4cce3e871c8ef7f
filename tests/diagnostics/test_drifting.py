"""A drift is told no more often than promised where nothing changed, and found where something did."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binomtest

import bagwise as bw
from bagwise.diagnostics import drift

LEVEL, OLD = 0.05, 60


def month(rng, m, *, offset=-1.0, effects=0.0, grouped=False, k=20):
    ids = np.repeat(np.arange(m), k)
    X = rng.normal(size=(m * k, 2)) + (rng.normal(size=(m, 2))[ids] if grouped else 0.0)
    s = X @ [1.0, -0.5] + offset
    return X, bw.aggregate(rng.random(m * k) < expit(s + effects * rng.normal(size=m)[ids]), ids), ids, s


def told(seed, by, **how):
    """Whether a drift is told by a model that knows the truth but for its mean, which is that of few old bags."""
    rng = np.random.default_rng(seed)
    _, old, _, s_old = month(rng, OLD, **how)
    X, y, ids, s = month(rng, 40, **{"offset": -1.0 + by, **how})
    h = expit(s - by + bw.log_odds.shift_to(float(old.mean()), s_old))
    fitted = {"fitted_bags": OLD, "fitted_rows": OLD * 20}
    return drift(h, X, y, bags=ids, level=LEVEL, quick_model=False, **fitted).drifted


@pytest.mark.parametrize(
    ("how", "months"),
    [
        pytest.param({}, 200, id="random", marks=pytest.mark.slow),
        pytest.param({"grouped": True}, 200, id="features", marks=pytest.mark.slow),
        pytest.param({"grouped": True, "effects": 0.6}, 200, id="effects", marks=pytest.mark.slow),
        pytest.param({"grouped": True, "effects": 0.6}, 40, id="effects in few months"),
    ],
)
def test_false_alarms_are_as_rare_as_promised(how, months):
    alarms = sum(told(seed, 0.0, **how) for seed in range(months))
    assert binomtest(alarms, months, LEVEL, alternative="greater").pvalue > 1e-3
    assert np.mean([told(seed, 0.7, **how) for seed in range(months // 5)]) > 0.8  # the mean label moves by about 0.13


def test_a_model_that_knows_its_mean_less_well_is_believed_less():
    rng = np.random.default_rng(0)
    X, y, ids, s = month(rng, 200)
    h = expit(s + 0.15)
    sure = drift(h, X, y, bags=ids, quick_model=False)
    unsure = drift(h, X, y, bags=ids, quick_model=False, fitted_bags=20, fitted_rows=400)
    assert sure.error[0] * np.sqrt(11) == pytest.approx(unsure.error[0])
    assert sure.p_value < 0.01 < unsure.p_value


def test_likelihoods_tell_what_would_serve():
    rng = np.random.default_rng(0)
    X, y, ids, s = month(rng, 150, offset=0.0)
    moved = drift(expit(s - 1), X, y, bags=ids)
    assert moved.drifted
    assert moved.moved.low > 0
    assert "Labels have drifted since the model was fitted" in str(moved)
    assert "the model is better on held-out new bags" in str(moved)
    turned = drift(expit(-2 * s), X, y, bags=ids)  # the mean is right, the model is not
    assert not turned.drifted
    assert turned.anew.low > 0
    assert turned.verdict.startswith("No drift of the mean label")
    assert "A quick new model is better on held-out new bags" in str(turned)


def test_classes_and_few_bags():
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(600, 2)), np.repeat(np.arange(60), 10)
    h = np.tile([0.2, 0.3, 0.5], (600, 1))
    y = bw.aggregate(np.eye(3)[rng.choice(3, size=600, p=[0.2, 0.3, 0.5])], ids)
    later = bw.aggregate(np.eye(3)[rng.choice(3, size=600, p=[0.5, 0.3, 0.2])], ids)
    assert [drift(h, X, one, bags=ids).drifted for one in (y, later)] == [False, True]
    few = drift(h[:20], X[:20], y[:20], bags=ids[:20])
    assert not few.drifted
    assert few.verdict == "Of 2 new bags, too few to tell, nothing can be said about a drift."
