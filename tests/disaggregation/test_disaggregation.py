"""Rates of groups: intervals cover in every formation, bounds always hold, and what is not known is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import binomtest

import bagwise as bw
from bagwise.bags import Bags, several
from bagwise.datasets.files import held
from bagwise.disaggregation import group_bounds, group_rates
from bagwise.disaggregation.shifts import fit_shifts, positives
from bagwise.experiments import disaggregation as experiment
from bagwise.losses.adding_up import adding_up
from bagwise.utils.parameters import ParameterError

BASE = np.array([-1.5, 0.3, 1.2])


def made_up(
    rng: np.random.Generator, formation: str, *, m: int = 60, k: int = 60, related: float = 0.0, bent: float = 0.0
) -> tuple[Any, ...]:
    """Rows of three groups in bags of a formation: group, feature, label, bag.

    related: the correlation of effects with the share of the first group.  bent: by how much log odds of a group rise
    with its own share.
    """
    n = m * k
    if formation in ("random", "rates"):
        g, x = rng.choice(3, 6 * n, p=[0.5, 0.3, 0.2]), rng.normal(size=6 * n)
        y = rng.random(6 * n) < expit(BASE[g] + 0.8 * x)
        counts = np.round(rng.uniform(0.1, 0.6, m) * k).astype(int)
        if formation == "random":
            return g[:n], x[:n], y[:n].astype(int), np.arange(n) // k
        ones, zeros = iter(np.flatnonzero(y)), iter(np.flatnonzero(~y))
        rows = [next(ones) if place < c else next(zeros) for c in counts for place in range(k)]
        return g[rows], x[rows], y[rows].astype(int), np.arange(n) // k
    share = rng.dirichlet([2, 1.5, 1], size=m)
    bag = np.repeat(np.arange(m), k)
    g = (rng.random(n)[:, None] > share[bag].cumsum(axis=1)).sum(axis=1).clip(max=2)
    x = rng.normal(size=n) + rng.normal(scale=0.5, size=m)[bag]
    effect = np.zeros(m)
    if formation == "effects":
        first = (share[:, 0] - share[:, 0].mean()) / share[:, 0].std()
        effect = 0.6 * (related * first + np.sqrt(1 - related**2) * rng.normal(size=m))
    s = BASE[g] + 0.8 * x + effect[bag] + bent * (share[bag, g] - 0.4)
    return g, x, (rng.random(n) < expit(s)).astype(int), bag


def counted(y: Any, bag: Any, *, noise: float = 0.0, rng: Any = None) -> Bags:
    c = np.bincount(bag, weights=y)
    if noise:
        c = c + rng.laplace(scale=np.sqrt(noise / 2), size=len(c))
    return Bags.from_rows((c / np.bincount(bag))[bag], bag, noise_variance=noise or None)


def check_coverage(formation: str, runs: int, rng: np.random.Generator, *, noise: float = 0.0, **how: Any) -> None:
    """At 95%, of the first group, whose runs are independent of each other; bounds hold for all groups."""
    told = how.pop("told", {})
    covered = doubts = 0
    for _ in range(runs):
        g, x, y, bag = made_up(rng, formation, **how)
        bags = counted(y, bag, noise=noise, rng=rng)
        found = group_rates(expit(0.5 * x - 0.5), None, bags=bags, by=g, formation=formation, **told)
        doubts += found.doubt is not None  # bounds are then all that is told
        for one in found.rates:
            truth = y[g == int(one.value)].mean()
            covered += one.value == "0" and one.low - 1e-9 <= truth <= one.high + 1e-9
            assert one.least - 1e-9 <= one.low <= one.rate <= one.high <= one.most + 1e-9
            assert noise or one.least - 1e-9 <= truth <= one.most + 1e-9
    assert binomtest(covered, runs, 0.93, alternative="less").pvalue > 1e-3
    assert binomtest(doubts, runs, 0.03, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("noise", [0.0, 30.0])
@pytest.mark.parametrize("formation", ["random", "rates", "features", "effects"])
def test_intervals_cover(formation: str, noise: float) -> None:
    check_coverage(formation, 20, np.random.default_rng(1), noise=noise, told={"related": 0.0})


@pytest.mark.slow
@pytest.mark.parametrize("m", [10, 60])
@pytest.mark.parametrize("noise", [0.0, 30.0])
@pytest.mark.parametrize("formation", ["random", "rates", "features", "effects"])
def test_intervals_cover_in_many_runs(formation: str, noise: float, m: int) -> None:
    check_coverage(formation, 100, np.random.default_rng(2), noise=noise, m=m)


def test_effects_that_go_along_with_groups_are_allowed_for() -> None:
    """A correlation of 0.5 is what intervals allow for; without, most of them miss."""
    rng, runs = np.random.default_rng(3), 12
    missed = {0.0: 0, 0.5: 0}
    for _ in range(runs):
        g, x, y, bag = made_up(rng, "effects", m=60, k=100, related=0.5)
        h, bags = expit(BASE[g] + 0.8 * x), counted(y, bag)
        for related in missed:
            (one,) = (one for one in group_rates(
                h, None, bags=bags, by=g, formation="effects", related=related).rates if one.value == "0")  # fmt: skip
            missed[related] += not one.low <= y[g == 0].mean() <= one.high
    assert missed[0.0] > runs / 2
    assert binomtest(runs - missed[0.5], runs, 0.93, alternative="less").pvalue > 1e-3


def test_bags_that_contradict_the_assumption_are_told() -> None:
    """Where rates of a group rise with its share, intervals widen and the record says so; elsewhere they do not."""
    rng = np.random.default_rng(4)
    told = {}
    for bent in (0.0, 4.0):
        g, _, y, bag = made_up(rng, "effects", m=150, k=300, bent=bent)
        h = np.full(len(y), y.mean())
        told[bent] = group_rates(h, None, bags=counted(y, bag), by=g, formation="effects")
    assert told[0.0].contradiction is None
    assert told[4.0].contradiction is not None
    assert told[4.0].contradiction < 0.01
    assert told[4.0].related == 1.0
    assert "Bags contradict" in str(told[4.0])
    assert "Bags contradict" not in str(told[0.0])


def test_groups_that_are_whole_bags_are_known() -> None:
    """Bounds are tight there, and what others are follows."""
    rng = np.random.default_rng(5)
    bag = np.arange(1000) // 50
    y = rng.random(1000) < 0.3
    by = np.where(bag < 8, "whole", np.where(rng.random(1000) < bag / 25, "a", "b"))
    found = group_rates(np.full(1000, 0.3), None, bags=counted(y, bag), by=by, formation="features")
    (whole,) = (one for one in found.rates if one.value == "whole")
    truth = y[by == "whole"].mean()
    np.testing.assert_allclose([whole.rate, whole.low, whole.high, whole.least, whole.most], truth, atol=1e-9)
    each = group_rates(np.full(1000, 0.3), None, bags=counted(y, bag), by=bag, formation="effects")
    rate = {int(one.value): (one.low, one.high) for one in each.rates}
    np.testing.assert_allclose([rate[j] for j in range(20)], np.repeat(y.reshape(20, 50).mean(1), 2).reshape(-1, 2))


def test_bounds_are_those_of_all_labels_that_fit() -> None:
    """By trying all of them."""
    group, bag = np.array([0, 0, 1, 1, 0, 1, 1]), np.array([0, 0, 0, 1, 1, 1, 1])
    y = np.array([1, 0, 1, 1, 1, 0, 0])
    every = (np.arange(2**7)[:, None] >> np.arange(7)) & 1
    sums = np.stack([every[:, bag == j].sum(axis=1) for j in range(2)], axis=1)
    fits = every[(sums == [y[bag == 0].sum(), y[bag == 1].sum()]).all(axis=1)]
    least, most = group_bounds(group, 2, counted(y, bag))
    for g in range(2):
        of_group = fits[:, group == g].sum(axis=1)
        assert (least[g], most[g]) == (of_group.min(), of_group.max())


def test_counts_given_several_tables_vary_as_a_plain_loop_says() -> None:
    """The change of a group's positives by the weights, tilts of all tables following, against differences."""
    rng = np.random.default_rng(6)
    n = 2000
    one, other, g, x = rng.integers(0, 30, n), rng.integers(0, 20, n), rng.integers(0, 2, n), rng.normal(size=n)
    y = rng.random(n) < expit(x + g - 1)
    bags = several([counted(y, one), counted(y, other)])
    fitted = fit_shifts(np.column_stack([g, x]).astype(float), bags, effects=False)
    found = positives(fitted, g, 2)
    assert found.count.sum() == pytest.approx(y.sum(), abs=1e-3)
    s = fitted.standardised @ fitted.at.w + fitted.at.intercept
    np.testing.assert_allclose(found.count[1], adding_up(s, bags)[g == 1].sum(), rtol=1e-9)
    _, covariance = fitted.sums.sandwich(0.1)
    z, step = np.column_stack([fitted.standardised - fitted.sums.centre, np.ones(n)]), 0.02
    change = np.array([
        (adding_up(s + step * z[:, c], bags) - adding_up(s - step * z[:, c], bags))[g == 1].sum() / (2 * step)
        for c in range(z.shape[1])
    ])  # fmt: skip
    of_weights = 2 * change @ covariance @ change
    assert of_weights < found.variance[1] < of_weights + y.sum()
    assert found.variance[1] - of_weights == pytest.approx(n / 2 * 0.11, rel=0.5)  # v/2 where the count of all is known


