"""Models of tables refined by later events and reports: what comes out, and what is told on the way."""

import copy

import numpy as np
import pytest
from scipy.special import expit

import bagwise as bw
from bagwise import tables
from bagwise.data.rows import InMemory
from bagwise.tables.gather import gather
from bagwise.updates import CannotUpdateError

RIDGE = bw.BagRidgeClassifier(alphas=0.01, scaling=0.5)


def month(seed, n=1600, *, offset=-1.0, devices=("phone", "tablet"), gaps=False, **more):
    rng = np.random.default_rng(seed)
    x, device = rng.normal(size=n), rng.choice(devices, size=n)
    y = rng.random(n) < expit(x + (device == "phone") + offset)
    keys = [f"{seed}-{bag}" for bag in range(n // 20)]
    events = {"bag": np.repeat(keys, 20), "x": np.where(gaps & (x > 1), np.nan, x), "device": device, **more}
    return events, {"bag": keys, "count": y.reshape(-1, 20).sum(axis=1)}


def both(one, two):
    return tuple({key: np.concatenate([a[key], b[key]]) for key in a} for a, b in zip(one, two, strict=True))


def probabilities(model, events):
    return np.concatenate(
        [batch["prediction"].to_numpy() for batch in model.score(tables.read(events, tables.connect()))]
    )


def test_ridge_in_the_engine_is_that_of_both_months():
    one, two = month(1), month(2, 800)
    old = tables.fit(tables.join(*one), RIDGE)
    before = probabilities(old, one[0])
    found = tables.update(old, tables.join(*two), forgetting=1.0)
    whole = tables.fit(tables.join(*both(one, two)), RIDGE)
    after = probabilities(found.model, two[0])
    np.testing.assert_allclose(found.model.estimator.coef_, whole.estimator.coef_, atol=1e-8)
    np.testing.assert_allclose(after, probabilities(whole, two[0]), atol=1e-6)  # rows are scored in single precision
    assert np.abs(after - probabilities(old, two[0])).max() > 1e-3
    np.testing.assert_array_equal(probabilities(old, one[0]), before)  # what was given stays as it was
    assert (found.model.summary.bags, found.model.summary.used_rows) == (120, 2400)
    assert found.model.summary.prior[0] == pytest.approx(whole.summary.prior[0])
    assert not found.drift.drifted
    assert found.novelties == ()


@pytest.mark.slow
def test_gaps_and_few_bags_are_counted_as_before():
    one, two = month(1, gaps=True), month(2, 60, gaps=True)  # fewer bags than folds
    old = tables.fit(tables.join(*one), RIDGE)
    found = tables.update(old, tables.join(*two), forgetting=1.0)
    memory, rows = found.model.estimator.memory_, gather(tables.join(*two), old.features)
    assert len(memory.origin) == 4  # the number, whether it is missing, two devices
    read = copy.deepcopy(old.estimator)
    read.update_rows(InMemory(old.encoding(rows.X).astype(float), rows.bags))
    np.testing.assert_allclose(found.model.estimator.coef_, read.coef_, atol=1e-6)  # rows are single precision


@pytest.mark.parametrize("kind", ["logistic", pytest.param("boosting", marks=pytest.mark.slow)])
def test_rows_are_read_as_the_model_reads_them(kind, tmp_path):
    small = {"logistic": bw.BagLogisticClassifier(alphas=3.0, cv=2, random_state=0)}
    small["boosting"] = bw.BagBoostingClassifier(n_estimators=20, cv=2, n_jobs=1, random_state=0)
    old = tables.fit(tables.join(*month(1)), small[kind])
    bw.save(old, tmp_path / "model")
    later = month(2, offset=0.5, devices=("phone", "tablet", "radio"), colour=np.repeat("red", 1600))
    told = []
    data = tables.join(*later)
    found = tables.update(bw.load(tmp_path / "model"), data, progress=lambda *line: told.append(line[2]))
    assert found.drift.drifted
    assert found.update.learned
    assert [(one.column, one.values) for one in found.novelties] == [("colour", ()), ("device", ("radio",))]
    assert 400 < found.novelties[1].rows < 670
    said = str(found)
    assert "Column 'colour' is new, and is not read" in said
    assert "categories that the model has not seen, such as 'radio'" in said
    assert "Update: 80 new bags of 1,600 rows" in said
    assert abs(probabilities(found.model, later[0]).mean() - data.summary.prior[0]) < 0.03
    assert probabilities(old, later[0]).mean() < data.summary.prior[0] - 0.15
    assert "learning from new bags" in told


def test_what_cannot_be_is_said():
    one, two = month(1, 600), month(2, 600)
    model = tables.fit(tables.join(*one), bw.BagMeanMapClassifier(cv=2, random_state=0))
    with pytest.raises(CannotUpdateError, match="a BagMeanMapClassifier cannot be updated: fit it to the reports"):
        tables.update(model, tables.join(*two))
    ridge = tables.fit(tables.join(*one), RIDGE)
    with pytest.raises(ValueError, match="column 'device' is missing: the model was trained with it"):
        tables.update(ridge, tables.join({key: two[0][key] for key in ("bag", "x")}, two[1]))
    with pytest.raises(ValueError, match="forgetting must be"):
        tables.update(ridge, tables.join(*two), forgetting=-1)
