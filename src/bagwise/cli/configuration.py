"""Options of a command in a TOML file, settings of models, and both written down so that a run can be repeated."""

from __future__ import annotations

import json
import tomllib
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from bagwise.cli.common import Misuse

_NOT_KEPT = {"out", "force", "json", "debug", "config"}  # where to and how, not what
_SETTINGS = "set"


def _named(context: typer.Context) -> dict[str, str]:
    """Parameters of a command, by what they are called in a file: the option without dashes."""
    names = {}
    for parameter in context.command.params:
        given = [one.removeprefix("--") for one in parameter.opts if one.startswith("--")]
        names[given[0] if given else str(parameter.name)] = str(parameter.name)
    return names


def _read(context: typer.Context, path: Path | None) -> Path | None:
    """Take what a file says for the options that the command line does not."""
    if path is None:
        return None
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} is no TOML file: {error}.") from None
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {str(error.strerror).lower()}.") from None
    names, defaults = _named(context), {}
    for name, value in told.items():
        if name not in names or name in _NOT_KEPT:
            raise Misuse(f"{path} says {name!r}, which is no option for a file: remove it.")
        if name == _SETTINGS:
            if not isinstance(value, dict):
                raise Misuse(f"{path} must have settings in a table, [set], with one name = value a line.")
            value = [f"{setting}={_written(one)}" for setting, one in value.items()]
        elif isinstance(value, dict):
            raise Misuse(f"{path} has a table [{name}], where a value is expected.")
        defaults[names[name]] = value
    context.default_map = defaults
    return path


Config = Annotated[
    Path | None,
    Option(
        "--config",
        callback=_read,
        is_eager=True,
        dir_okay=False,
        help="TOML file of options, as bagwise inspect --toml prints it; the command line goes before it.",
    ),
]
Settings = Annotated[
    list[str] | None,
    Option(
        "--set", metavar="<name=value>", help="A parameter of the estimator, as learning_rate=0.1; may be repeated."
    ),
]


def as_toml(context: typer.Context) -> str:
    """What was given to a command, on the command line or in a file, as a file; without where its results go."""
    lines, settings = [], dict[str, Any]()
    for name, parameter in _named(context).items():
        source, value = context.get_parameter_source(parameter), context.params.get(parameter)
        if name in _NOT_KEPT or source is None or source.name not in ("COMMANDLINE", "DEFAULT_MAP"):
            continue
        if name == _SETTINGS:
            settings = parse_settings(value)
        elif value not in (None, [], ()):
            lines.append(f"{name} = {_written(value)}")
    if settings:
        lines += ["", f"[{_SETTINGS}]", *(f"{name} = {_written(value)}" for name, value in settings.items())]
    return "\n".join([*lines, ""]) if lines else ""


def parse_settings(given: list[str] | None) -> dict[str, Any]:
    """Parameters by name, from name=value; values are written as in TOML, words may go without quotes."""
    found = {}
    for one in given or []:
        name, equals, value = one.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise Misuse(f"--set {one}: write a parameter and its value, as learning_rate=0.1.")
        if name in found:
            raise Misuse(f"--set {name} is given twice: leave one out.")
        try:
            found[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name] = value.strip()
    return found


def _written(value: Any) -> str:
    """A value as TOML; texts are written alike in JSON."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, (bool, int)):
        return json.dumps(value)
    return repr(value) if isinstance(value, float) else json.dumps(str(value))
