"""The page on a model of real labels: how good it is on bags it was not fitted to, and how it was made."""

from __future__ import annotations

from bagwise.displays import BagCalibrationDisplay
from bagwise.evaluation import ValueEvaluation
from bagwise.evaluation.measures import ENOUGH_BAGS
from bagwise.metrics import Curve, Estimate
from bagwise.pages import parts
from bagwise.pages.drivers import driver_parts
from bagwise.pages.page import GOOD, POOR, UNSURE, Caution, Page, Part, Picture, Pictures, Table
from bagwise.pages.stored import NOT_JUDGED, PASS_TABLES, Stored, sections, verdict_on_all
from bagwise.tables import BagTable
from bagwise.tables.diagnosis import diagnose
from bagwise.tables.evaluation import measure_values
from bagwise.tables.held_out import last_bags
from bagwise.tables.predictions import predict
from bagwise.utils.text import decimals_of


def value_page(stored: Stored, data: BagTable | None = None, *, command: str | None = None) -> Page:
    """A page on a fitted model of values; parameters as for `model_page`."""
    about, found, said = stored.about, stored.about.values, None
    if data is not None and (unseen := stored.unseen(data)):
        said = predict(stored.model, last_bags(data, unseen, latest=stored.latest(data)))
        found = measure_values(stored.model, said, held_out=True)
    standing, headline, remarks = _verdict(found)
    if about.bag_gain is not None and about.bag_gain.doubt is not None:
        standing, remarks = UNSURE, [about.bag_gain.doubt, *remarks]
    if about.sensitivity:
        remarks.append(f"What moves its predictions most: {', '.join(list(about.sensitivity)[:3])}.")
    diagnosis: list[Part] = []
    if data is not None:
        told = diagnose(data, stored.model.features)
        diagnosis = [verdict_on_all(told), *parts.finding_parts(told)]
    where = "no bags held out"
    if found is not None:
        where = f"judged by {found.n_bags:,} bags, {found.n_rows:,} rows, without labels of their own"
    subject = f"{about.model} ({about.fitted_by}), a model of values; {where}."
    drivers = driver_parts(stored, said, None if found is None else found.formation)
    told_in = sections(stored, data, command, measures=_measures(found), drivers=drivers, diagnosis=diagnosis)
    return Page(f"Model {stored.name}", subject, standing, headline, remarks, told_in)


def _verdict(found: ValueEvaluation | None) -> tuple[str, str, list[str]]:
    if found is None:
        return UNSURE, NOT_JUDGED, [PASS_TABLES]
    remarks = []
    if found.bias.low > 0 or found.bias.high < 0:
        way = "high" if found.bias.low > 0 else "low"
        remarks.append(f"Its mean prediction is clearly too {way}: off by {_shown(found.bias)}.")
    if found.withheld or found.r2 is None:
        return UNSURE, found.doubt or found.known, [*remarks, found.known]
    told = f"R² of single rows {parts.interval(found.r2)}"
    if found.r2.low > 0 and not remarks:
        standing = GOOD if found.n_bags >= ENOUGH_BAGS else UNSURE
        return standing, f"This model predicts values of single rows better than their mean does: {told}.", remarks
    if found.r2.high < 0:
        return POOR, f"This model predicts values of single rows worse than their mean does: {told}.", remarks
    if found.r2.low > 0:
        return UNSURE, f"This model tells rows apart, but not their level: {told}.", remarks
    return UNSURE, f"Whether this model is better than the mean value for all rows cannot be told: {told}.", remarks


def _measures(found: ValueEvaluation | None) -> list[Part]:
    if found is None:
        return ["No bags were held out when the model was fitted: pass events and reports of other bags."]
    rows: list[tuple[str, Estimate | None]] = [
        ("mean label", found.mean_label),
        ("mean prediction", found.mean_prediction),
        ("their difference", found.bias),
        ("mean square error of single rows", found.mse),
        ("R² of single rows", found.r2),
        ("mean square error of bags", found.bags.error),
        ("that of the mean label", found.bags.constant_error),
    ]
    title = f"What bags tell, with {found.level:.0%} intervals"
    table = Table(title, ["", "model"], [[name, _shown(one)] for name, one in rows if one is not None], "lr")
    return [
        f"Formation of these bags: {found.formation.name} ({found.formation.reason}).",
        Caution(found.doubt or ""),
        table,
        Pictures([_calibration(found)]),
    ]


def _calibration(found: ValueEvaluation) -> Picture:
    of, curve = ("rows", found.calibration) if found.calibration is not None else ("bags", found.bags.calibration)
    title = f"Mean values by prediction, of {of}"
    told = f"The interval holds the mean prediction in {parts.held_by(curve)} of {len(curve.x)} groups of {of}."
    caption = f"{title}. On the dashed line, mean predictions are mean values."
    with parts.one_panel() as (figure, panel):
        BagCalibrationDisplay(found).plot(panel)
        if (legend := panel.get_legend()) is not None:
            legend.remove()
    return parts.picture(figure, "calibration", title, told, caption, _table(curve, title, found.level))


def _table(curve: Curve, title: str, level: float) -> Table:
    points = list(zip(curve.x, curve.y, curve.y_low, curve.y_high, strict=True))
    places = decimals_of(*curve.x, *curve.y)
    rows = [[f"{one:,.{places}f}" for one in point] for point in points]
    return Table(f"{title}, with {level:.0%} intervals", ["mean prediction", "mean value", "low", "high"], rows, "rrrr")


def _shown(one: Estimate) -> str:
    return parts.interval(one, decimals_of(one.value, one.low, one.high))
