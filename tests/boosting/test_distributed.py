"""Boosted trees grown by several processes: the same whatever their number, and whatever happens to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
import torch
from scipy.special import expit

from bagwise.bags import Bags
from bagwise.boosting import BagBoostingClassifier, BagBoostingRegressor
from bagwise.boosting.distributed import merged
from bagwise.boosting.network import network
from bagwise.data.rows import InMemory, fit_codes
from bagwise.data.shards import Shards
from bagwise.distributed import Checkpoints, Distributed, LostError, Processes, joined, launch, launch_on_dask
from bagwise.tables import join
from bagwise.tables.fitting import features_of
from bagwise.tables.gather import write_shards
from tests.boosting.grow_worker import grown
from tests.distributed.common import StoppedError, stopping_at

pytestmark = pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")

WORKER = Path(__file__).with_name("grow_worker.py")
SETTINGS: dict[str, Any] = {"n_estimators": 24, "cv": 3, "n_fits": 2, "n_jobs": 1, "random_state": 0}
COLUMNS = ["x0", "x1", "x2", "kind"]


def table(formation: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """6,000 rows with a category and gaps, in bags of about 12."""
    rng = np.random.default_rng(0)
    events = pd.DataFrame(rng.normal(size=(6000, 3)), columns=COLUMNS[:3])
    events["kind"] = rng.choice(list("abcde"), 6000)
    events["label"] = rng.random(6000) < expit(2 * events["x0"] * events["x1"] + (events["kind"] == "a"))
    events.loc[rng.random(6000) < 0.1, "x2"] = np.nan
    place = rng.random(6000) if formation == "random" else events["x0"] + (events["kind"] == "b")
    events["bag"] = np.argsort(np.argsort(place)) // 12
    return events, events.groupby("bag", as_index=False).agg(count=("label", "sum"))


@pytest.fixture(scope="session")
def tables(tmp_path_factory) -> dict[str, Shards]:
    found = {}
    for formation in ("random", "features"):
        events, reports = table(formation)
        data = join(events.drop(columns="label"), reports)
        folder = tmp_path_factory.mktemp("grown") / formation
        found[formation] = write_shards(data, features_of(data), folder, group_rows=400)
    return found


def alone(shards: Shards, **how: Any) -> dict[str, Any]:
    model = BagBoostingClassifier(**SETTINGS)
    fit_codes(model, shards, distributed=Distributed(**how))
    return json.loads(json.dumps(grown(model)))


@pytest.fixture(scope="session")
def undisturbed(tables) -> dict[str, Any]:
    return {formation: alone(shards) for formation, shards in tables.items()}


@pytest.fixture
def second(tables, tmp_path, monkeypatch):
    """Another process beside this one, which believes that torchrun started both."""
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    around = {"MASTER_ADDR": "localhost", "MASTER_PORT": store.port, "RANK": 0, "WORLD_SIZE": 2}
    for name, value in {**around, "TORCHELASTIC_RUN_ID": "test"}.items():
        monkeypatch.setenv(name, str(value))
    command = [sys.executable, str(WORKER), str(tables["features"].folder), "", json.dumps({"estimator": SETTINGS})]
    with subprocess.Popen(command, env={**os.environ, "RANK": "1"}) as running:
        yield running
        running.kill()


def test_two_processes_grow_the_trees_of_one(tables, undisturbed, second, capfd):
    with joined() as processes:
        found = alone(tables["features"], processes=processes)
        processes.share(None)
    assert found == undisturbed["features"]
    assert len(found["trees"]) >= 2
    assert min(map(len, found["trees"])) > 1000
    assert capfd.readouterr().out == ""  # LightGBM would tell what it listens to


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_workers_of_dask_grow_the_trees_of_one(tables, undisturbed, tmp_path):
    dask = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'bagwise[dask]'.")
    model, place = BagBoostingClassifier(**SETTINGS), {"local_directory": str(tmp_path), "dashboard_address": None}
    with (
        dask.LocalCluster(n_workers=2, threads_per_worker=1, **place) as cluster,
        dask.Client(cluster) as client,
    ):
        assert launch_on_dask(model, tables["features"], client) is model
    assert json.loads(json.dumps(grown(model))) == undisturbed["features"]


def start(shards: Shards, out: Path, processes: int, **options: Any) -> subprocess.Popen[bytes]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "--max-restarts=2"]
    given = json.dumps({"estimator": SETTINGS, **options})
    command = [sys.executable, *launcher, str(WORKER), str(shards.folder), str(out), given]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE)


def finish(running: subprocess.Popen[bytes], out: Path) -> dict[str, Any]:
    _, said = running.communicate(timeout=300)
    assert running.returncode == 0, said.decode()
    return json.loads(out.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("formation", "processes"), [("random", 2), ("random", 4), ("features", 3)])
def test_any_number_of_processes_grows_the_same_trees(tables, undisturbed, tmp_path, formation, processes):
    out = tmp_path / "result.json"
    assert finish(start(tables[formation], out, processes), out) == undisturbed[formation]


@pytest.mark.slow
def test_a_killed_process_of_two_is_started_again_and_nothing_is_lost(tables, undisturbed, tmp_path):
    kept, out = tmp_path / "kept", tmp_path / "result.json"
    running = start(tables["features"], out, 2, checkpoints=str(kept), every=10, pause=0.1)
    deadline = time.monotonic() + 200
    while not (kept / "step-00000020").exists():
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.02)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    workers = [pid for pid in children if str(WORKER) in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(workers) == 2
    os.kill(int(workers[1]), signal.SIGKILL)
    assert finish(running, out) == undisturbed["features"]


@pytest.mark.parametrize("stop", [13, 24, 31, 48])
def test_a_fit_that_was_stopped_goes_on(tables, undisturbed, tmp_path, stop):
    checkpoints, steps = Checkpoints(tmp_path / "kept", every=10), []
    with pytest.raises(StoppedError):
        alone(tables["features"], checkpoints=checkpoints, tell=stopping_at(stop))
    found = alone(tables["features"], checkpoints=checkpoints, tell=lambda step, _: steps.append(step))
    assert found == undisturbed["features"]
    assert steps[0] == {13: 11, 24: 21, 31: 25, 48: 45}[stop]  # fits of 24 trees, in stretches of 10
    assert alone(tables["features"], checkpoints=checkpoints, tell=stopping_at(1)) == found  # all is known


@pytest.mark.parametrize("formation", ["random", pytest.param("features", marks=pytest.mark.slow)])
def test_trees_of_all_processes_are_as_good_as_those_of_the_ordinary_fit(tables, formation):
    shards, errors = tables[formation], []
    X, mean = shards.sample(6000).X, table(formation)[0]["label"].mean()
    truth = expit(2 * X[:, 0] * X[:, 1] + (X[:, 3] == 0))
    for how in ({}, {"distributed": Distributed()}):
        model = BagBoostingClassifier(**{**SETTINGS, "n_estimators": 50})
        fit_codes(model, shards, **how)
        h = model.predict_proba(X)[:, 1]
        assert h.mean() == pytest.approx(mean, abs=2e-3 if how else 0.02)
        errors.append(np.mean((h - truth) ** 2))
    assert np.var(truth) > 3 * max(errors)
    assert errors[1] < 1.6 * errors[0]  # a few fits of each kind to all bags, or one without each fold


def test_rows_in_memory_are_a_block_too():
    rng = np.random.default_rng(0)
    X, ids = rng.uniform(-1, 1, size=(1600, 2)), rng.permutation(1600) // 8
    y = X[:, 0] * X[:, 1] > 0
    reported = np.bincount(ids, y)[ids] / 8
    data = InMemory(X, Bags.from_rows(reported, ids))
    model = BagBoostingClassifier(**SETTINGS).fit_rows(data, distributed=Distributed())
    assert np.mean(model.predict(X) == y) > 0.85


def test_what_several_processes_cannot_fit_is_said(tables):
    shards = tables["random"]
    with pytest.raises(ValueError, match="fit boosted trees of two classes"):
        fit_codes(BagBoostingRegressor(), shards, distributed=Distributed())


@pytest.mark.parametrize(("said", "seen"), [("Socket recv error, reset (code: 104)", LostError), ("no memory", None)])
def test_who_lost_the_others_is_told_from_who_failed(said, seen):
    data = lgb.Dataset(np.arange(40.0)[:, None], label=np.zeros(40), params={"verbosity": -1}).construct()
    booster = lgb.Booster({"verbosity": -1}, data)
    with pytest.raises(seen or lgb.basic.LightGBMError), network(Processes(), booster, [data, data]):
        raise lgb.basic.LightGBMError(said)


def test_texts_of_trees_are_put_together():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    settings = {"verbosity": -1, "num_leaves": 4, "boost_from_average": False}
    boosters = [lgb.train(settings, lgb.Dataset(X, label=X[:, one]), num_boost_round=3) for one in range(3)]
    whole = lgb.Booster(model_str=merged([one.model_to_string() for one in boosters]))
    assert whole.num_trees() == 9
    np.testing.assert_allclose(whole.predict(X), sum(one.predict(X) for one in boosters), rtol=1e-12)


@pytest.mark.slow
def test_python_starts_the_processes(tables, undisturbed):
    model = launch(BagBoostingClassifier(**SETTINGS), tables["features"], processes=2)
    assert json.loads(json.dumps(grown(model))) == undisturbed["features"]
