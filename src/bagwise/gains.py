r"""What held-out bags prefer, in every formation: the log-likelihood of their counts over that of the mean label.

Scores s (log odds) are stretched about those of p and shifted so that E[h] = p in the bags the model was fitted to.
Shrunken steps and penalties keep a model too close to p, and a model that has found nothing is too far from it: the
stretch, between 0 and 2.7, that held-out bags expect makes up for both.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logit, softmax

from bagwise.bags import Bags
from bagwise.log_odds import shift_to, shift_to_classes, stretched
from bagwise.losses.log_likelihood import log_likelihoods, log_likelihoods_by_each
from bagwise.losses.tilting import TINY
from bagwise.utils.sigmoid import sigmoid
from bagwise.utils.typing import Floats

STRETCHES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.2, 2.7])
"""Factors of log odds that held-out bags choose from."""

_CLEARLY = 2.0  # standard errors
_FEW_ROWS = 5_000  # held out, of which all stretches are looked at together
_NEGLIGIBLE = 20.0  # log-likelihood below the largest, at which a stretch counts for nothing
_ROWS = 60_000  # that effects are told by
_EFFECTS = 1e-3, 10.0  # between which variances of effects lie, unless there are none


class NoBetterThanConstantWarning(UserWarning):
    """Held-out bags do not clearly prefer a model to the mean label: it may say nothing about single rows."""


def clear(gain: float, error: float) -> bool:
    """Whether a mean gain over the mean label is more than chance: above two of its standard errors.

    Parameters
    ----------
    gain, error : float
        The gain and its standard error.

    Returns
    -------
    bool

    Examples
    --------
    >>> clear(0.3, 0.1), clear(0.1, 0.1)
    (True, False)
    """
    return gain > _CLEARLY * error


def tell_gain(gains: Floats | None, *, stacklevel: int = 2) -> tuple[float, float]:
    """The mean gain of a held-out bag over the mean label and its standard error; a warning where it is not `clear`.

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
    if not clear(gain, error):
        warnings.warn(
            "held-out bags do not clearly prefer this model to the mean label of all rows (log-likelihood of a bag "
            f"{gain:+.2g} ± {error:.2g}): it may say nothing about single rows.",
            NoBetterThanConstantWarning,
            stacklevel=stacklevel + 1,
        )
    return gain, error


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a model that was fitted to some bags says of them, and of others.

    Attributes
    ----------
    prior : float or array of shape (classes,)
        p of the bags it was fitted to.
    trained : array of shape (rows,) or (rows, classes)
        Its log odds (or logarithms of class probabilities) of (some of) their rows.
    scores : array of shape (n,) or (n, classes)
        Those of the rows that were held out, in the order of `bags`.
    bags : Bags
        Those held out. With an offset, scores are without it.
    weight, offset : array of shape (rows,), optional
        Those of the rows that it was fitted to (see `Bags`).
    """

    prior: Floats | float
    trained: Floats
    scores: Floats
    bags: Bags
    weight: Floats | None = None
    offset: Floats | None = None

    @classmethod
    def of(cls, prior: Floats | float, train: Bags, trained: Floats, scores: Floats, bags: Bags) -> "HeldOut":
        """What a model says, with weights and offset of the rows that it was fitted to.

        Parameters
        ----------
        prior, trained, scores, bags
            As the attributes, of all rows of `train`, in bag order.
        train : Bags
            Those it was fitted to.

        Returns
        -------
        HeldOut
        """
        return cls(prior, trained, scores, bags, train.weight, train.offset)

    def log_likelihoods(self, stretches: Floats, *, effect_variance: float = 0.0) -> Floats:
        """The log-likelihood of each bag, for each stretch.

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
        return log_likelihoods_by_each(self.stretched(stretches), self.bags, effect_variance=effect_variance)

    def stretched(self, stretches: Floats) -> list[Floats]:
        """The scores held out, stretched, and shifted so that E[h] = p.

        Parameters
        ----------
        stretches : array of shape (stretches,)
            Factors of the log odds.

        Returns
        -------
        list of array
            One for each stretch.
        """
        found, shift = [], None
        for stretch in stretches:
            shift = self.shift(float(stretch), shift)
            moved = shift if self.bags.offset is None else shift + self.bags.offset
            found.append(stretched(self.scores, stretch=float(stretch), shift=moved))
        return found

    def shift(self, stretch: float = 1.0, start: Floats | float | None = None) -> Floats | float:
        """What is added to stretched scores so that E[h] = p.

        Parameters
        ----------
        stretch : float
            Their factor.
        start : float, optional
            About what it is.

        Returns
        -------
        float or array of shape (classes,)
        """
        if self.trained.ndim == 1:
            s = stretch * self.trained if self.offset is None else stretch * self.trained + self.offset
            return shift_to(float(self.prior), s, weight=self.weight, start=None if start is None else float(start))
        return shift_to_classes(np.asarray(self.prior), stretch * self.trained, weight=self.weight)

    def constant(self, *, effect_variance: float = 0.0) -> Floats:
        """The log-likelihood of each bag by the mean label alone.

        Parameters
        ----------
        effect_variance : float
            τ².

        Returns
        -------
        array of shape (m,)
        """
        if self.bags.offset is not None:
            constant = self.bags.offset + self.shift(0.0)
            return log_likelihoods(constant, self.bags, effect_variance=effect_variance)
        start = logit(self.prior) if self.scores.ndim == 1 else np.log(self.prior)
        return log_likelihoods(np.full_like(self.scores, start), self.bags, effect_variance=effect_variance)

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
        found = self.log_likelihoods(stretches, effect_variance=effect_variance)
        return np.asarray(found - self.constant(effect_variance=effect_variance))

    def some(self, rows: int) -> "HeldOut":
        """Some of the bags, of about so many rows, and as many at most of the rows that it was fitted to.

        Parameters
        ----------
        rows : int
            About how many.

        Returns
        -------
        HeldOut
        """
        every, step = -(-self.bags.n_bagged // rows), -(-len(self.trained) // rows)
        kept = np.arange(len(self.bags)) % every == 0
        scores = self.scores if every == 1 else self.scores[self.bags.repeat(kept)]
        bags = self.bags if every == 1 else self.bags.take(np.flatnonzero(kept))
        weight, offset = (None if one is None else one[::step] for one in (self.weight, self.offset))
        return HeldOut(self.prior, self.trained[::step], scores, bags, weight, offset)


def effects_beside_model(parts: Sequence[HeldOut], stretch: float = 1.0) -> float:
    """The variance τ² of effects that held-out bags prefer beside a model.

    Parameters
    ----------
    parts : sequence of HeldOut
        One for each fold; where rows are many, some bags serve.
    stretch : float
        Of the model's log odds.

    Returns
    -------
    float

    Examples
    --------
    >>> from scipy.special import expit
    >>> rng = np.random.default_rng(0)
    >>> s = np.repeat(rng.normal(size=100), 64)
    >>> y = rng.random(6400) < expit(s)
    >>> bags = Bags.from_rows(np.repeat(y.reshape(-1, 64).mean(axis=1), 64), np.arange(6400) // 64)
    >>> part = HeldOut(0.5, s, s, bags)
    >>> effects_beside_model([part]) < 0.03, 0.5 < effects_beside_constant([part]) < 2
    (True, True)
    """
    some, factor = _some(parts), np.array([stretch])
    return most_likely(lambda t: sum(part.log_likelihoods(factor, effect_variance=t).sum() for part in some))


def effects_beside_constant(parts: Sequence[HeldOut]) -> float:
    """The variance τ² of effects that held-out bags prefer beside the mean label alone.

    Parameters
    ----------
    parts : sequence of HeldOut
        One for each fold; where rows are many, some bags serve.

    Returns
    -------
    float
    """
    some = _some(parts)
    return most_likely(lambda t: sum(part.constant(effect_variance=t).sum() for part in some))


def effects_about(scores: Floats, bags: Bags) -> float:
    """The variance τ² of effects that counts prefer beside scores, as if counts were normal: quickly.

    Parameters
    ----------
    scores : array of shape (n,)
        Log odds of the rows of bags that a model was not fitted to, in bag order.
    bags : Bags
        Those bags; where counts are not known, by their likelihood.

    Returns
    -------
    float

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> s = np.repeat(rng.normal(size=400), 64)
    >>> y = rng.random(25_600) < sigmoid(s)
    >>> bags = Bags.from_rows(np.repeat(y.reshape(-1, 64).mean(axis=1), 64), np.arange(25_600) // 64)
    >>> 0.5 < effects_about(np.zeros(25_600), bags) < 1.5, effects_about(s, bags) < 0.05
    (True, True)
    """
    if bags.interval is not None:
        return most_likely(lambda t: float(log_likelihoods(scores, bags, effect_variance=t).sum()))
    h = sigmoid(scores)
    spread, noise = bags.sum(h * (1 - h)), bags.declared_noise
    square = (bags.size * bags.proportion - bags.sum(h)) ** 2

    def value(variance: float) -> float:
        whole = np.maximum(noise + spread + variance * spread**2, TINY)
        return -0.5 * float((np.log(whole) + square / whole).sum())

    return most_likely(value)


def _some(parts: Sequence[HeldOut]) -> list[HeldOut]:
    """Bags that effects are told by."""
    return [part.some(_ROWS // len(parts)) for part in parts]


def most_likely(value: Callable[[float], float]) -> float:
    """The variance τ² of effects with the largest log-likelihood; 0 where that is as large.

    Parameters
    ----------
    value : callable
        The log-likelihood of all bags, for a τ².

    Returns
    -------
    float
        To about a tenth of it.

    Examples
    --------
    >>> round(most_likely(lambda variance: -np.log(variance + 1e-9) ** 2), 1), most_likely(lambda variance: -variance)
    (1.0, 0.0)
    """
    bounds = (float(np.log(_EFFECTS[0])), float(np.log(_EFFECTS[1])))
    options = {"xatol": 0.1}
    found = minimize_scalar(lambda t: -value(float(np.exp(t))), bounds=bounds, method="bounded", options=options)
    return float(np.exp(found.x)) if -found.fun > value(0.0) else 0.0


def best_stretch(
    parts: Sequence[HeldOut],
    *,
    effect_variance: float = 0.0,
    beside_constant: float | None = None,
    stretches: Floats = STRETCHES,
    spread: float = np.inf,
) -> tuple[float, Floats]:
    r"""The stretch that held-out bags expect, each factor weighed by their likelihood, and the gains of bags with it.

    A priori it is as likely that the model has found nothing, and is to be stretched by 0, as that it has; beside
    effects of bags it is :math:`1 + \tau^2 k p (1 - p)` times as likely, since so many times as much as those of
    independent labels do counts then vary, and chance alone looks like a gain. The mean label has effects of its own:
    with those of the model, stretched scores, whose counts vary less, would seem better wherever these are too large.

    Parameters
    ----------
    parts : sequence of HeldOut
        One for each fold.
    effect_variance : float
        τ² beside the model as it is.
    beside_constant : float, optional
        That beside the mean label alone; None to look for it, if there is any beside the model.
    stretches : array
        Factors to choose from.
    spread : float
        How far from 1 they lie a priori, on a logarithmic scale, as a standard deviation; by default any is as likely.

    Returns
    -------
    float, array of shape (m,)

    Examples
    --------
    >>> from scipy.special import expit
    >>> rng = np.random.default_rng(0)
    >>> s = rng.normal(size=6400)
    >>> y = rng.random(6400) < expit(2 * s)
    >>> bags = Bags.from_rows(np.repeat(y.reshape(-1, 8).mean(axis=1), 8), np.arange(6400) // 8)
    >>> stretch, gains = best_stretch([HeldOut(0.5, s, s, bags)])
    >>> 1.6 < stretch < 2.4, bool(gains.mean() > 0)
    (True, True)
    """
    whole = beside_constant if effect_variance else 0.0
    if whole is None:
        whole = effects_beside_constant(parts)
    constant = [one.constant(effect_variance=whole) for one in parts]

    def gains(stretch: Floats) -> Floats:
        """(stretches, m) by each, with the effects beside it: those between none and the whole of the model."""
        if not effect_variance:
            found = [one.log_likelihoods(stretch) for one in parts]
        else:
            beside = whole + (effect_variance - whole) * np.minimum(stretch, 1.0)
            pairs = list(zip(stretch[:, None], beside, strict=True))
            found = [np.concatenate([one.log_likelihoods(t, effect_variance=v) for t, v in pairs]) for one in parts]
        return np.concatenate([each - base for each, base in zip(found, constant, strict=True)], axis=1)

    nothing = float(max(int(np.count_nonzero(stretches)), 1))
    if effect_variance:
        p, size = float(parts[0].prior), np.mean([one.bags.size.mean() for one in parts])
        nothing *= 1 + effect_variance * size * p * (1 - p)
    known = np.exp(-0.5 * (np.log(stretches, where=stretches > 0, out=np.zeros(len(stretches))) / spread) ** 2)
    prior = np.log(np.where(stretches == 0, nothing, known / known[stretches > 0].mean()))
    few = sum(part.bags.n_bagged for part in parts) < _FEW_ROWS
    found = gains(stretches).sum(axis=1) if few else _about_most(lambda one: gains(one).sum(axis=1), stretches)
    stretch = float(softmax(found + prior) @ stretches)
    return stretch, gains(np.array([stretch]))[0]


def _about_most(total: Callable[[Floats], Floats], stretches: Floats) -> Floats:
    """(stretches,) totals of those about the likeliest, beginning at 1; −∞ beyond those that no longer matter."""
    found = np.full(len(stretches), -np.inf)
    place = int(np.abs(stretches - 1).argmin())
    for way in (range(place, len(stretches)), range(place - 1, -1, -1)):
        for number in way:
            found[number] = total(stretches[[number]])[0]
            if found[number] < found.max() - _NEGLIGIBLE:
                break
    return found


__all__ = [
    "STRETCHES",
    "HeldOut",
    "NoBetterThanConstantWarning",
    "best_stretch",
    "clear",
    "effects_about",
    "effects_beside_constant",
    "effects_beside_model",
    "most_likely",
    "tell_gain",
]
