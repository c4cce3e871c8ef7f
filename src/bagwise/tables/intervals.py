"""Counts as report tables write them: `*`, `<10`, `1-7`, `100+`, rounded or clamped; in numbers between which they lie.

Reports are read out of the engine for this, and handed back: they are few beside the events.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa

from bagwise.data.shards import DECLARED, NOISE, SIZE, end_columns, interval_of, of_classes, proportion_columns
from bagwise.tables.reports import VALUE, ReportColumns
from bagwise.tables.sources import read
from bagwise.tables.table import Table, as_number, col, is_text, null
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Booleans, Floats

LEAST, MOST = "bagwise_least", "bagwise_most"  # of classes, _0, …
_HIDDEN = {
    "",
    "*",
    "**",
    ".",
    "..",
    "-",
    "–",
    "s",
    "x",
    "c",
    "na",
    "n/a",
    "nan",
    "none",
    "null",
    "suppressed",
    "hidden",
}
_NUMBER = r"([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)"
_BETWEEN = re.compile(rf"^[\[(]?\s*{_NUMBER}\s*(?:-|–|\.\.|…|to|,\s)\s*{_NUMBER}\s*[\])]?$")
_ONE_END = re.compile(rf"^(<=|≤|<|>=|≥|>)\s*{_NUMBER}$")
_AT_LEAST = re.compile(rf"^{_NUMBER}\s*\+$")
_PLAIN = re.compile(rf"^{_NUMBER}\s*(%?)$")
_FORMS = "a number, or <10, 1-7, 100+ or *"


@dataclass(frozen=True)
class Hidden:
    """How counts were made less exact than they are, beside what the column itself says.

    Attributes
    ----------
    hidden : tuple of float or None
        Between which counts those lie that are not shown (`*`, or nothing); None where nobody said.
    rounded : float or None
        To the nearest multiple of which counts were rounded.
    clamped : tuple of float or None
        What counts below, and above, were set to.
    """

    hidden: tuple[float, float] | None = None
    rounded: float | None = None
    clamped: tuple[float, float] | None = None

    @classmethod
    def of(cls, columns: ReportColumns) -> Hidden:
        """As options name them: "0-9" for what is hidden, "0-100" for what is clamped."""
        return cls(_ends("hidden", columns.hidden), columns.rounded, _ends("clamped", columns.clamped))

    def __bool__(self) -> bool:
        return any(one is not None for one in (self.hidden, self.rounded, self.clamped))

    def ends(self, low: Floats, high: Floats, shown: Booleans) -> tuple[Floats, Floats, Booleans]:
        """Between which numbers counts lie that the column says to lie between `low` and `high`, where it shows them.

        Returns the ends, and where nothing is known.
        """
        if self.rounded is not None:
            half = (self.rounded - 1) / 2 if self.rounded % 2 else self.rounded / 2
            exact = shown & (low == high)
            low, high = np.where(exact, np.maximum(low - half, 0), low), np.where(exact, high + half, high)
        if self.clamped is not None:
            below, above = shown & (high <= self.clamped[0]), shown & (low >= self.clamped[1])
            low, high = np.where(below, -np.inf, low), np.where(above, np.inf, high)
        if self.hidden is not None:
            # What is shown is none of the counts that are hidden.
            apart = shown & (low >= self.hidden[0]) & (high > self.hidden[1])
            low = np.where(apart, np.maximum(low, self.hidden[1] + 1), low)
            low, high = np.where(shown, low, self.hidden[0]), np.where(shown, high, self.hidden[1])
        return low, high, ~shown & (self.hidden is None)


def _ends(name: str, text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    found = _read_count(str(text))
    if found is None or found[0] > found[1] or found[1] < 0:
        raise ParameterError(name, f"must be two counts, as in 0-9, got {text!r}.")
    return found


def _read_count(text: str) -> tuple[float, float] | None:
    """Between which counts a text says that a count lies; None where it is no count."""
    text = text.strip().lower()

    def number(one: str) -> float:
        return float(one.replace(",", ""))

    if found := _PLAIN.match(text):
        return None if found[2] else (number(found[1]), number(found[1]))
    if found := _ONE_END.match(text):
        end = number(found[2])
        strict = 1.0 if found[1] in "<>" else 0.0
        return (0.0, end - strict) if found[1][0] in "<≤" else (end + strict, np.inf)
    if found := _AT_LEAST.match(text):
        return number(found[1]), np.inf
    if found := _BETWEEN.match(text):
        return number(found[1]), number(found[2])
    return None


def with_ends(lines: Table, columns: ReportColumns) -> Table:
    """The lines of reports, with counts in numbers and, where they are not known, between which they lie.

    Of a column of counts, `bagwise_value` then holds what is known, or the middle of what may be; `bagwise_least` and
    `bagwise_most` are null where a count is known. Lines whose count is hidden, and nobody said what hidden ones are,
    have none. Of classes there is one of each for every class.
    """
    names, how = columns.names_of("count"), Hidden.of(columns)
    ends = [*zip(columns.names_of("low"), columns.names_of("high"), strict=True)]
    text = any(is_text(lines.schema[name]) for name in names)
    if not (text or how or ends):
        return lines
    if not names and not ends:
        raise ParameterError("count", "must name their column where counts are hidden, rounded or clamped.")
    table = lines.select(*lines.columns).fetch()
    made = [of_classes(name, columns.classes) for name in (VALUE, LEAST, MOST)]
    for place, new in enumerate(zip(*made, strict=True)):
        found = _column(table, names[place] if names else None, ends[place] if ends else ())
        low, high, unknown = how.ends(*found)
        exact = (low == high) & found[2]
        middle = np.where(np.isfinite(high), (np.maximum(low, 0) + high) / 2, np.maximum(low, 0))
        told = np.where(unknown, np.nan, np.where(exact, low, middle))
        each = (told, *(np.where(unknown | exact, np.nan, end) for end in (low, high)))
        for name, values in zip(new, each, strict=True):
            table = table.append_column(name, pa.array(values, mask=np.isnan(values)))
    return read(table, lines.engine.connection, what="reports")


def _column(table: pa.Table, name: str | None, ends: Sequence[str]) -> tuple[Floats, Floats, Booleans]:
    """Ends of what a column of counts says, or two columns of ends where it says nothing; and where something is."""
    low, high = np.full(table.num_rows, np.nan), np.full(table.num_rows, np.nan)
    if name is not None:
        column = table.column(name)
        if not pa.types.is_floating(column.type) and not pa.types.is_integer(column.type):
            texts = column.cast(pa.string()).to_pylist()
            read_once: dict[str, tuple[float, float]] = {}
            for line, one in enumerate(texts):
                if one is None or one.strip().lower() in _HIDDEN:
                    continue
                if one not in read_once:
                    if (found := _read_count(one)) is None:
                        where = f"column {name!r} of the reports holds {one!r} in line {line + 1}"
                        raise ValueError(f"{where}: a count is {_FORMS}.")
                    read_once[one] = found
                low[line], high[line] = read_once[one]
        else:
            low = high = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if ends:
        given = [table.column(end).cast(pa.float64()).to_numpy(zero_copy_only=False) for end in ends]
        low, high = (np.where(np.isnan(one), other, one) for one, other in zip((low, high), given, strict=True))
    return low, high, ~np.isnan(low) & ~np.isnan(high)


def as_counts(bags: Table, columns: ReportColumns) -> Table:
    """Lines of bags, of whose counts some are not known: a count and a variance that say about as much (`Intervals`).

    What was known of them, and the noise that was declared, stay beside; of classes, as far as they leave each other.
    """
    table = bags.with_columns(**{DECLARED: col(NOISE)}).fetch()
    size, (low, high) = table.column(SIZE).to_numpy(), end_columns(columns.classes)
    interval = interval_of(table)
    assert interval is not None
    interval = interval.tightened(size)
    count, noise = interval.as_counts(size)
    made = {name: one / size for name, one in _each(proportion_columns(columns.classes), count)}
    made[NOISE] = np.where(noise > 0, noise, np.nan)
    for names, ends in ((low, interval.low), (high, interval.high)):
        made |= {name: np.where(interval.open, one, np.nan) for name, one in _each(names, ends)}
    for name, values in made.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values, mask=np.isnan(values)))
    return read(table, bags.engine.connection, what="reports")


def _each(names: Sequence[str], values: Floats) -> list[tuple[str, Floats]]:
    """Values (m,) or (m, classes) by the names of their columns."""
    return list(zip(names, values.reshape(len(values), -1).T, strict=True))


def said_ends(table: Table, columns: ReportColumns) -> dict[str, Any]:
    """The ends of counts as expressions over the lines of `with_ends`, `least_0` and so on; null where known."""
    found: dict[str, Any] = {}
    for ours, name in (("least", LEAST), ("most", MOST)):
        for place, one in enumerate(of_classes(name, columns.classes)):
            there = one in table.columns
            found[f"{ours}_{place}"] = as_number(col(one)) if there else null(nw.Float64())
    return found
