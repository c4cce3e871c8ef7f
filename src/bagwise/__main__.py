"""The program `bagwise`, and `python -m bagwise`: it minds signals before it loads anything that takes long."""

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from bagwise.utils.signals import STOPPED, end_with_parent, exit_code, last_stop, stopped_by_signals


def run() -> NoReturn:
    """Load the commands and run the one that is asked for."""
    code: int | str | None = 0
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun may be killed while commands are loaded
        end_with_parent()
    with stopped_by_signals():
        try:
            from bagwise.cli import run as run_command

            run_command()
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            stop = error if isinstance(error, KeyboardInterrupt) else last_stop()
            if stop is None:
                raise
            code = exit_code(stop)  # whatever a library that was being loaded made of it
            with suppress(OSError):
                print(STOPPED, file=sys.stderr)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is still to come has nothing to put in order
    sys.exit(code)


if __name__ == "__main__":
    run()
