"""Tables and records as files of others hold them, and what they come to; an error names the line that is wrong."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from bagwise.utils.parameters import ParameterError

_DELIMITERS = ",;\t| "
_TYPES = (pa.int64(), pa.float64(), pa.date32(), pa.timestamp("us"))


@dataclass(frozen=True)
class Read:
    """What a format comes to: tables of reports and maybe events, what to tell `join` by name, and what was met."""

    reports: pa.Table
    events: pa.Table | None = None
    options: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lines:
    """A table of text: a file, the names of its columns, and per line its number in the file and its fields."""

    file: Path
    names: tuple[str, ...]
    numbers: tuple[int, ...]
    fields: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> list[str]:
        """The fields of a column, without spaces around them."""
        place = self.names.index(name)
        return [line[place].strip() for line in self.fields]

    def check(self, parameter: str, names: Iterable[str]) -> None:
        """Raise where the table lacks a column that a parameter names."""
        if absent := [name for name in names if name not in self.names]:
            there = ", ".join(self.names)
            raise ParameterError(parameter, f"names a column {absent[0]!r} that {self.file} lacks: it has {there}.")

    def wrong(self, line: int, said: str) -> ValueError:
        """An error about a line, by its place in the table."""
        return ValueError(f"{self.file}, line {self.numbers[line]}: {said}")

    def whole(self, name: str, *, empty: Sequence[str] = ()) -> list[int | None]:
        """A column of whole numbers of at least 0; None where a field is one of those that are `empty`."""
        found: list[int | None] = []
        for line, text in enumerate(self.column(name)):
            number = _whole(text)
            if number is None and text.lower() not in empty:
                raise self.wrong(line, f"{name!r} is {text!r}: it must be a whole number of at least 0.")
            found.append(number)
        return found


def _whole(text: str) -> int | None:
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    return int(number) if number >= 0 and number.is_integer() else None


def only(files: Sequence[Path]) -> Path:
    """The one file of a format that has one."""
    if len(files) != 1:
        raise ParameterError("sources", f"must be one file for this format, got {len(files)}.")
    return files[0]


def read_lines(file: Path) -> Lines:
    """A CSV file: fields separated by comma, semicolon, tab, bar or space; a first column may have no name."""
    text = _text(file)
    first = text.split("\n", 1)[0].strip("\r")
    if not first.strip():
        raise ValueError(f"{file} is empty: its first line must name the columns.")
    delimiter = max(_DELIMITERS, key=lambda one: (len(next(csv.reader([first], delimiter=one))), one != " "))
    reader = csv.reader(text.splitlines(), delimiter=delimiter, strict=True)
    try:
        found = [(reader.line_num, fields) for fields in reader if any(field.strip() for field in fields)]
    except csv.Error as error:
        raise ValueError(f"{file}, line {reader.line_num}: {error}.") from None
    names = [name.strip() for name in found[0][1]]
    lines = found[1:]
    if lines and all(len(fields) == len(names) + 1 for _, fields in lines):  # as R numbers its rows
        lines = [(number, fields[1:]) for number, fields in lines]
    for number, fields in lines:
        if len(fields) != len(names):
            raise ValueError(f"{file}, line {number}: {len(fields)} fields, but the first line names {len(names)}.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{file}: two columns are called {twice[0]!r}: rename one.")
    if not lines:
        raise ValueError(f"{file} has no line below the names of its columns: there must be one at least.")
    return Lines(file, tuple(names), tuple(number for number, _ in lines), tuple(tuple(one) for _, one in lines))


def typed(values: Sequence[str | None]) -> pa.Array:
    """Text as numbers, dates or times if all of it is; a number that begins with 0 is a code, so text."""
    texts = pa.array(values, pa.string())
    if any(value is not None and len(value) > 1 and value.startswith("0") and value.isdecimal() for value in values):
        return texts
    for type_ in _TYPES:
        try:
            return texts.cast(type_)
        except pa.ArrowInvalid:
            continue
    return texts


def read_json(file: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(_text(file))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is no JSON: {_reason(error)}.") from None


def read_json_lines(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """The records of a file with one JSON object per line, and the numbers of their lines."""
    found = []
    for number, line in enumerate(_text(file).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: no JSON: {_reason(error)}.") from None
        if not isinstance(record, dict):
            raise ValueError(f"{file}, line {number}: not a JSON object: there must be one per line.")
        found.append((number, record))
    if not found:
        raise ValueError(f"{file} is empty: there must be one line at least.")
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{file} is no text in UTF-8: export it as CSV or JSON, as the format has it.") from None


def _reason(error: ValueError) -> str:
    return str(error).rstrip(".").lower()
