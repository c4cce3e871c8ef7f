r"""What is left of a count's information where reports hide, round or clamp it.

A report R of a count c says in which cell c lies: 0 to 9, 13 to 17, 100 and more. Where log odds of the rows of a bag
move together by θ, the score of an exact count is :math:`c - E[c]`, of variance W; that of the report is its mean given
the report (Louis, 1982), so that the share of the information that is kept is

.. math:: \rho = \frac{\mathrm{Var}(E[c \mid R])}{W}

the information of `bagwise.losses.tilting_intervals`. It is as much as an exact count would have with noise of
variance :math:`e = W(1/\rho - 1)`; where noise was added before, R is a cell of the noised count, and e is what the
cells cost beyond it, :math:`e = W(1/\rho - 1/\rho_0)` with :math:`\rho_0` the share that the noise alone leaves.

Counts are binomial, or of the binomial or beta-binomial law of the same mean and variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from scipy import special, stats
from scipy.signal import fftconvolve

from bagwise.utils.parameters import NONE, Constraint, number
from bagwise.utils.typing import Floats

MECHANISMS = ("discrete-laplace", "laplace", "gaussian")
_REACH, _NOISE_REACH = 12, 16  # standard deviations beyond which nothing is left
_NODES = 12  # of means of bags
_NORMAL = 200.0  # numbers of a beta law from which it is taken for normal
_LEAST_RATE, _SAME = 1e-6, 1e-9
_LEAST_SHARE = 1e-9  # of the information
_FINEST = 2**15  # counts, between which others are left out: so many stand for a smooth law
_COARSE = 4  # standard deviations of counts have so many of them at least


def _two_ends(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and 0 <= value[0] <= value[1]


CONSTRAINTS = {
    **dict.fromkeys(("hidden", "clamped"), Constraint("two counts, the least and the greatest", _two_ends) | NONE),
    "rounded": number(above=0) | NONE,
}


@dataclass(frozen=True)
class Cells:
    """How counts are made less exact.

    Parameters
    ----------
    hidden : tuple of float or None
        Between which counts those lie that are not shown.
    rounded : float or None
        To the nearest multiple of which counts are rounded.
    clamped : tuple of float or None
        What counts below, and above, are set to.
    """

    hidden: tuple[float, float] | None = None
    rounded: float | None = None
    clamped: tuple[float, float] | None = None

    def __bool__(self) -> bool:
        return any(one is not None for one in (self.hidden, self.rounded, self.clamped))

    def shown(self, counts: Floats) -> Floats:
        """What reports show of counts, NaN where they hide them.

        Examples
        --------
        >>> Cells(hidden=(0, 4), rounded=5, clamped=(0, 20)).shown(np.array([3.0, 6.0, 13.0, 40.0]))
        array([nan,  5., 15., 20.])
        """
        found = np.asarray(counts, dtype=float)
        if self.rounded is not None:
            found = np.floor(found / self.rounded + 0.5) * self.rounded
        if self.clamped is not None:
            found = np.clip(found, *self.clamped)
        if self.hidden is not None:
            found = np.where((counts >= self.hidden[0]) & (counts <= self.hidden[1]), np.nan, found)
        return found


@lru_cache(maxsize=256)  # a plan asks for the same again and again
def variance_of_cells(
    size: int, mean: float, variance: float, cells: Cells, *, noise: float = 0.0, mechanism: str = MECHANISMS[0]
) -> float:
    """e: the variance of noise on exact, or noised, counts that would cost as much as it costs to tell cells alone.

    Parameters
    ----------
    size : int
        Rows of the bag k.
    mean, variance : float
        Of its count.
    cells : Cells
        What is told.
    noise, mechanism : float and str
        Variance and kind of noise that was added to the count before.

    Returns
    -------
    float

    Examples
    --------
    >>> round(variance_of_cells(400, 100, 75, Cells(rounded=5)), 1)  # five counts alike: (5² − 1)/12
    2.0
    >>> variance_of_cells(400, 100, 75, Cells(hidden=(0, 9))) < 1e-6  # there are hardly any
    True
    """
    step = max(1.0, np.ceil(_NOISE_REACH * sqrt(noise) / _FINEST))
    # Beside so much noise that its steps are too wide for counts, two of them stand for all.
    two = step > 1 and step * _COARSE > sqrt(variance)
    counts, chances = _two(mean, variance) if two else _law(size, mean, variance, step)
    at, weight, first = (_spread if two else _noised)(counts, chances, noise, mechanism)
    label = cells.shown(at)
    _, cell = np.unique(np.where(np.isnan(label), -np.inf, label), return_inverse=True)
    own = float(chances @ (counts - counts @ chances) ** 2)
    if own == 0:  # the count is known
        return 0.0
    told = _between(*(np.bincount(cell, one).astype(float) for one in (weight, first)))
    before = own if noise == 0 else _between(weight, first)
    return max(own**2 / max(told, _LEAST_SHARE * own) - own**2 / max(before, _LEAST_SHARE * own), 0.0)


@lru_cache(maxsize=256)
def average_variance_of_cells(
    size: int, prior: float, spread: float, variance: float, cells: Cells, *, noise: float, mechanism: str
) -> float:
    """The same where the means of bags differ, with variance `spread` of their rates; information is averaged.

    variance: of counts given their means, on average.
    """
    rates, weight = _rates(prior, spread)
    own = rates * (1 - rates)
    each = variance * own / (weight @ own)
    lost = [
        variance_of_cells(size, size * rate, one, cells, noise=noise, mechanism=mechanism)
        for rate, one in zip(rates.tolist(), each.tolist(), strict=True)
    ]
    left = each**2 / (each + noise + np.array(lost))  # of the variance of counts, which is their information
    before = each**2 / (each + noise)
    share = float((weight @ left) / (weight @ before))
    return (variance + noise) * (1 / max(share, _LEAST_SHARE) - 1)


def _between(weight: Floats, first: Floats) -> float:
    """Variance of the mean count given what is told, of chances of that and the sums of centred counts over it."""
    there = weight > 0
    return float((first[there] ** 2 / weight[there]).sum())


def _law(size: int, mean: float, variance: float, step: float = 1.0) -> tuple[Floats, Floats]:
    """Counts that matter, and their probabilities; of very many, those `step` or more apart."""
    if mean > size / 2:
        counts, chances = _law(size, size - mean, variance, step)
        return (size - counts)[::-1], chances[::-1]
    reach = _REACH * sqrt(variance) + _REACH
    low, high = max(0.0, np.floor(mean - reach)), min(float(size), np.ceil(mean + reach))
    counts = np.arange(low, high + 1, max(step, np.ceil((high - low) / (2 * _FINEST))))
    rate = mean / size
    by_chance = mean * (1 - rate)
    if variance < by_chance * (1 - _SAME):  # rows differ: as many fewer of them vary so much
        n = max(round(mean / (1 - variance / mean)), int(np.ceil(mean)) + 1)
        chances = stats.binom.pmf(counts, n, mean / n)
    elif size > 1 and variance > by_chance * (1 + _SAME):
        alike = min((variance / by_chance - 1) / (size - 1), 1 - _SAME)
        chances = stats.betabinom.pmf(counts, size, rate * (1 / alike - 1), (1 - rate) * (1 / alike - 1))
    else:
        chances = stats.binom.pmf(counts, size, rate)
    return counts, chances / chances.sum()


def _noised(counts: Floats, chances: Floats, noise: float, mechanism: str) -> tuple[Floats, Floats, Floats]:
    """Whole noised counts, their chances, and these times the mean of the count given them, from its mean."""
    first_of = chances * (counts - counts @ chances)
    if noise == 0:
        return counts, chances, first_of
    step = counts[1] - counts[0] if len(counts) > 1 else 1.0
    reach = step * (np.ceil(_NOISE_REACH * sqrt(noise) / step) + 1)
    law = _noise_law(np.arange(-reach, reach + step / 2, step), noise, mechanism, step)
    weight, first = (fftconvolve(one, law) for one in (chances, first_of))
    weight[weight < np.finfo(float).eps] = 0.0  # of which the transform knows no digits
    return counts[0] - reach + step * np.arange(len(weight)), weight, first


def _two(mean: float, variance: float) -> tuple[Floats, Floats]:
    """Two counts of a mean and variance, and their probabilities."""
    off = sqrt(variance)
    return np.array([mean - off, mean + off]), np.array([0.5, 0.5])


def _spread(counts: Floats, chances: Floats, noise: float, mechanism: str) -> tuple[Floats, Floats, Floats]:
    """The same as `_noised`, of a few counts and noise that is much wider than these are apart."""
    mean, reach = float(counts @ chances), _NOISE_REACH * sqrt(noise)
    at, step = np.linspace(mean - reach, mean + reach, 2 * _FINEST + 1, retstep=True)
    laws = np.stack([_noise_law(at - count, noise, mechanism, float(step)) for count in counts])
    return at, chances @ laws, (chances * (counts - mean)) @ laws


def _noise_law(off: Floats, noise: float, mechanism: str, step: float) -> Floats:
    """Chances of noise at points that are `step` apart."""
    if mechanism == "discrete-laplace":
        q = float(np.exp(-np.arccosh(1 + 1 / noise)))  # whose variance is 2q/(1 − q)²
        law = q ** np.abs(off)
    else:
        kind = stats.norm(scale=sqrt(noise)) if mechanism == "gaussian" else stats.laplace(scale=sqrt(noise / 2))
        law = np.diff(kind.cdf(np.append(off, off[-1] + step) - step / 2))
    return np.asarray(law / law.sum())


def _rates(prior: float, spread: float) -> tuple[Floats, Floats]:
    """Rates of bags, and their weights: of a beta law."""
    if spread <= _SAME * prior * (1 - prior):
        return np.array([prior]), np.ones(1)
    total = prior * (1 - prior) / spread - 1
    if total <= 0:
        return np.array([_LEAST_RATE, 1 - _LEAST_RATE]), np.array([1 - prior, prior])
    if total > _NORMAL:
        nodes, weight = special.roots_hermitenorm(_NODES)
        rates = prior + sqrt(spread) * nodes
    else:
        nodes, weight = special.roots_jacobi(_NODES, (1 - prior) * total - 1, prior * total - 1)
        rates = (1 + nodes) / 2
    return np.clip(rates, _LEAST_RATE, 1 - _LEAST_RATE), weight / weight.sum()
