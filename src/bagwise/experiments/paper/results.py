"""What finished runs show: accuracy by bag size and duration, figures, and the paper's claims beside what was measured.

Learning rates are chosen as in the paper, by test accuracy, and without labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bagwise.experiments.paper.runs import METHODS, NAMES, PAPER, PaperConfig
from bagwise.experiments.variance import MODELS, lookup
from bagwise.plotting import BLUE, GREEN, ORANGE, PURPLE, RED, Look, dodge, legend_below, reference_line, size_axis
from bagwise.utils.text import number_of

BY_TEST, LABEL_FREE = "test accuracy", "label-free risk"
RULES = (BY_TEST, LABEL_FREE)
"""How a learning rate is chosen: by the mean accuracy on the test rows, as the paper does, or by held-out bags."""

_SETTING = ["method", "size", "learning_rate"]
_FAR = 0.02  # in accuracy
AGREES, IN_PART, DIFFERS = VERDICTS = ("agrees", "in part", "differs")
_FEW = 6  # epochs that all have room for a tick
_FRONT = {
    "boosting": (Look(BLUE, "o"), "bagwise: boosting"),
    "ours": (Look(GREEN, "s"), "the paper's loss, its network"),
    "li": (Look(RED, "^", "--"), "Li et al."),
    "easyllp": (Look(ORANGE, "D", "--"), "EasyLLP"),
    "vanilla_sq": (Look(PURPLE, "v", "--"), "matching proportions"),
}
_CONSTANT = 12_435 / 16_281  # Adult's test rows with label 0, over all of them


def measurements(frame: pd.DataFrame, *more: str) -> pd.DataFrame:
    """One row per run and measured epoch: its method, size, learning_rate, repetition and held_out, what was measured.

    more: further columns to keep.

    Where training diverged, accuracy is 0 and risk infinite: it must not be chosen.
    """
    measured = {"epoch": int, "accuracy": float, "risk": float}
    long = frame[[*_SETTING, "repetition", "held_out", *more, *measured]].explode(list(measured), ignore_index=True)
    long = long.astype(measured)
    long.loc[long["accuracy"].isna(), ["accuracy", "risk"]] = 0.0, np.inf
    return long


def _mean_accuracy(long: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Mean accuracy over repetitions, and se, its standard error."""
    found = long.groupby(by)["accuracy"].agg(["mean", "std", "count"])
    return pd.DataFrame({"accuracy": found["mean"], "se": found["std"] / np.sqrt(found["count"])})


def curves(frame: pd.DataFrame, config: PaperConfig) -> pd.DataFrame:
    """One row per rule, method, size and duration: learning_rate, accuracy and se (standard error).

    A label-free choice needs runs with held-out bags; where there are none it is left out.
    """
    long = measurements(frame)
    rows = []
    for duration in config.epochs:
        stage = long[(long["epoch"] == duration) | (long["epoch"] == 0)]
        full = _mean_accuracy(stage[~stage["held_out"]], _SETTING)
        risk = stage[stage["held_out"]].groupby(_SETTING)["risk"].mean()
        for (name, _), group in full.groupby(level=["method", "size"]):
            risks = risk.reindex(group.index).dropna()
            chosen = {BY_TEST: group["accuracy"].idxmax()}
            if len(risks):
                chosen[LABEL_FREE] = risks.idxmin()
            elif not METHODS[str(name)].loss:
                chosen[LABEL_FREE] = group.index[0]
            for rule, setting in chosen.items():
                where = dict(zip(_SETTING, setting, strict=True))
                rows.append({"rule": rule, "epochs": duration, **where, **group.loc[setting]})
    return pd.DataFrame(rows)


