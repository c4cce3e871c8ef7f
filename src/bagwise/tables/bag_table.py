"""Bags in an engine: events, what their bags reported, and what was left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bagwise.bags.intervals import Intervals
from bagwise.data.shards import (
    DECLARED,
    HIGH,
    LOW,
    NOISE,
    PROPORTION,
    ROWS,
    SIZE,
    end_columns,
    interval_of,
    proportion_columns,
    read_reports,
)
from bagwise.tables.engines import Connection
from bagwise.tables.reports import ReportColumns
from bagwise.tables.row_columns import RowColumns
from bagwise.tables.table import (
    Expression,
    Table,
    col,
    lit,
    total,
    where,
)
from bagwise.utils.text import number_of, rows_of
from bagwise.utils.typing import Floats, Integers

NUMBER = "bag_number"  # of `BagTable.bags`, whose other columns are the keys, and those of `data.shards`
ROW = "bagwise_row"  # the number of an event, where there are several tables of reports
LABELLED = "bagwise_labelled"  # a key of rows with labels of their own: their number, from 1; 0 for the others
CHANGED = "the events are not those that were joined with the reports: join them again."
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
}  # what may be wrong with bags or rows, in words


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
    labelled : int
        Rows with labels of their own, each one of the bags.
    inexact : int
        Used bags whose count is hidden, rounded or clamped: no more is known than between which numbers it lies.
    noise : str
        How noise was declared, in words.
    further : tuple of Summary
        What came of joining further tables of reports.
    set_aside : int
        Bags of these that share rows with bags held out, and are not learned from.
    rests, rest_rows : int
        Used bags of the rows that no other report tells of, and their rows.
    people : float
        How many people used rows stand for, 0 where each stands for one; these are whom reports count.
    squares : tuple of float
        Mean square of what used bags report, one per class: other tables with as many rows and the same mean label,
        which reports of whole numbers may well have, are told by it.
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
    labelled: int = 0
    inexact: int = 0
    noise: str = ""
    further: tuple[Summary, ...] = ()
    set_aside: int = 0
    rests: int = 0
    rest_rows: int = 0
    people: float = 0.0
    squares: tuple[float, ...] = ()

    @staticmethod
    def figures(
        proportions: Sequence[str], used: Expression | None = None, *, of_rows: RowColumns | None = None
    ) -> dict[str, Expression]:
        """What is said of the `used` lines of bags, with their `proportions`, to be asked for in one query.

        Sizes are of people where `of_rows` names a weight.
        """
        used = lit(True) if used is None else used
        weighted = of_rows is not None and of_rows.weight is not None
        size, rows = where(used, col(SIZE)), where(used, col(ROWS if weighted else SIZE))
        people = size.sum() if weighted else total(size)
        sizes = {"bags": size.count(), "used_rows": total(rows), "smallest": rows.min(), "largest": rows.max()}
        sizes |= {"people": people} if weighted else {}
        for i, name in enumerate(proportions):
            sizes[f"prior_{i}"] = (col(name) * size).sum() / people
            sizes[f"square_{i}"] = (col(name) * col(name) * size).sum() / people
        return sizes

    @staticmethod
    def facts(found: Mapping[str, Any]) -> dict[str, Any]:
        """What is `found` by `figures`, as fields."""
        prior, squares = (
            tuple(float(value) for name, value in found.items() if name.startswith(what))
            for what in ("prior_", "square_")
        )
        counts = {name: int(found[name]) for name in ("bags", "used_rows", "smallest", "largest")}
        return {**counts, "prior": prior, "squares": squares, "people": float(found.get("people") or 0.0)}

    def __str__(self) -> str:
        prior = ", ".join(f"{value:.4g}" for value in self.prior)
        noised = f", with {self.noise or 'declared noise'}" if self.noised else ""
        if self.inexact:
            what = (
                number_of(self.inexact, "count")
                if len(self.prior) == 1
                else f"counts of {number_of(self.inexact, 'bag')}"
            )
            noised += f", {what} known to lie between two numbers only"
        sizes = rows_of(self.smallest, self.largest) + (" each" if self.smallest == self.largest else "")
        read = f"{number_of(self.rows, 'event')} and {number_of(self.reports, 'report')}"
        read += f" beside {number_of(self.labelled, 'labelled row')}" if self.labelled else ""
        about = "about " if self.inexact else ""
        people = f" that stand for {self.people:,.12g} people" if self.people else ""
        in_all = f"{self.used_rows:,} rows in all{people}"
        used = f"{self.bags:,} bags of {sizes}, {in_all}, mean label {about}{prior}{noised}"
        if self.rests:
            used += f"; {number_of(self.rest_rows, 'row')} in {number_of(self.rests, 'bag')} of all others (*)"
        lines = [f"{read}: {used}.", *(f"Left out: {mismatch}." for mismatch in self.mismatches)]
        lines += [f"Further reports: {one}" for one in self.further]
        if self.set_aside:
            those = f"{number_of(self.set_aside, 'bag')} of further reports with rows of bags held out"
            lines.append(f"Left out: {those}; a fit to all bags learns from them.")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class BagTable:
    """Events of known bags, and what the bags reported; nothing of it has left the engine.

    Attributes
    ----------
    events : Table
        Keys and features of all rows, those of usable bags and others.
    bags : Table
        One line per usable bag, with its keys and the columns `bag_number` (from 0, in an order that is the same
        everywhere and has nothing to do with the bags), `bag_size`, `bag_proportion` (or one per class) and
        `bag_noise_variance` (null without noise).
    keys, features : tuple of str
        Columns of `events` that say which bag a row is in, and that are learned from.
    classes : tuple of str or None
        Names of the classes, None for labels 0 and 1.
    summary : Summary
        What fits, and what was left out.
    columns : ReportColumns
        Which columns of the reports said what.
    others : tuple of BagTable
        The same events with further tables of reports, where there are several; bags of these overlap.
    ignored : tuple of str
        Columns of the events that were said to be no features; they are not in `events`.
    of_rows : RowColumns
        Columns of the events that say for how many people a row stands, and what is added to its log odds.
    """

    events: Table
    bags: Table
    keys: tuple[str, ...]
    features: tuple[str, ...]
    classes: tuple[str, ...] | None
    summary: Summary
    columns: ReportColumns = field(default_factory=ReportColumns, repr=False)
    ignored: tuple[str, ...] = ()
    others: tuple[BagTable, ...] = ()
    of_rows: RowColumns = field(default_factory=RowColumns, repr=False)

    @property
    def connection(self) -> Connection:
        """The connection of the engine; what it keeps for us goes when the table does."""
        return self.events.engine.connection

    @property
    def target(self) -> str:
        """What bags report: "label" or "value" (see `join`)."""
        return self.columns.target

    @property
    def named_keys(self) -> tuple[str, ...]:
        """The keys that the tables have."""
        return tuple(key for key in self.keys if key != LABELLED)

    @property
    def proportions(self) -> tuple[str, ...]:
        """The columns of proportions in `bags`."""
        return proportion_columns(self.classes)

    def check_two_classes(self) -> None:
        """Raise where every used row has the same label 0 or 1, or class, so that there is nothing to learn."""
        prior = self.summary.prior
        one = 1.0 in prior or prior == (0.0,)
        if self.target == "label" and one and not self.summary.noised:
            label = f"{prior[0]:g}" if self.classes is None else self.classes[prior.index(1.0)]
            raise ValueError(f"every row has label {label}: a classifier needs 2 classes.")

    def rows(self, first: int | None = None) -> Table:
        """The events of usable bags, each with its bag's columns; of the `first` bags only, if that is given."""
        bags = self.bags if first is None else self.bags.filter(col(NUMBER) < first)
        return self.events.join(bags, self.keys)

    def bags_with(self, rows: int) -> int:
        """How many bags hold about so many `rows`; 3 at least."""
        return max(3, int(rows * self.summary.bags / self.summary.used_rows))

    def reports(self) -> pa.Table:
        """What each bag reported, in the order of the bags' numbers."""
        low, high = end_columns(self.classes)
        ends = [*low, *high, DECLARED] if self.summary.inexact else []
        table = (
            self.bags.select(NUMBER, SIZE, *self.of_rows.lines, *self.proportions, NOISE, *ends).sort(NUMBER).fetch()
        )
        if not np.array_equal(table.column(NUMBER).to_numpy(), np.arange(table.num_rows)):
            raise ValueError(CHANGED)
        noise = table.column(NOISE).cast(pa.float64()).fill_null(0.0)
        return table.set_column(table.schema.get_field_index(NOISE), NOISE, noise).drop_columns(NUMBER)

    @cached_property
    def reported(self) -> Reported:
        """The same as arrays."""
        classes = None if self.classes is None else len(self.classes)
        reports = self.reports()
        interval = interval_of(reports)
        noised = self.summary.noised or interval is not None
        size, rows, proportion, noise = read_reports(reports, classes=classes, noised=noised)
        return Reported(size, proportion, noise, interval, rows)


class Reported(NamedTuple):
    """What all bags reported, by number: sizes (m,), proportions (m,) or (m, classes), noise variances (m,) or None.

    And between which numbers counts lie, where some are not known; and how many rows bags have, which may stand for
    more people.
    """

    size: Integers
    proportion: Floats
    noise: Floats | None
    interval: Intervals | None
    rows: Integers


def is_reserved(name: str) -> bool:
    """Whether a column of the user's would be taken for one of ours; engines do not see upper case."""
    return (
        re.fullmatch(
            rf"bagwise_.*|{NUMBER}|{SIZE}|{ROWS}|{NOISE}|{DECLARED}|({LOW}|{HIGH}|{PROPORTION})(_\d+)?", name.lower()
        )
        is not None
    )
