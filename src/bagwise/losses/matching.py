r"""Proportion matching: compare the bag's mean prediction with its proportion. Simple, and biased for single rows."""

from __future__ import annotations

from array_api_compat import array_namespace

from bagwise.bags import Bags
from bagwise.utils.typing import Array


def matching_square(h: Array, bags: Bags) -> Array:
    r"""Squared difference of mean prediction and proportion (the paper's VanillaSQ).

    .. math:: \ell_j = (\bar\alpha_j - \alpha_j)^2, \qquad \bar\alpha_j = \tfrac{1}{k_j} \sum_{i \in j} h_i

    Parameters
    ----------
    h : array of shape (n,) or (n, classes)
        Predictions in bag order.
    bags : Bags
        The batch's bags, m of them.

    Returns
    -------
    array of shape (m,)
        One value per bag, summed over classes.

    Examples
    --------
    >>> import numpy as np
    >>> matching_square(np.array([0.4, 0.5, 0.9]), Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1]))
    array([0.0025, 0.01  ])
    """
    bags.check_predictions(h)
    square = (bags.mean(h) - bags.like(h).proportion) ** 2
    return square if square.ndim == 1 else square.sum(1)


def matching_cross_entropy(h: Array, bags: Bags) -> Array:
    r"""Cross-entropy of the bag's mean prediction (the paper's VanillaCE).

    .. math:: \ell_j = -\alpha_j \log \bar\alpha_j - (1 - \alpha_j) \log(1 - \bar\alpha_j)

    and :math:`-\sum_c \alpha_{jc} \log \bar\alpha_{jc}` for classes. Mean predictions are kept one rounding unit away
    from 0 and 1, so the loss stays finite.

    Parameters
    ----------
    h : array of shape (n,) or (n, classes)
        Predictions in bag order.
    bags : Bags
        The batch's bags, m of them.

    Returns
    -------
    array of shape (m,)
        One value per bag.

    Examples
    --------
    >>> import numpy as np
    >>> matching_cross_entropy(np.array([0.4, 0.6]), Bags.from_rows([0.5, 0.5], [0, 0])).round(4)
    array([0.6931])
    """
    bags.check_predictions(h)
    xp = array_namespace(h)
    mean = bags.mean(h)
    eps = xp.finfo(mean.dtype).eps
    mean = xp.clip(mean, eps, 1 - eps)
    proportion = bags.like(h).proportion
    if mean.ndim == 2:
        return -(proportion * xp.log(mean)).sum(1)
    return -proportion * xp.log(mean) - (1 - proportion) * xp.log1p(-mean)
