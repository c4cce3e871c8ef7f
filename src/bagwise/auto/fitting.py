"""Candidates of all families, tried on held-out bags, of which the best is refitted: what is shared by targets."""

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from bagwise.auto.search import SPENT, Readings, Search, Untried, predictions
from bagwise.auto.trials import UNMEASURED, Trial, Validation
from bagwise.bags import Bags
from bagwise.base import BagEstimator
from bagwise.data.features import TableFeatures
from bagwise.data.rows import BagRows, InMemory, Reads, in_one_piece
from bagwise.estimators import make
from bagwise.explanation.contributions import Contributions
from bagwise.folds import ENOUGH, folds_of
from bagwise.formation import formation_of
from bagwise.linear.moments import telling
from bagwise.utils.parameters import COLUMNS, FLAG, FUNCTION, LEVEL, NONE, Constraint, ParameterError, number, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Booleans, Floats

PREFERRED = "boosting"
"""The default candidate that is best on most tables: kept unless another is clearly better."""

MEAN_LABEL = "mean label"
"""What is left where there is no time for any candidate: p for every row."""

logger = logging.getLogger(__name__)

_FLAT = 1e12  # a penalty that leaves no weights
_FOUR = 4  # bags, of which some can be held out
_WIDEST = 512  # columns that all levels of categories together may have


def candidates_are(kind: type, words: str) -> Constraint:
    """None, or candidates of a kind."""
    return NONE | Constraint(
        f"a dict of bagwise {words} by name, at least one",
        lambda given: isinstance(given, Mapping) and {isinstance(one, kind) for one in given.values()} == {True},
    )


