"""The candidates of all families, and the estimator that keeps what is best of them on held-out bags."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from bagwise.auto.search import SPENT, Readings, Search, Trial, Validation, probabilities
from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.data.features import TableFeatures
from bagwise.data.rows import InMemory, Reads
from bagwise.estimators import make
from bagwise.folds import ENOUGH, folds_of
from bagwise.linear import BagMeanMapClassifier
from bagwise.utils.parameters import LEVEL, NONE, Constraint, number, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Floats

PREFERRED = "boosting"
"""The default candidate that is best on most tables: kept unless another is clearly better."""


def default_candidates() -> dict[str, BagClassifier]:
    """Candidates by name, one of each family first, the cheap ones before the others.

    Ridge, the mean map, boosting, where torch is installed a network; then others of these families, with few and many
    leaves, and with more layers.

    >>> list(default_candidates())[:3]
    ['ridge', 'mean map', 'boosting']
    """
    candidates: dict[str, BagClassifier] = {"ridge": make("ridge"), "mean map": BagMeanMapClassifier()}
    candidates[PREFERRED] = make("boosting")
    others = {f"boosting, {leaves} leaves": make("boosting", num_leaves=leaves) for leaves in (3, 31)}
    if find_spec("torch") is not None:
        candidates["network, 32"] = make("network")
        others["network, 128-64"] = make("network", hidden=(128, 64))
    return candidates | others


@dataclass(kw_only=True, eq=False, repr=False)
class BagAutoClassifier(TableFeatures, BagClassifier):
    """Candidates of all families, chosen without labels by the clipped empirical risk on held-out bags, then refitted.

    Tables of pandas, polars or Arrow may hold categories and missing values: trees read them as they are, other
    candidates as scaled numbers and one column per level (see `features.Encoding`).

    Parameters
    ----------
    candidates : dict of classifiers by name, optional
        They are tried in the order given. The first is kept unless another's risk is clearly lower: by two standard
        errors of the difference. None takes `default_candidates()`, cheap families first, of which boosting is kept
        unless another is clearly better. A classifier of your own takes part as its `reads` says.
    stack : bool
        Predict with a mean of candidates, weighted by least squares on the held-out bags, instead of the best alone.
    time_budget : float, optional
        Seconds. Before a candidate is tried, two fits to few of the rows tell about how long it takes; it is passed
        over where that is too long, held out on fewer folds where time is short, and stopped inside a fit where time is
        over all the same. The best is refitted, until 1.1 times the budget are over; then its fit without the first
        fold is kept. Without a single trial, the first candidate is fitted.
    cv, held_out_bags : int
        The bags are cut into `cv` folds, of which as many are held out in turn as are needed to hold out
        `held_out_bags` bags.
    max_levels : int
        Most columns for the levels of a category, where a candidate needs numbers.
    categorical_features : sequence of int, optional
        Columns of an array that hold category codes (tables say so by their types).
    regret, level : float
        β of the clipping threshold; level of the intervals.
    callback : callable, optional
        Called with each line of `trials_` as it is made.
    random_state : int, Generator or None
        For the folds and for candidates that have none of their own. If it is a number, the refitted model is the one
        that the candidate alone would be with it.

    Attributes
    ----------
    trials_ : list of dict
        One per candidate, and one for a mean of several: candidate, risk, low, high (label-free, None where it was not
        tried), seconds, weight in the final model, note (why it was not tried, stopped or failed).
    best_name_, best_risk_ : str, float
        The line of `trials_` that was chosen, and its risk, NaN where there was no time for a trial.
    models_, weights_ : list and array
        The refitted models and their weights; one model unless a mean of several was chosen.
    features_, encoding_ : FeatureCodes, Encoding
        The columns of the table with the levels of categories; how these become numbers for models that read no others.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(6400, 3))
    >>> y = (rng.random(6400) < np.clip(0.5 + X @ [0.2, -0.1, 0.0], 0, 1)).astype(int)
    >>> ids = bw.random_bags(6400, size=32, random_state=0)
    >>> boosting = bw.BagBoostingClassifier(n_estimators=30, reg_lambda=10.0, n_jobs=1)
    >>> candidates = {"ridge": bw.BagRidgeClassifier(), "boosting": boosting}
    >>> model = BagAutoClassifier(candidates=candidates, random_state=0)
    >>> model.fit(X, bw.aggregate(y, ids), bags=ids).best_name_
    'ridge'
    """

    reads: ClassVar[Reads] = Reads(codes=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "candidates": NONE
        | Constraint(
            "a dict of bagwise classifiers by name, at least one",
            lambda given: (
                isinstance(given, Mapping) and {isinstance(one, BagClassifier) for one in given.values()} == {True}
            ),
        ),
        "time_budget": number(above=0) | NONE,
        "cv": whole(2),
        "held_out_bags": whole(1),
        "max_levels": whole(1),
        "regret": number(above=0, most=1),
        "level": LEVEL,
    }

    candidates: Mapping[str, BagClassifier] | None = None
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

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        start = time.monotonic()
        candidates = dict(default_candidates() if self.candidates is None else self.candidates)
        rng = generator(self.random_state)
        folds = folds_of(len(bags), self.cv, rng, enough=self.held_out_bags)
        if not folds:
            raise ValueError(f"there are {len(bags)} bags only: 4 are needed at least, to hold some out.")
        codes = InMemory(X, bags, self._categorical())
        self.encoding_ = codes.encoding(self.max_levels)
        table = Readings(codes, codes.encoded(self.encoding_))
        validation = Validation(bags, folds, self.regret, self.level)
        last, *seeds = (int(seed) for seed in rng.integers(2**31, size=len(folds) + 1))
        if isinstance(self.random_state, Integral):
            last = int(self.random_state)

        self.trials_: list[dict[str, Any]] = []
        preferred = PREFERRED if self.candidates is None else None
        search = Search(table, validation, seeds, start, self.time_budget, self.stack, preferred)
        for name, candidate in candidates.items():
            began = time.monotonic()
            trial, note = search.attempt(name, candidate)
            self._record(name, trial=trial, seconds=time.monotonic() - began, note=note)
        no_time = not search.tried and search.left() <= 0
        untried = search.untried(candidates, last) if no_time else None
        if untried is not None:
            self.best_name_, self.best_risk_ = untried[0], np.nan
            fitted, weight_of = dict([untried]), {self.best_name_: 1.0}
        else:
            fitted, weight_of = self._refit(search, candidates, last)
        for line in self.trials_:
            line["weight"] = weight_of.get(line["candidate"], 0.0)
        self.weights_ = np.array(list(weight_of.values()))
        self.models_ = [fitted[name] for name in weight_of]

    def _refit(
        self, search: Search, candidates: Mapping[str, BagClassifier], seed: int
    ) -> tuple[dict[str, BagClassifier], dict[str, float]]:
        """Fit what was chosen to all bags: the models, and the weights of the candidates in the final one."""
        fitted: dict[str, BagClassifier] = {}
        while True:
            if not search.tried:
                raise ValueError(f"no candidate could be fitted: {self.trials_[0]['note']}")
            self.best_name_, best, weight_of = search.best()
            self.best_risk_ = best.risk
            missing = next((name for name in weight_of if name not in fitted), None)
            if missing is None:
                if self.best_name_ not in search.tried:
                    self._record(self.best_name_, trial=best)
                return fitted, weight_of
            try:
                fitted[missing], whole = search.refit(missing, candidates[missing], seed)
                if not whole:
                    self._note(missing, f"fitted without the bags of one fold: {SPENT}")
            except Exception as error:  # it worked on some of the bags, not on all: choose again among the others
                del search.tried[missing]
                self._note(missing, f"failed: {error}")

    def _note(self, name: str, note: str) -> None:
        next(line for line in self.trials_ if line["candidate"] == name)["note"] = note

    def _record(self, name: str, *, trial: Trial | None = None, seconds: float = 0.0, note: str = "") -> None:
        measured = {key: getattr(trial, key, None) for key in ("risk", "low", "high")}
        line = {"candidate": name, **measured, "seconds": seconds, "weight": 0.0, "note": note}
        self.trials_.append(line)
        if self.callback is not None:
            self.callback(dict(line))

    def _predict_mean(self, X: Floats) -> Floats:
        numbers, classes = self.encoding_(X), len(self.classes_) > 2
        parts = (
            weight * probabilities(model, X if model.reads.codes else numbers, classes)
            for weight, model in zip(self.weights_, self.models_, strict=True)
        )
        return sum(parts, np.zeros(1))
