"""A process that `launch` starts by torchrun. Argument: the file that says what to do. The result: checkpoints."""

import sys
from pathlib import Path

from bagwise.distributed.torchrun import do_task

if __name__ == "__main__":
    do_task(Path(sys.argv[1]))
