"""`BagAutoClassifier` against each family alone, on Adult: it should be within half a point of the best, or better.

Default parameters; nothing in a fit sees an individual label.
"""

import sys
import time

import numpy as np

import bagwise as bw
from bagwise import datasets
from bagwise.auto import default_candidates

SIZES = (16, 64, 256, 512)
FAMILIES = {"boosting": "table", "ridge": "encoded", "network, 32": "encoded"}
FIRST_PARTITION = 720


def main(partitions: int) -> None:
    data = {"table": datasets.adult(), "encoded": datasets.adult(encoded=True)}
    split = data["table"]
    for size in SIZES:
        scores: dict[str, list[float]] = {name: [] for name in (*FAMILIES, "auto")}
        chosen, began = [], time.perf_counter()
        for seed in range(FIRST_PARTITION, FIRST_PARTITION + partitions):
            ids = bw.random_bags(len(split.X), size, random_state=seed)
            y_bag = bw.aggregate(split.y, ids)
            for name, form in FAMILIES.items():
                model = default_candidates()[name].set_params(random_state=seed).fit(data[form].X, y_bag, bags=ids)
                scores[name].append(model.score(data[form].X_test, split.y_test))
            auto = bw.BagAutoClassifier(random_state=seed).fit(split.X, y_bag, bags=ids)
            scores["auto"].append(auto.score(split.X_test, split.y_test))
            chosen.append(auto.best_name_)
        means = {name: float(np.mean(values)) for name, values in scores.items()}
        best = max(means[name] for name in FAMILIES)
        print(
            f"Adult, bags of {size:3d}, {partitions} partitions: "
            + ", ".join(f"{name} {value:.4f}" for name, value in means.items())
            + f"; auto − best {100 * (means['auto'] - best):+.2f} points (at least −0.5), chose {chosen} "
            f"({time.perf_counter() - began:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
