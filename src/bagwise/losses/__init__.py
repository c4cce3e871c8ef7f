r"""Losses of bags: pure functions that return one value per bag and never reduce.

`LOSSES` holds them by name with one calling convention, ``loss(h, bags, prior=…, means=…)``, for training loops that
treat them alike.

>>> import numpy as np
>>> from bagwise import Bags, means
>>> bags, h = Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1]), np.array([0.4, 0.5, 0.9])
>>> LOSSES["debiased_square"](h, bags, prior=2 / 3, means=means.LeaveOneOut()).round(3)
array([0.215, 0.061])
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate, Protocol

from bagwise.bags import Bags
from bagwise.losses.counts import (
    generate_labels,
    label_generation,
    matching_cross_entropy,
    matching_square,
)
from bagwise.losses.debiased import (
    clip_threshold,
    debiased_square,
    debiased_square_gradient,
    debiased_square_of_sums,
    li_square,
    residual,
)
from bagwise.losses.label_linear import centred, components, difference, easyllp
from bagwise.losses.likelihood import count_likelihood, count_likelihood_gradient, posterior, predictions
from bagwise.losses.log_likelihood import log_likelihoods, log_likelihoods_by_each
from bagwise.means import Means
from bagwise.utils.parameters import check_parameters, one_of
from bagwise.utils.typing import Array

__all__ = [
    "LOSSES",
    "BagLoss",
    "Loss",
    "SumGradient",
    "by_name",
    "centred",
    "clip_threshold",
    "components",
    "count_likelihood",
    "count_likelihood_gradient",
    "debiased_square",
    "debiased_square_gradient",
    "debiased_square_of_sums",
    "difference",
    "easyllp",
    "generate_labels",
    "label_generation",
    "li_square",
    "log_likelihoods",
    "log_likelihoods_by_each",
    "matching_cross_entropy",
    "matching_square",
    "posterior",
    "residual",
]

Loss = Callable[Concatenate[Array, Bags, ...], Array]
"""A loss: predictions in bag order and their `Bags` in, and options by keyword; one value per bag out."""


class SumGradient(Protocol):
    """The mean loss of a batch of two classes and its derivative, where the loss reads predictions through bag sums."""

    def __call__(
        self, sums: Array, size: Array, proportion: Array, *, prior: Array, mean: Array, rest: Array | None
    ) -> tuple[Array, Array]:
        """Loss and derivative by `sums`; see `debiased_square_gradient`."""


class RowGradient(Protocol):
    """The loss of each bag and its derivative by the logits, but for what holds E[h] to p."""

    def __call__(self, s: Array, bags: Bags, *, effect_variance: float) -> tuple[Array, Array]:
        """Losses (m,) and derivatives (n,); see `count_likelihood_gradient`."""


@dataclass(frozen=True, kw_only=True)
class BagLoss:
    """A loss with what it needs to know besides predictions.

    Parameters
    ----------
    function : callable
        The loss itself.
    needs_prior : bool, default False
        Whether it takes p.
    mean_of : callable, optional
        The row function whose mean it takes; None if it takes none.
    corrects : bool, default False
        Whether it can subtract the effect of the mean's variance.
    takes_logits : bool, default False
        Whether the function has a `logits` switch.
    gradient : callable, optional
        Its derivative by the sums of bags, written out; None leaves derivatives to autograd.
    row_gradient : callable, optional
        Its derivative by the logits of rows, written out, where it is not one by sums.
    classes : bool, default True
        Whether it knows more than two classes.
    effects : bool, default False
        Whether the function takes an `effect_variance`.
    values : bool, default False
        Whether it knows real labels.
    """

    function: Loss
    needs_prior: bool = False
    mean_of: Callable[..., Array] | None = None
    corrects: bool = False
    takes_logits: bool = False
    gradient: SumGradient | None = None
    row_gradient: RowGradient | None = None
    classes: bool = True
    effects: bool = False
    values: bool = False

    def __call__(
        self, h: Array, bags: Bags, *, prior: Array | None = None, means: Means | None = None, logits: bool = False
    ) -> Array:
        """The loss of each bag.

        Parameters
        ----------
        h : array of shape (n,) or (n, classes)
            Predictions in bag order, or logits.
        bags : Bags
            The batch's bags, m of them.
        prior : float or array of shape (classes,), optional
            p, where the loss needs it.
        means : callable, optional
            A strategy of `bagwise.means`, where the loss needs a mean.
        logits : bool, default False
            Whether h are logits, where the loss takes them.

        Returns
        -------
        array of shape (m,)
        """
        if logits and not self.takes_logits:
            raise ValueError("this loss takes predictions in [0, 1]: apply the sigmoid to the logits first.")
        kind = {"logits": logits} if self.takes_logits else {}
        arguments: dict[str, Any] = dict(kind)
        if self.needs_prior:
            if prior is None:
                raise ValueError("this loss needs the prior: pass prior=bagwise.means.prior(training_bags).")
            arguments["prior"] = prior
        if self.mean_of is not None:
            if not callable(means):
                raise ValueError("this loss needs a mean: pass means=, for example bagwise.means.LeaveOneOut().")
            estimate = means(self.mean_of(h, **kind), bags)
            arguments["mean"] = estimate.value
            if self.corrects:
                arguments["mean_variance"] = estimate.variance
        return self.function(h, bags, **arguments)


def _itself(h: Array) -> Array:
    return h


LOSSES: dict[str, BagLoss] = {
    "debiased_square": BagLoss(
        function=debiased_square,
        needs_prior=True,
        mean_of=_itself,
        corrects=True,
        gradient=debiased_square_gradient,
        values=True,
    ),
    "li_square": BagLoss(function=li_square, needs_prior=True, mean_of=_itself, corrects=True, values=True),
    "matching_square": BagLoss(function=matching_square, values=True),
    "matching_cross_entropy": BagLoss(function=matching_cross_entropy),
    "easyllp": BagLoss(function=easyllp, needs_prior=True, takes_logits=True, classes=False),
    "easyllp_square": BagLoss(
        function=partial(easyllp, loss="square"), needs_prior=True, takes_logits=True, classes=False
    ),
    "centred_log": BagLoss(function=centred, needs_prior=True, mean_of=difference, takes_logits=True, classes=False),
    "centred_square": BagLoss(
        function=partial(centred, loss="square"),
        needs_prior=True,
        mean_of=partial(difference, loss="square"),
        takes_logits=True,
        classes=False,
    ),
    "count_likelihood": BagLoss(
        function=count_likelihood,
        needs_prior=True,
        mean_of=predictions,
        takes_logits=True,
        row_gradient=count_likelihood_gradient,
        effects=True,
    ),
    "label_generation": BagLoss(function=label_generation, takes_logits=True, classes=False),
}
"""Every loss by name."""


def by_name(name: str) -> BagLoss:
    """The loss of a name; an unknown one is an error that lists those there are.

    Parameters
    ----------
    name : str
        A key of `LOSSES`.

    Returns
    -------
    BagLoss
    """
    check_parameters({"loss": name}, {"loss": one_of(*LOSSES)})
    return LOSSES[name]
