"""The style of all figures: colours, looks of curves, sizes of letters, axes that they share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bagwise.utils.typing import ArrayLike, Booleans, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which the colour-blind can tell apart, with greys and a darker green for letters.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
GREY, DARK_GREY, DARK_GREEN = "#737373", "#595959", "#00795A"
GRID, LIGHT_GRID, PAPER = "#b0b0b0", "#e6e6e6", "#ffffff"

_FEATURE = re.compile(r"feature '([^']+)'")  # as findings call it; in figures, the name alone has room

COLOURS, MARKERS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK), "osD^vPX"
"""For curves that have no look of their own, in turn."""

PAGE_STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # a column may be called $x$
    "axes.unicode_minus": True,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with Matplotlib: the same layout everywhere
    "font.size": 9.5,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.5,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": BLACK,
    "ytick.labelcolor": BLACK,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "bagwise",
}
"""Matplotlib's settings for the small figures of pages."""


class Look(NamedTuple):
    """How a method is drawn: no two share both colour and marker, and broken lines have hollow markers."""

    colour: str
    marker: str
    line: str = "-"

    @property
    def style(self) -> dict[str, Any]:
        """Arguments of Matplotlib's plot."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.line,
            "linewidth": 1.4,
            "markersize": 6,
            "markerfacecolor": self.colour if self.line == "-" else "white",
            "markeredgewidth": 1.4,
        }


class Picture:
    """What display classes share: a picture of its own, or in axes that are given."""

    ax_: Axes
    figure_: Any

    def _begin(self, ax: Axes | None, height: float = 3.4) -> Axes:
        """The axes to draw in, kept as `ax_`, with their `figure_`; height: in inches, of a figure of its own."""
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(figsize=(4.8, height), layout="constrained").add_subplot()
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def dodge(place: int, places: int, step: float = 1.03) -> float:
    """A factor on k that sets methods side by side, so that equal values stay visible; `step` from one to the next."""
    return float(step ** (place - (places - 1) / 2))


def size_axis(panel: Axes, sizes: ArrayLike) -> None:
    """A logarithmic axis whose ticks are the bag sizes, or epochs, themselves."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    panel.set_xscale("log")
    panel.xaxis.set_major_locator(FixedLocator(np.unique(sizes).tolist()))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:.0f}"))
    panel.grid(alpha=0.25, linewidth=0.6)


def reference_line(panel: Axes, level: float, text: str, *, up: int, line: Any = "-") -> None:
    """A grey line across the panel at a level, with a word on it; up: points that the word stands above the line."""
    panel.axhline(level, color=GREY, linewidth=1, linestyle=line, zorder=1)
    place: dict[str, Any] = {"xycoords": panel.get_yaxis_transform(), "textcoords": "offset points"}
    panel.annotate(text, (0.01, level), (0, up), color=GREY, fontsize=9, **place)


def legend_below(figure: Figure, handles: Mapping[str, Any], columns: int) -> None:
    """One legend for all panels, below them; handles: lines by label."""
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, frameon=False)


def name_axis(panel: Axes, names: Sequence[str], label: str) -> None:
    """A line per name, the first on top; label: of the other axis."""
    panel.set_yticks(np.arange(len(names)), [short(name) for name in names])
    panel.set(ylim=(len(names) - 0.4, -0.6), xlabel=label)
    panel.grid(axis="y", visible=False)


def short(name: str, longest: int = 26) -> str:
    """A name that fits into a figure: its beginning and its end; tables have all of it.

    >>> short("a very long name that nobody can read", 16)
    'a very …can read'
    """
    half = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[half - longest + 1 :]}"


def draw_ratios(panel: Axes, names: Sequence[str], ratios: Floats, unusual: Booleans) -> None:
    """How much bags differ in each, over what random bags show, on a logarithmic axis; the unusual ones are marked."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    value, place = np.maximum(ratios, 1e-3), np.arange(len(names))
    panel.axvline(1, color=GREY, linestyle="--", linewidth=1, label="random bags")
    panel.hlines(place, 1, value, color=GREY, linewidth=1)
    panel.plot(value[~unusual], place[~unusual], "o", color=BLUE, label="as expected")
    if unusual.any():
        panel.plot(value[unusual], place[unusual], "D", color=RED, label="unusual")
    panel.set(xscale="log", xlim=(min(0.5, 0.8 * value.min()), max(2.0, 1.25 * value.max())))
    name_axis(panel, [_FEATURE.sub(r"\1", name) for name in names], "variation, times that of random bags")
    panel.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    panel.xaxis.set_minor_formatter(FuncFormatter(lambda v, _: ""))
    if value.max() < 10:
        panel.xaxis.set_major_locator(MaxNLocator(5))
