"""The page on two tables: do they fit, are the bags random, what do the reports give away?"""

from __future__ import annotations

from bagwise.diagnostics import Diagnosis
from bagwise.pages import parts
from bagwise.pages.figures import Funnel
from bagwise.pages.page import GOOD, UNSURE, Page, Part, Pictures, Section, Text
from bagwise.tables import BagTable, diagnose


def diagnosis_page(data: BagTable, *, command: str | None = None) -> Page:
    """A page on events and reports: do they fit, are the bags random, what do they give away?

    Parameters
    ----------
    data : BagTable
        As `bagwise.tables.join` returns it.
    command : str, optional
        How the page was made, to be shown on it.

    Returns
    -------
    Page
        To be written by `write`.
    """
    found, reports = diagnose(data), data.reported()
    shares = reports.proportion.reshape(len(reports.size), -1)
    output = int(abs(shares.mean(axis=0) - 0.5).argmin())
    funnel = Funnel.of_reports(reports, output)
    sections = [
        Section("tables", "Do the tables fit?", parts.summary_parts(data.summary)),
        Section("random", "Are the bags random?", [Text(_advice(found)), *parts.finding_parts(found)]),
        Section("bags", "What the bags reported", _bags(data, funnel, output)),
        Section("leaks", "What the reports give away", [parts.leak_part(found)]),
        parts.again(command, [], []),
    ]
    subject = f"{data.summary.bags:,} bags, {data.summary.used_rows:,} rows, {len(data.features)} columns."
    return Page("Diagnosis of bags", subject, *_verdict(data, found), sections)


def _verdict(data: BagTable, found: Diagnosis) -> tuple[str, str, list[str]]:
    if found.random:
        standing, headline = GOOD, "The bags look random: every loss and the label-free evaluation apply."
    else:
        standing, headline = UNSURE, f"The bags are not random: {found.verdict}."
    wrong = [mismatch for mismatch in data.summary.mismatches if not mismatch.expected]
    left_out = data.summary.rows - data.summary.used_rows
    remarks = [] if found.random else [_advice(found)]
    if left_out:
        kept = "bags that do not fit are left out" if wrong else "nothing unexpected is left out"
        remarks.append(f"{left_out:,} of {data.summary.rows:,} rows are not used; {kept}.")
    else:
        remarks.append("The tables fit: every row is used.")
    if data.summary.noised:
        remarks.append("Reports carry declared noise, which widens all intervals and limits.")
    if found.leaks.revealed_rows:
        remarks.append(f"The reports reveal the labels of {found.leaks.revealed_rows:,} single rows.")
    return standing, headline, remarks


def _advice(found: Diagnosis) -> str:
    return f"{found.advice[:1].upper()}{found.advice[1:]}"


def _bags(data: BagTable, funnel: Funnel, output: int) -> list[Part]:
    told, sizes = parts.sizes("sizes", funnel.size)
    rough = " The limits are rough for bags as small as these." if funnel.is_rough else ""
    pictures = [parts.proportion_picture("proportions", funnel)]
    if funnel.usual_size is None:
        caption = "Random bags stay between the limits, 95% and 99.8% of them."
        pictures.append(parts.funnel_picture("funnel", funnel, "reported − mean label", caption))
    pictures += [sizes] if sizes else []
    text = f"{told} Proportions{parts.class_name(data, output)}: {funnel}.{rough}"
    return [Text(text), Pictures(pictures)]
