r"""Algorithm 1 in numbers: how often it errs, and how many bags it needs.

Let h₁ be true, :math:`D_j = \sum_{i \in j} (h_1 - h_2)(x_i)` and :math:`\Sigma_j = k\alpha_j - E_{j,1}`, which given
the bag is a sum of k independent centred labels. Both statistics of the algorithm have a plain form:

* *totals*: :math:`|A_1| \ge |A_2|` exactly where :math:`\sum D_j` and :math:`A_1 + A_2 = \sum (2\Sigma_j + D_j)` differ
  in sign;
* *bags*: :math:`Q = \sum_j \pm\Sigma_j - \tfrac{1}{2} \sum_j |D_j|`.

Noise e_j on the counts adds :math:`2\sum e_j` to the first and :math:`\sum \pm e_j` to the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
from scipy import optimize, stats

from bagwise.theory.bounds import PROBLEM, Bound, chernoff_rate, exponential_bags, laplace_log_mgf
from bagwise.utils.parameters import ParameterError, check_parameters
from bagwise.utils.typing import Floats

_TAIL = float(stats.norm.cdf(-1))  # Φ(−1)
_BRANCHES = {None: "", True: " on total counts", False: " on single bags"}


@dataclass(frozen=True, kw_only=True)
class TwoFunctions:
    r"""Two functions, one of which is true.

    Parameters
    ----------
    size : int
        Rows per bag k.
    regret, error : float
        Separation β = E[(h₁ − h₂)²], and δ, allowed probability of choosing the wrong one.
    bias : float or None
        Δ = E[h₁ − h₂], \\|Δ\\| ≤ √β; None for whatever it may be.
    epsilon : float or None
        Of discrete Laplace noise on the counts, None without noise.
    """

    size: int
    regret: float
    bias: float | None = None
    error: float = 0.05
    epsilon: float | None = None

    def __post_init__(self) -> None:
        check_parameters(self, PROBLEM)
        if self.bias is not None and self.bias**2 > self.regret:
            raise ParameterError("bias", f"must lie within ±√regret = ±{sqrt(self.regret):.4g}, got {self.bias}.")

    @property
    def edge(self) -> float:
        r"""√(β/2k): from there on \\|Δ\\| makes the algorithm compare total counts."""
        return sqrt(self.regret / (2 * self.size))

    @property
    def totals(self) -> bool | None:
        """Whether the algorithm compares total counts, None where Δ is not given."""
        return None if self.bias is None else abs(self.bias) >= self.edge


def two_function_bound(problem: TwoFunctions) -> Bound:
    r"""Bags with which Algorithm 1 errs with probability δ at most, for every pair with this β and Δ.

    *Totals.* Given x, 2Σ_j + D_j moves by labels of range 2 and D_j by functions of range 2, so by Hoeffding's lemma
    the sum over n = mk rows has :math:`\log E e^{-\lambda(\cdot - \Delta)} \le n\lambda^2`; hence
    :math:`P(\text{error}) \le e^{-n\Delta^2/4} + e^{-n\Delta^2/2}`, the second term for the sign of ΣD_j.

    *Bags.* Given the bags, Hoeffding on mk labels of range 1: :math:`P'(Q \ge 0) \le e^{-\lambda W/2 + \lambda^2 mk/8}`
    with :math:`W = \sum |D_j|`. W is not small: :math:`E|D| \ge a = (E D^2)^{3/2} (E D^4)^{-1/2}` (Hölder), where
    :math:`E D^2 = k\sigma^2 + k^2\Delta^2` and E D⁴ is bounded through \|h₁ − h₂ − Δ\| ≤ 1 + \|Δ\|; and a sum of
    nonnegative variables has :math:`P(W \le m(a - t)) \le e^{-mt^2/2E D^2}`. The rate is the largest over t and λ.
    This holds for every k.

    *By the proof.* Totals: the proof applies Hoeffding with range 1 to :math:`y - h_2(x)`, which ranges over [−1, 1];
    with range 2 its argument gives :math:`n = 9 \log(4/\delta) / 2\Delta^2`. Bags: a bag is discriminative at
    θ = k\|Δ\| + σ√k with probability Φ(−1)/2 (Berry–Esseen, which needs :math:`k \ge 2/\Phi^2(-1)\beta`), more than
    c₁ = Φ(−1)/4 of them are except with probability :math:`e^{-m\Phi(-1)/16}` (Chernoff), and then
    :math:`P'(Q \ge 0) \le e^{-c_1\theta^2m/8k} + e^{-c_1^2\theta^2m/8(1-c_1)k}`.

    Noise adds its logarithmic moment generating function, at 2λ or λ, m times. Without Δ the bound is for the worst:
    totals at \|Δ\| = √(β/2k), bags with the least a and the largest E D² that smaller ones allow.

    Examples
    --------
    >>> two_function_bound(TwoFunctions(size=64, regret=0.01)).value
    4780.0
    >>> two_function_bound(TwoFunctions(size=64, regret=0.01, bias=0.0)).value
    4032.0
    """
    return Bound(
        value=exponential_bags(_rates(problem), problem.error),
        by_proof=_by_proof(problem),
        theorem=f"Theorem 'warmup', upper bound: Algorithm 1{_BRANCHES[problem.totals]}",
        assumptions=(
            "one of the two functions is the true probability",
            "independent bags of equal size, rows drawn at random",
            "Δ and β are known",
        ),
        constants={"edge": problem.edge},
    )


def two_function_error(problem: TwoFunctions, bags: int) -> float:
    """Probability of error of Algorithm 1 with so many `bags`, at most; the problem's own `error` is not used."""
    return min(1.0, sum(exp(-bags * rate) for rate in _rates(problem)))


