"""The processes that train one network together, as torchrun starts them; or one alone."""

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.nn.parallel import DistributedDataParallel

from bagwise.utils.signals import end_with_parent
from bagwise.utils.typing import Floats

_STEP, _WORK = timedelta(minutes=30), timedelta(days=30)  # how long the others may take for a step, and for a share

LOOPBACK = "127.0.0.1"

LAUNCHER = "BAGWISE_LAUNCHER"
"""In the environment of processes that `launch` started: the number of the torchrun that they end with."""

Task = TypeVar("Task")


def short(value: Any) -> str:
    """A value in a sentence."""
    text = " ".join(str(value).split())
    return text if len(text) <= 40 else f"{text[:40]}…"


class LostError(RuntimeError):
    """Other processes are gone, or out of reach: what happened, happened to them."""


@dataclass(frozen=True)
class Processes:
    """One process, this one, among those that train together.

    Parameters
    ----------
    rank : int, default 0
        Its number.
    world : int, default 1
        How many there are.
    patient : torch.distributed.ProcessGroup, optional
        The same processes, who wait much longer for each other; None for no longer than in a step.

    Examples
    --------
    >>> Processes().share({"seed": 3})
    {'seed': 3}
    """

    rank: int = 0
    world: int = 1
    patient: dist.ProcessGroup | None = None

    @property
    def leads(self) -> bool:
        """Whether this is the process that decides, writes and speaks for all."""
        return self.rank == 0

    def threads(self, n_jobs: int) -> int:
        """How many this process may have: as told, or as torchrun allows where that is 0 or −1; 0 for all."""
        return n_jobs if n_jobs > 0 else int(os.environ.get("OMP_NUM_THREADS", "0").split(",")[0])

    def share(self, value: Any) -> Any:
        """The leading process's value, which is plain data for JSON; the others wait until it has one."""
        return json.loads(self.share_bytes(json.dumps(value).encode())) if self.world > 1 else value

    def share_bytes(self, data: bytes) -> bytes:
        """The leading process's bytes."""
        if self.world == 1:
            return data
        length = torch.tensor([len(data)], device="cpu")
        dist.broadcast(length, src=0, group=self.patient)
        sent = torch.empty(int(length), dtype=torch.uint8, device="cpu")
        if self.leads:
            sent.copy_(torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy()))
        dist.broadcast(sent, src=0, group=self.patient)
        return sent.numpy().tobytes()

    def agree(self, facts: dict[str, Any]) -> None:
        """Raise unless the leading process has the same facts, which are plain data for JSON."""
        leading = self.share(facts)
        for name, mine in json.loads(json.dumps(facts)).items():
            if leading.get(name) != mine:
                raise ValueError(
                    f"{name} of process {self.rank} is {short(mine)}, that of the leading process "
                    f"{short(leading.get(name))}: start all with the same options, on the same bags."
                )

    def total(self, numbers: Floats) -> Floats:
        """Numbers added up over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(torch.from_numpy(numbers))
        return numbers

    def collect(self, value: Any) -> list[Any]:
        """What each process says, in their order; they may take long to say it."""
        found: list[Any] = [value] * self.world
        if self.world > 1:
            dist.all_gather_object(found, value, group=self.patient)
        return found

    def divide(self, tasks: Sequence[Task], do: Callable[[Sequence[Task]], Sequence[Any]]) -> list[Any]:
        """What comes of each task, of which every process does some; all know all of it.

        >>> Processes().divide([1, 2, 3], lambda some: [2 * one for one in some])
        [2, 4, 6]
        """
        found: list[Any] = [None] * len(tasks)
        for rank, each in enumerate(self.collect(list(do(tasks[self.rank :: self.world])))):
            found[rank :: self.world] = each
        return found

    def addresses(self) -> list[str]:
        """An address of each process that the others reach, with a port that was free a moment ago."""
        own = _address_towards(os.environ["MASTER_ADDR"])
        machines = self.collect([socket.gethostname(), own])
        if len({name for name, _ in machines}) == 1:
            own = LOOPBACK
        elif own.startswith("127."):  # the machine that all others know by a name: as seen from one of these
            own = _address_towards(next(one for _, one in machines if not one.startswith("127.")))
        return self.collect(f"{own}:{free_port()}")

    def add_up(self, total: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """A sum and a number of rows added up over all processes, in one message; gradients pass through."""
        both: Tensor = _Sum.apply(torch.cat([total.reshape(-1), total.new_tensor([rows])]))  # type: ignore[no-untyped-call]
        return both[:-1].reshape(total.shape), both[-1].detach()

    def copies(self, module: nn.Module) -> nn.Module:
        """The module with the leading process's weights, whose derivatives are the mean over all processes."""
        if self.world == 1:
            return module
        return DistributedDataParallel(module, gradient_as_bucket_view=True, bucket_cap_mb=100)


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as trial:
        trial.bind(("", 0))
        return int(trial.getsockname()[1])


