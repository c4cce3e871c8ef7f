"""Bags of every formation, made from rows whose labels are known: pure functions of their arguments and a seed.

All give bag ids as `random_bags` does, −1 for rows in no bag.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from bagwise.utils.parameters import check_parameters, number, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats, Integers

FEWEST_ROWS = 30
"""Rows that a natural group must have to be a bag."""

_MOST_BENT = 20.0


def bags_with_rates(y: ArrayLike, size: int, low: float, high: float, random_state: RandomState = None) -> Integers:
    r"""A partition into bags of one size whose rates differ: `rates`.

    Each bag draws :math:`u \in [0, 1]`, has the rate :math:`r = \text{low} + (\text{high} - \text{low}) u^\gamma`,
    draws its number of rows of label 1 with that rate, and takes so many of these and the rest of label 0 at random. γ,
    which is about 1, makes all bags together have the rate of all rows: otherwise few large bags would be rows of
    another population than those to be predicted. Where no γ does, bags are as many as rows of either label allow.

    >>> y = np.arange(12) % 2
    >>> ids = bags_with_rates(y, 4, 0.0, 1.0, random_state=0)
    >>> sum(int(y[ids == j].sum()) for j in range(3))
    6
    """
    given, unit = {"size": size, "low": low, "high": high}, number(least=0, most=1)
    check_parameters(given, {"size": whole(1), "low": unit, "high": unit})
    y, rng = np.asarray(y), generator(random_state)
    rows = [rng.permutation(np.flatnonzero(y == label)) for label in (0, 1)]
    m = len(y) // size
    total = int(np.clip(round(m * size * y.mean()), m * size - len(rows[0]), len(rows[1])))
    rates = _rates(rng.random(m), low, high, total / (m * size))
    ones = rng.binomial(size, rates)
    if low < y.mean() < high:  # chance may ask for some more than there are, or fewer
        over = int(ones.sum()) - total
        ones = np.clip(ones - np.sign(over) * np.bincount(rng.integers(m, size=abs(over)), minlength=m), 0, size)
    counts = [size - ones, ones]
    enough = [np.cumsum(count) <= len(some) for count, some in zip(counts, rows, strict=True)]
    m = int(np.logical_and(*enough).sum())  # cumulative: what fails once fails from there on
    ids = np.full(len(y), -1)
    for count, some in zip(counts, rows, strict=True):
        bag = np.repeat(np.arange(m), count[:m])
        ids[some[: len(bag)]] = bag
    return ids


def _rates(u: Floats, low: float, high: float, mean: float) -> Floats:
    """Rates between `low` and `high`, bent so that their mean comes as close as possible to `mean`."""

    def off(power: float) -> float:
        return float((low + (high - low) * u**power).mean()) - mean

    least, most = 1 / _MOST_BENT, _MOST_BENT
    power = most if off(most) > 0 else least if off(least) < 0 else float(brentq(off, least, most))
    return np.asarray(low + (high - low) * u**power)


def sorted_bags(columns: Sequence[ArrayLike], size: int, random_state: RandomState = None) -> Integers:
    """Bags of consecutive rows, sorted by the columns, the first one first, ties at random: `features`.

    >>> sorted_bags([["b", "a", "b", "a", "c"], [1, 2, 0, 1, 5]], 2, random_state=0)
    array([ 1,  0,  1,  0, -1])
    """
    check_parameters({"size": size}, {"size": whole(1)})
    keys = [_codes(column) for column in columns]
    n = len(keys[0])
    order = np.lexsort([generator(random_state).permutation(n), *keys[::-1]])
    ids = np.full(n, -1)
    m = n // size
    ids[order[: m * size]] = np.repeat(np.arange(m), size)
    return ids


def natural_groups(columns: Sequence[ArrayLike], *, fewest: int = FEWEST_ROWS) -> Integers:
    """One bag per combination of values; rows of those with less than `fewest` are in none: `features`, or `effects`.

    >>> natural_groups([["a", "a", "b", "a"], [0, 0, 0, 1]], fewest=2)
    array([ 0,  0, -1, -1])
    """
    codes = np.column_stack([_codes(column) for column in columns])
    _, group, size = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    new = np.where(size >= fewest, np.cumsum(size >= fewest) - 1, -1)
    return np.asarray(new[group.ravel()])


def labels_with_effects(
    log_odds: Floats, ids: ArrayLike, sd: float, random_state: RandomState = None
) -> tuple[Integers, Floats]:
    """Labels drawn with the log odds of their rows, plus u_j of their bags, and the u_j: `effects`.

    sd: τ, the standard deviation of the normal u_j. Rows in no bag have no effect.

    >>> y, u = labels_with_effects(np.zeros(4), [0, 0, 1, -1], 1.0, random_state=0)
    >>> len(y), len(u)
    (4, 2)
    """
    check_parameters({"sd": sd}, {"sd": number(least=0)})
    ids, rng = np.asarray(ids), generator(random_state)
    effects = rng.normal(scale=sd, size=int(ids.max()) + 1)
    moved = log_odds + np.append(effects, 0.0)[ids]  # the last for those whose id is −1
    return (rng.random(len(moved)) < expit(moved)).astype(int), effects


def deciles(column: ArrayLike) -> Integers:
    """The tenth of the rows that each belongs to, 0 to 9."""
    x = np.asarray(column)
    return np.searchsorted(np.quantile(x, np.arange(1, 10) / 10), x, side="right")


def cells(X: Floats, number: int) -> Integers:
    """Cells of rows that lie close together, by k-means with a seed that is always the same."""
    from sklearn.cluster import KMeans

    return np.asarray(KMeans(number, n_init=1, random_state=0).fit_predict(X))


def _codes(column: Any) -> Integers:
    """Places of the values in their order."""
    return np.unique(np.asarray(column), return_inverse=True)[1].ravel()
