"""Candidates of all families for real labels, and the regressor that keeps what is best of them on held-out bags."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from bagwise.auto.fitting import MEAN_LABEL, PREFERRED, AutoFit, candidates_are
from bagwise.auto.search import Search, every_row, some_rows
from bagwise.auto.trials import Trial
from bagwise.bags import Bags
from bagwise.base import BagRegressor
from bagwise.data.rows import Reads
from bagwise.estimators import make
from bagwise.explanation.contributions import VALUE, Contributions, mean_of
from bagwise.gains import tell_gain
from bagwise.linear.moments import worth
from bagwise.nonnegative import NONNEGATIVE, never_negative
from bagwise.utils.parameters import Constraint
from bagwise.utils.typing import Floats


def default_value_candidates() -> dict[str, BagRegressor]:
    """Candidates for real labels by name, one of each family first, the cheap ones before the others.

    Ridge, log-linear regression, gradient steps, boosting, where torch is installed a network; then boosting with few
    and many leaves.

    >>> list(default_value_candidates())[:4]
    ['ridge', 'tweedie', 'sgd', 'boosting']
    """
    candidates: dict[str, BagRegressor] = {
        name: make(name, target="value") for name in ("ridge", "tweedie", "sgd", PREFERRED)
    }
    if find_spec("torch") is not None:
        candidates["network, 32"] = make("network", target="value")
    return candidates | {
        f"boosting, {leaves} leaves": make("boosting", target="value", num_leaves=leaves) for leaves in (3, 31)
    }


@dataclass(kw_only=True, eq=False, repr=False)
class BagAutoRegressor(AutoFit, BagRegressor):
    """Candidates of all families for real labels, chosen without them on held-out bags, then refitted.

    Where bags are random they are compared by the label-free risk of real labels, unclipped, in other formations by the
    likelihood of the means of held-out bags, as if these were normal: by the error of bags, each counting k, and less
    with declared noise. Where the best is not clearly better than the mean label, that is told, and its predictions are
    drawn towards p as far as held-out bags ask for. The mean prediction of the training rows is p, and predictions of
    labels that are never negative are not either.

    Parameters
    ----------
    candidates : dict of regressors by name, optional
        As for `BagAutoClassifier`; None takes `default_value_candidates()`, of which boosting is kept unless another is
        clearly better. A candidate that these labels do not suit is passed over.
    nonnegative : bool or "auto"
        Whether labels are never negative; "auto" takes them for that where no bag reports less than 0.
    formation, stack, time_budget, cv, held_out_bags, max_levels, categorical_features, level, callback, random_state
        As for `BagAutoClassifier`.
    regret : float
        Not for values, whose squares nothing bounds.

    Attributes
    ----------
    trials_ : list of dict
        As for `BagAutoClassifier`; risks are mean square errors.
    stretch_, offset_ : float
        What predictions less p are multiplied by, 1 where held-out bags clearly prefer them to p; and what is added
        then.
    nonnegative_, factor_ : bool, float
        Whether labels were taken for never negative, and what predictions are multiplied by so that their mean is p.
    prior_ : float
        p.
    formation_, best_name_, best_risk_, gain_, gain_error_, models_, weights_, features_, encoding_
        As for `BagAutoClassifier`.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3200, 3))
    >>> y = X @ [2.0, -1.0, 0.0] + rng.normal(size=3200)
    >>> ids = bw.random_bags(3200, size=16, random_state=0)
    >>> boosting = bw.BagBoostingRegressor(n_estimators=10, n_fits=1, cv=2, n_jobs=1)
    >>> candidates = {"ridge": bw.BagRidgeRegressor(), "boosting": boosting}
    >>> model = BagAutoRegressor(candidates=candidates, cv=2, random_state=0)
    >>> model.fit(X, bw.aggregate(y, ids), bags=ids).best_name_
    'ridge'
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **AutoFit._constraints,
        "candidates": candidates_are(BagRegressor, "regressors"),
        "nonnegative": NONNEGATIVE,
    }
    reads: ClassVar[Reads] = Reads(codes=True, weights=True)
    _target: ClassVar[str] = "value"
    _of_few_bags: ClassVar[str] = "ridge"

    nonnegative: bool | str = "auto"

    def _defaults(self) -> Mapping[str, Any]:
        return default_value_candidates()

    def _settle_formation(self, search: Search) -> list[str]:
        return []

    def _settle(self, best: Trial | None, X: Floats, bags: Bags) -> None:
        self.stretch_, self.factor_, gains = 0.0 if self.best_name_ == MEAN_LABEL else 1.0, 1.0, None
        if best is not None:
            gains = best.gains
            if not best.clear:
                self.stretch_, gains = best.shrunk()
        self.gain_, self.gain_error_ = tell_gain(gains, stacklevel=4)
        self.nonnegative_ = never_negative(self.nonnegative, bags.size, bags.proportion, bags.noise_variance)
        count = np.ones(len(bags)) if best is None else worth(bags.noise_per_row, best.spread)
        self.prior_ = float(np.average(bags.proportion, weights=count * bags.size))
        weight = None if bags.weight is None else bags.weight[:: every_row(bags)]
        h = self._mixed(X[some_rows(bags)])
        self.offset_ = self.prior_ - self.stretch_ * float(np.average(h, weights=weight))
        if self.nonnegative_:
            mean = float(np.average(self._predicted(h), weights=weight))
            self.factor_ = max(self.prior_, 0.0) / mean if mean > 0 else 1.0

    def _predicted(self, h: Floats) -> Floats:
        moved = self.stretch_ * h + self.offset_
        return np.asarray(self.factor_ * np.maximum(moved, 0)) if self.nonnegative_ else moved

    def _contributions(self, X: Floats) -> Contributions:
        """To values, in proportion where these are kept above 0."""
        found = mean_of([part.to_predictions() for part in self._parts(X)], self.weights_)
        return found.through(self._predicted, VALUE)

    def _predict_mean(self, X: Floats) -> Floats:
        return self._predicted(self._mixed(X))
