"""Which rows and people are of which group and bag, and what they have added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Floats, Integers, NDArray

_MOST_NUMBERS = 2**26
_ALONE = 1e-6  # a share of the variance of scores, below which groups tell all of them


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of rows.

    values: what rows of each have in common.  code: (n_rows,) the number of each row's group.  people: (n_rows,) for
    how many each row stands, 0 in no bag.  size, rows: (groups,) people and rows of bags.
    """

    values: NDArray[Any]
    code: Integers
    people: Floats
    size: Floats
    rows: Integers

    @classmethod
    def of(cls, texts: NDArray[Any], bags: Bags) -> Groups:
        """Of the texts of groups (n_rows,)."""
        values, code = np.unique(texts, return_inverse=True)
        if len(values) * len(texts) > _MOST_NUMBERS:
            most = _MOST_NUMBERS // len(values)
            told = f"tells {len(values):,} groups of {len(texts):,} rows: at most {most:,} can be worked on."
            raise ParameterError("by", told)
        people = people_of(bags)
        rows = np.bincount(code[people > 0], minlength=len(values))
        return cls(values, code, people, people_in(code, len(values), people), rows)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def divisor(self) -> Floats:
        """(groups,) people to divide by: 1 where there are none."""
        return some(self.size)

    def total(self, values: Floats) -> Floats:
        """(groups,) what people have added up.  values: (n_rows,)."""
        return people_in(self.code, len(self), self.people * values)

    def largest_first(self) -> Integers:
        """The numbers of the groups that have people."""
        order = np.argsort(-self.size, kind="stable")
        return order[self.size[order] > 0]


def joint(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """(n,) the values of several columns as one text."""
    texts = []
    for values in columns:
        said = ["missing" if one is None or one != one else str(one) for one in values.tolist()]
        texts.append(np.array(said, dtype=object))
    found = texts[0]
    for more in texts[1:]:
        found = found + " / " + more
    return found.astype(str)


def people_of(bags: Bags) -> Floats:
    """(n_rows,) for how many people each row stands; nobody where it is in no bag."""
    people: Floats | None = bags.of_table(np.ones(bags.n_bagged) if bags.weight is None else bags.weight)
    assert people is not None
    return people


def people_in(code: Integers, groups: int, people: Floats) -> Floats:
    """(groups,) how many people each group has.  code, people: (n_rows,)."""
    return np.bincount(code, people, minlength=groups).astype(float)


def some(people: Floats) -> Floats:
    """Numbers of people to divide by: 1 where there are none."""
    return np.where(people > 0, people, 1.0)


def members(code: Integers, groups: int, bags: Bags, values: Floats | None = None) -> Floats:
    """(m, groups) people of each group in each bag, or what they have added up.  code, values: (n_rows,)."""
    cell = bags.repeat(np.arange(len(bags))) * groups + code[bags.order]
    own = bags.weight if values is None else bags.weighted(values[bags.order])
    return np.bincount(cell, own, minlength=len(bags) * groups).reshape(len(bags), groups).astype(float)


def one_by_one(bags: Bags) -> list[Bags]:
    """The groupings that bags are of."""
    if bags.overlap is None:
        return [bags]
    return [bags.take(bags.overlap.table == number) for number in np.unique(bags.overlap.table)]


def of_these_alone(bags: Bags, code: Integers, these: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(m,) whether all people of a bag are of some groups.  these: (groups,)."""
    each = [members(code, len(these), part)[:, ~these].sum(axis=1) == 0 for part in one_by_one(bags)]
    return np.concatenate(each)


def but_largest(open_: Integers, size: Floats, known: NDArray[np.bool_]) -> Integers:
    """Groups that get a shift: all but one, which the intercept has; known ones have it together."""
    return open_ if known.any() else np.delete(open_, np.argmax(size[open_]))


def told_by_groups(h: Floats, code: Integers, people: Floats) -> bool:
    """Whether predictions (n_rows,) or (n_rows, classes) are the same in each group: they say no more than it does."""
    size, n = some(people_in(code, 0, people)), people.sum()
    for one in h.reshape(len(h), -1).T:
        mean = np.bincount(code, people * one) / size
        about = one - people @ one / n
        if people @ (one - mean[code]) ** 2 > _ALONE * max(float(people @ about**2), n * 1e-18):
            return False
    return True
