r"""Discrete Laplace noise, as it is added to counts: the law of a private report, in closed form.

A count with noise of :math:`P(e = i) = \frac{1-q}{1+q}\, q^{|i|}`, :math:`q = e^{-\varepsilon}`, is ε-differentially
private where one label moves it by 1. Nothing is drawn here: noise that protects people comes from `bagwise.privacy`.
"""

from __future__ import annotations

from math import exp, expm1, floor, inf, log, log1p

import numpy as np

from bagwise.utils.parameters import NONE, check_parameters, number
from bagwise.utils.typing import Floats

EPSILON = number(above=0) | NONE
"""ε of the noise on counts; None is no noise."""


def laplace_variance(epsilon: float | None) -> float:
    r"""Variance :math:`2q/(1-q)^2` of the noise, a little less than the :math:`2/\varepsilon^2` of continuous noise.

    It is 0 where epsilon is None: no noise.

    Examples
    --------
    >>> round(laplace_variance(1.0), 4), laplace_variance(None)
    (1.8413, 0.0)
    """
    check_parameters({"epsilon": epsilon}, {"epsilon": EPSILON})
    return 0.0 if epsilon is None else 2 * exp(-epsilon) / expm1(-epsilon) ** 2


def laplace_tail(threshold: float, epsilon: float | None) -> float:
    r"""P(\|e\| > t) :math:`= 2q^{\lfloor t \rfloor + 1}/(1+q)` for t ≥ 0."""
    if epsilon is None:
        return 0.0
    return 2 * exp(-epsilon * (floor(threshold) + 1)) / (1 + exp(-epsilon))


def laplace_tail_square(threshold: float, epsilon: float | None) -> float:
    r"""E[e²; \|e\| > t], from a closed form.

    .. math:: \sum_{i \ge n} i^2 q^i = q^n\bigl(\tfrac{n^2}{1-q} + \tfrac{2nq}{(1-q)^2} + \tfrac{q(1+q)}{(1-q)^3}\bigr)
    """
    if epsilon is None:
        return 0.0
    q, n, left = exp(-epsilon), floor(threshold) + 1, -expm1(-epsilon)
    total = exp(-epsilon * n) * (n**2 / left + 2 * n * q / left**2 + q * (1 + q) / left**3)
    return 2 * left / (1 + q) * total


def laplace_log_mgf(rate: float, epsilon: float | None) -> float:
    r"""log E[exp(λe)] :math:`= \log\frac{(1-q)^2}{(1-qe^\lambda)(1-qe^{-\lambda})}`, infinite from \|λ\| = ε on."""
    if epsilon is None:
        return 0.0
    if abs(rate) >= epsilon:
        return inf
    return 2 * log(-expm1(-epsilon)) - log(-expm1(rate - epsilon)) - log1p(-exp(-rate - epsilon))


def laplace_law(epsilon: float, *, negligible: float = 1e-17) -> Floats:
    """Probabilities of e = −K, …, K; those beyond, each below `negligible`, are left out."""
    reach = int(np.ceil(-np.log(negligible) / epsilon))
    law = np.exp(-epsilon * np.abs(np.arange(-reach, reach + 1)))
    return np.asarray(law / law.sum())
