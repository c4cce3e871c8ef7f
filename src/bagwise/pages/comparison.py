"""The page on several models: which is best on the same bags, as far as these can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bagwise.estimates import Estimate
from bagwise.estimators import MODELS
from bagwise.evaluation import Evaluation, differences
from bagwise.metrics import METRICS, possible
from bagwise.pages import figures, parts, verdicts
from bagwise.pages.model import HIGHER_IS_BETTER
from bagwise.pages.page import GOOD, UNSURE, Code, Page, Part, Picture, Pictures, Section, Table, Text
from bagwise.pages.stored import Stored
from bagwise.tables import BagTable, Measurement, diagnose
from bagwise.tables.bag_table import last_bags

_NOT_RANDOM = (
    "Which model is best cannot be told from these bags: they are not random, or too few, so that label-free numbers "
    "would be biased, maybe grossly."
)
_Gains = Mapping[str, Mapping[str, Estimate]]


@dataclass(frozen=True, eq=False)
class _Entry:
    """A model in the comparison."""

    label: str
    stored: Stored
    judged: Measurement

    @property
    def evaluation(self) -> Evaluation:
        return self.judged.evaluation

    def interval(self, name: str, digits: int) -> str:
        """A measure in digits."""
        found = getattr(self.evaluation, name)
        return "–" if found is None else verdicts.interval(found, digits)


def comparison_page(
    folders: Sequence[str | Path],
    data: BagTable | None = None,
    *,
    command: str | None = None,
    even_if_not_random: bool = False,
) -> Page:
    """A page on several models, judged by the same bags, which none of them was fitted to; paired differences.

    Parameters
    ----------
    folders : sequence of str or Path
        As `bagwise fit` wrote them.
    data, command
        As in `model_page`.
    even_if_not_random : bool
        Show biased numbers where bags are not random; which model is best is told in no case then.

    Returns
    -------
    Page
        To be written by `write`.
    """
    twice = [str(one) for place, one in enumerate(folders) if one in folders[:place]]
    if twice:
        raise ValueError(f"{twice[0]} is named twice: name each model once.")
    stored = [Stored.of(folder, even_if_not_random=even_if_not_random) for folder in folders]
    entries = _judged(stored, data)
    doubtful = [one.evaluation for one in entries if one.evaluation.doubt is not None]
    entries = sorted(entries, key=lambda one: one.label)
    if not doubtful:
        entries = sorted(entries, key=lambda one: one.evaluation.brier.value)  # type: ignore[union-attr]
    same = data is not None or _same_bags(stored)
    gains = {} if doubtful or data is None else {one.label: _gain(one.judged, entries[0].judged) for one in entries[1:]}
    found = None if data is None else diagnose(data)
    standing, headline = (UNSURE, _NOT_RANDOM) if doubtful else _verdict(entries, gains, same)
    if standing == GOOD and not (verdicts.enough(entries[0].evaluation) and (found is None or found.random)):
        standing = UNSURE
    guess = entries[0].judged.guess
    sections = [
        Section("measures", "How good are they?", [Text(_where(entries, data, same)), _table(entries, guess)]),
        *([] if doubtful else [Section("intervals", "Intervals", [Pictures(_pictures(entries, guess))])]),
        *([_paired(entries[0].label, gains)] if gains else []),
        Section("models", "The models", [_models(entries)]),
        parts.again(command, [], [one.stored.versions for one in entries], _fits(entries)),
    ]
    bags, rows = entries[0].evaluation.n_bags, entries[0].evaluation.n_rows
    where = f"the same {bags:,} bags, {rows:,} rows" if same else "different bags"
    subject = f"{len(entries)} models on {where}, without labels."
    cautions = verdicts.cautions((doubtful or [entries[0].evaluation])[0], found)
    return Page("Comparison of models", subject, standing, headline, cautions, sections)


# -- measuring ----------------------------------------------------------------------------------------------------


def _judged(stored: Sequence[Stored], data: BagTable | None) -> list[_Entry]:
    """All models, on the bags that none of them was fitted to where there are tables."""
    names = [one.name for one in stored]
    labels = names if len(set(names)) == len(names) else [str(one.folder) for one in stored]
    bags = None
    if data is not None:
        unseen = {one.folder: one.unseen(data) for one in stored}
        taken = [folder for folder, number in unseen.items() if not number]
        if taken:
            raise ValueError(
                f"{taken[0]} was fitted to all bags of these tables: pass events and reports of other bags."
            )
        bags = last_bags(data, min(unseen.values()))
    entries = []
    for label, one in zip(labels, stored, strict=True):
        judged = one.judged(data, bags)
        if judged is None:
            raise ValueError(
                f"{one.folder} was fitted without holding bags out: pass events and reports of other bags."
            )
        entries.append(_Entry(label, one, judged))
    return entries


def _same_bags(stored: Sequence[Stored]) -> bool:
    """Whether the files tell of the same bags held out."""
    first = stored[0].about
    bags = {None if one.about.evaluation is None else one.about.evaluation.n_bags for one in stored}
    return len(bags) == 1 and all(one.about.has_seen(first.seen) for one in stored)


def _gain(one: Measurement, other: Measurement) -> dict[str, Estimate]:
    """One model less another, on the same bags."""
    assert one.predictions is not None
    assert other.predictions is not None
    h, bags = one.predictions.h, one.predictions.bags
    found = differences(h, other.predictions.h, bags, level=one.evaluation.level)
    most = {name: possible(name, h.ndim)[1] for name in found}
    return {name: gain.within(-most[name], most[name]) for name, gain in found.items()}


# -- words --------------------------------------------------------------------------------------------------------


def _verdict(entries: Sequence[_Entry], gains: _Gains, same: bool) -> tuple[str, str]:
    best = entries[0]
    shown = f"Brier score {best.interval('brier', 3)}"
    if not same:
        return UNSURE, (
            "These models were measured on different bags, so that their numbers cannot be compared row by row; pass "
            "events and reports to measure all of them on the same."
        )
    if best.judged.predictions is None:
        return UNSURE, (
            f"Model {best.label} has the smallest square error ({shown}); whether by chance, only the tables can tell: "
            "pass events and reports."
        )
    alike = [label for label, gain in gains.items() if gain["brier"].low <= 0]
    if not alike and not verdicts.beats(best.judged.gain):
        return UNSURE, (
            f"Model {best.label} has the smallest square error of these ({shown}), but it is not clearly better than "
            "one guess for all rows."
        )
    if not alike:
        return GOOD, f"Model {best.label} is best: its square error is clearly the smallest ({shown})."
    listed = alike[0] if len(alike) == 1 else f"{', '.join(alike[:-1])} and {alike[-1]}"
    return UNSURE, (
        f"Model {best.label} has the smallest square error ({shown}), but these bags cannot tell it apart from "
        f"{listed}."
    )


def _where(entries: Sequence[_Entry], data: BagTable | None, same: bool) -> str:
    if data is None:
        again = "the same bags, held out from all of them" if same else "bags that differ from model to model"
        return f"The numbers are those of the models' files, measured on {again}."
    held = entries[0].evaluation.n_bags < data.summary.bags
    which = "the bags that none of them was fitted to" if held else "all bags of the tables given"
    order = (
        "in alphabetical order" if any(one.evaluation.doubt for one in entries) else "the smallest square error first"
    )
    return f"Measured on {which}, {order}."


def _table(entries: Sequence[_Entry], guess: Mapping[str, float]) -> Table:
    names = [name for name in METRICS if getattr(entries[0].evaluation, name) is not None or name in guess]
    rows = [[one.label, *(one.interval(name, 4) for name in names)] for one in entries]
    rows.append(["constant guess", *(f"{guess[name]:.4f}" if name in guess else "–" for name in names)])
    caption = f"Label-free measures of single rows, with {entries[0].evaluation.level:.0%} intervals"
    return Table(caption, ["model", *(METRICS[name] for name in names)], rows)


def _pictures(entries: Sequence[_Entry], guess: Mapping[str, float]) -> list[Picture]:
    found, labels = [], [one.label for one in entries]
    for name, label in METRICS.items():
        values = [getattr(one.evaluation, name) for one in entries]
        if None in values:
            continue
        title, better = f"{label[:1].upper()}{label[1:]}", "higher" if name in HIGHER_IS_BETTER else "lower"
        told = "; ".join(f"{one.label} {one.interval(name, 3)}" for one in entries[:8])
        draw, drawn = partial(figures.intervals, labels, values, label, guess.get(name)), name.replace("_", "-")
        caption = f"{title}, {better} is better."
        found.append(parts.picture(draw, f"intervals-{drawn}", f"{title} of the models", f"{told}.", caption))
    return found


def _paired(best: str, gains: _Gains) -> Section:
    """Differences to the best, on the same bags."""
    names = [name for name in METRICS if all(name in gain for gain in gains.values())]
    rows = [
        [label, *(verdicts.interval(gain[name], 3, signed=True) for name in names)] for label, gain in gains.items()
    ]
    told = Text(
        f"Each model less {best}, on the same bags, whose luck they share: an interval that holds 0 leaves open which "
        "is better. Intervals are for one comparison each; among many, some miss by chance."
    )
    head = ["model", *(METRICS[name] for name in names)]
    return Section("paired", "Differences", [told, Table(f"Less {best}", head, rows)])


def _models(entries: Sequence[_Entry]) -> Table:
    rows = []
    for one in entries:
        about = one.stored.about
        matter = ", ".join(list(about.sensitivity)[:3])
        rows.append([one.label, f"{about.model}, {about.fitted_by}", f"{about.summary.bags:,}", matter])
    return Table("What they are", ["model", "kind", "bags fitted to", "columns that matter most"], rows, "llrl")


def _fits(entries: Sequence[_Entry]) -> list[Part]:
    kinds = dict.fromkeys(one.stored.about.model for one in entries if one.stored.about.model in MODELS)
    lines = [f"bagwise fit EVENTS REPORTS --model {kind}" for kind in kinds]
    return [Text("The models:"), Code("\n".join(lines))] if lines else []
