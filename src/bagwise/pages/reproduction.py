"""The page on a reproduction run: the paper's claims, figures and tables, from what `bagwise reproduce` stored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from bagwise.experiments import samples, variance
from bagwise.experiments.paper import results as paper
from bagwise.experiments.paper.page import finished
from bagwise.experiments.paper.runs import DATASETS, METHODS, NAMES, PRESETS, PaperConfig, plan, store_of
from bagwise.experiments.results import read_table
from bagwise.pages import page, parts
from bagwise.pages.page import GOOD, UNSURE, Bullets, Caution, Code, Page, Part, Picture, Pictures, Section, Table
from bagwise.utils.text import number_of

# By name: the room, its figure, the column whose values make a figure each, a title.
_SIMULATIONS: dict[str, tuple[Any, Callable[..., Figure], str, str]] = {
    "variance": (variance, variance.figure, "model", "Variance of a bag's loss"),
    "samples": (samples, samples.figure, "problem", "Bags that a learner needs"),
}
_SHAPE = 5.2, 0.04167  # height and margin of a figure


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
    files = [(name, folder / f"{name}{end}.parquet") for name in _SIMULATIONS for end in ("-quick", "")]
    simulated = {name: read_table(path) for name, path in files if path.is_file()}
    if not stored and not simulated:
        raise FileNotFoundError(f"{folder} holds no results: run bagwise reproduce adult --out {folder}.")
    complete = [runs for runs in stored if runs.complete]
    measured = {runs.name: paper.Measured.of(NAMES[runs.name], runs.frame, runs.config) for runs in complete}
    told = paper.claims(measured) if measured else []
    if "variance" in simulated and {2, 256} <= set(simulated["variance"]["k"]):
        told += paper.variance_claims(simulated["variance"])
    rows = [[one.says, f"{one.measured}.", one.verdict] for one in told]
    head = ["the paper says", "measured", "verdict"]
    claimed = Table("What the paper says, and what was measured here", head, rows, "lll")
    sections = [
        *([Section("claims", "The paper's claims", [claimed])] if told else []),
        *(Section(runs.name, NAMES[runs.name], _dataset(runs)) for runs in stored),
        *(Section(name, _SIMULATIONS[name][3], _simulation(name, frame)) for name, frame in simulated.items()),
        _again(stored, simulated, command),
    ]
    titles = [*(NAMES[runs.name] for runs in stored), *(_SIMULATIONS[name][3].lower() for name in simulated)]
    remarks = [f"{runs}." for runs in stored]
    if len(complete) < len(stored):
        remarks.append("What is not finished is drawn as far as it is there; claims are judged on complete runs only.")
    if any(runs.config.repetitions == 1 for runs in complete):
        remarks.append("One repetition has no standard errors: differences may be chance.")
    if any(runs.scale == "quick" for runs in complete):
        remarks.append("Quick runs are small: their numbers are rough.")
    return Page("The paper's experiments, reproduced", f"{'; '.join(titles)}.", *_verdict(told), remarks, sections)


def _stored(folder: Path, name: str) -> _Runs | None:
    """What is complete of a data set, as `finished` finds it, or a quick run, or else whatever most is there of."""
    frame, some = store_of(folder, name).read(), []
    if frame.empty:
        return None
    tried = {scale: PRESETS[scale][name] for scale in ("quick", "machine", "paper")}
    if (found := finished(folder, name)) is not None:
        tried = {"paper" if found[1] == tried["paper"] else "machine": found[1]}
    for scale, config in tried.items():
        keys = [run.key for run in plan(config)]
        # Files may be read in any order: the page must not depend on it.
        part = frame[frame["key"].isin(keys)].sort_values("key", ignore_index=True)
        some.append(_Runs(name, scale, config, part, len(keys)))
        if some[-1].complete:
            return some[-1]
    most = max(some, key=lambda runs: len(runs.frame) / runs.planned)
    return most if len(most.frame) else None


def _verdict(told: Sequence[paper.Claim]) -> tuple[str, str]:
    if not told:
        return UNSURE, "None of the paper's claims can be judged yet: no run is complete."
    counts = {verdict: sum(one.verdict == verdict for one in told) for verdict in paper.VERDICTS}
    agree = counts[paper.AGREES]
    others = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count and verdict != paper.AGREES)
    spoken = f"{agree} of the {len(told)} claims of the paper that these results speak to"
    headline = f"{spoken} agree with what was measured{others and f'; {others}'}."
    return (GOOD if 2 * agree > len(told) and not counts[paper.DIFFERS] else UNSURE), headline


def _dataset(runs: _Runs) -> list[Part]:
    config, frame, found = runs.config, runs.frame, paper.curves(runs.frame, runs.config)
    rows = f"the first {config.rows:,} training rows" if config.rows else "all training rows"
    told = (
        f"{len(frame):,} trainings on {rows}; {int(frame['diverged'].sum()):,} diverged. Accuracy on the labels of "
        "single test rows, mean over repetitions; bars are standard errors."
    )
    fewer = f"{runs}: points rest on fewer repetitions than planned, and some may be missing."
    drawn = [(paper.BY_TEST, epochs) for epochs in config.epochs] + [(paper.LABEL_FREE, config.epochs[-1])]
    pictures = [
        _accuracies(runs, part, epochs, rule)
        for rule, epochs in drawn
        if len(part := found[(found["rule"] == rule) & (found["epochs"] == epochs)])
    ]
    size = min(config.sizes, key=lambda k: abs(k - 64))
    learned = paper.learning_curves(frame, config, size)
    if len(learned):
        pictures.append(_learning(runs, learned, size, (found["accuracy"].min(), found["accuracy"].max())))
    title = "Test accuracy after {}, learning rate by {}"
    tables = [
        _frame(title.format(number_of(epochs, "epoch"), rule), wide, folded=rule == paper.LABEL_FREE)
        for epochs in config.epochs
        for rule in paper.RULES
        if len(wide := paper.table(found, epochs, rule))
    ]
    return [told, Caution("" if runs.complete else fewer), Pictures(pictures), *tables]


def _accuracies(runs: _Runs, part: pd.DataFrame, epochs: int, rule: str) -> Picture:
    why = "by test accuracy, as in the paper" if rule == paper.BY_TEST else "by label-free risk, which needs no labels"
    title = f"Test accuracy against bag size, {number_of(epochs, 'epoch')}, learning rate {why}"
    large = part[part["size"] == part["size"].max()].sort_values("accuracy").iloc[-1]
    told = (
        f"{part['method'].nunique()} methods; at the largest bags, k = {int(large['size'])}, "
        f"{METHODS[large['method']].label} is highest with {large['accuracy']:.3f}."
    )
    name = f"{runs.name}-{'test' if rule == paper.BY_TEST else 'free'}-{epochs}"
    with parts.one_panel(*_SHAPE) as (figure, panel):
        paper.draw_accuracies(panel, part=part, title="")
    return parts.picture(figure, name, title, told, f"{title}.")


def _learning(runs: _Runs, found: pd.DataFrame, size: int, limits: tuple[float, float]) -> Picture:
    title = f"Learning curves, bags of {size}, learning rate best at the end"
    last = found[found["epoch"] == found["epoch"].max()].sort_values("accuracy").iloc[-1]
    told = f"At the end {METHODS[last['method']].label} is highest with {last['accuracy']:.3f}."
    caption = f"{title}. What lies below the frame is the first steps of unlucky starts."
    with parts.one_panel(*_SHAPE) as (figure, panel):
        paper.draw_learning(panel, found, size)
        panel.set(title="", ylim=(limits[0] - 0.02, limits[1] + 0.02))
    return parts.picture(figure, f"{runs.name}-learning", title, told, caption)


def _frame(title: str, wide: pd.DataFrame, *, folded: bool = False) -> Table:
    names = [", ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in wide.index]
    rows = [[name, *map(_digits, row)] for name, row in zip(names, wide.to_numpy(), strict=True)]
    return Table(title, ["", *(f"k = {size}" for size in wide.columns)], rows, folded=folded)


def _digits(value: float) -> str:
    form = ",.0f" if abs(value) >= 100 else ".3g" if abs(value) >= 1 else ".4f"
    return "–" if pd.isna(value) else f"{value:{form}}"


def _simulation(name: str, frame: pd.DataFrame) -> list[Part]:
    room, draw, column, title = _SIMULATIONS[name]
    pictures = []
    for number, (value, part) in enumerate(frame.groupby(column, sort=False)):
        with matplotlib.style.context(page.STYLE):
            figure = draw(part, legend_columns=1)
            figure.set_size_inches(4.6, 9.4 if name == "variance" else 6.2)
            for panel in figure.axes:
                panel.set_title("")
                panel.yaxis.set_minor_formatter(NullFormatter())
        named = f"{title}, {column} {value}" if name == "variance" else f"{title}: ({value}) {part['title'].iloc[0]}"
        sizes = f"Bag sizes {int(part['k'].min())} to {int(part['k'].max())}; the table below has the numbers."
        pictures.append(parts.picture(figure, f"{name}-{number}", named, sizes, f"{named}."))
    tables = [_frame(title, wide, folded=True) for title, wide in room.tables(frame).items()]
    return [Pictures(pictures), Bullets(room.summary(frame)), *tables]


def _again(stored: Sequence[_Runs], simulated: dict[str, pd.DataFrame], command: str | None) -> Section:
    lines = [f"bagwise reproduce {runs.name} --scale {runs.scale}" for runs in stored]
    lines += [f"bagwise reproduce {name}" for name in simulated]
    frames = [frame.filter(regex="_version$") for frame in (*(runs.frame for runs in stored), *simulated.values())]
    columns = [(name.removesuffix("_version"), frame[name].dropna().unique()) for frame in frames for name in frame]
    made_with = [{name: str(one)} for name, versions in columns for one in versions]
    facts = []
    if stored:
        seeds = sorted({int(seed) for runs in stored for seed in runs.frame["random_state"].unique()})
        hours = sum(float(np.nansum(runs.frame["seconds"])) for runs in stored) / 3600
        facts = [f"Seed: {', '.join(map(str, seeds))}.", f"{hours:,.1f} hours of computing."]
    return parts.again(command, facts, made_with, ["The results:", Code("\n".join(lines))])
