"""Estimators that bags which came later can refine, without the old rows: what they share."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from bagwise.bag_fit import gains
from bagwise.bags import Bags
from bagwise.bags.reading import name
from bagwise.bags.weights import standing_for
from bagwise.base import BagClassifier, BagEstimator, check_enough
from bagwise.classes import read_reports
from bagwise.data.rows import InMemory
from bagwise.data.sparse import as_dense
from bagwise.gains import HeldOut, best_stretch
from bagwise.log_odds import stretched
from bagwise.losses.log_likelihood import log_likelihoods
from bagwise.risk import least_of
from bagwise.updates import FORGETTING, OLD_FOLDER, CannotUpdateError, Forgetting, Step, UnlessRefused, Update
from bagwise.utils.parameters import ParameterError, check_parameters
from bagwise.utils.typing import ArrayLike, Floats

_CLEARLY = 2.0  # standard errors
_NONE_BEFORE = "is for models that were fitted with one: leave it out, or fit anew."
_MISSING = "is missing: the model was fitted with one, and its further bags need theirs (see Bags.with_offset)."


class Updatable(BagEstimator):
    """An estimator that bags which came later can refine, without the old rows.

    It says how (`_update_bags`), and why not where that is so (`cannot_update`).

    Attributes
    ----------
    update_ : Update
        What the last update came to.
    memory_ : object
        What is kept of the bags so far, None where it is too much to be kept.
    """

    update_: Update
    memory_: Any
    updates_offset: ClassVar[bool] = False  # whether further bags may have an offset of rows, as the first had
    gain_: float
    gain_error_: float

    __metadata_request__partial_fit = {"bags": True}  # noqa: RUF012

    @abstractmethod
    def _update_bags(self, X: Floats, bags: Bags, forgetting: Forgetting) -> Step:
        """Learn from further rows in table order and their bags, or keep what was learned."""

    @abstractmethod
    def _more_bags(self, y: Any, bags: Any, n_rows: int) -> Bags:
        """Further bags, of the classes that are known."""

    def refuses_updates(self) -> str | None:
        """Why it has no `partial_fit`, None if it has one."""
        return None

    def cannot_update(self) -> str | None:
        """Why it cannot learn from further bags as it is, None if it can."""
        if (reason := self.refuses_updates()) is not None:
            return reason
        if getattr(self, "has_offset_", False) and not self.updates_offset:
            way = "fit it to the reports of both months together, or take logistic regression"
            return f"a {type(self).__name__} with an offset cannot be updated: {way}"
        return None if getattr(self, "memory_", None) is not None else OLD_FOLDER

    @UnlessRefused
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        bags: ArrayLike | Bags | None = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        forgetting: Forgetting = 1.0,
    ) -> Self:
        """Refine what was learned by bags that came later, without the old rows; the first call is `fit`.

        Parameters
        ----------
        X, y, bags, sample_weight
            As for `fit`, of the new rows.
        classes : array, optional
            All classes, in the first call without `bags` that does not show them all.
        forgetting : float or "auto"
            The weight of what was learned before, as the forgetting factor of recursive least squares: 1 takes old and
            new bags for alike, 0 begins anew. "auto" lets held-out new bags choose, and whether the mean prediction is
            to be that of the new bags alone. For linear models; others leave what they were as far as new bags ask for.

        Returns
        -------
        Self
            The estimator itself; `update_` says what it came to.
        """
        check_parameters({"forgetting": forgetting}, {"forgetting": FORGETTING})
        first = not hasattr(self, "formation_")
        X = self._check_features(as_dense(X, "an update"), fitting=first)
        names = getattr(self, "feature_names_in_", None)
        if first:
            given = standing_for(self._first_bags(y, bags, classes, len(X)), sample_weight, alone=bags is None)
            self._fit_named(self._checked(InMemory(X, given, names=names)))
            return self
        given = standing_for(self._more_bags(y, bags, len(X)), sample_weight, alone=bags is None)
        return self.update_rows(InMemory(X, given, names=names), forgetting=forgetting)

    def _first_bags(self, y: Any, bags: Any, classes: Any, n_rows: int) -> Bags:
        return self._given_bags(y, bags, n_rows)

    def update_rows(self, data: InMemory, *, forgetting: Forgetting = 1.0) -> Self:
        """As `partial_fit`, from bags of rows as `fit_rows` takes them, in memory; returns the estimator itself."""
        check_parameters(self, self._constraints)
        if (reason := self.cannot_update()) is not None:
            raise CannotUpdateError(f"{reason}.")
        check_enough(data.bags)
        self._check_reads(data)
        if (data.bags.offset is None) == getattr(self, "has_offset_", False):
            raise ParameterError("offset", _MISSING if data.bags.offset is None else _NONE_BEFORE)
        before = self._gains_of(data)
        done = self._update_bags(data.X, data.bags, forgetting)
        if done.learned:
            self._bags_seen = data.bags.fingerprint
        unknown = (float("nan"), float("nan"))
        known = unknown if before is None else (float(before.mean()), _error(before))
        after = (self.gain_, self.gain_error_) if done.learned else known
        self.update_ = Update(len(data.bags), data.bags.n_bagged, *done, *known, *after)
        return self

    def _gains_of(self, data: InMemory) -> Floats | None:
        """(m,) log-likelihoods of new bags over those of their mean label; None for real labels."""
        return None


class UpdatableClassifier(BagClassifier, Updatable):
    """A classifier that bags which came later can refine."""

    def _first_bags(self, y: Any, bags: Any, classes: Any, n_rows: int) -> Bags:
        if classes is None:
            return self._given_bags(y, bags, n_rows)
        return self._read_bags(y, bags, n_rows, classes, first=True)

    def _more_bags(self, y: Any, bags: Any, n_rows: int) -> Bags:
        return self._read_bags(y, bags, n_rows, first=False)

    def _gains_of(self, data: InMemory) -> Floats | None:
        h = np.clip(self._checked_predict(data.X, data.bags.of_table(data.bags.offset)), 0, 1)
        return gains(h if h.ndim == 1 else h / h.sum(axis=1, keepdims=True), data.bags)

    def _read_bags(self, y: Any, bags: Any, n_rows: int, classes: Any = None, *, first: bool) -> Bags:
        """What `partial_fit` was given, as bags of the classes that the first call named or showed."""
        if bags is not None:
            given, shown = read_reports(y, bags, n_rows)
            self.classes_ = shown if first else self.classes_
            if len(shown) != len(self.classes_):
                raise ValueError(f"the bags report {len(shown)} classes, those before {len(self.classes_)}.")
            if shown.dtype.kind == "U" and list(shown) != list(self.classes_):
                said = f"names the classes {shown.tolist()}, which were {self.classes_.tolist()} before."
                raise ParameterError("y", said)
            given.check_proportions()
        elif y is None:
            raise ValueError("y is missing: pass labels, or proportions with bags.")
        else:
            labels = np.asarray(y)
            if first:
                self.classes_ = np.unique(labels if classes is None else np.asarray(classes))
            if len(labels) != n_rows:
                raise ValueError(f"X has {n_rows} rows but y has {len(labels)}.")
            if len(self.classes_) < 2:
                raise ValueError("y holds one class only: name all classes in the first call, classes=[…].")
            indicators = (labels[:, None] == self.classes_).astype(float)
            for unknown in labels[indicators.sum(axis=1) != 1]:
                raise ValueError(
                    f"y holds the class {name(unknown)}, which is not among classes: name all in the first call."
                )
            given = Bags.singletons(indicators[:, 1] if len(self.classes_) == 2 else indicators)
        check_enough(given)
        return given


class Preferred(NamedTuple):
    """What held-out new bags prefer: the model as it was (0), stretched and moved (1), or what was learned anew (2).

    stretch: of its scores.  gains: (m,) of held-out new bags over the mean label.
    """

    which: int
    stretch: float
    gains: Floats


def preferred(old: Sequence[HeldOut], new: Sequence[HeldOut], *, effect_variance: float = 0.0) -> Preferred:
    """The model as it was, unless the likelihood of held-out new bags is clearly higher with another.

    Clearly is by more than two standard errors of the difference over bags.

    old, new: what it says as it was, and after it learned from the other new bags, fold by fold; new may be empty.
    """
    stretches = [best_stretch(each, effect_variance=effect_variance)[0] for each in (old, new) if each]
    as_it_was = [stretched(one.scores, stretch=1.0, shift=0.0) for one in old]
    pairs = zip(as_it_was, old, strict=True)
    said = [np.concatenate([log_likelihoods(s, one.bags, effect_variance=effect_variance) for s, one in pairs])]
    for each, stretch in zip((old, new), stretches, strict=False):
        factor = np.array([stretch])
        found = [one.log_likelihoods(factor, effect_variance=effect_variance)[0] for one in each]
        said.append(np.concatenate(found))
    best = least_of([-one for one in said], errors=_CLEARLY)
    gains = said[best] - np.concatenate([one.constant(effect_variance=effect_variance) for one in old])
    return Preferred(best, [1.0, *stretches][best], gains)


def _error(values: Floats) -> float:
    """The standard error of a mean over bags."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))
