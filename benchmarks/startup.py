"""How long the command line takes until it can be asked: `bagwise --help`, beside 0.4 s.

Seconds of computing of a process of its own, least of several, since the machine may be shared. What the interpreter
takes to start and to end without us is told beside it.
"""

import resource
import subprocess
import sys
from collections.abc import Sequence

from history import record

ASKED, REPEATS = 0.4, 7


def seconds(arguments: Sequence[str]) -> float:
    """What a process computed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    tasks = {"bagwise --help": ("-m", "bagwise", "--help"), "the interpreter alone": ("-c", "pass")}
    found = {name: min(seconds(arguments) for _ in range(REPEATS)) for name, arguments in tasks.items()}
    for name, took in found.items():
        print(f"{name}: {took:.2f} s of computing, {took / ASKED:.2f} × {ASKED} s")
    record("startup", f"bagwise --help to {ASKED} s", found["bagwise --help"] / ASKED, at_most=1.0)


if __name__ == "__main__":
    main()
