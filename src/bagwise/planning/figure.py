"""The figure of a plan: regret against the bag size, a curve per ε; beside it what a pilot measured."""

from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from bagwise.planning.question import KINDS
from bagwise.plotting import COLOURS, GREY, MARKERS, dodge, legend_below, reference_line, size_axis

_LINES: dict[str, Any] = {"guaranteed": "--", "likely": "-.", "expected": "-", "impossible": ":"}


def plan_figure(
    found: pd.DataFrame,
    *,
    regret: float | None = None,
    measured: pd.DataFrame | None = None,
    figure: Figure | None = None,
) -> Figure:
    """Left, regret (or, where no rows were given, bags) by bag size; right, accuracy in a pilot.

    found: as `planning.curves` returns it.  measured: as `planning.pilot` does.  figure: to draw in; new if None.
    """
    panels = 1 if measured is None else 2
    if figure is None:
        figure = Figure(figsize=(6.2 * panels + 0.6, 4.8), layout="constrained")
    grid = figure.subplots(1, panels, squeeze=False)[0]
    marks = zip(cycle(COLOURS), cycle(MARKERS))
    looks: dict[str, dict[str, Any]] = {
        name: {"color": colour, "marker": marker, "markersize": 4.5}
        for name, (colour, marker) in zip(found["epsilon"].map(_name).unique(), marks, strict=False)
    }
    _draw_bounds(grid[0], found, looks, regret)
    if measured is not None:
        _draw_pilot(grid[1], measured, looks)
    handles = {name: Line2D([], [], **look) for name, look in looks.items()}
    handles |= {name: Line2D([], [], color=GREY, linestyle=_LINES[kind]) for kind, name in KINDS.items()}
    legend_below(figure, handles, 3)
    return figure


def _name(epsilon: float) -> str:
    return "no noise" if np.isnan(epsilon) else f"ε = {epsilon:g}"


def _draw_bounds(panel: Axes, found: pd.DataFrame, looks: dict[str, dict[str, Any]], regret: float | None) -> None:
    what = "regret" if "regret_expected" in found else "bags"
    for place, (name, look) in enumerate(looks.items()):
        rows = found[found["epsilon"].map(_name) == name].replace([np.inf], np.nan)
        x = rows["k"] * dodge(place, len(looks))
        for kind, line in _LINES.items():
            panel.plot(x, rows[f"{what}_{kind}"], linestyle=line, linewidth=1.5, **look)
    if what == "regret" and regret is not None:
        reference_line(panel, regret, f"wanted: {regret:g}", up=3)
    panel.set(xlabel="bag size k", yscale="log", ylabel="regret" if what == "regret" else f"bags for regret {regret:g}")
    form = (lambda v, _: f"{v:g}") if what == "regret" else (lambda v, _: f"{v:,.0f}")
    panel.yaxis.set_major_formatter(FuncFormatter(form))
    size_axis(panel, found["k"])


def _draw_pilot(panel: Axes, measured: pd.DataFrame, looks: dict[str, dict[str, Any]]) -> None:
    for place, (name, look) in enumerate(looks.items()):
        rows = measured[measured["epsilon"].map(_name) == name].sort_values("k")
        reach = np.abs(rows[["accuracy_low", "accuracy_high"]].to_numpy().T - rows["accuracy"].to_numpy())
        x = rows["k"] * dodge(place, len(looks))
        panel.errorbar(x, rows["accuracy"], yerr=reach, capsize=3, linewidth=1.5, **look)
    panel.set(xlabel="bag size k", ylabel="accuracy on held-out rows of the pilot")
    size_axis(panel, measured["k"])
