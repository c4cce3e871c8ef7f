"""What finished runs show: accuracy by bag size and duration, and the paper's claims beside what was measured.

Learning rates are chosen as in the paper, by test accuracy, and without labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    measured = {"epoch": int, "accuracy": float, "risk": float}
    long = frame[[*_SETTING, "repetition", "held_out", *more, *measured]].explode(list(measured), ignore_index=True)
    long = long.astype(measured)
    long.loc[long["accuracy"].isna(), ["accuracy", "risk"]] = 0.0, np.inf
    return long


def _mean_accuracy(long: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Mean accuracy over repetitions, and se, its standard error."""
    found = long.groupby(by)["accuracy"].agg(["mean", "std", "count"])
    return pd.DataFrame({"accuracy": found["mean"], "se": found["std"] / np.sqrt(found["count"])})


def curves(frame: pd.DataFrame, config: PaperConfig) -> pd.DataFrame:
    """One row per rule, method, size and duration: learning_rate, accuracy and se (standard error).

    A label-free choice needs runs with held-out bags; where there are none it is left out.
    """
    long = measurements(frame)
    rows = []
    for duration in config.epochs:
        stage = long[(long["epoch"] == duration) | (long["epoch"] == 0)]
        full = _mean_accuracy(stage[~stage["held_out"]], _SETTING)
        risk = stage[stage["held_out"]].groupby(_SETTING)["risk"].mean()
        for (name, _), group in full.groupby(level=["method", "size"]):
            risks = risk.reindex(group.index).dropna()
            chosen = {BY_TEST: group["accuracy"].idxmax()}
            if len(risks):
                chosen[LABEL_FREE] = risks.idxmin()
            elif not METHODS[str(name)].loss:
                chosen[LABEL_FREE] = group.index[0]
            for rule, setting in chosen.items():
                where = dict(zip(_SETTING, setting, strict=True))
                rows.append({"rule": rule, "epochs": duration, **where, **group.loc[setting]})
    return pd.DataFrame(rows)


def learning_curves(frame: pd.DataFrame, config: PaperConfig, size: int) -> pd.DataFrame:
    """One row per network method and measured epoch at one bag size: learning_rate, accuracy and se.

    With the learning rate that is best at the longest duration by test accuracy.
    """
    chosen = curves(frame, config)
    chosen = chosen[(chosen["rule"] == BY_TEST) & (chosen["size"] == size) & (chosen["epochs"] == max(config.epochs))]
    long = measurements(frame)
    long = long[~long["held_out"] & (long["epoch"] > 0)].merge(chosen[_SETTING], on=_SETTING)
    return _mean_accuracy(long, ["method", "learning_rate", "epoch"]).reset_index()


def table(found: pd.DataFrame, epochs: int, rule: str = BY_TEST) -> pd.DataFrame:
    """Accuracy as methods × bag sizes."""
    part = found[(found["rule"] == rule) & (found["epochs"] == epochs)]
    pivot = part.pivot_table(index="method", columns="size", values="accuracy")
    labels = {name: method.label for name, method in METHODS.items() if name in pivot.index}
    return pivot.reindex(list(labels)).rename(index=labels)


# -- the paper's claims --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
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
    def lead(self) -> pd.DataFrame:
        """By (epochs, size > 1): accuracy of ours less that of the best of the others (value), its error (se)."""
        bags = self.accuracy.index.get_level_values("size") > 1
        accuracy, se = self.accuracy[bags], self.se[bags]
        others = accuracy.drop(columns="ours")
        best = se[others.columns].to_numpy()[np.arange(len(others)), others.to_numpy().argmax(axis=1)]
        return pd.DataFrame({"value": accuracy["ours"] - others.max(axis=1), "se": np.sqrt(se["ours"] ** 2 + best**2)})


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
        lead, error = one.lead["value"], one.lead["se"]
        clearly = int((lead < -2 * error).sum())
        behind, points = behind + clearly, points + len(lead)
        worst, best = (
            f"{_signed(lead[at])} at k = {at[1]}, {number_of(at[0], 'epoch')}" for at in (lead.idxmin(), lead.idxmax())
        )
        parts.append(
            f"{one.name}: highest at {int((lead >= 0).sum())} of {len(lead)} points (k > 1), behind by more than 2 "
            f"standard errors at {clearly}; worst {worst}, best {best}"
        )
    verdict = AGREES if behind == 0 else IN_PART if behind < points / 4 else DIFFERS
    return Claim("Ours is best at every bag size and duration.", "; ".join(parts), verdict)


