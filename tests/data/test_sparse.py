"""Sparse matrices: the models of the same numbers in an array, whatever the format; large ones block by block."""

import numpy as np
import pytest
from scipy import sparse

import bagwise as bw
from bagwise.data import rows as data_rows
from bagwise.data import sparse as data_sparse
from bagwise.data.rows import in_one_piece
from bagwise.data.sparse import SparseRows
from bagwise.utils.parameters import ParameterError

BOOSTING = {"n_estimators": 10, "n_fits": 1, "cv": 2, "kinds": ("greedy",), "n_jobs": 1}


@pytest.fixture
def words():
    """Counts of 12 words in 3,000 texts, most of them 0, labels that two words move, and bags of unequal sizes."""
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, (3000, 12)).astype(float)
    y = (rng.random(3000) < 1 / (1 + np.exp(0.5 - 2 * X[:, 0] + 2 * X[:, 1]))).astype(float)
    ids = np.repeat(np.arange(300), rng.multinomial(2700, np.full(300, 1 / 300)) + 1)[:3000]
    ids = rng.permutation(ids)
    return X, bw.aggregate(y, ids), ids


@pytest.fixture
def small_blocks(monkeypatch):
    """Whatever has more than 12,000 numbers is large: blocks of 1,500, settings chosen on all bags."""
    monkeypatch.setattr(data_sparse, "SAMPLE_NUMBERS", 12_000)
    monkeypatch.setattr(data_sparse, "BLOCK_NUMBERS", 1_500)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("estimator", [bw.BagRidgeClassifier(random_state=0), bw.BagBoostingClassifier(**BOOSTING)])
def test_small_ones_are_arrays(words, estimator, kind):
    X, y, ids = words
    given = sparse.csr_array(X).asformat(kind)
    expected = estimator.set_params(random_state=0).fit(X, y, bags=ids).predict_proba(X)
    model = estimator.fit(given, y, bags=ids)
    np.testing.assert_array_equal(model.predict_proba(given), expected)


@pytest.mark.usefixtures("small_blocks")
def test_logistic_regression_learns_from_blocks_what_it_learns_from_rows(words):
    X, y, ids = words
    weight = np.random.default_rng(1).integers(1, 3, len(X))
    told = {"formation": "random", "alphas": 1.0, "scaling": 1.0, "random_state": 0}
    for settings in ({}, {"sample_weight": weight}):
        y = y if not settings else bw.aggregate(np.ones(len(X)), ids) * (ids % 2)
        model = bw.BagLogisticClassifier(**told).fit(sparse.csr_matrix(X), y, bags=ids, **settings)
        expected = bw.BagLogisticClassifier(**told).fit(X, y, bags=ids, **settings)
        np.testing.assert_allclose(model.free_coef_, expected.free_coef_, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(model.predict_proba(sparse.csr_array(X)), model.predict_proba(X), rtol=1e-12)
        assert model.n_features_in_ == 12


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["boosting", "network"])
def test_others_learn_from_blocks(words, kind, monkeypatch):
    monkeypatch.setattr(data_rows, "SAMPLE_ROWS", 1_500)  # settings are chosen on half of the bags
    X, y, ids = words
    if kind == "network":
        pytest.importorskip("torch")
        model = bw.BagNeuralClassifier(hidden=(8,), learning_rate=0.03, max_epochs=15, cv=2, random_state=0)
    else:
        model = bw.BagBoostingClassifier(**BOOSTING, random_state=0)
    model.fit(sparse.csc_array(X), y, bags=ids)
    signal = X[:, 0] - X[:, 1]
    h = model.predict_proba(sparse.csc_array(X))[:, 1]
    assert np.corrcoef(h, signal)[0, 1] > 0.7
    np.testing.assert_allclose(h, model.predict_proba(X)[:, 1], rtol=1e-6)


@pytest.mark.usefixtures("small_blocks")
def test_what_cannot_be_read_is_said_in_a_sentence(words):
    X, y, ids = words
    rows = sparse.csr_array(X)
    with pytest.raises(ParameterError, match=r"X is sparse and has .* GB as an array, which BagRidgeClassifier needs"):
        bw.BagRidgeClassifier().fit(rows, y, bags=ids)
    model = bw.BagLogisticClassifier(alphas=1.0, scaling=1.0, random_state=0).fit(rows, y, bags=ids)
    with pytest.raises(ParameterError, match="which an explanation needs"):
        model.explain(rows)
    rows.data[np.searchsorted(rows.indptr, 40)] = np.nan
    column, row = (
        rows.indices[np.isnan(rows.data)][0],
        np.searchsorted(rows.indptr, np.argmax(np.isnan(rows.data)), side="right") - 1,
    )
    for action in (lambda: bw.BagLogisticClassifier().fit(rows, y, bags=ids), lambda: model.predict(rows)):
        with pytest.raises(ValueError, match=rf"column {column} of X contains NaN or infinity \(first in row {row}\)"):
            action()
    with pytest.raises(ValueError, match="bag 0 carries two different proportions"):
        model.fit(sparse.csr_array(X), y + (np.arange(len(y)) == np.flatnonzero(ids == 0)[0]), bags=ids)


def test_blocks_hold_every_row_of_whole_bags_once(words):
    X, y, ids = words
    outside = np.where(ids < 20, -1, ids)
    bags = bw.Bags.from_rows(y, outside).with_weights(1.0 + ids % 3)
    data = SparseRows(sparse.csr_array(np.column_stack([X, np.arange(3000.0)])), bags, numbers=2_000)
    assert len(data) > 10
    assert not in_one_piece(data)
    rows = np.concatenate(list(data.blocks()))[:, -1].astype(int)
    assert sorted(rows) == np.flatnonzero(outside >= 0).tolist()
    np.testing.assert_array_equal(data.bags.keys[data.bags.code], ids[rows])
    np.testing.assert_array_equal(data.weight, 1.0 + ids[rows] % 3)
    assert max(len(data.block(number)) for number in range(len(data))) < 2 * 2_000 // 13
    encoding = data.encoding()
    scaled = data.encoded(encoding)
    numbers = np.concatenate([scaled.encode(block) for block in scaled.blocks()])
    assert (numbers.min(), numbers.max()) == (0.0, 1.0)
    assert data.fingerprint != SparseRows(sparse.csr_array(X), bags).fingerprint
