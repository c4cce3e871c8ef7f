"""One model fitted to blocks of bags, by one process or by several that torchrun or Dask starts."""

from bagwise.distributed.checkpoints import Checkpoints
from bagwise.distributed.dask import launch_on_dask
from bagwise.distributed.options import Distributed
from bagwise.distributed.processes import LostError, Processes, joined
from bagwise.distributed.torchrun import launch

__all__ = ["Checkpoints", "Distributed", "LostError", "Processes", "joined", "launch", "launch_on_dask"]