def _fall_off(every: list[Measured]) -> Claim:
    parts, agree = [], True
    for one in every:
        small, large, longest = min(one.config.sizes), max(one.config.sizes), max(one.config.epochs)
        drop = one.accuracy.loc[(longest, small)] - one.accuracy.loc[(longest, large)]
        agree &= bool((drop.drop("ours") > drop["ours"] + _FAR).all())
        listed = ", ".join(f"{METHODS[name].label} {_signed(-drop[name])}" for name in PAPER)
        parts.append(f"{one.name}, {number_of(longest, 'epoch')}, from k = {small} to {large}: {listed}")
    says = "The others are reasonable for small bags and far worse for large ones."
    return Claim(says, "; ".join(parts), AGREES if agree else IN_PART)


def _widest_at_few_epochs(every: list[Measured]) -> Claim:
    parts, agree = [], []
    for one in every:
        few, many = min(one.config.epochs), max(one.config.epochs)
        early, late = (float(one.lead["value"].loc[epochs].mean()) for epochs in (few, many))
        agree.append(early > late)
        told = f"{_signed(early)} at {number_of(few, 'epoch')}, {_signed(late)} at {many}"
        parts.append(f"{one.name}: mean lead over k > 1 {told}")
    verdict = AGREES if all(agree) else IN_PART if any(agree) else DIFFERS
    return Claim("The lead is widest at few epochs.", "; ".join(parts), verdict)


def _vanillas_overlap(every: list[Measured]) -> Claim:
    gaps = {one.name: (one.accuracy["vanilla_ce"] - one.accuracy["vanilla_sq"]).abs() for one in every}
    parts = [
        f"{name}: they differ by {100 * gap.median():.2f} points (median), {100 * gap.max():.2f} at most"
        for name, gap in gaps.items()
    ]
    near = max(gap.median() for gap in gaps.values()) < 0.005
    return Claim("VanillaCE often overlaps VanillaSQ.", "; ".join(parts), AGREES if near else IN_PART)


def _above_at_64(one: Measured, level: float) -> Claim:
    longest = max(one.config.epochs)
    at = one.accuracy.loc[(longest, 64)]
    listed = ", ".join(f"{METHODS[name].label} {at[name]:.3f}" for name in PAPER)
    above = int((at > level).sum())
    verdict = AGREES if above == len(PAPER) else IN_PART if above else DIFFERS
    says = f"On {one.name}, all methods are above {level} at k = 64."
    return Claim(says, f"{number_of(longest, 'epoch')}: {listed}", verdict)


def variance_claims(frame: pd.DataFrame) -> list[Claim]:
    """The paper's claims about variance, which speak of bags of 2 and of 256 rows."""
    at, sizes = lookup(frame), (2, 256)
    small, large = (at("variance", "h = x", "ours", "leave_one_out", k) for k in sizes)
    bias = at("excess", "h = x", "ours", "leave_one_out", 256) / at("mean", "h = x", "ours", "exact", 256)
    easy = {model: [at("variance", model, "easyllp_square", "none", k) for k in sizes] for model in MODELS}
    return [
        Claim(
            "The variance of ours is 0.034, and 0.055 at k = 256 (h = x, E[h] from the other bags of a batch).",
            f"{small:.4f} at k = 2, {large:.4f} at k = 256; what the paper does not say: the squared estimate of E[h] "
            f"makes the mean of the loss {bias:+.1%} too large there",
            AGREES if abs(small - 0.034) < 0.002 and abs(large - 0.055) < 0.003 else IN_PART,
        ),
        Claim(
            "The variance of EasyLLP grows linearly with k.",
            f"for the paper's h = x it is {easy['h = x'][0]:.3f} at k = 2 and {easy['h = x'][1]:.3f} at k = 256, since "
            f"E[d] = 0 there by symmetry; for h = x² it is {easy['h = x²'][0]:.3f} and {easy['h = x²'][1]:.3f}",
            IN_PART if easy["h = x"][1] < 2 * easy["h = x"][0] else AGREES,
        ),
    ]


def _signed(value: float) -> str:
    return f"{100 * value:+.1f} points".replace("-", "−")
