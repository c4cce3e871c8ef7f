"""Bags in an engine: events, what their bags reported, and what was left out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from bagwise.data.shards import NOISE, PROPORTION, SIZE, proportion_columns
from bagwise.utils.text import number_of

NUMBER = "bag_number"
"""Columns of `BagTable.bags` beside the keys; with classes, the proportions are `bag_proportion_0`, …"""


@dataclass(frozen=True)
class Problem:
    """Something about events and reports that does not fit.

    what: in words.  bags, rows: how many are concerned; no bags where the lines of a table have no key.  example: the
    key of one bag.  expected: meant by who made the tables, so no error.
    """

    what: str
    bags: int
    rows: int
    example: str
    expected: bool = False

    def __str__(self) -> str:
        where = number_of(self.bags, "bag") if self.bags else number_of(self.rows, "row")
        also = f" ({number_of(self.rows, 'row')})" if self.bags and self.rows else ""
        example = f", for example bag {self.example}" if self.example else ""
        return f"{where}{also} {self.what}{example}"


@dataclass(frozen=True)
class Summary:
    """What came of the join.

    rows, reports: lines of the two tables (without reports, the bags that the rows name).  bags, used_rows: what is
    used, smallest, largest: sizes among it.  prior: mean label of the used rows, one per class.  noised: whether a used
    bag has declared noise.  problems: what is not used, and why; a bag may have several.
    """

    rows: int
    reports: int
    bags: int
    used_rows: int
    smallest: int
    largest: int
    prior: tuple[float, ...]
    noised: bool
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        prior = ", ".join(f"{value:.4g}" for value in self.prior)
        noised = ", with declared noise" if self.noised else ""
        sizes = f"{self.smallest:,} to {self.largest:,} rows"
        if self.smallest == self.largest:
            sizes = f"{number_of(self.largest, 'row')} each"
        lines = [
            f"{number_of(self.rows, 'event')} and {number_of(self.reports, 'report')}: {self.bags:,} bags of {sizes}, "
            f"{self.used_rows:,} rows in all, mean label {prior}{noised}.",
            *(f"Left out: {problem}." for problem in self.problems),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class BagTable:
    """Events of known bags, and what the bags reported; nothing of it has left the engine.

    events: keys and features of all rows, those of usable bags and others.
    bags: one line per usable bag, with its keys and the columns `bag_number` (from 0, in an order that is the same
        everywhere and has nothing to do with the bags), `bag_size`, `bag_proportion` (or one per class) and
        `bag_noise_variance` (null without noise).
    features: columns of `events` to learn from.  classes: names of the classes, None for labels 0 and 1.
    connection: the engine; what it keeps for us goes when the table does.
    """

    events: Any
    bags: Any
    keys: tuple[str, ...]
    features: tuple[str, ...]
    classes: tuple[str, ...] | None
    summary: Summary
    connection: Any = field(repr=False)

    @property
    def proportions(self) -> tuple[str, ...]:
        """The columns of proportions in `bags`."""
        return proportion_columns(self.classes)

    def check_two_classes(self) -> None:
        """Raise where every used row has the same label, so that there is nothing to learn."""
        only = [number for number, prior in enumerate(self.summary.prior) if prior == 1]
        if self.classes is None and self.summary.prior == (0.0,):
            only = [0]
        if only and not self.summary.noised:
            label = f"{self.summary.prior[0]:g}" if self.classes is None else self.classes[only[0]]
            raise ValueError(f"every row has label {label}: a classifier needs 2 classes.")

    def rows(self) -> Any:
        """The events of usable bags, each with its bag's columns."""
        return self.events.inner_join(self.bags, list(self.keys))


def is_reserved(name: str) -> bool:
    """Whether a column of the user's would be taken for one of ours; engines do not see upper case."""
    return re.fullmatch(rf"bagwise_.*|{NUMBER}|{SIZE}|{NOISE}|{PROPORTION}(_\d+)?", name.lower()) is not None
