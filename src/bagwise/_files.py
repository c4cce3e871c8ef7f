"""Files on disk: whole or not at all, however the program ends."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(*paths: str | os.PathLike[str]) -> Iterator[list[Path]]:
    """Temporary files beside `paths` that take their places if the block succeeds and vanish if not."""
    places = [Path(path) for path in paths]
    aside = [path.with_name(f".{path.stem}-{uuid.uuid4().hex}{path.suffix}") for path in places]
    try:
        for path in places:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        for new, path in zip(aside, places, strict=True):
            os.replace(new, path)
    finally:
        for new in aside:
            new.unlink(missing_ok=True)


@contextmanager
def new_folder(place: Path) -> Iterator[Path]:
    """A folder beside `place` that takes its place if the block succeeds and vanishes if not."""
    new = place.with_name(f".{place.name}-{uuid.uuid4().hex}")
    new.mkdir(parents=True)
    try:
        yield new
        os.rename(new, place)
    finally:
        shutil.rmtree(new, ignore_errors=True)
