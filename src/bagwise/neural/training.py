"""One network in training: what it minimises, the step of back-propagation that all share, and the only loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from bagwise.bags import Bags
from bagwise.bags.pieces import stretch
from bagwise.losses import by_name
from bagwise.losses.likelihood import mean_part_gradient
from bagwise.means import MEANS, Mean, Means, reads_sums
from bagwise.neural.batches import BagTensors
from bagwise.neural.consistency import Consistency
from bagwise.neural.devices import lent_noise, seed_noise
from bagwise.neural.mixing import Mixing
from bagwise.utils.deadline import check_time
from bagwise.utils.parameters import Constraint, check_parameters, one_of
from bagwise.utils.typing import Array, Floats, Integers

if TYPE_CHECKING:
    from bagwise.neural.distributed import Batch

MEANS_CONSTRAINT = one_of(*MEANS) | Constraint("a strategy of bagwise.means", callable)


class Objective:
    """The mean loss of a batch's bags.

    loss: a name of `bagwise.losses.LOSSES`.
    means: a name of `bagwise.means.MEANS`, or a strategy, of which a copy is used since strategies carry state.
    prior: p, a number or (classes,).
    networks: how many are trained at once, on bags of the same sizes; prior is then (networks,), and one strategy
        serves them all, its state a vector. None for one.
    effect_variance: τ², for losses that know effects of bags.
    values: whether labels are real: what networks return are predictions then, not their log odds.
    """

    def __init__(
        self,
        loss: str,
        means: str | Means | None,
        prior: Array,
        *,
        networks: int | None = None,
        effect_variance: float = 0.0,
        values: bool = False,
    ) -> None:
        self.values = values
        self.loss, self.function, self.prior, self.networks = loss, by_name(loss), prior, networks
        self.effect_variance = effect_variance
        if effect_variance and self.function.effects:
            with_effects = partial(self.function.function, effect_variance=effect_variance)
            self.function = replace(self.function, function=with_effects)
        self.means_name = means if isinstance(means, str) else None
        if means is not None:
            check_parameters({"means": means}, {"means": MEANS_CONSTRAINT})
        self.means: Means | None = MEANS[means]() if isinstance(means, str) else copy.deepcopy(means)

    @property
    def reads_sums(self) -> bool:
        """Whether the derivative is written out: through the sums of bags alone."""
        return self.function.gradient is not None and self._knows_means

    @property
    def written_out(self) -> bool:
        """Whether the derivative is written out: by sums of bags, or by rows and the sums that E[h] needs."""
        return self.reads_sums or (self.function.row_gradient is not None and self._knows_means)

    @property
    def _knows_means(self) -> bool:
        """Whether the derivative of E[h] is known: it is read from sums of bags, and there are two classes."""
        return (isinstance(self.prior, float) or self.networks is not None) and reads_sums(self.means)

    def aside(self) -> Objective:
        """The same, whose estimate of E[h] goes its own way from here."""
        found = copy.copy(self)
        found.means = copy.deepcopy(self.means)
        return found

    def predictions(self, logits: Tensor) -> Tensor:
        """h of what networks return."""
        return logits.reshape(-1) if self.values else to_predictions(logits)

    def losses(self, logits: Tensor, bags: Bags) -> Tensor:
        """(m,) the loss of each bag, from logits in bag order; (networks, m) of several, whose bags are one list."""
        return self._losses(_with_offset(logits, bags), bags)

    def _losses(self, logits: Tensor, bags: Bags) -> Tensor:
        prior, means = self.prior, self.means
        if self.networks is not None:
            prior = prior.repeat_interleave(len(bags) // self.networks)
            means = None if means is None else partial(_of_each, means, self.networks)
        if bags.proportion.ndim == 1:
            logits = logits.reshape(-1)
        takes_logits = self.function.takes_logits
        values = logits if takes_logits else self.predictions(logits)
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
        logits = _with_offset(logits, bags)
        by_sums = self.reads_sums and bags.proportion.ndim == (1 if self.networks is None else 2)
        by_rows = self.written_out and not self.reads_sums
        if (by_sums or by_rows) and (split is None or logits.device.type == "cpu"):
            through = self._through_sums if by_sums else self._through_rows
            loss, slope = through(logits.detach(), bags, split)
            logits.backward(slope)
            return loss
        losses = self._losses(logits, bags)
        if split is None:
            value = losses.mean(-1)
            value.sum().backward()
            return value.detach()
        total, share = losses.sum(), split.processes.world / len(split.whole)
        (total * share).backward()
        return float(total.detach()) * share

    def apart(self, logits: Tensor, others: Tensor, bags: Bags, split: Batch | None = None) -> Tensor:
        """Mean square of what predictions of rows and of what they are changed to differ by, over the rows of a batch.

        split: as for `backward`; the mean over processes is that of the whole batch.
        """
        one, other = (self.predictions(_with_offset(each, bags)) for each in (logits, others))
        square = (one - other) ** 2
        total: Tensor = bags.weighted(square if square.ndim == 1 else square.sum(-1)).sum()
        return total / bags.n_people if split is None else total * (split.processes.world / split.whole.n_people)

    def _through_sums(self, logits: Tensor, bags: Bags, split: Batch | None) -> tuple[float | Tensor, Tensor]:
        """The mean loss, and its derivative by the logits in their shape, where the loss reads sums of bags."""
        assert self.function.gradient is not None and reads_sums(self.means)  # noqa: PT018
        prior = self.prior if self.networks is None else self.prior[:, None]
        h: Array = (logits if self.values else torch.sigmoid(logits)).reshape(*bags.proportion.shape[:-1], -1)
        size, proportion, rows, equal = bags.size, bags.proportion, bags.n_people, bags.equal_size
        if h.ndim == 1 and h.device.type == "cpu":  # the same lines on NumPy's arrays, which take less to get going
            h, size, proportion = h.numpy(), size.numpy(), proportion.numpy()
        if bags.weight is not None:  # whoever shares this batch has the same
            equal = None
        if equal is not None:
            h, size = h.reshape(*proportion.shape, equal), float(equal)
        sums = bags.sum(h) if equal is None else h.sum(-1)
        if split is not None:
            sums, rows = split.gather(sums), split.whole.n_people
            size, proportion = (part.astype(sums.dtype) for part in (split.whole.size, split.whole.proportion))
        mean, rest = self.means.of_sums(sums, size, rows)
        loss, slope = self.function.gradient(sums, size, proportion, prior=prior, mean=mean, rest=rest)
        if split is not None:
            slope = slope[split.mine] * split.processes.world  # since the mean over processes is taken
        by_row = bags.weighted(bags.repeat(slope)) if equal is None else slope[..., None]
        by_logit = 0 * h + 1 if self.values else h * (1 - h)
        by_logit *= by_row
        return loss, _as_tensor(by_logit).view(logits.shape)

    def _through_rows(self, logits: Tensor, bags: Bags, split: Batch | None) -> tuple[float | Tensor, Tensor]:
        """The same where the loss reads rows, and only E[h] sums of bags."""
        assert self.function.row_gradient is not None and reads_sums(self.means)  # noqa: PT018
        s, shape = logits.reshape(-1), (len(bags),) if self.networks is None else (self.networks, -1)
        losses, slope = self.function.row_gradient(s, bags, effect_variance=self.effect_variance)
        h = torch.sigmoid(s)
        sums, prior = bags.sum(h).view(shape), self.prior if self.networks is None else self.prior[:, None]
        m, rows, world = sums.shape[-1], bags.n_people / (self.networks or 1), 1
        size: Array = bags.size[:m]
        if self.networks is None and s.device.type == "cpu":  # NumPy takes less to get going, and sends messages
            sums, size = sums.numpy(), size.numpy()
        if split is not None:
            sums, rows, world = split.gather(sums), split.whole.n_people, split.processes.world
            size, m = split.whole.size.astype(sums.dtype), len(split.whole)
        mean, rest = self.means.of_sums(sums, size, rows)
        held, by_sums = mean_part_gradient(size, prior=prior, mean=mean, rest=rest)
        loss = losses.view(shape).sum(-1) * (world / m) + held.sum(-1) / m
        by_bag = _as_tensor(by_sums if split is None else by_sums[split.mine]).reshape(-1)
        slope = (slope + bags.weighted(h * (1 - h) * bags.repeat(by_bag))) * (world / m)
        return float(loss) if self.networks is None else loss, slope.view(logits.shape)


def _with_offset(logits: Tensor, bags: Bags) -> Tensor:
    """Log odds with the offset of rows, where they have one."""
    if bags.offset is None:
        return logits
    return logits + _as_tensor(bags.offset).to(logits.dtype).to(logits.device).view(logits.shape)


def _as_tensor(values: Array) -> Tensor:
    """A tensor as it is, or an array's numbers as one on the CPU, whatever the default device."""
    return values if isinstance(values, Tensor) else torch.from_numpy(values)


