"""What all commands share: the app, errors as one sentence, progress, printing."""

from __future__ import annotations

import functools
import inspect
import json
import re
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.models import OptionInfo

from bagwise.utils.signals import Stopped

Seed = Annotated[int, typer.Option(min=0, help="Seed of every random draw.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
EvenIfNotRandom = Annotated[
    bool, typer.Option("--even-if-not-random", help="Show numbers all the same where bags are not random: biased ones.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


_PAUSE, _LONGEST = 5.0, 12  # seconds between lines of progress at least; as many pauses between equal ones


class Misuse(typer.BadParameter):
    """A command that was used wrongly, whatever the data: exit code 2."""


def _stop_behind(error: BaseException) -> KeyboardInterrupt | None:
    """The signal that an error is due to: libraries that hear of one in their own code make other errors of it."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__cause__ or seen.__context__
    return seen


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
        except KeyboardInterrupt as stop:
            raise typer.Exit(told_of(stop)) from None
        except BrokenPipeError:  # the reader of our output has had enough
            sys.stderr.close()
            raise typer.Exit(1) from None
        except Exception as error:
            if (cause := _stop_behind(error)) is not None:
                raise typer.Exit(told_of(cause)) from None
            if debug:
                raise
            typer.echo(f"Error: {_in_options(sentence(error), command)}", err=True)
            raise typer.Exit(1) from None

    return run


def told_of(stop: KeyboardInterrupt) -> int:
    """The exit code of a command that was stopped, which is told."""
    with suppress(OSError):  # the terminal may be gone
        typer.echo("Stopped; no file was left half-written.", err=True)
    return 128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)


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
    """Progress on stderr: a bar on a terminal, a line now and then elsewhere.

    What is handed over is to be called with steps done, steps in all and what comes now.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        with _lines() as progress:
            yield progress
        return
    columns = (
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def progress(done: int, total: int | None, text: str = "") -> None:
            bar.update(task, completed=done, total=total, description=text or f"{done} of {total}")

        yield progress


@contextmanager
def _lines() -> Iterator[Callable[..., None]]:
    """What is going on, in a line every few seconds, for logs."""
    now, over, start = ["starting"], threading.Event(), time.monotonic()

    def progress(done: int, total: int | None, text: str = "") -> None:
        now[0] = text or f"{done} of {total}"

    def tell() -> None:
        said, pauses = "", 0
        while not over.wait(_PAUSE):
            pauses += 1
            if now[0] != said or pauses >= _LONGEST:
                seconds, said, pauses = int(time.monotonic() - start), now[0], 0
                typer.echo(f"{seconds // 60}:{seconds % 60:02d} {said}", err=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield progress
    finally:
        over.set()
        teller.join()


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
