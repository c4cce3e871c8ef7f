"""Commands of the demonstration and of the researcher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import bagwise
from bagwise.cli.common import Misuse, Progress, check_free, say, show, show_progress, typed
from bagwise.cli.options import Seed, Text, parse_names, parse_whole

if TYPE_CHECKING:
    from bagwise.experiments.reproduction import Result

Experiment = StrEnum("Experiment", "adult mnist cifar10 higgs variance samples all")
Scale = StrEnum("Scale", "quick machine paper")
BenchScale = StrEnum("BenchScale", "quick full")

_RESULTS = Path("bagwise-results")
_PART = "With --formations."
_CONFIG = "TOML file with settings to change; a wrong key is answered with all keys."
Config = Annotated[Path | None, Option(exists=True, dir_okay=False, help=_CONFIG)]
_EXPERIMENTS = (
    "adult, mnist, cifar10, higgs: accuracy of networks by bag size.  variance: how much a bag's loss scatters.  "
    "samples: how many bags a learner needs.  all: one after the other."
)


def demo(
    out: Annotated[Path, Option(file_okay=False, help="Folder for tables and figure.")] = Path("bagwise-demo"),
    rows: Annotated[int, Option(help="Impressions in the log, at least 10,240.")] = 200_000,
    seed: Seed = 0,
    force: Annotated[bool, Option("--force", help="Write into a folder that holds other files.")] = False,
) -> None:
    """Learn from bags, measure without labels, compare with the truth.

    The story of a simulated advertising log: impressions have features, conversions are reported per bag only.
    Repeating it is safe; a folder that holds other files is left alone without --force.
    """
    with show_progress() as progress:
        from bagwise.demo import FILES, after, run, story, table

        check_free(out / FILES[0], force=True)  # its own are replaced
        result = run(out, rows=rows, random_state=seed, force=force, progress=progress)
    show(*story(result), "", table(result), "", *after(out, *typed()))


def reproduce(
    experiment: Annotated[Experiment, Argument(help=_EXPERIMENTS)],
    out: Annotated[Path, Option(file_okay=False, help="Folder for tables and figures.")] = _RESULTS,
    seed: Annotated[int | None, Option(min=0, help="Seed of every random draw; 0 if nothing sets it.")] = None,
    scale: Annotated[
        Scale, Option(help="quick: minutes, rougher numbers.  machine: hours on two cores.  paper: everything.")
    ] = Scale.machine,
    jobs: Annotated[int | None, Option(min=1, help="Processes; 2 if nothing sets them.")] = None,
    config: Config = None,
) -> None:
    """Regenerate the paper's figures and numbers.

    Each finished run is stored at once: stop when you like, run again to go on. Data files come from BAGWISE_DATA or
    are downloaded. A quick run writes under a name of its own and never replaces the results of others.
    So does a run with a config file, which is TOML such as: sizes = [8, 64]
    """
    out.mkdir(parents=True, exist_ok=True)  # first: better to fail now than after minutes
    if experiment is Experiment.all and config is not None:
        raise Misuse("all takes no config file: give it to one experiment at a time.")
    chosen = [one for one in Experiment if one is not Experiment.all] if experiment is Experiment.all else [experiment]
    for one in chosen:
        with _runs() as progress:
            from bagwise.experiments import reproduction as experiments

            changes = {"random_state": seed, "n_jobs": jobs}
            result = experiments.reproduce(one, scale, out, config=config, changes=changes, progress=progress)
        _show_result(result)


def reproduction(
    results: Annotated[Path, Option(file_okay=False, help="Folder that bagwise reproduce wrote.")] = _RESULTS,
    page: Annotated[
        Path, Option(dir_okay=False, help="Markdown file, replaced if there; figures go beside it.")
    ] = _RESULTS / "reproduction.md",
) -> None:
    """Write the page on the reproduction, from stored results alone: each claim of the paper and what was measured."""
    from bagwise.experiments.paper.page import write_page

    show(f"Written: {', '.join(str(path) for path in write_page(results, page))}")


def bench(
    out: Annotated[Path, Option(file_okay=False, help="Folder for the rows of all runs.")] = _RESULTS,
    report: Annotated[
        Path | None,
        Option(dir_okay=False, help="Markdown file for the tables, replaced if there; beside the rows if not given."),
    ] = None,
    scale: Annotated[
        BenchScale, Option(help="quick: small data sets, minutes.  full: all data sets, hours.")
    ] = BenchScale.full,
    config: Config = None,
    formations: Annotated[
        bool, Option("--formations", help="Bags of every formation in place of random ones.")
    ] = False,
    data: Annotated[Text, Option(help=f"Data sets to compute, as adult,digits. {_PART}")] = None,
    cases: Annotated[Text, Option(help=f"Cases, as random,rates,sorted,groups,effects-0.5. {_PART}")] = None,
    methods: Annotated[Text, Option(help=f"Methods, as boosting,logistic. {_PART}")] = None,
    sizes: Annotated[Text, Option(help=f"Bag sizes, as 64,512. {_PART}")] = None,
    seeds: Annotated[Text, Option(help=f"Numbers of partitions, as 100-104 or 100,101. {_PART}")] = None,
    stored: Annotated[bool, Option("--stored", help=f"Compute nothing, show what is stored. {_PART}")] = False,
) -> None:
    """Compare all methods: ours, the paper's losses, baselines, llp-learn and the supervised ceiling.

    Accuracy, AUC, Brier score and seconds on Adult, Criteo, digits and the synthetic log, by bag size; with
    --formations, bags of every formation, HIGGS and a register of voters, too, beside what is asked of the estimators.
    Each finished run is stored at once: stop when you like, run again to go on, or run parts side by side. Data files
    come from BAGWISE_DATA or are downloaded; Criteo's must be there.
    """
    parts = {"datasets": parse_names(data), "cases": parse_names(cases), "methods": parse_names(methods)}
    changes: dict[str, Any] = {key: names and tuple(names) for key, names in parts.items()}
    changes |= {"sizes": parse_whole(sizes, "--sizes") or None, "partitions": _numbers(seeds)}
    if not formations and (stored or any(value is not None for value in changes.values())):
        raise Misuse(
            "--data, --cases, --methods, --sizes, --seeds and --stored choose among formations: add --formations."
        )
    out.mkdir(parents=True, exist_ok=True)
    with _runs() as progress:
        from bagwise.experiments import reproduction as experiments

        options: dict[str, Any] = {"config": config, "page": report, "progress": progress}
        if formations:
            result = experiments.formations(scale, out, changes=changes, stored=stored, **options)
        else:
            result = experiments.benchmark(scale, out, **options)
    _show_result(result)


def _numbers(text: str | None) -> tuple[int, ...] | None:
    """Whole numbers and ranges of such, separated by commas."""
    if text is None:
        return None
    ranges = [part.partition("-") for part in parse_names(text) or ()]
    if not ranges or not all(first.isdecimal() and (last.isdecimal() or not dash) for first, dash, last in ranges):
        raise Misuse(f"--seeds must be whole numbers, as in 100-104 or 100,101, got {text}.")
    return tuple(one for first, _, last in ranges for one in range(int(first), int(last or first) + 1))


def _show_result(result: Result) -> None:
    def short(value: float) -> str:
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    for title, table in result.tables.items():
        show(f"{title}:", "", table.to_string(float_format=short, na_rep="–"), "")
    show(*result.notes, "", f"Written: {', '.join(map(str, result.files))}")


@contextmanager
def _runs() -> Iterator[Progress]:
    """Progress of runs, each of which is stored when it is finished, and of downloads for them."""
    try:
        with show_progress() as progress, bagwise.datasets.show_downloads():
            yield progress
    except KeyboardInterrupt:
        say("Finished runs are stored: the same command goes on from there.")
        raise
