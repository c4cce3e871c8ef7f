"""Estimators say what they read; tables and candidates are handed over accordingly, third parties' too."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise import tables
from bagwise.base import BagClassifier
from bagwise.data.features import TableFeatures
from bagwise.data.rows import InMemory, Reads
from bagwise.data.shards import Shards
from bagwise.numeric import NumericFeatures
from bagwise.tables import fitting


class OfCodes(TableFeatures, BagClassifier):
    """Somebody else's: the mean of the bags in which a row of each category lies, told by the first one."""

    reads: ClassVar[Reads] = Reads(codes=True)

    def __init__(self, *, categorical_features=None):
        self.categorical_features = categorical_features

    def _fit_bags(self, X, bags):
        self.column_ = self._categorical()[0]
        code = bags.code[X[:, self.column_] == 0]
        self.rate_ = float(bags.proportion[code[code >= 0]].mean())
        self.gaps_ = int(np.isnan(X).sum())

    def _predict_mean(self, X):
        return np.where(X[:, self.column_] == 0, self.rate_, 0.1)


class OfNumbers(NumericFeatures, BagClassifier):
    """Somebody else's, which says nothing of what it reads."""

    def _fit_bags(self, X, bags):
        self.seen_ = X

    def _predict_mean(self, X):
        return np.full(len(X), 0.2)


class OfBlocks(OfNumbers):
    """Somebody else's, which reads rows block by block."""

    reads: ClassVar[Reads] = Reads(blocks=True)

    def _fit_data(self, data):
        self.kind_, self.blocks_ = type(data), len(data)
        self.sum_ = sum(data.encode(data.block(number)).sum(axis=0, dtype=float) for number in range(len(data)))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    n = 1200
    events = pd.DataFrame(
        {
            "bag": np.arange(n) // 10,
            "x": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "device": rng.choice(["phone", "tablet"], n),
        }
    )
    y = pd.Series(rng.random(n) < np.where(events["device"] == "phone", 0.6, 0.2))
    return tables.join(events, y.groupby(events["bag"]).sum().rename("count").reset_index())


def test_an_estimator_that_reads_codes_is_handed_codes_and_told_which(data):
    model = tables.fit(data, OfCodes())
    assert model.encoding is None
    assert model.estimator.categorical_features == [1]
    assert model.estimator.gaps_ > 0
    assert model.estimator.rate_ > 0.3


def test_an_estimator_that_reads_numbers_is_handed_finite_ones(data):
    model = tables.fit(data, OfNumbers())
    assert np.isfinite(model.estimator.seen_).all()
    assert model.estimator.seen_.shape == (1200, 4)  # the number, whether it is missing, and two levels
    assert model.encoding.width == model.estimator.n_features_in_ == 4


def test_blocks_come_one_after_the_other_and_errors_where_they_are_read():
    X = np.arange(12.0).reshape(6, 2)
    bags = bw.Bags.from_rows(np.zeros(6), [0, 0, 1, 2, 2, 2])
    data = InMemory(X, bags, starts=np.array([0, 1, 3]))
    np.testing.assert_array_equal(np.concatenate(list(data.blocks())), X)
    assert next(data.blocks()).shape == (2, 2)  # and the rest is not read

    def damaged(number):
        raise ValueError(f"block {number} is damaged")

    data.block = damaged
    with pytest.raises(ValueError, match="block 0 is damaged"):
        list(data.blocks())


def test_an_estimator_that_reads_blocks_is_handed_shards_where_rows_are_too_many(data, monkeypatch):
    memory = tables.fit(data, OfBlocks()).estimator
    assert (memory.kind_, memory.blocks_) == (InMemory, 1)
    monkeypatch.setattr(fitting, "IN_MEMORY", 100)
    disk = tables.fit(data, OfBlocks()).estimator
    assert disk.kind_ is Shards
    np.testing.assert_allclose(disk.sum_, memory.sum_, rtol=1e-6)
    assert disk.n_features_in_ == 4
    with pytest.raises(ValueError, match="OfNumbers"):
        tables.fit(data, OfNumbers())


def test_a_table_that_fits_into_memory_is_not_written_to_disk(data, monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("shards were written")

    monkeypatch.setattr(fitting, "write_shards", refuse)
    model = tables.fit(data, bw.BagBoostingClassifier(n_estimators=3, n_jobs=1, random_state=0))
    assert model.estimator.categorical_features == [1]


@pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")
def test_estimators_of_others_are_candidates(data):
    frame = pd.DataFrame({"x": np.linspace(0, 1, 400), "device": np.tile(["a", "b"], 200)})
    frame.loc[3, "x"] = np.nan
    ids = np.arange(400) // 4
    y = np.repeat(np.arange(100) % 3 / 4, 4)
    candidates = {"codes": OfCodes(), "numbers": OfNumbers(), "ridge": bw.BagRidgeClassifier()}
    model = bw.BagAutoClassifier(candidates=candidates, stack=True, random_state=0).fit(frame, y, bags=ids)
    assert [line["note"] for line in model.trials_[:3]] == ["", "", ""]
    assert np.isfinite(model.predict_proba(frame)).all()


def test_classes_and_features_are_known_after_fitting_rows():
    rng = np.random.default_rng(0)
    bags = bw.Bags.from_rows(np.repeat(rng.dirichlet(np.ones(3), 40), 5, axis=0), np.repeat(np.arange(40), 5))
    model = bw.BagRidgeClassifier(random_state=0).fit_rows(InMemory(rng.normal(size=(200, 2)), bags))
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.n_features_in_ == 2
    with pytest.raises(ValueError, match="200 rows"):
        InMemory(np.zeros((3, 2)), bags)
