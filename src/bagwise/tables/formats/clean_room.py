"""A clean room's release: a count per group, small groups filtered out and told in one line of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from bagwise.tables.formats.files import Lines, Read, only, read_lines, typed
from bagwise.tables.reports import REST
from bagwise.utils.parameters import NONE, ParameterError, check_parameters, whole
from bagwise.utils.text import number_of

_OPEN = ("", REST, "null", "none", "(all others)", "filtered", "filtered rows")  # a key that a line leaves open
LOW, HIGH = "low", "high"  # columns of what counts may be that are not shown; of classes, low_a, …
_HIDDEN = ("", REST, "null", "none", "suppressed", "hidden")


def clean_room(
    files: Sequence[Path],
    *,
    keys: Sequence[str],
    count: Sequence[str],
    size: str | None = None,
    threshold: int | None = None,
) -> Read:
    """A CSV file with a line per group: columns to group by, counts, and maybe how many rows there are.

    keys: columns to group by; a line where one is empty, `*` or "filtered rows" is about all other rows.  count: column
    of positives, or one per class.  size: column of rows per group.  threshold: groups of a lower size, or without
    sizes of a lower count, are not shown; a count that is not shown lies below it, but in a line about all others.
    """
    check_parameters({"threshold": threshold}, {"threshold": whole(1) | NONE})
    lines = read_lines(only(files))
    named = {"keys": [*keys], "count": [*count], "size": [] if size is None else [size]}
    for parameter, names in named.items():
        lines.check(parameter, names)
    every = [name for names in named.values() for name in names]
    if twice := [name for name in every if every.count(name) > 1]:
        raise ValueError(f"column {twice[0]!r} is named for two things: it can say one only.")
    ends = {end: [end] if len(count) == 1 else [f"{end}_{name}" for name in count] for end in (LOW, HIGH)}
    if taken := [name for name in every if name.lower() in (*ends[LOW], *ends[HIGH])]:
        raise ValueError(f"column {taken[0]!r} has a name that the tables need: rename it first.")
    columns: dict[str, pa.Array] = {}
    left = {name: [value.lower() in _OPEN for value in lines.column(name)] for name in keys}
    rests = [any(left[name][line] for name in keys) for line in range(len(lines.fields))]
    for name in keys:
        values = [None if open_ else value for value, open_ in zip(lines.column(name), left[name], strict=True)]
        column = typed(values)
        columns[name] = column.fill_null(REST) if pa.types.is_string(column.type) else column
    counts = {name: lines.whole(name, empty=_HIDDEN) for name in count}
    sizes = None if size is None else lines.whole(size, empty=_HIDDEN)
    most = [_most(lines, line, counts, sizes, threshold, rest=rest) for line, rest in enumerate(rests)]
    columns |= {name: pa.array(values, pa.int64()) for name, values in counts.items()}
    options = {"keys": ",".join(keys), "count": ",".join(count)}
    if size is not None:
        columns[size], options["size"] = pa.array(sizes, pa.int64()), size
    hidden = sum(one is None for values in counts.values() for one in values)
    if hidden:
        for low, high, told in zip(ends[LOW], ends[HIGH], counts.values(), strict=True):
            of_class = [end if one is None else None for end, one in zip(most, told, strict=True)]
            columns[low] = pa.array([None if one is None else 0.0 for one in of_class], pa.float64())
            columns[high] = pa.array(of_class, pa.float64())
        options |= {end: ",".join(names) for end, names in ends.items()}
    if any(columns[name].null_count for name in keys):
        options["null_keys"] = "rest"
    return Read(pa.table(columns), None, options, _notes(sum(rests), hidden))


def _most(
    lines: Lines,
    line: int,
    counts: dict[str, list[int | None]],
    sizes: list[int | None] | None,
    threshold: int | None,
    *,
    rest: bool,
) -> float | None:
    """The most that a count can be which a line does not show, None where it shows all; an error where that cannot be.

    Counts of classes that are shown leave so much less.
    """
    told, of = [values[line] for values in counts.values()], None if sizes is None else sizes[line]
    if None not in told:
        total = sum(one or 0 for one in told)
        shown = total if sizes is None else of
        if threshold is not None and shown is not None and shown < threshold and not rest:
            raise lines.wrong(line, f"shows {shown}, which is below the threshold {threshold}: correct one of the two.")
        if of is not None and total > of:
            raise lines.wrong(line, f"has a count above its size {of}: correct one of the two.")
        return None
    if of is not None and (of := of - sum(one or 0 for one in told)) < 0:
        raise lines.wrong(line, "has counts above its size: correct one of them.")
    if rest:  # of groups that are below the threshold one by one
        return math.inf if of is None else float(of)
    if threshold is None:
        said = "does not show its count: say below which number counts are not shown (as in 50)."
        raise ParameterError("threshold", f"is missing, as line {lines.numbers[line]} {said}")
    return float(threshold - 1 if of is None else min(threshold - 1, of))


def _notes(rests: int, hidden: int) -> tuple[str, ...]:
    about = "1 line is" if rests == 1 else f"{rests:,} lines are"
    none = "No line is about all other rows: events of groups that are not shown need --on-mismatch drop."
    notes = [f"{about} about all other rows (*)." if rests else none]
    if hidden:
        notes.append(f"{number_of(hidden, 'count')} not shown: between {LOW} and {HIGH}.")
    return tuple(notes)
