"""Processes that meet, share what one decides, and notice when others are gone."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
import torch

from bagwise.distributed import LostError, Processes, joined
from bagwise.distributed.processes import meet


def test_processes_with_other_options_or_bags_are_refused():
    class Second(Processes):
        def share(self, value):
            return {"shards": "ab" * 32, "hidden": "(32,)"}

    Second(1, 2).agree({"shards": "ab" * 32, "hidden": "(32,)"})
    with pytest.raises(ValueError, match=r"hidden of process 1 is \(8,\), that of the leading process \(32,\): start"):
        Second(1, 2).agree({"shards": "ab" * 32, "hidden": "(8,)"})
    with pytest.raises(ValueError, match=r"shards of process 1 is ac, that of the leading process abab.*…: start"):
        Second(1, 2).agree({"shards": "ac", "hidden": "(32,)"})


@pytest.fixture
def as_if_by_torchrun(monkeypatch):
    """A process that believes to be the only one of torchrun."""
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    around = {"MASTER_ADDR": "localhost", "MASTER_PORT": store.port, "RANK": 0, "WORLD_SIZE": 1}
    for name, value in {**around, "TORCHELASTIC_RUN_ID": "test"}.items():
        monkeypatch.setenv(name, str(value))
    return store


def test_a_process_that_lost_the_others_is_told_from_one_that_failed(as_if_by_torchrun):
    def fail(error: Exception) -> None:
        with joined() as ranks:
            assert ranks.share({"one": 1}) == {"one": 1}
            raise error

    for error, seen in (
        (RuntimeError("[/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"), LostError),
        (torch.distributed.DistNetworkError("failed to recv"), LostError),
        (RuntimeError("out of memory"), RuntimeError),
        (ValueError("gloo"), ValueError),
    ):
        with pytest.raises(seen) as caught:
            fail(error)
        assert type(caught.value) is seen
        assert not torch.distributed.is_initialized()


def test_networks_on_graphics_cards_still_add_up_arrays(as_if_by_torchrun, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, **_: asked.append(backend))
    monkeypatch.setattr(torch.distributed, "new_group", lambda backend, **_: asked.append(backend))
    for device in (torch.device("cuda"), torch.device("cpu"), None):
        with joined(device):
            pass
    assert asked == ["cpu:gloo,cuda:nccl", "gloo", "gloo", "gloo", "gloo", "gloo"]


@pytest.mark.slow
def test_processes_wait_for_what_the_leading_one_decides(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text(
        "import time\n"
        "from datetime import timedelta\n"
        "from bagwise.distributed.processes import joined\n"
        "with joined(step=timedelta(seconds=5)) as ranks:\n"
        "    if ranks.leads:\n"
        "        time.sleep(12)\n"
        "    assert ranks.share([ranks.rank]) == [0]\n"
    )
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run([sys.executable, *launcher], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()


def test_processes_meet_after_others_have_gone():
    store = torch.distributed.HashStore()
    with ThreadPoolExecutor(3) as threads:

        def start(ranks: tuple[int, ...], seconds: float) -> list[Any]:
            return [threads.submit(meet, store, rank, 3, seconds=seconds) for rank in ranks]

        agreed = set()
        for round_ in range(12):
            if round_ % 3 == 2:  # some die before they meet
                for one in start(((0, 2), (1, 2))[round_ % 2], 0.1):
                    with pytest.raises(TimeoutError, match="waited 0 seconds for the others"):
                        one.result()
            found = [one.result() for one in start((2, 1, 0), 60)]
            for rank, mine in enumerate(found):
                mine.set(f"address {rank}", str(round_))
            assert [mine.get(f"address {(rank + 1) % 3}") for rank, mine in enumerate(found)] == [b"%d" % round_] * 3
            agreed.add(found[0].get("address 0"))
        assert len(agreed) == 12
