r"""What candidates say of bags they were not fitted to, and what that is worth.

Where bags are random, a candidate is scored by the clipped empirical risk of the paper, p and E[h] coming from the bags
it was fitted to. In other formations that is no risk of single rows, and the log-likelihood of the counts takes its
place, less that of the mean label. Real labels have the label-free risk unclipped, since nothing bounds them, and
normal likelihoods of the means of bags. Where bags may have effects of their own, both likelihoods have the variance of
effects that suits them best: a candidate has to explain more than bags that differ for reasons unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import optimize, stats
from scipy.special import logit, softmax

from bagwise.bags import Bags
from bagwise.folds import Fold
from bagwise.formation import FORMATIONS
from bagwise.gains import STRETCHES, HeldOut, clear, effects_beside_constant, effects_beside_model
from bagwise.linear.moments import told_variance, worth
from bagwise.log_odds import prior_of, prior_of_classes, scores_of
from bagwise.risk import HeldOutValues, held_out_losses, least_of, training_prior
from bagwise.utils.typing import Floats

UNMEASURED: dict[str, float | None] = dict.fromkeys(("risk", "low", "high", "gain", "gain_error"))
"""What is told of a candidate that was not tried."""

_SUREST = 1e-15  # what probabilities are kept above, and as far below 1

_ERRORS = {"risk": 2.0, "likelihood": 1.0}  # of a difference, by which another must be better than the preferred one


@dataclass(frozen=True, eq=False)
class Validation:
    """Bags, and which of them are held out in turn.

    regret: β of the clipping threshold.  level: of the intervals.  formation: a key of `FORMATIONS`.
    values: whether labels are real.
    """

    bags: Bags
    folds: Sequence[Fold]
    regret: float
    level: float
    formation: str = "random"
    values: bool = False

    @cached_property
    def spread(self) -> float:
        """The variance of a real label."""
        return told_variance(self.bags.size, self.bags.outputs, self.bags.noise_per_row, labels=False)

    @property
    def choice(self) -> str:
        """What candidates are compared by: "risk" or "likelihood"."""
        return FORMATIONS[self.formation].choice

    @property
    def effects(self) -> bool:
        """Whether bags may have effects of their own, on log odds."""
        return self.formation in ("features", "effects") and not self.values


def surely(h: Floats) -> Floats:
    """(n,) log odds of probabilities, however rare labels are: an offset may make them so."""
    return np.asarray(logit(np.clip(h, _SUREST, 1 - _SUREST)))


@dataclass(frozen=True, eq=False)
class Said:
    """Predictions of a model that was fitted without a fold.

    trained: (rows, outputs) of (some of) the rows fitted to.  held_out: (n, outputs) of the others, in bag order.
    weight, offset: (rows,) of the rows fitted to, None without; it is in predictions.
    """

    trained: Floats
    held_out: Floats
    weight: Floats | None = None
    offset: Floats | None = None

    @property
    def mean(self) -> Floats:
        """(outputs,) E[h] of the rows fitted to."""
        return np.asarray(np.average(self.trained, axis=0, weights=self.weight))

    def log_odds(self, bags: Bags) -> tuple[Floats, Floats]:
        """Scores of the rows fitted to, and of those held out, of these bags; without the offset."""
        if self.offset is not None and bags.offset is not None:
            return surely(self.trained[:, 0]) - self.offset, surely(self.held_out[:, 0]) - bags.offset
        trained, held_out = (
            scores_of(h if bags.proportion.ndim == 2 else h[:, 0]) for h in (self.trained, self.held_out)
        )
        return trained, held_out


@dataclass(frozen=True, eq=False)
class Trial:
    """What a candidate said about held-out bags, and what that scored.

    said: of each fold, of the first folds where time was short.
    losses: of each held-out bag, by which candidates are compared: the label-free clipped loss, or minus the gain.
    risk, low, high: their mean and its interval; None where bags are not random.
    gains: of each held-out bag, over the mean label.  constant: log-likelihood of the bag by that label.
    parts: what gains come from.  effect_variance: τ², with which.
    """

    said: list[Said]
    losses: Floats
    risk: float | None
    low: float | None
    high: float | None
    gains: Floats
    constant: Floats
    parts: Sequence[HeldOut | HeldOutValues]
    effect_variance: float

    @cached_property
    def gain(self) -> float:
        """The mean gain of a held-out bag."""
        return float(self.gains.mean())

    @cached_property
    def gain_error(self) -> float:
        """Its standard error."""
        return float(self.gains.std(ddof=1) / np.sqrt(len(self.gains)))

    @property
    def spread(self) -> float:
        """The variance of a real label."""
        return next(part.spread for part in self.parts if isinstance(part, HeldOutValues))

    @property
    def measured(self) -> dict[str, float | None]:
        """What is told of it."""
        return {name: getattr(self, name) for name in UNMEASURED}

    @property
    def clear(self) -> bool:
        """Whether held-out bags clearly prefer it to the mean label."""
        return clear(self.gain, self.gain_error)

    def shrunk(self) -> tuple[float, Floats]:
        """The stretch of log odds, 1 at most, that held-out bags expect, and their gains with it.

        It is less by what their gain lacks to two standard errors, down to 0: that leaves the mean label.
        """
        factors = STRETCHES[STRETCHES <= 1]
        expected = float(softmax([self._gains(float(factor)).sum() for factor in factors]) @ factors)
        gains = self._gains(expected)
        error = gains.std(ddof=1) / np.sqrt(len(gains))
        sure = float(np.clip(gains.mean() / (2 * error), 0, 1)) if error > 0 else 0.0
        return sure * expected, gains if sure == 1 else self._gains(sure * expected)

    def _gains(self, stretch: float) -> Floats:
        """(m,) the gains with a stretch, and the effects that go with it."""
        if stretch == 0:
            return np.zeros_like(self.constant)
        variance = effects_beside_model(of_labels(self.parts), stretch) if self.effect_variance else 0.0
        return np.asarray(log_likelihoods_of(self.parts, variance, stretch) - self.constant)


def of_labels(parts: Sequence[HeldOut | HeldOutValues]) -> list[HeldOut]:
    """Those of labels 0 and 1 or classes."""
    return [part for part in parts if isinstance(part, HeldOut)]


def log_likelihoods_of(
    parts: Sequence[HeldOut | HeldOutValues], effect_variance: float, stretch: float = 1.0
) -> Floats:
    """(m,) the log-likelihood of all bags held out."""
    factor = np.array([stretch])
    return np.concatenate([one.log_likelihoods(factor, effect_variance=effect_variance)[0] for one in parts])


def score(said: list[Said], validation: Validation) -> Trial:
    """What predictions for the first folds are worth."""
    if validation.values:
        return _score_values(said, validation)
    bags, several = validation.bags, validation.bags.proportion.ndim == 2
    folds = list(zip(validation.folds, said, strict=False))  # time may have been short for the last
    parts = []
    for fold, one in folds:
        train = bags.take(fold.train)
        prior = prior_of_classes(train) if several else prior_of(train)
        held = bags.take(fold.held_out)
        parts.append(HeldOut(prior, *one.log_odds(held), held, one.weight, one.offset))
    variance = effects_beside_model(parts) if validation.effects else 0.0
    of_constant = effects_beside_constant(parts) if validation.effects else 0.0
    constant = np.concatenate([part.constant(effect_variance=of_constant) for part in parts])
    gains = log_likelihoods_of(parts, variance) - constant
    if validation.choice == "likelihood":
        return Trial(said, -gains, None, None, None, gains, constant, parts, variance)
    losses = np.concatenate(
        [
            held_out_losses(part.bags.sum(one.held_out), one.mean, bags, fold, regret=validation.regret)
            for (fold, one), part in zip(folds, parts, strict=True)
        ]
    )
    return Trial(said, losses, *_interval(losses, validation.level), gains, constant, parts, variance)


def _interval(losses: Floats, level: float) -> tuple[float, float, float]:
    """The mean, and between which it lies."""
    risk, m = float(losses.mean()), len(losses)
    half = float(losses.std(ddof=1) / np.sqrt(m) * stats.t.ppf((1 + level) / 2, m - 1))
    return risk, risk - half, risk + half


def _score_values(said: list[Said], validation: Validation) -> Trial:
    """The same of real labels: the label-free risk where bags are random, the error of bags where not.

    Both are of squares R²/k; bags with declared noise count less.
    """
    bags, parts, losses = validation.bags, [], []
    for fold, one in zip(validation.folds, said, strict=False):
        held, mean = bags.take(fold.held_out), float(one.mean[0])
        sums = held.sum(one.held_out[:, 0])
        train = bags.take(fold.train)
        count = worth(train.noise_per_row, validation.spread) * train.size
        parts.append(
            HeldOutValues(float(np.average(train.proportion, weights=count)), mean, sums, held, validation.spread)
        )
        losses.append(parts[-1].losses * parts[-1].worth / parts[-1].worth.mean())
    loss = np.concatenate(losses)
    constant = np.concatenate([part.constant() for part in parts])
    gains = log_likelihoods_of(parts, 0.0) - constant
    if validation.choice == "likelihood":
        return Trial(said, -gains, None, None, None, gains, constant, parts, 0.0)
    return Trial(said, loss, *_interval(loss, validation.level), gains, constant, parts, 0.0)


def choose(trials: Mapping[str, Trial], preferred: str | None = None, *, by: str = "risk") -> str:
    """The name of the preferred trial, by default the first, unless another is clearly better.

    Clearly: by two standard errors of the difference of risks, by one of gains. By gains, a preferred candidate that is
    not clearly better than the mean label is not preferred to anything.
    """
    names, tried = list(trials), list(trials.values())
    first = 0 if preferred is None or preferred not in trials else names.index(preferred)
    if by == "likelihood" and not tried[first].clear:
        first = int(np.argmax([trial.gain for trial in tried]))
    return names[least_of([trial.losses for trial in tried], preferred=first, errors=_ERRORS[by])]


def mean_trial(trials: Mapping[str, Trial], weight_of: Mapping[str, float], validation: Validation) -> Trial:
    """The trial of a weighted mean of models."""
    weights, mixed = np.array(list(weight_of.values())), [trials[name].said for name in weight_of]

    def mix(each: Sequence[Floats]) -> Floats:
        return np.asarray(np.tensordot(weights, np.stack(each), axes=1))

    folds = list(zip(*mixed, strict=True))
    return score(
        [
            replace(each[0], trained=mix([one.trained for one in each]), held_out=mix([one.held_out for one in each]))
            for each in folds
        ],
        validation,
    )


def stack_weights(trials: Sequence[Trial], validation: Validation) -> Floats:
    r"""Weights ≥ 0 that sum to 1 and make the held-out residuals of the weighted mean of h small.

    Least squares of :math:`\sqrt{k_j}(\alpha_j - p)` on :math:`\Sigma(h - E[h])/\sqrt{k_j}` of the candidates. Weights
    under 5% are dropped: a model that changes so little is not worth its time.
    """
    bags, targets, columns = validation.bags, [], []
    for f, fold in enumerate(validation.folds):
        root, held_out = np.sqrt(bags.size[fold.held_out, None]), bags.take(fold.held_out)
        targets.append((root * (bags.outputs[fold.held_out] - training_prior(bags, fold))).ravel())
        said = [trial.said[f] for trial in trials]
        columns.append([((held_out.sum(one.held_out) / root) - root * one.mean).ravel() for one in said])
    matrix = np.concatenate([np.stack(each, axis=1) for each in columns])
    flat = np.linalg.norm(matrix, axis=0) < 1e-9 * np.sqrt(len(matrix))  # a constant's deviations are rounding
    weights, _ = optimize.nnls(np.where(flat, 0, matrix), np.concatenate(targets))
    if weights.sum() == 0:
        weights[int(np.argmin([trial.losses.mean() for trial in trials]))] = 1
    weights = np.where(weights < 0.05 * weights.sum(), 0, weights)
    return np.asarray(weights / weights.sum())
