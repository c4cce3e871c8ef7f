"""The log-likelihood of what each bag reports by scores: of two classes or several, of one model or of many at once."""

from collections.abc import Sequence

import numpy as np

from bagwise.bags import Bags
from bagwise.losses.likelihood import extra_variance
from bagwise.losses.tilting_classes import tilted_classes
from bagwise.losses.tilting_intervals import tilted
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats

_CLOSE = 1e-7  # of tilted counts, at which a log-likelihood is at its end: it is flat there
_AT_ONCE = 20_000  # rows: beyond, several models take as long together as one by one


def log_likelihoods(s: Floats, bags: Bags, *, effect_variance: float = 0.0) -> Floats:
    """The log-likelihood of each bag's count.

    Parameters
    ----------
    s : array of shape (n,) or (n, classes)
        Log odds, or logarithms of class probabilities, in bag order.
    bags : Bags
        The reports.
    effect_variance : float
        τ² of effects of bags.

    Returns
    -------
    array of shape (m,)
    """
    check_time()
    extra = extra_variance(s, bags, effect_variance)
    if s.ndim == 1:
        return tilted(s, bags, extra=extra, close=_CLOSE).log_likelihood
    return tilted_classes(s, bags, extra=extra).log_likelihood


def log_likelihoods_by_each(scores: Sequence[Floats], bags: Bags, *, effect_variance: float = 0.0) -> Floats:
    """The log-likelihood of each bag's count by each of several models: where rows are few, of many at once.

    Parameters
    ----------
    scores : sequence of array
        What each model says, as in `log_likelihoods`.
    bags, effect_variance
        As in `log_likelihoods`.

    Returns
    -------
    array of shape (models, m)

    Examples
    --------
    >>> bags = Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1])
    >>> np.exp(log_likelihoods_by_each([np.zeros(3), np.array([0.0, 0.0, 1.0])], bags)).round(3)
    array([[0.5  , 0.5  ],
           [0.5  , 0.731]])
    """
    step = max(_AT_ONCE // max(bags.n_bagged, 1), 1)
    found: list[Floats] = [np.zeros((0, len(bags)))]
    for place in range(0, len(scores), step):
        some = scores[place : place + step]
        each = bags if len(some) == 1 else bags.take(np.tile(np.arange(len(bags)), len(some)))
        value = log_likelihoods(np.concatenate(some), each, effect_variance=effect_variance)
        found.append(value.reshape(len(some), len(bags)))
    return np.concatenate(found)
