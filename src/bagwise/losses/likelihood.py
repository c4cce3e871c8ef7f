r"""Likelihood of the reported counts, for bags of every formation in which labels given features are independent.

Given features, the count of a bag is a sum of independent labels: its probability is the likelihood where bags are
`random` or formed by `features`. Where only the rates of bags differ (`rates`), the probability of the rows given the
counts is the same function of h, as long as E[h] = p. With an `effect_variance` it is about right for `effects`, too.
"""

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from scipy.special import expit, softmax

from bagwise import segment
from bagwise.bags import Bags
from bagwise.bags.reading import name
from bagwise.losses.tilting import EXACT_UP_TO, tilted
from bagwise.losses.tilting_classes import tilted_classes
from bagwise.utils.typing import Array, Floats

_SUREST = 300.0  # log odds that stand for certainty
_LEAST_EXTRA = 1e-9  # variance of a count below which there is none


def count_likelihood(
    h: Array,
    bags: Bags,
    *,
    prior: Array | None = None,
    mean: Array | None = None,
    effect_variance: float = 0.0,
    exact_up_to: int = EXACT_UP_TO,
    logits: bool = False,
) -> Array:
    r"""Negative log-likelihood of the bag's count, which is Poisson-binomial given h.

    .. math:: \ell_j = -\log P\Bigl(\sum_{i \in j} B_i = k_j\alpha_j\Bigr), \qquad B_i \sim \mathrm{Bernoulli}(h_i)

    Exact for bags of at most `exact_up_to` rows, by the saddlepoint formula of `bagwise.losses.tilting` beyond, where
    its error is below 0.001 of the logarithm; for several classes by that of `tilting_classes`, which is rougher for
    small bags. Declared noise adds its variance to the count's. With `prior` and `mean` the loss also holds E[h] to p,

    .. math:: \ell_j \mathrel{+}= \frac{k_j (\bar h - p)^2}{2p(1-p)}

    summed over classes with :math:`p` in place of :math:`p(1-p)`, which adds up to the likelihood of the total count.

    Parameters
    ----------
    h : array of shape (n,) or (n, classes)
        Predictions in bag order, or logits.
    bags : Bags
        The batch's bags, m of them.
    prior, mean : float or array, optional
        p and the estimate of E[h]; both or none.
    effect_variance : float, default 0
        Variance τ² of what moves the log odds of a bag's rows together; taken as :math:`\tau^2 V_j^2` of the count,
        :math:`V = \sum h(1-h)`, whose derivative is left out.
    exact_up_to : int, default 20
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

    References
    ----------
    H. E. Daniels. Saddlepoint approximations in statistics. Annals of Mathematical Statistics, 1954.
    """
    bags.check_predictions(h)
    bags.check_proportions()
    check_counts(bags)
    scores = h if logits else _to_scores(1.0 * h)
    found = _derivatives(segment.to_numpy(scores).astype(float), _in_bag_order(bags), effect_variance, exact_up_to)
    value = segment.as_like(-found[0], scores)
    if is_torch_array(scores) and scores.requires_grad:
        # The value and the slope are known: a line through the point hands them on to autograd.
        step = segment.as_like(found[1], scores) * (scores - scores.detach())
        value = value - bags.sum(step if step.ndim == 1 else step.sum(-1))
    if mean is not None and prior is not None:
        value = value + _mean_part(bags.like(h), mean, prior)
    return value


def posterior(s: Array, bags: Bags, *, effect_variance: float = 0.0) -> Floats:
    """Probability of each row's label given its score and the report of its bag.

    Parameters
    ----------
    s : array of shape (n,) or (n, classes)
        Scores (log odds, or logarithms of class probabilities) in bag order.
    bags : Bags
        Their reports.
    effect_variance : float, default 0
        As in `count_likelihood`. An effect moves all log odds of a bag alike, so that labels given their count do not
        depend on it: it matters only for how far a noised count is believed.

    Returns
    -------
    array of shape (n,) or (n, classes)
        P(y = 1), or that of each class; the rows of a bag sum to its count, where that was not noised.

    Examples
    --------
    >>> posterior(np.array([-1.0, 1.0, 3.0]), Bags.from_rows([2 / 3] * 3, [0, 0, 0])).round(2)
    array([0.13, 0.88, 0.98])
    """
    bags.check_predictions(s)
    bags.check_proportions()
    check_counts(bags)
    s, bags = np.clip(segment.to_numpy(s).astype(float), -_SUREST, _SUREST), _in_bag_order(bags)
    noise = np.zeros(len(bags)) if bags.noise_variance is None else bags.noise_variance
    # Effects let the true count be V(1 + τ²V) off instead of V, V its variance: as if there were less noise.
    if s.ndim == 1:
        return tilted(s, bags, extra=noise / (1 + effect_variance * bags.sum(expit(s) * expit(-s)))).posterior
    less = (
        np.linalg.inv(np.eye(s.shape[1]) + effect_variance * _spread(s, bags))
        if effect_variance
        else np.eye(s.shape[1])
    )
    return tilted_classes(s, bags, extra=noise[:, None, None] * less).posterior


