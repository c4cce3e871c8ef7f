"""The service as a program: it answers, and ends when it is told to."""

import http.client
import json
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import bagwise as bw
from tests.cli.test_tables import call, sentence


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of 40 bags of 10 rows."""
    rng, place = np.random.default_rng(0), tmp_path_factory.mktemp("served") / "model"
    ids, x = np.repeat(np.arange(40), 10), rng.normal(size=400)
    y = rng.random(400) < 1 / (1 + np.exp(-x))
    data = bw.tables.join({"x": x, "bag": ids}, {"bag": np.arange(40), "count": np.bincount(ids, weights=y)})
    bw.save(bw.tables.fit(data, "ridge", random_state=0), place)
    return place


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_answers_until_it_is_stopped(folder, stop):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "bagwise", "serve", str(folder), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(600):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("POST", "/score", json.dumps({"rows": [{"x": 1.0}, {"x": None}]}))
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        answer = connection.getresponse()
        scores = json.loads(answer.read())["prediction"]
        assert answer.getheader("server") is None
        connection.close()
        expected = bw.load(folder).predict_proba({"x": [1.0, None]})[:, 1]
        np.testing.assert_allclose(scores, expected, atol=1e-12)
        process.send_signal(stop)
        out, err = process.communicate(timeout=30)
        assert "Traceback" not in err
        assert f"http://127.0.0.1:{port}" in out
        assert process.returncode == 0  # it was asked to end, and did
    finally:
        process.kill()
        process.communicate()


def test_what_is_no_model_of_tables_is_not_served(tmp_path):
    bw.save(bw.BagRidgeClassifier(alphas=1.0).fit([[0.0], [1.0], [2.0]], [0, 1, 1]), tmp_path / "m")
    assert "reads arrays" in sentence(call("serve", tmp_path / "m"))
    assert "no-model" in sentence(call("serve", tmp_path / "no-model"))


def _pickled(place):
    (place / "arrays.safetensors").write_bytes(pickle.dumps(np.zeros(3)))


def _of_another_kind(place):
    told = json.loads((place / "model.json").read_text())
    (place / "model.json").write_text(json.dumps(told | {"kind": "os.system"}))


def _linked(place):
    (place / "arrays.safetensors").unlink()
    (place / "arrays.safetensors").symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("change", "words"),
    [(_pickled, "arrays.safetensors"), (_of_another_kind, "model.json was changed"), (_linked, "is a link")],
)
def test_folders_that_were_tampered_with_are_not_served(folder, tmp_path, monkeypatch, change, words):
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: pytest.fail("it was served"))
    shutil.copytree(folder, tmp_path / "m")
    change(tmp_path / "m")
    assert words in sentence(call("serve", tmp_path / "m"))
