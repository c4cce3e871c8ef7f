r"""Between which numbers the labels of a group add up, whatever is true of the rows (Duncan and Davis, 1953).

Of a bag with count c and k rows, a of which are of the group, at least :math:`\max(0, c - (k - a))` of these are
positive and at most :math:`\min(a, c)`. Values that are never negative add up to at least 0 and at most the sum of the
bag, to the sum where all rows are of the group; others may be anything. Bags add up; of several groupings the narrower
ends count.
"""

import numpy as np
from scipy import stats

from bagwise.bag_fit import count_ends
from bagwise.bags import Bags
from bagwise.disaggregation.members import members, one_by_one, people_in, people_of
from bagwise.utils.typing import Floats, Integers

_ROUNDING = 1e-9


def group_bounds(code: Integers, groups: int, bags: Bags, *, level: float = 0.95) -> tuple[Floats, Floats]:
    """Least and greatest number of positive labels of each group, of people where rows have weights.

    Parameters
    ----------
    code : array of shape (n_rows,)
        The number of the group of each row, in table order.
    groups : int
        How many groups there are.
    bags : Bags
        Of labels 0 and 1, of one grouping of the rows or of several. Rows in no bag may have any label; where rows
        have weights, they stand for nobody, since theirs are not known.
    level : float
        How sure the ends of noised counts are; exact and hidden counts hold always.

    Returns
    -------
    least, most : array of shape (groups,)

    Examples
    --------
    >>> bags = Bags.from_rows([0.75, 0.75, 0.75, 0.75, 0.0, 0.0], [0, 0, 0, 0, 1, 1])
    >>> group_bounds(np.array([0, 0, 1, 1, 0, 1]), 2, bags)
    (array([1., 1.]), array([2., 2.]))
    """
    code, people = np.asarray(code), people_of(bags)
    least, most = bounds_in_bags(code, groups, bags, people_in(code, groups, people), level)
    if bags.weight is None:
        most = most + np.bincount(code[people == 0], minlength=groups)
    return least, most


def bounds_in_bags(code: Integers, groups: int, bags: Bags, total: Floats, level: float) -> tuple[Floats, Floats]:
    """The same of the people of rows that are in bags.  total: (groups,) how many these are."""
    least, most = np.zeros(groups), total.copy()
    for part in one_by_one(bags):
        inside = members(code, groups, part)
        low, high = (end[:, None] for end in count_ends(part, level)[:2])
        rest = total - inside.sum(axis=0)
        some_least = np.maximum(low - (part.size[:, None] - inside), 0).sum(axis=0)
        some_most = np.minimum(inside, high).sum(axis=0) + rest
        least, most = np.maximum(least, some_least), np.minimum(most, some_most)
    return np.minimum(least, most), most


def sums_in_bags(code: Integers, groups: int, bags: Bags, level: float, *, nonnegative: bool) -> tuple[Floats, Floats]:
    """Least and greatest sum of the values of each group, infinite where nothing bounds it; as `bounds_in_bags`."""
    inside = members(code, groups, bags)
    whole, part = inside >= bags.size[:, None] * (1 - _ROUNDING), inside > 0
    off = stats.norm.ppf((1 + level) / 2) * np.sqrt(bags.declared_noise)
    total = bags.size * bags.proportion
    low, high = total - off, total + off
    if nonnegative:
        low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
    apart = 0.0 if nonnegative else np.inf
    least = np.where(whole, low[:, None], -apart)
    most = np.where(whole, high[:, None], high[:, None] if nonnegative else apart)
    return np.where(part, least, 0.0).sum(axis=0), np.where(part, most, 0.0).sum(axis=0)
