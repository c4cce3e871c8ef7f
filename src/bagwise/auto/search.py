"""Candidates tried one after the other, as far as time allows."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from bagwise.auto.budget import Budget, expected_seconds
from bagwise.auto.candidates import Readings
from bagwise.auto.trials import Part, Trial, Validation, choose, parts_of, score
from bagwise.base import BagClassifier
from bagwise.utils.deadline import OutOfTimeError, check_time, time_limit

SPENT = "the time budget was spent"
_TO_ASK = 0.25  # of the time left, to find out how long a candidate takes
_ROUGHLY = 3  # times what is left, that the preferred candidate may seem to take: small fits tell it no better
_BEFORE = 0.15  # of all time, for each candidate that is tried before the preferred one


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
