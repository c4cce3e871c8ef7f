"""One network in training: the only loop there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from bagwise.bags import Bags
from bagwise.neural.batches import BagTensors
from bagwise.neural.objective import Objective, to_predictions
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats, Integers

if TYPE_CHECKING:
    from bagwise.neural.distributed.loader import Batch


class Training:
    """A module, its optimizer and all that changes from step to step; the data are given to `epoch`.

    module: returns logits (n,) or (n, 1), or (n, classes); it is trained in place.
    make_optimizer: called with the parameters.
    rng: for the order of bags and, through it, for the module's own randomness such as dropout.
    average: predict with the mean of the weights over the steps of the last pass, as the paper's Algorithm 2 does.
    """

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        *,
        make_optimizer: Callable[..., torch.optim.Optimizer],
        rng: np.random.Generator,
        average: bool = False,
    ) -> None:
        self.module, self.objective = module, objective
        self.optimizer = make_optimizer(module.parameters())
        self.rng = rng
        self.noise = torch.Generator().manual_seed(int(rng.integers(2**63))).get_state()
        self.average = AveragedModel(module) if average else None

    def epoch(self, data: BagTensors, rows: int, chosen: Integers | None = None) -> float:
        """One pass over the chosen bags; the mean loss of a bag, NaN or infinite where training diverged."""
        if not self.module.training:
            self.module.train()
        if self.average is not None:
            self.average.n_averaged.zero_()
        losses, sizes = [], []
        with self._own_noise(data.device):
            for x, bags in data.epoch(self.rng, rows, chosen):
                check_time()
                losses.append(self.step(x, bags))
                sizes.append(len(bags))
                del x  # its memory serves the next batch
        return float(np.average([float(loss) for loss in losses], weights=sizes))

    def step(
        self, x: Tensor, bags: Bags, *, module: nn.Module | None = None, split: Batch | None = None
    ) -> float | Tensor:
        """One step of the optimizer; the mean loss of the batch's bags.

        module: another one with the same parameters, to go through.  split: where processes share the batch.
        """
        self.optimizer.zero_grad()
        loss = self.objective.backward((self.module if module is None else module)(x), bags, split)
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.module)
        return loss

    @torch.no_grad()
    def predict(self, X: Tensor, rows: int) -> Floats:
        """The predictions h, (n,) or (n, classes)."""
        return predict(self.reading, X, rows)

    @property
    def reading(self) -> nn.Module:
        """The module to predict with."""
        return self.module if self.average is None else self.average.module

    @contextmanager
    def _own_noise(self, device: torch.device) -> Iterator[None]:
        """Dropout and its like draw from torch's global generator: lend it a state of ours, and put its own back."""
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.set_rng_state(self.noise)
            if device.type == "cuda":
                torch.cuda.manual_seed(int(self.rng.integers(2**63)))
            yield
            self.noise = torch.get_rng_state()


def as_rows(X: Any, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    """A tensor of X, which is copied only where it must be; arrays that may not be written to must be, says torch."""
    if isinstance(X, np.ndarray) and not X.flags.writeable:
        X = X.copy()
    return torch.as_tensor(X, dtype=dtype, device=device)


def check_outputs(module: nn.Module, x: Tensor, outputs: int) -> None:
    """Raise unless the module gives as many logits per row as are needed; x: a few rows."""
    module.eval()
    with torch.no_grad():
        shape = tuple(module(x).shape)
    if shape not in ([(len(x),), (len(x), 1)] if outputs == 1 else [(len(x), outputs)]):
        wanted = "(n,) or (n, 1)" if outputs == 1 else f"(n, {outputs})"
        raise ValueError(f"module gives outputs of shape {shape} for {len(x)} rows: it must give logits {wanted}.")


@torch.no_grad()
def predict(module: nn.Module, X: Tensor, rows: int) -> Floats:
    """h of every row, (n,) or (n, classes), computed `rows` at a time; dropout and its like are off."""
    module.eval()
    return torch.cat([to_predictions(module(part)) for part in X.split(rows)]).cpu().numpy()
