"""Threads in processes that were forked: one.

The pools of threads that LightGBM and torch keep do not live on in a copy of the process, which waits for them for ever
as soon as it asks for two. Whether there were such pools, nobody can tell: so a copy that was made after its parent had
loaded what uses them (boosting, networks, saved models), as by `multiprocessing` with its start method "fork" or by a
server that loads models before it forks, works with one thread. Processes that are spawned have all.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import joblib

_copied = False
_alone: ContextVar[bool] = ContextVar("alone", default=False)


def _remember() -> None:
    global _copied
    _copied = True


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_remember)


def was_forked() -> bool:
    """Whether this process is a copy of one that had loaded what uses threads."""
    return _copied


def threads_of(n_jobs: int) -> int:
    """So many threads as were asked for, but not more than there are processors; one where this process was forked.

    Of more, each takes memory, until LightGBM ends the process where it has none for the next.

    >>> threads_of(1), threads_of(10**9) == joblib.cpu_count()
    (1, True)
    """
    if _copied or _alone.get():
        return 1
    return n_jobs if n_jobs <= 1 else min(n_jobs, joblib.cpu_count())


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside of it, one is all there are: none is started that a later fork would miss.

    >>> with one_thread():
    ...     threads_of(4)
    1
    """
    before = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(before)
