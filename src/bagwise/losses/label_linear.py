r"""Any binary loss, estimated without bias from random bags.

Every loss of a binary label is linear in the label: :math:`\ell_0(h) + y\,d(h)` with :math:`d = \ell_1 - \ell_0`.
`loss` names the pair: ``"log"``, ``"square"``, or a tuple of functions ``(loss0, loss1)`` of the predictions.
"""

from collections.abc import Callable
from typing import Literal

from array_api_compat import array_namespace

from bagwise import segment
from bagwise.bags import Bags
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Array

RowLoss = Literal["log", "square"] | tuple[Callable[[Array], Array], Callable[[Array], Array]]


def easyllp(h: Array, bags: Bags, *, prior: float, loss: RowLoss = "log", logits: bool = False) -> Array:
    r"""EasyLLP (Busa-Fekete et al., 2023): unbiased for any loss; its variance grows with k where E[d] is not 0.

    .. math:: \ell_j = \tfrac{1}{k_j} \sum_{i \in j} \ell_0(h_i)
              + \bigl(k_j(\alpha_j - p) + p\bigr)\,\tfrac{1}{k_j} \sum_{i \in j} d(h_i)

    Parameters
    ----------
    h : array of shape (n,)
        Predictions in bag order, or logits.
    bags : Bags
        The batch's bags, m of them.
    prior : float
        p.
    loss : {"log", "square"} or pair of functions, default "log"
        The loss of a row; functions of h give its values for the labels 0 and 1.
    logits : bool, default False
        Whether h are logits.

    Returns
    -------
    array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> bags = Bags.from_rows([0.5, 0.5, 1.0, 1.0], [0, 0, 1, 1])
    >>> easyllp(np.array([0.4, 0.5, 0.9, 0.8]), bags, prior=0.75, loss="square")
    array([ 0.23, -0.15])
    """
    loss0, d = components(h, loss, logits=logits)
    bags.check_predictions(h)
    batch = bags.like(loss0)
    weight = batch.size * (batch.proportion - prior) + prior
    return batch.mean(loss0) + weight * batch.mean(d)


def centred(h: Array, bags: Bags, *, prior: float, mean: Array, loss: RowLoss = "log", logits: bool = False) -> Array:
    r"""EasyLLP with the differences centred: unbiased for any loss, with a variance that does not grow with k.

    .. math:: \ell_j = \tfrac{1}{k_j} \sum_{i \in j} \ell_0(h_i)
              + (\alpha_j - p) \sum_{i \in j} \bigl(d(h_i) - \bar d\bigr) + p\,\bar d

    Parameters
    ----------
    h, bags, prior, loss, logits
        As for `easyllp`.
    mean : float or array of shape (m,)
        Estimate :math:`\bar d` of E[d(h)]: a means strategy applied to `difference`.

    Returns
    -------
    array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> bags, h = Bags.from_rows([0.5, 0.5, 1.0, 1.0], [0, 0, 1, 1]), np.array([0.4, 0.5, 0.9, 0.8])
    >>> d = difference(h, "square")
    >>> centred(h, bags, prior=0.75, mean=d.mean(), loss="square")
    array([-0.22,  0.3 ])
    """
    loss0, d = components(h, loss, logits=logits)
    bags.check_predictions(h)
    batch, mean = bags.like(loss0), segment.as_like(mean, loss0)
    return batch.mean(loss0) + (batch.proportion - prior) * (bags.sum(d) - batch.size * mean) + prior * mean


def difference(h: Array, loss: RowLoss = "log", *, logits: bool = False) -> Array:
    """The row function d = ℓ1 − ℓ0, whose mean `centred` needs.

    Parameters
    ----------
    h, loss, logits
        As for `easyllp`.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> difference(np.array([0.25]), "square")
    array([0.5])
    """
    return components(h, loss, logits=logits)[1]


def components(h: Array, loss: RowLoss = "log", *, logits: bool = False) -> tuple[Array, Array]:
    """ℓ0 and d = ℓ1 − ℓ0 of each row.

    With logits the log loss is exact however large they are; probabilities are kept one rounding unit away from 0
    and 1.

    Parameters
    ----------
    h, loss, logits
        As for `easyllp`.

    Returns
    -------
    loss0, d : array of shape (n,)
    """
    if h.ndim != 1:
        raise ValueError(f"label-linear losses take binary predictions of shape (n,), got {tuple(h.shape)}.")
    h = 1.0 * h  # hard 0/1 predictions come as whole numbers
    if isinstance(loss, tuple):
        values = sigmoid(h) if logits else h
        loss0 = loss[0](values)
        return loss0, loss[1](values) - loss0
    if loss == "square":
        values = sigmoid(h) if logits else h
        return values**2, 1 - 2 * values
    if loss == "log":
        if logits:
            return softplus(h), -h
        log1, log0 = log_probabilities(h)
        return -log0, log0 - log1
    raise ParameterError("loss", f"must be 'log', 'square' or a pair of functions (loss0, loss1), got {loss!r}.")


def log_probabilities(h: Array, *, logits: bool = False) -> tuple[Array, Array]:
    """log h and log(1 − h), finite at h = 0 and 1."""
    if logits:
        return -softplus(-h), -softplus(h)
    xp = array_namespace(h)
    eps = xp.finfo(h.dtype).eps
    inside = xp.clip(h, eps, 1 - eps)
    return xp.log(inside), xp.log1p(-inside)


def softplus(z: Array) -> Array:
    """log(1 + exp z) without overflow."""
    xp = array_namespace(z)
    return xp.logaddexp(z, xp.zeros_like(z))


def sigmoid(z: Array) -> Array:
    """1 / (1 + exp(−z)) without overflow."""
    return array_namespace(z).exp(-softplus(-z))
