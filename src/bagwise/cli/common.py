"""What all commands share: the app, errors as one sentence, progress, results and models in words."""

from __future__ import annotations

import functools
import inspect
import json
import shlex
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer import Option
from typer.core import TyperGroup
from typer.models import OptionInfo

from bagwise.utils.files import TemporaryFolder, check_regular, naming_place
from bagwise.utils.parameters import NamesParameters
from bagwise.utils.signals import STOPPED, exit_code, last_stop
from bagwise.utils.text import decimals_of, printable

if TYPE_CHECKING:
    from bagwise.evaluation import Evaluation, ValueEvaluation
    from bagwise.tables import Updated
    from bagwise.tables.metadata import About

Progress = Callable[..., None]
"""Called with steps done, steps in all and what comes now."""

_PAUSE, _LONGEST = 5.0, 6  # seconds between lines of progress at least; as many pauses between equal ones


class Misuse(typer.BadParameter):
    """A command that was used wrongly, whatever the data: exit code 2."""


_STDOUT = "standard output"
_FOR_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)  # of dependencies


def _stop_behind(error: BaseException) -> KeyboardInterrupt | None:
    """The signal that an error is due to: libraries that hear of one in their own code make other errors of it."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__cause__ or seen.__context__
    return seen or last_stop()


class Commands(TyperGroup):
    """Commands whose wrong use is answered as other errors are: one sentence on stderr."""

    def main(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> NoReturn:
        """Run the command that the arguments name; exit with 2 where they are wrong."""
        try:
            with to_stdout():  # help
                code = super().main(args, *others, **{**options, "standalone_mode": False})
        except OSError as error:
            if error.filename != _STDOUT:  # a command's own, with --debug
                raise
            say(f"Error: {error_message(error)}")
            sys.exit(1)
        except Exception as error:
            if not hasattr(error, "format_message"):  # Typer has a Click of its own, which it does not show
                raise
            context = getattr(error, "ctx", None)
            if context is not None and type(error).__name__ == "NoArgsIsHelpError":
                typer.echo(context.get_help())
            else:
                about = f" (see {context.command_path} --help)" if context is not None else ""
                say(f"Error: {_usage_message(error)}{about}.")
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)


def _usage_message(error: Any) -> str:
    """What was wrong about the use of a command, after the name of the option or argument it was about."""
    option, text = "", error.format_message()
    if isinstance(error, typer.BadParameter) and error.message:  # without a message, one is missing
        text = error.message.removeprefix("Value error, ")
        option = "" if error.param is None else f"{error.param.opts[0]}: "
    text = " ".join(text.split()).rstrip(".")
    return f"{option}{text[:1].lower()}{text[1:]}"


def one_sentence_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Say errors and warnings in one sentence on stderr, unless --debug is given; exit with 1, or 130 after Ctrl-C."""

    @functools.wraps(command)
    def run(*, debug: bool, **options: Any) -> None:
        try:
            with warnings.catch_warnings():
                if not debug:
                    warnings.showwarning = show_warning
                command(**options)
        except (Misuse, typer.Exit):
            raise
        except KeyboardInterrupt as stop:
            raise typer.Exit(show_stopped(stop)) from None
        except BrokenPipeError:  # the reader of our output has had enough
            sys.stderr.close()
            raise typer.Exit(1) from None
        except Exception as error:
            if (cause := _stop_behind(error)) is not None:
                raise typer.Exit(show_stopped(cause)) from None
            if debug:
                raise
            say(f"Error: {error_message(error, _option_names(command))}")
            raise typer.Exit(1) from None

    def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, _FOR_DEVELOPERS):
            return
        say(f"Warning: {error_message(message, _option_names(command))}")

    shown = Annotated[bool, Option("--debug", help="Show the traceback of an error.")]
    debug = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=shown)
    return with_parameters(run, [*inspect.signature(command, eval_str=True).parameters.values(), debug])


def with_parameters(command: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """A command whose options Typer reads from `parameters`."""
    named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    command.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in named}
    del command.__wrapped__  # type: ignore[attr-defined]
    return command


def show_stopped(stop: KeyboardInterrupt) -> int:
    """Say that a command was stopped; the exit code of it."""
    with suppress(OSError):  # the terminal may be gone
        say(STOPPED)
    return exit_code(stop)


