"""Signals that ask this process to end: heard as an exception, but not in the middle of what must be done whole."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_ALARM = getattr(signal, "SIGALRM", None)  # which Windows does not have
_AGAIN = 2.0  # seconds until a signal is raised again: what is raised while Python collects garbage gets lost


class Stopped(KeyboardInterrupt):
    """A signal asks this process to end.  number: which one."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number


_heard: list[int] = []  # by whoever listens now


def last_stop() -> KeyboardInterrupt:
    """The exception of the signal that was heard last, for where another library made an error of its own of it."""
    return Stopped(_heard[-1]) if _heard else KeyboardInterrupt()


@contextmanager
def stopped_by_signals() -> Iterator[list[int]]:
    """Being ended or hung up is like Ctrl-C: an exception, so that nothing is left running or lying about.

    It is raised again every two seconds while this lasts. Not under torchrun, which ends its processes itself, and not
    for signals that somebody else minds or that are ignored (nohup). The signals heard so far are handed over.

    >>> with stopped_by_signals() as heard:
    ...     print(heard)
    []
    """
    heard: list[int] = []
    before: dict[int, Any] = {}

    def stop(number: int, _: Any) -> None:
        heard.append(number)
        _heard.append(number)
        if _ALARM in before:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
        raise Stopped(number)

    def stop_again(*_: Any) -> None:
        raise Stopped(heard[-1])

    try:
        if threading.current_thread() is threading.main_thread() and "TORCHELASTIC_RUN_ID" not in os.environ:
            if _ALARM is not None and signal.getsignal(_ALARM) is signal.SIG_DFL:
                before[_ALARM] = signal.signal(_ALARM, stop_again)
            for number in _ENDING:
                if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                    before[number] = signal.signal(number, stop)
        yield heard
    finally:
        if _ALARM in before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        _heard.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that would end the block wait until it is done: for short steps that must not be cut in two.

    >>> with uninterrupted():
    ...     print("whole")
    whole
    """
    waiting: list[int] = []
    before: dict[int, Any] = {}
    over = False

    def wait(number: int, _: Any) -> None:
        if over:  # another signal came while handlers were put back
            signal.signal(number, before[number])
            signal.raise_signal(number)
        else:
            waiting.append(number)

    try:
        if threading.current_thread() is threading.main_thread():  # no other thread hears of signals
            for number in (*_ENDING, _ALARM):
                handler = None if number is None else signal.getsignal(number)
                if callable(handler) or (handler is signal.SIG_DFL and number != _ALARM):
                    before[number] = handler
                    signal.signal(number, wait)
        yield
    finally:
        over = True
        for number, handler in before.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])
