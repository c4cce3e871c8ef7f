r"""The two-function problem in numbers: how often Algorithm 1 errs, the bags it needs, and what no learner can do.

Let h₁ be true, :math:`D_j = \sum_{i \in j} (h_1 - h_2)(x_i)` and :math:`\Sigma_j = k\alpha_j - E_{j,1}`, which given
the bag is a sum of k independent centred labels. Both statistics of the algorithm have a plain form:

* *totals*: :math:`|A_1| \ge |A_2|` exactly where :math:`\sum D_j` and :math:`A_1 + A_2 = \sum (2\Sigma_j + D_j)` differ
  in sign;
* *bags*: :math:`Q = \sum_j \pm\Sigma_j - \tfrac{1}{2} \sum_j |D_j|`.

Noise e_j on the counts adds :math:`2\sum e_j` to the first and :math:`\sum \pm e_j` to the second.

The proof of the lower bound (Theorem "warmup", second half) draws x from {0, 1} with probability 1/2 each and lets one
of two functions be true with probability 1/2 each: :math:`h_1(1) = h_2(0) = 1/2 + \sqrt\beta/2` and
:math:`h_1(0) = h_2(1) = 1/2 - \sqrt\beta/2`. Both have mean 1/2 and the wrong one has regret β. A learner that is right
with probability 1 − δ has learned :math:`1 - H_2(\delta)` bits (Fano), and a bag gives no more than
:math:`I(h^\star; (B, \alpha))`. The paper bounds that information for large k; here it is a number for any k.
"""

from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import Any

import numpy as np
from scipy import optimize, signal, special, stats

from bagwise.theory.bounds import (
    PROBLEM,
    Bound,
    chernoff_rate,
    exponential_bags,
    laplace_law,
    laplace_log_mgf,
    laplace_reach,
    laplace_variance,
)
from bagwise.utils.parameters import LEVEL, ParameterError, check_parameters, number
from bagwise.utils.typing import Floats, Integers, NDArray

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

    if labels(0.0) <= 0 or labels(least) >= least**2 / (2 * square):  # so much noise that rounding is larger
        return 0.0, 0.0
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


# Bags with so unlikely a number of ones change the information by less than a rounding error.
_NEGLIGIBLE = 1e-17
_EXACT = 10**6  # probabilities of counts beyond which the normal limit is taken


@dataclass(frozen=True, kw_only=True)
class SymmetricPair:
    """The two symmetric functions of the lower-bound proof, and what is asked of a learner.

    Parameters
    ----------
    size : int
        Rows per bag k, the same for all bags.
    regret, error : float
        β in (0, 4 min(p, 1 − p)²], regret of the wrong function, and δ in [0, 1/2), allowed probability of choosing it.
    epsilon : float or None
        Of discrete Laplace noise on the counts, None without noise.
    prior : float
        Share of positives p, around which the two functions lie; 1/2 in the proof.
    """

    size: int
    regret: float
    error: float = 0.05
    epsilon: float | None = None
    prior: float = 0.5

    def __post_init__(self) -> None:
        own = {"error": number(least=0, below=0.5), "prior": LEVEL}  # a coin is right half of the time
        check_parameters(self, {**PROBLEM, **own})
        most = 4 * min(self.prior, 1 - self.prior) ** 2
        if self.regret > most * (1 + 1e-9):
            raise ParameterError("regret", f"must be at most 4 min(p, 1 − p)² = {most:.4g}, got {self.regret:g}.")


