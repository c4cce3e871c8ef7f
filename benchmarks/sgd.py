"""One pass of Algorithm 2 over a million bags, against the same steps as a plain Python loop."""

import time

import numpy as np

from bagwise.linear.iterates import average_iterate
from history import record

BAGS, FEATURES, LOOP = 1_000_000, 30, 50_000


def plain_loop(rows: np.ndarray, targets: np.ndarray, mean: np.ndarray, step: float, radius: float) -> np.ndarray:
    w, total = np.zeros(len(mean)), np.zeros(len(mean))
    for z, t in zip(rows, targets, strict=True):
        total += w
        w = w - 2 * step * ((z @ w - t) * z + (mean @ w - 0.5) * mean)
        norm = np.sqrt(w @ w)
        if norm > radius:
            w *= radius / norm
    return total


def main() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(BAGS, FEATURES))
    targets, mean = rows[:, 0] * 0.3 + rng.normal(size=BAGS) * 0.4, rng.normal(size=FEATURES) * 0.1
    print(f"{BAGS:,} bags × {FEATURES} features:")
    for label, radius in (("free", 10.0), ("on the ball at every step", 0.05)):
        start = time.perf_counter()
        average_iterate(
            rows, targets, mean, 0.5, weights=np.ones(BAGS), start=np.zeros(FEATURES), step=1e-3, radius=radius
        )
        ours = time.perf_counter() - start
        start = time.perf_counter()
        plain_loop(rows[:LOOP], targets[:LOOP], mean, 1e-3, radius)
        loop = (time.perf_counter() - start) * BAGS / LOOP
        print(f"  {label:<28}{ours:6.2f} s, plain loop {loop:6.2f} s: {loop / ours:.1f} times as fast")
        record("sgd", f"speed, {label}, to a plain loop", loop / ours)


if __name__ == "__main__":
    main()
