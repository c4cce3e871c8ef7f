"""A page as data, and as one HTML file that needs nothing else: no network, no script, no font."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

import bagwise
from bagwise.utils.files import replacing

GOOD, UNSURE, POOR = "good", "unsure", "poor"
"""What a verdict can be; pages say it in words, too."""


class Caution(str):
    """A paragraph that is set off, since a reader must not miss it."""


class Code(str):
    """Lines to be copied."""


class Bullets(tuple[str, ...]):
    """A list of sentences."""


@dataclass(frozen=True)
class Table:
    """Text in rows and columns; the first column names its row.

    caption: what it shows.  align: a letter per column, l or r.  folded: shown only when asked for.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str = ""
    folded: bool = False

    def side(self, column: int) -> str:
        """The side a column is set to: numbers go right."""
        return self.align[column] if column < len(self.align) else "l" if column == 0 else "r"


@dataclass(frozen=True)
class Picture:
    """A figure: drawn, captioned, and told in words for those who do not see it.

    svg: as `svg.inline` made it.  caption: how to read it.  table: its numbers.
    """

    svg: Markup
    caption: str
    table: Table | None = None


class Pictures(tuple[Picture, ...]):
    """Figures side by side where there is room."""


Part = str | Caution | Code | Bullets | Table | Pictures
"""What stands below a heading; plain text is a paragraph."""


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it. name: for links to it."""

    name: str
    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Page:
    """All of a page: the verdict first.

    Attributes
    ----------
    title, subject : str
        Of the page, and what it is about, in a few words.
    standing : str
        One of good, unsure, poor.
    headline : str
        The verdict in a sentence.
    remarks : sequence of str
        What else a reader should know at once.
    sections : sequence of Section
        The rest.
    html : str
        The whole file. The same page gives the same text.
    """

    title: str
    subject: str
    standing: str
    headline: str
    remarks: Sequence[str]
    sections: Sequence[Section]

    @property
    def html(self) -> str:
        """The whole file. The same page gives the same text."""
        return _template().render(page=self, version=bagwise.__version__)


def write(page: Page, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write a page, whole or not at all.

    Parameters
    ----------
    page : Page
        As one of the functions of `bagwise.pages` returns it.
    path : str or PathLike
        The HTML file to write.
    force : bool
        Replace a file that is there.

    Returns
    -------
    Path
        The file.
    """
    place = Path(path)
    if place.is_dir():
        raise IsADirectoryError(f"{place} is a folder: name a file for the page.")
    if place.exists() and not force:
        raise FileExistsError(f"{place} exists already: choose another place, or force it to be replaced.")
    with replacing(place) as (temporary,):
        temporary.write_text(page.html, encoding="utf-8", newline="\n")
    return place


def clean(value: Any) -> Any:
    """Text without letters that no page can hold, such as control characters in the name of a column.

    >>> clean("a" + chr(0) + "b" + chr(10) + "c")
    'a�b c'
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "".join(_shown(letter) for letter in value)


def _shown(letter: str) -> str:
    code = ord(letter)
    unfit = unicodedata.category(letter) in ("Cc", "Cs") or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    return " " if letter in "\t\n\r" else "�" if unfit else letter


@cache
def _template() -> Template:
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True, "finalize": clean}
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, **options)
    environment.filters["kind"] = lambda part: type(part).__name__
    environment.filters["lines"] = lambda text: Markup("\n").join(clean(line) for line in text.splitlines())
    return environment.get_template("page.html.jinja")
