"""Files on disk: whole or not at all, however the program ends; and folders for what must not outlive it.

Temporary folders hold copies of users' tables, labels among them. They go when their process ends, by an error or a
signal that Python hears of, too; where it is killed, the next process of the same user removes them: each is locked by
the process that made it as long as that one lives.
"""

import os
import re
import shutil
import socket
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bagwise.utils.signals import uninterrupted

try:
    import fcntl
except ImportError:  # Windows has no such locks: what a killed process left stays there
    fcntl = None  # type: ignore[assignment]

_TEMPORARY, _LOCK = re.compile(r"bagwise-[a-z0-9_]{8}"), "in-use"
_own: dict[Path, int] = {}  # temporary folders that are still there, and the process that made them


@contextmanager
def replacing(*paths: str | os.PathLike[str]) -> Iterator[list[Path]]:
    """Temporary files beside `paths` that take their places if the block succeeds and vanish if not."""
    places = [Path(path) for path in paths]
    aside = [path.with_name(f".{path.stem}-{uuid.uuid4().hex}{path.suffix}") for path in places]
    try:
        for path in places:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        with uninterrupted():  # a signal finds all of them replaced, or none
            for new, path in zip(aside, places, strict=True):
                os.replace(new, path)
    finally:
        for new in aside:
            new.unlink(missing_ok=True)


@contextmanager
def new_folder(place: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder beside `place` that takes its place if the block succeeds and vanishes if not.

    replace: a folder that is there goes, unless the block fails; without it, `place` must be free.
    """
    new, old = (place.with_name(f".{place.name}-{uuid.uuid4().hex}.{what}") for what in ("new", "old"))
    new.mkdir(parents=True)
    try:
        yield new
        if replace and place.exists():
            os.rename(place, old)
        os.rename(new, place)
    finally:
        if old.exists() and not place.exists():  # an error or a signal came between the two
            os.rename(old, place)
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)


class TemporaryFolder:
    """A folder that is gone when this process is.

    within: where, by default the system's place for such; may raise an `OSError`.

    >>> with TemporaryFolder() as folder:
    ...     _ = (folder / "labels.csv").write_text("1")
    >>> folder.exists()
    False
    """

    def __init__(self, within: str | os.PathLike[str] | None = None) -> None:
        base = Path(tempfile.gettempdir() if within is None else within).absolute()
        remove_leftovers(base)
        with uninterrupted():
            unlocked = Path(tempfile.mkdtemp(prefix=".bagwise-", dir=base))  # a name that no other process looks for
            lock = (unlocked / _LOCK).open("w")
            lock.write("\n".join(_machine()))
            lock.flush()
            _is_free(lock)
            self.path = base / unlocked.name.removeprefix(".")
            os.rename(unlocked, self.path)
            _own[self.path] = os.getpid()
            self._remove = weakref.finalize(self, _remove, self.path, lock)

    def cleanup(self) -> None:
        """Remove it now."""
        self._remove()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def remove_own() -> None:
    """Remove the temporary folders of this process, which is about to end."""
    with uninterrupted():
        for folder in list(_own):
            _remove(folder)


def remove_leftovers(base: str | os.PathLike[str] | None = None) -> None:
    """Remove the temporary folders of processes that were killed; base: where, by default the system's place."""
    if fcntl is None:
        return
    try:
        entries = list(os.scandir(tempfile.gettempdir() if base is None else base))
    except OSError:  # somebody else's to complain of
        return
    for entry in entries:
        with suppress(OSError):  # another process was faster, or it is another user's
            if not (_TEMPORARY.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)):
                continue
            if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            with (Path(entry.path) / _LOCK).open("r+") as lock:
                if set(lock.read().split("\n")) & set(_machine()) and _is_free(lock):
                    _remove_all(Path(entry.path))


def _is_free(lock: IO[str]) -> bool:
    """Lock a file for as long as it is open, unless another process did, or nobody can: not every disk knows locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _machine() -> tuple[str, ...]:
    """Names of this machine: its own, and that of its last start, which containers share.

    On disks that several machines share, each may know the locks of its own processes only.
    """
    try:
        return socket.gethostname(), Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return (socket.gethostname(),)


def _remove(folder: Path, lock: IO[str] | None = None) -> None:
    if _own.get(folder) == os.getpid():  # not in a copy that was forked
        with uninterrupted():
            _remove_all(folder)
            del _own[folder]
    if lock is not None:
        lock.close()


def _remove_all(folder: Path) -> None:
    """The lock goes last: what is left if this is cut short is found again."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name != _LOCK:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
