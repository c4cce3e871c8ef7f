"""Every experiment by name: what to compute, what to store, what to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from bagwise.experiments import figures, paper, samples, store, variance
from bagwise.experiments.config import load
from bagwise.experiments.paper.figures import accuracy_figure
from bagwise.experiments.paper.results import BY_TEST, LABEL_FREE, curves, table
from bagwise.utils.files import replacing
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
    if name in _SIMULATIONS:
        room, full, _ = _SIMULATIONS[name]
        base = room.QUICK if scale == "quick" else full
    else:
        base = paper.PRESETS[scale][name]
    stem, plan = _planned(name, scale, base, config)
    plan = replace(plan, **{key: value for key, value in (changes or {}).items() if value is not None})
    return (_simulate if name in _SIMULATIONS else _train)(name, plan, out, stem, progress)


def benchmark(
    scale: str, out: Path, *, config: Path | None = None, page: Path | None = None, progress: Progress | None = None
) -> Result:
    """Run what the benchmark's table in the folder `out` does not hold yet; write the page of tables.

    scale: quick or full.  page: a Markdown file, beside the table if None; its lines are the notes of the result.
    """
    from bagwise.experiments import bench

    stem, plan = _planned("bench", scale, bench.QUICK if scale == "quick" else bench.FULL, config)
    files = [out / f"{stem}.parquet", page or out / f"{stem}.md"]
    text = bench.markdown(bench.run(plan, files[0], progress=progress))
    with replacing(files[1]) as (temporary,):
        temporary.write_text(text, encoding="utf-8")
    return Result({}, text.splitlines(), files)


def _planned(name: str, scale: str, base: Any, config: Path | None) -> tuple[str, Any]:
    """What files are called, and the config with what a TOML file changes. Only full runs have the plain name."""
    stem = "-".join([name, *(["quick"] if scale == "quick" else []), *([config.stem] if config else [])])
    return stem, base if config is None else load(base, config)


def _simulate(name: str, plan: Any, out: Path, stem: str, progress: Progress | None) -> Result:
    room, _, draw = _SIMULATIONS[name]
    files = [out / f"{stem}.parquet", out / f"{stem}.png"]
    frame = store.read_table(store.write_table(room.run(plan, progress=progress), files[0]))
    store.save_figure(draw(frame), files[1])
    return Result(room.tables(frame), room.summary(frame), files)


def _train(name: str, plan: paper.PaperConfig, out: Path, stem: str, progress: Progress | None) -> Result:
    frame = paper.run(plan, out, progress=progress)
    found = curves(frame, plan)
    files = [paper.store_of(out, name).path, out / f"{stem}.png"]
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
