"""Lines of reports about all other rows: with keys campaign and day, (A, *) are the rows of A that no other line tells.

A row is in the bag of the line that leaves the fewest of its keys open. Its key is then that of the line, `*` included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import narwhals.stable.v2 as nw

from bagwise.tables.reports import REST, Keys
from bagwise.tables.table import Expression, Table, all_of, any_of, col, if_else, is_text, length, lit
from bagwise.utils.text import number_of

_OWN, _IN, _OPEN = "bagwise_own_{}", "bagwise_in_{}", "open_{}"
_Open = tuple[int, ...]  # places of the keys that a line leaves open


@dataclass(frozen=True, eq=False)
class Rests:
    """Which bag a row is in, where lines of reports may leave keys open.

    keys: what tells the bag.  forms: which keys lines leave open, fewest first; () are the lines that leave none.
    lines: the keys of all lines by our names, `*` where one is left open; None where no line leaves any.
    """

    keys: Keys
    forms: tuple[_Open, ...] = ()
    lines: Table | None = None

    @classmethod
    def of(cls, reports: Table, keys: Keys, *, null: bool = False) -> Rests:
        """The rests among lines of reports.  null: whether a key that is null is left open, as `*` always is."""
        types = [type_ or reports.schema[name] for name, type_ in zip(keys.names, keys.types, strict=True)]
        texts = [place for place, type_ in enumerate(types) if is_text(type_)]
        places = range(len(types)) if null else texts
        if not places:
            return cls(keys)
        lines = reports.select(**replace(keys, rests=tuple(texts)).columns(reports))
        left = {_OPEN.format(place): _left_open(keys.ours[place], place in texts, null) for place in places}
        found = lines.select(**left).group_by(list(left), {"lines": length()}).fetch().to_pylist()
        forms = {tuple(place for place in places if line[_OPEN.format(place)]) for line in found}
        if forms <= {()}:
            return cls(keys)
        keys = replace(keys, rests=tuple(sorted({place for form in forms for place in form})))
        lines = reports.select(**keys.columns(reports, open_keys=null))
        return cls(keys, tuple(sorted(forms, key=lambda form: (len(form), form))), lines)

    def placed(self, rows: Table, names: Sequence[str]) -> Table:
        """The rows, with the key of the line that each belongs to under these names; without one, with its own."""
        if self.lines is None:
            return rows.with_columns(**dict(zip(names, self.keys.columns(rows).values(), strict=True)))
        marked, made = self._marked(rows), {}
        for place, name in enumerate(names):
            key = col(_OWN.format(place))
            for number, form in reversed([*enumerate(self.forms)]):
                key = if_else(self._is_in(number), lit(REST) if place in form else col(_OWN.format(place)), key)
            made[name] = key
        helpers = [_OWN.format(place) for place in range(len(names))]
        helpers += [_IN.format(number) for number in range(len(self.forms))]
        return marked.with_columns(**made).drop(*helpers)

    def check(self, rows: Table) -> None:
        """Raise where rows are in two rests, neither of which leaves fewer keys open."""
        alike = [
            pair for pair in combinations(range(len(self.forms)), 2) if len({len(self.forms[one]) for one in pair}) == 1
        ]
        for pair in alike:
            marked, before = self._marked(rows), [~self._is_in(number) for number in range(pair[0])]
            both = marked.filter(all_of([*before, *(self._is_in(number) for number in pair)]))
            if shared := both.count():
                (line,) = both.select(**self._shown(pair)).head(1).fetch().to_pylist()
                said = f"{number_of(shared, 'row')} of the events would be in two rests, {' and '.join(line.values())}"
                raise ValueError(f"{said}, neither of which leaves fewer keys open: leave out one of these reports.")

    def _marked(self, rows: Table) -> Table:
        """The rows, with their own keys, and 1 for every form of which a line has their keys; otherwise null."""
        assert self.lines is not None
        own = [_OWN.format(place) for place in range(len(self.keys.names))]
        marked = rows.with_columns(**dict(zip(own, self.keys.columns(rows).values(), strict=True)))
        for number, form in enumerate(self.forms):
            marker, closed = _IN.format(number), [place for place in range(len(own)) if place not in form]
            if not closed:
                marked = marked.with_columns(**{marker: lit(1)})
                continue
            of_form = [col(self.keys.ours[place]) == REST for place in form]
            of_form += [~(col(self.keys.ours[place]) == REST) for place in closed if place in self.keys.rests]
            lines = self.lines.filter(all_of(of_form)) if of_form else self.lines
            names = [own[place] for place in closed]
            lines = lines.select(**{own[place]: col(self.keys.ours[place]) for place in closed})
            lines = lines.group_by(names, {marker: length()})
            marked = marked.join(lines, names, "left")
        return marked

    @staticmethod
    def _is_in(number: int) -> Expression:
        return ~col(_IN.format(number)).is_null()

    def _shown(self, forms: Sequence[int]) -> dict[str, Expression]:
        """The lines that marked rows have of some forms, as messages show them."""
        own = [col(_OWN.format(place)).cast(nw.String) for place in range(len(self.keys.names))]
        shown = [[lit(REST) if place in self.forms[one] else key for place, key in enumerate(own)] for one in forms]
        return {f"line_{number}": nw.concat_str(keys, separator=" / ") for number, keys in enumerate(shown)}


def _left_open(key: str, text: bool, null: bool) -> Expression:
    """Whether a line leaves a key open."""
    ways = ([(col(key) == REST).fill_null(False)] if text else []) + ([col(key).is_null()] if null else [])
    return any_of(ways)
