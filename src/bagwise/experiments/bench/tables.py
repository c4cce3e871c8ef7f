"""The benchmark's rows as tables for readers."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from bagwise.experiments.bench.methods import HELD_OUT, METHODS
from bagwise.experiments.bench.runs import DATASETS
from bagwise.experiments.results import markdown_table
from bagwise.utils.text import number_of

HELD, TEST = "by held-out bags", "best by test accuracy"
METRICS = {"accuracy": "Accuracy", "auc": "AUC", "brier": "Brier score", "seconds": "Seconds"}


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Means and standard errors over partitions: one row per data set, bag size, method and rule of choice.

    rule: how the learning rate was chosen, empty where there was no choice: `HELD`, in each partition the one with
    the least label-free risk on held-out bags; `TEST`, as in the paper, the one with the best mean test accuracy.
    Each metric has a column and one that ends in _se (NaN for one partition). seconds: of all learning rates tried.
    partitions: how many went into the means.  error: the first there was.
    """
    records, metrics = [], list(METRICS)
    for (dataset, method, size), rows in frame.groupby(["dataset", "method", "size"], sort=False):
        error = next(iter(rows.loc[rows["error"] != "", "error"]), "")
        for rule, chosen in _choices(rows[rows["error"] == ""], rows):
            where = {"dataset": dataset, "method": method, "size": size, "rule": rule, "partitions": len(chosen)}
            means, errors = chosen[metrics].mean(), chosen[metrics].sem().add_suffix("_se")
            records.append({**where, **means, **errors, "error": error})
    return pd.DataFrame(records)


def _choices(rows: pd.DataFrame, tried: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """One row per partition, under each rule of choice; seconds are those of all that was `tried`."""
    if rows["learning_rate"].isna().all():
        yield "", rows
        return
    seconds = tried.groupby("partition")["seconds"].sum()
    held = rows.loc[rows.dropna(subset="risk").groupby("partition")["risk"].idxmin()]
    best = rows.groupby("learning_rate")["accuracy"].mean().idxmax()
    for rule, chosen in ((HELD, held), (TEST, rows[rows["learning_rate"] == best])):
        yield rule, chosen.assign(seconds=chosen["partition"].map(seconds))


def markdown(frame: pd.DataFrame) -> str:
    """The tables of a run, with what was done to get them."""
    parts = ["# Benchmark", *_introduction(frame)]
    for dataset, rows in summary(frame).groupby("dataset", sort=False):
        part = frame[frame["dataset"] == dataset]
        parts.append(f"## {DATASETS[str(dataset)][0]}")
        reasons = part["error"].unique()
        if len(reasons) == 1 and reasons[0]:
            parts.append(f"All of it was {reasons[0]}")
            continue
        facts = part.loc[part["rows"].idxmax()]
        parts.append(f"{facts['rows']:,} training rows, {facts['test_rows']:,} test rows.")
        parts += [_table(rows, metric) for metric in METRICS]
        if failures := list(_failures(part)):
            parts.append("Not measured:\n\n" + "\n".join(failures))
    return "\n\n".join(parts) + "\n"


def _introduction(frame: pd.DataFrame) -> list[str]:
    settings: dict[str, Any] = {}
    for text in frame["config"].unique():
        settings |= json.loads(text)["settings"]
    partitions = frame["partition"].nunique()
    spread = ": mean ± standard error over the partitions."
    if partitions == 1:
        spread = ". With one partition, differences are partly chance, the more so the fewer bags there are."
    rates, outside = (
        ", ".join(f"{rate:g}" for rate in settings.get(name, ())) for name in ("learning_rates", "outside_rates")
    )
    lines = [
        f"Each method learns from {number_of(partitions, 'random partition')} of the training rows into "
        "bags of k rows, of which only the proportions are handed to it, and is measured on the individual labels of "
        f"the test rows{spread} Accuracy is that of the threshold ½. Seconds are "
        f"those of fit and prediction, choices included, one method at a time on {frame['cores'].max()} cores."
    ]
    if "auto_seconds" in settings:
        lines.append(f"`BagAutoClassifier` has a time budget of {settings['auto_seconds']} s.")
    if rates:
        lines.append(
            "*Paper's network*: one hidden layer of 32 ReLU, batches of 1024 rows, Adam, E[h] from the other bags of "
            f"the batch, {settings['epochs']} epochs, learning rates {rates}; one training each, on "
            f"the bags that are not held out, serves two rules. *{HELD.capitalize()}*: in each partition the learning "
            f"rate with the least label-free risk on the {HELD_OUT:.0%} of the bags held out. *{TEST.capitalize()}* †: "
            "the learning rate with the best mean test accuracy, as the paper does; that uses test labels, which in "
            "practice nobody has."
        )
    lines.append(
        "*Lines marked ‡* learn from the individual labels of the training rows: a ceiling, not a competitor. All "
        "choices not marked † are made without labels. The group prior is LightGBM fitted to proportions as if they "
        "were labels. The mean map's penalty is the one with the least label-free risk on held-out bags."
    )
    if outside:
        lines.append(
            "*llp-learn 1.6* is installed from PyPI without the versions it pins and runs on the same libraries as the "
            f"rest. Its DLLP has one hidden layer of 32, {settings['epochs']} epochs of one step per bag, learning "
            f"rates {outside} under the two rules above; its EM is around scikit-learn's logistic "
            "regression."
        )
    return lines


def _table(rows: pd.DataFrame, metric: str) -> str:
    """Methods × bag sizes; a ceiling has one value, whatever the bags."""
    individual = rows["method"].map(lambda method: METHODS[method].individual)
    sizes = sorted(rows.loc[~individual & rows[metric].notna(), "size"].unique())
    lines = []
    for (method, rule), line in rows.groupby(["method", "rule"], sort=False):
        label = f"{METHODS[method].label}{f', {rule}' if rule else ''}"
        if METHODS[method].individual:
            cells = [_cell(line.iloc[0], metric)] * len(sizes)
            label += " ‡"
        else:
            by_size = {row["size"]: _cell(row, metric) for _, row in line.iterrows()}
            cells = [by_size.get(size, "–") for size in sizes]
        if not set(cells) <= {"–"}:
            lines.append([f"{label}{' †' if rule == TEST else ''}", *cells])
    return markdown_table([METRICS[metric], *(f"k = {size}" for size in sizes)], lines)


def _cell(row: pd.Series, metric: str) -> str:
    value, error = row[metric], row[f"{metric}_se"]
    if np.isnan(value):
        return "–"
    digits = 3 if metric != "seconds" else 1 if value < 100 else 0
    return f"{value:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def _failures(rows: pd.DataFrame) -> Iterator[str]:
    """What failed and why, one line per method, size and reason."""
    failed = rows[rows["error"] != ""]
    for (size, error), group in failed.groupby(["size", "error"], sort=False):
        if len(group) == (rows["size"] == size).sum():
            yield f"- all methods, k = {size}: {' '.join(str(error).split())}"
            failed = failed.drop(group.index)
    for (method, size, error), group in failed.groupby(["method", "size", "error"], sort=False):
        tried = rows[(rows["method"] == method) & (rows["size"] == size)]
        rates = sorted(group["learning_rate"].dropna().unique())
        what = f", learning rate {', '.join(f'{rate:g}' for rate in rates)}" if rates else ""
        share = f"{len(group)} of {len(tried)} trainings"
        yield f"- {METHODS[method].label}, k = {size}{what} ({share}): {' '.join(str(error).split())}"
