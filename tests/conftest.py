"""What all tests share: `--seeds N` runs every statistical test with N seeds; without torch, its tests are skipped."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis.strategies import none

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers of Spark have what tests have
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # of MLflow itself, before it is imported

settings.register_profile("bagwise", deadline=None, max_examples=50, database=None)
settings.load_profile("bagwise")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=1, help="run each test that takes `seed` with this many seeds")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--seeds")))


def pytest_collection_finish() -> None:
    """What was imported stays: to look through it again at each collection of garbage takes a tenth of the time."""
    given(none())(lambda _: None)()  # Hypothesis looks for what holds its random numbers, in vain once frozen
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _ledgers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what users' ledgers would say of releases in tests."""
    folder = tmp_path_factory.mktemp("ledgers")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("BAGWISE_LEDGER", str(folder / "of fixtures"))
        yield folder


@pytest.fixture(autouse=True)
def _ledger(_ledgers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with nothing spent."""
    monkeypatch.setenv("BAGWISE_LEDGER", str(_ledgers / uuid4().hex))


@pytest.fixture(scope="session")
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")


@pytest.fixture
def one_thread(torch: Any) -> Iterator[None]:
    """Tests run side by side: a small network's threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
