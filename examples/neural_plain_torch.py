"""
A training loop of your own
===========================

A loss of bagwise in a plain PyTorch loop: batches of whole bags, one value per bag, the mean over bags.
"""

import numpy as np
import torch

import bagwise as bw
from bagwise.losses import LOSSES
from bagwise.neural import BagBatchSampler


def main() -> float:
    """Train a network on bags of 16 rows; its accuracy on single rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(16_000, 2)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(float)
    ids = bw.random_bags(len(X), size=16, random_state=0)
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)  # all that training sees of y

    rows = torch.from_numpy(X)
    network = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    sampler = BagBatchSampler(bags, rows=1024, random_state=0)
    loss, prior, means = LOSSES["debiased_square"], bw.means.prior(bags), bw.means.Running()
    for _ in range(30):
        for batch in sampler.batches():
            optimizer.zero_grad()
            h = torch.sigmoid(network(rows[batch.order]))[:, 0]
            loss(h, batch, prior=prior, means=means).mean().backward()
            optimizer.step()

    accuracy = float(((network(rows)[:, 0] > 0).numpy() == y).mean())
    print(f"accuracy on single rows: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
