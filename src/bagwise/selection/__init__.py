"""Choosing among given hypotheses: the two-function test, its tournament, and clipped empirical risk."""

from bagwise.selection.erm import ClippedERM, clipped_erm
from bagwise.selection.two_function import (
    TwoFunctionTest,
    counts_decide,
    tournament,
    two_function_statistic,
    two_function_test,
)

__all__ = [
    "ClippedERM",
    "TwoFunctionTest",
    "clipped_erm",
    "counts_decide",
    "tournament",
    "two_function_statistic",
    "two_function_test",
]
