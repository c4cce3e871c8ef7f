"""What tests of networks on blocks share: tables, their shards, and trainings in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bagwise.data.shards import Shards
from bagwise.distributed import Distributed
from bagwise.neural import BagNeuralClassifier

WORKER = Path(__file__).with_name("train_worker.py")
SETTINGS: dict[str, Any] = {
    "learning_rate": 0.01,
    "max_epochs": 2,
    "early_stopping": False,
    "batch_rows": 320,
    "random_state": 1,
}
STEPS = 50  # in two passes over 8,000 rows


def made_up() -> tuple[pd.DataFrame, pd.DataFrame]:
    """8,000 rows in bags of 1 to 11 rows and some of 200, of which a batch holds two."""
    rng = np.random.default_rng(0)
    sizes = np.concatenate([rng.integers(1, 12, size=660), np.full(20, 200)])
    ids = np.repeat(np.arange(len(sizes)), rng.permutation(sizes))[:8000]
    rows = len(ids)
    events = pd.DataFrame({"bag": ids, "x": rng.normal(size=rows), "z": rng.normal(size=rows)})
    count = (events["x"] * events["z"] > 0).groupby(events["bag"]).sum()
    return events, pd.DataFrame({"bag": count.index, "count": count.to_numpy()})


def alone(shards: Shards, distributed: Distributed, **changes: Any) -> dict[str, Any]:
    """Weights and losses of a training in this process."""
    model = BagNeuralClassifier(**{**SETTINGS, **changes})
    model.fit_rows(shards.encoded(shards.encoding()), distributed=distributed)
    weights = {name: value.numpy() for name, value in model.module_.state_dict().items()}
    return {**weights, "losses": [line["loss"] for line in model.history_ if line["stage"] == "final"]}


def assert_close(one: dict[str, Any], other: dict[str, Any], **tolerance: Any) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], err_msg=name, **tolerance)


class StoppedError(Exception):
    pass


def stopping_at(step: int):
    def tell(done: int, of: int) -> None:
        if done == step:
            raise StoppedError

    return tell
