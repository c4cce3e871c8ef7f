r"""What held-out bags prefer, in every formation: the log-likelihood of their counts over that of the mean label.

Scores s (log odds) are stretched about those of p and shifted so that E[h] = p in the bags the model was fitted to.
Shrunken steps and penalties keep a model too close to p, and a model that has found nothing is too far from it: the
stretch, between 0 and 2.7, that held-out bags expect makes up for both.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit, logsumexp, softmax

from bagwise.bags import Bags
from bagwise.losses.likelihood import extra_variance
from bagwise.losses.tilting import tilted
from bagwise.losses.tilting_classes import tilted_classes
from bagwise.utils.typing import Array, Floats

STRETCHES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.2, 2.7])
"""Factors of log odds that held-out bags choose from."""

_SMALLEST_PRIOR = 1e-9
_STEPS = 50
_STEPS_OF_CLASSES, _CLOSE_OF_CLASSES = 200, 1e-6


class NoBetterThanConstantWarning(UserWarning):
    """Held-out bags do not clearly prefer a model to the mean label: it may say nothing about single rows."""


def tell_gain(gains: Floats | None, *, stacklevel: int = 2) -> tuple[float, float]:
    """The mean gain of a held-out bag over the mean label and its standard error; a warning where it is not above that.

    Parameters
    ----------
    gains : array of shape (m,), optional
        Gains of held-out bags; None where there were too few bags to hold any out.
    stacklevel : int
        Of the warning, as `warnings.warn` counts it from the caller's caller.

    Returns
    -------
    float, float
        NaN without gains.
    """
    if gains is None or len(gains) < 2:
        return float("nan"), float("nan")
    gain, error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
    if gain <= error:
        warnings.warn(
            "held-out bags do not clearly prefer this model to the mean label of all rows (log-likelihood of a bag "
            f"{gain:+.2g} ± {error:.2g}): it may say nothing about single rows.",
            NoBetterThanConstantWarning,
            stacklevel=stacklevel + 1,
        )
    return gain, error


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
    p = float(np.clip(count.sum() / bags.n_bagged, _SMALLEST_PRIOR, 1 - _SMALLEST_PRIOR))
    if bags.noise_variance is not None and bags.noise_variance.any():
        for _ in range(2):
            weight = 1 / (1 + bags.noise_variance / (bags.size * p * (1 - p)))
            p = float(np.clip((weight * count).sum() / (weight * bags.size).sum(), 1e-3, 1 - 1e-3))
    return p


def prior_of_classes(bags: Bags) -> Floats:
    """p of each class, all above 0 and adding up to 1.

    Parameters
    ----------
    bags : Bags
        Of several classes.

    Returns
    -------
    array of shape (classes,)
    """
    p = np.maximum((bags.size[:, None] * bags.proportion).sum(axis=0), _SMALLEST_PRIOR)
    return np.asarray(p / p.sum())


def shift_to(prior: float, s: Floats, *, start: float | None = None, close: float = 1e-10) -> float:
    """The b for which the mean of σ(s + b) is the prior.

    Parameters
    ----------
    prior : float
        p.
    s : array of shape (n,)
        Log odds.
    start : float, optional
        About where b is.
    close : float
        How close the mean comes to the prior, of p(1 − p).

    Returns
    -------
    float

    Examples
    --------
    >>> round(shift_to(0.5, np.array([-1.0, 1.0])), 6)
    0.0
    """
    low, high = float(logit(prior) - s.max()), float(logit(prior) - s.min())
    b = float(np.clip(logit(prior) - s.mean() if start is None else start, low, high))
    for _ in range(_STEPS):
        h = expit(s + b)
        over, slope = float(h.mean()) - prior, float((h * (1 - h)).mean())
        low, high = (low, b) if over > 0 else (b, high)
        if abs(over) <= close * prior * (1 - prior):
            break
        moved = b - over / slope if slope > 0 else np.inf
        b = moved if low < moved < high else (low + high) / 2
    return b


def shift_to_classes(prior: Floats, s: Floats) -> Floats:
    """The b for which the means of softmax(s + b) are the priors.

    Parameters
    ----------
    prior : array of shape (classes,)
        p, above 0 and adding up to 1.
    s : array of shape (n, classes)
        Scores.

    Returns
    -------
    array of shape (classes,)

    Examples
    --------
    >>> shift_to_classes(np.array([0.5, 0.25, 0.25]), np.zeros((4, 3))).round(3)
    array([-0.693, -1.386, -1.386])
    """
    b = np.log(prior)
    for _ in range(_STEPS_OF_CLASSES):
        off = np.log(prior) - np.log(np.maximum(softmax(s + b, axis=1).mean(axis=0), _SMALLEST_PRIOR))
        if np.abs(off).max() <= _CLOSE_OF_CLASSES:
            break
        b = b + off
    return np.asarray(b - logsumexp(b))


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
    extra = extra_variance(s, bags, effect_variance)
    return (tilted if s.ndim == 1 else tilted_classes)(s, bags, extra=extra).log_likelihood


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a model that was fitted to some bags says of them, and of others.

    Attributes
    ----------
    prior : float or array of shape (classes,)
        p of the bags it was fitted to.
    trained : array of shape (rows,) or (rows, classes)
        Its log odds, or scores of classes, of (some of) their rows.
    scores : array of shape (n,) or (n, classes)
        The same of the rows that were held out, in the order of `bags`.
    bags : Bags
        Those held out.
    """

    prior: Array
    trained: Floats
    scores: Floats
    bags: Bags

    def gains(self, stretches: Floats, *, effect_variance: float = 0.0) -> Floats:
        """The gain of each bag over the mean label, for each stretch.

        Parameters
        ----------
        stretches : array of shape (stretches,)
            Factors of the log odds.
        effect_variance : float
            τ².

        Returns
        -------
        array of shape (stretches, m)
        """
        start = logit(self.prior) if self.scores.ndim == 1 else np.log(self.prior)
        flat = np.full(self.scores.shape, start)
        constant = log_likelihoods(flat, self.bags, effect_variance=effect_variance)
        found = [
            log_likelihoods(self.stretched(stretch), self.bags, effect_variance=effect_variance)
            for stretch in stretches
        ]
        return np.array(found) - constant

    def stretched(self, stretch: float = 1.0) -> Floats:
        """The scores held out, stretched, and shifted so that E[h] = p where the model was fitted.

        Parameters
        ----------
        stretch : float
            Factor of the scores.

        Returns
        -------
        array of the shape of `scores`
        """
        shift = shift_to if self.scores.ndim == 1 else shift_to_classes
        return stretch * self.scores + shift(self.prior, stretch * self.trained)


