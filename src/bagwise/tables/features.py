"""From the columns of a table to the matrices that models read; what was learned in training is part of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise.tables.columns import MAX_LEVELS, Column, Made, Role, fits, infer
from bagwise.tables.engine import kind_of

_HELD = {Role.number: "numbers", Role.time: "dates", Role.category: "categories", Role.hashed: "categories"}


@dataclass(frozen=True, eq=False)
class Features:
    """The columns of the training table and their roles.

    >>> from bagwise.tables.engine import connect
    >>> from bagwise.tables.sources import read
    >>> duck = connect()
    >>> table = read({"age": [31, None], "device": ["phone", "tablet"]}, duck)
    >>> features = Features.of(table, table.columns, duck)
    >>> features.matrix(duck.to_pyarrow(features.select(table)).to_batches()[0])
    array([[31.,  0.],
           [nan,  1.]])
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not all(isinstance(column, Column) for column in self.columns):
            raise ValueError("features are made of columns")

    @classmethod
    def of(
        cls,
        table: Any,
        names: Sequence[str],
        connection: Any,
        *,
        roles: Mapping[str, str] | None = None,
        max_levels: int = MAX_LEVELS,
    ) -> Features:
        """Learn from a training table (see `roles.infer`)."""
        columns = infer(table, names, connection, roles=roles, max_levels=max_levels)
        found = cls(columns)
        if not found.made:
            notes = "; ".join(f"{column.name}: {column.note or 'ignored'}" for column in columns)
            raise ValueError(f"there is no column to learn from ({notes}).")
        return found

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the table's columns that are read."""
        return tuple(column.name for column in self.columns if column.role is not Role.ignored)

    @property
    def made(self) -> tuple[Made, ...]:
        """The columns that models read, in order."""
        return tuple(made for column in self.columns for made in column.made)

    @property
    def categorical(self) -> list[int]:
        """Numbers of the made columns that are categories."""
        return [number for number, made in enumerate(self.made) if made.levels is not None]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the made columns in `select`: `bagwise_f0`, `bagwise_f1`, …"""
        return tuple(f"bagwise_f{number}" for number in range(len(self.made)))

    def expressions(self, table: Any, *, plain: bool = False) -> list[Any]:
        """The made columns as expressions on a table.  plain: with NaN left in numbers."""
        self.check(table)
        return [one for column in self.columns for one in column.expressions(table, plain=plain)]

    def select(self, table: Any, *others: str, plain: bool = False) -> Any:
        """The made columns as a table, by their `names`, after the columns `others` as they are."""
        taken = {name.lower() for name in self.names}
        clash = next((name for name in others if name.lower() in taken), None)
        if clash is not None:
            raise ValueError(f"column {clash!r} has a name that bagwise uses: rename it.")
        return table.select(*others, **dict(zip(self.names, self.expressions(table, plain=plain), strict=True)))

    def check(self, table: Any) -> None:
        """Raise unless a table has the columns that are read, and they hold what they held in training."""
        for column in self.columns:
            if column.role is Role.ignored:
                continue
            if column.name not in table.columns:
                raise ValueError(f"column {column.name!r} is missing: the model was trained with it.")
            type_ = table[column.name].type()
            if not fits(column.role, type_) or (column.has_hours and not type_.is_timestamp()):
                kind = "times of day" if column.has_hours else _HELD[column.role]
                raise ValueError(
                    f"column {column.name!r} held {kind} in training and {kind_of(type_)} now: convert it first."
                )

    def matrix(self, batch: pa.RecordBatch | pa.Table) -> NDArray[np.float64]:
        """(n, made) numbers and codes of the made columns of a batch; NaN for what is missing or unknown."""
        matrix = np.empty((batch.num_rows, len(self.made)))
        for number, (name, made) in enumerate(zip(self.names, self.made, strict=True)):
            values = batch.column(name)
            if made.levels is not None:
                values = _codes(values, made.levels)
            elif values.null_count:
                values = values.cast(pa.float64()).fill_null(np.nan)
            matrix[:, number] = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values
        infinite = np.isinf(matrix).any(axis=0)
        if infinite.any():
            name = self.made[int(np.argmax(infinite))].name
            raise ValueError(f"column {name!r} contains infinity: replace such values first.")
        return matrix


def _codes(values: pa.Array, levels: Sequence[str]) -> NDArray[np.float64]:
    import pyarrow.compute as pc

    codes = pc.index_in(values, value_set=pa.array(levels, type=values.type))
    return codes.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
