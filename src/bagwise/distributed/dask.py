"""One model fitted by the workers of a Dask cluster, each of which is a process as torchrun starts them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import torch.distributed as dist

from bagwise.data.shards import Shards
from bagwise.distributed.processes import free_port
from bagwise.distributed.torchrun import Fitted, Progress, do_task, handed_over
from bagwise.utils.parameters import ParameterError

_PAUSE = 0.2  # seconds between two looks at how far they are


def launch_on_dask(
    estimator: Fitted,
    shards: Shards,
    client: Any,
    *,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Fit an estimator to shards by the workers of a Dask cluster, as `launch` does by processes of torchrun.

    The trees, and the steps of a network, are those of any other number of processes. A worker that dies ends the fit
    with an error.

    Parameters
    ----------
    estimator : BagBoostingClassifier, BagNeuralClassifier or BagNeuralRegressor
        Its parameters must be plain data.
    shards : Shards
        The bags, in a folder that all workers see under the same name.
    client : distributed.Client
        Of the cluster. Workers must be processes of their own with bagwise installed, who reach each other, and should
        have nothing else to do.
    folder : path, optional
        Where workers leave what they have learned, seen by all; by default that beside the shards.
    progress : callable, optional
        Called with steps done, steps in all (None where that is not known yet) and what is going on.

    Returns
    -------
    BagBoostingClassifier, BagNeuralClassifier or BagNeuralRegressor
        The estimator itself.
    """
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    if not workers:
        raise ParameterError("client", "has no workers: start some, or wait for them.")
    place = {
        "MASTER_ADDR": str(urlsplit(workers[0]).hostname),
        "MASTER_PORT": client.submit(free_port, workers=[workers[0]], pure=False).result(),
        "WORLD_SIZE": len(workers),
        "TORCHELASTIC_RUN_ID": uuid4().hex,
    }
    within = shards.folder.resolve().parent if folder is None else folder
    with handed_over(estimator, shards, len(workers), within, progress) as (task, meanwhile):
        running = [
            client.submit(work_on_dask, str(task), {**place, "RANK": rank}, workers=[worker], pure=False)
            for rank, worker in enumerate(workers)
        ]
        try:
            while not all(one.done() for one in running) and not any(one.status == "error" for one in running):
                meanwhile()
                time.sleep(_PAUSE)
            meanwhile()  # raises what the leading process says
            for one in sorted(running, key=lambda one: one.status != "error"):  # others fail because that one did
                one.result()
        finally:
            client.cancel(running)
    return estimator


def work_on_dask(task: str, place: dict[str, Any]) -> None:
    """What one of the workers does.  place: what torchrun would tell a process about all of them."""
    with _told(place), _meeting_place(place):
        do_task(Path(task))


@contextmanager
def _meeting_place(place: dict[str, Any]) -> Iterator[None]:
    """Where all find each other: in the leading process."""
    leads, address, port = place["RANK"] == 0, place["MASTER_ADDR"], int(place["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=True, wait_for_workers=False) if leads else None  # type: ignore[attr-defined]
    yield
    del store


@contextmanager
def _told(place: dict[str, Any]) -> Iterator[None]:
    """Some of the environment, for as long as this lasts."""
    before = {name: os.environ.get(name) for name in place}
    os.environ.update({name: str(value) for name, value in place.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
