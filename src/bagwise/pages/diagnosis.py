"""The page on two tables: do they fit, how did the bags come about, what do the reports give away?

`Funnel` says where the proportions of random bags should lie, given their sizes, the noise on them and what is
predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy import stats

from bagwise.bags import Bags
from bagwise.bags.intervals import Intervals
from bagwise.diagnostics import Diagnosis
from bagwise.diagnostics.advice import COMMANDS, advice
from bagwise.dispersion import NOT_RANDOM
from bagwise.pages import parts
from bagwise.pages.page import GOOD, UNSURE, Bullets, Page, Part, Picture, Pictures, Section, Table
from bagwise.plotting import BLACK, BLUE, GREY, RED
from bagwise.tables import BagTable, diagnose
from bagwise.tables.bag_table import Reported
from bagwise.utils.typing import Booleans, Floats, Integers

_POINTS = 2_000  # bags drawn; they are numbered as if at random, so the first are as good as any
_LEVELS = {"95%": 0.95, "99.8%": 0.998}  # limits drawn: one bag in 20, and one in 500, of random bags lies outside
_QUANTILES = {name: float(stats.norm.ppf((1 + level) / 2)) for name, level in _LEVELS.items()}
_WIDER = "99.8%"
_SMALL = 3.0  # variance of a count below which the normal law is a rough guide
_NEARLY_ALL = 0.95


def diagnosis_page(data: BagTable, *, command: str | None = None) -> Page:
    """A page on events and reports: do they fit, how did the bags come about, what do they give away?

    Parameters
    ----------
    data : BagTable
        As `bagwise.tables.join` returns it.
    command : str, optional
        How the page was made, to be shown on it.

    Returns
    -------
    Page
        To be written by `write`.
    """
    if data.target == "value":
        raise ValueError("the reports tell of values, of which there is no page: see bagwise diagnose.")
    reports, found = data.reported, diagnose(data)
    follows = parts.capital(advice(found, COMMANDS))
    output = int(abs(reports.proportion.reshape(len(reports.size), -1).mean(axis=0) - 0.5).argmin())
    bags = bag_parts(Funnel.of_reports(reports, output), data, output, predicted=False)
    leaks = Bullets(f"{parts.capital(text)}." for text in found.leaks.statements)
    sections = [
        Section("tables", "Do the tables fit?", parts.summary_parts(data.summary)),
        Section("formation", "How did the bags come about?", [*formation_parts(found), *parts.finding_parts(found)]),
        Section("bags", "What the bags reported", bags),
        Section("leaks", "What the reports give away", [leaks]),
        parts.again(command, [], []),
    ]
    standing, headline = UNSURE, f"The bags are not random: {found.verdict}."
    if found.random:
        standing, headline = GOOD, "The bags look random: every model is right, and the label-free evaluation applies."
    elif found.too_few:
        headline = f"How the bags came about is not told: {found.formation.reason}."
    elif found.formation.name == "random":
        headline = f"The bags are random but for a drift: {found.verdict}."
    left_out = data.summary.rows - data.summary.used_rows
    wrong = any(not mismatch.expected for mismatch in data.summary.mismatches)
    kept = "bags that do not fit are left out" if wrong else "nothing unexpected is left out"
    used = f"{left_out:,} of {data.summary.rows:,} rows are not used; {kept}."
    remarks = [*([] if found.random else [follows]), used if left_out else "The tables fit: every row is used."]
    if data.others:
        remarks.append("Bags are those of the first table of reports; the others say more of the same rows.")
    if data.summary.noised:
        remarks.append("Reports carry declared noise, which widens all intervals and limits.")
    if found.leaks.revealed_rows:
        remarks.append(f"The reports reveal the labels of {found.leaks.revealed_rows:,} single rows.")
    subject = f"{data.summary.bags:,} bags, {data.summary.used_rows:,} rows, {len(data.features)} columns."
    return Page("Diagnosis of bags", subject, standing, headline, remarks, sections)


def formation_parts(found: Diagnosis) -> list[Part]:
    """The formation in words: what it assumes, how sure it is, what is allowed then and what to do; and its lines."""
    allowed = found.allowed
    known = {"risk": "the risk of single rows from residuals of bags", "slope": "any mean of single rows by slopes"}
    rows = [
        ["what is said", parts.capital(found.verdict)],
        ["how sure", parts.capital(found.sure)],
        ["what is assumed then", parts.capital(allowed.assumption)],
        ["right with --loss, of a network", ", ".join(allowed.losses)],
        ["known without labels", ", ".join(known[one] for one in allowed.evaluation) or "what bags report"],
        ["candidates are compared by", f"{allowed.choice} of held-out bags"],
    ]
    lines = {"proportions on mean predictions": found.evidence.forward}
    lines |= {"mean predictions on proportions": found.evidence.reverse}
    slopes = [
        [name, f"{one.value:.3g} ± {one.error:.2g}", f"{one.expected:.3g}"]
        for name, one in lines.items()
        if one is not None and np.isfinite(one.value)
    ]
    said: list[Part] = [
        parts.capital(advice(found, COMMANDS)),
        Table("The formation of the bags", ["", ""], rows, "ll"),
    ]
    if slopes:
        head = ["line through the bags", "slope", "of random bags"]
        said.append(Table("A quick model on bags that it was not fitted to", head, slopes))
    return said


# -- random bags -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Funnel:
    r"""Proportions of bags beside what is predicted for them.

    The count of a bag of k random rows has variance :math:`k v + s^2`, where v is the mean of h(1 − h) over rows if
    predictions h are right on average wherever they are equal, and s² the variance of declared noise. With the prior
    as the only prediction, v = p(1 − p).

    size, predicted, reported: (m,) per bag.  noise: (m,) variance of noise on counts, or of what is not known of them.
    variance: v.  interval: between which numbers counts lie, where some are hidden.
    """

    size: Integers
    predicted: Floats
    reported: Floats
    noise: Floats
    variance: float
    interval: Intervals | None = None

    @classmethod
    def of_reports(cls, reports: Reported, output: int = 0) -> Funnel:
        """The reported proportions of one class beside their mean."""
        m, shares = len(reports.size), reports.proportion.reshape(len(reports.size), -1)[:, output]
        prior = float(shares @ reports.size / reports.size.sum())
        p = float(np.clip(prior, 0, 1))
        noise = np.zeros(m) if reports.noise is None else reports.noise
        return cls(reports.size, np.full(m, prior), shares, noise, p * (1 - p), reports.interval)

    @classmethod
    def of_predictions(cls, h: Floats, bags: Bags, output: int = 0) -> Funnel:
        """Reported beside predicted proportions of bags, of one class."""
        h = h if h.ndim == 1 else h[:, output]
        noise = np.zeros(len(bags)) if bags.noise_variance is None else np.asarray(bags.noise_variance)
        size = np.asarray(bags.size)
        spread = h * (1 - h)
        variance = float(spread.mean() if bags.weight is None else bags.average(spread[bags.order]))
        return cls(size, bags.sum_table(h) / size, bags.outputs[:, output], noise, variance, bags.interval)

    @cached_property
    def usual_size(self) -> int | None:
        """The size of nearly all bags, if noise is the same, too: one pair of limits then suits them."""
        sizes, bags = np.unique(self.size, return_counts=True)
        same = bags.max() >= _NEARLY_ALL * len(self.size) and bool((self.noise == self.noise[0]).all())
        return int(sizes[bags.argmax()]) if same else None

    @cached_property
    def hidden(self) -> Booleans:
        """(m,) whether a count is hidden, rounded or clamped."""
        return np.zeros(len(self.size), dtype=bool) if self.interval is None else self.interval.hidden

    @property
    def said_of_hidden(self) -> str:
        """How counts that are not known are drawn."""
        if not (hidden := int(self.hidden.sum())):
            return ""
        return f" Where counts are hidden, rounded or clamped ({hidden:,} bags), what is likely for them is drawn."

    @property
    def gap(self) -> Floats:
        """(m,) reported less predicted."""
        return self.reported - self.predicted

    @cached_property
    def deviation(self) -> Floats:
        """(m,) standard deviation of the gap of random bags."""
        return np.asarray(np.sqrt(self.variance / self.size + self.noise / self.size**2))

    def limits(self, size: Floats | Integers) -> dict[str, Floats]:
        """How far from 0 the gap of a bag of these sizes goes, by level; where noise differs, for the median noise."""
        deviation = np.sqrt(self.variance / size + np.median(self.noise) / size**2)
        return {name: deviation * quantile for name, quantile in _QUANTILES.items()}

    def outside(self, name: str) -> Booleans:
        """(m,) whether a bag is outside of its limits."""
        return np.abs(self.gap) > self.deviation * _QUANTILES[name]

    @property
    def level(self) -> tuple[float, float, float]:
        """Mean prediction, mean of what the bags report, and the standard error of their difference."""
        predicted, reported, n = self.size * self.predicted, self.size * self.reported, self.size.sum()
        missed = reported - predicted - self.size * (reported.sum() - predicted.sum()) / n
        return float(predicted.sum() / n), float(reported.sum() / n), float(np.sqrt((missed**2).sum()) / n)

    @property
    def explained(self) -> float:
        """Share of the variation of reported proportions that the predicted ones explain, bags weighed by size."""
        centre = self.reported @ self.size / self.size.sum()
        whole = float(((self.reported - centre) ** 2) @ self.size)
        return 1 - float(self.gap**2 @ self.size) / whole if whole > 0 else 0.0

    @property
    def is_rough(self) -> bool:
        """Whether many bags are so small, or positives so rare, that the limits are no more than a guide."""
        return bool(np.median(self.size) * self.variance + np.median(self.noise) < _SMALL)

    @property
    def too_many_outside(self) -> bool:
        """Whether more bags lie outside of the wider limits than chance allows."""
        outside = int(self.outside(_WIDER).sum())
        found = stats.binomtest(outside, len(self.size), 1 - _LEVELS[_WIDER], alternative="greater")
        return not self.is_rough and bool(found.pvalue < NOT_RANDOM)

    def __str__(self) -> str:
        told = []
        for name in _LEVELS:
            outside = self.outside(name)
            told.append(f"{outside.sum():,} of {len(outside):,} bags ({outside.mean():.1%}) outside the {name} limits")
        return f"{told[0]}, where 5% are expected; {told[1]}, where 0.2% are"


def expected_histogram(funnel: Funnel) -> tuple[Floats, Floats]:
    """Edges of bins for the reported proportions, and the bags that each would hold if bags were random.

    Counts without noise are binomial; with noise, normal.
    """
    size, noise = funnel.size, funnel.noise
    half = 0.5 / float(size.max())  # edges between the proportions that occur, not on them
    low, high = float(funnel.reported.min()) - half, float(funnel.reported.max()) + half
    edges = np.linspace(low, high, 31)
    if funnel.usual_size is not None and noise[0] == 0:  # bins of equally many counts, or they fill unevenly
        k = funnel.usual_size
        first, last = np.floor(low * k) - 0.5, np.ceil(high * k) + 0.5
        width = int(np.ceil((last - first) / 30))
        edges = (first + np.arange(int(np.ceil((last - first) / width)) + 1) * width) / k
    p = float(np.clip(funnel.predicted[0], 0, 1))
    lines, bags = np.unique(np.stack([size, noise], axis=1), axis=0, return_counts=True)
    rows, spread = lines[:, 0], np.sqrt(funnel.variance / lines[:, 0] + lines[:, 1] / lines[:, 0] ** 2)
    counts = stats.binom.cdf(np.floor(edges[:, None] * rows + 1e-9), rows, p)
    normal = stats.norm.cdf(edges[:, None], p, np.maximum(spread, 1e-12))
    return edges, np.diff(np.where(lines[:, 1] == 0, counts, normal) @ bags)


# -- figures -----------------------------------------------------------------------------------------------------------


def bag_parts(funnel: Funnel, data: BagTable, output: int, *, predicted: bool) -> list[Part]:
    """Sizes and reported proportions of bags, beside predictions if there are any, otherwise beside random bags."""
    told, sizes = parts.sizes(funnel.size if data.of_rows.weight is None else data.reported.rows)
    rough = " The limits are rough for bags as small as these." if funnel.is_rough else ""
    if predicted:
        noise = " Declared noise widens them." if funnel.noise[~funnel.hidden].any() else ""
        limits = "Between the limits lie the bags that random bags and a calibrated model would give"
        caption = f"{limits}, 95% and 99.8% of them.{noise}{rough}{funnel.said_of_hidden}"
        bags = len(funnel.size)
        also = f" {_POINTS:,} of {bags:,} bags are drawn." if bags > _POINTS else ""
        name, label, pictures = "bags-funnel", "reported − predicted", [_agreement(funnel, caption, also)]
    else:
        caption, also = f"Random bags stay between the limits, 95% and 99.8% of them.{funnel.said_of_hidden}", ""
        name, label, pictures = "funnel", "reported − mean label", [_proportions(funnel)]
    if funnel.usual_size is None:
        pictures.append(_by_size(funnel, name, label, f"{caption}{also}"))
    told += " They are those of the first table of reports." if data.others else ""
    of_class = "" if data.classes is None else f" of class {data.classes[output]}"
    return [f"{told} Proportions{of_class}: {funnel}.{'' if predicted else rough}", Pictures([*pictures, *sizes])]


def _agreement(funnel: Funnel, limits: str, also: str) -> Picture:
    """Reported against predicted proportions, one point per bag; where bags have one size, with limits."""
    title = "Predicted against reported proportion of each bag"
    one_size = funnel.usual_size is not None
    reading = limits if one_size else f"On the dashed line, they agree.{funnel.said_of_hidden}"
    with parts.one_panel() as (figure, panel):
        x, y = funnel.predicted[:_POINTS], funnel.reported[:_POINTS]
        ends = np.array(_range(x))
        panel.plot(ends, ends, color=GREY, linestyle="--", linewidth=1, label="as predicted")
        if funnel.usual_size is not None:
            _limits(panel, funnel, np.full(2, funnel.usual_size), ends, ends)
        _points(panel, funnel, x, y)
        panel.set(xlim=tuple(ends), ylim=_range(np.concatenate([y, ends])))
        panel.set(xlabel="mean prediction of the bag", ylabel="reported proportion")
    return _picture(figure, funnel, "bags-agreement", title, f"{reading}{also}")


def _by_size(funnel: Funnel, name: str, label: str, caption: str) -> Picture:
    """Reported less expected proportion against the size of bags, in the funnel where random bags should stay."""
    with parts.one_panel() as (figure, panel):
        size, gap = funnel.size[:_POINTS], funnel.gap[:_POINTS]
        panel.axhline(0, color=GREY, linestyle="--", linewidth=1)
        k = np.geomspace(funnel.size.min(), funnel.size.max(), 80)
        _limits(panel, funnel, k, k, np.zeros(len(k)))
        _points(panel, funnel, size, gap)
        edge = 1.15 * max(float(np.abs(gap).max()), float(funnel.limits(np.quantile(size, [0.25]))[_WIDER][0]))
        panel.set(xlabel="rows in the bag", ylabel=label, ylim=(-edge, edge))
        parts.size_scale(panel, funnel.size)
    return _picture(figure, funnel, name, "The funnel of random bags", caption)


def _proportions(funnel: Funnel) -> Picture:
    """What bags reported, beside what random bags would."""
    edges, expected = expected_histogram(funnel)
    title, spread, random = "Reported proportions", funnel.reported.std(), np.sqrt((funnel.deviation**2).mean())
    told = f"Their standard deviation is {spread:.4f}; that of random bags would be {random:.4f}."
    told += funnel.said_of_hidden
    counts = np.histogram(funnel.reported, bins=edges)[0]
    rows = [
        [f"{low:.4f} to {high:.4f}", f"{bags:,}", f"{random:.1f}"]
        for low, high, bags, random in zip(edges[:-1], edges[1:], counts, expected, strict=True)
    ]
    table = Table("Bags by reported proportion", ["proportion", "bags", "random bags"], rows)
    with parts.one_panel() as (figure, panel):
        panel.hist(funnel.reported, bins=edges, color=BLUE, alpha=0.75, linewidth=0, label="bags")  # type: ignore[arg-type]
        panel.stairs(expected, edges, color=BLACK, linewidth=1.4, label="random bags")
        panel.set(xlabel="reported proportion", ylabel="bags")
        panel.grid(axis="x", visible=False)
        panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return parts.picture(figure, "proportions", title, told, f"{title}. {told}", table)


def _picture(figure: Figure, funnel: Funnel, name: str, title: str, caption: str) -> Picture:
    """Bags drawn with their limits, and how many lie outside."""
    outside = {level: funnel.outside(level) for level in _LEVELS}
    rows = [
        [level, f"{outside[level].sum():,}", f"{outside[level].mean():.2%}", f"{1 - share:.2%}"]
        for level, share in _LEVELS.items()
    ]
    table = Table("Bags outside of the limits", ["limits", "bags outside", "share", "expected"], rows)
    return parts.picture(figure, name, title, f"{funnel}.", f"{title}. {caption}", table)


def _limits(panel: Axes, funnel: Funnel, size: Floats | Integers, x: Floats, middle: Floats) -> None:
    """Lines on both sides of the middle, where the limits of bags of these sizes lie."""
    for (name, limit), line in zip(funnel.limits(size).items(), ("-", ":"), strict=True):
        for sign, label in ((1, f"limits, {name}"), (-1, None)):
            panel.plot(x, middle + sign * limit, color=BLACK, linestyle=line, linewidth=1, label=label)


def _points(panel: Axes, funnel: Funnel, x: Floats | Integers, y: Floats) -> None:
    outside, hidden = funnel.outside(_WIDER)[:_POINTS], funnel.hidden[:_POINTS]
    alpha = float(np.clip(60 / np.sqrt(len(x) + 1) / 4, 0.25, 0.8))
    dots: dict[str, Any] = {"color": BLUE, "markersize": 3.5, "markeredgewidth": 0, "alpha": alpha, "label": "bag"}
    panel.plot(x[~outside & ~hidden], y[~outside & ~hidden], "o", zorder=2.5, **dots)
    if (unknown := hidden & ~outside).any():
        hollow = {"markerfacecolor": "none", "markeredgewidth": 0.8}
        panel.plot(x[unknown], y[unknown], "o", zorder=2.4, **{**dots, **hollow, "label": "bag of hidden count"})
    if outside.any():
        panel.plot(x[outside], y[outside], "^", color=RED, markersize=5, label=f"bag outside {_WIDER}", zorder=2.5)


def _range(values: Floats) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.08 * (high - low) or 0.05
    return low - margin, high + margin
