"""Configs of experiments: frozen dataclasses, read from TOML, known by their hash."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

Config = TypeVar("Config")

# How an experiment is run, not what it computes.
_WITHOUT_EFFECT = {"n_jobs"}


def load(kind: type[Config], path: str | Path) -> Config:
    """A config of class `kind` from a TOML file; unknown keys are an error."""
    with open(path, "rb") as file:
        values = tomllib.load(file)
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(f"{path} has unknown keys {', '.join(unknown)}: the keys are {', '.join(known)}.")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def fingerprint(config: Any) -> str:
    """Hash of everything in the config that affects the result."""
    values = {key: value for key, value in asdict(config).items() if key not in _WITHOUT_EFFECT}
    text = json.dumps([type(config).__name__, values], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def provenance(config: Any) -> dict[str, str]:
    """Columns every table of results carries: the config's hash and the versions of the libraries."""
    libraries = {f"{name}_version": version(name) for name in ("bagwise", "numpy", "scipy")}
    return {"config_hash": fingerprint(config), **libraries}
