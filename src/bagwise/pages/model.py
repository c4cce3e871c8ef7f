"""The page on one model: how good it is on bags it was not fitted to, what it looks at, how it was made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bagwise.diagnostics import Diagnosis
from bagwise.estimates import Estimate
from bagwise.estimators import MODELS
from bagwise.metrics import METRICS
from bagwise.pages import parts, verdicts
from bagwise.pages.figures import Funnel
from bagwise.pages.page import GOOD, UNSURE, Code, Page, Part, Pictures, Section, Table, Text
from bagwise.pages.stored import Stored
from bagwise.tables import BagTable, Measurement, diagnose
from bagwise.tables.evaluation import constant_guess

HIGHER_IS_BETTER = ("accuracy", "auc")
_BIASED = (
    "These numbers were asked for although the bags cannot tell (--even-if-not-random): they are biased, maybe "
    "grossly. Calibration and ROC curve are left out."
)
_WITHHELD = "Numbers that the bags cannot tell are withheld; --even-if-not-random shows what would come out."
_WITHHELD_AT_FIT = (
    "Numbers that the bags cannot tell were withheld when the model was fitted: pass events and reports, and they are "
    "measured again."
)


def model_page(
    folder: str | Path, data: BagTable | None = None, *, command: str | None = None, even_if_not_random: bool = False
) -> Page:
    """A page on a fitted model: how good it is without labels, what drives it, how it was made.

    Parameters
    ----------
    folder : str or Path
        As `bagwise fit` wrote it.
    data : BagTable, optional
        Events and reports to judge it by. Of those that it was fitted to, only the bags held out are used, and what was
        measured on them is not measured again; of others, all. Without tables, the page tells what the model's folder
        does.
    command : str, optional
        How the page was made, to be shown on it.
    even_if_not_random : bool
        Show biased numbers where bags are not random, with a warning, instead of none.

    Returns
    -------
    Page
        To be written by `write`.
    """
    stored = Stored.of(folder, even_if_not_random=even_if_not_random)
    judged = stored.judged(data)
    found = None if data is None else diagnose(data, stored.model.features)
    standing, headline, remarks = _verdict(stored, judged, found)
    sections = [
        Section("measures", "How good is it?", _measures(stored, judged, data)),
        *([] if data is None else [_bags(judged, data)]),
        Section("drivers", "Which columns drive it?", parts.driver_parts(stored.about.sensitivity)),
        *([] if found is None else [Section("diagnosis", "What the diagnosis found", _diagnosis(found))]),
        *_trials(stored),
        Section("tables", "What it was fitted to", _fitted_to(stored)),
        _again(stored, data, command),
    ]
    where = "no bags held out"
    if judged is not None:
        where = f"judged by {judged.evaluation.n_bags:,} bags, {judged.evaluation.n_rows:,} rows, without labels"
    subject = f"{stored.about.model} ({stored.about.fitted_by}); {where}."
    return Page(f"Model {stored.name}", subject, standing, headline, remarks, sections)


def _verdict(stored: Stored, judged: Measurement | None, found: Diagnosis | None) -> tuple[str, str, list[str]]:
    if judged is None:
        return (
            UNSURE,
            "Nobody knows yet how good this model is: no bags were held out when it was fitted.",
            ["Pass events and reports of bags that it was not fitted to, and this page will tell."],
        )
    evaluation, said = judged.evaluation, judged.predictions
    funnel = None if said is None else Funnel.of_predictions(said.h, said.bags)
    remarks = verdicts.cautions(evaluation, found)
    if evaluation.doubt is None:
        standing, headline = verdicts.standing(evaluation, judged.gain)
        if standing == GOOD and found is not None and not found.random:
            standing = UNSURE
        remarks += verdicts.gains(judged.gain, constant_guess(stored.about.summary.prior)["brier"])
        if evaluation.calibration is not None:
            off = None if funnel is None else verdicts.off_level(*funnel.level)
            remarks.append(off or verdicts.calibrated(evaluation.calibration))
    else:
        standing, headline = UNSURE, evaluation.doubt
        if funnel is not None:
            remarks.append(verdicts.explained(funnel.explained))
    if funnel is not None and funnel.too_many_outside:
        remarks.append(
            f"More bags than chance allows lie where a calibrated model would not put random bags: {funnel}."
        )
    top = list(stored.about.sensitivity)[:3]
    if top:
        remarks.append(f"What moves its predictions most: {', '.join(top)}.")
    return standing, headline, remarks


# -- how good -----------------------------------------------------------------------------------------------------


def _measures(stored: Stored, judged: Measurement | None, data: BagTable | None) -> list[Part]:
    if judged is None:
        return [Text("No bags were held out when the model was fitted: pass events and reports of other bags.")]
    evaluation = judged.evaluation
    found: list[Part] = [Text(_where(stored, judged, data))]
    if evaluation.doubt is not None:
        withheld = _WITHHELD_AT_FIT if stored.even_if_not_random else _WITHHELD
        found.append(Text(withheld if evaluation.withheld else _BIASED, warning=True))
    found.append(_measure_table(judged))
    if data is None:
        found.append(
            Text(
                "The proportions of single bags need the tables: pass the events and reports that the model was fitted "
                "to, or others, and they are on this page."
            )
        )
    curves = []
    if evaluation.doubt is None and evaluation.calibration is not None:
        curves.append(parts.curve_picture("calibration", evaluation.calibration, evaluation.level))
    if evaluation.doubt is None and evaluation.roc is not None and evaluation.auc is not None:
        curves.append(parts.curve_picture("roc", evaluation.roc, evaluation.level, evaluation.auc))
    return [*found, *([Pictures(curves)] if curves else [])]


def _where(stored: Stored, judged: Measurement, data: BagTable | None) -> str:
    """Which bags the numbers are from."""
    told = judged.evaluation is stored.about.evaluation
    if told and stored.about.refitted:
        return (
            "Measured on bags held out, before the model was fitted once more to all bags, those included: there are "
            "none left in these tables to judge it by; pass tables of other bags."
        )
    if told:
        return "Measured on bags that were held out when the model was fitted; the numbers are those of its file."
    if data is not None and stored.about.has_seen(data.summary):
        return (
            "Measured once more on the bags that were held out when the model was fitted: its file tells other "
            "numbers, or none."
        )
    return "Measured on all bags of the tables given, which are not those that the model was fitted to."


def _measure_table(judged: Measurement) -> Table:
    """The measures of a model beside those of the constant guess."""
    evaluation, guess, gain = judged.evaluation, judged.guess, judged.gain
    rows = []
    for name, label in METRICS.items():
        value: Estimate | None = getattr(evaluation, name)
        if value is None and not evaluation.withheld:
            continue
        row = [label, "–" if value is None else verdicts.interval(value, 4)]
        row.append(f"{guess[name]:.4f}" if name in guess else "–")
        if gain:
            row += [verdicts.interval(gain[name], 4, signed=True), _reading(name, gain[name])]
        rows.append(row)
    head = ["", "model", "constant guess", *(["difference", "the model is"] if gain else [])]
    return Table(f"Label-free measures of single rows, with {evaluation.level:.0%} intervals", head, rows, "lrrrl")


def _reading(name: str, gain: Estimate) -> str:
    if gain.low <= 0 <= gain.high:
        return "not clearly different"
    return "better" if (gain.value > 0) == (name in HIGHER_IS_BETTER) else "worse"


def _bags(judged: Measurement | None, data: BagTable) -> Section:
    """Sizes of bags, and their proportions beside predictions, where there are any."""
    if judged is None or judged.predictions is None:
        told, sizes = parts.sizes("sizes", data.reported().size)
        return Section("bags", "The bags", [Text(told), *([Pictures([sizes])] if sizes else [])])
    h, bags = judged.predictions.h, judged.predictions.bags
    output = int(np.argmin(np.abs(bags.outputs.mean(axis=0) - 0.5)))
    funnel = Funnel.of_predictions(h, bags, output)
    told, sizes = parts.sizes("sizes", funnel.size)
    pictures = [*parts.agreement_pictures("bags", funnel), *([sizes] if sizes else [])]
    text = f"{told} Proportions{parts.class_name(data, output)}: {funnel}."
    return Section("bags", "The bags", [Text(text), Pictures(pictures)])


def _diagnosis(found: Diagnosis) -> list[Part]:
    verdict = Text(f"Verdict on all bags of the tables: {found.verdict}. {found.advice[:1].upper()}{found.advice[1:]}")
    return [verdict, *parts.finding_parts(found)]


# -- how it was made ----------------------------------------------------------------------------------------------


def _trials(stored: Stored) -> list[Section]:
    if not stored.about.trials:
        return []
    rows = []
    for one in stored.about.trials:
        told = ["–", ""] if one.risk is None else [f"{one.risk:.4f}", f"[{one.low:.4f}, {one.high:.4f}]"]
        rows.append([one.candidate, *told, one.note])
    text = Text(
        f"{stored.about.fitted_by}: candidates judged by the label-free risk of bags held out, lower is better."
    )
    table = Table("Candidates", ["candidate", "risk", "interval", "note"], rows, "lrrl")
    return [Section("trials", "What was tried", [text, table])]


def _fitted_to(stored: Stored) -> Sequence[Part]:
    about = stored.about
    rows = [[one.name, one.role, str(one.levels or "–"), one.note] for one in about.columns]
    classes = [] if about.classes is None else [Text(f"Classes: {', '.join(about.classes)}.")]
    return [
        *parts.summary_parts(about.summary),
        Text(f"Key of a bag: {', '.join(about.keys)}."),
        *classes,
        Table(
            f"Columns ({len(rows)})", ["column", "role", "values", "note"], rows[:500], "llrl", folded=len(rows) > 12
        ),
    ]


def _again(stored: Stored, data: BagTable | None, command: str | None) -> Section:
    seed = None if data is None else stored.model.estimator.get_params(deep=False).get("random_state")
    seed = seed if isinstance(seed, (int, np.integer)) else None
    facts = [] if seed is None else [f"Seed: {seed}."]
    also: list[Part] = []
    if stored.about.model in MODELS:
        fit = f"bagwise fit EVENTS REPORTS --model {stored.about.model}{'' if seed is None else f' --seed {seed}'}"
        also = [Text("The model:"), Code(fit)]
        facts.append("Options for columns and noise are not stored with a model: add those that were given.")
    return parts.again(command, facts, [stored.versions], also)
