"""The command that writes a model for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import bagwise
from bagwise.cli import options
from bagwise.cli.common import check_free, show_progress, show_result
from bagwise.cli.tables import ModelFolder

Format = StrEnum("Format", "onnx sql lightgbm torch")
_FORMATS = "onnx: one graph, preprocessing included; sql: a SELECT; lightgbm: one booster; torch: an exported program."


def export(
    folder: ModelFolder,
    to: Annotated[Format, Option(help=_FORMATS)],
    out: Annotated[Path, Option(dir_okay=False, help="File to write.")],
    table: Annotated[str | None, Option(help="Of sql: what stands after FROM; events if not given.")] = None,
    dialect: Annotated[
        str | None, Option(help="Of sql: duckdb, spark, postgres, bigquery, snowflake, …; duckdb if not given.")
    ] = None,
    keep: Annotated[
        str | None, Option(help="Of sql: columns to hand on, as a,b; all that the model was trained with if not given.")
    ] = None,
    max_leaves: Annotated[int | None, Option(min=1, help="Of sql: most leaves of trees; 20000 if not given.")] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Write a model for other programs, whose scores are those of bagwise predict.

    What a format has no words for is told in a sentence, as boosted trees that no single booster says.
    """
    check_free(out, force=force)
    given: dict[str, Any] = {"table": table, "dialect": dialect, "max_leaves": max_leaves}
    given["keep"] = None if keep is None else options.parse_names(keep)
    told = {name: value for name, value in given.items() if value is not None}
    with show_progress() as progress:
        progress(0, None, f"writing {to.value}")
        fitted = bagwise.saving.load(folder)
        bagwise.export.write(fitted, out, to=to.value, force=force, **told)
    columns = bagwise.export.names_of_predictions(fitted)
    facts = {"to": to.value, "file": str(out), "predictions": columns}
    show_result(as_json, facts, f"Its scores are in {', '.join(columns)}.", f"Written: {out}")
