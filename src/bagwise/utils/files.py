"""Files on disk: whole or not at all, however the program ends; and folders for what must not outlive it.

Temporary folders hold copies of users' tables, labels among them, and what is to take its place once it is whole. They
go when their process ends, by an error or a signal that Python hears of, too; where it is killed, the next process of
the same user removes them: each is locked by the process that made it as long as that one lives. One that lies beside
an output has a note in the system's temporary place that says where.

Several files, or a folder, take their places in three steps: what is there is moved aside, `new` is renamed `whole`,
and all of it moves in. Whoever finds a folder of a killed process fills the places that are empty: with what was there
before where the second step was not done, with what is new where it was. So nobody sees new files beside old ones.
"""

import errno
import os
import re
import shutil
import socket
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from bagwise.utils.signals import uninterrupted

try:
    import fcntl
except ImportError:  # Windows has no such locks: what a killed process left stays there
    fcntl = None  # type: ignore[assignment]

_TEMPORARY, _LOCK, _ELSEWHERE = re.compile(r"\.?bagwise-[a-z0-9_]{8}"), "in-use", "elsewhere"
_NEW, _WHOLE, _OLD = "new", "whole", "old"
FULL = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)}
"""Numbers of errors of disks that are full."""

_own: dict[Path, int] = {}  # temporary folders that are still there, and the process that made them


# -- places of outputs ------------------------------------------------------------------------------------------------


@contextmanager
def replacing(*paths: str | os.PathLike[str], force: bool = True) -> Iterator[list[Path]]:
    """Paths to write to, which take the places `paths` together if the block succeeds and vanish if not.

    force: what is there by then is replaced; without it, that is an error, and stays.
    """
    places = [Path(path).absolute() for path in paths]
    if taken := [path for path, place in zip(paths, places, strict=True) if not force and os.path.lexists(place)]:
        raise FileExistsError(f"{taken[0]} exists already: choose another place.")
    for place in places:
        check_regular(place)
    with ExitStack() as stack:
        asides = {
            folder: stack.enter_context(_beside(folder)) for folder in dict.fromkeys(one.parent for one in places)
        }
        new = [asides[place.parent] / _NEW / place.name for place in places]
        with naming_place(dict(zip(new, paths, strict=True))):
            yield new
            for aside in asides.values():
                _take_places(aside, force)


def check_regular(path: Path) -> None:
    """Raise where an output would take the place of a device or a pipe."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FileExistsError(f"{path} is a device or a pipe, no file: choose another place for the output.")


@contextmanager
def new_folder(place: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder beside `place` that takes its place if the block succeeds and vanishes if not.

    replace: a folder that is there goes, unless the block fails; without it, `place` must be free.
    """
    with replacing(place, force=replace) as (new,):
        new.mkdir()
        yield new


@contextmanager
def naming_place(places: dict[Path, str | os.PathLike[str]]) -> Iterator[None]:
    """Let errors of the disk name the place that was to be written, by the path that is written to meanwhile.

    Streams, and Arrow, do not say where a disk was full; that is then the first place.
    """
    try:
        yield
    except OSError as error:
        place = next((said for path, said in places.items() if str(error.filename).startswith(str(path))), None)
        if place is None and error.filename is None and error.errno in FULL:
            place = next(iter(places.values()))
        if place is None or error.errno is None:
            raise
        raise type(error)(error.errno, os.strerror(error.errno), os.fspath(place)) from error


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A temporary folder in a folder of outputs, which is made, and is not there in the end if the block fails."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            aside = TemporaryFolder(folder)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, os.fspath(folder)) from error
        with aside as path:
            (path / _NEW).mkdir()
            yield path
    except BaseException:
        for one in made:
            with suppress(OSError):  # somebody else has put something there
                one.rmdir()
        raise


def _take_places(aside: Path, force: bool) -> None:
    """Move what is in `new` to its places beside the folder: all of it, or nothing."""
    new, whole, old = aside / _NEW, aside / _WHOLE, aside / _OLD
    places = {name: aside.parent / name for name in sorted(os.listdir(new))}
    with _alone(aside.parent), uninterrupted():
        there = {name: place for name, place in places.items() if os.path.lexists(place)}
        for name, place in there.items():
            if not force:
                said = "was written by another process meanwhile: it stays as it is; choose another place."
                raise FileExistsError(f"{place} {said}")
            _check_kind(place, new / name)
        if len(places) == 1 and not (there and next(new.iterdir()).is_dir()):  # one step will do
            for name, place in places.items():
                os.replace(new / name, place)
            return
        old.mkdir()
        try:
            for name, place in there.items():
                os.rename(place, old / name)
            os.rename(new, whole)
            for name, place in places.items():
                os.rename(whole / name, place)
        finally:
            _fill_places(aside)


