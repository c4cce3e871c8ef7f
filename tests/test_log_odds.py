"""Log odds of the mean label, and the shift that brings others to it."""

import numpy as np
import pytest
from scipy.special import expit, logit

from bagwise.bags import Bags
from bagwise.log_odds import centred, prior_of, shift_to, shift_to_reports


@pytest.mark.parametrize("prior", [1e-4, 0.2, 0.999])
def test_a_shift_makes_the_mean_the_prior(prior):
    s = np.random.default_rng(0).normal(size=1000) * 8
    assert expit(s + shift_to(prior, s)).mean() == pytest.approx(prior, rel=1e-8)


def test_single_precision_comes_as_close_in_as_few_steps(monkeypatch):
    s, looks = np.random.default_rng(1).normal(size=1000), []
    monkeypatch.setattr("bagwise.log_odds.sigmoid", lambda x: looks.append(x.dtype) or expit(x))
    assert expit(s + shift_to(0.3, s.astype(np.float32))).mean() == pytest.approx(0.3, abs=1e-6)
    assert set(looks) == {np.dtype(float)}
    assert len(looks) < 10


def test_a_rough_shift_is_near_to_the_exact_one_and_so_are_its_predictions():
    s = np.random.default_rng(2).normal(size=10_000)
    exact = shift_to(0.2, s)
    for start in (None, exact + 0.05, exact - 3.0):
        b, h = centred(0.2, s.astype(np.float32), start=start, close=1e-2)
        assert b == pytest.approx(exact, abs=0.005)  # the half of a step of 0.1, squared
        assert h.dtype == np.float32
        np.testing.assert_allclose(h, expit(s + exact), atol=0.002)
        assert h.mean() == pytest.approx(0.2, abs=1e-6)  # to first order, as the step is


def test_noised_counts_weigh_less_in_the_prior():
    ids = np.repeat([0, 1], 10)
    bags = Bags.from_rows(np.array([0.5, 0.9])[ids], ids, noise_variance=np.array([0.0, 1e6])[ids])
    assert prior_of(bags) == pytest.approx(0.5, abs=1e-3)
    assert logit(prior_of(Bags.from_rows(np.zeros(20), np.arange(20) // 10))) < -20


def test_intervals_of_one_number_each_are_counts():
    """As in folds that hold out the only bag whose count is hidden."""
    s = np.random.default_rng(2).normal(size=20)
    bags = Bags.from_rows(np.repeat([0.2, 0.6], 10), np.repeat([0, 1], 10))
    assert shift_to_reports(0.4, s, bags.with_intervals([2, 6], [2, 6])) == shift_to(0.4, s)
