"""The page on several models: which is best on the same bags, as far as these can tell."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.ticker import MaxNLocator

from bagwise.bag_fit import gains as bag_gains
from bagwise.evaluation import differences
from bagwise.evaluation.measures import ENOUGH_BAGS
from bagwise.metrics import METRICS, Estimate, estimated, possible
from bagwise.pages import parts
from bagwise.pages.model import HIGHER_IS_BETTER
from bagwise.pages.page import GOOD, UNSURE, Code, Page, Picture, Pictures, Section, Table
from bagwise.pages.stored import Stored, refit
from bagwise.plotting import BLUE, RED, name_axis
from bagwise.tables import BagTable, Measurement
from bagwise.tables.held_out import last_bags
from bagwise.tables.predictions import Predictions
from bagwise.utils.text import listed

_DIFFERENCES = {**METRICS, "gain": "log-likelihood of a bag"}
_DIFFERENT_BAGS = (
    "These models were measured on different bags, so that their numbers cannot be compared; pass events and reports "
    "to measure all of them on the same."
)
_ROWS_UNKNOWN = "how good it is for single rows, these bags do not tell"
_LIKELIHOOD = "log-likelihood of a bag over that of the mean label"


def comparison_page(
    folders: Sequence[str | Path],
    data: BagTable | None = None,
    *,
    command: str | None = None,
) -> Page:
    """A page on several models, judged by the same bags, which none of them was fitted to; paired differences.

    Parameters
    ----------
    folders : sequence of str or Path
        As `bagwise fit` wrote them.
    data, command
        As in `model_page`. Where bags do not tell how good models are for single rows, these are compared by how likely
        they make what bags report.

    Returns
    -------
    Page
        To be written by `write`.
    """
    places = [Path(folder) for folder in folders]
    twice = [str(one) for place, one in enumerate(places) if one in places[:place]]
    if twice:
        raise ValueError(f"{twice[0]} is named twice: name each model once.")
    every = [Stored.of(place) for place in places]
    for place, one in zip(places, every, strict=True):
        if one.about.target == "value":
            raise ValueError(f"{place} holds a model of values: pages compare models of labels; name one model alone.")
    names = [one.name for one in every]
    labels = names if len(set(names)) == len(names) else [str(one.folder) for one in every]
    stored = dict(zip(labels, every, strict=True))
    judged = _judged(stored, data)
    by_bags = any(one.evaluation.withheld for one in judged.values())
    loss = {
        label: -one.evaluation.bags.gain.value if by_bags else one.evaluation.brier.value  # type: ignore[union-attr]
        for label, one in judged.items()
    }
    judged = {label: judged[label] for label in sorted(judged, key=lambda label: (loss[label], label))}
    best, first = next(iter(judged.items()))
    told = {label: stored[label].about for label in judged}
    bags = {one.evaluation.n_bags for one in judged.values()}
    alike = len(bags) == 1 and len({one.latest for one in told.values()}) == 1
    same = data is not None or (alike and all(one.has_seen(told[best].seen) for one in told.values()))
    said = {label: one.predictions for label, one in judged.items() if one.predictions}
    formation, level = first.evaluation.formation.name, first.evaluation.level
    gains = {
        label: _more_likely(one, said[best], level) if by_bags else _gain(one, said[best], formation, level)
        for label, one in said.items()
        if label != best
    }
    standing, headline = (_likeliest if by_bags else _verdict)(best, first, gains, same)
    enough = first.evaluation.n_bags >= ENOUGH_BAGS and formation in ("random", "rates")
    gain = told[best].bag_gain
    said_of_best = [] if gain is None or gain.doubt is None else [f"{best}: {gain.doubt}"]
    if data is None:
        again = "the same bags, held out from all of them" if same else "bags that differ from model to model"
        where = f"The numbers are those of the models' files, measured on {again}."
    else:
        held = first.evaluation.n_bags < data.summary.bags
        which = "the bags that none of them was fitted to" if held else "all bags of the tables given"
        order = "the likeliest first" if by_bags else "the smallest square error first"
        where = f"Measured on {which}, {order}."
    rows = [
        [label, f"{one.model}, {one.fitted_by}", f"{one.summary.bags:,}", ", ".join(list(one.sensitivity)[:3])]
        for label, one in told.items()
    ]
    head = ["model", "kind", "bags fitted to", "columns that matter most"]
    fits = "\n".join(refit(one) for one in stored.values() if one.about.config)
    models = ["The models, where their tables are:", Code(fits)] if fits else []
    sections = [
        Section("measures", "How good are they?", [where, _of_bags(judged) if by_bags else _measures(judged, first)]),
        *([] if by_bags else [Section("intervals", "Intervals", [Pictures(_pictures(judged, first.guess))])]),
        *([_paired(best, gains)] if gains else []),
        Section("models", "The models", [Table("What they are", head, rows, "llrl")]),
        parts.again(command, [], [stored[label].versions for label in judged], models),
    ]
    shared = f"the same {first.evaluation.n_bags:,} bags, {first.evaluation.n_rows:,} rows"
    subject = f"{len(judged)} models on {shared if same else 'different bags'}, without labels."
    cautions = [*said_of_best, *parts.cautions(first.evaluation)]
    standing = standing if enough and not said_of_best else UNSURE
    return Page("Comparison of models", subject, standing, headline, cautions, sections)


def _judged(stored: Mapping[str, Stored], data: BagTable | None) -> dict[str, Measurement]:
    """All models, on the bags that none of them was fitted to where there are tables."""
    bags, found, other = None, {}, "pass events and reports of other bags."
    if data is not None:
        taken = [one.folder for one in stored.values() if not one.unseen(data)]
        if taken:
            raise ValueError(f"{taken[0]} was fitted to all bags of these tables: {other}")
        ways = {one.latest(data) for one in stored.values() if one.unseen(data) < data.summary.bags} or {None}
        if len(ways) > 1:
            raise ValueError(f"these models were held out bags of in different ways, by time and at random: {other}")
        bags = last_bags(data, min(one.unseen(data) for one in stored.values()), latest=ways.pop())
    for label, one in stored.items():
        judged = one.judged(data, bags)
        if judged is None:
            raise ValueError(f"{one.folder} was fitted without holding bags out: {other}")
        found[label] = judged
    return found


def _more_likely(one: Predictions, other: Predictions, level: float) -> dict[str, Estimate]:
    """By how much more likely one model makes the reports of the same bags than another."""
    difference = bag_gains(one.h, one.bags) - bag_gains(other.h, other.bags)
    return {"gain": estimated(float(difference.mean()), difference - difference.mean(), level)}


def _likeliest(
    best: str, first: Measurement, gains: Mapping[str, Mapping[str, Estimate]], same: bool
) -> tuple[str, str]:
    """What may be said where bags do not tell of single rows."""
    if not same:
        return UNSURE, _DIFFERENT_BAGS
    shown = f"{_LIKELIHOOD} {parts.interval(first.evaluation.bags.gain, 2, signed=True)}"
    alike = [label for label, gain in gains.items() if gain["gain"].high >= 0]
    tell = f", but these bags cannot tell it apart from {listed(alike)}" if alike else ""
    tell = "; whether by chance, only the tables can tell" if first.predictions is None else tell
    return UNSURE, f"Model {best} makes the reports of held-out bags likeliest ({shown}){tell}; {_ROWS_UNKNOWN}."


def _of_bags(judged: Mapping[str, Measurement]) -> Table:
    """What may be compared in every formation."""
    rows = [
        [
            label,
            parts.interval(one.evaluation.bags.gain, 3, signed=True),
            parts.interval(one.evaluation.bags.error, 4),
            f"{one.evaluation.bags.implied['accuracy']:.3f}",
        ]
        for label, one in judged.items()
    ]
    head = ["model", _LIKELIHOOD, "square error of proportions", "accuracy if it is right"]
    return Table("What held-out bags tell of the models", head, rows)


def _gain(one: Predictions, other: Predictions, formation: str, level: float) -> dict[str, Estimate]:
    """One model less another, on the same bags."""
    by = "rates" if formation == "rates" else "random"
    found = differences(one.h, other.h, one.bags, formation=by, level=level)
    most = {name: possible(name, one.h.ndim)[1] for name in found}
    return {name: gain.within(-most[name], most[name]) for name, gain in found.items()}


def _verdict(best: str, first: Measurement, gains: Mapping[str, Mapping[str, Estimate]], same: bool) -> tuple[str, str]:
    if not same:
        return UNSURE, _DIFFERENT_BAGS
    shown = f"Brier score {parts.interval(first.evaluation.brier, 3)}"
    smallest = f"Model {best} has the smallest square error"
    if first.predictions is None:
        return UNSURE, f"{smallest} ({shown}); whether by chance, only the tables can tell: pass events and reports."
    alike = [label for label, gain in gains.items() if gain["brier"].low <= 0]
    if alike:
        return UNSURE, f"{smallest} ({shown}), but these bags cannot tell it apart from {listed(alike)}."
    if not parts.beats(first.gain):
        return UNSURE, f"{smallest} of these ({shown}), but it is not clearly better than one guess for all rows."
    return GOOD, f"Model {best} is best: its square error is clearly the smallest ({shown})."


def _measures(judged: Mapping[str, Measurement], first: Measurement) -> Table:
    guess, found = first.guess, {label: one.evaluation for label, one in judged.items()}
    names = [name for name in METRICS if getattr(first.evaluation, name) is not None or name in guess]
    rows = [[label, *(parts.interval(getattr(one, name), 4) for name in names)] for label, one in found.items()]
    rows.append(["constant guess", *(f"{guess[name]:.4f}" if name in guess else "–" for name in names)])
    caption = f"Label-free measures of single rows, with {first.evaluation.level:.0%} intervals"
    return Table(caption, ["model", *(METRICS[name] for name in names)], rows)


def _pictures(judged: Mapping[str, Measurement], guess: Mapping[str, float]) -> list[Picture]:
    """An estimate with its interval per model, beside the constant guess's; a picture per measure that all have."""
    found = []
    for name, label in METRICS.items():
        values = {model: getattr(one.evaluation, name) for model, one in judged.items()}
        if None not in values.values():
            title, better = parts.capital(label), "higher" if name in HIGHER_IS_BETTER else "lower"
            told = "; ".join(f"{model} {parts.interval(one, 3)}" for model, one in list(values.items())[:8])
            value, low, high = np.array([(one.value, one.low, one.high) for one in values.values()]).T
            error, place = [value - low, high - value], np.arange(len(values))
            with parts.one_panel(1.25 + 0.3 * len(values)) as (figure, panel):
                if name in guess:
                    panel.axvline(guess[name], color=RED, linestyle="--", linewidth=1.2, label="constant guess")
                panel.errorbar(value, place, xerr=error, fmt="o", color=BLUE, capsize=3, label="model")
                name_axis(panel, list(values), label)
                panel.xaxis.set_major_locator(MaxNLocator(5))
            words = f"intervals-{name.replace('_', '-')}", f"{title} of the models", f"{told}."
            found.append(parts.picture(figure, *words, f"{title}, {better} is better."))
    return found


def _paired(best: str, gains: Mapping[str, Mapping[str, Estimate]]) -> Section:
    """Differences to the best, on the same bags."""
    names = [name for name in _DIFFERENCES if all(name in gain for gain in gains.values())]
    rows = [[label, *(parts.interval(gain[name], 3, signed=True) for name in names)] for label, gain in gains.items()]
    told = (
        f"Each model less {best}, on the same bags, whose luck they share: an interval that holds 0 leaves open which "
        "is better. Intervals are for one comparison each; among many, some miss by chance."
    )
    head = ["model", *(_DIFFERENCES[name] for name in names)]
    return Section("paired", "Differences", [told, Table(f"Less {best}", head, rows)])