def best_stretch(
    parts: Sequence[HeldOut], *, effect_variance: float = 0.0, stretches: Floats = STRETCHES
) -> tuple[float, Floats]:
    """The stretch that held-out bags expect, each factor weighed by their likelihood, and the gains of bags with it.

    Parameters
    ----------
    parts : sequence of HeldOut
        One for each fold.
    effect_variance : float
        τ².
    stretches : array
        Factors to choose from.

    Returns
    -------
    float, array of shape (m,)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> s = rng.normal(size=6400)
    >>> y = rng.random(6400) < expit(2 * s)
    >>> bags = Bags.from_rows(np.repeat(y.reshape(-1, 8).mean(axis=1), 8), np.arange(6400) // 8)
    >>> stretch, gains = best_stretch([HeldOut(0.5, s, s, bags)])
    >>> 1.6 < stretch < 2.4, bool(gains.mean() > 0)
    (True, True)
    """
    total = sum(one.gains(stretches, effect_variance=effect_variance).sum(axis=1) for one in parts)
    stretch = float(softmax(total) @ stretches)
    gains = [one.gains(np.array([stretch]), effect_variance=effect_variance)[0] for one in parts]
    return stretch, np.concatenate(gains)


__all__ = [
    "STRETCHES",
    "HeldOut",
    "NoBetterThanConstantWarning",
    "best_stretch",
    "log_likelihoods",
    "prior_of",
    "prior_of_classes",
    "shift_to",
    "shift_to_classes",
    "tell_gain",
]
