"""Parts that several pages share: figures with their words, tables of numbers, how to make it all again.

Figures are small, so that they can be read on a phone, and told apart without colour.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

import bagwise
from bagwise.diagnostics import Diagnosis
from bagwise.dispersion import LEAST_SHOWN, Finding
from bagwise.estimates import Estimate
from bagwise.evaluation import Curve
from bagwise.pages import svg
from bagwise.pages.page import Bullets, Code, Part, Picture, Pictures, Section, Table
from bagwise.pages.verdicts import held_by, interval
from bagwise.plotting import BLUE, GREY, RED
from bagwise.tables import Summary
from bagwise.utils.text import number_of
from bagwise.utils.typing import Floats, Integers

_BARS = 15  # columns drawn; tables hold more
_LINES = 200  # lines of a folded table
_LONGEST = 26  # letters of a name in a figure; tables have all of them


def picture(
    make: Callable[[], Figure], name: str, title: str, told: str, caption: str, table: Table | None = None
) -> Picture:
    """A figure with its words. name: of its own on the page.  told: what there is to be seen, with the main numbers."""
    return Picture(svg.inline(make, name=name, title=title, description=told), caption, table)


def one_panel(draw: Callable[[Axes], None], height: float = 3.7, margin: float = 0.06) -> Figure:
    """A figure of one panel, with a legend below where there is something to explain."""
    figure = Figure(figsize=(4.6, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=margin, h_pad=margin)  # type: ignore[union-attr,call-arg]
    panel = figure.subplots()
    draw(panel)
    handles, labels = panel.get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def curve_picture(curve: Curve, level: float, auc: Estimate | None = None) -> Picture:
    """Calibration, or the ROC curve where its area is given.

    Nothing is clipped: with few bags an estimate may lie outside of what is possible, and is shown there.
    """
    highest = float(curve.y.max()) + 0.03
    if auc is None:
        name, title, diagonal, points = "calibration", "Calibration", "perfect", "groups of rows"
        caption = "Rows are grouped by their prediction. On the dashed line, probabilities are right."
        told = f"The interval holds the mean prediction in {held_by(curve)} of {len(curve.x)} groups of rows."
        head = labels = ["mean prediction", "rate of positives"]
        left, right = 0.0, min(1.0, 1.08 * float(curve.x.max()))
        top = max(right, highest, min(1.0, float(curve.y_high.max()) * 1.02))
    else:
        name, title, diagonal, points = "roc", "ROC curve", "chance", "model"
        caption = f"Rows above a threshold, for ten thresholds. The area under the curve is {interval(auc)}."
        told = f"True against false positives; the area under the curve is {interval(auc)}, that of chance 0.5."
        head, labels = ["false positives", "true positives"], ["rate of false positives", "rate of true positives"]
        left, right, top = -0.02, 1.02, max(1.02, highest)
    values = zip(curve.x, curve.y, curve.y_low, curve.y_high, strict=True)
    rows = [[f"{value:.4f}" for value in point] for point in values]
    table = Table(f"{title}, with {level:.0%} intervals", [*head, "low", "high"], rows, "rrrr")

    def draw(panel: Axes) -> None:
        panel.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label=diagonal)
        order = np.argsort(curve.x, kind="stable")
        band = curve.x[order], curve.y_low[order], curve.y_high[order]
        panel.fill_between(*band, color=BLUE, alpha=0.18, linewidth=0, label=f"{level:.0%} interval")
        panel.plot(curve.x, curve.y, color=BLUE, marker="o", markersize=4.5, linewidth=1.4, label=points)
        panel.set(ylim=(min(0.0, float(curve.y.min()) - 0.03), top), xlim=(left, right))
        panel.set(xlabel=labels[0], ylabel=labels[1])

    return picture(partial(one_panel, draw), name, title, told, f"{title}. {caption}", table)


def sizes(size: Integers) -> tuple[str, list[Picture]]:
    """How large the bags are, in a sentence, and as a histogram where they differ."""
    low, high, middle = int(size.min()), int(size.max()), int(np.median(size))
    if low == high:
        return f"Every bag has {number_of(low, 'row')}.", []
    told = f"{len(size):,} bags of {low:,} to {high:,} rows, median {middle:,}."
    quantiles = np.quantile(size, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1], method="inverted_cdf")
    names = ("smallest", "5%", "25%", "median", "75%", "95%", "largest")
    rows = [[label, f"{int(value):,}"] for label, value in zip(names, quantiles, strict=True)]
    table = Table("Sizes of bags", ["share of bags", "rows"], rows)

    def draw(panel: Axes) -> None:
        edges: Floats = np.linspace(low - 0.5, high + 0.5, 31)
        if high - low < 30:
            edges = np.arange(low, high + 2) - 0.5
        elif high > 20 * low:
            edges = np.unique(np.geomspace(low, high + 1, 31).round()) - 0.5
            size_scale(panel, size)
        else:
            panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panel.hist(size, bins=edges, color=BLUE, linewidth=0.5, edgecolor="white")  # type: ignore[arg-type]
        panel.set(xlabel="rows in the bag", ylabel="bags")
        panel.grid(axis="x", visible=False)
        panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))

    caption = "Sizes of bags: how many bags have how many rows."
    return told, [picture(partial(one_panel, draw, 3.0), "sizes", "Sizes of bags", told, caption, table)]


def size_scale(panel: Axes, size: Integers) -> None:
    """Ticks for sizes of bags, on a logarithmic axis where they differ much."""
    if size.max() > 5 * size.min():
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:,.0f}"))


def driver_parts(sensitivity: Mapping[str, float]) -> list[Part]:
    """Which columns move the predictions."""
    if not sensitivity:
        return ["The model's file does not tell."]
    title, names, values = "What moves the predictions", list(sensitivity), list(sensitivity.values())
    rows = [[name, f"{value:.4f}"] for name, value in sensitivity.items()]
    first = ", ".join(" ".join(row) for row in rows[:5])
    told = f"Mean change of a prediction when a column is shuffled among rows: {first}."
    table = Table("Mean change of a prediction when a column is shuffled", ["column", "change"], rows[:_LINES])
    more = f" The first {_BARS} of {len(names)} columns." if len(names) > _BARS else ""
    caption = f"{title}: the mean change when one column is shuffled among rows and all others stay.{more}"
    bars = len(names[:_BARS])

    def draw(panel: Axes) -> None:
        panel.barh(np.arange(bars), values[:_BARS], color=BLUE, height=0.62)
        name_axis(panel, names[:_BARS], "mean change of a prediction")
        panel.xaxis.set_major_locator(MaxNLocator(5))

    make = partial(one_panel, draw, 0.9 + 0.26 * bars)
    return [Pictures([picture(make, "drivers", title, told, caption, table)])]


def name_axis(panel: Axes, names: Sequence[str], label: str) -> None:
    """A line per name, the first on top; label: of the other axis."""
    panel.set_yticks(np.arange(len(names)), [short(name) for name in names])
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.grid(axis="y", visible=False)
    panel.set_xlabel(label)


def short(name: str, longest: int = _LONGEST) -> str:
    """A name that fits into a figure: its beginning and its end.

    >>> short("a very long name that nobody can read", 16)
    'a very …can read'
    """
    half = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[half - longest + 1 :]}"


def capital(text: str) -> str:
    """The same, as a sentence begins."""
    return f"{text[:1].upper()}{text[1:]}"


def finding_parts(found: Diagnosis) -> list[Part]:
    """What was tested, and what is unusual."""
    tests = [found.proportions, *found.features, *found.drift]
    tested = sorted((one for one in tests if not np.isnan(one.p_value)), key=lambda one: (one.p_value, one.name))
    unusual = sum(one.p_value < found.level for one in tested)
    spread = [one for one in (found.proportions, *found.features) if not np.isnan(one.ratio)]
    shown = sorted(spread, key=lambda one: -abs(np.log(max(one.ratio, 1e-3))))[:_BARS]
    head = ["what was tested", "times that of random bags", "p-value"]
    p_values = [f"{p:.2g}" if (p := one.p_value) >= LEAST_SHOWN else f"< {LEAST_SHOWN:g}" for one in tested]
    rows = [[one.name, f"{one.ratio:.3g}", p_value] for one, p_value in zip(tested, p_values, strict=True)]
    return [
        *([Pictures([_ratios(shown, found.level)])] if shown else []),
        *([Table("What random bags would hardly show", head, rows[: min(unusual, 10)])] if unusual else []),
        Table("All tests", head, rows[:_LINES], folded=True),
        *([f"Not testable: {', '.join(found.untestable[:20])}."] if found.untestable else []),
    ]


def _ratios(shown: Sequence[Finding], level: float) -> Picture:
    """How much bags differ in each column, over what random bags show; the unusual ones are marked."""
    title = "How much bags differ, column by column"
    unusual, value = np.array([one.p_value < level for one in shown]), np.array([one.ratio for one in shown])
    told = f"{unusual.sum()} of the {len(shown)} drawn are unusual; the largest ratio is {value.max():.3g}."
    caption = f"{title}: variation between bags over that between random bags; 1 is what chance gives."
    value, place = np.maximum(value, 1e-3), np.arange(len(shown))

    def draw(panel: Axes) -> None:
        panel.axvline(1, color=GREY, linestyle="--", linewidth=1, label="random bags")
        panel.hlines(place, 1, value, color=GREY, linewidth=1)
        panel.plot(value[~unusual], place[~unusual], "o", color=BLUE, label="as expected")
        if unusual.any():
            panel.plot(value[unusual], place[unusual], "D", color=RED, label="unusual")
        panel.set(xscale="log", xlim=(min(0.5, 0.8 * value.min()), max(2.0, 1.25 * value.max())))
        name_axis(panel, [one.subject for one in shown], "variation, times that of random bags")
        panel.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        panel.xaxis.set_minor_formatter(FuncFormatter(lambda v, _: ""))
        if value.max() < 10:
            panel.xaxis.set_major_locator(MaxNLocator(5))

    return picture(partial(one_panel, draw, 1.25 + 0.26 * len(shown)), "spread", title, told, caption)


def summary_parts(summary: Summary) -> list[Part]:
    """What came of the join."""
    left_out = [f"Left out: {one}." for one in summary.mismatches]
    return [str(replace(summary, mismatches=())), *([Bullets(left_out)] if left_out else [])]


def again(
    command: str | None, facts: Sequence[str], made_with: Sequence[Mapping[str, str]], also: Sequence[Part] = ()
) -> Section:
    """How to make a page, and what it tells of, again. made_with: versions of what made the results, by name."""
    here = {"bagwise": bagwise.__version__, "python": platform.python_version()}
    here |= {name: version(name) for name in ("numpy", "scipy", "matplotlib")}
    names = dict.fromkeys(name for versions in (*made_with, here) for name in versions)
    then = {name: sorted({versions[name] for versions in made_with if name in versions}) for name in names}
    rows = [[name, *([", ".join(then[name]) or "–"] if made_with else []), here.get(name, "–")] for name in names]
    head = ["", *(["of the results"] if made_with else []), "of this page"]
    this: list[Part] = ["This page:", Code(command)] if command else []
    listed = [Bullets(facts)] if facts else []
    return Section("again", "How to reproduce", [*this, *also, *listed, Table("Versions", head, rows, "lll")])
