"""Mean values of groups: intervals cover, bounds hold where no value is negative, and what is not known is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import bagwise as bw
from bagwise.bags import Bags, several
from bagwise.disaggregation import group_rates
from bagwise.utils.parameters import ParameterError
from tests.disaggregation.test_rates import told


def made_up(rng: Any, kind: str, formation: str, *, m: int = 60, k: int = 40, related: float = 0.0) -> tuple[Any, ...]:
    """Rows of three groups in bags of k/2 to 3k/2 rows: group, value, bag, and a model of the values.

    related: the correlation of effects with the share of the first group.
    """
    size = rng.integers(k // 2, 3 * k // 2, m)
    bag, x = np.repeat(np.arange(m), size), rng.normal(size=size.sum())
    share = rng.dirichlet([2, 1.5, 1], m) if formation != "random" else np.tile([0.45, 0.33, 0.22], (m, 1))
    g = (rng.random(len(bag))[:, None] > share[bag].cumsum(axis=1)).sum(axis=1).clip(max=2)
    moved = np.zeros(m)
    if formation != "random":
        x = x + 0.5 * rng.normal(size=m)[bag]
    if formation == "effects":
        first = (share[:, 0] - share[:, 0].mean()) / share[:, 0].std()
        moved = related * first + np.sqrt(1 - related**2) * rng.normal(size=m)
    if kind == "normal":
        return g, 3 * x + np.array([0, 2, -3])[g] + 2 * rng.normal(size=len(x)) + moved[bag], bag, 1 + 2 * x
    chance = 1 / (1 + np.exp(2 - x - np.array([0, 0.7, -0.5])[g] - 0.5 * moved[bag]))
    worth = rng.lognormal(2 + 0.4 * x + 0.3 * (g == 1), 0.7)
    return g, (rng.random(len(x)) < chance) * worth, bag, chance * np.exp(2 + 0.4 * x + 0.3 * (g == 1))


def summed(y: Any, bag: Any, *, noise: float = 0.0, rng: Any = None) -> Bags:
    c, k = np.bincount(bag, y), np.bincount(bag)
    c = c + rng.normal(scale=np.sqrt(noise), size=len(c)) if noise else c
    return Bags.from_rows((c / k)[bag], bag, noise_variance=noise or None)


def check_coverage(kind: str, formation: str, runs: int, rng: Any, *, noise: float = 0.0, least: float = 0.93) -> None:
    """At 95%, of one group after the other; bounds of values that are never negative hold for all."""
    covered = 0
    for run in range(runs):
        g, y, bag, h = made_up(rng, kind, formation)
        asked: dict[str, Any] = {"formation": formation, "target": "value", "related": 0.0}
        asked["nonnegative"] = kind == "purchases"
        found = group_rates(h, None, bags=summed(y, bag, noise=noise, rng=rng), by=g, **asked)
        assert found.doubt is None
        for one in found.rates:
            truth = y[g == int(one.value)].mean()
            covered += int(one.value) == run % 3 and one.low <= truth <= one.high
            assert one.least - 1e-9 <= one.low <= one.rate <= one.high <= one.most + 1e-9
            assert noise or one.least - 1e-9 <= truth <= one.most + 1e-9
            assert one.high - one.low < 8 * y.std()
    assert binomtest(covered, runs, least, alternative="less").pvalue > 1e-3


@pytest.mark.parametrize("noise", [0.0, 400.0])
@pytest.mark.parametrize("formation", ["random", "features", "effects"])
@pytest.mark.parametrize("kind", ["normal", "purchases"])
def test_intervals_cover(kind: str, formation: str, noise: float) -> None:
    check_coverage(kind, formation, 30, np.random.default_rng(1), noise=noise)


@pytest.mark.slow
@pytest.mark.parametrize("formation", ["random", "features", "effects"])
@pytest.mark.parametrize("kind", ["normal", "purchases"])
def test_intervals_cover_in_many_runs(kind: str, formation: str) -> None:
    """Of purchases, which have long tails, a little less often."""
    check_coverage(kind, formation, 500, np.random.default_rng(2), least=0.93 if kind == "normal" else 0.91)


def test_effects_that_go_along_with_groups_are_allowed_for() -> None:
    rng, runs = np.random.default_rng(3), 20
    missed = {0.0: 0, 0.5: 0}
    for _ in range(runs):
        g, y, bag, h = made_up(rng, "normal", "effects", k=100, related=0.5)
        for related in missed:
            asked: dict[str, Any] = {"formation": "effects", "target": "value", "related": related}
            found = group_rates(h, None, bags=summed(y, bag), by=g, **asked)
            (one,) = (one for one in found.rates if one.value == "0")
            missed[related] += not one.low <= y[g == 0].mean() <= one.high
    assert missed[0.0] > runs / 3
    assert binomtest(runs - missed[0.5], runs, 0.93, alternative="less").pvalue > 1e-3


def test_effects_are_found_where_sizes_differ_much() -> None:
    """Residuals of large bags are then too large for chance; and the line that is printed says so."""
    rng = np.random.default_rng(9)
    for formation, said in (("effects", "There are effects of variance"), ("features", "are taken for chance")):
        small, large = (made_up(rng, "normal", formation, m=80, k=k) for k in (8, 300))
        g, y, h = (np.concatenate([small[place], large[place]]) for place in (0, 1, 3))
        bags = summed(y, np.concatenate([small[2], 80 + large[2]]))
        found = group_rates(h, None, bags=bags, by=g, formation="features", target="value")
        assert (found.effect_variance > 0) == (formation == "effects")
        assert said in str(found)


def test_noise_does_not_make_values_pass_for_positive() -> None:
    """No report is below 0 by more than its noise, and yet a group has a mean below 0."""
    rng = np.random.default_rng(10)
    g, y, bag, h = made_up(rng, "normal", "features")
    found = group_rates(h, None, bags=summed(y, bag, noise=400.0, rng=rng), by=g, formation="features", target="value")
    (one,) = (one for one in found.rates if one.value == "2")
    assert y[g == 2].mean() < -2
    assert one.low < y[g == 2].mean() < one.high
    assert "There are no bounds" in str(found)


def test_values_of_groups_add_up_to_what_bags_report() -> None:
    g, y, bag, h = made_up(np.random.default_rng(4), "normal", "features")
    found = group_rates(h, None, bags=summed(y, bag), by=g, formation="features", target="value")
    assert sum(one.n_people * one.rate for one in found.rates) == pytest.approx(y.sum())


@pytest.mark.parametrize("noise", [None, 50.0])
@pytest.mark.parametrize("formation", ["random", "features", "effects"])
def test_whole_weights_are_rows_repeated(formation: str, noise: float | None) -> None:
    """People of a row have values of their own, of which the bag tells the sum."""
    rng = np.random.default_rng(5)
    g, _, bag, h = made_up(rng, "purchases", formation, m=40, k=20)
    weight = rng.integers(1, 4, len(g))
    rows = np.repeat(np.arange(len(g)), weight)
    y = rng.gamma(1.0, h[rows] + 0.1)
    mean = (np.bincount(bag[rows], y) / np.bincount(bag[rows]))[bag]
    one = Bags.from_rows(mean, bag, noise_variance=noise).with_weights(weight)
    many = Bags.from_rows(mean[rows], bag[rows], noise_variance=noise)
    asked: dict[str, Any] = {"formation": formation, "target": "value"}
    found = group_rates(h, None, bags=one, by=g, **asked)
    known = group_rates(h[rows], None, bags=many, by=g[rows], **asked)
    np.testing.assert_allclose(told(found), told(known), rtol=1e-7)


def test_bounds_are_those_of_sums() -> None:
    """Of bags that mix groups from 0 to the sum, of others the sum; of values that may be negative there are none."""
    y, bag = np.array([1.0, 5.0, 2.0, 0.0, 4.0, 4.0]), np.array([0, 0, 1, 1, 2, 2])
    by, bags = np.array(["a", "a", "a", "b", "b", "c"]), summed(y, bag)
    found = group_rates(np.ones(6), None, bags=bags, by=by, formation="features", target="value")
    assert {one.value: (one.least * one.n_people, one.most * one.n_people) for one in found.rates} == {
        "a": (6.0, 8.0),
        "b": (0.0, 10.0),
        "c": (0.0, 8.0),
    }
    assert "Nothing but the bounds is known" in str(found)  # three bags
    assert "Bounds hold where no value is negative." in str(found)
    signed = group_rates(np.ones(6), None, bags=bags, by=by, formation="features", target="value", nonnegative=False)
    assert all(np.isinf([one.least, one.most]).all() for one in signed.rates)
    assert "No mean value is known" in str(signed)
    assert "There are no bounds" in str(signed)
    whole = group_rates(np.ones(6), None, bags=bags, by=bag, formation="features", target="value", nonnegative=False)
    np.testing.assert_allclose(told(whole)[:, 2:], np.repeat([[3.0], [1.0], [4.0]], 5, axis=1))


@pytest.mark.parametrize("estimator", [bw.BagRidgeRegressor(), bw.BagSGDRegressor(n_passes=5)])
def test_models_fitted_to_the_same_bags_are_fitted_to_others_first(estimator: Any) -> None:
    rng, runs, covered = np.random.default_rng(7), 12, 0
    for _ in range(runs):
        g, y, bag, h = made_up(rng, "normal", "features", m=40, k=30)
        X = np.column_stack([np.eye(3)[g], h, rng.normal(size=(len(y), 6))])
        model = estimator.set_params(random_state=0, formation="features").fit(X, bags=summed(y, bag))
        found = group_rates(model, X, bags=summed(y, bag), by=g, related=0.0)
        assert (found.target, found.formation.name) == ("value", "features")
        covered += sum(one.value == "1" and one.low <= y[g == 1].mean() <= one.high for one in found.rates)
    assert binomtest(covered, runs, 0.93, alternative="less").pvalue > 1e-3


def test_what_is_not_known_is_said() -> None:
    g, y, bag, h = made_up(np.random.default_rng(8), "normal", "features")
    bags = summed(y, bag)
    found = group_rates(h, None, bags=bags, by=g, formation="rates", target="value")
    assert "do not tell which rows have which" in found.assumption
    assert found.rates[0].low == -np.inf
    with pytest.raises(ParameterError, match="of several groupings tell rates of labels"):
        group_rates(h, None, bags=several([bags, summed(y, np.arange(len(y)) % 50)]), by=g, target="value")
    with pytest.raises(ParameterError, match="tells 300 groups that share bags, of whose mean values 60 bags say"):
        group_rates(h, None, bags=bags, by=np.arange(len(g)) % 300, formation="features", target="value")
    with pytest.raises(ParameterError, match="target must be one of"):
        group_rates(h, None, bags=bags, by=g, target="sum")
    with pytest.raises(ValueError, match="report 2 classes but one label is needed"):
        group_rates(h, None, bags=replace(bags, proportion=np.zeros((60, 2))), by=g, target="value")
