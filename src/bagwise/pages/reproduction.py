"""The page on a reproduction run: the paper's claims, figures and tables, from what `bagwise reproduce` stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from bagwise.experiments import samples, store, variance
from bagwise.experiments.figures import samples_figure, variance_figure
from bagwise.experiments.paper import figures as drawing
from bagwise.experiments.paper.page import finished
from bagwise.experiments.paper.plan import DATASETS, METHODS, NAMES, PRESETS, PaperConfig, plan, store_of
from bagwise.experiments.paper.results import (
    BY_TEST,
    LABEL_FREE,
    RULES,
    VERDICTS,
    Claim,
    Measured,
    claims,
    curves,
    learning_curves,
    table,
    variance_claims,
)
from bagwise.pages import parts
from bagwise.pages.page import GOOD, UNSURE, Bullets, Code, Page, Part, Picture, Pictures, Section, Table, Text
from bagwise.utils.text import number_of

_SIMULATIONS: dict[str, tuple[Any, Callable[..., Figure], str, str]] = {
    "variance": (variance, variance_figure, "model", "Variance of a bag's loss"),
    "samples": (samples, samples_figure, "problem", "Bags that a learner needs"),
}
"""By name: the room, its figure, the column whose values make a figure each, a title."""


@dataclass(frozen=True, eq=False)
class _Runs:
    """The stored runs of one data set. scale: the preset they are from.  planned: how many runs `config` has."""

    name: str
    scale: str
    config: PaperConfig
    frame: pd.DataFrame
    planned: int

    @property
    def complete(self) -> bool:
        return len(self.frame) == self.planned

    def __str__(self) -> str:
        preset, mine = PRESETS[self.scale][self.name].repetitions, self.config.repetitions
        state = "complete" if self.complete else f"{self.planned:,} are planned"
        repetitions = f"{mine} of {preset} repetitions" if mine < preset else number_of(mine, "repetition")
        return f"{NAMES[self.name]}, scale {self.scale}, {repetitions}: {len(self.frame):,} trainings, {state}"


def reproduction_page(results: str | Path, *, command: str | None = None) -> Page:
    """A page on what `bagwise reproduce` stored: the paper's claims, figures and tables.

    Parameters
    ----------
    results : str or Path
        The folder with the results.
    command : str, optional
        How the page was made, to be shown on it.

    Returns
    -------
    Page
        To be written by `write`.
    """
    folder = Path(results)
    stored = [runs for name in DATASETS if (runs := _stored(folder, name)) is not None]
    simulated = {name: frame for name in _SIMULATIONS if (frame := _simulated(folder, name)) is not None}
    if not stored and not simulated:
        raise FileNotFoundError(f"{folder} holds no results: run bagwise reproduce adult --out {folder}.")
    told = _claims(stored, simulated)
    sections = [
        *([Section("claims", "The paper's claims", [_claim_table(told)])] if told else []),
        *(Section(runs.name, NAMES[runs.name], _dataset(runs)) for runs in stored),
        *(Section(name, _SIMULATIONS[name][3], _simulation(name, frame)) for name, frame in simulated.items()),
        _again(folder, stored, simulated, command),
    ]
    titles = [*(NAMES[runs.name] for runs in stored), *(_SIMULATIONS[name][3].lower() for name in simulated)]
    standing, headline = _verdict(told)
    remarks = [f"{runs}." for runs in stored]
    if any(not runs.complete for runs in stored):
        remarks.append("What is not finished is drawn as far as it is there; claims are judged on complete runs only.")
    if any(runs.complete and runs.config.repetitions == 1 for runs in stored):
        remarks.append("One repetition has no standard errors: differences may be chance.")
    if any(runs.complete and runs.scale == "quick" for runs in stored):
        remarks.append("Quick runs are small: their numbers are rough.")
    return Page("The paper's experiments, reproduced", f"{'; '.join(titles)}.", standing, headline, remarks, sections)


# -- what is stored -----------------------------------------------------------------------------------------------


def _stored(folder: Path, name: str) -> _Runs | None:
    """What is complete of a data set, as `finished` finds it, or a quick run, or else whatever most is there of."""
    frame, some = store_of(folder, name).read(), []
    if frame.empty:
        return None
    found = finished(folder, name)
    if found is not None:
        frame, config = found
        scale = "paper" if config == PRESETS["paper"][name] else "machine"
        return _Runs(name, scale, config, _sorted(frame), len(plan(config)))
    for scale in ("quick", "machine", "paper"):
        config = PRESETS[scale][name]
        keys = [run.key for run in plan(config)]
        some.append(_Runs(name, scale, config, _sorted(frame[frame["key"].isin(keys)]), len(keys)))
        if some[-1].complete:
            return some[-1]
    most = max(some, key=lambda runs: len(runs.frame) / runs.planned)
    return most if len(most.frame) else None


def _sorted(frame: pd.DataFrame) -> pd.DataFrame:
    """Files may be read in any order: the page must not depend on it."""
    return frame.sort_values("key", ignore_index=True)


def _simulated(folder: Path, name: str) -> pd.DataFrame | None:
    for path in (folder / f"{name}.parquet", folder / f"{name}-quick.parquet"):
        if path.is_file():
            return store.read_table(path)
    return None


def _claims(stored: Sequence[_Runs], simulated: dict[str, pd.DataFrame]) -> list[Claim]:
    complete = {runs.name: Measured.of(NAMES[runs.name], runs.frame, runs.config) for runs in stored if runs.complete}
    told = claims(complete) if complete else []
    if "variance" in simulated and {2, 256} <= set(simulated["variance"]["k"]):
        told += variance_claims(simulated["variance"])
    return told


def _verdict(told: Sequence[Claim]) -> tuple[str, str]:
    if not told:
        return UNSURE, "None of the paper's claims can be judged yet: no run is complete."
    counts = {verdict: sum(one.verdict == verdict for one in told) for verdict in VERDICTS}
    agree = counts[VERDICTS[0]]
    others = [f"{count} {verdict}" for verdict, count in counts.items() if count and verdict != VERDICTS[0]]
    headline = (
        f"{agree} of the {len(told)} claims of the paper that these results speak to agree with what was measured"
    )
    headline += f"; {', '.join(others)}." if others else "."
    return (GOOD if 2 * agree > len(told) and not counts[VERDICTS[2]] else UNSURE), headline


def _claim_table(told: Sequence[Claim]) -> Table:
    rows = [[one.says, f"{one.measured}.", one.verdict] for one in told]
    return Table(
        "What the paper says, and what was measured here", ["the paper says", "measured", "verdict"], rows, "lll"
    )


# -- data sets ----------------------------------------------------------------------------------------------------


def _dataset(runs: _Runs) -> list[Part]:
    config, found = runs.config, curves(runs.frame, runs.config)
    rows = f"the first {config.rows:,} training rows" if config.rows else "all training rows"
    told: list[Part] = [
        Text(
            f"{len(runs.frame):,} trainings on {rows}; {int(runs.frame['diverged'].sum()):,} diverged. Accuracy on the "
            "labels of single test rows, mean over repetitions; bars are standard errors."
        )
    ]
    if not runs.complete:
        told.append(
            Text(f"{runs}: points rest on fewer repetitions than planned, and some may be missing.", warning=True)
        )
    pictures, tables = [], []
    for rule in RULES:
        for epochs in config.epochs if rule == BY_TEST else config.epochs[-1:]:
            part = found[(found["rule"] == rule) & (found["epochs"] == epochs)]
            if len(part):
                pictures.append(_accuracies(runs, part, epochs, rule))
    size = min(config.sizes, key=lambda k: abs(k - 64))
    learned = learning_curves(runs.frame, config, size)
    if len(learned):
        pictures.append(_learning(runs, learned, size, (found["accuracy"].min(), found["accuracy"].max())))
    for epochs in config.epochs:
        for rule in RULES:
            wide = table(found, epochs, rule)
            if len(wide):
                title = f"Test accuracy after {number_of(epochs, 'epoch')}, learning rate by {rule}"
                tables.append(_frame(title, wide, folded=rule == LABEL_FREE))
    return [*told, Pictures(pictures), *tables]


def _accuracies(runs: _Runs, part: pd.DataFrame, epochs: int, rule: str) -> Picture:
    why = "by test accuracy, as in the paper" if rule == BY_TEST else "by label-free risk, which needs no labels"
    title = f"Test accuracy against bag size, {number_of(epochs, 'epoch')}, learning rate {why}"
    large = part[part["size"] == part["size"].max()].sort_values("accuracy").iloc[-1]
    told = (
        f"{part['method'].nunique()} methods; at the largest bags, k = {int(large['size'])}, "
        f"{METHODS[large['method']].label} is highest with {large['accuracy']:.3f}."
    )
    name = f"{runs.name}-{'test' if rule == BY_TEST else 'free'}-{epochs}"
    draw = partial(_figure, lambda panel: drawing.draw_accuracies(panel, part, ""))
    return parts.picture(draw, name, title, told, f"{title}.")


def _learning(runs: _Runs, found: pd.DataFrame, size: int, limits: tuple[float, float]) -> Picture:
    title = f"Learning curves, bags of {size}, learning rate best at the end"
    last = found[found["epoch"] == found["epoch"].max()].sort_values("accuracy").iloc[-1]
    told = f"At the end {METHODS[last['method']].label} is highest with {last['accuracy']:.3f}."
    caption = f"{title}. What lies below the frame is the first steps of unlucky starts."

    def draw(panel: Axes) -> None:
        drawing.draw_learning(panel, found, size)
        panel.set_title("")
        panel.set_ylim(limits[0] - 0.02, limits[1] + 0.02)

    return parts.picture(partial(_figure, draw), f"{runs.name}-learning", title, told, caption)


def _figure(draw: Callable[[Axes], None]) -> Figure:
    """One panel, drawn, with a legend below."""
    figure = Figure(figsize=(4.6, 5.2), layout="constrained")
    draw(figure.subplots())
    handles, labels = figure.axes[0].get_legend_handles_labels()
    order = [label for method in METHODS.values() if (label := method.label) in labels]
    figure.legend([handles[labels.index(label)] for label in order], order, loc="outside lower center", ncols=2)
    return figure


def _frame(title: str, wide: pd.DataFrame, *, folded: bool = False) -> Table:
    head = ["", *(f"k = {size}" for size in wide.columns)]
    rows = [
        [", ".join(map(str, name)) if isinstance(name, tuple) else str(name), *map(_digits, row)]
        for name, row in zip(wide.index, wide.to_numpy(), strict=True)
    ]
    return Table(title, head, rows, folded=folded)


def _digits(value: float) -> str:
    if pd.isna(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1 else f"{value:.4f}"


# -- simulations --------------------------------------------------------------------------------------------------


def _simulation(name: str, frame: pd.DataFrame) -> list[Part]:
    room, draw, column, title = _SIMULATIONS[name]
    pictures = []
    for number, value in enumerate(frame[column].unique()):
        part = frame[frame[column] == value]

        def one(part: pd.DataFrame = part) -> Figure:
            figure = draw(part, legend_columns=1)
            figure.set_size_inches(4.6, 9.4 if name == "variance" else 6.2)
            for panel in figure.axes:
                panel.set_title("")
                panel.yaxis.set_minor_formatter(NullFormatter())
            return figure

        named = f"{title}, {column} {value}" if name == "variance" else f"{title}: ({value}) {part['title'].iloc[0]}"
        sizes = f"Bag sizes {int(part['k'].min())} to {int(part['k'].max())}; the table below has the numbers."
        pictures.append(parts.picture(one, f"{name}-{number}", named, sizes, f"{named}."))
    tables = [_frame(title, wide, folded=True) for title, wide in room.tables(frame).items()]
    return [Pictures(pictures), Bullets(room.summary(frame)), *tables]


def _again(folder: Path, stored: Sequence[_Runs], simulated: dict[str, pd.DataFrame], command: str | None) -> Section:
    lines = [f"bagwise reproduce {runs.name} --scale {runs.scale}" for runs in stored]
    lines += [f"bagwise reproduce {name}" for name in simulated]
    frames = [*(runs.frame for runs in stored), *simulated.values()]
    seeds = {int(seed) for runs in stored for seed in runs.frame["random_state"].unique()}
    made_with = [
        {column.removesuffix("_version"): str(one)}
        for frame in frames
        for column in frame.columns
        if column.endswith("_version")
        for one in frame[column].dropna().unique()
    ]
    facts = [f"Seed: {', '.join(map(str, sorted(seeds)))}."] if seeds else []
    hours = sum(float(np.nansum(runs.frame["seconds"])) for runs in stored) / 3600
    if stored:
        facts.append(f"{hours:,.1f} hours of computing.")
    return parts.again(command, facts, made_with, [Text("The results:"), Code("\n".join(lines))])
