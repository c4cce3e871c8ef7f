"""What held-out bags prefer: stretch and gains over the mean label."""

import warnings

import numpy as np
import pytest
from scipy.special import expit

from bagwise import gains
from bagwise.bags import Bags
from bagwise.gains import HeldOut, NoBetterThanConstantWarning, best_stretch, clear, tell_gain


def in_bags(y: np.ndarray, k: int) -> Bags:
    return Bags.from_rows(np.repeat(y.reshape(-1, k).mean(axis=1), k), np.arange(len(y)) // k)


@pytest.mark.parametrize("truth", [0.5, 1.0, 2.0])
def test_held_out_bags_find_the_stretch(truth):
    rng = np.random.default_rng(1)
    s = rng.normal(size=40_000)
    y = rng.random(len(s)) < expit(truth * s - 1)
    stretch, found = best_stretch([HeldOut(y.mean(), s, s, in_bags(y, 10))])
    assert stretch == pytest.approx(truth, abs=0.25)
    assert found.mean() > 3 * found.std() / np.sqrt(len(found))


def test_of_few_bags_stretches_near_1_are_likelier_where_that_is_known():
    rng = np.random.default_rng(0)
    s = rng.normal(size=640)
    y = rng.random(640) < expit(2.2 * s)
    parts = [HeldOut(y.mean(), s, s, in_bags(y, 64))]
    free, held = (best_stretch(parts, spread=spread)[0] for spread in (np.inf, 0.35))
    assert abs(held - 1) < abs(free - 1) - 0.02
    one = best_stretch(parts, stretches=np.array([0.0, 2.2]))  # of one factor beside none there is nothing to prefer
    assert best_stretch(parts, stretches=np.array([0.0, 2.2]), spread=0.35)[0] == pytest.approx(one[0])


def test_a_model_of_noise_is_stretched_to_the_mean_label():
    rng = np.random.default_rng(2)
    s = rng.normal(size=20_000)
    y = rng.random(len(s)) < 0.3
    stretch, found = best_stretch([HeldOut(0.3, s, s, in_bags(y, 10))])
    assert stretch < 0.15
    assert found.mean() < 3 * found.std() / np.sqrt(len(found))


def test_the_gain_is_told_and_warned_of():
    with pytest.warns(NoBetterThanConstantWarning, match="do not clearly prefer"):
        gain, error = tell_gain(np.array([1.0, -1.0]))
    assert (gain, error) == (0.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tell_gain(np.array([1.0, 1.1]))[0] == pytest.approx(1.05)
        assert np.isnan(tell_gain(None)).all()


def test_gains_by_chance_are_seldom_called_clear(seed):
    rng, clearly, tries = np.random.default_rng(seed), 0, 50
    for _ in range(tries):
        s, y = rng.normal(size=2000), rng.random(2000) < 0.3
        _, found = best_stretch([HeldOut(float(y.mean()), s, s, in_bags(y, 20))])
        clearly += clear(found.mean(), found.std(ddof=1) / np.sqrt(len(found)))
    assert clearly <= 6  # one in forty by chance; that the same bags choose the stretch adds to it


@pytest.mark.parametrize("truth", [0.0, 0.3, 1.0, 3.0])
def test_stretches_that_are_not_looked_at_would_change_nothing(truth, monkeypatch):
    rng = np.random.default_rng(4)
    s = rng.normal(size=12_000)
    y = rng.random(len(s)) < expit(truth * s - 1)
    parts = [HeldOut(y.mean(), s, s, in_bags(y, 20))]
    some, _ = best_stretch(parts)
    monkeypatch.setattr(gains, "_FEW_ROWS", np.inf)
    assert some == pytest.approx(best_stretch(parts)[0], abs=1e-9)
