"""The page on one model: how good it is on bags it was not fitted to, what it looks at, how it was made."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bagwise.metrics import METRICS, Estimate
from bagwise.pages import parts
from bagwise.pages.diagnosis import Funnel, bag_parts
from bagwise.pages.drivers import driver_parts
from bagwise.pages.page import GOOD, UNSURE, Caution, Page, Part, Pictures, Table
from bagwise.pages.stored import NOT_JUDGED, PASS_TABLES, Stored, sections, verdict_on_all
from bagwise.pages.values import value_page
from bagwise.tables import BagTable, Measurement, diagnose
from bagwise.tables.evaluation import constant_guess
from bagwise.tables.metadata import About

HIGHER_IS_BETTER = ("accuracy", "auc")
_NO_BAGS = (
    "The proportions of single bags need the tables: pass the events and reports that the model was fitted to, or "
    "others, and they are on this page."
)
_REFITTED = (
    "Measured on bags held out, before the model was fitted once more to all bags, those included: there are none left "
    "in these tables to judge it by; pass tables of other bags."
)


def model_page(folder: str | Path, data: BagTable | None = None, *, command: str | None = None) -> Page:
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

    Returns
    -------
    Page
        To be written by `write`.
    """
    stored = Stored.of(folder)
    if stored.about.target == "value":
        return value_page(stored, data, command=command)
    about, judged = stored.about, stored.judged(data)
    bags: list[Part] = []
    found, diagnosis = None, []
    if data is not None:
        found = diagnose(data, stored.model.features)
        diagnosis = [verdict_on_all(found), _taken_for(about), *parts.finding_parts(found)]
        if judged is None or judged.predictions is None:
            told, sizes = parts.sizes(data.reported.rows)
            bags = [told, Pictures(sizes)]
        else:
            h, given = judged.predictions.h, judged.predictions.bags
            output = int(np.argmin(np.abs(given.outputs.mean(axis=0) - 0.5)))
            bags = bag_parts(Funnel.of_predictions(h, given, output), data, output, predicted=True)
    measures = _measures(stored, judged, data)
    where = "no bags held out"
    if judged is not None:
        where = f"judged by {judged.evaluation.n_bags:,} bags, {judged.evaluation.n_rows:,} rows, without labels"
    subject = f"{about.model} ({about.fitted_by}); {where}."
    verdict = _verdict(about, judged)
    said = None if judged is None else judged.predictions
    drivers = driver_parts(stored, said, None if judged is None else judged.evaluation.formation)
    told_in = sections(stored, data, command, measures=measures, bags=bags, drivers=drivers, diagnosis=diagnosis)
    return Page(f"Model {stored.name}", subject, *verdict, told_in)


def _verdict(about: About, judged: Measurement | None) -> tuple[str, str, list[str]]:
    no_better = None if about.bag_gain is None else about.bag_gain.doubt
    if judged is None:
        return UNSURE, NOT_JUDGED, [PASS_TABLES, *([] if no_better is None else [no_better])]
    evaluation, said = judged.evaluation, judged.predictions
    funnel = None if said is None else Funnel.of_predictions(said.h, said.bags)
    remarks = [*([] if no_better is None else [no_better]), *parts.cautions(evaluation)]
    off = None if funnel is None else parts.off_level(*funnel.level)
    if not evaluation.withheld:
        standing, headline = parts.standing(evaluation, judged.gain)
        if standing == GOOD and (evaluation.formation.name == "effects" or off is not None or no_better is not None):
            standing = UNSURE
        remarks += parts.gains(judged.gain, constant_guess(about.summary.prior)["brier"])
        if off is not None:
            remarks.append(off)
        elif evaluation.calibration is not None:
            remarks.append(parts.calibrated(evaluation.calibration))
    else:
        standing, headline = UNSURE, evaluation.doubt or evaluation.known
        remarks.append(evaluation.known)
        if about.bag_gain is not None and no_better is None:
            remarks.append(
                f"Bags held out while it was fitted prefer it to the mean label of all rows: {about.bag_gain}."
            )
        if funnel is not None:
            told = f"its mean predictions explain {max(funnel.explained, 0):.0%} of the variation"
            remarks.append(f"What such bags can tell: {told} of the reported proportions between bags.")
    if funnel is not None and funnel.too_many_outside:
        where = "More bags than chance allows lie where a calibrated model would not put random bags"
        remarks.append(f"{where}: {funnel}.")
    if about.sensitivity:
        remarks.append(f"What moves its predictions most: {', '.join(list(about.sensitivity)[:3])}.")
    return standing, headline, remarks


# -- how good -----------------------------------------------------------------------------------------------------


def _measures(stored: Stored, judged: Measurement | None, data: BagTable | None) -> list[Part]:
    if judged is None:
        return ["No bags were held out when the model was fitted: pass events and reports of other bags."]
    evaluation, curves = judged.evaluation, []
    if evaluation.calibration is not None:
        curves.append(parts.curve_picture(evaluation.calibration, evaluation.level))
    if evaluation.roc is not None and evaluation.auc is not None:
        curves.append(parts.curve_picture(evaluation.roc, evaluation.level, evaluation.auc))
    if evaluation.withheld and evaluation.bags.calibration is not None:
        curves.append(parts.bag_calibration_picture(evaluation.bags.calibration, evaluation.level))
    formation = f"Formation of these bags: {evaluation.formation.name} ({evaluation.formation.reason})."
    return [
        formation,
        _where(stored, judged, data),
        Caution(evaluation.known if evaluation.withheld else ""),
        parts.bag_table(evaluation) if evaluation.withheld else _measure_table(judged),
        _NO_BAGS if data is None else "",
        Pictures(curves),
    ]


def _where(stored: Stored, judged: Measurement, data: BagTable | None) -> str:
    """Which bags the numbers are from."""
    if judged.evaluation is stored.about.evaluation:
        which = f", the latest by {stored.about.latest}" if stored.about.latest else ""
        held_out = f"bags that were held out when the model was fitted{which}; the numbers are those of its file"
        return _REFITTED if stored.about.refitted else f"Measured on {held_out}."
    if data is not None and stored.about.has_seen(data.summary):
        held_out = "bags that were held out when the model was fitted: its file tells other numbers, or none"
        return f"Measured once more on the {held_out}."
    return "Measured on all bags of the tables given, which are not those that the model was fitted to."


def _measure_table(judged: Measurement) -> Table:
    """The measures of a model beside those of the constant guess."""
    evaluation, guess, gain = judged.evaluation, judged.guess, judged.gain
    rows = []
    for name, label in METRICS.items():
        value: Estimate | None = getattr(evaluation, name)
        if value is None:
            continue
        row = [label, parts.interval(value, 4), f"{guess[name]:.4f}" if name in guess else "–"]
        if name in gain:
            better = "better" if (gain[name].value > 0) == (name in HIGHER_IS_BETTER) else "worse"
            reading = "not clearly different" if gain[name].low <= 0 <= gain[name].high else better
            row += [parts.interval(gain[name], 4, signed=True), reading]
        rows.append(row)
    head = ["", "model", "constant guess", *(["difference", "the model is"] if gain else [])]
    return Table(f"Label-free measures of single rows, with {evaluation.level:.0%} intervals", head, rows, "lrrrl")


def _taken_for(about: About) -> str:
    """What a model took its bags for, where that is more than that they are not random."""
    if about.formation is None or about.formation.name == "random":
        return ""
    return f"The model was fitted for bags formed by {about.formation.name}: {about.formation.reason}."
