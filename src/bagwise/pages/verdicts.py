"""Verdicts in plain words, from numbers and their intervals."""

from __future__ import annotations

from collections.abc import Mapping

from bagwise.diagnostics import Diagnosis
from bagwise.estimates import Estimate
from bagwise.evaluation import ENOUGH_BAGS, Curve, Evaluation
from bagwise.pages.page import GOOD, POOR, UNSURE

_WIDE = 0.2  # an AUC's interval that is wider says little about how well a model ranks
_FAR = 4.0  # standard errors by which a mean prediction is plainly off
_RANKS = {0.9: "very well", 0.75: "well", 0.65: "fairly well"}  # from this AUC on


def interval(found: Estimate | None, digits: int = 2, *, signed: bool = False) -> str:
    """A value with its interval; a dash where there is none.

    >>> interval(Estimate(0.777, 0.01, 0.76, 0.8))
    '0.78 [0.76, 0.80]'
    """
    if found is None:
        return "–"
    form = f"{'+' if signed else ''}.{digits}f"
    return f"{found.value:{form}} [{found.low:{form}}, {found.high:{form}}]".replace("-", "−")


def standing(found: Evaluation, gain: Mapping[str, Estimate]) -> tuple[str, str]:
    """How good a model is, in a word and a sentence, where the bags can tell. gain: over one guess for all rows.

    The word is a good one only if accuracy or Brier score are clearly better than the guess's, by bags enough to tell.
    """
    bags, better = f"{found.n_bags:,} bags", beats(gain)
    clearly = GOOD if better and found.n_bags >= ENOUGH_BAGS else UNSURE
    than = "" if better else ", but it is not clearly better than one guess for all rows"
    if found.auc is None:
        right = f"This model is right on a share of {interval(found.accuracy)} of the rows{than}."
        return POOR if gain["accuracy"].high < 0 and not better else clearly, right
    value, low, high, shown = found.auc.value, found.auc.low, found.auc.high, f"AUC {interval(found.auc)}"
    if low <= 0.5 <= high:
        return UNSURE, f"Whether this model ranks rows better than chance, {bags} are too few to tell ({shown})."
    if high < 0.5:
        return POOR, f"This model ranks rows worse than chance ({shown}): something is the wrong way round."
    if high - low > _WIDE:
        return UNSURE, f"This model ranks rows better than chance ({shown}); how well, {bags} are too few to tell."
    how = next((word for least, word in _RANKS.items() if value >= least), None)
    if how is None:
        return UNSURE, f"This model ranks rows a little better than chance ({shown})."
    return clearly, f"This model ranks rows {how} ({shown}){than}."


def beats(gain: Mapping[str, Estimate]) -> bool:
    """Whether accuracy or Brier score is clearly better than the constant guess's; gain: over it, paired."""
    return gain["accuracy"].low > 0 or gain["brier"].high < 0


def gains(gain: Mapping[str, Estimate], guess: float) -> list[str]:
    """What a model is worth beside the constant guess; guess: that one's Brier score."""
    more = _scaled(gain["accuracy"], 100)
    if more.low > 0:
        remarks = [f"It is right more often than the constant guess, by {interval(more, 1)} points."]
    elif more.high < 0:
        remarks = [f"It is right less often than the constant guess, by {interval(_scaled(more, -1), 1)} points."]
    else:
        points = interval(more, 1, signed=True)
        remarks = [f"Whether it is right more often than the constant guess cannot be told ({points} points)."]
    if guess > 0:
        larger = _scaled(gain["brier"], 100 / guess)
        if larger.low <= 0 <= larger.high:
            remarks.append("Its square error cannot be told apart from the constant guess's.")
        else:
            off, way = (_scaled(larger, -1), "smaller") if larger.high < 0 else (larger, "larger")
            share = f"{off.value:.0f}% [{off.low:.0f}%, {off.high:.0f}%]"
            remarks.append(f"Its square error is {share} {way} than the constant guess's.")
    return remarks


def _scaled(found: Estimate, factor: float) -> Estimate:
    low, high = sorted((factor * found.low, factor * found.high))
    return Estimate(factor * found.value, abs(factor) * found.standard_error, low, high)


def held_by(curve: Curve) -> int:
    """Groups of rows whose interval holds the mean prediction."""
    return int(((curve.y_low <= curve.x) & (curve.x <= curve.y_high)).sum())


def calibrated(curve: Curve) -> str:
    """Whether probabilities can be taken at their word."""
    groups, inside, width = len(curve.x), held_by(curve), float((curve.y_high - curve.y_low).mean())
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


def cautions(found: Evaluation, diagnosis: Diagnosis | None = None) -> list[str]:
    """Why the numbers may mislead."""
    told = []
    if found.doubt is None and diagnosis is not None and not diagnosis.random:
        told.append(f"The bags do not look random ({diagnosis.verdict}): label-free numbers may be biased.")
    if found.n_bags < ENOUGH_BAGS:
        told.append(f"With {found.n_bags} bags the intervals themselves are rough: {ENOUGH_BAGS} or more are better.")
    return told
