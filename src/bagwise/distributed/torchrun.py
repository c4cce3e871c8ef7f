"""Processes started by torchrun: from Python, with their progress, their errors and an end in order.

Also what each of them says when something goes wrong.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from bagwise.data.rows import BagRows, Reads, fit_codes
from bagwise.distributed.checkpoints import Checkpoints
from bagwise.distributed.options import STREAMS, Distributed
from bagwise.distributed.processes import LostError, joined, rank_under_torchrun
from bagwise.estimators import ESTIMATORS
from bagwise.utils.files import TemporaryFolder, replacing
from bagwise.utils.parameters import ParameterError
from bagwise.utils.signals import stopped_by_signals, uninterrupted

if TYPE_CHECKING:
    from bagwise.data.shards import Shards

_RESTARTS = 3
_ENDING = 60.0  # seconds in which torchrun ends its processes
_WITNESS, _LOST = 5.0, 30.0  # seconds in which torchrun ends a process that has nothing to add, or knows no more
_TASK, _TOLD, _SAID, _CHECKPOINTS = "task.json", "told.json", "said.txt", "checkpoints"

Progress = Callable[[int, int | None, str], object]


class InProcesses(Protocol):
    """A bag estimator that several processes can fit: networks and boosted trees."""

    reads: ClassVar[Reads]

    def fit_rows(self, data: BagRows, *, distributed: Distributed | None = None) -> Self:
        """Learn from bags of rows in blocks, with other processes."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, by name."""

    def set_params(self, **parameters: Any) -> Self:
        """Set some of the parameters."""


Fitted = TypeVar("Fitted", bound=InProcesses)


def launch(estimator: Fitted, shards: Shards, *, processes: int = 2, progress: Progress | None = None) -> Fitted:
    """Fit an estimator to shards in several processes of this machine, which torchrun starts.

    A process that dies is started again with the others, up to three times, and they go on from their last checkpoint.
    They are ended in order where this process is stopped, by Ctrl-C or by a signal, and at once where it is killed.

    Parameters
    ----------
    estimator : BagBoostingClassifier, BagNeuralClassifier or BagNeuralRegressor
        Its parameters must be plain data: modules, optimizers and callbacks of yours stay in this process. For these,
        let torchrun start a script that calls its `fit_rows` inside `joined`.
    shards : Shards
        The bags, as `bagwise.tables.gather.write_shards` writes them; networks read rows through ``shards.encoding()``.
    processes : int, default 2
        How many to start; each gets its share of the cores.
    progress : callable, optional
        Called with steps done, steps in all (None where that is not known yet) and what is going on.

    Returns
    -------
    BagBoostingClassifier, BagNeuralClassifier or BagNeuralRegressor
        The estimator itself.
    """
    with handed_over(estimator, shards, processes, None, progress) as (task, meanwhile):
        run(["bagwise.distributed.worker", task.name], processes, task.parent, meanwhile)
    return estimator


