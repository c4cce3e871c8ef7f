"""Commands for more rows than one process should read: bags gathered on disk, and a model that many processes fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import bagwise
from bagwise.cli import common, options
from bagwise.cli.common import Misuse, check_free, say, show_progress, show_result
from bagwise.utils.files import TemporaryFolder, new_folder

Trained = StrEnum("Trained", "network boosting")

_TRAIN, _HELD_OUT, _RECIPE = "train", "held-out", "recipe"
_BLOCKS = 32  # of small tables, too, so that processes have something to share


def gather(
    joined: options.Joined,
    out: Annotated[Path, Option(file_okay=False, help="Folder for the shards.")],
    hold_out: options.HoldOut = str(options.HELD_OUT),
    latest: options.Latest = None,
    group_rows: Annotated[
        int | None, Option(min=1, help="Rows of a block, which is read at once; up to 2 million numbers if not given.")
    ] = None,
    roles: options.Roles = None,
    max_levels: options.MaxLevels = 64,
    as_json: options.Json = False,
) -> None:
    """Sort the rows of bags into shards on disk, from which bagwise train learns in one process or many."""
    check_free(out)
    held = options.HeldOut.parse(hold_out, latest)
    with show_progress() as progress, joined(progress) as data:
        from bagwise.tables.fitting import features_of
        from bagwise.tables.gather import write_shards
        from bagwise.tables.model import Recipe

        check_of_labels(data, "bagwise train")
        progress(0, None, "reading columns")
        features = features_of(data, roles=options.parse_roles(roles), max_levels=max_levels)
        column = held.column(data, latest)
        train, held_out = options.split(data, held, column)
        with new_folder(out) as new:
            progress(0, None, "sorting rows by bag")
            shards = write_shards(train, features, new / _TRAIN, group_rows=group_rows, least_blocks=_BLOCKS)
            if held_out is not None:
                write_shards(held_out, features, new / _HELD_OUT, group_rows=group_rows)
            bagwise.saving.save(Recipe.of(features, train, data, column), new / _RECIPE)
    facts = {"blocks": len(shards), "bags": len(shards.size), "rows": shards.n_rows}
    left = f", {held_out.summary.bags:,} bags held out" if held_out is not None else ""
    told = f"{shards.n_rows:,} rows of {len(shards.size):,} bags in {len(shards):,} blocks{left}. Written: {out}"
    show_result(as_json, facts, str(data.summary), told)


def train(
    shards: Annotated[Path, Argument(help="Folder that bagwise gather wrote.")],
    out: Annotated[Path, Option(file_okay=False, help="Folder for the model.")] = Path("model"),
    model: Annotated[Trained, Option(help="A network, or boosted trees of labels 0 and 1.")] = Trained.network,
    hidden: Annotated[str | None, Option(help="Widths of the hidden layers, as 300,300; 32 if not given.")] = None,
    learning_rate: Annotated[
        float | None, Option(help="Learning rate; if not given, 0.2 for boosting, and for a network as bags choose.")
    ] = None,
    epochs: Annotated[
        int | None, Option(min=1, help="Passes of a network over the bags; chosen on held-out bags if not given.")
    ] = None,
    batch_rows: Annotated[
        int | None, Option(min=1, help="Rows of a batch of a network, over all processes; 1024 if not given.")
    ] = None,
    streams: Annotated[int, Option(min=1, help="Streams that bags are read in, at least one per process.")] = 8,
    checkpoints: Annotated[
        Path | None, Option(file_okay=False, help="Folder to go on from after a stop; beside --out if not given.")
    ] = None,
    every: Annotated[
        int | None, Option(min=1, help="From one checkpoint to the next: steps of a network, 200, or trees, 10.")
    ] = None,
    formation: options.BagFormation = options.Formation.auto,
    seed: options.Seed = 0,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Train a network, or boosted trees, on shards. Under torchrun, all its processes train one together.

    For example: torchrun --nproc-per-node 4 -m bagwise train shards --model boosting --out model
    """
    trees = model is Trained.boosting
    given = {"--hidden": hidden, "--epochs": epochs, "--batch-rows": batch_rows}
    if trees and (others := [option for option, one in given.items() if one is not None]):
        raise Misuse(f"{others[0]} is for networks: leave it out, or pass --model network.")
    place = checkpoints or out.parent / f"{out.name}-checkpoints"
    with _one_voice(place) as progress:
        check_free(out, force=force)
        if place.resolve().is_relative_to(out.resolve()):
            raise Misuse(f"--checkpoints lies in {out}, which the model takes: name another folder.")
        from bagwise.data.rows import fit_codes
        from bagwise.data.shards import Shards
        from bagwise.distributed import Checkpoints, Distributed, joined
        from bagwise.distributed.torchrun import step_text
        from bagwise.estimators import make
        from bagwise.tables import metadata
        from bagwise.tables.model import Recipe
        from bagwise.utils.records import as_data

        bagwise.saving.check_free(out, force=force)
        if not (shards / _RECIPE).is_dir():
            said = "is no folder that bagwise gather wrote: gather events and reports first."
            raise FileNotFoundError(f"{shards} {said}")
        recipe = bagwise.saving.load(shards / _RECIPE)
        if not isinstance(recipe, Recipe):
            raise ValueError(f"{shards / _RECIPE} does not tell what the shards are: gather them again.")
        bags = Shards.open(shards / _TRAIN)
        settings: dict[str, Any] = {"random_state": seed}
        settings |= {} if learning_rate is None else {"learning_rate": learning_rate}
        settings |= {} if formation is options.Formation.auto else {"formation": formation.value}
        if not trees:
            settings |= {"hidden": options.parse_whole(hidden or "32", "--hidden"), "batch_rows": batch_rows or 1024}
            settings |= {"max_epochs": epochs or 100, "early_stopping": epochs is None}
        estimator = make(model.value, **settings)
        with joined() as processes:
            kept, about, measured = Checkpoints(place, every or (10 if trees else 200)), None, None
            tell = (lambda step, steps: progress(step, steps, step_text(step, steps))) if processes.leads else None
            encoding = fit_codes(estimator, bags, distributed=Distributed(processes, streams, kept, tell))
            if processes.leads:
                made = recipe.model(estimator, encoding, model.value)
                if (shards / _HELD_OUT).is_dir():
                    progress(1, 1, "measuring")
                    held_out = Shards.open(shards / _HELD_OUT)
                    measured = bagwise.tables.measure(made, held_out, held_out=True)
                about = metadata.about(made, bags, measured, seen=recipe.seen, latest=recipe.latest)
                bagwise.saving.save(made, out, about=as_data(about), force=force)
                kept.remove()
            processes.share(None)  # all stay until the model is written: who is done would close the meeting
    if about is not None:
        show_result(as_json, about, *common.describe_model(about), f"Written: {out}")


