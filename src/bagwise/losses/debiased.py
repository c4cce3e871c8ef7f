r"""The debiased square loss: the square loss of single rows, estimated without bias from random bags.

It has three forms: of predictions and `Bags` (`debiased_square`); of plain arrays that broadcast, for callers that
already hold the bag sums of h (`debiased_square_of_sums`); and with its derivative by these sums
(`debiased_square_gradient`). The form of Li et al. estimates the same with more variance.
"""

import numpy as np
from array_api_compat import array_namespace

from bagwise import segment
from bagwise.bags import Bags
from bagwise.segment import per_bag
from bagwise.utils.parameters import check_parameters, number
from bagwise.utils.typing import Array


def residual(sums: Array, size: Array, proportion: Array, *, prior: Array, mean: Array) -> Array:
    r"""Centred residual of each bag, :math:`R_j = k_j(\alpha_j - p) - \sum_{i \in j} (h_i - \bar h)`.

    Parameters
    ----------
    sums : array
        Σ h over each bag. All arguments broadcast.
    size, proportion : array
        Sizes k and proportions α of the bags.
    prior, mean : float or array
        p, and an estimate of E[h].

    Returns
    -------
    array

    Examples
    --------
    >>> residual(np.array([0.9]), np.array([2]), np.array([0.5]), prior=0.5, mean=0.5)
    array([0.1])
    """
    return size * (proportion - prior) - (sums - size * mean)


def debiased_square(
    h: Array, bags: Bags, *, prior: Array, mean: Array, mean_variance: Array = 0.0, clip: Array | None = None
) -> Array:
    r"""Square loss of single rows, estimated from bags: the paper's loss.

    Let :math:`R_j = k_j(\alpha_j - p) - \sum_{i \in j} (h_i - \bar h)` be the centred residual of bag j:

    .. math:: \ell_j = R_j^2 / k_j \cdot 1\{|R_j| \le c_j\} + (\bar h - p)^2 - (k_j + 1)\,v

    Over random bags its mean is :math:`E[(y - h)^2]` and its variance does not grow with k. Labels may be 0/1, any
    real numbers, or classes (the loss is then summed over classes).

    Parameters
    ----------
    h : array of shape (n,) or (n, classes)
        Predictions in bag order.
    bags : Bags
        The batch's bags, m of them.
    prior : float or array of shape (classes,)
        p.
    mean : float or array
        Estimate :math:`\bar h` of E[h], one number or (m,); with classes one number, (classes,) or (m, classes).
    mean_variance : float or array, default 0
        v, the variance of that estimate; 0 leaves the paper's loss as it is.
    clip : float or array of shape (m,), optional
        Threshold c_j on \|R_j\|, see `clip_threshold`; None does not clip.

    Returns
    -------
    array of shape (m,)
        One value per bag; reduction is the caller's, since how bags weigh is a statistical choice.

    Examples
    --------
    >>> bags = Bags.from_rows([0.5, 0.5, 1.0, 1.0], [0, 0, 1, 1])
    >>> debiased_square(np.array([0.4, 0.5, 0.9, 0.8]), bags, prior=0.75, mean=0.65)
    array([0.015, 0.015])
    """
    bags.check_predictions(h)
    bags = bags.like(h)
    sums = bags.sum(h)
    prior, mean, mean_variance, clip = (segment.as_like(a, h) for a in (prior, mean, mean_variance, clip))
    more = {"mean_variance": mean_variance, "clip": per_bag(clip, sums) if getattr(clip, "ndim", 0) == 1 else clip}
    loss = debiased_square_of_sums(sums, per_bag(bags.size, sums), bags.proportion, prior=prior, mean=mean, **more)
    return loss if loss.ndim == 1 else loss.sum(1)


def debiased_square_of_sums(
    sums: Array,
    size: Array,
    proportion: Array,
    *,
    prior: Array,
    mean: Array,
    mean_variance: Array = 0.0,
    clip: Array | None = None,
) -> Array:
    """`debiased_square` of bag sums Σ h: all arguments are arrays or numbers that broadcast; nothing is summed.

    Parameters
    ----------
    sums, size, proportion, prior, mean : array
        As for `residual`.
    mean_variance, clip : array, optional
        As for `debiased_square`.

    Returns
    -------
    array
        One value per bag, and per class where there are any.
    """
    r = residual(sums, size, proportion, prior=prior, mean=mean)
    square = r**2 / size
    if clip is not None:
        square = square * (abs(r) <= clip)
    return square + (mean - prior) ** 2 - (size + 1) * mean_variance


