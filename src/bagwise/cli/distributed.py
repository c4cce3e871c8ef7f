"""Commands for more rows than one process should read: bags gathered on disk, and a network that many train."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise.cli.common import (
    Misuse,
    check_free,
    error_message,
    one_sentence_errors,
    show_progress,
    show_result,
)
from bagwise.cli.describe import describe_model
from bagwise.cli.options import (
    Debug,
    EvenIfNotRandom,
    Force,
    HoldOut,
    Joined,
    Json,
    MaxLevels,
    Roles,
    Seed,
    parse_roles,
    with_tables,
)
from bagwise.utils.files import TemporaryFolder, new_folder, replacing
from bagwise.utils.signals import stopped_by_signals, uninterrupted

_TRAIN, _HELD_OUT, _RECIPE = "train", "held-out", "recipe"
_RESTARTS = 3
_ENDING = 60.0  # seconds in which torchrun ends its processes
_BLOCKS = 32  # of small tables, too, so that processes have something to share
_WITNESS, _LOST = 5.0, 30.0  # seconds in which torchrun ends a process that has nothing to add, or knows no more

Progress = Callable[..., None]


@one_sentence_errors
@with_tables()
def gather(
    joined: Joined,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the shards.")],
    hold_out: HoldOut = 0.2,
    group_rows: Annotated[
        int | None,
        typer.Option(min=1, help="Rows of a block, which is read at once; up to 2 million numbers if not given."),
    ] = None,
    roles: Roles = None,
    max_levels: MaxLevels = 64,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Sort the rows of bags into shards on disk, from which bagwise train learns in one process or many."""
    check_free(out)
    with show_progress() as progress, joined(progress) as data:
        from bagwise import tables

        progress(0, None, "reading columns")
        features = tables.features_of(data, roles=parse_roles(roles), max_levels=max_levels)
        train, held_out = tables.split(data, hold_out) if hold_out else (data, None)
        with new_folder(out) as new:
            progress(0, None, "sorting rows by bag")
            shards = tables.write_shards(train, features, new / _TRAIN, group_rows=group_rows, least_blocks=_BLOCKS)
            if held_out is not None:
                tables.write_shards(held_out, features, new / _HELD_OUT, group_rows=group_rows)
            _save_recipe(tables.Recipe(features, data.keys, data.classes, train.summary, data.summary), new)
    facts = {"blocks": len(shards), "bags": len(shards.size), "rows": shards.n_rows}
    left = f", {held_out.summary.bags:,} bags held out" if held_out is not None else ""
    told = f"{shards.n_rows:,} rows of {len(shards.size):,} bags in {len(shards):,} blocks{left}. Written: {out}"
    show_result(as_json, facts, str(data.summary), told)


