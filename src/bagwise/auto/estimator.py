"""Candidates of all families for labels, and the classifier that keeps what is best of them on held-out bags."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from bagwise.auto.fitting import PREFERRED, AutoFit, candidates_are
from bagwise.auto.search import Search, every_row, some_rows
from bagwise.auto.trials import Trial, of_labels, surely
from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.baselines import GroupPriorClassifier
from bagwise.data.rows import InMemory, Reads
from bagwise.estimators import make
from bagwise.explanation.contributions import LOG_ODDS, LOG_PROBABILITY, Contributions, mean_of
from bagwise.formation import settled
from bagwise.gains import tell_gain
from bagwise.intervals import TellsIntervals
from bagwise.linear import BagMeanMapClassifier
from bagwise.log_odds import LEAST, prior_of, prior_of_classes, scores_of, shift_to, shift_to_classes, stretched
from bagwise.updatable import Updatable, UpdatableClassifier
from bagwise.updates import CANNOT, Forgetting, Step
from bagwise.utils.parameters import Constraint
from bagwise.utils.typing import Floats

OF_FEW_BAGS = "logistic"
"""The default candidate that is taken where there are too few bags to hold any out."""

_CLOSE = 0.02  # of p(1 − p), that a mean prediction may be off p


def default_candidates() -> dict[str, BagClassifier]:
    """Candidates by name, one of each family first, the cheap ones before the others.

    Ridge, the mean map, logistic regression, the group prior, boosting, where torch is installed a network; then others
    of these families, with few and many leaves, and with more layers.

    >>> list(default_candidates())[:5]
    ['ridge', 'mean map', 'logistic', 'group prior', 'boosting']
    """
    candidates: dict[str, BagClassifier] = {"ridge": make("ridge"), "mean map": BagMeanMapClassifier()}
    candidates |= {OF_FEW_BAGS: make("logistic"), "group prior": GroupPriorClassifier(), PREFERRED: make("boosting")}
    others = {f"boosting, {leaves} leaves": make("boosting", num_leaves=leaves) for leaves in (3, 31)}
    if find_spec("torch") is not None:
        candidates["network, 32"] = make("network")
        others["network, 128-64"] = make("network", hidden=(128, 64))
    return candidates | others


@dataclass(kw_only=True, eq=False, repr=False)
class BagAutoClassifier(AutoFit, TellsIntervals, UpdatableClassifier):
    """Candidates of all families, chosen without labels on held-out bags, then refitted.

    Where bags are random they are compared by the clipped empirical risk, in other formations by the likelihood of what
    held-out bags report (see `bagwise.gains`). Where the best is not clearly better than the mean label, that is told,
    and its log odds are shrunk as far as held-out bags ask for. The mean prediction of the training rows is p, and no
    probability is 0 or 1.

    `partial_fit` refines the models that were chosen, where these can be; candidates are not tried again.

    Tables of pandas, polars or Arrow may hold categories and missing values: trees read them as they are, other
    candidates as scaled numbers and one column per level (see `features.Encoding`).

    Parameters
    ----------
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about (see `bagwise.formation`); "auto" lets the bags tell. Candidates whose own formation is
        "auto" are given it; they are tried twice where their fits show that only rates differ.
    candidates : dict of classifiers by name, optional
        They are tried in the order given. The first is kept unless another is clearly better: by two standard errors of
        the difference in risk, by one of that in likelihood. None takes `default_candidates()`, cheap families first,
        of which boosting is kept unless another is clearly better. A classifier of your own takes part as its `reads`
        says. With fewer than four bags none is tried, and the first (or logistic regression) is fitted.
    stack : bool
        Predict with a mean of candidates, weighted by least squares on the held-out bags, instead of the best alone.
    time_budget : float, optional
        Seconds. Before a candidate is tried, two fits to few of the rows tell about how long it takes; it is passed
        over where that is too long, held out on fewer folds where time is short, and stopped inside a fit where time is
        over all the same. The best is refitted, until 1.05 times the budget are over; then its fit without the first
        fold is kept. Without a single trial, the first candidate is fitted to as many bags as there is time for; if
        there is none, all rows get p.
    cv, held_out_bags : int
        The bags are cut into `cv` folds, of which as many are held out in turn as are needed to hold out
        `held_out_bags` bags.
    max_levels : int
        Most columns for the levels of a category, where a candidate needs numbers; fewer where all categories together
        would take more than 512.
    categorical_features : sequence of int, optional
        Columns of an array that hold category codes (tables say so by their types).
    regret, level : float
        β of the clipping threshold; level of the intervals.
    callback : callable, optional
        Called with each line of `trials_` as it is made, and once more where a second trial changes it. It is told how
        far the search is, too: `done` and `total` trials, second ones included once they are known to come, and what
        comes now, `stage` ("trial", "second trial", "fit", "end") and `next`, the candidate that is tried, or None.
    random_state : int, Generator or None
        For the folds and for candidates that have none of their own. If it is a number, the refitted model is the one
        that the candidate alone would be with it.

    Attributes
    ----------
    formation_ : Told
        The formation that was used, and why.
    trials_ : list of dict
        One per candidate, and one for a mean of several: candidate, risk, low, high (label-free, None where it was not
        tried or bags are not random), gain, gain_error (None where it was not tried), seconds, weight in the final
        model, note (why it was not tried, stopped or failed).
    best_name_, best_risk_ : str, float
        The line of `trials_` that was chosen, and its risk, NaN where there is none.
    gain_, gain_error_ : float
        Log-likelihood of a held-out bag over that of the mean label, and its standard error; NaN without a trial.
    stretch_, offset_ : float, and float or array
        What log odds of the models are multiplied by, 1 where they are clearly better than the mean label; and what is
        added so that their mean prediction is p, 0 where it is.
    models_, weights_ : list and array
        The refitted models and their weights; one model unless a mean of several was chosen.
    prior_ : float or array
        p.
    features_, encoding_ : FeatureCodes, Encoding
        The columns of the table with the levels of categories; how these become numbers for models that read no others.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3200, 3))
    >>> y = (rng.random(3200) < np.clip(0.5 + X @ [0.2, -0.1, 0.0], 0, 1)).astype(int)
    >>> ids = bw.random_bags(3200, size=16, random_state=0)
    >>> boosting = bw.BagBoostingClassifier(n_estimators=10, n_fits=1, cv=2, n_jobs=1)
    >>> candidates = {"ridge": bw.BagRidgeClassifier(), "boosting": boosting}
    >>> model = BagAutoClassifier(candidates=candidates, cv=2, random_state=0)
    >>> model.fit(X, bw.aggregate(y, ids), bags=ids).best_name_
    'ridge'
    """

    reads: ClassVar[Reads] = Reads(codes=True, weights=True, offset=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **AutoFit._constraints,
        "candidates": candidates_are(BagClassifier, "classifiers"),
    }
    _of_few_bags: ClassVar[str] = OF_FEW_BAGS

    def _defaults(self) -> Mapping[str, Any]:
        return default_candidates()

    def _settle_formation(self, search: Search) -> list[str]:
        """Let the candidate that held-out bags like best tell what they alone do not; trials are scored anew then.

        Candidates were fitted for the weakest assumption. Returns the names of those to be tried again for another.
        """
        if self.formation_.others and search.tried and search.left() > 0:
            self.formation_ = settled(self.formation_, of_labels(search.liked_best().parts))
        again = search.take_for(self.formation_.name)
        for name, trial in search.tried.items():
            self._line(name).update(trial.measured)
        return again

    def _settle(self, best: Trial | None, X: Floats, bags: Bags) -> None:
        self.stretch_, gains = 1.0, None
        if best is not None:
            gains = best.gains
            if not best.clear:
                self.stretch_, gains = best.shrunk()
        self.gain_, self.gain_error_ = tell_gain(gains, stacklevel=4)
        self.prior_: float | Floats = prior_of(bags) if bags.proportion.ndim == 1 else prior_of_classes(bags)
        weight, offset = (None if one is None else one[:: every_row(bags)] for one in (bags.weight, bags.offset))
        h = self._mixed(X[some_rows(bags)], offset)
        s = self.stretch_ * scores_of(h)
        if offset is not None:
            s = self.stretch_ * (surely(h) - offset) + offset
        mean = np.average(h, axis=0, weights=weight)
        off = np.abs(mean - self.prior_) > _CLOSE * np.multiply(self.prior_, np.subtract(1, self.prior_))
        self.offset_: float | Floats = 0.0
        if self.stretch_ != 1 or np.any(off):
            self.offset_ = (
                shift_to(self.prior_, s, weight=weight)
                if isinstance(self.prior_, float)
                else shift_to_classes(self.prior_, s, weight=weight)
            )

    def refuses_updates(self) -> str | None:
        """Why what was chosen has no updates, None if it has."""
        for model in getattr(self, "models_", []):
            if not isinstance(model, Updatable):
                return f"a {type(model).__name__}, which was chosen, {CANNOT}"
            if (reason := model.refuses_updates()) is not None:
                return reason
        return None

    def cannot_update(self) -> str | None:
        """Why what was chosen cannot learn from further bags as it is, None if it can."""
        if getattr(self, "has_offset_", False):
            return super().cannot_update()
        reasons = (model.cannot_update() for model in self.models_ if isinstance(model, Updatable))
        return self.refuses_updates() or next((one for one in reasons if one is not None), None)

    def _update_bags(self, X: Floats, bags: Bags, forgetting: Forgetting) -> Step:
        """What was chosen is refined; candidates are not tried again."""
        for model in self.models_:
            assert isinstance(model, Updatable)
            read = X if model.reads.codes else self.encoding_(X)
            model.update_rows(InMemory(read, bags, self._categorical()), forgetting=forgetting)
        last = [model.update_ for model in self.models_ if isinstance(model, Updatable)]
        h, weight = self._mixed(X[some_rows(bags)]), None if bags.weight is None else bags.weight[:: every_row(bags)]
        if self.stretch_ != 1 or np.any(self.offset_):  # the models' own mean prediction, whatever they are shrunk by
            s, mean = self.stretch_ * scores_of(h), np.average(h, axis=0, weights=weight)
            told: dict[str, Any] = {"weight": weight}
            self.offset_ = shift_to(float(mean), s, **told) if s.ndim == 1 else shift_to_classes(mean, s, **told)
        self.prior_ = prior_of(bags) if bags.proportion.ndim == 1 else prior_of_classes(bags)
        self.gain_, self.gain_error_ = last[0].after, last[0].after_error
        how = "; ".join(dict.fromkeys(one.how for one in last))
        return Step(how, any(one.learned for one in last), last[0].forgetting, last[0].apart)

    def _contributions(self, X: Floats) -> Contributions:
        """To log odds, or to logarithms of probabilities of classes, of the mean of the models' probabilities."""
        found = mean_of([part.to_predictions() for part in self._parts(X)], self.weights_)
        two = found.values.ndim == 2

        def score(h: Floats) -> Floats:
            if getattr(self, "has_offset_", False):
                return np.asarray(self.stretch_ * surely(h) + self.offset_)
            return stretched(scores_of(h), stretch=self.stretch_, shift=self.offset_)

        return found.through(score, LOG_ODDS if two else LOG_PROBABILITY)

    def _interval(self, X: Floats, level: float, offset: Floats | float) -> Floats:
        """Those of the one model that was chosen, stretched and moved as its log odds are."""
        (model, *others) = self.models_
        if others or not isinstance(model, TellsIntervals):
            what = "a mean of several models" if others else f"a {type(model).__name__}"
            raise ValueError(f"{what}, which was chosen, tells no intervals: take boosting, logistic or ridge.")
        if len(self.classes_) > 2:
            raise ValueError(
                "intervals of several classes are those of logistic regression and ridge: fit one of them by itself."
            )
        ends = model._interval(X if model.reads.codes else self.encoding_(X), level, 0.0)
        score = surely if getattr(self, "has_offset_", False) else scores_of
        scores = score(np.clip(ends, 0.0, 1.0).ravel()).reshape(ends.shape)
        return np.asarray(expit(self.stretch_ * scores + self.offset_ + offset))

    def _decision(self, X: Floats) -> Floats:
        return self.stretch_ * surely(self._mixed(X, np.zeros(len(X)))) + self.offset_

    def _predict_mean(self, X: Floats) -> Floats:
        h = self._mixed(X)
        if self.stretch_ == 1 and not np.any(self.offset_):
            return np.clip(h, LEAST, 1 - LEAST)
        s = stretched(scores_of(h), stretch=self.stretch_, shift=self.offset_)
        return np.asarray(expit(s) if s.ndim == 1 else np.exp(s))
