"""A loss of bagwise in a LightningModule, with a DataLoader that serves whole bags.

Where Lightning is not installed, the same class is a plain torch module and a loop of a few lines drives it.
"""

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import bagwise as bw
from bagwise.losses import LOSSES
from bagwise.neural import BagBatchSampler

try:
    import lightning
except ModuleNotFoundError:
    lightning = None

Base = torch.nn.Module if lightning is None else lightning.LightningModule


class FromBags(Base):
    """A network that learns from bags."""

    def __init__(self, sampler: BagBatchSampler) -> None:
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        self.sampler, self.loss = sampler, LOSSES["debiased_square"]
        self.prior, self.means = bw.means.prior(sampler.bags), bw.means.Running()

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """The mean loss of the batch's bags."""
        x, rows = batch
        h = torch.sigmoid(self.network(x))[:, 0]
        return self.loss(h, self.sampler.bags_of(rows), prior=self.prior, means=self.means).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.03)


def fit(model: FromBags, loader: DataLoader, epochs: int) -> None:
    """Train with Lightning, or do what it does."""
    if lightning is not None:
        quiet = {
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        # Lightning would put a sampler of its own in place of ours where it spreads over devices.
        lightning.Trainer(max_epochs=epochs, accelerator="cpu", use_distributed_sampler=False, **quiet).fit(
            model, loader
        )
        return
    optimizer = model.configure_optimizers()
    for _ in range(epochs):
        for number, batch in enumerate(loader):
            optimizer.zero_grad()
            model.training_step(batch, number).backward()
            optimizer.step()


def main() -> float:
    """Train a network on bags of 16 rows; its accuracy on single rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(8000, 2)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(float)
    ids = bw.random_bags(len(X), size=16, random_state=0)
    sampler = BagBatchSampler(bw.Bags.from_rows(bw.aggregate(y, ids), ids), rows=512, random_state=0)
    rows = torch.from_numpy(X)
    model = FromBags(sampler)
    # Each row comes with its number, from which the sampler knows the batch's bags.
    fit(model, DataLoader(TensorDataset(rows, torch.arange(len(rows))), batch_sampler=sampler), epochs=25)
    accuracy = float(((model.network(rows)[:, 0] > 0).numpy() == y).mean())
    print(f"accuracy on single rows: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
