"""Models and evaluations in words, for the terminal."""

from __future__ import annotations

from typing import Any


def describe_model(about: dict[str, Any], *, even_if_not_random: bool = False) -> list[str]:
    """A model in words, line by line.  about: as it is stored with the model (`tables.about`)."""
    from bagwise import tables

    used = [column for column in about["columns"] if column["role"] != "ignored"]
    ignored = [column for column in about["columns"] if column["role"] == "ignored"]
    roles = ", ".join(f"{column['name']} ({column['role']})" for column in used)
    lines = [f"Model: {about['model']} ({about['estimator']}).", about["tables"], f"Columns: {roles}."]
    if ignored:
        lines.append(
            "Ignored: " + ", ".join(f"{column['name']} ({column['note'] or 'asked for'})" for column in ignored) + "."
        )
    if about.get("trials"):
        lines += ["", "Tried on held-out bags (label-free risk, lower is better):"]
        for trial in about["trials"]:
            risk = " ".join(tables.risk_of(trial, about, even_if_not_random=even_if_not_random)).strip()
            told = [part for part in (risk if trial["risk"] is not None else "", trial["note"]) if part]
            lines.append(f"  {trial['candidate']:<22}{'; '.join(told)}")
    found = about["evaluation"]
    if found is not None:
        lines += ["", *describe_evaluation(found if even_if_not_random else tables.withhold(found), "held-out ")]
        if about["refitted"]:
            lines.append("  Measured before the last fit, which took these bags in.")
    lines += ["", "Mean change of a prediction when a column is shuffled:"]
    lines += [f"  {value:.4f}  {name}" for name, value in about["sensitivity"].items()]
    return [*lines, ""]


def describe_evaluation(found: dict[str, Any], which: str = "") -> list[str]:
    """An evaluation in words, line by line.  found: as `tables.evaluation_facts` has it."""
    from bagwise import tables

    lines = [
        f"Measured on {found['bags']:,} {which}bags ({found['rows']:,} rows), without labels, {found['level']:.0%} "
        "intervals:"
    ]
    for name, label in (("accuracy", "accuracy"), ("brier", "Brier"), ("log_loss", "log loss"), ("auc", "AUC")):
        value = found[name]
        if value is not None:
            lines.append(f"  {label:<10}{value['value']:.4f} [{value['low']:.4f}, {value['high']:.4f}]")
        elif found["accuracy"] is None:
            lines.append(f"  {label:<10}–")
    if (why := tables.doubt_of(found)) is not None:
        shown = found["accuracy"] is not None
        way = "Do not rely on these numbers" if shown else "--even-if-not-random shows them all the same"
        lines.append(f"  {why} {way}; bagwise diagnose says more.")
    return lines
