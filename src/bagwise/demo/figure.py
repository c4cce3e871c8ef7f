"""The demo's figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from bagwise.demo.walkthrough import CEILING, CONSTANT, NAIVE, RIDGE, DemoResult
from bagwise.plotting import BLUE, DARK_GREEN, DARK_GREY, LIGHT_GRID, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOUR = {RIDGE: BLUE, NAIVE: RED, CONSTANT: DARK_GREY, CEILING: DARK_GREEN}
_MARKER = {RIDGE: "o", NAIVE: "s"}
_INTERVAL: dict[str, Any] = {"linewidth": 2.2, "markersize": 8, "solid_capstyle": "round"}
_TRUTH: dict[str, Any] = {"marker": "|", "color": "black", "markeredgewidth": 2, "linestyle": ""}


def figure(result: DemoResult) -> Figure:
    """Left, what larger bags cost; right, the label-free estimates beside the truth."""
    picture = Figure(figsize=(11, 4.8), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    left, right = picture.subplots(1, 2)
    _draw_cost(left, result)
    _draw_estimates(right, result)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
    return picture


def _draw_cost(axes: Axes, result: DemoResult) -> None:
    for method, up in {CEILING: 7, CONSTANT: -7}.items():
        (row,) = result.of(method)
        axes.axhline(row.accuracy, color=_COLOUR[method], linestyle=(0, (5, 3)), linewidth=1.4, zorder=1)
        _name(axes, method, (0.99, row.accuracy), (0, up), xycoords=axes.get_yaxis_transform(), ha="right")
    for method, up in {RIDGE: -7, NAIVE: 7}.items():
        sizes = [row.size or 0 for row in result.of(method)]
        accuracy = [row.accuracy for row in result.of(method)]
        axes.plot(sizes, accuracy, color=_COLOUR[method], marker=_MARKER[method], linewidth=2, markersize=8)
        _name(axes, method, (sizes[-1], accuracy[-1]), (0, up), ha="right", fontweight="bold")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.margins(0.12, 0.13)
    axes.grid(axis="y", color=LIGHT_GRID)
    axes.set_title("What larger bags cost", loc="left", fontweight="bold")
    axes.set(xlabel="impressions per bag", ylabel="accuracy on single held-out impressions")


def _draw_estimates(axes: Axes, result: DemoResult) -> None:
    for method, shift in {RIDGE: -0.13, NAIVE: 0.13}.items():
        for place, row in enumerate(result.of(method)):
            if (estimate := row.estimated_accuracy) is None:
                continue
            x, y = [estimate.low, estimate.value, estimate.high], place + shift
            axes.plot(x, [y] * 3, color=_COLOUR[method], marker=_MARKER[method], markevery=[1], **_INTERVAL)
            axes.plot(row.accuracy, y, markersize=18, **_TRUTH)
            if place == 0:
                end, right, side = (x[0], -8, "right") if method == RIDGE else (x[2], 8, "left")
                _name(axes, method, (end, y), (right, 0), ha=side, fontweight="bold")
    sizes = [row.size for row in result.of(RIDGE)]
    axes.set_yticks(range(len(sizes)), [f"bags of {size}" for size in sizes])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(sizes) - 0.6, -0.62)
    axes.grid(axis="x", color=LIGHT_GRID)
    axes.set_title("Measured without labels, beside the truth", loc="left", fontweight="bold")
    axes.set(xlabel="accuracy")
    keys = [
        Line2D([], [], color=_COLOUR[CONSTANT], marker="o", label="estimate, 95% interval", **_INTERVAL),
        Line2D([], [], markersize=14, label="truth", **_TRUTH),
    ]
    axes.legend(handles=keys, loc="upper right", ncols=2, frameon=False, columnspacing=1, handlelength=1.6)


def _name(axes: Axes, method: str, at: tuple[Any, float], offset: tuple[int, int], **style: Any) -> None:
    """Write a method's name, in its colour, where its line ends."""
    side = {0: "center", 7: "bottom", -7: "top"}[offset[1]]
    axes.annotate(method, at, offset, textcoords="offset points", va=side, color=_COLOUR[method], **style)