@pytest.mark.parametrize("estimator", [bw.BagLogisticClassifier, bw.BagRidgeClassifier, bw.BagMeanMapClassifier])
def test_models_fitted_to_the_same_bags_are_fitted_to_others_first(estimator: Any) -> None:
    """With weights for noise columns, such a model knows the counts by heart; intervals hold all the same."""
    rng = np.random.default_rng(7)
    g, x, y, bag = made_up(rng, "features", m=40, k=30)
    X = np.column_stack([np.eye(3)[g], x, rng.normal(size=(len(y), 5))])
    bags = counted(y, bag)
    options = {"random_state": 0} if "random_state" in estimator().get_params() else {}
    model = estimator(**options).fit(X, bags=bags)
    found = group_rates(model, X, bags=bags, by=g, formation="features", related=0)
    for one in found.rates:
        assert one.low <= y[g == int(one.value)].mean() <= one.high
        assert one.high - one.low > 0.02


def test_classes_are_told_one_by_one() -> None:
    rng = np.random.default_rng(8)
    g, _, y, bag = made_up(rng, "features", m=80)
    label = np.where(y == 1, 0, 1 + (rng.random(len(y)) < 0.5))
    share = np.stack([np.bincount(bag, weights=label == c) / np.bincount(bag) for c in range(3)], axis=1)
    h = np.tile(share.mean(axis=0), (len(y), 1))
    found = group_rates(h, None, share[bag], bags=bag, by=g, formation="features")
    assert [one.label for one in found.rates] == ["0"] * 3 + ["1"] * 3 + ["2"] * 3
    for one in found.rates:
        assert abs(one.rate - (label[g == int(one.value)] == int(one.label)).mean()) < 0.08


