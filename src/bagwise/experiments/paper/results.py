"""What finished runs show: accuracy by bag size and duration, and the paper's claims beside what was measured.

Learning rates are chosen as in the paper, by test accuracy, and without labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bagwise.experiments.paper.plan import METHODS, PAPER, PaperConfig
from bagwise.experiments.variance import MODELS, lookup
from bagwise.utils.text import number_of

BY_TEST, LABEL_FREE = "test accuracy", "label-free risk"
RULES = (BY_TEST, LABEL_FREE)
"""How a learning rate is chosen: by the mean accuracy on the test rows, as the paper does, or by held-out bags."""

_SETTING = ["method", "size", "learning_rate"]
_FAR = 0.02  # in accuracy
AGREES, IN_PART, DIFFERS = VERDICTS = ("agrees", "in part", "differs")


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
    """One row per network method and measured epoch at one bag size: mean accuracy and se.

    With the learning rate that is best at the longest duration by test accuracy.
    """
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


# -- the paper's claims --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the paper says, what was measured here, and whether the two agree."""

    says: str
    measured: str
    verdict: str


@dataclass(frozen=True, eq=False)
class Measured:
    """The curves of one data set under the paper's rule, for the paper's methods: accuracy and se by method."""

    name: str
    config: PaperConfig
    accuracy: pd.DataFrame
    se: pd.DataFrame

    @classmethod
    def of(cls, name: str, frame: pd.DataFrame, config: PaperConfig) -> Measured:
        """Rows are (epochs, size), columns are methods."""
        found = curves(frame, config)
        found = found[(found["rule"] == BY_TEST) & found["method"].isin(PAPER)]
        wide = found.pivot_table(index=["epochs", "size"], columns="method", values=["accuracy", "se"], dropna=False)
        return cls(name, config, wide["accuracy"], wide["se"].fillna(0.0))

    @property
    def lead(self) -> pd.Series:
        """(epochs, size) ours less the best of the others."""
        return self.accuracy["ours"] - self.accuracy.drop(columns="ours").max(axis=1)

    @property
    def lead_se(self) -> pd.Series:
        """(epochs, size) standard error of the lead."""
        others = self.accuracy.drop(columns="ours")
        best = self.se.drop(columns="ours").to_numpy()[np.arange(len(others)), others.to_numpy().argmax(axis=1)]
        return np.sqrt(self.se["ours"] ** 2 + best**2)


def claims(measured: Mapping[str, Measured]) -> list[Claim]:
    """All claims that the data sets at hand can speak to."""
    every = list(measured.values())
    found = [_best_everywhere(every), _fall_off(every), _widest_at_few_epochs(every), _vanillas_overlap(every)]
    for name, level in (("cifar10", 0.8), ("higgs", 0.65)):
        if name in measured and 64 in measured[name].config.sizes:
            found.append(_above_at_64(measured[name], level))
    return found


def _best_everywhere(every: list[Measured]) -> Claim:
    parts, behind, points = [], 0, 0
    for one in every:
        lead, error = one.lead[one.lead.index.get_level_values("size") > 1], one.lead_se
        clearly = lead < -2 * error.reindex(lead.index)
        ahead = int((lead >= 0).sum())
        behind, points = behind + int(clearly.sum()), points + len(lead)
        (worst_at, worst_k), (best_at, best_k) = lead.idxmin(), lead.idxmax()
        parts.append(
            f"{one.name}: highest at {ahead} of {len(lead)} points (k > 1), behind by more than 2 standard errors at "
            f"{int(clearly.sum())}; worst {_signed(lead.min())} at k = {worst_k}, {number_of(worst_at, 'epoch')}, "
            f"best {_signed(lead.max())} at k = {best_k}, {number_of(best_at, 'epoch')}"
        )
    verdict = AGREES if behind == 0 else IN_PART if behind < points / 4 else DIFFERS
    return Claim(says="Ours is best at every bag size and duration.", measured=_list(parts), verdict=verdict)


def _fall_off(every: list[Measured]) -> Claim:
    parts, agree = [], True
    for one in every:
        longest, sizes = max(one.config.epochs), (min(one.config.sizes), max(one.config.sizes))
        drop = one.accuracy.loc[(longest, sizes[0])] - one.accuracy.loc[(longest, sizes[1])]
        agree &= bool((drop.drop("ours") > drop["ours"] + _FAR).all())
        listed = ", ".join(f"{METHODS[name].label} {_signed(-drop[name])}" for name in PAPER)
        parts.append(f"{one.name}, {number_of(longest, 'epoch')}, from k = {sizes[0]} to {sizes[1]}: {listed}")
    return Claim(
        says="The others are reasonable for small bags and far worse for large ones.",
        measured=_list(parts),
        verdict=AGREES if agree else IN_PART,
    )


def _widest_at_few_epochs(every: list[Measured]) -> Claim:
    parts, agree = [], []
    for one in every:
        few, many = min(one.config.epochs), max(one.config.epochs)
        lead = one.lead[one.lead.index.get_level_values("size") > 1]
        means = [float(lead.loc[epochs].mean()) for epochs in (few, many)]
        agree.append(means[0] > means[1])
        parts.append(
            f"{one.name}: mean lead over k > 1 {_signed(means[0])} at {number_of(few, 'epoch')}, "
            f"{_signed(means[1])} at {many}"
        )
    verdict = AGREES if all(agree) else IN_PART if any(agree) else DIFFERS
    return Claim(says="The lead is widest at few epochs.", measured=_list(parts), verdict=verdict)


def _vanillas_overlap(every: list[Measured]) -> Claim:
    parts, largest = [], 0.0
    for one in every:
        gap = (one.accuracy["vanilla_ce"] - one.accuracy["vanilla_sq"]).abs()
        largest = max(largest, float(gap.median()))
        parts.append(
            f"{one.name}: they differ by {100 * gap.median():.2f} points (median), {100 * gap.max():.2f} at most"
        )
    return Claim(
        says="VanillaCE often overlaps VanillaSQ.",
        measured=_list(parts),
        verdict=AGREES if largest < 0.005 else IN_PART,
    )


def _above_at_64(one: Measured, level: float) -> Claim:
    longest = max(one.config.epochs)
    at = one.accuracy.loc[(longest, 64)]
    listed = ", ".join(f"{METHODS[name].label} {at[name]:.3f}" for name in PAPER)
    above = int((at > level).sum())
    return Claim(
        says=f"On {one.name}, all methods are above {level} at k = 64.",
        measured=f"{number_of(longest, 'epoch')}: {listed}",
        verdict=AGREES if above == len(PAPER) else IN_PART if above else DIFFERS,
    )


def variance_claims(frame: pd.DataFrame) -> list[Claim]:
    """The paper's claims about variance, which speak of bags of 2 and of 256 rows."""
    at, small, large = lookup(frame), 2, 256
    ours = [at("variance", "h = x", "ours", "leave_one_out", k) for k in (small, large)]
    bias = at("excess", "h = x", "ours", "leave_one_out", large) / at("mean", "h = x", "ours", "exact", large)
    easy = {model: [at("variance", model, "easyllp_square", "none", k) for k in (small, large)] for model in MODELS}
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


def _signed(value: float) -> str:
    return f"{100 * value:+.1f} points".replace("-", "−")


def _list(parts: list[str]) -> str:
    return "; ".join(parts)
