"""Postbacks of app installs (AdAttributionKit), counted by source identifier; some show fewer digits, or no value.

Every postback shows two digits at least, and maybe a value. What one does not show could be anything that fits, so
counts of single sources lie between two numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bagwise.tables.formats.files import Read, read_json_lines
from bagwise.tables.reports import REST
from bagwise.utils.parameters import NONE, ParameterError, check_parameters, one_of, whole
from bagwise.utils.text import number_of

SOURCE, FINE, COARSE = "source-identifier", "conversion-value", "coarse-conversion-value"
WINDOW, WON, IDENTITY = "postback-sequence-index", "did-win", "postback-identifier"
_COARSE = ("low", "medium", "high")


@dataclass(frozen=True)
class _Postback:
    source: str
    window: int
    positive: bool | None  # None where it does not show its value


def ad_attribution_kit(
    files: Sequence[Path],
    *,
    positive: str | None = None,
    window: int = 0,
    digits: int = 2,
    shown: str | None = None,
) -> Read:
    """Files with one postback per line, as JSON with the fields of its payload.

    positive: which postbacks count: a coarse value (`high`) or fine values (`32-63`), all if not given.  window: index
    of the conversion window.  digits: how many digits of the source identifier tell bags apart.  shown: which digits a
    postback with fewer of them shows, the `first` or the `last` of the identifier; needed where there are such.
    """
    constraints = {"window": one_of(0, 1, 2), "digits": whole(2), "shown": one_of("first", "last") | NONE}
    check_parameters({"window": window, "digits": digits, "shown": shown}, constraints)
    if digits > 4:
        raise ParameterError("digits", f"must be 2, 3 or 4, got {digits}.")
    wanted = _wanted(positive)
    postbacks, lost, seen = [], 0, set()
    for file in files:
        for number, record in read_json_lines(file):
            try:
                found = _postback(record, wanted)
            except ValueError as error:
                raise ValueError(f"{file}, line {number}: {error}") from None
            if (identity := record.get(IDENTITY)) is not None and (identity, found.window) in seen:
                raise ValueError(f"{file}, line {number}: postback {identity} is there twice: remove the copy.")
            seen.add((identity, found.window))
            won = record.get(WON, True)
            lost += not won
            postbacks += [found] if won else []
    chosen = [one for one in postbacks if one.window == window]
    if not chosen:
        raise ParameterError("window", f"{window} has no postback of a winning ad: name another one.")
    if len({len(one.source) for one in chosen}) > 1 and shown is None:
        raise ParameterError("shown", "must be first or last, as sources have different numbers of digits here.")
    return _tables(chosen, digits, shown == "last", len(postbacks) - len(chosen), lost)


def _wanted(positive: str | None) -> tuple[range | None, str | None]:
    """The fine or the coarse values that count."""
    if positive is None or positive in _COARSE:
        return None, positive
    ends = [part.strip() for part in positive.split("-")]
    if len(ends) <= 2 and all(end.isdecimal() for end in ends) and int(ends[0]) <= int(ends[-1]) <= 63:
        return range(int(ends[0]), int(ends[-1]) + 1), None
    raise ParameterError("positive", f"must be low, medium, high, or fine values as in 32-63, got {positive!r}.")


def _postback(record: dict[str, Any], wanted: tuple[range | None, str | None]) -> _Postback:
    """A record, checked; an error without its place."""
    if SOURCE not in record:
        also = ": decode the payload of jws-string first" if "jws-string" in record else ""
        raise ValueError(f"there is no {SOURCE}{also}.")
    source, fine, coarse = record[SOURCE], record.get(FINE), record.get(COARSE)
    if not (isinstance(source, str) and source.isdecimal() and source.isascii() and 2 <= len(source) <= 4):
        raise ValueError(f"{SOURCE} is {source!r}: it must be a text of 2 to 4 digits.")
    if fine is not None and not (type(fine) is int and 0 <= fine <= 63):
        raise ValueError(f"{FINE} is {fine!r}: it must be a whole number from 0 to 63.")
    if coarse is not None and coarse not in _COARSE:
        raise ValueError(f"{COARSE} is {coarse!r}: it must be low, medium or high.")
    window = record.get(WINDOW)
    if type(window) is not int or window not in (0, 1, 2):
        raise ValueError(f"{WINDOW} is {window!r}: it must be 0, 1 or 2.")
    if not isinstance(record.get(WON, True), bool):
        raise ValueError(f"{WON} is {record[WON]!r}: it must be true or false.")
    fines, level = wanted
    if fines is not None:
        return _Postback(source, window, None if fine is None else fine in fines)
    if level is not None:
        return _Postback(source, window, None if coarse is None else coarse == level)
    return _Postback(source, window, True)


def _tables(postbacks: Sequence[_Postback], digits: int, last: bool, other: int, lost: int) -> Read:
    """Counts per source: at least those that show it and count, at most those, too, that may be its own and count."""

    def part(source: str, length: int) -> str:
        return source[-length:] if last else source[:length]

    sure: Counter[str] = Counter()
    maybe: Counter[str] = Counter()
    for one in postbacks:
        key = part(one.source, digits)  # with fewer digits, all that there are
        if len(key) == digits and one.positive:
            sure[key] += 1
        elif one.positive is not False:
            maybe[key] += 1
    sources = sorted({part(one.source, digits) for one in postbacks if len(one.source) >= digits})
    if not sources:
        raise ParameterError("digits", f"are {digits}, but no postback shows so many: ask for fewer.")
    low = [sure[source] for source in sources]
    may = [sum(maybe[part(source, length)] for length in range(2, digits + 1)) for source in sources]
    high = [least + more for least, more in zip(low, may, strict=True)]
    # Sources without a postback have no line: they are the rest, where only postbacks with fewer digits can be.
    short = sum(more for source, more in maybe.items() if len(source) < digits)
    sources, low, high = [*sources, REST], [*low, 0], [*high, short]
    columns = {"source": pa.array(sources), "low": pa.array(low, pa.int64()), "high": pa.array(high, pa.int64())}
    hidden = sum(one.positive is None for one in postbacks)
    fewer = sum(len(one.source) < digits for one in postbacks)
    notes = [f"{number_of(len(postbacks), 'postback')} of the window, {hidden:,} without a value, {fewer:,} with fewer"]
    notes[0] += f" than {digits} digits."
    if other:
        notes.append(f"Left out: {number_of(other, 'postback')} of other windows.")
    if lost:
        notes.append(f"Left out: {number_of(lost, 'postback')} of ads that did not win.")
    return Read(pa.table(columns), None, {"keys": "source", "low": "low", "high": "high"}, tuple(notes))
