"""The command line: arguments in, calls out."""

import signal
import sys
from contextlib import suppress
from typing import Annotated, NoReturn

import typer
from typer import Option

import bagwise
from bagwise.cli import (
    aggregates,
    distributed,
    experiments,
    explaining,
    exporting,
    formats,
    planning,
    scoring,
    serving,
    tables,
)
from bagwise.cli.common import Commands, one_sentence_errors, show_stopped
from bagwise.cli.options import with_tables
from bagwise.utils.files import remove_leftovers, remove_own
from bagwise.utils.signals import Stopped, exit_code, stopped_by_signals

app = typer.Typer(
    cls=Commands,
    help="Learn about individuals when labels are known only for groups.\n\nStart with: bagwise demo",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bagwise {bagwise.__version__}")
        raise typer.Exit


Version = Annotated[bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version.")]


@app.callback()
def main(version: Version = False) -> None:
    """Options that need no command."""


_on_tables = (
    formats.import_,
    tables.diagnose,
    tables.fit,
    tables.evaluate,
    explaining.explain,
    scoring.predict,
    serving.serve,
    tables.inspect,
    exporting.export,
    tables.page,
)
_PANELS = {
    None: (experiments.demo,),
    "Two tables in, a scored table out": _on_tables,
    "Tables of counts by features in, no events": (aggregates.fit_aggregates,),
    "Before publishing": (planning.plan, tables.bag, aggregates.aggregate),
    "Many rows, by several processes": (distributed.gather, distributed.train),
    "The paper, and comparisons": (experiments.reproduce, experiments.reproduction, experiments.bench),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        _name = _command.__name__.rstrip("_").replace("_", "-")
        app.command(_name, rich_help_panel=_panel)(one_sentence_errors(with_tables(_command)))


def run() -> NoReturn:
    """The program `bagwise`: however it ends, nothing of it is left in temporary folders."""
    code: int | str | None = 0
    with stopped_by_signals() as heard:
        try:
            remove_leftovers()
            app(prog_name="bagwise")
        except SystemExit as end:
            code = end.code
        except KeyboardInterrupt as stop:
            code = show_stopped(stop)
        finally:
            with suppress(KeyboardInterrupt):  # the end has come anyway
                remove_own()
        if code == exit_code(KeyboardInterrupt()) and heard and heard[-1] != signal.SIGINT:
            code = show_stopped(Stopped(heard[-1]))  # before a command began, Typer takes all of them for Ctrl-C
    sys.exit(code)
