"""The page on several models: which is best on the same bags, as far as these can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagwise.evaluation import Estimate, differences, possible
from bagwise.pages import figures, parts, svg, verdicts
from bagwise.pages.measurement import LEVEL, Measured, measure
from bagwise.pages.page import GOOD, UNSURE, Code, Page, Part, Picture, Pictures, Section, Table, Text
from bagwise.pages.stored import HIGHER_IS_BETTER, MEASURES, Stored, constant_guess, last
from bagwise.tables import MODELS, BagTable, diagnose, doubt_of
from bagwise.tables.evaluation import spread

_NOT_RANDOM = (
    "Which model is best cannot be told from these bags: they are not random, or too few, so that label-free numbers "
    "would be biased, maybe grossly."
)


@dataclass(frozen=True, eq=False)
class _Entry:
    """A model in the comparison. measured: None where only its file is at hand."""

    label: str
    stored: Stored
    facts: dict[str, Any]
    measured: Measured | None


def comparison(
    folders: Sequence[str | Path],
    data: BagTable | None = None,
    *,
    command: str | None = None,
    even_if_not_random: bool = False,
) -> Page:
    """The page as data; see `bagwise.pages.comparison_page`."""
    twice = [str(one) for place, one in enumerate(folders) if one in folders[:place]]
    if twice:
        raise ValueError(f"{twice[0]} is named twice: name each model once.")
    stored = [Stored.of(folder, even_if_not_random=even_if_not_random) for folder in folders]
    entries = _from_files(stored) if data is None else _measured(stored, data, even_if_not_random)
    doubtful = [one.facts for one in entries if doubt_of(one.facts) is not None]
    order = (lambda one: one.label) if doubtful else (lambda one: (one.facts["brier"]["value"], one.label))
    entries = sorted(entries, key=order)
    same = data is not None or _same_bags(stored)
    found = None if data is None else diagnose(data)
    standing, headline = (UNSURE, _NOT_RANDOM) if doubtful else _verdict(entries, same)
    if standing == GOOD and not (verdicts.enough(entries[0].facts) and (found is None or found.random)):
        standing = UNSURE
    guess = _guess(entries)
    sections = [
        Section("measures", "How good are they?", [Text(_where(entries, data, same)), _table(entries, guess)]),
        *([] if doubtful else [Section("intervals", "Intervals", [Pictures(_pictures(entries, guess))])]),
        *([] if doubtful else _paired(entries)),
        Section("models", "The models", [_models(entries)]),
        parts.again(command, [], _versions(entries), _fits(entries)),
    ]
    bags, rows = entries[0].facts["bags"], entries[0].facts["rows"]
    where = f"the same {bags:,} bags, {rows:,} rows" if same else "different bags"
    subject = f"{len(entries)} models on {where}, without labels."
    cautions = verdicts.cautions((doubtful or [entries[0].facts])[0], found)
    return Page("Comparison of models", subject, standing, headline, cautions, sections)


# -- measuring ----------------------------------------------------------------------------------------------------


def _labels(stored: Sequence[Stored]) -> list[str]:
    """Names of folders, or their paths where names are the same."""
    names = [one.name for one in stored]
    return names if len(set(names)) == len(names) else [str(one.folder) for one in stored]


def _from_files(stored: Sequence[Stored]) -> list[_Entry]:
    found = []
    for label, one in zip(_labels(stored), stored, strict=True):
        if one.evaluation is None:
            raise ValueError(
                f"{one.folder} was fitted without holding bags out: pass events and reports of other bags."
            )
        found.append(_Entry(label, one, one.evaluation, None))
    return found


def _measured(stored: Sequence[Stored], data: BagTable, even_if_not_random: bool) -> list[_Entry]:
    """All models on the bags that none of them was fitted to."""
    unseen = {one.folder: one.unseen(data) for one in stored}
    taken = [folder for folder, bags in unseen.items() if not bags]
    if taken:
        raise ValueError(f"{taken[0]} was fitted to all bags of these tables: pass events and reports of other bags.")
    bags = last(data, min(unseen.values()))
    found, spreads = [], dict[Any, Any]()
    for label, one in zip(_labels(stored), stored, strict=True):
        fitted = one.load()
        if fitted.features.columns not in spreads:
            spreads[fitted.features.columns] = spread(bags, fitted.features)
        features = spreads[fitted.features.columns]
        measured = measure(fitted, bags, one.about["prior"], features, even_if_not_random=even_if_not_random)
        found.append(_Entry(label, one, measured.facts, measured))
    return found


def _same_bags(stored: Sequence[Stored]) -> bool:
    """Whether the files tell of the same bags held out."""
    first, *others = [(one.about.get("seen"), (one.evaluation or {}).get("bags")) for one in stored]
    return all(one == first for one in others)


def _gain(one: _Entry, other: _Entry) -> dict[str, Estimate]:
    assert one.measured is not None
    assert other.measured is not None
    found = differences(one.measured.h, other.measured.h, one.measured.bags, level=LEVEL)
    most = {name: possible(name, one.measured.h.ndim)[1] for name in found}
    return {name: gain.within(-most[name], most[name]) for name, gain in found.items()}


def _guess(entries: Sequence[_Entry]) -> Mapping[str, float]:
    first = entries[0].measured
    if first is None:
        return constant_guess(entries[0].stored.about["prior"])
    return {name: one.value for name, one in first.guess.items()}


# -- words --------------------------------------------------------------------------------------------------------


def _verdict(entries: Sequence[_Entry], same: bool) -> tuple[str, str]:
    best, *others = entries
    shown = f"Brier score {verdicts.interval(best.facts['brier'], 3)}"
    if not same:
        return UNSURE, (
            "These models were measured on different bags, so that their numbers cannot be compared row by row; pass "
            "events and reports to measure all of them on the same."
        )
    if best.measured is None:
        return UNSURE, (
            f"Model {best.label} has the smallest square error ({shown}); whether by chance, only the tables can tell: "
            "pass events and reports."
        )
    alike = [one.label for one in others if _gain(best, one)["brier"].high >= 0]
    if not alike and not verdicts.beats(best.measured.gain):
        return UNSURE, (
            f"Model {best.label} has the smallest square error of these ({shown}), but it is not clearly better than "
            "one guess for all rows."
        )
    if not alike:
        return GOOD, f"Model {best.label} is best: its square error is clearly the smallest ({shown})."
    return UNSURE, (
        f"Model {best.label} has the smallest square error ({shown}), but these bags cannot tell it apart from "
        f"{_listed(alike)}."
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _where(entries: Sequence[_Entry], data: BagTable | None, same: bool) -> str:
    if data is None:
        again = "the same bags, held out from all of them" if same else "bags that differ from model to model"
        return f"The numbers are those of the models' files, measured on {again}."
    held = entries[0].facts["bags"] < data.summary.bags
    which = "the bags that none of them was fitted to" if held else "all bags of the tables given"
    order = (
        "in alphabetical order" if any(doubt_of(one.facts) for one in entries) else "the smallest square error first"
    )
    return f"Measured on {which}, {order}."


def _table(entries: Sequence[_Entry], guess: Mapping[str, float]) -> Table:
    names = [name for name in MEASURES if entries[0].facts[name] is not None or name in guess]
    rows = [
        [one.label, *(verdicts.interval(one.facts[name], 4) if one.facts.get(name) else "–" for name in names)]
        for one in entries
    ]
    rows.append(["constant guess", *(f"{guess[name]:.4f}" if name in guess else "–" for name in names)])
    caption = f"Label-free measures of single rows, with {entries[0].facts['level']:.0%} intervals"
    return Table(caption, ["model", *(MEASURES[name] for name in names)], rows)


def _pictures(entries: Sequence[_Entry], guess: Mapping[str, float]) -> list[Picture]:
    found = []
    for name, label in MEASURES.items():
        if any(one.facts.get(name) is None for one in entries):
            continue
        better = "higher" if name in HIGHER_IS_BETTER else "lower"
        told = "; ".join(f"{one.label} {verdicts.interval(one.facts[name], 3)}" for one in entries[:8])
        drawn = svg.inline(
            lambda name=name, label=label: figures.intervals(  # type: ignore[misc]
                [one.label for one in entries], [one.facts[name] for one in entries], label, guess.get(name)
            ),
            name=f"intervals-{name.replace('_', '-')}",
            title=f"{label[:1].upper()}{label[1:]} of the models",
            description=f"{told}.",
        )
        found.append(Picture(drawn, f"{label[:1].upper()}{label[1:]}, {better} is better."))
    return found


def _paired(entries: Sequence[_Entry]) -> list[Section]:
    """Differences to the best, on the same bags."""
    best, *others = entries
    if best.measured is None:
        return []
    gains = [(one.label, _gain(one, best)) for one in others]
    names = [name for name in MEASURES if all(name in gain for _, gain in gains)]
    rows = [[label, *(verdicts.interval(gain[name], 3, signed=True) for name in names)] for label, gain in gains]
    told = Text(
        f"Each model less {best.label}, on the same bags, whose luck they share: an interval that holds 0 leaves open "
        "which is better. Intervals are for one comparison each; among many, some miss by chance."
    )
    head = ["model", *(MEASURES[name] for name in names)]
    return [Section("paired", "Differences", [told, Table(f"Less {best.label}", head, rows)])]


def _models(entries: Sequence[_Entry]) -> Table:
    rows = [
        [
            one.label,
            f"{one.stored.about['model']}, {one.stored.about['estimator']}",
            f"{one.stored.about['bags']:,}",
            ", ".join(list(one.stored.about["sensitivity"])[:3]),
        ]
        for one in entries
    ]
    return Table("What they are", ["model", "kind", "bags fitted to", "columns that matter most"], rows, "llrl")


def _fits(entries: Sequence[_Entry]) -> list[Part]:
    kinds = dict.fromkeys(one.stored.about["model"] for one in entries if one.stored.about["model"] in MODELS)
    lines = [f"bagwise fit EVENTS REPORTS --model {kind}" for kind in kinds]
    return [Text("The models:"), Code("\n".join(lines))] if lines else []


def _versions(entries: Sequence[_Entry]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for one in entries:
        for name, version in one.stored.versions.items():
            found.setdefault(name, []).append(version)
    return {name: ", ".join(sorted(set(versions))) for name, versions in found.items()}
