"""Rates of groups as they are told: the record, in words."""

from __future__ import annotations

from dataclasses import dataclass

from bagwise.formation import FORMATIONS, Told


@dataclass(frozen=True)
class GroupRate:
    """The share of positive labels, or of a class, in a group of rows.

    Attributes
    ----------
    value : str
        What rows of the group have in common.
    n_rows : int
        Rows of the group in bags that report something.
    n_people : float
        For how many people they stand: as many as there are rows, where these have no weights.
    prediction : float
        The model's mean prediction for them.
    rate : float
        The share given the reports.
    low, high : float
        Ends of its interval, inside of the bounds.
    least, most : float
        Between which the share lies whatever is true of the rows.
    label : str
        The class, where there are several.
    """

    value: str
    n_rows: int
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
        τ² of unseen effects of bags; the largest where there are several classes.
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

    @property
    def assumption(self) -> str:
        """What the intervals assume, in words."""
        if self.doubt is not None:
            return f"Nothing but the bounds is known: {self.doubt}."
        told = f"Intervals assume that {FORMATIONS[self.formation.name].assumption} ({self.formation.name})."
        if self.formation.name not in ("features", "effects"):
            return told
        if not self.effect_variance:
            return f"{told} No unseen effects of bags were found."
        effects = f"effects of variance {self.effect_variance:.2g} on log odds"
        if self.contradiction is not None:
            why = (
                f"Bags contradict that these have nothing to do with the shares of groups (p {self.contradiction:.1g})"
            )
            return f"{told} There are {effects}. {why}: intervals allow for effects that follow shares altogether."
        most = f"a correlation of at most {self.related:g}" if self.related else "no correlation"
        return f"{told} There are {effects}, which have {most} with the shares of groups: totals cannot tell."

    def __str__(self) -> str:
        who = "people" if self.of_people else "rows"
        head = ("", who, "model", "given reports", f"{self.level:.0%} interval", "bounds")
        lines: list[tuple[str, ...]] = [head]
        for one in self.rates:
            name = f"{one.value}, {one.label}" if one.label else one.value
            ends = (f"[{low:.3f}, {high:.3f}]" for low, high in ((one.low, one.high), (one.least, one.most)))
            lines.append((name, f"{one.n_people:,.10g}", f"{one.prediction:.4f}", f"{one.rate:.4f}", *ends))
        width = [max(len(line[place]) for line in lines) for place in range(len(head))]
        rows = []
        for first, *others in lines:
            texts = (text.rjust(w) for text, w in zip(others, width[1:], strict=True))
            rows.append("  ".join([first.ljust(width[0]), *texts]))
        last = " Bounds hold as far as the noise on counts lets them, at this level." if self.noised else ""
        return "\n".join([*rows, self.assumption + last])
