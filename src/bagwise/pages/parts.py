"""Parts that several pages share: figures with their words, tables of numbers, how to make it all again."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version

import numpy as np
from matplotlib.figure import Figure

import bagwise
from bagwise.diagnostics import Diagnosis
from bagwise.dispersion import Finding
from bagwise.estimates import Estimate
from bagwise.evaluation import Curve
from bagwise.pages import figures, svg
from bagwise.pages.figures import LEVELS, Funnel, expected_histogram
from bagwise.pages.page import Bullets, Code, Part, Picture, Pictures, Section, Table, Text
from bagwise.pages.verdicts import interval
from bagwise.tables import BagTable, Summary
from bagwise.utils.text import number_of
from bagwise.utils.typing import Integers

_BARS = 15  # columns drawn; tables hold more
_LINES = 200  # lines of a folded table


def picture(
    draw: Callable[[], Figure], name: str, title: str, told: str, caption: str, table: Table | None = None
) -> Picture:
    """A figure with its words. name: of its own on the page.  told: what there is to be seen, with the main numbers."""
    return Picture(svg.inline(draw, name=name, title=title, description=told), caption, table)


def curve_picture(name: str, curve: Curve, level: float, auc: Estimate | None = None) -> Picture:
    """Calibration, or the ROC curve where its area is given."""
    if auc is None:
        title, caption = (
            "Calibration",
            "Rows are grouped by their prediction. On the dashed line, probabilities are right.",
        )
        inside = int(((curve.y_low <= curve.x) & (curve.x <= curve.y_high)).sum())
        told = f"The interval holds the mean prediction in {inside} of {len(curve.x)} groups of rows."
        head, draw = ["mean prediction", "rate of positives", "low", "high"], figures.calibration
    else:
        title = "ROC curve"
        caption = f"Rows above a threshold, for ten thresholds. The area under the curve is {interval(auc)}."
        told = f"True against false positives; the area under the curve is {interval(auc)}, that of chance 0.5."
        head, draw = ["false positives", "true positives", "low", "high"], figures.roc
    points = zip(curve.x, curve.y, curve.y_low, curve.y_high, strict=True)
    rows = [[f"{value:.4f}" for value in point] for point in points]
    table = Table(f"{title}, with {level:.0%} intervals", head, rows, "rrrr")
    return picture(lambda: draw(curve, level), name, title, told, f"{title}. {caption}", table)


def agreement_pictures(name: str, funnel: Funnel) -> list[Picture]:
    """Predicted against reported proportions, and, where sizes differ, the funnel."""
    drawn = min(len(funnel.size), figures.POINTS)
    also = f" {drawn:,} of {len(funnel.size):,} bags are drawn." if drawn < len(funnel.size) else ""
    rough = " The limits are rough for bags as small as these." if funnel.is_rough else ""
    limits = (
        "Between the limits lie the bags that random bags and a calibrated model would give, 95% and 99.8% of them."
    )
    noise = " Declared noise widens them." if funnel.noise.any() else ""
    title = "Predicted against reported proportion of each bag"
    reading = "On the dashed line, they agree." if funnel.usual_size is None else f"{limits}{noise}{rough}"
    caption, table = f"{title}. {reading}{also}", _outside(funnel)
    found = [picture(lambda: figures.agreement(funnel), f"{name}-agreement", title, f"{funnel}.", caption, table)]
    if funnel.usual_size is None:
        found.append(funnel_picture(f"{name}-funnel", funnel, "reported − predicted", f"{limits}{noise}{rough}{also}"))
    return found


def _outside(funnel: Funnel) -> Table:
    rows = [
        [level, f"{funnel.outside(level):,}", f"{funnel.outside(level) / len(funnel.size):.2%}", f"{1 - share:.2%}"]
        for level, share in LEVELS.items()
    ]
    return Table("Bags outside of the limits", ["limits", "bags outside", "share", "expected"], rows)


def funnel_picture(name: str, funnel: Funnel, label: str, caption: str) -> Picture:
    """The funnel by size."""
    title = "The funnel of random bags"
    draw = partial(figures.funnel, funnel, label)
    return picture(draw, name, title, f"{funnel}.", f"{title}. {caption}", _outside(funnel))


def sizes(name: str, size: Integers) -> tuple[str, Picture | None]:
    """How large the bags are, in a sentence, and as a histogram where they differ."""
    low, high, middle = int(size.min()), int(size.max()), int(np.median(size))
    if low == high:
        return f"Every bag has {number_of(low, 'row')}.", None
    told = f"{len(size):,} bags of {low:,} to {high:,} rows, median {middle:,}."
    quantiles = np.quantile(size, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1], method="inverted_cdf")
    names = ("smallest", "5%", "25%", "median", "75%", "95%", "largest")
    rows = [[label, f"{int(value):,}"] for label, value in zip(names, quantiles, strict=True)]
    table = Table("Sizes of bags", ["share of bags", "rows"], rows)
    caption = "Sizes of bags: how many bags have how many rows."
    return told, picture(lambda: figures.sizes(size), name, "Sizes of bags", told, caption, table)


def proportion_picture(name: str, funnel: Funnel) -> Picture:
    """What bags reported, beside what random bags would."""
    expected = expected_histogram(funnel)
    title = "Reported proportions"
    spread = float(funnel.reported.std())
    random = float(np.sqrt((funnel.deviation**2).mean()))
    told = f"Their standard deviation is {spread:.4f}; that of random bags would be {random:.4f}."
    counts = np.histogram(funnel.reported, bins=expected[0])[0]
    edges = expected[0]
    rows = [
        [f"{low:.4f} to {high:.4f}", f"{int(bags):,}", f"{random:.1f}"]
        for low, high, bags, random in zip(edges[:-1], edges[1:], counts, expected[1], strict=True)
    ]
    table = Table("Bags by reported proportion", ["proportion", "bags", "random bags"], rows)
    return picture(lambda: figures.proportions(funnel, expected), name, title, told, f"{title}. {told}", table)


def driver_parts(sensitivity: Mapping[str, float]) -> Sequence[Part]:
    """Which columns move the predictions."""
    if not sensitivity:
        return [Text("The model's file does not tell.")]
    names, values = list(sensitivity), list(sensitivity.values())
    title = "What moves the predictions"
    told = "Mean change of a prediction when a column is shuffled among rows: " + ", ".join(
        f"{name} {value:.4f}" for name, value in list(sensitivity.items())[:5]
    )
    draw = partial(figures.bars, names[:_BARS], values[:_BARS], "mean change of a prediction")
    rows = [[name, f"{value:.4f}"] for name, value in list(sensitivity.items())[:_LINES]]
    table = Table("Mean change of a prediction when a column is shuffled", ["column", "change"], rows)
    more = f" The first {_BARS} of {len(names)} columns." if len(names) > _BARS else ""
    caption = f"{title}: the mean change when one column is shuffled among rows and all others stay.{more}"
    return [Pictures([picture(draw, "drivers", title, f"{told}.", caption, table)])]


# -- diagnosis ----------------------------------------------------------------------------------------------------


def finding_parts(found: Diagnosis) -> list[Part]:
    """What was tested, and what is unusual."""
    tests = [found.proportions, *found.features, *found.drift]
    tested = sorted((one for one in tests if not np.isnan(one.p_value)), key=lambda one: (one.p_value, one.name))
    unusual = [one for one in tested if one.p_value < found.level]
    parts: list[Part] = []
    spread = [one for one in (found.proportions, *found.features) if not np.isnan(one.ratio)]
    shown = sorted(spread, key=lambda one: -abs(np.log(max(one.ratio, 1e-3))))[:_BARS]
    if shown:
        parts.append(Pictures([_ratio_picture(shown, found.level)]))
    head = ["what was tested", "times that of random bags", "p-value"]
    rows = [[one.name, f"{one.ratio:.3g}", _p_value(one.p_value)] for one in tested]
    if unusual:
        parts.append(Table("What random bags would hardly show", head, rows[: min(len(unusual), 10)]))
    parts.append(Table("All tests", head, rows[:_LINES], folded=True))
    if found.untestable:
        parts.append(Text(f"Not testable: {', '.join(found.untestable[:20])}."))
    return parts


def _p_value(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-99 else "< 1e-99"


def _ratio_picture(shown: Sequence[Finding], level: float) -> Picture:
    title = "How much bags differ, column by column"
    unusual = [one.p_value < level for one in shown]
    largest = max(one.ratio for one in shown)
    told = f"{sum(unusual)} of the {len(shown)} drawn are unusual; the largest ratio is {largest:.3g}."
    ratios = [max(one.ratio, 1e-3) for one in shown]
    draw = partial(figures.ratios, [one.subject for one in shown], ratios, unusual)
    caption = f"{title}: variation between bags over that between random bags; 1 is what chance gives."
    return picture(draw, "spread", title, told, caption)


def summary_parts(summary: Summary) -> list[Part]:
    """What came of the join."""
    left_out = [f"Left out: {one}." for one in summary.mismatches]
    return [Text(str(replace(summary, mismatches=()))), *([Bullets(left_out)] if left_out else [])]


def class_name(data: BagTable, output: int) -> str:
    """Which class a number is about, where there are several."""
    return f" of class {data.classes[output]}" if data.classes is not None else ""


def leak_part(found: Diagnosis) -> Part:
    """What the reports give away."""
    return Bullets([f"{text[:1].upper()}{text[1:]}." for text in found.leaks.statements])


# -- how to make it again -----------------------------------------------------------------------------------------


def again(
    command: str | None, facts: Sequence[str], made_with: Sequence[Mapping[str, str]], also: Sequence[Part] = ()
) -> Section:
    """How to make a page, and what it tells of, again. made_with: versions of what made the results, by name."""
    here = {"bagwise": bagwise.__version__, "python": platform.python_version()}
    here |= {name: version(name) for name in ("numpy", "scipy", "matplotlib")}
    versions: dict[str, set[str]] = {}
    for name, one in (pair for mapping in made_with for pair in mapping.items()):
        versions.setdefault(name, set()).add(one)
    rows = []
    for name in dict.fromkeys([*versions, *here]):
        then = [", ".join(sorted(versions.get(name, "–")))] if made_with else []
        rows.append([name, *then, here.get(name, "–")])
    parts: list[Part] = [Text("This page:"), Code(command)] if command else []
    parts += [*also, *([Bullets(facts)] if facts else [])]
    head = ["", *(["of the results"] if made_with else []), "of this page"]
    parts.append(Table("Versions", head, rows, "lll"))
    return Section("again", "How to reproduce", parts)
