"""Where the files of data sets come from: a folder of the user's, or a download that is checked and kept.

If the environment variable `BAGWISE_DATA` names a folder, files are read from it and nothing is downloaded. Otherwise
they come from the official source and are kept in a cache: the folder `BAGWISE_CACHE`, or the system's own for caches.
Both hold a file at the same place, such as adult/adult.data. Every file with an official checksum is held to it: once
per process where it lies, and before a download enters the cache. Downloads end as whole, checked files or leave
nothing behind.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from bagwise.utils.files import replacing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_CHUNK = 2**18  # bytes; pooch's own 1,024 are slow for large files, since each is counted and flushed
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)
_CONSOLE: ContextVar[Console | None] = ContextVar("bagwise_downloads", default=None)

# -- the files as their publishers give them out ------------------------------------------------------------------
# Checksums are those the publishers name, or where they name none, those of the files they give out. Nobody vouches for
# the archive around HIGGS.csv.gz, so that its member's checksum alone decides.


class Archive(NamedTuple):
    """checksum: None where those of its members have to do.  folder: the one inside that holds them."""

    url: str
    checksum: str | None
    folder: str = ""


class Official(NamedTuple):
    """checksum: `md5:…` or `sha256:…`.  source: the address of `{name}`, the file, or the archive that holds it."""

    checksum: str
    source: str | Archive


_ADULT = Archive(
    "https://archive.ics.uci.edu/static/public/2/adult.zip",
    "sha256:7537312dd56c2b98035880805ce99e68183a30ee468aa5329d6df0fbb3cc21bb",
)
_HIGGS = Archive("https://archive.ics.uci.edu/static/public/280/higgs.zip", None)
_CIFAR10 = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "md5:c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-batches-bin/",
)
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/{name}"  # its first home no longer gives it out

FILES: dict[str, Official] = {
    "adult/adult.data": Official("sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", _ADULT),
    "adult/adult.test": Official("sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", _ADULT),
    "higgs/HIGGS.csv.gz": Official("sha256:ea302c18164d4e3d916a1e2e83a9a8d07069fa6ebc7771e4c0540d54e593b698", _HIGGS),
    "mnist/train-images-idx3-ubyte.gz": Official("md5:f68b3c2dcbeaaa9fbdd348bbdeb94873", _MNIST),
    "mnist/train-labels-idx1-ubyte.gz": Official("md5:d53e105ee54ea40749a09fcbcd1e9432", _MNIST),
    "mnist/t10k-images-idx3-ubyte.gz": Official("md5:9fb629c4189551a2d022fa330f9573f3", _MNIST),
    "mnist/t10k-labels-idx1-ubyte.gz": Official("md5:ec29112dd5afa0611ce80d1b7f02629c", _MNIST),
    "cifar10/data_batch_1.bin": Official("md5:5dd7e06a14cb22eb9f671a540d1b7c25", _CIFAR10),
    "cifar10/data_batch_2.bin": Official("md5:5ea93a67294ea407fff1d09f752e9692", _CIFAR10),
    "cifar10/data_batch_3.bin": Official("md5:942cd6a4bcdd0dd3c604fbe906cb4421", _CIFAR10),
    "cifar10/data_batch_4.bin": Official("md5:ae636b3ba5c66a11e91e8cb52e771fcb", _CIFAR10),
    "cifar10/data_batch_5.bin": Official("md5:53f37980c15c3d472c316c40844f3f0d", _CIFAR10),
    "cifar10/test_batch.bin": Official("md5:803d5f7f4d78ea53de84dbe85f74fb6d", _CIFAR10),
}
"""Files by their place in the cache and in the folder `BAGWISE_DATA`."""


def file(name: str) -> Path:
    """The file `name`, of the folder `BAGWISE_DATA` or of the cache; downloaded if need be, and checked."""
    folder = mirror()
    if folder is None:
        return _cached(name)
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(f"BAGWISE_DATA has no file {name}: put it there, or point BAGWISE_DATA elsewhere.")
    if name in FILES and not _sound(path, FILES[name].checksum):
        has = FILES[name].checksum
        raise ValueError(f"{name} in BAGWISE_DATA is damaged or not the official file, which has {has}: replace it.")
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
            download(official.source.format(name=path.name), path, official.checksum)
        else:
            # All its members come at once, since the archive is not kept.
            wanted = {
                f"{official.source.folder}{Path(key).name}": (folder / key, other.checksum)
                for key, other in FILES.items()
                if other.source == official.source
            }
            download_members(official.source, wanted)
    except (ConnectionError, ValueError) as error:
        kind = FileNotFoundError if isinstance(error, ConnectionError) else ValueError
        raise kind(f"{error}: try again, or set BAGWISE_DATA to a folder that holds {name}.") from error
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
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.new(kind, usedforsecurity=False))
    return f"{kind}:{digest.hexdigest()}"


# -- downloads ----------------------------------------------------------------------------------------------------
# One that fails raises ConnectionError, one whose checksum is wrong ValueError; the messages have no full stop, since
# `file` adds what to do.


def download(url: str, path: Path, checksum: str | None) -> None:
    """Put what is published at `url` to `path`, if it has the checksum."""
    import pooch
    from requests.exceptions import HTTPError, RequestException

    logger = pooch.get_logger()
    with _download_bar(url.rpartition("/")[2]) as bar, ExitStack() as afterwards:
        afterwards.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.WARNING)  # pooch reports every download on standard error; a library keeps silent
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
            if not target.is_file() or not _sound(target, checksum):
                raise _damaged(archive.url, f"{name} in it does not have {checksum}")


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
def show_downloads(console: Console | None = None) -> Iterator[None]:
    """Inside this block downloads draw a progress bar; elsewhere they are silent.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to draw; standard error if not given. One that is no terminal gets no bar.

    Examples
    --------
    >>> from bagwise import datasets
    >>> with datasets.show_downloads():
    ...     split = datasets.digits()  # comes with scikit-learn: nothing to download, nothing to draw
    """
    from rich.console import Console

    token = _CONSOLE.set(Console(stderr=True) if console is None else console)
    try:
        yield
    finally:
        _CONSOLE.reset(token)


@contextmanager
def _download_bar(text: str) -> Iterator[DownloadBar | None]:
    """The bar of one download, None where nobody asked for it; however the download ends, the bar goes."""
    console = _CONSOLE.get()
    if console is None or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    text_column = TextColumn("{task.description}", markup=False)
    columns = text_column, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        yield DownloadBar(progress, text)


class DownloadBar:
    """One download in a Rich progress display, driven by pooch: it sets `total`, then updates, resets and closes."""

    total = 0
    """Bytes to come, 0 where the server does not say."""

    def __init__(self, progress: Progress, text: str) -> None:
        self._progress, self._task = progress, progress.add_task(text, total=None)

    def update(self, size: int) -> None:
        """Count `size` more bytes."""
        self._progress.update(self._task, advance=size, total=self.total or None)

    def reset(self) -> None:
        """Count from 0 again."""
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        """Nothing: the display closes when the download leaves `_download_bar`, which errors do too."""
