"""What a model of tables tells about itself: records that its folder stores as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bagwise.data.shards import Shards
from bagwise.estimates import Estimate
from bagwise.evaluation import Evaluation
from bagwise.metrics import METRICS
from bagwise.tables.bag_table import BagTable, Summary
from bagwise.tables.evaluation import Measurement, sensitivity
from bagwise.tables.model import TableModel
from bagwise.utils.records import from_data

_FINDINGS = 10  # that a model's file tells of


@dataclass(frozen=True)
class ColumnNote:
    """A column that a model knows: its role, how many values a category has, and why it is ignored."""

    name: str
    role: str
    levels: int
    note: str


@dataclass(frozen=True)
class Trial:
    """A candidate that was tried: its label-free risk with an interval, None where there is none; or a note why."""

    candidate: str
    risk: float | None
    low: float | None
    high: float | None
    note: str

    def within(self, most: float) -> Trial:
        """The same, its risk kept between 0 and `most`; without the risk where it is beyond that."""
        if self.risk is None or self.low is None or self.high is None:
            return self
        if 0 <= self.risk <= most:
            return replace(self, low=max(self.low, 0.0), high=min(self.high, float(most)))
        return self.withheld()

    def withheld(self) -> Trial:
        """The same without its risk."""
        if self.risk is None:
            return self
        return replace(self, risk=None, low=None, high=None, note=self.note or "tried; its risk is withheld")


@dataclass(frozen=True, eq=False)
class About:
    """What a model tells about itself.

    Attributes
    ----------
    model, estimator : str
        Its kind, as `bagwise fit` calls it, and its class.
    chosen : str or None
        What the estimator chose among candidates.
    summary, seen : Summary
        The bags that it was fitted to, and all tables that these are from.
    keys : tuple of str
        Columns that name a bag.
    classes : tuple of str or None
        Names of the classes, None for labels 0 and 1.
    columns : tuple of ColumnNote
        What it made of the columns.
    trials : tuple of Trial
        The candidates that were tried.
    evaluation : Evaluation or None
        Its measures on bags held out.
    guess, gain : dict
        Measures of one guess for all rows on the same bags, and the model less the guess (see `Measurement`).
    held_out : str
        Fingerprint of the bags held out and of what the model says of them.
    refitted : bool
        Whether it was then fitted once more, to the bags held out, too.
    sensitivity : dict of float
        By how much predictions move when a column is shuffled.
    """

    model: str
    estimator: str
    chosen: str | None
    summary: Summary
    seen: Summary
    keys: tuple[str, ...]
    classes: tuple[str, ...] | None
    columns: tuple[ColumnNote, ...]
    trials: tuple[Trial, ...]
    evaluation: Evaluation | None
    guess: dict[str, float]
    gain: dict[str, Estimate]
    held_out: str
    refitted: bool
    sensitivity: dict[str, float]

    @property
    def fitted_by(self) -> str:
        """The estimator, and what it chose."""
        return self.estimator if self.chosen is None else f"{self.estimator}, which chose {self.chosen}"

    @property
    def measured(self) -> Measurement | None:
        """How good it was on bags held out; None where there were none."""
        return None if self.evaluation is None else Measurement(self.evaluation, self.guess, self.gain, None)

    def has_seen(self, summary: Summary) -> bool:
        """Whether tables of a `summary` are, by numbers of lines and bags and mean label, those it was made from."""
        return _fingerprint(self.seen) == _fingerprint(summary)

    def shown(self, *, even_if_not_random: bool = False) -> About:
        """The same without the numbers that the bags cannot tell, unless asked for (`even_if_not_random`)."""
        if even_if_not_random or self.evaluation is None or self.evaluation.doubt is None:
            return self
        nothing: dict[str, Any] = dict.fromkeys([*METRICS, "calibration", "roc"])
        evaluation = replace(self.evaluation, **nothing)
        return replace(self, evaluation=evaluation, trials=tuple(trial.withheld() for trial in self.trials))


def about(
    model: TableModel,
    data: BagTable | Shards,
    measured: Measurement | None,
    *,
    seen: Summary,
    refitted: bool = False,
) -> About:
    """Columns, training, label-free evaluation and what moves the predictions.

    Parameters
    ----------
    model : TableModel
        As `fit` returns it.
    data : BagTable or Shards
        What it was fitted to.
    measured : Measurement or None
        On bags held out, as `measure` returns it.
    seen : Summary
        Of the tables that all these bags are from.
    refitted : bool
        Whether the model then took the bags held out in, too.

    Returns
    -------
    About
        To be saved with the model: ``saving.save(model, folder, about=as_data(about(…)))``.
    """
    columns = tuple(ColumnNote(one.name, one.role.value, len(one.levels), one.note) for one in model.features.columns)
    found = None if measured is None else measured.evaluation
    return About(
        model=model.kind,
        estimator=type(model.estimator).__name__,
        chosen=getattr(model.estimator, "best_name_", None),
        summary=model.summary,
        seen=seen,
        keys=model.keys,
        classes=model.classes,
        columns=columns,
        trials=_trials(model, found),
        evaluation=None if found is None else replace(found, not_random=found.not_random[:_FINDINGS]),
        guess={} if measured is None else measured.guess,
        gain={} if measured is None else measured.gain,
        held_out="" if measured is None or measured.predictions is None else measured.predictions.fingerprint,
        refitted=refitted and found is not None,
        sensitivity=sensitivity(model, data),
    )


def read_about(facts: Mapping[str, Any]) -> About | None:
    """What a model's folder tells, as the record it was; None where the model was saved without.

    A ValueError is raised where the facts are not such as `about` makes: folders may come from elsewhere.

    Parameters
    ----------
    facts : dict
        What `bagwise.saving.inspect` found beside the model.

    Returns
    -------
    About or None
    """
    if "columns" not in facts:
        return None
    try:
        found = from_data(About, facts)
        _check(found)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError("the model's file tells facts that bagwise did not write: fit it again.") from None
    return found


def _check(found: About) -> None:
    """Raise a ValueError where facts of the right types cannot be."""
    one, outputs = found.evaluation, 1 if found.classes is None else len(found.classes)
    sound = len(found.summary.prior) == outputs and found.summary.used_rows > 0 and bool(str(found.summary))
    sound &= all(len({trial.risk is None, trial.low is None, trial.high is None}) == 1 for trial in found.trials)
    told = {name for name in METRICS if one is not None and getattr(one, name) is not None}
    sound &= told in (set(), {*METRICS}, {*METRICS} - {"auc"}) and {*found.gain} in (set(), told)
    sound &= {*found.gain} <= {*found.guess} <= {*METRICS}
    if one is not None:
        sound &= one.n_bags > 0 and one.n_rows > 0 and 0 < one.level < 1 and (one.doubt is not None or bool(found.gain))
        for curve in (one.calibration, one.roc):
            sound &= curve is None or len({len(points) for points in vars(curve).values()}) == 1
    if not sound:
        raise ValueError("the facts do not fit each other.")


def _fingerprint(summary: Summary) -> tuple[Any, ...]:
    prior = tuple(f"{p:.9g}" for p in summary.prior)  # sums differ by their order
    return summary.rows, summary.reports, summary.bags, summary.used_rows, prior


def _trials(model: TableModel, found: Evaluation | None) -> tuple[Trial, ...]:
    """What was tried, where several candidates were; no risk where there was no trial, or bags cannot tell it."""
    told = ("candidate", "risk", "low", "high", "note")
    trials = [Trial(*(line[name] for name in told)) for line in getattr(model.estimator, "trials_", [])]
    if found is not None and found.doubt is not None and not found.withheld:  # asked for as it comes
        return tuple(trials)
    if found is not None and found.withheld:
        return tuple(trial.withheld() for trial in trials)
    return tuple(trial.within(1 if model.classes is None else 2) for trial in trials)
