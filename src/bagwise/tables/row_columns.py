"""Columns of the events that say more of a row than its features: for how many people it stands, and an offset.

In queries they are columns of ours: `bagwise_weight`, `bagwise_offset`. A bag then has, beside `bag_size`, which counts
people, the number of its rows, `bag_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bagwise.data.shards import OFFSET, ROWS, SIZE, WEIGHT
from bagwise.tables.table import Expression, Table, as_number, col, is_finite, length, total, where
from bagwise.utils.parameters import NONE, ParameterError, check_parameters, instance
from bagwise.utils.text import number_of
from bagwise.utils.typing import Floats

_NAME = instance(str, "the name of a column of the events") | NONE
_MUST = {"weight": "a number of people, finite and not negative", "offset": "a finite number, added to log odds"}


@dataclass(frozen=True)
class RowColumns:
    """Names of the columns of the events; see `join`. What is None is not there."""

    weight: str | None = None
    offset: str | None = None

    def __post_init__(self) -> None:
        check_parameters(self, {"weight": _NAME, "offset": _NAME})

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are named."""
        return tuple(name for name in (self.weight, self.offset) if name is not None)

    @property
    def ours(self) -> tuple[str, ...]:
        """The names that they have in queries."""
        return tuple(our for our, name in ((WEIGHT, self.weight), (OFFSET, self.offset)) if name is not None)

    def otherwise(self, others: RowColumns) -> RowColumns:
        """What is given, and for the rest what `others` say."""
        return RowColumns(self.weight or others.weight, self.offset or others.offset)

    def added(self, table: Table) -> Table:
        """The table with these columns under names of ours, too; an error where one is not what it must be."""
        if not self.names:
            return table
        for parameter, name in vars(self).items():
            if name is not None and name not in table.columns:
                said = f"names column {name!r}, which the events do not have: they have {', '.join(table.columns)}."
                raise ParameterError(parameter, said)
            if name is not None and not table.schema[name].is_numeric():
                raise ParameterError(parameter, f"names column {name!r}, which holds no numbers: convert it.")
        if self.weight is not None and self.weight == self.offset:
            raise ParameterError("offset", f"names column {self.offset!r}, which is the weight of rows already.")
        made = {our: as_number(col(name)) for our, name in zip(self.ours, self.names, strict=True)}
        good = {our: is_finite(value).fill_null(False) for our, value in made.items()}
        if self.weight is not None:
            good[WEIGHT] &= (made[WEIGHT] >= 0).fill_null(False)
        found = table.line(**{our: total(~one) for our, one in good.items()}, lines=length())
        for parameter, our in (("weight", WEIGHT), ("offset", OFFSET)):
            if found.get(our):
                rows = number_of(int(found[our]), "row")
                what = f"names column {getattr(self, parameter)!r}, which is empty or wrong in {rows} of the events"
                raise ParameterError(parameter, f"{what}: it must be {_MUST[parameter]}.")
        return table.with_columns(**made)

    def sizes(self) -> dict[str, Expression]:
        """What rows add up to in a bag: its size, which is null where they stand for nobody."""
        if self.weight is None:
            return {SIZE: length()}
        people = col(WEIGHT).sum()
        return {SIZE: where(people > 0, people), ROWS: length()}

    @property
    def lines(self) -> tuple[str, ...]:
        """The further columns of a line of bags."""
        return () if self.weight is None else (ROWS,)

    @property
    def rows(self) -> Expression:
        """How many rows a bag has."""
        return col(SIZE if self.weight is None else ROWS)

    def read(self, batch: Any) -> Mapping[str, Floats]:
        """The numbers of a batch of rows, by our names."""
        return {our: batch.column(our).to_numpy(zero_copy_only=False) for our in self.ours}


NO_COLUMNS = RowColumns()
"""Of events that say no more of their rows."""
