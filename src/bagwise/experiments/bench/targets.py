"""What the estimators are asked to reach on bags of every formation, beside what stored runs measured."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from bagwise.experiments.bench.formation_cases import CASES, SOURCES, cases_of
from bagwise.experiments.bench.methods import FORMATION_METHODS
from bagwise.experiments.results import markdown_table

OURS = ("boosting", "logistic", "ridge", "mean_map", "neural", "auto")
"""Methods that are estimators of this package."""
MEAN_GAP = 0.01
"""How far the mean prediction may be from p."""
_DATASET = "adult"


@dataclass(frozen=True)
class Target:
    """The least accuracy and, if asked for, the greatest Brier score that a method is to have, on Adult."""

    case: str
    size: int
    method: str
    accuracy: float
    brier: float | None = None


_ASKED: dict[tuple[str, tuple[int, ...]], dict[str, tuple[float, float]]] = {
    ("rates-strong", (64, 512, 2048)): {"boosting": (0.863, 0.097), "logistic": (0.846, 0.107)},
    ("rates-weak", (512,)): {"boosting": (0.842, 0.112), "logistic": (0.822, 0.126)},
    ("sorted", (64,)): {"boosting": (0.850, 0.106), "logistic": (0.832, 0.117)},
    ("sorted", (512,)): {"boosting": (0.828, 0.121), "logistic": (0.825, 0.122)},
    ("groups", (0,)): {"boosting": (0.832, 0.119), "logistic": (0.826, 0.121)},
}
_ASKED_OF_RANDOM = {
    "boosting": {16: 0.861, 64: 0.854, 256: 0.839, 512: 0.827},
    "logistic": {16: 0.847, 64: 0.834, 256: 0.808, 512: 0.785},
}

TARGETS = [
    *(
        Target(case, size, method, *figures)
        for (case, sizes), asked in _ASKED.items()
        for size in sizes
        for method, figures in asked.items()
    ),
    *(
        Target("random", size, method, accuracy)
        for method, sizes in _ASKED_OF_RANDOM.items()
        for size, accuracy in sizes.items()
    ),
]
"""Means over partitions of Adult, with the estimators' defaults."""


def where(case: str, size: int) -> str:
    """A case and a size in words."""
    return f"{CASES[case].title}, k = {size}" if size else CASES[case].title


def with_error(values: pd.Series, *, digits: int = 4, sign: str = "") -> str:
    """Mean ± standard error; a dash where there is no value, no error where there is one.

    >>> with_error(pd.Series([0.5, 0.7]), digits=2), with_error(pd.Series([0.5]), digits=1)
    ('0.60 ± 0.10', '0.5')
    """
    values = values.dropna()
    if values.empty:
        return "–"
    error = f" ± {values.sem():.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():{sign}.{digits}f}{error}"


def reached(frame: pd.DataFrame) -> str:
    """Every target and what was measured, as tables in Markdown.  frame: rows of `formation_runs.run_formations`."""
    sound = frame[frame["error"] == ""]
    parts = ["## What is asked, and what was measured", _figures(sound), *_not_worse(sound), *_probabilities(sound)]
    return "\n\n".join(parts)


def _figures(frame: pd.DataFrame) -> str:
    lines = []
    for target in TARGETS:
        rows = frame[
            (frame["dataset"] == _DATASET)
            & (frame["case"] == target.case)
            & (frame["size"] == target.size)
            & (frame["method"] == target.method)
        ]
        asked, cells, met = f"≥ {target.accuracy:.3f}", [with_error(rows["accuracy"])], []
        met.append(rows["accuracy"].mean() >= target.accuracy)
        if target.brier is not None:
            asked += f" / ≤ {target.brier:.3f}"
            cells.append(with_error(rows["brier"]))
            met.append(rows["brier"].mean() <= target.brier)
        verdict = "not run" if rows.empty else "met" if all(met) else "not met"
        lines.append(
            [where(target.case, target.size), target.method, asked, " / ".join(cells), str(len(rows)), verdict]
        )
    return markdown_table(
        ["Adult", "method", "asked: accuracy / Brier score", "measured", "partitions", "verdict"], lines
    )


def _not_worse(frame: pd.DataFrame) -> Iterator[str]:
    """Where labels have effects of bags: no estimator is to have a greater mean Brier score than the constant."""
    lines = []
    for (dataset, case, size), rows in _cells(frame[frame["case"].isin(cases_of(["effects"]))]):
        constant = rows[rows["method"] == "class_prior"].set_index("partition")["brier"]
        for method in OURS:
            own = rows[rows["method"] == method].set_index("partition")["brier"]
            over = (own - constant).dropna()
            if len(over):
                verdict = "met" if round(over.mean(), 4) <= 0 else "not met"
                brier = [with_error(one.loc[over.index]) for one in (own, constant)]
                place = f"{SOURCES[dataset].title}: {where(case, size)}"
                lines.append([place, method, *brier, with_error(over, sign="+"), verdict])
    if lines:
        yield "Effects of bags: Brier scores that are not to be greater than the constant's, in the mean."
        yield markdown_table(["", "method", "Brier score", "the constant's", "difference", "verdict"], lines)


def _probabilities(frame: pd.DataFrame) -> Iterator[str]:
    """Probabilities: mean prediction near p, and a log loss below the constant's wherever the Brier score is."""
    lines, cells = [], list(_cells(frame[frame["case"] != ""]))
    for method in OURS:
        own = frame[(frame["method"] == method) & (frame["case"] != "")]
        if own.empty:
            continue
        gap, better, sharper = own["mean_gap"].abs().max(), 0, 0
        for _, rows in cells:
            means = rows.groupby("method")[["brier", "log_loss"]].mean()
            if {method, "class_prior"} <= set(means.index):
                gain = means.loc["class_prior"] - means.loc[method]
                better += int(gain["brier"] > 0)
                sharper += int(gain["brier"] > 0 and gain["log_loss"] > 0)
        verdict = "met" if gap <= MEAN_GAP and sharper == better else "not met"
        lines.append([FORMATION_METHODS[method][0].label, f"{gap:.4f}", str(better), str(sharper), verdict])
    if lines:
        yield (
            f"Probabilities: the mean prediction is to be within {MEAN_GAP:g} of p in every run, and the log loss "
            "below the constant's in every cell (data set, case and size) where the Brier score is."
        )
        head = ["", "greatest gap of the mean", "cells with a better Brier score", "and a better log loss", "verdict"]
        yield markdown_table(head, lines)


def _cells(frame: pd.DataFrame) -> Iterator[tuple[tuple[str, str, int], pd.DataFrame]]:
    yield from frame.groupby(["dataset", "case", "size"], sort=False)
