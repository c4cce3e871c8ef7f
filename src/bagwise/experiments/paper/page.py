"""The page on the reproduction: claims, tables and figures, from stored results alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from bagwise.experiments import store, variance
from bagwise.experiments.figures import variance_figure
from bagwise.experiments.paper.claims import AGREES, IN_PART, VERDICTS, Claim, Measured, claims
from bagwise.experiments.paper.config import DATASETS, PRESETS, PaperConfig
from bagwise.experiments.paper.curves import RULES, curves, table
from bagwise.experiments.paper.differences import differences, scaling
from bagwise.experiments.paper.figure import NAMES, figure
from bagwise.experiments.paper.folder import Folder
from bagwise.experiments.paper.front import front_figure
from bagwise.experiments.paper.plan import plan
from bagwise.utils.files import replacing
from bagwise.utils.text import number_of

_INTRODUCTION = """# The paper's experiments, reproduced

Every number on this page is computed from the Parquet files in `{results}`, one row per training, by
`bagwise reproduction --results {results} --page {page}`. The files come from `bagwise reproduce` with
`--scale machine`.

The protocol is the paper's: rows are shuffled and cut into bags of k, of which only the mean label is kept; batches
are whole bags with 1024 rows; Adam; p from all training bags, E[h] from the other bags of the batch; accuracy on the
individual labels of the test rows, mean over repetitions with new partitions and initial weights. A network is trained
once for the longest duration; shorter durations are stages of that training. Learning rates are chosen in two ways: by
mean test accuracy, as the paper does, which needs labels that nobody has in practice; and by the label-free risk of
bags held out from separate trainings.
"""


def write_page(results: Path, page: Path) -> list[Path]:
    """Write the page, and its figures into a folder `figures` beside it: the files written.

    A data set is shown where all runs of a preset are stored, or all of its first repetitions.
    """
    drawings, files = page.parent / "figures", []
    stored = {name: found for name in DATASETS if (found := finished(results, name)) is not None}
    told = claims({name: Measured.of(NAMES[name], *stored[name]) for name in stored}) if stored else []
    sections = []
    for name, (frame, config) in stored.items():
        files.append(store.save_figure(figure(frame, config), drawings / f"{name}.png"))
        sections.append(_section(name, frame, config))
        if name == "adult" and "boosting" in config.extras:
            files.append(store.save_figure(front_figure(frame, config), drawings / "front.png"))
    if (results / "variance.parquet").is_file():
        noise = store.read_table(results / "variance.parquet")
        files.append(store.save_figure(variance_figure(noise), drawings / "variance.png"))
        told += variance_claims(noise)
        sections.append(_variance_section(noise))
    if not told:
        raise FileNotFoundError(f"{results} holds no finished experiment: run bagwise reproduce adult --out {results}.")
    if stored:
        sections.insert(0, differences(stored))
    sections += scaling(results)
    head = _INTRODUCTION.format(results=results.as_posix(), page=page.as_posix())
    with replacing(page) as (temporary,):
        temporary.write_text("\n".join([head, _claims_section(told), *sections]), encoding="utf-8")
    return [page, *files]


def finished(results: Path, name: str) -> tuple[pd.DataFrame, PaperConfig] | None:
    """The runs of the largest preset of a data set that is complete, or of as many of its repetitions as are."""
    frame = Folder(results, name).read()
    stored = set(frame["key"])
    presets = [PRESETS[scale][name] for scale in ("paper", "machine")]
    for config in (*presets, *(part for preset in presets for part in _fewer_repetitions(preset))):
        runs = plan(config)
        if all(run.key in stored for run in runs):  # ends at the first that is missing: keys are hashes, plans are long
            return frame[frame["key"].isin([run.key for run in runs])], config
    return None


def _fewer_repetitions(config: PaperConfig) -> list[PaperConfig]:
    """The config with one repetition less, two less, down to one."""
    names = ("repetitions", "extra_repetitions", "held_out_repetitions")
    return [
        replace(config, **{name: min(most, getattr(config, name)) for name in names})
        for most in range(config.repetitions - 1, 0, -1)
    ]


def _claims_section(told: list[Claim]) -> str:
    counts = ", ".join(f"{verdict}: {sum(one.verdict == verdict for one in told)}" for verdict in VERDICTS)
    lines = [f"| {one.says} | {one.measured}. | {one.verdict} |" for one in told]
    head = ["| the paper says | measured here | |", "| --- | --- | --- |"]
    return "\n".join([f"## Claims ({counts})", "", *head, *lines, ""])


def _section(name: str, frame: pd.DataFrame, config: PaperConfig) -> str:
    found = curves(frame, config)
    rows = f"the first {config.rows:,} training rows" if config.rows else "all training rows"
    lost = int(frame["diverged"].sum())
    repeated = f"{number_of(config.repetitions, 'repetition')} of the paper's methods"
    if config.extras:
        repeated += f", {config.extra_repetitions} of the others"
    parts = [
        f"## {NAMES[name]}",
        "",
        f"{len(frame):,} trainings on {rows}: {repeated}, {number_of(len(config.learning_rates), 'learning rate')}; "
        f"{lost:,} diverged.",
        "",
        f"![test accuracy against bag size](figures/{name}.png)",
        "",
    ]
    for epochs in config.epochs:
        for rule in RULES:
            title = f"{number_of(epochs, 'epoch')}, learning rate by {rule}:"
            parts += [title, "", _markdown(table(found, epochs, rule)), ""]
    return "\n".join(parts)


def _markdown(wide: pd.DataFrame) -> str:
    head = "| | " + " | ".join(f"k = {size}" for size in wide.columns) + " |"
    lines = [
        f"| {label} | " + " | ".join("–" if pd.isna(value) else f"{value:.3f}" for value in row) + " |"
        for label, row in zip(wide.index, wide.to_numpy(), strict=True)
    ]
    return "\n".join([head, "| --- " * (wide.shape[1] + 1) + "|", *lines])


def variance_claims(frame: pd.DataFrame) -> list[Claim]:
    """The paper's claims about variance, which speak of bags of 2 and of 256 rows."""
    value = frame.set_index(["model", "loss", "means", "k"]).sort_index()

    def at(column: str, model: str, loss: str, means: str, k: int) -> float:
        return float(value.loc[(model, loss, means, k), column])

    small, large = 2, 256
    ours = [at("variance", "h = x", "ours", "leave_one_out", k) for k in (small, large)]
    bias = at("excess", "h = x", "ours", "leave_one_out", large) / at("mean", "h = x", "ours", "exact", large)
    easy = {
        model: [at("variance", model, "easyllp_square", "none", k) for k in (small, large)] for model in variance.MODELS
    }
    near = abs(ours[0] - 0.034) < 0.002 and abs(ours[1] - 0.055) < 0.003
    return [
        Claim(
            says="The variance of ours is 0.034, and 0.055 at k = 256 (h = x, E[h] from the other bags of a batch).",
            measured=f"{ours[0]:.4f} at k = {small}, {ours[1]:.4f} at k = {large}; what the paper does not say: the "
            f"squared estimate of E[h] makes the mean of the loss {bias:+.1%} too large there",
            verdict=AGREES if near else IN_PART,
        ),
        Claim(
            says="The variance of EasyLLP grows linearly with k.",
            measured=f"for the paper's h = x it is {easy['h = x'][0]:.3f} at k = {small} and {easy['h = x'][1]:.3f} at "
            f"k = {large}, since E[d] = 0 there by symmetry; for h = x² it is {easy['h = x²'][0]:.3f} and "
            f"{easy['h = x²'][1]:.3f}",
            verdict=IN_PART if easy["h = x"][1] < 2 * easy["h = x"][0] else AGREES,
        ),
    ]


def _variance_section(frame: pd.DataFrame) -> str:
    lines = [f"- {note}" for note in variance.summary(frame)]
    return "\n".join(
        ["## Variance of a bag's loss", "", "![variance against bag size](figures/variance.png)", "", *lines, ""]
    )
