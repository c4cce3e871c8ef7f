"""Candidates tried one after the other, as far as time allows: how long one would take is told by fits to few rows."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from bagwise.auto.candidates import Readings
from bagwise.auto.trials import Part, Trial, Validation, choose, parts_of, score
from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.utils.deadline import OutOfTimeError, check_time, time_limit
from bagwise.utils.typing import Integers

SPENT = "the time budget was spent"
_TO_ASK = 0.25  # of the time left, to find out how long a candidate takes
_ROUGHLY = 3  # times what is left, that the preferred candidate may seem to take: small fits tell it no better
_PARTS = ((1 / 64, 500), (1 / 16, 2_000))  # shares of the rows to time, and the least numbers of them
_OVER = 1.1  # times the budget, by which the last fit ends
_BEFORE = 0.15  # of all time, for each candidate that is tried before the preferred one


@dataclass(frozen=True)
class Budget:
    """Seconds from now on; None for as many as it takes."""

    seconds: float | None
    start: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds to try candidates in."""
        return math.inf if self.seconds is None else self.start + self.seconds - time.monotonic()

    @property
    def left_to_refit(self) -> float:
        """Seconds by which the last fit must end."""
        return math.inf if self.seconds is None else self.start + _OVER * self.seconds - time.monotonic()


@dataclass(eq=False)
class Search:
    """Trials of candidates within a budget, and the last fits.

    seeds: one per fold.  stack: all that were tried will be refitted, not the best alone.
    preferred: see `trials.choose`.
    tried: what candidates scored.  seconds: of one fit of each.  kept: their models of the first fold, for where there
        is no time to refit.  asked: all candidates so far.
    """

    table: Readings
    validation: Validation
    seeds: Sequence[int]
    budget: Budget
    stack: bool
    preferred: str | None
    tried: dict[str, Trial] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    kept: dict[str, BagClassifier] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def attempt(self, name: str, candidate: BagClassifier) -> tuple[Trial | None, str]:
        """Try a candidate: what it scored, or None; and what is to be said of it.

        Where time is short, not all folds are held out.
        """
        parts: list[Part] = []
        left = self.budget.left - self._reserve()
        if self._before_preferred(name):
            left = min(left, _BEFORE * (self.budget.seconds or math.inf))
        end = time.monotonic() + left
        if left <= 0:
            return None, f"not tried: {SPENT}"
        try:
            with time_limit(left):
                if self.tried and left < math.inf:
                    needed = self._needed(candidate)
                    left = max(self.budget.left, 0)
                    if needed > (_ROUGHLY if name == self.preferred else 1) * left:
                        told = f"about {needed:.0f} s" if needed < math.inf else "too much"
                        return None, f"not tried: it would take {told} of the {left:.0f} s left"
                began = time.monotonic()
                for part in parts_of(candidate, self.table, self.validation, self.seeds):
                    parts.append(replace(part, model=parts[0].model) if parts else part)  # the others are let go
                    seconds = (time.monotonic() - began) / len(parts)
                    too_late = time.monotonic() + seconds > end
                    if not self.stack and (too_late or seconds + self._to_refit(seconds) > self.budget.left):
                        break
        except OutOfTimeError:
            if self.stack or not parts:
                return None, f"stopped: {SPENT}"
        except Exception as error:  # of whatever kind: the others may still do
            return None, f"failed: {error}"
        trial = score([part.sums for part in parts], [part.mean for part in parts], self.validation)
        self.tried[name], self.seconds[name] = trial, (time.monotonic() - began) / len(parts)
        if self.budget.seconds is not None:
            self.kept[name] = parts[0].model
        folds = len(self.validation.folds)
        return trial, "" if len(parts) == folds else f"on {len(parts)} of {folds} folds: {SPENT}"

    def refit(self, name: str, candidate: BagClassifier, seed: int) -> tuple[BagClassifier, bool]:
        """The candidate fitted to all bags, and True; its model of the first fold, and False, where time is over."""
        try:
            with time_limit(self.budget.left_to_refit):
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
            with time_limit(_TO_ASK * self.budget.left):
                fit = expected_seconds(candidate, self.table, self.validation.bags, self.seeds[0])
        except OutOfTimeError:
            return math.inf
        except Exception:  # of whatever kind: fewer rows may not do, all of them may
            return 0.0
        folds = self.validation.folds if self.stack else self.validation.folds[:1]
        share = sum(len(fold.train) for fold in folds) / len(self.validation.bags)
        return share * fit + max(fit, self._reserve())

    def _before_preferred(self, name: str) -> bool:
        """Whether the preferred candidate comes later, which should not lack time for a cheap one that is not."""
        self.asked.add(name)
        return self.preferred is not None and self.preferred not in self.asked

    def _reserve(self) -> float:
        """Seconds to refit the best so far, or all where they are stacked."""
        if not self.tried or self.budget.seconds is None:
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
