"""Another table than that of training, as a model reads it: columns that are missing, of other types, never seen.

What is answered, in this order:

- a column that is missing is an error that names it, unless the model does not use it (no weight, no split), or the
  user says that such columns count as missing in every row;
- a column of another type is converted where nothing is lost: text that is numbers, dates or times throughout, numbers
  where values were told apart as text. If not, it is an error, or where the model does not use it, as if missing;
- a category that training did not have counts as missing (see `bagwise.tables.columns`), and is counted.
"""

import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import narwhals.stable.v2 as nw
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.tables.columns import Column, Features, Role
from bagwise.tables.table import DataType, Expression, Table, as_text, col, is_text, kind_of, length, null, total, where
from bagwise.utils.parameters import AdviceError, Parameter, check_parameters, one_of
from bagwise.utils.text import listed, number_of
from bagwise.utils.typing import Floats

MANY_UNSEEN = 0.1  # share of the rows with a value that training did not have, above which a warning is given
_LOOKED_AT = 100_000  # rows in which a value that training had, too, must be found, if a column is of another type now
_NAMED = 5  # columns that a sentence lists
_AS = "bagwise_as_{}"
_TYPES: dict[Role, DataType] = {Role.number: nw.Float64(), Role.time: nw.Datetime("us")}
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_DATE, _CLOCK = r"[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"


_UNUSED = "the model does not use it"
_CONVERTED: dict[str, str] = {Role.number: "read as numbers", Role.time: "read as times"}


class UnseenValuesWarning(UserWarning):
    """Many rows have values that training did not have, in columns that the model uses."""


@dataclass(frozen=True)
class ColumnMet:
    """A column of a model in another table.

    Attributes
    ----------
    name, role : str
        The column, and what it is to the model.
    used : bool
        Whether it can move a prediction.
    missing : bool
        Whether the table lacks it, or holds in its place what cannot be converted.
    held : str
        What it holds now, where that is something else than in training; otherwise empty.
    unseen : int
        Rows with a category that training did not have.
    example : str
        One such category.
    """

    name: str
    role: str
    used: bool
    missing: bool = False
    held: str = ""
    unseen: int = 0
    example: str = ""


@dataclass(frozen=True)
class ColumnsMet:
    """How the columns of a table fit a model.

    Attributes
    ----------
    rows : int
        Rows that were read.
    columns : tuple of ColumnMet
        The columns that the model was trained with.
    others : tuple of str
        Columns that it does not know.
    """

    rows: int
    columns: tuple[ColumnMet, ...]
    others: tuple[str, ...] = ()

    @property
    def doubtful(self) -> tuple[ColumnMet, ...]:
        """Columns that the model uses and that have many values never seen."""
        return tuple(one for one in self.columns if one.used and one.unseen > MANY_UNSEEN * self.rows)

    @property
    def lines(self) -> list[str]:
        """What is to be said of them, sentence by sentence; nothing where they are as in training."""
        return [*self._changed(), *([f"Not known to the model: {', '.join(self.others)}."] if self.others else [])]

    @property
    def changed(self) -> bool:
        """Whether a column of the model is not as it was in training."""
        return any(self._changed())

    def _changed(self) -> Iterator[str]:
        for one in self.columns:
            what = f"is missing ({one.held} cannot be read as a {one.role})" if one.held else "is missing"
            if one.missing:
                yield f"Column {one.name!r} {what}: {'it counts so in all rows' if one.used else _UNUSED}."
            elif one.held:
                yield f"Column {one.name!r} holds {one.held} now, {_CONVERTED.get(one.role, 'compared as text')}."
            if one.unseen:
                share = f"{number_of(one.unseen, 'row')} ({one.unseen / self.rows:.2g} of all)"
                said = f"{share} with a value that training did not have, for example {one.example!r}"
                yield f"Column {one.name!r}: {said}: {'it counts as missing' if one.used else _UNUSED}."

    def warn(self, stacklevel: int = 2) -> None:
        """Warn where many rows have values that training did not have."""
        if not (many := self.doubtful):
            return
        shares = [f"{one.name!r} in {one.unseen / self.rows:.0%} of the rows (as {one.example!r})" for one in many]
        what = f"column{'s' if len(many) > 1 else ''} {listed(shares)}"
        way = "they count as missing; check that the columns mean what they meant then"
        said = f"values that training did not have: {what}: {way}."
        warnings.warn(UnseenValuesWarning(said), stacklevel=stacklevel + 1)