@dataclass(kw_only=True, eq=False, repr=False)
class AutoFit(TableFeatures, BagEstimator):
    """The search of classifiers and regressors; what differs is said by the abstract methods."""

    reads: ClassVar[Reads] = Reads(codes=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "time_budget": number(above=0) | NONE,
        "stack": FLAG,
        "callback": FUNCTION,
        "cv": whole(2),
        "held_out_bags": whole(1),
        "max_levels": whole(1),
        "categorical_features": COLUMNS,
        "regret": number(above=0, most=1),
        "level": LEVEL,
    }
    _target: ClassVar[str] = "label"
    _of_few_bags: ClassVar[str]

    formation: str = "auto"
    candidates: Mapping[str, Any] | None = None
    stack: bool = False
    time_budget: float | None = None
    cv: int = 5
    held_out_bags: int = ENOUGH
    max_levels: int = 64
    categorical_features: Sequence[int] | None = None
    regret: float = 0.01
    level: float = 0.95
    callback: Callable[[dict[str, Any]], object] | None = None
    random_state: RandomState = None

    @abstractmethod
    def _defaults(self) -> Mapping[str, Any]:
        """Candidates where none are given."""

    @abstractmethod
    def _settle(self, best: Trial | None, X: Floats, bags: Bags) -> None:
        """Shrink what is not clearly better than the mean label, and make the mean prediction p."""

    def check_whole(self) -> None:
        """Raise unless its parts, and those of each model in it, fit each other: of a model read from a file."""
        for model in self.models_:
            if not isinstance(model, BagEstimator):
                raise ValueError("it consists of something else than models")
            model.check_whole()
        super().check_whole()

    def _check_features(self, X: Any, *, fitting: bool) -> Floats:
        if fitting:
            self._began = time.monotonic()  # a table takes time to be read
        return super()._check_features(X, fitting=fitting)

    def _fit_data(self, data: BagRows) -> None:
        whole = data if in_one_piece(data) else data.sample(data.shape[0])
        values = self._target == "value"
        self.formation_ = formation_of(self.formation, whole.X, whole.bags, whole.names, values=values)
        self._fit_bags(whole.X, telling(whole.bags) if values else whole.bags)

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        start = self.__dict__.pop("_began", time.monotonic())
        if self.stack and bags.offset is not None:
            raise ParameterError("stack", "must be False where there is an offset, which is of one model's log odds.")
        candidates = dict(self._defaults() if self.candidates is None else self.candidates)
        rng = generator(self.random_state)
        folds = folds_of(len(bags), self.cv, rng, enough=self.held_out_bags, shared=bags.shared)
        codes = InMemory(X, bags, self._categorical())
        self.encoding_ = codes.encoding(min(self.max_levels, max(1, _WIDEST // max(1, len(codes.categorical)))))
        weakest = [self.formation_.name, *self.formation_.others][-1]  # under which a model can tell the others
        table = Readings(codes, codes.encoded(self.encoding_), weakest)
        validation = Validation(
            bags, folds, self.regret, self.level, self.formation_.name, values=self._target == "value"
        )
        last, *seeds = (int(seed) for seed in rng.integers(2**31, size=len(folds) + 1))
        if isinstance(self.random_state, Integral):
            last = int(self.random_state)

        self.trials_: list[dict[str, Any]] = []
        preferred = PREFERRED if self.candidates is None else None
        search = Search(table, validation, seeds, start, self.time_budget, self.stack, preferred)
        self._try_all(search, candidates if folds else {})
        best, fitted, weight_of = self._refit(search, candidates, last)
        for line in self.trials_:
            line["weight"] = weight_of.get(line["candidate"], 0.0)
        self.weights_ = np.array(list(weight_of.values()))
        self.models_ = [fitted[name] for name in weight_of]
        self._settle(best, X, bags)

    def _try_all(self, search: Search, candidates: Mapping[str, BagEstimator]) -> None:
        """Try each candidate; then settle the formation, and try those again whose fits are others for it.

        What is told after a trial says what comes next: after the last of the first ones, that is known once the
        formation is settled.
        """
        names, weakest = list(candidates), search.table.formation
        for done, name in enumerate(names, start=1):
            began = time.monotonic()
            trial, note = search.attempt(name, candidates[name])
            line = self._record(name, trial=trial, seconds=time.monotonic() - began, note=note)
            if done < len(names):
                self._tell(line, done, len(names), "trial", names[done])
        again = self._settle_formation(search)
        total, following = len(names) + len(again), [*(("second trial", name) for name in again), ("fit", None)]
        if names:
            self._tell(line, len(names), total, *following[0])
        for done, name in enumerate(again, start=1):
            line, began = self._line(name), time.monotonic()
            trial, note = search.attempt(name, candidates[name])
            line["seconds"] += time.monotonic() - began
            before = f"tried for bags formed by {weakest}; for {self.formation_.name} "
            line["note"] = f"{before}{note}" if trial is None else note
            line.update(search.tried[name].measured)
            self._tell(line, len(names) + done, total, *following[done])

    @abstractmethod
    def _settle_formation(self, search: Search) -> list[str]:
        """Settle the formation by what was tried: the names of candidates to be tried again for another."""

    def _refit(
        self, search: Search, candidates: Mapping[str, BagEstimator], seed: int
    ) -> tuple[Trial | None, dict[str, BagEstimator], dict[str, float]]:
        """Fit what was chosen to all bags: its trial, the models, and the weights of candidates in the final one."""
        fitted: dict[str, BagEstimator] = {}
        while search.tried:
            self.best_name_, best, weight_of = search.best()
            self.best_risk_ = np.nan if best.risk is None else best.risk
            missing = next((name for name in weight_of if name not in fitted), None)
            if missing is None:
                if self.best_name_ not in search.tried:
                    self._tell_last(self._record(self.best_name_, trial=best))
                return best, fitted, weight_of
            try:
                fitted[missing], whole = search.refit(missing, candidates[missing], seed)
                if not whole:
                    self._line(missing)["note"] = f"fitted without the bags of one fold: {SPENT}"
            except Exception as error:  # it worked on some of the bags, not on all: choose again among the others
                search.forget(missing)
                self._line(missing)["note"] = f"failed: {error}"
        return self._untried(search, candidates, seed)

    def _untried(
        self, search: Search, candidates: Mapping[str, BagEstimator], seed: int
    ) -> tuple[None, dict[str, BagEstimator], dict[str, float]]:
        """A model without a trial, for which there were too few bags, or there was no time."""
        bags = search.validation.bags
        names = [name for name in candidates if name not in search.failed]
        if self.candidates is None and len(bags) < _FOUR:
            names.sort(key=lambda name: name != self._of_few_bags)
        found = search.untried({name: candidates[name] for name in names}, seed)
        if found is None and search.left() < np.inf and names:
            kind = "ridge" if bags.offset is None else "logistic"  # which adds an offset to its log odds
            flat = make(kind, target=self._target, alphas=_FLAT, scaling=1.0, cv=2)
            found = Untried(MEAN_LABEL, search.table.fit(flat, seed), len(bags))
        if found is None:
            told = self.trials_[0]["note"] if self.trials_ else "none of them takes these bags"
            raise ValueError(f"no candidate could be fitted: {told}")
        self.best_name_, self.best_risk_ = found.name, np.nan
        share = "" if found.bags == len(bags) else f" to {found.bags} of {len(bags)} bags"
        reason = f"of {len(bags)} bags none can be held out" if len(bags) < _FOUR else SPENT
        known = found.name in {line["candidate"] for line in self.trials_}
        line = self._line(found.name) if known else self._record(found.name)
        line["note"] = f"fitted without a trial{share}: {reason}"
        self._tell_last(line)
        return None, {found.name: found.model}, {found.name: 1.0}

    def _line(self, name: str) -> dict[str, Any]:
        return next(line for line in self.trials_ if line["candidate"] == name)

    def _record(self, name: str, *, trial: Trial | None = None, seconds: float = 0.0, note: str = "") -> dict[str, Any]:
        measured = UNMEASURED if trial is None else trial.measured
        self.trials_.append({"candidate": name, **measured, "seconds": seconds, "weight": 0.0, "note": note})
        return self.trials_[-1]

    def _tell(self, line: Mapping[str, Any], done: int, total: int, stage: str, candidate: str | None) -> None:
        told = {**line, "done": done, "total": total, "stage": stage, "next": candidate}
        logger.info("%s", told)
        if self.callback is not None:
            self.callback(told)

    def _tell_last(self, line: Mapping[str, Any]) -> None:
        self._tell(line, len(self.trials_), len(self.trials_), "end", None)

    def _mixed(self, X: Floats, offset: Floats | None = None) -> Floats:
        """The weighted mean of what the models say."""
        classes = len(getattr(self, "classes_", ())) > 2
        numbers = X if all(model.reads.codes for model in self.models_) else self.encoding_(X)
        parts = (
            weight * predictions(model, X if model.reads.codes else numbers, classes, offset)
            for weight, model in zip(self.weights_, self.models_, strict=True)
        )
        return sum(parts, np.zeros(1))

    def _parts(self, X: Floats) -> list[Contributions]:
        """What features add to what each of the models says."""
        parts = []
        for model in self.models_:
            read = X if model.reads.codes else self.encoding_(X)
            found = model._contributions(read)
            parts.append(found if model.reads.codes else found.gathered(self.encoding_.origin, X.shape[1]))
        return parts

    def used_features(self) -> Booleans | None:
        """Whether a model that was chosen uses each feature; None where one may use any."""
        found = []
        for weight, model in zip(self.weights_, self.models_, strict=True):
            used = model.used_features() if weight else np.zeros(1, dtype=bool)
            if used is None:
                return None
            found.append(used if not weight or model.reads.codes else self.encoding_.used(used))
        return np.asarray(np.any(np.broadcast_arrays(*found), axis=0))
