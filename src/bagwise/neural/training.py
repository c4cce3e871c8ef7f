"""One network in training: the only loop there is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from bagwise.bags import Bags
from bagwise.losses import by_name
from bagwise.means import MEANS, Means
from bagwise.neural.batches import BagTensors
from bagwise.neural.gradients import covers, debiased_square_step
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats, Integers

Value = TypeVar("Value")


class Training:
    """A module, its optimizer and all that changes from step to step; the data are given to `epoch`.

    module: returns logits (n,) or (n, 1), or (n, classes); it is trained in place.
    loss: a name of `bagwise.losses.LOSSES`.  means: a strategy of its own, None where the loss takes none.
    prior: p, a number or (classes,).
    make_optimizer: called with the parameters.
    rng: for the order of bags and, through it, for the module's own randomness such as dropout.
    average: predict with the mean of the weights over the steps of the last pass, as the paper's Algorithm 2 does.
    means_name: the strategy's name where it was given by name: such strategies can be shared by stacked networks.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        loss: str,
        means: Means | None,
        prior: float | Floats,
        make_optimizer: Callable[..., torch.optim.Optimizer],
        rng: np.random.Generator,
        average: bool = False,
        means_name: str | None = None,
    ) -> None:
        self.module, self.loss, self.means, self.prior = module, loss, means, prior
        self.means_name = means_name
        self.optimizer = make_optimizer(module.parameters())
        self.rng = rng
        self.noise = torch.Generator().manual_seed(int(rng.integers(2**63))).get_state()
        self.average = AveragedModel(module) if average else None

    def epoch(self, data: BagTensors, rows: int, chosen: Integers | None = None) -> float:
        """One pass over the chosen bags; the mean loss of a bag, NaN or infinite where training diverged."""
        return self.over(data.epoch(self.rng, rows, chosen), data.device)

    def over(self, batches: Iterable[tuple[Tensor, Bags]], device: torch.device) -> float:
        """One pass over batches of rows and their bags; the mean loss of a bag."""
        if not self.module.training:
            self.module.train()
        if self.average is not None:
            self.average.n_averaged.zero_()
        losses, sizes = [], []
        with self._own_noise(device):
            for x, bags in batches:
                check_time()
                losses.append(self.step(x, bags))
                sizes.append(len(bags))
                del x  # its memory serves the next batch
        return float(np.average([float(loss) for loss in losses], weights=sizes))

    def step(self, x: Tensor, bags: Bags) -> float | Tensor:
        """One step of the optimizer; the mean loss of the batch's bags."""
        return self.after(lambda: self.backward(self.module(x), bags))

    def after(self, backward: Callable[[], Value]) -> Value:
        """One step of the optimizer, after what gives the parameters their derivatives, whose result is returned."""
        self.optimizer.zero_grad()
        value = backward()
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.module)
        return value

    def backward(self, logits: Tensor, bags: Bags) -> float | Tensor:
        """Derivatives of the batch's mean loss into the parameters; the loss itself."""
        if self.loss == "ours" and bags.proportion.ndim == 1 and covers(self.means, self.prior):
            value, slope = debiased_square_step(logits, bags, prior=self.prior, means=self.means)  # type: ignore[arg-type]
            logits.backward(slope)
            return value
        value = batch_loss(logits, bags, loss=self.loss, means=self.means, prior=self.prior).mean()
        value.backward()
        return value.detach()

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


def batch_loss(logits: Tensor, bags: Bags, *, loss: str, means: Means | None, prior: float | Floats) -> Tensor:
    """(m,) the loss of each bag, from logits in bag order."""
    function = by_name(loss)
    if bags.proportion.ndim == 1:
        logits = logits.view(-1)
    if function.takes_logits:
        return function(logits, bags, prior=prior, means=means, logits=True)
    return function(to_predictions(logits), bags, prior=prior, means=means)


def to_predictions(logits: Tensor) -> Tensor:
    """h of logits: the sigmoid of one, the softmax of several."""
    if logits.ndim == 2 and logits.shape[1] > 1:
        return torch.softmax(logits, dim=1)
    return torch.sigmoid(logits.reshape(-1))


@torch.no_grad()
def predict(module: nn.Module, X: Tensor, rows: int) -> Floats:
    """h of every row, (n,) or (n, classes), computed `rows` at a time; dropout and its like are off."""
    module.eval()
    return torch.cat([to_predictions(module(part)) for part in X.split(rows)]).cpu().numpy()


def own_means(means: str | Means | None) -> Means | None:
    """A strategy for one run, from a name or an object that is copied, since strategies carry state."""
    if isinstance(means, str):
        if means not in MEANS:
            raise ValueError(f"there is no means strategy called {means!r}: choose one of {', '.join(MEANS)}.")
        return MEANS[means]()
    if means is not None and not callable(means):
        raise ValueError(f"means must be a name or a strategy of bagwise.means, got {means!r}.")
    return copy.deepcopy(means)
