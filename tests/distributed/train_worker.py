"""Trains a network on shards and writes what came out; run by torchrun, or alone.

Arguments: a folder of shards, a file for the result (.npz), and JSON with `estimator` (parameters), `streams`, and
maybe `checkpoints` and `every`; `pause`: seconds to sleep in each step, so that there is time to be killed in.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from bagwise.data.shards import Shards
from bagwise.distributed import Checkpoints, Distributed, joined
from bagwise.neural import BagNeuralClassifier


def main() -> None:
    folder, out, options = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    torch.set_num_threads(1)
    model = BagNeuralClassifier(**options["estimator"])
    kept = options.get("checkpoints")
    shards = Shards.open(folder)
    with joined() as processes:
        distributed = Distributed(
            processes,
            streams=options["streams"],
            checkpoints=None if kept is None else Checkpoints(Path(kept), options["every"]),
            tell=lambda step, steps: time.sleep(options.get("pause", 0)),
        )
        model.fit_rows(shards.encoded(shards.encoding()), distributed=distributed)
        if processes.leads:
            weights = {name: value.numpy() for name, value in model.module_.state_dict().items()}
            losses = [line["loss"] for line in model.history_ if line["stage"] == "final"]
            np.savez(out, losses=losses, **weights)


if __name__ == "__main__":
    main()
