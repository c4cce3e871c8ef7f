r"""Estimates of the prior p and of the mean prediction E[h]; one interface.

A means strategy is a callable ``strategy(values, bags) -> Mean``: `values` (n, …) are row values in bag order, most
often predictions h, and the result is what the losses take as `mean` and `mean_variance`. Squaring an unbiased
estimate of E[h] is not unbiased: a debiased square loss gains :math:`(k+1)\,\mathrm{Var}(\hat\mu)`. The strategies
differ in whether they remove that gain, and in how small they make it.

==================  ================================================================================
`Known`             a number given beforehand (exact, or measured on data set aside: `Known.held_out`)
`LeaveOneOut`       the mean over the other bags of the batch, as in the paper's experiments; biased square
`Corrected`         the same mean, with its estimated variance, so that losses subtract the gain
`Running`           the same mean averaged with that of earlier batches: the gain shrinks by their number
==================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from array_api_compat import is_torch_array

from bagwise.bags import Bags
from bagwise.segment import per_bag
from bagwise.utils.typing import Array

__all__ = ["MEANS", "Corrected", "Known", "LeaveOneOut", "Mean", "Means", "Running", "prior"]


class Mean(NamedTuple):
    """An estimate of the mean of row values, and of the estimate's own variance (0: do not correct for it)."""

    value: Array
    variance: Array = 0.0


AddUp = Callable[[Array, int], tuple[Array, Array]]
"""Adds a sum over rows, and their number, up over all processes that share a batch; gradients pass through."""


class Means(Protocol):
    """How E[h] is estimated."""

    def __call__(self, values: Array, bags: Bags) -> Mean:
        """Estimate the mean of `values` (n, …), rows in bag order, as one number or one per bag."""


def prior(bags: Bags) -> Array:
    """The mean label over all rows of the bags, p = Σ kⱼ αⱼ / Σ kⱼ; one number, or one per class.

    >>> prior(Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1]))
    0.6666666666666666
    """
    size = per_bag(bags.size, bags.proportion)
    p = (size * bags.proportion).sum(0) / bags.n_bagged
    return float(p) if p.ndim == 0 and not is_torch_array(p) else p


@dataclass(frozen=True)
class Known:
    """The mean is given.

    >>> Known(0.5)(np.array([0.1, 0.2]), Bags.singletons([0, 1]))
    Mean(value=0.5, variance=0.0)
    """

    value: Array
    variance: Array = 0.0

    @classmethod
    def held_out(cls, values: Array) -> Known:
        """The mean of row values set aside (the paper's appendix), with its variance.

        >>> Known.held_out(np.array([0.2, 0.4]))
        Known(value=np.float64(0.30000000000000004), variance=np.float64(0.010000000000000002))
        """
        n = values.shape[0]
        if n < 2:
            raise ValueError(f"the held-out part has {n} rows: at least 2 are needed to estimate a mean on them.")
        return cls((1.0 * values).mean(0), _row_variance(values) / n)

    def __call__(self, values: Array, bags: Bags) -> Mean:
        """The given mean, whatever the values."""
        return Mean(self.value, self.variance)


@dataclass(frozen=True)
class LeaveOneOut:
    """The mean over the rows of the batch's other bags, one value per bag.

    add_up: where other processes hold bags of the same batch, counts theirs in.

    >>> bags = Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1])
    >>> LeaveOneOut()(np.array([0.1, 0.3, 0.8]), bags).value
    array([0.8, 0.2])
    """

    add_up: AddUp | None = field(default=None, repr=False, compare=False)

    def __call__(self, values: Array, bags: Bags) -> Mean:
        """Leave each bag out in turn; a batch of one bag has nothing left and is an error."""
        others, rest = _Batch(values, bags, self.add_up).others
        return Mean(others / rest)


@dataclass(frozen=True)
class Corrected:
    """Leave-one-bag-out with the variance of the estimate, Var(h)/(N − k), so that losses can subtract its effect."""

    add_up: AddUp | None = field(default=None, repr=False, compare=False)

    def __call__(self, values: Array, bags: Bags) -> Mean:
        """The leave-one-out means and their variances."""
        batch = _Batch(values, bags, self.add_up)
        others, rest = batch.others
        return Mean(others / rest, batch.variance / rest)


@dataclass
class Running:
    """Leave-one-bag-out averaged with the means of earlier batches, weighted by rows.

    The value draws on all batches seen; its gradient is that of the current batch alone, since earlier ones
    belong to earlier parameters. `decay` weighs the past down by that factor at each batch: 1 for a model that
    does not change, less for one in training. The state lives in the object: use one per training run.

    >>> running, bags = Running(decay=1.0), Bags.singletons([0.0, 1.0])
    >>> running(np.array([0.2, 0.4]), bags).value
    array([0.4, 0.2])
    >>> running(np.array([0.6, 0.8]), bags).value
    array([0.46666667, 0.4       ])
    """

    decay: float = 0.9
    add_up: AddUp | None = field(default=None, repr=False, compare=False)
    weight: float = field(default=0.0, init=False, repr=False)
    total: Array = field(default=0.0, init=False, repr=False)

    def __call__(self, values: Array, bags: Bags) -> Mean:
        """Estimate from past and present, then add the present to the past."""
        if not 0 <= self.decay <= 1:
            raise ValueError(f"decay must lie between 0 and 1, got {self.decay}.")
        batch = _Batch(values, bags, self.add_up)
        others, rest = batch.others
        current = others / rest
        blended = (self.total + others) / (self.weight + rest)
        value = current + _constant(blended - current)
        self.total = self.decay * (self.total + _constant(batch.total))
        self.weight = self.decay * (self.weight + float(batch.rows))
        return Mean(value)


MEANS: dict[str, type[LeaveOneOut] | type[Corrected] | type[Running]] = {
    "leave_one_out": LeaveOneOut,
    "corrected": Corrected,
    "running": Running,
}
"""Means strategies by name; `Known` needs a number and is built by hand."""


class _Batch:
    """Sums over a batch, of which other processes may hold a part."""

    def __init__(self, values: Array, bags: Bags, add_up: AddUp | None) -> None:
        if add_up is None and len(bags) < 2:
            raise ValueError(
                "the batch holds one bag only, so no other bag is left to estimate the mean prediction from: "
                "use larger batches, or means that are known or estimated on held-out rows."
            )
        self.values, self.bags, self.add_up = values, bags, add_up
        self.total, self.rows = self._added_up(values.sum(0))

    @property
    def others(self) -> tuple[Array, Array]:
        """Sum and number of the rows outside each bag."""
        sums = self.bags.sum(self.values)
        return self.total - sums, self.rows - per_bag(self.bags.like(self.values).size, sums)

    @property
    def variance(self) -> Array:
        """Of the values of single rows."""
        if self.add_up is None:
            return _row_variance(self.values)
        squares, rows = self._added_up(((self.values - self.total / self.rows) ** 2).sum(0))
        return squares / (rows - 1)

    def _added_up(self, total: Array) -> tuple[Array, Array]:
        rows = self.values.shape[0]
        return (total, rows) if self.add_up is None else self.add_up(total, rows)


def _row_variance(values: Array) -> Array:
    values = 1.0 * values  # hard 0/1 predictions come as whole numbers
    return ((values - values.mean(0)) ** 2).sum(0) / (values.shape[0] - 1)


def _constant(values: Array) -> Array:
    """The values without their gradient."""
    return values.detach() if is_torch_array(values) else np.asarray(values)
