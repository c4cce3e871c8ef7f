"""Logistic regression by the count likelihood against closed-form ridge, side by side; at most 15 times its time."""

import time
from collections.abc import Callable

import numpy as np
from scipy.special import expit

import bagwise as bw
from bagwise.bags import Bags
from history import record

ROWS, FEATURES, SIZE = 1_000_000, 30, 64


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(ROWS, FEATURES)), 0.3 * rng.normal(size=FEATURES)
    y = (rng.random(ROWS) < expit(X @ w - 1)).astype(float)
    ids = bw.random_bags(ROWS, SIZE, random_state=0)
    bags = Bags.from_rows(bw.aggregate(y, ids), ids)
    print(f"{ROWS:,} × {FEATURES} rows in scattered bags of {SIZE}, seconds of computing, best of 5 in turn:")
    for label, formation in (("formation told", "random"), ("formation found", "auto")):
        ridge, logistic = [], []
        for _ in range(5):
            ridge.append(
                seconds(lambda f=formation: bw.BagRidgeClassifier(formation=f, random_state=0).fit(X, bags=bags))
            )
            logistic.append(
                seconds(lambda f=formation: bw.BagLogisticClassifier(formation=f, random_state=0).fit(X, bags=bags))
            )
        if formation == "random":
            alone = min(
                seconds(lambda: bw.BagRidgeRegressor(formation="random", random_state=0).fit(X, bags=bags))
                for _ in range(5)
            )
            print(f"  ridge for real labels, without probabilities: {alone:.3f}, ratio {min(logistic) / alone:.1f}")
        ratio = min(logistic) / min(ridge)
        print(f"  {label:<16} ridge {min(ridge):.3f}  logistic {min(logistic):.3f}  ratio {ratio:.1f} (at most 15)")
        record("logistic", f"to ridge, {label}", ratio, at_most=15)


if __name__ == "__main__":
    main()
