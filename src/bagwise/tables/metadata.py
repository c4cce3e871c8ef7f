"""What a model of tables tells about itself: records that its folder stores as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from numbers import Real
from typing import Any

from bagwise.data.shards import Shards
from bagwise.evaluation import Evaluation, ValueEvaluation
from bagwise.formation import FORMATIONS, Told
from bagwise.gains import clear
from bagwise.metrics import METRICS, Estimate
from bagwise.tables.bag_table import BagTable, Summary
from bagwise.tables.columns import Column, Role
from bagwise.tables.evaluation import Measurement
from bagwise.tables.model import TableModel
from bagwise.tables.predictions import sensitivity
from bagwise.utils.records import from_data
from bagwise.utils.text import with_error


@dataclass(frozen=True)
class ColumnNote:
    """A column that a model knows: its role, how many values a category has, why it is ignored, where a time ends."""

    name: str
    role: str
    levels: int
    note: str


@dataclass(frozen=True)
class BagGain:
    """Log-likelihood of a bag held out while fitting over that of the mean label, and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, value: float | None, error: float | None) -> BagGain | None:
        """The gain, None where there is none, or no error of it."""
        known = value is not None and error is not None and math.isfinite(value) and math.isfinite(error)
        return cls(float(value), float(error)) if known else None  # type: ignore[arg-type]

    @property
    def figures(self) -> str:
        """The two numbers."""
        return with_error(self.value, self.error)

    @property
    def clear(self) -> bool:
        """Whether held-out bags prefer the model to the mean label."""
        return clear(self.value, self.error)

    @property
    def doubt(self) -> str | None:
        """What is to be said where they do not."""
        if self.clear:
            return None
        return (
            f"Held-out bags do not clearly prefer this model to the mean label of all rows ({self}): it may say "
            "nothing about single rows."
        )

    def __str__(self) -> str:
        return f"log-likelihood of a bag {self.figures}"


@dataclass(frozen=True)
class Trial:
    """A candidate that was tried: its label-free risk with an interval and its gain, None where there is none.

    note: why there is none, or on how many of the folds there is one.
    """

    candidate: str
    risk: float | None
    low: float | None
    high: float | None
    gain: BagGain | None
    note: str

    def within(self, most: float) -> Trial:
        """The same, its risk kept between 0 and `most`; without the risk where it is beyond that."""
        if self.risk is None or self.low is None or self.high is None or not 0 <= self.risk <= most:
            return self.withheld()
        return replace(self, low=max(self.low, 0.0), high=min(self.high, float(most)))

    def withheld(self) -> Trial:
        """The same without its risk."""
        if self.risk is None:
            return self
        return replace(self, risk=None, low=None, high=None, note=self.note or "tried; its risk is withheld")


@dataclass(frozen=True, eq=False)
class About:
    """What a model tells about itself.

    model, estimator: its kind, as `bagwise fit` calls it, and its class.  chosen: by the estimator among candidates.
    formation: how it took its bags to have come about, and why.  bag_gain: what held-out bags said while it was fitted.
    summary, seen: of the bags that it was fitted to, and of all tables that these are from.
    keys, reports, ignored: what columns mean to later commands; reports: by parameter of `join`, columns or numbers,
    weight and offset of the events among them.
    evaluation, guess, gain: on bags held out (see `Measurement`).  held_out: fingerprint of these bags and of what the
    model says of them.  refitted: whether it was then fitted once more, to these bags, too.
    latest: the column by which bags held out were the latest; empty where they are as good as random.
    sensitivity: by how much predictions move when a column is shuffled.
    target: what it predicts, "label" or "value".  values: the evaluation on bags held out of a model of values.
    config: the options that it was fitted with, as TOML; empty where it was fitted from Python.
    """

    model: str
    estimator: str
    chosen: str | None
    formation: Told | None
    bag_gain: BagGain | None
    summary: Summary
    seen: Summary
    keys: tuple[str, ...]
    reports: dict[str, str]
    ignored: tuple[str, ...]
    classes: tuple[str, ...] | None
    columns: tuple[ColumnNote, ...]
    trials: tuple[Trial, ...]
    evaluation: Evaluation | None
    guess: dict[str, float]
    gain: dict[str, Estimate]
    held_out: str
    refitted: bool
    latest: str
    sensitivity: dict[str, float]
    target: str = "label"
    values: ValueEvaluation | None = None
    config: str = ""

    @property
    def fitted_by(self) -> str:
        """The estimator, and what it chose."""
        return self.estimator if self.chosen is None else f"{self.estimator}, which chose {self.chosen}"

    @property
    def choice(self) -> str:
        """What candidates were compared by: "risk" or "likelihood"."""
        return "risk" if self.formation is None else FORMATIONS[self.formation.name].choice

    @property
    def tried(self) -> bool:
        """Whether any candidate was tried on held-out bags."""
        return any(trial.risk is not None or trial.gain is not None for trial in self.trials)

    @property
    def measured(self) -> Measurement | None:
        """How good it was on bags held out; None where there were none."""
        return None if self.evaluation is None else Measurement(self.evaluation, self.guess, self.gain, None)

    def has_seen(self, summary: Summary) -> bool:
        """Whether tables of a `summary` are, by numbers of lines and bags and by labels, those it was made from."""
        known = self.seen.squares != ()  # models of earlier versions do not tell
        mine, theirs = (  # sums differ by their order, so nine digits count
            (one.rows, one.reports, one.bags, one.used_rows, *(f"{p:.9g}" for p in one.prior + one.squares * known))
            for one in (self.seen, summary)
        )
        return mine == theirs