def information_bound(problem: SymmetricPair) -> Bound:
    r"""Bags below which no learner reaches the allowed error, :math:`(1 - H_2(\delta)) / I`.

    It comes with two constants: `bits`, the information I of one bag about the true function, and `bits_bound`, the
    proof's upper bound on it, which knows of no noise and tends to `limiting_information` as k grows. I is exact for
    bags of up to some 2,000 rows; for larger ones it is that of a normal count at the most,
    :math:`\tfrac{1}{2} \log_2\bigl(1 + \tfrac{\beta}{4} / (p(1-p) - \tfrac{\beta}{4} + \tfrac{s^2}{2k})\bigr)`,
    where noise takes no less away than normal noise of half its variance does (Stam's inequality), so that any size and
    any ε is answered at once.

    Examples
    --------
    >>> bound = information_bound(SymmetricPair(size=64, regret=0.01, error=0.05))
    >>> round(bound.value, 1), round(bound.constants["bits"], 6)
    (99.4, 0.007179)

    Noise on the counts leaves less to be learned; a bag of 64 rows hides it well.

    >>> round(information_bound(SymmetricPair(size=64, regret=0.01, error=0.05, epsilon=1.0)).value, 1)
    110.7
    """
    noise = 0 if problem.epsilon is None else 2 * laplace_reach(problem.epsilon) + 1
    ones, weight = _likely_ones(min(problem.size, _EXACT))
    if len(ones) * (problem.size + 1 + noise) > _EXACT:
        bits, bits_bound = _bits_in_the_limit(problem), limiting_information(min(problem.regret, 1 - 1e-12))
    else:
        law = None if problem.epsilon is None else laplace_law(problem.epsilon)
        bits, bits_bound = _bits(problem, ones, weight, law)
    learned = 1 - binary_entropy(problem.error)
    return Bound(
        value=learned / bits if bits > 0 else inf,
        by_proof=learned / bits_bound if problem.prior == 0.5 and bits_bound > 0 else None,
        theorem="Theorem 'warmup', lower bound: Fano's inequality on the symmetric two-function problem",
        assumptions=(
            "x is 0 or 1 with probability 1/2 each",
            "the true function is one of the two, each with probability 1/2",
            f"both functions have mean {problem.prior:g}",
            "independent bags of equal size, rows drawn at random",
        ),
        constants={"bits": bits, "bits_bound": bits_bound},
    )


def limiting_information(regret: float) -> float:
    r"""Limit of the proof's bound on the information of a bag as k grows, :math:`-\tfrac{1}{2} \log_2(1 - \beta)` bits.

    For small β it is :math:`\beta / (2 \ln 2) \approx 0.72\,\beta`; the paper writes β.

    Parameters
    ----------
    regret : float
        β in (0, 1).

    Returns
    -------
    float

    Examples
    --------
    >>> round(limiting_information(0.01), 6)
    0.00725
    """
    check_parameters({"regret": regret}, {"regret": LEVEL})
    return float(-np.log1p(-regret) / (2 * np.log(2)))


def binary_entropy(probability: float) -> float:
    """H₂, the entropy of a coin, in bits.

    >>> binary_entropy(0.5)
    1.0
    """
    return float((special.entr(probability) + special.entr(1 - probability)) / np.log(2))


def information_regret(
    bags: float, *, size: int, error: float = 0.05, epsilon: float | None = None, prior: float = 0.5
) -> float:
    """The regret below which no learner can be sure to come with so many `bags`, to a thousandth.

    The largest that a `SymmetricPair` may have, 1 where p is 1/2, if all up to it are impossible. `size`, `error`,
    `epsilon` and `prior` are those of such a pair.

    Examples
    --------
    >>> round(information_regret(99.4, size=64), 4)
    0.01
    """
    check_parameters({"bags": bags, "prior": prior}, {"bags": number(above=0), "prior": LEVEL})
    # A bag's information is nearly proportional to β: the ratio of bags needed to bags given is nearly the factor.
    most = 4 * min(prior, 1 - prior) ** 2
    scatter = 4 * (prior * (1 - prior) + laplace_variance(epsilon) / size)
    regret = min(most, float((1 - binary_entropy(error)) * 2 * np.log(2) * scatter / bags))
    for _ in range(50):
        pair = SymmetricPair(size=size, regret=regret, error=error, epsilon=epsilon, prior=prior)
        ratio = information_bound(pair).value / bags
        if abs(ratio - 1) < 1e-3 or (regret == most and ratio > 1):
            break
        regret = min(most, regret * ratio)
    return regret


