"""What held-out bags prefer: stretch, shift and gains over the mean label."""

import warnings

import numpy as np
import pytest
from scipy.special import expit, logit

from bagwise.bags import Bags
from bagwise.gains import HeldOut, NoBetterThanConstantWarning, best_stretch, prior_of, shift_to, tell_gain


def in_bags(y: np.ndarray, k: int) -> Bags:
    return Bags.from_rows(np.repeat(y.reshape(-1, k).mean(axis=1), k), np.arange(len(y)) // k)


@pytest.mark.parametrize("prior", [1e-4, 0.2, 0.999])
def test_a_shift_makes_the_mean_the_prior(prior):
    s = np.random.default_rng(0).normal(size=1000) * 8
    assert expit(s + shift_to(prior, s)).mean() == pytest.approx(prior, rel=1e-8)


@pytest.mark.parametrize("truth", [0.5, 1.0, 2.0])
def test_held_out_bags_find_the_stretch(truth):
    rng = np.random.default_rng(1)
    s = rng.normal(size=40_000)
    y = rng.random(len(s)) < expit(truth * s - 1)
    stretch, gains = best_stretch([HeldOut(y.mean(), s, s, in_bags(y, 10))])
    assert stretch == pytest.approx(truth, abs=0.25)
    assert gains.mean() > 3 * gains.std() / np.sqrt(len(gains))


def test_a_model_of_noise_is_stretched_to_the_mean_label():
    rng = np.random.default_rng(2)
    s = rng.normal(size=20_000)
    y = rng.random(len(s)) < 0.3
    stretch, gains = best_stretch([HeldOut(0.3, s, s, in_bags(y, 10))])
    assert stretch < 0.15
    assert gains.mean() < 3 * gains.std() / np.sqrt(len(gains))


def test_the_gain_is_told_and_warned_of():
    with pytest.warns(NoBetterThanConstantWarning, match="do not clearly prefer"):
        gain, error = tell_gain(np.array([1.0, -1.0]))
    assert (gain, error) == (0.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tell_gain(np.array([1.0, 1.1]))[0] == pytest.approx(1.05)
        assert np.isnan(tell_gain(None)).all()


def test_noised_counts_weigh_less_in_the_prior():
    ids = np.repeat([0, 1], 10)
    bags = Bags.from_rows(np.array([0.5, 0.9])[ids], ids, noise_variance=np.array([0.0, 1e6])[ids])
    assert prior_of(bags) == pytest.approx(0.5, abs=1e-3)
    assert logit(prior_of(in_bags(np.zeros(20), 10))) < -20
