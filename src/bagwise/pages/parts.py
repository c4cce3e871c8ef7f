"""Parts that several pages share: verdicts in plain words, figures with theirs, tables, how to make it all again.

Figures are small, so that they can be read on a phone, and told apart without colour.
"""

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

import bagwise
from bagwise.diagnostics import Diagnosis
from bagwise.dispersion import Finding
from bagwise.evaluation import Curve, Evaluation
from bagwise.evaluation.measures import ENOUGH_BAGS
from bagwise.metrics import Estimate
from bagwise.pages.page import GOOD, POOR, STYLE, UNSURE, Bullets, Code, Part, Picture, Pictures, Section, Table, inline
from bagwise.plotting import BLUE, GREY, draw_ratios, name_axis
from bagwise.tables import Summary
from bagwise.utils.text import number_of
from bagwise.utils.typing import Floats, Integers

_BARS = 15  # columns drawn; tables hold more
_LINES = 200  # lines of a folded table
_WIDE = 0.2  # an AUC's interval that is wider says little about how well a model ranks
_FAR = 4.0  # standard errors by which a mean prediction is plainly off
_RANKS = {0.9: "very well", 0.75: "well", 0.65: "fairly well"}  # from this AUC on


def picture(figure: Figure, name: str, title: str, told: str, caption: str, table: Table | None = None) -> Picture:
    """A figure with its words. name: of its own on the page.  told: what there is to be seen, with the main numbers."""
    return Picture(inline(figure, name=name, title=title, description=told), caption, table)


@contextmanager
def one_panel(height: float = 3.7, margin: float = 0.06) -> Iterator[tuple[Figure, Axes]]:
    """A figure of one panel to draw in; it gets a legend below where there is something to explain."""
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(4.6, height), layout="constrained")
        figure.get_layout_engine().set(w_pad=margin, h_pad=margin)  # type: ignore[union-attr,call-arg]
        panel = figure.subplots()
        yield figure, panel
        handles, labels = panel.get_legend_handles_labels()
        if labels:
            figure.legend(handles, labels, loc="outside lower center", ncols=2)


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
    rows = [[f"{one:.4f}" for one in point] for point in zip(curve.x, curve.y, curve.y_low, curve.y_high, strict=True)]
    table = Table(f"{title}, with {level:.0%} intervals", [*head, "low", "high"], rows, "rrrr")
    with one_panel() as (figure, panel):
        panel.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label=diagonal)
        order = np.argsort(curve.x, kind="stable")
        band = curve.x[order], curve.y_low[order], curve.y_high[order]
        panel.fill_between(*band, color=BLUE, alpha=0.18, linewidth=0, label=f"{level:.0%} interval")
        panel.plot(curve.x, curve.y, color=BLUE, marker="o", markersize=4.5, linewidth=1.4, label=points)
        panel.set(ylim=(min(0.0, float(curve.y.min()) - 0.03), top), xlim=(left, right))
        panel.set(xlabel=labels[0], ylabel=labels[1])
    return picture(figure, name, title, told, f"{title}. {caption}", table)


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
    with one_panel(3.0) as (figure, panel):
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
    return told, [picture(figure, "sizes", "Sizes of bags", told, caption, table)]


def size_scale(panel: Axes, size: Integers) -> None:
    """Ticks for sizes of bags, on a logarithmic axis where they differ much."""
    if size.max() > 5 * size.min():
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
        if size.max() < 1000 * size.min():  # powers of ten alone would be few
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
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
    bars = min(len(names), _BARS)
    with one_panel(0.9 + 0.26 * bars) as (figure, panel):
        panel.barh(np.arange(bars), values[:_BARS], color=BLUE, height=0.62)
        name_axis(panel, names[:_BARS], "mean change of a prediction")
        panel.xaxis.set_major_locator(MaxNLocator(5))
    return [Pictures([picture(figure, "drivers", title, told, caption, table)])]


def capital(text: str) -> str:
    """The same, as a sentence begins."""
    return f"{text[:1].upper()}{text[1:]}"


