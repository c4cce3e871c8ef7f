"""A process that `launch` starts by torchrun. Argument: the file that says what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bagwise.data.shards import Shards
from bagwise.neural import BagNeuralClassifier
from bagwise.neural.distributed.torchrun import work


def main(place: Path) -> None:
    """Train; what comes of it is the last checkpoint."""
    task = json.loads(place.read_text(encoding="utf-8"))
    estimator = BagNeuralClassifier(**task["parameters"])
    work(estimator, Shards.open(task["shards"]), place.absolute().parent, task["streams"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
