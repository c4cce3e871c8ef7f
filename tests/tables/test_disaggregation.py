"""Mean values of groups of a table's rows, by a model of values and the sums of bags; in Python and as a command."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise import tables
from bagwise.cli import app
from bagwise.utils.parameters import ParameterError


@pytest.fixture(scope="module")
def made() -> Any:
    """Visits of people, what campaigns sold, and what each country did."""
    rng = np.random.default_rng(0)
    n, m = 4000, 100
    campaign, people = rng.integers(0, m, n), rng.integers(1, 4, n)
    share = rng.dirichlet([4, 2, 1], m)[campaign]
    country = np.array(["US", "DE", "FR"])[(rng.random(n)[:, None] > share.cumsum(axis=1)).sum(axis=1).clip(max=2)]
    x = rng.normal(size=n) + 0.5 * rng.normal(size=m)[campaign]
    value = rng.gamma(people, np.exp(1 + 0.5 * x + 0.5 * (country == "DE")))
    visits = pd.DataFrame({"campaign": campaign, "country": country, "x": x, "people": people})
    sold = pd.DataFrame({"campaign": np.arange(m), "revenue": np.bincount(campaign, value)})
    truth = {one: value[country == one].sum() / people[country == one].sum() for one in ("US", "DE", "FR")}
    return visits, sold, truth


@pytest.mark.parametrize("model", ["ridge", "tweedie"])
def test_mean_values_by_models_of_the_same_bags(made: Any, tmp_path: Any, model: str) -> None:
    visits, sold, truth = made
    data = tables.join(visits, sold, sum="revenue", weight="people")
    fitted = tables.fit(data, model, random_state=0)
    found = tables.group_rates(fitted, visits, reports=sold, by="country")
    assert (found.target, found.of_people, found.formation.name) == ("value", True, "features")
    assert [one.value for one in found.rates] == ["US", "DE", "FR"]
    for one in found.rates:
        assert one.least < one.low < truth[one.value] < one.high < one.most
    assert sum(one.n_people * one.rate for one in found.rates) == pytest.approx(sold.revenue.sum())
    bw.save(fitted, tmp_path / "model")
    paths = [str(tmp_path / name) for name in ("visits.parquet", "sold.parquet")]
    for frame, path in zip((visits, sold), paths, strict=True):
        frame.to_parquet(path, index=False)
    asked = ["predict", str(tmp_path / "model"), paths[0], "--reports", paths[1], "--by", "country"]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    assert "Intervals assume that rows with the same features are worth the same on average in all bags" in said.output
    assert "Bounds hold where no value is negative." in said.output
    as_json = CliRunner().invoke(app, [*asked, "--json"])
    assert [one["rate"] for one in json.loads(as_json.stdout)["rates"]] == [one.rate for one in found.rates]


def test_values_that_may_be_negative_have_no_bounds(made: Any) -> None:
    visits, sold, _ = made
    data = tables.join(visits, sold.assign(revenue=sold.revenue - 200), sum="revenue", ignore="people")
    fitted = tables.fit(data, bw.BagRidgeRegressor(random_state=0))
    found = tables.group_rates(fitted, visits, reports=sold.assign(revenue=sold.revenue - 200), by="country")
    # Moments, from which it was fitted in the engine, do not tell that campaigns differ in countries; rows do.
    assert (fitted.estimator.formation_.name, found.formation.name) == ("random", "features")
    assert all(np.isfinite([one.low, one.high]).all() and np.isinf([one.least, one.most]).all() for one in found.rates)
    assert "There are no bounds" in str(found)
    with pytest.raises(ParameterError, match="of several tables make labels add up, not values"):
        tables.group_rates(fitted, visits, reports=[sold, sold], by="country")


def test_values_with_exposure_from_fit_to_groups(made: Any, tmp_path: Any) -> None:
    """A column of log exposure: fitted, measured, scored and told of groups by commands; others say they cannot."""
    visits, sold, _ = made
    rng = np.random.default_rng(1)
    exposure, x = rng.uniform(0.2, 4.0, len(visits)), visits.x + 0.5 * (visits.country == "DE")
    value = rng.gamma(visits.people, exposure * np.exp(1 + 0.5 * x))
    sold = sold.assign(revenue=np.bincount(visits.campaign, value))
    visits = visits.assign(log_exposure=np.log(exposure))
    paths = [str(tmp_path / name) for name in ("visits.parquet", "sold.parquet")]
    for frame, path in zip((visits, sold), paths, strict=True):
        frame.to_parquet(path, index=False)
    others = [str(tmp_path / "other-visits.parquet"), str(tmp_path / "other-sold.parquet")]
    for frame, path in zip((visits, sold), others, strict=True):
        frame[frame.campaign < 70].to_parquet(path, index=False)
    folder, run = str(tmp_path / "model"), CliRunner().invoke
    asked = ["fit", *paths, "--sum", "revenue", "--weight", "people", "--offset", "log_exposure"]
    refused = run(app, [*asked, "--model", "ridge", "--out", folder])
    assert refused.exit_code == 1
    assert "--offset is added to logarithms of values, which ridge does not have: take tweedie" in refused.output
    for command in (
        [*asked, "--model", "tweedie", "--out", folder],
        ["evaluate", folder],
        ["evaluate", folder, *others],
        ["predict", folder, paths[0], "--out", str(tmp_path / "scored.parquet")],
        ["page", "--model", folder, "--out", str(tmp_path / "page.html")],
    ):
        done = run(app, command)
        assert done.exit_code == 0, done.output
    h = pd.read_parquet(tmp_path / "scored.parquet").prediction
    expected = exposure * np.exp(1 + 0.5 * x)
    assert np.average((h - expected) ** 2) < 0.1 * expected.var()
    said = run(app, ["predict", folder, paths[0], "--reports", paths[1], "--by", "country", "--json"])
    for one in json.loads(said.stdout)["rates"]:
        inside = visits.country == one["value"]
        assert one["low"] < value[inside].sum() / visits.people[inside].sum() < one["high"]