def finding_parts(found: Diagnosis) -> list[Part]:
    """What was tested, and what is unusual."""
    tests, unusual, shown = found.tests, len(found.unusual), found.most_unusual(_BARS)
    head = ["what was tested", "times that of random bags", "p-value"]
    rows = [[one.name, f"{one.ratio:.3g}", one.p_text] for one in tests]
    return [
        Pictures([_ratios(shown, found.level)] if shown else []),
        *([Table("What random bags would hardly show", head, rows[: min(unusual, 10)])] if unusual else []),
        Table("All tests", head, rows[:_LINES], folded=True),
        f"Not testable: {', '.join(found.untestable[:20])}." if found.untestable else "",
    ]


def _ratios(shown: Sequence[Finding], level: float) -> Picture:
    """How much bags differ in each column, over what random bags show; the unusual ones are marked."""
    title = "How much bags differ, column by column"
    unusual, value = np.array([one.p_value < level for one in shown]), np.array([one.ratio for one in shown])
    told = f"{unusual.sum()} of the {len(shown)} drawn are unusual; the largest ratio is {value.max():.3g}."
    caption = f"{title}: variation between bags over that between random bags; 1 is what chance gives."
    with one_panel(1.25 + 0.26 * len(shown)) as (figure, panel):
        draw_ratios(panel, [one.subject for one in shown], value, unusual)
    return picture(figure, "spread", title, told, caption)


def summary_parts(summary: Summary) -> list[Part]:
    """What came of the join."""
    return [str(replace(summary, mismatches=())), Bullets(f"Left out: {one}." for one in summary.mismatches)]


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
    return Section("again", "How to reproduce", [*this, *also, Bullets(facts), Table("Versions", head, rows, "lll")])


# -- verdicts ----------------------------------------------------------------------------------------------------------


def interval(found: Estimate | None, digits: int = 2, *, signed: bool = False) -> str:
    """A value with its interval; a dash where there is none.

    >>> interval(Estimate(0.777, 0.01, 0.76, 0.8))
    '0.78 [0.76, 0.80]'
    """
    if found is None:
        return "–"
    form = f"{'+' if signed else ''}.{digits}f"
    return f"{found.value:{form}} [{found.low:{form}}, {found.high:{form}}]".replace("-", "−")


def standing(found: Evaluation, gain: Mapping[str, Estimate]) -> tuple[str, str]:
    """How good a model is, in a word and a sentence, where the bags can tell. gain: over one guess for all rows.

    The word is a good one only if accuracy or Brier score are clearly better than the guess's, by bags enough to tell.
    """
    bags, better = f"{found.n_bags:,} bags", beats(gain)
    clearly = GOOD if better and found.n_bags >= ENOUGH_BAGS else UNSURE
    than = "" if better else ", but it is not clearly better than one guess for all rows"
    if found.auc is None or found.classes:
        right = f"This model is right on a share of {interval(found.accuracy)} of the rows{than}."
        return POOR if gain["accuracy"].high < 0 and not better else clearly, right
    value, low, high, shown = found.auc.value, found.auc.low, found.auc.high, f"AUC {interval(found.auc)}"
    if low <= 0.5 <= high:
        return UNSURE, f"Whether this model ranks rows better than chance, {bags} are too few to tell ({shown})."
    if high < 0.5:
        return POOR, f"This model ranks rows worse than chance ({shown}): something is the wrong way round."
    if high - low > _WIDE:
        return UNSURE, f"This model ranks rows better than chance ({shown}); how well, {bags} are too few to tell."
    how = next((word for least, word in _RANKS.items() if value >= least), None)
    if how is None:
        return UNSURE, f"This model ranks rows a little better than chance ({shown})."
    return clearly, f"This model ranks rows {how} ({shown}){than}."


def beats(gain: Mapping[str, Estimate]) -> bool:
    """Whether accuracy or Brier score is clearly better than the constant guess's; gain: over it, paired."""
    return gain["accuracy"].low > 0 or gain["brier"].high < 0


