"""Commands for more rows than one process should read: bags gathered on disk, and a network that many train."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._files import new_folder, replacing
from bagwise.cli.analyst import description, roles_of
from bagwise.cli.common import Debug, Force, Json, Seed, answer, check_free, one_sentence_errors, show_progress
from bagwise.cli.options import Joined, MaxLevels, Roles, with_tables

_TRAIN, _HELD_OUT, _RECIPE = "train", "held-out", "recipe"
_RESTARTS = 3

Progress = Callable[..., None]


@one_sentence_errors
@with_tables()
def gather(
    joined: Joined,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the shards.")],
    hold_out: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of the bags to measure a model on; 0 for none.")
    ] = 0.2,
    group_rows: Annotated[
        int | None,
        typer.Option(min=1, help="Rows of a block, which is read at once; 2 million numbers if not given."),
    ] = None,
    roles: Roles = None,
    max_levels: MaxLevels = 64,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Sort the rows of bags into shards on disk, from which bagwise train learns in one process or many."""
    check_free(out, force=False)
    with show_progress() as progress, joined(progress) as data:
        from bagwise import tables

        progress(0, None, "reading columns")
        features = tables.features_of(data, roles=roles_of(roles), max_levels=max_levels)
        train, held_out = tables.split(data, hold_out) if hold_out else (data, None)
        with new_folder(out) as new:
            progress(0, None, "sorting rows by bag")
            shards = tables.write_shards(train, features, new / _TRAIN, group_rows=group_rows)
            if held_out is not None:
                tables.write_shards(held_out, features, new / _HELD_OUT, group_rows=group_rows)
            _save_recipe(tables.Recipe(features, data.keys, data.classes, train.summary, data.summary), new)
    facts = {"blocks": len(shards), "bags": len(shards.size), "rows": shards.n_rows}
    told = f"{shards.n_rows:,} rows of {len(shards.size):,} bags in {len(shards):,} blocks. Written: {out}"
    answer(as_json, facts, str(data.summary), told)


@one_sentence_errors
def train(
    shards: Annotated[Path, typer.Argument(help="Folder that bagwise gather wrote.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the model.")] = Path("model"),
    hidden: Annotated[str, typer.Option(help="Widths of the hidden layers, as 300,300.")] = "32",
    learning_rate: Annotated[float | None, typer.Option(help="Chosen on held-out bags if not given.")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the bags; chosen on held-out bags if not given.")
    ] = None,
    batch_rows: Annotated[int, typer.Option(min=1, help="Rows of a batch, over all processes.")] = 1024,
    lanes: Annotated[int, typer.Option(min=1, help="Streams of bags, at least as many as processes.")] = 8,
    checkpoints: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder to go on from after a stop; beside --out if not given.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Steps from one checkpoint to the next.")] = 200,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
    tell: Annotated[Path | None, typer.Option(hidden=True)] = None,
    debug: Debug = False,
) -> None:
    """Train a network on shards. Under torchrun, all its processes train one together.

    For example: torchrun --nproc-per-node 4 -m bagwise train shards --out model
    """
    check_free(out, force=force)
    place = checkpoints or out.with_name(f"{out.name}-checkpoints")
    with show_progress() as progress:
        from bagwise import saving, tables
        from bagwise.neural import BagNeuralClassifier
        from bagwise.neural.checkpoints import Checkpoints
        from bagwise.neural.ranks import joined
        from bagwise.neural.together import Together

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
            together = Together(
                ranks, lanes, Checkpoints(place, every), _teller(progress, tell) if ranks.leads else None
            )
            encoding = tables.fit_network(bags, estimator, together=together)
            if not ranks.leads:
                return
        model = recipe.model(estimator, encoding, "network")
        evaluation = None
        if (shards / _HELD_OUT).is_dir():
            progress(1, 1, "measuring")
            evaluation = tables.evaluate_shards(model, tables.Shards.open(shards / _HELD_OUT))
        about = tables.about(model, bags, evaluation, summary=recipe.summary, seen=recipe.seen)
        saving.save(model, out, about=about, force=force)
        shutil.rmtree(place, ignore_errors=True)
    answer(as_json, about, *description(about), f"Written: {out}")


def fit_in_processes(data: Any, processes: int, progress: Progress, *, seed: int, **options: Any) -> Any:
    """A network fitted by several processes of this machine: a `TableModel`.

    data: a `BagTable`.  options: of `tables.features_of`.
    """
    from bagwise import saving, tables

    features = tables.features_of(data, **options)
    with tempfile.TemporaryDirectory(prefix="bagwise-") as name:
        folder = Path(name)
        progress(0, None, "sorting rows by bag")
        rows = max(1, data.summary.used_rows // (2 * processes))  # so that every process has blocks of its own
        shards = tables.write_shards(data, features, folder / "shards" / _TRAIN)
        if len(shards) < processes:
            shutil.rmtree(folder / "shards")
            tables.write_shards(data, features, folder / "shards" / _TRAIN, group_rows=rows)
        _save_recipe(tables.Recipe(features, data.keys, data.classes, data.summary, data.summary), folder / "shards")
        told = folder / "told.json"
        arguments = ["train", "shards", "--out", "model", "--seed", str(seed), "--lanes", str(max(8, processes))]
        _torchrun([*arguments, "--tell", str(told)], processes, folder, lambda: _tell_again(told, progress))
        return saving.load(folder / "model")


def _torchrun(arguments: list[str], processes: int, folder: Path, meanwhile: Callable[[], None]) -> None:
    """Run bagwise with these arguments in so many processes; what they say is an error if they fail."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*launcher, f"--max-restarts={_RESTARTS}", "-m", "bagwise", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with (folder / "said.txt").open("wb") as said:
        running = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)
        try:
            while running.poll() is None:
                meanwhile()
                time.sleep(0.2)
        finally:
            if running.poll() is None:
                running.terminate()
                running.wait()
    if running.returncode:
        lines = (folder / "said.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
        raise RuntimeError(errors[0] if errors else f"torchrun failed: {(lines or ['it said nothing'])[-1]}")


def _teller(progress: Progress, told: Path | None) -> Callable[[int, int], None]:
    """Shows how far training is; and writes it down for the process that started it."""
    last = 0.0

    def tell(step: int, steps: int) -> None:
        nonlocal last
        progress(step, steps, f"training: step {step:,} of {steps:,}")
        if told is not None and time.monotonic() > last + 0.2:
            with replacing(told) as (temporary,):
                temporary.write_text(json.dumps([step, steps]), encoding="utf-8")
            last = time.monotonic()

    return tell


def _tell_again(told: Path, progress: Progress) -> None:
    if told.is_file():
        step, steps = json.loads(told.read_text(encoding="utf-8"))
        progress(step, steps, f"training: step {step:,} of {steps:,}")
    else:
        progress(0, None, "choosing settings")


def _save_recipe(recipe: Any, folder: Path) -> None:
    from bagwise import saving

    saving.save(recipe, folder / _RECIPE)


def _recipe(shards: Path) -> Any:
    from bagwise import saving
    from bagwise.tables import Recipe

    if not (shards / _RECIPE).is_dir():
        raise FileNotFoundError(f"{shards} is no folder that bagwise gather wrote.")
    recipe = saving.load(shards / _RECIPE)
    if not isinstance(recipe, Recipe):
        raise ValueError(f"{shards / _RECIPE} does not tell what the shards are: gather them again.")
    return recipe


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(width) for width in text.split(",") if width.strip())
    except ValueError:
        raise ValueError(f"--hidden must be whole numbers, as 300,300; got {text!r}.") from None
