"""The rows that trees are grown on, in parts: all of one process's, or some of those that several processes hold.

What an objective needs of the rows of others are sums. Each process computes those of its own parts, all are told those
of all parts, and add them up in the same order: so a sum is the same number, to the last digit, however many processes
hold the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.utils.typing import Floats, Integers, NDArray


def joined(each: Sequence[Floats]) -> Floats:
    """(n,) what is known of the rows of each part, part after part."""
    return each[0] if len(each) == 1 else np.concatenate(each)


def _alone(sums: Floats) -> Floats:
    return sums


@dataclass(frozen=True, eq=False)
class Parts:
    """Rows in bag order, part after part.

    bags: of each part that this process holds.  whole: all bags of all processes; rows of theirs are not looked at.
    numbers: of each part, which bags of the whole it has.  gather: makes (all parts, …) of (own parts, …).
    """

    bags: Sequence[Bags]
    whole: Bags
    numbers: Sequence[Integers | slice] = (slice(None),)
    gather: Callable[[Floats], Floats] = _alone

    @classmethod
    def of(cls, bags: Bags) -> Parts:
        """Rows in one part."""
        return cls([bags], bags)

    @property
    def _alone(self) -> bool:
        """Whether there is one part."""
        return len(self.bags) == 1 and self.gather is _alone

    @cached_property
    def places(self) -> list[slice]:
        """The rows of each part."""
        ends = np.cumsum([0, *(bags.n_bagged for bags in self.bags)]).tolist()
        return [slice(first, last) for first, last in pairwise(ends)]

    def split(self, values: NDArray[Any]) -> Iterator[tuple[Bags, Any]]:
        """The bags of each part, and what it has of (n, …) values."""
        return ((bags, values[place]) for bags, place in zip(self.bags, self.places, strict=True))

    def of_whole(self, values: Floats | None) -> list[Floats | None]:
        """What each part has of (m, …) values of all bags."""
        return [None if values is None else values[chosen] for chosen in self.numbers]

    def total(self, each: Iterable[Sequence[Any]]) -> list[Any]:
        """Sums over all parts of all processes, in one message.  each: of every own part, the same arrays and numbers.

        >>> bags = Bags.singletons([0.0, 1.0])
        >>> parts = Parts([bags, bags], bags)  # of which this process holds all
        >>> parts.total([(1.0, np.array([1.0, 2.0])), (2.0, np.array([3.0, 4.0]))])
        [3.0, array([4., 6.])]
        """
        own = [[np.asarray(one, dtype=float) for one in arrays] for arrays in each]
        if self._alone:
            return [one if one.ndim else float(one) for one in own[0]]
        sums = self.gather(np.stack([np.concatenate([one.ravel() for one in arrays]) for arrays in own])).sum(axis=0)
        ends = np.cumsum([one.size for one in own[0]])[:-1]
        found = zip(np.split(sums, ends), own[0], strict=True)
        return [one.reshape(like.shape) if like.ndim else float(one[0]) for one, like in found]

    def average(self, values: Floats) -> float:
        """The mean of (n,) values over all rows of all processes, each as often as it stands for someone."""
        if self._alone:
            return float(self.bags[0].average(values))
        (total,) = self.total((bags.weighted(some).sum(),) for bags, some in self.split(values))
        return float(total / self.n_people)

    def mean(self, values: Floats) -> float:
        """The mean of (n,) values over all rows of all processes, whomever these stand for."""
        if self._alone:
            return float(values.mean())
        total, n = self.total((some.sum(), len(some)) for _, some in self.split(values))
        return float(total / n)

    def ends(self, values: Floats) -> tuple[float, float]:
        """The least and the greatest of (n,) values of all processes."""
        own = [(-some.min(), some.max()) for _, some in self.split(values)]
        low, high = self.gather(np.array(own, dtype=float)).max(axis=0).tolist()
        return -low, high

    @property
    def n_people(self) -> float:
        """Whom all rows stand for."""
        return self.whole.n_people

    @cached_property
    def weight(self) -> Floats | None:
        """(n,) of rows, None where each stands for one."""
        known = [bags.weight for bags in self.bags if bags.weight is not None]
        return joined(known) if known else None

    def mean_weight(self) -> float:
        """Of a row of all processes."""
        (n,) = self.total((bags.n_bagged,) for bags in self.bags)
        return float(self.n_people / n)
