"""Data sets of the `BAGWISE_DATA` folder: shapes, labels, splits as published."""

import os

import numpy as np
import pytest

from bagwise import datasets

with_data = pytest.mark.skipif(not os.environ.get("BAGWISE_DATA"), reason="BAGWISE_DATA is not set")


@with_data
def test_adult_is_the_published_split():
    split = datasets.adult()
    assert (len(split.X), len(split.X_test)) == (32_561, 16_281)
    assert (int(split.y.sum()), int(split.y_test.sum())) == (7_841, 3_846)
    assert sum(dtype.kind not in "if" for dtype in split.X.dtypes) == 8
    assert "income" not in split.X


@with_data
def test_adult_encoded_as_in_the_paper():
    split = datasets.adult(encoded=True)
    assert split.X.shape == (32_561, 108)
    assert split.X.dtype == np.float32
    assert split.X.min() == 0
    assert split.X.max() == 1
    assert (split.X.sum(axis=1) >= 8).all()  # one level of each of the eight categories
    assert split.X_test[:, 0].max() <= 1.0 + 1e-6


@with_data
def test_criteo_keeps_the_last_rows_for_testing():
    split = datasets.criteo()
    assert (len(split.X), len(split.X_test)) == (64_000, 16_000)
    assert np.concatenate([split.y, split.y_test]).mean() == pytest.approx(0.2245, abs=1e-3)
    encoded = datasets.criteo(encoded=True)
    assert np.isfinite(encoded.X).all()
    assert len(encoded.X_test) == 16_000


@with_data
def test_mnist_labels_are_odd_digits():
    split = datasets.mnist()
    assert split.X.shape == (60_000, 1, 28, 28)
    assert split.X_test.shape == (10_000, 1, 28, 28)
    assert split.X.max() == 1
    assert list(split.y[:5]) == [1, 0, 0, 1, 1]  # 5 0 4 1 9


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("BAGWISE_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no file adult/adult\.data"):
        datasets.adult()
    monkeypatch.delenv("BAGWISE_DATA")
    with pytest.raises(FileNotFoundError, match="set BAGWISE_DATA"):
        datasets.mnist()