def extra_variance(s: Floats, bags: Bags, effect_variance: float) -> Floats:
    r"""Variance of counts beyond that of independent labels: declared noise, and :math:`\tau^2 V^2` of effects.

    Parameters
    ----------
    s : array of shape (n,) or (n, classes)
        Scores in bag order.
    bags : Bags
        Whose noise is declared.
    effect_variance : float
        τ².

    Returns
    -------
    array of shape (m,) or (m, classes, classes)
    """
    noise = np.zeros(len(bags)) if bags.noise_variance is None else np.asarray(bags.noise_variance)
    if s.ndim == 1:
        effects = effect_variance * bags.sum(expit(s) * expit(-s)) ** 2
        return noise + np.where(effects > _LEAST_EXTRA, effects, 0.0)
    extra = noise[:, None, None] * np.eye(s.shape[1])
    if effect_variance:
        spread = _spread(s, bags)
        extra = extra + effect_variance * spread @ spread
    return extra


def _spread(s: Floats, bags: Bags) -> Floats:
    """(m, classes, classes) covariance of the counts of bags, labels being independent."""
    h = softmax(s, axis=1)
    return np.asarray(bags.sum(h)[:, :, None] * np.eye(s.shape[1]) - bags.sum(h[:, :, None] * h[:, None, :]))


def check_counts(bags: Bags) -> None:
    """Raise where a bag without declared noise reports a count that is no whole number.

    Parameters
    ----------
    bags : Bags
        To be looked at.
    """
    size = np.diff(bags.offsets)
    reported = segment.per_bag(size, bags.proportion) * segment.to_numpy(bags.proportion)
    off = np.abs(reported - np.rint(reported)) > 1e-3
    if bags.noise_variance is not None:
        off &= segment.per_bag(segment.to_numpy(bags.noise_variance) == 0, reported)
    if off.any():
        place = tuple(np.argwhere(off)[0])
        raise ValueError(
            f"bag {name(bags.keys[place[0]])} of {size[place[0]]} rows reports a count of {reported[place]:.4g}, which "
            "is no whole number: declare the noise with noise_variance, or use another loss."
        )


def _derivatives(s: Floats, bags: Bags, effect_variance: float, exact_up_to: int) -> tuple[Floats, Floats, Floats]:
    """Log-likelihood, gradient and posterior."""
    s = np.clip(s, -_SUREST, _SUREST)
    extra = extra_variance(s, bags, effect_variance)
    if s.ndim == 1:
        found = tilted(s, bags, extra=extra, exact_up_to=exact_up_to)
        return found.log_likelihood, found.gradient, found.posterior
    classes = tilted_classes(s, bags, extra=extra)
    return classes.log_likelihood, classes.gradient, classes.posterior


def _to_scores(h: Array) -> Array:
    """Scores of probabilities; differentiable."""
    xp = array_namespace(h)
    least = xp.finfo(h.dtype).smallest_normal
    return xp.log(xp.clip(h, least, None)) - (xp.log(xp.clip(1 - h, least, None)) if h.ndim == 1 else 0.0)


def _mean_part(bags: Bags, mean: Array, prior: Array) -> Array:
    spread = prior * (1 - prior) if bags.proportion.ndim == 1 else prior
    off = (mean - prior) ** 2 / (2 * spread)
    return bags.size * (off if bags.proportion.ndim == 1 else off.sum(-1))


def _in_bag_order(bags: Bags) -> Bags:
    """The same reports as NumPy arrays, on rows that stand in bag order: batches know of no other."""
    noise = None if bags.noise_variance is None else segment.to_numpy(bags.noise_variance).astype(float)
    rows, proportion = np.arange(bags.n_bagged), segment.to_numpy(bags.proportion).astype(float)
    return Bags.build(np.arange(len(bags)), rows, bags.offsets, proportion, noise, len(rows))
