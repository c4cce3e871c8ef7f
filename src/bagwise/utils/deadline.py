"""A moment by which work must end: set by who waits for it, minded by the loops that take long."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


class OutOfTimeError(Exception):
    """The time that was given is over."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Let `check_time` raise, in this thread and in what copies its context, once so many seconds are over.

    >>> with time_limit(0):
    ...     check_time()
    Traceback (most recent call last):
    bagwise.utils.deadline.OutOfTimeError: the time is over.
    """
    token = _deadline.set(min(_deadline.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def check_time() -> None:
    """Raise an `OutOfTimeError` where a limit is over: to be called at every step of what takes long."""
    if time.monotonic() >= _deadline.get():
        raise OutOfTimeError("the time is over.")
