"""The page on two tables: do they fit, are the bags random, what do the reports give away?"""

from __future__ import annotations

from bagwise.diagnostics import Diagnosis
from bagwise.pages import parts
from bagwise.pages.funnel import Funnel, bag_parts
from bagwise.pages.page import GOOD, UNSURE, Bullets, Page, Section
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
    reports, found = data.reported, diagnose(data)
    advice = parts.capital(found.advice)
    output = int(abs(reports.proportion.reshape(len(reports.size), -1).mean(axis=0) - 0.5).argmin())
    bags = bag_parts(Funnel.of_reports(reports, output), data, output, predicted=False)
    leaks = Bullets(f"{parts.capital(text)}." for text in found.leaks.statements)
    sections = [
        Section("tables", "Do the tables fit?", parts.summary_parts(data.summary)),
        Section("random", "Are the bags random?", [advice, *parts.finding_parts(found)]),
        Section("bags", "What the bags reported", bags),
        Section("leaks", "What the reports give away", [leaks]),
        parts.again(command, [], []),
    ]
    standing, headline = UNSURE, f"The bags are not random: {found.verdict}."
    if found.random:
        standing, headline = GOOD, "The bags look random: every loss and the label-free evaluation apply."
    remarks = [*([] if found.random else [advice]), *_remarks(data, found)]
    subject = f"{data.summary.bags:,} bags, {data.summary.used_rows:,} rows, {len(data.features)} columns."
    return Page("Diagnosis of bags", subject, standing, headline, remarks, sections)


def _remarks(data: BagTable, found: Diagnosis) -> list[str]:
    left_out, remarks = data.summary.rows - data.summary.used_rows, ["The tables fit: every row is used."]
    if left_out:
        wrong = any(not mismatch.expected for mismatch in data.summary.mismatches)
        kept = "bags that do not fit are left out" if wrong else "nothing unexpected is left out"
        remarks = [f"{left_out:,} of {data.summary.rows:,} rows are not used; {kept}."]
    if data.summary.noised:
        remarks.append("Reports carry declared noise, which widens all intervals and limits.")
    if found.leaks.revealed_rows:
        remarks.append(f"The reports reveal the labels of {found.leaks.revealed_rows:,} single rows.")
    return remarks
