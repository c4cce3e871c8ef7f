"""Grows trees on shards and writes what came out; run by torchrun, or beside a test.

Arguments: a folder of shards, a file for the result, and JSON with `estimator` (parameters), and maybe `checkpoints`
and `every`; `pause`: seconds to sleep after each tree, so that there is time to be killed in.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from bagwise.boosting import BagBoostingClassifier
from bagwise.data.rows import fit_codes
from bagwise.data.shards import Shards
from bagwise.distributed import Checkpoints, Distributed, joined


def grown(model: BagBoostingClassifier) -> dict[str, Any]:
    """Trees as LightGBM writes them, where predictions are moved to, and what was chosen."""
    boosters = [booster for fits in model.fits_.values() for fit in fits for booster in fit.boosters]
    texts = [booster.model_to_string(num_iteration=-1) for booster in boosters]
    trees = [text[text.index("Tree=") : text.index("end of trees")] for text in texts]
    offsets = [fit.offset.tolist() for fits in model.fits_.values() for fit in fits]
    chosen = {"stretch": model.stretch_, "trees of each": model.n_estimators_, "formation": model.formation_.name}
    return {"trees": trees, "offsets": [*offsets, model.offset_.tolist()], **chosen}


def main() -> None:
    warnings.simplefilter("ignore")
    options = json.loads(sys.argv[3])
    model, kept = BagBoostingClassifier(**options["estimator"]), options.get("checkpoints")
    checkpoints = None if kept is None else Checkpoints(Path(kept), options["every"])
    with joined() as processes:
        tell = lambda step, steps: time.sleep(options.get("pause", 0))  # noqa: E731
        how = Distributed(processes, checkpoints=checkpoints, tell=tell)
        fit_codes(model, Shards.open(sys.argv[1]), distributed=how)
        if processes.leads:
            Path(sys.argv[2]).write_text(json.dumps(grown(model)))
        processes.share(None)


if __name__ == "__main__":
    main()
