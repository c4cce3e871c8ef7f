"""The page on the reproduction: claims, tables and figures, from stored results alone."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from bagwise.experiments import variance
from bagwise.experiments.paper import results as paper
from bagwise.experiments.paper.runs import DATASETS, METHODS, NAMES, PRESETS, PaperConfig, plan, store_of
from bagwise.experiments.results import markdown_table, read_table, save_figure, write_text
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

_REASONS = """## Why results differ

- *Less data, shorter training*, where the list below says so. Fewer rows are felt most with large bags, of which few
  are left; fewer epochs are felt by the methods that learn slowly.
- *Learning rates.* A method is as good as the best of the rates tried, and rates near the best differ by method and bag
  size.
- *E[h] from the other bags of a batch.* The estimate is unbiased, its square is not: the loss gains
  (k + 1)·Var(h)/(N − k), which at k = 512 and N = 1024 is as large as Var(h) itself and pulls predictions towards a
  constant. "Ours, running mean" carries E[h] over from earlier batches and pays less for it, but lags behind a network
  that changes fast: at large learning rates and few epochs, and on Higgs, whose columns are as published, it is worse.
- *EasyLLP's variance* grows with k where E[ℓ₁ − ℓ₀] is not 0, as for nearly every network; in the paper's own example
  it is 0 by symmetry, and the variance does not grow.
"""

_FORMS = {"rows": ",", "size": "", "method": "", "learning_rate": "g", "epoch": "", False: ".3f", True: ".3f"}
_PAPER_ROWS = {"adult": 32_561, "mnist": 60_000, "cifar10": 50_000, "higgs": 10_990_000}


def write_page(results: Path, page: Path) -> list[Path]:
    """Write the page, and its figures into a folder `figures` beside it: the files written.

    A data set is shown where all runs of a preset are stored, or all of its first repetitions.
    """
    drawings, files = page.parent / "figures", []
    stored = {name: found for name in DATASETS if (found := finished(results, name)) is not None}
    told = paper.claims({name: paper.Measured.of(NAMES[name], *stored[name]) for name in stored}) if stored else []
    sections = []
    for name, (frame, config) in stored.items():
        files.append(save_figure(paper.accuracy_figure(frame, config), drawings / f"{name}.png"))
        sections.append(_section(name, frame, config))
        if name == "adult" and "boosting" in config.extras:
            files.append(save_figure(paper.front_figure(frame, config), drawings / "front.png"))
    if (results / "variance.parquet").is_file():
        noise = read_table(results / "variance.parquet")
        files.append(save_figure(variance.figure(noise), drawings / "variance.png"))
        told += paper.variance_claims(noise)
        notes = "\n".join(f"- {note}" for note in variance.summary(noise))
        sections.append(
            f"## Variance of a bag's loss\n\n![variance against bag size](figures/variance.png)\n\n{notes}\n"
        )
    if not told:
        raise FileNotFoundError(f"{results} holds no finished experiment: run bagwise reproduce adult --out {results}.")
    if stored:
        sections.insert(0, differences(stored))
    sections += scaling(results)
    counts = ", ".join(f"{verdict}: {sum(one.verdict == verdict for one in told)}" for verdict in paper.VERDICTS)
    rows = [[one.says, f"{one.measured}.", one.verdict] for one in told]
    claimed = f"## Claims ({counts})\n\n{markdown_table(['the paper says', 'measured here', ''], rows)}\n"
    head = _INTRODUCTION.format(results=results.as_posix(), page=page.as_posix())
    write_text("\n".join([head, claimed, *sections]), page)
    return [page, *files]


def finished(results: Path, name: str) -> tuple[pd.DataFrame, PaperConfig] | None:
    """The runs of the largest preset of a data set that is complete, or of as many of its repetitions as are."""
    frame = store_of(results, name).read()
    stored = set(frame["config_hash"])
    presets = [PRESETS[scale][name] for scale in ("paper", "machine")]
    names = ("repetitions", "extra_repetitions", "held_out_repetitions")
    fewer = [
        replace(preset, **{name: min(most, getattr(preset, name)) for name in names})
        for preset in presets
        for most in range(preset.repetitions - 1, 0, -1)
    ]
    for config in (*presets, *fewer):
        runs = plan(config)
        if all(run.key in stored for run in runs):  # ends at the first that is missing: keys are hashes, plans are long
            return frame[frame["key"].isin([run.key for run in runs])], config
    return None


def _section(name: str, frame: pd.DataFrame, config: PaperConfig) -> str:
    found = paper.curves(frame, config)
    rows = f"the first {config.rows:,} training rows" if config.rows else "all training rows"
    repeated = f"{number_of(config.repetitions, 'repetition')} of the paper's methods"
    if config.extras:
        repeated += f", {config.extra_repetitions} of the others"
    tried = number_of(len(config.learning_rates), "learning rate")
    parts = [
        f"## {NAMES[name]}",
        f"{len(frame):,} trainings on {rows}: {repeated}, {tried}; {int(frame['diverged'].sum()):,} diverged.",
        f"![test accuracy against bag size](figures/{name}.png)",
    ]
    for epochs in config.epochs:
        for rule in paper.RULES:
            wide = paper.table(found, epochs, rule)
            cells = wide.map(lambda value: "–" if pd.isna(value) else f"{value:.3f}").reset_index().to_numpy()
            head = ["", *(f"k = {size}" for size in wide.columns)]
            parts += [f"{number_of(epochs, 'epoch')}, learning rate by {rule}:", markdown_table(head, cells)]
    return "\n\n".join(parts) + "\n"


def differences(stored: Mapping[str, tuple[pd.DataFrame, PaperConfig]]) -> str:
    """The reasons, and where the runs are smaller than the paper's."""
    lines = []
    for name, (frame, config) in stored.items():
        rows, full = int((frame["bags"] * frame["size"]).max()), PRESETS["paper"][name]
        epochs, all_epochs = (" and ".join(map(str, one.epochs)) for one in (config, full))
        rates, all_rates = config.learning_rates, full.learning_rates
        parts = {
            f"{rows:,} of {_PAPER_ROWS[name]:,} training rows": rows < _PAPER_ROWS[name],
            f"{epochs} epochs for {all_epochs}": epochs != all_epochs,
            f"{len(rates)} learning rates for {len(all_rates)}": rates != all_rates,
            f"{config.repetitions} repetitions for {full.repetitions}": config.repetitions < full.repetitions,
            f"bag sizes {', '.join(map(str, config.sizes))} only": config.sizes != full.sizes,
        }
        less = [text for text, holds in parts.items() if holds]
        lines.append(f"- {NAMES[name]}: {'; '.join(less) or 'as in the paper'}.")
    missing = [NAMES[name] for name in PRESETS["paper"] if name not in stored]
    lines += [f"- Not computed yet: {'; '.join(missing)}."] if missing else []
    return "\n".join([_REASONS, "Compared with the paper's runs:", "", *lines, ""])


