"""Matrices as blocks of whole bags."""

import numpy as np
import pytest

import bagwise as bw
from bagwise.boosting import fitting
from bagwise.data import rows
from bagwise.data.shuffled import MatrixRows


def drawn(n=6000, size=12):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = (rng.random(n) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    ids = bw.random_bags(n, size, random_state=0)
    ids[:7] = -1  # in no bag
    ids[ids == 3] = -1
    return X, y, ids, bw.aggregate(y, ids)


def test_blocks_hold_each_row_of_a_bag_once_beside_its_report():
    X, _, ids, y_bag = drawn()
    bags = bw.Bags.from_rows(y_bag, ids).with_weights(np.arange(len(X)) % 5 + 1)
    data = MatrixRows(X, bags, numbers=900)
    found = np.concatenate([data.block(number) for number in range(len(data))])
    assert len(data) > 10
    assert found.shape == data.shape
    np.testing.assert_array_equal(np.sort(found[:, 0]), np.sort(X[ids >= 0, 0]))
    sums = dict(zip(bags.keys.tolist(), bags.sum_table(X[:, 1]).tolist(), strict=True))
    reported = dict(zip(bags.keys.tolist(), bags.proportion.tolist(), strict=True))
    for key, total, proportion in zip(data.bags.keys, data.bags.sum(found[:, 1]), data.proportion, strict=True):
        assert total == pytest.approx(sums[int(key)])
        assert proportion == reported[int(key)]


def test_boosting_reads_tables_of_many_rows_in_blocks(monkeypatch):
    X, y, ids, y_bag = drawn(size=4)
    told = {"n_estimators": 20, "n_jobs": 1, "random_state": 0}
    whole = bw.BagBoostingClassifier(**told).fit(X, y_bag, bags=ids)
    monkeypatch.setattr(fitting, "MANY_ROWS", 5000)
    monkeypatch.setattr(rows, "SAMPLE_ROWS", 3000)
    before = X.copy()
    pieces = bw.BagBoostingClassifier(**told).fit(X, y_bag, bags=ids)
    np.testing.assert_array_equal(X, before)
    own, other = (model.predict_proba(X)[:, 1] for model in (pieces, whole))
    assert np.corrcoef(own, other)[0, 1] > 0.99
    assert np.mean((own - y) ** 2) < np.mean((other - y) ** 2) + 0.005
    assert own[ids >= 0].mean() == pytest.approx(float(np.mean(y[ids >= 0])), abs=1e-3)
    with pytest.raises(ValueError, match="more than 1,048,576 rows"):
        pieces.predict_interval(X)


def test_a_few_large_bags_are_all_looked_at_however_many_rows_they_have(monkeypatch):
    X, _, ids, y_bag = drawn(size=500)
    monkeypatch.setattr(fitting, "MANY_ROWS", 5000)
    monkeypatch.setattr(rows, "SAMPLE_ROWS", 3000)
    model = bw.BagBoostingClassifier(n_estimators=10, n_jobs=1, random_state=0).fit(X, y_bag, bags=ids)
    assert model.predict_interval(X[:5]).shape == (2, 5)  # fits without a fold: of all bags
