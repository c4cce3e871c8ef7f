"""Why results differ from the paper's: what was computed less, what the paper leaves open, how images were read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from bagwise.experiments.paper.config import PRESETS, PaperConfig
from bagwise.experiments.paper.curves import measurements
from bagwise.experiments.paper.figure import NAMES
from bagwise.experiments.paper.folder import Folder
from bagwise.experiments.paper.methods import METHODS

_PAPER_ROWS = {"adult": 32_561, "mnist": 60_000, "cifar10": 50_000, "higgs": 10_990_000}

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


def differences(stored: Mapping[str, tuple[pd.DataFrame, PaperConfig]]) -> str:
    """The reasons, and where the runs are smaller than the paper's."""
    lines = []
    for name, (frame, config) in stored.items():
        rows, full = int((frame["bags"] * frame["size"]).max()), PRESETS["paper"][name]
        parts = {
            f"{rows:,} of {_PAPER_ROWS[name]:,} training rows": rows < _PAPER_ROWS[name],
            f"{_either(config.epochs)} epochs for {_either(full.epochs)}": config.epochs != full.epochs,
            f"{len(config.learning_rates)} learning rates for {len(full.learning_rates)}": config.learning_rates
            != full.learning_rates,
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
    lines, gaps = [], []
    for name in ("mnist", "cifar10"):
        frame = Folder(results, name).read()
        if frame.empty:
            continue
        long = measurements(frame, "rows", "scaled").query("not held_out")
        setting = ["rows", "size", "method", "learning_rate", "epoch"]
        wide = long.pivot_table(index=setting, columns="scaled", values="accuracy").dropna().reset_index()
        if {True, False} <= set(wide.columns):
            last = wide[wide["epoch"] == wide["epoch"].max()]
            best = last.groupby(["rows", "size", "method"]).max()
            gaps += list(100 * (best[True] - best[False]))
            lines += [
                f"| {NAMES[name]} | {row['rows']:,} | {row['size']} | {METHODS[row['method']].label} "
                f"| {row['learning_rate']:g} | {row['epoch']} | {row[False]:.3f} | {row[True]:.3f} |"
                for row in last.to_dict("records")
            ]
    if not lines:
        return []
    head = [
        "## Images scaled to [0, 1], or as published",
        "",
        "The paper mentions no preprocessing of images. Test accuracy with the numbers 0 to 255 as they are, and "
        "divided by 255. At the best learning rate of each, scaling is worth "
        f"{min(gaps):.1f} to {max(gaps):.1f} points, so it is an option (`scaled` of a config), on by default:",
        "",
        "| | rows | k | method | learning rate | epochs | 0 … 255 | scaled |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    return ["\n".join([*head, *lines, ""])]


def _either(values: tuple[int, ...]) -> str:
    return " and ".join(map(str, values))
