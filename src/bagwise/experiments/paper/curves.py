"""Accuracy by bag size and duration, from finished runs; learning rates chosen as in the paper, and without labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bagwise.experiments.paper.plan import METHODS, PaperConfig

BY_TEST, LABEL_FREE = "test accuracy", "label-free risk"
RULES = (BY_TEST, LABEL_FREE)
"""How a learning rate is chosen: by the mean accuracy on the test rows, as the paper does, or by held-out bags."""

_SETTING = ["method", "size", "learning_rate"]


def measurements(frame: pd.DataFrame, *more: str) -> pd.DataFrame:
    """One row per run and measured epoch: its method, size, learning_rate, repetition and held_out, what was measured.

    more: further columns to keep.

    Where training diverged, accuracy is 0 and risk infinite: it must not be chosen.
    """
    columns = ["epoch", "accuracy", "brier", "risk"]
    long = frame[[*_SETTING, "repetition", "held_out", *more, *columns]].explode(columns, ignore_index=True)
    long = long.astype({"epoch": int, "accuracy": float, "brier": float, "risk": float})
    lost = long["accuracy"].isna()
    long.loc[lost, "accuracy"] = 0.0
    long.loc[lost, "risk"] = np.inf
    return long


def curves(frame: pd.DataFrame, config: PaperConfig) -> pd.DataFrame:
    """One row per rule, method, size and duration: learning_rate, accuracy, se (standard error), brier, repetitions.

    A label-free choice needs runs with held-out bags; where there are none it is left out.
    """
    long = measurements(frame)
    rows = []
    for duration in config.epochs:
        stage = long[(long["epoch"] == duration) | (long["epoch"] == 0)]
        full = stage[~stage["held_out"]].groupby(_SETTING)[["accuracy", "brier"]].agg(["mean", "std", "count"])
        risk = stage[stage["held_out"]].groupby(_SETTING)["risk"].mean()
        for (name, _), group in full.groupby(level=["method", "size"]):
            accuracy = group[("accuracy", "mean")]
            risks = risk.reindex(accuracy.index).dropna()
            chosen = {BY_TEST: accuracy.idxmax()}
            if len(risks):
                chosen[LABEL_FREE] = risks.idxmin()
            elif not METHODS[str(name)].is_network:
                chosen[LABEL_FREE] = accuracy.index[0]
            rows += [_row(rule, duration, group.loc[[setting]]) for rule, setting in chosen.items()]
    return pd.DataFrame(rows)


def _row(rule: str, duration: int, one: pd.DataFrame) -> dict[str, Any]:
    name, size, rate = one.index[0]
    values, count = one.iloc[0], int(one[("accuracy", "count")].iloc[0])
    return {
        "rule": rule,
        "method": name,
        "size": int(size),
        "epochs": duration,
        "learning_rate": float(rate),
        "accuracy": float(values[("accuracy", "mean")]),
        "se": float(values[("accuracy", "std")]) / np.sqrt(count) if count > 1 else np.nan,
        "brier": float(values[("brier", "mean")]),
        "repetitions": count,
    }


def learning_curves(frame: pd.DataFrame, config: PaperConfig, size: int) -> pd.DataFrame:
    """One row per network method and measured epoch at one bag size: mean accuracy and se, with the learning rate that
    is best at the longest duration by test accuracy."""
    chosen = curves(frame, config)
    chosen = chosen[(chosen["rule"] == BY_TEST) & (chosen["size"] == size) & (chosen["epochs"] == max(config.epochs))]
    long = measurements(frame)
    long = long[~long["held_out"] & (long["epoch"] > 0)]
    long = long.merge(chosen[_SETTING], on=_SETTING)
    found = long.groupby(["method", "learning_rate", "epoch"])["accuracy"].agg(["mean", "std", "count"]).reset_index()
    found["se"] = found["std"] / np.sqrt(found["count"])
    return found.rename(columns={"mean": "accuracy"})[["method", "learning_rate", "epoch", "accuracy", "se"]]


def table(found: pd.DataFrame, epochs: int, rule: str = BY_TEST) -> pd.DataFrame:
    """Accuracy as methods × bag sizes."""
    part = found[(found["rule"] == rule) & (found["epochs"] == epochs)]
    pivot = part.pivot_table(index="method", columns="size", values="accuracy")
    return pivot.reindex([name for name in METHODS if name in pivot.index]).rename(
        index={name: method.label for name, method in METHODS.items()}
    )
