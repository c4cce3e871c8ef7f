"""The folder of a saved model: written whole or not at all, checked before anything in it is used."""

import hashlib
import json
import math
import os
import re
import stat
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import bagwise
from bagwise.saving.kinds import require, short
from bagwise.utils.files import new_folder, remove_leftovers

FORMAT = 4
_CHANGED = "{} was changed or damaged after it was saved (its checksum differs)"
_MODEL = "model.json"
_FILE = re.compile(r"arrays\.safetensors|trees-(0|[1-9][0-9]{0,5})\.txt")
_LARGEST = 2**28  # bytes of model.json: numbers live in the other files
_LISTED = 2**21  # values of model.json, of which each takes up to a hundred bytes of memory
_DENSEST, _SMALL = 64, 2**24  # times that a disk may have pressed a file together; bytes that do not matter
_DEEPEST, _MOST = 16, 2**20  # of facts about a model: lists and dicts in each other, letters and values
_LIBRARIES = ("numpy", "scikit-learn", "lightgbm", "torch", "safetensors")
# Links are not followed and pipes not waited for; Windows has no such options, but one without which files are text.
_OPEN = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


# -- writing ------------------------------------------------------------------------------------------------------


def check_free(folder: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Raise where `save` would, since something is in the way: before a long training, not after it.

    Parameters
    ----------
    folder, force
        As in `save`.

    Returns
    -------
    Path
        Where `save` would write, links followed.
    """
    place = Path(os.path.realpath(folder))
    if not os.path.lexists(place):
        remove_leftovers(place.parent)  # who was killed while it took the place of another gives that back
    if not os.path.lexists(place):
        return place
    if not force:
        raise FileExistsError(f"{folder} exists already: choose another folder, or pass force=True to replace a model.")
    try:
        expected = {_MODEL, *_listed(_parse(_read(place, _MODEL)))}
    except (OSError, ValueError):
        why = "exists already and is no saved model: only a saved model is replaced; choose another folder"
        raise FileExistsError(f"{folder} {why}.") from None
    if others := sorted(one.name for one in os.scandir(place) if one.name not in expected or one.is_dir()):
        raise FileExistsError(f"{folder} holds {others[0]!r}, which is no part of the model: move it away first.")
    return place


def write(folder: Path, document: dict[str, Any], files: dict[str, bytes], *, force: bool) -> None:
    """Write the model beside its place, then move it there."""
    versions = {"bagwise": bagwise.__version__, "python": ".".join(map(str, sys.version_info[:3]))}
    for name in _LIBRARIES:  # those in use: for people to read, not for `load`
        if name.replace("scikit-learn", "sklearn") in sys.modules:
            with suppress(PackageNotFoundError):
                versions[name] = version(name)
    document = {"format": FORMAT, **document, "versions": versions}
    document["files"] = {name: {"bytes": len(data), "sha256": _digest(data)} for name, data in files.items()}
    document["sha256"] = _digest(_canonical(document))
    text = json.dumps(document, indent=1, allow_nan=False).encode()
    _check_listed(text)
    if len(text) > _LARGEST:
        raise ValueError(f"the model holds {len(text)} bytes of text, more than the {_LARGEST} that can be saved.")
    with new_folder(folder, replace=force) as new:
        for name, data in {**files, _MODEL: text}.items():
            (new / name).write_bytes(data)


# -- reading ------------------------------------------------------------------------------------------------------


def read(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The document and the files of a model, checked: format, names, sizes, checksums."""
    if not folder.exists():
        remove_leftovers(folder.absolute().parent)
    if not folder.exists():
        raise FileNotFoundError(f"there is no saved model at {folder}.")
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder: a saved model is a folder with {_MODEL} in it.")
    text = _read(folder, _MODEL)
    document = _parse(text)
    require(document.pop("sha256", None) == _digest(_canonical(document)), _CHANGED.format(_MODEL))
    files = {_MODEL: text}
    for name, entry in _listed(document).items():
        sized = isinstance(entry, dict) and type(entry.get("bytes")) is int
        require(sized, f"{_MODEL} does not say how large {name} is")
        files[name] = _read(folder, name, entry["bytes"])
        require(entry.get("sha256") == _digest(files[name]), _CHANGED.format(name))
    document["about"] = facts(document.get("about"))
    return document, files


def _read(folder: Path, name: str, expected: int | None = None) -> bytes:
    """The bytes of a file that is a real one (no link, no pipe, no device) and as large as it should be."""
    path = folder / name
    try:
        _require_file(name, path.lstat().st_mode)
        with open(os.open(path, _OPEN), "rb") as file:
            status = os.fstat(file.fileno())  # looked at again, since another may have taken its place
            _require_file(name, status.st_mode)
            require(expected is not None or status.st_size <= _LARGEST, f"{name} is larger than any model's")
            if expected is not None and status.st_size != expected:
                raise ValueError(f"{name} has {status.st_size} bytes instead of {expected}: it was cut off or changed")
            there = getattr(status, "st_blocks", status.st_size) * 512
            if there * _DENSEST < status.st_size - _SMALL:
                raise ValueError(f"{name} is made of holes: of its {status.st_size} bytes, {there} are there")
            return file.read(status.st_size)
    except FileNotFoundError:
        raise ValueError(f"{name} is missing") from None
    except OSError as error:
        raise type(error)(f"{path} cannot be read ({error.strerror}).") from None


def _require_file(name: str, mode: int) -> None:
    require(not stat.S_ISLNK(mode), f"{name} is a link: put the file itself in its place")
    require(stat.S_ISREG(mode), f"{name} is no file")


def _parse(data: bytes) -> dict[str, Any]:
    """model.json as a dict of a format that this version reads."""
    _check_listed(data)
    try:
        document = json.loads(data.decode(), parse_constant=_finite, parse_float=_finite, object_pairs_hook=_unique)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, numbers too long, keys twice, nested without end
        raise ValueError(f"{_MODEL} is not readable as JSON: it was cut off or damaged") from None
    if not (isinstance(document, dict) and "format" in document and "kind" in document):
        raise ValueError(f"{_MODEL} is not that of a bagwise model")
    if type(found := document["format"]) is not int or found != FORMAT:
        way = "load it with the version that saved it, or fit it again"
        raise ValueError(f"it has format {short(found)} and this version of bagwise reads format {FORMAT}: {way}")
    return document


def _check_listed(text: bytes) -> None:
    """Raise where there are more values than models have: in memory they are many times as large."""
    values = sum(text.count(mark) for mark in (b",", b"[", b"{"))
    require(values <= _LISTED, f"{_MODEL} lists more than {_LISTED:,} values: numbers belong into arrays")


def _listed(document: dict[str, Any]) -> dict[str, Any]:
    """The other files of the model by name; names that lead anywhere else are refused."""
    files = document.get("files")
    if not isinstance(files, dict):
        raise ValueError(f"{_MODEL} lists no files")
    if odd := [name for name in files if not _FILE.fullmatch(name)]:
        raise ValueError(f"{_MODEL} names the file {short(odd[0])}, which is no part of a saved model")
    return files


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no number of JSON, or too large")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(items := dict(pairs)) != len(pairs):
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


# -- facts --------------------------------------------------------------------------------------------------------


def facts(about: Any) -> dict[str, Any]:
    """A copy of what a model tells about itself, of JSON's own values only; a ValueError names the key of what is none.

    >>> facts({"columns": ["age", "device"], "brier": np.float64(0.25)})
    {'columns': ['age', 'device'], 'brier': 0.25}
    >>> facts({"fit": {"seconds": float("inf")}})
    Traceback (most recent call last):
    ValueError: about['fit']['seconds'] is inf: give finite numbers, or None.
    """
    if about is None:
        return {}
    if not isinstance(about, dict):
        raise ValueError(f"about must be a dict of facts, got a {type(about).__name__}.")
    held = 0  # counted, so that a value that contains itself, or another many times, comes to an end

    def text(value: str, where: str) -> str:
        nonlocal held
        held += len(value)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where} holds letters that cannot be written to a file.") from None
        return value

    def copy(value: Any, where: str, depth: int) -> Any:
        """The value at the place `where`, which is `depth` lists and dicts deep."""
        nonlocal held
        value = value.item() if isinstance(value, np.generic) else value
        held += 1
        copied = text(value, where) if type(value) is str else value
        if held > _MOST:
            raise ValueError(f"about holds more than {_MOST} letters and values (at {where}): keep what matters.")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{where} is {value}: give finite numbers, or None.")
        if type(value) is int and not -(2**64) < value < 2**64:
            raise ValueError(f"{where} is a number of more than 64 bits: give it as a string.")
        if value is None or type(value) in (bool, int, float, str):
            return copied
        if depth > _DEEPEST:
            raise ValueError(f"{where} is nested too deeply: {_DEEPEST} lists and dicts in each other are the most.")
        if isinstance(value, list):
            return [copy(item, _at(where, place), depth + 1) for place, item in enumerate(value)]
        if not isinstance(value, dict):
            kinds = "numbers, strings, True, False, None, lists and dicts"
            raise ValueError(f"{where} is a {type(value).__name__}: give {kinds} only.")
        if odd := [key for key in value if type(key) is not str]:
            raise ValueError(f"{where} has the key {short(odd[0])}: give strings as keys.")
        return {text(key, _at(where, key)): copy(item, _at(where, key), depth + 1) for key, item in value.items()}

    found: dict[str, Any] = copy(about, "about", 1)
    return found


def _at(where: str, key: Any) -> str:
    """The place of an item, of which the beginning is enough where it is deep."""
    place = f"{where}[{short(key)}]"
    return place if len(place) <= 200 else place[:199] + "…"
