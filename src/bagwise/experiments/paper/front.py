"""One picture for the front page: accuracy on single rows against the bag size, from the finished runs of Adult."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from bagwise.experiments.paper.config import PaperConfig
from bagwise.experiments.paper.curves import BY_TEST, curves
from bagwise.plotting import BLUE, GREEN, ORANGE, PURPLE, RED, Look, reference_line, size_axis

_SHOWN = {
    "boosting": (Look(BLUE, "o"), "bagwise: boosting"),
    "ours": (Look(GREEN, "s"), "the paper's loss, its network"),
    "li": (Look(RED, "^", "--"), "Li et al."),
    "easyllp": (Look(ORANGE, "D", "--"), "EasyLLP"),
    "vanilla_sq": (Look(PURPLE, "v", "--"), "matching proportions"),
}


_CONSTANT = 12_435 / 16_281  # Adult's test rows with label 0, over all of them


def front_figure(frame: pd.DataFrame, config: PaperConfig) -> Figure:
    """Boosting, the paper's network and its baselines after the longest training, between the accuracy with individual
    labels and that of the constant guess.

    Networks have the learning rate that is best on the test rows, as in the paper; boosting chooses without labels.
    """
    found = curves(frame, config)
    found = found[(found["rule"] == BY_TEST) & (found["epochs"] == max(config.epochs))]
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    panel = figure.subplots()
    boosting = found[found["method"] == "boosting"].set_index("size")["accuracy"]
    for level, text, up in (
        (boosting.get(1), "boosting with individual labels", 4),
        (_CONSTANT, "constant guess", -12),
    ):
        if level is not None:
            reference_line(panel, level, text, up=up, line=(0, (4, 3)))
    for name, (look, label) in _SHOWN.items():
        one = found[found["method"] == name].sort_values("size")
        panel.errorbar(one["size"], one["accuracy"], yerr=one["se"].fillna(0), label=label, **look.style)
    panel.set(xlabel="rows per bag", ylabel="accuracy on single test rows")
    panel.spines[["top", "right"]].set_visible(False)
    size_axis(panel, found["size"])
    panel.legend(frameon=False, fontsize=9)
    return figure
