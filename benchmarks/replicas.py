"""Many networks at once against the same networks one after the other, on Adult (108-32-1); BAGWISE_DATA holds it."""

import time
from collections.abc import Callable

import numpy as np
import torch

import bagwise as bw
from bagwise.neural import Replica, mlp, train_modules, train_replicas
from history import record

SIZE, EPOCHS, ROUNDS = 64, 10, 3
LOSSES = ("debiased_square", "easyllp", "li_square", "matching_square", "matching_cross_entropy")
RATES = np.logspace(-4.5, -1, 8)


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    torch.set_num_threads(2)
    split = bw.datasets.adult(encoded=True)
    X, y = np.asarray(split.X, dtype=np.float32), split.y

    def partition(seed: int) -> bw.Bags:
        ids = bw.random_bags(len(X), SIZE, random_state=seed)
        return bw.Bags.from_rows(bw.aggregate(y, ids), ids)

    shared = partition(0)
    grid = [Replica(bags=shared, loss=loss, learning_rate=rate) for loss in LOSSES for rate in RATES]
    apart = [Replica(bags=partition(seed), loss=loss, seed=seed) for seed in range(8) for loss in LOSSES]

    def make(seed: int) -> torch.nn.Module:
        return mlp(X.shape[1], (32,), random_state=seed)

    print(f"Adult, {len(X):,} × {X.shape[1]} rows, bags of {SIZE}, 2 threads, milliseconds per network and epoch:")
    for label, runs in (
        ("40 networks: 5 losses × 8 learning rates", grid),
        ("40 networks: 8 partitions × 5 losses", apart),
        ("40 networks: a partition each", [Replica(bags=partition(seed), seed=seed) for seed in range(40)]),
    ):
        few = runs[:: len(runs) // 5]  # one after the other is slow: an eighth of them is enough to time
        train_modules(X, few[:1], make, epochs=1)  # torch loads parts of itself on first use
        together, alone = [], []
        for _ in range(ROUNDS):
            together.append(seconds(lambda: train_replicas(X, runs, epochs=EPOCHS)) / len(runs))  # noqa: B023
            alone.append(seconds(lambda: train_modules(X, few, make, epochs=EPOCHS)) / len(few))  # noqa: B023
        fast, slow = np.median(together) / EPOCHS, np.median(alone) / EPOCHS
        print(
            f"  {label:<42} together {1e3 * fast:6.1f}, one by one {1e3 * slow:6.1f}: {slow / fast:.1f} times as fast"
        )
        record("replicas", f"speed, {label}, to one by one", slow / fast)


if __name__ == "__main__":
    main()
