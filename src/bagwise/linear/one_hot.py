r"""Second moments of one-hot rows from noised tables of counts, by one feature and by two.

Every table by a pair repeats the counts by each of its features, with noise of its own: repeats are averaged by
precision, and how far they lie apart tells the variance of the noise. What a pair table shows beyond independence,
:math:`N_{ab} - N_a N_b / n`, is shrunk in its singular values as noise asks for [1]_; the covariance that comes out is
brought to the nearest one without negative eigenvalues, which only noise can make.

References
----------
.. [1] Gavish, M. and Donoho, D. L. (2017). Optimal shrinkage of singular values. IEEE Transactions on Information
   Theory 63(4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import linalg

from bagwise.data.aggregates import Aggregates
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Booleans, Floats

LEAST_SHARE = 0.25
"""Of the largest eigenvalue that noise can have: what is added to eigenvalues before they are divided by, at least."""

_LEAST_PRIOR = 1e-6
_ROUNDS = 20  # of filling hidden cells


@dataclass(frozen=True)
class Repeats:
    """How far repeats of the same numbers lie apart, in squares that have the mean 1 if noise has the variance 1.

    Where noise differs between lines, that is the largest variance; others are in proportion, as they are declared.

    squares, freedom: of counts, or of sums; freedom is 0 where nothing is repeated.
    """

    squares: float = 0.0
    freedom: int = 0

    @property
    def variance(self) -> float | None:
        """The variance of noise that they tell."""
        return self.squares / self.freedom if self.freedom else None


@dataclass(frozen=True, eq=False)
class Margins:
    """What all tables say of a number by each cell of each feature: (D,) averages and what their noise varies by.

    worth: (D,) sum of what repeats count, each the inverse of its variance in that of the noisiest cell; 0 where none
    is known, infinite where no table has a line and none is hidden.  alike: (D,) the same if all cells were as noisy.
    total: of all rows.
    """

    value: Floats
    worth: Floats
    alike: Floats
    total: float
    repeats: Repeats


def margins(data: Aggregates, what: str) -> Margins:
    """Averages by precision of what tables repeat.  what: "count" or "sum"."""
    value, worth, alike, times = np.zeros((4, data.width))
    shows, repeats = np.zeros(data.width, dtype=bool), list[tuple[slice, Floats, Floats]]()
    added_up, added_worth, largest = 0.0, 0.0, 0.0
    hides, single = data.threshold is not None, any(len(table.features) == 1 for table in data.tables)
    for table in data.tables:
        cells, noise = getattr(table, what), data.noise_shares(table)
        listed = np.isfinite(cells)
        shown, added_noise = np.where(listed, cells, 0.0), np.where(listed, noise, 0.0)
        for axis, feature in enumerate(table.features):
            at = data.block(feature)
            others = tuple(one for one in range(cells.ndim) if one != axis)
            many = listed.any(axis=others)
            varies = np.where(many, added_noise.sum(axis=others), noise.mean())
            # A sum with a hidden part is none; cells without a line that are not hidden count no rows.
            known = listed.all(axis=others) if hides else np.full(len(many), True)
            count = np.where(known, 1 / varies, 0.0)
            repeats.append((at, count, shown.sum(axis=others)))
            value[at] += count * repeats[-1][2]
            worth[at] += count
            alike[at] += known / np.maximum(listed.sum(axis=others), 1)
            times[at] += count > 0
            shows[at] |= many
        if listed.all() or not hides:
            count_of_all = 1 / (float(added_noise.sum()) or 1.0)
            added_up, added_worth = added_up + count_of_all * float(shown.sum()), added_worth + count_of_all
        if cells.ndim == 1 or not single:  # of pairs, more is hidden
            largest = max(largest, float(shown.sum()))
    mean = value / np.where(worth > 0, worth, 1.0)
    squares = sum(float((count * (added - mean[at]) ** 2).sum()) for at, count, added in repeats)
    told = Repeats(squares, int(np.maximum(times - 1, 0).sum()))
    worth = np.where(shows | hides, worth, np.inf)  # what is nowhere has no rows, which is exact
    return Margins(mean, worth, alike, added_up / added_worth if added_worth else largest, told)


def adding_up(found: Margins, data: Aggregates, total: float, *, least: float | None) -> Floats:
    """(D,) averages that add up to the total for each feature, none of them below the least, if that is given.

    What is missing goes to cells of which nothing is known, which are those of the rest; where there are none, to all,
    by what their noise varies by.
    """
    value = found.value.copy()
    for feature in range(len(data.features)):
        at = data.block(feature)
        part, worth = value[at], found.worth[at]
        known = worth > 0
        missing = total - part[known].sum()
        if not known.all():
            part[~known] = missing / (~known).sum() if least is None else max(missing, 0.0) / (~known).sum()
        else:
            part += missing / worth / (1 / worth).sum()
        if least is not None:
            part = np.maximum(part, least)
            part *= total / max(part.sum(), 1e-12)
        value[at] = part
    return value


@dataclass(frozen=True, eq=False)
class OneHotMoments:
    """What ridge and logistic regression need to know of one-hot rows x and labels y.

    Attributes
    ----------
    rows, prior : float
        n, and the mean label p.
    mean : array of shape (D,)
        Of x, by cells of all features.
    covariance : array of shape (D, D)
        Sum over rows of (x − mean)(x − mean)ᵀ.
    xy : array of shape (D,)
        Sum over rows of (x − mean)(y − p).
    noise_variance : float
        Of single cells, declared or told by repeats; of the noisiest, where that differs.
    cell_noise : array of shape (d, d)
        The mean variance of noise on a cell, by pairs of features; the mean of all where there is no such table, and
        for a feature and itself, of which all its tables tell, that of the least noisy one.
    left_noise : array of shape (D,)
        What noise is left in the covariance, as a mean variance by rows. A table that is noisier than others, of which
        little is left once it is shrunk, counts as that little, but as no less than the least noisy one.
    penalties : array of shape (D,)
        How much more weights are penalised whose cells are noisier than others; 1 where all are noised alike.
    doubt : float
        Mean variance of what cells of pair tables hold in place of what is hidden; 0 where nothing is.
    xy_noise : array of shape (D,)
        Variance of the noise on `xy`.
    repeats : tuple of Repeats
        Of counts, and of sums.
    """

    rows: float
    prior: float
    mean: Floats
    covariance: Floats
    xy: Floats
    noise_variance: float
    cell_noise: Floats
    left_noise: Floats
    penalties: Floats
    doubt: float
    xy_noise: Floats
    repeats: tuple[Repeats, Repeats]

    @classmethod
    def of(cls, data: Aggregates, *, as_it_is: bool = False) -> OneHotMoments:
        """From tables.

        as_it_is: leave noise where it is, so that every number is unbiased: to measure by, not to learn from.
        """
        count, total = margins(data, "count"), margins(data, "sum")
        noise = data.noise_level
        if noise is None:
            if data.threshold is not None:
                raise ValueError("where rare cells are hidden, tables do not tell their noise: declare it.")
            noise = told_noise((count.repeats, total.repeats), count.total)
        rows = float(data.rows if data.rows is not None else count.total)
        if not rows > 0:
            raise ValueError(f"the tables count {rows:.4g} rows in all: there is nothing to learn from.")
        prior = total.total / count.total if data.threshold is not None else total.total / rows
        if not as_it_is:
            prior = float(np.clip(prior, _LEAST_PRIOR, 1 - _LEAST_PRIOR))
        number = adding_up(count, data, rows, least=None if as_it_is else 0.0)
        summed = adding_up(total, data, prior * rows, least=None)
        worth = np.where(total.worth > 0, total.worth, 1.0)
        covariance, doubt = _covariance(data, number, rows, noise, as_it_is=as_it_is)
        xy = summed - number * prior
        repeats = count.repeats, total.repeats
        by_pairs = noise * _mean_shares(data)
        left = _left_noise(data, by_pairs, covariance)
        penalties = _penalties(total, noise, left + doubt, prior * (1 - prior) * rows * len(data.features) / data.width)
        told = by_pairs, left, penalties, doubt, noise / worth, repeats
        return cls(rows, prior, number / rows, covariance, xy, noise, *told)

    def eigen(self) -> tuple[Floats, Floats]:
        """Eigenvalues, none below 0, and eigenvectors of the covariance by `penalties`, both divided by their roots."""
        by = np.sqrt(self.penalties)
        values, vectors = linalg.eigh(self.covariance / by / by[:, None], check_finite=False)
        return np.maximum(values, 0.0), vectors


def told_noise(repeats: Sequence[Repeats], rows: float) -> float:
    """The variance of noise that repeats of counts and of sums tell; 0 where it is that of rounding."""
    told = sum(one.squares for one in repeats) / max(sum(one.freedom for one in repeats), 1)
    return 0.0 if told < 1e-9 * max(rows, 1.0) else told


def largest_eigenvalue(variance: float, cells: int) -> float:
    r"""Beyond which a symmetric matrix of noise of that variance, D × D, has none, nearly: :math:`2 s \sqrt{D}`."""
    return float(2 * np.sqrt(variance * cells))


def _mean_shares(data: Aggregates) -> Floats:
    """(d, d) mean variance of the noise of a pair table, in that of the noisiest cell."""
    d = len(data.features)
    means = {table.features: float(data.noise_shares(table).mean()) for table in data.tables}
    pairs = {features: one for features, one in means.items() if len(features) == 2}
    found = np.full((d, d), np.mean([*(pairs or means).values()]))
    for (one, other), mean in pairs.items():
        found[one, other] = found[other, one] = mean
    np.fill_diagonal(found, found.min(axis=1))
    return found


def _left_noise(data: Aggregates, by_pairs: Floats, covariance: Floats) -> Floats:
    """(D,) mean variance of noise by rows of the covariance.  by_pairs: (d, d) of that in the tables."""
    d, width = len(data.features), np.diff(data.first)
    left = np.full((d, d), np.inf)
    if np.ptp(by_pairs) > 0:
        for one, other in combinations(range(d), 2):
            beyond = covariance[data.block(one), data.block(other)]
            left[one, other] = left[other, one] = np.square(beyond).mean()
    np.fill_diagonal(left, by_pairs.min())
    left = np.clip(left, by_pairs.min(), by_pairs)
    return np.repeat(left @ width / data.width, width)


def _penalties(summed: Margins, noise: float, left: Floats, chance: float) -> Floats:
    """(D,) penalties in the usual one: as the variance of label sums, or as the size of noise in the covariance.

    The larger of the two, and 1 at least. noise: of the noisiest cell.  left: (D,) as `left_noise`.  chance: variance
    of the label sum of the rows of a cell.
    """
    known = (summed.worth > 0) & (summed.worth < np.inf)
    share = np.where(known, summed.alike / np.where(known, summed.worth, 1.0), 1.0)
    of_sums = share * noise / max(float(summed.alike.mean()), _LEAST_PRIOR) + chance
    of_counts = np.sqrt(left + 0.25)  # chance of rows is taken as noise of variance 1/4
    return np.asarray(np.maximum(of_sums / np.median(of_sums), of_counts / of_counts.min()))


def _covariance(data: Aggregates, number: Floats, rows: float, noise: float, *, as_it_is: bool) -> tuple[Floats, float]:
    """(D, D) sums of products about the means, and the doubt; rows: of all.  number: (D,) rows of each cell."""
    found, doubt, cells = np.zeros((data.width, data.width)), 0.0, 0
    pairs = {table.features: table for table in data.tables if len(table.features) == 2}
    for feature in range(len(data.features)):
        at = data.block(feature)
        found[at, at] = np.diag(number[at]) - np.outer(number[at], number[at]) / rows
    for one, other in combinations(range(len(data.features)), 2):
        if (table := pairs.get((one, other))) is None:
            continue  # taken as independent
        check_time()
        row, column = data.block(one), data.block(other)
        count, guess = table.count, np.outer(number[row], number[column]) / rows
        if data.threshold is not None:
            most = data.threshold + 2 * np.sqrt(noise * data.noise_shares(table)[np.isnan(table.count)])
            count = filled(count, number[row], number[column], rows, most=float(most.max(initial=0.0)))
            doubt += float((count[np.isnan(table.count)] ** 2).sum()) / 3  # anything up to twice as many
        cells += count.size
        beyond = np.nan_to_num(count) - guess
        if not as_it_is:
            beyond = _denoised(beyond, number[row] > 0, number[column] > 0, noise * data.noise_shares(table))
        found[row, column], found[column, row] = beyond, beyond.T
    if not as_it_is and (noise > 0 or data.threshold is not None):
        values, vectors = linalg.eigh(found, check_finite=False)
        found = (vectors * np.maximum(values, 0)) @ vectors.T
    return found, doubt / max(cells, 1)


def _denoised(beyond: Floats, row: Booleans, column: Booleans, noise: Floats) -> Floats:
    """What a pair table shows beyond independence, shrunk, in cells that have rows.

    row, column: which have.  noise: its variance by cells. Where it differs, rows and columns are divided by what is
    theirs of it first, so that the noise of all cells is as nearly alike as such factors make it.
    """
    used, found = np.ix_(row, column), np.zeros_like(beyond)
    inner, variance = beyond[used], noise[used]
    if inner.size:
        inner = inner - inner.mean(axis=1, keepdims=True) - inner.mean(axis=0, keepdims=True) + inner.mean()
        if np.ptp(variance) > 0:
            by = np.sqrt(np.outer(variance.mean(axis=1), variance.mean(axis=0)) / variance.mean())
            found[used] = shrunk(inner / by, 1.0) * by
        else:
            found[used] = shrunk(inner, np.sqrt(variance[0, 0]))
    return found


def filled(count: Floats, row: Floats, column: Floats, rows: float, *, most: float) -> Floats:
    """A table whose hidden cells (NaN) hold what the margins leave for them, spread as independent features would be.

    None gets more than `most`, under which it was hidden, but those of the rest, in the last row and column.

    >>> filled(np.array([[60.0, np.nan], [30.0, 5.0]]), np.array([65.0, 35.0]), np.array([90.0, 10.0]), 100.0, most=10)
    array([[60.,  5.],
           [30.,  5.]])
    """
    hidden, guess = np.isnan(count), np.outer(row, column) / rows
    limit = np.full(count.shape, most, dtype=float)
    limit[-1], limit[:, -1] = np.inf, np.inf
    shown = np.where(hidden, 0.0, count)
    left = [np.maximum(whole - shown.sum(axis=axis), 0) for whole, axis in ((row, 1), (column, 0))]
    guess = np.where(hidden, guess, 0.0)
    for _ in range(_ROUNDS):
        for axis, wanted in ((1, left[0]), (0, left[1])):
            there = guess.sum(axis=axis)
            factor = np.where(there > 0, wanted / np.where(there > 0, there, 1.0), 0.0)
            guess = np.minimum(guess * (factor[:, None] if axis == 1 else factor), limit)
    return np.where(hidden, guess, count)


def shrunk(table: Floats, noise: float) -> Floats:
    """A table of few singular values with noise of a standard deviation in each cell, rows and columns adding up to 0.

    Each is shrunk to what is closest to the table without noise in mean square; those that noise alone would have
    are 0.

    >>> shrunk(np.outer([3.0, -3.0], [1.0, -1.0]), 0.0)
    array([[ 3., -3.],
           [-3.,  3.]])
    """
    if noise <= 0:
        return table
    left, values, right = linalg.svd(table, full_matrices=False, check_finite=False)
    few, many = (max(one - 1, 1) for one in sorted(table.shape))  # what is left after the sums are taken out
    ratio, y = few / many, values / (noise * np.sqrt(many))
    inside = np.maximum((y**2 - ratio - 1) ** 2 - 4 * ratio, 0.0)
    kept = np.where(y > 1 + np.sqrt(ratio), np.sqrt(inside) / np.maximum(y, 1e-300), 0.0)
    return np.asarray((left * (kept * noise * np.sqrt(many))) @ right)