def gains(gain: Mapping[str, Estimate], guess: float) -> list[str]:
    """What a model is worth beside the constant guess; guess: that one's Brier score."""
    more = _scaled(gain["accuracy"], 100)
    if more.low <= 0 <= more.high:
        points = interval(more, 1, signed=True)
        remarks = [f"Whether it is right more often than the constant guess cannot be told ({points} points)."]
    else:
        off, way = (_scaled(more, -1), "less") if more.high < 0 else (more, "more")
        remarks = [f"It is right {way} often than the constant guess, by {interval(off, 1)} points."]
    if guess > 0:
        larger = _scaled(gain["brier"], 100 / guess)
        if larger.low <= 0 <= larger.high:
            remarks.append("Its square error cannot be told apart from the constant guess's.")
        else:
            off, way = (_scaled(larger, -1), "smaller") if larger.high < 0 else (larger, "larger")
            share = f"{off.value:.0f}% [{off.low:.0f}%, {off.high:.0f}%]"
            remarks.append(f"Its square error is {share} {way} than the constant guess's.")
    return remarks


def _scaled(found: Estimate, factor: float) -> Estimate:
    low, high = sorted((factor * found.low, factor * found.high))
    return Estimate(factor * found.value, abs(factor) * found.standard_error, low, high)


def held_by(curve: Curve) -> int:
    """Groups of rows whose interval holds the mean prediction."""
    return int(((curve.y_low <= curve.x) & (curve.x <= curve.y_high)).sum())


def calibrated(curve: Curve) -> str:
    """Whether probabilities can be taken at their word."""
    groups, inside, width = len(curve.x), held_by(curve), float((curve.y_high - curve.y_low).mean())
    held = f"in {inside} of {groups} groups of rows the interval of the rate of positives holds the mean prediction"
    if groups - inside > max(1, groups // 5):
        return f"Its probabilities are off: {held} only."
    if width > _WIDE:
        return f"Whether its probabilities are right can hardly be told: {held}, but intervals are {width:.2f} wide."
    return f"Its probabilities fit the reports: {held}."


def off_level(predicted: float, reported: float, error: float) -> str | None:
    """What to say if the mean prediction is not what the bags report; error: the difference's standard error."""
    way = "high" if predicted > reported else "low"
    told = f"Its predictions are too {way} on average: {predicted:.3f}, where the bags report {reported:.3f}."
    return None if abs(predicted - reported) <= _FAR * error else told


def bag_table(found: Evaluation) -> Table:
    """What bags tell of a model in every formation."""
    bags = found.bags
    rows = [
        ["log-likelihood of a bag, over that of the mean label", interval(bags.gain, 3, signed=True)],
        ["square error of proportions", interval(bags.error, 4)],
        ["the same of the mean label", interval(bags.constant_error, 4)],
        ["spread of residuals, times what a right model leaves", f"{bags.fit.ratio:.3g} (p {bags.fit.p_text})"],
        ["accuracy on single rows, whatever is true, at least", interval(bags.least_accuracy, 3)],
        ["the same, at most", interval(bags.most_accuracy, 3)],
        ["accuracy on single rows if the model is right", f"{bags.implied['accuracy']:.3f}"],
        ["Brier score if the model is right", f"{bags.implied['brier']:.4f}"],
    ]
    return Table(f"What these bags tell, with {found.level:.0%} intervals", ["", "held-out bags"], rows, "lr")


def bag_calibration_picture(curve: Curve, level: float) -> Picture:
    """Mean predictions of bags and what they reported, bags with similar predictions put together."""
    title = "Calibration by bags"
    told = f"{held_by(curve)} of {len(curve.x)} groups of bags have an interval that holds the mean prediction."
    caption = f"{title}: mean proportion of bags with similar mean predictions, with {level:.0%} intervals."
    with one_panel(3.2) as (figure, panel):
        ends = [float(min(curve.x.min(), curve.y_low.min())), float(max(curve.x.max(), curve.y_high.max()))]
        panel.plot(ends, ends, color=GREY, linestyle="--", linewidth=1, label="calibrated")
        error = [curve.y - curve.y_low, curve.y_high - curve.y]
        panel.errorbar(curve.x, curve.y, yerr=error, fmt="o", color=BLUE, capsize=3, label="bags")
        panel.set(xlabel="mean prediction of bags", ylabel="mean proportion reported")
    return picture(figure, "bag-calibration", title, told, caption)


def cautions(found: Evaluation) -> list[str]:
    """Why the numbers may mislead."""
    told = []
    if found.own_bags and found.doubt is not None:
        told.append(found.doubt)
    if found.n_bags < ENOUGH_BAGS and not found.withheld:
        told.append(f"With {found.n_bags} bags the intervals themselves are rough: {ENOUGH_BAGS} or more are better.")
    return told
