"""Likelihood of the reported count. Valid however bags were formed, as long as it was by x alone."""

from __future__ import annotations

import math

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from bagwise import segment
from bagwise.bags import Bags
from bagwise.bags.reading import name
from bagwise.losses.label_linear import log_probabilities, sigmoid
from bagwise.utils.typing import Array, Integers

# A normal density narrower than this would exceed 1, which no probability of a count does.
_SMALLEST_VARIANCE = 1 / (2 * math.pi)
# Stands for log 0: far below any log probability, yet without the NaN gradients of −inf.
_LOG_ZERO = -1e30


def count_likelihood(h: Array, bags: Bags, *, exact_up_to: int = 64, logits: bool = False) -> Array:
    r"""Negative log-likelihood of the bag's count, which is Poisson-binomial given h.

    .. math:: \ell_j = -\log P\Bigl(\sum_{i \in j} B_i = k_j\alpha_j\Bigr), \qquad B_i \sim \mathrm{Bernoulli}(h_i)

    Exact for bags of at most `exact_up_to` rows (a convolution in logarithms); beyond that, and where noise was
    declared, the normal density with mean :math:`\sum h` and variance :math:`\sum h(1-h) + s_j^2`.

    Parameters
    ----------
    h : array of shape (n,)
        Predictions in bag order, or logits.
    bags : Bags
        The batch's bags, m of them.
    exact_up_to : int, default 64
        Rows of the largest bag that is computed exactly.
    logits : bool, default False
        Whether h are logits.

    Returns
    -------
    array of shape (m,)
        One value per bag.

    Examples
    --------
    >>> count_likelihood(np.array([0.5, 0.5]), Bags.from_rows([0.5, 0.5], [0, 0]))
    array([0.69314718])
    """
    if h.ndim != 1:
        raise ValueError(f"the count likelihood takes binary predictions of shape (n,), got {tuple(h.shape)}.")
    h = 1.0 * h  # hard 0/1 predictions come as whole numbers
    bags.check_predictions(h)
    bags.check_proportions()
    small = np.diff(bags.offsets) <= exact_up_to
    if bags.noise_variance is not None:
        small &= segment.to_numpy(bags.noise_variance) == 0
    if small.all():
        return _exact(h, bags, logits=logits)
    if not small.any():
        return _normal(h, bags, logits=logits)
    parts = [np.flatnonzero(small), np.flatnonzero(~small)]
    losses = [loss(*_part(h, bags, part), logits=logits) for loss, part in zip((_exact, _normal), parts, strict=True)]
    return array_namespace(h).concat(losses)[np.argsort(np.concatenate(parts))]


def _part(h: Array, bags: Bags, index: Integers) -> tuple[Array, Bags]:
    """Predictions and bags of the chosen bags alone."""
    places, _ = segment.take(np.arange(bags.n_bagged), bags.offsets, index)
    return h[places], bags.take(index)


def _normal(h: Array, bags: Bags, *, logits: bool) -> Array:
    xp = array_namespace(h)
    h = sigmoid(h) if logits else h
    batch = bags.like(h)
    variance = bags.sum(h * (1 - h))
    if batch.noise_variance is not None:
        variance = variance + batch.noise_variance
    variance = xp.clip(variance, _SMALLEST_VARIANCE, None)
    error = batch.size * batch.proportion - bags.sum(h)
    return 0.5 * (xp.log(2 * math.pi * variance) + error**2 / variance)


def _exact(h: Array, bags: Bags, *, logits: bool) -> Array:
    """Add one row of every bag at a time to the distribution of the counts; missing rows count 0 for certain."""
    xp = array_namespace(h)
    size = np.diff(bags.offsets)
    longest = int(size.max())
    place = bags.offsets[:-1, None] + np.arange(longest)
    inside = np.arange(longest) < size[:, None]
    log1, log0 = (
        xp.where(xp.asarray(inside, device=device(h)), values[np.where(inside, place, 0)], fill)
        for values, fill in zip(log_probabilities(h, logits=logits), (_LOG_ZERO, 0.0), strict=True)
    )
    like_h = {"dtype": h.dtype, "device": device(h)}
    nothing = xp.full((len(size), 1), _LOG_ZERO, **like_h)
    log_p = xp.zeros((len(size), 1), **like_h)  # no rows yet: the count is 0
    for i in range(longest):
        stays = xp.concat([log_p + log0[:, i : i + 1], nothing], axis=1)
        rises = xp.concat([nothing, log_p + log1[:, i : i + 1]], axis=1)
        log_p = xp.logaddexp(stays, rises)
    return -log_p[np.arange(len(size)), _counts(bags)]


def _counts(bags: Bags) -> NDArray[np.int64]:
    reported = np.diff(bags.offsets) * segment.to_numpy(bags.proportion)
    count: NDArray[np.int64] = np.rint(reported).astype(np.int64)
    off = np.abs(reported - count) > 1e-3
    if off.any():
        j = int(np.argmax(off))
        raise ValueError(
            f"bag {name(bags.keys[j])} of {bags.offsets[j + 1] - bags.offsets[j]} rows reports a count of "
            f"{reported[j]:.4g}, which is no whole number: declare the noise with noise_variance, or use another loss."
        )
    return count
