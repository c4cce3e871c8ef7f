r"""Candidates measured on bags they were not fitted to, one after the other, as far as time allows.

The bags are cut into folds. A candidate is fitted to the other folds and scored on the one held out by the clipped
empirical risk of the paper, p and E[h] coming from the bags it was fitted to. One fold holds enough bags where bags
are many; where they are few, more folds are held out in turn and their bags taken together. How long a candidate would
take is told by fits to few rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from scipy import optimize, stats
from sklearn.base import clone

from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.data.rows import InMemory, fit_codes
from bagwise.folds import Fold
from bagwise.risk import held_out_losses, least_of, training_prior
from bagwise.utils.deadline import OutOfTimeError, check_time, time_limit
from bagwise.utils.typing import Floats, Integers

SPENT = "the time budget was spent"
_TO_ASK = 0.25  # of the time left, to find out how long a candidate takes
_ROUGHLY = 3  # times what is left, that the preferred candidate may seem to take: small fits tell it no better
_PARTS = ((1 / 64, 500), (1 / 16, 2_000))  # shares of the rows to time, and the least numbers of them
_OVER = 1.1  # times the budget, by which the last fit ends
_BEFORE = 0.15  # of all time, for each candidate that is tried before the preferred one


@dataclass(frozen=True, eq=False)
class Readings:
    """A table as each candidate reads it.  codes: numbers, codes of categories and NaN.  numbers: the same encoded."""

    codes: InMemory
    numbers: InMemory

    def of(self, model: BagClassifier) -> Floats:
        """The rows as `model` reads them."""
        return (self.codes if model.reads.codes else self.numbers).X

    def select(self, bags: Bags, rows: Integers | None = None) -> Readings:
        """The same rows, or some of them, with these bags."""
        return Readings(self.codes.select(bags, rows), self.numbers.select(bags, rows))

    def fit(self, candidate: BagClassifier, random_state: int) -> BagClassifier:
        """A fitted copy of the candidate; its `random_state`, unless given, is set."""
        model: BagClassifier = clone(candidate)
        parameters = model.get_params(deep=False)
        if "random_state" in parameters and parameters["random_state"] is None:
            model.set_params(random_state=random_state)
        fit_codes(model, self.codes, self.numbers)
        return model


def probabilities(model: BagClassifier, X: Floats, classes: bool) -> Floats:
    """(n,) probabilities of class 1, or (n, classes)."""
    h = model.predict_proba(X)
    return h if classes else h[:, 1]


@dataclass(frozen=True, eq=False)
class Validation:
    """Bags, and which of them are held out in turn.  regret: β of the clipping threshold.  level: of the intervals."""

    bags: Bags
    folds: Sequence[Fold]
    regret: float
    level: float


@dataclass(frozen=True, eq=False)
class Trial:
    """What a candidate said about held-out bags, and what that scored.

    sums: of h over each held-out bag, (m, outputs) per fold, of the first folds where time was short.
    means: E[h] of the bags fitted to, (outputs,) per fold.
    losses: label-free clipped loss of each held-out bag.  risk: their mean.  low, high: its interval.
    Sums and means are linear in h: those of a weighted mean of models are the weighted means of theirs.
    """

    sums: list[Floats]
    means: list[Floats]
    losses: Floats
    risk: float
    low: float
    high: float


def fits_without_folds(
    candidate: BagClassifier, table: Readings, validation: Validation, seeds: Sequence[int]
) -> Iterator[tuple[BagClassifier, Floats, Floats]]:
    """Fit the candidate without each fold in turn: the model, its sums over bags held out, its mean over the others."""
    for fold, seed in zip(validation.folds, seeds, strict=True):
        train, held_out = validation.bags.take(fold.train), validation.bags.take(fold.held_out)
        model = table.select(train).fit(candidate, seed)
        h = probabilities(model, table.of(model), train.proportion.ndim == 2)
        h = h.reshape(len(h), -1)
        yield model, held_out.sum(h[held_out.order]), h[train.order].mean(axis=0)


def score(sums: list[Floats], means: list[Floats], validation: Validation) -> Trial:
    """The risk of predictions with these sums and means: mean clipped loss of the held-out bags, classes added up."""
    folds = zip(validation.folds, sums, means, strict=False)  # time may have been short for the last
    losses = np.concatenate(
        [held_out_losses(total, mean, validation.bags, fold, regret=validation.regret) for fold, total, mean in folds]
    )
    risk, m = float(losses.mean()), len(losses)
    half_width = losses.std(ddof=1) / np.sqrt(m) * stats.t.ppf((1 + validation.level) / 2, m - 1)
    return Trial(sums, means, losses, risk, risk - float(half_width), risk + float(half_width))


def choose(trials: Mapping[str, Trial], preferred: str | None = None) -> str:
    """The name of the preferred trial, by default the first, unless another's risk is clearly lower.

    Clearly: by two standard errors of the difference.
    """
    names = list(trials)
    first = 0 if preferred is None or preferred not in trials else names.index(preferred)
    return names[least_of([trial.losses for trial in trials.values()], preferred=first, errors=2)]


def mean_trial(trials: Mapping[str, Trial], weight_of: Mapping[str, float], validation: Validation) -> Trial:
    """The trial of a weighted mean of models."""
    weights, mixed = np.array(list(weight_of.values())), [trials[name] for name in weight_of]

    def mix(columns: Sequence[list[Floats]]) -> list[Floats]:
        return [np.tensordot(weights, np.stack(each), axes=1) for each in zip(*columns, strict=True)]

    return score(mix([trial.sums for trial in mixed]), mix([trial.means for trial in mixed]), validation)


def stack_weights(trials: Sequence[Trial], validation: Validation) -> Floats:
    r"""Weights ≥ 0 that sum to 1 and make the held-out residuals of the weighted mean of h small.

    Least squares of :math:`\sqrt{k_j}(\alpha_j - p)` on :math:`\Sigma(h - E[h])/\sqrt{k_j}` of the candidates. Weights
    under 5% are dropped: a model that changes so little is not worth its time.
    """
    bags, targets, columns = validation.bags, [], []
    for f, fold in enumerate(validation.folds):
        root = np.sqrt(bags.size[fold.held_out, None])
        targets.append((root * (bags.outputs[fold.held_out] - training_prior(bags, fold))).ravel())
        columns.append([((trial.sums[f] / root) - root * trial.means[f]).ravel() for trial in trials])
    matrix = np.concatenate([np.stack(each, axis=1) for each in columns])
    flat = np.linalg.norm(matrix, axis=0) < 1e-9 * np.sqrt(len(matrix))  # a constant's deviations are rounding
    weights, _ = optimize.nnls(np.where(flat, 0, matrix), np.concatenate(targets))
    if weights.sum() == 0:
        weights[int(np.argmin([trial.risk for trial in trials]))] = 1
    weights = np.where(weights < 0.05 * weights.sum(), 0, weights)
    return np.asarray(weights / weights.sum())


@dataclass(eq=False)
class Search:
    """Trials of candidates within a budget, and the last fits.

    seeds: one per fold.  start, budget: when it began, and the seconds from then on, None for as many as it takes.
    stack: all that were tried will be refitted, not the best alone.  preferred: see `choose`.
    tried: what candidates scored.  seconds: of one fit of each.  kept: their models of the first fold, for where there
        is no time to refit.  asked: all candidates so far.
    """

    table: Readings
    validation: Validation
    seeds: Sequence[int]
    start: float
    budget: float | None
    stack: bool
    preferred: str | None
    tried: dict[str, Trial] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    kept: dict[str, BagClassifier] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def left(self, times: float = 1.0) -> float:
        """Seconds until so many times the budget are over."""
        return math.inf if self.budget is None else self.start + times * self.budget - time.monotonic()

    def attempt(self, name: str, candidate: BagClassifier) -> tuple[Trial | None, str]:
        """Try a candidate: what it scored, or None; and what is to be said of it.

        Where time is short, not all folds are held out.
        """
        models: list[BagClassifier] = []  # of the first fold alone: the others are let go
        sums: list[Floats] = []
        means: list[Floats] = []
        left = self.left() - self._reserve()
        self.asked.add(name)
        if self.preferred is not None and self.preferred not in self.asked:  # which should not lack time for this one
            left = min(left, _BEFORE * (self.budget or math.inf))
        end = time.monotonic() + left
        if left <= 0:
            return None, f"not tried: {SPENT}"
        try:
            with time_limit(left):
                if self.tried and left < math.inf:
                    needed = self._needed(candidate)
                    left = max(self.left(), 0)
                    if needed > (_ROUGHLY if name == self.preferred else 1) * left:
                        told = f"about {needed:.0f} s" if needed < math.inf else "too much"
                        return None, f"not tried: it would take {told} of the {left:.0f} s left"
                began = time.monotonic()
                for model, total, mean in fits_without_folds(candidate, self.table, self.validation, self.seeds):
                    models = models or [model]
                    sums.append(total)
                    means.append(mean)
                    seconds = (time.monotonic() - began) / len(sums)
                    too_late = time.monotonic() + seconds > end
                    if not self.stack and (too_late or seconds + self._to_refit(seconds) > self.left()):
                        break
        except OutOfTimeError:
            if self.stack or not sums:
                return None, f"stopped: {SPENT}"
        except Exception as error:  # of whatever kind: the others may still do
            return None, f"failed: {error}"
        trial, folds = score(sums, means, self.validation), len(self.validation.folds)
        self.tried[name], self.seconds[name] = trial, (time.monotonic() - began) / len(sums)
        if self.budget is not None:
            self.kept[name] = models[0]
        return trial, "" if len(sums) == folds else f"on {len(sums)} of {folds} folds: {SPENT}"

    def best(self) -> tuple[str, Trial, dict[str, float]]:
        """What to refit: its name, its trial, and the weights of candidates in it."""
        name = choose(self.tried, self.preferred)
        if not self.stack:
            return name, self.tried[name], {name: 1.0}
        weights = stack_weights(list(self.tried.values()), self.validation)
        mixed = {name: float(weight) for name, weight in zip(self.tried, weights, strict=True) if weight > 0}
        if len(mixed) == 1:
            return name, self.tried[name], mixed
        return f"mean of {'; '.join(mixed)}", mean_trial(self.tried, mixed, self.validation), mixed

    def refit(self, name: str, candidate: BagClassifier, seed: int) -> tuple[BagClassifier, bool]:
        """The candidate fitted to all bags, and True; its model of the first fold, and False, where time is over."""
        try:
            with time_limit(self.left(_OVER)):
                check_time()
                return self.table.fit(candidate, seed), True
        except OutOfTimeError:
            return self.kept[name], False

    def untried(self, candidates: Mapping[str, BagClassifier], seed: int) -> tuple[str, BagClassifier] | None:
        """A model where time was too short for any trial: of the first candidate that works."""
        for name, candidate in candidates.items():
            with suppress(Exception):  # of whatever kind: the next may do
                return name, self.table.fit(candidate, seed)
        return None

    def _needed(self, candidate: BagClassifier) -> float:
        """Seconds to try a candidate on one fold, or all where they are stacked, and to refit it or the best so far.

        Infinity where that cannot be found out in a small part of the time left.
        """
        try:
            with time_limit(_TO_ASK * self.left()):
                fit = expected_seconds(candidate, self.table, self.validation.bags, self.seeds[0])
        except OutOfTimeError:
            return math.inf
        except Exception:  # of whatever kind: fewer rows may not do, all of them may
            return 0.0
        folds = self.validation.folds if self.stack else self.validation.folds[:1]
        return sum(len(fold.train) for fold in folds) / len(self.validation.bags) * fit + max(fit, self._reserve())

    def _reserve(self) -> float:
        """Seconds to refit the best so far, or all where they are stacked."""
        if not self.tried or self.budget is None:
            return 0.0
        best = self.tried if self.stack else [choose(self.tried, self.preferred)]
        return sum(self._to_refit(self.seconds[name]) for name in best)

    def _to_refit(self, seconds: float) -> float:
        """Seconds of a fit to all bags, from those of a fit without a fold."""
        return seconds * len(self.validation.bags) / len(self.validation.folds[0].train)


def expected_seconds(candidate: BagClassifier, table: Readings, bags: Bags, random_state: int) -> float:
    """About how long a fit to all bags takes: fits to two small shares of the rows, and the line through them.

    0 where rows are so few that trying is as fast. Raises an `OutOfTimeError` where time is over (see `time_limit`).
    """
    shares = [max(share, least / bags.n_bagged) for share, least in _PARTS]
    if shares[-1] > 0.5:
        return 0.0
    points = []
    for share in shares:
        rows, some = thinned(bags, share)
        began = time.monotonic()
        table.select(some, rows).fit(candidate, random_state)
        points.append((len(rows) / bags.n_bagged, time.monotonic() - began))
        check_time()
    (few, fast), (more, slow) = points
    return slow + max(slow - fast, 0.0) / (more - few) * (1 - more)


def thinned(bags: Bags, share: float) -> tuple[Integers, Bags]:
    """About so many of the rows, and bags of them that report what theirs did: to time a fit, not to learn from.

    Rows are left out inside bags first: how many bags there are decides how often a fit is repeated on folds of them.

    >>> ids = np.repeat([0, 1, 2, 3], 8)
    >>> rows, some = thinned(Bags.from_rows(ids / 4, ids), 1 / 4)
    >>> rows.tolist(), some.size.tolist(), some.proportion.tolist()
    ([0, 4, 8, 12, 16, 20, 24, 28], [2, 2, 2, 2], [0.0, 0.25, 0.5, 0.75])
    """
    every = max(1, round(1 / share))
    inside = int(min(every, max(1, bags.n_bagged // (2 * len(bags)))))  # two rows of a bag stay
    bags = bags.take(np.arange(0, len(bags), min(-(-every // inside), max(1, len(bags) // 32))))
    place = np.arange(bags.n_bagged) - bags.repeat(bags.offsets[:-1])
    kept = place % inside == 0
    code = bags.repeat(np.arange(len(bags)))[kept]
    noise = None if bags.noise_variance is None else bags.noise_variance[code]
    return bags.order[kept], Bags.from_rows(bags.proportion[code], code, noise_variance=noise)
