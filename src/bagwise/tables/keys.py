"""Columns that say which bag a row is in: how those of two tables are compared, and how a bag is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from bagwise.tables.engine import kind_of
from bagwise.tables.reports import names_of, no_keys, without_nan
from bagwise.utils.parameters import ParameterError


@dataclass(frozen=True)
class Keys:
    """Key columns and, where the two tables hold them in different types, the type in which they are compared."""

    names: tuple[str, ...]
    types: tuple[str | None, ...]

    @classmethod
    def of(cls, names: Sequence[str], events: Any, reports: Any) -> Keys:
        """The keys of two tables; an error names the column that is missing or cannot be compared."""
        for what, table in (("events", events), ("reports", reports)):
            missing = [name for name in names if name not in table.columns]
            if missing:
                raise ValueError(f"the {what} have no key column {missing[0]!r}: they have {', '.join(table.columns)}.")
        twice = [name for name in names if list(names).count(name) > 1]
        if twice:
            raise ParameterError("keys", f"names column {twice[0]!r} twice: name each key column once.")
        return cls(tuple(names), tuple(_common(name, events[name].type(), reports[name].type()) for name in names))

    @property
    def ours(self) -> tuple[str, ...]:
        """Names of ours for the key columns: a name of the user's may be one that we use."""
        return tuple(f"key_{number}" for number in range(len(self.names)))

    def columns(self, table: Any) -> list[Any]:
        """The keys of a table, in the types in which they are compared; NaN is a missing key."""
        chosen = zip(self.names, self.types, strict=True)
        return [without_nan(table[name] if kind is None else table[name].cast(kind)) for name, kind in chosen]

    def text(self, table: Any) -> Any:
        """The key of a bag as messages show it, of a table that has the keys under our names."""
        return reduce(lambda one, other: one + " / " + other, (table[key].cast("string") for key in self.ours))


def chosen(keys: Sequence[str] | str | None, events: Any, reports: Any, given: Mapping[str, Any]) -> list[str]:
    """The names of the keys: as given, or the columns that both tables have and that say nothing else."""
    if keys:
        return [keys] if isinstance(keys, str) else list(keys)
    if reports is None:
        raise ParameterError(
            "keys", "must name the columns that say which bag a row is in, where there are no reports."
        )
    named = {one for value in given.values() for one in names_of(value)}
    taken = {*named, *no_keys(reports.columns)}
    common = [name for name in reports.columns if name in events.columns and name not in taken]
    if not common:
        mine, theirs = ", ".join(events.columns), ", ".join(reports.columns)
        raise ValueError(
            f"events ({mine}) and reports ({theirs}) have no column in common: give the key columns the same names."
        )
    return common


def _common(name: str, mine: Any, theirs: Any) -> str | None:
    """The type in which two columns are compared, None for their own."""
    if kind_of(mine) != kind_of(theirs):
        raise ValueError(
            f"key column {name!r} is {kind_of(mine)} in the events and {kind_of(theirs)} in the reports: convert "
            "one of them."
        )
    if mine.is_nested() or mine.is_json():
        raise ValueError(f"key column {name!r} holds {kind_of(mine)}: keys are numbers, texts, dates or truth values.")
    if mine.is_numeric() and not (mine.is_integer() and theirs.is_integer()) and mine != theirs:
        return "float64"
    if mine.is_temporal() and mine != theirs:  # to the microsecond
        return "timestamp" if kind_of(mine) == "dates" else "timestamp('UTC')"
    return None
