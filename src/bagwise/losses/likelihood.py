r"""Likelihood of the reported counts, for bags of every formation in which labels given features are independent.

Given features, the count of a bag is a sum of independent labels: its probability is the likelihood where bags are
`random` or formed by `features`. Where only the rates of bags differ (`rates`), the probability of the rows given the
counts is the same function of h, as long as E[h] = p. With an `effect_variance` it is about right for `effects`, too.
"""

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from scipy.special import softmax

from bagwise import segment
from bagwise.bags import Bags
from bagwise.bags.reading import name
from bagwise.bags.weights import whole_people
from bagwise.losses.tilting import EXACT_UP_TO, LEAST_EXTRA
from bagwise.losses.tilting_classes import tilted_classes
from bagwise.losses.tilting_intervals import tilted
from bagwise.utils.parameters import AdviceError, Parameter
from bagwise.utils.sigmoid import sigmoid
from bagwise.utils.typing import Array, Booleans, Floats, Integers

_SUREST = 300.0  # log odds that stand for certainty
_LEAST = 1e-12  # of a mean prediction


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
    small bags. Declared noise adds its variance to the count's. With `prior` and `mean` it also holds E[h] to p, by

    .. math:: k_j \Bigl(p \log\frac{p}{\bar h} + (1-p) \log\frac{1-p}{1-\bar h}\Bigr)
              \approx \frac{k_j (\bar h - p)^2}{2p(1-p)}

    and :math:`k_j \sum_c p_c \log(p_c/\bar h_c)` for classes, which add up to the likelihood of the total count.

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
    value, slope = count_likelihood_gradient(scores, bags, effect_variance=effect_variance, exact_up_to=exact_up_to)
    if is_torch_array(scores) and scores.requires_grad:
        # The value and the slope are known: a line through the point hands them on to autograd.
        step = slope * (scores - scores.detach())
        step = step if step.ndim == 1 else step.sum(-1)
        value = value + segment.sum_sorted(step, bags.offsets, equal_size=bags.equal_size)  # slopes are of whole rows
    if mean is not None and prior is not None:
        value = value + _mean_part(bags.like(h), mean, prior)
    return value


def count_likelihood_gradient(
    s: Array, bags: Bags, *, effect_variance: float = 0.0, exact_up_to: int = EXACT_UP_TO
) -> tuple[Array, Array]:
    """`count_likelihood` without its mean part and without a look at the bags, and its derivative by the scores.

    Parameters
    ----------
    s : array of shape (n,) or (n, classes)
        Scores in bag order; tensors of two classes stay on their device.
    bags, effect_variance, exact_up_to
        As for `count_likelihood`.

    Returns
    -------
    loss, slope : array of shape (m,), and of the shape of s
    """
    if is_torch_array(s) and s.ndim == 1 and bags.interval is None:
        from bagwise.losses.tilting_tensors import tilted_tensors

        kept = s.detach().clamp(-_SUREST, _SUREST)
        value, slope = tilted_tensors(kept, bags, effect_variance=effect_variance, exact_up_to=exact_up_to)
        return -value, -bags.weighted(slope)
    scores = segment.to_numpy(s).astype(float)
    found = _derivatives(scores, _in_bag_order(bags), effect_variance, exact_up_to)
    return segment.as_like(-found[0], s), segment.as_like(-found[1], s)


def mean_part_gradient(size: Array, *, prior: Array, mean: Array, rest: Array | None) -> tuple[Array, Array]:
    """What E[h] = p adds to `count_likelihood` of two classes, and the derivative of its sum by the sums of bags.

    Parameters
    ----------
    size : array of shape (…, m)
        k.
    prior, mean : float or array
        p, and the estimate of E[h].
    rest : array or None
        By a sum of another bag, the mean changes with slope 1/rest; None where it does not depend on the batch.

    Returns
    -------
    loss, slope : array of shape (…, m)
    """
    loss = size * (_divergence(prior, mean) + _divergence(1 - prior, 1 - mean))
    share = 0.0 * loss if rest is None else size * (mean - prior) / (mean * (1 - mean) + _LEAST) / rest
    return loss, share.sum(-1)[..., None] - share


def predictions(h: Array, *, logits: bool = False) -> Array:
    """Predictions in [0, 1], of two classes or more.

    Parameters
    ----------
    h : array of shape (n,) or (n, classes)
        Predictions, or logits.
    logits : bool, default False
        Whether they are logits.

    Returns
    -------
    array of the shape of h
    """
    if not logits:
        return h
    if h.ndim == 1:
        return h.sigmoid() if is_torch_array(h) else sigmoid(h)
    return h.softmax(1) if is_torch_array(h) else softmax(h, axis=1)


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
    noise = bags.declared_noise
    # Effects let the true count be V(1 + τ²V) off instead of V, V its variance: as if there were less noise.
    if s.ndim == 1:
        return tilted(s, bags, extra=noise / (1 + effect_variance * bags.sum(sigmoid(s) * sigmoid(-s)))).posterior
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
    noise = bags.declared_noise
    if s.ndim == 1:
        return extra_by_predictions(sigmoid(s), bags, effect_variance) if effect_variance else noise
    extra = noise[:, None, None] * np.eye(s.shape[1])
    if effect_variance:
        spread = _spread(s, bags)
        extra = extra + effect_variance * spread @ spread
    return extra


