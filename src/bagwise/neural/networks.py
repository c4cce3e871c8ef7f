"""Networks that return logits: one for two classes, one per class for more. No global generator is touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bagwise.losses.tilting_tensors import home_of_doubles
from bagwise.utils.parameters import check_parameters, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Floats


def mlp(
    features: int, hidden: Sequence[int] = (32,), outputs: int = 1, *, random_state: RandomState = None
) -> nn.Sequential:
    """Fully connected layers with ReLU between them; initial weights as torch draws them, from `random_state`.

    Large batches go through in pieces of about 2¹⁷ numbers a layer: what one layer has made, the next finds in the
    processor's cache.

    Parameters
    ----------
    features : int
        Columns of the input.
    hidden : sequence of int, default (32,)
        Widths of the hidden layers.
    outputs : int, default 1
        Logits per row: 1 for two classes, one per class for more.
    random_state : int, numpy.random.Generator or None
        For the weights.

    Returns
    -------
    torch.nn.Sequential
        From (n, features) to logits (n, outputs).

    Examples
    --------
    >>> mlp(108, (32,), random_state=0)(torch.zeros(5, 108)).shape
    torch.Size([5, 1])
    """
    draw = torch_generator(random_state)
    check_parameters({"features": features, "outputs": outputs}, {"features": whole(1), "outputs": whole(1)})
    for width in hidden:
        check_parameters({"hidden": width}, {"hidden": whole(1)})
    widths = [features, *hidden, outputs]
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(widths):
        layers += [_drawn(nn.Linear, wide, narrow, draw=draw), nn.ReLU()]
    return _Pieces(*layers[:-1], rows=max(1, 2**17 // max(widths)))


def cnn(
    channels: int = 1, side: int = 28, outputs: int = 1, *, dropout: float = 0.5, random_state: RandomState = None
) -> nn.Sequential:
    """The paper's network for images of `side` × `side` points: two convolutions with pooling, then one linear layer.

    The largest of four is taken before max(0, ·), not after: the same numbers from a quarter of the work. Weights keep
    the channels last in memory, and so does what is computed with them; this takes half the time on a processor.

    Parameters
    ----------
    channels, side : int, default 1 and 28
        Channels of an image, and points of a side.
    dropout : float, default 0.5
        Share of the numbers before the last layer that are dropped in training.
    outputs, random_state
        As for `mlp`.

    Returns
    -------
    torch.nn.Sequential
        From (n, channels, side, side) to logits (n, outputs).

    Examples
    --------
    >>> cnn(random_state=0)(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 1])
    """
    draw = torch_generator(random_state)
    left = ((side - 2) // 2 - 2) // 2  # points per side after both poolings
    network = _Pieces(
        _drawn(nn.Conv2d, channels, 32, 3, draw=draw),
        nn.MaxPool2d(2),
        nn.ReLU(),
        _drawn(nn.Conv2d, 32, 64, 3, draw=draw),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        _drawn(nn.Linear, 64 * left * left, outputs, draw=draw),
    )
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


class _Pieces(nn.Sequential):
    """Layers that work through a batch in pieces, whose intermediate results stay in the processor's cache."""

    def __init__(self, *layers: nn.Module, rows: int = 64) -> None:
        super().__init__(*layers)
        self.rows = rows

    def forward(self, x: Tensor) -> Tensor:
        """The same as in one go, but for the order in which dropout draws."""
        forward: Callable[[Tensor], Tensor] = super().forward
        return forward(x) if len(x) <= self.rows else torch.cat([forward(piece) for piece in x.split(self.rows)])


def check_sizes(weights: dict[str, Tensor], features: int, hidden: Sequence[int], outputs: int) -> None:
    """Raise unless the weights are those of `Standardise` and an `mlp` of such layers, one after the other."""
    sizes: dict[str, tuple[int, ...]] = {"0.mean": (features,), "0.scale": (features,)}
    for layer, (wide, narrow) in enumerate(pairwise([features, *hidden, outputs])):
        sizes |= {f"1.{2 * layer}.weight": (narrow, wide), f"1.{2 * layer}.bias": (narrow,)}
    if {name: tuple(tensor.shape) for name, tensor in weights.items()} != sizes:
        raise ValueError("the weights do not fit the module")


def torch_generator(random_state: RandomState) -> torch.Generator:
    """A torch generator of its own, seeded from `random_state`."""
    return torch.Generator().manual_seed(int(generator(random_state).integers(2**63)))


def _drawn(layer: Any, *sizes: int, draw: torch.Generator) -> Any:
    """A layer with weights and biases uniform on ±1/√(inputs), which is what torch does by default."""
    made = nn.utils.skip_init(layer, *sizes)
    bound = made.weight[0].numel() ** -0.5
    with torch.no_grad():
        made.weight.uniform_(-bound, bound, generator=draw)
        made.bias.uniform_(-bound, bound, generator=draw)
    return made


class Standardise(nn.Module):
    """Features measured from their mean, in units of their standard deviation; a constant feature becomes 0.

    The statistics are part of the model and in double precision, so that a large offset costs no digits. On a device
    that knows none they stay on the CPU, and what they make of rows goes to the device.
    """

    mean: Tensor
    scale: Tensor
    made: Tensor

    def __init__(self, mean: Floats, scale: Floats, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float64, device="cpu"))
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float64, device="cpu"))
        self.register_buffer("made", torch.empty(0, dtype=dtype, device="cpu"), persistent=False)  # of what, and where

    @classmethod
    def of(cls, X: Floats, dtype: torch.dtype, weight: Floats | None = None) -> Standardise:
        """The statistics of the rows of X, each as often as its weight says."""

        def average(values: Floats) -> Floats:
            if weight is None:
                return np.asarray(values.mean(axis=0, dtype=float))
            return np.asarray(weight @ values / weight.sum())

        mean = average(X)
        scale = np.sqrt(average((X - mean) ** 2))
        constant = scale <= 16 * np.finfo(float).eps * np.abs(mean)
        return cls(mean, np.where(constant, np.inf, scale), dtype)

    @property
    def row(self) -> Floats:
        """(features,) the mean row."""
        return np.asarray(self.mean.cpu().numpy())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Standardise:
        """What `to` and its like come to."""
        made = fn(self.made)
        if home_of_doubles(made.device) == made.device:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            return self
        super()._apply(torch.Tensor.cpu, recurse)  # type: ignore[no-untyped-call]
        self.made = made
        return self

    def forward(self, x: Tensor) -> Tensor:
        """(n, features) standardised."""
        return ((x.to(self.mean.device) - self.mean) / self.scale).to(self.made.dtype).to(self.made.device)