def fit_in_processes(
    data: bagwise.tables.BagTable,
    model: str,
    processes: int,
    *,
    formation: str,
    settings: dict[str, Any],
    random_state: int,
    progress: common.Progress,
    **columns: Any,
) -> bagwise.tables.TableModel:
    """A network, or boosted trees, fitted by several processes of this machine.  settings, columns: of `tables.fit`."""
    from bagwise.distributed import launch
    from bagwise.estimators import make, set_parameters
    from bagwise.tables.fitting import features_of
    from bagwise.tables.gather import write_shards
    from bagwise.tables.model import Recipe

    if model == Trained.boosting and (data.target == "value" or len(data.classes or ()) > 2):
        said = (
            "several processes fit boosted trees of labels 0 and 1 alone: leave --engine out, or pass --model network."
        )
        raise ValueError(said)
    # Where torch is missing, this says so before anything is sorted.
    estimator = make(model, target=data.target, random_state=random_state)
    set_parameters(estimator, settings)
    features = features_of(data, **columns)
    if formation != "auto":
        estimator.set_params(formation=formation)
    with TemporaryFolder() as folder:
        progress(0, None, "sorting rows by bag")
        shards = write_shards(data, features, folder / "shards", least_blocks=max(_BLOCKS, 2 * processes))
        launch(estimator, shards, processes=processes, progress=progress)
        encoding = None if estimator.reads.codes else shards.encoding()
        return Recipe.of(features, data).model(estimator, encoding, model)


def check_of_labels(data: bagwise.tables.BagTable, what: str) -> None:
    """Raise where bags report values, of which shards for `train` do not tell."""
    if data.target == "value":
        way = "fit these with bagwise fit --model network --engine torchrun"
        raise ValueError(f"{what} learns labels, not values: {way}.")


@contextmanager
def _one_voice(place: Path) -> Iterator[common.Progress]:
    """Under torchrun, one process speaks for all: of progress, errors, and checkpoints in `place` after a stop."""
    from bagwise.distributed.processes import rank_under_torchrun
    from bagwise.distributed.torchrun import one_voice

    leads = not rank_under_torchrun()
    try:
        with show_progress() if leads else nullcontext(lambda *_: None) as progress, one_voice(common.error_message):
            yield progress
    except KeyboardInterrupt:
        if leads and any(place.glob("step-*")):
            say(f"{place} holds checkpoints: the same command goes on from the last one.")
        raise