def _of_each(strategy: Means, networks: int, values: Tensor, bags: Bags) -> Mean:
    """A means strategy applied to every network's rows, in the order of their bags: it treats columns one by one."""
    one = stretch(bags, 0, len(bags) // networks)
    found = strategy(values.view(networks, -1).T, one)
    spread = (x.broadcast_to(len(one), networks).T.reshape(-1) if isinstance(x, Tensor) else x for x in found)
    return Mean(*spread)


class Training:
    """A module, its optimizer and all that changes from step to step; the data are given to `epoch`.

    module: returns logits (n,) or (n, 1), or (n, classes); it is trained in place.
    make_optimizer: called with the parameters.
    rng: for the order of bags and, through it, for the module's own randomness such as dropout.
    average: predict with the mean of the weights over the steps of the last pass, as the paper's Algorithm 2 does.
    consistency: what is asked of predictions besides, None for nothing.
    mixing: how bags are mixed besides, None for not at all.
    """

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        *,
        make_optimizer: Callable[..., torch.optim.Optimizer],
        rng: np.random.Generator,
        average: bool = False,
        consistency: Consistency | None = None,
        mixing: Mixing | None = None,
    ) -> None:
        self.module, self.objective, self.consistency, self.mixing = module, objective, consistency, mixing
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
        losses, sizes, device = [], [], data.X.device
        # Dropout and its like draw from torch's global generators: lend them states of ours.
        with lent_noise(device):
            torch.set_rng_state(self.noise)
            if device.type != "cpu":  # the order of bags is that of the CPU
                seed_noise(device, int(torch.randint(2**62, (), device="cpu")))
            for x, bags in data.epoch(self.rng, rows, chosen):
                check_time()
                losses.append(self.step(x, bags))
                sizes.append(len(bags))
                del x  # its memory serves the next batch
            self.noise = torch.get_rng_state()
        return float(np.average([float(loss) for loss in losses], weights=sizes))

    def step(
        self, x: Tensor, bags: Bags, *, module: nn.Module | None = None, split: Batch | None = None
    ) -> float | Tensor:
        """One step of the optimizer; the mean loss of the batch's bags, with what consistency and mixed bags add to it.

        module: another one with the same parameters, to go through.  split: where processes share the batch.
        """
        self.optimizer.zero_grad()
        network = self.module if module is None else module
        if self.consistency is None and self.mixing is None:
            loss = self.objective.backward(network(x), bags, split)
        else:  # one way through the network and back, as copies in other processes need it
            said = network(x if self.consistency is None else self.consistency.beside(x))
            logits = said.detach().requires_grad_()
            others = self.objective.aside() if self.mixing is not None else None
            loss = self.objective.backward(logits[: len(x)], bags, split)
            if self.consistency is not None:
                apart = self.consistency.weight * self.objective.apart(logits[: len(x)], logits[len(x) :], bags, split)
                apart.backward()
                loss = loss + apart.detach()
            if others is not None:
                loss = loss + self._of_mixed(others, logits, bags)
            said.backward(logits.grad)
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.module)
        return loss

    def _of_mixed(self, objective: Objective, logits: Tensor, bags: Bags) -> float | Tensor:
        """What mixed bags add to the loss; their derivatives are added to those of the logits."""
        assert self.mixing is not None and logits.grad is not None  # noqa: PT018
        place, mixed = self.mixing.mixed(bags, objective.prior)
        if not len(mixed):
            return 0.0
        place = place.to(logits.device)
        said = logits.detach().index_select(0, place).requires_grad_()
        loss = objective.backward(said, mixed.like(said))
        assert said.grad is not None
        logits.grad.index_add_(0, place, said.grad, alpha=self.mixing.weight)
        return self.mixing.weight * loss

    @property
    def reading(self) -> nn.Module:
        """The module to predict with."""
        return self.module if self.average is None else self.average.module


