"""The command that writes a page to look at."""

from __future__ import annotations

import shlex
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli.common import Misuse, check_free, one_sentence_errors, show_progress, show_result
from bagwise.cli.options import Debug, EvenIfNotRandom, Force, Joined, Json, with_tables

if TYPE_CHECKING:
    from bagwise.pages import Page

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
    debug: Debug = False,
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
    with show_progress() as progress:
        from bagwise.pages import reproduction_page, write

        if results is not None:
            made = reproduction_page(results, command=command)
        elif joined is None:
            made = _page(folders, None, command, even_if_not_random)
        else:
            with joined(progress) as data:
                progress(1, 2, "looking at the bags")
                made = _page(folders, data, command, even_if_not_random)
        write(made, out, force=force)
    facts = {
        "title": made.title,
        "standing": made.standing,
        "verdict": made.headline,
        "remarks": list(made.remarks),
        "file": str(out),
        "bytes": out.stat().st_size,
    }
    show_result(as_json, facts, made.headline, *(f"  {remark}" for remark in made.remarks), f"Written: {out}")


def _page(folders: list[Path], data: Any, command: str, even_if_not_random: bool) -> Page:
    from bagwise.pages import comparison_page, diagnosis_page, model_page

    if not folders:
        return diagnosis_page(data, command=command)
    if len(folders) == 1:
        return model_page(folders[0], data, command=command, even_if_not_random=even_if_not_random)
    return comparison_page(folders, data, command=command, even_if_not_random=even_if_not_random)


def _command(context: typer.Context) -> str:
    """The command as it was given, to be given again; but where to, which is not what the page shows."""
    words = ["bagwise", "page"]
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in _NOT_SHOWN or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        if value is True:
            words.append(parameter.opts[0])
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            text = str(one.value if isinstance(one, Enum) else one)
            words += [text] if parameter.param_type_name == "argument" else [parameter.opts[0], text]
    return shlex.join(words)
