"""What a network in training minimises, and the step of back-propagation that all who train share."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bagwise.bags import Bags
from bagwise.losses import by_name
from bagwise.means import MEANS, Mean, Means, reads_sums
from bagwise.neural.batches import stretch
from bagwise.utils.parameters import Constraint, check_parameters, one_of
from bagwise.utils.typing import Array

if TYPE_CHECKING:
    from bagwise.neural.distributed.loader import Batch

MEANS_CONSTRAINT = one_of(*MEANS) | Constraint("a strategy of bagwise.means", callable)


class Objective:
    """The mean loss of a batch's bags.

    loss: a name of `bagwise.losses.LOSSES`.
    means: a name of `bagwise.means.MEANS`, or a strategy, of which a copy is used since strategies carry state.
    prior: p, a number or (classes,).
    networks: how many are trained at once, on bags of the same sizes; prior is then (networks,), and one strategy
        serves them all, its state a vector. None for one.
    """

    def __init__(self, loss: str, means: str | Means | None, prior: Array, *, networks: int | None = None) -> None:
        self.loss, self.function, self.prior, self.networks = loss, by_name(loss), prior, networks
        self.means_name = means if isinstance(means, str) else None
        if means is not None:
            check_parameters({"means": means}, {"means": MEANS_CONSTRAINT})
        self.means: Means | None = MEANS[means]() if isinstance(means, str) else copy.deepcopy(means)

    @property
    def reads_sums(self) -> bool:
        """Whether the derivative is written out: through the sums of bags alone."""
        two_classes = isinstance(self.prior, float) or self.networks is not None
        return two_classes and self.function.gradient is not None and reads_sums(self.means)

    def losses(self, logits: Tensor, bags: Bags) -> Tensor:
        """(m,) the loss of each bag, from logits in bag order; (networks, m) of several, whose bags are one list."""
        prior, means = self.prior, self.means
        if self.networks is not None:
            prior = prior.repeat_interleave(len(bags) // self.networks)
            means = None if means is None else _Each(means, bags, self.networks)
        if bags.proportion.ndim == 1:
            logits = logits.reshape(-1)
        takes_logits = self.function.takes_logits
        values = logits if takes_logits else to_predictions(logits)
        losses: Tensor = self.function(values, bags, prior=prior, means=means, logits=takes_logits)
        return losses if self.networks is None else losses.view(self.networks, -1)

    def backward(self, logits: Tensor, bags: Bags, split: Batch | None = None) -> float | Tensor:
        """Derivatives of the batch's mean loss, by back-propagation from the logits; the mean loss itself.

        logits: (n,) or (n, classes); of several networks (networks, n).
        bags: with arrays of the kind of the logits, as `BagTensors.epoch` gives them; those of several networks are one
            list; or, where `reads_sums` and bags are of one size, those of one network with proportions (networks, m).
        split: where other processes hold a part of the batch; the means over processes are then the derivatives and the
            loss of the whole batch.
        """
        by_sums = self.reads_sums and bags.proportion.ndim == (1 if self.networks is None else 2)
        if by_sums and (split is None or logits.device.type == "cpu"):
            loss, slope = self._through_sums(logits.detach(), bags, split)
            logits.backward(slope)
            return loss
        losses = self.losses(logits, bags)
        if split is None:
            value = losses.mean(-1)
            value.sum().backward()
            return value.detach()
        total, share = losses.sum(), split.processes.world / len(split.whole)
        (total * share).backward()
        return float(total.detach()) * share

    def _through_sums(self, logits: Tensor, bags: Bags, split: Batch | None) -> tuple[float | Tensor, Tensor]:
        """The mean loss, and its derivative by the logits in their shape, where the loss reads sums of bags."""
        assert self.function.gradient is not None and reads_sums(self.means)  # noqa: PT018
        prior = self.prior if self.networks is None else self.prior[:, None]
        h: Array = torch.sigmoid(logits).view(*bags.proportion.shape[:-1], -1)
        size, proportion, rows, equal = bags.size, bags.proportion, h.shape[-1], bags.equal_size
        if h.ndim == 1 and h.device.type == "cpu":  # the same lines on NumPy's arrays, which take less to get going
            h, size, proportion = h.numpy(), size.numpy(), proportion.numpy()
        if equal is not None:
            h, size = h.reshape(*proportion.shape, equal), float(equal)
        sums = bags.sum(h) if equal is None else h.sum(-1)
        if split is not None:
            sums, rows = split.gather(sums), split.whole.n_rows
            size, proportion = (part.astype(sums.dtype) for part in (split.whole.size, split.whole.proportion))
        mean, rest = self.means.of_sums(sums, size, rows)
        loss, slope = self.function.gradient(sums, size, proportion, prior=prior, mean=mean, rest=rest)
        if split is not None:
            slope = slope[split.mine] * split.processes.world  # since the mean over processes is taken
        by_logit = h * (1 - h)
        by_logit *= bags.repeat(slope) if equal is None else slope[..., None]
        return loss, torch.as_tensor(by_logit).view(logits.shape)


class _Each:
    """A means strategy applied to every network's rows: strategies treat columns one by one."""

    def __init__(self, strategy: Means, bags: Bags, networks: int) -> None:
        self.strategy, self.bags, self.networks = strategy, stretch(bags, 0, len(bags) // networks), networks

    def __call__(self, values: Tensor, bags: Bags) -> Mean:
        """The estimates of all networks, in the order of their bags."""
        estimate = self.strategy(values.view(self.networks, -1).T, self.bags)
        return Mean(self._listed(estimate.value), self._listed(estimate.variance))

    def _listed(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.broadcast_to(len(self.bags), self.networks).T.reshape(-1)


def to_predictions(logits: Tensor) -> Tensor:
    """h of logits: the sigmoid of one, the softmax of several."""
    if logits.ndim == 2 and logits.shape[1] > 1:
        return torch.softmax(logits, dim=1)
    return torch.sigmoid(logits.reshape(-1))
