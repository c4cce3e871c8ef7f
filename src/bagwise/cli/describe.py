"""Models and evaluations in words, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bagwise.evaluation import Evaluation
    from bagwise.tables import About


def describe_model(about: About) -> list[str]:
    """A model in words, line by line.  about: what is stored with it."""
    used = [column for column in about.columns if column.role != "ignored"]
    ignored = [column for column in about.columns if column.role == "ignored"]
    roles = ", ".join(f"{column.name} ({column.role})" for column in used)
    lines = [f"Model: {about.model} ({about.fitted_by}).", str(about.summary), f"Columns: {roles}."]
    if ignored:
        lines.append(
            "Ignored: " + ", ".join(f"{column.name} ({column.note or 'asked for'})" for column in ignored) + "."
        )
    if about.trials:
        lines += ["", "Tried on held-out bags (label-free risk, lower is better):"]
        for trial in about.trials:
            risk = "" if trial.risk is None else f"{trial.risk:.4f} [{trial.low:.4f}, {trial.high:.4f}]"
            lines.append(f"  {trial.candidate:<22}{'; '.join(part for part in (risk, trial.note) if part)}")
    if about.evaluation is not None:
        lines += ["", *describe_evaluation(about.evaluation, "held-out ")]
        if about.refitted:
            lines.append("  Measured before the last fit, which took these bags in.")
    lines += ["", "Mean change of a prediction when a column is shuffled:"]
    lines += [f"  {value:.4f}  {name}" for name, value in about.sensitivity.items()]
    return [*lines, ""]


def describe_evaluation(found: Evaluation, which: str = "") -> list[str]:
    """An evaluation in words, line by line."""
    lines = [
        f"Measured on {found.n_bags:,} {which}bags ({found.n_rows:,} rows), without labels, {found.level:.0%} "
        "intervals:"
    ]
    for name, label in (("accuracy", "accuracy"), ("brier", "Brier"), ("log_loss", "log loss"), ("auc", "AUC")):
        value = getattr(found, name)
        if value is not None or found.withheld:
            lines.append(f"  {label:<10}{value or '–'}")
    if found.doubt is not None:
        way = "--even-if-not-random shows them all the same" if found.withheld else "Do not rely on these numbers"
        lines.append(f"  {found.doubt} {way}; bagwise diagnose says more.")
    return lines