def about(
    model: TableModel,
    data: BagTable | Shards,
    measured: Measurement | ValueEvaluation | None,
    *,
    seen: Summary,
    refitted: bool = False,
    latest: str | None = None,
) -> About:
    """What a model tells.  data: what it was fitted to.  measured: on bags held out.  The others: see `About`."""
    values = measured if isinstance(measured, ValueEvaluation) else None
    measured = None if isinstance(measured, ValueEvaluation) else measured
    columns = tuple(ColumnNote(one.name, one.role.value, len(one.levels), _note(one)) for one in model.features.columns)
    found = None if measured is None else measured.evaluation
    said = {**vars(model.reports), **vars(model.of_rows)}
    assert isinstance(model.summary, Summary)
    return About(
        model=model.kind,
        estimator=type(model.estimator).__name__,
        chosen=getattr(model.estimator, "best_name_", None),
        formation=_learned(model.estimator, "formation_"),
        bag_gain=BagGain.of(_learned(model.estimator, "gain_"), _learned(model.estimator, "gain_error_")),
        summary=model.summary,
        seen=seen,
        keys=model.keys,
        reports={name: _named(given) for name, given in said.items() if given is not None},
        ignored=model.ignored,
        classes=model.classes,
        columns=columns,
        trials=_trials(model, found),
        evaluation=found,
        guess={} if measured is None else measured.guess,
        gain={} if measured is None else measured.gain,
        held_out="" if measured is None or measured.predictions is None else measured.predictions.fingerprint,
        refitted=refitted and (found is not None or values is not None),
        latest=latest or "",
        sensitivity=sensitivity(model, data),
        target=model.target,
        values=values,
    )


def _named(given: Any) -> str:
    """Columns, or a number, as an option names them."""
    return f"{given:.12g}" if isinstance(given, Real) else given if isinstance(given, str) else ",".join(given)


def _learned(estimator: Any, name: str) -> Any:
    """What an estimator learned; where it chose a candidate, what that one did; None where there is no such thing."""
    found = getattr(estimator, name, None)
    models = getattr(estimator, "models_", [])
    return getattr(models[0], name, None) if found is None and models else found


def _note(column: Column) -> str:
    """Why a column is ignored, or between which days the trend of a time was seen."""
    if column.role is not Role.time:
        return column.note
    first, last = (datetime.fromtimestamp(seconds, UTC).date() for seconds in (column.first, column.last))
    return f"from {first} to {last}; earlier and later days count as these"


def read_about(facts: Mapping[str, Any]) -> About | None:
    """What a model's folder tells, None if it was saved without; a ValueError where the facts are not of `about`."""
    if "columns" not in facts:
        return None
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        found = from_data(About, facts)
        if _is_sound(found):
            return found
    raise ValueError("the model's file tells facts that bagwise did not write: fit it again.")


def _is_sound(found: About) -> bool:
    """Whether facts of the right types, which may come from elsewhere, fit each other."""
    one, outputs = found.evaluation, 1 if found.classes is None else len(found.classes)
    sound = len(found.summary.prior) == outputs and found.summary.used_rows > 0 and bool(str(found.summary))
    sound &= found.formation is None or found.formation.name in FORMATIONS
    sound &= found.target in ("label", "value") and (found.values is None or found.target == "value")
    if (curve := None if found.values is None else found.values.calibration) is not None:
        sound &= len({len(points) for points in vars(curve).values()}) == 1
    sound &= all(len({trial.risk is None, trial.low is None, trial.high is None}) == 1 for trial in found.trials)
    told = {name for name in METRICS if one is not None and getattr(one, name) is not None}
    sound &= told in (set(), {*METRICS}, {*METRICS} - {"auc"}) and {*found.gain} in (set(), told)
    sound &= {*found.gain} <= {*found.guess} <= {*METRICS}
    if one is not None:
        sound &= one.n_bags > 0 and one.n_rows > 0 and 0 < one.level < 1 and (one.withheld or bool(found.gain))
        sound &= one.formation.name in FORMATIONS
        for curve in (one.calibration, one.roc, one.bags.calibration):
            sound &= curve is None or len({len(points) for points in vars(curve).values()}) == 1
    return sound


def _trials(model: TableModel, found: Evaluation | None) -> tuple[Trial, ...]:
    """What was tried, where several candidates were; no risk where there was no trial, or bags cannot tell it."""
    lines = getattr(model.estimator, "trials_", [])
    plain = [one.name for one in fields(Trial) if one.name != "gain"]
    trials = (
        Trial(**{name: line[name] for name in plain}, gain=BagGain.of(line["gain"], line["gain_error"]))
        for line in lines
    )
    if found is not None and found.withheld:
        return tuple(trial.withheld() for trial in trials)
    return tuple(trial.within(1 if model.classes is None else 2) for trial in trials)