def _rates(problem: TwoFunctions) -> tuple[float, float]:
    """Two rates per bag whose exponentials add up to the error."""
    if problem.bias is None:
        totals = _rates_of_totals(problem, problem.edge)
        return min(totals, _rates_of_bags(problem, np.linspace(0, problem.edge, 65)), key=min)
    delta = abs(problem.bias)
    return _rates_of_totals(problem, delta) if problem.totals else _rates_of_bags(problem, np.array([delta]))


def _rates_of_totals(problem: TwoFunctions, delta: float) -> tuple[float, float]:
    k, noise = problem.size, problem.epsilon
    if noise is None:
        return k * delta**2 / 4, k * delta**2 / 2

    def exponent(rate: float) -> float:
        return -rate * k * delta + k * rate**2 + laplace_log_mgf(2 * rate, noise)

    return chernoff_rate(exponent, min(delta, noise / 2)), k * delta**2 / 2


def _rates_of_bags(problem: TwoFunctions, deltas: Floats) -> tuple[float, float]:
    """For the least a and the largest E D² over some Δ."""
    k, noise = problem.size, problem.epsilon
    squares, fourths = _moments(k, problem.regret, deltas)
    square, least = float(squares.max()), float((squares**1.5 / np.sqrt(fourths)).min())
    # Giving up t of W makes the first rate smaller and the second larger: they meet where their minimum is largest.
    if noise is None:
        short = least * sqrt(square) / (sqrt(k) + sqrt(square))
        return (least - short) ** 2 / (2 * k), short**2 / (2 * square)

    def labels(short: float) -> float:
        def exponent(rate: float) -> float:
            return -rate * (least - short) / 2 + k * rate**2 / 8 + laplace_log_mgf(rate, noise)

        return chernoff_rate(exponent, min(4 * least / k, noise))

    short = float(optimize.brentq(lambda t: labels(t) - t**2 / (2 * square), 0.0, least, rtol=1e-6))
    return labels(short), short**2 / (2 * square)


def _moments(k: int, regret: float, delta: Floats) -> tuple[Floats, Floats]:
    """E[D²] of a bag, and a bound on E[D⁴], for each Δ."""
    variance, shift, reach = regret - delta**2, k * delta, 1 + delta
    fourth = (
        shift**4
        + 6 * shift**2 * k * variance
        + 4 * shift * k * reach * variance
        + k * reach**2 * variance
        + 3 * k * (k - 1) * variance**2
    )
    return k * variance + shift**2, fourth


def _by_proof(problem: TwoFunctions) -> float | None:
    if problem.epsilon is not None or problem.bias is None:
        return None
    k, delta = problem.size, abs(problem.bias)
    if problem.totals:
        return 9 / (2 * k * delta**2) * log(4 / problem.error)
    if k < 2 / (_TAIL**2 * problem.regret):
        return None
    share = _TAIL / 4
    strength = (sqrt(k) * delta + sqrt(problem.regret - delta**2)) ** 2  # θ²/k
    rates = (_TAIL / 16, share * strength / 8, share**2 * strength / (8 * (1 - share)))
    return exponential_bags(rates, problem.error)
