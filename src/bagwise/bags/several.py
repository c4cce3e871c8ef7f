"""Several groupings of the same rows: by campaign and day, and by country; by two hashes; fine and coarse.

The loss of bags that overlap is the sum of the losses of their tables. What one table tells exactly of a part of
another's bag is taken out of that: a coarse count less the fine ones inside of it is the count of the rest, and a table
that says the same as another says nothing. Noised counts of the same rows become one, weighed by their precision;
hidden ones become those that both allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bagwise import segment
from bagwise.bags.bags import Bags
from bagwise.bags.intervals import Intervals
from bagwise.bags.overlap import Overlap
from bagwise.bags.reading import name
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Booleans, Floats, Integers


def several(groupings: Sequence[Bags]) -> Bags:
    """Bags of several groupings of the same rows, which overlap.

    Parameters
    ----------
    groupings : sequence of Bags
        Each about the same rows, of labels 0 and 1 or of the same classes.

    Returns
    -------
    Bags
        Those of the first, then those of the second, and so on, less what others tell exactly of them. Keys are pairs
        of the number of the grouping, from 0, and the key in it.

    Examples
    --------
    >>> fine = Bags.from_rows([0.5, 0.5, 1.0, 0.0], [0, 0, 1, -1])
    >>> coarse = Bags.from_rows([0.5, 0.5, 0.5, 0.5], ["all"] * 4)
    >>> both = several([fine, coarse])
    >>> both.size, both.proportion  # of all rows two are positive, and two of the first three: none of the rest
    (array([2, 1, 1]), array([0.5, 1. , 0. ]))
    """
    if not groupings:
        raise ParameterError("groupings", "must hold one or more Bags.")
    first = groupings[0]
    for other in groupings[1:]:
        if other.n_rows != first.n_rows:
            raise ValueError(f"groupings must be of the same rows: one has {first.n_rows}, another {other.n_rows}.")
        if other.proportion.shape[1:] != first.proportion.shape[1:]:
            raise ValueError("groupings must report the same labels: one has other classes than another.")
    if len(groupings) == 1:
        return first
    weight, offset = _of_rows(groupings, "weight", 1.0), _of_rows(groupings, "offset", 0.0)
    tables = [_Table.of(bags, number, weight) for number, bags in enumerate(groupings)]
    order = sorted(range(len(tables)), key=lambda number: -len(groupings[number]))  # the finest first
    for place, fine in enumerate(order):
        for coarse in order[place + 1 :]:
            _take_out(tables[fine], tables[coarse])
    return _stacked([table for table in tables if len(table.keys)], weight, offset)


def _of_rows(groupings: Sequence[Bags], parameter: str, usual: float) -> Floats | None:
    """(n_rows,) weights or offsets of rows, which all groupings that hold a row must tell alike; None without any."""
    told = [getattr(bags, parameter) for bags in groupings]
    if all(one is None for one in told):
        return None
    found = np.full(groupings[0].n_rows, np.nan)
    for bags, one in zip(groupings, told, strict=True):
        own, before = np.full(bags.n_bagged, usual) if one is None else one, found[bags.order]
        differs = (before != own) & ~np.isnan(before)
        if differs.any():
            place = int(np.argmax(differs))
            row = f"row {int(bags.order[place])} the {parameter}s {before[place]:g} and {own[place]:g}"
            raise ParameterError("groupings", f"must tell the same of a row, but give {row}.")
        found[bags.order] = own
    return np.where(np.isnan(found), usual, found)


@dataclass
class _Table:
    """A grouping as it is taken apart.

    size: (m,) of people.  count: (m, outputs).  low, high: (m, outputs) NaN where all counts of the bag are known.
    exact: (m,) neither noised nor hidden.  weight: (n_rows,) or None.
    """

    number: int
    keys: Any
    code: Integers
    rows: Integers
    size: Integers
    count: Floats
    noise: Floats
    low: Floats
    high: Floats
    one: bool
    weight: Floats | None

    @classmethod
    def of(cls, bags: Bags, number: int, weight: Floats | None) -> _Table:
        count, noise = bags.size[:, None] * bags.outputs, bags.declared_noise
        low = high = np.full(count.shape, np.nan)
        if bags.interval is not None:
            ends, unknown = (bags.interval.low, bags.interval.high), bags.interval.open[:, None]
            low, high = (np.where(unknown, end.reshape(count.shape), np.nan) for end in ends)
        one = bags.proportion.ndim == 1
        made = cls(
            number, bags.keys, np.array(bags.code), bags.rows, bags.size, count, np.array(noise), low, high, one, weight
        )
        made.add_up()
        return made

    @property
    def exact(self) -> Booleans:
        return np.asarray((self.noise == 0) & self.counted)

    @property
    def counted(self) -> Booleans:
        """(m,) noised or not, but not hidden."""
        return np.asarray(np.isnan(self.low[:, 0]))

    def add_up(self) -> None:
        """Set how many rows bags have, and how many people these stand for."""
        inside, m = self.code >= 0, len(self.keys)
        self.rows = self.size = np.bincount(self.code[inside], minlength=m)
        if self.weight is not None:
            self.size = np.bincount(self.code[inside], self.weight[inside], minlength=m)

    def keep(self, kept: Booleans) -> None:
        new = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
        self.code = new[self.code]
        for name_ in ("keys", "rows", "size", "count", "noise", "low", "high"):
            setattr(self, name_, getattr(self, name_)[kept])

    def called(self, j: int) -> str:
        return f"bag {name(self.keys[j])} of report table {self.number + 1}"


def _take_out(fine: _Table, coarse: _Table) -> None:
    """Take what fine bags tell exactly out of the coarse ones that they are part of."""
    m = len(fine.keys)
    inside = (fine.code >= 0) & (coarse.code >= 0)
    owner = np.full(m, -1)
    owner[fine.code[inside]] = coarse.code[inside]
    same = inside & (owner[np.maximum(fine.code, 0)] == coarse.code)
    part = np.bincount(fine.code[same], minlength=m) == fine.rows  # all rows of it are rows of that one
    whole = part & (fine.rows == coarse.rows[np.maximum(owner, 0)])
    known = part & fine.exact & (coarse.exact[np.maximum(owner, 0)] | whole)
    own = np.maximum(owner, 0)
    hidden = whole & ~(fine.counted & coarse.counted[own]) & (fine.noise == 0) & (coarse.noise[own] == 0)
    if hidden.any():
        _meet(fine, np.flatnonzero(hidden), coarse, owner[hidden])
        known &= ~hidden
    twice = whole & ~known & fine.counted & coarse.counted[own] & ~hidden
    for place in np.flatnonzero(twice).tolist():  # noised, or exact in the coarse table alone
        _weigh(fine, place, coarse, int(owner[place]))
    gone = np.zeros(len(coarse.keys), dtype=bool)
    gone[owner[twice | hidden]] = True
    people = coarse.size
    coarse.code = np.where(known[np.maximum(fine.code, 0)] & (fine.code >= 0), -1, coarse.code)
    coarse.add_up()
    rest = coarse.size
    told = np.zeros_like(coarse.count)
    np.add.at(told, owner[known], fine.count[known])
    touched = (np.bincount(owner[known], minlength=len(coarse.keys)) > 0) & coarse.exact
    left = np.where(touched[:, None], coarse.count - told, coarse.count)
    wrong = touched & ((left < -1e-6) | (left > rest[:, None] + 1e-6)).any(axis=1)
    if wrong.any():
        j = int(np.argmax(wrong))
        one = int(np.flatnonzero(known & (owner == j))[0])
        said = f"{coarse.called(j)} reports a count of {coarse.count[j].sum():g}"
        all_ = f"{people[j] - rest[j]:g} {'rows' if coarse.weight is None else 'people'}"
        those = f"bags inside of it, such as {fine.called(one)}, {told[j].sum():g} of {all_}"
        raise ValueError(f"{said}, but {those}: the tables contradict each other; repair one, or declare its noise.")
    coarse.count = left
    coarse.keep((rest > 0) & ~gone)


def _weigh(fine: _Table, j: int, coarse: _Table, i: int) -> None:
    """Two counts of the same rows as one, which the fine table keeps."""
    one, other = fine.noise[j], coarse.noise[i]
    share = 1.0 if one == 0 else 0.0 if other == 0 else other / (one + other)
    fine.count[j] = share * fine.count[j] + (1 - share) * coarse.count[i]
    fine.noise[j] = share**2 * one + (1 - share) ** 2 * other


def _meet(fine: _Table, j: Integers, coarse: _Table, i: Integers) -> None:
    """Counts of the same rows, some of which are hidden, as those that both allow, which the fine table keeps."""
    low, high = (
        pick(*(np.where(np.isnan(end), np.rint(one.count[place]), end) for one, place, end in ends))
        for pick, ends in (
            (np.maximum, ((fine, j, fine.low[j]), (coarse, i, coarse.low[i]))),
            (np.minimum, ((fine, j, fine.high[j]), (coarse, i, coarse.high[i]))),
        )
    )
    if (wrong := (low > high).any(axis=1)).any():
        place = int(np.argmax(wrong))
        one, other = fine.called(int(j[place])), coarse.called(int(i[place]))
        said = f"{one} and {other} are of the same rows and tell counts that cannot be the same"
        raise ValueError(f"{said}: the tables contradict each other; repair one, or declare its noise.")
    exact = (low == high).all(axis=1)[:, None]
    fine.count[j] = np.where(exact, low, fine.count[j])
    fine.low[j], fine.high[j] = np.where(exact, np.nan, low), np.where(exact, np.nan, high)


def _stacked(tables: list[_Table], weight: Floats | None, offset: Floats | None) -> Bags:
    """One after the other."""
    groups = [segment.group(table.code, len(table.keys)) for table in tables]
    order = np.concatenate([order for order, _ in groups])
    size = np.concatenate([table.size for table in tables])
    keys = np.empty(len(size), dtype=object)
    keys[:] = [(table.number, one) for table in tables for one in table.keys.tolist()]
    count, noise, low, high = (
        np.concatenate([getattr(table, what) for table in tables]) for what in ("count", "noise", "low", "high")
    )
    proportion = count / size[:, None]
    number = np.repeat(np.arange(len(tables)), [len(table.keys) for table in tables])
    rows, n_rows = np.concatenate([table.rows for table in tables]), len(tables[0].code)
    offsets, of_rows = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64), (weight, offset)
    outputs = proportion[:, 0] if tables[0].one else proportion
    overlap = None if len(tables) == 1 else Overlap(number, np.arange(n_rows))
    weight, offset = (None if one is None else one[order] for one in of_rows)
    given = (keys, order, offsets, outputs, noise if noise.any() else None, n_rows)
    made = Bags.build(*given, weight=weight, offset=offset)
    made = replace(made, overlap=overlap)
    known = np.isnan(low)
    if known.all():
        return made
    told = np.where((noise == 0)[:, None], np.rint(count), count)  # whole but for rounding, as proportions times sizes
    low, high = (np.where(known, told, end) for end in (low, high))
    if tables[0].one:
        low, high, told = low[:, 0], high[:, 0], told[:, 0]
    return replace(made, noise_variance=noise, interval=Intervals(told, told, noise)).with_intervals(low, high)
