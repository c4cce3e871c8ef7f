"""Seconds: how many are left, and how many a candidate would take, told by fits to few of the rows."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np

from bagwise.auto.candidates import Readings
from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Integers

_PARTS = ((1 / 64, 500), (1 / 16, 2_000))  # shares of the rows to time, and the least numbers of them
_OVER = 1.1  # times the budget, by which the last fit ends


@dataclass(frozen=True)
class Budget:
    """Seconds from now on; None for as many as it takes."""

    seconds: float | None
    start: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds to try candidates in."""
        return math.inf if self.seconds is None else self.start + self.seconds - time.monotonic()

    @property
    def left_to_refit(self) -> float:
        """Seconds by which the last fit must end."""
        return math.inf if self.seconds is None else self.start + _OVER * self.seconds - time.monotonic()


def expected_seconds(candidate: BagClassifier, table: Readings, bags: Bags, random_state: int) -> float:
    """About how long a fit to all bags takes: fits to two small shares of the rows, and the line through them.

    0 where rows are so few that trying is as fast. Raises an `OutOfTimeError` where time is over (see `time_limit`).
    """
    shares = [max(share, least / bags.n_bagged) for share, least in _PARTS]
    if shares[-1] > 0.5:
        return 0.0
    points = []
    for share in shares:
        rows, some = thinned(bags, share)
        began = time.monotonic()
        table.select(some, rows).fit(candidate, random_state)
        points.append((len(rows) / bags.n_bagged, time.monotonic() - began))
        check_time()
    (few, fast), (more, slow) = points
    return slow + max(slow - fast, 0.0) / (more - few) * (1 - more)


def thinned(bags: Bags, share: float) -> tuple[Integers, Bags]:
    """About so many of the rows, and bags of them that report what theirs did: to time a fit, not to learn from.

    Rows are left out inside bags first: how many bags there are decides how often a fit is repeated on folds of them.

    >>> ids = np.repeat([0, 1, 2, 3], 8)
    >>> rows, some = thinned(Bags.from_rows(ids / 4, ids), 1 / 4)
    >>> rows.tolist(), some.size.tolist(), some.proportion.tolist()
    ([0, 4, 8, 12, 16, 20, 24, 28], [2, 2, 2, 2], [0.0, 0.25, 0.5, 0.75])
    """
    every = max(1, round(1 / share))
    inside = int(min(every, max(1, bags.n_bagged // (2 * len(bags)))))  # two rows of a bag stay
    bags = bags.take(np.arange(0, len(bags), min(-(-every // inside), max(1, len(bags) // 32))))
    place = np.arange(bags.n_bagged) - bags.repeat(bags.offsets[:-1])
    kept = place % inside == 0
    code = bags.repeat(np.arange(len(bags)))[kept]
    noise = None if bags.noise_variance is None else bags.noise_variance[code]
    return bags.order[kept], Bags.from_rows(bags.proportion[code], code, noise_variance=noise)
