"""The page on one model: how good it is on bags it was not fitted to, what it looks at, how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.diagnostics import Diagnosis
from bagwise.evaluation import Estimate
from bagwise.pages import parts, verdicts
from bagwise.pages.measurement import Measured, Reports, measure
from bagwise.pages.page import GOOD, UNSURE, Bullets, Code, Page, Part, Pictures, Section, Table, Text
from bagwise.pages.stored import HIGHER_IS_BETTER, MEASURES, Stored, constant_guess, last
from bagwise.tables import MODELS, BagTable, TableModel, diagnose, doubt_of, risk_of
from bagwise.tables.evaluation import spread

_AGREE = 1e-6  # measured again, numbers differ by rounding alone
_BIASED = (
    "These numbers were asked for although the bags cannot tell (--even-if-not-random): they are biased, maybe "
    "grossly. Calibration and ROC curve are left out."
)
_WITHHELD = "Numbers that the bags cannot tell are withheld; --even-if-not-random shows what would come out."
_WITHHELD_AT_FIT = (
    "Numbers that the bags cannot tell were withheld when the model was fitted: pass events and reports, and they are "
    "measured again."
)


def model(
    folder: str | Path, data: BagTable | None = None, *, command: str | None = None, even_if_not_random: bool = False
) -> Page:
    """The page as data; see `bagwise.pages.model_page`."""
    stored = Stored.of(folder, even_if_not_random=even_if_not_random)
    bags = 0 if data is None else stored.unseen(data)
    fitted = None if data is None else stored.load()
    measured = None
    if data is not None and fitted is not None and bags:
        judges = last(data, bags)
        features = spread(judges, fitted.features)
        measured = measure(fitted, judges, stored.about["prior"], features, even_if_not_random=even_if_not_random)
    found = None if data is None or fitted is None else diagnose(data, fitted.features)
    facts = stored.evaluation if measured is None else measured.facts
    standing, headline, remarks = _verdict(stored, measured, found)
    sections = [
        Section("measures", "How good is it?", _measures(stored, measured, data, bags)),
        *_bag_sections(measured, data),
        Section("drivers", "Which columns drive it?", parts.driver_parts(stored.about["sensitivity"])),
        *([] if found is None else [Section("diagnosis", "What the diagnosis found", _diagnosis(found))]),
        *_trials(stored),
        Section("tables", "What it was fitted to", _fitted_to(stored)),
        _again(stored, fitted, command),
    ]
    kind = f"{stored.about['model']} ({stored.about['estimator']})"
    where = (
        "no bags held out"
        if facts is None
        else f"judged by {facts['bags']:,} bags, {facts['rows']:,} rows, without labels"
    )
    return Page(f"Model {stored.name}", f"{kind}; {where}.", standing, headline, remarks, sections)


def _verdict(stored: Stored, measured: Measured | None, found: Diagnosis | None) -> tuple[str, str, list[str]]:
    facts = stored.evaluation if measured is None else measured.facts
    if facts is None:
        return (
            UNSURE,
            "Nobody knows yet how good this model is: no bags were held out when it was fitted.",
            ["Pass events and reports of bags that it was not fitted to, and this page will tell."],
        )
    remarks, doubt = verdicts.cautions(facts, found), doubt_of(facts)
    if doubt is not None:
        standing, headline = UNSURE, doubt
    else:
        guess = constant_guess(stored.about["prior"])
        standing, headline = verdicts.standing(facts, guess, None if measured is None else measured.gain)
        if standing == GOOD and found is not None and not found.random:
            standing = UNSURE
    if measured is not None:
        funnel = measured.funnel()
        if doubt is None:
            remarks += verdicts.gains(measured.gain, constant_guess(stored.about["prior"])["brier"])
            if measured.found.calibration is not None:
                remarks.append(verdicts.off_level(*measured.level()) or verdicts.calibrated(measured.found.calibration))
        else:
            remarks.append(verdicts.explained(funnel.explained))
        if funnel.too_many_outside:
            remarks.append(
                f"More bags than chance allows lie where a calibrated model would not put random bags: {funnel}."
            )
    top = list(stored.about["sensitivity"])[:3]
    if top:
        remarks.append(f"What moves its predictions most: {', '.join(top)}.")
    return standing, headline, remarks


# -- how good -----------------------------------------------------------------------------------------------------


def _measures(stored: Stored, measured: Measured | None, data: BagTable | None, bags: int) -> list[Part]:
    facts = stored.evaluation if measured is None else measured.facts
    if facts is None:
        return [Text("No bags were held out when the model was fitted: pass events and reports of other bags.")]
    found: list[Part] = [Text(_where(stored, measured, data, bags))]
    if measured is None:
        guess: Mapping[str, Any] = constant_guess(stored.about["prior"])
        gain: Mapping[str, Estimate] = {}
    else:
        guess, gain = measured.guess, measured.gain
    random = doubt_of(facts) is None
    if not random:
        withheld = _WITHHELD_AT_FIT if stored.even_if_not_random else _WITHHELD
        found.append(Text(withheld if facts["accuracy"] is None else _BIASED, warning=True))
    found.append(measure_table(facts, guess, gain if random else {}))
    if measured is None:
        if data is None:
            found.append(
                Text(
                    "Calibration, ROC curve and the proportions of single bags need the tables: pass the events and "
                    "reports that the model was fitted to, or others, and they are on this page."
                )
            )
        return found
    curves = []
    if random and measured.found.calibration is not None:
        curves.append(parts.curve_picture("calibration", measured.found.calibration, measured.found.level))
    if random and measured.found.roc is not None and measured.found.auc is not None:
        curves.append(parts.curve_picture("roc", measured.found.roc, measured.found.level, measured.found.auc))
    return [*found, *([Pictures(curves)] if curves else [])]


def _where(stored: Stored, measured: Measured | None, data: BagTable | None, bags: int) -> str:
    """Which bags the numbers are from."""
    if measured is None and stored.about["refitted"]:
        return (
            "Measured on bags held out, before the model was fitted once more to all bags, those included: there are "
            "none left in these tables to judge it by; pass tables of other bags for curves."
        )
    if measured is None:
        return "Measured on bags that were held out when the model was fitted; the numbers are those of its file."
    assert data is not None
    if bags == data.summary.bags:
        return "Measured on all bags of the tables given, which are not those that the model was fitted to."
    stated, now = stored.evaluation, measured.facts
    again = "but the file of the model tells other numbers"
    if stated is not None and stated["accuracy"] is None and now["accuracy"] is None:
        again = "as in its file, there are no numbers"
    elif stated is not None and all(_agree(stated[name], now[name]) for name in MEASURES):
        again = "the same numbers as in its file"
    return f"Measured once more on the bags that were held out when the model was fitted: {again}."


def _agree(one: Mapping[str, float] | None, other: Mapping[str, float] | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one["value"] - other["value"]) < _AGREE


def measure_table(facts: Mapping[str, Any], guess: Mapping[str, Any], gain: Mapping[str, Estimate]) -> Table:
    """The measures of a model beside those of the constant guess."""
    rows = []
    for name, label in MEASURES.items():
        if facts[name] is None and facts["accuracy"] is not None:
            continue
        constant = guess.get(name)
        shown = "–" if constant is None else f"{constant.value if isinstance(constant, Estimate) else constant:.4f}"
        row = [label, "–" if facts[name] is None else verdicts.interval(facts[name], 4), shown]
        if gain:
            row += [verdicts.interval(gain[name], 4, signed=True), _reading(name, gain[name])]
        rows.append(row)
    head = ["", "model", "constant guess", *(["difference", "the model is"] if gain else [])]
    caption = f"Label-free measures of single rows, with {facts['level']:.0%} intervals"
    return Table(caption, head, rows, "lrrrl")


def _reading(name: str, gain: Estimate) -> str:
    if gain.low <= 0 <= gain.high:
        return "not clearly different"
    return "better" if (gain.value > 0) == (name in HIGHER_IS_BETTER) else "worse"


def _bag_sections(measured: Measured | None, data: BagTable | None) -> list[Section]:
    if data is None:
        return []
    if measured is None:
        told, sizes = parts.sizes("sizes", Reports.of(data).size)
        return [Section("bags", "The bags", [Text(told), *([Pictures([sizes])] if sizes else [])])]
    output = int(np.argmin(np.abs(measured.bags.outputs.mean(axis=0) - 0.5)))
    named = f" of class {data.classes[output]}" if data.classes is not None else ""
    funnel = measured.funnel(output)
    told, sizes = parts.sizes("sizes", funnel.size)
    pictures = [*parts.agreement_pictures("bags", funnel), *([sizes] if sizes else [])]
    return [Section("bags", "The bags", [Text(f"{told} Proportions{named}: {funnel}."), Pictures(pictures)])]


def _diagnosis(found: Diagnosis) -> list[Part]:
    verdict = Text(f"Verdict on all bags of the tables: {found.verdict}. {found.advice[:1].upper()}{found.advice[1:]}")
    return [verdict, *parts.finding_parts(found)]


# -- how it was made ----------------------------------------------------------------------------------------------


def _trials(stored: Stored) -> list[Section]:
    trials = stored.about["trials"]
    if not trials:
        return []
    rows = []
    for trial in trials:
        risk, interval = risk_of(trial, stored.about, even_if_not_random=stored.even_if_not_random)
        rows.append([trial["candidate"], risk, interval, trial["note"]])
    told = Text(
        f"{stored.about['estimator']}: candidates judged by the label-free risk of bags held out, lower is better."
    )
    table = Table("Candidates", ["candidate", "risk", "interval", "note"], rows, "lrrl")
    return [Section("trials", "What was tried", [told, table])]


def _fitted_to(stored: Stored) -> Sequence[Part]:
    about = stored.about
    first, *left_out = about["tables"].splitlines() or [""]
    rows = [[str(c["name"]), str(c["role"]), str(c["levels"] or "–"), str(c["note"])] for c in about["columns"]]
    classes = [Text(f"Classes: {', '.join(map(str, about['classes']))}.")] if about.get("classes") else []
    return [
        Text(first),
        *([Bullets(left_out)] if left_out else []),
        Text(f"Key of a bag: {', '.join(map(str, about['keys']))}."),
        *classes,
        Table(
            f"Columns ({len(rows)})", ["column", "role", "values", "note"], rows[:500], "llrl", folded=len(rows) > 12
        ),
    ]


def _again(stored: Stored, fitted: TableModel | None, command: str | None) -> Section:
    seed = None if fitted is None else fitted.estimator.get_params(deep=False).get("random_state")
    seed = seed if isinstance(seed, (int, np.integer)) else None
    facts = [] if seed is None else [f"Seed: {seed}."]
    also: list[Part] = []
    if stored.about["model"] in MODELS:
        fit = f"bagwise fit EVENTS REPORTS --model {stored.about['model']}{'' if seed is None else f' --seed {seed}'}"
        also = [Text("The model:"), Code(fit)]
        facts.append("Options for columns and noise are not stored with a model: add those that were given.")
    return parts.again(command, facts, stored.versions, also)
