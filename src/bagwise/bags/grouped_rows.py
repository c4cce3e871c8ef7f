"""Rows grouped in bags, whatever the bags report: sums and means of what rows have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bagwise import segment
from bagwise.utils.typing import Array, Floats, Integers, NDArray


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GroupedRows:
    """Which rows form which bag, and for how many people each stands: see the attributes of `Bags`."""

    order: Integers
    offsets: NDArray[np.int64]
    size: Array
    n_rows: int
    equal_size: int | None
    weight: Array | None = None
    offset: Array | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def code(self) -> Integers:
        """(n_rows,) number of each table row's bag, −1 where it has none; an error if a bag was taken twice."""
        codes = segment.codes_of(self.order, self.offsets, self.n_rows)
        codes.flags.writeable = False
        return codes

    @property
    def n_bagged(self) -> int:
        """Rows that are in a bag."""
        return int(self.offsets[-1])

    @property
    def rows(self) -> Integers:
        """(m,) rows of each bag, however many people each stands for."""
        return np.asarray(self.size) if self.weight is None else np.diff(self.offsets)

    @property
    def n_people(self) -> float:
        """People whom rows in bags stand for: as many as there are rows, without weights."""
        return self.n_bagged if self.weight is None else float(self.weight.sum())

    def average(self, values: Array) -> Any:
        """The mean of `values` (n_bagged, …) over all rows in bags, each as often as it stands for someone."""
        if self.weight is None:
            return values.mean(axis=0)
        return segment.as_like(self.weight, values) @ values / self.n_people

    def weighted(self, values: Array) -> Array:
        """Each of `values` (n_bagged, …) times the weight of its row; as they are without weights."""
        if self.weight is None:
            return values
        return segment.per_bag(segment.as_like(self.weight, values), values) * values

    def of_table(self, of_rows: Floats | None) -> Floats | None:
        """(n_rows,) what `weight` or `offset` says, in the order of the table; 0 for rows in no bag."""
        if of_rows is None:
            return None
        found = np.zeros(self.n_rows)
        found[self.order] = of_rows
        return found

    def sum(self, values: Array) -> Array:
        """Sum per bag (m, …) of `values` (n_bagged, …), one per row of the bags in bag order: an array or a tensor.

        Rows count as often as their weights say.
        """
        values = self.weighted(values)
        return segment.sum_sorted(values, self.offsets, equal_size=self.equal_size)

    def mean(self, values: Array) -> Array:
        """Mean per bag (m, …) of `values` (n_bagged, …), as `sum` takes them."""
        total = self.sum(values)
        return total / segment.per_bag(segment.as_like(self.size, values), total)

    def sum_table(self, values: NDArray[Any]) -> Floats:
        """Sum per bag (m, …) of `values` (n_rows, …) in table order, rows in no bag included, without sorting them."""
        if len(values) != self.n_rows:
            raise ValueError(f"the bags were built on {self.n_rows} rows but {len(values)} were given.")
        if self.equal_size == 1 and self.n_bagged == self.n_rows:
            values = np.asarray(values, dtype=float)
            return np.asarray(self.weighted(values if self._in_order else values[self.order]))
        if "code" in self.__dict__:  # the whole table: one pass from front to back
            return segment.sum_table(values, self.code, len(self), weight=self.of_table(self.weight))
        chosen = np.asarray(values)[self.order].astype(np.float64, copy=False)
        return np.asarray(segment.sum_sorted(self.weighted(chosen), self.offsets))

    @cached_property
    def _in_order(self) -> bool:
        return bool((self.order == np.arange(self.n_bagged)).all())

    def repeat(self, values: Array) -> Array:
        """Each row's copy (n_bagged, …) of its bag's value, in bag order; `values` (m, …): an array or a tensor."""
        return segment.repeat(values, self.offsets, equal_size=self.equal_size)