@contextmanager
def handed_over(
    estimator: InProcesses,
    shards: Shards,
    processes: int,
    within: str | os.PathLike[str] | None,
    progress: Progress | None,
) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A file that tells processes what to do, and what to call while they do; then the estimator takes it over.

    within: where they leave what they have learned, in a folder that goes.
    """
    tell = progress or (lambda done, total, text: None)
    streams = max(STREAMS, processes)
    with TemporaryFolder(within) as folder:
        task = {"shards": str(shards.folder.resolve()), "streams": streams, "parameters": _plain_parameters(estimator)}
        task["kind"] = type(estimator).__name__
        (folder / _TASK).write_text(json.dumps(task), encoding="utf-8")
        yield folder / _TASK, lambda: _tell_again(folder / _TOLD, tell)
        # The last checkpoint is the end of training: nothing is left but to take it over.
        options = Distributed(streams=streams, checkpoints=Checkpoints(folder / _CHECKPOINTS))
        fit_codes(estimator, shards, distributed=options)


def do_task(place: Path) -> None:
    """What a process does that was handed a file."""
    from bagwise.data.shards import Shards

    task = json.loads(place.read_text(encoding="utf-8"))
    kind = getattr(import_module(ESTIMATORS[task["kind"]]), task["kind"])
    work(kind(**task["parameters"]), Shards.open(task["shards"]), place.absolute().parent, task["streams"])


def work(estimator: InProcesses, shards: Shards, folder: Path, streams: int) -> None:
    """What a process does that `launch` started, in its folder."""
    told = folder / _TOLD
    with one_voice(told=told), joined() as processes:
        tell = _teller(told) if processes.leads else None
        options = Distributed(processes, streams, Checkpoints(folder / _CHECKPOINTS), tell)
        fit_codes(estimator, shards, distributed=options)
        processes.share(None)  # all stay until the last checkpoint is written


def run(module: list[str], processes: int, folder: Path, meanwhile: Callable[[], None]) -> None:
    """Run a module with arguments in so many processes; raises if they fail.

    They are in a session of their own: Ctrl-C reaches this process alone, which then ends them in order.
    folder: where they work.  meanwhile: called while they do.
    """
    threads = max(1, (os.cpu_count() or 1) // processes)
    launcher = [sys.executable, "-m", "bagwise.distributed.launcher", str(os.getpid())]
    command = [*launcher, "--standalone", f"--nproc-per-node={processes}", f"--max-restarts={_RESTARTS}", "-m", *module]
    # torchrun leaves a folder in the temporary place: let it go with ours.
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TMPDIR": str(folder)}
    with (folder / _SAID).open("wb") as said, stopped_by_signals():
        running = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True
        )
        try:
            while running.poll() is None:
                meanwhile()
                time.sleep(0.2)
        finally:
            with uninterrupted():
                running.terminate()  # does nothing where it has ended
                try:
                    running.wait(_ENDING)
                except subprocess.TimeoutExpired:
                    running.kill()
                    running.wait()
    if running.returncode:
        meanwhile()
        raise RuntimeError(why((folder / _SAID).read_text(encoding="utf-8", errors="replace")))


def why(said: str) -> str:
    """Why torchrun failed, where the processes could not tell."""
    ends = re.findall(r"exitcode +: (-?\d+) \(pid: \d+\) *(?:\((\w+)\))?", said)  # the first to fail comes last
    if not ends:
        lines = [line for line in said.splitlines() if line.strip()]
        return f"torchrun failed: {lines[-1] if lines else 'it said nothing'}"
    code, name = ends[-1]
    memory = "; perhaps memory ran out: start fewer processes" if name == "SIGKILL" else ""
    return f"a process was ended by {name or f'exit code {code}'}, after {_RESTARTS} restarts, too{memory}."


def _message(error: Exception) -> str:
    """An error in one sentence."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}."
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def one_voice(message: Callable[[Exception], str] = _message, *, told: Path | None = None) -> Iterator[None]:
    """Under torchrun, let one process say what went wrong: to torchrun, and to who waits for the file `told`.

    message: makes a sentence of an error.
    """
    try:
        yield
    except Exception as error:
        rank = rank_under_torchrun()
        if rank is not None:
            if isinstance(error, LostError):
                time.sleep(_LOST)  # where the others failed, torchrun ends this process meanwhile
            elif rank:
                time.sleep(_WITNESS)  # what happens to all, the leading process says
            place = os.environ.get("TORCHELASTIC_ERROR_FILE")
            if place:  # the sentence that torchrun ends its report with
                facts = {"message": message(error), "extraInfo": {"timestamp": str(int(time.time()))}}
                Path(place).write_text(json.dumps({"message": facts}), encoding="utf-8")
            if told is not None and not isinstance(error, LostError):
                _write(told, {"error": message(error)})
        raise


def _teller(told: Path) -> Callable[[int, int], None]:
    """Writes down how far training is, for the process that started it."""
    last = 0.0

    def tell(step: int, steps: int) -> None:
        nonlocal last
        if time.monotonic() > last + 0.2:
            _write(told, {"step": step, "steps": steps})
            last = time.monotonic()

    return tell


def _tell_again(told: Path, progress: Progress) -> None:
    if not told.is_file():
        progress(0, None, "choosing settings")
        return
    found = json.loads(told.read_text(encoding="utf-8"))
    if "error" in found:  # the same again, however often they start
        raise RuntimeError(found["error"])
    progress(found["step"], found["steps"], step_text(found["step"], found["steps"]))


def step_text(step: int, steps: int) -> str:
    """How far training is."""
    return f"training: step {step:,} of {steps:,}"


def _write(told: Path, facts: dict[str, Any]) -> None:
    with replacing(told) as (temporary,):
        temporary.write_text(json.dumps(facts), encoding="utf-8")


def _plain_parameters(estimator: InProcesses) -> dict[str, Any]:
    """The parameters of an estimator but its callback, as JSON gives them back."""
    found = estimator.get_params(deep=False)
    del found["callback"]
    for name, value in found.items():
        try:
            found[name] = json.loads(json.dumps(value, default=lambda one: one.tolist()))
        except (AttributeError, TypeError) as error:
            raise ParameterError(
                name,
                f"is a {type(value).__name__}, which cannot be handed to other processes: let torchrun start a script "
                "of yours that calls fit_rows.",
            ) from error
    return found
