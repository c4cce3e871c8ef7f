r"""The information lower bound of the two-function problem, computed exactly.

The proof of the lower bound (Theorem "warmup", second half) draws x from {0, 1} with probability 1/2 each and lets one
of two functions be true with probability 1/2 each: :math:`h_1(1) = h_2(0) = 1/2 + \sqrt\beta/2` and
:math:`h_1(0) = h_2(1) = 1/2 - \sqrt\beta/2`. Both have mean 1/2 and the wrong one has regret β. A learner that is right
with probability 1 − δ has learned :math:`1 - H_2(\delta)` bits (Fano), and a bag gives no more than
:math:`I(h^\star; (B, \alpha))`. The paper bounds that information for large k; here it is a number for any k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import signal, special, stats

from bagwise.theory.bounds import PROBLEM, Bound, laplace_law, laplace_variance
from bagwise.utils.parameters import LEVEL, check_parameters, number
from bagwise.utils.typing import Floats, Integers

# Bags with so unlikely a number of ones change the information by less than a rounding error.
_NEGLIGIBLE = 1e-17


@dataclass(frozen=True, kw_only=True)
class SymmetricPair:
    """The two symmetric functions of the lower-bound proof, and what is asked of a learner.

    Parameters
    ----------
    size : int
        Rows per bag k, the same for all bags.
    regret, error : float
        β in (0, 1], regret of the wrong function, and δ in [0, 1/2), allowed probability of choosing it.
    epsilon : float or None
        Of discrete Laplace noise on the counts, None without noise.
    """

    size: int
    regret: float
    error: float = 0.05
    epsilon: float | None = None

    def __post_init__(self) -> None:
        check_parameters(self, {**PROBLEM, "error": number(least=0, below=0.5)})  # a coin is right half of the time


def information_bound(problem: SymmetricPair) -> Bound:
    r"""Bags below which no learner reaches the allowed error, :math:`(1 - H_2(\delta)) / I`.

    It comes with two constants: `bits`, the information I of one bag about the true function, exact, and `bits_bound`,
    the proof's upper bound on it, which knows of no noise and tends to `limiting_information` as k grows.

    Examples
    --------
    >>> bound = information_bound(SymmetricPair(size=64, regret=0.01, error=0.05))
    >>> round(bound.value, 1), round(bound.constants["bits"], 6)
    (99.4, 0.007179)

    Noise on the counts leaves less to be learned; a bag of 64 rows hides it well.

    >>> round(information_bound(SymmetricPair(size=64, regret=0.01, error=0.05, epsilon=1.0)).value, 1)
    110.7
    """
    # Numbers s ≥ k/2 of rows with x = 1, and their probabilities. A bag with k − s ones tells as much as one with s:
    # the two functions change places, so s stands for both. About √k of them are worth counting.
    ones = np.arange((problem.size + 1) // 2, problem.size + 1)
    weight = stats.binom.pmf(ones, problem.size, 0.5) * np.where(2 * ones == problem.size, 1, 2)
    likely = weight > _NEGLIGIBLE
    ones, weight = ones[likely], weight[likely]
    exact = _count_distribution(problem.size, ones, problem.regret)
    count = exact
    if problem.epsilon is not None:  # noise from −K to K makes counts from −K to k + K
        count = np.clip(signal.fftconvolve(exact, laplace_law(problem.epsilon)[None], axes=1), 0, None)
    # y → 1 − y exchanges the two functions, so under the other one the count has the reversed distribution. Given the
    # bag, the count follows the mixture of both. The proof takes Binomial(k, 1/2) for it, but the labels of a bag share
    # their h*: only over random bags is the count Binomial(k, 1/2), whose entropy bounds the mixture's from above.
    mixture = (count + count[:, ::-1]) / 2
    nats = weight @ special.rel_entr(count, mixture).sum(axis=1)
    binomial = special.entr(stats.binom.pmf(np.arange(problem.size + 1), problem.size, 0.5)).sum()
    nats_bound = binomial - weight @ special.entr(exact).sum(axis=1)
    bits, bits_bound = float(nats / np.log(2)), float(nats_bound / np.log(2))
    learned = 1 - binary_entropy(problem.error)
    return Bound(
        value=learned / bits,
        by_proof=learned / bits_bound,
        theorem="Theorem 'warmup', lower bound: Fano's inequality on the symmetric two-function problem",
        assumptions=(
            "x is 0 or 1 with probability 1/2 each",
            "the true function is one of the two, each with probability 1/2",
            "both functions have mean 1/2",
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


def information_regret(bags: float, *, size: int, error: float = 0.05, epsilon: float | None = None) -> float:
    """The regret below which no learner can be sure to come with so many `bags`, to a thousandth; 1 if there is none.

    `size`, `error` and `epsilon` are those of a `SymmetricPair`.

    Examples
    --------
    >>> round(information_regret(99.4, size=64), 4)
    0.01
    """
    check_parameters({"bags": bags}, {"bags": number(above=0)})
    # A bag's information is nearly proportional to β: the ratio of bags needed to bags given is nearly the factor.
    loss = 1 + 4 * laplace_variance(epsilon) / size
    regret = min(1.0, float((1 - binary_entropy(error)) * 2 * np.log(2) * loss / bags))
    for _ in range(50):
        pair = SymmetricPair(size=size, regret=regret, error=error, epsilon=epsilon)
        ratio = information_bound(pair).value / bags
        if abs(ratio - 1) < 1e-3 or (regret == 1.0 and ratio > 1):
            break
        regret = min(1.0, regret * ratio)
    return regret


def _count_distribution(size: int, ones: Integers, regret: float) -> Floats:
    """(s, k + 1) distribution of a bag's count under h₁: Binomial(s, 1/2 + √β/2) + Binomial(k − s, 1/2 − √β/2).

    The proof writes 1/2 ± β in the binomials where 1/2 ± √β/2 is meant. The sum's characteristic function is the
    product :math:`(1 - q + qz)^s (q + (1 - q)z)^{k-s}`, turned back by one FFT of length k + 1 for each s. Both factors
    have the same modulus, so from s to s + 1 the product turns by a phase.
    """
    q = 0.5 + np.sqrt(regret) / 2
    z = np.exp(-2j * np.pi * np.arange((size + 1) // 2 + 1) / (size + 1))  # half of it, as counts are real
    up, down = 1 - q + q * z, q + (1 - q) * z
    turns = np.empty((len(ones), len(z)), dtype=complex)
    turns[0] = up ** ones[0] * down ** (size - ones[0])
    turns[1:] = up / down
    transform = np.cumprod(turns, axis=0)
    return np.clip(np.fft.irfft(transform, n=size + 1, axis=1), 0, None)  # rounding may leave −1e-17
