"""The command that tells why a model says what it says."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import bagwise
from bagwise.cli import options
from bagwise.cli.common import Misuse, check_free, show_progress, show_result
from bagwise.cli.tables import ModelFolder, load_model

_SHOWN = 20  # columns


def explain(
    folder: ModelFolder,
    joined: options.Joined,
    row: Annotated[int | None, Option(min=1, help="Number of a row, from 1, whose score is explained.")] = None,
    out: Annotated[
        Path | None, Option(dir_okay=False, help="File to write contributions of all rows to, .parquet or .csv.")
    ] = None,
    keep: Annotated[str | None, Option(help="With --out: columns to hand on, as a,b; all if not given.")] = None,
    formation: options.BagFormation = options.Formation.auto,
    level: Annotated[float, Option(min=0.5, max=0.999, help="Level of the intervals.")] = 0.95,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Tell what columns add to scores, and, with reports, what bags lose without each of them.

    Contributions of columns add up to the score of a row exactly. With reports, columns are permuted among the rows of
    bags that the model was not fitted to, and it is told by how much it then does worse, without one label.
    """
    from bagwise.pages.stored import Stored
    from bagwise.tables.bag_table import BagTable
    from bagwise.tables.explaining import EXPLAINED, permutation_importance, write_contributions
    from bagwise.tables.held_out import last_bags

    if out is not None:
        check_free(out, force=force)
    elif keep is not None:
        raise Misuse("--keep belongs to --out: pass that, too.")
    fitted, found = load_model(folder), None
    with show_progress() as progress, joined(progress, like=fitted, rows_alone=True) as data:
        with_reports = isinstance(data, BagTable)
        if not with_reports and formation is not options.Formation.auto:
            raise Misuse("--formation says something about bags: pass reports, too.")
        table = data.events if with_reports else data
        progress(1, 3, "adding up contributions")
        place = 0 if row is None else row
        few = table.head(max(EXPLAINED, place))
        explained = fitted.explain(few, missing_columns=None)
        if place > len(explained.contributions):
            raise Misuse(f"--row must be at most {len(explained.contributions)}, as there are no more rows.")
        written, kept = None, options.parse_names(keep)
        if out is not None:
            written = write_contributions(fitted, table, out, keep=kept, force=force)
        if with_reports:
            progress(2, 3, "permuting columns")
            stored = Stored.of(folder)
            unseen = stored.unseen(data)
            if unseen:
                data = last_bags(data, unseen, latest=stored.latest(data))
            else:
                way = "pass tables of other bags"
                said = f"the model was fitted to all bags of these tables, which flatter it: {way}."
                warnings.warn(said, stacklevel=1)
            found = permutation_importance(fitted, data, formation=formation.value, level=level)
    lines, facts = _told(explained, row)
    if found is not None:
        lines += ["", str(found), f"Formation of the bags: {found.formation}."]
        facts["importances"] = found
    if out is not None:
        lines.append(f"Written: {out}")
        facts |= {"file": str(out), "rows": written}
    show_result(as_json, facts, *lines)


def _told(found: bagwise.explanation.Explanation, row: int | None) -> tuple[list[str], dict[str, Any]]:
    """Contributions in words, and as data."""
    import numpy as np

    facts: dict[str, Any] = {"scale": found.scale, "base": np.asarray(found.base).tolist()}
    several = np.ndim(found.base) > 0
    if row is not None and several:
        raise Misuse("--row explains one score: models of several classes are explained in Python.")
    if row is None:
        rows, told = len(found.contributions), found.importances
        head = f"What columns add to the {found.scale}, in the mean size over {rows:,} rows:"
        facts |= {"rows_explained": rows, "contributions": told}
        figures = {name: f"{value:.4f}" for name, value in told.items()}
    else:
        told, score = found.of_row(row - 1), float(found.scores[row - 1])
        prediction = float(found.predictions[row - 1])
        scored = f"{found.scale} {score:.4f}"
        scored += "" if prediction == score else f" (prediction {prediction:.4f})"
        head = f"Row {row}: {scored}, from {found.base:.4f}:"
        facts |= {"row": row, "score": score, "prediction": prediction, "contributions": told}
        figures = {name: f"{value:+.4f}" for name, value in told.items()}
    width = max((len(name) for name in figures), default=0)
    lines = [f"  {name:<{width}}  {figure}" for name, figure in list(figures.items())[:_SHOWN]]
    left = len(figures) - _SHOWN
    return [head, *lines, *([f"  and {left} more"] if left > 0 else [])], facts
