"""What drives a model, as pages show it: contributions, what bags lose without a column, partial dependence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bagwise.explanation import BagDependenceDisplay, BagImportanceDisplay, Dependence, Explanation, Importances
from bagwise.formation import Told
from bagwise.pages import parts
from bagwise.pages.page import Part, Picture, Pictures, Table
from bagwise.pages.stored import Stored
from bagwise.plotting import BLUE, name_axis
from bagwise.tables.explaining import drivers
from bagwise.tables.predictions import Predictions
from bagwise.utils.text import decimals_of

_BARS, _LINES = 15, 200  # columns drawn, and lines of a folded table
_WORST = "A column whose interval holds 0 may not matter, or another column says the same."


def driver_parts(stored: Stored, said: Predictions | None, told: Told | None) -> list[Part]:
    """Which columns drive a model: by bags that it was not fitted to, else as far as its folder tells."""
    if said is None or told is None:
        return parts.driver_parts(stored.about.sensitivity)
    found = drivers(stored.model, said, told)
    pictures = [_contributions(found.explanation)]
    text = f"Contributions of columns add up to the {found.explanation.scale} of each row."
    if found.importances is not None:
        pictures.append(_importances(found.importances))
        text += f" {_WORST}"
    if stored.model.unused:
        text += f" No prediction depends on {', '.join(stored.model.unused)}."
    shown = [_dependence(one, number) for number, one in enumerate(found.dependences)]
    return [text, Pictures(pictures), Pictures(shown)]


def _contributions(found: Explanation) -> Picture:
    sizes = found.importances
    names = list(sizes)[:_BARS]
    title = f"What columns add to the {found.scale}"
    first = ", ".join(f"{name} {sizes[name]:.3g}" for name in names[:5])
    rows = [[name, f"{value:.4g}"] for name, value in list(sizes.items())[:_LINES]]
    more = f" The first {len(names)} of {len(sizes)} columns." if len(names) < len(sizes) else ""
    caption = f"{title}: the mean size over {len(found.contributions):,} rows.{more}"
    with parts.one_panel(0.9 + 0.26 * len(names)) as (figure, panel):
        panel.barh(np.arange(len(names)), [sizes[name] for name in names], color=BLUE, height=0.62)
        name_axis(panel, names, f"mean size of what is added to the {found.scale}")
    table = Table(caption, ["column", "mean size"], rows, "lr")
    return parts.picture(figure, "contributions", title, f"Mean size of contributions: {first}.", caption, table)


def _importances(found: Importances) -> Picture:
    lost = [one.lost for one in found.columns]
    places = decimals_of(*(one.value for one in lost), *(one.standard_error for one in lost))
    title = "What bags lose without a column"
    clear = [one.column for one in found.columns if one.clear]
    told = f"Clearly above 0: {', '.join(clear[:_BARS])}." if clear else "No column is clearly above 0."
    rows = [[one.column, parts.interval(one.lost, places)] for one in found.columns[:_LINES]]
    caption = (
        f"{title}: {found.measure} lost when its values are permuted among rows, with {found.level:.0%} intervals, "
        f"from {found.n_bags:,} bags ({found.n_rows:,} rows), without labels."
    )
    with parts.one_panel(0.9 + 0.26 * min(len(lost), _BARS)) as (figure, panel):
        BagImportanceDisplay(found).plot(panel)
    return parts.picture(figure, "importances", title, told, caption, Table(caption, ["column", "lost"], rows, "lr"))


def _dependence(found: Dependence, number: int) -> Picture:
    title = f"Mean prediction by {found.column}"
    lines: Sequence[Sequence[float]] = found.predictions.reshape(len(found.values), -1).tolist()
    named = [f"{one:.4g}" if isinstance(one, float) else str(one) for one in found.values.tolist()]
    rows = [[name, *(f"{one:.4g}" for one in line)] for name, line in zip(named, lines, strict=True)]
    head = [found.column, *(["mean prediction"] if len(lines[0]) == 1 else map(str, range(len(lines[0]))))]
    ends = f"{named[0]}: {lines[0][0]:.3g}; {named[-1]}: {lines[-1][0]:.3g}"
    caption = f"{title}: what it would be if all rows had that value, and all other columns stayed."
    with parts.one_panel(2.6 if found.values.dtype.kind == "f" else 0.9 + 0.26 * len(named)) as (figure, panel):
        BagDependenceDisplay(found).plot(panel)
    table = Table(caption, head, rows, "l" + "r" * len(lines[0]))
    return parts.picture(figure, f"dependence-{number}", title, f"At {ends}.", caption, table)