@one_sentence_errors
def train(
    shards: Annotated[Path, typer.Argument(help="Folder that bagwise gather wrote.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the model.")] = Path("model"),
    hidden: Annotated[str, typer.Option(help="Widths of the hidden layers, as 300,300.")] = "32",
    learning_rate: Annotated[
        float | None, typer.Option(help="Learning rate; chosen on held-out bags if not given.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the bags; chosen on held-out bags if not given.")
    ] = None,
    batch_rows: Annotated[int, typer.Option(min=1, help="Rows of a batch, over all processes.")] = 1024,
    lanes: Annotated[int, typer.Option(min=1, help="Streams of bags, at least as many as processes.")] = 8,
    checkpoints: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder to go on from after a stop; beside --out if not given.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Steps from one checkpoint to the next.")] = 200,
    even_if_not_random: EvenIfNotRandom = False,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
    tell: Annotated[Path | None, typer.Option(hidden=True)] = None,
    debug: Debug = False,
) -> None:
    """Train a network on shards. Under torchrun, all its processes train one together.

    For example: torchrun --nproc-per-node 4 -m bagwise train shards --out model
    """
    place = checkpoints or out.with_name(f"{out.name}-checkpoints")
    with _of_all() as progress, _one_voice(tell, place):
        check_free(out, force=force)
        if place.resolve().is_relative_to(out.resolve()):
            raise Misuse(f"--checkpoints lies in {out}, which the model takes: name another folder.")
        from bagwise import saving, tables
        from bagwise.neural import BagNeuralClassifier
        from bagwise.neural.distributed.checkpoints import Checkpoints
        from bagwise.neural.distributed.processes import joined
        from bagwise.neural.distributed.training import Together
        from bagwise.utils.records import as_data

        saving.check_free(out, force=force)
        recipe = _recipe(shards)
        bags = tables.Shards.open(shards / _TRAIN)
        estimator = BagNeuralClassifier(
            hidden=_widths(hidden),
            learning_rate="auto" if learning_rate is None else learning_rate,
            max_epochs=100 if epochs is None else epochs,
            early_stopping=epochs is None,
            batch_rows=batch_rows,
            random_state=seed,
        )
        with joined() as ranks:
            kept = Checkpoints(place, every)
            together = Together(ranks, lanes, kept, _teller(progress, tell) if ranks.leads else None)
            encoding = tables.fit_network(bags, estimator, together=together)
            about = None
            if ranks.leads:
                model = recipe.model(estimator, encoding, "network")
                measured = None
                if (shards / _HELD_OUT).is_dir():
                    progress(1, 1, "measuring")
                    held_out = tables.Shards.open(shards / _HELD_OUT)
                    measured = tables.measure(model, held_out, even_if_not_random=even_if_not_random)
                about = tables.about(model, bags, measured, seen=recipe.seen)
                saving.save(model, out, about=as_data(about), force=force)
                kept.remove()
            ranks.share(None)  # all stay until the model is written: machines that are done would close the meeting
    if about is not None:
        show_result(as_json, as_data(about), *describe_model(about), f"Written: {out}")


def fit_in_processes(data: Any, processes: int, progress: Progress, *, seed: int, **options: Any) -> Any:
    """A network fitted by several processes of this machine: a `TableModel`.

    data: a `BagTable`.  options: of `tables.features_of`.
    """
    import bagwise.neural  # noqa: F401  (where torch is missing, it says so before anything is sorted)
    from bagwise import saving, tables

    features = tables.features_of(data, **options)
    with TemporaryFolder() as folder:
        progress(0, None, "sorting rows by bag")
        blocks = max(_BLOCKS, 2 * processes)
        tables.write_shards(data, features, folder / "shards" / _TRAIN, least_blocks=blocks)
        _save_recipe(tables.Recipe(features, data.keys, data.classes, data.summary, data.summary), folder / "shards")
        told = folder / "told.json"
        arguments = ["train", "shards", "--out", "model", "--seed", str(seed), "--lanes", str(max(8, processes))]
        _torchrun([*arguments, "--tell", str(told)], processes, folder, lambda: _tell_again(told, progress))
        return saving.load(folder / "model")


def _torchrun(arguments: list[str], processes: int, folder: Path, meanwhile: Callable[[], None]) -> None:
    """Run bagwise with these arguments in so many processes; raises if they fail.

    They are in a session of their own: Ctrl-C reaches this process alone, which then ends them in order.
    """
    threads = max(1, (os.cpu_count() or 1) // processes)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*launcher, f"--max-restarts={_RESTARTS}", "-m", "bagwise", *arguments]
    # torchrun leaves a folder in the temporary place: let it go with ours.
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TMPDIR": str(folder)}
    with (folder / "said.txt").open("wb") as said, stopped_by_signals():
        running = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True
        )
        try:
            while running.poll() is None:
                meanwhile()
                time.sleep(0.2)
        finally:
            with uninterrupted():
                if running.poll() is None:
                    running.terminate()
                    try:
                        running.wait(_ENDING)
                    except subprocess.TimeoutExpired:
                        running.kill()
                        running.wait()
    if running.returncode:
        meanwhile()
        raise RuntimeError(_why((folder / "said.txt").read_text(encoding="utf-8", errors="replace")))


