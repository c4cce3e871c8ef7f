"""Configs of experiments: frozen dataclasses, changed by TOML files, known by their hash."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

Config = TypeVar("Config")

# How an experiment is run, not what it computes.
_WITHOUT_EFFECT = {"n_jobs"}


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
    if wrong := [key for key, value in values.items() if not _alike(value, known[key])]:
        raise ValueError(f"{path} gives {wrong[0]} = {values[wrong[0]]!r}: it must be like {known[wrong[0]]!r}.")
    return replace(base, **values)  # type: ignore[type-var]


def _alike(value: Any, example: Any) -> bool:
    """Whether the types agree, also inside of tuples; a whole number may stand for any number."""
    if isinstance(example, tuple):
        return isinstance(value, tuple) and len(value) > 0 and all(_alike(one, example[0]) for one in value)
    return type(value) is type(example) or (isinstance(example, float) and type(value) is int)


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
