r"""What all bounds share: the law of noise on counts, the record of a bound, the search for bags or a regret.

Noise is discrete Laplace, as it is added to counts, in closed form. A count with noise of
:math:`P(e = i) = \frac{1-q}{1+q}\, q^{|i|}`, :math:`q = e^{-\varepsilon}`, is ε-differentially private where one label
moves it by 1. Nothing is drawn here: noise that protects people comes from `bagwise.privacy`.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, exp, expm1, floor, inf, log, log1p, sqrt

import numpy as np
from scipy import optimize

from bagwise.utils.parameters import LEVEL, NONE, check_parameters, number, whole
from bagwise.utils.typing import Floats

MOST_BAGS = 1e15
"""Beyond so many bags nobody is helped by a bound: it counts as none."""

LARGEST_SIZE = 10**12
"""Rows of a bag: no table has as many."""
EPSILON = number(least=1e-9, most=1e9) | NONE
"""ε of the noise on counts; None is no noise. Less is noise beyond any count, more is none."""
SIZE, HYPOTHESES = whole(1, LARGEST_SIZE), whole(2, 10**15)
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
    most = min(most, MOST_BAGS)
    if not enough(ceil(most)):
        return inf
    return float(bisect_left(range(ceil(most)), True, lo=1, key=enough))


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


# -- the law of the noise ------------------------------------------------------------------------------------------


def laplace_variance(epsilon: float | None) -> float:
    r"""Variance :math:`2q/(1-q)^2` of the noise, a little less than the :math:`2/\varepsilon^2` of continuous noise.

    Parameters
    ----------
    epsilon : float or None
        Of the noise, None for none.

    Returns
    -------
    float
        0 where there is none.

    Examples
    --------
    >>> round(laplace_variance(1.0), 4), laplace_variance(None)
    (1.8413, 0.0)
    """
    check_parameters({"epsilon": epsilon}, {"epsilon": EPSILON})
    return 0.0 if epsilon is None else 2 * exp(-epsilon) / expm1(-epsilon) ** 2


def laplace_tail(threshold: float, epsilon: float) -> float:
    r"""P(\|e\| > t) :math:`= 2q^{\lfloor t \rfloor + 1}/(1+q)` for t ≥ 0."""
    return 2 * exp(-epsilon * (floor(threshold) + 1)) / (1 + exp(-epsilon))


def laplace_tail_square(threshold: float, epsilon: float) -> float:
    r"""E[e²; \|e\| > t], from a closed form.

    .. math:: \sum_{i \ge n} i^2 q^i = q^n\bigl(\tfrac{n^2}{1-q} + \tfrac{2nq}{(1-q)^2} + \tfrac{q(1+q)}{(1-q)^3}\bigr)
    """
    q, n, left = exp(-epsilon), floor(threshold) + 1, -expm1(-epsilon)
    total = exp(-epsilon * n) * (n**2 / left + 2 * n * q / left**2 + q * (1 + q) / left**3)
    return 2 * left / (1 + q) * total


def laplace_log_mgf(rate: float, epsilon: float) -> float:
    r"""log E[exp(λe)] :math:`= \log\frac{(1-q)^2}{(1-qe^\lambda)(1-qe^{-\lambda})}`, infinite from \|λ\| = ε on."""
    if abs(rate) >= epsilon:
        return inf
    return 2 * log(-expm1(-epsilon)) - log(-expm1(rate - epsilon)) - log1p(-exp(-rate - epsilon))


def laplace_reach(epsilon: float, *, negligible: float = 1e-17) -> int:
    """K, beyond which each e has a probability below `negligible`."""
    return int(np.ceil(-np.log(negligible) / epsilon))


def laplace_law(epsilon: float) -> Floats:
    """Probabilities of e = −K, …, K; those beyond, which hardly occur, are left out."""
    reach = laplace_reach(epsilon)
    law = np.exp(-epsilon * np.abs(np.arange(-reach, reach + 1)))
    return np.asarray(law / law.sum())