def _option_names(command: Callable[..., None]) -> Callable[[str], str]:
    """What the parameters of a command are called on the command line; other names stay as they are."""
    options = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        for info in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(info, OptionInfo):
                given = [
                    str(one) for one in (info.default, *(info.param_decls or ()))
                ]  # Typer has the first as default
                usual = f"--{name.replace('_', '-')}"
                options[name] = next((one for one in given if one.startswith("--")), usual)
    return lambda name: options.get(name, name)


def error_message(error: Exception | str, name_of: Callable[[str], str] = str) -> str:
    """An error or a warning in one sentence.  name_of: what parameters are called there."""
    if isinstance(error, NamesParameters):
        return error.shown(name_of)
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f"{error.filename}: "
        return f"{place}{error.strerror.rstrip('.').lower()}."
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Progress on stderr: a bar on a terminal, a line now and then elsewhere."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        with _progress_lines() as progress:
            yield progress
        return
    times = (bars.TimeElapsedColumn(), bars.TextColumn("left"), bars.TimeRemainingColumn())
    columns = (bars.BarColumn(), *times, bars.TextColumn("{task.description}", markup=False))
    with bars.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def progress(done: int, total: int | None, text: str = "") -> None:
            said = printable(text, keep="") or f"{done} of {total}"
            bar.update(task, completed=done, total=total, description=said)

        yield progress


@contextmanager
def _progress_lines() -> Iterator[Progress]:
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
                say(f"{seconds // 60}:{seconds % 60:02d} {said}")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield progress
    finally:
        over.set()
        teller.join()


def typed() -> tuple[str, str]:
    """What to type for this program and its Python: their names where the shell finds these, else where they are."""
    python, script = Path(sys.executable), Path(sys.argv[0])
    shown = _typed("python", python)
    return (_typed("bagwise", script) if script.stem == "bagwise" else f"{shown} -m bagwise"), shown


def _typed(name: str, place: Path) -> str:
    found = shutil.which(name)
    if found is not None and Path(found).parent.absolute() == place.parent.absolute():
        return name
    here = Path.cwd()
    return shlex.quote(str(place.relative_to(here) if place.is_relative_to(here) else place))


def to_stdout() -> AbstractContextManager[None]:
    """Standard output is what errors of the disk in the block are about, unless they say another place."""
    return naming_place({Path("-"): _STDOUT})


def say(text: str) -> None:
    """A line on stderr, as a terminal may show it."""
    typer.echo(printable(text), err=True)


def show(*parts: Any) -> None:
    """Lines of text as they are, to be copied; tables as Rich draws them."""
    from rich.console import Console

    console = Console()
    with to_stdout():
        for part in parts:
            part = printable(part) if isinstance(part, str) else part
            console.print(part, soft_wrap=isinstance(part, str), markup=False, highlight=False)


def show_result(as_json: bool, facts: Any, *lines: Any) -> None:
    """The result of a command: JSON for machines, or text for people.  facts: plain data and dataclasses."""
    if as_json:
        from bagwise.utils.records import as_data

        with to_stdout():
            typer.echo(json.dumps(as_data(facts), indent=2, ensure_ascii=False, allow_nan=False, default=str))
    else:
        show(*lines)


def check_free(path: Path, *, force: bool | None = None) -> None:
    """Raise where an output cannot be written, before any work. force: replace what is there; None: no such option."""
    check_regular(path)
    if path.exists() and not force:
        way = "or remove it first" if force is None else "or pass --force to replace it"
        raise FileExistsError(f"{path} exists already: choose another place, {way}.")
    above = next(one for one in path.absolute().parents if one.exists())
    try:
        with TemporaryFolder(above):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OSError(f"{path} cannot be written ({reason}): choose another place.") from error


