"""The command that writes a page to look at."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from bagwise.cli.common import Misuse, check_free, one_sentence_errors, show_progress, show_result
from bagwise.cli.options import EvenIfNotRandom, Force, Joined, Json, with_tables

_NOT_SHOWN = {"out", "force", "as_json", "debug"}  # they say nothing about what is on the page


@one_sentence_errors
@with_tables(required=False)
def page(
    context: typer.Context,
    joined: Joined | None,
    model: Annotated[
        list[Path] | None,
        typer.Option(metavar="<dir>", help="Folder that bagwise fit wrote; several, to compare them."),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder that bagwise reproduce wrote; stands alone.")
    ] = None,
    even_if_not_random: EvenIfNotRandom = False,
    out: Annotated[Path, typer.Option(dir_okay=False, help="HTML file to write.")] = Path("page.html"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write one HTML file to look at and to send: a diagnosis, a model, a comparison, or a reproduction run.

    Tables alone are diagnosed. With --model, the model is judged by the bags of the tables that it was not fitted to;
    without tables, the page shows what was stored with the model.
    """
    check_free(out, force=force)
    folders = model or []
    if results is not None and (folders or joined is not None):
        raise Misuse("--results stands alone: leave out tables and --model, or write another page for them.")
    if results is None and not folders and joined is None:
        raise Misuse("there is nothing to make a page of: name events and reports, --model, or --results.")
    command = _command(context)
    tables: Joined = joined or (lambda _: nullcontext())
    with show_progress() as progress, tables(progress) as data:
        from bagwise import pages

        progress(1, 2, "looking at the bags")
        if results is not None:
            made = pages.reproduction_page(results, command=command)
        elif not folders:
            made = pages.diagnosis_page(data, command=command)
        elif len(folders) == 1:
            made = pages.model_page(folders[0], data, command=command, even_if_not_random=even_if_not_random)
        else:
            made = pages.comparison_page(folders, data, command=command, even_if_not_random=even_if_not_random)
        pages.write(made, out, force=force)
    facts = {
        "title": made.title,
        "standing": made.standing,
        "verdict": made.headline,
        "remarks": list(made.remarks),
        "file": str(out),
        "bytes": out.stat().st_size,
    }
    show_result(as_json, facts, made.headline, *(f"  {remark}" for remark in made.remarks), f"Written: {out}")


def _command(context: typer.Context) -> str:
    """The command as it was given, to be given again; but where to, which is not what the page shows."""
    words = ["bagwise", "page"]
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in _NOT_SHOWN or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        for one in value if isinstance(value, (list, tuple)) else [value]:
            option = [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
            words += option if one is True else [*option, str(one.value if isinstance(one, Enum) else one)]
    return shlex.join(words)
