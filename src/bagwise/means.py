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
from typing import NamedTuple, Protocol, TypeGuard

import numpy as np
from array_api_compat import is_torch_array

from bagwise.bags import Bags
from bagwise.segment import per_bag
from bagwise.utils.parameters import check_parameters, number
from bagwise.utils.typing import Array

__all__ = ["MEANS", "Corrected", "Known", "LeaveOneOut", "Mean", "Means", "Running", "prior"]


class Mean(NamedTuple):
    """An estimate of the mean of row values.

    Attributes
    ----------
    value : float or array
        The estimate, one number or one per bag.
    variance : float or array
        Of the estimate itself; 0 where losses are not to correct for it.
    """

    value: Array
    variance: Array = 0.0


_CONSTRAINTS = {"decay": number(least=0, most=1)}

AddUp = Callable[[Array, float], tuple[Array, Array]]
"""Adds a sum over rows, and how many people they are, up over all processes of a batch; gradients pass through."""


class Means(Protocol):
    """How E[h] is estimated."""

    def __call__(self, values: Array, bags: Bags) -> Mean:
        """Estimate the mean of row `values` (n, …), in bag order, of a batch of `bags`: one number or one per bag."""


class SumMeans(Means, Protocol):
    """A strategy that can also do with the sums of bags, so that derivatives may be written out."""

    def of_sums(self, sums: Array, size: Array, rows: float) -> tuple[Array, Array | None]:
        """Estimate E[h] from the `sums` of h over each bag of a batch, with their `size`, and the `rows` of the batch.

        Sums and sizes are arrays (…, m), whose leading axes are batches of their own; rows with weights are as many as
        they stand for. What comes back is the estimate for each bag, and the rows of the batch's other bags: by a sum
        of theirs the estimate changes with slope 1/rest.
        None where it does not depend on the batch.
        """


def reads_sums(means: Means | None) -> TypeGuard[SumMeans]:
    """Whether a strategy estimates one E[h] from the sums of bags, all of this process, with nothing to correct for.

    Its class must say so itself: one derived from it may estimate otherwise.
    """
    if isinstance(means, Known) and not (isinstance(means.value, float) and means.variance == 0):
        return False
    return "of_sums" in vars(type(means)) and getattr(means, "add_up", None) is None


def prior(bags: Bags) -> Array:
    """The mean label over all rows of the bags, p = Σ kⱼ αⱼ / Σ kⱼ: a float, or an array of shape (classes,).

    Examples
    --------
    >>> prior(Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1]))
    0.6666666666666666
    """
    size = per_bag(bags.size, bags.proportion)
    p = (size * bags.proportion).sum(0) / bags.n_people
    return float(p) if p.ndim == 0 and not is_torch_array(p) else p


@dataclass(frozen=True)
class Known:
    """The mean is given.

    Parameters
    ----------
    value : float or array
        E[h], or an estimate of it.
    variance : float or array, default 0
        Of that estimate; 0 for no correction.

    Examples
    --------
    >>> Known(0.5)(np.array([0.1, 0.2]), Bags.singletons([0, 1]))
    Mean(value=0.5, variance=0.0)
    """

    value: Array
    variance: Array = 0.0

    @classmethod
    def held_out(cls, values: Array) -> Known:
        """The mean of row `values` (n, …) set aside, with its variance: at least 2 rows that are not trained on.

        This is the strategy of the paper's appendix.

        Examples
        --------
        >>> Known.held_out(np.array([0.2, 0.4]))
        Known(value=np.float64(0.30000000000000004), variance=np.float64(0.010000000000000002))
        """
        n = values.shape[0]
        if n < 2:
            raise ValueError(f"the held-out part has {n} rows: at least 2 are needed to estimate a mean on them.")
        values = 1.0 * values
        mean = values.mean(0)
        return cls(mean, ((values - mean) ** 2).sum(0) / (n - 1) / n)

    def __call__(self, values: Array, bags: Bags) -> Mean:
        """The given mean, whatever the values."""
        return Mean(self.value, self.variance)

    def of_sums(self, sums: Array, size: Array, rows: float) -> tuple[Array, Array | None]:
        """The given mean, whatever the `sums` and the `size` of bags and the `rows` of the batch."""
        return self.value, None


