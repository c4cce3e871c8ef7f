r"""Square losses of single rows, estimated without bias from bags.

Each loss has two forms: of predictions and `Bags`, and, for callers that already hold the bag sums of h,
of plain arrays that broadcast (the names end in ``_of_sums``).
"""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace

from bagwise import segment
from bagwise.bags import Bags
from bagwise.segment import per_bag
from bagwise.utils.typing import Array


def residual(sums: Array, size: Array, proportion: Array, *, prior: Array, mean: Array) -> Array:
    r"""Centred residual of each bag, :math:`R_j = k_j(\alpha_j - p) - \sum_{i \in j} (h_i - \bar h)`.

    sums: Σ h over each bag.  The arguments broadcast.

    >>> residual(np.array([0.9]), np.array([2]), np.array([0.5]), prior=0.5, mean=0.5)
    array([0.1])
    """
    return size * (proportion - prior) - (sums - size * mean)


def debiased_square(
    h: Array,
    bags: Bags,
    *,
    prior: Array,
    mean: Array,
    mean_variance: Array = 0.0,
    clip: Array | None = None,
) -> Array:
    r"""Square loss of single rows, estimated from bags: the paper's loss.

    Let :math:`R_j = k_j(\alpha_j - p) - \sum_{i \in j} (h_i - \bar h)` be the centred residual of bag j:

    .. math:: \ell_j = R_j^2 / k_j \cdot 1\{|R_j| \le c_j\} + (\bar h - p)^2 - (k_j + 1)\,v

    Over random bags its mean is :math:`E[(y - h)^2]` and its variance does not grow with k. Labels may be 0/1, any
    real numbers, or classes (the loss is then summed over classes).

    h: (n,) or (n, classes) predictions in bag order.  bags: the batch's Bags.  prior: p, scalar or (classes,).
    mean: estimate :math:`\bar h` of E[h], scalar or (m,); with classes scalar, (classes,) or (m, classes).
    mean_variance: v, the variance of that estimate; 0 leaves the paper's loss as it is.
    clip: threshold c_j on \|R_j\|, scalar or (m,), see `clip_threshold`; None does not clip.
    Returns (m,) one value per bag; reduction is the caller's, since how bags weigh is a statistical choice.

    >>> bags = Bags.from_rows([0.5, 0.5, 1.0, 1.0], [0, 0, 1, 1])
    >>> debiased_square(np.array([0.4, 0.5, 0.9, 0.8]), bags, prior=0.75, mean=0.65)
    array([0.015, 0.015])
    """
    bags.check_predictions(h)
    bags = bags.like(h)
    sums = bags.sum(h)
    prior, mean, mean_variance, clip = (segment.as_like(a, h) for a in (prior, mean, mean_variance, clip))
    loss = debiased_square_of_sums(
        sums,
        per_bag(bags.size, sums),
        bags.proportion,
        prior=prior,
        mean=mean,
        mean_variance=mean_variance,
        clip=per_bag(clip, sums) if getattr(clip, "ndim", 0) == 1 else clip,
    )
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
    """`debiased_square` of bag sums Σ h: all arguments are arrays or numbers that broadcast; nothing is summed."""
    r = residual(sums, size, proportion, prior=prior, mean=mean)
    square = r**2 / size
    if clip is not None:
        square = square * (abs(r) <= clip)
    return square + (mean - prior) ** 2 - (size + 1) * mean_variance


def li_square(h: Array, bags: Bags, *, prior: Array, mean: Array, mean_variance: Array = 0.0) -> Array:
    r"""Debiased square loss of Li et al. (2024), also unbiased, with a variance that grows with k.

    .. math:: \ell_j = \bigl(k_j\alpha_j - \sum_{i \in j} h_i\bigr)^2 / k_j - (k_j - 1)\bigl((\bar h - p)^2 - v\bigr)

    Arguments and result as for `debiased_square`.

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

    size: k, scalar or (m,).  regret: the target β in (0, 1].  noise_variance: s², scalar or (m,).

    >>> round(float(clip_threshold(64, regret=0.01)), 2)
    91.6
    """
    if np.min(segment.to_numpy(size)) < 1:
        raise ValueError("sizes must be at least 1: a bag without rows has no threshold.")
    if not 0 < regret <= 1:
        raise ValueError(f"regret must lie in (0, 1], got {regret}.")
    xp = np if isinstance(size, (int, float)) else array_namespace(size)
    log = np.log(16 * (6 if estimated else 2) / regret) + 2 * xp.log(xp.asarray(size, dtype=xp.float64))
    threshold = xp.sqrt((18 if estimated else 8) * size * log)
    return threshold if noise_variance is None else threshold + (noise_variance / 2) ** 0.5 * log
