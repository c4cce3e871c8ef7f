"""A process that `launch` starts by torchrun. Argument: the file that says what to do. The result: checkpoints."""

import json
import sys
from importlib import import_module
from pathlib import Path

from bagwise.data.shards import Shards
from bagwise.distributed.torchrun import work
from bagwise.estimators import ESTIMATORS

if __name__ == "__main__":
    place = Path(sys.argv[1])
    task = json.loads(place.read_text(encoding="utf-8"))
    kind = getattr(import_module(ESTIMATORS[task["kind"]]), task["kind"])
    estimator = kind(**task["parameters"])
    work(estimator, Shards.open(task["shards"]), place.absolute().parent, task["streams"])
