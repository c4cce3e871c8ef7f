"""Rates of groups as they are told: the record, in words."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from bagwise.evaluation.result import RowGroup
from bagwise.formation import FORMATIONS, Told
from bagwise.utils.text import decimals_of, p_digits

_OF_VALUES = {
    "features": "rows with the same features are worth the same on average in all bags",
    "effects": "bags differ in their features and in something unseen, which moves the values of all their rows",
}


@dataclass(frozen=True)
class GroupRate(RowGroup):
    """What reports tell of the labels of a group: the share that is positive, or of a class, or the mean value.

    Attributes
    ----------
    value, n_rows : str, int
        As of a `bagwise.evaluation.result.RowGroup`.
    n_people : float
        For how many people they stand: as many as there are rows, where these have no weights.
    prediction : float
        The model's mean prediction for them.
    rate : float
        The share, or the mean value, given the reports.
    low, high : float
        Ends of its interval, inside of the bounds.
    least, most : float
        Between which it lies whatever is true of the rows; infinite where nothing bounds values.
    label : str
        The class, where there are several.
    """

    n_people: float
    prediction: float
    rate: float
    low: float
    high: float
    least: float
    most: float
    label: str = ""


@dataclass(frozen=True)
class GroupRates:
    """Rates of groups, and what they rest on.

    Attributes
    ----------
    rates : tuple of GroupRate
        The largest group first; of several classes one after the other.
    formation : Told
        How bags came about: what intervals assume.
    n_bags, n_rows : int
        Bags that report something, and their rows.
    level : float
        Of the intervals.
    effect_variance : float
        τ² of unseen effects of bags on log odds; the largest where there are several classes. Of values: that of
        effects on the means of bags.
    related : float
        The correlation of these with the shares of groups that intervals allow for.
    contradiction : float or None
        The p-value by which bags contradict that shares of groups have nothing to do with their rates, where they do:
        intervals then allow for effects that follow shares altogether.
    noised : bool
        Whether counts have noise, so that bounds hold at the level only.
    doubt : str or None
        Why nothing but the bounds is known, where that is so.
    of_people : bool
        Whether rows have weights, so that rates are of the people for whom they stand.
    target : {"label", "value"}
        What rates are of: shares of labels, or means of values.
    """

    rates: tuple[GroupRate, ...]
    formation: Told
    n_bags: int
    n_rows: int
    level: float
    effect_variance: float
    related: float
    contradiction: float | None
    noised: bool
    doubt: str | None
    of_people: bool = False
    target: str = "label"

    @property
    def bounded(self) -> bool:
        """Whether there are bounds of all rates, as of values there are where none is negative."""
        return all(isfinite(end) for one in self.rates for end in (one.least, one.most))

    @property
    def assumption(self) -> str:
        """What the intervals assume, in words."""
        of_values, name = self.target == "value", self.formation.name
        if self.doubt is not None:
            return f"{'Nothing but the bounds is' if self.bounded else 'No mean value is'} known: {self.doubt}."
        assumed = _OF_VALUES.get(name) if of_values else None
        told = f"Intervals assume that {assumed or FORMATIONS[name].assumption} ({name})."
        if name not in ("features", "effects"):
            return told
        if not self.effect_variance:
            chance = "Unseen effects of bags are taken for chance, unless the formation is said to be effects."
            return f"{told} {chance if of_values else 'No unseen effects of bags were found.'}"
        effects = f"effects of variance {self.effect_variance:.2g} on {'means' if of_values else 'log odds'}"
        if self.contradiction is not None:
            p = p_digits(self.contradiction, 1)
            why = f"Bags contradict that these have nothing to do with the shares of groups (p {p})"
            return f"{told} There are {effects}. {why}: intervals allow for effects that follow shares altogether."
        most = f"a correlation of at most {self.related:g}" if self.related else "no correlation"
        return f"{told} There are {effects}, which have {most} with the shares of groups: totals cannot tell."

    @property
    def bounds(self) -> str:
        """What the bounds rest on, in words; empty where they hold whatever is true."""
        if not self.bounded:
            return "There are no bounds: where values may be negative, those of a group may be anything."
        of_values = self.target == "value"
        told = ["Bounds hold where no value is negative" if of_values else "Bounds hold"]
        if self.noised:
            told.append(f"as far as the noise on {'sums' if of_values else 'counts'} lets them, at this level")
        return (", " if of_values else " ").join(told) + "." if of_values or self.noised else ""

    def __str__(self) -> str:
        who, of_values = "people" if self.of_people else "rows", self.target == "value"
        head = ("", who, "model", "given reports", f"{self.level:.0%} interval", *(["bounds"] * self.bounded))
        lines: list[tuple[str, ...]] = [head]
        every = [number for one in self.rates for number in (one.prediction, one.rate, one.low, one.high)]
        places, few = (decimals_of(*every),) * 2 if of_values else (4, 3)
        for one in self.rates:
            name = f"{one.value}, {one.label}" if one.label else one.value
            pairs = [(one.low, one.high), (one.least, one.most)][: len(head) - 4]
            ends = (f"[{low:,.{few}f}, {high:,.{few}f}]" for low, high in pairs)
            numbers = (f"{number:,.{places}f}" for number in (one.prediction, one.rate))
            lines.append((name, f"{one.n_people:,.10g}", *numbers, *ends))
        width = [max(len(line[place]) for line in lines) for place in range(len(head))]
        rows = []
        for first, *others in lines:
            texts = (text.rjust(w) for text, w in zip(others, width[1:], strict=True))
            rows.append("  ".join([first.ljust(width[0]), *texts]))
        return "\n".join([*rows, f"{self.assumption} {self.bounds}".rstrip()])
