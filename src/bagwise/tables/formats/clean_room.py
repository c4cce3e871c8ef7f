"""A clean room's release: a count per group, small groups filtered out and told in one line of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from bagwise.tables.formats.files import Lines, Read, only, read_lines, typed
from bagwise.tables.reports import REST
from bagwise.utils.parameters import NONE, ParameterError, check_parameters, whole
from bagwise.utils.text import number_of

_OPEN = ("", REST, "null", "none", "(all others)", "filtered", "filtered rows")  # a key that a line leaves open
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
    sizes of a lower count, are not shown; a count that is not shown lies below it.
    """
    check_parameters({"threshold": threshold}, {"threshold": whole(1) | NONE})
    lines = read_lines(only(files))
    named = {"keys": [*keys], "count": [*count], "size": [] if size is None else [size]}
    for parameter, names in named.items():
        lines.check(parameter, names)
    every = [name for names in named.values() for name in names]
    if twice := [name for name in every if every.count(name) > 1]:
        raise ValueError(f"column {twice[0]!r} is named for two things: it can say one only.")
    columns: dict[str, pa.Array] = {}
    left = {name: [value.lower() in _OPEN for value in lines.column(name)] for name in keys}
    with_null = False
    for name in keys:
        values = [None if open_ else value for value, open_ in zip(lines.column(name), left[name], strict=True)]
        columns[name] = typed(values)
        if pa.types.is_string(columns[name].type):
            columns[name] = columns[name].fill_null(REST)
        else:
            with_null = with_null or any(left[name])
    counts = {name: lines.whole(name, empty=_HIDDEN) for name in count}
    sizes = None if size is None else lines.whole(size, empty=_HIDDEN)
    rests = [any(left[name][line] for name in keys) for line in range(len(lines.fields))]
    hidden = _check_shown(lines, counts, sizes, rests, threshold)
    columns |= {name: pa.array(values, pa.int64()) for name, values in counts.items()}
    if size is not None:
        columns[size] = pa.array(sizes, pa.int64())
    options = {"keys": ",".join(keys), "count": ",".join(count)}
    options |= {} if size is None else {"size": size}
    options |= {"hidden": f"0-{(threshold or 0) - 1}"} if hidden else {}
    options |= {"null_keys": "rest"} if with_null else {}
    return Read(pa.table(columns), None, options, _notes(sum(rests), hidden, threshold))


def _check_shown(
    lines: Lines,
    counts: dict[str, list[int | None]],
    sizes: list[int | None] | None,
    rests: Sequence[bool],
    threshold: int | None,
) -> int:
    """How many lines do not show their count; an error where one shows what cannot be. Rests may be of any size."""
    hidden = 0
    for line in range(len(lines.fields)):
        told = [values[line] for values in counts.values()]
        of = None if sizes is None else sizes[line]
        missing = any(one is None for one in told)
        hidden += missing
        if missing and len(told) > 1:
            raise lines.wrong(line, "a count is not shown: of several classes all counts must be.")
        if missing and threshold is None:
            said = "does not show its count: say below which number counts are not shown ("
            raise ParameterError("threshold", f"is missing, as line {lines.numbers[line]} {said}as in 50).")
        shown = of if sizes is not None else None if missing else sum(one or 0 for one in told)
        if threshold is not None and shown is not None and shown < threshold and not (missing or rests[line]):
            raise lines.wrong(line, f"shows {shown}, which is below the threshold {threshold}: correct one of the two.")
        if of is not None and not missing and sum(one or 0 for one in told) > of:
            raise lines.wrong(line, f"has a count above its size {of}: correct one of the two.")
    return hidden


def _notes(rests: int, hidden: int, threshold: int | None) -> tuple[str, ...]:
    about = "1 line is" if rests == 1 else f"{rests:,} lines are"
    none = "No line is about all other rows: events of groups that are not shown need --on-mismatch drop."
    notes = [f"{about} about all other rows (*)." if rests else none]
    if hidden:
        notes.append(f"{number_of(hidden, 'count')} not shown, so between 0 and {(threshold or 0) - 1}.")
    return tuple(notes)
