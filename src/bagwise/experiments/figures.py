"""Figures of the experiments. They read the stored tables and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from bagwise.experiments.simulation import LEARNERS
from bagwise.experiments.variance import ESTIMATORS
from bagwise.plotting import GREY, Look, dodge, legend_below, size_axis


def variance_figure(frame: pd.DataFrame, *, legend_columns: int = 3) -> Figure:
    """Variance and mean of each estimator against the bag size, one column of panels for each model."""
    models = list(frame["model"].unique())
    figure = Figure(figsize=(5.5 * len(models), 8.2), layout="constrained")
    grid = figure.subplots(2, len(models), sharex=True, sharey="row", squeeze=False)
    for column, model in enumerate(models):
        top, bottom = grid[:, column]
        rows = frame[frame["model"] == model]
        for place, ((loss, means), (_, look)) in enumerate(ESTIMATORS.items()):
            one = rows[(rows["loss"] == loss) & (rows["means"] == means)].sort_values("k")
            k = one["k"] * dodge(place, len(ESTIMATORS))
            top.errorbar(k, one["variance"], yerr=one["variance_se"], label=one["label"].iloc[0], **look.style)
            bottom.errorbar(k, one["mean"] / one["risk"], yerr=one["mean_se"] / one["risk"], **look.style)
        top.set(title=f"model {model}", yscale="log")
        bottom.axhline(1, color=GREY, linewidth=1, zorder=1)
        bottom.set(xlabel="bag size k", ylim=(0.2, 1.8))
        for panel in (top, bottom):
            size_axis(panel, rows["k"])
    grid[0, 0].set_ylabel("variance of the estimate from one bag")
    grid[0, 0].yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    grid[1, 0].set_ylabel("mean of the estimates / true risk")
    lines, labels = grid[0, 0].get_legend_handles_labels()
    legend_below(figure, dict(zip(labels, lines, strict=True)), legend_columns)
    return figure


def samples_figure(frame: pd.DataFrame, *, legend_columns: int = 3) -> Figure:
    """Bags needed against the bag size, one panel for each problem.

    A hollow caret at the cap shows a learner that was given up there. A filled one at the upper edge shows a learner
    for which no number of bags suffices, because the mean of its loss prefers a wrong hypothesis.
    """
    names = list(frame["problem"].unique())
    columns = min(2, len(names))
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(5.5 * columns, 3.9 * lines + 1), layout="constrained")
    grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for panel in grid.ravel()[len(names) :]:
        panel.set_visible(False)
    handles: dict[str, Any] = {}
    for panel, name in zip(grid.ravel(), names, strict=False):
        rows = frame[frame["problem"] == name]
        bound = rows.dropna(subset="lower_bound").drop_duplicates("k").sort_values("k")
        if len(bound):
            (line,) = panel.plot(bound["k"], bound["lower_bound"], color=GREY, linewidth=2.5, zorder=1)
            handles["information lower bound"] = line
        for place, (key, learner) in enumerate(LEARNERS.items()):
            one = rows[rows["learner"] == key].sort_values("k")
            if len(one):
                handles |= _needs(panel, one, learner.look, dodge(place, len(LEARNERS)))
        panel.set(title=f"({name}) {rows['title'].iloc[0]}", yscale="log")
        panel.yaxis.set_major_formatter(FuncFormatter(lambda m, _: f"{m:,.0f}"))
        size_axis(panel, rows["k"])
    for panel in grid[-1]:
        panel.set_xlabel("bag size k")
    for panel in grid[:, 0]:
        panel.set_ylabel("bags needed")
    grid[0, 0].set_ylim(top=2 * grid[0, 0].get_ylim()[1])  # room for carets at the upper edge
    legend_below(figure, handles, legend_columns)
    return figure


def _needs(panel: Axes, one: pd.DataFrame, look: Look, shift: float) -> dict[str, Any]:
    """Draw what one learner needs in one problem; returns what the legend must explain."""
    error = [one["bags"] * abs(np.expm1(sign * one["log_bags_se"])) for sign in (-1, 1)]
    handles: dict[str, Any] = {
        one["label"].iloc[0]: panel.errorbar(one["k"] * shift, one["bags"], yerr=error, **look.style)
    }
    lost = one[one["censored"]]
    hopeless = lost["limit_regret"] >= lost["regret"]
    caret: dict[str, Any] = {
        "marker": "^",
        "linestyle": "none",
        "color": look.colour,
        "markersize": 9,
        "clip_on": False,
    }
    if (~hopeless).any():
        part = lost[~hopeless]
        label = "given up at the cap"
        (handles[label],) = panel.plot(part["k"] * shift, part["cap"], **caret, markerfacecolor="white")
    if hopeless.any():
        k = lost.loc[hopeless, "k"] * shift
        panel.plot(k, np.full(len(k), 0.97), transform=panel.get_xaxis_transform(), **caret)
        handles["at the upper edge: no number of bags suffices"] = Line2D([], [], **caret)
    return handles
