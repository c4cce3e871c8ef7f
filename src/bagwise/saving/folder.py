"""The folder of a saved model: written whole or not at all, checked before anything in it is used."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bagwise.saving.about import facts
from bagwise.saving.kinds import short
from bagwise.utils.files import new_folder

FORMAT = 3
_MODEL = "model.json"
_FILE = re.compile(r"arrays\.safetensors|trees-(0|[1-9][0-9]{0,5})\.txt")
_LARGEST = 2**28  # bytes of model.json: numbers live in the other files
_LIBRARIES = ("numpy", "scikit-learn", "lightgbm", "torch", "safetensors")
# Links are not followed and pipes not waited for; Windows has no such options, but one without which files are text.
_OPEN = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


# -- writing ------------------------------------------------------------------------------------------------------


def check_target(folder: Path, *, force: bool) -> Path:
    """Where to write, links followed; raises where something is in the way that must stay."""
    place = Path(os.path.realpath(folder))
    if not os.path.lexists(place):
        return place
    if not force:
        raise FileExistsError(f"{folder} exists already: choose another folder, or pass force=True to replace a model.")
    try:
        document = _parse(_read(place, _MODEL))
        expected = {_MODEL, *_listed(document)}
    except (OSError, ValueError):
        raise FileExistsError(
            f"{folder} exists already and is no saved model: only a saved model is replaced; choose another folder."
        ) from None
    others = sorted(entry.name for entry in os.scandir(place) if entry.name not in expected or entry.is_dir())
    if others:
        raise FileExistsError(f"{folder} holds {others[0]!r}, which is no part of the model: move it away first.")
    return place


def write(folder: Path, document: dict[str, Any], files: dict[str, bytes], *, force: bool) -> None:
    """Write the model beside its place, then move it there."""
    document = {"format": FORMAT, **document, "versions": _versions()}
    document["files"] = {name: {"bytes": len(data), "sha256": _digest(data)} for name, data in files.items()}
    document["sha256"] = _digest(_canonical(document))
    text = json.dumps(document, indent=1, allow_nan=False).encode()
    if len(text) > _LARGEST:
        raise ValueError(f"the model holds {len(text)} bytes of text, more than the {_LARGEST} that can be saved.")
    with new_folder(folder, replace=force) as new:
        for name, data in {**files, _MODEL: text}.items():
            (new / name).write_bytes(data)


def _versions() -> dict[str, str]:
    """Of bagwise, Python and the libraries in use: for people to read, not for `load`."""
    import bagwise

    versions = {"bagwise": bagwise.__version__, "python": ".".join(map(str, sys.version_info[:3]))}
    for name in _LIBRARIES:
        if name.replace("scikit-learn", "sklearn") in sys.modules:
            try:
                versions[name] = version(name)
            except PackageNotFoundError:
                continue
    return versions


# -- reading ------------------------------------------------------------------------------------------------------


def read(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The document and the files of a model, checked: format, names, sizes, checksums."""
    if not folder.exists():
        raise FileNotFoundError(f"there is no saved model at {folder}.")
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder: a saved model is a folder with {_MODEL} in it.")
    text = _read(folder, _MODEL)
    document = _parse(text)
    expected = document.pop("sha256", None)
    if expected != _digest(_canonical(document)):
        raise ValueError(f"{_MODEL} was changed or damaged after it was saved (its checksum differs)")
    files = {_MODEL: text}
    for name, entry in _listed(document).items():
        if not (isinstance(entry, dict) and type(entry.get("bytes")) is int):
            raise ValueError(f"{_MODEL} does not say how large {name} is")
        files[name] = _read(folder, name, entry["bytes"])
        if entry.get("sha256") != _digest(files[name]):
            raise ValueError(f"{name} was changed or damaged after it was saved (its checksum differs)")
    document["about"] = facts(document.get("about"))
    return document, files


def _read(folder: Path, name: str, expected: int | None = None) -> bytes:
    """The bytes of a file that is a real one (no link, no pipe, no device) and as large as it should be.

    It is opened once and then looked at again, since another may have taken its place.
    """
    path = folder / name
    try:
        _require_file(name, path.lstat().st_mode)
        with open(os.open(path, _OPEN), "rb") as file:
            status = os.fstat(file.fileno())
            _require_file(name, status.st_mode)
            if expected is None and status.st_size > _LARGEST:
                raise ValueError(f"{name} is larger than any model's")
            if expected is not None and status.st_size != expected:
                raise ValueError(f"{name} has {status.st_size} bytes instead of {expected}: it was cut off or changed")
            return file.read(status.st_size)
    except FileNotFoundError:
        raise ValueError(f"{name} is missing") from None
    except OSError as error:
        raise type(error)(f"{path} cannot be read ({error.strerror}).") from None


def _require_file(name: str, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise ValueError(f"{name} is a link: put the file itself in its place")
    if not stat.S_ISREG(mode):
        raise ValueError(f"{name} is no file")


def _parse(data: bytes) -> dict[str, Any]:
    """model.json as a dict of a format that this version reads."""
    try:
        document = json.loads(
            data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique
        )
    except (ValueError, RecursionError):  # not JSON, not UTF-8, numbers too long, keys twice, nested without end
        raise ValueError(f"{_MODEL} is not readable as JSON: it was cut off or damaged") from None
    if not (isinstance(document, dict) and "format" in document and "kind" in document):
        raise ValueError(f"{_MODEL} is not that of a bagwise model")
    found = document["format"]
    if type(found) is not int or found != FORMAT:
        raise ValueError(
            f"it has format {short(found)} and this version of bagwise reads format {FORMAT}: load it with the version "
            "that saved it, or fit it again"
        )
    return document


def _listed(document: dict[str, Any]) -> dict[str, Any]:
    """The other files of the model by name; names that lead anywhere else are refused."""
    files = document.get("files")
    if not isinstance(files, dict):
        raise ValueError(f"{_MODEL} lists no files")
    for name in files:
        if not _FILE.fullmatch(name):
            raise ValueError(f"{_MODEL} names the file {short(name)}, which is no part of a saved model")
    return files


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items = dict(pairs)
    if len(items) != len(pairs):
        raise ValueError("a key is there twice")
    return items


def _canonical(document: dict[str, Any]) -> bytes:
    """The same text for the same content."""
    try:
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except RecursionError:
        raise ValueError(f"{_MODEL} is nested too deeply") from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