def describe_model(about: About) -> list[str]:
    """A model in words, line by line.  about: what is stored with it."""
    used = [f"{one.name} ({one.role})" for one in about.columns if one.role != "ignored"]
    ignored = [f"{one.name} ({one.note or 'asked for'})" for one in about.columns if one.role == "ignored"]
    lines = [f"Model: {about.model} ({about.fitted_by}).", str(about.summary), f"Columns: {', '.join(used)}."]
    lines += [f"Ignored: {', '.join(ignored)}."] if ignored else []
    lines += [f"{one.name}: {one.note}." for one in about.columns if one.role == "time"]
    told = [
        f"--keys {','.join(about.keys)}",
        *(f"--{name.replace('_', '-')} {one}" for name, one in about.reports.items()),
    ]
    told += [f"--ignore {','.join(about.ignored)}"] if about.ignored else []
    lines.append(f"Later commands take, unless told otherwise: {' '.join(told)}.")
    if about.formation is not None:
        lines.append(f"Formation of bags: {about.formation.name} ({about.formation.reason}).")
    if about.bag_gain is not None:
        beside = "Bags held out while fitting, beside the mean label of all rows"
        lines.append(about.bag_gain.doubt or f"{beside}: {about.bag_gain}.")
    if about.trials:
        lines += ["", *describe_trials(about)]
    if about.evaluation is not None or about.values is not None:
        lines += ["", *describe_held_out(about)]
    lines += ["", "Mean change of a prediction when a column is shuffled:"]
    places = 4 if about.target == "label" else decimals_of(*about.sensitivity.values())
    lines += [f"  {value:,.{places}f}  {name}" for name, value in about.sensitivity.items()]
    return [*lines, ""]


def update_facts(updated: Updated) -> dict[str, Any]:
    """What an update of a model came to, as plain data."""
    return {"update": updated.update, "drift": updated.drift, "novelties": updated.novelties}


def describe_held_out(about: About) -> list[str]:
    """What was measured on bags held out, line by line."""
    found = about.evaluation or about.values
    lines = [] if found is None else describe_evaluation(found, "held-out ")
    lines += [f"  Held out were the latest bags by {about.latest}."] if about.latest else []
    return [*lines, *(["  Measured before the last fit, which took these bags in."] if about.refitted else [])]


def describe_trials(about: About) -> list[str]:
    """What candidates scored on held-out bags, line by line."""
    likelihood = "log-likelihood of a bag over that of the mean label of all rows, ± standard error; higher is better"
    measure = likelihood if about.choice == "likelihood" else "label-free risk, lower is better"
    width = max(20, *(len(one.candidate) for one in about.trials)) + 2
    lines = [f"Tried on held-out bags ({measure}):" if about.tried else "No candidate was tried on held-out bags:"]
    for one in about.trials:
        risk = "" if one.risk is None else f"{one.risk:.4f} [{one.low:.4f}, {one.high:.4f}]"
        scored = risk if about.choice == "risk" or one.gain is None else one.gain.figures
        lines.append(f"  {one.candidate:<{width}}{'; '.join(part for part in (scored, one.note) if part)}")
    return lines


def describe_evaluation(found: Evaluation | ValueEvaluation, which: str = "") -> list[str]:
    """An evaluation in words, line by line: the formation, what is known, and the numbers that it allows."""
    from bagwise.evaluation import ValueEvaluation

    lines = [f"Formation of the bags measured on: {found.formation.name} ({found.formation.reason})."]
    lines.append(f"Measured on {found.n_bags:,} {which}bags ({found.n_rows:,} rows), {found.level:.0%} intervals:")
    if isinstance(found, ValueEvaluation):
        doubt = [] if found.doubt is None else [found.doubt]
        return [*lines, *(f"  {line}" for line in (*found.lines, *doubt, found.known))]
    numbers = {"accuracy": found.accuracy, "Brier": found.brier, "log loss": found.log_loss, "AUC": found.auc}
    lines += [f"  {name:<10}{one}" for name, one in numbers.items() if one is not None]
    if found.withheld:
        bags, low, high = found.bags, found.bags.least_accuracy.low, found.bags.most_accuracy.high
        lines += [
            f"  {'log-likelihood':<22}{bags.gain}, of a bag over that of the mean label",
            f"  {'square error of bags':<22}{bags.error}; of the mean label {bags.constant_error}",
            f"  {'spread of residuals':<22}{bags.fit.ratio:.3g} times what a right model leaves (p {bags.fit.p_text})",
            f"  {'accuracy of rows':<22}between {low:.3f} and {high:.3f} whatever is true",
            f"  {'':<22}{bags.implied['accuracy']:.3f} if the model is right",
        ]
    lines += [f"  rate of {one.value}: {one.rate} (predicted {one.prediction:.4f})" for one in found.groups]
    return [*lines, *([f"  {found.doubt}"] if found.doubt is not None else []), f"  {found.known}"]
