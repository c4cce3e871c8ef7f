"""Candidates fitted without each fold of bags in turn, one candidate after the other, as far as time allows.

One fold holds enough bags where bags are many; where they are few, more folds are held out in turn and their bags taken
together. How long a candidate would take is told by fits to few rows.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from bagwise.auto.trials import Said, Trial, Validation, choose, mean_trial, score, stack_weights
from bagwise.bags import Bags
from bagwise.base import BagEstimator, BagRegressor
from bagwise.data.rows import InMemory, fit_codes
from bagwise.gains import NoBetterThanConstantWarning
from bagwise.utils.deadline import OutOfTimeError, check_time, time_limit
from bagwise.utils.typing import Floats, Integers

SPENT = "the time budget was spent"
_SHARE_SPENT = "its share of the time budget was spent"  # the rest is for those to come
_TO_ASK = 0.1  # of the time left, to find out how long a candidate takes
_ROUGHLY = 1.5  # times what is left, that the preferred candidate may seem to take: small fits tell it no better
_PARTS = ((1 / 64, 500), (1 / 16, 2_000))  # shares of the rows to time, and the least numbers of them
_OVER = 1.05  # times the budget, by which the last fit ends
_TO_END = 0.05  # of the budget, to settle the formation and to choose
_AGAIN = 1.25  # times the seconds of a fit, that are kept for a second one: neither ends to the second
_FOR_NONE = 0.1  # of the budget, for a fit to few bags where no trial has come to an end
_FEWEST_ROWS, _FEWEST_BAGS = 500, 4  # of such a fit
_BEFORE, _FIRST = 0.15, 0.3  # of all time, for each candidate that is tried before the preferred one, and for the first
_ENOUGH_ROWS = 100_000  # to know E[h] by


@dataclass(frozen=True, eq=False)
class Readings:
    """A table as each candidate reads it.

    codes: numbers, codes of categories and NaN.  numbers: the same encoded.
    formation: how its bags came about, for candidates that are to find that out.
    """

    codes: InMemory
    numbers: InMemory
    formation: str

    def of(self, model: BagEstimator) -> Floats:
        """The rows as `model` reads them."""
        return (self.codes if model.reads.codes else self.numbers).X

    def select(self, bags: Bags, rows: Integers | None = None) -> Readings:
        """The same rows, or some of them, with these bags."""
        return Readings(self.codes.select(bags, rows), self.numbers.select(bags, rows), self.formation)

    def fit(self, candidate: BagEstimator, random_state: int) -> BagEstimator:
        """A fitted copy of the candidate; its `random_state`, unless given, and its formation, if "auto", are set."""
        model: BagEstimator = clone(candidate)
        parameters = model.get_params(deep=False)
        if "random_state" in parameters and parameters["random_state"] is None:
            model.set_params(random_state=random_state)
        if takes_formation(model):
            model.set_params(formation=self.formation)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoBetterThanConstantWarning)  # of which there will be one for them all
            fit_codes(model, self.codes, self.numbers)
        return model


def takes_formation(candidate: BagEstimator) -> bool:
    """Whether a candidate is fitted for the formation that it is given."""
    return bool(candidate.get_params(deep=False).get("formation") == "auto")


def predictions(model: Any, X: Floats, classes: bool, offset: Floats | None = None) -> Floats:
    """(n,) probabilities of class 1, or (n, classes); of a regressor (n,) values.

    offset: (n,) of log odds, where the model was given one.
    """
    if isinstance(model, BagRegressor):
        return model.predict(X)
    h: Floats = model.predict_proba(X) if offset is None else model.predict_proba(X, offset=offset)
    return h if classes else h[:, 1]


def some_rows(bags: Bags) -> Integers:
    """Rows in bags by which E[h] is known well enough."""
    return bags.order[:: every_row(bags)]


def every_row(bags: Bags) -> int:
    """Of how many rows in bags one is taken for `some_rows`."""
    return -(-bags.n_bagged // _ENOUGH_ROWS)


def fits_without_folds(
    candidate: BagEstimator, table: Readings, validation: Validation, seeds: Sequence[int]
) -> Iterator[tuple[BagEstimator, Said]]:
    """Fit the candidate without each fold in turn: the model, and what it says."""
    classes = validation.bags.proportion.ndim == 2
    for fold, seed in zip(validation.folds, seeds, strict=True):
        train, held_out = validation.bags.take(fold.train), validation.bags.take(fold.held_out)
        model = table.select(train).fit(candidate, seed)
        rows, of_rows = some_rows(train), []
        for one in (train.weight, train.offset):
            of_rows.append(None if one is None else one[:: every_row(train)])
        offset = None if of_rows[1] is None else np.concatenate([of_rows[1], held_out.offset])
        h = predictions(model, table.of(model)[np.concatenate([rows, held_out.order])], classes, offset)
        h = h.reshape(len(h), -1)
        yield model, Said(h[: len(rows)], h[len(rows) :], *of_rows)


@dataclass(frozen=True, eq=False)
class Untried:
    """A candidate by name, its model, and how many bags that was fitted to."""

    name: str
    model: BagEstimator
    bags: int


@dataclass(eq=False)
class Search:
    """Trials of candidates within a budget, and the last fits.

    seeds: one per fold.  start, budget: when it began, and the seconds from then on, None for as many as it takes.
    stack: all that were tried will be refitted, not the best alone.  preferred: see `choose`.
    tried: what candidates scored.  seconds: of one fit of each.  kept: their models of the first fold, for where there
        is no time to refit.  asked: all candidates so far.  failed: those that cannot be fitted.
    again: those whose fits are others once the formation is settled, if it is what bags alone tell: time for one fit of
        each is kept.
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
    kept: dict[str, BagEstimator] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    again: list[str] = field(default_factory=list)

    def left(self, times: float = 1.0) -> float:
        """Seconds until so many times the budget are over."""
        return math.inf if self.budget is None else self.start + times * self.budget - time.monotonic()

    def attempt(self, name: str, candidate: BagEstimator) -> tuple[Trial | None, str]:
        """Try a candidate: what it scored, or None; and what is to be said of it.

        Where time is short, not all folds are held out.
        """
        models: list[BagEstimator] = []  # of the first fold alone: the others are let go
        said: list[Said] = []
        second, self.again = name in self.again, [other for other in self.again if other != name]
        others = self._to_try_again()
        reserve = self._reserve() + (0 if second else others)  # of second trials the best comes first, and others wait
        left, first, spent = self.left() - reserve, not self.asked, SPENT
        twice = self._differs(self.validation.formation) and takes_formation(candidate)
        self.asked.add(name)
        if self.preferred is not None and self.preferred not in self.asked:  # which should not lack time for this one
            share = (_FIRST if first else _BEFORE) * (self.budget or math.inf)
            left, spent = (share, _SHARE_SPENT) if share < left else (left, spent)
        end = time.monotonic() + left - (others if second else 0)
        if left <= 0:
            return None, f"not tried: {SPENT}"
        try:
            with time_limit(left):
                if not first and left < math.inf:
                    needed = self._needed(candidate, reserve)
                    left = max(self.left(), 0)
                    if needed > (_ROUGHLY if name == self.preferred else 1) * left:
                        return None, f"not tried: {_too_long(needed, left)}"
                began = time.monotonic()
                for model, one in fits_without_folds(candidate, self.table, self.validation, self.seeds):
                    models = models or [model]
                    said.append(one)
                    seconds = (time.monotonic() - began) / len(said)
                    more = (2 if twice else 1) * seconds  # the next fold, and the second trial
                    too_late = time.monotonic() + more > end
                    if not self.stack and (too_late or more + self._to_refit(seconds) > self.left()):
                        break
        except OutOfTimeError:
            if self.stack or not said:
                return None, f"stopped: {spent}"
        except Exception as error:  # of whatever kind: the others may still do
            self.failed.add(name)
            return None, f"failed: {error}"
        seconds = (time.monotonic() - began) / len(said)
        trial, folds = score(said, self.validation), len(self.validation.folds)
        self.tried[name], self.seconds[name] = trial, seconds
        self.again += [name] if twice else []
        if self.budget is not None:
            self.kept[name] = models[0]
        return trial, "" if len(said) == folds else f"on {len(said)} of {folds} folds: {spent}"

    def take_for(self, formation: str) -> list[str]:
        """Fit for another formation from now on, and score all trials anew if bags were taken for those of another.

        Returns the names of candidates to be tried again, those that were fitted for another one, the best first: time
        may be short.
        """
        self.again = self.again if self._differs(formation) else []
        self.table = replace(self.table, formation=formation)
        if formation != self.validation.formation:
            self.validation = replace(self.validation, formation=formation)
            self.tried = {name: score(trial.said, self.validation) for name, trial in self.tried.items()}
        self.again.sort(key=lambda name: -self.tried[name].gain)
        return list(self.again)

    def liked_best(self) -> Trial:
        """The trial that held-out bags like best; two are compared by the folds that both have."""
        best, *others = sorted(self.tried.values(), key=lambda trial: -len(trial.gains))
        for other in others:
            if other.gain > best.gains[: len(other.gains)].mean():
                best = other
        return best

    def _differs(self, formation: str) -> bool:
        """Whether fits for a formation are others than those so far: of labels they are where only rates differ."""
        return (
            not self.validation.values
            and formation != self.table.formation
            and "rates" in (formation, self.table.formation)
        )

    def best(self) -> tuple[str, Trial, dict[str, float]]:
        """What to refit: its name, its trial, and the weights of candidates in it."""
        name = self._chosen()
        if not self.stack:
            return name, self.tried[name], {name: 1.0}
        weights = stack_weights(list(self.tried.values()), self.validation)
        mixed = {name: float(weight) for name, weight in zip(self.tried, weights, strict=True) if weight > 0}
        if len(mixed) == 1:
            return name, self.tried[name], mixed
        return f"mean of {'; '.join(mixed)}", mean_trial(self.tried, mixed, self.validation), mixed

    def _chosen(self) -> str:
        return choose(self.tried, self.preferred, by=self.validation.choice)

    def refit(self, name: str, candidate: BagEstimator, seed: int) -> tuple[BagEstimator, bool]:
        """The candidate fitted to all bags, and True; its model of the first fold, and False, where time is over."""
        try:
            with time_limit(self.left(_OVER)):
                check_time()
                return self.table.fit(candidate, seed), True
        except OutOfTimeError:
            return self.kept[name], False

    def forget(self, name: str) -> None:
        """Leave out a candidate that cannot be fitted to all bags."""
        del self.tried[name]
        self.failed.add(name)

    def untried(self, candidates: Mapping[str, BagEstimator], seed: int) -> Untried | None:
        """A model where there was no trial, of the first candidate that works.

        It is fitted to a few bags, and to more and more of them, as long as there is time.
        """
        bags = self.validation.bags
        for name, candidate in candidates.items():
            found: Untried | None = None
            with suppress(Exception):  # of whatever kind: the next may do
                for rows in self._sizes():
                    some = bags if rows >= bags.n_bagged else bags.take(spread_out(bags, rows))
                    with time_limit(self.left(_OVER)):
                        check_time()
                        found = Untried(name, self.table.select(some).fit(candidate, seed), len(some))
            if found is not None:
                return found
        return None

    def _sizes(self) -> list[int]:
        """Rows of fits that are each four times as large as the one before, up to all; of all where time is given."""
        n = self.validation.bags.n_bagged
        if self.budget is None:
            return [n]
        return [*(_FEWEST_ROWS * 4**i for i in range(40) if _FEWEST_ROWS * 4**i < n), n]

    def _needed(self, candidate: BagEstimator, reserve: float) -> float:
        """Seconds to try a candidate on one fold, or all where they are stacked, and for what comes after it.

        reserve: for what would come without it, to refit the best so far.

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
        return sum(len(fold.train) for fold in folds) / len(self.validation.bags) * fit + max(fit, reserve)

    def _reserve(self) -> float:
        """Seconds to refit the best so far, or all where they are stacked."""
        if self.budget is None:
            return 0.0
        if not self.tried:
            return _FOR_NONE * self.budget
        best = self.tried if self.stack else [self._chosen()]
        return _TO_END * self.budget + sum(self._to_refit(self.seconds[name]) for name in best)

    def _to_try_again(self) -> float:
        """Seconds of one fit of each candidate that is, or may be, to be tried again."""
        return _AGAIN * sum(self.seconds[name] for name in self.again)

    def _to_refit(self, seconds: float) -> float:
        """Seconds of a fit to all bags, from those of a fit without a fold."""
        return seconds * len(self.validation.bags) / len(self.validation.folds[0].train)


def _too_long(needed: float, left: float) -> str:
    """What a candidate would take of the time left.

    >>> _too_long(4.23, 3.9), _too_long(math.inf, 26.2)
    ('it would take about 4.2 s of the 3.9 s left', 'to fit it to few rows alone takes more than 10% of the 26 s left')
    """
    needed_told, left_told = (f"{seconds:.{0 if left >= 10 else 1}f} s" for seconds in (needed, left))
    if needed == math.inf:
        return f"to fit it to few rows alone takes more than {_TO_ASK:.0%} of the {left_told} left"
    return f"it would take about {needed_told} of the {left_told} left"


def expected_seconds(candidate: BagEstimator, table: Readings, bags: Bags, random_state: int) -> float:
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
    """About so many of the rows, and bags of them that report about what theirs did: to time a fit, not to learn from.

    Rows are left out inside bags first: how many bags there are decides how often a fit is repeated on folds of them.

    >>> ids = np.repeat([0, 1, 2, 3], 8)
    >>> rows, some = thinned(Bags.from_rows(ids / 4, ids), 1 / 4)
    >>> rows.tolist(), some.size.tolist(), some.proportion.tolist()
    ([0, 4, 8, 12, 16, 20, 24, 28], [2, 2, 2, 2], [0.0, 0.0, 0.5, 1.0])
    """
    every = max(1, round(1 / share))
    inside = int(min(every, max(1, bags.n_bagged // (2 * len(bags)))))  # two rows of a bag stay
    bags = bags.take(np.arange(0, len(bags), min(-(-every // inside), max(1, len(bags) // 32))))
    place = np.arange(bags.n_bagged) - bags.repeat(bags.offsets[:-1])
    kept = place % inside == 0
    code = bags.repeat(np.arange(len(bags)))[kept]
    noise = None if bags.noise_variance is None else bags.noise_variance[code]
    counts = np.bincount(code, minlength=len(bags))[:, None] * bags.outputs
    total = np.cumsum(counts).reshape(counts.shape)  # rounded, so that whole counts stay whole, and so does their sum
    counts = np.diff(np.floor(total.ravel() + 1e-6), prepend=0.0).reshape(counts.shape)
    proportion = (counts / np.bincount(code, minlength=len(bags))[:, None]).reshape(bags.proportion.shape)
    found = Bags.from_rows(proportion[code], code, noise_variance=noise)
    return bags.order[kept], found if bags.offset is None else found.with_offset(bags.offset[kept])


def spread_out(bags: Bags, rows: int) -> Integers:
    """Numbers of bags, evenly spread, of about so many rows, none of which has more alone; four at least.

    >>> spread_out(Bags.from_rows(np.zeros(80), np.arange(80) // 8), 32).tolist()
    [0, 2, 5, 7]
    """
    small = np.flatnonzero(bags.rows <= rows)
    if len(small) < _FEWEST_BAGS:
        small = np.sort(np.argsort(bags.rows, kind="stable")[:_FEWEST_BAGS])
    some = min(len(small), max(_FEWEST_BAGS, int(rows * len(small) / bags.rows[small].sum())))
    return np.asarray(small[np.arange(some) * len(small) // some])
