"""A page as data, and as one HTML file that needs nothing else: no network, no script, no font.

Matplotlib's figures are SVG inside of it: its colours, its font, ids of their own, and the same bytes every time.
"""

import io
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.style
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
from matplotlib.figure import Figure

import bagwise
from bagwise.plotting import BLACK, BLUE, GREEN, GREY, GRID, ORANGE, PAGE_STYLE, PAPER, PURPLE, RED, SKY
from bagwise.utils.files import replacing

GOOD, UNSURE, POOR = "good", "unsure", "poor"
"""What a verdict can be; pages say it in words, too."""

# Colours to draw with, and the page's variables that take their places, so that figures follow light and dark.
_DRAWN = (BLACK, PAPER, GRID, GREY, BLUE, ORANGE, SKY, GREEN, RED, PURPLE)
_NAMES = ("ink", "paper", "grid", "grey", "blue", "orange", "sky", "green", "red", "purple")
_VARIABLES = {colour.lower(): f"var(--{name})" for colour, name in zip(_DRAWN, _NAMES, strict=True)}
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_DECIMALS = re.compile(r"-?\d+\.\d{3,}")
STYLE: list[Any] = ["default", PAGE_STYLE]
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
# Control characters, halves of pairs, and code points that are no characters.
_NONE = "".join(chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))
_UNFIT = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_NONE}]")


class Caution(str):
    """A paragraph that is set off, since a reader must not miss it."""


class Code(str):
    """Lines to be copied."""


class Bullets(tuple[str, ...]):
    """A list of sentences."""


@dataclass(frozen=True)
class Table:
    """Text in rows and columns; the first column names its row.

    caption: what it shows.  align: a letter per column, l or r, and r for the rest.  folded: shown when asked for.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str = "l"
    folded: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure: drawn, captioned, and told in words for those who do not see it.

    svg: as `inline` made it.  caption: how to read it.  table: its numbers.
    """

    svg: Markup
    caption: str
    table: Table | None = None


class Pictures(tuple[Picture, ...]):
    """Figures side by side where there is room."""


Part = str | Caution | Code | Bullets | Table | Pictures
"""What stands below a heading; plain text is a paragraph. What is empty is left out."""


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
    with replacing(place, force=force) as (temporary,):
        temporary.write_text(page.html, encoding="utf-8", newline="\n")
    return place


def clean(value: Any) -> Any:
    """Text without letters that no page can hold, such as control characters in the name of a column.

    >>> clean("a" + chr(0) + "b" + chr(10) + "c")
    'a�b c'
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _UNFIT.sub("\ufffd", re.sub(r"[\t\n\r]", " ", value))


@cache
def _template() -> Template:
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True, "finalize": clean}
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, **options)
    environment.filters["kind"] = lambda part: type(part).__name__
    environment.filters["lines"] = lambda text: Markup("\n").join(clean(line) for line in text.splitlines())
    return environment.get_template("page.html.jinja")


def inline(figure: Figure, *, name: str, title: str, description: str) -> Markup:
    """The figure, drawn in `STYLE`, as an element of a page.

    name: for its ids, one of its own on the page.  title: what it shows.  description: what there is to be seen, with
    the main numbers, for those who do not see it.
    """
    name, buffer = f"figure-{name}", io.StringIO()
    with matplotlib.style.context(STYLE), warnings.catch_warnings():
        # Letters that Matplotlib's font lacks are drawn by the reader's.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    root = _parsed(buffer.getvalue())
    _number_ids(root, name)
    for element in root.iter():
        _restyle(element)
    for group in root.iter("g"):
        _hoist(group)
    root.attrib = {key: value for key, value in root.items() if key not in ("width", "height", "version")}
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-title {name}-description"}
    for place, (tag, part, text) in enumerate((("title", "title", title), ("desc", "description", description))):
        element = ElementTree.Element(tag, {"id": f"{name}-{part}"})
        element.text = clean(text)
        root.insert(place, element)
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # the text in it is escaped


def _parsed(text: str) -> ElementTree.Element:
    """The SVG without what only files need: namespaces, metadata and a style sheet that would reach the whole page."""
    root = ElementTree.fromstring(text)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        element.tail = None
        if element.tag != "text":
            element.text = None
    for child in list(root):
        if child.tag == "metadata" or (child.tag == "defs" and [one.tag for one in child] == ["style"]):
            root.remove(child)
    return root


def _number_ids(root: ElementTree.Element, name: str) -> None:
    """Ids that are referred to, numbered under the figure's name: those of two figures on a page must differ."""
    pairs = [pair for element in root.iter() for pair in element.items()]
    used = [value.removeprefix("#") for key, value in pairs if key == "href"]
    used += [found for _, value in pairs for found in _REFERENCE.findall(value)]
    names = {old: f"{name}-{number}" for number, old in enumerate(dict.fromkeys(used))}
    for element in root.iter():
        old = element.attrib.pop("id", None)
        if old in names:
            element.set("id", names[old])
        for key, value in element.items():
            if key == "href":
                element.set(key, f"#{names[value.removeprefix('#')]}")
            elif "url(#" in value:
                element.set(key, _REFERENCE.sub(lambda match: f"url(#{names[match[1]]})", value))


def _restyle(element: ElementTree.Element) -> None:
    """Colours as variables of the page, its font, and no more decimals than can be seen."""
    for key, value in element.items():
        if key in ("id", "href"):
            continue
        if key in ("style", "fill", "stroke"):
            value = _COLOUR.sub(lambda match: _VARIABLES.get(match[0], match[0]), value)
        element.set(key, _DECIMALS.sub(lambda match: f"{float(match[0]):.2f}", " ".join(value.split())))
    if "var(" in element.get("fill", ""):  # attributes know no variables
        element.set("style", f"fill: {element.attrib.pop('fill')}")
    if element.tag == "text":
        rules = [rule.strip() for rule in element.get("style", "").split(";")]
        element.set("style", "; ".join(rule for rule in rules if not rule.startswith("font-family")))
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]


def _hoist(group: ElementTree.Element) -> None:
    """One style for a group of marks that share it: there may be thousands."""
    styles = {child.get("style") for child in group}
    if len(group) > 1 and len(styles) == 1 and None not in styles and all(child.tag == "use" for child in group):
        group.set("style", str(styles.pop()))
        for child in group:
            del child.attrib["style"]
