"""Fits that survive being stopped: their state on disk, in a form that is read without running code.

A folder of checkpoints holds `run.json`, what was decided before the fit began, and `step-00001200/`, … with
`state.safetensors` (weights, optimizer, means of a network; trees) and `state.json` (how far it has come, and the
checksum of the other file). Each appears whole or not at all; the last two are kept, and the last one that is sound is
gone on from.
"""

import hashlib
import json
import os
import re
import shutil
import uuid
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from bagwise.distributed.processes import short
from bagwise.utils.files import remove_leftovers, replacing
from bagwise.utils.parameters import Parameter, ParameterError

_RUN, _STATE, _PROGRESS = "run.json", "state.safetensors", "state.json"
_NAME = re.compile(r"step-(\d{8,})")
_BEGUN = re.compile(r"\.new-[0-9a-f]{32}|\.run-[0-9a-f]{32}\.json")  # by a process that was killed
_KEPT = 2


@dataclass(frozen=True)
class Checkpoints:
    """A folder of checkpoints of one fit.

    Parameters
    ----------
    folder : Path
        What is in it, if it is there, must be checkpoints of the same fit.
    every : int, default 200
        Steps of a network, or trees, from one checkpoint to the next; the last step has one, too.
    """

    folder: Path
    every: int = 200

    def decided(self, task: dict[str, Any]) -> dict[str, Any] | None:
        """What was decided when training this task began, None where it did not yet.

        task: everything that the result depends on, as plain data, by the names of parameters.
        """
        path = self.folder / _RUN
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            before, settings, sound = found["task"], found["settings"], found["sha256"] == _digest(found)
            differs = [name for name, value in json.loads(json.dumps(task)).items() if before.get(name) != value]
        except (AttributeError, ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            raise ParameterError(
                "checkpoints",
                f"lie in {self.folder}, whose {_RUN} is damaged, or was written by something else: name another folder,"
                " or remove that file to begin anew.",
            )
        if not differs:
            return dict(settings)
        if not self._stored():
            return None  # nothing was learned there yet that would be lost
        name = differs[0]
        raise ParameterError(
            "checkpoints",
            f"in {self.folder} are those of another training (",
            Parameter(name),
            f" was {short(before.get(name))}, now it is {short(task[name])}): name another folder, or remove this one.",
        )

    def decide(self, task: dict[str, Any], settings: dict[str, Any]) -> None:
        """Keep what was decided."""
        run: dict[str, Any] = {"task": task, "settings": settings}
        run["sha256"] = _digest(run)
        with replacing(self.folder / _RUN) as (temporary,):
            temporary.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")

    def check_place(self) -> None:
        """Raise where no checkpoint could be written, or something else lies: before there is something to lose."""
        remove_leftovers(self.folder)
        others = sorted(path.name for path in self._inside() if not self._is_ours(path))
        if others:
            raise ParameterError(
                "checkpoints", f"lie in {self.folder}, which holds {others[0]!r}, no checkpoint: name another folder."
            )
        trial, is_new = self.folder / f".new-{uuid.uuid4().hex}", not self.folder.exists()
        try:
            trial.mkdir(parents=True)
            trial.rmdir()
            if is_new:
                self.folder.rmdir()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise OSError(f"no checkpoints can be written to {self.folder} ({reason}): name another folder.") from error

    def remove(self) -> None:
        """Remove what was written here, and the folder if nothing else is in it."""
        for path in sorted(self._inside(), key=lambda path: path.name == _RUN):  # last what tells whose the others are
            if self._is_ours(path):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        with suppress(OSError):  # it holds something that came while training went on
            self.folder.rmdir()

    def _inside(self) -> list[Path]:
        return list(self.folder.iterdir()) if self.folder.is_dir() else []

    def _is_ours(self, path: Path) -> bool:
        """Whether something in the folder is of the kind that is written there: by its name and what it holds."""
        if path.is_symlink():
            return False
        if not path.is_dir():
            return path.name == _RUN or _BEGUN.fullmatch(path.name) is not None
        named = _BEGUN.fullmatch(path.name) or (_NAME.fullmatch(path.name) and (self.folder / _RUN).is_file())
        return bool(named) and {one.name for one in path.iterdir()} <= {_STATE, _PROGRESS}

    def save(self, step: int, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Write the state after so many steps.

        Parameters
        ----------
        step : int
            How many are done.
        tensors : dict
            What changes from step to step, by name.
        facts : dict
            How far the fit has come, as plain data for JSON.
        """
        data = safetensors.torch.save(tensors)
        progress = {**facts, "sha256": hashlib.sha256(data).hexdigest()}
        final, new = self.folder / f"step-{step:08d}", self.folder / f".new-{uuid.uuid4().hex}"
        new.mkdir(parents=True)
        try:
            for name, content in ((_STATE, data), (_PROGRESS, json.dumps(progress).encode())):
                with (new / name).open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            if final.exists() and self._is_ours(final):
                shutil.rmtree(final, ignore_errors=True)  # a damaged one of an earlier run
            os.rename(new, final)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        begun = [
            path for path in self._inside() if _BEGUN.fullmatch(path.name) and path.is_dir() and self._is_ours(path)
        ]
        for old in [*self._stored()[_KEPT:], *begun]:
            shutil.rmtree(old, ignore_errors=True)

    def last(self) -> bytes:
        """The last sound checkpoint as bytes for `unpacked`; none at all where there is no such thing."""
        stored = self._stored()
        for folder, before in zip(stored, [*stored, None][1:], strict=True):
            try:
                progress, data = (folder / _PROGRESS).read_bytes(), (folder / _STATE).read_bytes()
                if json.loads(progress)["sha256"] == hashlib.sha256(data).hexdigest():
                    return len(progress).to_bytes(8, "big") + progress + data
            except (OSError, ValueError, KeyError, TypeError):
                pass
            then = "beginning anew" if before is None else "going on from the checkpoint before it"
            warnings.warn(f"{folder} is damaged: {then}.", stacklevel=2)
        return b""

    def _stored(self) -> list[Path]:
        """The checkpoints, last first."""
        found = [path for path in self._inside() if _NAME.fullmatch(path.name) and self._is_ours(path)]
        return sorted(found, key=lambda path: int(path.name[5:]), reverse=True)


def unpacked(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a checkpoint, from the bytes of `Checkpoints.last`, of which there are some."""
    length = int.from_bytes(data[:8], "big")
    return safetensors.torch.load(data[8 + length :]), json.loads(data[8 : 8 + length])


def _digest(run: dict[str, Any]) -> str:
    """A checksum of what was decided."""
    parts = [run["task"], run["settings"]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
