"""The command that scores rows of a table, by a model alone or by it and reports, and tells rates of groups."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import bagwise
from bagwise.cli import options
from bagwise.cli.common import Misuse, check_free, say, show_progress, show_result, to_stdout
from bagwise.cli.tables import ModelFolder, load_model

MissingColumns = StrEnum("MissingColumns", {"error": "error", "as_missing": "as-missing"})


def predict(
    folder: ModelFolder,
    table: Annotated[str, Argument(help=f"Rows to score. {options.SOURCE}")],
    reported: options.Reported,
    out: Annotated[
        str,
        Option(help="File to write, .parquet or .csv; a table, as file.duckdb::scores; - for CSV on standard output."),
    ] = "-",
    keep: Annotated[str | None, Option(help="Columns to hand on, as a,b; all if not given.")] = None,
    missing_columns: Annotated[
        MissingColumns,
        Option(help="Columns that the model uses and the table lacks: an error, or missing in all rows."),
    ] = MissingColumns.error,
    by: Annotated[
        str | None,
        Option(help="With --reports: rates, or mean values, by these columns, as a,b, with intervals and bounds."),
    ] = None,
    related: Annotated[
        float | None,
        Option(min=0, max=1, help="Correlation of bags' effects with shares of groups that --by allows for; 0.5."),
    ] = None,
    intervals: Annotated[
        bool,
        Option(
            "--intervals",
            help="Without --reports: how sure predictions are, prediction_low to _high; or of each class.",
        ),
    ] = False,
    level: Annotated[
        float | None,
        Option(min=0.5, max=0.999, help="Level of the intervals of --by, or --intervals; 0.95 if not given."),
    ] = None,
    formation: options.BagFormation = options.Formation.auto,
    memory: options.Memory = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Score the rows of a table; rows stream through, however many there are.

    The summary tells of columns that are missing, of another type, or have values that training did not have.
    With --reports, rows of bags that report something get the probability given that, too; values add up to sums. With
    --by, rates or mean values of groups are printed, and scores written only where --out is given.
    """
    from bagwise.utils.records import as_data

    groups = options.parse_names(by)
    if intervals and (groups is not None or reported["reports"] is not None):
        raise Misuse("--intervals are of the model alone: leave out --reports and --by, whose rates have their own.")
    given_too = {"related": related is not None, "level": level is not None and not intervals}
    given_too |= {"formation": formation is not options.Formation.auto}
    if groups is None and (told := [name for name, one in given_too.items() if one]):
        raise Misuse(f"--{told[0]} says something about rates of groups: pass --by, too.")
    if groups is not None and reported["reports"] is None:
        raise Misuse("--by asks for rates given reports: pass --reports, too.")
    if groups is not None and out == "-":
        with show_progress() as progress, options.table_source(table) as source:
            progress(0, None, "scoring rows")
            rates = _rates(
                load_model(folder), source, groups, reported, memory, related, level, formation, missing_columns
            )
        show_result(as_json, rates, str(rates))
        return
    if out.startswith("::"):
        raise Misuse(f"--out {out} names a table of an engine, and commands have none: name file.duckdb{out}.")
    if out != "-":
        check_free(Path(out), force=force)  # of a table that is there, what writes it tells
    elif as_json:
        raise Misuse("--json and scores on standard output exclude each other: pass --out.")
    with show_progress() as progress, options.table_source(table) as source:
        fitted = load_model(folder)
        target: Any = sys.stdout.buffer if out == "-" else out
        kept, own = options.parse_names(keep), bagwise.tables.connect(memory=memory, ordered=True)
        given: dict[str, Any] = {**reported, "keep": kept, "connection": own, "progress": progress}
        given["force"] = force
        given["intervals"] = (level or 0.95) if intervals else None
        with to_stdout() if out == "-" else nullcontext():
            found = bagwise.tables.write_scores(fitted, source, target, missing_columns=missing_columns.value, **given)
        rates = None
        if groups is not None:
            rates = _rates(fitted, source, groups, reported, memory, related, level, formation, missing_columns)
    if out != "-":
        lines = [] if rates is None else [str(rates), ""]
        facts = as_data(found) if rates is None else {**as_data(found), "by": as_data(rates)}
        show_result(as_json, {**facts, "file": out}, *lines, str(found), f"Written: {out}")
    elif found.bags or found.columns.changed:
        say(str(found))


def _rates(
    fitted: bagwise.tables.TableModel,
    source: str,
    by: list[str],
    reported: options.Reported,
    memory: str | None,
    related: float | None,
    level: float | None,
    formation: options.Formation,
    missing_columns: MissingColumns,
) -> Any:
    """Rates of groups, as the options of `predict` ask for them."""
    own = bagwise.tables.connect(memory=memory, ordered=True)
    asked: dict[str, Any] = {"by": by, "formation": formation.value, "connection": own}
    asked |= {} if related is None else {"related": related}
    asked |= {} if level is None else {"level": level}
    return bagwise.tables.group_rates(fitted, source, missing_columns=missing_columns.value, **asked, **reported)
