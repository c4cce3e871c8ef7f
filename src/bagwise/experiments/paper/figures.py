"""The paper's figure of one data set, and the picture of the front page, from finished runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bagwise.experiments.paper.plan import METHODS, NAMES, PaperConfig
from bagwise.experiments.paper.results import BY_TEST, LABEL_FREE, curves, learning_curves
from bagwise.plotting import BLUE, GREEN, ORANGE, PURPLE, RED, Look, dodge, legend_below, reference_line, size_axis
from bagwise.utils.text import number_of

_FEW = 6  # epochs that all have room for a tick
_FRONT = {
    "boosting": (Look(BLUE, "o"), "bagwise: boosting"),
    "ours": (Look(GREEN, "s"), "the paper's loss, its network"),
    "li": (Look(RED, "^", "--"), "Li et al."),
    "easyllp": (Look(ORANGE, "D", "--"), "EasyLLP"),
    "vanilla_sq": (Look(PURPLE, "v", "--"), "matching proportions"),
}
_CONSTANT = 12_435 / 16_281  # Adult's test rows with label 0, over all of them


def accuracy_figure(frame: pd.DataFrame, config: PaperConfig) -> Figure:
    """Accuracy against bag size, a panel per duration; below, the same without labels, and learning curves.

    Without labels: at the longest duration, learning rates chosen by bags. Curves are those of one bag size.
    Bars are standard errors over repetitions.
    """
    found, longest = curves(frame, config), max(config.epochs)
    columns = max(2, len(config.epochs))
    drawing = Figure(figsize=(5.6 * columns, 9.6), layout="constrained")
    grid = drawing.subplots(2, columns, squeeze=False)
    compared = [*grid[0, : len(config.epochs)], grid[1, 0]]
    shown = [(BY_TEST, epochs) for epochs in config.epochs] + [(LABEL_FREE, longest)]
    for panel, (rule, epochs) in zip(compared, shown, strict=True):
        part = found[(found["rule"] == rule) & (found["epochs"] == epochs)]
        by = f"{rule} (the paper's rule)" if rule == BY_TEST else rule
        draw_accuracies(panel, part, f"{number_of(epochs, 'epoch')}, learning rate by {by}")
    size = min(config.sizes, key=lambda k: abs(k - 64))
    draw_learning(grid[1, 1], learning_curves(frame, config, size), size)
    for panel in (*grid[0, len(config.epochs) :], *grid[1, 2:]):
        panel.set_visible(False)
    limits = np.array([panel.get_ylim() for panel in compared])
    # One scale: panels can be compared. What lies below learning curves is the first steps of unlucky starts.
    for panel in (*compared, grid[1, 1]):
        panel.set_ylim(limits[:, 0].min(), limits[:, 1].max())
    handles: dict[str, Any] = {}
    for panel in reversed(grid.ravel()):  # a label that several panels have is that of the first
        lines, labels = panel.get_legend_handles_labels()
        handles |= dict(zip(labels, lines, strict=True))
    legend = {method.label: handles[method.label] for method in METHODS.values() if method.label in handles}
    legend_below(drawing, legend, 4 if len(legend) > 5 else 5)
    rows = "" if config.rows == 0 else f", first {config.rows:,} training rows"
    drawing.suptitle(f"{NAMES[config.dataset]}{rows}: accuracy on single test rows, learned from bags")
    return drawing


def draw_accuracies(panel: Axes, part: pd.DataFrame, title: str) -> None:
    """Accuracy against bag size, from lines of `curves`."""
    _draw(panel, part, "size")
    panel.set_title(title, fontsize="medium")
    panel.set(xlabel="bag size k", ylabel="test accuracy")
    if len(part):
        size_axis(panel, part["size"])


def draw_learning(panel: Axes, found: pd.DataFrame, size: int) -> None:
    """Accuracy against epochs, from lines of `learning_curves` at one bag size."""
    _draw(panel, found, "epoch")
    panel.set_title(f"learning curves, bags of {size}, learning rate best at the end", fontsize="medium")
    panel.set(xlabel="epoch", ylabel="test accuracy")
    if 0 < found["epoch"].nunique() <= _FEW:
        size_axis(panel, found["epoch"])
        return
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.grid(alpha=0.25, linewidth=0.6)


def _draw(panel: Axes, found: pd.DataFrame, x: str) -> None:
    """The accuracy of each method against a column, methods a little apart from each other."""
    shown = [name for name in METHODS if (found["method"] == name).any()]
    step = max(2.0, found[x].max() / found[x].min()) ** 0.005 if shown else 1.0
    for place, name in enumerate(shown):
        one = found[found["method"] == name].sort_values(x)
        at = one[x] * dodge(place, len(shown), step)
        method = METHODS[name]
        panel.errorbar(at, one["accuracy"], yerr=one["se"].fillna(0), label=method.label, **method.look.style)


def front_figure(frame: pd.DataFrame, config: PaperConfig) -> Figure:
    """Boosting, the paper's network and its baselines after the longest training.

    They lie between the accuracy with individual labels and that of the constant guess.
    Networks have the learning rate that is best on the test rows, as in the paper; boosting chooses without labels.
    """
    found = curves(frame, config)
    found = found[(found["rule"] == BY_TEST) & (found["epochs"] == max(config.epochs))]
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    panel = figure.subplots()
    boosting = found[found["method"] == "boosting"].set_index("size")["accuracy"]
    dashes = (0, (4, 3))
    if 1 in boosting:
        reference_line(panel, boosting[1], "boosting with individual labels", up=4, line=dashes)
    reference_line(panel, _CONSTANT, "constant guess", up=-12, line=dashes)
    for name, (look, label) in _FRONT.items():
        one = found[found["method"] == name].sort_values("size")
        panel.errorbar(one["size"], one["accuracy"], yerr=one["se"].fillna(0), label=label, **look.style)
    panel.set(xlabel="rows per bag", ylabel="accuracy on single test rows")
    panel.spines[["top", "right"]].set_visible(False)
    size_axis(panel, found["size"])
    panel.legend(frameon=False, fontsize=9)
    return figure
