"""Closed-form ridge against the least it could cost: one sum over X plus a least-squares solve on the centroids."""

import time
from collections.abc import Callable

import numpy as np

import bagwise as bw
from bagwise.bags import Bags
from history import record

ROWS, FEATURES, SIZE = 1_000_000, 30, 64


def best_of(run: Callable[[], object], times: int = 7) -> float:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, FEATURES))
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)
    ids = bw.random_bags(ROWS, SIZE, random_state=0)
    y_bag = bw.aggregate(y, ids)
    bags = Bags.from_rows(y_bag, ids)
    centroids = bags.sum_table(X) / np.sqrt(SIZE)
    targets = np.sqrt(SIZE) * bags.proportion

    column_sum = best_of(lambda: X.sum(axis=0))
    least_squares = best_of(lambda: np.linalg.lstsq(centroids, targets, rcond=None))
    fixed = best_of(lambda: bw.BagRidgeClassifier(alphas=0.1, scaling=1.0).fit(X, bags=bags))
    chosen = best_of(lambda: bw.BagRidgeClassifier(random_state=0).fit(X, bags=bags))
    indexing = best_of(lambda: Bags.from_rows(y_bag, ids))
    unit = column_sum + least_squares
    print(f"{ROWS:,} × {FEATURES} rows in scattered bags of {SIZE}, seconds:")
    print(f"  X.sum(axis=0)                       {column_sum:.4f}")
    print(f"  lstsq on the centroids              {least_squares:.4f}")
    print(f"  ridge, one penalty                  {fixed:.4f}  ratio {fixed / unit:.2f}")
    print(f"  ridge, penalty by cross-validation  {chosen:.4f}  ratio {chosen / unit:.2f}")
    print(f"  (indexing ids into bags, once       {indexing:.4f})")
    ratio = chosen / (3 * column_sum + least_squares)
    print(f"ratio to 3 × sum + solve: {ratio:.2f} (at most 1)")
    record("ridge", "to 3 × column sums + solve", ratio, at_most=1)


if __name__ == "__main__":
    main()
