"""A process that `launch` starts by torchrun. Argument: the file that says what to do. The result: checkpoints."""

import json
import sys
from pathlib import Path

from bagwise.data.shards import Shards
from bagwise.neural import BagNeuralClassifier, BagNeuralRegressor
from bagwise.neural.distributed.torchrun import work

if __name__ == "__main__":
    place = Path(sys.argv[1])
    task = json.loads(place.read_text(encoding="utf-8"))
    kind = BagNeuralRegressor if task["values"] else BagNeuralClassifier
    estimator = kind(**task["parameters"])
    work(estimator, Shards.open(task["shards"]), place.absolute().parent, task["streams"])
