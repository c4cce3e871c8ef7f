"""What all commands share: the app, errors as one sentence, progress, printing."""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.models import OptionInfo

Seed = Annotated[int, typer.Option(min=0, help="Seed of every random draw.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


class Misuse(typer.BadParameter):
    """A command that was used wrongly, whatever the data: exit code 2."""


class Commands(TyperGroup):
    """Commands whose wrong use is answered as other errors are: one sentence on stderr."""

    def main(self, args: Any = None, *others: Any, **options: Any) -> Any:
        """Run the command that the arguments name; exit with 2 where they are wrong."""
        try:
            code = super().main(args, *others, **{**options, "standalone_mode": False})
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            text, context = " ".join(error.format_message().split()), getattr(error, "ctx", None)
            if context is not None and type(error).__name__ == "NoArgsIsHelpError":
                typer.echo(context.get_help())
            else:
                text = re.sub(r"^Invalid value(?: for ([^:]*))?: (?:Value error, )?(.)", _of_option, text).rstrip(".")
                about = f" (see {context.command_path} --help)" if context is not None else ""
                typer.echo(f"Error: {text[:1].lower()}{text[1:]}{about}.", err=True)
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)


def _of_option(found: re.Match[str]) -> str:
    named = re.findall(r"--[\w-]+|\w+", found[1] or "")
    return f"{named[0]}: {found[2].lower()}" if named else found[2]


def one_sentence_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Say what went wrong in one sentence on stderr; exit with 1, or 130 after Ctrl-C. `debug` lets errors through.

    Warnings are sentences on stderr, too.
    """

    @functools.wraps(command)
    def run(*, debug: bool, **options: Any) -> None:
        try:
            with warnings.catch_warnings():
                if not debug:
                    warnings.showwarning = functools.partial(_show_warning, command)
                command(debug=debug, **options)
        except (Misuse, typer.Exit):
            raise
        except KeyboardInterrupt:
            typer.echo("Stopped; no file was left half-written.", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader of our output has had enough
            sys.stderr.close()
            raise typer.Exit(1) from None
        except Exception as error:
            if debug:
                raise
            typer.echo(f"Error: {_in_options(sentence(error), command)}", err=True)
            raise typer.Exit(1) from None

    return run


def _show_warning(command: Callable[..., None], message: Any, *_: Any, **__: Any) -> None:
    typer.echo(f"Warning: {_in_options(' '.join(str(message).split()), command)}", err=True)


def _in_options(text: str, command: Callable[..., None]) -> str:
    """A message of the library, in which Python's parameters are the options of a command."""
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        told = getattr(parameter.annotation, "__metadata__", ())
        info = next((one for one in told if isinstance(one, OptionInfo)), None)
        if info is None:
            continue
        option = next(iter(info.param_decls or ()), f"--{name.replace('_', '-')}")
        text = re.sub(rf"\b{name}='?(\w+)'?", rf"{option} \1", text)  # size=8
        text = re.sub(rf"^{name}(?= (?:must|and|names|belongs|say))", option, text)
        text = re.sub(rf"\b(and|give) {name}(?= say|, too)", rf"\1 {option}", text)
        text = re.sub(rf"\({name}(?=\)| was )", f"({option}", text)
    return re.sub(r"\((\d+(?:, \d+)*),?\)(?=[.,)])", r"\1", text)


def sentence(error: Exception) -> str:
    """An error in one sentence."""
    if isinstance(error, OSError) and error.strerror:
        place = "standard output" if error.filename is None else error.filename
        return f"{place}: {error.strerror.lower()}."
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def show_progress() -> Iterator[Callable[..., None]]:
    """A progress bar on stderr, if that is a terminal; call it with steps done, steps in all and what comes now."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def progress(done: int, total: int | None, text: str = "") -> None:
            bar.update(task, completed=done, total=total, description=text or f"{done} of {total}")

        yield progress


def show(*parts: Any) -> None:
    """Lines of text as they are, to be copied; tables as Rich draws them."""
    from rich.console import Console

    console = Console()
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str), markup=False, highlight=False)


def answer(as_json: bool, facts: Any, *lines: Any) -> None:
    """The result of a command: JSON for machines, or text for people."""
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        show(*lines)


def check_free(path: Path, *, force: bool | None = None) -> None:
    """Raise where an output cannot be written, before any work. force: replace what is there; None: no such option."""
    if path.exists() and not force:
        way = "or remove it first" if force is None else "or pass --force to replace it"
        raise FileExistsError(f"{path} exists already: choose another place, {way}.")
    above = next(one for one in path.absolute().parents if one.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".bagwise-", dir=above):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OSError(f"{path} cannot be written ({reason}): choose another place.") from error
