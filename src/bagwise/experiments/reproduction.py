"""Every experiment by name: what to compute, what to store, what to show."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from bagwise.experiments import paper, samples, variance
from bagwise.experiments.harness import load
from bagwise.experiments.paper.results import RULES, accuracy_figure, curves, table
from bagwise.experiments.results import read_table, save_figure, write_chapter, write_table
from bagwise.utils.text import number_of

Progress = Callable[..., None]

_SIMULATIONS: dict[str, tuple[Any, Any]] = {
    "variance": (variance, variance.VarianceConfig()),
    "samples": (samples, samples.SamplesConfig()),
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
    room, full = _SIMULATIONS.get(name, (None, None))
    base = paper.PRESETS[scale][name] if room is None else room.QUICK if scale == "quick" else full
    stem, plan = _planned(name, scale, base, config)
    plan = replace(plan, **{key: value for key, value in (changes or {}).items() if value is not None})
    picture = out / f"{stem}.png"
    if room is None:
        return _train(name, plan, out, picture, progress)
    path = write_table(room.run(plan, progress=progress), out / f"{stem}.parquet")
    frame = read_table(path)
    save_figure(room.figure(frame), picture)
    return Result(room.tables(frame), room.summary(frame), [path, picture])


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
    write_chapter(text, files[1])
    return Result({}, text.splitlines(), files)


def formations(
    scale: str,
    out: Path,
    *,
    config: Path | None = None,
    changes: Mapping[str, Any] | None = None,
    page: Path | None = None,
    stored: bool = False,
    progress: Progress | None = None,
) -> Result:
    """The benchmark of formations: as `benchmark`, but that the page shows all that is stored of the partitions.

    changes: fields of the config to change, None for none.  stored: compute nothing. The notes of the result are what
    was asked for and what was measured.
    """
    from bagwise.experiments import bench

    base = bench.QUICK_FORMATIONS if scale == "quick" else bench.FULL_FORMATIONS
    stem, plan = _planned("formations", scale, base, config)
    plan = replace(plan, **{key: value for key, value in (changes or {}).items() if value is not None})
    files = [out / f"{stem}.parquet", page or out / f"{stem}.md"]
    if not stored:
        bench.run_formations(plan, files[0], progress=progress)
    frame = bench.stored_formations(plan.partitions, files[0])
    write_chapter(bench.formations_markdown(frame), files[1])
    return Result({}, bench.reached(frame).splitlines(), files)


def _planned(name: str, scale: str, base: Any, config: Path | None) -> tuple[str, Any]:
    """What files are called, and the config with what a TOML file changes. Only full runs have the plain name."""
    stem = "-".join([name, *(["quick"] if scale == "quick" else []), *([config.stem] if config else [])])
    return stem, base if config is None else load(base, config)


def _train(name: str, plan: paper.PaperConfig, out: Path, picture: Path, progress: Progress | None) -> Result:
    frame = paper.run(plan, out, progress=progress)
    found = curves(frame, plan)
    save_figure(accuracy_figure(frame, plan), picture)
    title = "Test accuracy after {}, by bag size; learning rate by {}"
    tables = {
        title.format(number_of(epochs, "epoch"), rule): wide.map("{:.4f}".format).where(wide.notna(), "–")
        for epochs in plan.epochs
        for rule in RULES
        if len(wide := table(found, epochs, rule))
    }
    lost, hours = int(frame["diverged"].sum()), frame["seconds"].sum() / 3600
    notes = [f"{len(frame):,} runs, {lost:,} of them diverged; {hours:.1f} hours of computing."]
    return Result(tables, notes, [paper.store_of(out, name).path, picture])
