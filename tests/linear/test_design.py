"""Standardised features piece by piece, of rows in memory and of blocks on disk; and the fits to both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import bagwise as bw
from bagwise import tables
from bagwise.bags import Bags
from bagwise.data.rows import BagRows, InMemory
from bagwise.data.shards import Shards
from bagwise.linear import design as module
from bagwise.linear import logistic, penalties
from bagwise.linear.design import Design
from bagwise.tables.columns import Features
from bagwise.tables.gather import write_shards

OPTIONS: dict[str, dict[str, Any]] = {
    "random": {},
    "features": {},
    "noise": {"noise_scale": 2.0},
    "hidden": {"hidden": "0-3"},
    "people": {"weight": "people", "offset": "exposure"},
    "classes": {"count": ["count_0", "count_1", "count_2"]},
}


def made_up(kind: str, rows: int = 3000) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Events with a number, one with gaps, and a category; reports of unequal bags."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    device = rng.choice(["phone", "tablet", "radio"], rows)
    scores = 2 * x[:, 0] - x[:, 1] + (device == "radio") - 1
    order = x[:, 0] + rng.normal(size=rows) if kind == "features" else rng.random(rows)
    bag = np.sqrt(12 * np.argsort(np.argsort(order))).astype(int)  # larger and larger ones
    people = rng.integers(1, 4, rows).astype(float) if kind == "people" else np.ones(rows)
    exposure = rng.normal(size=rows) if kind == "people" else np.zeros(rows)
    count = rng.binomial(people.astype(int), expit(scores + exposure))
    gap = np.where(rng.random(rows) < 0.1, np.nan, x[:, 1])
    events = pd.DataFrame({"bag": bag, "x": 100 + 5 * x[:, 0], "gap": gap, "device": device})
    if kind == "people":
        events = events.assign(people=people, exposure=exposure)
    if kind == "classes":
        count = count + (device == "phone")
        counts = {f"count_{c}": (count == c).astype(int) for c in range(3)}
    else:
        counts = {"count": count} | ({"size": people} if kind == "people" else {})
    return events, pd.DataFrame({"bag": bag, **counts}).groupby("bag", as_index=False).sum()


def on_disk(kind: str, folder: Path, rows: int = 3000) -> BagRows:
    data = tables.join(*made_up(kind, rows), **OPTIONS[kind])
    shards = write_shards(data, Features.of(data.events, data.features), folder / "shards", group_rows=rows // 6)
    return shards.encoded(shards.encoding())


def in_memory(rows: BagRows) -> InMemory:
    return InMemory(rows.sample(rows.n_rows).X, rows.bags)


@pytest.mark.parametrize("kind", ["random", "people"])
def test_rows_on_disk_are_standardised_as_in_memory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE", 600)
    rows = on_disk(kind, tmp_path)
    held = in_memory(rows)
    disk, memory = Design.of_blocks(rows, rows.bags), Design.of(held.X, held.bags)
    np.testing.assert_allclose(disk.mean, memory.mean, rtol=1e-12)
    np.testing.assert_allclose(disk.scale, memory.scale, rtol=1e-10)
    assert len(rows) > 4
    for one in (disk, memory):
        pieces = [(part, some, z.copy()) for part, some, z in one.pieces()]
        assert max(len(z) for _, _, z in pieces) <= max(600 // one.width, one.bags.rows.max())
        for part, some, z in pieces:
            assert (part.start, part.stop) == (one.bags.offsets[some.start], one.bags.offsets[some.stop])
            np.testing.assert_allclose(z, (held.X[part] - memory.mean) / memory.scale, atol=1e-9)
        assert np.concatenate([z for *_, z in pieces]).shape == held.X.shape
    w = np.arange(1.0, disk.width + 1)
    np.testing.assert_allclose(disk.scores(w), memory.scores(w), rtol=1e-9)


def test_bags_on_disk_are_taken_in_any_order(tmp_path: Path) -> None:
    rows = on_disk("random", tmp_path)
    held = in_memory(rows)
    disk, memory = Design.of_blocks(rows, rows.bags), Design.of(held.X, held.bags)
    index = np.random.default_rng(0).permutation(len(rows.size))[:40]
    one, other = disk.take(index), memory.take(index)
    np.testing.assert_allclose(one.X, other.X, atol=1e-9)
    np.testing.assert_array_equal(one.bags.offsets, other.bags.offsets)
    np.testing.assert_allclose(one.take(np.array([3, 1])).X, other.take(np.array([3, 1])).X, atol=1e-9)


def test_a_column_that_is_constant_has_no_scale(tmp_path: Path) -> None:
    events, reports = made_up("random")
    data = tables.join(events.assign(same=7.3), reports)
    shards = write_shards(data, Features.of(data.events, data.features), tmp_path / "shards", group_rows=300)
    design = Design.of_blocks(shards.encoded(shards.encoding()), shards.bags)
    assert np.isinf(design.scale).sum() == 1
    assert np.isfinite(design.scores(np.ones(design.width))).all()


@pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")
@pytest.mark.parametrize("kind", OPTIONS)
def test_logistic_regression_from_disk_is_that_of_memory(kind: str, tmp_path: Path) -> None:
    rows = on_disk(kind, tmp_path)
    disk = bw.BagLogisticClassifier(random_state=0).fit_rows(rows)
    memory = bw.BagLogisticClassifier(random_state=0).fit_rows(in_memory(rows))
    scale = np.abs(memory.coef_).max()
    np.testing.assert_allclose(disk.coef_, memory.coef_, atol=1e-6 * scale)
    np.testing.assert_allclose(disk.intercept_, memory.intercept_, atol=1e-6 * scale)
    assert disk.formation_ == memory.formation_
    for name in ("alpha_", "scaling_", "stretch_", "effect_variance_", "gain_", "gain_error_"):
        np.testing.assert_allclose(getattr(disk, name), getattr(memory, name), rtol=1e-5, err_msg=name)
    if kind != "classes":
        np.testing.assert_allclose(disk.coef_errors_, memory.coef_errors_, rtol=1e-5)
        np.testing.assert_allclose(disk.effects_, memory.effects_, atol=1e-6)


def test_a_penalty_chosen_on_some_of_the_bags_is_that_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (logistic, penalties):
        monkeypatch.setattr(one, "CHOICE_ROWS", 1000)
    monkeypatch.setattr(penalties, "_LARGE_BAGS_ROWS", 1500)
    rows = on_disk("random", tmp_path, 6000)
    taken: list[int] = []
    take = Design.take
    monkeypatch.setattr(Design, "take", lambda self, index: taken.append(len(index)) or take(self, index))
    disk = bw.BagLogisticClassifier(random_state=0).fit_rows(rows)
    assert max(taken) < len(rows.size) / 2  # the rows of all bags are never held
    memory = bw.BagLogisticClassifier(random_state=0).fit_rows(in_memory(rows))
    np.testing.assert_allclose(disk.coef_, memory.coef_, rtol=1e-6)
    assert (disk.alpha_, disk.stretch_) == pytest.approx((memory.alpha_, memory.stretch_), rel=1e-6)


def test_tables_too_large_for_memory_are_fitted_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tables.join(*made_up("random"))
    memory = tables.fit(data, "logistic", random_state=0)
    monkeypatch.setattr("bagwise.tables.fitting.IN_MEMORY", 100)
    read: list[int] = []
    block = Shards.block
    monkeypatch.setattr(Shards, "block", lambda self, number: read.append(number) or block(self, number))
    disk = tables.fit(data, "logistic", random_state=0)
    assert read
    np.testing.assert_allclose(disk.estimator.coef_, memory.estimator.coef_, rtol=1e-6)


def test_shares_that_are_no_counts_are_refused_on_disk_too(tmp_path: Path) -> None:
    rows = on_disk("random", tmp_path)
    rows.proportion = np.full(len(rows.size), 0.123)
    with pytest.raises(ValueError, match="whole number"):
        bw.BagLogisticClassifier().fit_rows(rows)


def test_bags_of_rows_in_any_order_are_read_in_bag_order() -> None:
    X = np.arange(12.0).reshape(6, 2)
    bags = Bags.from_rows(np.zeros(6), [1, 0, 1, 0, 1, 0])
    ((_, _, z),) = Design.of(X, bags).pieces()
    np.testing.assert_allclose(z[:, 0] * X[:, 0].std() + X[:, 0].mean(), X[[1, 3, 5, 0, 2, 4], 0])
