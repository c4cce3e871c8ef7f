"""Every experiment by name: what to compute, what to store, what to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from bagwise.experiments import figures, paper, samples, store, variance
from bagwise.experiments.config import load
from bagwise.experiments.paper.curves import BY_TEST, LABEL_FREE, curves, table
from bagwise.experiments.paper.figures import accuracy_figure
from bagwise.utils.text import number_of

Progress = Callable[..., None]

_SIMULATIONS: dict[str, tuple[Any, Any, Callable[..., Any]]] = {
    "variance": (variance, variance.VarianceConfig(), figures.variance_figure),
    "samples": (samples, samples.SamplesConfig(), figures.samples_figure),
}


@dataclass(frozen=True, eq=False)
class Result:
    """What to show: tables by title, sentences, and the files written."""

    tables: dict[str, pd.DataFrame]
    notes: list[str]
    files: list[Path]


def reproduce(
    name: str,
    scale: str,
    out: Path,
    *,
    config: Path | None = None,
    changes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Result:
    """Compute what the folder `out` does not hold yet; write table and figure there.

    name: a data set of the paper, "variance" or "samples".  scale: quick, machine or paper; for the simulations the
    last two are the same.  config: a TOML file with fields to change.  changes: fields to change, None for none.
    """
    stem = "-".join([name, *(["quick"] if scale == "quick" else []), *([config.stem] if config else [])])
    base = _base(name, scale)
    plan = base if config is None else load(base, config)
    plan = replace(plan, **{key: value for key, value in (changes or {}).items() if value is not None})
    if name in _SIMULATIONS:
        return _simulate(name, plan, out, stem, progress)
    return _train(plan, out, stem, progress)


def _base(name: str, scale: str) -> Any:
    if name in _SIMULATIONS:
        room, full, _ = _SIMULATIONS[name]
        return room.QUICK if scale == "quick" else full
    return paper.PRESETS[scale][name]


def _simulate(name: str, plan: Any, out: Path, stem: str, progress: Progress | None) -> Result:
    room, _, draw = _SIMULATIONS[name]
    files = [out / f"{stem}.parquet", out / f"{stem}.png"]
    frame = store.read_table(store.write_table(room.run(plan, progress=progress), files[0]))
    store.save_figure(draw(frame), files[1])
    return Result(room.tables(frame), room.summary(frame), files)


def _train(plan: paper.PaperConfig, out: Path, stem: str, progress: Progress | None) -> Result:
    frame = paper.run(plan, out, progress=progress)
    found = curves(frame, plan)
    files = [paper.store_of(out, plan.dataset).path, out / f"{stem}.png"]
    store.save_figure(accuracy_figure(frame, plan), files[1])
    tables = {
        f"Test accuracy after {after}, by bag size; learning rate by {rule}": table(found, epochs, rule)
        for epochs, after in ((one, number_of(one, "epoch")) for one in plan.epochs)
        for rule in (BY_TEST, LABEL_FREE)
    }
    lost = int(frame["diverged"].sum())
    notes = [f"{len(frame):,} runs, {lost:,} of them diverged; {frame['seconds'].sum() / 3600:.1f} hours of computing."]
    shown = {title: part.map(_digits) for title, part in tables.items() if len(part)}
    return Result(shown, notes, files)


def _digits(accuracy: float) -> str:
    return "–" if pd.isna(accuracy) else f"{accuracy:.4f}"
