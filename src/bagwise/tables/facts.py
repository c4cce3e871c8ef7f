"""What a model of tables tells about itself, as plain data for its file."""

from __future__ import annotations

from typing import Any

from bagwise.evaluation import Evaluation
from bagwise.tables.bagged import BagTable, Summary
from bagwise.tables.judging import sensitivity
from bagwise.tables.model import TableModel
from bagwise.tables.shards import Shards

_MEASURES = ("accuracy", "brier", "log_loss", "auc")


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
        "trials": _trials(model.estimator),
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


def _estimator(estimator: Any) -> str:
    best = getattr(estimator, "best_name_", None)
    return type(estimator).__name__ + (f", which chose {best}" if best else "")


def _trials(estimator: Any) -> list[str]:
    """Lines on what was tried, where several candidates were."""
    return [
        f"  {line['candidate']:<22}"
        + (f"{line['risk']:.4f} [{line['low']:.4f}, {line['high']:.4f}]" if line["risk"] is not None else line["note"])
        for line in getattr(estimator, "trials_", [])
    ]
