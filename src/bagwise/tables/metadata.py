"""What a model of tables tells about itself, as plain data for its file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bagwise.data.shards import Shards
from bagwise.diagnostics import Finding
from bagwise.evaluation import Evaluation, doubt
from bagwise.tables.bag_table import BagTable, Summary
from bagwise.tables.evaluation import sensitivity
from bagwise.tables.model import TableModel

_MEASURES = ("accuracy", "brier", "log_loss", "auc")
_FINDINGS = 10  # that a model's file tells of


def about(
    model: TableModel,
    data: BagTable | Shards,
    evaluation: Evaluation | None,
    *,
    summary: Summary,
    seen: Summary,
    refitted: bool = False,
) -> dict[str, Any]:
    """Columns, training, label-free evaluation and what moves the predictions.

    data, summary: what the model was fitted to.  evaluation: on bags held out.  refitted: the model then took these in,
    too.  seen: the tables that all these bags are from.
    """
    columns = [
        {"name": one.name, "role": one.role.value, "levels": len(one.levels), "note": one.note}
        for one in model.features.columns
    ]
    return {
        "model": model.kind,
        "estimator": _estimator(model.estimator),
        "tables": str(summary),
        "seen": _fingerprint(seen),
        "keys": list(model.keys),
        "classes": None if model.classes is None else list(model.classes),
        "bags": summary.bags,
        "rows": summary.used_rows,
        "prior": list(summary.prior),
        "columns": columns,
        "trials": _trials(model, evaluation),
        "evaluation": None if evaluation is None else evaluation_facts(evaluation),
        "refitted": refitted and evaluation is not None,
        "sensitivity": sensitivity(model, data),
    }


def was_seen(facts: dict[str, Any], summary: Summary) -> bool:
    """Whether tables are, by their numbers of lines and bags and their mean label, those that `about` tells of."""
    return facts.get("seen") == _fingerprint(summary)


def _fingerprint(summary: Summary) -> dict[str, Any]:
    figures = {name: getattr(summary, name) for name in ("rows", "reports", "bags", "used_rows")}
    return {**figures, "prior": [f"{p:.9g}" for p in summary.prior]}  # sums differ by their order


def evaluation_facts(found: Evaluation) -> dict[str, Any]:
    """The figures of an evaluation."""
    figures: dict[str, Any] = {"bags": found.n_bags, "rows": found.n_rows, "level": found.level}
    figures["randomness"] = float(found.randomness)
    figures["not_random"] = [asdict(finding) for finding in found.not_random[:_FINDINGS]]
    figures["impossible"] = list(found.impossible)
    for name in _MEASURES:
        estimate = getattr(found, name)
        figures[name] = (
            None
            if estimate is None
            else {
                "value": float(estimate.value),
                "low": float(estimate.low),
                "high": float(estimate.high),
            }
        )
    return figures


def doubt_of(facts: dict[str, Any]) -> str | None:
    """Why the figures of an evaluation say nothing, in a sentence; None where nothing speaks against them."""
    return doubt([Finding(**finding) for finding in facts["not_random"]], facts["impossible"])


def withhold(facts: dict[str, Any]) -> dict[str, Any]:
    """The figures of an evaluation without those that say nothing."""
    return facts if doubt_of(facts) is None else {**facts, **dict.fromkeys(_MEASURES)}


def risk_of(trial: dict[str, Any], about: dict[str, Any], *, even_if_not_random: bool = False) -> tuple[str, str]:
    """The risk of a trial and its interval in digits; – where there is none, or where the bags cannot tell it.

    trial: one of those that `about` tells of.
    """
    evaluation = about["evaluation"]
    if trial["risk"] is None:
        return "–", ""
    if not (evaluation is None or doubt_of(evaluation) is None or even_if_not_random):
        return "–", "withheld"
    return f"{trial['risk']:.4f}", f"[{trial['low']:.4f}, {trial['high']:.4f}]"


def _estimator(estimator: Any) -> str:
    best = getattr(estimator, "best_name_", None)
    return type(estimator).__name__ + (f", which chose {best}" if best else "")


def _trials(model: TableModel, evaluation: Evaluation | None) -> list[dict[str, Any]]:
    """What was tried, where several candidates were; no risk where there was no trial, or bags cannot tell it."""
    told = ("candidate", "risk", "low", "high", "note")
    trials = [{name: line[name] for name in told} for line in getattr(model.estimator, "trials_", [])]
    if evaluation is not None and evaluation.doubt is not None and not evaluation.withheld:  # asked for as it comes
        return trials
    known, most = evaluation is None or not evaluation.withheld, 1 if model.classes is None else 2
    return [_possible(trial, known=known, most=most) for trial in trials]


def _possible(trial: dict[str, Any], *, known: bool, most: float) -> dict[str, Any]:
    """A trial whose risk is kept between 0 and `most`, or withheld where it is not known or beyond that."""
    if trial["risk"] is None:
        return trial
    if known and 0 <= trial["risk"] <= most:
        return {**trial, "low": max(trial["low"], 0.0), "high": min(trial["high"], float(most))}
    withheld = {"risk": None, "low": None, "high": None}
    return {**trial, **withheld, "note": trial["note"] or "tried; its risk is withheld"}
