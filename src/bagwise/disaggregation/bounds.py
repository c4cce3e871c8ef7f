r"""Between which numbers the positives of a group lie whatever is true of the rows (Duncan and Davis, 1953).

Of a bag with count c and k rows, a of which are of the group, at least :math:`\max(0, c - (k - a))` of these are
positive and at most :math:`\min(a, c)`. Bags add up; of several groupings the narrower ends count.
"""

import numpy as np

from bagwise.bag_fit import count_ends
from bagwise.bags import Bags
from bagwise.utils.typing import Floats, Integers


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


def people_of(bags: Bags) -> Floats:
    """(n_rows,) for how many people each row stands; nobody where it is in no bag."""
    people: Floats | None = bags.of_table(np.ones(bags.n_bagged) if bags.weight is None else bags.weight)
    assert people is not None
    return people


def one_by_one(bags: Bags) -> list[Bags]:
    """The groupings that bags are of."""
    if bags.overlap is None:
        return [bags]
    return [bags.take(bags.overlap.table == number) for number in np.unique(bags.overlap.table)]


def people_in(code: Integers, groups: int, people: Floats) -> Floats:
    """(groups,) how many people each group has.  code, people: (n_rows,)."""
    return np.bincount(code, people, minlength=groups).astype(float)


def members(code: Integers, groups: int, bags: Bags, values: Floats | None = None) -> Floats:
    """(m, groups) people of each group in each bag, or what they have added up.  code, values: (n_rows,)."""
    cell = bags.repeat(np.arange(len(bags))) * groups + code[bags.order]
    own = bags.weight if values is None else bags.weighted(values[bags.order])
    return np.bincount(cell, own, minlength=len(bags) * groups).reshape(len(bags), groups).astype(float)
