"""Figures of models and bags: small, so that they can be read on a phone, and told apart without colour.

`Funnel` says where the proportions of random bags should lie, given their sizes, the noise on them and what is
predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from scipy import stats

from bagwise.bags import Bags
from bagwise.dispersion import NOT_RANDOM
from bagwise.estimates import Estimate
from bagwise.evaluation import Curve
from bagwise.plotting import BLACK, BLUE, GREY, RED
from bagwise.tables.bag_table import Reported
from bagwise.utils.typing import Booleans, Floats, Integers

_WIDTH, _HEIGHT = 4.6, 3.7
_LONGEST = 26  # letters of a name in a figure; tables have all of them
POINTS = 2_000  # bags drawn; they are numbered as if at random, so the first are as good as any
LEVELS = {"95%": 0.95, "99.8%": 0.998}
"""Limits drawn: one bag in 20, and one in 500, of random bags lies outside."""
_SMALL = 3.0  # variance of a count below which the normal law is a rough guide
_NEARLY_ALL = 0.95


# -- random bags -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Funnel:
    r"""Proportions of bags beside what is predicted for them.

    The count of a bag of k random rows has variance :math:`k v + s^2`, where v is the mean of h(1 − h) over rows if
    predictions h are right on average wherever they are equal, and s² the variance of declared noise. With the prior
    as the only prediction, v = p(1 − p).

    size, predicted, reported: (m,) per bag.  noise: (m,) variance of noise on counts.  variance: v.
    """

    size: Integers
    predicted: Floats
    reported: Floats
    noise: Floats
    variance: float

    @classmethod
    def of_reports(cls, reports: Reported, output: int = 0) -> Funnel:
        """The reported proportions of one class beside their mean."""
        m = len(reports.size)
        shares = reports.proportion.reshape(m, -1)[:, output]
        prior = float(shares @ reports.size / reports.size.sum())
        p = float(np.clip(prior, 0, 1))
        noise = np.zeros(m) if reports.noise is None else reports.noise
        return cls(reports.size, np.full(m, prior), shares, noise, p * (1 - p))

    @classmethod
    def of_predictions(cls, h: Floats, bags: Bags, output: int = 0) -> Funnel:
        """Reported beside predicted proportions of bags, of one class."""
        h = h if h.ndim == 1 else h[:, output]
        noise = np.zeros(len(bags)) if bags.noise_variance is None else np.asarray(bags.noise_variance)
        size = np.asarray(bags.size)
        return cls(size, bags.sum_table(h) / size, bags.outputs[:, output], noise, float((h * (1 - h)).mean()))

    @cached_property
    def usual_size(self) -> int | None:
        """The size of nearly all bags, if noise is the same, too: one pair of limits then suits them."""
        sizes, bags = np.unique(self.size, return_counts=True)
        same = bags.max() >= _NEARLY_ALL * len(self.size) and bool((self.noise == self.noise[0]).all())
        return int(sizes[bags.argmax()]) if same else None

    @property
    def gap(self) -> Floats:
        """(m,) reported less predicted."""
        return self.reported - self.predicted

    @cached_property
    def deviation(self) -> Floats:
        """(m,) standard deviation of the gap of random bags."""
        found: Floats = np.sqrt(self.variance / self.size + self.noise / self.size**2)
        return found

    def limits(self, size: Floats | Integers) -> dict[str, Floats]:
        """How far from 0 the gap of a bag of these sizes goes, by level; where noise differs, for the median noise."""
        deviation = np.sqrt(self.variance / size + np.median(self.noise) / size**2)
        return {name: deviation * _quantile(level) for name, level in LEVELS.items()}

    def outside(self, name: str) -> int:
        """Bags outside of their limits."""
        return int((np.abs(self.gap) > self.deviation * _quantile(LEVELS[name])).sum())

    @property
    def is_outside(self) -> Booleans:
        """(m,) whether a bag is outside of the wider limits."""
        return np.abs(self.gap) > self.deviation * _quantile(LEVELS["99.8%"])

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
        found = stats.binomtest(self.outside("99.8%"), len(self.size), 1 - LEVELS["99.8%"], alternative="greater")
        return not self.is_rough and bool(found.pvalue < NOT_RANDOM)

    def __str__(self) -> str:
        m = len(self.size)
        parts = [
            f"{self.outside(n):,} of {m:,} bags ({self.outside(n) / m:.1%}) outside the {n} limits" for n in LEVELS
        ]
        return f"{parts[0]}, where 5% are expected; {parts[1]}, where 0.2% are"


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
    below = np.where(lines[:, 1] == 0, counts, normal) @ bags
    return edges, np.diff(below)


def _quantile(level: float) -> float:
    return float(stats.norm.ppf((1 + level) / 2))


# -- figures -----------------------------------------------------------------------------------------------------------


def calibration(curve: Curve, level: float) -> Figure:
    """Rates of positives against mean predictions, with intervals."""
    right = min(1.0, 1.08 * float(curve.x.max()))
    top = max(right, float(curve.y.max()) + 0.03, min(1.0, float(curve.y_high.max()) * 1.02))
    limits = {"xlim": (0, right), "xlabel": "mean prediction", "ylabel": "rate of positives"}
    return _curve(curve, level, "perfect", "groups of rows", top, limits)


def roc(curve: Curve, level: float) -> Figure:
    """Rates of true positives against rates of false ones."""
    top = max(1.02, float(curve.y.max()) + 0.03)
    limits = {"xlim": (-0.02, 1.02), "xlabel": "rate of false positives", "ylabel": "rate of true positives"}
    return _curve(curve, level, "chance", "model", top, limits)


def _curve(curve: Curve, level: float, diagonal: str, points: str, top: float, limits: dict[str, Any]) -> Figure:
    """Points in a band around them.

    Nothing is clipped: with few bags an estimate may lie outside of what is possible, and is shown there.
    """
    figure, panel = _panel()
    panel.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label=diagonal)
    order = np.argsort(curve.x, kind="stable")
    band = curve.x[order], curve.y_low[order], curve.y_high[order]
    panel.fill_between(*band, color=BLUE, alpha=0.18, linewidth=0, label=f"{level:.0%} interval")
    panel.plot(curve.x, curve.y, color=BLUE, marker="o", markersize=4.5, linewidth=1.4, label=points)
    panel.set(ylim=(min(0.0, float(curve.y.min()) - 0.03), top), **limits)
    return _with_legend(figure, panel)


def agreement(funnel: Funnel) -> Figure:
    """Reported against predicted proportions, one point per bag; where bags have one size, with limits."""
    figure, panel = _panel()
    x, y = funnel.predicted[:POINTS], funnel.reported[:POINTS]
    left, right = _range(x)
    low, high = _range(np.concatenate([y, [left, right]]))
    ends = np.array([left, right])
    panel.plot(ends, ends, color=GREY, linestyle="--", linewidth=1, label="as predicted")
    if funnel.usual_size is not None:
        _limits(panel, funnel, np.full(2, funnel.usual_size), ends, ends)
    _points(panel, x, y, funnel.is_outside[:POINTS])
    panel.set(xlim=(left, right), ylim=(low, high), xlabel="mean prediction of the bag", ylabel="reported proportion")
    return _with_legend(figure, panel)


def funnel(found: Funnel, ylabel: str) -> Figure:
    """Reported less expected proportion against the size of bags, in the funnel where random bags should stay."""
    figure, panel = _panel()
    size, gap = found.size[:POINTS], found.gap[:POINTS]
    panel.axhline(0, color=GREY, linestyle="--", linewidth=1)
    k = np.geomspace(found.size.min(), found.size.max(), 80)
    _limits(panel, found, k, k, np.zeros(len(k)))
    _points(panel, size, gap, found.is_outside[:POINTS])
    edge = 1.15 * max(float(np.abs(gap).max()), float(found.limits(np.quantile(size, [0.25]))["99.8%"][0]))
    panel.set(xlabel="rows in the bag", ylabel=ylabel, ylim=(-edge, edge))
    _size_scale(panel, found.size)
    return _with_legend(figure, panel)


def _limits(panel: Axes, funnel: Funnel, size: Floats | Integers, x: Floats, middle: Floats) -> None:
    """Lines on both sides of the middle, where the limits of bags of these sizes lie."""
    for (name, limit), line in zip(funnel.limits(size).items(), ("-", ":"), strict=True):
        for sign, label in ((1, f"limits, {name}"), (-1, None)):
            panel.plot(x, middle + sign * limit, color=BLACK, linestyle=line, linewidth=1, label=label)


def _points(panel: Axes, x: Floats | Integers, y: Floats, outside: Booleans) -> None:
    alpha = float(np.clip(60 / np.sqrt(len(x) + 1) / 4, 0.25, 0.8))
    dot: dict[str, Any] = {"linestyle": "none", "zorder": 2.5}
    panel.plot(
        x[~outside], y[~outside], "o", color=BLUE, markersize=3.5, markeredgewidth=0, alpha=alpha, label="bag", **dot
    )
    if outside.any():
        panel.plot(x[outside], y[outside], "^", color=RED, markersize=5, label="bag outside 99.8%", **dot)


def sizes(size: Integers) -> Figure:
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


def proportions(funnel: Funnel, expected: tuple[Floats, Floats]) -> Figure:
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


def intervals(names: Sequence[str], found: Sequence[Estimate], xlabel: str, guess: float | None) -> Figure:
    """An estimate with its interval per name; guess: the constant guess's."""
    figure, panel = _panel(height=1.25 + 0.3 * len(names))
    value, low, high = (np.array([getattr(one, part) for one in found]) for part in ("value", "low", "high"))
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


def _range(values: Floats) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.08 * (high - low) or 0.05
    return low - margin, high + margin


def _size_scale(panel: Axes, size: Integers) -> None:
    if size.max() > 5 * size.min():
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:,.0f}"))
