"""Counts as report tables write them: `*`, `<10`, `1-7`, `100+`, rounded or clamped; in numbers between which they lie.

Reports are read out of the engine for this, and handed back: they are few beside the events.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa

from bagwise.data.shards import DECLARED, NOISE, PROPORTION, SIZE, interval_of
from bagwise.tables.reports import VALUE, ReportColumns
from bagwise.tables.sources import read
from bagwise.tables.table import Table, as_number, col, is_text, null
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Booleans, Floats

LEAST, MOST = "bagwise_least", "bagwise_most"
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
    if found is None or found[0] > found[1]:
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
    """The lines of reports, with a count in numbers and, where it is not known, between which it lies.

    Of the column of counts, `bagwise_value` then holds what is known, or the middle of what may be; `bagwise_least` and
    `bagwise_most` are null where a count is known. Lines whose count is hidden, and nobody said what hidden ones are,
    have none.
    """
    name = columns.count if isinstance(columns.count, str) else None
    how = Hidden.of(columns)
    ends = [end for end in (columns.low, columns.high) if end is not None]
    text = name is not None and is_text(lines.schema[name])
    if not (text or how or ends):
        return lines
    if name is None and not ends:
        raise ParameterError("count", "must name one column where counts are hidden, rounded or clamped.")
    table = lines.select(*lines.columns).fetch()
    low, high, shown = _column(table, name, ends)
    low, high, unknown = how.ends(low, high, shown)
    exact = (low == high) & shown
    middle = np.where(np.isfinite(high), (np.maximum(low, 0) + high) / 2, np.maximum(low, 0))
    made = {
        VALUE: np.where(unknown, np.nan, np.where(exact, low, middle)),
        LEAST: np.where(unknown | exact, np.nan, low),
        MOST: np.where(unknown | exact, np.nan, high),
    }
    for new, values in made.items():
        table = table.append_column(new, pa.array(values, mask=np.isnan(values)))
    return read(table, lines.engine.connection, what="reports")


def _column(table: pa.Table, name: str | None, ends: list[str]) -> tuple[Floats, Floats, Booleans]:
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


def as_counts(bags: Table) -> Table:
    """Lines of bags, of whose counts some are not known: a count and a variance that say about as much (`Intervals`).

    What was known of them, and the noise that was declared, stay beside.
    """
    table = bags.with_columns(**{DECLARED: col(NOISE)}).fetch()
    size = table.column(SIZE).to_numpy()
    interval = interval_of(table)
    assert interval is not None
    count, noise = interval.as_counts(size)
    for name, values in {PROPORTION: count / size, NOISE: np.where(noise > 0, noise, np.nan)}.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values, mask=np.isnan(values)))
    return read(table, bags.engine.connection, what="reports")


def said_ends(table: Table) -> dict[str, Any]:
    """The ends of counts as expressions over the lines of `with_ends`; null where they are known."""
    if LEAST not in table.columns:
        return {"least": null(nw.Float64()), "most": null(nw.Float64())}
    return {"least": as_number(col(LEAST)), "most": as_number(col(MOST))}