def _why(said: str) -> str:
    """Why torchrun failed, where the processes could not tell."""
    ends = re.findall(r"exitcode +: (-?\d+) \(pid: \d+\) *(?:\((\w+)\))?", said)  # the first to fail comes last
    if not ends:
        lines = [line for line in said.splitlines() if line.strip()]
        return f"torchrun failed: {lines[-1] if lines else 'it said nothing'}"
    code, name = ends[-1]
    memory = "; perhaps memory ran out: start fewer processes" if name == "SIGKILL" else ""
    return f"a process was ended by {name or f'exit code {code}'}, after {_RESTARTS} restarts, too{memory}."


def _of_all() -> AbstractContextManager[Progress]:
    """A progress bar for all processes together: that of the leading one."""
    return show_progress() if _rank() in (None, 0) else nullcontext(lambda *_: None)


@contextmanager
def _one_voice(told: Path | None, place: Path) -> Iterator[None]:
    """Under torchrun, let one process say what went wrong: to people, to torchrun, and to who waits for `told`.

    place: of checkpoints.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not _rank() and any(place.glob("step-*")):
            typer.echo(f"{place} holds checkpoints: the same command goes on from the last one.", err=True)
        raise
    except Exception as error:
        if _rank() is not None:
            from bagwise.neural.distributed.processes import LostError

            if isinstance(error, LostError):
                time.sleep(_LOST)  # where the others failed, torchrun ends this process meanwhile
            elif _rank():
                time.sleep(_WITNESS)  # what happens to all, the leading process says
            _tell_torchrun(error_message(error))
            if told is not None and not isinstance(error, LostError):
                _write(told, {"error": error_message(error)})
        raise


def _rank() -> int | None:
    """The number of this process among those of torchrun; None without it."""
    return int(os.environ["RANK"]) if "TORCHELASTIC_RUN_ID" in os.environ else None


def _tell_torchrun(text: str) -> None:
    """The sentence that torchrun ends its report with."""
    place = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if place:
        facts = {"message": text, "extraInfo": {"timestamp": str(int(time.time()))}}
        Path(place).write_text(json.dumps({"message": facts}), encoding="utf-8")


def _teller(progress: Progress, told: Path | None) -> Callable[[int, int], None]:
    """Shows how far training is; and writes it down for the process that started it."""
    last = 0.0

    def tell(step: int, steps: int) -> None:
        nonlocal last
        progress(step, steps, f"training: step {step:,} of {steps:,}")
        if told is not None and time.monotonic() > last + 0.2:
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
    progress(found["step"], found["steps"], f"training: step {found['step']:,} of {found['steps']:,}")


def _write(told: Path, facts: dict[str, Any]) -> None:
    with replacing(told) as (temporary,):
        temporary.write_text(json.dumps(facts), encoding="utf-8")


def _save_recipe(recipe: Any, folder: Path) -> None:
    from bagwise import saving

    saving.save(recipe, folder / _RECIPE)


def _recipe(shards: Path) -> Any:
    from bagwise import saving
    from bagwise.tables import Recipe

    if not (shards / _RECIPE).is_dir():
        raise FileNotFoundError(f"{shards} is no folder that bagwise gather wrote: gather events and reports first.")
    recipe = saving.load(shards / _RECIPE)
    if not isinstance(recipe, Recipe):
        raise ValueError(f"{shards / _RECIPE} does not tell what the shards are: gather them again.")
    return recipe


def _widths(text: str) -> tuple[int, ...]:
    try:
        widths = tuple(int(width) for width in text.split(",") if width.strip())
    except ValueError:
        widths = (0,)
    if min(widths, default=1) < 1:
        raise Misuse(f"--hidden must be whole numbers of at least 1, as 300,300, got {text}.")
    return widths
