"""The ratios of benchmarks over time."""

import importlib.util
import json
from pathlib import Path

import pytest

PLACE = Path(__file__).parent.parent / "benchmarks" / "history.py"


@pytest.fixture
def history(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("history", PLACE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FILE", tmp_path / "history.jsonl")
    return module


def test_ratios_are_appended_and_shown_beside_what_is_asked(history):
    assert history.shown(history.read()) == []
    for ratio in (3.0, 1.25, 0.5, 1.5):
        history.record("ridge", "to sums", ratio, at_most=1)
    history.record("distributed", "two processes", 1.8, at_least=1.6)
    two, ridge = history.shown(history.read())
    assert two.startswith("distributed: two processes (at least 1.6): 1.80  [")
    assert ridge.startswith("ridge: to sums (at most 1): 3.00 → 1.25 → 0.50 → 1.50  MISSED  [")
    lines = history.FILE.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["ratio"] for line in lines] == [3.0, 1.25, 0.5, 1.5, 1.8]


def test_machines_of_other_size_stand_apart(history):
    history.record("ridge", "to sums", 1.0)
    line = json.loads(history.FILE.read_text(encoding="utf-8"))
    history.FILE.write_text("\n".join(json.dumps({**line, "cores": cores}) for cores in (2, 64)) + "\n")
    assert len(history.shown(history.read())) == 2


def test_the_page_has_the_latest_of_each(history):
    for ratio in (3.0, 1.5):
        history.record("ridge", "to sums", ratio, at_most=1)
    history.record("sgd", "to a loop", 5.0)
    *_, ridge, sgd = history.page(history.read()).splitlines()
    assert ridge.startswith("| `ridge` | to sums | at most 1 | 1.50 (missed) | 20")
    assert sgd.startswith("| `sgd` | to a loop |  | 5.00 | 20")
