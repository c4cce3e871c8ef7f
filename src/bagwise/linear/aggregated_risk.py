r"""The square loss of ridge regression for new rows, from noised tables of counts alone.

Noise is split in two: with e drawn like the noise of tables z, :math:`z + \sqrt{r} e` and :math:`z - e / \sqrt{r}` have
independent noises if noise is Gaussian, uncorrelated ones otherwise. Ridge learns from the first; the second, as it is,
tells its square loss without bias. What rows that were learned from flatter is taken off as Mallows' :math:`C_p` has
it. Means over several draws of e.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bagwise.data.aggregates import Aggregates
from bagwise.linear.one_hot import LEAST_SHARE, OneHotMoments, largest_eigenvalue
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats

_RATIO, _DRAWS = 0.25, 5
_MOST_ALPHAS = 31


class Solutions(NamedTuple):
    """Ridge for every penalty.  coef: (D, alphas).  freedom: (alphas,) degrees of freedom."""

    coef: Floats
    freedom: Floats


def ridge(moments: OneHotMoments, alphas: Floats, eigen: tuple[Floats, Floats] | None = None) -> Solutions:
    r"""The w of least :math:`\sum (y - p - w \cdot (x - \bar x))^2 + \alpha \sum_j \omega_j w_j^2`, for every α.

    The :math:`\omega_j` are `OneHotMoments.penalties`, 1 where all tables are noised alike.
    """
    values, vectors = moments.eigen() if eigen is None else eigen
    inverse, by = 1 / (values[:, None] + alphas), np.sqrt(moments.penalties)
    coef = vectors @ (inverse * (vectors.T @ (moments.xy / by))[:, None]) / by[:, None]
    return Solutions(coef, (values[:, None] * inverse).sum(axis=0))


def usual_alphas(moments: OneHotMoments) -> Floats:
    """Penalties to choose from, up to three times all rows: of a tenth of a row, or of a part of what noise asks for.

    With less, weights would be those of noise, and what is said of them is noise in turn, however large it looks.
    """
    least = max(LEAST_SHARE * size_of_noise(moments), 0.1)
    return np.geomspace(least, max(3 * moments.rows, 30 * least), _MOST_ALPHAS)


def size_of_noise(moments: OneHotMoments) -> float:
    """How large noise in the covariance is as a matrix; of the least noisy rows, where it differs between them."""
    return largest_eigenvalue(float(moments.left_noise.min()) + moments.doubt, len(moments.mean))


def alpha_of_noise(moments: OneHotMoments) -> float:
    """The penalty where cells are hidden, so that no risk is without bias: as large as noise is.

    As much is added as noise of variance 1/4 would ask for: rows are there by chance, too.
    """
    return size_of_noise(moments) + float(np.sqrt(len(moments.mean)))


@dataclass(frozen=True, eq=False)
class Risks:
    """What tables tell of ridge regression with each of some penalties.

    alphas: (a,).  r2, error: (a,) the share of the variance of new labels that it explains, and its standard error.
    """

    alphas: Floats
    r2: Floats
    error: Floats

    @property
    def best(self) -> int:
        """The place of the best penalty; the larger of equal ones."""
        return len(self.r2) - 1 - int(np.argmax(self.r2[::-1]))


def risks(data: Aggregates, moments: OneHotMoments, alphas: Floats, rng: np.random.Generator) -> Risks:
    """For each penalty, from tables with the noise that moments tell."""
    noise, variance = moments.noise_variance, moments.prior * (1 - moments.prior)
    if noise <= 0 or data.threshold is not None:
        found = ridge(moments, alphas)
        values, vectors = moments.eigen()
        flattered = 2 * (
            1 / (values[:, None] + alphas) * (vectors.T**2 @ (moments.xy_noise / moments.penalties))[:, None]
        ).sum(axis=0)
        told, left = [(found, _explained(found.coef, moments) - flattered)], 1.0
    else:
        known, told = data.at_noise_level(noise), []
        for _ in range(_DRAWS):
            check_time()
            one, other = known.split(_RATIO, rng)
            found = ridge(OneHotMoments.of(one), alphas)
            told.append((found, _explained(found.coef, OneHotMoments.of(other, as_it_is=True))))
        left = 1 + 1 / (_RATIO * _DRAWS)  # variance of noise that a mean over draws has, in that of the noise
    explained = np.mean([each for _, each in told], axis=0) / moments.rows / variance
    freedom = np.mean([one.freedom for one, _ in told], axis=0)
    w = np.mean([one.coef for one, _ in told], axis=0)
    r2 = explained - 2 * freedom * (1 - np.clip(explained, 0, 1)) / moments.rows
    return Risks(alphas, r2, _error(w, r2, freedom, data, moments, left))


def _explained(coef: Floats, moments: OneHotMoments) -> Floats:
    """(alphas,) by how much the sum of squares is less than that of the mean label, measured by moments."""
    return np.asarray(2 * moments.xy @ coef - (coef * (moments.covariance @ coef)).sum(axis=0))


def _error(w: Floats, r2: Floats, freedom: Floats, data: Aggregates, moments: OneHotMoments, left: float) -> Floats:
    """(alphas,) standard errors of R²: by chance of rows, as of nearly Gaussian predictions, and by noise."""
    n, variance, square = moments.rows, moments.prior * (1 - moments.prior), w**2
    share = np.clip(r2, 0, 1)
    by_rows = (4 * share * (1 - share) + 2 * share**2) / n + 2 * freedom / n**2
    of_sums = 4 * (square * moments.xy_noise[:, None]).sum(axis=0)
    by_feature = np.add.reduceat(square, data.first[:-1], axis=0)
    of_counts = 2 * (by_feature * (moments.cell_noise @ by_feature)).sum(axis=0)
    by_noise = left * (of_sums + of_counts) / (n * variance) ** 2
    return np.asarray(np.sqrt(by_rows + by_noise))