def _address_towards(name: str) -> str:
    """The address of this machine as another one sees it; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        trial.connect((name, 1))
        return str(trial.getsockname()[0])


@contextmanager
def joined(device: torch.device | None = None, *, step: timedelta = _STEP) -> Iterator[Processes]:
    """The processes that torchrun started with this one; where it did not, this process alone.

    Where one is gone, the rest find out at once and raise `LostError`.

    Parameters
    ----------
    device : torch.device, optional
        Where the network is; None is the CPU.
    step : timedelta
        How long the others may take for a step.

    Yields
    ------
    Processes
        This process among them.
    """
    rank = rank_under_torchrun()
    if rank is None:
        yield Processes()
        return
    if LAUNCHER in os.environ:
        end_with_parent(int(os.environ[LAUNCHER]))
    world = int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    whole = dist.TCPStore(address, port, is_master=False)  # type: ignore[attr-defined]
    store = PrefixStore(f"bagwise/{os.environ['TORCHELASTIC_RUN_ID']}", whole)  # runs may share one
    # Sums that NumPy holds are added up on the CPU, wherever the network is.
    backend = "cpu:gloo,cuda:nccl" if device is not None and device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, store=meet(store, rank, world), rank=rank, world_size=world, timeout=step)
        yield Processes(rank, world, dist.new_group(timeout=_WORK, backend="gloo"))
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        raise LostError(
            f"process {rank} of {world} lost touch with the others: they say why, or their machines were stopped."
        ) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def rank_under_torchrun() -> int | None:
    """The number of this process among those of torchrun; None without it."""
    return int(os.environ["RANK"]) if "TORCHELASTIC_RUN_ID" in os.environ else None


def meet(store: Store, rank: int, world: int, *, seconds: float = 600) -> Store:
    """A part of torchrun's store that holds nothing yet, the same for all processes started together.

    After a restart the store still holds the addresses of processes that are gone, and who reads one waits for them
    for ever. So the leading process invents a name, waits until all have read it, takes it away again, and says so:
    a name that can be read is one that all are about to agree on, wherever the processes before were stopped.
    """
    name, deadline = uuid.uuid4().hex, time.monotonic() + seconds
    if rank == 0:
        store.set("name", name)
    while not store.check([f"{name}/all"]):
        if rank == 0:
            if all(store.check([f"{name}/{other}"]) for other in range(1, world)):
                store.set("name", "")
                store.set(f"{name}/all", "")
        elif store.check(["name"]) and (read := store.get("name").decode()):
            name = read
            store.set(f"{name}/{rank}", "")
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {rank} of {world} waited {seconds:.0f} seconds for the others: start all.")
        time.sleep(0.02)
    return PrefixStore(name, store)


class _Sum(torch.autograd.Function):
    """Adds up over processes; since every process's loss reads the sum, so do the derivatives."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        """The sum, the same in every process."""
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """What all processes' losses gain from this one's value."""
        return _Sum.forward(ctx, *gradients)
