"""An epoch with the debiased loss against an epoch of plain supervision, same network; BAGWISE_DATA holds the data."""

import copy
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import bagwise as bw
from bagwise.neural import cnn, mlp
from bagwise.neural.batches import BagTensors
from bagwise.neural.training import Objective, Training
from history import record

ROWS, SIZE, RATE = 1024, 64, 1e-3


def supervised(module: torch.nn.Module, X: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    """A tight loop by hand: shuffle, gather, cross-entropy, Adam."""
    optimizer = torch.optim.Adam(module.parameters(), lr=RATE)
    module.train()

    def epoch() -> None:
        order = torch.randperm(len(X))
        for start in range(0, len(X), ROWS):
            rows = order[start : start + ROWS]
            optimizer.zero_grad()
            logits = module(X.index_select(0, rows)).view(-1)
            binary_cross_entropy_with_logits(logits, y.index_select(0, rows)).backward()
            optimizer.step()

    return epoch


def from_bags(module: torch.nn.Module, X: torch.Tensor, bags: bw.Bags, loss: str) -> Callable[[], object]:
    data = BagTensors(X[torch.from_numpy(bags.order.copy())], bags)
    training = Training(
        module,
        Objective(loss, "running", bw.means.prior(bags)),
        make_optimizer=lambda weights: torch.optim.Adam(weights, lr=RATE),
        rng=np.random.default_rng(0),
    )
    return lambda: training.epoch(data, ROWS)


def medians(runs: list[Callable[[], object]], times: int) -> list[float]:
    """Seconds of each, measured in turn."""
    seconds = np.empty((times, len(runs)))
    for line in seconds:
        for place, run in enumerate(runs):
            start = time.perf_counter()
            run()
            line[place] = time.perf_counter() - start
    return np.median(seconds[1:], axis=0).tolist()


def compare(label: str, split: bw.datasets.Split, module: torch.nn.Module, rows: int, times: int) -> None:
    rows -= rows % ROWS  # whole batches, the same number on both sides
    X = torch.from_numpy(np.asarray(split.X[:rows], dtype=np.float32))
    y = torch.from_numpy(split.y[:rows].astype(np.float32))
    ids = bw.random_bags(rows, SIZE, random_state=0)
    bags = bw.Bags.from_rows(bw.aggregate(split.y[:rows], ids), ids)
    plain = supervised(copy.deepcopy(module), X, y)
    loops = {loss: from_bags(copy.deepcopy(module), X, bags, loss) for loss in ("debiased_square", "easyllp")}
    base, *ours = medians([plain, *loops.values()], times)
    print(f"{label}, {rows:,} rows, bags of {SIZE}, {torch.get_num_threads()} threads, milliseconds per epoch:")
    print(f"  supervised cross-entropy, by hand  {1e3 * base:8.1f}")
    for loss, seconds in zip(loops, ours, strict=True):
        name = "debiased square" if loss == "debiased_square" else f"{loss}, by autograd"
        target = " (at most 1.10)" if loss == "debiased_square" else ""
        print(f"  {name:<33}  {1e3 * seconds:8.1f}  ratio {seconds / base:.2f}{target}")
        what = f"{label}, {loss}, {torch.get_num_threads()} threads, to supervised"
        record("neural", what, seconds / base, at_most=1.1 if target else None)


def main() -> None:
    adult = bw.datasets.adult(encoded=True)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        compare("Adult 108-32-1", adult, mlp(adult.X.shape[1], (32,), random_state=0), len(adult.X), 41)
    compare("MNIST, two convolutions", bw.datasets.mnist(), cnn(random_state=0), 4096, 5)


if __name__ == "__main__":
    main()