def learning_curves(frame: pd.DataFrame, config: PaperConfig, size: int) -> pd.DataFrame:
    """One row per network method and measured epoch at one bag size: learning_rate, accuracy and se.

    With the learning rate that is best at the longest duration by test accuracy.
    """
    chosen = curves(frame, config)
    chosen = chosen[(chosen["rule"] == BY_TEST) & (chosen["size"] == size) & (chosen["epochs"] == max(config.epochs))]
    long = measurements(frame)
    long = long[~long["held_out"] & (long["epoch"] > 0)].merge(chosen[_SETTING], on=_SETTING)
    return _mean_accuracy(long, ["method", "learning_rate", "epoch"]).reset_index()


def table(found: pd.DataFrame, epochs: int, rule: str = BY_TEST) -> pd.DataFrame:
    """Accuracy as methods × bag sizes."""
    part = found[(found["rule"] == rule) & (found["epochs"] == epochs)]
    pivot = part.pivot_table(index="method", columns="size", values="accuracy")
    labels = {name: method.label for name, method in METHODS.items() if name in pivot.index}
    return pivot.reindex(list(labels)).rename(index=labels)


# -- figures -------------------------------------------------------------------------------------------------------


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


# -- the paper's claims --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was measured here, and whether the two agree."""

    says: str
    measured: str
    verdict: str


@dataclass(frozen=True, eq=False)
class Measured:
    """The curves of one data set under the paper's rule, for the paper's methods: accuracy and se by method."""

    name: str
    config: PaperConfig
    accuracy: pd.DataFrame
    se: pd.DataFrame

    @classmethod
    def of(cls, name: str, frame: pd.DataFrame, config: PaperConfig) -> Measured:
        """Rows are (epochs, size), columns are methods."""
        found = curves(frame, config)
        found = found[(found["rule"] == BY_TEST) & found["method"].isin(PAPER)]
        wide = found.pivot_table(index=["epochs", "size"], columns="method", values=["accuracy", "se"], dropna=False)
        return cls(name, config, wide["accuracy"], wide["se"].fillna(0.0))

    @property
    def lead(self) -> pd.DataFrame:
        """By (epochs, size > 1): accuracy of ours less that of the best of the others (value), its error (se)."""
        bags = self.accuracy.index.get_level_values("size") > 1
        accuracy, se = self.accuracy[bags], self.se[bags]
        others = accuracy.drop(columns="ours")
        best = se[others.columns].to_numpy()[np.arange(len(others)), others.to_numpy().argmax(axis=1)]
        return pd.DataFrame({"value": accuracy["ours"] - others.max(axis=1), "se": np.sqrt(se["ours"] ** 2 + best**2)})


def claims(measured: Mapping[str, Measured]) -> list[Claim]:
    """All claims that the data sets at hand can speak to."""
    every = list(measured.values())
    found = [_best_everywhere(every), _fall_off(every), _widest_at_few_epochs(every), _vanillas_overlap(every)]
    for name, level in (("cifar10", 0.8), ("higgs", 0.65)):
        if name in measured and 64 in measured[name].config.sizes:
            found.append(_above_at_64(measured[name], level))
    return found


def _best_everywhere(every: list[Measured]) -> Claim:
    parts, behind, points = [], 0, 0
    for one in every:
        lead, error = one.lead["value"], one.lead["se"]
        clearly = int((lead < -2 * error).sum())
        behind, points = behind + clearly, points + len(lead)
        worst, best = (
            f"{_signed(lead[at])} at k = {at[1]}, {number_of(at[0], 'epoch')}" for at in (lead.idxmin(), lead.idxmax())
        )
        parts.append(
            f"{one.name}: highest at {int((lead >= 0).sum())} of {len(lead)} points (k > 1), behind by more than 2 "
            f"standard errors at {clearly}; worst {worst}, best {best}"
        )
    verdict = AGREES if behind == 0 else IN_PART if behind < points / 4 else DIFFERS
    return Claim("Ours is best at every bag size and duration.", "; ".join(parts), verdict)


