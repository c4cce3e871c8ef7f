"""What the demo shows: the lines, the table and the figure of a result."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from rich.box import SIMPLE_HEAD
from rich.table import Table

from bagwise.demo.walkthrough import CEILING, CONSTANT, NAIVE, RIDGE, DemoResult
from bagwise.estimates import Estimate
from bagwise.plotting import BLUE, DARK_GREEN, DARK_GREY, LIGHT_GRID, RED

_COLOUR = {RIDGE: BLUE, NAIVE: RED, CONSTANT: DARK_GREY, CEILING: DARK_GREEN}
_MARKER = {RIDGE: "o", NAIVE: "s"}
_INTERVAL: dict[str, Any] = {"linewidth": 2.2, "markersize": 8, "solid_capstyle": "round"}
_TRUTH: dict[str, Any] = {"marker": "|", "color": "black", "markeredgewidth": 2, "linestyle": ""}


def story(result: DemoResult) -> Iterator[str]:
    """What happened, in short lines."""
    (constant,), (ceiling,) = result.of(CONSTANT), result.of(CEILING)
    (ridge,) = (row for row in result.of(RIDGE) if row.size == result.size)
    yield f"A simulated advertising log: {result.impressions:,} impressions, {result.prior:.1%} of them converted."
    yield f"Conversions are reported for {result.bags:,} bags of {result.size} impressions, never for one alone."
    yield f"The diagnosis finds the bags {result.verdict}."
    yield f"A linear model learned from the bags is right on {ridge.accuracy:.1%} of the impressions it has not seen;"
    yield f"from held-out bags, without any label, that was estimated as {_interval(ridge.estimated_accuracy, '.1%')}."
    yield f"Always guessing the same: {constant.accuracy:.1%}. Learning from individual labels: {ceiling.accuracy:.1%}."
    yield f"Knowing every true probability: {result.best_accuracy:.1%}."


def table(result: DemoResult) -> Table:
    """Each method's truth and, beside it, the estimate from held-out bags with its 95% interval."""
    view = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    view.add_column("bag size", justify="right")
    view.add_column("method", no_wrap=True)
    for loss in ("accuracy", "Brier"):
        view.add_column(loss, justify="right")
        view.add_column("label-free", justify="right", no_wrap=True)
    for row, following in zip_longest(result.rows, result.rows[1:]):
        view.add_row(
            "any" if row.size is None else str(row.size),
            row.method,
            f"{row.accuracy:.3f}",
            _interval(row.estimated_accuracy, ".3f"),
            f"{row.brier:.3f}",
            _interval(row.estimated_brier, ".3f"),
            end_section=following is not None and following.size != row.size,
        )
    return view


def after(folder: Path) -> Iterator[str]:
    """How to read the table, where the files are, and what to do next."""
    yield "label-free: estimated from held-out bags, ± 95% interval; beside it the truth, which only a simulation knows"
    yield ""
    yield f"Written to {folder}: events.parquet (features and bag, no labels), reports.parquet, demo.png"
    yield ""
    events, reports, model = (folder / name for name in ("events.parquet", "reports.parquet", "model"))
    yield "Next, learn from the two tables yourself:"
    yield ""
    yield f"    bagwise diagnose {events} {reports}"
    yield f"    bagwise fit {events} {reports} --model boosting --out {model}"
    yield f"    bagwise evaluate {model}"
    yield f"    bagwise predict {model} {events} --out {folder / 'scored.parquet'}"
    yield ""
    yield "or in Python:"
    yield ""
    yield "    import bagwise as bw, pandas as pd"
    yield f"    events = pd.read_parquet({str(events)!r})"
    yield f"    reports = pd.read_parquet({str(reports)!r})"
    yield '    bags = bw.Bags.from_reports(events.pop("bag"), reports, count="count", size="size")'
    yield "    X = pd.get_dummies(events, dtype=float)"
    yield "    model = bw.BagRidgeClassifier().fit(X, bags=bags)"
    yield "    model.predict_proba(X)  # one probability per impression"
    yield ""
    yield "Or see in a simulation what the size of bags does to the losses: bagwise reproduce variance"


def _interval(estimate: Estimate | None, form: str) -> str:
    """An estimate ± half of its interval; empty where there is none."""
    if estimate is None:
        return ""
    return f"{estimate.value:{form}} ± {(estimate.high - estimate.low) / 2:{form}}"


# -- the figure ---------------------------------------------------------------------------------------------------


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