class Reading:
    """Rows of another table as a model's features read them, piece by piece; what it meets is counted.

    table: the table as it is.
    """

    def __init__(
        self,
        features: Features,
        table: Table,
        *,
        unused: Collection[str] = (),
        known: Collection[str] = (),
        missing_columns: str | None = None,
    ) -> None:
        """unused: columns that cannot move a prediction.  known: other columns that belong to the model's tables.

        missing_columns: as in `write_scores`; None where nobody can say so.
        """
        if missing_columns is not None:
            check_parameters({"missing_columns": missing_columns}, {"missing_columns": one_of("error", "as-missing")})
        self.features, self.table, self._columns = features, table, dict[str, ColumnMet]()
        there = {*known, *(column.name for column in features.columns)}
        self._others = tuple(name for name in table.columns if name not in there)
        self._made: dict[str, Expression] = {}
        names: dict[str, str] = {}
        for column in (one for one in features.columns if one.role is not Role.ignored):
            met = ColumnMet(column.name, column.role.value, column.name not in unused)
            held = "" if column.name not in table.columns else _held(table, column)
            values = None if column.name not in table.columns else _values(table, column, must=met.used)
            self._columns[column.name] = replace(met, missing=values is None, held=held)
            if values is None or (column.role in _TYPES and held):
                # Under a name of ours: the table's own column may be handed on as it is.
                names[column.name] = _AS.format(len(names))
                missing = null(_TYPES.get(column.role, nw.String()))
                self._made[names[column.name]] = missing if values is None else values
        absent = [one.name for one in self._columns.values() if one.missing and one.used]
        if absent and not any(one.used and not one.missing for one in self._columns.values()):
            raise ValueError(
                f"none of the columns that the model uses is there (such as {absent[0]!r}): pass another table."
            )
        if absent and missing_columns != "as-missing":
            raise _absent(absent, self._others, advised=missing_columns is not None)
        self._read = Features(tuple(replace(one, name=names.get(one.name, one.name)) for one in features.columns))
        self._rows, self._of = 0, [column.name for column in features.columns for _ in column.made]

    def select(self, *others: str, of: Table | None = None) -> Table:
        """The made columns, after `others` as they are; of: the table with further columns."""
        table = of or self.table
        return self._read.select(table.with_columns(**self._made) if self._made else table, *others)

    def matrix(self, batch: pa.RecordBatch | pa.Table) -> Floats:
        """(n, made) numbers and codes of a batch of what `select` returns."""
        self._rows += batch.num_rows
        return self.features.matrix(batch, self._watch)

    def _watch(self, number: int, texts: Any, codes: Any) -> None:
        if unseen := codes.null_count - texts.null_count:
            self._note(number, unseen, texts.filter(pc.and_(codes.is_null(), texts.is_valid()))[0].as_py())

    def _note(self, number: int, unseen: int, example: str) -> None:
        before = self._columns[self._of[number]]
        self._columns[before.name] = replace(before, unseen=before.unseen + unseen, example=before.example or example)

    def count(self, query: Table) -> None:
        """Count what training did not have by a query, of what `select` returns, whose rows are not read here."""
        categories = {one.name for one in self.features.columns if one.role is Role.category}
        figures = {"rows": length()}
        for number, (name, made, of) in enumerate(zip(self.features.names, self.features.made, self._of, strict=True)):
            if of in categories:
                unseen = ~col(name).is_in(list(made.levels or ()))
                figures |= {f"unseen_{number}": total(unseen), f"example_{number}": where(unseen, col(name)).min()}
        found = query.line(**figures)
        self._rows += found["rows"]
        for number in range(len(self._of)):
            if rows := found.get(f"unseen_{number}"):
                self._note(number, int(rows), found[f"example_{number}"])

    @property
    def met(self) -> ColumnsMet:
        """What was met in the rows so far."""
        return ColumnsMet(self._rows, tuple(self._columns.values()), self._others)


def _absent(names: list[str], others: Collection[str], *, advised: bool) -> AdviceError:
    """The error that names the columns that are missing.  advised: say that they may count as missing."""
    shown = [repr(name) for name in names[:_NAMED]]
    one, quoted = len(names) == 1, listed(shown + ([f"{len(names) - _NAMED:,} more"] if len(names) > _NAMED else []))
    said = f"column {quoted} is missing" if one else f"columns {quoted} are missing"
    alike = [other for other in others if other.lower() in {name.lower() for name in names}]
    there = f" (there is {alike[0]!r})" if alike else ""
    them = "it" if one else "them"
    asked = f"{said}{there}: the model was trained with {them}; add {them}"
    way = (", or let such columns count as missing (", Parameter("missing_columns"), "='as-missing')")
    return AdviceError(asked, *(way if advised else ()), ".")


def _held(table: Table, column: Column) -> str:
    """What a column holds now, in words, where it held something else in training."""
    kind = kind_of(table.schema[column.name])
    return "" if column.fits(table.schema[column.name]) and kind == (column.kind or kind) else kind


def _values(table: Table, column: Column, *, must: bool) -> Expression | None:
    """The values of a column in a type that fits; where there is none, None or, if there `must` be, an error."""
    type_, text = table.schema[column.name], col(column.name)
    if column.role in _TYPES and is_text(type_):
        text = text.cast(nw.String).str.strip_chars()
        text = where(text != "", text)
        time = f"^{_DATE}{_CLOCK}$" if column.has_hours else f"^{_DATE}({_CLOCK})?$"
        wrong = ~text.str.contains(_NUMBER if column.role is Role.number else time)
        found = table.line(rows=total(wrong), example=where(wrong, text).min())
        if not found["rows"]:
            return text.cast(_TYPES[column.role])
        example = f" (as {found['example']!r})"
    elif not column.fits(type_):
        example = ""
    elif column.role is Role.category and must and kind_of(type_) != (column.kind or kind_of(type_)):
        some = table.select(text=as_text(text, type_)).filter(~col("text").is_null()).head(_LOOKED_AT).fetch()["text"]
        if not len(some) or pc.is_in(some, value_set=pa.array(column.levels, some.type)).to_numpy().any():
            return text
        example = f", none of which (as {some[0].as_py()!r}) it had then"
    else:
        return text
    if not must:
        return None
    held, now = column.said, kind_of(type_)
    raise ValueError(f"column {column.name!r} held {held} in training and {now} now{example}: convert it first.")
