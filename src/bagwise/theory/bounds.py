"""What a theorem says in bags, and the search for the bags or the regret at which it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, exp, inf, log, sqrt

from scipy import optimize

from bagwise.theory.noise import EPSILON
from bagwise.utils.parameters import LEVEL, number, whole

MOST_BAGS = 1e15
"""Beyond so many bags nobody is helped by a bound: it counts as none."""

SIZE, HYPOTHESES = whole(1), whole(2)
REGRET = number(above=0, most=1)  # functions with values in [0, 1] allow no other
PROBLEM = {"size": SIZE, "regret": REGRET, "error": LEVEL, "epsilon": EPSILON}
"""What the descriptions of problems share: bags of one size, a target, an allowed error, noise."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A number of bags that suffices, or below which no learner does.

    Attributes
    ----------
    value : float
        Bags, infinite where the argument promises nothing.
    by_proof : float or None
        The same by the constants of the paper's proof, None where the proof does not cover the case.
    theorem, assumptions : str, tuple of str
        What it follows from, and what must hold.
    constants : dict of str to float
        The quantities that entered, by name.
    """

    value: float
    by_proof: float | None
    theorem: str
    assumptions: tuple[str, ...]
    constants: dict[str, float] = field(default_factory=dict)


def exponential_bags(rates: tuple[float, ...], error: float) -> float:
    """Least m with Σ exp(−m · rate) ≤ error.

    >>> exponential_bags((0.5, 0.5), 0.02)
    10.0
    """
    slowest = min(rates)
    if slowest <= 0:
        return inf
    most = log(len(rates) / error) / slowest
    return least_bags(lambda m: sum(exp(-m * rate) for rate in rates) <= error, most=most)


def least_bags(enough: Callable[[float], bool], *, most: float = MOST_BAGS) -> float:
    """Least whole m with `enough(m)`, which stays true once it is; infinite if not even `most` bags are enough."""
    if not enough(ceil(most)):
        return inf
    low, high = 0, 1
    while not enough(high):
        low, high = high, min(2 * high, ceil(most))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return float(high)


def least_regret(bags_for: Callable[[float], float], bags: float, *, most: float = 1.0) -> float:
    """Least β in (0, most] for which `bags` suffice, to a thousandth; infinite where not even `most` is promised."""
    if bags_for(most) > bags:
        return inf
    low, high = 1e-12, most
    while high / low > 1.001:
        middle = sqrt(low * high)
        low, high = (middle, high) if bags_for(middle) > bags else (low, middle)
    return high


def chernoff_rate(exponent: Callable[[float], float], most: float) -> float:
    """Largest −exponent(λ) over λ in (0, most): the rate of a Chernoff bound, 0 where none is positive."""
    found = optimize.minimize_scalar(exponent, bounds=(0.0, most), method="bounded", options={"xatol": 1e-10})
    return max(0.0, -float(found.fun))