class Alone:
    """One training by itself, as a `Stack` of one network.  chosen: bags to train on.  rows: of a batch."""

    def __init__(self, training: Training, data: BagTensors, chosen: Integers, rows: int) -> None:
        self.training, self.data, self.chosen, self.rows = training, data, chosen, rows
        self.loss = 0.0

    def epoch(self) -> list[float]:
        """One pass: the mean loss of a bag. What diverged stays so."""
        finite = np.isfinite(self.loss)
        self.loss = self.training.epoch(self.data, self.rows, self.chosen) if finite else np.nan
        return [self.loss]

    def predict(self, X: Tensor) -> list[Floats]:
        """The predictions h of the network."""
        return [self.training.objective.predictions(_logits(self.training.reading, X, self.rows)).cpu().numpy()]

    def score_bags(self) -> list[Floats]:
        """The log odds, or the logits of classes, of the rows of all bags, in bag order."""
        return [score(self.training.reading, self.data.X, self.rows)]


def to_predictions(logits: Tensor) -> Tensor:
    """h of logits: the sigmoid of one, the softmax of several."""
    if logits.ndim == 2 and logits.shape[1] > 1:
        return torch.softmax(logits, dim=1)
    return torch.sigmoid(logits.reshape(-1))


def as_rows(X: Any, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    """A tensor of X, which is copied only where it must be; arrays that may not be written to must be, says torch."""
    if isinstance(X, np.ndarray) and not X.flags.writeable:
        X = X.copy()
    rows = X if isinstance(X, Tensor) else torch.as_tensor(X, dtype=dtype, device="cpu")
    # First the type: the device may not know the one of before.
    rows = rows if dtype is None else rows.to(dtype)
    return rows if device is None else rows.to(device)


def check_outputs(module: nn.Module, x: Tensor, outputs: int) -> None:
    """Raise unless the module gives as many logits per row as are needed; x: a few rows."""
    module.eval()
    with torch.no_grad():
        shape = tuple(module(x).shape)
    if shape not in ([(len(x),), (len(x), 1)] if outputs == 1 else [(len(x), outputs)]):
        wanted = "(n,) or (n, 1)" if outputs == 1 else f"(n, {outputs})"
        raise ValueError(f"module gives outputs of shape {shape} for {len(x)} rows: it must give logits {wanted}.")


def predict(module: nn.Module, X: Tensor, rows: int) -> Floats:
    """h of every row, (n,) or (n, classes), computed `rows` at a time; dropout and its like are off."""
    return to_predictions(_logits(module, X, rows)).cpu().numpy()


def score(module: nn.Module, X: Tensor, rows: int) -> Floats:
    """The log odds of every row (n,), or the logits of its classes (n, classes), computed as `predict` does."""
    logits = _logits(module, X, rows)
    return (logits if logits.ndim == 2 and logits.shape[1] > 1 else logits.reshape(-1)).cpu().numpy()


@torch.no_grad()
def _logits(module: nn.Module, X: Tensor, rows: int) -> Tensor:
    module.eval()
    return torch.cat([module(part) for part in X.split(int(rows))])
