"""Whole-numbered noise on counts: how much of it a budget asks for, how much it varies. OpenDP draws it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, sqrt
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.theory import laplace_variance
from bagwise.utils.parameters import LEVEL, NONE, check_parameters, number, whole

_BUDGET = {"epsilon": number(above=0), "delta": LEVEL | NONE}  # without a delta noise is Laplace

# Beyond that a sum of noise and count may leave the whole numbers that double precision holds.
_LARGEST_SCALE = 2.0**40

_one_at_a_time = Lock()  # what is agreed to with OpenDP holds for the whole process


@dataclass(frozen=True)
class Budget:
    r"""What a release spends, and what noise that buys.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee, for all bags together; delta is None where it is 0.
    mechanism : str
        "discrete Laplace" or "discrete Gaussian".
    scale, noise_variance : float
        b of probabilities in proportion to :math:`e^{-|x|/b}`, or σ of :math:`e^{-x^2/2\sigma^2}`, over the whole
        numbers x; and the exact variance of the noise on every count.
    sensitivity : float
        By how much one label moves the vector of counts, in L1 for Laplace and in L2 for Gaussian noise.
    neighbours : str
        Between which data sets the guarantee holds, in words.
    """

    epsilon: float
    delta: float | None
    mechanism: str
    scale: float
    sensitivity: float
    noise_variance: float
    neighbours: str = "data sets that differ in the label of one row, with the same rows in the same bags"

    def __str__(self) -> str:
        spent = f"ε = {self.epsilon:g}" + ("" if self.delta is None else f", δ = {self.delta:g}")
        norm = "L1" if self.delta is None else "L2"
        return (
            f"{spent} between {self.neighbours}; {self.mechanism} noise of scale {self.scale:.4g} on counts of "
            f"sensitivity {self.sensitivity:.4g} ({norm}), variance {self.noise_variance:.4g}."
        )


def noise_variance(epsilon: float, *, delta: float | None = None, counts: int = 1) -> float:
    r"""Variance of the noise that `release` puts on every count.

    Discrete Laplace noise of scale b = sensitivity/ε has, with :math:`q = e^{-1/b}`, the variance

    .. math:: 2q / (1 - q)^2

    a little less than the :math:`2b^2` of continuous noise. With a delta it is that of the discrete Gaussian whose
    scale OpenDP finds; only that needs OpenDP.

    Parameters
    ----------
    epsilon, delta : float
        As in `release`.
    counts : int
        Counts that a bag reports: 1 for labels 0 and 1, otherwise the number of classes.

    Returns
    -------
    float
        The exact variance.

    Examples
    --------
    >>> round(noise_variance(1.0), 4), round(noise_variance(1.0, counts=3), 4)
    (1.8413, 7.8354)
    """
    check_parameters({"epsilon": epsilon, "delta": delta, "counts": counts}, {**_BUDGET, "counts": whole(1)})
    if delta is not None:
        return budget_for(epsilon, delta, classes=counts > 1).noise_variance
    scale = _sensitivity(None, counts > 1) / epsilon
    _check_scale(scale, epsilon, None)
    return laplace_variance(1 / scale)


def budget_for(epsilon: float, delta: float | None, *, classes: bool) -> Budget:
    """The least noise that OpenDP's own accounting allows for ε and δ; classes: whether a bag reports several counts.

    With a delta: the discrete Gaussian satisfies zero-concentrated differential privacy, which OpenDP converts.
    """
    check_parameters({"epsilon": epsilon, "delta": delta}, _BUDGET)
    return _calibrated(float(epsilon), None if delta is None else float(delta), classes)


@lru_cache(maxsize=256)  # the search for a scale takes longer than a thousand draws
def _calibrated(epsilon: float, delta: float | None, classes: bool) -> Budget:
    sensitivity = _sensitivity(delta, classes)
    wanted = epsilon if delta is None else (epsilon, delta)
    with _opendp() as dp:
        try:
            scale = dp.mod.binary_search_param(
                lambda scale: _measurement(dp, scale, delta), d_in=sensitivity, d_out=wanted, T=float
            )
        except (dp.mod.OpenDPException, ValueError, OverflowError):
            scale = float("inf")
    _check_scale(scale, epsilon, delta)
    variance = laplace_variance(1 / scale) if delta is None else gaussian_variance(scale)
    return Budget(epsilon, delta, _mechanism(delta), scale, float(sensitivity), variance)


def add_noise(counts: NDArray[np.int64], budget: Budget) -> NDArray[np.int64]:
    """Counts (m,) or (m, classes) with independent noise on each, from OpenDP's secure generator."""
    with _opendp() as dp:
        drawn = _measurement(dp, budget.scale, budget.delta)(counts.ravel().tolist())
    return np.array(drawn, dtype=np.int64).reshape(counts.shape)


def gaussian_variance(scale: float) -> float:
    """Variance of the discrete Gaussian law: less than σ², and σ² to double precision from σ = 2 on.

    By Poisson's summation formula the two differ by a factor of 1 − O(σ² exp(−2π²σ²)).

    >>> round(gaussian_variance(0.5), 6), gaussian_variance(3.0)
    (0.215013, 9.0)
    """
    if scale > 2:
        return scale**2
    square = np.arange(-ceil(40 * scale), ceil(40 * scale) + 1, dtype=float) ** 2
    weight = np.exp(-square / (2 * scale**2))
    return float((square * weight).sum() / weight.sum())


def _mechanism(delta: float | None) -> str:
    return "discrete Laplace" if delta is None else "discrete Gaussian"


def _check_scale(scale: float, epsilon: float, delta: float | None) -> None:
    if scale > _LARGEST_SCALE:
        also = "" if delta is None else f" and delta {delta:g}"
        raise ValueError(
            f"there is no usable {_mechanism(delta)} noise for epsilon {epsilon:g}{also}: take an epsilon nearer to 1."
        )


def _sensitivity(delta: float | None, classes: bool) -> float | int:
    """The norm of what one label moves, see `release`; OpenDP wants a whole number for L1. sqrt(2) is rounded up."""
    if delta is None:
        return 2 if classes else 1
    return sqrt(2.0) if classes else 1.0


def _measurement(dp: Any, scale: float, delta: float | None) -> Any:
    """OpenDP's measurement of a vector of counts."""
    counts = dp.domains.vector_domain(dp.domains.atom_domain(T="i64"))
    if delta is None:
        return dp.measurements.make_laplace(counts, dp.metrics.l1_distance(T="i64"), scale=scale)
    concentrated = dp.measurements.make_gaussian(counts, dp.metrics.l2_distance(T="f64"), scale=scale)
    return dp.combinators.make_fix_delta(dp.combinators.make_zCDP_to_approxDP(concentrated), delta)


@contextmanager
def _opendp() -> Iterator[Any]:
    """The parts of OpenDP that are used here; what it asks the user to agree to is agreed to inside the block only."""
    try:
        from opendp import combinators, domains, measurements, metrics, mod  # its prelude takes seconds to load
    except ImportError as error:
        raise ModuleNotFoundError("noise needs OpenDP: pip install 'bagwise[privacy]'.", name="opendp") from error
    # Everything that OpenDP has not finished vetting, these mechanisms included, is called "contrib".
    parts = {"combinators": combinators, "domains": domains, "measurements": measurements, "metrics": metrics}
    with _one_at_a_time:
        agreed = "contrib" in mod.GLOBAL_FEATURES
        mod.enable_features("contrib")
        try:
            yield SimpleNamespace(**parts, mod=mod)
        finally:
            if not agreed:
                mod.disable_features("contrib")
