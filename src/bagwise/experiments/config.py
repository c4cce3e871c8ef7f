"""Configs of experiments: frozen dataclasses, changed by TOML files, known by their hash."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Config = TypeVar("Config")

# How an experiment is run, not what it computes.
_WITHOUT_EFFECT = {"n_jobs"}
_IN_WORDS = {int: "whole number", float: "number", str: "text"}


def load(base: Config, path: str | Path) -> Config:
    """The config `base` with the values that a TOML file gives in place of its own; unknown keys are an error."""
    known = asdict(base)  # type: ignore[call-overload]
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from None
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    if unknown := sorted(set(values) - set(known)):
        raise ValueError(f"{path} has unknown keys {', '.join(unknown)}: the keys are {', '.join(known)}.")
    kinds = get_type_hints(type(base))
    for key, value in values.items():
        needed = getattr(type(base), key) != ()  # a list that is not empty by default
        if not _fits(value, kinds[key]) or (value == () and needed):
            given = json.dumps(value, default=str)
            raise ValueError(f"{path} gives {key} = {given}: it must be {_in_words(kinds[key], needed)}.")
    return replace(base, **values)  # type: ignore[type-var]


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, also inside of tuples; a whole number may stand for any number."""
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(one, get_args(kind)[0]) for one in value)
    return type(value) is kind or (kind is float and type(value) is int)


def _in_words(kind: Any, needed: bool) -> str:
    if get_origin(kind) is tuple:
        return f"a list of {'one or more ' if needed else ''}{_IN_WORDS[get_args(kind)[0]]}s"
    return "true or false" if kind is bool else f"a {_IN_WORDS[kind]}"


def as_json(config: Any) -> str:
    """Everything in the config that affects the result."""
    return json.dumps({key: value for key, value in asdict(config).items() if key not in _WITHOUT_EFFECT})


def fingerprint(config: Any) -> str:
    """Hash of everything in the config that affects the result."""
    return hashlib.sha256(f"{type(config).__name__} {as_json(config)}".encode()).hexdigest()[:12]


def provenance(config: Any) -> dict[str, str]:
    """Columns every table of results carries: the config, its hash and the versions of the libraries."""
    libraries = {f"{name}_version": version(name) for name in ("bagwise", "numpy", "scipy")}
    return {"config": as_json(config), "config_hash": fingerprint(config), **libraries}
