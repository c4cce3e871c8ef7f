"""Configs of experiments: frozen dataclasses, changed by TOML files, known by their hash."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from bagwise.utils.parameters import Constraint, several, whole

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Config = TypeVar("Config", bound=DataclassInstance)

# How an experiment is run, not what it computes.
_WITHOUT_EFFECT = {"n_jobs"}
_IN_WORDS = {int: "whole number", float: "number", str: "text"}

BAG_SIZES = several(whole(1), "one or more bag sizes of at least 1")


def names_of(known: Collection[str]) -> Constraint:
    """Names out of those that are known."""
    return Constraint(f"names out of {', '.join(known)}", lambda given: set(given) <= set(known))


def load(base: Config, path: str | Path) -> Config:
    """The config `base` with the values that a TOML file gives in place of its own; unknown keys are an error."""
    known = asdict(base)
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
    return replace(base, **values)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, also inside of tuples; a whole number may stand for any number."""
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(one, get_args(kind)[0]) for one in value)
    return type(value) is kind or (kind is float and type(value) is int)


def _in_words(kind: Any, needed: bool) -> str:
    if get_origin(kind) is tuple:
        return f"a list of {'one or more ' if needed else ''}{_IN_WORDS[get_args(kind)[0]]}s"
    return "true or false" if kind is bool else f"a {_IN_WORDS[kind]}"


def as_json(config: DataclassInstance) -> str:
    """Everything in the config that affects the result."""
    return json.dumps({key: value for key, value in asdict(config).items() if key not in _WITHOUT_EFFECT})


def fingerprint(config: DataclassInstance) -> str:
    """Hash of everything in the config that affects the result."""
    kind = getattr(config, "kind", type(config).__name__)
    return hashlib.sha256(f"{kind} {as_json(config)}".encode()).hexdigest()[:12]


def provenance(config: DataclassInstance, *libraries: str) -> dict[str, str]:
    """Columns every table of results carries: the config, its hash and the versions of the libraries."""
    return {"config": as_json(config), "config_hash": fingerprint(config), **versions(*libraries)}


def versions(*libraries: str) -> dict[str, str]:
    """Versions of bagwise, NumPy, SciPy and further libraries, empty for those that are not there, by column."""
    return {f"{name}_version": _version(name) for name in ("bagwise", "numpy", "scipy", *libraries)}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