def _fall_off(every: list[Measured]) -> Claim:
    parts, agree = [], True
    for one in every:
        small, large, longest = min(one.config.sizes), max(one.config.sizes), max(one.config.epochs)
        drop = one.accuracy.loc[(longest, small)] - one.accuracy.loc[(longest, large)]
        agree &= bool((drop.drop("ours") > drop["ours"] + _FAR).all())
        listed = ", ".join(f"{METHODS[name].label} {_signed(-drop[name])}" for name in PAPER)
        parts.append(f"{one.name}, {number_of(longest, 'epoch')}, from k = {small} to {large}: {listed}")
    says = "The others are reasonable for small bags and far worse for large ones."
    return Claim(says, "; ".join(parts), AGREES if agree else IN_PART)


def _widest_at_few_epochs(every: list[Measured]) -> Claim:
    parts, agree = [], []
    for one in every:
        few, many = min(one.config.epochs), max(one.config.epochs)
        early, late = (float(one.lead["value"].loc[epochs].mean()) for epochs in (few, many))
        agree.append(early > late)
        told = f"{_signed(early)} at {number_of(few, 'epoch')}, {_signed(late)} at {many}"
        parts.append(f"{one.name}: mean lead over k > 1 {told}")
    verdict = AGREES if all(agree) else IN_PART if any(agree) else DIFFERS
    return Claim("The lead is widest at few epochs.", "; ".join(parts), verdict)


def _vanillas_overlap(every: list[Measured]) -> Claim:
    gaps = {one.name: (one.accuracy["vanilla_ce"] - one.accuracy["vanilla_sq"]).abs() for one in every}
    parts = [
        f"{name}: they differ by {100 * gap.median():.2f} points (median), {100 * gap.max():.2f} at most"
        for name, gap in gaps.items()
    ]
    near = max(gap.median() for gap in gaps.values()) < 0.005
    return Claim("VanillaCE often overlaps VanillaSQ.", "; ".join(parts), AGREES if near else IN_PART)


def _above_at_64(one: Measured, level: float) -> Claim:
    longest = max(one.config.epochs)
    at = one.accuracy.loc[(longest, 64)]
    listed = ", ".join(f"{METHODS[name].label} {at[name]:.3f}" for name in PAPER)
    above = int((at > level).sum())
    verdict = AGREES if above == len(PAPER) else IN_PART if above else DIFFERS
    says = f"On {one.name}, all methods are above {level} at k = 64."
    return Claim(says, f"{number_of(longest, 'epoch')}: {listed}", verdict)


def variance_claims(frame: pd.DataFrame) -> list[Claim]:
    """The paper's claims about variance, which speak of bags of 2 and of 256 rows."""
    at, sizes = lookup(frame), (2, 256)
    small, large = (at("variance", "h = x", "ours", "leave_one_out", k) for k in sizes)
    bias = at("excess", "h = x", "ours", "leave_one_out", 256) / at("mean", "h = x", "ours", "exact", 256)
    easy = {model: [at("variance", model, "easyllp_square", "none", k) for k in sizes] for model in MODELS}
    return [
        Claim(
            "The variance of ours is 0.034, and 0.055 at k = 256 (h = x, E[h] from the other bags of a batch).",
            f"{small:.4f} at k = 2, {large:.4f} at k = 256; what the paper does not say: the squared estimate of E[h] "
            f"makes the mean of the loss {bias:+.1%} too large there",
            AGREES if abs(small - 0.034) < 0.002 and abs(large - 0.055) < 0.003 else IN_PART,
        ),
        Claim(
            "The variance of EasyLLP grows linearly with k.",
            f"for the paper's h = x it is {easy['h = x'][0]:.3f} at k = 2 and {easy['h = x'][1]:.3f} at k = 256, since "
            f"E[d] = 0 there by symmetry; for h = x² it is {easy['h = x²'][0]:.3f} and {easy['h = x²'][1]:.3f}",
            IN_PART if easy["h = x"][1] < 2 * easy["h = x"][0] else AGREES,
        ),
    ]


def _signed(value: float) -> str:
    return f"{100 * value:+.1f} points".replace("-", "−")
