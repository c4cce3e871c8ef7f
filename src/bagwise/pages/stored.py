"""A model's folder as pages show it: which bags judge it, what was tried, what it was fitted to."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from bagwise import saving
from bagwise.diagnostics import Diagnosis
from bagwise.diagnostics.advice import COMMANDS, advice
from bagwise.estimators import MODELS, VALUE_MODELS
from bagwise.pages import parts
from bagwise.pages.page import Code, Part, Section, Table
from bagwise.tables import BagTable, Measurement, TableModel, measure
from bagwise.tables.aggregated_model import read_about_aggregates
from bagwise.tables.held_out import last_bags
from bagwise.tables.metadata import About, read_about
from bagwise.tables.predictions import predict

_ARRAYS = "holds a model saved from Python, which reads arrays: there is no page on it."
_COUNTS = "holds a model of tables of counts, of which there is no page: see bagwise inspect."


@dataclass(frozen=True, eq=False)
class Stored:
    """A model's folder: what it tells about itself, and which bags judge it.

    about: what it tells.  versions: of the libraries that saved it.
    """

    folder: Path
    about: About
    versions: Mapping[str, str]

    @classmethod
    def of(cls, folder: str | Path) -> Stored:
        """The facts of a folder that `bagwise fit` or `bagwise train` wrote."""
        place = Path(folder)
        found = saving.inspect(place)
        try:
            about = read_about(found.about)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if about is None:
            raise ValueError(f"{place} {_ARRAYS if read_about_aggregates(found.about) is None else _COUNTS}")
        return cls(place, about, found.versions)

    @property
    def name(self) -> str:
        """Of the folder."""
        return self.folder.name or str(self.folder)

    @cached_property
    def model(self) -> TableModel:
        """The model itself."""
        model = saving.load(self.folder)
        if not isinstance(model, TableModel):
            raise ValueError(f"{self.folder} {_ARRAYS}")
        return model

    def unseen(self, data: BagTable) -> int:
        """How many bags of these tables it was not fitted to: the last ones (see `tables.split`)."""
        if not self.about.has_seen(data.summary):
            return data.summary.bags
        if self.about.evaluation is None or self.about.refitted:
            return 0
        return min(self.about.evaluation.n_bags, data.summary.bags)

    def latest(self, data: BagTable) -> str | None:
        """The column by which the bags of these tables are ordered in time that it was not fitted to."""
        return self.about.latest or None if self.unseen(data) < data.summary.bags else None

    def judged(self, data: BagTable | None = None, bags: BagTable | None = None) -> Measurement | None:
        """How good it is; None where nobody knows.

        What was measured when it was fitted is not measured again: the folder has it.

        data: tables.  bags: those of them to judge it by; all that it was not fitted to by default.
        """
        told = self.about.measured
        if data is None or not (unseen := self.unseen(data)):
            return told
        predictions = predict(self.model, last_bags(data, unseen, latest=self.latest(data)) if bags is None else bags)
        if told is not None and predictions.fingerprint == self.about.held_out:
            return replace(told, predictions=predictions)
        return measure(self.model, predictions)


NOT_JUDGED = "Nobody knows yet how good this model is: no bags were held out when it was fitted."
"""The headline of a model that no bags judge."""

PASS_TABLES = "Pass events and reports of bags that it was not fitted to, and this page will tell."


def verdict_on_all(told: Diagnosis) -> str:
    """What tables came about as."""
    return f"Verdict on all bags of the tables: {told.verdict}. {parts.capital(advice(told, COMMANDS))}"


def sections(
    stored: Stored,
    data: BagTable | None,
    command: str | None,
    *,
    measures: Sequence[Part],
    bags: Sequence[Part] = (),
    drivers: Sequence[Part],
    diagnosis: Sequence[Part],
) -> list[Section]:
    """The sections of a page on a model, but for those that have no parts."""
    about = stored.about
    every = [
        Section("measures", "How good is it?", measures),
        Section("bags", "The bags", bags),
        Section("drivers", "Which columns drive it?", drivers),
        Section("diagnosis", "What the diagnosis found", diagnosis),
        Section("trials", "What was tried", trials(about) if about.trials else []),
        Section("tables", "What it was fitted to", fitted_to(about)),
        again(stored, data, command),
    ]
    return [one for one in every if one.parts]


def trials(about: About) -> list[Part]:
    """What candidates scored."""
    if about.choice == "likelihood":
        measure = "by the log-likelihood of what bags held out while fitting report"
        text = f"{measure}, over that of the mean label of all rows, with its standard error; higher is better"
        rows = [[one.candidate, "–" if one.gain is None else one.gain.figures, one.note] for one in about.trials]
        table = Table("Candidates", ["candidate", "log-likelihood of a bag", "note"], rows, "lrl")
    else:
        text, rows = "by the label-free risk of bags held out while fitting, lower is better", []
        for one in about.trials:
            told = ["–", ""] if one.risk is None else [f"{one.risk:.4f}", f"[{one.low:.4f}, {one.high:.4f}]"]
            rows.append([one.candidate, *told, one.note])
        table = Table("Candidates", ["candidate", "risk", "interval", "note"], rows, "lrrl")
    kept = "the preferred candidate is kept: boosting by default, else the first"
    text = f"Candidates are compared {text}. Where differences are no more than chance, {kept}."
    text = text if about.tried else "No candidate was tried on bags held out."
    return [f"{about.fitted_by}. {text}", table]


def fitted_to(about: About) -> list[Part]:
    """Bags and columns."""
    rows = [[one.name, one.role, str(one.levels or "–"), one.note] for one in about.columns]
    head, folded = ["column", "role", "values", "note"], len(rows) > 12
    gain, formation = about.bag_gain, about.formation
    return [
        *parts.summary_parts(about.summary),
        "" if formation is None else f"Formation of bags: {formation.name} ({formation.reason}).",
        "" if gain is None else f"Bags held out while it was fitted, beside the mean label of all rows: {gain}.",
        f"Key of a bag: {', '.join(about.keys)}.",
        "" if about.classes is None else f"Classes: {', '.join(about.classes)}.",
        Table(f"Columns ({len(rows)})", head, rows[:500], "llrl", folded=folded),
    ]


def refit(stored: Stored) -> str:
    """Commands that fit a model again with the options that its folder tells of."""
    folder, file, to = (shlex.quote(f"{stored.folder}{end}") for end in ("", ".toml", "-again"))
    return f"bagwise inspect {folder} --toml > {file}\nbagwise fit --config {file} --out {to}"


def again(stored: Stored, data: BagTable | None, command: str | None) -> Section:
    """How to make the page and the model again."""
    seed = None if data is None else stored.model.estimator.get_params(deep=False).get("random_state")
    seed = seed if isinstance(seed, (int, np.integer)) else None
    facts = [] if seed is None else [f"Seed: {seed}."]
    also: list[Part] = []
    if stored.about.config:
        also = ["The model, where its tables are:", Code(refit(stored))]
    elif stored.about.model in {*MODELS, *VALUE_MODELS}:
        told = {"model": stored.about.model, "keys": ",".join(stored.about.keys), **stored.about.reports}
        told |= {"ignore": ",".join(stored.about.ignored)} if stored.about.ignored else {}
        told |= {} if seed is None else {"seed": str(seed)}
        options = (f"--{name.replace('_', '-')} {shlex.quote(given)}" for name, given in told.items())
        also = ["The model, of tables EVENTS and REPORTS:", Code(" ".join(["bagwise fit EVENTS REPORTS", *options]))]
        facts.append("Roles of columns are in the table above: add --roles where they are not what the tables tell.")
    return parts.again(command, facts, [stored.versions], also)