def _likely_ones(size: int) -> tuple[Integers, Floats]:
    """Numbers s ≥ k/2 of rows with x = 1, and their probabilities; about √k of them are worth counting.

    A bag with k − s ones tells as much as one with s: the two functions change places, so s stands for both.
    """
    reach = min(size, (size + 1) // 2 + 5 * int(np.sqrt(size)) + 5)  # ten standard deviations
    ones = np.arange((size + 1) // 2, reach + 1)
    weight = stats.binom.pmf(ones, size, 0.5) * np.where(2 * ones == size, 1, 2)
    likely = weight > _NEGLIGIBLE
    return ones[likely], weight[likely]


def _bits(problem: SymmetricPair, ones: Integers, weight: Floats, law: Floats | None) -> tuple[float, float]:
    """Information of a bag, and the proof's bound on it.

    Under the other function, a bag with s ones has the counts that one with k − s has under this one.
    """
    count, other = exact = _count_distributions(problem, ones)
    if law is not None:  # noise from −K to K makes counts from −K to k + K
        count, other = (np.clip(signal.fftconvolve(one, law[None], axes=1), 0, None) for one in (count, other))
    # Given the bag, the count follows the mixture of both. The proof takes Binomial(k, 1/2) for it, but the labels of a
    # bag share their h*: only over random bags is the count binomial, whose entropy bounds the mixture's from above.
    mixture = (count + other) / 2
    nats = weight @ (special.rel_entr(count, mixture) + special.rel_entr(other, mixture)).sum(axis=1) / 2
    binomial = special.entr(stats.binom.pmf(np.arange(problem.size + 1), problem.size, problem.prior)).sum()
    nats_bound = binomial - weight @ special.entr(exact).sum(axis=(0, 2)) / 2
    return float(nats / np.log(2)), float(nats_bound / np.log(2))


def _bits_in_the_limit(problem: SymmetricPair) -> float:
    signal_ = problem.regret / 4
    scatter = problem.prior * (1 - problem.prior) - signal_ + laplace_variance(problem.epsilon) / (2 * problem.size)
    return min(1.0, float(np.log1p(signal_ / max(scatter, 1e-12)) / (2 * np.log(2))))


def _count_distributions(problem: SymmetricPair, ones: Integers) -> tuple[Floats, Floats]:
    """(s, k + 1) distributions of a bag's count: Binomial(s, p ± √β/2) + Binomial(k − s, p ∓ √β/2) under h₁ and h₂.

    The proof writes 1/2 ± β in the binomials where 1/2 ± √β/2 is meant. The sum's characteristic function is the
    product :math:`(1 - q + qz)^s (1 - q' + q'z)^{k-s}`, turned back by one FFT of length k + 1 for each s. Numbers s
    follow each other, so that each power is the one before times its base.
    """
    size, half = problem.size, np.sqrt(problem.regret) / 2
    z = np.exp(-2j * np.pi * np.arange((size + 1) // 2 + 1) / (size + 1))  # half of it, as counts are real

    def powers(q: float) -> tuple[NDArray[Any], NDArray[Any]]:
        base = 1 - q + q * z
        steps = np.tile(base, (len(ones), 1))
        steps[0] = base ** (size - ones[-1])
        fewer = np.cumprod(steps, axis=0)[::-1]  # k − s
        steps[0] = base ** ones[0]
        return np.cumprod(steps, axis=0), fewer

    (high, high_fewer), (low, low_fewer) = (powers(min(1.0, max(0.0, problem.prior + sign))) for sign in (half, -half))
    first, second = (np.fft.irfft(one, n=size + 1, axis=1) for one in (high * low_fewer, low * high_fewer))
    return np.clip(first, 0, None), np.clip(second, 0, None)  # rounding may leave −1e-17