def test_too_few_bags_leave_the_bounds() -> None:
    rng = np.random.default_rng(9)
    g, _, y, bag = made_up(rng, "features", m=3)
    found = group_rates(np.full(len(y), 0.4), None, bags=counted(y, bag), by=g, formation="features")
    assert found.doubt is not None
    assert "Nothing but the bounds is known" in found.assumption
    assert all((one.low, one.high) == (one.least, one.most) for one in found.rates)


def test_columns_name_groups_and_wrong_ones_are_told() -> None:
    rng = np.random.default_rng(10)
    g, x, y, bag = made_up(rng, "features")
    X = pd.DataFrame({"group": g, "x": x, "half": np.where(x > 0, "up", "down")})
    model = bw.BagLogisticClassifier(random_state=0).fit(X[["group", "x"]], bags=counted(y, bag))
    h = model.predict_proba(X[["group", "x"]])[:, 1]
    found = group_rates(h, X, bags=counted(y, bag), by=["half", "group"], formation="features")
    assert {one.value for one in found.rates} == {f"{half} / {group}" for half in ("up", "down") for group in range(3)}
    with pytest.raises(ParameterError, match="names the column 'land', which X does not have"):
        group_rates(h, X, bags=counted(y, bag), by="land")
    with pytest.raises(ParameterError, match="must hold one value per row"):
        group_rates(h, None, bags=counted(y, bag), by=[1, 2])


def test_goodmans_regression_is_least_squares() -> None:
    """On shares that follow it exactly it finds the rates; its error is that of a plain formula."""
    rng = np.random.default_rng(11)
    people = rng.integers(10, 100, size=(30, 2)).astype(float)
    beta, ends = experiment.goodman(people, people @ [0.2, 0.7], weighted=True)
    np.testing.assert_allclose(beta, [0.2, 0.7])
    np.testing.assert_allclose(ends, [[0.2, 0.7]] * 2, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not held("precincts/senc.tsv"), reason="the precinct register is not there")
def test_intervals_of_a_real_register() -> None:
    """The page is what the command writes; intervals hold the truth, since bags contradict the assumption."""
    found, told = experiment.table()
    assert ((found["low"] <= found["truth"]) & (found["truth"] <= found["high"])).all()
    assert all("Bags contradict" in one for one in told)
    stored = (Path(__file__).parents[2] / "docs/results/disaggregation.md").read_text(encoding="utf-8")
    lines = [[line.split("|")[1:4] for line in text.splitlines() if line.startswith("| ")]
             for text in (experiment.page(found, told, 212), stored)]  # fmt: skip
    assert lines[0] == lines[1]
