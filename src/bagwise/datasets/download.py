"""Downloads that end as whole, checked files or leave nothing behind, by pooch.

A download that fails raises ConnectionError, one whose checksum is wrong ValueError; the messages have no full stop,
since the caller adds what to do.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bagwise.datasets.progress import download_bar
from bagwise.datasets.sources import Archive
from bagwise.utils.files import replacing

_CHUNK = 2**18  # bytes; pooch's own 1,024 are slow for large files, since each is counted and flushed
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)


def download(url: str, path: Path, checksum: str | None) -> None:
    """Put what is published at `url` to `path`, if it has the checksum."""
    import pooch  # type: ignore[import-untyped]
    from requests.exceptions import HTTPError, RequestException

    with _quiet(pooch.get_logger()), download_bar(url.rpartition("/")[2]) as bar:
        downloader = pooch.HTTPDownloader(progressbar=bar or False, chunk_size=_CHUNK)
        try:
            pooch.retrieve(url, checksum, fname=path.name, path=path.parent, downloader=downloader)
        except RequestException as error:
            answer = error.response if isinstance(error, HTTPError) else None
            reason = type(error).__name__ if answer is None else f"HTTP status {answer.status_code}"
            raise ConnectionError(f"{url} could not be downloaded ({reason})") from error
        except ValueError as error:
            raise _damaged(url, f"it does not have {checksum}") from error


def download_members(archive: Archive, wanted: Mapping[str, tuple[Path, str]]) -> None:
    """Put members of an archive to their places, all of them or none; the archive itself is not kept.

    wanted: place and checksum of each member.
    """
    places, checksums = zip(*wanted.values(), strict=True)
    with replacing(*places) as temporary, tempfile.TemporaryDirectory(dir=places[0].parent) as folder:
        packed = Path(folder) / archive.url.rpartition("/")[2]
        download(archive.url, packed, archive.checksum)
        targets = dict(zip(wanted, temporary, strict=True))
        try:
            for name, stream in _members(packed):
                if name in targets:
                    with targets[name].open("wb") as out:
                        shutil.copyfileobj(stream, out, _CHUNK)
        except _BROKEN as error:
            raise _damaged(archive.url, "it cannot be unpacked") from error
        for (name, target), checksum in zip(targets.items(), checksums, strict=True):
            if not target.is_file() or checksum_of(target, checksum.partition(":")[0]) != checksum:
                raise _damaged(archive.url, f"{name} in it does not have {checksum}")


def checksum_of(path: Path, kind: str) -> str:
    """The file's checksum as `kind:…`; kind is md5 or sha256."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.new(kind, usedforsecurity=False))
    return f"{kind}:{digest.hexdigest()}"


def _members(packed: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and contents of the files in an archive, in its order: a tar file is read once, from front to back."""
    if zipfile.is_zipfile(packed):
        with zipfile.ZipFile(packed) as archive:
            for name in archive.namelist():
                with archive.open(name) as stream:
                    yield name, stream
        return
    with tarfile.open(packed) as tape:
        for member in tape:
            content = tape.extractfile(member)
            if content is not None:
                yield member.name, content


def _damaged(url: str, reason: str) -> ValueError:
    return ValueError(f"what came from {url} is damaged or not the official file ({reason}) and was thrown away")


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Pooch reports every download on standard error; a library keeps silent."""
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
