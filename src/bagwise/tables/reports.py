"""Which columns of a table of reports say what, in numbers and names of ours; and which say what bag a row is in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import narwhals.stable.v2 as nw

from bagwise.data.shards import of_classes
from bagwise.tables.row_columns import RowColumns
from bagwise.tables.table import (
    DataType,
    Expression,
    Table,
    all_of,
    any_of,
    as_number,
    col,
    is_finite,
    is_text,
    is_time,
    kind_of,
    lit,
    null,
    where,
    without_nan,
)
from bagwise.utils.parameters import (
    NONE,
    Parameter,
    ParameterError,
    check_parameters,
    instance,
    number,
    one_of,
    several,
)

# Ways to declare noise; where a table has several, the first is exact and the others say how it was made.
_NOISES = ("noise_variance", "noise_scale", "epsilon")
_REPORTED = {"label": ("count", "proportion"), "value": ("sum", "mean")}  # one of which says what a bag reports
_WHAT = tuple(name for names in _REPORTED.values() for name in names)
MECHANISMS = ("laplace", "discrete-laplace", "gaussian")
"""How noise is made."""

RECORD = ("delta", "mechanism", "threshold")  # what `bagwise.privacy` writes beside noise_variance and epsilon
_TRUE = ("1", "1.0", "true", "t", "yes", "y", "x", "*", "suppressed", "withheld")
_FALSE = ("", "0", "0.0", "false", "f", "no", "n", "none", "null", "nan")
_NAME = instance(str, "the name of a column")
_CONSTRAINTS = {
    **dict.fromkeys(("count", "proportion"), several(_NAME, "the name of a column, or of one per class") | NONE),
    **dict.fromkeys(("size", "suppressed", "sum", "mean"), _NAME | NONE),
    **dict.fromkeys(("noise_variance", "noise_scale"), number(least=0) | _NAME | NONE),
    "epsilon": number(above=0) | _NAME | NONE,
    **dict.fromkeys(("low", "high"), several(_NAME, "the name of a column, or of one per class") | NONE),
    **dict.fromkeys(("hidden", "clamped"), instance(str, "two counts, as in 0-9") | NONE),
    "rounded": number(above=0) | NONE,
    "mechanism": one_of(*MECHANISMS) | NONE,
    "sensitivity": number(above=0) | _NAME | NONE,
    "null_keys": one_of("none", "rest") | NONE,
}
_NO_COLUMNS = ("hidden", "clamped", "rounded", "mechanism", "null_keys")  # what tells of all lines alike
REST = "*"  # a key that a line of reports leaves open (see `rests`)
VALUE = "bagwise_value"  # a count in numbers, where the column of counts says it in another way; of classes, _0, …


@dataclass(frozen=True)
class ReportColumns:
    """Names of the columns of a table of reports, one line per bag; see `join`. What is None is not there."""

    count: str | Sequence[str] | None = None
    proportion: str | Sequence[str] | None = None
    size: str | None = None
    noise_variance: str | float | None = None
    noise_scale: str | float | None = None
    epsilon: str | float | None = None
    suppressed: str | None = None
    sum: str | None = None
    mean: str | None = None
    low: str | Sequence[str] | None = None
    high: str | Sequence[str] | None = None
    hidden: str | None = None
    rounded: float | None = None
    clamped: str | None = None
    mechanism: str | None = None
    sensitivity: str | float | None = None
    null_keys: str | None = None

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS)

    def guessed(self, names: Sequence[str], *, never: Iterable[str] = ()) -> ReportColumns:
        """What is given, and what the names of the columns say where nothing is; `never` is not guessed."""
        told = {key: value for key, value in vars(self).items() if value is not None}
        never = {*never, *self.names, *_NO_COLUMNS, "low", "high"}
        found = [name for name in vars(self) if name in names and name not in never]
        for same in (_WHAT, _NOISES):  # what is told counts, then what comes first
            known = [name for name in same if name in told] or [name for name in same if name in found]
            found = [name for name in found if name not in same or name == known[0]]
        return ReportColumns(**{**dict(zip(found, found, strict=True)), **told})

    def otherwise(self, others: ReportColumns, names: Sequence[str]) -> ReportColumns:
        """What is given, and for the rest what `others` say, as far as these are numbers or among the `names`."""
        told = {key: value for key, value in vars(self).items() if value is not None}
        groups = [group for group in (_WHAT, _NOISES) if {*group} & {*told}]
        settled, free = {*told, *(key for group in groups for key in group)}, {*names} - {*self.names}
        usual = {
            key: value
            for key, value in vars(others).items()
            if key not in settled and (key in _NO_COLUMNS or {*_names_of(value)} <= free)
        }
        return ReportColumns(**usual, **told)

    @property
    def target(self) -> str:
        """What is reported: of "label" 0 and 1 or classes counts or proportions, of a real "value" sums or means."""
        return "label" if self.sum is None and self.mean is None else "value"

    def of_target(self, target: str | None) -> str:
        """The target asked for, by default the one that the columns tell; an error where these say something else."""
        check_parameters({"target": target}, {"target": one_of(*_REPORTED) | NONE})
        wanted = target or self.target
        if others := [name for name in _WHAT if getattr(self, name) is not None and name not in _REPORTED[wanted]]:
            ways = Parameter(_REPORTED[wanted][0]), " or ", Parameter(_REPORTED[wanted][1])
            raise ParameterError(others[0], f"does not go with {wanted}s: name their column by ", *ways, ".")
        if wanted == "value" and self.epsilon is not None:
            ways = Parameter("noise_variance"), " or ", Parameter("noise_scale")
            raise ParameterError("epsilon", "tells the noise on counts, not on values: give ", *ways, ".")
        return wanted

    @staticmethod
    def not_of(target: str) -> tuple[str, ...]:
        """Columns that say nothing where this is the `target`, whatever they are called."""
        others = (name for one, names in _REPORTED.items() if one != target for name in names)
        return (*others, "epsilon") if target == "value" else tuple(others)

    def names_of(self, parameter: str) -> tuple[str, ...]:
        """The columns that a parameter names, none where it is a number or not given."""
        return _names_of(getattr(self, parameter))

    @property
    def adds_up(self) -> bool:
        """Whether a bag reports a count or a sum, which its size divides."""
        return self.count is not None or self.sum is not None or self.low is not None

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, which are the columns of counts or proportions; None where labels are 0 and 1.

        Where there are none, the columns of least counts.
        """
        given = next((one for one in (self.count, self.proportion, self.low) if one is not None), None)
        return None if isinstance(given, str) or given is None else tuple(given)

    @property
    def noises(self) -> list[str]:
        """The ways in which noise is declared."""
        return [name for name in _NOISES if getattr(self, name) is not None]

    @property
    def noise(self) -> str:
        """How noise is declared, in words."""
        if not self.noises:
            return ""
        kind = {"gaussian": "Gaussian", "discrete-laplace": "discrete Laplace"}.get(self.mechanism or "", "Laplace")
        if self.noises[0] != "epsilon":
            return "declared noise" if self.noises[0] == "noise_variance" else f"{kind} noise"
        if self.sensitivity is None:
            return f"{kind} noise (sensitivity taken as 1)"
        most = f"{self.sensitivity:g}" if isinstance(self.sensitivity, Real) else f"by column {self.sensitivity!r}"
        return f"{kind} noise (sensitivity {most})"

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are named."""
        columns = {key: given for key, given in vars(self).items() if key not in _NO_COLUMNS}
        return tuple(name for given in columns.values() for name in _names_of(given))

    def check(self, table: Table, keys: Sequence[str], target: str = "label") -> None:
        """Raise unless the table has what is named, and nothing is said twice.  target: what is to be reported."""
        there = ", ".join(table.columns)
        if (self.low is None) != (self.high is None):
            raise ParameterError("low", "and ", Parameter("high"), " go together: name the columns of both ends.")
        one, other = _REPORTED[target]
        in_place = self.low is not None and self.high is not None and self.proportion is None
        if (getattr(self, one) is None) == (getattr(self, other) is None) and not in_place:
            rest = [f" must name a column of the reports, one of the two: they have {there}"]
            if target == "label" and any(name in table.columns for name in _REPORTED["value"]):
                rest += ["; values are for models of values, fitted with ", Parameter("target"), "='value'"]
            raise ParameterError(one, "or ", Parameter(other), *rest, ".")
        if self.classes is not None and len(self.classes) < 2:
            raise ValueError("classes need at least two columns, one per class: give one name for labels 0 and 1.")
        if self.low is not None and self.high is not None:
            for name, ends in (("low", self.low), ("high", self.high)):
                of_each = None if isinstance(ends, str) else len(ends)
                if of_each != (None if self.classes is None else len(self.classes)):
                    wanted = (
                        "one column" if self.classes is None else f"{len(self.classes)} columns, one for each class"
                    )
                    raise ParameterError(name, f"must name {wanted}.")
        if self.mechanism == "gaussian" and self.epsilon is not None:
            ways = Parameter("noise_scale"), ", its standard deviation, or ", Parameter("noise_variance"), "."
            raise ParameterError("epsilon", "alone does not tell the scale of Gaussian noise: give ", *ways)
        if self.mechanism == "discrete-laplace" and self.noise_scale is not None:
            raise ParameterError("mechanism", "discrete-laplace goes with ", Parameter("epsilon"), ": give that.")
        if self.sensitivity is not None and self.epsilon is None:
            raise ParameterError("sensitivity", "is what ", Parameter("epsilon"), " is about: give that, too.")
        if self.mechanism is not None and not self.noises:
            noise = Parameter("noise_scale"), " or ", Parameter("epsilon"), ", too."
            raise ParameterError("mechanism", "is how noise was made, and no noise is told: give ", *noise)
        if len(self.noises) > 1:
            raise ParameterError(self.noises[0], "and ", Parameter(self.noises[1]), " say the same: give one of them.")
        if absent := [name for name in self.names if name not in table.columns]:
            raise ValueError(f"the reports have no column {absent[0]!r}: they have {there}.")
        if twice := [name for name, times in Counter((*keys, *self.names)).items() if times > 1]:
            raise ValueError(f"column {twice[0]!r} of the reports is named for two things: it can say one only.")
        for name in self.names:
            type_ = table.schema[name]
            marker = name in (self.suppressed, *_names_of(self.count)) and is_text(type_)
            if not (type_.is_numeric() or isinstance(type_, nw.Boolean) or marker):
                wanted, held = "truth values" if name == self.suppressed else "numbers", kind_of(type_)
                raise ValueError(f"column {name!r} of the reports holds {held}: convert it to {wanted}.")

    def said(self, table: Table) -> dict[str, Expression]:
        """What each line reports, by names of ours: `value_0`, …, `reported_size`, `noise` (variance on the count).

        And 1 where it is so, otherwise 0: `wrong_noise`, `withheld`, `unclear` (a marker that is neither yes nor no).
        """
        values = next((names for name in _WHAT if (names := _names_of(getattr(self, name)))), ())
        made = of_classes(VALUE, self.classes)
        values = made if made[0] in table.columns else values
        variance, wrong = self._variance()
        withheld, unclear = self._marked(table)
        return {
            **{f"value_{place}": as_number(col(name)) for place, name in enumerate(values)},
            "reported_size": null(nw.Float64()) if self.size is None else as_number(col(self.size)),
            "noise": where(variance != 0, variance),
            "wrong_noise": (wrong | ~is_finite(variance)).fill_null(False).cast(nw.Int64),
            "withheld": withheld.fill_null(False).cast(nw.Int64),
            "unclear": unclear.fill_null(False).cast(nw.Int64),
        }

    def _variance(self) -> tuple[Expression, Expression]:
        """The variance of the noise on a count, and whether what is declared cannot be."""
        if not self.noises:
            return null(nw.Float64()), lit(False)
        given = getattr(self, self.noises[0])
        declared = as_number(col(given)) if isinstance(given, str) else lit(float(given), nw.Float64)
        if self.noise_variance is not None:
            return declared, declared < 0
        if self.noise_scale is not None:
            return (1 if self.mechanism == "gaussian" else 2) * declared * declared, declared < 0
        most = lit(1.0)
        if self.sensitivity is not None:
            given = self.sensitivity
            most = as_number(col(given)) if isinstance(given, str) else lit(float(given), nw.Float64)
        scale, wrong = most / where(declared != 0, declared), (declared <= 0) | (most <= 0)
        if self.mechanism != "discrete-laplace":
            return 2 * scale * scale, wrong
        rest = (-1 / where(scale != 0, scale)).exp()
        return 2 * rest / ((1 - rest) * (1 - rest)), wrong

    def _marked(self, table: Table) -> tuple[Expression, Expression]:
        """Whether a line is withheld, and whether its marker says neither yes nor no."""
        if self.suppressed is None:
            return lit(False), lit(False)
        column, type_ = col(self.suppressed), table.schema[self.suppressed]
        if is_text(type_):
            word = column.cast(nw.String).str.strip_chars().str.to_lowercase()
            return word.is_in(_TRUE), ~word.is_in((*_TRUE, *_FALSE))
        return (column if isinstance(type_, nw.Boolean) else as_number(column) != 0), lit(False)


def _names_of(value: Any) -> tuple[str, ...]:
    """The names in what may be a name, several, a number or nothing."""
    if value is None or isinstance(value, Real):
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


class Meaning(Protocol):
    """What columns meant to a model."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that tell the bag of a row."""

    @property
    def reports(self) -> ReportColumns:
        """Which columns of the reports said what."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """Columns of the events that were no features."""

    @property
    def of_rows(self) -> RowColumns:
        """Columns of the events that say more of rows."""


@dataclass(frozen=True)
class Keys:
    """Key columns and, where the two tables hold them in different types, the type in which they are compared.

    rests: places of the keys that some line of the reports leaves open; they are compared as text.
    """

    names: tuple[str, ...]
    types: tuple[DataType | None, ...]
    rests: tuple[int, ...] = ()

    @classmethod
    def of(cls, names: Sequence[str], events: Table, reports: Table) -> Keys:
        """The keys of two tables; an error names the column that is missing or cannot be compared."""
        for what, table in (("events", events), ("reports", reports)):
            if absent := [name for name in names if name not in table.columns]:
                raise ValueError(f"the {what} have no key column {absent[0]!r}: they have {', '.join(table.columns)}.")
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise ParameterError("keys", f"names column {twice[0]!r} twice: name each key column once.")
        return cls(tuple(names), tuple(_common(name, events.schema[name], reports.schema[name]) for name in names))

    @property
    def ours(self) -> list[str]:
        """Names of ours for the key columns: a name of the user's may be one that we use."""
        return [f"key_{number}" for number in range(len(self.names))]

    def columns(self, table: Table, *, open_keys: bool = False) -> dict[str, Expression]:
        """The keys of a table by our names, in the types in which they are compared; NaN is a missing key.

        open_keys: whether a line that misses one of `rests` leaves it open.
        """
        found = {}
        for place, (our, name, type_) in enumerate(zip(self.ours, self.names, self.types, strict=True)):
            column = col(name) if type_ is None else col(name).cast(type_)
            column = without_nan(column) if (type_ or table.schema[name]).is_float() else column
            if place in self.rests:
                column = column.cast(nw.String).fill_null(REST) if open_keys else column.cast(nw.String)
            found[our] = column
        return found

    def is_rest(self) -> Expression:
        """Whether a bag has the rows of no other line, of a table that has the keys under our names."""
        return any_of(col(self.ours[place]) == REST for place in self.rests) if self.rests else lit(False)

    def there(self) -> Expression:
        """Whether no key is missing, of a table that has the keys under our names."""
        return all_of(~col(key).is_null() for key in self.ours)

    def text(self) -> Expression:
        """The key of a bag as messages show it, of a table that has the keys under our names."""
        return nw.concat_str([col(key).cast(nw.String) for key in self.ours], separator=" / ")


