"""Processes that were forked after a model was used: LightGBM's and torch's threads stay behind in the parent."""

import multiprocessing
import os

import joblib
import numpy as np
import pytest

import bagwise as bw
from bagwise.utils import threads

SECONDS = 60  # a child takes one; with the threads of its parent it waits for ever
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8000, 3))
    ids = bw.random_bags(len(X), 40, random_state=0)
    return X, bw.aggregate(X[:, 0] + rng.normal(size=len(X)) > 0, ids), ids


def make(kind):
    if kind == "boosting":
        return bw.BagBoostingClassifier(n_estimators=2, cv=2, n_fits=1, n_jobs=2, random_state=0)
    pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
    return bw.BagNeuralClassifier(max_epochs=1, cv=2, learning_rate=0.01, random_state=0)


def in_a_fork(work):
    """What `work` returns in a forked process."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=lambda: theirs.send(work()))
    child.start()
    try:
        assert mine.poll(SECONDS), "the child hangs"
        return mine.recv()
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("kind", ["boosting", "network"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_model_that_was_used_predicts_and_fits_in_a_forked_process(kind):
    X, y, ids = rows()
    model = make(kind).fit(X, y, bags=ids)
    if kind == "network":
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(2)
    h = model.predict_proba(X)
    np.testing.assert_allclose(in_a_fork(lambda: model.predict_proba(X)), h, atol=1e-6)
    fitted = in_a_fork(lambda: make(kind).fit(X, y, bags=ids).predict_proba(X))
    np.testing.assert_allclose(fitted, h, atol=1e-4)
    if kind == "network":
        torch.set_num_threads(before)


def test_a_forked_process_has_one_thread_and_its_parent_all():
    assert in_a_fork(lambda: (threads.was_forked(), threads.threads_of(4), threads.threads_of(0))) == (True, 1, 1)
    assert threads.threads_of(10**9) == joblib.cpu_count()
    assert not threads.was_forked()
