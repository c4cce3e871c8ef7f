"""What every estimator that learns from bags must do: a list of checks, for ours and for yours.

With pytest::

    @pytest.mark.parametrize("check", bagwise.checks.checks_for(MyClassifier()))
    def test_my_classifier(check):
        check(MyClassifier())

or all at once, `check_bag_estimator`. A check takes an estimator that is not fitted, works on clones of it, and raises
an AssertionError of one sentence. What has nothing to do with bags is left to scikit-learn's own ``check_estimator``.

Conventions: ``fit(X, y, *, bags=None)`` as in `bagwise.base`; ``random_state`` is set where there is one. Predictions
that must be equal may differ by a relative 1e-6, since sums in another order round differently; a class that computes
with fewer digits says how far with an attribute, ``_check_tolerance = 1e-3``. The same fit repeated, and a model saved
and loaded, must be equal to the last bit; a class of your own is made known to `bagwise.save` by
`bagwise.saving.register`. Tags of scikit-learn say what not to ask: NaN is to be refused unless ``allow_nan`` is set,
several classes are to be learned unless ``multi_class`` is not, and a plain signal unless ``poor_score`` is.
"""

import functools
from collections.abc import Callable
from typing import Any

from sklearn.base import is_classifier
from sklearn.utils import get_tags

from bagwise.checks import estimators

__all__ = ["CHECKS", "CLASSIFIER_CHECKS", "REGRESSOR_CHECKS", "check_bag_estimator", "checks_for"]

Check = Callable[[Any], None]


def _of_estimator(check: Callable[[estimators.Case], None]) -> Check:
    @functools.wraps(check)
    def run(estimator: Any) -> None:
        check(estimators.Case(estimator))

    return run


_EVERY = {name: _of_estimator(check) for name, check in vars(estimators).items() if name.startswith("check_")}

_OF_CLASSIFIERS = ("check_proportions_outside_0_1", "check_one_class_only", "check_several_classes")
CLASSIFIER_CHECKS: tuple[Check, ...] = tuple(_EVERY[name] for name in _OF_CLASSIFIERS)
"""Further checks for classifiers."""

REGRESSOR_CHECKS: tuple[Check, ...] = (_EVERY["check_one_real_label"],)
"""Further checks for regressors."""

CHECKS = tuple(check for check in _EVERY.values() if check not in (*CLASSIFIER_CHECKS, *REGRESSOR_CHECKS))
"""Checks for every estimator."""


def check_bag_estimator(estimator: Any) -> None:
    """Run all checks on an estimator; the first that fails raises an AssertionError.

    Parameters
    ----------
    estimator : estimator
        Not fitted; clones of it are.

    Examples
    --------
    >>> import bagwise as bw
    >>> check_bag_estimator(bw.BagRidgeClassifier(random_state=0))
    """
    for check in checks_for(estimator):
        check(estimator)


def checks_for(estimator: Any) -> list[Check]:
    """The checks that apply to an estimator.

    Parameters
    ----------
    estimator : estimator
        Not fitted.

    Returns
    -------
    list of callable
        Each takes the estimator.

    Examples
    --------
    >>> import bagwise as bw
    >>> [check.__name__ for check in checks_for(bw.BagRidgeRegressor())][:2]
    ['check_order_of_rows', 'check_order_of_bags']
    """
    if not is_classifier(estimator):
        return [*CHECKS, *REGRESSOR_CHECKS]
    several = get_tags(estimator).classifier_tags.multi_class
    left_out = None if several else _EVERY["check_several_classes"]
    return [*CHECKS, *(check for check in CLASSIFIER_CHECKS if check is not left_out)]
