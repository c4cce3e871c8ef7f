"""torchrun, which ends with the process that started it. Arguments: the number of that process, and torchrun's own."""

import os
import sys

from bagwise.distributed.processes import LAUNCHER
from bagwise.utils.signals import end_with_parent

if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    os.environ[LAUNCHER] = str(os.getpid())
    from torch.distributed.run import main

    main(sys.argv[2:])