def debiased_square_gradient(
    sums: Array, size: Array, proportion: Array, *, prior: Array, mean: Array, rest: Array | None
) -> tuple[Array, Array]:
    r"""Mean of `debiased_square` over a batch of two classes, and its derivative by the bag sums S.

    The loss reads h through S alone, so the derivative is one number per bag. With N rows in the batch,
    :math:`\bar h_j = (T - S_j)/(N - k_j) + \text{const}`, T the sum of all h, and L the mean of ℓ over the m bags,

    .. math:: \frac{\partial L}{\partial S_i} = -a_i + \sum_j \frac{c_j}{N - k_j} - \frac{c_i}{N - k_i}, \qquad
              a_j = \frac{2 R_j}{m k_j}, \quad c_j = k_j a_j + \frac{2 (\bar h_j - p)}{m}

    Where the mean does not depend on the batch, only −a_i is left. Autograd needs some fifty tiny operations for it,
    which cost a small network half as much again as its own work.

    Parameters
    ----------
    sums, size, proportion : array of shape (…, m)
        As for `residual`; leading axes are batches of their own.
    prior, mean : float or array
        p, and the estimate of E[h].
    rest : array or None
        N − k of each bag; None where `mean` does not depend on the batch.

    Returns
    -------
    loss, slope : array of shape (…,) and (…, m)
        The loss of each batch, and its derivative by `sums`.

    Examples
    --------
    >>> sums, size, proportion = np.array([0.9, 1.7]), np.array([2, 2]), np.array([0.5, 1.0])
    >>> loss, slope = debiased_square_gradient(sums, size, proportion, prior=0.75, mean=0.65, rest=None)
    >>> round(float(loss), 3), slope.round(3)
    (0.015, array([ 0.05, -0.05]))
    """
    twice = 2 / sums.shape[-1]
    off = mean - prior
    r = (proportion + off) * size - sums
    share = r * (twice / size)
    if rest is None:
        return (r**2 / size + off**2).mean(-1), -share
    pull = (r + off) * (twice / rest)
    return ((r * share).sum(-1) + (off * off).sum(-1) * twice) / 2, pull.sum(-1)[..., None] - pull - share


def li_square(h: Array, bags: Bags, *, prior: Array, mean: Array, mean_variance: Array = 0.0) -> Array:
    r"""Debiased square loss of Li et al. (2024), also unbiased, with a variance that grows with k.

    .. math:: \ell_j = \bigl(k_j\alpha_j - \sum_{i \in j} h_i\bigr)^2 / k_j - (k_j - 1)\bigl((\bar h - p)^2 - v\bigr)

    Parameters
    ----------
    h, bags, prior, mean, mean_variance
        As for `debiased_square`.

    Returns
    -------
    array of shape (m,)

    Examples
    --------
    >>> bags = Bags.from_rows([0.5, 0.5, 1.0, 1.0], [0, 0, 1, 1])
    >>> li_square(np.array([0.4, 0.5, 0.9, 0.8]), bags, prior=0.75, mean=0.65)
    array([-0.005,  0.035])
    """
    bags.check_predictions(h)
    bags = bags.like(h)
    prior, mean, mean_variance = (segment.as_like(a, h) for a in (prior, mean, mean_variance))
    sums = bags.sum(h)
    size = per_bag(bags.size, sums)
    loss = (size * bags.proportion - sums) ** 2 / size - (size - 1) * ((mean - prior) ** 2 - mean_variance)
    return loss if loss.ndim == 1 else loss.sum(1)


def clip_threshold(
    size: Array, *, regret: float, estimated: bool = False, noise_variance: Array | None = None
) -> Array:
    r"""Threshold on \|R_j\| of the clipped empirical risk, with :math:`\theta = \beta / (16 k^2)`.

    :math:`\sqrt{8 k \log(2/\theta)}` where p and E[h] are known, :math:`\sqrt{18 k \log(6/\theta)}` where both are
    estimated on bags set aside. A residual is beyond it with probability at most θ (the appendix of the paper writes
    E[G] ≤ θ for that, meaning E[1 − G] ≤ θ). Declared noise of variance s² on the count adds
    :math:`s \log(2/\theta) / \sqrt{2}`, exceeded by Laplace noise with probability θ/2, by normal noise less.

    Parameters
    ----------
    size : int or array of shape (m,)
        k.
    regret : float
        The target β in (0, 1].
    estimated : bool, default False
        Whether p and E[h] are estimated.
    noise_variance : float or array of shape (m,), optional
        s².

    Returns
    -------
    float or array of shape (m,)

    Examples
    --------
    >>> round(float(clip_threshold(64, regret=0.01)), 2)
    91.6
    """
    if np.min(segment.to_numpy(size)) < 1:
        raise ValueError("sizes must be at least 1: a bag without rows has no threshold.")
    check_parameters({"regret": regret}, {"regret": number(above=0, most=1)})
    xp = np if isinstance(size, (int, float)) else array_namespace(size)
    log = np.log(16 * (6 if estimated else 2) / regret) + 2 * xp.log(xp.asarray(size, dtype=xp.float64))
    threshold = xp.sqrt((18 if estimated else 8) * size * log)
    return threshold if noise_variance is None else threshold + (noise_variance / 2) ** 0.5 * log