def _check_kind(place: Path, new: Path) -> None:
    """Raise where something of another kind is in the place: a folder is no file, and neither is a device."""
    kinds = [stat.S_IFMT(path.lstat().st_mode) for path in (place, new)]
    if kinds[0] not in (kinds[1], stat.S_IFLNK):
        wrong = (
            errno.EISDIR if kinds[0] == stat.S_IFDIR else errno.ENOTDIR if kinds[1] == stat.S_IFDIR else errno.EEXIST
        )
        raise OSError(wrong, os.strerror(wrong), os.fspath(place))


def _fill_places(aside: Path) -> None:
    """Finish what a process began: places that are empty get what was about to take them, or what was there before."""
    held = aside / (_WHOLE if (aside / _WHOLE).is_dir() else _OLD)
    for path in held.iterdir() if held.is_dir() else ():
        if not os.path.lexists(aside.parent / path.name):
            os.rename(path, aside.parent / path.name)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time moves files in a folder, where folders can be locked."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with locked(handle):
            yield
    finally:
        os.close(handle)


@contextmanager
def locked(file: IO[str] | int) -> Iterator[None]:
    """Wait until no other process has locked an open file, and lock it; nobody can where a disk knows no locks."""
    try:
        if fcntl is not None:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        if fcntl is not None:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)


# -- temporary folders ------------------------------------------------------------------------------------------------


class TemporaryFolder:
    """A folder that is gone when this process is.

    within: where, by default the system's place for such; may raise an `OSError`.

    >>> with TemporaryFolder() as folder:
    ...     _ = (folder / "labels.csv").write_text("1")
    >>> folder.exists()
    False
    """

    def __init__(self, within: str | os.PathLike[str] | None = None) -> None:
        usual = Path(tempfile.gettempdir()).absolute()
        base = usual if within is None else Path(within).absolute()
        remove_leftovers(base)
        with uninterrupted():
            unlocked = Path(tempfile.mkdtemp(prefix=".new-bagwise-", dir=base))  # a name that nobody looks for
            lock = (unlocked / _LOCK).open("w")
            lock.write("\n".join(_machine()))
            lock.flush()
            _is_free(lock)
            self.path = base / f".{unlocked.name.removeprefix('.new-')}"
            os.rename(unlocked, self.path)
            _own[self.path] = os.getpid()
            self._remove = weakref.finalize(self, _remove, self.path, lock)
            self._note = None if base == usual else _note(self.path)

    def cleanup(self) -> None:
        """Remove it now."""
        self._remove()
        if self._note is not None:
            self._note.cleanup()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _note(path: Path) -> TemporaryFolder | None:
    """Where a temporary folder lies, for whoever looks at the usual place alone."""
    try:
        note = TemporaryFolder()
        (note.path / _ELSEWHERE).write_text(str(path), encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    return note


def remove_own() -> None:
    """Remove the temporary folders of this process, which is about to end."""
    with uninterrupted():
        for folder in list(_own):
            _remove(folder)


def remove_leftovers(base: str | os.PathLike[str] | None = None) -> None:
    """Remove the temporary folders of processes that were killed, and finish moving what they were about to.

    base: where, by default the system's place, and where notes in it lead.
    """
    try:
        entries = list(os.scandir(tempfile.gettempdir() if base is None else base))
    except OSError:  # somebody else's to complain of
        return
    _remove_dead(Path(entry.path) for entry in entries if _TEMPORARY.fullmatch(entry.name))


def _remove_dead(folders: Iterable[Path]) -> None:
    """Remove those of the folders that are temporary ones of processes of this user and machine that do not live."""
    for folder in folders if fcntl is not None else ():
        with suppress(OSError):  # another process was faster, or it is another user's
            status = folder.lstat()
            if not (_TEMPORARY.fullmatch(folder.name) and stat.S_ISDIR(status.st_mode)):
                continue
            if status.st_uid != os.geteuid():
                continue
            with (folder / _LOCK).open("r+") as lock:
                if set(lock.read().split("\n")) & set(_machine()) and _is_free(lock):
                    if (folder / _ELSEWHERE).is_file():
                        place = (folder / _ELSEWHERE).read_text(encoding="utf-8", errors="surrogateescape")
                        _remove_dead([Path(place)])
                    with _alone(folder.parent):
                        _fill_places(folder)
                    _remove_all(folder)


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