@dataclass(frozen=True)
class LeaveOneOut:
    """The mean over the rows of the batch's other bags, one value per bag.

    Parameters
    ----------
    add_up : callable, optional
        Where other processes hold bags of the same batch, counts theirs in.

    Examples
    --------
    >>> bags = Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1])
    >>> LeaveOneOut()(np.array([0.1, 0.3, 0.8]), bags).value
    array([0.8, 0.2])
    """

    add_up: AddUp | None = field(default=None, repr=False, compare=False)

    def __call__(self, values: Array, bags: Bags) -> Mean:
        """Leave each bag out in turn; a batch of one bag has nothing left and is an error."""
        others, rest, _ = _outside(values, bags, self.add_up)
        return Mean(others / rest)

    def of_sums(self, sums: Array, size: Array, rows: float) -> tuple[Array, Array | None]:
        """The same from the `sums` and the `size` of each bag and the `rows` of the batch; see `SumMeans`."""
        rest = rows - size
        return (sums.sum(-1)[..., None] - sums) / rest, rest


@dataclass(frozen=True)
class Corrected:
    """Leave-one-bag-out with the variance of the estimate, Var(h)/(N − k), so that losses can subtract its effect.

    Parameters
    ----------
    add_up : callable, optional
        As for `LeaveOneOut`.
    """

    add_up: AddUp | None = field(default=None, repr=False, compare=False)

    def __call__(self, values: Array, bags: Bags) -> Mean:
        """The leave-one-out means and their variances."""
        others, rest, (total, rows) = _outside(values, bags, self.add_up)
        if self.add_up is None:
            squares = bags.weighted((1.0 * values - total / rows) ** 2).sum(0)
            return Mean(others / rest, squares / (rows - 1) / rest)
        squares, _ = self.add_up(bags.weighted((values - total / rows) ** 2).sum(0), bags.n_people)
        return Mean(others / rest, squares / (rows - 1) / rest)


@dataclass
class Running:
    """Leave-one-bag-out averaged with the means of earlier batches, weighted by rows.

    The value draws on all batches seen; its gradient is that of the current batch alone, since earlier ones
    belong to earlier parameters. The state lives in the object: use one per training run.

    Parameters
    ----------
    decay : float, default 0.9
        Weighs the past down by that factor at each batch: 1 for a model that does not change, less for one in training.
    add_up : callable, optional
        As for `LeaveOneOut`.

    Attributes
    ----------
    total, weight : float or array
        Sum of the values seen and their number, weighed down.

    Examples
    --------
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
        check_parameters(self, _CONSTRAINTS)
        others, rest, (total, rows) = _outside(values, bags, self.add_up)
        current = others / rest
        blended = (self.total + others) / (self.weight + rest)
        value = current + _constant(blended - current)
        self.total = self.decay * (self.total + _constant(total))
        self.weight = self.decay * (self.weight + float(rows))
        return Mean(value)

    def of_sums(self, sums: Array, size: Array, rows: float) -> tuple[Array, Array | None]:
        """The same from the `sums` and the `size` of each bag and the `rows` of the batch; see `SumMeans`."""
        rest, total = rows - size, sums.sum(-1)[..., None]
        mean = (self.total + total - sums) / (self.weight + rest)
        self.total = self.decay * (self.total + total)
        self.weight = self.decay * (self.weight + rows)
        return mean, rest


MEANS: dict[str, type[LeaveOneOut] | type[Corrected] | type[Running]] = {
    "leave_one_out": LeaveOneOut,
    "corrected": Corrected,
    "running": Running,
}
"""Means strategies by name; `Known` needs a number and is built by hand."""


def _outside(values: Array, bags: Bags, add_up: AddUp | None) -> tuple[Array, Array, tuple[Array, Array]]:
    """Sum and number of the rows outside each bag, and of all rows of the batch, of which others may hold a part."""
    if add_up is None and len(bags) < 2:
        raise ValueError(
            "the batch holds one bag only, so no other bag is left to estimate the mean prediction from: "
            "use larger batches, or means that are known or estimated on held-out rows."
        )
    total, rows = bags.weighted(values).sum(0), bags.n_people
    if add_up is not None:
        total, rows = add_up(total, rows)
    sums = bags.sum(values)
    return total - sums, rows - per_bag(bags.like(values).size, sums), (total, rows)


def _constant(values: Array) -> Array:
    """The values without their gradient."""
    return values.detach() if is_torch_array(values) else np.asarray(values)
