"""LightGBM's machines: processes, or threads, that grow the same tree on the rows of each.

A single process is two machines, of which the second, a thread, holds its last row. LightGBM draws places to cut at
random in another order where rows are all in one place; so the trees of one process are those of several.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import lightgbm as lgb
import numpy as np

from bagwise.boosting.growth import grow
from bagwise.distributed.processes import LOOPBACK, LostError, Processes, free_port
from bagwise.utils.typing import Floats

_LISTEN = 120  # minutes in which all machines have their bins

Result = TypeVar("Result")


@dataclass(eq=False)
class Machines:
    """Those of this process, of which the first is this thread; each grows trees on data of its own.

    data: of each machine.  n_machines: of all processes.  booster: of the first machine.
    """

    data: Sequence[lgb.Dataset]
    n_machines: int
    thread: ThreadPoolExecutor
    booster: lgb.Booster = field(init=False)
    others: list[lgb.Booster] = field(init=False)

    def begin(self, parameters: dict[str, Any]) -> None:
        """Begin with no trees."""
        given = parameters | {"tree_learner": "data", "num_machines": self.n_machines, "pre_partition": True}
        self.booster, *self.others = self.each([partial(lgb.Booster, given, data) for data in self.data])

    def seed(self, extra_seed: int) -> None:
        """Where places to cut are drawn from, anew for each tree: machines draw for features that are then others."""
        for booster in (self.booster, *self.others):
            booster.reset_parameter({"extra_seed": extra_seed})

    def grow(self, booster: lgb.Booster, gradient: Floats, curvature: Floats) -> Floats:
        """`growth.grow` by all machines at once: by how much each row moved."""
        if not self.others:
            return grow(booster, gradient, curvature)
        first = partial(grow, booster, gradient[:-1], curvature[:-1])
        return np.concatenate(self.each([first, partial(grow, self.others[0], gradient[-1:], curvature[-1:])]))

    def each(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        """The results of each machine's call, in their threads."""
        coming = [self.thread.submit(call) for call in calls[1:]]
        return [calls[0](), *(each.result() for each in coming)]


@contextmanager
def network(processes: Processes, booster: lgb.Booster, data: Sequence[lgb.Dataset]) -> Iterator[Machines]:
    """Machines that know each other; two where this process is alone.

    booster: any, since LightGBM has one network for all of a thread's.
    """
    addresses = processes.addresses() if processes.world > 1 else [f"{LOOPBACK}:{free_port()}" for _ in data]
    with ThreadPoolExecutor(1) as thread:
        machines = Machines(data, len(addresses), thread)

        def meet(place: int) -> None:
            port = int(addresses[place].rpartition(":")[2])
            booster.set_network(list(addresses), port, _LISTEN, len(addresses))

        with _silent():
            machines.each([partial(meet, processes.rank + more) for more in range(len(data))])
        try:
            yield machines
        except lgb.basic.LightGBMError as error:
            if "ocket" not in str(error):
                raise
            raise LostError(f"process {processes.rank} of {processes.world} lost touch with the others.") from error
        finally:
            machines.each([booster.free_network for _ in data])


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing on standard output, where LightGBM says that it listens, whatever its verbosity."""
    before, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)
        os.close(nowhere)
