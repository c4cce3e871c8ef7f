"""What all commands share: the app, errors as one sentence, progress, printing."""

from __future__ import annotations

import functools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

Seed = Annotated[int, typer.Option(min=0, help="Seed of every random draw.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


def one_sentence_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Say what went wrong in one sentence on stderr; exit with 1, or 130 after Ctrl-C. `debug` lets errors through.

    Warnings are sentences on stderr, too.
    """

    @functools.wraps(command)
    def run(*, debug: bool, **options: Any) -> None:
        try:
            with warnings.catch_warnings():
                if not debug:
                    warnings.showwarning = _show_warning
                command(debug=debug, **options)
        except KeyboardInterrupt:
            typer.echo("Stopped; no file was left half-written.", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader of our output has had enough
            sys.stderr.close()
            raise typer.Exit(1) from None
        except Exception as error:
            if debug:
                raise
            typer.echo(f"Error: {sentence(error)}", err=True)
            raise typer.Exit(1) from None

    return run


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    typer.echo(f"Warning: {' '.join(str(message).split())}", err=True)


def sentence(error: Exception) -> str:
    """An error in one sentence."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}."
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


def check_free(path: Path, *, force: bool) -> None:
    """Raise where something is in the way of an output."""
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already: choose another place, or pass --force to replace it.")
