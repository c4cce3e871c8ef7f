"""Accuracy of boosting from bags: Adult against its targets, Criteo's sample in random and in grouped bags.

Default parameters; nothing in a fit sees an individual label. Defaults were chosen on other data sets and by the
label-free risk; partitions are numbered from 700, and none of them was looked at while defaults were chosen.
"""

import sys
import time

import lightgbm as lgb
import numpy as np
from sklearn.metrics import roc_auc_score

import bagwise as bw
from bagwise import datasets

TARGETS = {16: 0.860, 64: 0.849, 256: 0.830, 512: 0.812}
FIRST_PARTITION = 700


def fitted(X, y, ids, seed):
    return bw.BagBoostingClassifier(random_state=seed).fit(X, bw.aggregate(y, ids), bags=ids)


def adult(partitions):
    data = datasets.adult()
    for size, target in TARGETS.items():
        began, scores = time.perf_counter(), []
        for seed in range(FIRST_PARTITION, FIRST_PARTITION + partitions):
            ids = bw.random_bags(len(data.X), size, random_state=seed)
            scores.append(fitted(data.X, data.y, ids, seed).score(data.X_test, data.y_test))
        seconds = (time.perf_counter() - began) / partitions
        error = np.std(scores, ddof=1) / np.sqrt(partitions)
        print(
            f"Adult, bags of {size:3d}: accuracy {np.mean(scores):.4f} ± {error:.4f} "
            f"({partitions} partitions, {seconds:.0f} s a fit); target {target:.3f}",
            flush=True,
        )


def grouped(table, size):
    """Bags of rows that are neighbours when sorted by C6, C14, C9."""
    order = np.lexsort([table[name].cat.codes for name in ("C9", "C14", "C6")])
    ids = np.full(len(table), -1)
    whole = len(table) // size * size
    ids[order[:whole]] = np.arange(whole) // size
    return ids


def criteo(seed):
    data = datasets.criteo()

    def auc(model, X):
        return roc_auc_score(data.y_test, model.predict_proba(X)[:, 1])

    ceiling = lgb.LGBMClassifier(random_state=seed, verbosity=-1).fit(data.X, data.y)
    print(f"Criteo, individual labels (LightGBM, default parameters): AUC {auc(ceiling, data.X_test):.4f}", flush=True)
    for size in (16, 64, 256):
        for name, ids in (
            ("random", bw.random_bags(len(data.X), size, random_state=seed)),
            ("grouped", grouped(data.X, size)),
        ):
            model = fitted(data.X, data.y, ids, seed)
            spread = model.predict_proba(data.X_test)[:, 1].std()
            print(
                f"Criteo, {name} bags of {size:3d}: AUC {auc(model, data.X_test):.4f}, "
                f"{' + '.join(map(str, model.n_estimators_.values()))} trees, standard deviation of h {spread:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    adult(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
    criteo(FIRST_PARTITION)
