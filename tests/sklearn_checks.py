"""scikit-learn's own checks of estimators, as parameters of a test."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import estimator_checks_generator

# Weights beside rows repeated: the check sets `cv` to folds of its own, and here it is a number of folds of bags.
# tests/linear/test_likelihood.py and tests/boosting/test_objectives.py ask for the same with folds left out.
ELSEWHERE = "check_sample_weight_equivalence"


def parametrize(estimators: Iterable[Any]) -> pytest.MarkDecorator:
    """As `parametrize_with_checks`; those that train once more on the same table, read-only or single, are slow.

    That such tables are read, and in every precision, is what cheaper checks say.
    """
    return pytest.mark.parametrize(
        ("estimator", "check"),
        [
            pytest.param(each, one, id=f"{type(each).__name__}-{name(one)}", marks=marks(one))
            for estimator in estimators
            for each, one in estimator_checks_generator(estimator)
            if ELSEWHERE not in name(one)
        ],
    )


def options(one: Callable[[Any], None]) -> dict[str, Any]:
    return getattr(one, "keywords", {})


def name(one: Callable[[Any], None]) -> str:
    called = getattr(one, "func", one).__name__
    return "-".join([called, *(f"{key}={value}" for key, value in options(one).items())])


def marks(one: Callable[[Any], None]) -> list[pytest.MarkDecorator]:
    again = "train" in name(one) and "readonly_memmap" in options(one)
    return [pytest.mark.slow] if again or "sparse_matrix" in name(one) else []  # sparse arrays are read alike


def check(estimator: Any, one: Callable[[Any], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        one(estimator)