def scaling(results: Path) -> list[str]:
    """Images as published beside images scaled to [0, 1], where both were trained on with everything else equal."""
    rows: list[list[str]] = []
    gaps: list[float] = []
    for name in ("mnist", "cifar10"):
        frame = store_of(results, name).read()
        if frame.empty:
            continue
        long = paper.measurements(frame, "rows", "scaled").query("not held_out")
        setting = ["rows", "size", "method", "learning_rate", "epoch"]
        wide = long.pivot_table(index=setting, columns="scaled", values="accuracy").dropna().reset_index()
        if {True, False} <= set(wide.columns):
            last = wide[wide["epoch"] == wide["epoch"].max()]
            best = last.groupby(["rows", "size", "method"]).max()
            gaps += list(100 * (best[True] - best[False]))
            last = last.assign(method=[METHODS[method].label for method in last["method"]])
            for row in last.to_dict("records"):
                rows.append([NAMES[name], *(f"{row[column]:{form}}" for column, form in _FORMS.items())])
    if not rows:
        return []
    told = (
        "The paper mentions no preprocessing of images. Test accuracy with the numbers 0 to 255 as they are, and "
        "divided by 255. At the best learning rate of each, scaling is worth "
        f"{min(gaps):.1f} to {max(gaps):.1f} points, so it is an option (`scaled` of a config), on by default:"
    )
    head = ["", "rows", "k", "method", "learning rate", "epochs", "0 … 255", "scaled"]
    return [f"## Images scaled to [0, 1], or as published\n\n{told}\n\n{markdown_table(head, rows)}\n"]