def choose_keys(
    keys: Sequence[str] | str | None, events: Table, reports: Table | None, given: ReportColumns
) -> list[str]:
    """The names of the keys: as given, or the columns that both tables have and that say nothing else."""
    if keys:
        return [keys] if isinstance(keys, str) else list(keys)
    if reports is None:
        raise ParameterError("keys", "must name the columns that tell the bag of a row, where there are no reports.")
    released = {"noise_variance", "epsilon"} <= set(reports.columns)
    taken = {*given.names, *vars(given), *(RECORD if released else ())}
    common = [name for name in reports.columns if name in events.columns and name not in taken]
    if not common:
        mine, theirs = ", ".join(events.columns), ", ".join(reports.columns)
        if both := [name for name in reports.columns if name in events.columns]:
            said = f"must name the columns that tell the bag of a row: both tables have {', '.join(both)}, which "
            raise ParameterError("keys", said, "says something else of the reports.")
        raise ValueError(f"events ({mine}) and reports ({theirs}) have no column in common: give keys the same names.")
    return common


def _common(name: str, mine: DataType, theirs: DataType) -> DataType | None:
    """The type in which two columns are compared, None for their own."""
    kind, other = kind_of(mine), kind_of(theirs)
    if kind != other:
        raise ValueError(f"key column {name!r} is {kind} in the events and {other} in the reports: convert one.")
    if mine.is_nested():
        raise ValueError(f"key column {name!r} holds {kind}: keys are numbers, texts, dates or truth values.")
    if mine.is_numeric() and not (mine.is_integer() and theirs.is_integer()) and mine != theirs:
        return nw.Float64()
    if is_time(mine) and mine != theirs:  # to the microsecond
        return nw.Datetime("us", None if kind == "dates" else "UTC")
    return None
