"""Choosing among given hypotheses: the two-function test, its tournament, and clipped empirical risk."""

from bagwise.selection.erm import ClippedERM, clipped_erm
from bagwise.selection.two_function import TwoFunctionTest, tournament, two_function_test

__all__ = ["ClippedERM", "TwoFunctionTest", "clipped_erm", "tournament", "two_function_test"]
