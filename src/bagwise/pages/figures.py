"""Figures of models and bags: small, so that they can be read on a phone, and told apart without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from bagwise.evaluation import Curve
from bagwise.pages.funnel import Funnel
from bagwise.plotting import BLACK, BLUE, GREY, RED
from bagwise.utils.typing import Booleans

Interval = Mapping[str, float]
"""value, low and high of an estimate."""

_WIDTH, _HEIGHT = 4.6, 3.7
_LONGEST = 26  # letters of a name in a figure; tables have all of them
POINTS = 2_000  # bags drawn; they are numbered as if at random, so the first are as good as any


def calibration(curve: Curve, level: float) -> Figure:
    """Rates of positives against mean predictions, with intervals."""
    figure, panel = _panel()
    right = min(1.0, 1.08 * float(curve.x.max()))
    # Nothing is clipped: with few bags an estimated rate may lie outside of what is possible, and is shown there.
    low, high = min(0.0, float(curve.y.min()) - 0.03), max(right, float(curve.y.max()) + 0.03)
    panel.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="perfect")
    _band(panel, curve, level)
    panel.plot(curve.x, curve.y, color=BLUE, marker="o", markersize=4.5, linewidth=1.4, label="groups of rows")
    high = max(high, min(1.0, float(curve.y_high.max()) * 1.02))
    panel.set(xlim=(0, right), ylim=(low, high), xlabel="mean prediction", ylabel="rate of positives")
    return _with_legend(figure, panel)


def roc(curve: Curve, level: float) -> Figure:
    """Rates of true positives against rates of false ones."""
    figure, panel = _panel()
    panel.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="chance")
    _band(panel, curve, level)
    panel.plot(curve.x, curve.y, color=BLUE, marker="o", markersize=4.5, linewidth=1.4, label="model")
    low, high = min(0.0, float(curve.y.min()) - 0.03), max(1.02, float(curve.y.max()) + 0.03)
    panel.set(xlim=(-0.02, 1.02), ylim=(low, high), xlabel="rate of false positives", ylabel="rate of true positives")
    return _with_legend(figure, panel)


def _band(panel: Axes, curve: Curve, level: float) -> None:
    order = np.argsort(curve.x, kind="stable")
    panel.fill_between(
        curve.x[order],
        curve.y_low[order],
        curve.y_high[order],
        color=BLUE,
        alpha=0.18,
        linewidth=0,
        label=f"{level:.0%} interval",
    )


def agreement(funnel: Funnel) -> Figure:
    """Reported against predicted proportions, one point per bag; where bags have one size, with limits."""
    figure, panel = _panel()
    x, y, outside = (values[:POINTS] for values in (funnel.predicted, funnel.reported, funnel.is_outside))
    left, right = _range(x)
    low, high = _range(np.concatenate([y, [left, right]]))
    ends = np.array([left, right])
    panel.plot(ends, ends, color=GREY, linestyle="--", linewidth=1, label="as predicted")
    if funnel.usual_size is not None:
        for (name, limit), line in zip(funnel.limits(np.array([funnel.usual_size])).items(), ("-", ":"), strict=True):
            for sign, label in ((1, f"limits, {name}"), (-1, None)):
                panel.plot(ends, ends + sign * limit[0], color=BLACK, linestyle=line, linewidth=1, label=label)
    _points(panel, x, y, outside)
    panel.set(xlim=(left, right), ylim=(low, high), xlabel="mean prediction of the bag", ylabel="reported proportion")
    return _with_legend(figure, panel)


def funnel(found: Funnel, ylabel: str) -> Figure:
    """Reported less expected proportion against the size of bags, in the funnel where random bags should stay."""
    figure, panel = _panel()
    size, gap, outside = (values[:POINTS] for values in (found.size, found.gap, found.is_outside))
    panel.axhline(0, color=GREY, linestyle="--", linewidth=1)
    k = np.geomspace(found.size.min(), found.size.max(), 80)
    for (name, limit), line in zip(found.limits(k).items(), ("-", ":"), strict=True):
        for sign, label in ((1, f"limits, {name}"), (-1, None)):
            panel.plot(k, sign * limit, color=BLACK, linestyle=line, linewidth=1, label=label)
    _points(panel, size, gap, outside)
    edge = 1.15 * max(float(np.abs(gap).max()), float(found.limits(np.quantile(size, [0.25]))["99.8%"][0]))
    panel.set(xlabel="rows in the bag", ylabel=ylabel, ylim=(-edge, edge))
    _size_scale(panel, found.size)
    return _with_legend(figure, panel)


def _points(panel: Axes, x: NDArray[Any], y: NDArray[Any], outside: Booleans) -> None:
    alpha = float(np.clip(60 / np.sqrt(len(x) + 1) / 4, 0.25, 0.8))
    dot: dict[str, Any] = {"linestyle": "none", "zorder": 2.5}
    panel.plot(
        x[~outside], y[~outside], "o", color=BLUE, markersize=3.5, markeredgewidth=0, alpha=alpha, label="bag", **dot
    )
    if outside.any():
        panel.plot(x[outside], y[outside], "^", color=RED, markersize=5, label="bag outside 99.8%", **dot)


def sizes(size: NDArray[Any]) -> Figure:
    """How many bags have how many rows."""
    figure, panel = _panel(height=3.0)
    low, high = int(size.min()), int(size.max())
    if high - low < 30:
        edges = np.arange(low, high + 2) - 0.5
    elif high > 20 * low:
        edges = np.unique(np.geomspace(low, high + 1, 31).round()) - 0.5
        panel.set_xscale("log")
    else:
        edges = np.linspace(low - 0.5, high + 0.5, 31)
    panel.hist(size, bins=edges, color=BLUE, linewidth=0.5, edgecolor="white")  # type: ignore[arg-type]
    panel.set(xlabel="rows in the bag", ylabel="bags")
    panel.grid(axis="x", visible=False)
    if panel.get_xscale() == "log":
        _size_scale(panel, size)
    else:
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return figure


def proportions(funnel: Funnel, expected: tuple[NDArray[Any], NDArray[Any]]) -> Figure:
    """How many bags report which proportion, beside what random bags would show: (edges, bags) of a histogram."""
    edges, bags = expected
    figure, panel = _panel()
    panel.hist(funnel.reported, bins=edges, color=BLUE, alpha=0.75, linewidth=0, label="bags")  # type: ignore[arg-type]
    panel.stairs(bags, edges, color=BLACK, linewidth=1.4, label="random bags")
    panel.set(xlabel="reported proportion", ylabel="bags")
    panel.grid(axis="x", visible=False)
    panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return _with_legend(figure, panel)


def bars(names: Sequence[str], values: Sequence[float], xlabel: str) -> Figure:
    """A horizontal bar per name, the first on top."""
    figure, panel = _panel(height=0.9 + 0.26 * len(names))
    panel.barh(np.arange(len(names)), values, color=BLUE, height=0.62)
    _names(panel, names)
    panel.set_xlabel(xlabel)
    panel.xaxis.set_major_locator(MaxNLocator(5))
    return figure


def ratios(names: Sequence[str], values: Sequence[float], unusual: Sequence[bool]) -> Figure:
    """How much bags differ in each column, over what random bags show; the unusual ones are marked."""
    figure, panel = _panel(height=1.25 + 0.26 * len(names))
    place, value, marked = np.arange(len(names)), np.asarray(values), np.asarray(unusual, dtype=bool)
    panel.axvline(1, color=GREY, linestyle="--", linewidth=1, label="random bags")
    panel.hlines(place, 1, value, color=GREY, linewidth=1)
    panel.plot(value[~marked], place[~marked], "o", color=BLUE, label="as expected")
    if marked.any():
        panel.plot(value[marked], place[marked], "D", color=RED, label="unusual")
    panel.set_xscale("log")
    panel.set_xlim(min(0.5, 0.8 * value.min()), max(2.0, 1.25 * value.max()))
    _names(panel, names)
    panel.set_xlabel("variation, times that of random bags")
    panel.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    panel.xaxis.set_minor_formatter(FuncFormatter(lambda v, _: ""))
    if value.max() < 10:
        panel.xaxis.set_major_locator(MaxNLocator(5))
    return _with_legend(figure, panel)


def intervals(names: Sequence[str], found: Sequence[Interval], xlabel: str, guess: float | None) -> Figure:
    """An estimate with its interval per name; guess: the constant guess's."""
    figure, panel = _panel(height=1.25 + 0.3 * len(names))
    value, low, high = (np.array([one[part] for one in found]) for part in ("value", "low", "high"))
    place = np.arange(len(names))
    if guess is not None:
        panel.axvline(guess, color=RED, linestyle="--", linewidth=1.2, label="constant guess")
    panel.errorbar(value, place, xerr=[value - low, high - value], fmt="o", color=BLUE, capsize=3, label="model")
    _names(panel, names)
    panel.set_xlabel(xlabel)
    panel.xaxis.set_major_locator(MaxNLocator(5))
    return _with_legend(figure, panel)


# -- what they share ----------------------------------------------------------------------------------------------


def short(name: str, longest: int = _LONGEST) -> str:
    """A name that fits into a figure: its beginning and its end.

    >>> short("a very long name that nobody can read", 16)
    'a very …can read'
    """
    half = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[half - longest + 1 :]}"


def _panel(height: float = _HEIGHT) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06)  # type: ignore[union-attr,call-arg]
    return figure, figure.subplots()


def _with_legend(figure: Figure, panel: Axes) -> Figure:
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _names(panel: Axes, names: Sequence[str]) -> None:
    panel.set_yticks(np.arange(len(names)), [short(name) for name in names])
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.grid(axis="y", visible=False)


def _range(values: NDArray[Any]) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.08 * (high - low) or 0.05
    return low - margin, high + margin


def _size_scale(panel: Axes, size: NDArray[Any]) -> None:
    if size.max() > 5 * size.min():
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:,.0f}"))
