"""Verdicts in plain words, from numbers and their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bagwise.evaluation import Curve, Estimate
from bagwise.report.page import GOOD, POOR, UNSURE

_FEW = 30  # bags below which intervals are rough
_WIDE = 0.2  # an AUC's interval that is wider says little about how well a model ranks
_FAR = 4.0  # standard errors by which a mean prediction is plainly off
_NOT_RANDOM = 1e-6  # as in evaluate's warning


def interval(found: Mapping[str, float] | Estimate, digits: int = 2, *, signed: bool = False) -> str:
    """A value with its interval.

    >>> interval({"value": 0.777, "low": 0.76, "high": 0.8})
    '0.78 [0.76, 0.80]'
    """
    value, low, high = _parts(found)
    sign = "+" if signed else ""
    return f"{value:{sign}.{digits}f} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]".replace("-", "−")


def _parts(found: Mapping[str, float] | Estimate) -> tuple[float, float, float]:
    if isinstance(found, Estimate):
        return found.value, found.low, found.high
    return found["value"], found["low"], found["high"]


def standing(facts: Mapping[str, Any], gain: Mapping[str, Estimate] | None = None) -> tuple[str, str]:
    """How good a model is, in a word and a sentence, from the figures of its evaluation.

    gain: over the constant guess, paired.
    """
    bags = f"{facts['bags']:,} bags"
    if facts.get("auc") is None:
        more = None if gain is None else gain["accuracy"]
        clearly = UNSURE if more is None else GOOD if more.low > 0 else POOR if more.high < 0 else UNSURE
        return clearly, f"This model is right on a share of {interval(facts['accuracy'])} of the rows."
    value, low, high = _parts(facts["auc"])
    shown = f"AUC {interval(facts['auc'])}"
    if low <= 0.5 <= high:
        return UNSURE, f"Whether this model ranks rows better than chance, {bags} are too few to tell ({shown})."
    if high < 0.5:
        return POOR, f"This model ranks rows worse than chance ({shown}): something is the wrong way round."
    if high - low > _WIDE:
        return UNSURE, f"This model ranks rows better than chance ({shown}); how well, {bags} are too few to tell."
    how = "very well" if value >= 0.9 else "well" if value >= 0.75 else "fairly well" if value >= 0.65 else ""
    if not how:
        return UNSURE, f"This model ranks rows a little better than chance ({shown})."
    return GOOD, f"This model ranks rows {how} ({shown})."


def gains(gain: Mapping[str, Estimate], guess: float) -> list[str]:
    """What a model is worth beside the constant guess; guess: that one's Brier score."""
    more = _scaled(gain["accuracy"], 100)
    if more["low"] > 0:
        remarks = [f"It is right more often than the constant guess, by {interval(more, 1)} points."]
    elif more["high"] < 0:
        remarks = [f"It is right less often than the constant guess, by {interval(_scaled(more, -1), 1)} points."]
    else:
        points = interval(more, 1, signed=True)
        remarks = [f"Whether it is right more often than the constant guess cannot be told ({points} points)."]
    if guess > 0:
        larger = _scaled(gain["brier"], 100 / guess)
        if larger["high"] < 0:
            remarks.append(f"Its square error is {_percent(_scaled(larger, -1))} smaller than the constant guess's.")
        elif larger["low"] > 0:
            remarks.append(f"Its square error is {_percent(larger)} larger than the constant guess's.")
        else:
            remarks.append("Its square error cannot be told apart from the constant guess's.")
    return remarks


def _scaled(found: Mapping[str, float] | Estimate, factor: float) -> dict[str, float]:
    value, low, high = (factor * part for part in _parts(found))
    return {"value": value, "low": min(low, high), "high": max(low, high)}


def _percent(found: Mapping[str, float]) -> str:
    return f"{found['value']:.0f}% [{found['low']:.0f}%, {found['high']:.0f}%]"


def calibrated(curve: Curve) -> str:
    """Whether probabilities can be taken at their word."""
    groups = len(curve.x)
    inside = int(((curve.y_low <= curve.x) & (curve.x <= curve.y_high)).sum())
    width = float((curve.y_high - curve.y_low).mean())
    held = f"in {inside} of {groups} groups of rows the interval of the rate of positives holds the mean prediction"
    if groups - inside > max(1, groups // 5):
        return f"Its probabilities are off: {held} only."
    if width > _WIDE:
        return f"Whether its probabilities are right can hardly be told: {held}, but intervals are {width:.2f} wide."
    return f"Its probabilities fit the reports: {held}."


def off_level(predicted: float, reported: float, error: float) -> str | None:
    """What to say if the mean prediction is not what the bags report; error: the difference's standard error."""
    if abs(predicted - reported) <= _FAR * error:
        return None
    way = "high" if predicted > reported else "low"
    return f"Its predictions are too {way} on average: {predicted:.3f}, where the bags report {reported:.3f}."


def is_random(facts: Mapping[str, Any]) -> bool:
    """Whether nothing speaks plainly against random bags, so that label-free numbers can be trusted."""
    return facts["randomness"] >= _NOT_RANDOM


def cautions(facts: Mapping[str, Any], diagnosis: Any = None) -> list[str]:
    """Why the numbers may mislead."""
    found = []
    if is_random(facts) and diagnosis is not None and not diagnosis.random:
        found.append(f"The bags do not look random ({diagnosis.verdict}): label-free numbers may be biased.")
    if facts["bags"] < _FEW:
        found.append(f"With {facts['bags']} bags the intervals themselves are rough: {_FEW} or more are better.")
    return found


def not_random(facts: Mapping[str, Any]) -> str:
    """The verdict where bags are not random: numbers are biased, often beyond what is possible."""
    impossible = [
        f"{name} {facts[key]['value']:.2f}".replace("-", "−")
        for key, name, most in (("auc", "AUC", 1.0), ("brier", "Brier score", 2.0), ("accuracy", "accuracy", 1.0))
        if facts.get(key) is not None and not 0 <= facts[key]["value"] <= most
    ]
    beyond = f", some of them beyond what is possible ({', '.join(impossible)})" if impossible else ""
    return (
        f"How good this model is cannot be told from these bags: they are not random, so that its label-free numbers "
        f"are biased{beyond}."
    )


def explained(share: float) -> str:
    """What bags that are grouped by features do tell."""
    return (
        f"What such bags can tell: its mean predictions explain {max(share, 0):.0%} of the variation of the reported "
        "proportions between bags."
    )
