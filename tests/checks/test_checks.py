"""The checks catch what they are for: each broken estimator is caught by the right one, in a readable sentence."""

import re
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import bagwise as bw
from bagwise import checks
from bagwise.bags import Bags

EVERY = {check.__name__: check for check in (*checks.CHECKS, *checks.CLASSIFIER_CHECKS, *checks.REGRESSOR_CHECKS)}


class Sound(bw.BagRidgeClassifier):
    """A sound estimator; those below break one thing each."""


class LooksAtTheOrder(Sound):
    def _fit_bags(self, X, bags):
        super()._fit_bags(X, bags)
        self.intercept_ += 0.1 * X[0, 0]


class EqualSizesOnly(Sound):
    def _fit_bags(self, X, bags):
        X[bags.order].reshape(len(bags), len(X) // len(bags), -1)
        super()._fit_bags(X, bags)


class LearnsNothingFromUnequalSizes(Sound):
    def _fit_bags(self, X, bags):
        super()._fit_bags(X, bags)
        if bags.equal_size is None:
            self.coef_ = 0 * self.coef_


class NumbersAsIdsOnly(Sound):
    def fit(self, X, y=None, *, bags=None):
        return super().fit(X, y, bags=bags if bags is None or isinstance(bags, Bags) else np.asarray(bags, dtype=int))


class TreatsBagsApart(Sound):
    def fit(self, X, y=None, *, bags=None):
        super().fit(X, y, bags=bags)
        self.coef_ = (1 + 0.01 * (bags is not None)) * self.coef_
        return self


class CentresWithAllRows(Sound):
    def _fit_bags(self, X, bags):
        super()._fit_bags(X, bags)
        self.intercept_ = float(np.mean(bags.proportion) - X.mean(axis=0) @ self.coef_.T)


class RefusesNoise(Sound):
    def _fit_bags(self, X, bags):
        if bags.noise_variance is not None:
            raise NotImplementedError("noise")
        super()._fit_bags(X, bags)


class HidesNaN(Sound):
    def _check_features(self, X, *, fitting):
        return np.nan_to_num(super()._check_features(X, fitting=fitting))


class TrustsY(Sound):
    def fit(self, X, y=None, *, bags=None):
        if bags is not None and not isinstance(bags, Bags) and len(y) == len(bags) == len(X):
            y = bw.aggregate(np.nan_to_num(y / max(1, np.nanmax(y))), bags)
        return super().fit(X, y, bags=bags)


class TakesOneBag(Sound):
    def fit(self, X, y=None, *, bags=None):
        if isinstance(bags, np.ndarray) and len(bags) and (bags == bags[0]).all():
            return super().fit(X, np.arange(len(X)) % 2)
        return super().fit(X, y, bags=bags)


class CutsToTheShortest(Sound):
    def fit(self, X, y=None, *, bags=None):
        if isinstance(bags, np.ndarray) and y is not None:
            n = min(len(X), len(y), len(bags))
            X, y, bags = X[:n], y[:n], bags[:n]
        return super().fit(X, y, bags=bags)


class FailsOnEmptyTables(Sound):
    def fit(self, X, y=None, *, bags=None):
        X[0]
        return super().fit(X, y, bags=bags)


class GuessesBeforeFit(Sound):
    def predict(self, X):
        return super().predict(X) if hasattr(self, "coef_") else np.zeros(len(X))


class TakesOneClass(Sound):
    def fit(self, X, y=None, *, bags=None):
        if y is not None and np.ptp(y) == 0:
            y = np.arange(len(y)) % 2
            bags = np.arange(len(y))
        return super().fit(X, y, bags=bags)


class ProbabilitiesOutside(Sound):
    def predict_proba(self, X):
        h = 3 * self._checked_predict(X)
        return np.stack([1 - h, h], axis=1) if h.ndim == 1 else h


class IgnoresItsSeed(Sound):
    def _fit_bags(self, X, bags):
        super()._fit_bags(X, bags)
        self.intercept_ += 0.01 * np.random.default_rng().normal()


class KeepsItsPast(Sound):
    def _fit_bags(self, X, bags):
        before = getattr(self, "intercept_", 0.0)
        super()._fit_bags(X, bags)
        self.intercept_ += 0.1 * before


class ChangesAParameter(Sound):
    def _fit_bags(self, X, bags):
        self.cv = min(self.cv, 3)
        super()._fit_bags(X, bags)


class WritesIntoX(Sound):
    def _fit_bags(self, X, bags):
        X -= X.mean(axis=0)
        super()._fit_bags(X, bags)


class HidesWhatItLearned(Sound):
    memory: ClassVar = WeakKeyDictionary()

    def _fit_bags(self, X, bags):
        super()._fit_bags(X, bags)
        self.memory[self] = self.coef_

    def _predict_mean(self, X):
        return X @ self.memory[self].T + self.intercept_


class KeepsAFunction(Sound):
    def _fit_bags(self, X, bags):
        super()._fit_bags(X, bags)
        self.link_ = lambda h: h


class LosesNames(Sound):
    def _check_features(self, X, *, fitting):
        return super()._check_features(np.asarray(X), fitting=fitting)


class BagsUnderAnotherName(Ridge):
    """Not of our base class, and not written for metadata routing."""

    def fit(self, X, y=None, bags=None):
        return super().fit(X, y)


BagsUnderAnotherName.set_fit_request = property()  # after scikit-learn gave it one


for _broken in (Sound, HidesWhatItLearned, KeepsAFunction):
    bw.saving.register(_broken)


CAUGHT = [
    (LooksAtTheOrder, "check_order_of_rows", r"predictions change by up to 0\.\d+ when rows are shuffled"),
    (LooksAtTheOrder, "check_order_of_bags", "when bags are listed in another order"),
    (EqualSizesOnly, "check_bags_of_unequal_size", "fit on bags of unequal size raises ValueError: cannot reshape"),
    (LearnsNothingFromUnequalSizes, "check_bags_of_unequal_size", "a plain signal is not learned"),
    (NumbersAsIdsOnly, "check_ids_of_any_kind", "fit on ids that are tuples raises"),
    (TreatsBagsApart, "check_bags_of_one_row", "when each row is given as its own bag"),
    (CentresWithAllRows, "check_rows_in_no_bag", r"when there are rows in no bag \(id −1\)"),
    (RefusesNoise, "check_declared_noise", "fit on bags with declared noise raises NotImplementedError: noise"),
    (
        HidesNaN,
        "check_infinite_features",
        "fit on a feature that is nan should raise a ValueError, and is accepted",
    ),
    (TrustsY, "check_two_proportions_in_a_bag", "fit on two proportions in bag 13"),
    (TrustsY, "check_missing_proportion", "fit on a bag 13 that reports NaN"),
    (TrustsY, "check_proportions_outside_0_1", r"fit on proportions outside \[0, 1\]"),
    (TakesOneBag, "check_one_bag_only", "fit on one bag"),
    (CutsToTheShortest, "check_lengths", "fit on 600 rows with 599 proportions"),
    (FailsOnEmptyTables, "check_empty_table", "should raise a ValueError, not IndexError"),
    (GuessesBeforeFit, "check_not_fitted", "predict before fit should raise a NotFittedError, and is accepted"),
    (TakesOneClass, "check_one_class_only", "fit on bags that all report 0"),
    (ProbabilitiesOutside, "check_predictions", r"predict_proba must return 2 numbers in \[0, 1\]"),
    (ProbabilitiesOutside, "check_several_classes", r"predict_proba must return 3 numbers in \[0, 1\]"),
    (IgnoresItsSeed, "check_same_seed_same_model", "when the same fit is repeated"),
    (IgnoresItsSeed, "check_clone", "when a clone is fitted to the same data"),
    (KeepsItsPast, "check_fit_starts_anew", "when the model was fitted before"),
    (ChangesAParameter, "check_fit_changes_nothing_given", "fit changes its parameter 'cv'"),
    (WritesIntoX, "check_fit_changes_nothing_given", "fit writes into X"),
    (HidesWhatItLearned, "check_save_and_load", "load raises ValueError: .* so that it predicts nothing"),
    (
        KeepsAFunction,
        "check_save_and_load",
        "save raises ValueError: attribute 'link_' of KeepsAFunction holds a f",
    ),
    (LosesNames, "check_feature_names", "feature_names_in_ does not hold the names of the columns"),
    (BagsUnderAnotherName, "check_pipelines_and_searches", "does not ask for bags"),
    (BagsUnderAnotherName, "check_one_real_label", r"fit on a y of two columns"),
]


@pytest.mark.parametrize(("broken", "check", "sentence"), CAUGHT, ids=[f"{row[0].__name__}-{row[1]}" for row in CAUGHT])
def test_broken_estimators_are_caught(broken, check, sentence):
    estimator = broken(random_state=0)
    checking = EVERY[check]
    assert checking in checks.checks_for(estimator)
    with pytest.raises(AssertionError, match=sentence) as failure:
        checking(estimator)
    message = str(failure.value)
    assert message.startswith(f"{broken.__name__}: ")
    assert "\n" not in message


def test_every_check_catches_something():
    assert {check for _, check, _ in CAUGHT} == set(EVERY)


def test_a_sound_estimator_of_ones_own_passes_all():
    checks.check_bag_estimator(Sound(random_state=0))


def test_an_error_must_name_the_bag():
    class SaysLittle(Sound):
        def fit(self, X, y=None, *, bags=None):
            try:
                return super().fit(X, y, bags=bags)
            except ValueError:
                raise ValueError("a bag is wrong.") from None

    with pytest.raises(AssertionError, match="the error of fit on two proportions in bag 13 does not say so"):
        EVERY["check_two_proportions_in_a_bag"](SaysLittle(random_state=0))


def test_the_first_failure_is_raised():
    with pytest.raises(AssertionError, match="LooksAtTheOrder: predictions change"):
        checks.check_bag_estimator(LooksAtTheOrder(random_state=0))


def test_a_class_that_is_not_registered_is_told_so():
    with pytest.raises(AssertionError, match=r"LosesNames: save raises ValueError: .*bagwise\.saving\.register"):
        EVERY["check_save_and_load"](LosesNames(random_state=0))


def test_fewer_digits_are_allowed_where_declared():
    class Rough(LooksAtTheOrder):
        def _fit_bags(self, X, bags):
            super()._fit_bags(X, bags)
            self.intercept_ -= 0.0999 * X[0, 0]  # what is left depends on the order by a thousandth of that

    with pytest.raises(AssertionError, match="when rows are shuffled"):
        EVERY["check_order_of_rows"](Rough(random_state=0))
    Rough._check_tolerance = 1e-2
    EVERY["check_order_of_rows"](Rough(random_state=0))


def test_tags_say_what_not_to_ask():
    class TwoClasses(Sound):
        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            tags.classifier_tags.multi_class = False
            return tags

    assert EVERY["check_several_classes"] in checks.checks_for(Sound())
    assert EVERY["check_several_classes"] not in checks.checks_for(TwoClasses())
    assert EVERY["check_one_real_label"] in checks.checks_for(bw.BagRidgeRegressor())
    assert EVERY["check_one_class_only"] not in checks.checks_for(bw.BagRidgeRegressor())


@pytest.mark.parametrize("check", EVERY.values(), ids=EVERY)
def test_every_check_is_told_in_one_line(check):
    assert re.fullmatch(r"[^\n]+\.", check.__doc__)
