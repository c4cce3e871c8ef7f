"""Log odds, and logarithms of class probabilities: those of the mean label, and how to bring theirs to it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import log_softmax, logit, logsumexp, softmax

from bagwise.bags import Bags
from bagwise.losses.likelihood import extra_variance
from bagwise.losses.tilting_classes import tilted_classes
from bagwise.losses.tilting_intervals import tilted
from bagwise.utils.sigmoid import sigmoid
from bagwise.utils.typing import Floats

LEAST = 1e-6
"""What probabilities that are compared are kept above, and as far below 1."""

SUREST = 30.0
"""Log odds beyond which a probability would be rounded to 0 or 1."""

_SMALLEST_PRIOR = 1e-9
_STEPS = 50
_FARTHEST, _CLOSE_OF_REPORTS = 2.0, 1e-5  # steps of a shift that hidden counts follow
_STEEPER = 10.0  # than its slope without higher terms
_CLOSE_PRIOR = 1e-6  # in units of log-likelihood
_STEPS_OF_CLASSES, _CLOSE_OF_CLASSES = 200, 1e-9


def prior_of(bags: Bags) -> float:
    """p, kept away from 0 and 1, where no score is finite; a noised count says the less of it the more noise it has.

    Parameters
    ----------
    bags : Bags
        Of labels 0 and 1.

    Returns
    -------
    float
    """
    count, weight = bags.size * bags.proportion, np.ones(len(bags))
    p = float(np.clip(count.sum() / bags.n_people, _SMALLEST_PRIOR, 1 - _SMALLEST_PRIOR))
    if bags.noise_variance is not None and bags.noise_variance.any():
        for _ in range(2):
            weight = 1 / (1 + bags.noise_variance / (bags.size * p * (1 - p)))
            p = float(np.clip((weight * count).sum() / (weight * bags.size).sum(), 1e-3, 1 - 1e-3))
    return p


def prior_of_classes(bags: Bags) -> Floats:
    """p of each class, all above 0 and adding up to 1; noised counts say the less of it the more noise they have.

    Parameters
    ----------
    bags : Bags
        Of several classes.

    Returns
    -------
    array of shape (classes,)
    """
    count, weight = bags.size[:, None] * bags.proportion, np.ones(len(bags))
    p = np.maximum(count.sum(axis=0), _SMALLEST_PRIOR)
    if bags.noise_variance is not None and bags.noise_variance.any():
        for _ in range(2):
            spread = bags.size * (1 - ((p / p.sum()) ** 2).sum()) / len(p)  # of a count, on average
            weight = 1 / (1 + bags.noise_variance / np.maximum(spread, _SMALLEST_PRIOR))
            p = np.maximum(weight @ count, _SMALLEST_PRIOR)
    return np.asarray(p / p.sum())


class Rows(Protocol):
    """Rows of which means are taken; others than those that are given may be held elsewhere."""

    def average(self, values: Floats) -> float:
        """The mean of values over all rows, as each counts."""

    def ends(self, values: Floats) -> tuple[float, float]:
        """The least and the greatest of all values."""


@dataclass(frozen=True, eq=False)
class _Weighted:
    """The rows that are given, and no others.  weight: (n,) what each counts; None where they are alike."""

    weight: Floats | None

    def average(self, values: Floats) -> float:
        return float(values.mean() if self.weight is None else (self.weight / self.weight.sum()) @ values)

    def ends(self, values: Floats) -> tuple[float, float]:
        return float(values.min()), float(values.max())


def shift_to(
    prior: float,
    s: Floats,
    *,
    weight: Floats | None = None,
    start: float | None = None,
    close: float = 1e-10,
    rows: Rows | None = None,
) -> float:
    """The b for which the mean of σ(s + b) is the prior.

    Parameters
    ----------
    prior : float
        p.
    s : array of shape (n,)
        Log odds.
    weight : array of shape (n,), optional
        What each row counts in the mean.
    start : float, optional
        About where b is.
    close : float
        How close to the prior the mean comes, of p(1 − p), before a last step of Newton's.
    rows : Rows, optional
        What means are taken over, where not over the scores alone by their weights.

    Returns
    -------
    float

    Examples
    --------
    >>> round(shift_to(0.5, np.array([-1.0, 1.0])), 6)
    0.0
    """
    s = np.asarray(s, dtype=float)  # single precision has no mean as close
    return centred(prior, s, weight=weight, start=start, close=close, rows=rows)[0]


def centred(
    prior: float,
    s: Floats,
    *,
    weight: Floats | None = None,
    start: float | None = None,
    close: float = 1e-10,
    rows: Rows | None = None,
) -> tuple[float, Floats]:
    """`shift_to`, and the predictions σ(s + b), to first order of the last step.

    Parameters
    ----------
    prior, s, weight, start, close, rows
        As for `shift_to`; s may be in single precision where the mean need not come very close.

    Returns
    -------
    float, array of shape (n,)
    """
    mean = (rows := rows or _Weighted(weight)).average
    least, most = rows.ends(s)
    low, high = float(logit(prior) - most), float(logit(prior) - least)
    b = float(np.clip(logit(prior) - mean(s) if start is None else start, low, high))
    h, short = s, np.sqrt(close)
    for _ in range(_STEPS):
        h = sigmoid(s + s.dtype.type(b))
        spread = h * (1 - h)
        over, slope = mean(h) - prior, mean(spread)
        low, high = (low, b) if over > 0 else (b, high)
        moved = b - over / slope if slope > 0 else np.inf
        inside = low < moved < high
        if inside and (abs(over) <= close * prior * (1 - prior) or abs(moved - b) <= short):
            return moved, h + s.dtype.type(moved - b) * spread  # a short step squares what is missing
        if abs(over) <= close * prior * (1 - prior):
            break
        b = moved if inside else (low + high) / 2
    return b, h


def shift_to_reports(
    prior: float,
    s: Floats,
    bags: Bags,
    *,
    effect_variance: float = 0.0,
    start: float | None = None,
    tilt: Floats | None = None,
) -> float:
    r"""The b for which σ(s + b) adds up to what bags report; where they report counts, as `shift_to`.

    Counts that are hidden are those expected of them given s + b, so that p follows b:
    :math:`\sum_i \sigma(s_i + b) = \sum_j E[c_j]`.

    Parameters
    ----------
    prior : float
        p, as far as it is known without scores.
    s : array of shape (n,)
        Log odds in bag order.
    bags : Bags
        Their bags.
    effect_variance : float
        τ² of effects of bags.
    start : float, optional
        About where b is.
    tilt : array of shape (m,), optional
        About where the tilts of bags are.

    Returns
    -------
    float

    Examples
    --------
    >>> bags = Bags.from_rows(np.zeros(8), [0, 0, 0, 0, 1, 1, 1, 1]).with_intervals([1, 0], [1, 4])
    >>> round(shift_to_reports(0.5, np.zeros(8), bags), 3) == round(float(logit(0.25)), 3)  # one of two says nothing
    True
    """
    if bags.interval is None or not bags.interval.open.any():
        return shift_to(prior, s, weight=bags.weight, start=start)
    b = shift_to(prior, s, weight=bags.weight) if start is None else start
    unknown = np.flatnonzero(bags.interval.open)
    some, inside = bags.take(unknown), bags.repeat(bags.interval.open)
    hidden, shown = s[inside], s[~inside]
    weight = np.ones(len(shown)) if bags.weight is None else bags.weight[~inside]
    tilts = None if tilt is None else tilt[unknown]
    counted = float((bags.size * bags.proportion)[~bags.interval.open].sum())
    last: tuple[float, float] | None = None
    for _ in range(_STEPS):
        there, h = hidden + b, sigmoid(shown + b)
        found = tilted(there, some, extra=extra_variance(there, some, effect_variance), start=tilts, value=False)
        expected, tilts = found.prediction, found.tilt
        total = float(weight @ h)
        gap = counted - total + float(some.sum(found.posterior - expected).sum())
        settled = float(found.settled(some) @ some.sum(expected * (1 - expected)))
        slope = max(total - float(weight @ h**2) + settled, 1e-9)
        if last is not None and b != last[0]:  # what it was on the way here, unless that is mere rounding
            along = (last[1] - gap) / (b - last[0])
            slope = along if slope < _STEEPER * along and along < _STEEPER * slope else slope
        last, step = (b, gap), gap / slope
        b += min(max(step, -_FARTHEST), _FARTHEST)
        if abs(step) < _CLOSE_OF_REPORTS:
            break
    return b


def shift_to_classes(prior: Floats, s: Floats, *, weight: Floats | None = None) -> Floats:
    """What to add to logarithms of class probabilities so that the means of their softmax are the prior.

    Parameters
    ----------
    prior : array of shape (classes,)
        p of each class, adding up to 1.
    s : array of shape (n, classes)
        Logarithms of probabilities, up to a number for each row.
    weight : array of shape (n,), optional
        What each row counts in the means.

    Returns
    -------
    array of shape (classes,)

    Examples
    --------
    >>> s = np.array([[2.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    >>> softmax(s + shift_to_classes(np.array([0.5, 0.3, 0.2]), s), axis=1).mean(axis=0).round(6)
    array([0.5, 0.3, 0.2])
    """
    shift = np.log(prior)
    for _ in range(_STEPS_OF_CLASSES):
        mean = np.average(softmax(s + shift, axis=1), axis=0, weights=weight)
        if np.abs(mean - prior).max() < _CLOSE_OF_CLASSES:
            break
        shift = shift + np.log(prior / np.maximum(mean, _SMALLEST_PRIOR))
    return np.asarray(shift - logsumexp(shift))


def shift_to_class_reports(prior: Floats, s: Floats, bags: Bags) -> Floats:
    """What to add to logarithms of class probabilities so that they add up to what bags report.

    Counts that are hidden are those expected of them; where all are known, as `shift_to_classes`.

    Parameters
    ----------
    prior : array of shape (classes,)
        p, as far as it is known without scores.
    s : array of shape (n, classes)
        Logarithms of probabilities in bag order, up to a number for each row.
    bags : Bags
        Their bags.

    Returns
    -------
    array of shape (classes,)

    Examples
    --------
    >>> bags = Bags.from_rows(np.zeros((8, 3)), [0, 0, 0, 0, 1, 1, 1, 1])
    >>> bags = bags.with_intervals([[2, 1, 1], [0, 0, 0]], [[2, 1, 1], [4, 4, 4]])
    >>> np.exp(shift_to_class_reports(np.full(3, 1 / 3), np.zeros((8, 3)), bags)).round(3)  # one bag says nothing
    array([0.5 , 0.25, 0.25])
    """
    shift, found = shift_to_classes(prior, s, weight=bags.weight), None
    if bags.interval is None or not bags.interval.open.any():
        return shift
    for _ in range(_STEPS):
        before, found = prior, tilted_classes(s + shift, bags, start=found)
        prior = np.maximum(bags.average(found.posterior), _SMALLEST_PRIOR)
        shift = shift_to_classes(prior, s, weight=bags.weight)
        if bags.n_people * ((prior - before) ** 2 / prior).sum() / 2 < _CLOSE_PRIOR:
            break
    return shift


def scores_of(h: Floats) -> Floats:
    """Log odds of probabilities, or logarithms of those of classes; none is taken for certain.

    Parameters
    ----------
    h : array of shape (n,) or (n, classes)
        Probabilities; what lies beyond 0 and 1 is taken for almost certain.

    Returns
    -------
    array of shape (n,) or (n, classes)

    Examples
    --------
    >>> scores_of(np.array([0.0, 0.5])).round(1)
    array([-13.8,   0. ])
    """
    sure = np.clip(np.asarray(h, dtype=float), LEAST, 1 - LEAST)
    return np.asarray(logit(sure) if h.ndim == 1 else np.log(sure / sure.sum(axis=1, keepdims=True)))


def stretched(s: Floats, *, stretch: float, shift: Floats | float) -> Floats:
    """Scores stretched and shifted.

    Parameters
    ----------
    s : array of shape (n,) or (n, classes)
        Log odds, or logarithms of class probabilities, up to a number for each row.
    stretch, shift : float, and float or array of shape (classes,)
        What they are multiplied by, and what is added.

    Returns
    -------
    array of shape (n,) or (n, classes)
        Log odds, or logarithms of probabilities.
    """
    moved = stretch * s + shift
    return np.asarray(moved if s.ndim == 1 else log_softmax(moved, axis=1))


__all__ = ["LEAST", "prior_of", "prior_of_classes", "scores_of", "shift_to", "shift_to_classes", "stretched"]
