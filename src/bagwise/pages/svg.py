"""Matplotlib's figures as SVG inside a page: its colours, its font, ids of their own, and the same bytes every time."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from xml.etree import ElementTree

import matplotlib.style
from markupsafe import Markup
from matplotlib.figure import Figure

from bagwise.pages.page import clean
from bagwise.plotting import BLACK, BLUE, GREEN, GREY, GRID, ORANGE, PAGE_STYLE, PAPER, PURPLE, RED, SKY

_DRAWN = (BLACK, PAPER, GRID, GREY, BLUE, ORANGE, SKY, GREEN, RED, PURPLE)
_NAMES = ("ink", "paper", "grid", "grey", "blue", "orange", "sky", "green", "red", "purple")
_VARIABLES = {colour.lower(): f"var(--{name})" for colour, name in zip(_DRAWN, _NAMES, strict=True)}
"""Colours to draw with, and the page's variables that take their places, so that figures follow light and dark."""

_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_DECIMALS = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def inline(draw: Callable[[], Figure], *, name: str, title: str, description: str) -> Markup:
    """The figure as an element of a page.

    draw: makes the figure.  name: for its ids, one of its own on the page.  title: what it shows.  description: what
    there is to be seen, with the main numbers, for those who do not see it.
    """
    name, buffer = f"figure-{name}", io.StringIO()
    with matplotlib.style.context(["default", PAGE_STYLE]), warnings.catch_warnings():
        # Letters that Matplotlib's font lacks are drawn by the reader's.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        draw().savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    root = _parsed(buffer.getvalue())
    _number_ids(root, name)
    for element in root.iter():
        _restyle(element)
    for group in root.iter("g"):
        _hoist(group)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
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
    for parent in list(root.iter()):
        for child in list(parent):
            is_style = child.tag == "defs" and [one.tag for one in child] == ["style"]
            if is_style or child.tag in ("metadata", "style"):
                parent.remove(child)
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
        value = _DECIMALS.sub(lambda match: f"{float(match[0]):.2f}", " ".join(value.split()))
        element.set(key, value)
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
