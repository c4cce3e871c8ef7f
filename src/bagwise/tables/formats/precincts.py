"""Election results: per precinct how many people of each group there are, and how many votes each party has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from bagwise.tables.formats.files import Lines, Read, only, read_lines, typed
from bagwise.utils.text import number_of
from bagwise.utils.typing import Integers

GROUP, OTHER, OTHERS = "group", "other", "others"


def precincts(
    files: Sequence[Path], *, keys: Sequence[str], groups: Sequence[str], count: Sequence[str], size: str | None = None
) -> Read:
    """A text table with a line per precinct: people by group, and votes by party.

    keys: columns that tell the precinct.  groups: columns with the people of each group.  count: columns with the votes
    of each party; who voted for none of them is of the class `others`.  size: column of all people, where some are in
    none of the groups: they are of the group `other`.
    """
    lines = read_lines(only(files))
    for parameter, names in {"keys": keys, "groups": groups, "count": count, "size": [size] if size else []}.items():
        lines.check(parameter, names)
    every = [*keys, *groups, *count, *([size] if size else [])]
    if twice := [name for name in every if every.count(name) > 1]:
        raise ValueError(f"column {twice[0]!r} is named for two things: it can say one only.")
    if taken := [name for name in (*keys, *count) if name.lower() in (GROUP, OTHERS)]:
        raise ValueError(f"column {taken[0]!r} has a name that the tables need: rename it first.")
    _check_keys(lines, keys)
    people, votes = _numbers(lines, groups), _numbers(lines, count)
    names = [*groups]
    if size is not None:
        total = _numbers(lines, [size])[:, 0]
        if (wrong := np.flatnonzero(people.sum(1) > total)).size:
            said = f"the groups have {people[wrong[0]].sum():,} people, more than {size!r} says"
            raise lines.wrong(int(wrong[0]), f"{said}: correct one of the two.")
        left = total - people.sum(1)
        people, names = (np.column_stack([people, left]), [*names, OTHER]) if left.any() else (people, names)
    everyone = people.sum(1)
    if (wrong := np.flatnonzero(votes.sum(1) > everyone)).size:
        said = f"{votes[wrong[0]].sum():,} votes of {everyone[wrong[0]]:,} people"
        raise lines.wrong(int(wrong[0]), f"{said}: name the column of all people as size, or correct the counts.")
    return _tables(lines, keys, names, people, count, votes)


def _check_keys(lines: Lines, keys: Sequence[str]) -> None:
    seen: dict[tuple[str, ...], int] = {}
    for line, key in enumerate(zip(*(lines.column(name) for name in keys), strict=True)):
        if "" in key:
            raise lines.wrong(line, f"{keys[key.index('')]!r} is empty: every precinct needs its key.")
        if key in seen:
            said = f"{' / '.join(key)} is in line {lines.numbers[seen[key]]} already"
            raise lines.wrong(line, f"{said}: name more columns as keys, or add the two up.")
        seen[key] = line


def _numbers(lines: Lines, names: Sequence[str]) -> Integers:
    """Columns of whole numbers, (lines, columns)."""
    return np.array([lines.whole(name) for name in names], dtype=np.int64).T


def _tables(
    lines: Lines, keys: Sequence[str], groups: Sequence[str], people: Integers, parties: Sequence[str], votes: Integers
) -> Read:
    everyone = people.sum(1)
    there, others = everyone > 0, everyone - votes.sum(1)
    named = {name: typed(lines.column(name)) for name in keys}
    classes = dict(zip(parties, votes.T, strict=True))
    if others.any() or len(classes) < 2:
        classes[OTHERS] = others
    told = {name: pa.array(values[there]) for name, values in classes.items()}
    reports = {name: column.filter(pa.array(there)) for name, column in named.items()}
    reports |= {"size": pa.array(everyone[there]), **told}
    # One row per person: groups in turn within a precinct.
    precinct = np.repeat(np.arange(len(everyone)), everyone)
    group = np.repeat(np.tile(np.arange(len(groups)), len(everyone)), people.ravel())
    events = {name: column.take(pa.array(precinct)) for name, column in named.items()}
    events[GROUP] = pa.array(list(groups)).take(pa.array(group))
    notes = [f"Groups: {', '.join(f'{name} {n:,}' for name, n in zip(groups, people.sum(0), strict=True))}."]
    if OTHERS in classes:
        notes.append(f"For none of the parties: {others.sum():,} (class {OTHERS}).")
    if not there.all():
        notes.append(f"Left out: {number_of(int((~there).sum()), 'precinct')} without people.")
    options = {"keys": ",".join(keys), "count": ",".join(classes)}
    return Read(pa.table(reports), pa.table(events), options, tuple(notes))