def extra_by_predictions(h: Floats, bags: Bags, effect_variance: float) -> Floats:
    """`extra_variance` of two classes by σ(s).

    Parameters
    ----------
    h : array of shape (n,)
        σ(s) in bag order.
    bags, effect_variance
        As for `extra_variance`.

    Returns
    -------
    array of shape (m,)
    """
    noise = bags.declared_noise
    if not effect_variance:
        return noise
    effects = effect_variance * bags.sum(h * (1 - h)).astype(float) ** 2
    return noise + np.where(effects > LEAST_EXTRA, effects, 0.0)


def are_counts(bags: Bags) -> bool:
    """Whether all reports without declared noise are counts: whole numbers.

    Parameters
    ----------
    bags : Bags
        To be looked at.

    Returns
    -------
    bool
    """
    return not _reported(bags)[2].any()


def _reported(bags: Bags) -> tuple[Integers, Floats, Booleans]:
    """Sizes, counts, and where a count without noise is no whole number."""
    size = np.diff(bags.offsets) if bags.weight is None else segment.to_numpy(bags.size)
    reported = segment.per_bag(size, bags.proportion) * segment.to_numpy(bags.proportion)
    off = np.abs(reported - np.rint(reported)) > 1e-3
    off &= segment.per_bag(np.broadcast_to(whole_people(bags.weight, bags.offsets), size.shape), reported)
    if bags.noise_variance is not None:
        off &= segment.per_bag(segment.to_numpy(bags.noise_variance) == 0, reported)
    return size, reported, off


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
    size, reported, off = _reported(bags)
    if off.any():
        place, what = tuple(np.argwhere(off)[0]), "rows" if bags.weight is None else "people"
        bag = f"bag {name(bags.keys[place[0]])} of {size[place[0]]:g} {what}"
        said = f"{bag} reports a count of {reported[place]:.4g}, which is no whole number: correct it, or declare its "
        raise AdviceError(said, "noise (", Parameter("noise_variance"), ").")


def _derivatives(s: Floats, bags: Bags, effect_variance: float, exact_up_to: int) -> tuple[Floats, Floats, Floats]:
    """Log-likelihood, gradient and posterior."""
    s = np.clip(s, -_SUREST, _SUREST)
    extra = extra_variance(s, bags, effect_variance)
    if s.ndim == 1:
        found = tilted(s, bags, extra=extra, exact_up_to=exact_up_to)
        return found.log_likelihood, bags.weighted(found.gradient), found.posterior
    classes = tilted_classes(s, bags, extra=extra)
    return classes.log_likelihood, bags.weighted(classes.gradient), classes.posterior


def _to_scores(h: Array) -> Array:
    """Scores of probabilities; differentiable."""
    xp = array_namespace(h)
    least = xp.finfo(h.dtype).smallest_normal
    return xp.log(xp.clip(h, least, None)) - (xp.log(xp.clip(1 - h, least, None)) if h.ndim == 1 else 0.0)


def _mean_part(bags: Bags, mean: Array, prior: Array) -> Array:
    prior, mean = (segment.as_like(one, bags.proportion) for one in (prior, mean))
    if bags.proportion.ndim == 1:
        return bags.size * (_divergence(prior, mean) + _divergence(1 - prior, 1 - mean))
    return bags.size * _divergence(prior, mean).sum(-1)


def _divergence(p: Array, mean: Array) -> Array:
    """p log(p/mean); 0 where p is."""
    return p * (_log(p) - _log(mean))


def _log(x: Array) -> Array:
    return x.clamp(min=_LEAST).log() if is_torch_array(x) else np.log(np.maximum(x, _LEAST))


def _in_bag_order(bags: Bags) -> Bags:
    """The same reports as NumPy arrays, on rows that stand in bag order: batches know of no other."""
    noise = None if bags.noise_variance is None else segment.to_numpy(bags.noise_variance).astype(float)
    rows, proportion = np.arange(bags.n_bagged), segment.to_numpy(bags.proportion).astype(float)
    given = (np.arange(len(bags)), rows, bags.offsets, proportion, noise, len(rows))
    weight = None if bags.weight is None else segment.to_numpy(bags.weight).astype(float)
    return Bags.build(*given, interval=bags.interval, weight=weight)
