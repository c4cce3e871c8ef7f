"""One network trained on blocks of bags, by one process or by several that torchrun starts."""

from bagwise.neural.distributed.checkpoints import Checkpoints
from bagwise.neural.distributed.processes import LostError, Processes, joined
from bagwise.neural.distributed.torchrun import launch
from bagwise.neural.distributed.training import Distributed

__all__ = ["Checkpoints", "Distributed", "LostError", "Processes", "joined", "launch"]
