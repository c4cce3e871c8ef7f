"""What theory says in numbers: descriptions go in, values with their theorem and assumptions come out."""

from bagwise.theory.bounds import Bound, laplace_variance
from bagwise.theory.erm import HypothesisClass, erm_bound, erm_regret, sample_complexity
from bagwise.theory.formations import PlannedBags, bag_information
from bagwise.theory.plan import (
    Answer,
    Setting,
    bags_needed,
    expected_bags,
    expected_regret,
    largest_size,
    likely_bags,
    likely_regret,
    regrets,
)
from bagwise.theory.sgd import LinearProblem, sgd_bound, sgd_constants, sgd_excess_risk
from bagwise.theory.two_function import (
    SymmetricPair,
    TwoFunctions,
    information_bound,
    information_regret,
    limiting_information,
    two_function_bound,
    two_function_error,
)

__all__ = [
    "Answer",
    "Bound",
    "HypothesisClass",
    "LinearProblem",
    "PlannedBags",
    "Setting",
    "SymmetricPair",
    "TwoFunctions",
    "bag_information",
    "bags_needed",
    "erm_bound",
    "erm_regret",
    "expected_bags",
    "expected_regret",
    "information_bound",
    "information_regret",
    "laplace_variance",
    "largest_size",
    "likely_bags",
    "likely_regret",
    "limiting_information",
    "regrets",
    "sample_complexity",
    "sgd_bound",
    "sgd_constants",
    "sgd_excess_risk",
    "two_function_bound",
    "two_function_error",
]
