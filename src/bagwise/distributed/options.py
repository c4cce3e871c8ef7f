"""How a model is fitted to blocks of bags by several processes, and what they agree on before they begin."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bagwise.data.rows import BagRows
from bagwise.distributed.checkpoints import Checkpoints
from bagwise.distributed.processes import Processes

STREAMS = 8


@dataclass(frozen=True)
class Distributed:
    """How a model is fitted to blocks of bags.

    Parameters
    ----------
    processes : Processes, optional
        Those that fit it; this one alone if not given. See `joined`.
    streams : int, default 8
        Streams that blocks are read in, at least as many as processes.
    checkpoints : Checkpoints, optional
        Where the state of the fit goes, and where it is taken up again; None writes none.
    tell : callable, optional
        Called with the steps done and those in all.
    """

    processes: Processes = field(default_factory=Processes)
    streams: int = STREAMS
    checkpoints: Checkpoints | None = None
    tell: Callable[[int, int], object] | None = None


def check_streams(data: BagRows, options: Distributed) -> int:
    """How many streams there are: as many as asked for, unless there are fewer blocks. Raise if too few for all."""
    found, world = min(options.streams, len(data)), options.processes.world
    if world <= found:
        return found
    many = f"there are {world} processes for {found} {'streams' if found > 1 else 'stream'} of bags"
    if found < len(data):
        raise ValueError(f"{many}: ask for more streams, or start {found} at most.")
    if found < len(data.size):
        raise ValueError(
            f"{many}, one for each block: gather the bags in smaller blocks (group_rows), or start {found} at most."
        )
    raise ValueError(f"{many}, one for each bag: start {found} at most.")


def settle(
    data: BagRows,
    parameters: dict[str, Any],
    options: Distributed,
    decide: Callable[[], dict[str, Any]],
    *,
    together: bool = False,
) -> dict[str, Any]:
    """What is decided before the fit begins, as plain data: as it was when the checkpoints began, or as it is now.

    parameters: that the result depends on.  decide: called in the leading process alone, or, together, in all.
    """
    processes, checkpoints = options.processes, options.checkpoints
    check_streams(data, options)
    task = {"checksum of the rows": data.fingerprint, "streams": options.streams}
    task |= {name: as_text(value) for name, value in parameters.items()}
    processes.agree({**task, "every": None if checkpoints is None else checkpoints.every})
    settings = None
    if checkpoints is not None and processes.leads:
        checkpoints.check_place()
        settings = checkpoints.decided(task)
    if together and processes.share(settings) is None and not processes.leads:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the leading process gives the same
            decide()
    if settings is None and processes.leads:
        settings = decide()
        if checkpoints is not None:
            checkpoints.decide(task, settings)
    shared: dict[str, Any] = processes.share(settings)
    return shared


def as_text(value: Any) -> str:
    """A parameter in words that are the same in every process: without the addresses of functions."""
    try:
        return json.dumps(value, default=lambda one: one.tolist())
    except (AttributeError, TypeError):
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
