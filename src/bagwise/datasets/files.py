"""Where the files of data sets come from.

If the environment variable `BAGWISE_DATA` names a folder, files are read from it and nothing is downloaded. Otherwise
they come from the official source and are kept in a cache: the folder `BAGWISE_CACHE`, or the system's own for caches.
Both hold a file at the same place, such as adult/adult.data. Every file with an official checksum is held to it: once
per process where it lies, and before a download enters the cache.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from bagwise.datasets.download import checksum_of, download, download_members
from bagwise.datasets.sources import FILES


def file(name: str) -> Path:
    """The file `name`, of the folder `BAGWISE_DATA` or of the cache; downloaded if need be, and checked."""
    folder = mirror()
    if folder is None:
        return _cached(name)
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(f"BAGWISE_DATA has no file {name}: put it there, or point BAGWISE_DATA elsewhere.")
    if name in FILES and not _sound(path, FILES[name].checksum):
        raise ValueError(
            f"{name} in BAGWISE_DATA is damaged or not the official file, which has {FILES[name].checksum}: replace it."
        )
    return path


def mirror() -> Path | None:
    """The folder that `BAGWISE_DATA` names, if it names one."""
    folder = os.environ.get("BAGWISE_DATA")
    return Path(folder).expanduser() if folder else None


def held(name: str) -> bool:
    """Whether the folder `BAGWISE_DATA` has a file `name`."""
    folder = mirror()
    return folder is not None and (folder / name).is_file()


def cache() -> Path:
    """The folder in which downloads are kept."""
    import pooch  # type: ignore[import-untyped]

    return Path(os.environ.get("BAGWISE_CACHE") or pooch.os_cache("bagwise")).expanduser()


def _cached(name: str) -> Path:
    official, folder = FILES[name], cache()
    path = folder / name
    if path.is_file() and _sound(path, official.checksum):
        return path
    try:
        if isinstance(official.source, str):
            download(official.source, path, official.checksum)
        else:
            # All its members come at once, since the archive is not kept.
            wanted = {key: other for key, other in FILES.items() if other.source == official.source}
            download_members(
                official.source,
                {other.member: (folder / key, other.checksum) for key, other in wanted.items()},
            )
    except (ConnectionError, ValueError) as error:
        advice = f"try again, or set BAGWISE_DATA to a folder that holds {name}."
        kind = FileNotFoundError if isinstance(error, ConnectionError) else ValueError
        raise kind(f"{error}: {advice}") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OSError(f"{folder} cannot take {name} ({reason}): point BAGWISE_CACHE at a folder with room.") from error
    return path


def _sound(path: Path, checksum: str) -> bool:
    """Whether the file has this checksum, which is computed anew only when the file has changed."""
    state = path.stat()
    return _checksum_of(path, checksum.partition(":")[0], state.st_size, state.st_mtime_ns) == checksum


@lru_cache(maxsize=256)
def _checksum_of(path: Path, kind: str, size: int, changed: int) -> str:
    return checksum_of(path, kind)
