"""Fixtures of tests of networks on blocks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bagwise.data.shards import Shards
from bagwise.tables import join
from bagwise.tables.fitting import features_of
from bagwise.tables.gather import write_shards


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    pass


@pytest.fixture(scope="session")
def shards(tmp_path_factory) -> Shards:
    from tests.distributed.common import made_up

    data = join(*made_up())
    return write_shards(data, features_of(data), tmp_path_factory.mktemp("blocks") / "shards", group_rows=400)


@pytest.fixture(scope="session")
def undisturbed(shards, torch):
    from bagwise.distributed import Distributed
    from tests.distributed.common import STEPS, alone

    steps: list[tuple[int, int]] = []
    torch.set_num_threads(1)
    result = alone(shards, Distributed(streams=5, tell=lambda step, of: steps.append((step, of))))
    assert steps == [(step, STEPS) for step in range(1, STEPS + 1)]
    return result


@pytest.fixture
def start():
    """A training by torchrun, started; and ended where a test fails."""
    from tests.distributed.common import SETTINGS, WORKER

    started = []

    def start(shards: Shards, out: Path, processes: int, **options: Any) -> subprocess.Popen[bytes]:
        given = json.dumps({"estimator": SETTINGS, "streams": 5, **options})
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "--max-restarts=2"]
        running = subprocess.Popen(
            [sys.executable, *launcher, str(WORKER), str(shards.folder), str(out), given],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
        )
        started.append(running)
        return running

    yield start
    for running in started:
        if running.poll() is None:
            running.terminate()
            running.communicate()
