r"""The debiased square loss of a batch with its derivative written out.

Autograd needs some fifty tiny operations for it, which cost a small network half as much again as its own work. The
loss of two classes reads h through the bag sums S alone, so its derivative is one number per bag. With N rows in the
batch, :math:`\bar h_j = (T - S_j)/(N - k_j)`, T the sum of all h, and the batch's loss L the mean of ℓ over its m bags,

.. math:: \frac{\partial L}{\partial S_i} = -a_i + \sum_j \frac{c_j}{N - k_j} - \frac{c_i}{N - k_i}, \qquad
          a_j = \frac{2 R_j}{m k_j}, \quad c_j = k_j a_j + \frac{2 (\bar h_j - p)}{m}

`means.Running` shifts :math:`\bar h` by a constant; `means.Known` fixes it, and then only −a_i is left.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bagwise.bags import Bags
from bagwise.means import Known, LeaveOneOut, Means, Running
from bagwise.utils.typing import Array


def covers(means: Means | None, prior: object) -> bool:
    """Whether the derivative is written out for this strategy."""
    if type(means) is Known:
        return isinstance(means.value, float) and means.variance == 0 and isinstance(prior, float)
    alone = getattr(means, "add_up", None) is None
    return type(means) in (LeaveOneOut, Running) and alone and isinstance(prior, float)


def debiased_square_step(logits: Tensor, bags: Bags, *, prior: float, means: Means) -> tuple[Any, Tensor]:
    """Mean over the batch's bags of the debiased square loss, and its derivative by the logits, in their shape.

    logits: (n,) or (n, 1) in bag order.  bags: as `BagTensors.epoch` gives them.
    """
    h: Array = torch.sigmoid(logits.detach()).view(-1)
    size, proportion = bags.size, bags.proportion
    if h.device.type == "cpu":  # the same lines on NumPy's arrays, which take less time to get going
        h, size, proportion = h.numpy(), size.numpy(), proportion.numpy()
    if bags.equal_size is not None:
        h = h.reshape(-1, bags.equal_size)
        loss, slope = of_sums(h.sum(1), float(bags.equal_size), proportion, len(logits), prior, means)
        slope = slope[:, None]
    else:
        loss, slope = of_sums(bags.sum(h), size, proportion, len(logits), prior, means)
        slope = bags.repeat(slope)
    return loss, torch.as_tensor(h * (1 - h) * slope).view(logits.shape)


def of_sums(sums: Array, size: Array, proportion: Array, rows: int, prior: Any, means: Means) -> tuple[Any, Array]:
    """The loss of a batch and its derivative by the bag sums (…, bags); leading axes are batches of their own."""
    twice = 2 / sums.shape[-1]
    if isinstance(means, Known):
        off = means.value - prior
        residual = (proportion + off) * size - sums
        return (residual**2 / size + off**2).mean(-1), -residual * (twice / size)
    rest, total = rows - size, sums.sum(-1)[..., None]
    if isinstance(means, Running):
        mean = (means.total + total - sums) / (means.weight + rest)
        means.total = means.decay * (means.total + total)
        means.weight = means.decay * (means.weight + rows)
    else:
        mean = (total - sums) / rest
    off = mean - prior
    residual = (proportion + off) * size - sums
    share = residual * (twice / size)
    pull = (residual + off) * (twice / rest)
    return ((residual * share).sum(-1) + (off * off).sum(-1) * twice) / 2, pull.sum(-1)[..., None] - pull - share


class DebiasedSquare(torch.autograd.Function):
    """The same loss for several networks at once, on batches of bags of one size."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, proportion: Tensor, size: int, prior: Tensor, means: Means) -> Tensor:
        """(networks,) from logits (networks, rows), proportion (networks, bags) and prior (networks, 1)."""
        h = torch.sigmoid(logits).view(*proportion.shape, size)
        loss, slope = of_sums(h.sum(2), float(size), proportion, logits.shape[1], prior, means)
        ctx.slope = (h * (1 - h)).mul_(slope[..., None]).view(logits.shape)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """By the logits alone."""
        return gradients[0][:, None] * ctx.slope, None, None, None, None
