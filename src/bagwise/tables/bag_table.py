"""Bags in an engine: events, what their bags reported, and what was left out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bagwise.data.shards import NOISE as NOISE
from bagwise.data.shards import PROPORTION, proportion_columns
from bagwise.data.shards import SIZE as SIZE
from bagwise.tables.engine import Connection, Table
from bagwise.utils.text import number_of, rows_of

NUMBER = "bag_number"
"""Columns of `BagTable.bags` beside the keys; with classes, the proportions are `bag_proportion_0`, …"""
MISMATCHES = {
    "unreported": "with rows but no report",
    "eventless": "with a report but no rows",
    "repeated": "with more than one report",
    "differing": "with a report that is not the same on all of their rows",
    "unclear": "with a marker of suppression that is neither yes nor no",
    "no_value": "with no number reported",
    "outside": "with a proportion outside [0, 1] though no noise is declared",
    "impossible": "with a count below 0 or above the number of rows though no noise is declared",
    "other_size": "with another size reported than there are rows",
    "no_sum": "with classes that do not sum to the whole bag though no noise is declared",
    "wrong_noise": "with a declared noise that is not positive and finite",
    "keyless_reports": "of the reports without a key",
    "withheld": "with a withheld report",
    "keyless_events": "of the events without a key",
}
"""What may be wrong with bags or rows, in words."""


@dataclass(frozen=True)
class Mismatch:
    """Bags or rows of events and reports that do not fit.

    Attributes
    ----------
    kind : str
        What does not fit, one of `MISMATCHES`.
    bags, rows : int
        How many are concerned; no bags where the lines of a table have no key.
    example : str
        The key of one such bag.
    """

    kind: str
    bags: int
    rows: int
    example: str = ""

    def __post_init__(self) -> None:
        if self.kind not in MISMATCHES:
            raise ValueError(f"{self.kind!r} is no kind of mismatch")

    @property
    def expected(self) -> bool:
        """Whether it is meant by who made the tables, so no error."""
        return self.kind in ("withheld", "keyless_events")

    def __str__(self) -> str:
        where = number_of(self.bags, "bag") if self.bags else number_of(self.rows, "row")
        also = f" ({number_of(self.rows, 'row')})" if self.bags and self.rows else ""
        example = f", for example bag {self.example}" if self.example else ""
        return f"{where}{also} {MISMATCHES[self.kind]}{example}"


@dataclass(frozen=True)
class Summary:
    """What came of the join.

    Attributes
    ----------
    rows, reports : int
        Lines of the two tables (without reports, the bags that the rows name).
    bags, used_rows : int
        What is used of them.
    smallest, largest : int
        Sizes of the used bags.
    prior : tuple of float
        Mean label of the used rows, one per class.
    noised : bool
        Whether a used bag has declared noise.
    mismatches : tuple of Mismatch
        What is not used, and why; a bag may have several.
    """

    rows: int
    reports: int
    bags: int
    used_rows: int
    smallest: int
    largest: int
    prior: tuple[float, ...]
    noised: bool
    mismatches: tuple[Mismatch, ...] = ()

    def __str__(self) -> str:
        prior = ", ".join(f"{value:.4g}" for value in self.prior)
        noised = ", with declared noise" if self.noised else ""
        sizes = rows_of(self.smallest, self.largest) + (" each" if self.smallest == self.largest else "")
        lines = [
            f"{number_of(self.rows, 'event')} and {number_of(self.reports, 'report')}: {self.bags:,} bags of {sizes}, "
            f"{self.used_rows:,} rows in all, mean label {prior}{noised}.",
            *(f"Left out: {mismatch}." for mismatch in self.mismatches),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class BagTable:
    """Events of known bags, and what the bags reported; nothing of it has left the engine.

    Attributes
    ----------
    events : ibis.Table
        Keys and features of all rows, those of usable bags and others.
    bags : ibis.Table
        One line per usable bag, with its keys and the columns `bag_number` (from 0, in an order that is the same
        everywhere and has nothing to do with the bags), `bag_size`, `bag_proportion` (or one per class) and
        `bag_noise_variance` (null without noise).
    keys, features : tuple of str
        Columns of `events` that say which bag a row is in, and that are learned from.
    classes : tuple of str or None
        Names of the classes, None for labels 0 and 1.
    summary : Summary
        What fits, and what was left out.
    connection : ibis.BaseBackend
        The engine; what it keeps for us goes when the table does.
    """

    events: Table
    bags: Table
    keys: tuple[str, ...]
    features: tuple[str, ...]
    classes: tuple[str, ...] | None
    summary: Summary
    connection: Connection = field(repr=False)

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

    def rows(self) -> Table:
        """The events of usable bags, each with its bag's columns."""
        return self.events.inner_join(self.bags, list(self.keys))


def is_reserved(name: str) -> bool:
    """Whether a column of the user's would be taken for one of ours; engines do not see upper case."""
    return re.fullmatch(rf"bagwise_.*|{NUMBER}|{SIZE}|{NOISE}|{PROPORTION}(_\d+)?", name.lower()) is not None
