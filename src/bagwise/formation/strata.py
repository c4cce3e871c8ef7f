"""Bags that are random inside strata, or apart from a drift along their order."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csgraph, csr_array

from bagwise.bags import Bags
from bagwise.dispersion import NOT_RANDOM
from bagwise.formation.formations import Told
from bagwise.formation.scatter import given_known
from bagwise.ranks import Columns, Scores, compared, scores_of
from bagwise.utils.typing import Floats, Integers

_FREEDOM = 10  # bags that there have to be beyond the strata, to tell whether they are random in them
_KNOTS = 10  # between which a drift is a straight line


def strata_of(column: Scores, bags: Bags) -> Integers | None:
    """The strata that a column divides bags into; None where it does not, or into nearly as many as there are bags.

    Bags are of one stratum where they have a value in common or, in a column with an order, where their ranges overlap:
    bags of one campaign each, or all of whose rows are of one day.

    Parameters
    ----------
    column : sequence
        What a column is compared by, as `bagwise.ranks.scores_of` gives it.
    bags : Bags
        The bags of the rows.

    Returns
    -------
    array of shape (m,) or None
        The number of each bag's stratum.

    Examples
    --------
    >>> day = np.repeat([0.0, 1.0], 800) + np.tile([0.0, 0.4], 800)
    >>> bags = Bags.from_rows(np.zeros(1600), np.arange(1600) // 80)
    >>> strata_of([(day, 1600.0)], bags)
    array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    """
    if not column:
        return None
    place = column[0][0][:]
    if len(column) == 1:
        low, high = (one.reduceat(place, bags.offsets[:-1]) for one in (np.minimum, np.maximum))
        order = np.argsort(low, kind="stable")
        apart = low[order][1:] > np.maximum.accumulate(high[order])[:-1]
        stratum = np.empty(len(bags), dtype=int)
        stratum[order] = np.append(0, np.cumsum(apart))
    else:
        _, level = np.unique(place, return_inverse=True)
        rows = bags.repeat(np.arange(len(bags)))
        shape = (len(bags) + int(level.max()) + 1,) * 2
        shared = csr_array((np.ones(len(rows), dtype=bool), (rows, len(bags) + level)), shape=shape)
        stratum = csgraph.connected_components(shared, directed=False)[1][: len(bags)]
    return _checked(stratum)


def _checked(stratum: Integers) -> Integers | None:
    _, stratum, counts = np.unique(stratum, return_inverse=True, return_counts=True)
    enough = len(stratum) - len(counts) >= _FREEDOM and 2 * counts[counts > 1].sum() >= len(stratum)
    return stratum if len(counts) > 1 and enough else None


def random_strata(candidates: Mapping[str, Integers], columns: Columns, bags: Bags, *, level: float) -> tuple[str, ...]:
    """Names of the columns inside whose strata bags are random; none where there are no such columns.

    Parameters
    ----------
    candidates : dict
        Strata of bags, as `strata_of` finds them, by the name of the column.
    columns : list
        In which bags of a stratum must be alike, as `bagwise.ranks.compared` gives them.
    bags : Bags
        The bags of their rows.
    level : float
        p-value below which something is not by chance.

    Returns
    -------
    tuple of str
        One column if that is enough, else as few as possible.
    """

    def random(names: Sequence[str]) -> bool:
        stratum = _checked(np.unique(np.stack([candidates[one] for one in names]), axis=1, return_inverse=True)[1])
        return stratum is not None and _nothing_left(columns, bags, indicators(stratum), level)

    for name in sorted(candidates, key=lambda one: int(candidates[one].max())):
        if random([name]):
            return (name,)
    kept = list(candidates)
    if len(kept) < 2 or not random(kept):
        return ()
    for name in list(kept):
        fewer = [one for one in kept if one != name]
        if len(fewer) > 1 and random(fewer):
            kept = fewer
    return tuple(kept)


def formation_inside(stratum: Integers, X: Any, bags: Bags, *, h: Floats) -> Told:
    """The formation of bags inside strata: random, unless proportions, predictions or features tell otherwise.

    Parameters
    ----------
    stratum : array of shape (m,)
        The stratum of each bag.
    X : array or table of shape (n, …), or None
        Rows, in table order.
    bags : Bags
        Their bags.
    h : array of shape (n,) or (n, classes)
        Predictions of a model that was not fitted to these bags, in table order.

    Returns
    -------
    Told

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> day = np.repeat(np.arange(50) % 2, 64)
    >>> h = 0.2 + 0.4 * day + 0.2 * rng.random(3200)
    >>> y = rng.random(3200) < h
    >>> bags = Bags.from_rows(np.repeat(y.reshape(50, 64).mean(axis=1), 64), np.arange(3200) // 64)
    >>> formation_inside(np.arange(50) % 2, None, bags, h=h).name
    'random'
    """
    some, columns = (bags, []) if X is None else compared(X, bags)
    scores = [score for one in h[some.order].reshape(some.n_bagged, -1).T for score in scores_of(one, "h", some.weight)]
    inside = stratum if some is bags else stratum[np.isin(bags.keys, some.keys)]
    found = given_known([("predictions", scores), *columns], some, indicators(inside))
    left = sorted((one for one in found if one.p_value < NOT_RANDOM), key=lambda one: one.p_value)
    if not left:
        return Told("random", "nothing speaks against random bags inside strata")
    unseen = all(one.subject == "proportions" for one in left)
    return Told("effects" if unseen else "features", f"inside strata, too, bags differ in {left[0].subject}")


def indicators(stratum: Integers) -> Floats:
    """One column for each stratum.

    Parameters
    ----------
    stratum : array of shape (m,)
        The stratum of each bag.

    Returns
    -------
    array of shape (m, strata)
    """
    return np.asarray(stratum[:, None] == np.unique(stratum), dtype=float)


def random_but_for_order(columns: Columns, bags: Bags, *, level: float) -> bool:
    """Whether bags are random apart from a smooth drift along their order.

    Parameters
    ----------
    columns : list
        In which bags must then be alike, as `bagwise.ranks.compared` gives them.
    bags : Bags
        The bags of their rows.
    level : float
        p-value below which something is not by chance.

    Returns
    -------
    bool
    """
    knots = min(_KNOTS, len(bags) // 4)
    if knots < 2:
        return False
    place, at = np.linspace(0, knots - 1, len(bags)), np.arange(knots)
    return _nothing_left(columns, bags, np.maximum(0, 1 - np.abs(place[:, None] - at)), level)


def _nothing_left(columns: Columns, bags: Bags, known: Floats, level: float) -> bool:
    left = [one.p_value for one in given_known(columns, bags, known)]
    return not any(one < level for one in left)
